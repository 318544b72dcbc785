//! Whether a device is quiet enough to time on (rules C2, D1), and what a driver's reading says (rule D2).

use serde::{Deserialize, Serialize};

use crate::time::Moment;

/// What one signal says. `Unknown` is never read as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalState {
    /// Within its limit.
    Ok,
    /// Over its limit.
    Busy,
    /// The device does not tell.
    Unknown,
}

/// One thing a driver looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// What was looked at, such as `load1` or `gpu_use`.
    pub name: String,
    /// The figure, where there is one.
    pub value: Option<f64>,
    /// The limit it was held against, where there is one.
    pub limit: Option<f64>,
    /// The unit of both, such as `cores`, `%`, `C`.
    pub unit: String,
    /// What the figure says.
    pub state: SignalState,
    /// Whether the device must have this signal `Ok` to be ready; the others are recorded only.
    pub required: bool,
}

/// How often a quota held processes back, for one group (rule D3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ThrottleCounter {
    /// The group's path as the kernel shows it.
    pub group: String,
    /// Periods in which the group was held back; `None` where the kernel does not say.
    #[serde(with = "crate::record::u64_text_option")]
    pub periods: Option<u64>,
    /// Time held back in nanoseconds (cgroup v1 counts ns, v2 µs: told apart by the driver).
    #[serde(with = "crate::record::u64_text_option")]
    pub held_ns: Option<u64>,
}

/// The machine's three clocks at one moment, so that suspend and steps show (rule A11). Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Clocks {
    /// `CLOCK_BOOTTIME`: goes on through suspend.
    pub boot_ms: u64,
    /// `CLOCK_MONOTONIC`: stands still in suspend.
    pub monotonic_ms: u64,
    /// `CLOCK_REALTIME`, which may step.
    pub wall_ms: u64,
}

/// One look at a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// When it was taken, on the rig's clock.
    pub at: Moment,
    /// What was looked at.
    pub signals: Vec<Signal>,
    /// Throttle counters of the judge's own group and every visible ancestor.
    pub throttle: Vec<ThrottleCounter>,
    /// The clocks.
    pub clocks: Clocks,
}
