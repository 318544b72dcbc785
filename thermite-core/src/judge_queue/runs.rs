//! The runs that jobs belong to: running, paused, ended, and what each does to the jobs that wait (rule A3).

use std::collections::VecDeque;

use crate::ids::{JobId, RunId};
use crate::refusal::{GaveUp, Refusal};
use crate::run::RunState;

use super::{JobState, JudgeEffect, JudgeFact, JudgeQueue, RUN_ENDED, Run, Then, Ticket, no_verdict};

impl JudgeQueue {
    /// Starts a run; the answer follows once it is durable.
    ///
    /// # Errors
    /// Refused while another is being worked on.
    pub fn start_run(&mut self, run: RunId, champion: String) -> Result<Vec<JudgeEffect>, Refusal> {
        if let Some(under_way) = self.running_run() {
            return Err(Refusal::AnotherRun { under_way });
        }
        let state = RunState::Running;
        let pending = VecDeque::from([state]);
        self.runs.insert(run, Run { state: None, champion, next_champion: None, pending });
        Ok(vec![JudgeEffect::RecordRun { run, state }])
    }

    /// Pauses, resumes or ends a run; the answer follows once it is durable and the pool knows.
    ///
    /// # Errors
    /// Refused for an unknown or ended run, and where resuming it would make two that run.
    pub fn change_run(&mut self, run: RunId, state: RunState) -> Result<Vec<JudgeEffect>, Refusal> {
        let running = self.running_run();
        let entry = self.runs.get_mut(&run).ok_or(Refusal::UnknownRun { run })?;
        if entry.ends() {
            return Err(Refusal::RunEnded { run });
        }
        if let (RunState::Running, Some(under_way)) = (state, running)
            && under_way != run
        {
            return Err(Refusal::AnotherRun { under_way });
        }
        entry.pending.push_back(state);
        Ok(vec![JudgeEffect::RecordRun { run, state }])
    }

    /// A run's state; none before its start is durable.
    pub fn run_state(&self, run: RunId) -> Option<RunState> {
        self.runs.get(&run).and_then(|entry| entry.state)
    }

    /// A run's champion.
    pub fn champion(&self, run: RunId) -> Option<&str> {
        self.runs.get(&run).map(|entry| entry.champion.as_str())
    }

    /// Whether a run takes new work.
    ///
    /// # Errors
    /// Refused for an unknown, paused or ended run (rule A3).
    pub fn takes_work(&self, run: RunId) -> Result<(), Refusal> {
        match self.runs.get(&run) {
            None | Some(Run { state: None, .. }) => Err(Refusal::UnknownRun { run }),
            Some(entry) if entry.ends() => Err(Refusal::RunEnded { run }),
            Some(entry) if entry.states().all(|state| state == RunState::Running) => Ok(()),
            Some(_) => Err(Refusal::RunPaused { run }),
        }
    }

    pub(super) fn running_run(&self) -> Option<RunId> {
        self.runs.iter().find(|(_, run)| run.states().any(|state| state == RunState::Running)).map(|(id, _)| *id)
    }

    pub(super) fn run_recorded(&mut self, run: RunId, out: &mut Vec<JudgeEffect>) {
        let Some(entry) = self.runs.get_mut(&run) else { return };
        let Some(state) = entry.pending.pop_front() else { return };
        entry.state = Some(state);
        let why = match state {
            RunState::Running => None,
            RunState::Paused => Some(GaveUp::RunPaused),
            RunState::Ended => Some(GaveUp::RunEnded),
        };
        match why {
            None => {
                self.stopped.remove(&run);
            }
            Some(why) => {
                self.stopped.insert(run, why);
                out.push(JudgeEffect::StopWaiters { run, why });
            }
        }
        if state == RunState::Ended {
            self.end_waiting(run, out);
        }
        self.tell(out);
        self.run_answers.push((run, state, self.version));
    }

    /// Ends the waiting jobs of a run that is over.
    pub(super) fn end_waiting(&mut self, run: RunId, out: &mut Vec<JudgeEffect>) {
        let waiting: Vec<JobId> = self.queued.get(&run).into_iter().flat_map(|jobs| jobs.values().copied()).collect();
        for id in waiting {
            self.dequeue(id);
            let outcome = no_verdict(RUN_ENDED);
            let facts = vec![JudgeFact::Ended { outcome: outcome.clone(), hold: None }];
            if let Some(job) = self.jobs.get_mut(&id) {
                job.state = JobState::Concluding { hold: None, then: Then::End { outcome } };
            }
            self.ending.insert(id);
            out.push(JudgeEffect::Record { ticket: Ticket::Conclude(id), job: id, facts });
        }
    }

    pub(super) fn paused(&self, run: RunId) -> bool {
        self.runs.get(&run).is_none_or(|entry| entry.state != Some(RunState::Running))
    }
}

impl Run {
    /// What it is and what it is about to be, in order.
    pub(super) fn states(&self) -> impl Iterator<Item = RunState> {
        self.state.iter().chain(&self.pending).copied()
    }

    pub(super) fn ends(&self) -> bool {
        self.states().any(|state| state == RunState::Ended)
    }
}
