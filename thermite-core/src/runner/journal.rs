//! What a runner writes down before it acts on it, one line each: so that no grant is ever begun twice (docs/bus.md).

use serde::{Deserialize, Serialize};

use crate::hold::HoldEnd;
use crate::ids::DevRunId;

/// One line of a runner's journal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalLine {
    /// A grant's work is accepted: it is begun at most once, from here on.
    Accepted {
        /// The grant.
        grant: u64,
        /// The development run it is for; none for a judge's stage.
        dev_run: Option<DevRunId>,
    },
    /// A grant's work is over; nothing of it is left.
    Ended {
        /// The grant.
        grant: u64,
        /// How.
        end: HoldEnd,
    },
    /// Neither this grant nor a lower one will ever be begun, unless it was already.
    Burnt {
        /// The grant.
        grant: u64,
    },
    /// The core has all of the grant's end: its output and its end may go.
    Forgotten {
        /// The grant.
        grant: u64,
    },
}
