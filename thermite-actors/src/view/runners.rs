//! The runners block (rule E14): each runner, its pool, whether it answers, what it runs, whether it takes runs; then who
//! waits for one, and why.

use serde::{Deserialize, Serialize};

use thermite_core::contract::Target;
use thermite_core::ids::{DevRunId, HoldId, JobId, LaneId, MemberId};
use thermite_core::runner::RunnerState;
use thermite_core::runners::{ProcessPools, RunnerDevice, RunnerPool};
use thermite_core::time::Moment;

/// A rig's runners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnersView {
    /// How often they were set; another one means that something else is set.
    pub revision: u64,
    /// What was asked for last: one entry a process, one pool a runner in order (rule E8).
    pub asked: Vec<ProcessPools>,
    /// Whether the core's own devices judge beside them (rule E13).
    pub core_judges: bool,
    /// The rig's kind of target; none while it is its runners' to tell, and none of them has (rule E13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Why no runner at all can be reached, where that is so: one fault, and not each runner's (rule E11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_away: Option<String>,
    /// Every runner, in the list's order; those that are about to leave last.
    pub runners: Vec<RunnerRow>,
    /// Runners that a process serves beyond the pools it is given: idle (rule E9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_pool: Vec<String>,
    /// Who waits for a runner, and why.
    pub waits: Vec<RunnerWaitRow>,
    /// What the rig says of the list: a lane's pool that no lane of it has, a judge without a runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl RunnersView {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.runners.is_empty() && self.core_judges
    }
}

/// One runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerRow {
    /// Its name, such as `box-2/1`.
    pub name: String,
    /// Its number among the rig's members: for draining it, and for its noise.
    pub member: MemberId,
    /// Its pool; none once it has been taken off the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<RunnerPool>,
    /// How it stands.
    pub state: RunnerState,
    /// When its last answer came, on the rig's clock; none where it has not answered since the rig started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Moment>,
    /// What its device is, as it told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<RunnerDevice>,
    /// What it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunnerRuns>,
    /// Whether it takes runs: at once, or once what it has is over.
    pub takes_runs: bool,
    /// Why it takes none, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Whether it takes nothing more, by somebody's wish (rule B10).
    #[serde(default)]
    pub drained: bool,
}

/// What a runner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "for")]
pub enum RunnerRuns {
    /// A stage of the judge's.
    Judge {
        /// Under which hold.
        hold: HoldId,
        /// For which job, once that is known.
        job: Option<JobId>,
    },
    /// A lane's development run.
    Lane {
        /// Under which hold.
        hold: HoldId,
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
}

/// Somebody who waits for a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerWaitRow {
    /// Who.
    #[serde(flatten)]
    pub who: WhoWaits,
    /// Why, and how the wait ends: the one sentence (rule A9).
    pub sentence: String,
}

/// Who waits for a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "who")]
pub enum WhoWaits {
    /// A job.
    Job {
        /// Which.
        job: JobId,
    },
    /// A lane.
    Lane {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
}
