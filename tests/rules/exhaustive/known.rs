//! What is durable, small enough to be compared a million times; at a start of the rig it becomes the log's fold.

use std::collections::BTreeMap;

use thermite_core::fold::RigHistory;
use thermite_core::ids::{DevRunId, HoldId, JobId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::judge_queue::JudgeFact;
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::RunState;
use thermite_core::settled;

use super::rig::{DEVICE, RUN};
use crate::scenario::{job_spec, run_spec};

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    Run(RunState),
    Job { job: JobId, fact: JudgeFact, arrival: u64 },
    Asked { dev_run: DevRunId },
    Held { dev_run: DevRunId, number: u64 },
    DevRunOver { dev_run: DevRunId },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KnownJob {
    arrival: u64,
    stage: StageKind,
    screened: bool,
    attempt: u32,
    failures: u32,
    /// The hold of the newest attempt, told from the lowest number still spoken of.
    hold: u64,
    end: Option<JobOutcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KnownDevRun {
    Asked,
    Held(u64),
    Over,
}

/// Everything durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known {
    run: RunState,
    last_hold: u64,
    jobs: BTreeMap<JobId, KnownJob>,
    dev_runs: BTreeMap<DevRunId, KnownDevRun>,
}

impl Default for Known {
    fn default() -> Known {
        Known { run: RunState::Running, last_hold: 0, jobs: BTreeMap::new(), dev_runs: BTreeMap::new() }
    }
}

impl Known {
    /// Adds a fact; false where it ends something a second time.
    pub(super) fn apply(&mut self, fact: Fact) -> bool {
        match fact {
            Fact::Run(state) => self.run = state,
            Fact::Asked { dev_run } => {
                self.dev_runs.insert(dev_run, KnownDevRun::Asked);
            }
            Fact::Held { dev_run, number } => {
                self.last_hold = self.last_hold.max(number);
                self.dev_runs.insert(dev_run, KnownDevRun::Held(number));
            }
            Fact::DevRunOver { dev_run } => {
                return self.dev_runs.insert(dev_run, KnownDevRun::Over) != Some(KnownDevRun::Over);
            }
            Fact::Job { job, fact: JudgeFact::Submitted, arrival } => {
                let fresh = KnownJob {
                    arrival,
                    stage: StageKind::Screening,
                    screened: false,
                    attempt: 0,
                    failures: 0,
                    hold: 0,
                    end: None,
                };
                return self.jobs.insert(job, fresh).is_none();
            }
            Fact::Job { job, fact, .. } => {
                let known = self.jobs.get_mut(&job).expect("a job's first fact is its submission");
                match fact {
                    JudgeFact::StageStarted { stage, attempt, hold }
                    | JudgeFact::BuildStarted { stage, attempt, hold } => {
                        self.last_hold = self.last_hold.max(hold.number);
                        known.stage = stage;
                        known.attempt = attempt;
                        known.hold = hold.number;
                    }
                    JudgeFact::ScreeningWon { .. } => {
                        known.stage = StageKind::Confirmation;
                        known.screened = true;
                        known.attempt = 0;
                    }
                    JudgeFact::AttemptFailed { .. } => known.failures += 1,
                    JudgeFact::SentBack | JudgeFact::Submitted | JudgeFact::ChampionMoved { .. } => {}
                    JudgeFact::Ended { outcome, .. } | JudgeFact::Reused { outcome, .. } => {
                        return known.end.replace(outcome).is_none();
                    }
                }
            }
        }
        true
    }

    pub(super) fn last_hold(&self) -> u64 {
        self.last_hold
    }

    pub(super) fn has_job(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    pub(super) fn job_over(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|known| known.end.is_some())
    }

    pub(super) fn stage_started(&self, job: JobId, number: u64) -> bool {
        self.jobs.get(&job).is_some_and(|known| known.hold == number)
    }

    pub(super) fn jobs_over(&self) -> impl Iterator<Item = JobId> {
        self.jobs.iter().filter(|(_, known)| known.end.is_some()).map(|(job, _)| *job)
    }

    pub(super) fn has_dev_run(&self, dev_run: DevRunId) -> bool {
        self.dev_runs.contains_key(&dev_run)
    }

    pub(super) fn dev_run_holds(&self, dev_run: Option<DevRunId>, number: u64) -> bool {
        dev_run.is_some_and(|dev_run| self.dev_runs.get(&dev_run) == Some(&KnownDevRun::Held(number)))
    }

    pub(super) fn dev_run_over(&self, dev_run: DevRunId) -> bool {
        self.dev_runs.get(&dev_run) == Some(&KnownDevRun::Over)
    }

    /// Whether every job and every development run has its end.
    pub(super) fn all_over(&self) -> bool {
        self.jobs.values().all(|job| job.end.is_some())
            && self.dev_runs.values().all(|dev_run| *dev_run == KnownDevRun::Over)
    }

    /// The start of the rig writes down that what was under way is over.
    pub(super) fn lanes_runs_are_over(&mut self) {
        self.dev_runs.values_mut().for_each(|dev_run| *dev_run = KnownDevRun::Over);
    }

    /// Tells hold numbers from `lowest`.
    pub(super) fn rebase(&mut self, lowest: u64) {
        self.last_hold -= lowest;
        self.jobs.values_mut().for_each(|job| job.hold = job.hold.saturating_sub(lowest));
        for dev_run in self.dev_runs.values_mut() {
            if let KnownDevRun::Held(number) = dev_run {
                *number = number.saturating_sub(lowest);
            }
        }
    }

    /// The same as the log tells it.
    pub(super) fn history(&self) -> RigHistory {
        let mut log =
            vec![LogEntry::RigStarted, LogEntry::RunStarted { run: RUN, spec: Box::new(run_spec("")), key: None }];
        if self.run != RunState::Running {
            log.push(LogEntry::RunChanged { run: RUN, state: self.run });
        }
        for (job, known) in &self.jobs {
            log.push(LogEntry::JobSubmitted {
                spec: std::sync::Arc::new(job_spec(*job, RUN, known.arrival, &content(*job))),
                key: None,
            });
            let hold = HoldId { member: DEVICE, number: known.hold };
            if known.screened {
                let key = Some(content(*job));
                log.push(LogEntry::ScreeningWon { job: *job, hold, record: String::new(), key });
            }
            if known.attempt > 0 {
                log.push(LogEntry::StageStarted { job: *job, stage: known.stage, attempt: known.attempt, hold });
            }
            for _ in 0..known.failures {
                let why = InfrastructureFailure::RigEnding;
                log.push(LogEntry::AttemptFailed { job: *job, stage: known.stage, hold, why });
            }
            if let Some(outcome) = &known.end {
                log.push(LogEntry::JobEnded { job: *job, outcome: outcome.clone(), record: None });
                if settled::is_verdict(outcome) {
                    log.push(LogEntry::VerdictSettled { job: *job, key: content(*job) });
                }
            }
        }
        let mut history = RigHistory::of(log);
        if self.last_hold > 0 {
            history.last_holds.insert(DEVICE, self.last_hold);
        }
        history
    }
}

/// What a job's change is, as the set-up submits it: its place among the jobs.
fn content(job: JobId) -> String {
    (job.0.as_u128() - 1).to_string()
}
