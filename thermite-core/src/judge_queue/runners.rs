//! What runners mean for the queue: how many members judge, and that a job which goes to another machine builds there
//! (rules B7, E3).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, MemberId};

use super::{JudgeEffect, JudgeQueue};

impl JudgeQueue {
    /// Other runners judge from here on. What runs goes on; of those that are gone nothing is held against anybody.
    pub(super) fn new_judges(
        &mut self,
        judging: BTreeSet<MemberId>,
        gone: &BTreeSet<MemberId>,
        cards: bool,
        same: Option<BTreeMap<JobId, String>>,
        out: &mut Vec<JudgeEffect>,
    ) {
        self.devices = judging.len();
        self.cards = cards;
        self.failing.retain(|member, _| !gone.contains(member));
        for job in self.jobs.values_mut() {
            job.failed_on.retain(|member| !gone.contains(member));
            job.noisy_on.retain(|member| !gone.contains(member));
        }
        if self.other_cards.is_some() || same.is_some() {
            self.other_cards = Some(judging);
        }
        if let Some(same) = same {
            self.other_model(same, out);
        }
        self.tell(out);
    }

    /// Whether a job may build under its own hold: nobody else builds (rule B7).
    pub(super) fn may_build(&self) -> bool {
        self.turn.is_none()
    }
}
