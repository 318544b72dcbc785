//! What the executors of one rig share, and how one of a card comes to be (rule B4).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use thermite_core::cpus::CpuList;
use thermite_core::ids::LaneId;

use super::{HostExecutor, Inner};
use crate::host::cpu::CpuDriver;
use crate::host::launch::{self, CaptureDir, CardGrant, CardWay, Grant, Launcher, Toolchains};
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
            swept: tokio::sync::Mutex::default(),
        };
        Ok(Executors { shared: Rc::new(shared) })
    }

    /// The executor of the machine's CPUs as one device; tells `driver` what the judge itself used.
    pub fn of_machine(&self, driver: CpuDriver) -> HostExecutor {
        let inner = Inner::new(Rc::clone(&self.shared), Rc::new(driver.clone()), Some(driver), None);
        HostExecutor { inner: Rc::new(inner) }
    }

    /// The executor of one card. What keeps its runs to it is tried out here; where nothing does, each run is refused
    /// (rule B3), and [`HostWorkspaces`] says so to whoever asks for one.
    pub async fn of_card(&self, driver: Rc<dyn TargetDriver>, seat: CardSeat) -> HostExecutor {
        self.shared.launcher.card_ways().await;
        self.shared.launcher.cpu_hold();
        let timing = self.shared.settings.accounts.timing(seat.seat);
        self.shared.workspaces.check_isolation(&self.shared.launcher, timing, &seat.grant);
        let inner = Inner::new(Rc::clone(&self.shared), driver, None, Some(seat));
        HostExecutor { inner: Rc::new(inner) }
    }

    /// The captured output of development runs, for shells to read.
    pub fn outputs(&self) -> &CaptureDir {
        &self.shared.outputs
    }
}

impl CardSeat {
    /// What a measured run or a check on the card is granted.
    pub(super) fn judge_grant(&self) -> Grant {
        Grant { card: Some(self.grant.clone()), cpus: None }
    }

    /// What a development run on the card is granted.
    pub(super) fn dev_grant(&self) -> Grant {
        Grant { card: Some(CardGrant { cpus: None, ..self.grant.clone() }), cpus: self.others.clone() }
    }

    /// What a build is granted: no card, since it is built before one is had (rule B7).
    pub(super) fn build_grant(&self) -> Grant {
        Grant { card: None, cpus: self.others.clone() }
    }

    /// What the names of its runs begin with, by which a sweep tells them from those of other cards.
    pub(super) fn run_prefix(&self) -> String {
        format!("card-{}-", self.seat)
    }
}

impl Shared {
    /// Ends what earlier holds left behind: of the whole rig at its start, then of one card alone.
    pub(super) async fn sweep(&self, seat: Option<&CardSeat>) -> StopProof {
        // Those that ask meanwhile wait: nobody goes into service before the machine is clean.
        let mut swept = self.swept.lock().await;
        let (only, uids) = match (seat, *swept) {
            (Some(seat), true) => (Some(seat.run_prefix()), self.settings.accounts.timing_uids(seat.seat)),
            (None, _) | (Some(_), false) => (None, self.settings.accounts.all_uids()),
        };
        let is_whole = only.is_none();
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
    pub(super) fn containment(&self, seat: Option<&CardSeat>) -> String {
        let mut said = self.launcher.containment().to_string();
        let Some(seat) = seat else { return said };
        let identity = self.settings.accounts.timing(seat.seat);
        match self.launcher.known_way_to_cards(identity, &seat.judge_grant()) {
            Ok(way) => said += &format!("; its card by {}", way.map_or("nothing", CardWay::name)),
            Err(_) => said += "; no isolation of cards: runs are refused",
        }
        if let Some(cpus) = &seat.grant.cpus {
            said += &format!("; CPUs {cpus} by {}", self.launcher.cpu_hold());
        }
        said
    }
}
