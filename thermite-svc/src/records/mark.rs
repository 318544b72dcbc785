//! The number of the log's last acknowledged entry, beside the database.
//!
//! SQLite takes a write-ahead log that is damaged in its middle for one that ends there. The mark tells that apart from
//! a crash: it is written after each commit and never before, so that it may be behind the log and never ahead of it.
//! It needs no syncing: after a power loss an older mark says less, and nothing wrong.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thermite_core::log::check_sum;

/// The mark's name in the data folder.
pub const MARK: &str = "rig.mark";

/// Where the mark of a data folder is.
pub(super) struct Mark {
    file: PathBuf,
    open: Option<File>,
}

impl Mark {
    pub(super) fn of(folder: &Path) -> Mark {
        Mark { file: folder.join(MARK), open: None }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The number acknowledged last; 0 where none is known.
    pub(super) fn read(&self) -> u64 {
        let Ok(bytes) = std::fs::read(&self.file) else { return 0 };
        let Some((number, sum)) = bytes.get(..16).and_then(|bytes| bytes.split_first_chunk::<8>()) else { return 0 };
        // A mark torn by a power loss says nothing.
        if check_sum(number).to_le_bytes() != sum { 0 } else { u64::from_le_bytes(*number) }
    }

    /// Says that all entries up to this one were acknowledged.
    pub(super) fn write(&mut self, number: u64) {
        if self.open.is_none() {
            let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&self.file);
            self.open = opened.ok();
        }
        let number = number.to_le_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&check_sum(&number).to_le_bytes());
        if let Some(file) = &self.open
            && let Err(error) = file.write_all_at(&bytes, 0)
        {
            // An older mark says less; the commit itself is on the disk.
            tracing::debug!(file = %self.file.display(), %error, "the mark stays behind");
        }
    }
}
