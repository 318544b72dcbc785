//! State is the fold of the log: what a rig knows when it starts (rule D7).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dev_run::{DevRunEnd, DevRunSpec};
use crate::ids::{Arrival, DevRunId, JobId, LaneId, MemberId, RunId};
use crate::job::{JobOutcome, JobSpec, StageKind};
use crate::log::LogEntry;
use crate::noise::{Noise, NoiseKey};
use crate::run::{RunSpec, RunState};
use crate::settings::LiveSettings;

/// A run as the log tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunHistory {
    /// What it is made of.
    pub spec: RunSpec,
    /// What it is.
    pub state: RunState,
    /// Its champion.
    pub champion: String,
    /// The idempotency key it was asked with.
    pub key: Option<String>,
    /// The job that moved its champion last, where one did.
    #[serde(default)]
    pub moved_by: Option<JobId>,
}

/// A job as the log tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobHistory {
    /// What is measured.
    pub spec: Arc<JobSpec>,
    /// The idempotency key it was asked with.
    pub key: Option<String>,
    /// The stage it waits for or is in.
    pub stage: StageKind,
    /// Where its screening was won, with the hash of that record.
    pub screened: Option<(MemberId, String)>,
    /// Attempts begun.
    pub attempt: u32,
    /// Attempts that infrastructure failed, with their causes.
    pub failures: Vec<String>,
    /// How it ended, with the hash of the deciding record.
    pub end: Option<(JobOutcome, Option<String>)>,
}

/// A development run as the log tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DevRunHistory {
    /// What was asked.
    pub spec: DevRunSpec,
    /// The idempotency key it was asked with.
    pub key: Option<String>,
    /// Whether it got a device.
    pub started: bool,
    /// How it ended.
    pub end: Option<DevRunEnd>,
    /// Who had the device when it gave up, where somebody had.
    #[serde(default)]
    pub behind: Option<Behind>,
}

/// Who has a device, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "who")]
pub enum Behind {
    /// The judge.
    Job {
        /// For which job.
        job: JobId,
        /// The device.
        member: MemberId,
    },
    /// A lane.
    DevRun {
        /// For which development run.
        dev_run: DevRunId,
        /// The lane.
        lane: LaneId,
        /// The device.
        member: MemberId,
    },
}

/// Everything the log tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RigHistory {
    /// How often the rig has started over this log.
    pub starts: u64,
    /// The highest arrival given out.
    pub last_arrival: u64,
    /// Each device's highest hold number.
    pub last_holds: BTreeMap<MemberId, u64>,
    /// All runs.
    pub runs: BTreeMap<RunId, RunHistory>,
    /// All jobs.
    pub jobs: BTreeMap<JobId, JobHistory>,
    /// All development runs.
    pub dev_runs: BTreeMap<DevRunId, DevRunHistory>,
    /// What was set while it ran.
    pub settings: LiveSettings,
    /// How often that was set.
    pub settings_revision: u64,
    /// The newest measure of noise for each key.
    pub noise: BTreeMap<NoiseKey, Noise>,
    /// Who has each device.
    #[serde(default)]
    pub holding: BTreeMap<MemberId, Behind>,
}

impl RigHistory {
    /// The fold of a whole log.
    pub fn of(entries: impl IntoIterator<Item = LogEntry>) -> RigHistory {
        let mut history = RigHistory::default();
        entries.into_iter().for_each(|entry| history.apply(entry));
        history
    }

    /// Adds one fact.
    pub fn apply(&mut self, entry: LogEntry) {
        match entry {
            LogEntry::RigStarted => {
                self.starts += 1;
                self.holding.clear();
            }
            LogEntry::RunStarted { run, spec, key } => {
                let champion = spec.champion.clone();
                self.runs
                    .insert(run, RunHistory { spec: *spec, state: RunState::Running, champion, key, moved_by: None });
            }
            LogEntry::RunChanged { run, state } => {
                if let Some(known) = self.runs.get_mut(&run) {
                    known.state = state;
                }
            }
            LogEntry::JobSubmitted { spec, key } => {
                self.arrived(spec.arrival);
                self.jobs.insert(
                    spec.job,
                    JobHistory {
                        spec,
                        key,
                        stage: StageKind::Screening,
                        screened: None,
                        attempt: 0,
                        failures: Vec::new(),
                        end: None,
                    },
                );
            }
            LogEntry::StageStarted { job, stage, attempt, hold } => {
                self.held(hold.member, hold.number);
                self.holding.insert(hold.member, Behind::Job { job, member: hold.member });
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.stage = stage;
                    known.attempt = attempt;
                }
            }
            LogEntry::ScreeningWon { job, hold, record } => {
                self.jobs_hold_is_over(job);
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.stage = StageKind::Confirmation;
                    known.attempt = 0;
                    known.screened = Some((hold.member, record));
                }
            }
            LogEntry::AttemptFailed { job, why, .. } => {
                self.jobs_hold_is_over(job);
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.failures.push(why.to_string());
                }
            }
            LogEntry::SentBack { job } => self.jobs_hold_is_over(job),
            LogEntry::JobEnded { job, outcome, record } => {
                self.jobs_hold_is_over(job);
                if let Some(known) = self.jobs.get_mut(&job) {
                    // INVARIANT: a verdict is given once (rule D7); a second entry would be a fault of the writer.
                    known.end.get_or_insert((outcome, record));
                }
            }
            LogEntry::ChampionMoved { run, to, by, .. } => {
                if let Some(known) = self.runs.get_mut(&run) {
                    known.champion = to;
                    known.moved_by = Some(by);
                }
            }
            LogEntry::NoiseMeasured { noise } => {
                self.noise.insert(noise.key.clone(), noise);
            }
            LogEntry::SettingsChanged { settings } => {
                self.settings = settings;
                self.settings_revision += 1;
            }
            LogEntry::DevRunAsked { spec, arrival, key } => {
                self.arrived(arrival);
                self.dev_runs
                    .insert(spec.dev_run, DevRunHistory { spec: *spec, key, started: false, end: None, behind: None });
            }
            LogEntry::DevRunStarted { dev_run, hold } => {
                self.held(hold.member, hold.number);
                if let Some(known) = self.dev_runs.get_mut(&dev_run) {
                    known.started = true;
                    let lane = known.spec.lane;
                    self.holding.insert(hold.member, Behind::DevRun { dev_run, lane, member: hold.member });
                }
            }
            LogEntry::DevRunEnded { dev_run, end } => {
                self.holding
                    .retain(|_, held| !matches!(held, Behind::DevRun { dev_run: held, .. } if *held == dev_run));
                if let Some(known) = self.dev_runs.get_mut(&dev_run)
                    && known.end.is_none()
                {
                    if let DevRunEnd::GaveUp { .. } = end {
                        known.behind = self.holding.values().next().copied();
                    }
                    known.end = Some(end);
                }
            }
        }
    }

    fn jobs_hold_is_over(&mut self, job: JobId) {
        self.holding.retain(|_, held| !matches!(held, Behind::Job { job: held, .. } if *held == job));
    }

    fn arrived(&mut self, arrival: Arrival) {
        self.last_arrival = self.last_arrival.max(arrival.0);
    }

    fn held(&mut self, member: MemberId, number: u64) {
        let last = self.last_holds.entry(member).or_insert(0);
        *last = (*last).max(number);
    }
}
