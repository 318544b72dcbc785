//! Frames on a stream: their length in four bytes, then the frame. The length is looked at before room is made.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bus::codec::CodecFault;

use super::words::FRAMES;

/// Reads one frame.
///
/// # Errors
/// Where the stream ends or fails, or what came is no frame: nothing that follows can be trusted then.
pub(super) async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let bytes = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if bytes > FRAMES.most() {
        return Err(bad(CodecFault::TooLong { bytes, most: FRAMES.most() }));
    }
    let mut frame = vec![0; bytes];
    stream.read_exact(&mut frame).await?;
    FRAMES.decode(&frame).map_err(bad)
}

/// A frame with its length in front.
///
/// # Errors
/// Where it is too long.
pub(super) fn framed<T: Serialize>(said: &T) -> Result<Vec<u8>, CodecFault> {
    let frame = FRAMES.encode(said)?;
    let length = u32::try_from(frame.len()).expect("the longest frame is far below 4 GiB");
    let mut whole = length.to_le_bytes().to_vec();
    whole.extend_from_slice(&frame);
    Ok(whole)
}

/// Writes one frame.
///
/// # Errors
/// Where the stream does not take it, or it is too long.
pub(super) async fn write<T: Serialize>(stream: &mut (impl AsyncWriteExt + Unpin), said: &T) -> io::Result<()> {
    stream.write_all(&framed(said).map_err(bad)?).await
}

fn bad(fault: CodecFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}
