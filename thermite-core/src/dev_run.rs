//! A development run: one command that a lane tries on a device, and how it ends.
//!
//! Nothing here can become a verdict: no type leads from a [`DevRunEnd`] to one (rule A8).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contract::{Contract, ModelFile};
use crate::hold::RunnerLoss;
use crate::ids::{DevRunId, LaneId, RunId};
use crate::refusal::GaveUp;
use crate::time::Span;

/// Everything a development run needs at its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DevRunSpec {
    /// The development run.
    pub dev_run: DevRunId,
    /// The run it belongs to.
    pub run: RunId,
    /// Its lane.
    pub lane: LaneId,
    /// The lane's own tree, where it runs.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub worktree: PathBuf,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment beyond the plain one of every run.
    pub env: Vec<(String, String)>,
    /// What the contract says of limits and leftovers.
    pub contract: Contract,
    /// The kit's model files, which it may read (rule E4).
    #[serde(default)]
    pub models: Vec<ModelFile>,
}

/// How a run's first process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// How a development run ended. Every result carries [`crate::texts::DIAGNOSTIC_ONLY`] when it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum DevRunEnd {
    /// It ended by itself.
    Exited {
        /// How.
        exit: Exit,
        /// From its start to its exit.
        ran: Span,
    },
    /// It was ended at its limit (rule A5).
    LimitReached {
        /// The limit.
        limit: Span,
    },
    /// It was cancelled, waiting or running (rule A10).
    Cancelled,
    /// It left the line without a device (rule A6).
    GaveUp {
        /// Why.
        why: GaveUp,
    },
    /// It could not be started: infrastructure, or its program could not be executed.
    NotStarted {
        /// The cause.
        why: String,
    },
    /// Its stop could not be proved within the limit; its device is out of service.
    NotProved {
        /// Pids and what is known of them.
        why: String,
    },
    /// The rig ended or died while it ran; run the command again.
    RigEnded,
    /// The cards were given out anew while it ran; run the command again (rule B9).
    NewSplit,
    /// Its runner was lost to it while it ran; run the command again (rules E10, E11).
    RunnerLost {
        /// How.
        how: RunnerLoss,
    },
}
