//! A block: one untimed warm-up of each program, then four timed runs in an order a fair coin chose.

use serde::{Deserialize, Serialize};

use crate::readiness::Reading;
use crate::time::Moment;

/// Which program of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// A: the champion.
    Champion,
    /// B: the change.
    Change,
}

/// The order of a block's four timed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Champion, change, change, champion.
    #[serde(rename = "ABBA")]
    Abba,
    /// Change, champion, champion, change.
    #[serde(rename = "BAAB")]
    Baab,
}

/// What a block compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pair {
    /// Champion and change: a job's block.
    ChampionAndChange,
    /// The champion under both labels: a block that measures noise (rule D6).
    ChampionTwice,
}

/// The raw figures of one block, as the executor reports them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockTimes {
    /// The four timed runs in run order, in nanoseconds.
    #[serde(with = "crate::record::u64_text_array")]
    pub ns: [u64; 4],
    /// When the first warm-up began.
    pub started: Moment,
    /// The driver's reading just before.
    pub before: Reading,
    /// The driver's reading just after.
    pub after: Reading,
}

/// Why a block was thrown away: a closed list of signals that do not look at the times (rule D3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum ThrowCause {
    /// A CPU quota held the judge back.
    Throttled {
        /// The group whose counter rose.
        group: String,
    },
    /// The device was slowed for heat or power.
    Slowed,
    /// Another program used the device.
    OtherProgram,
    /// The wall clock stepped.
    ClockStepped,
    /// The machine slept.
    Slept,
    /// The measured process died of infrastructure.
    ProcessLost,
}
