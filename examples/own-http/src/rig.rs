//! The rig of this harness: this machine's ports, put together.

use std::error::Error;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::rc::Rc;

use thermite_actors::host::clock::BootClock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{ExecutorSettings, HostExecutor};
use thermite_actors::host::ids::OsIds;
use thermite_actors::host::launch::{CaptureDir, Cards, Launcher, LauncherSettings, Wanted};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{MemberPorts, NoInputLog, RigSettings, RunRequest};
use thermite_actors::rig::{Rig, RigSetup};
use thermite_core::ids::{MemberId, RunId};
use thermite_core::limits;
use thermite_core::run::RunState;

use crate::journal::Journal;

/// The first of the uids that runs get where this program is root: the judge's, then the lanes'.
const UID_BASE: u32 = 62_000;

/// Where everything is.
pub(crate) struct Place {
    /// The harness' folder: log, outputs, workspaces.
    pub(crate) data: PathBuf,
    /// The repository, its kit in `kit.toml`, its champion the branch `main`.
    pub(crate) repo: PathBuf,
    /// The lanes' worktrees.
    pub(crate) lanes: Vec<PathBuf>,
    /// Where load is read instead of this machine's `/proc`; only a demonstration, which has to end on a busy machine
    /// too, feeds it. What was measured under it says so in its record.
    pub(crate) fed_load: Option<PathBuf>,
}

/// A rig with its one run.
pub(crate) struct Harness {
    /// The rig.
    pub(crate) rig: Rig,
    /// The run.
    pub(crate) run: RunId,
    /// What commands print.
    pub(crate) outputs: CaptureDir,
    /// Held as long as the rig lives: two on one folder would take each other's runs for leftovers.
    _lock: File,
}

/// Starts the rig, and its run where the log has none that goes on.
pub(crate) async fn start(place: &Place) -> Result<Harness, Box<dyn Error>> {
    std::fs::create_dir_all(&place.data)?;
    let data = place.data.canonicalize()?;
    let accounts = Accounts::of_this_user(UID_BASE);
    let lock = File::create(data.join("lock"))?;
    lock.try_lock().map_err(|_| format!("{} is in use by another one of these", data.display()))?;
    // The same folder gives the same name, by which a later start finds what a killed one left running.
    let mut hash = DefaultHasher::new();
    data.hash(&mut hash);
    let rig = format!("own-http-{:016x}", hash.finish());
    let launcher = Launcher::open(LauncherSettings {
        rig: rig.clone(),
        state: data.join("runs"),
        hidden: vec![data.clone()],
        program: LauncherSettings::THIS_PROGRAM.into(),
        wanted: Wanted::BEST,
        trial_uid: accounts.trial(),
        cards: Cards::default(),
    });
    let launcher = launcher.await?;
    let workspaces = HostWorkspaces::open(&data, accounts, std::env::var("PATH").unwrap_or_default())?;
    let driver = place.fed_load.as_deref().map_or_else(CpuDriver::of_this_machine, CpuDriver::fed_from);
    let settings = ExecutorSettings { rig, data: data.clone(), accounts };
    let executor = HostExecutor::open(launcher, workspaces.clone(), driver.clone(), settings)?;
    let outputs = executor.outputs().clone();
    let rig = Rig::start(RigSetup {
        members: vec![MemberPorts { member: MemberId(0), driver: Rc::new(driver), executor: Rc::new(executor) }],
        bench: None,
        workspaces: Rc::new(workspaces),
        records: Rc::new(Journal::open(&data.join("journal.jsonl"))?),
        clock: Rc::new(BootClock),
        ids: Rc::new(OsIds),
        inputs: Rc::new(NoInputLog),
        settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: 16 },
        runners: thermite_actors::runners::RunnerSetup::default(),
    })
    .await?;
    let going_on = rig.view().await?.runs.into_iter().find(|run| run.state != RunState::Ended);
    let run = match going_on {
        Some(row) => row.run,
        None => {
            let request = RunRequest {
                repo: place.repo.clone(),
                kit: PathBuf::from("kit.toml"),
                champion: "main".to_owned(),
                lanes: place.lanes.clone(),
            };
            rig.start_run(request, None).await?
        }
    };
    Ok(Harness { rig, run, outputs, _lock: lock })
}
