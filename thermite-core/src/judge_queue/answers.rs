//! What a job answers for: the idempotency key it was asked with (rule A13), and every asking for the same in its run
//! (rule D5). An ended one goes on answering for a while; then its key is the records' to know, and its verdict is given
//! again as one of another run is.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, RunId};
use crate::job::JobOutcome;
use crate::limits;

use super::{JudgeQueue, Submit};

/// What an ended job still answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Over {
    job: JobId,
    key: Option<String>,
    same: Option<(String, RunId)>,
}

impl JudgeQueue {
    pub(super) fn remember(&mut self, submit: &Submit) {
        self.longest_stage = self.longest_stage.max(submit.stage_worst);
        if let Some(key) = &submit.key {
            self.keys.insert(key.clone(), submit.job);
        }
        self.same.entry(submit.same.clone()).or_default().insert(submit.run, submit.job);
    }

    /// The job no longer answers for that asking in its run; another that does meanwhile goes on.
    pub(super) fn forget_same(&mut self, same: &str, run: RunId, job: JobId) {
        if let Some(runs) = self.same.get_mut(same) {
            if runs.get(&run) == Some(&job) {
                runs.remove(&run);
            }
            if runs.is_empty() {
                self.same.remove(same);
            }
        }
    }

    pub(super) fn forget(&mut self, id: JobId, outcome: &JobOutcome) {
        let Some(job) = self.jobs.remove(&id) else { return };
        self.built.remove(&id);
        self.is_over(id, job.key, (job.same, job.run), outcome);
    }

    /// Keeps what an ended job answers for, and lets the oldest of it go.
    pub(super) fn is_over(
        &mut self,
        job: JobId,
        key: Option<String>,
        (same, run): (String, RunId),
        outcome: &JobOutcome,
    ) {
        let same = match outcome {
            // Without a verdict it may be submitted again (rule D5).
            JobOutcome::NoVerdict { .. } => {
                self.forget_same(&same, run, job);
                None
            }
            JobOutcome::Win { .. }
            | JobOutcome::NoGain { .. }
            | JobOutcome::Undecided
            | JobOutcome::ChangeFailed { .. } => Some((same, run)),
        };
        if key.is_none() && same.is_none() {
            return;
        }
        self.over.push_back(Over { job, key, same });
        while self.over.len() > limits::KEYS_REMEMBERED
            && let Some(Over { job, key, same }) = self.over.pop_front()
        {
            if let Some(key) = key {
                self.keys.remove(&key);
            }
            if let Some((same, run)) = same {
                self.forget_same(&same, run, job);
            }
        }
    }
}
