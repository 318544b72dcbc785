//! What the judge's own processes took, so that it can be taken off the figures (rule C2).

use thermite_core::limits;

/// CPU time that one of the judge's process groups took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    /// When it began, in milliseconds on the rig's clock.
    from_ms: u64,
    /// When it ended.
    to_ms: u64,
    /// What it took on all CPUs together.
    cpu_ns: u64,
}

/// A ledger of the judge's own CPU use, as long as it still shows in the one-minute load average.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnUse(Vec<Use>);

/// After ten decays of 60 s a use that filled a thousand cores adds less than 0.05 to the average.
const FORGOTTEN_AFTER_MS: u64 = 10 * limits::LOAD_DECAY.as_millis();

impl OwnUse {
    /// Notes that own processes took `cpu_ns` between two moments of the rig's clock, and forgets what no longer shows.
    pub fn note(&mut self, cpu_ns: u64, from_ms: u64, to_ms: u64) {
        self.0.retain(|past| past.to_ms + FORGOTTEN_AFTER_MS > to_ms);
        self.0.push(Use { from_ms, to_ms: to_ms.max(from_ms + 1), cpu_ns });
    }

    /// The part of the one-minute load average at `at_ms` that own processes made, in tasks.
    ///
    /// The kernel moves the average towards the number of running tasks with a decay of 60 s. A group that kept `n`
    /// CPUs busy from `a` to `b` has added `n (e^-(t-b)/60 - e^-(t-a)/60)` at `t`. CPU time, not the count of own
    /// tasks, makes `n`: tasks that waited for a CPU stay in the figure, which errs on the side of waiting.
    pub fn load_share(&self, at_ms: u64) -> f64 {
        let decay = |since_ms: u64| libm::exp(-(at_ms.saturating_sub(since_ms) as f64) / decay_ms());
        let share = |own: &Use| {
            let cores = own.cpu_ns as f64 / ((own.to_ms - own.from_ms) as f64 * 1e6);
            if at_ms <= own.from_ms { 0.0 } else { cores * (decay(own.to_ms) - decay(own.from_ms)) }
        };
        self.0.iter().map(share).sum()
    }

    /// CPU time that own processes took between two moments, in nanoseconds; a use that lies partly outside counts by
    /// the part inside.
    pub fn cpu_ns_between(&self, from_ms: u64, to_ms: u64) -> f64 {
        let part = |own: &Use| {
            let inside = own.to_ms.min(to_ms).saturating_sub(own.from_ms.max(from_ms));
            own.cpu_ns as f64 * (inside as f64 / (own.to_ms - own.from_ms) as f64)
        };
        self.0.iter().map(part).sum()
    }
}

fn decay_ms() -> f64 {
    limits::LOAD_DECAY.as_millis() as f64
}
