//! What the executors of one rig share, and how one of a card comes to be (rule B4).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use thermite_core::contract::ModelFile;
use thermite_core::cpus::CpuList;
use thermite_core::ids::LaneId;

use super::holds::Hold;
use super::{HostExecutor, Inner, set};
use crate::host::cpu::CpuDriver;
use crate::host::launch::{self, CaptureDir, CardGrant, CardWay, Grant, Launcher, Toolchains};
use crate::host::models::{MODELS_ENV, Models, ModelsInUse};
use crate::host::workspaces::{Accounts, HostWorkspaces};
use crate::ports::{StopProof, TargetDriver};

/// Where the outputs of development runs are, in the data folder.
pub const OUTPUTS: &str = "outputs";
/// Where the outputs of the judge's own runs are, in the data folder.
const JUDGE_OUTPUTS: &str = "judge-outputs";

/// How the executors of a rig are set up.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The rig's name, as its launcher has it.
    pub rig: String,
    /// The data folder: outputs are below it, and no run sees it.
    pub data: PathBuf,
    /// Who runs run as.
    pub accounts: Accounts,
}

/// One card as its executor works it (rule B4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSeat {
    /// Which of the rig's timing users is this card's, from 0; no other card has it.
    pub seat: u8,
    /// The card, with the CPUs that its judge's runs are kept to.
    pub grant: CardGrant,
    /// The CPUs that builds and development runs are kept to: off those of all judge's cards. All that the rig has
    /// without them.
    pub others: Option<CpuList>,
}

/// The executors of one rig on this machine: workspaces, launcher, outputs and the turn to build are theirs together.
#[derive(Clone)]
pub struct Executors {
    shared: Rc<Shared>,
}

/// What they share.
pub(super) struct Shared {
    pub(super) launcher: Launcher,
    pub(super) workspaces: HostWorkspaces,
    pub(super) settings: ExecutorSettings,
    pub(super) outputs: CaptureDir,
    /// Outputs of the judge's own runs, until they are read.
    pub(super) judge_outputs: CaptureDir,
    /// The tools as each lane's account reaches them; found once, since it means reading all folders of `PATH`.
    pub(super) toolchains: RefCell<BTreeMap<LaneId, Toolchains>>,
    /// The tools as the account that builds reaches them.
    pub(super) build_toolchains: OnceCell<Toolchains>,
    /// One build at a time (rule B7): the policy sees to it for the rig, this for the machine.
    pub(super) build_turn: tokio::sync::Mutex<()>,
    /// The model files of this machine, where runs may have some.
    models: OnceCell<Models>,
    /// Whether what an earlier rig left is proved gone. From then on a sweep is of one card alone: others work.
    swept: tokio::sync::Mutex<bool>,
}

impl Executors {
    /// Executors that launch with `launcher` and work in `workspaces`.
    ///
    /// # Errors
    /// Where the data folder is not there, or the outputs' folders cannot be made in it.
    pub fn open(
        launcher: Launcher,
        workspaces: HostWorkspaces,
        mut settings: ExecutorSettings,
    ) -> std::io::Result<Executors> {
        // What is hidden from a run is named by its whole path.
        settings.data = settings.data.canonicalize()?;
        let outputs = CaptureDir::open(settings.data.join(OUTPUTS))?;
        let judge_outputs = CaptureDir::open(settings.data.join(JUDGE_OUTPUTS))?;
        let shared = Shared {
            launcher,
            workspaces,
            settings,
            outputs,
            judge_outputs,
            toolchains: RefCell::default(),
            build_toolchains: OnceCell::new(),
            build_turn: tokio::sync::Mutex::default(),
            models: OnceCell::new(),
            swept: tokio::sync::Mutex::default(),
        };
        Ok(Executors { shared: Rc::new(shared) })
    }

    /// Gives runs the model files that their kits list, from `models`. Without it, or told a second time, nothing changes:
    /// a run that needs some is not carried out.
    pub fn with_models(self, models: Models) -> Executors {
        drop(self.shared.models.set(models));
        self
    }

    /// The executor of the machine's CPUs as one device; tells `driver` what the judge itself used.
    pub fn of_machine(&self, driver: CpuDriver) -> HostExecutor {
        self.of(Place::Cpus(driver))
    }

    /// The executor of one card. What keeps its runs to it is tried out here; where nothing does, each run is refused
    /// (rule B3), and [`HostWorkspaces`] says so to whoever asks for one.
    pub async fn of_card(&self, driver: Rc<dyn TargetDriver>, seat: CardSeat) -> HostExecutor {
        self.shared.launcher.card_ways().await;
        self.shared.launcher.cpu_hold();
        let timing = self.shared.settings.accounts.timing(seat.seat);
        self.shared.workspaces.check_isolation(&self.shared.launcher, timing, &seat.grant);
        self.of(Place::Card { driver, seat })
    }

    /// The executor of the bench: where a rig with cards lays out and builds, on these CPUs, before a card is had (rule
    /// B7).
    pub fn of_bench(&self, others: Option<CpuList>) -> HostExecutor {
        self.of(Place::Bench { others })
    }

    fn of(&self, place: Place) -> HostExecutor {
        HostExecutor { inner: Rc::new(Inner::new(Rc::clone(&self.shared), place)) }
    }

    /// The captured output of development runs, for shells to read.
    pub fn outputs(&self) -> &CaptureDir {
        &self.shared.outputs
    }
}

/// What an executor works.
pub(super) enum Place {
    /// The machine's CPUs as one device; the judge's own use is told to their driver (rule C2).
    Cpus(CpuDriver),
    /// No device: what is built before a card is had.
    Bench {
        /// As [`CardSeat::others`].
        others: Option<CpuList>,
    },
    /// One card.
    Card {
        /// Its driver.
        driver: Rc<dyn TargetDriver>,
        /// The card.
        seat: CardSeat,
    },
}

impl Place {
    /// The device's driver, where there is a device.
    pub(super) fn driver(&self) -> Option<&dyn TargetDriver> {
        match self {
            Place::Cpus(driver) => Some(driver),
            Place::Bench { .. } => None,
            Place::Card { driver, .. } => Some(driver.as_ref()),
        }
    }

    /// Who is told of the judge's own CPU time.
    pub(super) fn cpu_driver(&self) -> Option<&CpuDriver> {
        match self {
            Place::Cpus(driver) => Some(driver),
            Place::Bench { .. } | Place::Card { .. } => None,
        }
    }

    /// What a measured run or a check is granted.
    pub(super) fn judge_grant(&self) -> Grant {
        match self {
            Place::Card { seat, .. } => Grant { card: Some(seat.grant.clone()), cpus: None },
            Place::Cpus(_) | Place::Bench { .. } => self.build_grant(),
        }
    }

    /// What a development run is granted.
    pub(super) fn dev_grant(&self) -> Grant {
        match self {
            Place::Card { seat, .. } => {
                Grant { card: Some(CardGrant { cpus: None, ..seat.grant.clone() }), cpus: seat.others.clone() }
            }
            Place::Cpus(_) | Place::Bench { .. } => self.build_grant(),
        }
    }

    /// What a build is granted: no card, since most are built before one is had (rule B7).
    pub(super) fn build_grant(&self) -> Grant {
        match self {
            Place::Cpus(_) => Grant::default(),
            Place::Bench { others } | Place::Card { seat: CardSeat { others, .. }, .. } => {
                Grant { card: None, cpus: others.clone() }
            }
        }
    }

    /// What the names of its runs begin with, by which a sweep tells them from those of others.
    pub(super) fn run_prefix(&self) -> String {
        match self {
            Place::Cpus(_) => String::new(),
            Place::Bench { .. } => "bench-".to_owned(),
            Place::Card { seat, .. } => format!("card-{}-", seat.seat),
        }
    }

    /// The uids that only its own runs have.
    fn own_uids(&self, accounts: Accounts) -> Vec<u32> {
        match self {
            Place::Cpus(_) => accounts.all_uids(),
            Place::Bench { .. } => accounts.uids_of(accounts.judge()),
            Place::Card { seat, .. } => accounts.uids_of(accounts.timing(seat.seat)),
        }
    }
}

impl Shared {
    /// Has a run's model files here (rule E4), for as long as the answer lives; a stop of the hold ends the wait.
    pub(super) async fn models(&self, hold: &Hold, models: &[ModelFile]) -> Result<ModelsInUse, String> {
        if models.is_empty() {
            return Ok(ModelsInUse::none());
        }
        let Some(all) = self.models.get() else {
            return Err("model files are not kept on this machine".to_owned());
        };
        tokio::select! {
            had = all.have(models) => had,
            () = hold.stopped() => Err("it was stopped while its model files were fetched".to_owned()),
        }
    }

    /// Shows a run its model files: by name at a place of its view, or where they are linked by name.
    pub(super) fn show_models(
        &self,
        models: &ModelsInUse,
        env: &mut Vec<(String, String)>,
        read_only: &mut Vec<(PathBuf, PathBuf)>,
    ) {
        let has_own_view = self.launcher.containment().has_own_view();
        if has_own_view {
            read_only.extend(models.mounts());
        }
        if let Some(folder) = models.folder(has_own_view) {
            set(env, MODELS_ENV, folder.display().to_string());
        }
    }

    /// Ends what earlier holds left behind: of the whole rig at its start, then of one card alone.
    pub(super) async fn sweep(&self, place: &Place) -> StopProof {
        // Those that ask meanwhile wait: nobody goes into service before the machine is clean.
        let mut swept = self.swept.lock().await;
        // Of a rig with one executor nothing is under way while it sweeps.
        let is_whole = !*swept || matches!(place, Place::Cpus(_));
        let accounts = self.settings.accounts;
        let uids = if is_whole { accounts.all_uids() } else { place.own_uids(accounts) };
        let only = (!is_whole).then(|| place.run_prefix());
        let (rig, state) = (self.settings.rig.clone(), self.launcher.state().to_owned());
        let found = tokio::task::spawn_blocking(move || launch::sweep(&rig, &state, &uids, only.as_deref()));
        let proof = match found.await {
            Ok(Ok(found)) => {
                if is_whole {
                    self.forget_judge_outputs();
                }
                for found in &found.found {
                    tracing::info!(found, "an earlier rig left this behind");
                }
                found.proof
            }
            Ok(Err(error)) => StopProof::NotProved { why: format!("leftovers cannot be looked for: {error}") },
            Err(error) => StopProof::NotProved { why: format!("leftovers cannot be looked for: {error}") },
        };
        *swept = *swept || proof == StopProof::Empty;
        proof
    }

    /// Removes the outputs of judge's runs that a rig that died was still to read.
    fn forget_judge_outputs(&self) {
        let folder = self.settings.data.join(JUDGE_OUTPUTS);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if let Err(error) = std::fs::remove_file(entry.path()) {
                tracing::debug!(file = %entry.path().display(), %error, "an output file stays");
            }
        }
    }

    /// The containment in force, and what keeps a seat's runs to their card and their CPUs.
    pub(super) fn containment(&self, place: &Place) -> String {
        let mut said = self.launcher.containment().to_string();
        let Place::Card { seat, .. } = place else { return said };
        let identity = self.settings.accounts.timing(seat.seat);
        match self.launcher.known_way_to_cards(identity, &place.judge_grant()) {
            Ok(way) => said += &format!("; its card by {}", way.map_or("nothing", CardWay::name)),
            Err(_) => said += "; no isolation of cards: runs are refused",
        }
        if let Some(cpus) = &seat.grant.cpus {
            said += &format!("; CPUs {cpus} by {}", self.launcher.cpu_hold());
        }
        said
    }
}
