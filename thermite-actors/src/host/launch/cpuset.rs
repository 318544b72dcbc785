//! Keeps a run to its CPUs (rule B4): a cpuset, which it cannot widen, where one can be made; else affinity alone.
//!
//! Version 2's cpuset is in the run's own group (layer B). A version 1 cpuset is a group of its own, made and entered
//! by the launcher before the fork and left after it: entering takes some 10 ms, which nothing timed waits for.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermite_core::cpus::CpuList;

use super::cgroup;
use super::fault::{At, LaunchFault};
use super::order::Order;

/// How often the removal of a group is tried.
const REMOVE_TRIES: u32 = 50;
/// How long between two tries.
const REMOVE_AGAIN: Duration = Duration::from_millis(2);

/// What keeps runs to their CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuHold {
    /// A cpuset of the run's own group.
    CpusetV2,
    /// A cpuset below this group.
    CpusetV1 {
        /// The rig's own group in the version 1 tree.
        below: PathBuf,
    },
    /// Affinity, which a run can widen.
    Affinity {
        /// Why no cpuset.
        why: String,
    },
}

impl fmt::Display for CpuHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CpuHold::CpusetV2 | CpuHold::CpusetV1 { .. } => "cpuset",
            CpuHold::Affinity { .. } => "affinity, which a run can widen",
        })
    }
}

/// Finds out what there is by making a group and taking it away again. `parent` is the group below which runs get
/// theirs, where they do.
pub(super) fn probe(rig: &str, parent: Option<&Path>) -> CpuHold {
    let v2 = parent.ok_or_else(|| "runs have no cgroup".to_owned()).and_then(|parent| try_v2(rig, parent));
    let Err(no_v2) = v2 else { return CpuHold::CpusetV2 };
    match own_v1().and_then(|below| try_v1(rig, &below).map(|()| below)) {
        Ok(below) => CpuHold::CpusetV1 { below },
        Err(no_v1) => CpuHold::Affinity { why: format!("version 2: {no_v2}; version 1: {no_v1}") },
    }
}

fn trial_name(rig: &str) -> String {
    cgroup::group_name(rig, &format!("cpuset-{}", std::process::id()))
}

fn try_v2(rig: &str, parent: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(parent.join(name)).unwrap_or_default();
    let has = |text: String| text.split_whitespace().any(|controller| controller == "cpuset");
    if !has(read("cgroup.controllers")) {
        return Err(format!("no cpuset controller in {}", parent.display()));
    }
    if !has(read("cgroup.subtree_control")) {
        fs::write(parent.join("cgroup.subtree_control"), "+cpuset")
            .map_err(|error| format!("enable cpuset below {}: {error}", parent.display()))?;
    }
    let group = parent.join(trial_name(rig));
    fs::create_dir(&group).map_err(|error| format!("make {}: {error}", group.display()))?;
    let cpus = fs::read_to_string(group.join("cpuset.cpus.effective"))
        .and_then(|cpus| fs::write(group.join("cpuset.cpus"), cpus.trim()));
    let _ = fs::remove_dir(&group);
    cpus.map_err(|error| format!("set the CPUs of {}: {error}", group.display()))
}

fn try_v1(rig: &str, below: &Path) -> Result<(), String> {
    let group = below.join(trial_name(rig));
    let allowed = fs::read_to_string(below.join("cpuset.cpus")).map_err(|error| error.to_string())?;
    let made = make_v1(&group, allowed.trim());
    let _ = fs::remove_dir(&group);
    made.map_err(|fault| fault.to_string())
}

/// The rig's own group in a version 1 cpuset tree.
fn own_v1() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    v1_from(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

fn v1_from(mounts: &str, own: &str) -> Result<PathBuf, String> {
    let is_cpuset = |options: &str| options.split(',').any(|option| option == "cpuset");
    let own = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        is_cpuset(controllers).then(|| fields.next())?
    });
    let own = own.ok_or("no cpuset tree")?;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut kind = right.split(' ');
        if kind.next() != Some("cgroup") || !kind.nth(1).is_some_and(is_cpuset) {
            continue;
        }
        let mut fields = left.split(' ').skip(3);
        let (Some(root), Some(at)) = (fields.next(), fields.next()) else { continue };
        let Ok(below) = Path::new(own).strip_prefix(root) else { continue };
        return Ok(if below.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(below) });
    }
    Err(format!("no mounted cpuset tree shows the group {own} of this process"))
}

fn make_v1(group: &Path, cpus: &str) -> Result<(), LaunchFault> {
    let parent = group.parent().expect("a run's group is below the rig's");
    fs::create_dir(group).at_path("make cpuset", group)?;
    // A set without memory nodes takes nobody in.
    let mems = fs::read_to_string(parent.join("cpuset.mems")).at_path("read the memory nodes of", parent)?;
    fs::write(group.join("cpuset.mems"), mems.trim()).at_path("set the memory nodes of", group)?;
    fs::write(group.join("cpuset.cpus"), cpus).at_path("set the CPUs of", group)
}

/// The version 1 cpuset of a launch, where it gets one.
pub(super) fn v1_group(hold: &CpuHold, rig: &str, run: &str) -> Option<PathBuf> {
    match hold {
        CpuHold::CpusetV1 { below } => Some(below.join(cgroup::group_name(rig, run))),
        CpuHold::CpusetV2 | CpuHold::Affinity { .. } => None,
    }
}

/// A version 1 cpuset that the launcher has entered: what it forks stays in it. Left when dropped.
pub(super) struct Entered<'a>(&'a Path);

impl Entered<'_> {
    /// Makes the launch's cpuset and enters it, where it gets one.
    pub(super) fn enter(order: &Order) -> Result<Option<Entered<'_>>, LaunchFault> {
        let (Some(group), Some(cpus)) = (&order.devices.cpuset, order.spec.grant.cpus()) else { return Ok(None) };
        make_v1(group, &cpus.to_string())
            .and_then(|()| fs::write(group.join("cgroup.procs"), "0").at_path("enter cpuset", group))
            .inspect_err(|_| remove(Some(group)))?;
        Ok(Some(Entered(group)))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(parent) = self.0.parent() {
            // A launcher that cannot leave works on the run's CPUs: less good, and no fault of the run's.
            let _ = fs::write(parent.join("cgroup.procs"), "0");
        }
    }
}

/// Narrows a run's own group, where version 2 has the controller there.
pub(super) fn narrow_v2(order: &Order) -> Result<(), LaunchFault> {
    let (true, Some(group), Some(cpus)) = (order.devices.cpuset_v2, &order.cgroup, order.spec.grant.cpus()) else {
        return Ok(());
    };
    fs::write(group.join("cpuset.cpus"), cpus.to_string()).at_path("set the CPUs of", group)
}

/// Sets the calling thread's affinity; what it forks inherits it.
pub(super) fn keep_to(cpus: &CpuList) -> Result<(), LaunchFault> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in &cpus.0 {
        let cpu = usize::try_from(*cpu).at("take a CPU's number")?;
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(LaunchFault::new(format!("keep to CPUs {cpus}"), "a CPU of that number cannot be named"));
        }
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).at(&format!("keep to CPUs {cpus} (sched_setaffinity)"))
}

/// Removes a launch's version 1 cpuset, once nothing is in it; one that is gone is no error.
pub(super) fn remove(group: Option<&Path>) {
    let Some(group) = group else { return };
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(group) {
            // What has just ended is still being taken out of it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(REMOVE_AGAIN),
            // What stays is found by its name at the next start.
            Ok(()) | Err(_) => return,
        }
    }
}

/// The version 1 cpusets that runs of this rig whose names begin with `prefix` left.
pub(super) fn left_by(rig: &str, prefix: &str) -> Vec<PathBuf> {
    own_v1().ok().and_then(|below| cgroup::groups_of(&below, rig, prefix).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cpuset_group_is_found_in_a_tree_and_in_a_part_of_one() {
        let whole = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        assert_eq!(v1_from(whole, "3:cpuset:/\n"), Ok("/sys/fs/cgroup/cpuset".into()));
        assert_eq!(v1_from(whole, "3:cpuset:/a/b\n"), Ok("/sys/fs/cgroup/cpuset/a/b".into()));

        let part = "34 31 0:31 /docker/x /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        assert_eq!(v1_from(part, "3:cpuset:/docker/x\n"), Ok("/sys/fs/cgroup/cpuset".into()));
        assert!(v1_from(part, "3:cpuset:/docker/y\n").is_err());
        assert!(v1_from(whole, "3:cpu:/\n").is_err());
        assert!(v1_from("31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "3:cpuset:/\n").is_err());
    }
}
