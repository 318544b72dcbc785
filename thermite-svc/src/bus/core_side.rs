//! A core on its bus: its epoch, its key and rights, and the link that its runners are reached by.

use std::io::{self, Read};
use std::rc::Rc;

use tokio::sync::mpsc;
use tracing::info;
use uuid::Uuid;

use thermite_actors::host::bulk::Bringer;
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::{BulkLink, Clock};

use super::connection::BusThread;
use super::nats::{NatsLink, open_core};
use crate::folder::DataFolder;
use crate::settings::bus::CoreBus;
use crate::supervisor::control::Registration;
use crate::supervisor::key::key_in;
use crate::supervisor::rights::{Asker, NoRights};

/// The file of the core's epoch, in its data folder.
pub const EPOCH: &str = "core-epoch";
/// Where control's word on the bus's certificates is kept.
const CA: &str = "bus-ca.pem";
const EPOCH_BYTES_MAX: u64 = 32;

/// A core on its bus.
pub struct CoreSide {
    /// The link to its runners.
    pub link: Rc<NatsLink>,
    /// This start of the core: higher than any before.
    pub epoch: u64,
    /// Answers once the core has no rights on the bus any more; its devices go on without runners.
    pub no_rights: futures_util::future::LocalBoxFuture<'static, NoRights>,
}

/// Opens a core's side of the bus. Control is waited for, the bus is not: it comes up by itself.
///
/// # Errors
/// A sentence that names what cannot be had.
pub async fn open(folder: &DataFolder, bus: &CoreBus) -> Result<CoreSide, String> {
    let epoch = next_epoch(folder, BootClock.wall_ms())?;
    let key = key_in(folder)?;
    let asker = Asker {
        rig: bus.rig.clone(),
        registration: Registration { runner: None, public_key: key.public_key(), boot: Uuid::now_v7() },
        way: bus.way.clone(),
        seed: key.seed().map_err(|error| error.to_string())?,
        ca_file: folder.path().join(CA),
        name: "core".to_owned(),
    };
    let (access, held) = asker.first().await.map_err(|no| no.to_string())?;
    let thread = Rc::new(BusThread::start().map_err(|error| format!("the bus's thread cannot be had: {error}"))?);
    let (told, happenings) = mpsc::unbounded_channel();
    let (connection, bulk) = open_core(thread, bus.rig.clone(), access, told).await?;
    let bringer = Bringer::open(folder.path(), Rc::new(bulk) as Rc<dyn BulkLink>);
    let bringer = bringer.map_err(|error| format!("the folder of bundles cannot be had: {error}"))?;
    info!(rig = %bus.rig, epoch, "a core on its bus");
    Ok(CoreSide { link: Rc::new(connection.link(Rc::new(bringer))), epoch, no_rights: Box::pin(held.keep(happenings)) })
}

/// The epoch of this start, durable before it is used: higher than the last, and no lower than the wall clock, so that a
/// data folder made of a backup does not take up numbers that its runners have heard.
///
/// # Errors
/// Where the file cannot be read or written, or says something else.
pub fn next_epoch(folder: &DataFolder, wall_ms: u64) -> Result<u64, String> {
    let path = folder.path().join(EPOCH);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let last = match std::fs::File::open(&path) {
        Ok(file) => {
            let mut text = String::new();
            file.take(EPOCH_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
            text.trim().parse::<u64>().map_err(|_| format!("{} holds no epoch", path.display()))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    let epoch = last.saturating_add(1).max(wall_ms);
    folder.write_private(EPOCH, epoch.to_string().as_bytes()).map_err(|fault| fault.to_string())?;
    std::fs::File::open(folder.path()).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_a_higher_epoch_also_after_a_restore_and_a_clock_that_was_set_back() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(&place.path().join("data")).unwrap();

        let first = next_epoch(&folder, 1_000).unwrap();
        let clock_set_back = next_epoch(&folder, 10).unwrap();
        std::fs::remove_file(folder.path().join(EPOCH)).unwrap();
        let restored = next_epoch(&folder, 2_000).unwrap();

        assert_eq!((first, clock_set_back, restored), (1_000, 1_001, 2_000));
        std::fs::write(folder.path().join(EPOCH), "x").unwrap();
        assert!(next_epoch(&folder, 3_000).unwrap_err().ends_with("holds no epoch"));
    }
}
