//! Ctrl-C, and SIGTERM alike: noted here, acted on where it is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::exit;

/// Whether the caller wants an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Listens for the first; a second ends this process at once, whatever it waits for.
    pub(crate) fn listen_twice() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset and sets it.
            let ends = Arc::clone(&stop.asked);
            signal_hook::flag::register_conditional_shutdown(signal, i32::from(exit::CANCELLED), ends)
                .context("failed to listen for Ctrl-C")?;
            signal_hook::flag::register(signal, Arc::clone(&stop.asked)).context("failed to listen for Ctrl-C")?;
        }
        Ok(stop)
    }

    /// Listens; nothing else ends this process, since it has things of its own to end first. The terminal's going away
    /// counts too, unless `nohup` said that it should not.
    pub(crate) fn listen() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let hangup = (!hangup_is_ignored()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::flag::register(signal, Arc::clone(&stop.asked)).context("failed to listen for Ctrl-C")?;
        }
        Ok(stop)
    }

    /// Whether it was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// As the kernel tells it: signal n is bit n - 1.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}
