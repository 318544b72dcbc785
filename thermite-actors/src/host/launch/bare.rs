//! What a run without a view of its own gets in its place: a private HOME on disk, and a cap on its processes.
//!
//! Absent on purpose: anything that pretends to hide or to give trees. What such a run may read and write is what its
//! user may.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use super::fault::{At, LaunchFault};
use super::order::Order;
use super::{HOME_AT, Identity, LaunchSpec};

/// Where the HOME of a launch is.
pub(super) fn home_of(name: &str) -> PathBuf {
    let shared = Path::new("/tmp");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    base.join(format!("thermite-home-{name}"))
}

/// Refuses what only a view of its own can give: a run is never started on less than it was granted by.
pub(super) fn check(spec: &LaunchSpec) -> Result<(), LaunchFault> {
    if let Some((from, to)) = spec.read_only.iter().find(|(from, to)| from != to) {
        let why = "without namespaces a run sees every tree at its own path only";
        return Err(LaunchFault::new(format!("show {} at {}", from.display(), to.display()), why));
    }
    Ok(())
}

/// Makes the HOME, which must not be there yet.
pub(super) fn make_home(order: &Order) -> Result<(), LaunchFault> {
    let Some(home) = &order.home else { return Ok(()) };
    fs::DirBuilder::new().mode(0o700).create(home).at_path("make HOME", home)?;
    if let Identity::Dedicated { uid, gid } = order.spec.identity {
        chown(home, Some(uid), Some(gid)).at_path("give HOME to the run", home)?;
    }
    Ok(())
}

/// Takes a HOME off the disk; one that is gone is no error.
pub(super) fn remove_home(home: Option<&Path>) -> io::Result<()> {
    match home.map(fs::remove_dir_all) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The environment of a run: HOME and TMPDIR are the place made for it.
pub(super) fn environment(order: &Order) -> Vec<(String, String)> {
    let mut env = order.spec.env.clone();
    let Some(home) = order.home.as_ref().map(|home| home.display().to_string()) else { return env };
    for (_, value) in env.iter_mut().filter(|(name, value)| name == "HOME" && value == HOME_AT) {
        value.clone_from(&home);
    }
    if !env.iter().any(|(name, _)| name == "TMPDIR") {
        env.push(("TMPDIR".to_owned(), home));
    }
    env
}

/// How many processes a run may have at once by the kernel's count, which is of all that its user has.
pub(super) fn processes_most(order: &Order) -> u64 {
    match order.spec.identity {
        Identity::Dedicated { .. } => order.processes_most,
        Identity::RigsUser => order.processes_most + tasks_of(rustix::process::getuid().as_raw()),
    }
}

/// The tasks of a user, as the kernel counts them against a limit.
fn tasks_of(uid: u32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let statuses = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok());
    let field = |status: &str, name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    statuses
        .filter(|status| field(status, "Uid:") == Some(u64::from(uid)))
        .map(|status| field(&status, "Threads:").unwrap_or(1))
        .sum()
}
