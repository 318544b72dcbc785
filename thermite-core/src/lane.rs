//! One lane: one development run at a time, from the asking to its recorded end (rules A4, A6, A10).

use serde::{Deserialize, Serialize};

use crate::dev_run::DevRunEnd;
use crate::hold::{HoldEnd, StopCause};
use crate::ids::{Arrival, DevRunId, HoldId, LaneId, RunId};
use crate::limits;
use crate::refusal::{GaveUp, Refusal};
use crate::time::{Moment, Span};

/// Whether a caller's stream is attached to the run (rule A10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// Nobody needs to stay: the caller detached explicitly.
    Detached,
    /// A stream is open.
    Attached,
    /// The stream dropped; the run is cancelled when this moment comes.
    GoneUntil(Moment),
}

/// What a lane is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// The development run.
    pub dev_run: DevRunId,
    /// The run it belongs to.
    pub run: RunId,
    /// Its place in the order of all askings.
    pub arrival: Arrival,
    /// How long it may hold a device by its contract, where that says.
    pub limit: Option<Span>,
    /// Whether a caller's stream is attached.
    pub caller: Caller,
    /// Since when it waits.
    pub since: Moment,
    /// The moment no wait of it passes (rules A6, A9): fixed when it is asked for, and never put off.
    pub latest: Moment,
}

/// A lane and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LaneState {
    /// It has no development run.
    Idle,
    /// The asking is being made durable.
    Recording {
        /// What was asked.
        ask: Ask,
        /// The first cause of a stop, where one was asked for.
        stop: Option<StopCause>,
    },
    /// It has a place in the line.
    Waiting {
        /// What was asked.
        ask: Ask,
        /// The first cause of a stop, where the line was told to let it go.
        stop: Option<StopCause>,
    },
    /// It has a device; its hold is being made durable, and nothing starts before.
    Granted {
        /// What was asked.
        ask: Ask,
        /// Its hold.
        hold: HoldId,
        /// How long it may hold the device from its start.
        limit: Option<Span>,
        /// Why it is not to start, where something came up meanwhile.
        stop: Option<StopCause>,
        /// Why it gave up, where its latest moment passed meanwhile.
        gave_up: Option<GaveUp>,
    },
    /// The device has it.
    Holding {
        /// What was asked.
        ask: Ask,
        /// Its hold.
        hold: HoldId,
        /// The first cause of a stop, where one was asked for.
        stop: Option<StopCause>,
        /// Why it gave up, where its latest moment passed before the start.
        gave_up: Option<GaveUp>,
    },
    /// It is over; its end is being made durable.
    Ending {
        /// What was asked.
        ask: Ask,
        /// How it ended.
        end: DevRunEnd,
    },
}

/// What a lane takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LaneInput {
    /// The asking is durable.
    AskRecorded,
    /// The hold is durable.
    HoldRecorded {
        /// The hold.
        hold: HoldId,
    },
    /// The end is durable.
    EndRecorded,
    /// The records refused the asking.
    AskNotRecorded,
    /// The line has it, this many ahead.
    InLine {
        /// Which development run.
        dev_run: DevRunId,
        /// How many are served before it.
        ahead: u32,
    },
    /// The pool grants a device.
    Granted {
        /// For which development run.
        dev_run: DevRunId,
        /// The hold.
        hold: HoldId,
        /// How long it may hold the device from its start.
        #[serde(default)]
        limit: Option<Span>,
    },
    /// The hold was not started: its place in the line is kept.
    Requeued {
        /// The hold that was burnt.
        hold: HoldId,
    },
    /// The line let it go.
    GaveUp {
        /// Which development run.
        dev_run: DevRunId,
        /// Why.
        why: GaveUp,
    },
    /// The line let it go on its own wish.
    WaitCancelled {
        /// Which development run.
        dev_run: DevRunId,
    },
    /// The hold is over.
    HoldEnded {
        /// Which.
        hold: HoldId,
        /// How.
        how: HoldEnd,
    },
    /// Someone wants it stopped.
    Stop {
        /// Which development run.
        dev_run: DevRunId,
        /// Why.
        cause: StopCause,
    },
    /// The caller's stream dropped.
    CallerGone {
        /// Which development run.
        dev_run: DevRunId,
    },
    /// A caller's stream is open again.
    CallerBack {
        /// Which development run.
        dev_run: DevRunId,
    },
}

/// What a lane wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LaneEffect {
    /// Make the asking durable.
    RecordAsk,
    /// Make the hold durable.
    RecordHold {
        /// For which development run.
        dev_run: DevRunId,
        /// The hold.
        hold: HoldId,
    },
    /// Make the end durable.
    RecordEnd {
        /// Of which development run.
        dev_run: DevRunId,
        /// How it ended.
        end: DevRunEnd,
    },
    /// Ask the pool for a device.
    AskPool,
    /// Leave the line.
    CancelWait {
        /// Which development run.
        dev_run: DevRunId,
    },
    /// Take the granted hold.
    Claim {
        /// The hold.
        hold: HoldId,
    },
    /// Give the granted hold back unused.
    ReleaseUnused {
        /// The hold.
        hold: HoldId,
    },
    /// Start on the device.
    Start {
        /// The hold.
        hold: HoldId,
        /// How long it may hold the device.
        limit: Option<Span>,
    },
    /// Stop on the device.
    StopHold {
        /// The hold.
        hold: HoldId,
        /// Why.
        cause: StopCause,
    },
    /// Answer the asker: it has a place in the line.
    AnswerQueued {
        /// Which development run.
        dev_run: DevRunId,
        /// How many are served before it.
        ahead: u32,
    },
    /// Answer the asker: the records took too long.
    AnswerTooLate {
        /// Which development run.
        dev_run: DevRunId,
    },
    /// Answer the asker: the records cannot be written.
    AnswerNotRecorded {
        /// Which development run.
        dev_run: DevRunId,
    },
    /// Tell everyone who waits for it how it ended.
    AnswerEnd {
        /// Which development run.
        dev_run: DevRunId,
        /// How.
        end: DevRunEnd,
    },
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lane {
    lane: LaneId,
    state: LaneState,
}

impl Lane {
    /// A lane without a development run.
    pub fn new(lane: LaneId) -> Lane {
        Lane { lane, state: LaneState::Idle }
    }

    /// Which lane it is.
    pub fn id(&self) -> LaneId {
        self.lane
    }

    /// Its state.
    pub fn state(&self) -> &LaneState {
        &self.state
    }

    /// The development run under way, if any.
    pub fn under_way(&self) -> Option<DevRunId> {
        self.ask_ref().map(|ask| ask.dev_run)
    }

    /// Asks for a development run.
    ///
    /// # Errors
    /// Refused while one is under way (rule A4).
    pub fn ask(&mut self, ask: Ask) -> Result<Vec<LaneEffect>, Refusal> {
        if let Some(under_way) = self.under_way() {
            return Err(Refusal::LaneBusy { lane: self.lane, under_way });
        }
        self.state = LaneState::Recording { ask, stop: None };
        Ok(vec![LaneEffect::RecordAsk])
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: LaneInput) -> Vec<LaneEffect> {
        let mut out = Vec::new();
        match input {
            LaneInput::AskRecorded => self.ask_recorded(&mut out),
            LaneInput::AskNotRecorded => {
                if let LaneState::Recording { ask, .. } = self.state {
                    self.state = LaneState::Idle;
                    out.push(LaneEffect::AnswerNotRecorded { dev_run: ask.dev_run });
                }
            }
            LaneInput::HoldRecorded { hold } => self.hold_recorded(hold, &mut out),
            LaneInput::EndRecorded => {
                if let LaneState::Ending { ask, end } = &self.state {
                    out.push(LaneEffect::AnswerEnd { dev_run: ask.dev_run, end: end.clone() });
                    self.state = LaneState::Idle;
                }
            }
            LaneInput::InLine { dev_run, ahead } => out.push(LaneEffect::AnswerQueued { dev_run, ahead }),
            LaneInput::Granted { dev_run, hold, limit } => self.granted(dev_run, hold, limit, &mut out),
            LaneInput::Requeued { hold } => self.requeued(hold, &mut out),
            LaneInput::GaveUp { dev_run, why } => self.gave_up(dev_run, why, &mut out),
            LaneInput::WaitCancelled { dev_run } => {
                if let LaneState::Waiting { ask, stop } = &self.state
                    && ask.dev_run == dev_run
                {
                    let (ask, end) = (*ask, stopped_unstarted(stop.clone()));
                    self.end(ask, end, &mut out);
                }
            }
            LaneInput::HoldEnded { hold, how } => self.hold_ended(hold, how, &mut out),
            LaneInput::Stop { dev_run, cause } => self.stop(dev_run, cause, &mut out),
            LaneInput::CallerGone { dev_run } => {
                if let Some(ask) = self.ask_mut()
                    && ask.dev_run == dev_run
                    && ask.caller == Caller::Attached
                {
                    ask.caller = Caller::GoneUntil(now + limits::DETACHED_CALLER_MAX);
                }
            }
            LaneInput::CallerBack { dev_run } => {
                if let Some(ask) = self.ask_mut()
                    && ask.dev_run == dev_run
                    && matches!(ask.caller, Caller::GoneUntil(_))
                {
                    ask.caller = Caller::Attached;
                }
            }
        }
        out
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<LaneEffect> {
        let mut out = Vec::new();
        if let Some(ask) = self.ask_mut()
            && let Caller::GoneUntil(until) = ask.caller
            && until <= now
        {
            // The run is stopped once; it does not come back with its caller.
            ask.caller = Caller::Detached;
            let dev_run = ask.dev_run;
            self.stop(dev_run, StopCause::Cancelled, &mut out);
        }
        // The lane's turn stays until it is known whether the log has the asking.
        if let LaneState::Recording { ask, stop: stop @ None } = &mut self.state
            && ask.latest <= now
        {
            *stop = Some(StopCause::WaitedTooLong);
            out.push(LaneEffect::AnswerTooLate { dev_run: ask.dev_run });
        }
        out
    }

    /// The next moment at which [`Lane::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        let caller = match self.ask_ref()?.caller {
            Caller::GoneUntil(until) => Some((until, "caller's stream is back")),
            Caller::Attached | Caller::Detached => None,
        };
        let recorded = match &self.state {
            LaneState::Recording { ask, stop: None } => Some((ask.latest, "asking recorded")),
            LaneState::Idle
            | LaneState::Recording { .. }
            | LaneState::Waiting { .. }
            | LaneState::Granted { .. }
            | LaneState::Holding { .. }
            | LaneState::Ending { .. } => None,
        };
        caller.into_iter().chain(recorded).min()
    }

    /// Tells all times from `origin` and hold numbers from `lowest` (of the member held): keeps checking finite.
    pub fn rebase(&mut self, origin: Moment, lowest: impl Fn(crate::ids::MemberId) -> u64) {
        if let Some(ask) = self.ask_mut()
            && let Caller::GoneUntil(until) = &mut ask.caller
        {
            *until = until.rebase(origin);
        }
        let recording = matches!(self.state, LaneState::Recording { stop: None, .. });
        if let Some(ask) = self.ask_mut() {
            ask.since = Moment::START;
            // From then on the pool has it.
            ask.latest = if recording { ask.latest.rebase(origin) } else { Moment::START };
        }
        match &mut self.state {
            LaneState::Granted { hold, .. } | LaneState::Holding { hold, .. } => hold.number -= lowest(hold.member),
            LaneState::Idle | LaneState::Recording { .. } | LaneState::Waiting { .. } | LaneState::Ending { .. } => {}
        }
    }

    fn ask_recorded(&mut self, out: &mut Vec<LaneEffect>) {
        if let LaneState::Recording { ask, stop } = &self.state {
            let (ask, stop) = (*ask, stop.clone());
            if stop.is_some() {
                // It never had a place in the line; the asker learns of both at once.
                out.push(LaneEffect::AnswerQueued { dev_run: ask.dev_run, ahead: 0 });
                self.end(ask, stopped_unstarted(stop), out);
            } else {
                self.state = LaneState::Waiting { ask, stop: None };
                out.push(LaneEffect::AskPool);
            }
        }
    }

    fn granted(&mut self, dev_run: DevRunId, hold: HoldId, limit: Option<Span>, out: &mut Vec<LaneEffect>) {
        match &self.state {
            LaneState::Waiting { ask, stop } if ask.dev_run == dev_run => {
                let (ask, stop) = (*ask, stop.clone());
                if stop.is_some() {
                    out.push(LaneEffect::ReleaseUnused { hold });
                    self.end(ask, stopped_unstarted(stop), out);
                } else {
                    self.state = LaneState::Granted { ask, hold, limit, stop: None, gave_up: None };
                    out.push(LaneEffect::Claim { hold });
                    out.push(LaneEffect::RecordHold { dev_run, hold });
                }
            }
            _ => out.push(LaneEffect::ReleaseUnused { hold }),
        }
    }

    fn hold_recorded(&mut self, recorded: HoldId, out: &mut Vec<LaneEffect>) {
        if let LaneState::Granted { ask, hold, limit, stop, gave_up } = &self.state
            && *hold == recorded
        {
            let (ask, hold, limit, stop, gave_up) = (*ask, *hold, *limit, stop.clone(), *gave_up);
            self.state = LaneState::Holding { ask, hold, stop: stop.clone(), gave_up };
            match stop {
                // The stop burns the number on the device, which answers that the hold is over.
                Some(cause) => out.push(LaneEffect::StopHold { hold, cause }),
                None => out.push(LaneEffect::Start { hold, limit }),
            }
        }
    }

    fn requeued(&mut self, burnt: HoldId, out: &mut Vec<LaneEffect>) {
        let (ask, stop) = match &self.state {
            LaneState::Granted { ask, hold, stop, .. } if *hold == burnt => (*ask, stop.clone()),
            LaneState::Holding { ask, hold, stop, .. } if *hold == burnt => (*ask, stop.clone()),
            _ => return,
        };
        let stopped = stop.is_some();
        self.state = LaneState::Waiting { ask, stop };
        if stopped {
            out.push(LaneEffect::CancelWait { dev_run: ask.dev_run });
        }
    }

    fn gave_up(&mut self, dev_run: DevRunId, why: GaveUp, out: &mut Vec<LaneEffect>) {
        match &mut self.state {
            LaneState::Waiting { ask, stop } if ask.dev_run == dev_run => {
                let (ask, stop) = (*ask, stop.take());
                let end = if stop.is_some() { stopped_unstarted(stop) } else { DevRunEnd::GaveUp { why } };
                self.end(ask, end, out);
            }
            // Its latest moment passed between grant and start: the pool stops the hold, and the turn ends with it.
            LaneState::Granted { ask, gave_up, .. } | LaneState::Holding { ask, gave_up, .. }
                if ask.dev_run == dev_run =>
            {
                gave_up.get_or_insert(why);
            }
            _ => {}
        }
    }

    fn hold_ended(&mut self, ended: HoldId, how: HoldEnd, out: &mut Vec<LaneEffect>) {
        let (ask, gave_up) = match &self.state {
            LaneState::Holding { ask, hold, gave_up, .. } if *hold == ended => (*ask, *gave_up),
            LaneState::Granted { ask, hold, gave_up, .. } if *hold == ended => (*ask, *gave_up),
            _ => return,
        };
        let end = match how {
            HoldEnd::NotProved { why } => DevRunEnd::NotProved { why },
            HoldEnd::NotStarted => DevRunEnd::NotStarted { why: "the device did not take it".to_owned() },
            HoldEnd::Stopped(cause) => match cause {
                StopCause::Exited { exit, ran } => DevRunEnd::Exited { exit, ran },
                StopCause::LimitReached { limit } => DevRunEnd::LimitReached { limit },
                StopCause::Cancelled => DevRunEnd::Cancelled,
                StopCause::WaitedTooLong => DevRunEnd::GaveUp { why: gave_up.unwrap_or(GaveUp::OutOfService) },
                StopCause::RunEnded => DevRunEnd::GaveUp { why: GaveUp::RunEnded },
                StopCause::RigEnding => DevRunEnd::RigEnded,
                StopCause::NewSplit => DevRunEnd::NewSplit,
                StopCause::RunnerLost { how } => DevRunEnd::RunnerLost { how },
                StopCause::StartFailed { why } => DevRunEnd::NotStarted { why },
                StopCause::StageOver => DevRunEnd::Cancelled,
            },
        };
        self.end(ask, end, out);
    }

    fn stop(&mut self, dev_run: DevRunId, cause: StopCause, out: &mut Vec<LaneEffect>) {
        match &mut self.state {
            LaneState::Recording { ask, stop } if ask.dev_run == dev_run => {
                stop.get_or_insert(cause);
            }
            LaneState::Waiting { ask, stop: stop @ None } if ask.dev_run == dev_run => {
                *stop = Some(cause);
                out.push(LaneEffect::CancelWait { dev_run });
            }
            LaneState::Granted { ask, stop, .. } if ask.dev_run == dev_run => {
                stop.get_or_insert(cause);
            }
            // The first cause wins; later ones join it (rule A10).
            LaneState::Holding { ask, hold, stop: stop @ None, .. } if ask.dev_run == dev_run => {
                *stop = Some(cause.clone());
                out.push(LaneEffect::StopHold { hold: *hold, cause });
            }
            _ => {}
        }
    }

    fn end(&mut self, ask: Ask, end: DevRunEnd, out: &mut Vec<LaneEffect>) {
        out.push(LaneEffect::RecordEnd { dev_run: ask.dev_run, end: end.clone() });
        self.state = LaneState::Ending { ask, end };
    }

    fn ask_ref(&self) -> Option<&Ask> {
        match &self.state {
            LaneState::Idle => None,
            LaneState::Recording { ask, .. }
            | LaneState::Waiting { ask, .. }
            | LaneState::Granted { ask, .. }
            | LaneState::Holding { ask, .. }
            | LaneState::Ending { ask, .. } => Some(ask),
        }
    }

    fn ask_mut(&mut self) -> Option<&mut Ask> {
        match &mut self.state {
            LaneState::Idle => None,
            LaneState::Recording { ask, .. }
            | LaneState::Waiting { ask, .. }
            | LaneState::Granted { ask, .. }
            | LaneState::Holding { ask, .. }
            | LaneState::Ending { ask, .. } => Some(ask),
        }
    }
}

/// How a development run ends that was stopped before it had a device.
fn stopped_unstarted(stop: Option<StopCause>) -> DevRunEnd {
    match stop {
        Some(StopCause::RunEnded) => DevRunEnd::GaveUp { why: GaveUp::RunEnded },
        Some(StopCause::RigEnding) => DevRunEnd::RigEnded,
        Some(StopCause::NewSplit) => DevRunEnd::NewSplit,
        Some(StopCause::RunnerLost { how }) => DevRunEnd::RunnerLost { how },
        Some(StopCause::WaitedTooLong) => DevRunEnd::GaveUp { why: GaveUp::OutOfService },
        Some(
            StopCause::Cancelled
            | StopCause::StageOver
            | StopCause::LimitReached { .. }
            | StopCause::Exited { .. }
            | StopCause::StartFailed { .. },
        )
        | None => DevRunEnd::Cancelled,
    }
}
