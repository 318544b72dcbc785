//! Runners that come, go and change pools while the rig runs (rules E1, E2, E8, E10).
//!
//! A new list touches the runners it changes and nobody else: what one of them holds is stopped, what the others hold
//! goes on. Whoever waits keeps its place and its latest moment, over the members that serve it from then on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hold::{RunnerLoss, StopCause};
use crate::ids::{HoldId, LaneId, MemberId};
use crate::limits;
use crate::texts;
use crate::time::{Moment, Span};

use super::{Discipline, Grant, Member, MemberState, Pool, PoolEffect};

/// What becomes of a runner once what it holds is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Next {
    /// It leaves the pool.
    Leave,
    /// It serves others.
    Serve(Discipline),
}

impl Next {
    fn cause(self) -> StopCause {
        let how = match self {
            Next::Leave => RunnerLoss::TakenAway,
            Next::Serve(_) => RunnerLoss::NewPool,
        };
        StopCause::RunnerLost { how }
    }
}

impl Pool {
    /// A runner comes to life. It is granted nothing before it has answered.
    pub(super) fn add_runner(&mut self, id: MemberId, discipline: Discipline, drained: bool) {
        // INVARIANT: a number is used once, also by a runner that was gone in between (rule A1).
        let last = self.left.remove(&id).unwrap_or(0);
        let member = Member {
            state: MemberState::Out { last },
            gone: Some(texts::RUNNER_NOT_MET.to_owned()),
            drained,
            ..Member::new(discipline)
        };
        self.members.entry(id).or_insert(member);
        self.serve_anew();
    }

    /// Takes a new list: a runner that is not on it leaves, one that is given another pool moves, the others go on.
    pub(super) fn set_runners(&mut self, pools: &BTreeMap<MemberId, Discipline>, out: &mut Vec<PoolEffect>) {
        for (id, member) in self.members.iter_mut().filter(|(id, _)| id.is_runner()) {
            let next = match pools.get(id) {
                None => Next::Leave,
                // A stop that is on its way is not called back.
                Some(pool) if *pool == member.discipline && member.next.is_none() => continue,
                Some(pool) => Next::Serve(*pool),
            };
            let first = member.next.replace(next).is_none();
            if first {
                stop_for_move(*id, member, next.cause(), out);
            }
        }
        self.serve_anew();
    }

    /// Lets the runners leave or move whose hold is over.
    pub(super) fn finish_moves(&mut self, out: &mut Vec<PoolEffect>) {
        let ready = |member: &Member| member.next.is_some() && !matches!(member.state, MemberState::Held { .. });
        let due: Vec<MemberId> = self.members.iter().filter(|(_, known)| ready(known)).map(|(id, _)| *id).collect();
        for id in due {
            match self.members.get_mut(&id).and_then(|member| member.next.take()) {
                Some(Next::Serve(discipline)) => {
                    if let Some(member) = self.members.get_mut(&id) {
                        member.discipline = discipline;
                    }
                }
                Some(Next::Leave) => {
                    if let Some(member) = self.members.remove(&id) {
                        self.left.insert(id, member.last());
                    }
                    out.push(PoolEffect::RunnerLeft { member: id });
                }
                None => {}
            }
        }
    }

    /// What a runner that began under a new list is stopped with: it was asked to burn its number, and had begun.
    pub(super) fn stop_of_moving(member: &Member) -> Option<StopCause> {
        member.next.map(Next::cause)
    }

    /// Says which runners take no runs although they answer, and why: whole, each time (rule E9).
    pub(super) fn set_unfit(&mut self, unfit: &BTreeMap<MemberId, String>) {
        for (id, member) in self.members.iter_mut().filter(|(id, _)| id.is_runner()) {
            member.unfit = unfit.get(id).cloned();
        }
    }

    /// Gives every waiter the members that serve its lane from here on (rule E2).
    fn serve_anew(&mut self) {
        for at in 0..self.waiters.len() {
            self.waiters[at].acceptable = self.acceptable(self.waiters[at].lane);
        }
    }

    /// Whom a member serves, or will once what it holds is over; nobody where it leaves.
    pub(super) fn assigned(member: &Member) -> Option<Discipline> {
        match member.next {
            None => Some(member.discipline),
            Some(Next::Serve(discipline)) => Some(discipline),
            Some(Next::Leave) => None,
        }
    }

    /// Whether runners serve that lane: assigned, whether they answer or not (rule E2).
    pub fn runners_serve(&self, lane: LaneId) -> bool {
        self.acceptable(lane).iter().any(|member| member.is_runner())
    }

    /// For how long lanes may go before the judge on shared runners at most: those that wait, each once (rule E1). Who
    /// asks later comes after a job that is there.
    pub fn lanes_first(&self) -> Span {
        let shared = |id: &&MemberId| {
            self.members.get(id).is_some_and(|member| Pool::assigned(member) == Some(Discipline::FirstCome))
        };
        let turns = self.waiters.iter().filter_map(|waiter| {
            let on = waiter.acceptable.iter().find(shared)?;
            Some(self.limit_on(*on, waiter).unwrap_or(limits::SHARED_DEV_RUN_MAX) + limits::PROOF_MAX)
        });
        turns.fold(Span::ZERO, |sum, turn| sum + turn + limits::STAGE_TURN_MAX)
    }

    /// When a runner that leaves or moves does so at the latest, as long as its stop can be proved.
    pub fn moves_by(&self, now: Moment) -> Option<Moment> {
        self.members.values().any(|member| member.next.is_some()).then(|| now + limits::PROOF_MAX)
    }
}

/// Ends what a runner holds: what has not begun is burnt, and its holder waits again.
fn stop_for_move(id: MemberId, member: &mut Member, cause: StopCause, out: &mut Vec<PoolEffect>) {
    let MemberState::Held { number, grant, .. } = &mut member.state else { return };
    let hold = HoldId { member: id, number: *number };
    match grant {
        Grant::Offered { .. } => {
            *grant = Grant::Voided;
            out.push(PoolEffect::Void { hold });
        }
        // Whether its start is on its way is the member's to say: it burns the number or says that it started.
        Grant::Claimed => out.push(PoolEffect::Void { hold }),
        Grant::Voided => {}
        Grant::Started { .. } => out.push(PoolEffect::Stop { hold, cause }),
    }
}

impl Member {
    /// The last number that it was held under.
    fn last(&self) -> u64 {
        match self.state {
            MemberState::Unknown => 0,
            MemberState::Free { last } | MemberState::Out { last } => last,
            MemberState::Held { number, .. } => number,
        }
    }
}
