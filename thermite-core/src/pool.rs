//! The pool: every member, every waiter, and who gets which device (rules A1 to A6, A9; E1 for shared runners).
//!
//! Every input ends in one matching pass, so that an eligible waiter never stays beside a free ready device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::MemberEvent;
use crate::hold::{HoldEnd, StopCause};
use crate::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use crate::job::StageKind;
use crate::time::{Moment, Span};

mod matching;
mod runners;
mod split;
mod view;
mod watchdog;
mod words;

use runners::Next;
pub use view::{HolderView, JudgesDevice, MemberView};
pub use watchdog::Overlooked;
pub use words::{JudgeWork, PoolEffect, PoolInput, Wants, WorkEntry};

/// Whom a member serves, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Discipline {
    /// The core's shared device: lanes only while the judge has no work that may use it (rule A2).
    JudgeFirst,
    /// The judge's own.
    JudgeOnly,
    /// The lanes' own.
    LanesOnly,
    /// A shared runner: in order of arrival (rule E1).
    FirstCome,
    /// One lane's own runner.
    OneLane(LaneId),
    /// Nobody: the split leaves it out (rules B1, B8).
    Idle,
    /// The judge's builds alone, which take no card (rule B7).
    Builds,
}

/// A development run in the line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiter {
    /// Its lane.
    pub lane: LaneId,
    /// The development run.
    pub dev_run: DevRunId,
    /// Its run.
    pub run: RunId,
    /// Its place in the order of all askings.
    pub arrival: Arrival,
    /// Members it may use, in order of preference.
    pub acceptable: Vec<MemberId>,
    /// How long it may hold a device by its contract, where that says.
    pub limit: Option<Span>,
    /// Since when it waits.
    pub since: Moment,
    /// The moment no wait of it passes (rules A6, A9).
    pub latest: Moment,
}

/// How far a granted hold is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Grant {
    /// Nobody has claimed it yet.
    Offered { claim_by: Moment },
    /// The backstop asked the member to burn it; its answer decides.
    Voided,
    /// The holder has it; the work has not started.
    Claimed,
    /// The member said that the work has started.
    Started { at: Moment },
}

/// For whom a hold is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum HeldFor {
    /// The judge; the stages the grant serves (arrival at most the winner's).
    Judge { serves: Vec<(JobId, StageKind)>, arrival: Arrival },
    /// A lane, with its place in the line, kept for the case that the hold never starts.
    Lane {
        waiter: Waiter,
        /// Whether the lane has left its place, by its own wish or told that it gave up: a burnt number does not
        /// bring it back.
        left: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum MemberState {
    /// Nothing is known of it since the start of the rig.
    Unknown,
    /// It can be granted; the last number used.
    Free { last: u64 },
    /// It is held.
    Held { number: u64, grant: Grant, held_for: HeldFor },
    /// It is out of service; the last number used.
    Out { last: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Member {
    discipline: Discipline,
    state: MemberState,
    /// Why it cannot take work, told while it was held or free; only `Ready` takes this back.
    gone: Option<String>,
    /// Whether it takes nothing more, by somebody's wish (rule B10).
    drained: bool,
    /// Why it takes no runs although it answers (rule E9); runners alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unfit: Option<String>,
    /// What becomes of it once what it holds is over; runners alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Next>,
}

/// A new split on its way: nothing is granted until every hold is over (rule B9).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Change {
    version: u64,
    disciplines: BTreeMap<MemberId, Discipline>,
    /// When it is in force at the latest.
    until: Moment,
}

/// All members and waiters of a rig.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    members: BTreeMap<MemberId, Member>,
    /// In order of arrival.
    waiters: Vec<Waiter>,
    work: JudgeWork,
    /// Whether the judge has told its work since the start: before, nothing is granted.
    work_known: bool,
    recording: bool,
    room: bool,
    closed: bool,
    change: Option<Change>,
    /// The last numbers of runners that have left: a number is used once, also where one comes back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    left: BTreeMap<MemberId, u64>,
}

impl Pool {
    /// A pool of these members, all unknown.
    pub fn new(members: impl IntoIterator<Item = (MemberId, Discipline)>) -> Pool {
        let members = members.into_iter().map(|(member, discipline)| (member, Member::new(discipline))).collect();
        Pool {
            members,
            waiters: Vec::new(),
            work: JudgeWork::default(),
            work_known: false,
            recording: true,
            room: true,
            closed: false,
            change: None,
            left: BTreeMap::new(),
        }
    }

    /// The members a lane may use, in order: its own, then shared ones; the core's where none serves it (rule E2).
    pub fn acceptable(&self, lane: LaneId) -> Vec<MemberId> {
        let of = |wanted: &dyn Fn(Discipline) -> bool| -> Vec<MemberId> {
            self.members.iter().filter(|(_, m)| Pool::assigned(m).is_some_and(wanted)).map(|(id, _)| *id).collect()
        };
        let mut members = of(&|d| d == Discipline::OneLane(lane));
        members.extend(of(&|d| d == Discipline::FirstCome));
        if members.is_empty() {
            members = of(&|d| matches!(d, Discipline::JudgeFirst | Discipline::LanesOnly));
        }
        members
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: PoolInput) -> Vec<PoolEffect> {
        let mut out = Vec::new();
        match input {
            PoolInput::Ask { lane, dev_run, run, arrival, acceptable, limit, since, latest } => {
                let waiter = Waiter { lane, dev_run, run, arrival, acceptable, limit, since, latest };
                let ahead = self.insert(waiter);
                out.push(PoolEffect::InLine { lane, dev_run, ahead });
                self.let_stopped_go(&mut out);
                self.let_late_go(now, &mut out);
            }
            PoolInput::CancelWait { lane, dev_run } => {
                let before = self.waiters.len();
                self.waiters.retain(|waiter| waiter.dev_run != dev_run);
                if self.waiters.len() < before {
                    out.push(PoolEffect::WaitCancelled { lane, dev_run });
                }
                // A grant that crosses this is given back by the lane; should it be burnt first, nobody waits for it.
                for member in self.members.values_mut() {
                    if let MemberState::Held { held_for: HeldFor::Lane { waiter, left }, .. } = &mut member.state
                        && waiter.dev_run == dev_run
                    {
                        *left = true;
                    }
                }
            }
            PoolInput::Claim { by, hold } => {
                if let Some((grant, _)) = self.held_mut(hold, by)
                    && matches!(grant, Grant::Offered { .. })
                {
                    *grant = Grant::Claimed;
                }
            }
            PoolInput::ReleaseUnused { by, hold } => {
                if let Some((Grant::Offered { .. }, _)) = self.held_mut(hold, by) {
                    self.free(hold.member, hold.number);
                }
            }
            PoolInput::Member { member, event } => self.member_said(now, member, event, &mut out),
            PoolInput::JudgeWork(work) => {
                if !self.work_known || work.version > self.work.version {
                    out.push(PoolEffect::WorkTaken { version: work.version });
                    self.work = work;
                    self.work_known = true;
                    self.let_stopped_go(&mut out);
                }
            }
            PoolInput::RunStopped { run, why } => {
                for waiter in self.waiters.extract_if(.., |waiter| waiter.run == run) {
                    out.push(PoolEffect::GaveUp { lane: waiter.lane, dev_run: waiter.dev_run, why });
                }
            }
            PoolInput::SetSplit { version, disciplines } => self.set_split(now, version, disciplines, &mut out),
            PoolInput::Drain { member, drained } => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.drained = drained;
                }
            }
            PoolInput::AddRunner { member, discipline, drained } => self.add_runner(member, discipline, drained),
            PoolInput::SetRunners { pools } => self.set_runners(&pools, &mut out),
            PoolInput::Unfit { runners } => self.set_unfit(&runners),
            PoolInput::Recording(recording) => self.recording = recording,
            PoolInput::Room(room) => self.room = room,
            PoolInput::Close => self.closed = true,
        }
        self.finish_moves(&mut out);
        self.match_all(now, &mut out);
        out
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<PoolEffect> {
        let mut out = Vec::new();
        self.let_late_go(now, &mut out);
        let mut late = Vec::new();
        for (id, member) in &mut self.members {
            let MemberState::Held { number, grant, held_for } = &mut member.state else { continue };
            let hold = HoldId { member: *id, number: *number };
            match grant {
                Grant::Offered { claim_by } if *claim_by <= now => {
                    *grant = Grant::Voided;
                    out.push(PoolEffect::Void { hold });
                }
                Grant::Offered { .. } | Grant::Voided | Grant::Claimed | Grant::Started { .. } => {}
            }
            let started = matches!(grant, Grant::Started { .. });
            if let HeldFor::Lane { waiter, left } = held_for
                && !started
                && !*left
                && waiter.latest <= now
            {
                *left = true;
                late.push((hold, waiter.clone()));
            }
        }
        for (hold, waiter) in late {
            // The hold and the lane's turn stay until the member has freed it.
            let why = self.why_gave_up(&waiter);
            out.push(PoolEffect::GaveUp { lane: waiter.lane, dev_run: waiter.dev_run, why });
            out.push(PoolEffect::Stop { hold, cause: StopCause::WaitedTooLong });
        }
        self.match_all(now, &mut out);
        out
    }

    /// The next moment at which [`Pool::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        let waiters = self.waiters.iter().map(|waiter| (waiter.latest, "waiter gives up"));
        let holds = self.members.values().filter_map(|member| {
            let MemberState::Held { grant, held_for, .. } = &member.state else { return None };
            let claim = match grant {
                Grant::Offered { claim_by } => Some((*claim_by, "grant claimed")),
                Grant::Voided | Grant::Claimed | Grant::Started { .. } => None,
            };
            let start = match (held_for, grant) {
                (_, Grant::Started { .. }) | (HeldFor::Judge { .. }, _) | (HeldFor::Lane { left: true, .. }, _) => None,
                (HeldFor::Lane { waiter, .. }, _) => Some((waiter.latest, "granted run started")),
            };
            claim.into_iter().chain(start).min()
        });
        waiters.chain(holds).min()
    }

    /// Tells all times from `origin` and each member's numbers from `lowest`: keeps exhaustive checking finite.
    pub fn rebase(&mut self, origin: Moment, work_version: u64, lowest: impl Fn(MemberId) -> u64) {
        let rebase_waiter = |waiter: &mut Waiter| {
            waiter.since = Moment::START;
            waiter.latest = waiter.latest.rebase(origin);
        };
        self.waiters.iter_mut().for_each(rebase_waiter);
        self.work.version -= work_version;
        for entry in &mut self.work.entries {
            if let Some(hold) = &mut entry.running_on {
                hold.number = hold.number.saturating_sub(lowest(hold.member));
            }
        }
        if let Some(change) = &mut self.change {
            change.until = change.until.rebase(origin);
        }
        for (id, last) in &mut self.left {
            *last = last.saturating_sub(lowest(*id));
        }
        for (id, member) in &mut self.members {
            match &mut member.state {
                MemberState::Unknown => {}
                MemberState::Free { last } | MemberState::Out { last } => *last -= lowest(*id),
                MemberState::Held { number, grant, held_for } => {
                    *number -= lowest(*id);
                    match grant {
                        Grant::Offered { claim_by } => *claim_by = claim_by.rebase(origin),
                        Grant::Started { at } => *at = Moment::START,
                        Grant::Voided | Grant::Claimed => {}
                    }
                    if let HeldFor::Lane { waiter, .. } = held_for {
                        rebase_waiter(waiter);
                    }
                }
            }
        }
    }

    fn granting(&self) -> bool {
        self.work_known && self.recording && self.room && !self.closed && self.change.is_none()
    }

    fn insert(&mut self, waiter: Waiter) -> u32 {
        let place = self.waiters.partition_point(|other| other.arrival < waiter.arrival);
        self.waiters.insert(place, waiter);
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Lets the development runs of paused and ended runs go, also those that came to the line after it (rule A3).
    fn let_stopped_go(&mut self, out: &mut Vec<PoolEffect>) {
        let why = |run: RunId| self.work.stopped.iter().find(|(stopped, _)| *stopped == run).map(|(_, why)| *why);
        for Waiter { lane, dev_run, run, .. } in self.waiters.extract_if(.., |waiter| why(waiter.run).is_some()) {
            if let Some(why) = why(run) {
                out.push(PoolEffect::GaveUp { lane, dev_run, why });
            }
        }
    }

    /// Lets those go whose latest moment has come, also those that come to the line after it.
    fn let_late_go(&mut self, now: Moment, out: &mut Vec<PoolEffect>) {
        let due: Vec<Waiter> = self.waiters.extract_if(.., |waiter| waiter.latest <= now).collect();
        for waiter in due {
            let why = self.why_gave_up(&waiter);
            out.push(PoolEffect::GaveUp { lane: waiter.lane, dev_run: waiter.dev_run, why });
        }
    }

    fn held_mut(&mut self, hold: HoldId, by: Holder) -> Option<(&mut Grant, &mut HeldFor)> {
        let member = self.members.get_mut(&hold.member)?;
        match &mut member.state {
            MemberState::Held { number, grant, held_for } if *number == hold.number && holder_of(held_for) == by => {
                Some((grant, held_for))
            }
            _ => None,
        }
    }

    /// Takes a hold's number as used: the member is free, or out of service where it has said so.
    fn free(&mut self, id: MemberId, last: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.state = match member.gone {
                Some(_) => MemberState::Out { last },
                None => MemberState::Free { last },
            };
        }
    }

    fn member_said(&mut self, now: Moment, id: MemberId, event: MemberEvent, out: &mut Vec<PoolEffect>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        match event {
            MemberEvent::Ready { last } => {
                member.gone = None;
                member.state = match &member.state {
                    MemberState::Unknown => MemberState::Free { last },
                    MemberState::Free { last: known } | MemberState::Out { last: known } => {
                        MemberState::Free { last: last.max(*known) }
                    }
                    MemberState::Held { .. } => return,
                };
            }
            MemberEvent::Gone { why } => {
                member.gone = Some(why);
                if let MemberState::Free { last } = member.state {
                    member.state = MemberState::Out { last };
                }
            }
            MemberEvent::Started { number } => {
                if let MemberState::Held { number: held, grant, .. } = &mut member.state
                    && *held == number
                    && !matches!(grant, Grant::Started { .. })
                {
                    *grant = Grant::Started { at: now };
                    // It was asked to burn the number, and the work had begun by then.
                    let split = (self.change.is_some() && !id.is_runner()).then_some(StopCause::NewSplit);
                    if let Some(cause) = split.or_else(|| Pool::stop_of_moving(member)) {
                        out.push(PoolEffect::Stop { hold: HoldId { member: id, number }, cause });
                    }
                }
            }
            MemberEvent::Freed { number, how } => {
                let MemberState::Held { number: held, held_for, .. } = &member.state else { return };
                if *held != number {
                    return;
                }
                let held_for = held_for.clone();
                self.free(id, number);
                self.tell_holder(now, HoldId { member: id, number }, held_for, how, out);
            }
        }
    }

    fn tell_holder(&mut self, now: Moment, hold: HoldId, held_for: HeldFor, how: HoldEnd, out: &mut Vec<PoolEffect>) {
        match (held_for, how) {
            (HeldFor::Lane { waiter, left: false }, HoldEnd::NotStarted) => {
                let lane = waiter.lane;
                out.push(PoolEffect::Requeued { lane, hold });
                if waiter.latest <= now {
                    let why = self.why_gave_up(&waiter);
                    out.push(PoolEffect::GaveUp { lane, dev_run: waiter.dev_run, why });
                } else {
                    // Who serves its lane may have changed while it had the device.
                    let acceptable = self.acceptable(lane);
                    self.insert(Waiter { acceptable, ..waiter });
                    self.let_stopped_go(out);
                }
            }
            (HeldFor::Lane { waiter, left: true }, HoldEnd::NotStarted) => {
                // A lane that was told it gave up hears the same once more; one that left by its own wish has ended.
                let how = HoldEnd::Stopped(StopCause::WaitedTooLong);
                out.push(PoolEffect::HoldEnded { to: Holder::Lane(waiter.lane), hold, how });
            }
            (HeldFor::Lane { waiter, .. }, how) => {
                out.push(PoolEffect::HoldEnded { to: Holder::Lane(waiter.lane), hold, how });
            }
            (HeldFor::Judge { .. }, how) => out.push(PoolEffect::HoldEnded { to: Holder::Judge, hold, how }),
        }
    }
}

impl Member {
    fn new(discipline: Discipline) -> Member {
        Member { discipline, state: MemberState::Unknown, gone: None, drained: false, unfit: None, next: None }
    }

    fn is_free(&self) -> bool {
        matches!(self.state, MemberState::Free { .. }) && !self.drained && self.unfit.is_none() && self.next.is_none()
    }

    /// Whether it is there, and serves whoever is next.
    fn in_service(&self) -> bool {
        let known = matches!(self.state, MemberState::Free { .. } | MemberState::Held { .. });
        known && self.gone.is_none() && !self.drained && self.unfit.is_none() && self.next.is_none()
    }
}

fn holder_of(held_for: &HeldFor) -> Holder {
    match held_for {
        HeldFor::Judge { .. } => Holder::Judge,
        HeldFor::Lane { waiter, .. } => Holder::Lane(waiter.lane),
    }
}
