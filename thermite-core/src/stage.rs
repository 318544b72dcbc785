//! One attempt at one stage, step by step: prepare, build, check, measure noise where none is known, then blocks.
//!
//! The machine says what to do next and takes what came of it; the judge queue holds one for each stage it has
//! claimed a device for. It never starts anything itself.

use serde::{Deserialize, Serialize};

use crate::block::{BlockTimes, Order, Pair, Side};
use crate::readiness::Reading;

/// One thing the judge asks of a device under its hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The step could not be carried out: infrastructure.
    NotCarriedOut {
        /// What happened.
        why: String,
    },
}

/// How far a stage is, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageView {}
