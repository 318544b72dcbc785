//! A run's output on disk: its beginning, its end, and how much there was.
//!
//! The launcher reads the pipe and writes here, so neither the rig's memory nor its threads see a flood. Readers pull by
//! offset while the run goes on; nothing is line-based. The layout, all in one file:
//! ```text
//! 0      header: magic, flags, bytes written so far
//! 4096   head: the first OUTPUT_HEAD_BYTES
//! then   ring: later bytes at (position - head) modulo the ring's size
//! ```
//! The ring holds one chunk more than the tail, so that what a reader may rely on is never what is being overwritten:
//! a chunk is written first and counted after.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use futures_util::future::LocalBoxFuture;
use thermite_core::ids::DevRunId;
use thermite_core::limits::{OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES};

use crate::ports::{OutputSlice, Outputs, RecordsFault, RemoteOutputs};

const MAGIC: [u8; 8] = *b"thermout";
const HEADER_BYTES: u64 = 4_096;
const CHUNK_BYTES: usize = 64 * 1024;
const RING_BYTES: u64 = OUTPUT_TAIL_BYTES + CHUNK_BYTES as u64;

/// The counted part of a file's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    total: u64,
    complete: bool,
}

impl Header {
    fn write(self, file: &File) -> io::Result<()> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&u64::from(self.complete).to_le_bytes());
        bytes[16..].copy_from_slice(&self.total.to_le_bytes());
        file.write_all_at(&bytes, 0)
    }

    fn read(file: &File) -> io::Result<Header> {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0)?;
        let (magic, rest) = bytes.split_at(8);
        if magic != MAGIC {
            return Err(io::Error::other("not an output file of Thermite's"));
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| rest[at + i]));
        Ok(Header { complete: number(0) != 0, total: number(8) })
    }

    /// Where the kept end begins.
    fn tail_from(self) -> u64 {
        self.total.saturating_sub(OUTPUT_TAIL_BYTES).max(OUTPUT_HEAD_BYTES)
    }
}

/// Writes one run's output.
pub(super) struct Capture {
    file: File,
    header: Header,
    chunk: Vec<u8>,
}

impl Capture {
    /// Makes the file with all the room it will ever need, so that a full disk is told before the run starts.
    pub(super) fn create(path: &Path) -> io::Result<Capture> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let room = HEADER_BYTES + OUTPUT_HEAD_BYTES + RING_BYTES;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, room) {
            // A file system without it tells a full disk late.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let header = Header::default();
        header.write(&file)?;
        Ok(Capture { file, header, chunk: vec![0; CHUNK_BYTES] })
    }

    /// Takes what is in the pipe, at most a chunk; whether more may come.
    pub(super) fn take(&mut self, pipe: impl AsFd) -> bool {
        match rustix::io::read(pipe, self.chunk.as_mut_slice()) {
            Ok(0) => false,
            Ok(n) => {
                // The room is there since the start; an error is the disk's, and the run goes on without its output.
                let _ = self.keep(n);
                true
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    fn keep(&mut self, n: usize) -> io::Result<()> {
        if self.header.complete {
            return Ok(());
        }
        let mut position = self.header.total;
        let mut left = &self.chunk[..n];
        while !left.is_empty() {
            let (at, room) = place(position);
            let (piece, rest) = left.split_at(left.len().min(room as usize));
            self.file.write_all_at(piece, at)?;
            position += piece.len() as u64;
            left = rest;
        }
        self.header.total = position;
        self.header.write(&self.file)
    }

    /// Says that nothing more will be kept, and gives back the room that was not used.
    pub(super) fn complete(&mut self) {
        if !self.header.complete {
            self.header.complete = true;
            let _ = self.header.write(&self.file);
            let used = self.header.total.min(OUTPUT_HEAD_BYTES + RING_BYTES);
            let _ = self.file.set_len(HEADER_BYTES + used);
        }
    }
}

/// Where in the file a byte of the output is, and how many after it lie there in a row.
fn place(position: u64) -> (u64, u64) {
    if position < OUTPUT_HEAD_BYTES {
        (HEADER_BYTES + position, OUTPUT_HEAD_BYTES - position)
    } else {
        let in_ring = (position - OUTPUT_HEAD_BYTES) % RING_BYTES;
        (HEADER_BYTES + OUTPUT_HEAD_BYTES + in_ring, RING_BYTES - in_ring)
    }
}

/// Marks a file complete whose writer is gone. A missing file is no error.
pub(super) fn mark_complete(path: &Path) -> io::Result<()> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let header = Header::read(&file)?;
    Header { complete: true, ..header }.write(&file)
}

fn read_slice(file: &File, offset: u64, most: usize) -> io::Result<OutputSlice> {
    // A writer that laps the reader moves the tail; each time round it has moved on.
    for _ in 0..16 {
        let header = Header::read(file)?;
        let total = header.total;
        let from = if (OUTPUT_HEAD_BYTES..header.tail_from()).contains(&offset) { header.tail_from() } else { offset };
        let from = from.min(total);
        let part_end = if from < OUTPUT_HEAD_BYTES { total.min(OUTPUT_HEAD_BYTES) } else { total };
        let length = (part_end - from).min(most as u64);
        let mut bytes = vec![0; length as usize];
        let mut position = from;
        let mut rest = bytes.as_mut_slice();
        while !rest.is_empty() {
            let (at, room) = place(position);
            let (piece, after) = rest.split_at_mut((rest.len() as u64).min(room) as usize);
            file.read_exact_at(piece, at)?;
            position += piece.len() as u64;
            rest = after;
        }
        let after = Header::read(file)?;
        if from < OUTPUT_HEAD_BYTES || from >= after.tail_from() || length == 0 {
            let cut = total.saturating_sub(OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES);
            return Ok(OutputSlice { bytes, offset: from, total, cut, complete: header.complete });
        }
    }
    Err(io::Error::from(io::ErrorKind::WouldBlock))
}

/// The outputs of development runs as files of one directory; they outlive the rig.
#[derive(Clone, Debug)]
pub struct CaptureDir {
    directory: PathBuf,
}

impl CaptureDir {
    /// Uses a directory, made where it is missing and readable by the rig's user alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<CaptureDir> {
        let directory = directory.into();
        make_private(&directory)?;
        Ok(CaptureDir { directory })
    }

    /// Where a development run's output goes: the `capture` of its [`super::LaunchSpec`].
    pub fn file(&self, dev_run: DevRunId) -> PathBuf {
        self.directory.join(format!("{dev_run}.out"))
    }
}

impl Outputs for CaptureDir {
    fn read(&self, dev_run: DevRunId, offset: u64, most: usize) -> Option<OutputSlice> {
        let file = File::open(self.file(dev_run)).ok()?;
        read_slice(&file, offset, most).ok()
    }
}

impl RemoteOutputs for CaptureDir {
    fn taken(&self, dev_run: DevRunId) -> u64 {
        let header = File::open(self.file(dev_run)).and_then(|file| Header::read(&file));
        header.map_or(0, |header| header.total)
    }

    fn take(&self, dev_run: DevRunId, slice: OutputSlice) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let path = self.file(dev_run);
        Box::pin(async move {
            let taken = tokio::task::spawn_blocking(move || take_slice(&path, &slice)).await;
            let taken = taken.unwrap_or_else(|error| Err(io::Error::other(error)));
            taken.map_err(|error| RecordsFault(format!("the output of development run {dev_run}: {error}")))
        })
    }

    fn end(&self, dev_run: DevRunId) {
        if let Err(error) = mark_complete(&self.file(dev_run)) {
            tracing::warn!(%dev_run, %error, "its output is not marked as complete");
        }
    }
}

/// Keeps a piece that was pulled from a runner where it follows on what there is. One that begins later follows a cut: it
/// is the newest that the runner keeps, and no shorter than the tail.
fn take_slice(path: &Path, slice: &OutputSlice) -> io::Result<()> {
    let mut capture = match File::options().read(true).write(true).open(path) {
        Ok(file) => Capture { header: Header::read(&file)?, file, chunk: Vec::new() },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Capture::create(path)?,
        Err(error) => return Err(error),
    };
    if slice.offset < capture.header.total {
        return Ok(());
    }
    capture.header.total = slice.offset;
    capture.chunk.clone_from(&slice.bytes);
    capture.keep(slice.bytes.len())?;
    // The runner is told to forget it once the log has its end: by then it must be here for good.
    if slice.complete { capture.file.sync_data() } else { Ok(()) }
}

/// Makes a directory that only its owner can look into.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;

    /// Byte `i` of an output in which no two nearby places look alike.
    fn byte(i: u64) -> u8 {
        (i ^ (i >> 8) ^ (i >> 16)) as u8
    }

    /// An output of this many bytes, in a folder of its own.
    fn captured(total: u64) -> (TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("captured");
        let mut capture = Capture::create(&path).unwrap();
        let mut written = 0;
        while written < total {
            let n = (total - written).min(60_000);
            let (read, write) = rustix::pipe::pipe().unwrap();
            File::from(write).write_all(&(written..written + n).map(byte).collect::<Vec<_>>()).unwrap();
            while capture.take(&read) {}
            written += n;
        }
        capture.complete();
        let file = File::open(&path).unwrap();
        (folder, file)
    }

    #[test]
    fn head_and_tail_are_kept_to_the_byte_and_the_cut_is_told() {
        let kept = OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES;
        for total in [0, 1, OUTPUT_HEAD_BYTES, OUTPUT_HEAD_BYTES + 1, kept - 1, kept, kept + 1, 10 * kept + 12_345] {
            let (_folder, file) = captured(total);
            let mut read = Vec::new();
            let mut offset = 0;
            loop {
                let slice = read_slice(&file, offset, 10_000).unwrap();
                assert_eq!((slice.total, slice.complete), (total, true));
                assert_eq!(slice.cut, total.saturating_sub(kept));
                if slice.bytes.is_empty() {
                    break;
                }
                read.extend((slice.offset..).zip(slice.bytes.iter().copied()));
                offset = slice.offset + slice.bytes.len() as u64;
            }
            assert_eq!(read.len() as u64, total.min(kept), "of {total}");
            assert!(read.iter().all(|&(at, found)| found == byte(at)), "of {total}");
            assert_eq!(read.last().map_or(0, |&(at, _)| at + 1), total);
        }
    }

    #[test]
    fn a_file_that_is_no_output_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other");
        fs::write(&path, "something else entirely, and long enough").unwrap();
        assert!(mark_complete(&path).is_err());
        assert!(read_slice(&File::open(&path).unwrap(), 0, 10).is_err());
    }

    #[test]
    fn what_is_pulled_from_a_runner_is_kept_once_and_reads_like_a_local_output() {
        for total in [0, 1, OUTPUT_HEAD_BYTES, 500_000, 2_000_000] {
            let (folder, file) = captured(total);
            let to = folder.path().join("pulled");
            let mut offset = 0;
            loop {
                let slice = read_slice(&file, offset, 256 * 1024).unwrap();
                take_slice(&to, &slice).unwrap();
                // A doubled answer changes nothing.
                take_slice(&to, &slice).unwrap();
                if slice.bytes.is_empty() {
                    break;
                }
                offset = slice.offset + slice.bytes.len() as u64;
            }
            mark_complete(&to).unwrap();
            let pulled = File::open(&to).unwrap();
            for offset in [0, 1, OUTPUT_HEAD_BYTES, total.saturating_sub(1), total, total + 9] {
                assert_eq!(
                    read_slice(&pulled, offset, 300_000).unwrap(),
                    read_slice(&file, offset, 300_000).unwrap(),
                    "of {total} from {offset}"
                );
            }
        }
    }
}
