//! How a hold ends, and why work is stopped: words that device, pool, lane and judge queue share.

use serde::{Deserialize, Serialize};

use crate::dev_run::Exit;
use crate::time::Span;

/// Why work under a hold is stopped. The first cause wins; later ones join it (rule A10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The judge is done with its stage.
    StageOver,
    /// The lane cancelled.
    Cancelled,
    /// It had not started by its latest moment (rule A6).
    WaitedTooLong,
    /// Its run ended.
    RunEnded,
    /// The rig is ending.
    RigEnding,
    /// The cards are given out anew (rule B9).
    NewSplit,
    /// The runner it is on is no longer its own, or was not heard of (rules E10, E11): nobody's failure.
    RunnerLost {
        /// How.
        how: RunnerLoss,
    },
    /// It held the device up to its limit (rule A5).
    LimitReached {
        /// The limit.
        limit: Span,
    },
    /// The first process ended by itself.
    Exited {
        /// How.
        exit: Exit,
        /// From start to exit.
        ran: Span,
    },
    /// It could not be started.
    StartFailed {
        /// The cause.
        why: String,
    },
}

/// How work loses its runner: it goes back to its place in the line, and nothing counts against it (rules E10, E11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerLoss {
    /// It missed its checks, or heard none: by its lease's end nothing of the work is left (rule E11).
    Away,
    /// Its process died with the work; what was left of that is proved gone.
    Restarted,
    /// It was given another pool (rule E10).
    NewPool,
    /// It was taken off the rig's list (rule E10).
    TakenAway,
}

/// How a hold ended, as the device says it to the pool and the pool to the holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HoldEnd {
    /// Everything it started is proved gone.
    Stopped(StopCause),
    /// The device never started it: the number is burnt and the work keeps its place.
    NotStarted,
    /// No proof in time: the device is out of service (rule A7).
    NotProved {
        /// Pids and what is known of them.
        why: String,
    },
}
