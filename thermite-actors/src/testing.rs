//! A rig without a machine: scripted ports on virtual time, for tests of a rig and of what is built on one.
//!
//! [`VirtualTime`] runs an actix system whose clock stands still while anything is left to do and then jumps to the
//! next timer: a day of a rig takes milliseconds, and one seed gives one course of events. Everything here lives on
//! one thread; a port with threads of its own, or another source of time or luck, ends that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{System, SystemRunner};
use tokio::sync::Notify;

use thermite_core::time::Span;

mod clock;
pub mod conformance;
mod device;
pub mod fake_nvml;
mod input_log;
mod process;
mod records;
mod runners;
mod workspaces;

pub use clock::{Luck, PausedClock, SeededIds};
pub use device::{Call, DevRunScript, Happened, ScriptedDevice, StartScript, StopScript};
pub use input_log::MemoryInputLog;
pub use process::{MemoryJournal, MemoryOutputs, ScriptedProcess, WordsForCommits};
pub use records::MemoryRecords;
pub use runners::ScriptedRunners;
pub use workspaces::ScriptedWorkspaces;

/// An actix system on tokio's paused time.
pub struct VirtualTime {
    runner: SystemRunner,
    idle: Idle,
}

impl VirtualTime {
    /// A system of its own on the calling thread; its time begins at 0 and stands.
    pub fn new() -> VirtualTime {
        let idle = Idle::default();
        let parked = idle.clone();
        let runner = System::with_tokio_rt(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .on_thread_park(move || parked.nothing_to_run())
                .build()
                .expect("a runtime without IO and threads needs nothing from the machine")
        });
        VirtualTime { runner, idle }
    }

    /// Runs a future to its end; time jumps where nothing else is left to do.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runner.block_on(future)
    }

    /// Lets everything happen that happens at this instant; time stands.
    pub fn settle(&self) {
        self.block_on(self.idle.wait());
    }

    /// Lets `span` pass, timer by timer, and everything happen that happens at its end.
    pub fn advance(&self, span: Span) {
        self.block_on(async {
            tokio::time::sleep(span.to_std()).await;
            self.idle.wait().await;
        });
    }

    /// The barrier, for use inside [`VirtualTime::block_on`].
    pub fn idle(&self) -> Idle {
        self.idle.clone()
    }
}

impl Default for VirtualTime {
    fn default() -> VirtualTime {
        VirtualTime::new()
    }
}

/// The barrier "all mailboxes are drained at this instant".
#[derive(Clone, Default)]
pub struct Idle {
    wanted: Arc<AtomicBool>,
    drained: Arc<Notify>,
}

impl Idle {
    /// Waits until nothing is left to run at this instant.
    pub async fn wait(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        self.drained.notified().await;
    }

    /// The runtime is about to park. A waiter that is woken here is run before time goes on.
    fn nothing_to_run(&self) {
        if self.wanted.swap(false, Ordering::SeqCst) {
            self.drained.notify_one();
        }
    }
}
