//! What a runner's slot takes and wants done.

use uuid::Uuid;

use crate::dev_run::Exit;
use crate::device::{DeviceEffect, DeviceInput};
use crate::hold::StopCause;
use crate::ids::{DevRunId, Holder};
use crate::runner::JournalLine;
use crate::time::Span;
use crate::wire::{Document, SlotAnswer, SlotAsk, SlotFacts, Ticket, Work};

/// An ask as the rules see it: what is to be worked on stays with whoever carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// Are you there, and what do you do?
    Check {
        /// The newest ticket that the core had.
        ticket: Option<Ticket>,
    },
    /// Accept this work under a fresh grant, once.
    Start {
        /// The newest ticket that the core had.
        ticket: Ticket,
        /// The grant.
        grant: u64,
        /// For whom.
        by: Holder,
        /// The development run.
        dev_run: Option<DevRunId>,
        /// How long a development run may hold the device.
        limit: Option<Span>,
    },
    /// Carry out a step, once.
    Step {
        /// The boot that the core believes in.
        boot: Uuid,
        /// The grant.
        grant: u64,
        /// The step's number, from 1.
        number: u32,
    },
    /// Stop what runs under that grant.
    Stop {
        /// The grant.
        grant: u64,
        /// Why.
        cause: StopCause,
    },
    /// What is known of that grant?
    Tell {
        /// The grant.
        grant: u64,
    },
    /// The output of the grant's development run.
    Output {
        /// The grant.
        grant: u64,
        /// From which byte.
        from: u64,
        /// At most this many.
        most: u32,
    },
    /// The core has all of that grant's end.
    Ack {
        /// The grant.
        grant: u64,
    },
}

impl Heard {
    /// The ask without its load.
    pub fn of(ask: &SlotAsk) -> Heard {
        match ask {
            SlotAsk::Check { ticket } => Heard::Check { ticket: *ticket },
            SlotAsk::Start { ticket, grant, work } => {
                let (by, dev_run, limit) = match work.as_ref() {
                    Work::DevRun { dev_run, lane, limit, .. } => (Holder::Lane(*lane), Some(*dev_run), *limit),
                    Work::Stage => (Holder::Judge, None, None),
                };
                Heard::Start { ticket: *ticket, grant: *grant, by, dev_run, limit }
            }
            SlotAsk::Step { boot, grant, number, .. } => Heard::Step { boot: *boot, grant: *grant, number: *number },
            SlotAsk::Stop { grant, cause } => Heard::Stop { grant: *grant, cause: cause.clone() },
            SlotAsk::Tell { grant } => Heard::Tell { grant: *grant },
            SlotAsk::Output { grant, from, most } => Heard::Output { grant: *grant, from: *from, most: *most },
            SlotAsk::Ack { grant } => Heard::Ack { grant: *grant },
        }
    }
}

/// What a slot takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlotInput {
    /// The core asks.
    Asked {
        /// The ask; its answer names it.
        id: u64,
        /// The core's epoch.
        epoch: u64,
        /// What.
        what: Heard,
    },
    /// What the device is; none while the harness is away.
    Facts {
        /// That.
        facts: Option<SlotFacts>,
    },
    /// What was to be written down is durable.
    Written,
    /// It is not, and the journal's disk says why.
    NotWritten {
        /// Why.
        why: String,
    },
    /// What a development run needs is there.
    Prepared {
        /// The grant.
        grant: u64,
    },
    /// It could not be brought there.
    NotPrepared {
        /// The grant.
        grant: u64,
        /// Why.
        why: String,
    },
    /// What came of a step.
    Reported {
        /// The grant.
        grant: u64,
        /// The step's number.
        number: u32,
        /// The report.
        report: Document,
    },
    /// The first process of a development run has ended.
    Exited {
        /// The grant.
        grant: u64,
        /// How.
        exit: Exit,
    },
    /// For the device's own rules.
    Device(DeviceInput),
}

/// What a slot wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlotEffect {
    /// Answer an ask.
    Answer {
        /// Which.
        id: u64,
        /// With this.
        answer: SlotAnswer,
    },
    /// Answer an ask for output with what is kept of it.
    AnswerOutput {
        /// Which ask.
        id: u64,
        /// The development run.
        dev_run: DevRunId,
        /// From which byte.
        from: u64,
        /// At most this many.
        most: u32,
    },
    /// Write these down; one such effect is under way at a time.
    Write {
        /// In order.
        lines: Vec<JournalLine>,
    },
    /// Put these in place of all that is written down; counts as a [`SlotEffect::Write`].
    WriteAnew {
        /// In order.
        lines: Vec<JournalLine>,
    },
    /// Bring what a development run needs, and lay it out.
    Prepare {
        /// The grant.
        grant: u64,
    },
    /// Carry out a step.
    Step {
        /// The grant.
        grant: u64,
        /// The step's number.
        number: u32,
    },
    /// What the device's own rules want done: never its words to a pool.
    Device(DeviceEffect),
    /// The grant's work is over: what was laid out for it may go, its output stays.
    Over {
        /// The grant.
        grant: u64,
        /// Its development run.
        dev_run: Option<DevRunId>,
    },
    /// Nothing of the grant is wanted any more: its output may go.
    Forget {
        /// The grant.
        grant: u64,
        /// Its development run.
        dev_run: Option<DevRunId>,
    },
    /// Hint to the core that there is something to fetch.
    Hint,
}
