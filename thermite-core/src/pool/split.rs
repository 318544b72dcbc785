//! A new split under way: grants freeze, what has a hold lets go, then the members move (rule B9).
//!
//! Whoever waits keeps its place and its latest moment. A hold that has not started is burnt, and its holder waits
//! again; one that has started is stopped, since the cards it counts on are no longer its own.

use std::collections::BTreeMap;

use crate::hold::StopCause;
use crate::ids::{HoldId, MemberId};
use crate::limits;
use crate::time::{Moment, Span};

use super::{Change, Discipline, Grant, HeldFor, MemberState, Pool, PoolEffect, Waiter};

impl Pool {
    /// Takes a new split; a later one takes the place of one that is still on its way.
    pub(super) fn set_split(
        &mut self,
        now: Moment,
        version: u64,
        disciplines: BTreeMap<MemberId, Discipline>,
        out: &mut Vec<PoolEffect>,
    ) {
        let until = now + limits::NEW_SPLIT_MAX;
        if let Some(change) = &mut self.change {
            if version > change.version {
                *change = Change { version, disciplines, until: change.until };
            }
            return;
        }
        let stays = |(id, discipline): (&MemberId, &Discipline)| {
            self.members.get(id).is_none_or(|member| member.discipline == *discipline)
        };
        if disciplines.iter().all(stays) {
            out.push(PoolEffect::SplitSet { version });
            return;
        }
        self.change = Some(Change { version, disciplines, until });
        // What runners hold is their machines' matter and goes on.
        for (id, member) in self.members.iter_mut().filter(|(id, _)| !id.is_runner()) {
            let MemberState::Held { number, grant, .. } = &mut member.state else { continue };
            let hold = HoldId { member: *id, number: *number };
            match grant {
                Grant::Offered { .. } => {
                    *grant = Grant::Voided;
                    out.push(PoolEffect::Void { hold });
                }
                // Whether its start is on its way is the member's to say: it burns the number or says that it started.
                Grant::Claimed => out.push(PoolEffect::Void { hold }),
                Grant::Voided => {}
                Grant::Started { .. } => out.push(PoolEffect::Stop { hold, cause: StopCause::NewSplit }),
            }
        }
    }

    /// Moves the members once no hold is left; a card whose stop is not proved is out of service by then.
    pub(super) fn finish_split(&mut self, out: &mut Vec<PoolEffect>) {
        let is_held = |(id, member): (&MemberId, &super::Member)| {
            !id.is_runner() && matches!(member.state, MemberState::Held { .. })
        };
        if self.members.iter().any(is_held) {
            return;
        }
        let Some(Change { version, disciplines, .. }) = self.change.take() else { return };
        for (id, discipline) in disciplines {
            if let Some(member) = self.members.get_mut(&id) {
                member.discipline = discipline;
            }
        }
        for at in 0..self.waiters.len() {
            self.waiters[at].acceptable = self.acceptable(self.waiters[at].lane);
        }
        out.push(PoolEffect::SplitSet { version });
    }

    /// How long a waiter may hold this member: on a shared one no longer than the rule says, on one that is the lanes'
    /// own for as long as its contract allows (rules A5, B2).
    pub(super) fn limit_on(&self, member: MemberId, waiter: &Waiter) -> Option<Span> {
        match self.members.get(&member).map(|member| member.discipline) {
            Some(Discipline::LanesOnly | Discipline::OneLane(_)) => waiter.limit,
            Some(
                Discipline::JudgeFirst
                | Discipline::FirstCome
                | Discipline::JudgeOnly
                | Discipline::Idle
                | Discipline::Builds,
            )
            | None => Some(waiter.limit.unwrap_or(limits::SHARED_DEV_RUN_MAX)),
        }
    }

    /// Whether every hold of a lane is over: for whoever changes what lanes count on.
    pub fn lanes_hold_nothing(&self) -> bool {
        !self
            .members
            .values()
            .any(|member| matches!(&member.state, MemberState::Held { held_for: HeldFor::Lane { .. }, .. }))
    }
}
