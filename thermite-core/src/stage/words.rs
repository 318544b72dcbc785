//! What a stage asks of a device, and what came of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::block::{BlockTimes, Order, Pair, Side};
use crate::readiness::Reading;

/// One thing the judge asks of a device under its hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum StageStep {
    /// Lay out the workspaces of champion and candidate.
    Prepare,
    /// Build one side.
    Build {
        /// Which.
        side: Side,
    },
    /// Check one side with the champion's check.
    Check {
        /// Which.
        side: Side,
    },
    /// Read the device, to see whether it is ready for a block.
    Look,
    /// One untimed warm-up of each program in coin order, then four timed runs.
    Block {
        /// What is compared.
        pair: Pair,
        /// The order the coin chose.
        order: Order,
    },
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "came")]
pub enum StepReport {
    /// The workspaces are laid out.
    Prepared,
    /// One side is built.
    Built {
        /// Which.
        side: Side,
        /// SHA-256 over the kit's artefacts.
        artefact: String,
    },
    /// One side is correct.
    Checked {
        /// Which.
        side: Side,
    },
    /// A build, check or measured run of one side failed, hung, or was too short to be timed.
    Failed {
        /// Which side.
        side: Side,
        /// What it said: exit status and the end of its output.
        why: String,
    },
    /// The device was read.
    Looked {
        /// What it said.
        reading: Reading,
    },
    /// A block was run.
    Timed {
        /// Its figures.
        times: BlockTimes,
    },
    /// A measured process died of infrastructure; the block is thrown away.
    Lost {
        /// The program that ran when it happened.
        side: Side,
        /// What happened.
        why: String,
    },
    /// A measured process was killed, by nobody of the rig's and not by the kernel for lack of memory: by the program
    /// itself, or by somebody outside. Which, the label it falls on tells in the end; the block is thrown away.
    Killed {
        /// The program that ran when it happened.
        side: Side,
        /// What happened.
        why: String,
    },
    /// The step could not be carried out: infrastructure.
    NotCarriedOut {
        /// What happened.
        why: String,
    },
    /// The disk had no room for it: infrastructure that is waited for, and counts against nobody.
    NoRoom {
        /// What could not be written.
        why: String,
    },
}

impl fmt::Display for StageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageStep::Prepare => f.write_str("laying out the workspaces"),
            StageStep::Build { side } => write!(f, "building {side}"),
            StageStep::Check { side } => write!(f, "checking {side}"),
            StageStep::Look => f.write_str("reading the device"),
            StageStep::Block { pair: Pair::ChampionAndChange, .. } => f.write_str("a block"),
            StageStep::Block { pair: Pair::ChampionTwice, .. } => f.write_str("a block of the champion twice"),
        }
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepReport::Prepared => f.write_str("workspaces laid out"),
            StepReport::Built { side, .. } => write!(f, "{side} built"),
            StepReport::Checked { side } => write!(f, "{side} checked"),
            StepReport::Failed { side, .. } => write!(f, "{side} failed"),
            StepReport::Looked { .. } => f.write_str("device read"),
            StepReport::Timed { .. } => f.write_str("block timed"),
            StepReport::Lost { side, .. } => write!(f, "process of {side} lost"),
            StepReport::Killed { side, .. } => write!(f, "process of {side} killed"),
            StepReport::NotCarriedOut { .. } => f.write_str("not carried out"),
            StepReport::NoRoom { .. } => f.write_str("no room on the disk"),
        }
    }
}
