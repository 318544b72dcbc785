//! What the service tests share: folders, children that are killed, seeds that are printed.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use std::path::Path;
use thermite_svc::input_log::{self, INPUTS};

use rustix::process::{Pid, Signal, kill_process};

/// Luck whose seed is printed.
pub(crate) struct Luck(thermite_actors::testing::Luck);

impl Luck {
    /// Luck from the environment's `THERMITE_TEST_SEED`, or from the test's own number; printed, so that a failure
    /// can be had again.
    pub(crate) fn seeded(own: u64) -> Luck {
        let seed = std::env::var("THERMITE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(own);
        println!("THERMITE_TEST_SEED={seed}");
        Luck(thermite_actors::testing::Luck::new(seed))
    }

    /// A number in `0..below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0.below(below)
    }
}

/// The input log of a data folder leads to the same decisions (rule D10); every service test's is held to it when its
/// rig is let go of. A panic on its way is not hidden by another.
pub(crate) fn assert_replays(data: &Path) {
    if std::thread::panicking() || !data.join(INPUTS).is_dir() {
        return;
    }
    if let Err(fault) = input_log::replay(data) {
        panic!("the input log does not replay: {fault}");
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// This test again, in a process of its own that may be killed.
pub(crate) struct Again {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Again {
    /// Starts the test `name` in a child that finds `value` in the environment as `variable`.
    pub(crate) fn start(name: &str, variable: &str, value: &std::ffi::OsStr) -> Again {
        Again::spawn(Command::new(std::env::current_exe().unwrap()), name, variable, value)
    }

    fn spawn(mut command: Command, name: &str, variable: &str, value: &std::ffi::OsStr) -> Again {
        let mut child = command
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(variable, value)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Again { child, lines }
    }

    /// Starts it like [`Again::start`], with SIGXFSZ ignored: a write over the limit on file sizes then fails as one on a
    /// full disk does.
    pub(crate) fn start_ignoring_file_size_signal(name: &str, variable: &str, value: &std::ffi::OsStr) -> Again {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        Again::spawn(shell, name, variable, value)
    }

    /// What follows `mark` in the next line that has it; `None` once the child has closed its output. The test runner
    /// puts words of its own before a test's first line.
    pub(crate) fn next(&mut self, mark: &str) -> Option<String> {
        loop {
            let line = self.lines.next()?.unwrap();
            if let Some((_, rest)) = line.split_once(mark) {
                return Some(rest.to_owned());
            }
        }
    }

    /// Kills it as `kill -9` does, and waits for it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // Its pid is its own until it is waited for.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; its exit code, where no signal ended it.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
