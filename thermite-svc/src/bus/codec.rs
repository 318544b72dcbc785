//! Frames: a version byte, then bincode. One place makes them and reads them, with a limit on their size both ways.
//!
//! A frame of another version is told apart by its first byte and nothing else of it is read; a frame that holds the
//! version byte alone says "this is what I speak, and I could not read you". What is read must be read to its end.

use std::io::{self, Write};

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use thermite_core::limits;
use thermite_core::wire::WIRE_VERSION;

/// What one kind of frame is: its version, and that it is no longer than `MOST` bytes. What a frame claims to hold makes
/// no more room than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec<const MOST: usize> {
    version: u8,
}

/// The frames of the bus.
pub const BUS: Codec<{ limits::WIRE_FRAME_BYTES_MAX }> = Codec::new(WIRE_VERSION);

/// A frame that cannot be read or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecFault {
    /// It is of another version, or of none where it is empty of it.
    #[error("it speaks version {has}; this program speaks {wants}")]
    OtherWire {
        /// Its version.
        has: u8,
        /// This program's.
        wants: u8,
    },
    /// It is longer than any may be.
    #[error("a frame of {bytes} bytes or more; at most {most} are taken")]
    TooLong {
        /// At least how long.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// It is cut, has something behind its end, or means nothing.
    #[error("a frame that cannot be read: {0}")]
    Garbled(String),
}

type Config<const MOST: usize> = Configuration<LittleEndian, Varint, Limit<MOST>>;

const fn config<const MOST: usize>() -> Config<MOST> {
    bincode::config::standard().with_limit::<MOST>()
}

impl<const MOST: usize> Codec<MOST> {
    /// Frames of that version.
    pub const fn new(version: u8) -> Codec<MOST> {
        Codec { version }
    }

    /// How long a frame may be, in bytes.
    pub const fn most(self) -> usize {
        MOST
    }

    /// A frame of `said`.
    ///
    /// # Errors
    /// Where it is longer than a frame may be; no more than that is ever held.
    pub fn encode<T: Serialize>(self, said: &T) -> Result<Vec<u8>, CodecFault> {
        let mut bounded = Bounded { bytes: vec![self.version], most: MOST, is_over: false };
        match bincode::serde::encode_into_std_write(said, &mut bounded, config::<MOST>()) {
            Ok(_) => Ok(bounded.bytes),
            Err(_) if bounded.is_over => Err(CodecFault::TooLong { bytes: MOST + 1, most: MOST }),
            Err(error) => Err(CodecFault::Garbled(error.to_string())),
        }
    }

    /// What a frame says.
    ///
    /// # Errors
    /// Where it is of another version, longer than a frame may be, or not whole.
    pub fn decode<T: DeserializeOwned>(self, frame: &[u8]) -> Result<T, CodecFault> {
        let Some((&version, body)) = frame.split_first() else {
            return Err(CodecFault::Garbled("it is empty".to_owned()));
        };
        // First: of another version nothing else is known, not even how long it may be.
        if version != self.version {
            return Err(CodecFault::OtherWire { has: version, wants: self.version });
        }
        if frame.len() > MOST {
            return Err(CodecFault::TooLong { bytes: frame.len(), most: MOST });
        }
        if body.is_empty() {
            return Err(CodecFault::Garbled("the other side could not read what it was sent".to_owned()));
        }
        let (said, read) = bincode::serde::decode_from_slice::<T, Config<MOST>>(body, config())
            .map_err(|error| CodecFault::Garbled(error.to_string()))?;
        match body.len() - read {
            0 => Ok(said),
            more => Err(CodecFault::Garbled(format!("{more} bytes stand behind its end"))),
        }
    }

    /// The frame that answers what could not be read: the version alone.
    pub fn could_not_read(self) -> Vec<u8> {
        vec![self.version]
    }
}

/// Bytes up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.most {
            self.is_over = true;
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
