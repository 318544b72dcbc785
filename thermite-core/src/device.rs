//! One local device: who holds it, the stop and its proof, its hold number (rules A1, A5, A7, A10).
//!
//! The machine says what the executor must do and tells the pool what became true; it is free only after the kernel
//! itself said that nothing is left.

use serde::{Deserialize, Serialize};

use crate::hold::{HoldEnd, StopCause};
use crate::ids::{HoldId, Holder, MemberId};
use crate::limits;
use crate::time::{Moment, Span};

/// A device as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceState {
    /// What earlier holds left behind is being found and ended; nothing is granted.
    Sweeping {
        /// When the sweep must be proved.
        until: Moment,
    },
    /// Free and proved empty.
    Ready,
    /// Someone works on it.
    Held {
        /// Under which number.
        number: u64,
        /// Who.
        by: Holder,
        /// How far it is.
        work: Work,
    },
    /// Its holder's processes are being ended; not free before the proof.
    Stopping {
        /// Under which number.
        number: u64,
        /// The first cause.
        cause: StopCause,
        /// When the proof must be there.
        until: Moment,
    },
    /// Out of service.
    Out {
        /// Why.
        why: String,
        /// When it is tried again.
        next_try: Moment,
    },
    /// Out of service until somebody has looked.
    Quarantined {
        /// Why.
        why: String,
    },
}

/// How far the work under a hold is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// A development run is being prepared and started.
    Starting {
        /// When preparing must be done.
        until: Moment,
        /// How long it may hold the device from its start.
        limit: Option<Span>,
    },
    /// A development run runs.
    Running {
        /// Since its start (exec).
        since: Moment,
        /// Its limit.
        limit: Option<Span>,
    },
    /// The judge works, step by step.
    Judging,
}

/// What a device takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceInput {
    /// Start work under a fresh hold.
    Start {
        /// The hold's number.
        number: u64,
        /// Who works.
        by: Holder,
        /// How long a development run may hold the device.
        limit: Option<Span>,
    },
    /// Stop the work under a hold; valid for one whose start is still to come.
    Stop {
        /// The hold's number.
        number: u64,
        /// Why.
        cause: StopCause,
    },
    /// Pool's backstop: burn the number, or say that it has started.
    Void {
        /// The hold's number.
        number: u64,
    },
    /// The executor has started the development run (exec).
    Started {
        /// The hold's number.
        number: u64,
    },
    /// The executor could not start it; what was begun is still to be proved gone.
    StartFailed {
        /// The hold's number.
        number: u64,
        /// The cause.
        why: String,
    },
    /// The first process of the development run has ended.
    Exited {
        /// The hold's number.
        number: u64,
        /// How.
        exit: crate::dev_run::Exit,
    },
    /// The kernel says that nothing of the hold is left.
    Emptied {
        /// The hold's number.
        number: u64,
    },
    /// The executor gave up proving it.
    NotProved {
        /// The hold's number.
        number: u64,
        /// Pids and what is known of them.
        why: String,
    },
    /// The sweep is proved.
    Swept,
    /// The sweep could not be proved.
    SweepFailed {
        /// Pids and what is known of them.
        why: String,
    },
    /// The device itself is at fault: once what has it is over it is out of service, and it comes back by itself (rule
    /// B10).
    AtFault {
        /// The fault in words.
        why: String,
    },
    /// What was done under the hold failed by what may be the device's own fault: the hold's end is no proof that it is
    /// good.
    Doubted {
        /// The hold's number.
        number: u64,
    },
    /// Take it out of service, once what has it is over, until [`DeviceInput::Readmit`].
    Quarantine {
        /// Why.
        why: String,
    },
    /// Somebody has looked: it comes back once it is swept.
    Readmit,
    /// What a look at a card that is to come back found.
    Looked {
        /// What is wrong with it, where something is.
        fault: Option<String>,
        /// What keeps it from being quiet, where something does: it does not come back before.
        busy: Option<String>,
    },
}

/// What a device wants done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeviceEffect {
    /// Find and end what earlier holds left behind.
    Sweep,
    /// Prepare and start the hold's development run.
    StartDevRun {
        /// The hold's number.
        number: u64,
    },
    /// The judge may ask for steps under this hold.
    StageOpen {
        /// The hold's number.
        number: u64,
    },
    /// End everything of the hold.
    StopProcesses {
        /// The hold's number.
        number: u64,
        /// Whether SIGTERM and grace come first.
        gently: bool,
    },
    /// Look at the card, and say what was found.
    Look,
    /// The card was at fault: what is known of its noise is not to be used any more.
    Distrust,
    /// Tell the pool.
    Tell(MemberEvent),
}

/// What a member of a pool says to it; a device's and a runner's words are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberEvent {
    /// It can take work; its next hold is `last + 1`.
    Ready {
        /// The last number used or burnt.
        last: u64,
    },
    /// It cannot take work.
    Gone {
        /// Why.
        why: String,
    },
    /// The hold's work has started.
    Started {
        /// The hold's number.
        number: u64,
    },
    /// The hold is over.
    Freed {
        /// The hold's number.
        number: u64,
        /// How it ended.
        how: HoldEnd,
    },
}

/// One local device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    member: MemberId,
    last: u64,
    state: DeviceState,
    /// Why it does not go into service when it comes free.
    quarantine: Option<String>,
    /// A fault of the card that takes it out of service when it comes free.
    fault: Option<String>,
    /// How often it went out of service with no good hold in between.
    faults: u32,
    /// Whether what has it failed by what may be its own fault.
    #[serde(default)]
    doubted: bool,
    kind: Kind,
    /// Things said under an old number, refused and counted (rule A1).
    refused: u64,
}

/// What kind of device it is, as far as its way back goes (rule B10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Kind {
    /// One that is good once nothing is left on it: a machine's CPUs.
    Plain,
    /// A card, which can be at fault itself: it is looked at before it comes back.
    Card,
}

/// A device as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum DeviceView {
    /// Leftovers are being looked for.
    Sweeping,
    /// Free.
    Ready,
    /// Held.
    Held {
        /// Under which hold.
        hold: HoldId,
        /// By whom.
        by: Holder,
        /// Since when the development run runs; none before its start and for the judge.
        running_since: Option<Moment>,
        /// When it is ended at the latest, where it has a limit.
        limit_at: Option<Moment>,
    },
    /// The holder's processes are being ended.
    Stopping {
        /// Under which hold.
        hold: HoldId,
        /// Why.
        cause: StopCause,
        /// Since when.
        since: Moment,
        /// When it is proved, or the device is out of service.
        until: Moment,
    },
    /// Out of service.
    Out {
        /// Why.
        why: String,
        /// When it is tried again.
        next_try: Moment,
    },
    /// Out of service until somebody has looked.
    Quarantined {
        /// Why.
        why: String,
    },
}

impl Device {
    /// A device after a start of the rig: unknown until its leftovers are swept and proved gone.
    ///
    /// `last` is the highest hold number that the records know.
    pub fn new(now: Moment, member: MemberId, last: u64) -> (Device, Vec<DeviceEffect>) {
        let state = DeviceState::Sweeping { until: now + limits::PROOF_MAX };
        let device = Device {
            member,
            last,
            state,
            quarantine: None,
            fault: None,
            faults: 0,
            doubted: false,
            kind: Kind::Plain,
            refused: 0,
        };
        (device, vec![DeviceEffect::Sweep])
    }

    /// The same as a card: it is looked at before it comes into service (rule B10).
    #[must_use]
    pub fn as_card(self) -> Device {
        Device { kind: Kind::Card, ..self }
    }

    /// How often it went out of service with no good hold in between.
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Which device it is.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Its state.
    pub fn state(&self) -> &DeviceState {
        &self.state
    }

    /// How many things said under an old number were refused (rule A1).
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The last number used or burnt.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the judge may have a step done under this hold: only while it is live and the judge's.
    pub fn judge_may(&self, hold: HoldId) -> bool {
        matches!(&self.state, DeviceState::Held { number, by: Holder::Judge, work: Work::Judging }
            if hold.member == self.member && hold.number == *number)
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: DeviceInput) -> Vec<DeviceEffect> {
        let mut out = Vec::new();
        match input {
            DeviceInput::Start { number, by, limit } => self.start(now, number, by, limit, &mut out),
            DeviceInput::Stop { number, cause } => self.stop(now, number, cause, &mut out),
            DeviceInput::Void { number } => self.void(number, &mut out),
            DeviceInput::Started { number } => self.started(now, number, &mut out),
            DeviceInput::StartFailed { number, why } => {
                self.end_work(now, number, StopCause::StartFailed { why }, &mut out);
            }
            DeviceInput::Exited { number, exit } => {
                let ran = match &self.state {
                    DeviceState::Held { number: held, work: Work::Running { since, .. }, .. } if *held == number => {
                        now.since(*since)
                    }
                    _ => Span::ZERO,
                };
                self.end_work(now, number, StopCause::Exited { exit, ran }, &mut out);
            }
            DeviceInput::Emptied { number } => match &self.state {
                DeviceState::Stopping { number: stopping, cause, .. } if *stopping == number => {
                    if let StopCause::StartFailed { .. } = cause {
                        self.doubted = true;
                    }
                    let over = freed(number, HoldEnd::Stopped(cause.clone()));
                    self.come_free(now, &mut out);
                    out.push(over);
                }
                _ => self.refused += 1,
            },
            DeviceInput::NotProved { number, why } => match self.state {
                DeviceState::Stopping { number: stopping, .. } if stopping == number => {
                    self.take_out(now, Some(number), why, &mut out);
                }
                _ => self.refused += 1,
            },
            DeviceInput::Swept => {
                if let DeviceState::Sweeping { .. } = self.state {
                    match self.kind {
                        Kind::Plain => self.come_back(&mut out),
                        Kind::Card => {
                            self.state = DeviceState::Sweeping { until: now + limits::PROOF_MAX };
                            out.push(DeviceEffect::Look);
                        }
                    }
                }
            }
            DeviceInput::SweepFailed { why } => {
                if let DeviceState::Sweeping { .. } = self.state {
                    self.take_out(now, None, why, &mut out);
                }
            }
            DeviceInput::AtFault { why } => self.at_fault(now, why, &mut out),
            DeviceInput::Doubted { number } => match self.state {
                DeviceState::Held { number: held, .. } | DeviceState::Stopping { number: held, .. }
                    if held == number =>
                {
                    self.doubted = true;
                }
                _ => self.refused += 1,
            },
            DeviceInput::Quarantine { why } => {
                self.quarantine = Some(why);
                if self.state == DeviceState::Ready {
                    self.come_free(now, &mut out);
                }
            }
            DeviceInput::Looked { fault, busy } => self.looked(now, fault, busy, &mut out),
            DeviceInput::Readmit => {
                self.quarantine = None;
                if let DeviceState::Quarantined { .. } = self.state {
                    self.state = DeviceState::Sweeping { until: now + limits::PROOF_MAX };
                    out.push(DeviceEffect::Sweep);
                }
            }
        }
        out
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<DeviceEffect> {
        let mut out = Vec::new();
        if self.next_deadline().is_none_or(|(due, _)| due > now) {
            return out;
        }
        // What a deadline begins counts from `now`, not from when it was due: after a suspend a stop that has only
        // just been asked for must not be late already (rule A11).
        match self.state.clone() {
            DeviceState::Sweeping { .. } => {
                let why = "what earlier runs left behind could not be proved gone in time".to_owned();
                self.take_out(now, None, why, &mut out);
            }
            DeviceState::Held { number, work: Work::Running { limit: Some(limit), .. }, .. } => {
                self.end_work(now, number, StopCause::LimitReached { limit }, &mut out);
            }
            DeviceState::Held { number, work: Work::Starting { .. }, .. } => {
                let why = format!("it was not prepared within {}", limits::DEV_RUN_PREPARE_MAX);
                self.end_work(now, number, StopCause::StartFailed { why }, &mut out);
            }
            DeviceState::Stopping { number, .. } => {
                let why = format!("the stop of hold {number} was not proved within {}", limits::PROOF_MAX);
                self.take_out(now, Some(number), why, &mut out);
            }
            DeviceState::Out { .. } => {
                self.state = DeviceState::Sweeping { until: now + limits::PROOF_MAX };
                out.push(DeviceEffect::Sweep);
            }
            DeviceState::Ready | DeviceState::Held { .. } | DeviceState::Quarantined { .. } => {}
        }
        out
    }

    /// The next moment at which [`Device::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        match &self.state {
            DeviceState::Sweeping { until } => Some((*until, "sweep proved")),
            DeviceState::Held { work: Work::Starting { until, .. }, .. } => Some((*until, "development run prepared")),
            DeviceState::Held { work: Work::Running { since, limit: Some(limit) }, .. } => {
                Some((*since + *limit, "development run's limit"))
            }
            DeviceState::Stopping { until, .. } => Some((*until, "stop proved")),
            DeviceState::Out { next_try, .. } => Some((*next_try, "device tried again")),
            DeviceState::Ready | DeviceState::Held { .. } | DeviceState::Quarantined { .. } => None,
        }
    }

    /// The device as people see it.
    pub fn view(&self) -> DeviceView {
        let hold = |number: u64| HoldId { member: self.member, number };
        match &self.state {
            DeviceState::Sweeping { .. } => DeviceView::Sweeping,
            DeviceState::Ready => DeviceView::Ready,
            DeviceState::Held { number, by, work } => {
                let (running_since, limit_at) = match work {
                    Work::Running { since, limit } => (Some(*since), limit.map(|limit| *since + limit)),
                    Work::Starting { .. } | Work::Judging => (None, None),
                };
                DeviceView::Held { hold: hold(*number), by: *by, running_since, limit_at }
            }
            DeviceState::Stopping { number, cause, until } => {
                let since = *until - limits::PROOF_MAX;
                DeviceView::Stopping { hold: hold(*number), cause: cause.clone(), since, until: *until }
            }
            DeviceState::Out { why, next_try } => DeviceView::Out { why: why.clone(), next_try: *next_try },
            DeviceState::Quarantined { why } => DeviceView::Quarantined { why: why.clone() },
        }
    }

    /// Tells all times from `origin` and all numbers from `lowest`, and forgets how often it refused: keeps
    /// exhaustive checking finite.
    pub fn rebase(&mut self, origin: Moment, lowest: u64) {
        self.last -= lowest;
        self.refused = 0;
        match &mut self.state {
            DeviceState::Sweeping { until } => *until = until.rebase(origin),
            DeviceState::Held { number, work, .. } => {
                *number -= lowest;
                match work {
                    Work::Starting { until, .. } => *until = until.rebase(origin),
                    Work::Running { since, .. } => *since = since.rebase(origin),
                    Work::Judging => {}
                }
            }
            DeviceState::Stopping { number, until, .. } => {
                *number -= lowest;
                *until = until.rebase(origin);
            }
            DeviceState::Out { next_try, .. } => *next_try = next_try.rebase(origin),
            DeviceState::Ready | DeviceState::Quarantined { .. } => {}
        }
    }

    /// Nothing is left on it: it is free, unless it is to be out of service. `Gone` comes before `Freed`, so that nobody
    /// is granted the device between the two.
    fn come_free(&mut self, now: Moment, out: &mut Vec<DeviceEffect>) {
        match (self.quarantine.clone(), self.fault.take()) {
            (Some(why), _) => {
                out.push(DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() }));
                self.state = DeviceState::Quarantined { why };
            }
            (None, Some(why)) => {
                self.take_out(now, None, why, out);
            }
            (None, None) => {
                // What held it has come to a good end: the card is good again.
                if !self.doubted {
                    self.faults = 0;
                }
                self.doubted = false;
                self.state = DeviceState::Ready;
            }
        }
    }

    /// It is swept, and goes into service.
    fn come_back(&mut self, out: &mut Vec<DeviceEffect>) {
        match self.quarantine.clone() {
            Some(why) => {
                out.push(DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() }));
                self.state = DeviceState::Quarantined { why };
            }
            None => {
                self.fault = None;
                self.state = DeviceState::Ready;
                out.push(DeviceEffect::Tell(MemberEvent::Ready { last: self.last }));
            }
        }
    }

    fn at_fault(&mut self, now: Moment, why: String, out: &mut Vec<DeviceEffect>) {
        match self.state {
            DeviceState::Ready => {
                self.fault = Some(why);
                self.come_free(now, out);
            }
            DeviceState::Sweeping { .. } | DeviceState::Held { .. } | DeviceState::Stopping { .. } => {
                self.fault.get_or_insert(why);
            }
            // It is out of service already, and is looked at before it comes back.
            DeviceState::Out { .. } | DeviceState::Quarantined { .. } => {}
        }
    }

    fn looked(&mut self, now: Moment, fault: Option<String>, busy: Option<String>, out: &mut Vec<DeviceEffect>) {
        // A look that took longer than the way back may take is about an earlier one.
        if !matches!(self.state, DeviceState::Sweeping { .. }) {
            return;
        }
        // A card that comes back after a fault must be quiet as well; at the start of the rig whoever is there is waited
        // for before each block.
        let busy = busy.filter(|_| self.faults > 0).map(|signals| format!("it is not quiet: {signals}"));
        match fault.or(busy) {
            Some(why) => self.take_out(now, None, why, out),
            None => self.come_back(out),
        }
    }

    fn start(&mut self, now: Moment, number: u64, by: Holder, limit: Option<Span>, out: &mut Vec<DeviceEffect>) {
        if number <= self.last {
            self.refused += 1;
            return;
        }
        // The number is used up whether or not the work can start (rule A1).
        self.last = number;
        if self.state != DeviceState::Ready {
            out.push(freed(number, HoldEnd::NotStarted));
            return;
        }
        let work = match by {
            Holder::Judge => {
                out.push(DeviceEffect::Tell(MemberEvent::Started { number }));
                out.push(DeviceEffect::StageOpen { number });
                Work::Judging
            }
            Holder::Lane(_) => {
                out.push(DeviceEffect::StartDevRun { number });
                Work::Starting { until: now + limits::DEV_RUN_PREPARE_MAX, limit }
            }
        };
        self.state = DeviceState::Held { number, by, work };
    }

    fn stop(&mut self, now: Moment, number: u64, cause: StopCause, out: &mut Vec<DeviceEffect>) {
        if number > self.last {
            // A stop may overtake its start: the number is burnt, so that the start is refused.
            self.last = number;
            out.push(freed(number, HoldEnd::Stopped(cause)));
            return;
        }
        self.end_work(now, number, cause, out);
    }

    fn void(&mut self, number: u64, out: &mut Vec<DeviceEffect>) {
        if number > self.last {
            self.last = number;
            out.push(freed(number, HoldEnd::NotStarted));
            return;
        }
        match &self.state {
            DeviceState::Held { number: held, .. } | DeviceState::Stopping { number: held, .. } if *held == number => {
                out.push(DeviceEffect::Tell(MemberEvent::Started { number }));
            }
            _ => self.refused += 1,
        }
    }

    fn started(&mut self, now: Moment, number: u64, out: &mut Vec<DeviceEffect>) {
        match &mut self.state {
            DeviceState::Held { number: held, work, .. } if *held == number => {
                if let Work::Starting { limit, .. } = *work {
                    *work = Work::Running { since: now, limit };
                    out.push(DeviceEffect::Tell(MemberEvent::Started { number }));
                }
            }
            // It is being stopped already: its start changes nothing.
            DeviceState::Stopping { number: held, .. } if *held == number => {}
            _ => self.refused += 1,
        }
    }

    /// Begins the stop of a hold; a stop under way keeps its first cause.
    fn end_work(&mut self, now: Moment, number: u64, cause: StopCause, out: &mut Vec<DeviceEffect>) {
        match self.state {
            DeviceState::Held { number: held, .. } if held == number => {
                let gently = match cause {
                    StopCause::Cancelled
                    | StopCause::LimitReached { .. }
                    | StopCause::RigEnding
                    | StopCause::NewSplit
                    | StopCause::RunnerLost { .. }
                    | StopCause::RunEnded
                    | StopCause::WaitedTooLong => true,
                    StopCause::StageOver | StopCause::Exited { .. } | StopCause::StartFailed { .. } => false,
                };
                self.state = DeviceState::Stopping { number, cause, until: now + limits::PROOF_MAX };
                out.push(DeviceEffect::StopProcesses { number, gently });
            }
            DeviceState::Stopping { number: held, .. } if held == number => {}
            _ => self.refused += 1,
        }
    }

    fn take_out(&mut self, now: Moment, hold: Option<u64>, why: String, out: &mut Vec<DeviceEffect>) {
        let rest = match self.kind {
            Kind::Plain => limits::REQUALIFY_AFTER,
            Kind::Card => {
                out.push(DeviceEffect::Distrust);
                // Each time with no good hold in between a card rests twice as long as the time before.
                let rest = Span::millis(limits::REQUALIFY_AFTER.as_millis() << self.faults.min(5));
                self.faults = self.faults.saturating_add(1);
                rest.min(limits::REQUALIFY_MOST)
            }
        };
        self.fault = None;
        self.doubted = false;
        let next_try = now + rest;
        self.state = DeviceState::Out { why: why.clone(), next_try };
        // `Gone` comes first, so that nobody is granted the device between the two.
        out.push(DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() }));
        if let Some(number) = hold {
            out.push(freed(number, HoldEnd::NotProved { why }));
        }
    }
}

fn freed(number: u64, how: HoldEnd) -> DeviceEffect {
    DeviceEffect::Tell(MemberEvent::Freed { number, how })
}
