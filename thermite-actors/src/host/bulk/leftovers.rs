//! A folder of files that are begun and may never be gone on with: bounded in number, bytes and age.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thermite_core::limits;

/// Removes what was not touched for [`limits::BULK_LEFTOVER_KEPT`], then the longest untouched until a file of `coming`
/// bytes more is within the limits. `own` stays.
pub(super) fn make_room(folder: &Path, coming: u64, own: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let about: Metadata = match path.symlink_metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if path != own {
            files.push((about.modified()?, about.len(), path));
        }
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    let mut left = files.len();
    for (touched, size, path) in files {
        let is_old = touched.elapsed().is_ok_and(|age| age > limits::BULK_LEFTOVER_KEPT.to_std());
        let is_too_much =
            left >= limits::BULK_LEFTOVERS_MAX || bytes.saturating_add(coming) > limits::BULK_LEFTOVERS_BYTES_MAX;
        if is_old || is_too_much {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            bytes -= size;
            left -= 1;
        }
    }
    Ok(())
}
