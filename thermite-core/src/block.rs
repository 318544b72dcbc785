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

impl Order {
    /// The sides of the four timed runs, in run order.
    pub const fn sides(self) -> [Side; 4] {
        match self {
            Order::Abba => [Side::Champion, Side::Change, Side::Change, Side::Champion],
            Order::Baab => [Side::Change, Side::Champion, Side::Champion, Side::Change],
        }
    }

    /// The block's ratio d: the mean ln of the champion's two times less that of the change's two. Positive where the
    /// change is faster; its speed-up is `exp(d) - 1`. No trimming: the method clips, the same on both sides.
    ///
    /// Not finite where a time is 0, which no accepted block has (see [`crate::limits::LEAST_REPORTED_RUN_NS`]).
    pub fn ratio(self, ns: &[u64; 4]) -> f64 {
        let ln = ns.map(|ns| libm::log(ns as f64));
        // Each side's two runs are added in run order, so that swapping labels flips the ratio to the last bit.
        let outer = (ln[0] + ln[3]) / 2.0;
        let inner = (ln[1] + ln[2]) / 2.0;
        match self {
            Order::Abba => outer - inner,
            Order::Baab => inner - outer,
        }
    }
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
