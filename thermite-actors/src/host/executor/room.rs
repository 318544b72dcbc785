//! A step that failed on a full disk: whose fault it was.

use std::path::Path;

use thermite_core::limits;

use super::judge::Trouble;

/// A failure while the disk had no room is the disk's, unless what the side itself wrote took the room.
pub(super) async fn blame(trouble: Trouble, workspace: &Path) -> Trouble {
    let (why, is_sides) = match trouble {
        Trouble::Sides(why) => (why, true),
        Trouble::Infrastructure(why) => (why, false),
        Trouble::Lost(_) | Trouble::Killed(_) | Trouble::NoRoom(_) => return trouble,
    };
    let as_it_was = |why| if is_sides { Trouble::Sides(why) } else { Trouble::Infrastructure(why) };
    let workspace = workspace.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let free = free(&workspace)?;
        Some((free, if is_sides && free < limits::WORK_ROOM_MIN_BYTES { size(&workspace) } else { 0 }))
    });
    match looked.await {
        Ok(Some((free, own))) if free < limits::WORK_ROOM_MIN_BYTES => {
            if own >= limits::DISK_FLOOR_BYTES {
                Trouble::Sides(format!("{why}; it had filled the disk with {own} bytes of its own"))
            } else {
                Trouble::NoRoom(format!("{free} bytes were free when {why}"))
            }
        }
        Ok(_) | Err(_) => as_it_was(why),
    }
}

fn free(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// What a folder's files take on the disk, in bytes.
fn size(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size(&entry.path()),
            _ => entry.metadata().map_or(0, |about| about.blocks() * 512),
        })
        .sum()
}
