//! A core's side of the bus, put together: rights, connections, and the runners of its rig over them.
//!
//! A rig without a bus has none of this. One with a bus comes up also while control or the bus is away: its own devices
//! work, and its runners are away until they answer.

use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use thermite_actors::host::bulk::Bringer;
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::{Clock, LaneChanges, RemoteOutputs};
use thermite_actors::rig::Rig;
use thermite_actors::runner::LinkedRunners;
use thermite_actors::runners::RunnerSetup;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, info};
use uuid::Uuid;

use crate::bus::connection::{Access, BusThread, Happening};
use crate::bus::nats::{BulkConnection, CoreConnection, open_core};
use crate::control::reporting::report;
use crate::folder::DataFolder;
use crate::settings::bus::{BusWay, CoreBus};
use crate::supervisor::control::Registration;
use crate::supervisor::key::key_in;
use crate::supervisor::rights::{Asker, Held};

/// The file of the core's epoch, in its data folder.
pub const EPOCH: &str = "core-epoch";
const EPOCH_BYTES_MAX: u64 = 32;
/// Control's word on the bus's certificates, in the data folder.
const CA: &str = "bus-ca.pem";

/// A core's connections.
pub struct OnBus {
    settings: CoreBus,
    /// This start of the core: higher than any before.
    epoch: u64,
    thread: Rc<BusThread>,
    access: Access,
    held: Held,
    happenings: mpsc::UnboundedReceiver<Happening>,
    ports: Option<(CoreConnection, BulkConnection)>,
}

/// What lives as long as the rig does; ends with it.
pub struct Reporting(Vec<JoinHandle<()>>);

impl OnBus {
    /// Gets rights and opens the connections, which come up by themselves.
    ///
    /// # Errors
    /// A sentence with the way out: control refuses, or something named cannot be used.
    pub async fn open(settings: CoreBus, folder: &DataFolder) -> Result<OnBus, String> {
        let epoch = next_epoch(folder, BootClock.wall_ms())?;
        let key = key_in(folder)?;
        let seed = key.seed().map_err(|error| format!("the key for the bus: {error}"))?;
        let asker = Asker {
            rig: settings.rig.clone(),
            registration: Registration { runner: None, public_key: key.public_key(), boot: Uuid::now_v7() },
            way: settings.way.clone(),
            seed,
            ca_file: folder.path().join(CA),
            name: format!("core of {}", settings.rig),
        };
        let (access, held) = asker.first().await.map_err(|no| format!("no rights on the bus: {no}"))?;
        let thread = BusThread::start().map_err(|error| format!("the bus's thread cannot be had: {error}"))?;
        let thread = Rc::new(thread);
        let (told, happenings) = mpsc::unbounded_channel();
        let opened = open_core(Rc::clone(&thread), settings.rig.clone(), access.clone(), told).await;
        let ports = Some(opened.map_err(|why| format!("the bus cannot be used: {why}"))?);
        info!(rig = %settings.rig, epoch, "a core on its bus");
        Ok(OnBus { settings, epoch, thread, access, held, happenings, ports })
    }

    /// How the rig reaches its runners. Asked for once.
    ///
    /// # Errors
    /// Where the folder for what is brought to them cannot be had.
    ///
    /// # Panics
    /// Where it is asked for twice.
    pub fn runners(
        &mut self,
        data: &Path,
        changes: Rc<dyn LaneChanges>,
        outputs: Rc<dyn RemoteOutputs>,
    ) -> Result<RunnerSetup, String> {
        let (small, bulk) = self.ports.take().expect("the runners of a rig are set up once");
        let bringer = Bringer::open(data, Rc::new(bulk)).map_err(|error| format!("what runners are sent: {error}"))?;
        let link = Rc::new(small.link(Rc::new(bringer)));
        let port = Rc::new(LinkedRunners::new(link, changes, outputs).at_epoch(self.epoch));
        Ok(RunnerSetup { port, local_judge: self.settings.local_judge })
    }

    /// Keeps the rights, and reports to control where there is one. Must be called on the rig's own thread.
    pub fn keep(self, rig: &Rig, folder: &Rc<DataFolder>) -> Reporting {
        let OnBus { settings, thread, access, held, happenings, .. } = self;
        let keeping = actix_web::rt::spawn(async move {
            let no = held.keep(happenings).await;
            error!(%no, "the rig has no rights on the bus any more: it works without runners until it is started anew");
        });
        let mut kept = vec![keeping];
        if let BusWay::Control { .. } = settings.way {
            let reporting = report(thread, access, settings.rig, rig.clone(), Rc::clone(folder));
            kept.push(actix_web::rt::spawn(reporting));
        }
        Reporting(kept)
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
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
