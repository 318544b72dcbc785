//! What the split means for the queue: how many cards judge, where a job builds, and whose a failure is (rules B4 to B7,
//! D5).

use std::collections::BTreeSet;

use crate::ids::{HoldId, JobId, MemberId};
use crate::limits;
use crate::pool::Wants;
use crate::refusal::InfrastructureFailure;

use super::{Builds, Job, JobState, JudgeEffect, JudgeQueue};

impl JudgeQueue {
    /// The cards are given out anew. What has a device is stopped by the pool and starts over; what the bench has built
    /// stays built where jobs go on building there.
    pub(super) fn new_split(&mut self, judging: usize, builds: Builds, out: &mut Vec<JudgeEffect>) {
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
        self.tell(out);
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
                Wants::Bench => self.turn.is_none() && self.built_waiting() < self.built_most(),
            }
    }

    /// How many built jobs may wait for a card: what is laid out takes room, and each may pass an earlier job that builds.
    pub(super) fn built_most(&self) -> usize {
        2 * self.devices.max(1)
    }

    fn built_waiting(&self) -> usize {
        let waits = |id: &&JobId| {
            self.jobs.get(id).is_some_and(|job| matches!(job.state, JobState::Queued { .. }) && !self.paused(job.run))
        };
        self.built.iter().filter(waits).count()
    }

    /// The bench has built both sides: the job asks for a card, and the next may build (rule B7).
    pub(super) fn built(&mut self, id: JobId, hold: HoldId, out: &mut Vec<JudgeEffect>) {
        self.built.insert(id);
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
        card: MemberId,
        id: JobId,
        why: &InfrastructureFailure,
        out: &mut Vec<JudgeEffect>,
    ) {
        if self.devices < 2 || !may_be_the_cards(why) {
            return;
        }
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
