//! What a folder takes on its disk, and what is free there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes that an ordinary user may still write on the folder's disk (statvfs(3)).
///
/// # Errors
/// Where the file system does not say.
pub fn free(folder: &Path) -> io::Result<u64> {
    let about = rustix::fs::statvfs(folder)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// What a folder's files take on the disk, in bytes; what vanishes meanwhile takes nothing.
pub fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size(&entry.path()),
            _ => entry.metadata().map_or(0, |about| about.blocks() * 512),
        })
        .sum()
}
