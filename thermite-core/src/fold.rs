//! State is the fold of the log: what a rig knows when it starts (rule D7).
//!
//! What is over stays for a while and then leaves ([`limits::ENDED_KEPT`]), so that memory follows the work there is and
//! not the work there was. Leaving is a part of the fold: it follows from the log alone, so that a fold from a
//! checkpoint and a fold of the whole log are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blame::{Blame, Blamed};
use crate::dev_run::{DevRunEnd, DevRunSpec};
use crate::ended::{EndOrder, Ended};
use crate::ids::{Arrival, DevRunId, JobId, LaneId, MemberId, RunId};
use crate::job::{JobOutcome, JobSpec, StageKind};
use crate::limits;
use crate::log::LogEntry;
use crate::noise::{HarnessAlarm, Noise, NoiseKey};
use crate::refusal::InfrastructureFailure;
use crate::run::{RunSpec, RunState};
use crate::runners::{RunnerDevice, RunnerSet};
use crate::settings::LiveSettings;
use crate::settled::{Settled, SettledVerdict};
use crate::split::SplitAsk;
use crate::wire::RunnerName;

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
    /// What its screening was won as: [`crate::settled::key`], with the kind of card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screened_as: Option<String>,
    /// Attempts begun.
    pub attempt: u32,
    /// Attempts that infrastructure failed, with their causes.
    pub failures: Vec<String>,
    /// How it ended, with the hash of the deciding record.
    pub end: Option<(JobOutcome, Option<String>)>,
    /// The job whose verdict it was given without being measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<JobId>,
    /// The key under which its verdict is given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_as: Option<String>,
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
    /// Whether that was a runner's: then it ran on a fresh copy (rule E5).
    #[serde(default)]
    pub on_runner: bool,
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
pub struct RigHistory {
    /// How often the rig has started over this log.
    pub starts: u64,
    /// The highest arrival given out.
    pub last_arrival: u64,
    /// Each device's highest hold number.
    pub last_holds: BTreeMap<MemberId, u64>,
    /// The number below which no device's hold may be: what a restored rig may have given out already.
    #[serde(default)]
    pub hold_floor: u64,
    /// Runs that are not over, and the last that are.
    pub runs: BTreeMap<RunId, RunHistory>,
    /// Jobs that are not over, and the last that are.
    pub jobs: BTreeMap<JobId, JobHistory>,
    /// Development runs that are not over, and the last that are.
    pub dev_runs: BTreeMap<DevRunId, DevRunHistory>,
    /// What was set while it ran.
    pub settings: LiveSettings,
    /// How often that was set.
    pub settings_revision: u64,
    /// The split that was asked for last.
    #[serde(default)]
    pub split: SplitAsk,
    /// How often it was set.
    #[serde(default)]
    pub split_revision: u64,
    /// The runners that were set last.
    #[serde(default)]
    pub runners: Vec<RunnerSet>,
    /// How often they were set.
    #[serde(default)]
    pub runners_revision: u64,
    /// The number of every runner there ever was.
    #[serde(default, with = "crate::pairs")]
    pub runner_numbers: BTreeMap<RunnerName, MemberId>,
    /// The lowest number that no runner can have had.
    #[serde(default)]
    pub runner_next: u16,
    /// What each runner's device is, as it told last.
    #[serde(default)]
    pub runner_devices: BTreeMap<MemberId, RunnerDevice>,
    /// Devices that take nothing more, by UUID; runners, by name.
    #[serde(default)]
    pub drained: BTreeSet<String>,
    /// The newest measure of noise for each key.
    #[serde(with = "crate::pairs")]
    pub noise: BTreeMap<NoiseKey, Noise>,
    /// Who has each device.
    #[serde(default)]
    pub holding: BTreeMap<MemberId, Behind>,
    /// Measures that are not to be used any more.
    #[serde(default)]
    pub doubted: BTreeSet<NoiseKey>,
    /// Each device's lifelong alarm, by its UUID.
    #[serde(default)]
    pub alarms: BTreeMap<String, HarnessAlarm>,
    /// Devices that an alarm keeps out of service, by UUID, with the sentence to show.
    #[serde(default)]
    pub quarantined: BTreeMap<String, String>,
    /// What disturbed how many blocks in the rig's life.
    #[serde(default, with = "crate::pairs")]
    pub disturbed: BTreeMap<Blame, u64>,
    /// The verdicts that are given again (rule D5). Apart from the jobs, so that forgetting those does not forget these.
    #[serde(default)]
    pub settled: Settled<SettledVerdict>,
    /// What of them is over, the oldest end first.
    pub(crate) over: EndOrder,
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
        let changes_runs = matches!(entry, LogEntry::RunStarted { .. } | LogEntry::RunChanged { .. });
        self.take(entry);
        self.forget_old(changes_runs);
    }

    /// What these facts end, with all that the log says of it once they are added.
    pub fn ended_by(&self, entries: &[LogEntry]) -> Vec<Ended> {
        if !entries.iter().any(ends) {
            return Vec::new();
        }
        // Who held the device is told with who gave up on it.
        let mut touched = RigHistory { holding: self.holding.clone(), ..RigHistory::default() };
        for entry in entries {
            match entry {
                LogEntry::JobEnded { job, .. } => {
                    touched.jobs.extend(self.jobs.get(job).map(|known| (*job, known.clone())));
                }
                LogEntry::DevRunEnded { dev_run, .. } => {
                    touched.dev_runs.extend(self.dev_runs.get(dev_run).map(|known| (*dev_run, known.clone())));
                }
                LogEntry::RunChanged { run, state: RunState::Ended } => {
                    touched.runs.extend(self.runs.get(run).map(|known| (*run, known.clone())));
                }
                _ => {}
            }
        }
        entries.iter().for_each(|entry| touched.take(entry.clone()));
        let RigHistory { mut jobs, mut dev_runs, mut runs, over, .. } = touched;
        let jobs = over.jobs.iter().filter_map(|id| jobs.remove(id)).map(|job| Ended::Job { history: Box::new(job) });
        let dev_runs = over.dev_runs.iter().filter_map(|id| dev_runs.remove(id));
        let dev_runs = dev_runs.map(|dev_run| Ended::DevRun { history: Box::new(dev_run) });
        let runs = over.runs.iter().filter_map(|id| Some((*id, runs.remove(id)?)));
        let runs = runs.map(|(run, history)| Ended::Run { run, history: Box::new(history) });
        jobs.chain(dev_runs).chain(runs).collect()
    }

    /// The highest number a hold of that device may have had.
    pub fn last_hold(&self, member: MemberId) -> u64 {
        self.last_holds.get(&member).copied().unwrap_or(0).max(self.hold_floor)
    }

    /// How many jobs and development runs are not over.
    pub fn open(&self) -> usize {
        self.jobs.len() + self.dev_runs.len() - self.over.jobs.len() - self.over.dev_runs.len()
    }

    fn forget_old(&mut self, runs_too: bool) {
        while self.over.jobs.len() > limits::ENDED_KEPT {
            self.over.jobs.pop_front().and_then(|id| self.jobs.remove(&id));
        }
        while self.over.dev_runs.len() > limits::ENDED_KEPT {
            self.over.dev_runs.pop_front().and_then(|id| self.dev_runs.remove(&id));
        }
        while runs_too && self.over.runs.len() > limits::ENDED_RUNS_KEPT {
            let Some(oldest) = self.over.runs.front().copied() else { return };
            // A run whose jobs are still to be ended is needed for that.
            if self.jobs.values().any(|job| job.spec.run == oldest && job.end.is_none()) {
                return;
            }
            self.over.runs.pop_front();
            self.runs.remove(&oldest);
        }
    }

    fn take(&mut self, entry: LogEntry) {
        match entry {
            LogEntry::RigStarted => {
                self.starts += 1;
                self.holding.clear();
            }
            LogEntry::RigRestored { numbers_skipped } => {
                self.last_arrival = self.last_arrival.saturating_add(numbers_skipped);
                let highest = self.last_holds.values().copied().max().unwrap_or(0).max(self.hold_floor);
                self.hold_floor = highest.saturating_add(numbers_skipped);
                let next = self.runner_next.max(MemberId::RUNNERS_FROM);
                self.runner_next = next.saturating_add(limits::RUNNER_NUMBERS_SKIPPED);
            }
            LogEntry::RunStarted { run, spec, key } => {
                let champion = spec.champion.clone();
                self.runs
                    .insert(run, RunHistory { spec: *spec, state: RunState::Running, champion, key, moved_by: None });
            }
            LogEntry::RunChanged { run, state } => {
                if let Some(known) = self.runs.get_mut(&run) {
                    if state == RunState::Ended && known.state != RunState::Ended {
                        self.over.runs.push_back(run);
                    }
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
                        screened_as: None,
                        attempt: 0,
                        failures: Vec::new(),
                        end: None,
                        reused_from: None,
                        settled_as: None,
                    },
                );
            }
            LogEntry::StageStarted { job, stage, attempt, hold }
            | LogEntry::BuildStarted { job, stage, attempt, hold } => {
                self.held(hold.member, hold.number);
                // What it has built it builds no more.
                self.jobs_hold_is_over(job);
                self.holding.insert(hold.member, Behind::Job { job, member: hold.member });
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.stage = stage;
                    known.attempt = attempt;
                    if stage == StageKind::Screening {
                        // It is screened anew on another model of card: what was won before is won no more.
                        known.screened = None;
                        known.screened_as = None;
                    }
                }
            }
            LogEntry::ScreeningWon { job, hold, record, key } => {
                self.jobs_hold_is_over(job);
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.stage = StageKind::Confirmation;
                    known.attempt = 0;
                    known.screened = Some((hold.member, record));
                    known.screened_as = key;
                }
            }
            // A full disk is waited for; it is no attempt that failed.
            LogEntry::AttemptFailed { why: InfrastructureFailure::DiskFull { .. }, .. } => {}
            LogEntry::AttemptFailed { job, why, .. } => {
                self.jobs_hold_is_over(job);
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.failures.push(why.to_string());
                }
            }
            LogEntry::SentBack { job } => self.jobs_hold_is_over(job),
            LogEntry::JobEnded { job, outcome, record } => {
                self.jobs_hold_is_over(job);
                // INVARIANT: a verdict is given once (rule D7); a second entry would be a fault of the writer.
                if let Some(known) = self.jobs.get_mut(&job)
                    && known.end.is_none()
                {
                    known.end = Some((outcome, record));
                    self.over.jobs.push_back(job);
                }
            }
            LogEntry::ChampionMoved { run, to, by, .. } => {
                if let Some(known) = self.runs.get_mut(&run) {
                    known.champion = to;
                    known.moved_by = Some(by);
                }
            }
            LogEntry::VerdictSettled { job, key } => self.settle(job, key),
            LogEntry::VerdictReused { job, from, screened } => {
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.reused_from = Some(from);
                    known.screened = screened;
                }
            }
            LogEntry::NoiseMeasured { noise } => {
                self.doubted.remove(&noise.key);
                self.noise.insert(noise.key.clone(), noise);
            }
            LogEntry::NoiseDoubted { key, .. } => {
                self.doubted.insert(key);
            }
            LogEntry::ChampionTwice { blocks } => {
                self.alarms.entry(blocks.device.clone()).or_default().take(&blocks);
            }
            LogEntry::BlocksDisturbed { blamed } => {
                for Blamed { blame, blocks } in blamed {
                    let total = self.disturbed.entry(blame).or_default();
                    *total = total.saturating_add(blocks);
                }
            }
            LogEntry::DeviceQuarantined { device, why } => {
                self.quarantined.insert(device, why);
            }
            LogEntry::QuarantineCleared { device } => {
                self.quarantined.remove(&device);
                self.alarms.remove(&device);
            }
            LogEntry::SplitSet { ask } => {
                self.split = ask;
                self.split_revision += 1;
            }
            LogEntry::RunnersSet { runners } => {
                for known in &runners {
                    self.runner_numbers.insert(known.runner.clone(), known.member);
                    self.runner_next = self.runner_next.max(known.member.0.saturating_add(1));
                }
                self.runners = runners;
                self.runners_revision += 1;
            }
            LogEntry::RunnerMet { member, device } => {
                self.runner_devices.insert(member, device);
            }
            LogEntry::DeviceDrained { device } => {
                self.drained.insert(device);
            }
            LogEntry::DeviceUndrained { device } => {
                self.drained.remove(&device);
            }
            LogEntry::SettingsChanged { settings } => {
                self.settings = settings;
                self.settings_revision += 1;
            }
            LogEntry::DevRunAsked { spec, arrival, key } => {
                self.arrived(arrival);
                let spec = *spec;
                self.dev_runs.insert(
                    spec.dev_run,
                    DevRunHistory { spec, key, started: false, on_runner: false, end: None, behind: None },
                );
            }
            LogEntry::DevRunStarted { dev_run, hold } => {
                self.held(hold.member, hold.number);
                if let Some(known) = self.dev_runs.get_mut(&dev_run) {
                    known.started = true;
                    known.on_runner = hold.member.is_runner();
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
                        // The bench keeps no development run from a card.
                        let mut cards = self.holding.iter().filter(|(member, _)| **member != MemberId::BENCH);
                        known.behind = cards.next().map(|held| *held.1);
                    }
                    known.end = Some(end);
                    self.over.dev_runs.push_back(dev_run);
                }
            }
        }
    }

    fn jobs_hold_is_over(&mut self, job: JobId) {
        self.holding.retain(|_, held| !matches!(held, Behind::Job { job: held, .. } if *held == job));
    }

    /// The measures of noise that may still be used, as far as the log tells; their age is the asker's to see to.
    pub fn usable_noise(&self) -> impl Iterator<Item = (&NoiseKey, &Noise)> {
        self.noise.iter().filter(|(key, _)| !self.doubted.contains(key))
    }

    fn settle(&mut self, job: JobId, key: String) {
        let Some(known) = self.jobs.get_mut(&job) else { return };
        let Some((outcome, record)) = &known.end else { return };
        let verdict = SettledVerdict {
            from: job,
            outcome: outcome.clone(),
            record: record.clone(),
            screened: known.screened.clone(),
        };
        known.settled_as = Some(key.clone());
        self.settled.insert(key, verdict);
    }

    fn arrived(&mut self, arrival: Arrival) {
        self.last_arrival = self.last_arrival.max(arrival.0);
    }

    fn held(&mut self, member: MemberId, number: u64) {
        let last = self.last_holds.entry(member).or_insert(0);
        *last = (*last).max(number);
    }
}

fn ends(entry: &LogEntry) -> bool {
    matches!(
        entry,
        LogEntry::JobEnded { .. } | LogEntry::DevRunEnded { .. } | LogEntry::RunChanged { state: RunState::Ended, .. }
    )
}
