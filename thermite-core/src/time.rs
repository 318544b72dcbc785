//! Moments and spans of the rig's one clock.
//!
//! The clock counts milliseconds and goes on through suspend (`CLOCK_BOOTTIME` on Linux, rule A11). A rule never
//! reads it: it takes `now: Moment`.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A moment on the rig's clock, in milliseconds since that clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Moment(u64);

/// A length of time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Span(u64);

impl Moment {
    /// The clock's start.
    pub const START: Moment = Moment(0);

    /// The moment `ms` milliseconds after the clock's start.
    pub const fn from_millis(ms: u64) -> Moment {
        Moment(ms)
    }

    /// Milliseconds since the clock's start.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The same moment told from `origin`: what exhaustive checking needs to keep its space finite.
    pub const fn rebase(self, origin: Moment) -> Moment {
        Moment(self.0.saturating_sub(origin.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `ms` milliseconds.
    pub const fn millis(ms: u64) -> Span {
        Span(ms)
    }

    /// A span of `s` seconds.
    pub const fn seconds(s: u64) -> Span {
        Span(s * 1_000)
    }

    /// A span of `m` minutes.
    pub const fn minutes(m: u64) -> Span {
        Span(m * 60_000)
    }

    /// A span of `h` hours.
    pub const fn hours(h: u64) -> Span {
        Span(h * 3_600_000)
    }

    /// The span in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The span in seconds, with its fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// The span for timers of the standard library and tokio.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl Add<Span> for Moment {
    type Output = Moment;

    fn add(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub<Span> for Moment {
    type Output = Moment;

    fn sub(self, span: Span) -> Moment {
        Moment(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Span {
    /// Writes the span as a person says it: `0.4 s`, `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 2 h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        if ms < 10_000 {
            return write!(f, "{}.{} s", ms / 1_000, (ms % 1_000) / 100);
        }
        let s = ms / 1_000;
        match (s / 3_600, (s % 3_600) / 60, s % 60) {
            (0, 0, s) => write!(f, "{s} s"),
            (0, m, 0) => write!(f, "{m} min"),
            (0, m, s) => write!(f, "{m} min {s} s"),
            (h, _, _) if h >= 48 => write!(f, "{} d {} h", h / 24, h % 24),
            (h, 0, _) => write!(f, "{h} h"),
            (h, m, _) => write!(f, "{h} h {m} min"),
        }
    }
}
