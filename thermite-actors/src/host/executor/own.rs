//! Which processes are a hold's, for a driver that sees processes on its device (rules B3, D3).

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ports::OwnProcesses;

/// Deeper than any tree of processes is; a chain of parents that is longer changed while it was read.
const GENERATIONS_MAX: usize = 256;

/// The processes below a hold's live runs. Asked from a driver's thread, so it looks into `/proc` itself.
#[derive(Default)]
pub(super) struct HoldProcesses {
    /// The outermost process of each run.
    roots: Mutex<BTreeSet<u32>>,
}

impl HoldProcesses {
    pub(super) fn add(&self, root: u32) {
        self.roots().insert(root);
    }

    pub(super) fn remove(&self, root: u32) {
        self.roots().remove(&root);
    }

    fn roots(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnProcesses for HoldProcesses {
    fn owns(&self, pid: u32) -> Option<bool> {
        let roots = self.roots().clone();
        let mut at = pid;
        for _ in 0..GENERATIONS_MAX {
            if roots.contains(&at) {
                return Some(true);
            }
            match parent(at) {
                Some(0 | 1) => return Some(false),
                Some(parent) => at = parent,
                // Gone on the way: whose it was cannot be told.
                None => return None,
            }
        }
        None
    }

    /// Those below the outermost ones, which are the rig's own.
    fn live(&self) -> usize {
        let mut left: Vec<u32> = self.roots().iter().flat_map(|root| children(*root)).collect();
        let mut live = 0;
        while let Some(pid) = left.pop() {
            live += 1;
            left.extend(children(pid));
        }
        live
    }
}

/// The fourth field of `/proc/PID/stat`; a name in it may hold anything, so it is counted from its last parenthesis.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The children of all threads of a process, as the kernel lists them.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists =
        tasks.into_iter().flatten().filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn what_is_below_a_run_is_its_own_and_nothing_else_is() {
        let run = Run::begin();
        let other = Run::begin();
        let own = HoldProcesses::default();
        own.add(run.0.id());

        let grandchild = run.grandchild();

        assert_eq!(own.owns(run.0.id()), Some(true));
        assert_eq!(own.owns(grandchild), Some(true));
        assert_eq!(own.owns(other.0.id()), Some(false));
        assert_eq!(own.owns(1), Some(false));
        assert_eq!(own.live(), 1, "the outermost is not counted");
        own.remove(run.0.id());
        assert_eq!((own.owns(grandchild), own.live()), (Some(false), 0));
    }

    #[test]
    fn of_a_process_that_is_gone_nothing_can_be_told() {
        let own = HoldProcesses::default();
        let gone = Run::begin();
        let pid = gone.0.id();
        drop(gone);

        assert_eq!(own.owns(pid), None);
    }

    /// A shell with one child.
    struct Run(Child);

    impl Run {
        fn begin() -> Run {
            let mut shell = Command::new("sh");
            shell.args(["-c", "sleep 600 & wait"]).stdin(Stdio::null());
            Run(shell.spawn().expect("sh starts"))
        }

        fn grandchild(&self) -> u32 {
            for _ in 0..6_000 {
                if let Some(child) = children(self.0.id()).first() {
                    return *child;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("the shell has no child");
        }
    }

    impl Drop for Run {
        fn drop(&mut self) {
            for child in children(self.0.id()) {
                let pid = rustix::process::Pid::from_raw(child.cast_signed()).expect("a child has a pid");
                let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _gone = self.0.kill();
            let _status = self.0.wait();
        }
    }
}
