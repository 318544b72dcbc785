//! The pool: every member, every waiter, and who gets which device (rules A1 to A6, A9; E1 for shared runners).
//!
//! Every input ends in one matching pass, so that an eligible waiter never stays beside a free ready device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::MemberEvent;
use crate::hold::{HoldEnd, StopCause};
use crate::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use crate::job::StageKind;
use crate::limits;
use crate::refusal::GaveUp;
use crate::time::{Moment, Span};

mod view;
mod watchdog;

pub use view::{HolderView, JudgesDevice, MemberView};
pub use watchdog::Overlooked;

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
}

/// One stage that the judge wants a device for, or has one for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkEntry {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// Which stage.
    pub stage: StageKind,
    /// The job's place in the order of all askings.
    pub arrival: Arrival,
    /// Whether it may start at once.
    pub startable: bool,
    /// Whether its run is paused.
    pub paused: bool,
    /// Where its screening was won, for a confirmation (rule B6).
    pub screened_on: Option<MemberId>,
    /// The hold it runs under.
    pub running_on: Option<HoldId>,
}

/// What the judge has to do, told whole each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JudgeWork {
    /// Rises with each telling.
    pub version: u64,
    /// Running stages, then the earliest others, at most [`limits::WORK_LISTED_MAX`].
    pub entries: Vec<WorkEntry>,
    /// How many more jobs there are.
    pub unlisted: u32,
    /// Runs whose development runs may not wait, and why: paused ones, and those that ended (rule A3).
    pub stopped: Vec<(RunId, GaveUp)>,
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
    /// How long it will hold a device at most.
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
}

/// What a pool takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolInput {
    /// A lane asks for a device.
    Ask {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// Its run.
        run: RunId,
        /// Its place in the order of all askings.
        arrival: Arrival,
        /// Members it may use, in order of preference.
        acceptable: Vec<MemberId>,
        /// How long it will hold a device at most.
        limit: Option<Span>,
        /// Since when it waits: since it was asked for.
        since: Moment,
        /// The moment no wait of it passes.
        latest: Moment,
    },
    /// A lane leaves the line.
    CancelWait {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// A holder takes its granted hold.
    Claim {
        /// Who.
        by: Holder,
        /// The hold.
        hold: HoldId,
    },
    /// A holder gives its granted hold back unused.
    ReleaseUnused {
        /// Who.
        by: Holder,
        /// The hold.
        hold: HoldId,
    },
    /// A member says something.
    Member {
        /// The member.
        member: MemberId,
        /// What.
        event: MemberEvent,
    },
    /// The judge tells its work.
    JudgeWork(JudgeWork),
    /// A run was paused or ended: its waiting development runs leave the line.
    RunStopped {
        /// The run.
        run: RunId,
        /// Why they leave.
        why: GaveUp,
    },
    /// The records can or cannot be written.
    Recording(bool),
    /// The disk has, or lacks, the room for new work.
    Room(bool),
    /// The rig is ending: nothing is granted any more.
    Close,
}

/// What a pool wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolEffect {
    /// Tell a lane its place.
    InLine {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// How many are served before it.
        ahead: u32,
    },
    /// Grant a hold to a lane.
    GrantLane {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// The hold.
        hold: HoldId,
    },
    /// Grant a hold to the judge.
    GrantJudge {
        /// The hold.
        hold: HoldId,
        /// The stages it may be used for.
        serves: Vec<(JobId, StageKind)>,
    },
    /// Tell a lane that its wait is over without a device.
    GaveUp {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// Why.
        why: GaveUp,
    },
    /// Tell a lane that it has left the line as it wished.
    WaitCancelled {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// Tell a lane that its hold was burnt and it waits again in its old place.
    Requeued {
        /// The lane.
        lane: LaneId,
        /// The hold.
        hold: HoldId,
    },
    /// Tell a holder that its hold is over.
    HoldEnded {
        /// The holder.
        to: Holder,
        /// The hold.
        hold: HoldId,
        /// How.
        how: HoldEnd,
    },
    /// Tell the judge that its work is known.
    WorkTaken {
        /// Up to which version.
        version: u64,
    },
    /// Ask a member to burn a number nobody claimed.
    Void {
        /// The hold.
        hold: HoldId,
    },
    /// Stop a hold that has not started by its latest moment.
    Stop {
        /// The hold.
        hold: HoldId,
        /// Why.
        cause: StopCause,
    },
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
}

impl Pool {
    /// A pool of these members, all unknown.
    pub fn new(members: impl IntoIterator<Item = (MemberId, Discipline)>) -> Pool {
        let members = members
            .into_iter()
            .map(|(member, discipline)| (member, Member { discipline, state: MemberState::Unknown, gone: None }))
            .collect();
        Pool {
            members,
            waiters: Vec::new(),
            work: JudgeWork::default(),
            work_known: false,
            recording: true,
            room: true,
            closed: false,
        }
    }

    /// The members a lane may use, in order: its own, then shared ones; the core's where none serves it (rule E2).
    pub fn acceptable(&self, lane: LaneId) -> Vec<MemberId> {
        let of = |wanted: &dyn Fn(Discipline) -> bool| -> Vec<MemberId> {
            self.members.iter().filter(|(_, m)| wanted(m.discipline)).map(|(id, _)| *id).collect()
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
            PoolInput::Recording(recording) => self.recording = recording,
            PoolInput::Room(room) => self.room = room,
            PoolInput::Close => self.closed = true,
        }
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
        self.work_known && self.recording && self.room && !self.closed
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
                    self.insert(waiter);
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

    /// Whether a stage must not run on this member because another judge's member in service can confirm it (B6).
    fn avoids(&self, entry: &WorkEntry, on: MemberId) -> bool {
        entry.stage == StageKind::Confirmation
            && entry.screened_on == Some(on)
            && self.judges_members().any(|(other, member)| {
                other != on
                    && member.gone.is_none()
                    && matches!(member.state, MemberState::Free { .. } | MemberState::Held { .. })
            })
    }

    /// The judge's members in its order of preference: its own, shared runners, the core's device.
    fn judges_members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
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
    fn judge_work_keeps(&self, member: MemberId) -> bool {
        self.work.unlisted > 0
            || self.work.entries.iter().any(|entry| self.unsettled(entry) || !self.avoids(entry, member))
    }

    /// Whether a lane may have this member, were it free.
    fn lane_may(&self, waiter: &Waiter, id: MemberId, member: &Member) -> bool {
        match member.discipline {
            Discipline::JudgeFirst => !self.judge_work_keeps(id),
            Discipline::FirstCome => !self
                .work
                .entries
                .iter()
                .any(|entry| entry.arrival < waiter.arrival && !entry.paused && self.unsettled(entry)),
            Discipline::LanesOnly => true,
            Discipline::OneLane(lane) => lane == waiter.lane,
            Discipline::JudgeOnly => false,
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
            let member = match candidate {
                Candidate::Judge { entry } => {
                    let entry = &self.work.entries[entry];
                    self.judges_members().find(|(id, member)| member.is_free() && !self.avoids(entry, *id)).map(|m| m.0)
                }
                Candidate::Lane { waiter } => {
                    let waiter = &self.waiters[waiter];
                    waiter
                        .acceptable
                        .iter()
                        .copied()
                        .find(|id| self.members.get(id).is_some_and(|m| m.is_free() && self.lane_may(waiter, *id, m)))
                }
            }?;
            Some(Match { candidate, arrival, member })
        })
    }

    fn match_all(&mut self, now: Moment, out: &mut Vec<PoolEffect>) {
        while self.granting()
            && let Some(Match { candidate, arrival, member: id }) = self.next_match()
        {
            let (held_for, to) = match candidate {
                Candidate::Lane { waiter } => {
                    let waiter = self.waiters.remove(waiter);
                    let to = (waiter.lane, waiter.dev_run);
                    (HeldFor::Lane { waiter, left: false }, Some(to))
                }
                Candidate::Judge { .. } => {
                    let serves = self
                        .work
                        .entries
                        .iter()
                        .filter(|e| e.startable && !e.paused && !self.avoids(e, id) && e.arrival <= arrival)
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
                (_, Some((lane, dev_run))) => PoolEffect::GrantLane { lane, dev_run, hold },
                (HeldFor::Judge { serves, .. }, None) => PoolEffect::GrantJudge { hold, serves: serves.clone() },
                (HeldFor::Lane { .. }, None) => unreachable!("a lane's grant names the lane"),
            });
            let grant = Grant::Offered { claim_by: now + limits::CLAIM_MAX };
            member.state = MemberState::Held { number, grant, held_for };
        }
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

impl Member {
    fn is_free(&self) -> bool {
        matches!(self.state, MemberState::Free { .. })
    }
}

fn holder_of(held_for: &HeldFor) -> Holder {
    match held_for {
        HeldFor::Judge { .. } => Holder::Judge,
        HeldFor::Lane { waiter, .. } => Holder::Lane(waiter.lane),
    }
}
