//! Ctrl-C, and SIGTERM alike: noted here, acted on where it is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

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

    /// Listens; nothing else ends this process, since it has things of its own to end first.
    pub(crate) fn listen() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop.asked)).context("failed to listen for Ctrl-C")?;
        }
        Ok(stop)
    }

    /// Whether it was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}
