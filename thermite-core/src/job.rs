//! A job, its stages and how it ends (rule D5).

use serde::{Deserialize, Serialize};

use crate::contract::Kit;
use crate::ids::{Arrival, JobId, RunId};

/// One half of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
    /// The first look, which lets a change go on to confirmation.
    Screening,
    /// The stage whose win counts.
    Confirmation,
}

impl std::fmt::Display for StageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StageKind::Screening => "screening",
            StageKind::Confirmation => "confirmation",
        })
    }
}

/// A change with everything the judge needs pinned to content, so that it cannot move under a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PinnedChange {
    /// The champion's commit when the job was submitted.
    pub champion: String,
    /// The commit the change was asked for as.
    pub change: String,
    /// Champion plus the change's editable paths: the commit that is measured, and adopted on a win.
    pub candidate: String,
    /// The tree of `candidate`: equal content, equal tree.
    pub candidate_tree: String,
    /// The editable paths that differ.
    pub paths: Vec<String>,
    /// The kit, read from the champion's side.
    pub kit: Kit,
    /// SHA-256 of the kit's file.
    pub kit_hash: String,
}

/// A job as it was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSpec {
    /// The job.
    pub job: JobId,
    /// The run it belongs to.
    pub run: RunId,
    /// Its place in the order of all askings.
    pub arrival: Arrival,
    /// What is measured.
    pub pinned: PinnedChange,
}

/// How a job ended. Infrastructure and research are never mixed: no number exists for a void attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum JobOutcome {
    /// The change is faster, confirmed.
    Win {
        /// Whether it became the champion; not where the champion had moved.
        adopted: bool,
    },
    /// The change is not faster by the plan.
    NoGain {
        /// Whether it is slower for certain.
        slower: bool,
    },
    /// The blocks ran out first: never a win.
    Undecided,
    /// The change itself failed.
    ChangeFailed {
        /// Where it failed.
        step: ChangeStep,
        /// The sentence to show, with the end of the output.
        why: String,
    },
    /// No verdict: infrastructure failed too often, or every device is too noisy for the contract.
    NoVerdict {
        /// The last cause.
        why: String,
    },
}

/// Where a change can fail by its own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeStep {
    /// It does not build.
    Build,
    /// It is not correct.
    Check,
    /// Its measured run fails, hangs, or is too short to be timed.
    Measure,
}
