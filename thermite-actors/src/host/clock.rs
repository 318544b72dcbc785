//! The rig's clock on Linux: `CLOCK_BOOTTIME`, which goes on through suspend and never steps (rule A11).

use rustix::time::{ClockId, clock_gettime};

use thermite_core::readiness::Clocks;
use thermite_core::time::Moment;

use crate::ports::Clock;

/// `CLOCK_BOOTTIME` as the rig's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment::from_millis(millis(ClockId::Boottime))
    }

    fn wall_ms(&self) -> u64 {
        millis(ClockId::Realtime)
    }
}

/// Answers once that moment has come, within [`thermite_core::limits::CLOCK_LOOK_EVERY`] also where it came in suspend: a runtime's
/// own timers stand still then.
pub async fn sleep_until(moment: Moment) {
    crate::alarm::come(&BootClock, moment).await;
}

/// The machine's three clocks, read one after the other.
pub fn clocks() -> Clocks {
    Clocks {
        boot_ms: millis(ClockId::Boottime),
        monotonic_ms: millis(ClockId::Monotonic),
        wall_ms: millis(ClockId::Realtime),
    }
}

fn millis(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Before 1970 and before boot there is nothing to count: a wall clock set there reads as 0.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back_and_boot_is_not_behind_monotonic() {
        let first = BootClock.now();
        let clocks = clocks();
        let last = BootClock.now();

        assert!(first.as_millis() <= clocks.boot_ms && clocks.boot_ms <= last.as_millis());
        // Monotonic is read after boot: without suspend it may be ahead by the time between the two calls.
        assert!(clocks.monotonic_ms <= last.as_millis());
    }
}
