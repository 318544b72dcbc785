//! What the queue tells the pool: all work there is, whole, each time it changes (docs/decisions/0003).

use std::collections::BTreeMap;

use crate::ids::{Arrival, JobId};
use crate::limits;
use crate::pool::{JudgeWork, WorkEntry};

use super::{Job, JobState, JudgeEffect, JudgeQueue};

impl JudgeQueue {
    pub(super) fn entry(&self, id: JobId, job: &Job) -> WorkEntry {
        WorkEntry {
            job: id,
            run: job.run,
            stage: job.stage,
            arrival: job.arrival,
            startable: self.startable(id, job),
            paused: self.paused(job.run),
            screened_on: job.screened_on,
            running_on: match &job.state {
                JobState::Held { hold, .. } | JobState::Concluding { hold: Some(hold), .. } => Some(*hold),
                JobState::Recording | JobState::Queued { .. } | JobState::Concluding { hold: None, .. } => None,
            },
            wants: self.wants(id),
            may_build: self.may_build(),
            failed_on: job.failed_on.clone(),
        }
    }

    /// Tells the pool all work there is: busy jobs, some that end, then the earliest of running runs, then of paused ones.
    pub(super) fn tell(&mut self, out: &mut Vec<JudgeEffect>) {
        self.version += 1;
        let mut waiting: Vec<(bool, Arrival, JobId)> = self
            .queued
            .iter()
            .flat_map(|(run, jobs)| {
                let paused = self.paused(*run);
                jobs.iter().take(limits::WORK_LISTED_MAX).map(move |(arrival, id)| (paused, *arrival, *id))
            })
            .collect();
        waiting.sort_unstable();
        let total = self.busy.len() + self.ending.len() + self.queued.values().map(BTreeMap::len).sum::<usize>();
        let entries: Vec<WorkEntry> = self
            .busy
            .iter()
            .chain(self.ending.iter().take(limits::WORK_LISTED_MAX))
            .copied()
            .chain(waiting.into_iter().take(limits::WORK_LISTED_MAX).map(|(_, _, id)| id))
            .filter_map(|id| self.jobs.get(&id).map(|job| self.entry(id, job)))
            .collect();
        let unlisted = u32::try_from(total - entries.len()).unwrap_or(u32::MAX);
        let stopped = self.stopped.iter().map(|(run, why)| (*run, *why)).collect();
        out.push(JudgeEffect::Tell(JudgeWork { version: self.version, entries, unlisted, stopped }));
    }
}
