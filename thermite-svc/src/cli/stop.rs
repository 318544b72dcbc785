//! Ctrl-C, and SIGTERM alike: noted here, acted on where it is safe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit;
use super::say::Say;

/// How soon a sleeper hears that an end is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether the caller wants an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
    goes_on: Arc<Mutex<String>>,
}

impl Stop {
    /// Listens for the first; a second ends this process at once, whatever it waits for, and says what goes on.
    pub(crate) fn listen_twice() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("failed to listen for Ctrl-C")?;
        let noted = stop.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let mut heard = signals.forever();
                if heard.next().is_some() {
                    noted.asked.store(true, Ordering::Relaxed);
                }
                if heard.next().is_some() {
                    let goes_on = noted.goes_on.lock().unwrap_or_else(PoisonError::into_inner);
                    Say::new().aside(&format!("\nthermite: left at once{goes_on}"));
                    std::process::exit(i32::from(exit::CANCELLED));
                }
            })
            .context("failed to listen for Ctrl-C")?;
        Ok(stop)
    }

    /// What is said to go on when a second signal ends this process.
    pub(crate) fn leaves_behind(&self, what: String) {
        *self.goes_on.lock().unwrap_or_else(PoisonError::into_inner) = format!("; {what}");
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

    /// Sleeps, but not on once it is asked for.
    pub(crate) fn sleep(&self, span: Duration) {
        let began = Instant::now();
        while !self.is_asked() && began.elapsed() < span {
            std::thread::sleep(LOOK_EVERY.min(span.saturating_sub(began.elapsed())));
        }
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
