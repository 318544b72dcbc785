//! What the split means for the queue: how many cards judge, where a job builds, and whose a failure is (rules B4 to B7,
//! D5).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{HoldId, JobId, MemberId};
use crate::job::StageKind;
use crate::limits;
use crate::pool::Wants;
use crate::refusal::InfrastructureFailure;

use super::{Builds, Job, JobState, JudgeEffect, JudgeQueue, OtherModel, Then};

impl JudgeQueue {
    /// The cards are given out anew. What has a device is stopped by the pool and starts over; what the bench has built
    /// stays built where jobs go on building there.
    pub(super) fn new_split(
        &mut self,
        judging: usize,
        builds: Builds,
        other_model: Option<OtherModel>,
        out: &mut Vec<JudgeEffect>,
    ) {
        self.devices = judging;
        if builds != self.builds {
            self.builds = builds;
            let busy = &self.busy;
            self.built.retain(|id| busy.contains(id));
        }
        self.failing.clear();
        // What failed on the cards that judged says nothing of those that judge now (rules B9, D5).
        for job in self.jobs.values_mut() {
            job.failed_on.clear();
            job.noisy_on.clear();
        }
        self.other_cards = other_model.as_ref().map(|other| other.cards.clone());
        if let Some(OtherModel { same, .. }) = other_model {
            self.other_model(same, out);
        }
        self.tell(out);
    }

    /// The judge's cards are of another model: each job is asked for on that one from here on. What was built for the
    /// other one is built anew, and a job that has a verdict there is given it.
    pub(super) fn other_model(&mut self, same: BTreeMap<JobId, String>, out: &mut Vec<JudgeEffect>) {
        self.built.clear();
        for (id, same) in same {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            match &job.state {
                JobState::Recording | JobState::Queued { .. } => {}
                JobState::Held { .. }
                | JobState::Concluding { then: Then::Confirm { .. } | Then::Retry { .. }, .. } => {
                    job.measured_as.get_or_insert_with(|| job.same.clone());
                }
                // Its end is about what was measured.
                JobState::Concluding { then: Then::End { .. }, .. } => continue,
            }
            self.rename(id, same);
            if let Some(Job { state: JobState::Queued { .. }, .. }) = self.jobs.get(&id) {
                self.screen_again(id);
                if self.given_to(id).is_some() {
                    self.give(id, out);
                }
            }
        }
    }

    /// The job answers for other askings than it did (rule D5).
    pub(super) fn rename(&mut self, id: JobId, same: String) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let run = job.run;
        let before = std::mem::replace(&mut job.same, same.clone());
        self.forget_same(&before, run, id);
        self.same.entry(same).or_default().insert(run, id);
    }

    /// A job whose screening was won on another model is screened again on the one that judges; it goes on where that was
    /// this one. Its place stays, and nothing is counted against it (rules B5, B9).
    pub(super) fn screen_again(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let counts = job.screened_on.is_some() && job.screened_as.as_ref().is_none_or(|screened| *screened == job.same);
        let stage = if counts { StageKind::Confirmation } else { StageKind::Screening };
        if job.stage == stage {
            return;
        }
        job.stage = stage;
        job.attempt = 0; // Attempts are counted for each stage.
        job.failed_on.clear();
        job.noisy_on.clear();
        self.built.remove(&id);
    }

    /// Whether a grant of this member is one of the split there is, as far as it matters: another model's is not.
    pub(super) fn judges(&self, member: MemberId) -> bool {
        member == MemberId::BENCH || self.other_cards.as_ref().is_none_or(|cards| cards.contains(&member))
    }

    /// What a job asks the pool for.
    pub(super) fn wants(&self, id: JobId) -> Wants {
        match self.builds {
            Builds::OnBench if !self.built.contains(&id) => Wants::Bench,
            Builds::OnBench | Builds::UnderHold => Wants::Device,
        }
    }

    /// Whether this member is what a job asks for.
    pub(super) fn wanted(&self, id: JobId, member: MemberId) -> bool {
        if member.is_runner() {
            return self.may_build();
        }
        match self.wants(id) {
            Wants::Bench => member == MemberId::BENCH,
            Wants::Device => member != MemberId::BENCH,
        }
    }

    pub(super) fn startable(&self, id: JobId, job: &Job) -> bool {
        let waits = matches!(job.state, JobState::Queued { rests_until: None }) && !self.paused(job.run);
        waits
            && match self.wants(id) {
                Wants::Device => self.turn.is_none() || self.built.contains(&id),
                Wants::Bench => self.turn.is_none() && self.barred(id).is_none(),
            }
    }

    /// How many built jobs may wait for a card: what is laid out takes room, and each may pass an earlier job that builds.
    pub(super) fn built_most(&self) -> usize {
        2 * self.devices.max(1)
    }

    /// How many built jobs wait for a card, where so many do that this one may not build before one of them has one.
    pub(super) fn barred(&self, id: JobId) -> Option<u32> {
        if self.wants(id) == Wants::Device {
            return None;
        }
        let waiting = self.built_waiting();
        (waiting >= self.built_most()).then(|| u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    fn built_waiting(&self) -> usize {
        let waits = |id: &&JobId| {
            self.jobs.get(id).is_some_and(|job| matches!(job.state, JobState::Queued { .. }) && !self.paused(job.run))
        };
        self.built.iter().filter(waits).count()
    }

    /// The bench has built both sides: the job asks for a card, and the next may build (rule B7).
    pub(super) fn built(&mut self, id: JobId, hold: HoldId, out: &mut Vec<JudgeEffect>) {
        // What was built for another model is built anew.
        if self.jobs.get(&id).is_some_and(|job| job.measured_as.is_none()) {
            self.built.insert(id);
        }
        self.busy.remove(&id);
        if self.turn == Some(id) {
            self.turn = None;
        }
        self.enqueue(id, None, out);
        self.tell(out);
        self.releases.push((hold, self.version));
    }

    /// Counts a failure on a card. Different jobs that fail there in a row say that the fault is the card's.
    pub(super) fn failed_on(
        &mut self,
        hold: HoldId,
        id: JobId,
        why: &InfrastructureFailure,
        out: &mut Vec<JudgeEffect>,
    ) {
        if !self.cards || !may_be_the_cards(why) {
            return;
        }
        out.push(JudgeEffect::CardDoubted { hold });
        let card = hold.member;
        let failing = self.failing.entry(card).or_default();
        failing.insert(id);
        if failing.len() >= limits::CARD_FAULT_JOBS {
            let jobs = failing.len();
            self.failing.remove(&card);
            let why = format!("{jobs} different jobs failed on it one after another, the last one so: {why}");
            out.push(JudgeEffect::CardFault { member: card, why });
        }
    }
}

/// Whether a failure can come from the card it happened on.
fn may_be_the_cards(why: &InfrastructureFailure) -> bool {
    match why {
        InfrastructureFailure::StayedBusy { .. }
        | InfrastructureFailure::TooManyThrown { .. }
        | InfrastructureFailure::TooNoisy { .. }
        | InfrastructureFailure::Step { .. }
        | InfrastructureFailure::OutOfService { .. } => true,
        InfrastructureFailure::ThrowsSteered { .. }
        | InfrastructureFailure::ChangeKilled { .. }
        | InfrastructureFailure::Champion { .. }
        | InfrastructureFailure::Records { .. }
        | InfrastructureFailure::DiskFull { .. }
        | InfrastructureFailure::RigEnding => false,
    }
}

/// The cause of a job's last failure; where it failed on different cards, that it is the job's own (rule D5).
pub(super) fn failed_everywhere(why: &InfrastructureFailure, on: &BTreeSet<MemberId>) -> String {
    if on.len() < 2 {
        return why.to_string();
    }
    let cards: Vec<String> = on.iter().map(MemberId::to_string).collect();
    format!("{why}; it failed on {} alike, so the fault is the job's and not a card's", cards.join(" and "))
}
