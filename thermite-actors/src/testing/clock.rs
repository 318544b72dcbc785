//! Time, names and luck that are the same in every run.

use std::cell::{Cell, RefCell};

use tokio::time::Instant;
use uuid::Uuid;

use thermite_core::time::{Moment, Span};

use crate::ports::{Clock, Ids};

/// The rig's clock on tokio's time, which may be paused.
pub struct PausedClock {
    origin: Instant,
    first: Moment,
    wall_ms: u64,
    /// How long the machine slept in all, while the runtime's timers stood still.
    slept: Cell<Span>,
    /// How far the wall clock was set on or back in all, in milliseconds.
    stepped_ms: Cell<i64>,
}

impl PausedClock {
    /// A clock that says `first` at its birth, and `wall_ms` milliseconds since 1970 on the wall. Must be called inside
    /// a runtime.
    pub fn new(first: Moment, wall_ms: u64) -> PausedClock {
        PausedClock { origin: Instant::now(), first, wall_ms, slept: Cell::new(Span::ZERO), stepped_ms: Cell::new(0) }
    }

    /// The machine sleeps that long and wakes: the clock has gone on, the runtime's timers have not.
    pub fn sleep(&self, span: Span) {
        self.slept.set(self.slept.get() + span);
    }

    /// Somebody sets the wall clock on, or back.
    pub fn step_wall(&self, ms: i64) {
        self.stepped_ms.set(self.stepped_ms.get() + ms);
    }

    fn gone_by(&self) -> Span {
        Span::millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)) + self.slept.get()
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        self.first + self.gone_by()
    }

    fn wall_ms(&self) -> u64 {
        (self.wall_ms + self.gone_by().as_millis()).saturating_add_signed(self.stepped_ms.get())
    }
}

/// Names and seeds that follow from one number.
pub struct SeededIds {
    luck: RefCell<Luck>,
    given: Cell<u64>,
}

impl SeededIds {
    /// The names of that seed.
    pub fn new(seed: u64) -> SeededIds {
        SeededIds { luck: RefCell::new(Luck::new(seed)), given: Cell::new(0) }
    }
}

impl Ids for SeededIds {
    fn uuid(&self) -> Uuid {
        self.given.set(self.given.get() + 1);
        // A UUIDv7 in form, with a count where the time would be.
        let bits = u128::from(self.given.get()) << 80 | 0x7 << 76 | 0b10 << 62;
        Uuid::from_u128(bits | u128::from(self.luck.borrow_mut().next() >> 2))
    }

    fn seed(&self) -> u64 {
        self.luck.borrow_mut().next()
    }
}

/// A row of numbers that follows from a seed (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014). Good enough to mix tests with, and for nothing else.
#[derive(Clone, Debug)]
pub struct Luck {
    state: u64,
}

impl Luck {
    /// The row of that seed.
    pub fn new(seed: u64) -> Luck {
        Luck { state: seed }
    }

    /// The next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "a row without an end is no iterator that anyone wants to collect"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A span of `least` to `most`, both included, in whole milliseconds.
    pub fn span(&mut self, least: Span, most: Span) -> Span {
        let room = most.as_millis() - least.as_millis();
        Span::millis(least.as_millis() + self.below(room + 1))
    }
}
