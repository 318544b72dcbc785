//! Whether a device is quiet enough to time on (rules C2, D1), and what a driver's reading says (rule D2).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::contract::Target;
use crate::limits;
use crate::texts;
use crate::time::{Moment, Span};

pub mod gpu;

/// The names of the signals that rules speak of; a driver may have others.
pub mod names {
    /// The one-minute load average, the judge's own share taken off (rule C2).
    pub const LOAD1: &str = "load1";
    /// What was taken off it (rule C2).
    pub const LOAD1_OWN: &str = "load1_own";
    /// The one-minute load average of the whole host, where it is not the figure to go by: recorded only (rule C2).
    pub const LOAD1_OF_HOST: &str = "load1_of_host";
    /// How many cores other programs kept busy during the direct sample (rule C2).
    pub const DIRECT_SAMPLE: &str = "direct_sample";
    /// Other programs that compute on the device (rule D1).
    pub const OTHER_PROGRAMS: &str = "other_programs";
    /// The device's bits for being slowed by power, heat or hardware (rule D1).
    pub const SLOWED: &str = "slowed";
    /// Where what was measured ran: how many of the block's programs were seen on the card (rule B3).
    pub const PLACEMENT: &str = "placement";
    /// How much of the time a card is busy (rule D1).
    pub const GPU_USE: &str = "gpu_use";
    /// A card's memory in use (rules A7, D1).
    pub const GPU_MEMORY: &str = "gpu_memory";
    /// A card's temperature (rule D1).
    pub const TEMPERATURE: &str = "temperature";
}

/// What one signal says. `Unknown` is never read as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThrottleCounter {
    /// The group's path as the kernel shows it.
    pub group: String,
    /// Periods in which the group was held back; `None` where the kernel does not say.
    #[serde(with = "crate::record::u64_text_option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[0-9]+$"))]
    pub periods: Option<u64>,
    /// Time held back in nanoseconds (cgroup v1 counts ns, v2 µs: told apart by the driver).
    #[serde(with = "crate::record::u64_text_option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[0-9]+$"))]
    pub held_ns: Option<u64>,
}

/// The machine's three clocks at one moment, so that suspend and steps show (rule A11). Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

impl Reading {
    /// What keeps the device from being ready, with figures; none where it is ready: every required signal is ok.
    /// Unknown is not ready.
    pub fn not_ready(&self) -> Option<String> {
        let lacking: Vec<String> = self
            .signals
            .iter()
            .filter(|signal| signal.required && signal.state != SignalState::Ok)
            .map(|signal| match (self.taken_off(signal), signal.value) {
                (Some(own), Some(left)) => format!("{signal}{}", texts::less_the_judges_own(left, own)),
                (None, _) | (_, None) => signal.to_string(),
            })
            .collect();
        if lacking.is_empty() { None } else { Some(lacking.join(", ")) }
    }

    /// The judge's own share that is not in this signal's figure, where there is one to be shown.
    fn taken_off(&self, signal: &Signal) -> Option<f64> {
        let own = self.signals.iter().find(|other| signal.name == names::LOAD1 && other.name == names::LOAD1_OWN)?;
        own.value.filter(|own| *own >= 0.005)
    }

    /// Whether what was measured is not known to have run on the device, where that must be (rule B3). Unknown is not.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let is_lacking = |signal: &Signal| signal.required && signal.state != SignalState::Ok;
        self.signals.iter().any(|signal| signal.name == names::PLACEMENT && is_lacking(signal))
    }

    /// Whether a required signal of one of these names is over its limit.
    pub(crate) fn is_busy(&self, names: &[&str]) -> bool {
        self.signals
            .iter()
            .any(|signal| signal.required && signal.state == SignalState::Busy && names.contains(&signal.name.as_str()))
    }
}

impl fmt::Display for Signal {
    /// Writes the signal as a person says it: `load1 2.31 of at most 1.50 cores`, `gpu_use is unknown`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |f: &mut fmt::Formatter<'_>| {
            if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
        };
        match (self.state, self.value, self.limit) {
            (SignalState::Unknown, _, _) => write!(f, "{} is unknown", self.name),
            (_, Some(value), Some(limit)) => {
                write!(f, "{} {value:.2} of at most {limit:.2}", self.name)?;
                unit(f)
            }
            (_, Some(value), None) => {
                write!(f, "{} {value:.2}", self.name)?;
                unit(f)
            }
            (SignalState::Ok, None, _) => write!(f, "{} is ok", self.name),
            (SignalState::Busy, None, _) => write!(f, "{} is busy", self.name),
        }
    }
}

/// How often the judge looks at a device of that kind that is not ready (rules C2, D1).
pub const fn look_every(target: Target) -> Span {
    match target {
        Target::CudaGpu => limits::GPU_LOOK_EVERY,
        Target::Cpu => limits::CPU_LOOK_EVERY,
    }
}

/// The one-minute load average with the judge's own share taken off, against 75 % of the cores (rule C2).
///
/// `load` is the kernel's figure, none where it cannot be read; `own` is [`OwnShare::value`] of that moment.
pub fn load1(load: Option<f64>, own: f64, cores: u32) -> Signal {
    // Only a finite figure may be cut off at zero: `max` would make one out of a load that is no number.
    let value = load.filter(|load| load.is_finite()).map(|load| (load - own).max(0.0));
    at_most(names::LOAD1, value, limits::LOAD_SHARE_MAX * f64::from(cores))
}

/// What [`load1`] took off, recorded beside it so that the kernel's own figure can be told.
pub fn load1_own(own: f64) -> Signal {
    Signal {
        name: names::LOAD1_OWN.to_owned(),
        value: Some(own),
        limit: None,
        unit: "cores".to_owned(),
        state: SignalState::Ok,
        required: false,
    }
}

/// How many cores other programs kept busy during the direct sample, against 25 % of the cores (rule C2).
///
/// `others` is their CPU time over the sample's length, none where it cannot be told.
pub fn direct_sample(others: Option<f64>, cores: u32) -> Signal {
    at_most(names::DIRECT_SAMPLE, others, limits::DIRECT_SAMPLE_SHARE_MAX * f64::from(cores))
}

/// A required signal in cores that must not be over `limit`; a figure that is not finite is unknown.
fn at_most(name: &str, value: Option<f64>, limit: f64) -> Signal {
    let value = value.filter(|value| value.is_finite());
    let state = match value {
        None => SignalState::Unknown,
        Some(value) if value <= limit => SignalState::Ok,
        Some(_) => SignalState::Busy,
    };
    Signal { name: name.to_owned(), value, limit: Some(limit), unit: "cores".to_owned(), state, required: true }
}

/// What the judge's own process groups add to the one-minute load average (rule C2).
///
/// The kernel lets the average follow the number of running tasks with a decay of 60 s (`kernel/sched/loadavg.c`, one
/// step every 5 s). The same decay over the judge's measured CPU time gives its share. CPU time counts a task only
/// while it runs, not while it waits for a core, so the share errs to the low side, and the load left to the high.
/// Between two steps of the kernel it may run up to 8 % of the judge's own use ahead; the direct sample covers that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnShare {
    cores: f64,
    at: Moment,
}

impl OwnShare {
    /// Takes `cpu` time that the judge's process groups used, over all cores, in the `span` that ended at `at`.
    ///
    /// Spans may overlap and come in any order; a span of no length adds nothing.
    pub fn add(&mut self, at: Moment, cpu: Span, span: Span) {
        if span == Span::ZERO {
            return;
        }
        let rate = cpu.as_secs_f64() / span.as_secs_f64();
        let share = OwnShare { cores: rate * (1.0 - decay(span)), at };
        let latest = self.at.max(at);
        *self = OwnShare { cores: self.value(latest) + share.value(latest), at: latest };
    }

    /// Whether a share that was kept elsewhere can be true at `now`: a figure, and of no later moment.
    pub fn is_believable(&self, now: Moment) -> bool {
        self.cores.is_finite() && self.cores >= 0.0 && self.at <= now
    }

    /// The share at `now`, in cores.
    pub fn value(&self, now: Moment) -> f64 {
        self.cores * decay(now.since(self.at))
    }
}

/// What is left of a contribution to the load average after `span`.
fn decay(span: Span) -> f64 {
    libm::exp(-span.as_secs_f64() / limits::LOAD_DECAY.as_secs_f64())
}
