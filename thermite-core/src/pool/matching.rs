//! Who gets which device: the rules of each discipline, and the one matching pass (rules A2 to A4, A9, B2, B6, E1).

use std::collections::BTreeSet;

use crate::ids::{Arrival, LaneId, MemberId};
use crate::job::StageKind;
use crate::limits;
use crate::time::Moment;

use super::{Discipline, Grant, HeldFor, HoldId, Member, MemberState, Pool, PoolEffect, Waiter, Wants, WorkEntry};

impl Pool {
    /// Whether a stage must not run on this member: another judge's member in service can confirm it (rule B6), or
    /// infrastructure failed it here and there is one in service on which it did not.
    pub(super) fn avoids(&self, entry: &WorkEntry, on: MemberId) -> bool {
        self.avoids_of(&Avoided::of(entry), on)
    }

    /// The same, by what is known of the stage.
    pub(super) fn avoids_of(&self, avoided: &Avoided<'_>, on: MemberId) -> bool {
        let screened_on = |member| avoided.screened_on == Some(member);
        let mut others =
            self.judges_members().filter(|(other, member)| *other != on && member.in_service()).map(|other| other.0);
        if screened_on(on) {
            return others.next().is_some();
        }
        let failed_on = |member| avoided.failed_on.is_some_and(|failed_on| failed_on.contains(&member));
        failed_on(on) && others.any(|other| !failed_on(other) && !screened_on(other))
    }

    /// Whether this member is what a stage wants.
    fn serves(&self, entry: &WorkEntry, id: MemberId) -> bool {
        match entry.wants {
            // What the bench has built is of no use elsewhere: on a runner a job builds under its hold (rule B7).
            Wants::Device | Wants::Bench if id.is_runner() => entry.may_build && !self.avoids(entry, id),
            Wants::Device => id != MemberId::BENCH && !self.avoids(entry, id),
            Wants::Bench => id == MemberId::BENCH,
        }
    }

    /// The judge's members in its order of preference: its own, shared runners, the core's device.
    pub(super) fn judges_members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        [Discipline::JudgeOnly, Discipline::FirstCome, Discipline::JudgeFirst].into_iter().flat_map(move |wanted| {
            self.members.iter().filter(move |(_, member)| member.discipline == wanted).map(|(id, member)| (*id, member))
        })
    }

    /// Whether an entry's hold is over although the judge has not told so yet: it counts as startable anywhere.
    fn unsettled(&self, entry: &WorkEntry) -> bool {
        entry.running_on.is_some_and(|hold| {
            !self.members.get(&hold.member).is_some_and(|member| {
                matches!(&member.state, MemberState::Held { number, held_for: HeldFor::Judge { .. }, .. }
                    if *number == hold.number)
            })
        })
    }

    /// Whether known judge work keeps lanes from this judge-first device (rules A2, A3).
    pub(super) fn judge_work_keeps(&self, member: MemberId) -> bool {
        self.work.unlisted > 0
            || self.work.entries.iter().any(|entry| self.unsettled(entry) || !self.avoids(entry, member))
    }

    /// Whether a lane may have this member, were it free.
    pub(super) fn lane_may(&self, waiter: &Waiter, id: MemberId, member: &Member) -> bool {
        match member.discipline {
            Discipline::JudgeFirst => !self.judge_work_keeps(id),
            Discipline::FirstCome => !self
                .work
                .entries
                .iter()
                .any(|entry| entry.arrival < waiter.arrival && !entry.paused && self.unsettled(entry)),
            Discipline::LanesOnly => true,
            Discipline::OneLane(lane) => lane == waiter.lane,
            Discipline::JudgeOnly | Discipline::Idle | Discipline::Builds => false,
        }
    }

    fn lane_holds_any(&self, lane: LaneId) -> bool {
        self.members.values().any(|member| {
            matches!(&member.state, MemberState::Held { held_for: HeldFor::Lane { waiter, .. }, .. }
                if waiter.lane == lane)
        })
    }

    /// The earliest that can be served, and with which free member.
    fn next_match(&self) -> Option<Match> {
        let offered: Vec<Arrival> = self
            .members
            .values()
            .filter_map(|member| match &member.state {
                MemberState::Held {
                    grant: Grant::Offered { .. } | Grant::Voided,
                    held_for: HeldFor::Judge { arrival, .. },
                    ..
                } => Some(*arrival),
                _ => None,
            })
            .collect();
        let judge = self
            .work
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.startable && !entry.paused && !offered.contains(&entry.arrival))
            .map(|(at, entry)| (entry.arrival, Candidate::Judge { entry: at }));
        let lanes = self
            .waiters
            .iter()
            .enumerate()
            .filter(|(_, waiter)| !self.lane_holds_any(waiter.lane))
            .map(|(at, waiter)| (waiter.arrival, Candidate::Lane { waiter: at }));
        let mut candidates: Vec<(Arrival, Candidate)> = judge.chain(lanes).collect();
        candidates.sort_unstable();
        candidates.into_iter().find_map(|(arrival, candidate)| {
            let member =
                match candidate {
                    Candidate::Judge { entry } => {
                        let entry = &self.work.entries[entry];
                        let bench = self.members.get_key_value(&MemberId::BENCH).map(|(id, member)| (*id, member));
                        let all = self.judges_members().chain(bench);
                        all.filter(|(_, member)| member.is_free()).map(|free| free.0).find(|id| self.serves(entry, *id))
                    }
                    Candidate::Lane { waiter } => {
                        let waiter = &self.waiters[waiter];
                        waiter.acceptable.iter().copied().find(|id| {
                            self.members.get(id).is_some_and(|m| m.is_free() && self.lane_may(waiter, *id, m))
                        })
                    }
                }?;
            Some(Match { candidate, arrival, member })
        })
    }

    pub(super) fn match_all(&mut self, now: Moment, out: &mut Vec<PoolEffect>) {
        self.finish_split(out);
        while self.granting()
            && let Some(Match { candidate, arrival, member: id }) = self.next_match()
        {
            let (held_for, to) = match candidate {
                Candidate::Lane { waiter } => {
                    let waiter = self.waiters.remove(waiter);
                    let to = (waiter.lane, waiter.dev_run, self.limit_on(id, &waiter));
                    (HeldFor::Lane { waiter, left: false }, Some(to))
                }
                Candidate::Judge { .. } => {
                    let serves = self
                        .work
                        .entries
                        .iter()
                        .filter(|e| e.startable && !e.paused && self.serves(e, id) && e.arrival <= arrival)
                        .map(|entry| (entry.job, entry.stage))
                        .collect();
                    (HeldFor::Judge { serves, arrival }, None)
                }
            };
            let member = self.members.get_mut(&id).expect("a match names a member of the pool");
            let MemberState::Free { last } = member.state else {
                unreachable!("a match names a free member");
            };
            // INVARIANT: a number is used once; the next grant of this member has a higher one (rule A1).
            let number = last + 1;
            let hold = HoldId { member: id, number };
            out.push(match (&held_for, to) {
                (_, Some((lane, dev_run, limit))) => PoolEffect::GrantLane { lane, dev_run, hold, limit },
                (HeldFor::Judge { serves, .. }, None) => PoolEffect::GrantJudge { hold, serves: serves.clone() },
                (HeldFor::Lane { .. }, None) => unreachable!("a lane's grant names the lane"),
            });
            let grant = Grant::Offered { claim_by: now + limits::CLAIM_MAX };
            member.state = MemberState::Held { number, grant, held_for };
        }
    }
}

/// Where a stage is not to run while there is another member in service for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Avoided<'a> {
    /// Where its screening was won, for a confirmation.
    pub(super) screened_on: Option<MemberId>,
    /// Where infrastructure failed it.
    pub(super) failed_on: Option<&'a BTreeSet<MemberId>>,
}

impl Avoided<'_> {
    pub(super) fn of(entry: &WorkEntry) -> Avoided<'_> {
        let screened_on = entry.screened_on.filter(|_| entry.stage == StageKind::Confirmation);
        Avoided { screened_on, failed_on: Some(&entry.failed_on) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    Judge { entry: usize },
    Lane { waiter: usize },
}

#[derive(Clone, Copy, Debug)]
struct Match {
    candidate: Candidate,
    arrival: Arrival,
    member: MemberId,
}
