//! The runner's side of one device: which grants it accepted, its lease, and what the core may fetch (rules E11, E14).
//!
//! Around the rules of a local device ([`Device`]: one holder, the stop and its proof, its way back after a fault) stand
//! those of the bus: a grant is begun at most once, whatever is late, doubled or lost; work goes on only while checks are
//! heard; an end is kept until the core has it. What is accepted is written down before it is begun. Method: docs/bus.md.

use std::collections::{BTreeMap, VecDeque};

use uuid::Uuid;

use crate::contract::Target;
use crate::device::{Device, DeviceEffect, DeviceInput, DeviceState, MemberEvent};
use crate::hold::{HoldEnd, RunnerLoss, StopCause};
use crate::ids::{DevRunId, HoldId, Holder, MemberId};
use crate::limits;
use crate::runner::JournalLine;
use crate::time::{Moment, Span};
use crate::wire::{Checked, Document, Progress, SlotAnswer, SlotFacts, SlotNo, Standing, StepStanding, Ticket};

mod pen;
mod words;

use pen::Pen;
pub use words::{Heard, SlotEffect, SlotInput};

/// One runner, as its own process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    boot: Uuid,
    serves: u16,
    /// The highest epoch of a core that was heard.
    epoch: u64,
    /// The highest grant that was ever accepted or burnt.
    highest: u64,
    /// The newest tickets and when each was given, oldest first.
    tickets: VecDeque<(u64, Moment)>,
    next_ticket: u64,
    /// When the newest ticket was given that a check or start has brought back.
    renewed: Option<Moment>,
    device: Device,
    /// Why the device is out of service, where it is.
    out_of_service: Option<String>,
    faults: u32,
    facts: Option<SlotFacts>,
    grants: BTreeMap<u64, Grant>,
    pen: Pen,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Grant {
    by: Holder,
    dev_run: Option<DevRunId>,
    limit: Option<Span>,
    phase: Phase,
    step: Option<StepStanding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Its acceptance is being written down; these asks wait for that.
    Accepting { asked: Vec<u64>, stop: Option<StopCause> },
    /// What a development run needs is being brought.
    Preparing { until: Moment },
    /// The device has it.
    OnDevice { started: Option<Moment> },
    /// It was accepted before this start of the process: what is left of it is being found and ended.
    Lost,
    /// Its end is being written down.
    Ending { end: HoldEnd },
    /// It is over.
    Over { end: HoldEnd, since: Moment },
}

impl Slot {
    /// A runner after a start of its process: nothing is begun before the leftovers of earlier grants are proved gone.
    ///
    /// `number` is its place in the process, from 1; `lines` is its journal.
    pub fn new(
        now: Moment,
        boot: Uuid,
        number: u16,
        serves: u16,
        target: Target,
        lines: &[JournalLine],
    ) -> (Slot, Vec<SlotEffect>) {
        let (highest, grants) = read(now, lines);
        let (device, first) = Device::new(now, MemberId(number), highest);
        let device = match target {
            Target::CudaGpu => device.as_card(),
            Target::Cpu => device,
        };
        let slot = Slot {
            boot,
            serves,
            epoch: 0,
            highest,
            tickets: VecDeque::new(),
            next_ticket: 1,
            renewed: None,
            device,
            out_of_service: Some(LOOKS_FOR_LEFTOVERS.to_owned()),
            faults: 0,
            facts: None,
            grants,
            pen: Pen::new(lines.len()),
        };
        (slot, first.into_iter().map(SlotEffect::Device).collect())
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it neither works nor keeps an end.
    pub fn has_nothing(&self) -> bool {
        self.grants.is_empty()
    }

    /// Whether that grant is accepted and not over.
    pub fn works_on(&self, grant: u64) -> bool {
        self.grants.get(&grant).is_some_and(|known| !matches!(known.phase, Phase::Over { .. }))
    }

    /// Whether the judge may have a step done under this grant.
    pub fn judge_may(&self, grant: u64) -> bool {
        self.device.judge_may(HoldId { member: self.device.member(), number: grant })
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: SlotInput) -> Vec<SlotEffect> {
        let mut out = Vec::new();
        match input {
            SlotInput::Asked { id, epoch, what } => self.asked(now, id, epoch, what, &mut out),
            SlotInput::Facts { facts } => self.facts = facts,
            SlotInput::Written => {
                for line in self.pen.written() {
                    self.durable(now, line, &mut out);
                }
            }
            SlotInput::NotWritten { why } => {
                for line in self.pen.not_written(why.clone()) {
                    self.not_durable(now, line, &why, &mut out);
                }
            }
            SlotInput::Prepared { grant } => self.prepared(now, grant, &mut out),
            SlotInput::NotPrepared { grant, why } => {
                if let Some(Grant { phase: Phase::Preparing { .. }, .. }) = self.grants.get(&grant) {
                    self.stop(now, grant, StopCause::StartFailed { why }, &mut out);
                }
            }
            SlotInput::Reported { grant, number, report } => self.reported(grant, number, report, &mut out),
            SlotInput::Exited { grant, exit } => {
                self.tell_device(now, DeviceInput::Exited { number: grant, exit }, &mut out);
            }
            SlotInput::Device(input) => self.tell_device(now, input, &mut out),
        }
        self.write(&mut out);
        out
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<SlotEffect> {
        let mut out = Vec::new();
        let effects = self.device.advance(now);
        self.device_did(now, effects, &mut out);
        if let Some((grant, _)) = self.lease_ends().filter(|(_, at)| *at <= now) {
            self.stop(now, grant, StopCause::RunnerLost { how: RunnerLoss::Away }, &mut out);
        }
        let late: Vec<u64> = self.preparing().filter(|(_, until)| *until <= now).map(|(grant, _)| grant).collect();
        for grant in late {
            let why = format!("it was not prepared within {}", limits::RUNNER_PREPARE_MAX);
            self.stop(now, grant, StopCause::StartFailed { why }, &mut out);
        }
        let old: Vec<u64> = self.kept().filter(|(_, until)| *until <= now).map(|(grant, _)| grant).collect();
        for grant in old {
            self.forget(grant, &mut out);
        }
        self.write(&mut out);
        out
    }

    /// The next moment at which [`Slot::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        let lease = self.lease_ends().map(|(_, at)| (at, "lease"));
        let preparing = self.preparing().map(|(_, at)| (at, "development run prepared"));
        let kept = self.kept().map(|(_, at)| (at, "end forgotten"));
        self.device.next_deadline().into_iter().chain(lease).chain(preparing).chain(kept).min_by_key(|next| next.0)
    }

    /// Tells all times from `origin` and all numbers of grants from `lowest`: keeps exhaustive checking finite.
    pub fn rebase(&mut self, origin: Moment, lowest: u64) {
        self.highest -= lowest;
        self.device.rebase(origin, lowest);
        self.renewed = self.renewed.map(|at| at.rebase(origin));
        for (_, at) in &mut self.tickets {
            *at = at.rebase(origin);
        }
        for (number, mut grant) in std::mem::take(&mut self.grants) {
            match &mut grant.phase {
                Phase::Preparing { until: at }
                | Phase::OnDevice { started: Some(at) }
                | Phase::Over { since: at, .. } => {
                    *at = at.rebase(origin);
                }
                Phase::Accepting { .. } | Phase::OnDevice { started: None } | Phase::Lost | Phase::Ending { .. } => {}
            }
            self.grants.insert(number - lowest, grant);
        }
        self.pen.rebase(lowest);
    }

    fn asked(&mut self, now: Moment, id: u64, epoch: u64, what: Heard, out: &mut Vec<SlotEffect>) {
        if epoch < self.epoch {
            let no = SlotNo::Stale { epoch: self.epoch, grant: self.highest };
            out.push(SlotEffect::Answer { id, answer: SlotAnswer::No(no) });
            return;
        }
        self.epoch = epoch;
        let answer = match what {
            Heard::Check { ticket } => {
                if let Some(ticket) = ticket {
                    self.renew(ticket);
                }
                self.pen.try_again();
                SlotAnswer::Checked(Box::new(self.checked(now)))
            }
            Heard::Start { ticket, grant, by, dev_run, limit } => {
                match self.start(now, ticket, grant, Grant::new(id, by, dev_run, limit)) {
                    Ok(Some(answer)) => answer,
                    Ok(None) => return, // Answered once it is written down.
                    Err(no) => SlotAnswer::No(no),
                }
            }
            Heard::Step { boot, grant, number } => self.step(now, boot, grant, number, out),
            Heard::Stop { grant, cause } => {
                if self.grants.contains_key(&grant) {
                    self.stop(now, grant, cause, out);
                } else {
                    self.burn(grant);
                }
                self.tell(now, grant)
            }
            Heard::Tell { grant } => self.tell(now, grant),
            Heard::Output { grant, from, most } => match self.grants.get(&grant).and_then(|grant| grant.dev_run) {
                Some(dev_run) => {
                    out.push(SlotEffect::AnswerOutput { id, dev_run, from, most });
                    return;
                }
                None => SlotAnswer::No(SlotNo::Unknown { grant }),
            },
            Heard::Ack { grant } => match self.grants.get(&grant) {
                Some(Grant { phase: Phase::Over { .. }, .. }) => {
                    self.forget(grant, out);
                    SlotAnswer::Forgotten
                }
                Some(_) => self.tell(now, grant),
                None => SlotAnswer::Forgotten,
            },
        };
        out.push(SlotEffect::Answer { id, answer });
    }

    fn checked(&mut self, now: Moment) -> Checked {
        let number = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.push_back((number, now));
        if self.tickets.len() > limits::TICKETS_KEPT {
            self.tickets.pop_front();
        }
        let unable = self.unable();
        Checked {
            ticket: Ticket { boot: self.boot, number },
            serves: self.serves,
            highest: self.highest,
            facts: self.facts.clone(),
            unable,
            faults: self.faults,
            grants: self.grants.iter().map(|(number, grant)| self.standing(now, *number, grant)).collect(),
        }
    }

    fn unable(&self) -> Option<String> {
        let harness = self.facts.is_none().then(|| "its harness is away".to_owned());
        harness.or_else(|| self.out_of_service.clone()).or_else(|| self.pen.fault())
    }

    /// Accepts work once; `None` where that is to be written down first.
    fn start(&mut self, now: Moment, ticket: Ticket, number: u64, grant: Grant) -> Result<Option<SlotAnswer>, SlotNo> {
        let id = grant.first_asked();
        if let Some(known) = self.grants.get_mut(&number) {
            // Known: its state is told, and nothing is begun again.
            if let (Phase::Accepting { asked, .. }, Some(id)) = (&mut known.phase, id) {
                asked.push(id);
                return Ok(None);
            }
            self.renew(ticket);
            return Ok(Some(self.tell(now, number)));
        }
        if number <= self.highest {
            return Ok(Some(self.tell(now, number)));
        }
        if let Err(no) = self.may_start(now, ticket) {
            self.burn(number);
            return Err(no);
        }
        self.renew(ticket);
        self.highest = number;
        self.pen.add(JournalLine::Accepted { grant: number, dev_run: grant.dev_run });
        self.grants.insert(number, grant);
        Ok(None)
    }

    fn may_start(&self, now: Moment, ticket: Ticket) -> Result<(), SlotNo> {
        if ticket.boot != self.boot {
            return Err(SlotNo::Rebooted);
        }
        if self.given(ticket).is_none_or(|given| given + limits::TICKET_GOOD < now) {
            return Err(SlotNo::Late);
        }
        if let Some(grant) = self.live() {
            return Err(SlotNo::Busy { grant });
        }
        match self.unable() {
            Some(why) => Err(SlotNo::NotAble { why }),
            None => Ok(()),
        }
    }

    fn step(&mut self, now: Moment, boot: Uuid, grant: u64, number: u32, out: &mut Vec<SlotEffect>) -> SlotAnswer {
        if boot != self.boot {
            return SlotAnswer::No(SlotNo::Rebooted);
        }
        let may = self.judge_may(grant);
        let Some(known) = self.grants.get_mut(&grant) else { return self.tell(now, grant) };
        let (newest, is_reported) = known.step.as_ref().map_or((0, true), |step| (step.number, step.report.is_some()));
        if may && is_reported && number == newest + 1 {
            known.step = Some(StepStanding { number, report: None });
            out.push(SlotEffect::Step { grant, number });
        }
        self.tell(now, grant)
    }

    fn reported(&mut self, grant: u64, number: u32, report: Document, out: &mut Vec<SlotEffect>) {
        // What a step says that was stopped with its grant is nobody's failure: the grant's end is told (rules B9, D5).
        if !self.judge_may(grant) {
            return;
        }
        if let Some(step) = self.grants.get_mut(&grant).and_then(|known| known.step.as_mut())
            && step.number == number
        {
            step.report = Some(report);
            out.push(SlotEffect::Hint);
        }
    }

    /// Begins the stop of a grant; a stop under way keeps its first cause.
    fn stop(&mut self, now: Moment, number: u64, cause: StopCause, out: &mut Vec<SlotEffect>) {
        let Some(grant) = self.grants.get_mut(&number) else { return };
        match &mut grant.phase {
            Phase::Accepting { stop, .. } => {
                stop.get_or_insert(cause);
            }
            // The device has not been given it yet, and burns the number.
            Phase::Preparing { .. } | Phase::OnDevice { .. } => {
                self.tell_device(now, DeviceInput::Stop { number, cause }, out);
            }
            Phase::Lost | Phase::Ending { .. } | Phase::Over { .. } => {}
        }
    }

    fn prepared(&mut self, now: Moment, number: u64, out: &mut Vec<SlotEffect>) {
        let Some(grant) = self.grants.get_mut(&number) else { return };
        if let Phase::Preparing { .. } = grant.phase {
            grant.phase = Phase::OnDevice { started: None };
            let (by, limit) = (grant.by, grant.limit);
            self.tell_device(now, DeviceInput::Start { number, by, limit }, out);
        }
    }

    fn durable(&mut self, now: Moment, line: JournalLine, out: &mut Vec<SlotEffect>) {
        match line {
            JournalLine::Accepted { grant, .. } => self.accepted(now, grant, out),
            JournalLine::Ended { grant, .. } => self.over(now, grant, out),
            JournalLine::Burnt { .. } | JournalLine::Forgotten { .. } => {}
        }
    }

    fn not_durable(&mut self, now: Moment, line: JournalLine, why: &str, out: &mut Vec<SlotEffect>) {
        match line {
            JournalLine::Accepted { grant, .. } => {
                let Some(Grant { phase: Phase::Accepting { asked, .. }, .. }) = self.grants.remove(&grant) else {
                    return;
                };
                // Nothing was begun, and the number stays used up.
                for id in asked {
                    let no = SlotNo::NotAble { why: why.to_owned() };
                    out.push(SlotEffect::Answer { id, answer: SlotAnswer::No(no) });
                }
            }
            // An end is told whether or not it is written down: else a full disk would keep the work from being over. What
            // the core has of it by then stands, also where a restart makes "lost" of it here.
            JournalLine::Ended { grant, .. } => self.over(now, grant, out),
            JournalLine::Burnt { .. } | JournalLine::Forgotten { .. } => {}
        }
    }

    fn accepted(&mut self, now: Moment, number: u64, out: &mut Vec<SlotEffect>) {
        let until = now + limits::RUNNER_PREPARE_MAX;
        let Some(grant) = self.grants.get_mut(&number) else { return };
        let (by, limit) = (grant.by, grant.limit);
        let phase = match by {
            Holder::Lane(_) => Phase::Preparing { until },
            Holder::Judge => Phase::OnDevice { started: None },
        };
        let Phase::Accepting { asked, stop } = std::mem::replace(&mut grant.phase, phase) else { return };
        match (stop, by) {
            (Some(cause), _) => self.tell_device(now, DeviceInput::Stop { number, cause }, out),
            (None, Holder::Lane(_)) => out.push(SlotEffect::Prepare { grant: number }),
            (None, Holder::Judge) => self.tell_device(now, DeviceInput::Start { number, by, limit }, out),
        }
        for id in asked {
            let answer = self.tell(now, number);
            out.push(SlotEffect::Answer { id, answer });
        }
    }

    fn over(&mut self, now: Moment, number: u64, out: &mut Vec<SlotEffect>) {
        let Some(grant) = self.grants.get_mut(&number) else { return };
        let Phase::Ending { end } = &grant.phase else { return };
        grant.phase = Phase::Over { end: end.clone(), since: now };
        let dev_run = grant.dev_run;
        out.push(SlotEffect::Over { grant: number, dev_run });
        out.push(SlotEffect::Hint);
        if self.grants.len() > limits::RUNNER_ENDED_MAX
            && let Some((&oldest, _)) = self.grants.iter().find(|(_, grant)| matches!(grant.phase, Phase::Over { .. }))
        {
            self.forget(oldest, out);
        }
    }

    fn end(&mut self, number: u64, end: HoldEnd) {
        if let Some(grant) = self.grants.get_mut(&number) {
            self.pen.add(JournalLine::Ended { grant: number, end: end.clone() });
            grant.phase = Phase::Ending { end };
        }
    }

    fn forget(&mut self, number: u64, out: &mut Vec<SlotEffect>) {
        if let Some(grant) = self.grants.remove(&number) {
            self.pen.add(JournalLine::Forgotten { grant: number });
            out.push(SlotEffect::Forget { grant: number, dev_run: grant.dev_run });
        }
    }

    /// Uses a number up without its work ever being begun.
    fn burn(&mut self, number: u64) {
        if number > self.highest {
            self.highest = number;
            self.pen.add(JournalLine::Burnt { grant: number });
        }
    }

    fn tell_device(&mut self, now: Moment, input: DeviceInput, out: &mut Vec<SlotEffect>) {
        let effects = self.device.handle(now, input);
        self.device_did(now, effects, out);
    }

    fn device_did(&mut self, now: Moment, effects: Vec<DeviceEffect>, out: &mut Vec<SlotEffect>) {
        for effect in effects {
            match effect {
                DeviceEffect::Tell(MemberEvent::Ready { .. }) => {
                    self.out_of_service = None;
                    self.end_lost(&HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::Restarted }));
                }
                DeviceEffect::Tell(MemberEvent::Gone { why }) => {
                    self.out_of_service = Some(why.clone());
                    self.end_lost(&HoldEnd::NotProved { why });
                }
                DeviceEffect::Tell(MemberEvent::Started { number }) => {
                    if let Some(Grant { phase: Phase::OnDevice { started }, by, .. }) = self.grants.get_mut(&number) {
                        *started = Some(now);
                        match by {
                            Holder::Lane(_) => out.push(SlotEffect::Hint),
                            Holder::Judge => {}
                        }
                    }
                }
                DeviceEffect::Tell(MemberEvent::Freed { number, how }) => self.end(number, how),
                DeviceEffect::Distrust => self.faults = self.faults.saturating_add(1),
                // The judge's steps come by their numbers.
                DeviceEffect::StageOpen { .. } => {}
                effect @ (DeviceEffect::Sweep
                | DeviceEffect::StartDevRun { .. }
                | DeviceEffect::StopProcesses { .. }
                | DeviceEffect::Look) => out.push(SlotEffect::Device(effect)),
            }
        }
    }

    /// What an earlier start of the process had accepted is over, as the sweep says.
    fn end_lost(&mut self, end: &HoldEnd) {
        let lost: Vec<u64> =
            self.grants.iter().filter(|(_, grant)| grant.phase == Phase::Lost).map(|(number, _)| *number).collect();
        for number in lost {
            self.end(number, end.clone());
        }
    }

    fn tell(&self, now: Moment, number: u64) -> SlotAnswer {
        match self.grants.get(&number) {
            Some(grant) => SlotAnswer::Stands(Box::new(self.standing(now, number, grant))),
            None if number <= self.highest => {
                let at = Progress::Over { end: HoldEnd::NotStarted };
                SlotAnswer::Stands(Box::new(Standing { grant: number, dev_run: None, at, step: None }))
            }
            None => SlotAnswer::No(SlotNo::Unknown { grant: number }),
        }
    }

    fn standing(&self, now: Moment, number: u64, grant: &Grant) -> Standing {
        let stopping = matches!(self.device.state(), DeviceState::Stopping { number: held, .. } if *held == number);
        let at = match &grant.phase {
            Phase::Accepting { .. } | Phase::Preparing { .. } => Progress::Accepted,
            Phase::OnDevice { .. } if stopping => Progress::Stopping,
            Phase::OnDevice { started: Some(started) } => Progress::Running { since_start: now.since(*started) },
            Phase::OnDevice { started: None } => Progress::Accepted,
            Phase::Lost | Phase::Ending { .. } => Progress::Stopping,
            Phase::Over { end, .. } => Progress::Over { end: end.clone() },
        };
        Standing { grant: number, dev_run: grant.dev_run, at, step: grant.step.clone() }
    }

    fn given(&self, ticket: Ticket) -> Option<Moment> {
        let of_this_boot = ticket.boot == self.boot;
        self.tickets.iter().find(|(number, _)| of_this_boot && *number == ticket.number).map(|(_, given)| *given)
    }

    /// Counts the lease from that ticket's issue, unless a newer one was heard: a check that was long under way renews
    /// nothing.
    fn renew(&mut self, ticket: Ticket) {
        self.renewed = self.renewed.max(self.given(ticket));
    }

    /// The grant that is not over, where there is one.
    fn live(&self) -> Option<u64> {
        self.grants.iter().find(|(_, grant)| !matches!(grant.phase, Phase::Over { .. })).map(|(number, _)| *number)
    }

    /// When the runner begins its own stop of what it works on.
    fn lease_ends(&self) -> Option<(u64, Moment)> {
        let (number, _) = self.grants.iter().find(|(number, grant)| match &grant.phase {
            Phase::Accepting { stop, .. } => stop.is_none(),
            Phase::Preparing { .. } => true,
            Phase::OnDevice { .. } => {
                matches!(self.device.state(), DeviceState::Held { number: held, .. } if held == *number)
            }
            Phase::Lost | Phase::Ending { .. } | Phase::Over { .. } => false,
        })?;
        Some((*number, self.renewed? + limits::LEASE_STOP_AT))
    }

    fn preparing(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.grants.iter().filter_map(|(number, grant)| {
            let Phase::Preparing { until } = grant.phase else { return None };
            Some((*number, until))
        })
    }

    fn kept(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.grants.iter().filter_map(|(number, grant)| {
            let Phase::Over { since, .. } = grant.phase else { return None };
            Some((*number, since + limits::RUNNER_ENDED_KEPT))
        })
    }

    fn write(&mut self, out: &mut Vec<SlotEffect>) {
        if self.pen.is_long() {
            let lines = self.lines();
            out.push(SlotEffect::WriteAnew { lines: self.pen.anew(lines) });
        } else if let Some(lines) = self.pen.next() {
            out.push(SlotEffect::Write { lines });
        }
    }

    /// The journal as it would be with nothing in it that no longer counts.
    fn lines(&self) -> Vec<JournalLine> {
        let mut lines = vec![JournalLine::Burnt { grant: self.highest }];
        for (number, grant) in &self.grants {
            lines.push(JournalLine::Accepted { grant: *number, dev_run: grant.dev_run });
            if let Phase::Over { end, .. } | Phase::Ending { end } = &grant.phase {
                lines.push(JournalLine::Ended { grant: *number, end: end.clone() });
            }
        }
        lines
    }
}

impl Grant {
    fn new(id: u64, by: Holder, dev_run: Option<DevRunId>, limit: Option<Span>) -> Grant {
        Grant { by, dev_run, limit, phase: Phase::Accepting { asked: vec![id], stop: None }, step: None }
    }

    fn first_asked(&self) -> Option<u64> {
        let Phase::Accepting { asked, .. } = &self.phase else { return None };
        asked.first().copied()
    }
}

/// What a journal says: the highest number used, and what is not forgotten.
fn read(now: Moment, lines: &[JournalLine]) -> (u64, BTreeMap<u64, Grant>) {
    let mut highest = 0;
    let mut grants = BTreeMap::new();
    for line in lines {
        match line {
            JournalLine::Accepted { grant, dev_run } => {
                highest = highest.max(*grant);
                // Whose it was matters only to what is begun, and this is not begun again.
                let lost = Grant { by: Holder::Judge, dev_run: *dev_run, limit: None, phase: Phase::Lost, step: None };
                grants.insert(*grant, lost);
            }
            JournalLine::Ended { grant, end } => {
                if let Some(known) = grants.get_mut(grant) {
                    known.phase = Phase::Over { end: end.clone(), since: now };
                }
            }
            JournalLine::Burnt { grant } => highest = highest.max(*grant),
            JournalLine::Forgotten { grant } => {
                grants.remove(grant);
            }
        }
    }
    (highest, grants)
}

const LOOKS_FOR_LEFTOVERS: &str = "it is ending what earlier runs left behind";
