//! A cgroup per run (layer B): version 2, also where it is only the hybrid's tree without controllers.
//!
//! What is used is in every version 2 group: `cgroup.kill` (kernel 5.14), `cgroup.events` and the usage figures of
//! `cpu.stat` (Documentation/admin-guide/cgroup-v2.rst). Limits are not set here: the process cap is an rlimit.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::fault::{At, LaunchFault};

/// What all groups of Thermite's begin with.
const PREFIX: &str = "thermite-";

/// The name of a run's group: the rig's name holds no dot, so one rig's groups are never taken for another's.
pub(super) fn group_name(rig: &str, run: &str) -> String {
    format!("{PREFIX}{rig}.{run}")
}

/// What the groups of a rig begin with.
pub(super) fn rig_prefix(rig: &str) -> String {
    format!("{PREFIX}{rig}.")
}

/// The group below which runs' groups are made: this process's own.
pub(super) fn parent_group() -> Result<PathBuf, String> {
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
    parent_group_from(&mounts, &own)
}

fn parent_group_from(mounts: &str, own: &str) -> Result<PathBuf, String> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("this process is in no cgroup v2")?;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        if right.split(' ').next() != Some("cgroup2") {
            continue;
        }
        let mut fields = left.split(' ').skip(3);
        let (Some(root), Some(at)) = (fields.next(), fields.next()) else { continue };
        // A mount may show only a part of the tree; our group must lie in it.
        let Ok(below) = Path::new(own).strip_prefix(root) else { continue };
        if below.components().any(|part| part == std::path::Component::ParentDir) {
            continue;
        }
        return Ok(if below.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(below) });
    }
    Err(format!("no mounted cgroup v2 tree shows the group {own} of this process"))
}

/// A run's group.
pub(super) struct Group {
    path: PathBuf,
    events: File,
    stat: Option<File>,
}

impl Group {
    /// Makes a new group; one of that name must not exist.
    pub(super) fn make(path: &Path) -> Result<Group, LaunchFault> {
        fs::create_dir(path).at_path("make cgroup", path)?;
        Group::open(path).inspect_err(|_| {
            // It is empty still; what cannot be removed is found by its name at the next start.
            let _ = fs::remove_dir(path);
        })
    }

    /// Opens a group that exists.
    pub(super) fn open(path: &Path) -> Result<Group, LaunchFault> {
        let events = File::open(path.join("cgroup.events")).at_path("open cgroup.events of", path)?;
        let stat = File::open(path.join("cpu.stat")).ok();
        Ok(Group { path: path.to_owned(), events, stat })
    }

    /// The group's directory, for a clone into it.
    pub(super) fn directory(&self) -> Result<OwnedFd, LaunchFault> {
        rustix::fs::open(&self.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .at_path("open cgroup", &self.path)
    }

    /// A descriptor of the group's CPU figures.
    pub(super) fn take_stat(&mut self) -> Option<File> {
        self.stat.take()
    }

    /// CPU time that the group used so far, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        cpu_ns(self.stat.as_ref()?)
    }

    /// Kills everything in the group, also what is being forked.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Whether a live process is in the group or below. A group that is gone is empty.
    pub(super) fn populated(&self) -> bool {
        populated(self.events.as_fd())
    }

    /// The pids in the group itself, at most `most`.
    pub(super) fn pids(&self, most: usize) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).take(most).collect()
    }

    /// Removes the group and what groups were made in it; they must be empty of processes.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_tree(&self.path)
    }
}

fn populated(events: impl AsFd) -> bool {
    let mut text = [0; 256];
    match rustix::io::pread(events, &mut text, 0) {
        Ok(n) => !String::from_utf8_lossy(&text[..n]).lines().any(|line| line == "populated 0"),
        // ENODEV: the group was removed, which only an empty one can be.
        Err(error) => error != rustix::io::Errno::NODEV,
    }
}

/// Removes a group and those below it.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => return Err(error),
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// CPU time from an open `cpu.stat`, in nanoseconds.
pub(super) fn cpu_ns(stat: &File) -> Option<u64> {
    let mut text = [0; 1024];
    let n = stat.read_at(&mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..n]);
    let us: u64 = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
    Some(us * 1_000)
}

/// The groups below `parent` of a rig's runs whose names begin with `run`, by path.
pub(super) fn groups_of(parent: &Path, rig: &str, run: &str) -> io::Result<Vec<PathBuf>> {
    let prefix = rig_prefix(rig) + run;
    let mut groups = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            groups.push(entry.path());
        }
    }
    groups.sort();
    Ok(groups)
}

/// The version 2 group of a live process, as the kernel shows it; empty where there is no such tree.
pub(super) fn group_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned())
}

/// Whether a group's path lies in a group of another rig's.
pub(super) fn is_another_rigs(group: &str, rig: &str) -> bool {
    let ours = rig_prefix(rig);
    group.split('/').any(|part| part.starts_with(PREFIX) && part.contains('.') && !part.starts_with(&ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                          31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_parent_group_is_found_on_a_hybrid_tree_and_in_a_part_of_one() {
        let found = parent_group_from(HYBRID, "8:pids:/\n0::/\n");
        assert_eq!(found, Ok(PathBuf::from("/sys/fs/cgroup/unified")));

        let part = "31 24 0:27 /user.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = parent_group_from(part, "0::/user.slice/app.scope\n");
        assert_eq!(found, Ok(PathBuf::from("/sys/fs/cgroup/app.scope")));

        assert!(parent_group_from(part, "0::/system.slice\n").is_err());
        assert!(parent_group_from(HYBRID, "0::/../other\n").is_err());
        assert!(parent_group_from("", "8:pids:/\n").is_err());
    }

    #[test]
    fn a_rig_whose_name_begins_like_another_s_is_another_rig() {
        assert!(is_another_rigs("/thermite-a-b.run", "a"));
        assert!(!is_another_rigs("/thermite-a.run", "a"));
        assert!(!is_another_rigs("/system.slice/thermite-a.run/below", "a"));
        assert!(!is_another_rigs("/system.slice", "a"));
    }
}
