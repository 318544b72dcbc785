//! What the judge queue tells people: each job's standing and place.

use crate::ids::{Arrival, HoldId, JobId, MemberId, RunId};
use crate::job::StageKind;
use crate::limits;
use crate::pool::Wants;
use crate::time::{Moment, Span};
use crate::wait::{WaitReason, after_turns};

use super::{Builds, Job, JobState, JudgeQueue};

/// A job that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveJob {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// Its place in the order of all askings.
    pub arrival: Arrival,
    /// The stage it is in or waits for.
    pub stage: StageKind,
    /// How many attempts were begun.
    pub attempt: u32,
    /// How many of them infrastructure failed.
    pub failures: u32,
    /// What it does.
    pub standing: Standing,
}

/// What a live job does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its acceptance is being made durable.
    Recording,
    /// It waits.
    Waiting(JobWaits),
    /// A stage of it has a device.
    Holding {
        /// The hold.
        hold: HoldId,
    },
    /// What follows is being made durable.
    Concluding,
}

/// What the queue knows of a waiting job; [`crate::wait::Wait::of_job`] makes its certificate of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobWaits {
    /// The queue's own reason; without one it waits for a device.
    pub reason: Option<WaitReason>,
    /// How many jobs are before it.
    pub ahead: u32,
    /// How long the jobs before it can take at most, all stages and attempts counted.
    pub ahead_worst: Span,
    /// When its rest ends, where it rests.
    pub rests_until: Option<Moment>,
    /// While it rests one of the later jobs there are may take the device: how long a stage of it can take at most.
    pub passed_by: Span,
    /// How long later jobs can go before it at most where several devices judge, or jobs build on the bench: those that
    /// are built already.
    pub later_first: Span,
    /// What it waits for: a card too where it may not build before one of those that are built has one.
    pub wants: Wants,
    /// Where its screening was won, for a confirmation.
    pub screened_on: Option<MemberId>,
}

/// Stages of one job that can come at most: each of both stages as often as infrastructure may fail.
const STAGES_MOST: u64 = 2 * crate::limits::INFRASTRUCTURE_FAILURES_MAX as u64;

/// How long a job can take at most, from its first stage to its end, while nothing else takes the device.
///
/// Where several devices judge, or jobs build on the bench, later jobs that are built may take a card while an earlier one builds: `passed` of them
/// before each of its stages.
fn job_worst(stage: Span, passed: u64) -> Span {
    let turn = stage + limits::STAGE_TURN_MAX;
    Span::millis(turn.as_millis().saturating_mul(STAGES_MOST.saturating_mul(passed + 1)))
}

impl JudgeQueue {
    /// The first `most` live jobs: those with a device, then the others in order.
    pub fn live(&self, most: usize) -> Vec<LiveJob> {
        let mut waiting: Vec<(bool, Arrival, JobId)> = self
            .queued
            .iter()
            .flat_map(|(run, jobs)| {
                let paused = self.paused(*run);
                jobs.iter().take(most).map(move |(arrival, id)| (paused, *arrival, *id))
            })
            .collect();
        waiting.sort_unstable();
        let mut ahead = u32::try_from(self.busy.len() + self.ending.len()).unwrap_or(u32::MAX);
        let mut ahead_worst = Span::ZERO;
        let mut live = Vec::new();
        let waiting = waiting.into_iter().map(|(_, _, id)| id);
        for id in self.busy.iter().copied().chain(waiting).chain(self.ending.iter().copied()).take(most) {
            let Some(job) = self.jobs.get(&id) else { continue };
            let seen = self.seen(id, job, ahead, ahead_worst);
            if let Standing::Waiting(_) = seen.standing {
                ahead = ahead.saturating_add(1);
            }
            ahead_worst = ahead_worst + job_worst(job.stage_worst, self.passed());
            live.push(seen);
        }
        live
    }

    /// One live job. The bound of what is ahead takes every job for as long as the longest.
    pub fn live_job(&self, id: JobId) -> Option<LiveJob> {
        let job = self.jobs.get(&id)?;
        let ahead = self.ahead(id);
        let ahead_worst = after_turns(Moment::START, ahead, job_worst(self.longest_stage, self.passed()));
        Some(self.seen(id, job, ahead, ahead_worst.since(Moment::START)))
    }

    /// How many jobs are not over.
    pub fn live_count(&self) -> usize {
        self.jobs.len()
    }

    /// How many jobs are before this one.
    pub fn ahead(&self, id: JobId) -> u32 {
        let Some(job) = self.jobs.get(&id) else { return 0 };
        let earlier: usize = self
            .queued
            .iter()
            .filter(|(run, _)| **run == job.run || !self.paused(**run))
            .map(|(_, jobs)| match jobs.last_key_value() {
                // The newest job is the usual one to ask for, and a long queue must not make that dear.
                Some((last, _)) if *last < job.arrival => jobs.len(),
                Some((last, _)) if *last == job.arrival => jobs.len() - 1,
                _ => jobs.range(..job.arrival).count(),
            })
            .sum();
        let busy = self.busy.len() + self.ending.len();
        let busy = busy - usize::from(self.busy.contains(&id) || self.ending.contains(&id));
        u32::try_from(earlier + busy).unwrap_or(u32::MAX)
    }

    /// How many later jobs may take a device before an earlier one at most.
    fn passed(&self) -> u64 {
        // Where jobs build on the bench later ones can be built while an earlier one rests or builds.
        if self.devices < 2 && self.builds == Builds::UnderHold { 0 } else { self.built_most() as u64 }
    }

    fn passed_by(&self, ahead: u32) -> Span {
        let others = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX).saturating_sub(1);
        if others > ahead { self.longest_stage + limits::STAGE_TURN_MAX } else { Span::ZERO }
    }

    fn seen(&self, id: JobId, job: &Job, ahead: u32, ahead_worst: Span) -> LiveJob {
        LiveJob {
            job: id,
            run: job.run,
            arrival: job.arrival,
            stage: job.stage,
            attempt: job.attempt,
            failures: job.failures,
            standing: self.standing(id, job, ahead, ahead_worst),
        }
    }

    fn standing(&self, id: JobId, job: &Job, ahead: u32, ahead_worst: Span) -> Standing {
        match &job.state {
            JobState::Recording => Standing::Recording,
            JobState::Held { hold, .. } => Standing::Holding { hold: *hold },
            JobState::Concluding { .. } => Standing::Concluding,
            JobState::Queued { rests_until } => {
                let barred = self.barred(id);
                let reason = if self.paused(job.run) {
                    Some(WaitReason::RunPaused { run: job.run })
                } else if rests_until.is_some() && job.lacked_room {
                    Some(WaitReason::DiskFull)
                } else if rests_until.is_some() {
                    Some(WaitReason::Retry { failures: job.failures })
                } else if let Some(jobs) = barred {
                    Some(WaitReason::BuiltFirst { jobs })
                } else if self.devices > 1 {
                    // Several go on side by side: what it waits for is the build turn, or the cards themselves.
                    match self.turn {
                        Some(builder) if builder != id && !self.built.contains(&id) => {
                            Some(WaitReason::BuildTurn { job: builder })
                        }
                        _ => None,
                    }
                } else if ahead > 0 {
                    match self.turn {
                        Some(builder) if ahead == 1 => Some(WaitReason::BuildTurn { job: builder }),
                        _ => Some(WaitReason::Earlier { ahead }),
                    }
                } else {
                    None
                };
                Standing::Waiting(JobWaits {
                    reason,
                    ahead,
                    ahead_worst,
                    rests_until: *rests_until,
                    passed_by: self.passed_by(ahead),
                    later_first: Span::millis(
                        (self.longest_stage + limits::STAGE_TURN_MAX).as_millis().saturating_mul(self.passed()),
                    ),
                    wants: if barred.is_some() { Wants::Device } else { self.wants(id) },
                    screened_on: job.screened_on.filter(|_| job.stage == StageKind::Confirmation),
                })
            }
        }
    }
}
