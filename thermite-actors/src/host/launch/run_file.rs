//! The file that says a run exists, written before its exec: what a rig that was killed leaves for the next to find.
//!
//! A pid alone names nobody; with its start time and the boot it names one process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::wire::InitFacts;

/// What a run file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunFile {
    /// The file's format.
    pub(super) version: u32,
    /// The rig.
    pub(super) rig: String,
    /// The launch's name.
    pub(super) name: String,
    /// The boot that the pids belong to.
    pub(super) boot: String,
    /// The run's init.
    pub(super) init: InitFacts,
    /// Its launcher.
    pub(super) launcher: InitFacts,
    /// The run's cgroup, where it has one.
    pub(super) cgroup: Option<PathBuf>,
    /// The run's version 1 cpuset, where it has one.
    #[serde(default)]
    pub(super) cpuset: Option<PathBuf>,
    /// The uid it runs as.
    pub(super) uid: u32,
    /// Where its output goes.
    pub(super) capture: Option<PathBuf>,
    /// The mark that its processes carry, where it has no namespaces.
    #[serde(default)]
    pub(super) mark: Option<u64>,
    /// The place made for its HOME, where it has no view of its own.
    #[serde(default)]
    pub(super) home: Option<PathBuf>,
}

/// The format that is written.
pub(super) const VERSION: u32 = 1;

/// Where a rig's run files are.
pub(super) fn directory(state: &Path) -> PathBuf {
    state.join("runs")
}

/// Where the run file of a launch is.
pub(super) fn path(state: &Path, name: &str) -> PathBuf {
    directory(state).join(format!("{name}.json"))
}

impl RunFile {
    /// Writes the file durably, whole or not at all.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&beside, path)
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> io::Result<RunFile> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

/// Removes a run file; one that is gone is no error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The boot's name, which no other boot has.
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Kills one process that is known by pid and start time; whether it was there.
pub(super) fn kill(process: InitFacts) -> bool {
    signal(process, Signal::KILL)
}

/// Signals one process that is known by pid and start time; whether it was there.
pub(super) fn signal(process: InitFacts, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    // The descriptor is of whoever has the pid; that it started then makes it the one.
    start_time(process.pid) == Some(process.start) && pidfd_send_signal(&pidfd, signal).is_ok()
}

/// When a process started, in clock ticks since boot; `None` when there is none, or only a zombie.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}
