//! The core's machine of one runner: checks, tickets, asks until they are answered, and when work is handed on (rules E8
//! to E14, E17).
//!
//! It says a member's words to the pool. A start is asked with the same number until it is answered; an end counts only
//! once the runner has proved it, or once its lease is over for certain, counted from the moment the newest ticket came.
//! After a start of the core nothing is known: what runs there is stopped before it gets anything. Method: docs/bus.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::device::{DeviceInput, MemberEvent};
use crate::hold::{HoldEnd, RunnerLoss, StopCause};
use crate::ids::{DevRunId, HoldId, Holder, MemberId};
use crate::limits;
use crate::runner::words::{AskFault, Question, RunnerEffect, RunnerInput};
use crate::runner::{RunnerState, WhyNot};
use crate::time::{Moment, Span};
use crate::wire::{
    Answer, Checked, Progress, RunnerName, SlotAnswer, SlotFacts, SlotNo, Standing, Ticket, WIRE_VERSION,
};

mod asking;
mod view;

/// One runner, as its core sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Runner {
    member: MemberId,
    name: RunnerName,
    /// The last number used or burnt.
    last: u64,
    /// The hold of an earlier start of the core, whose end nobody waits for any more; 0 where there is none.
    past: u64,
    contact: Contact,
    /// When the newest ticket came, or this start of the core: no lease there ends later than counted from here.
    lease_from: Moment,
    ticket: Option<Ticket>,
    boot: Option<Uuid>,
    /// Checks missed in a row.
    missed: u32,
    check: Check,
    talk: Talk,
    /// When it is asked again how its work stands.
    tell_at: Moment,
    work: Work,
    /// Grants there that are not the work: to be stopped, fetched, acknowledged.
    others: BTreeMap<u64, Other>,
    /// Every grant up to this one is known to be over.
    over: u64,
    told: Told,
    /// What it says itself that keeps it from taking work.
    unable: Option<String>,
    /// Why it did not take the last start; the next good check takes this back.
    declined: Option<String>,
    quarantine: Option<String>,
    /// A fault that the core found, and until when it rests for it.
    fault: Option<(String, Moment)>,
    facts: Option<SlotFacts>,
    serves: Option<u16>,
    faults: u32,
    next_id: u64,
    /// Things said under an old number, refused and counted (rule A1).
    refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Contact {
    /// It has not answered since the core started.
    Reconciling,
    /// It answers.
    Here { answered: Moment },
    /// It missed its checks; or it answers in a way that tells nothing of its work, and why.
    Deaf { why: Option<WhyNot> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Check {
    /// The next one is due then.
    Due { at: Moment },
    /// It is asked.
    Asked { id: u64, sent: Moment },
    /// It could not be sent, and is tried again while there is time.
    Again { at: Moment, sent: Moment },
}

/// The one ask that is under way beside the check.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Talk {
    /// None; the next may go from then on.
    Quiet { from: Moment },
    /// This one; a hint that comes meanwhile is not lost.
    Asked { id: u64, question: Question, until: Moment, hinted: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Work {
    Idle,
    /// What a development run needs is being brought; nothing is asked yet.
    Bringing {
        number: u64,
        by: Holder,
        limit: Option<Span>,
        until: Moment,
    },
    /// The start is asked until it is answered.
    Starting {
        number: u64,
        by: Holder,
        limit: Option<Span>,
    },
    /// The runner has it.
    Accepted {
        number: u64,
        by: Holder,
        limit: Option<Span>,
        started: Option<Moment>,
        boot: Uuid,
        step: StepAsked,
    },
    /// It is being stopped: not over before the proof, or before its lease is over for certain.
    Stopping {
        number: u64,
        by: Holder,
        cause: StopCause,
        accepted: bool,
        since: Moment,
    },
    /// It is over, and the rest of its output is being fetched.
    Fetching {
        number: u64,
        by: Holder,
        dev_run: DevRunId,
        end: HoldEnd,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum StepAsked {
    /// None; the last one's number.
    None { last: u32 },
    /// This one's report is waited for; whether the runner is known to have it.
    Wanted { number: u32, taken: bool },
}

/// A grant there that is not the work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Other {
    /// It is not over: it is to be stopped before the runner gets anything.
    Live,
    /// It is over.
    Over {
        dev_run: Option<DevRunId>,
        fetch: Fetch,
        /// Whether the log has its end, or needs none.
        kept: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Fetch {
    Wanted,
    UnderWay,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Told {
    Nothing,
    Ready,
    Gone { why: String },
}

/// What came of one input: the pool hears `Gone` before ends, and ends before `Ready` (rule 9 of the design).
#[derive(Default)]
struct Out {
    said: Vec<MemberEvent>,
    effects: Vec<RunnerEffect>,
}

impl Runner {
    /// A runner after a start of the core: what runs there is unknown.
    ///
    /// `last` is the highest number that the log knows; `open` is the hold that had begun and not ended by it.
    pub fn new(
        now: Moment,
        member: MemberId,
        name: RunnerName,
        last: u64,
        open: Option<(u64, Holder)>,
    ) -> (Runner, Vec<RunnerEffect>) {
        let work = match open {
            Some((number, by)) => {
                Work::Stopping { number, by, cause: StopCause::RigEnding, accepted: true, since: now }
            }
            None => Work::Idle,
        };
        let mut runner = Runner {
            member,
            name,
            last,
            past: open.map_or(0, |(number, _)| number),
            contact: Contact::Reconciling,
            lease_from: now,
            ticket: None,
            boot: None,
            missed: 0,
            check: Check::Due { at: now },
            talk: Talk::Quiet { from: now },
            tell_at: now,
            work,
            others: BTreeMap::new(),
            over: 0,
            told: Told::Nothing,
            unable: None,
            declined: None,
            quarantine: None,
            fault: None,
            facts: None,
            serves: None,
            faults: 0,
            next_id: 1,
            refused: 0,
        };
        let first = runner.settle(now, Out::default());
        (runner, first)
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: RunnerInput) -> Vec<RunnerEffect> {
        let mut out = Out::default();
        match input {
            RunnerInput::Member(said) => self.member_input(now, said, &mut out),
            RunnerInput::Answered { id, answer } => self.answered(now, id, *answer, &mut out),
            RunnerInput::Failed { id, fault } => self.failed(now, id, &fault, &mut out),
            RunnerInput::Hinted => {
                self.tell_at = now;
                if let Talk::Asked { hinted, .. } = &mut self.talk {
                    *hinted = true;
                }
            }
            RunnerInput::Brought { number } => {
                if let Work::Bringing { number: held, by, limit, .. } = self.work
                    && held == number
                {
                    self.work = Work::Starting { number, by, limit };
                }
            }
            RunnerInput::NotBrought { number, why } => {
                if let Work::Bringing { number: held, .. } = self.work
                    && held == number
                {
                    self.free(HoldEnd::Stopped(StopCause::StartFailed { why }), &mut out);
                }
            }
            RunnerInput::WantsStep { number } => self.wants_step(now, number, &mut out),
            RunnerInput::Fetched { number } => self.fetched(number, &mut out),
            RunnerInput::Kept { number } => {
                if let Some(Other::Over { kept, .. }) = self.others.get_mut(&number) {
                    *kept = true;
                }
            }
        }
        self.settle(now, out)
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<RunnerEffect> {
        let mut out = Out::default();
        if self.next_deadline().is_none_or(|(due, _)| due > now) {
            return out.effects;
        }
        if self.fault.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.fault = None;
        }
        if let Work::Bringing { until, .. } = self.work
            && until <= now
        {
            let why = format!("what it needs was not brought within {}", limits::RUNNER_PREPARE_MAX);
            self.free(HoldEnd::Stopped(StopCause::StartFailed { why }), &mut out);
        }
        if let Some(sent) = self.check_sent()
            && sent + limits::RUNNER_ASK_MAX <= now
        {
            self.check_missed(sent, &mut out, now);
        }
        if let Talk::Asked { until, .. } = self.talk
            && until <= now
        {
            self.talk = Talk::Quiet { from: now };
        }
        if let Work::Stopping { cause, .. } = &self.work
            && self.may_hand_on(now)
        {
            let end = HoldEnd::Stopped(cause.clone());
            self.free(end, &mut out);
        }
        self.settle(now, out)
    }

    /// The next moment at which [`Runner::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        let check = match self.check {
            Check::Due { at } => (at, "check due"),
            Check::Asked { sent, .. } => (sent + limits::RUNNER_ASK_MAX, "check answered"),
            Check::Again { at, sent } => (at.min(sent + limits::RUNNER_ASK_MAX), "check tried again"),
        };
        let talk = match &self.talk {
            Talk::Asked { until, .. } => Some((*until, "ask answered")),
            Talk::Quiet { from } => self.question().map(|(_, at)| (at.max(*from), "asked again")),
        };
        let bringing = match self.work {
            Work::Bringing { until, .. } => Some((until, "what a start needs brought")),
            Work::Idle
            | Work::Starting { .. }
            | Work::Accepted { .. }
            | Work::Stopping { .. }
            | Work::Fetching { .. } => None,
        };
        let is_heard = matches!(self.contact, Contact::Here { .. });
        let is_stopping = matches!(self.work, Work::Stopping { .. });
        let hand_on = (is_stopping && !is_heard).then(|| (self.hand_on(), "handed on"));
        let fault = self.fault.as_ref().map(|(_, until)| (*until, "runner tried again"));
        [Some(check), talk, bringing, hand_on, fault].into_iter().flatten().min_by_key(|next| next.0)
    }

    fn member_input(&mut self, now: Moment, said: DeviceInput, out: &mut Out) {
        match said {
            DeviceInput::Start { number, by, limit } => self.start(now, number, by, limit, out),
            DeviceInput::Stop { number, cause } => self.stop(now, number, cause, out),
            DeviceInput::Void { number } => self.void(number, out),
            DeviceInput::Quarantine { why } => self.quarantine = Some(why),
            DeviceInput::Readmit => self.quarantine = None,
            // Found by the core: what the runner finds itself it rests for itself.
            DeviceInput::AtFault { why } => {
                if self.fault.is_none() {
                    self.fault = Some((why, now + limits::REQUALIFY_AFTER));
                    out.effects.push(RunnerEffect::Distrust);
                }
            }
            // How long its device rests after faults in a row is the runner's own matter.
            DeviceInput::Doubted { .. } => {}
            // A local executor's words: nobody says them to a runner.
            DeviceInput::Started { .. }
            | DeviceInput::StartFailed { .. }
            | DeviceInput::Exited { .. }
            | DeviceInput::Emptied { .. }
            | DeviceInput::NotProved { .. }
            | DeviceInput::Swept
            | DeviceInput::SweepFailed { .. }
            | DeviceInput::Looked { .. } => self.refused += 1,
        }
    }

    fn start(&mut self, now: Moment, number: u64, by: Holder, limit: Option<Span>, out: &mut Out) {
        if number <= self.last {
            self.refused += 1;
            return;
        }
        // The number is used up whether or not the work can start (rule A1).
        self.last = number;
        if self.why_not().is_some() || self.work != Work::Idle {
            out.said.push(MemberEvent::Freed { number, how: HoldEnd::NotStarted });
            return;
        }
        self.work = match by {
            Holder::Judge => Work::Starting { number, by, limit },
            Holder::Lane(_) => {
                out.effects.push(RunnerEffect::Bring { number });
                Work::Bringing { number, by, limit, until: now + limits::RUNNER_PREPARE_MAX }
            }
        };
    }

    fn stop(&mut self, now: Moment, number: u64, cause: StopCause, out: &mut Out) {
        if number > self.last {
            // A stop may overtake its start: the number is burnt, so that the start is refused.
            self.last = number;
            out.said.push(MemberEvent::Freed { number, how: HoldEnd::Stopped(cause) });
            return;
        }
        match self.work.number() {
            Some(held) if held == number => self.end_work(now, cause, out),
            Some(_) | None => self.refused += 1,
        }
    }

    fn void(&mut self, number: u64, out: &mut Out) {
        if number > self.last {
            self.last = number;
            out.said.push(MemberEvent::Freed { number, how: HoldEnd::NotStarted });
        } else if self.work.number() == Some(number) {
            out.said.push(MemberEvent::Started { number });
        } else {
            self.refused += 1;
        }
    }

    /// Begins the stop of the work; a stop under way keeps its first cause.
    fn end_work(&mut self, now: Moment, cause: StopCause, out: &mut Out) {
        let (number, by, accepted) = match self.work {
            Work::Bringing { .. } => {
                // Nothing was asked: nothing is there to be stopped.
                let end = match cause {
                    StopCause::RunnerLost { how: RunnerLoss::Away } => HoldEnd::NotStarted,
                    cause => HoldEnd::Stopped(cause),
                };
                self.free(end, out);
                return;
            }
            Work::Starting { number, by, .. } => (number, by, false),
            Work::Accepted { number, by, .. } => (number, by, true),
            Work::Idle | Work::Stopping { .. } | Work::Fetching { .. } => return,
        };
        self.drop_step(out);
        self.work = Work::Stopping { number, by, cause, accepted, since: now };
        self.tell_at = now;
    }

    fn drop_step(&mut self, out: &mut Out) {
        if let Work::Accepted { number, step: StepAsked::Wanted { .. }, .. } = self.work {
            out.effects.push(RunnerEffect::StepDone { number, report: None });
        }
    }

    fn wants_step(&mut self, now: Moment, wanted: u64, out: &mut Out) {
        if let Work::Accepted { number, by: Holder::Judge, step, .. } = &mut self.work
            && *number == wanted
            && let StepAsked::None { last } = *step
        {
            *step = StepAsked::Wanted { number: last + 1, taken: false };
            self.tell_at = now;
        } else {
            out.effects.push(RunnerEffect::StepDone { number: wanted, report: None });
        }
    }

    fn fetched(&mut self, fetched: u64, out: &mut Out) {
        if let Work::Fetching { number, end, .. } = &self.work
            && *number == fetched
        {
            let end = end.clone();
            self.free(end, out);
        } else if let Some(Other::Over { fetch: fetch @ Fetch::UnderWay, .. }) = self.others.get_mut(&fetched) {
            *fetch = Fetch::Done;
        }
    }

    /// The work is over for its holder.
    fn free(&mut self, how: HoldEnd, out: &mut Out) {
        self.drop_step(out);
        let work = std::mem::replace(&mut self.work, Work::Idle);
        let Some(number) = work.number() else { return };
        if let Work::Fetching { by, dev_run, .. } = work {
            let fetch = match self.contact {
                Contact::Here { .. } => Fetch::Done,
                Contact::Reconciling | Contact::Deaf { .. } => Fetch::Wanted,
            };
            let kept = by == Holder::Judge || number <= self.past;
            self.others.insert(number, Other::Over { dev_run: Some(dev_run), fetch, kept });
        }
        out.said.push(MemberEvent::Freed { number, how });
    }

    /// The runner says that the work is over there.
    fn ended(&mut self, standing_dev_run: Option<DevRunId>, end: HoldEnd, out: &mut Out) {
        let (number, by, how) = match &self.work {
            Work::Starting { number, by, .. } | Work::Accepted { number, by, .. } => (*number, *by, end),
            Work::Stopping { number, by, cause, accepted, .. } => {
                let how = match (end, cause) {
                    // It was never begun, and was to go on: it keeps its place.
                    (HoldEnd::NotStarted, StopCause::RunnerLost { .. }) if !accepted => HoldEnd::NotStarted,
                    (HoldEnd::NotStarted, cause) => HoldEnd::Stopped(cause.clone()),
                    (end @ (HoldEnd::Stopped(_) | HoldEnd::NotProved { .. }), _) => end,
                };
                (*number, *by, how)
            }
            Work::Idle | Work::Bringing { .. } | Work::Fetching { .. } => return,
        };
        self.over = self.over.max(number);
        match standing_dev_run {
            Some(dev_run) => {
                self.drop_step(out);
                self.work = Work::Fetching { number, by, dev_run, end: how };
                out.effects.push(RunnerEffect::Fetch { number, dev_run });
            }
            None => self.free(how, out),
        }
    }

    /// Takes what the runner says of one grant.
    fn stands(&mut self, now: Moment, standing: Standing, out: &mut Out) {
        let Standing { grant, dev_run, at, step } = standing;
        if self.work.number() != Some(grant) {
            self.other(grant, dev_run, &at);
            return;
        }
        if let Progress::Over { end } = at {
            self.ended(dev_run, end, out);
            return;
        }
        if let (Work::Starting { number, by, limit }, Some(boot)) = (&self.work, self.boot) {
            let (number, by, limit) = (*number, *by, *limit);
            let step = StepAsked::None { last: 0 };
            self.work = Work::Accepted { number, by, limit, started: None, boot, step };
        }
        let Work::Accepted { number, by, started, step: asked, .. } = &mut self.work else { return };
        let runs_since = match at {
            Progress::Running { since_start } => Some(now - since_start),
            Progress::Accepted | Progress::Stopping | Progress::Over { .. } => None,
        };
        if started.is_none()
            && let Some(since) = runs_since
        {
            *started = Some(since);
            out.said.push(MemberEvent::Started { number: *number });
            out.effects.push(match by {
                Holder::Judge => RunnerEffect::StageOpen { number: *number },
                Holder::Lane(_) => RunnerEffect::Pull { number: *number },
            });
        }
        if let (StepAsked::Wanted { number: wanted, taken }, Some(there)) = (&mut *asked, step)
            && there.number == *wanted
        {
            *taken = true;
            if let Some(report) = there.report {
                let last = *wanted;
                *asked = StepAsked::None { last };
                out.effects.push(RunnerEffect::StepDone { number: *number, report: Some(report) });
            }
        }
    }

    /// Takes what the runner says of a grant that is not the work.
    fn other(&mut self, grant: u64, dev_run: Option<DevRunId>, at: &Progress) {
        let is_over = match at {
            // Told before its end was, and come after it.
            Progress::Accepted | Progress::Running { .. } | Progress::Stopping => grant <= self.over,
            Progress::Over { .. } => true,
        };
        if !is_over {
            self.others.insert(grant, Other::Live);
            return;
        }
        match self.others.get(&grant) {
            Some(Other::Over { .. }) => {}
            Some(Other::Live) | None => {
                let fetch = if dev_run.is_some() { Fetch::Wanted } else { Fetch::Done };
                self.others.insert(grant, Other::Over { dev_run, fetch, kept: true });
            }
        }
    }

    /// It is not heard any more, or not understood: what it works on is over by its lease's end (rule E11).
    fn go_deaf(&mut self, now: Moment, why: Option<WhyNot>, out: &mut Out) {
        self.contact = Contact::Deaf { why };
        self.end_work(now, StopCause::RunnerLost { how: RunnerLoss::Away }, out);
        if let Work::Fetching { end, .. } = &self.work {
            let end = end.clone();
            self.free(end, out);
        }
        for other in self.others.values_mut() {
            if let Other::Over { fetch: fetch @ Fetch::UnderWay, .. } = other {
                *fetch = Fetch::Wanted;
            }
        }
    }

    /// When what it ran is over for certain, whatever it does.
    fn hand_on(&self) -> Moment {
        self.lease_from + limits::HAND_ON_AFTER
    }

    fn may_hand_on(&self, now: Moment) -> bool {
        match self.contact {
            Contact::Here { .. } => false,
            Contact::Reconciling | Contact::Deaf { .. } => self.hand_on() <= now,
        }
    }

    /// Why it may not be given work, where it may not.
    fn why_not(&self) -> Option<String> {
        match &self.contact {
            Contact::Reconciling => return Some("it has not answered since the rig started".to_owned()),
            Contact::Deaf { why: None } => return Some("it is away".to_owned()),
            Contact::Deaf { why: Some(why) } => return Some(why.to_string()),
            Contact::Here { .. } => {}
        }
        let of_past = self.work.number().is_some_and(|number| number <= self.past);
        let live = of_past || self.others.values().any(|other| *other == Other::Live);
        self.quarantine
            .clone()
            .or_else(|| self.unable.clone())
            .or_else(|| self.fault.as_ref().map(|(why, _)| why.clone()))
            .or_else(|| self.declined.clone())
            .or_else(|| live.then(|| "what it ran is being stopped".to_owned()))
    }

    /// Says what the pool is to know, in the order that keeps it right, and asks what is to be asked.
    fn settle(&mut self, now: Moment, out: Out) -> Vec<RunnerEffect> {
        let Out { said, mut effects } = out;
        let why = self.why_not();
        // `Gone` comes first, so that nobody is granted the runner between the two.
        if let Some(why) = &why
            && self.told != (Told::Gone { why: why.clone() })
        {
            self.told = Told::Gone { why: why.clone() };
            effects.push(RunnerEffect::Tell(MemberEvent::Gone { why: why.clone() }));
        }
        effects.extend(said.into_iter().map(RunnerEffect::Tell));
        if why.is_none() && self.told != Told::Ready {
            self.told = Told::Ready;
            effects.push(RunnerEffect::Tell(MemberEvent::Ready { last: self.last }));
        }
        self.fetch_others(&mut effects);
        self.ask(now, &mut effects);
        effects
    }

    fn fetch_others(&mut self, effects: &mut Vec<RunnerEffect>) {
        let Contact::Here { .. } = self.contact else { return };
        for (number, other) in &mut self.others {
            if let Other::Over { dev_run: Some(dev_run), fetch: fetch @ Fetch::Wanted, .. } = other {
                *fetch = Fetch::UnderWay;
                effects.push(RunnerEffect::Fetch { number: *number, dev_run: *dev_run });
            }
        }
    }
}

impl Work {
    fn number(&self) -> Option<u64> {
        match self {
            Work::Idle => None,
            Work::Bringing { number, .. }
            | Work::Starting { number, .. }
            | Work::Accepted { number, .. }
            | Work::Stopping { number, .. }
            | Work::Fetching { number, .. } => Some(*number),
        }
    }
}
