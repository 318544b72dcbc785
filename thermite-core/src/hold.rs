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
    /// Its runner is its own no more (rules E10, E11).
    RunnerGone {
        /// Why.
        why: RunnerGone,
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

/// Why a runner is lost to what runs on it (rules E10, E11, E17): its work is nobody's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerGone {
    /// It was taken away from the rig.
    Removed,
    /// It was given another pool.
    Moved,
    /// It did not answer, until nothing of the work could be left on it.
    Away,
    /// Its process started anew, and what it ran is lost.
    Restarted,
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
