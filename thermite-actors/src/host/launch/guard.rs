//! Ends a run that has no namespaces, from the process that all of it falls to: a subreaper (layers C and D).
//!
//! A subreaper inherits every orphan below it, so that `wait` answers ECHILD only when none of them lives: the kernel's
//! own proof. What differs is how they are ended. By children: the tree is walked and each process killed while it is
//! walked. By uid: a short-lived helper takes the run's uid and kills all that it may, in one call that no fork escapes
//! for long; only where that uid is the run's alone.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::Identity;
use super::fault::{At, LaunchFault};
use super::order::Order;
use super::sys;
use super::wanted::Isolation;

/// How long a walk alone may take before the uid is used, where nobody said whether others have it.
const WALK_ALONE: Duration = Duration::from_millis(500);
/// How long a helper may take for its one call; one that was stopped in it is ended.
const HELPER_MAX: Duration = Duration::from_millis(200);
/// How often the children are looked at again.
const TICK: Duration = Duration::from_millis(1);
/// The same once that has not helped for a while: what is left then does not die by haste.
const SLOW_TICK: Duration = Duration::from_millis(20);

/// How a run's processes are to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    /// By the uid: the rig says that no other run has it.
    ByUid,
    /// By children alone: another run has the same uid.
    Children,
    /// By children, and by the uid once that takes too long: the rig cannot say.
    Either,
}

/// Makes the calling process the one that orphans below it fall to.
pub(super) fn become_subreaper() -> Result<(), LaunchFault> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).at("become a subreaper")?;
    let thread = rustix::thread::gettid().as_raw_nonzero();
    fs::read_to_string(format!("/proc/self/task/{thread}/children"))
        .map(drop)
        .at("list children (/proc/PID/task/TID/children, CONFIG_PROC_CHILDREN)")
}

/// Ends everything below the calling process.
pub(super) struct Guard {
    uid: Option<u32>,
    began: Instant,
    helper: Option<(Pid, Instant)>,
}

impl Guard {
    pub(super) fn new(order: &Order) -> Guard {
        let uid = match (order.isolation, order.spec.identity) {
            (Isolation::OwnUid, Identity::Dedicated { uid, .. }) => Some(uid),
            (Isolation::OwnUid, Identity::RigsUser) | (Isolation::Children | Isolation::Namespaces, _) => None,
        };
        Guard { uid, began: Instant::now(), helper: None }
    }

    /// Says that the ending begins: how long a walk goes on alone is counted from here, not from the run's start.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// How long to wait before the next look.
    pub(super) fn tick(&self) -> Duration {
        if self.began.elapsed() < Duration::from_secs(1) { TICK } else { SLOW_TICK }
    }

    /// Kills what is there.
    pub(super) fn strike(&mut self, how: Strike) {
        let spared = self.helper.filter(|(_, since)| since.elapsed() < HELPER_MAX).map(|(pid, _)| pid);
        kill_below(rustix::process::getpid(), spared);
        let by_uid = match how {
            Strike::ByUid => true,
            Strike::Children => false,
            Strike::Either => self.began.elapsed() >= WALK_ALONE,
        };
        if let (true, Some(uid), None) = (by_uid, self.uid, self.helper) {
            // Without a helper the walk goes on alone.
            self.helper = sys::kill_all_of(uid).ok().map(|pid| (pid, Instant::now()));
        }
    }

    /// Notes that a child was reaped.
    pub(super) fn reaped(&mut self, pid: Pid) {
        if self.helper.is_some_and(|(helper, _)| helper == pid) {
            self.helper = None;
        }
    }

    /// Ends all, until none is left or `most` has passed; whether none is.
    pub(super) fn end_all(&mut self, most: Duration) -> bool {
        loop {
            match reap() {
                Reaped::One(pid, _) => self.reaped(pid),
                Reaped::NoChildren => return true,
                Reaped::NoneYet if self.began.elapsed() >= most => return false,
                Reaped::NoneYet => {
                    self.strike(Strike::Either);
                    std::thread::sleep(self.tick());
                }
            }
        }
    }
}

/// What a look for ended children gave.
pub(super) enum Reaped {
    One(Pid, WaitStatus),
    /// There are children, and none has ended.
    NoneYet,
    /// The kernel knows of no child, and so of nothing below.
    NoChildren,
}

/// Reaps one child, without waiting.
pub(super) fn reap() -> Reaped {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Reaped::One(pid, status),
        Ok(None) | Err(rustix::io::Errno::INTR) => Reaped::NoneYet,
        Err(_) => Reaped::NoChildren,
    }
}

/// Kills all below a process, each before its own children are looked for: a child it makes meanwhile falls to the
/// subreaper and is seen at the next look.
fn kill_below(above: Pid, spared: Option<Pid>) {
    let mut left = children(above);
    while let Some(pid) = left.pop() {
        if Some(pid) != spared {
            // ESRCH: it has ended since.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            left.extend(children(pid));
        }
    }
}

/// The children of all threads of a process, as the kernel lists them.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let lists =
        tasks.into_iter().flatten().filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>());
    pids.filter_map(Pid::from_raw).collect()
}
