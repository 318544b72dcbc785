//! What a core and its runners say to each other over the bus: plain types; the codec makes bytes of them.
//!
//! Ask and answer. Every ask names the core's epoch and may come late, twice or never; what an answer says was true when it
//! was given. A stage's steps and their reports travel as [`Document`]s, the JSON that records keep them as, since
//! their types carry tags that a binary form cannot. Method: docs/bus.md.

pub mod bulk;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::contract::{Contract, ModelFile, Target};
use crate::hold::{HoldEnd, StopCause};
use crate::ids::{DevRunId, LaneId, RunId};
use crate::job::{JobSpec, StageKind};
use crate::time::Span;

/// The version of what is said here. Raised with every change that the version before cannot read.
pub const WIRE_VERSION: u8 = 1;

/// A runner's process by name: 2 to 40 of `a-z`, `0-9`, `-` (rule E6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct ProcessName(String);

/// A name that is no runner process's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no runner's name: 2 to 40 of a-z, 0-9 and -")]
pub struct BadName(pub String);

impl ProcessName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProcessName {
    type Error = BadName;

    fn try_from(text: String) -> Result<ProcessName, BadName> {
        let fits = (2..=40).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if fits { Ok(ProcessName(text)) } else { Err(BadName(text)) }
    }
}

impl FromStr for ProcessName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<ProcessName, BadName> {
        ProcessName::try_from(text.to_owned())
    }
}

impl From<ProcessName> for String {
    fn from(name: ProcessName) -> String {
        name.0
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A runner: one device of a process, counted from 1 (`box-2/1`, rule E8).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerName {
    /// The process.
    pub process: ProcessName,
    /// Its place there, from 1.
    pub slot: u16,
}

impl fmt::Display for RunnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process, self.slot)
    }
}

/// JSON as the records keep it, carried whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Document(pub String);

/// What the core asks of one runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The core's epoch: one higher with each of its starts.
    pub epoch: u64,
    /// Which of the process's runners, from 1.
    pub slot: u16,
    /// What.
    pub what: SlotAsk,
}

/// A name for one check's answer: what it renews is counted from the moment it was given, by the runner's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// The supervisor's start that gave it: another one knows it not.
    pub boot: Uuid,
    /// One higher with each answer of that start.
    pub number: u64,
}

/// What is asked of a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SlotAsk {
    /// Are you there, and what do you do? Renews the lease to its ticket's issue + [`LEASE`](crate::limits::LEASE).
    Check {
        /// The ticket of the newest answer that the core had; none at first.
        ticket: Option<Ticket>,
    },
    /// Accept this work under a fresh grant, once.
    Start {
        /// The ticket of the newest answer that the core had; renews the lease as a check does.
        ticket: Ticket,
        /// The hold's number: rises for each runner.
        grant: u64,
        /// What.
        work: Box<Work>,
    },
    /// Carry out one step of the stage under that grant, once: numbered from 1 by the core.
    Step {
        /// The boot that the core believes in.
        boot: Uuid,
        /// The grant.
        grant: u64,
        /// The step's number, one higher with each.
        number: u32,
        /// What it is a step of.
        of: Box<StepOf>,
        /// The [`StageStep`](crate::stage::StageStep).
        step: Document,
    },
    /// Stop what runs under that grant; valid for one that never came: it is never started then.
    Stop {
        /// The grant.
        grant: u64,
        /// Why: the end says it, unless the work had another cause first (rule A10).
        cause: StopCause,
    },
    /// What is known of that grant?
    Tell {
        /// The grant.
        grant: u64,
    },
    /// The output of the grant's development run from an offset on.
    Output {
        /// The grant.
        grant: u64,
        /// From which byte.
        from: u64,
        /// At most this many.
        most: u32,
    },
    /// The core has all of that grant's end on its own disk: forget it.
    Ack {
        /// The grant.
        grant: u64,
    },
}

/// What a runner works on, with everything it needs that is not in its store by then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// A lane's development run, on a fresh copy of its starting point with its change applied (rule E5).
    DevRun {
        /// The development run.
        dev_run: DevRunId,
        /// Its run.
        run: RunId,
        /// Its lane.
        lane: LaneId,
        /// The program and its arguments.
        argv: Vec<String>,
        /// Environment beyond the plain one of every run.
        env: Vec<(String, String)>,
        /// What the contract says of limits and leftovers.
        contract: Box<Contract>,
        /// How long it may run here.
        limit: Option<Span>,
        /// The commit to lay out: the lane's starting point with its change.
        commit: String,
        /// The model files it may read (rule E4).
        models: Vec<ModelFile>,
    },
    /// One stage of a job, step by step as the core asks: each step names its job.
    Stage,
}

/// The stage that a step belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOf {
    /// The job with all that is pinned.
    pub job: Arc<JobSpec>,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// What a runner answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// The supervisor's start that answers.
    pub boot: Uuid,
    /// What it says.
    pub what: SlotAnswer,
}

/// What is said to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SlotAnswer {
    /// To a check.
    Checked(Box<Checked>),
    /// To a start, step, stop or tell: how it stands with that grant.
    Stands(Box<Standing>),
    /// To a question for output.
    Output {
        /// The bytes from `offset` on.
        bytes: Vec<u8>,
        /// Where they begin; larger than asked for where a part was cut.
        offset: u64,
        /// How many bytes were written in all so far.
        total: u64,
        /// How many between head and tail were not kept.
        cut: u64,
        /// Whether nothing more will come.
        complete: bool,
    },
    /// To an acknowledgement, also of what is long forgotten.
    Forgotten,
    /// It is not done, and why.
    No(SlotNo),
}

/// Why a runner does not do what is asked: nothing of it happened, nor will. A grant that is not started for such a
/// cause is burnt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum SlotNo {
    /// A newer core, or a higher grant, was here.
    #[error("stale: epoch {epoch} and grant {grant} were here")]
    Stale {
        /// The highest epoch seen.
        epoch: u64,
        /// The highest grant seen.
        grant: u64,
    },
    /// The supervisor started anew since the answer that the core goes by.
    #[error("rebooted")]
    Rebooted,
    /// Something else runs there.
    #[error("busy with grant {grant}")]
    Busy {
        /// Under which grant.
        grant: u64,
    },
    /// The ticket is too old: the ask was long under way.
    #[error("late")]
    Late,
    /// The process serves fewer runners.
    #[error("it serves {serves} runners")]
    NoSuchSlot {
        /// How many.
        serves: u16,
    },
    /// Nothing is known of that grant.
    #[error("nothing is known of grant {grant}")]
    Unknown {
        /// The grant.
        grant: u64,
    },
    /// It cannot start anything now: its harness is not there, its disk is full or failing.
    #[error("{why}")]
    NotAble {
        /// Why, with the way out.
        why: String,
    },
}

/// A check's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checked {
    /// Good for a start for 15 s by the runner's own clock; the core's next check or start names it.
    pub ticket: Ticket,
    /// How many runners the process serves.
    pub serves: u16,
    /// The highest grant that was ever accepted or burnt there.
    pub highest: u64,
    /// What the device is; none while the harness is away.
    pub facts: Option<SlotFacts>,
    /// Why it takes no work now, where it does not: its harness is away, it is out of service, its disk is full.
    pub unable: Option<String>,
    /// How often the device went out of service by a fault since the supervisor's start: what is known of its noise is
    /// not to be used any more (rule B10).
    pub faults: u32,
    /// What it has: running, or ended and not yet acknowledged; lowest grant first.
    pub grants: Vec<Standing>,
}

/// What a runner's device is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotFacts {
    /// Its kind.
    pub target: Target,
    /// A name that stays: a GPU's UUID, a machine's id.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// The driver and its version.
    pub driver: String,
    /// How its clocks are set.
    pub clock_policy: String,
    /// The CPUs the judge uses there.
    pub cpus: String,
    /// How many cores the load is held against.
    pub cores: u32,
    /// The containment in force.
    pub containment: Option<String>,
}

/// How it stands with a grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// The grant.
    pub grant: u64,
    /// The development run it is for; none for a judge's stage.
    pub dev_run: Option<DevRunId>,
    /// How far it is.
    pub at: Progress,
    /// The newest step of a stage and what came of it, where one was asked for.
    pub step: Option<StepStanding>,
}

/// How far a grant's work is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Progress {
    /// Accepted, and not yet begun.
    Accepted,
    /// It runs: a stage from its acceptance on, a development run from its start (exec).
    Running {
        /// For how long, by the runner's clock.
        since_start: Span,
    },
    /// It is being stopped; not over before the proof.
    Stopping,
    /// It is over, or was never begun and never will be.
    Over {
        /// How, as a hold of a local device ends: `NotStarted` for a burnt number.
        end: HoldEnd,
    },
}

/// How it stands with a stage's step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepStanding {
    /// The step's number.
    pub number: u32,
    /// The [`StepReport`](crate::stage::StepReport); none while it is under way.
    pub report: Option<Document>,
}
