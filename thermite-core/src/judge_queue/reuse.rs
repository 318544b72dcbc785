//! The verdict there is, given again to who asks for the same in another run (rule D5), and what a win does to a champion.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, RunId};
use crate::job::JobOutcome;
use crate::run::RunState;

use super::{Job, JobState, JudgeEffect, JudgeFact, JudgeQueue, Run, Then, Ticket};

/// A verdict there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Given {
    pub(super) from: JobId,
    pub(super) outcome: JobOutcome,
}

impl JudgeQueue {
    /// The verdict there is for a job.
    pub(super) fn given_to(&self, id: JobId) -> Option<&Given> {
        self.settled.get(&self.jobs.get(&id)?.same)
    }

    /// Ends a waiting job with the verdict there is for it (rule D5). Asked in another run, a win moves that run's
    /// champion only while it still is the one that was measured against.
    pub(super) fn give(&mut self, id: JobId, out: &mut Vec<JudgeEffect>) {
        let Some(Given { from, outcome }) = self.given_to(id).cloned() else { return };
        if !matches!(self.jobs.get(&id), Some(Job { state: JobState::Queued { .. }, .. })) {
            return;
        }
        self.dequeue(id);
        let job = self.jobs.get_mut(&id).expect("a job that is given a verdict is one of the queue's");
        let outcome = match outcome {
            JobOutcome::Win { .. } => JobOutcome::Win { adopted: is_adopted(&self.runs, job) },
            outcome @ (JobOutcome::NoGain { .. }
            | JobOutcome::Undecided
            | JobOutcome::ChangeFailed { .. }
            | JobOutcome::NoVerdict { .. }) => outcome,
        };
        let mut facts = vec![JudgeFact::Reused { from, outcome: outcome.clone() }];
        facts.extend(champion_moved(&mut self.runs, job, &outcome));
        job.state = JobState::Concluding { hold: None, then: Then::End { outcome } };
        self.ending.insert(id);
        out.push(JudgeEffect::Record { ticket: Ticket::Conclude(id), job: id, facts });
    }

    /// Gives the verdict there is by now to the other runs' jobs that wait for the same.
    pub(super) fn give_others(&mut self, same: &str, out: &mut Vec<JudgeEffect>) {
        let others: Vec<JobId> = self.same.get(same).into_iter().flat_map(BTreeMap::values).copied().collect();
        others.into_iter().for_each(|id| self.give(id, out));
    }
}

/// Whether a win of this job becomes its run's champion: only while that is, or is about to be, the job's own.
pub(super) fn is_adopted(runs: &BTreeMap<RunId, Run>, job: &Job) -> bool {
    let Some(run) = runs.get(&job.run) else { return false };
    let champion = run.next_champion.as_ref().unwrap_or(&run.champion);
    run.state != Some(RunState::Ended) && *champion == job.champion
}

/// The fact of an adopted win; the run's champion is about to be the job's candidate.
pub(super) fn champion_moved(runs: &mut BTreeMap<RunId, Run>, job: &Job, outcome: &JobOutcome) -> Option<JudgeFact> {
    if *outcome != (JobOutcome::Win { adopted: true }) {
        return None;
    }
    runs.get_mut(&job.run)?.next_champion = Some(job.candidate.clone());
    Some(JudgeFact::ChampionMoved { from: job.champion.clone(), to: job.candidate.clone() })
}
