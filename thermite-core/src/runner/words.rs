//! What the core's machine of one runner takes and wants done.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::device::{DeviceInput, MemberEvent};
use crate::hold::StopCause;
use crate::ids::{DevRunId, Holder};
use crate::time::Span;
use crate::wire::{Answer, Document, Ticket};

/// What a runner's machine takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerInput {
    /// A member's words: the same as a local device's.
    Member(DeviceInput),
    /// An ask was answered.
    Answered {
        /// Which ask.
        id: u64,
        /// With this.
        answer: Box<Answer>,
    },
    /// An ask was not answered as it should be.
    Failed {
        /// Which ask.
        id: u64,
        /// How.
        fault: AskFault,
    },
    /// The runner hints that there is something to fetch.
    Hinted,
    /// What a start needs is at the runner.
    Brought {
        /// The hold's number.
        number: u64,
    },
    /// It could not be brought there.
    NotBrought {
        /// The hold's number.
        number: u64,
        /// Why.
        why: String,
    },
    /// The judge wants a step carried out under that hold: the next one, once the one before has its report.
    WantsStep {
        /// The hold's number.
        number: u64,
    },
    /// All output of that grant is here, or will never be.
    Fetched {
        /// The grant.
        number: u64,
    },
    /// The end of that grant's development run is in the log.
    Kept {
        /// The grant.
        number: u64,
    },
}

/// Why an ask has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskFault {
    /// Nothing was sent: the core's own link is down.
    Down,
    /// No answer in time, or none that can be read: whether it was taken is unknown.
    NoAnswer,
    /// The other side speaks another version of the wire.
    OtherWire {
        /// Its version.
        version: u32,
    },
}

/// What a runner's machine wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerEffect {
    /// Ask the runner; the answer names the ask.
    Ask {
        /// The ask.
        id: u64,
        /// What.
        what: Question,
    },
    /// Bring to the runner what the start of that hold's development run needs.
    Bring {
        /// The hold's number.
        number: u64,
    },
    /// The judge may ask for steps under this hold.
    StageOpen {
        /// The hold's number.
        number: u64,
    },
    /// What came of the step that was wanted; none where the hold is over, or being ended.
    StepDone {
        /// The hold's number.
        number: u64,
        /// The step's report.
        report: Option<Document>,
    },
    /// The hold's development run has started there: its output may be pulled.
    Pull {
        /// The hold's number.
        number: u64,
    },
    /// Fetch all that is left of a grant's output, and say so.
    Fetch {
        /// The grant.
        number: u64,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// The device was at fault: what is known of its noise is not to be used any more (rule B10).
    Distrust,
    /// Tell the pool.
    Tell(MemberEvent),
}

/// What is asked of a runner, without its load.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Are you there?
    Check {
        /// The newest ticket.
        ticket: Option<Ticket>,
    },
    /// Accept the work of that hold.
    Start {
        /// The newest ticket.
        ticket: Ticket,
        /// The hold's number.
        number: u64,
        /// For whom.
        by: Holder,
        /// How long a development run may hold the device.
        limit: Option<Span>,
    },
    /// Carry out a step.
    Step {
        /// The boot that accepted the work.
        boot: Uuid,
        /// The hold's number.
        number: u64,
        /// The step's number.
        step: u32,
    },
    /// Stop a grant.
    Stop {
        /// The grant.
        number: u64,
        /// Why.
        cause: StopCause,
    },
    /// What is known of a grant?
    Tell {
        /// The grant.
        number: u64,
    },
    /// All of a grant's end is here.
    Ack {
        /// The grant.
        number: u64,
    },
}
