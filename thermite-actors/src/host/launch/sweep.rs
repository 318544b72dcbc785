//! Finds and ends what an earlier rig of the same name left behind, at the start of a rig.
//!
//! A launcher ends its run when its rig is gone, and an init when its launcher is; what is found here is mostly traces.
//! Still each is looked for in three ways: the run files (a pid counts only with its start time and its boot), the
//! cgroups by name, and the processes of uids that are this rig's alone. A neighbour of another name is untouched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thermite_core::limits;

use super::bare;
use super::capture;
use super::cgroup::{self, Group};
use super::cpuset;
use super::mark;
use super::process::remove_traces;
use super::run::describe;
use super::run_file::{self, RunFile};
use super::sys::wait_any;
use super::wire::InitFacts;
use crate::ports::StopProof;

/// How long a launcher that outlived its rig may take to clear away by itself, before it is ended.
const LAUNCHER_GRACE: Duration = Duration::from_millis(700);
/// How often an emptying is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a guard that outlived its rig may take to end its run and prove it, before it is ended itself.
const GUARD_GRACE: Duration = Duration::from_secs(3);
/// Looks in a row that must find nothing of a mark: one look may miss what is being forked.
const CLEAN_LOOKS: u32 = 3;

/// What a sweep found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Whether all of it is proved gone.
    pub proof: StopProof,
    /// What was found, in words: runs by name, groups by path, processes by pid.
    pub found: Vec<String>,
}

/// Ends and clears away all leftovers of the rig `rig` whose state folder is `state`.
///
/// `own_uids` are uids that nothing but this rig's runs uses; every process of theirs is ended, unless it is in the
/// cgroup of another rig. With `only`, the runs whose names begin so: others of the rig may be under way. Waits for at most [`limits::PROOF_MAX`] in all: to be called from a thread that may wait,
/// while none of those that are looked for is under way.
///
/// # Errors
/// When the state folder cannot be read; a missing one holds nothing.
pub fn sweep(rig: &str, state: &Path, own_uids: &[u32], only: Option<&str>) -> io::Result<Swept> {
    let prefix = only.unwrap_or_default();
    let mut sweep = Sweep {
        deadline: Instant::now() + limits::PROOF_MAX.to_std(),
        boot: run_file::boot()?,
        found: Vec::new(),
        left: Vec::new(),
    };
    for path in run_files(state)?.into_iter().filter(|path| begins(path, prefix)) {
        sweep.run_file(&path)?;
    }
    if let Ok(parent) = cgroup::parent_group() {
        for path in cgroup::groups_of(&parent, rig, prefix)? {
            sweep.group(&path);
        }
    }
    sweep.uids(rig, own_uids);
    for path in cpuset::left_by(rig, prefix) {
        cpuset::remove(Some(&path));
    }
    let proof = if sweep.left.is_empty() {
        StopProof::Empty
    } else {
        StopProof::NotProved { why: format!("these are left of earlier runs: {}", sweep.left.join(", ")) }
    };
    Ok(Swept { proof, found: sweep.found })
}

/// Whether a path's last part begins so.
fn begins(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

struct Sweep {
    deadline: Instant,
    boot: String,
    found: Vec<String>,
    left: Vec<String>,
}

fn run_files(state: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(run_file::directory(state)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

impl Sweep {
    fn run_file(&mut self, path: &Path) -> io::Result<()> {
        let file = match RunFile::read(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                // Half written: its run never came to exec. Its group, if any, is found by name.
                self.found.push(format!("an unreadable run file {}", path.display()));
                return run_file::remove(path);
            }
        };
        self.found.push(format!("run {}", file.name));
        if file.boot == self.boot {
            match file.mark {
                // The kernel ends all the rest with it.
                None => self.end_process(file.init, Duration::ZERO),
                Some(mark) => self.unnamespaced(&file, mark, path),
            }
            // It sees its init's end and clears away; only one that is stuck is ended.
            self.end_process(file.launcher, LAUNCHER_GRACE);
        }
        if let Some(capture) = &file.capture {
            // An output that cannot be marked stays as it is: the run is over all the same.
            let _ = capture::mark_complete(capture);
        }
        let group = file.cgroup.as_deref().and_then(|path| Group::open(path).ok());
        if let (Some(group), Some(path)) = (&group, &file.cgroup) {
            self.empty(group, path);
        }
        if self.left.is_empty() {
            if let Err(error) = bare::remove_home(file.home.as_deref()) {
                tracing::debug!(run = file.name, %error, "a run's HOME stays");
            }
            remove_traces(group.as_ref(), file.cpuset.as_deref(), path);
        }
        Ok(())
    }

    /// Ends a run that no namespace holds together: its guards end it and take the run file away when they have the
    /// proof; what guards that were killed left is found by its mark.
    fn unnamespaced(&mut self, file: &RunFile, mark: u64, path: &Path) {
        for guard in [file.init, file.launcher] {
            // One that was stopped goes on, and then sees that its rig is gone.
            run_file::signal(guard, Signal::CONT);
        }
        let by = Instant::now() + GUARD_GRACE;
        let lives = |process: InitFacts| run_file::start_time(process.pid) == Some(process.start);
        while path.exists() && (lives(file.init) || lives(file.launcher)) && Instant::now() < by {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.end_process(file.init, Duration::ZERO);
        self.end_process(file.launcher, Duration::ZERO);
        let mut clean = 0;
        while clean < CLEAN_LOOKS {
            let found = mark::processes(mark);
            if found.is_empty() {
                clean += 1;
            } else if Instant::now() >= self.deadline {
                self.left.extend(found.iter().map(|process| describe(process.pid)));
                return;
            } else {
                clean = 0;
                self.found.extend(found.iter().map(|process| describe(process.pid)));
                for process in found {
                    run_file::kill(process);
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends one process that is known by pid and start time, after a grace in which it may end by itself.
    fn end_process(&mut self, process: InitFacts, grace: Duration) {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The descriptor is of whoever has the pid; that it started then makes it the one.
        if run_file::start_time(process.pid) != Some(process.start) {
            return;
        }
        if wait_any([Some(std::os::fd::AsFd::as_fd(&pidfd))], Some(grace))[0] {
            return;
        }
        // EPERM would leave it, and it is then named below.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        let left = self.deadline.saturating_duration_since(Instant::now());
        if !wait_any([Some(std::os::fd::AsFd::as_fd(&pidfd))], Some(left))[0] {
            self.left.push(describe(process.pid));
        }
    }

    fn group(&mut self, path: &Path) {
        self.found.push(format!("cgroup {}", path.display()));
        let Ok(group) = Group::open(path) else { return };
        self.empty(&group, path);
        // A launcher may be removing it at the same time.
        if !group.populated() && group.remove().is_err() {
            self.left.push(format!("cgroup {}", path.display()));
        }
    }

    fn empty(&mut self, group: &Group, path: &Path) {
        while group.populated() {
            if Instant::now() >= self.deadline {
                let pids = group.pids(8).iter().map(|pid| describe(*pid)).collect::<Vec<_>>().join(", ");
                self.left.push(format!("cgroup {} with {pids}", path.display()));
                return;
            }
            let _ = group.kill();
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends what runs as one of this rig's own uids, until a whole look finds none.
    fn uids(&mut self, rig: &str, own_uids: &[u32]) {
        if own_uids.is_empty() {
            return;
        }
        loop {
            let found = processes_of(rig, own_uids);
            if found.is_empty() {
                return;
            }
            if Instant::now() >= self.deadline {
                self.left.extend(found.iter().map(|process| describe(process.pid)));
                return;
            }
            for process in found {
                self.found.push(describe(process.pid));
                self.end_process(process, Duration::ZERO);
            }
        }
    }
}

/// The live processes of uids, but for those in another rig's cgroup.
fn processes_of(rig: &str, uids: &[u32]) -> Vec<InitFacts> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let is_ours = line.split_whitespace().any(|uid| uid.parse().is_ok_and(|uid| uids.contains(&uid)));
        let is_anothers = cgroup::is_another_rigs(&cgroup::group_of(pid)?, rig);
        let start = run_file::start_time(pid)?;
        (is_ours && !is_anothers).then_some(InitFacts { pid, start })
    })
    .collect()
}
