//! The watchdog's rule: nobody who may have a free ready device waits beside it (rule A9).
//!
//! It is said a second time, plainly and apart from the matching, so that a fault there is found here. Whoever is found
//! is reported; nothing is granted for it, since what granted wrongly once is not to be trusted with a second try.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DevRunId, Holder, JobId, LaneId, MemberId};
use crate::job::StageKind;

use super::{Discipline, Grant, HeldFor, MemberState, Pool, Wants, WorkEntry};

/// Someone who waits beside a free ready device that would serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "who")]
pub enum Overlooked {
    /// A job.
    Job {
        /// Which.
        job: JobId,
        /// The device.
        member: MemberId,
    },
    /// A development run.
    DevRun {
        /// Its lane.
        lane: LaneId,
        /// Which.
        dev_run: DevRunId,
        /// The device.
        member: MemberId,
    },
}

impl fmt::Display for Overlooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overlooked::Job { job, member } => write!(f, "job {job} waits although {member} is free and may serve it"),
            Overlooked::DevRun { lane, dev_run, member } => {
                write!(f, "development run {dev_run} of {lane} waits although {member} is free and may serve it")
            }
        }
    }
}

impl Pool {
    /// The first who waits beside a free ready device that would serve it; none where all is as it should be.
    pub fn overlooked(&self) -> Option<Overlooked> {
        if !self.work_known || !self.recording || !self.room || self.closed || self.change.is_some() {
            return None;
        }
        let is_free = |state: &MemberState| matches!(state, MemberState::Free { .. });
        let serves = |member: &super::Member| !member.drained && member.unfit.is_none() && member.next.is_none();
        let free = self.members.iter().filter(|(_, member)| is_free(&member.state) && serves(member));
        free.into_iter().find_map(|(member, known)| {
            let (member, discipline) = (*member, known.discipline);
            let job = self.work.entries.iter().find(|entry| self.serves_stage(entry, member, discipline));
            let waiter = self.waiters.iter().find(|waiter| {
                waiter.acceptable.contains(&member) && self.serves_lane(waiter.lane, waiter.arrival, member, discipline)
            });
            job.map(|entry| Overlooked::Job { job: entry.job, member }).or_else(|| {
                waiter.map(|waiter| Overlooked::DevRun { lane: waiter.lane, dev_run: waiter.dev_run, member })
            })
        })
    }

    /// Rules A2, A3, B6, E1: a stage that may start is served by any judge's device but the one it is to avoid.
    fn serves_stage(&self, entry: &WorkEntry, member: MemberId, discipline: Discipline) -> bool {
        let is_wanted = match discipline {
            // A runner builds for itself what it measures, one at a time in the whole rig (rule B7).
            Discipline::JudgeFirst | Discipline::JudgeOnly | Discipline::FirstCome if member.is_runner() => {
                entry.may_build && !self.must_avoid(entry, member)
            }
            Discipline::JudgeFirst | Discipline::JudgeOnly | Discipline::FirstCome => {
                entry.wants == Wants::Device && !self.must_avoid(entry, member)
            }
            Discipline::Builds => entry.wants == Wants::Bench,
            Discipline::LanesOnly | Discipline::OneLane(_) | Discipline::Idle => false,
        };
        is_wanted && entry.startable && !entry.paused && !self.offered_for(entry)
    }

    /// Rules A2, E1, E2: a lane is served while nothing of the judge's goes before it there, and one hold at a time.
    fn serves_lane(
        &self,
        lane: LaneId,
        arrival: crate::ids::Arrival,
        member: MemberId,
        discipline: Discipline,
    ) -> bool {
        let holds = self.members.values().any(|other| match &other.state {
            MemberState::Held { held_for, .. } => super::holder_of(held_for) == Holder::Lane(lane),
            MemberState::Unknown | MemberState::Free { .. } | MemberState::Out { .. } => false,
        });
        if holds {
            return false;
        }
        match discipline {
            Discipline::LanesOnly => true,
            Discipline::OneLane(own) => own == lane,
            Discipline::JudgeOnly | Discipline::Idle | Discipline::Builds => false,
            Discipline::JudgeFirst => {
                let keeps = |entry: &WorkEntry| self.hold_is_over(entry) || !self.must_avoid(entry, member);
                self.work.unlisted == 0 && !self.work.entries.iter().any(keeps)
            }
            Discipline::FirstCome => {
                let passed = |entry: &WorkEntry| self.hold_is_over(entry) && !entry.paused && entry.arrival < arrival;
                !self.work.entries.iter().any(passed)
            }
        }
    }

    fn offered_for(&self, entry: &WorkEntry) -> bool {
        self.members.values().any(|member| {
            matches!(&member.state, MemberState::Held {
                grant: Grant::Offered { .. } | Grant::Voided,
                held_for: HeldFor::Judge { arrival, .. },
                ..
            } if *arrival == entry.arrival)
        })
    }

    /// Whether it ran under a hold that is over, and what follows has not been told.
    fn hold_is_over(&self, entry: &WorkEntry) -> bool {
        entry.running_on.is_some_and(|hold| {
            self.members.get(&hold.member).is_none_or(|member| match &member.state {
                MemberState::Held { number, held_for: HeldFor::Judge { .. }, .. } => *number != hold.number,
                MemberState::Held { .. }
                | MemberState::Unknown
                | MemberState::Free { .. }
                | MemberState::Out { .. } => true,
            })
        })
    }

    fn must_avoid(&self, entry: &WorkEntry, member: MemberId) -> bool {
        let elsewhere = |suits: &dyn Fn(&MemberId) -> bool| {
            self.members.iter().any(|(id, other)| {
                let serves =
                    matches!(other.discipline, Discipline::JudgeFirst | Discipline::JudgeOnly | Discipline::FirstCome);
                let in_service = matches!(other.state, MemberState::Free { .. } | MemberState::Held { .. });
                let takes_work = !other.drained && other.unfit.is_none() && other.next.is_none();
                *id != member && serves && in_service && other.gone.is_none() && takes_work && suits(id)
            })
        };
        let screened = if entry.stage == StageKind::Confirmation { entry.screened_on } else { None };
        if screened == Some(member) {
            return elsewhere(&|_| true);
        }
        let is_better = |id: &MemberId| screened != Some(*id) && !entry.failed_on.contains(id);
        entry.failed_on.contains(&member) && elsewhere(&is_better)
    }
}
