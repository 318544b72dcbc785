//! What the rig shows people and programs: values, copied out, with each wait's one sentence.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use thermite_core::blame::Blamed;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::hold::StopCause;
use thermite_core::ids::{DevRunId, HoldId, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::log::LogEntry;
use thermite_core::noise::Noise;
use thermite_core::readiness::Reading;
use thermite_core::run::RunState;
use thermite_core::settings::LiveSettings;
use thermite_core::split::SplitAsk;
use thermite_core::stage::StageView;
use thermite_core::time::{Moment, Span};
use thermite_core::wait::Wait;

use crate::ports::DeviceFacts;

mod runners;

pub use runners::{RunnerRow, RunnerRuns, RunnerWaitRow, RunnersView, WhoWaits};

/// The whole rig at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RigView {
    /// The moment, on the rig's clock.
    pub now: Moment,
    /// The same moment on the wall clock: milliseconds since 1970.
    pub wall_ms: u64,
    /// All devices.
    pub devices: Vec<DeviceRow>,
    /// All runs that are not over, and the last that are.
    pub runs: Vec<RunRow>,
    /// Development runs that are not over, in the order of the line.
    pub dev_runs: Vec<DevRunRow>,
    /// Jobs that are not over, at most 100: those with a device, then the others in order.
    pub jobs: Vec<JobRow>,
    /// How many jobs are not over.
    pub jobs_live: usize,
    /// Why the records cannot be written, where they cannot.
    pub records_fault: Option<String>,
    /// How often the watchdog found someone who waited beside a free ready device (rule A9); 0 is the rule.
    pub overlooked: u64,
    /// What development runs left behind, which lives on until the rig ends (rule C3): the first processes of it.
    #[serde(default)]
    pub leftovers: Vec<LeftoverRow>,
    /// Whether there are more than are listed.
    #[serde(default)]
    pub leftovers_more: bool,
    /// Its runners on other machines (rule E14).
    #[serde(default)]
    pub runners: RunnersView,
}

/// One live process that a development run left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeftoverRow {
    /// The development run.
    pub dev_run: DevRunId,
    /// Its run.
    pub run: RunId,
    /// Its lane.
    pub lane: LaneId,
    /// Where it lives.
    pub member: MemberId,
    /// The process as the machine sees it.
    pub pid: u32,
    /// The name of what it executes.
    pub command: String,
    /// When its development run ended.
    pub since: Moment,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceRow {
    /// Its place in the rig's list.
    pub member: MemberId,
    /// What it is.
    pub facts: DeviceFacts,
    /// What it does.
    pub state: DeviceView,
    /// Things said under an old hold number, refused (rule A1).
    pub refused: u64,
    /// Whom it serves (rule B1).
    #[serde(default)]
    pub pool: DevicePool,
    /// Why it serves nobody, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// Whether it takes nothing more, by somebody's wish (rule B10).
    #[serde(default)]
    pub drained: bool,
    /// Why it is out of service, and how it comes back, where it is (rule B10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// How what runs on it is contained, such as `namespaces + cgroup`, where that is known.
    #[serde(default)]
    pub containment: Option<String>,
    /// Its measures of noise, one for each kit and clock setting.
    pub noise: Vec<Noise>,
    /// What its noise means for the kits of runs that are not over, where it does not suit them well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Its place in its driver's own list, as the driver's tools count, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The newest reading of a driver that looks all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// What disturbed how many of the judge's blocks on it in the rig's life, and beside whose development run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Blamed>,
}

/// Whom a device serves (rule B1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DevicePool {
    /// Judge and lanes, the judge first.
    #[default]
    Shared,
    /// The judge alone.
    Judge,
    /// The lanes alone.
    Agents,
    /// Nobody.
    Idle,
}

/// A device that is out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Quarantine {
    /// Why.
    pub why: String,
    /// When it is tried again by itself; none where somebody has to look first.
    pub next_try: Option<Moment>,
}

/// Which cards are the judge's and which the agents' (rules B1, B8, B9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SplitView {
    /// How often it was set; another one means that something else is set.
    pub revision: u64,
    /// What was asked for last.
    pub asked: SplitAsk,
    /// Whether judge and agents share the cards, the judge first.
    pub shared: bool,
    /// The judge's cards.
    pub judge: Vec<CardRow>,
    /// The agents' cards; the same ones where they are shared.
    pub agents: Vec<CardRow>,
    /// Cards that nobody uses.
    pub idle: Vec<IdleRow>,
    /// What the rig says of it: why it is not what was asked for, or why cards are idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it is in force at the latest, while the holds of the one before it are being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_by: Option<Moment>,
}

/// One card, as the split names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CardRow {
    /// Its place in the rig's list.
    pub member: MemberId,
    /// Its UUID.
    pub uuid: String,
    /// Its model.
    pub model: String,
}

/// One card that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdleRow {
    /// The card.
    #[serde(flatten)]
    pub card: CardRow,
    /// Why.
    pub why: String,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunRow {
    /// The run.
    pub run: RunId,
    /// What it is.
    pub state: RunState,
    /// Its repository.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub repo: PathBuf,
    /// Its kit's name.
    pub kit: String,
    /// Its champion's commit.
    pub champion: String,
    /// How many lanes it has.
    pub lanes: u8,
}

/// The rig's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SettingsView {
    /// How often they were set; another one means that something else is set.
    pub revision: u64,
    /// How long a development run waits before it gives up, in milliseconds.
    pub dev_run_wait: Span,
    /// What of it was set while the rig ran; none: as it was started with.
    pub set: LiveSettings,
    /// How many lanes a run may have; set where the rig is started.
    pub lanes_most: u8,
}

/// One development run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DevRunRow {
    /// The development run.
    pub dev_run: DevRunId,
    /// Its run.
    pub run: RunId,
    /// Its lane.
    pub lane: LaneId,
    /// Its command.
    pub argv: Vec<String>,
    /// What it does.
    pub status: DevRunStatus,
    /// Rule A8, on every one.
    pub note: String,
}

/// What a development run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum DevRunStatus {
    /// The asking is being made durable.
    Recording {
        /// Its certificate.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It waits.
    Waiting {
        /// Its certificate.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It has the device and is about to start.
    Starting {
        /// Its hold.
        hold: HoldId,
        /// Its certificate: the same latest moment.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It runs.
    Running {
        /// Its hold.
        hold: HoldId,
        /// Since when.
        since: Moment,
        /// When it is ended at the latest.
        limit_at: Option<Moment>,
    },
    /// Its processes are being ended.
    Stopping {
        /// Its hold.
        hold: HoldId,
        /// Why.
        cause: StopCause,
        /// The certificate of the proof.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It is over.
    Ended {
        /// How.
        end: DevRunEnd,
    },
}

impl DevRunStatus {
    /// The certificate and its one sentence, where it waits for anything.
    pub fn wait(&self) -> Option<(&Wait, &str)> {
        match self {
            DevRunStatus::Recording { wait, sentence }
            | DevRunStatus::Waiting { wait, sentence }
            | DevRunStatus::Starting { wait, sentence, .. }
            | DevRunStatus::Stopping { wait, sentence, .. } => Some((wait, sentence)),
            DevRunStatus::Running { .. } | DevRunStatus::Ended { .. } => None,
        }
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobRow {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// The change's commit.
    pub change: String,
    /// The champion's commit it is measured against.
    pub champion: String,
    /// The commit that is measured: champion plus the change's editable paths.
    pub candidate: String,
    /// The stage it is in or waits for.
    pub stage: StageKind,
    /// Attempts begun.
    pub attempt: u32,
    /// The causes of those that infrastructure failed.
    pub failures: Vec<String>,
    /// Where the device's noise does not suit the contract well: what to expect. For a job that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The job whose verdict it was given, without being measured (rule D5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<JobId>,
    /// What it does.
    pub status: JobStatus,
}

/// What a job does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum JobStatus {
    /// Its acceptance is being made durable.
    Recording {
        /// Its certificate.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It waits.
    Waiting {
        /// Its certificate.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// A stage of it has a device.
    Measuring {
        /// The hold.
        hold: HoldId,
        /// How far the stage is.
        stage: Option<StageView>,
        /// Why it waits inside the stage, where it does: the one sentence.
        sentence: Option<String>,
    },
    /// What follows is being made durable.
    Concluding {
        /// Its certificate.
        wait: Wait,
        /// The one sentence (rule A9).
        sentence: String,
    },
    /// It is over.
    Ended {
        /// How.
        outcome: JobOutcome,
        /// SHA-256 of the deciding record, which `GET /v1/jobs/{id}/verdict` gives.
        record: Option<String>,
        /// SHA-256 of the screening's record, where it was won.
        screening: Option<String>,
    },
}

impl JobStatus {
    /// The one sentence, where it waits for anything.
    pub fn sentence(&self) -> Option<&str> {
        match self {
            JobStatus::Recording { sentence, .. }
            | JobStatus::Waiting { sentence, .. }
            | JobStatus::Concluding { sentence, .. } => Some(sentence),
            JobStatus::Measuring { sentence, .. } => sentence.as_deref(),
            JobStatus::Ended { .. } => None,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RigEvent {
    /// Rises by one with each event of a rig's life.
    pub id: u64,
    /// On the wall clock: milliseconds since 1970.
    pub wall_ms: u64,
    /// What.
    #[serde(flatten)]
    pub what: RigHappening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum RigHappening {
    /// A fact that the records have.
    Recorded {
        /// The fact.
        fact: Arc<LogEntry>,
    },
    /// A stage got further: a step, a block, a look.
    Stage {
        /// The job.
        job: JobId,
        /// How far.
        stage: StageView,
    },
    /// A development run's status changed.
    DevRun {
        /// How it stands.
        row: DevRunRow,
    },
    /// A device's state changed.
    Device {
        /// Which.
        member: MemberId,
        /// What it does.
        state: DeviceView,
    },
    /// Something is so that must never be: a fault of the rig itself.
    Alarm {
        /// What, as a sentence.
        what: String,
    },
}
