//! A step that failed on a full disk: whose fault it was.

use std::path::Path;

use thermite_core::limits;

use super::judge::Trouble;
use crate::host::disk;

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
        let free = disk::free(&workspace).ok()?;
        Some((free, if is_sides && free < limits::WORK_ROOM_MIN_BYTES { disk::size(&workspace) } else { 0 }))
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
