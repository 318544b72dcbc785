//! What is over: it leaves the rig's memory, and the records keep it readable (rules D7, D8).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::fold::{DevRunHistory, JobHistory, RunHistory};
use crate::ids::{DevRunId, JobId, RunId};

/// Something that is over, as the log told it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ended")]
pub enum Ended {
    /// A job.
    Job {
        /// All that the log said of it.
        history: Box<JobHistory>,
    },
    /// A development run.
    DevRun {
        /// All that the log said of it.
        history: Box<DevRunHistory>,
    },
    /// A run.
    Run {
        /// The run.
        run: RunId,
        /// All that the log said of it.
        history: Box<RunHistory>,
    },
}

impl Ended {
    /// The idempotency key it was asked with (rule A13).
    pub fn key(&self) -> Option<&str> {
        match self {
            Ended::Job { history } => history.key.as_deref(),
            Ended::DevRun { history } => history.key.as_deref(),
            Ended::Run { history, .. } => history.key.as_deref(),
        }
    }

    /// The run it is, or belongs to.
    pub fn run(&self) -> RunId {
        match self {
            Ended::Job { history } => history.spec.run,
            Ended::DevRun { history } => history.spec.run,
            Ended::Run { run, .. } => *run,
        }
    }
}

/// What is over and still in memory, in the order of the ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndOrder {
    pub(crate) jobs: VecDeque<JobId>,
    pub(crate) dev_runs: VecDeque<DevRunId>,
    pub(crate) runs: VecDeque<RunId>,
}
