//! The Landlock domain of a run that has no view of its own (rule B3): nothing below `/dev` opens but the plain nodes
//! and those it is granted, and no new node can be made.
//!
//! Landlock allows by place. What is allowed is everything but `/dev`, the nodes that are kept from the run, and other
//! mounts of the kernel's own device tree; the folders on the way to those are opened up child by child, so a file that
//! is made directly in one of them later is not opened by the run either. ABI 5 (Linux 6.10) is needed: before it a
//! node can be opened for nothing but `ioctl`, which is all that a card needs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags};

use super::fault::{At, LaunchFault};
use super::world::PLAIN_NODES;

/// What every run may do at an allowed place, and nowhere else.
const OPENING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});
/// What is allowed nowhere.
const MAKING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{MakeChar | MakeBlock});
/// Below `/dev`, besides nodes: what programs make files in.
const PLACES_OF_DEV: [&str; 3] = ["/dev/shm", "/dev/pts", "/dev/mqueue"];

/// A domain that is laid out, to be entered after all else.
pub(super) struct Fence(RulesetCreated);

impl Fence {
    /// Lays out the domain of a run that may open `granted` and must not open `kept`.
    pub(super) fn lay_out(granted: &[PathBuf], kept: &[PathBuf]) -> Result<Fence, LaunchFault> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(OPENING | MAKING | AccessFs::Refer)
            .at("landlock (ABI 5, Linux 6.10)")?
            // A kernel before 6.12 has no scopes; the fence holds without.
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::Signal)
            .at("landlock scope")?
            .create()
            .at("landlock_create_ruleset")?;
        let mut rules = rules.set_compatibility(CompatLevel::HardRequirement);
        for place in allowed(granted, kept)? {
            let Ok(about) = fs::metadata(&place) else { continue };
            let Ok(fd) = PathFd::new(&place) else { continue };
            let access = if about.is_dir() { OPENING | AccessFs::Refer } else { OPENING };
            rules = rules.add_rule(PathBeneath::new(fd, access)).at_path("landlock_add_rule for", &place)?;
        }
        Ok(Fence(rules))
    }

    /// Puts the calling thread, and all that it will start, into the domain for good.
    pub(super) fn enter(self) -> Result<(), LaunchFault> {
        let status = self.0.restrict_self().at("landlock_restrict_self")?;
        match status.ruleset {
            // Partly: without the scope.
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
            RulesetStatus::NotEnforced => Err(LaunchFault::new("landlock_restrict_self", "it is not enforced")),
        }
    }

    /// Tries from inside whether a domain keeps what it was laid out to keep; a plain node still opens.
    pub(super) fn prove(kept: &[PathBuf]) -> Result<(), LaunchFault> {
        let opens = |place: &Path, how| rustix::fs::open(place, how | OFlags::CLOEXEC, Mode::empty()).is_ok();
        for place in kept {
            if opens(place, OFlags::RDONLY) || opens(place, OFlags::WRONLY) {
                return Err(LaunchFault::new("landlock", format!("{} opens all the same", place.display())));
            }
        }
        if !opens(Path::new("/dev/null"), OFlags::RDWR) {
            return Err(LaunchFault::new("landlock", "/dev/null does not open any more"));
        }
        Ok(())
    }
}

/// The places that are allowed, whole.
fn allowed(granted: &[PathBuf], kept: &[PathBuf]) -> Result<Vec<PathBuf>, LaunchFault> {
    let resolved = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let granted: BTreeSet<PathBuf> = granted.iter().map(resolved).collect();
    let mut closed: BTreeSet<PathBuf> = kept.iter().map(resolved).filter(|node| !granted.contains(node)).collect();
    closed.insert(PathBuf::from("/dev"));
    closed.extend(other_device_trees().at("read /proc/self/mountinfo")?);
    let on_the_way: BTreeSet<&Path> = closed.iter().flat_map(|place| place.ancestors().skip(1)).collect();
    let mut allowed: Vec<PathBuf> = granted.iter().cloned().collect();
    let plain = PLAIN_NODES.iter().chain(&PLACES_OF_DEV).map(PathBuf::from);
    allowed.extend(plain.filter(|place| !closed.contains(place)));
    for folder in &on_the_way {
        if closed.iter().any(|closed| folder.starts_with(closed)) {
            continue;
        }
        for entry in fs::read_dir(folder).at_path("list", folder)? {
            let entry = entry.at_path("list", folder)?;
            let place = entry.path();
            // A link opens what it leads to, which has a rule of its own or none.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if !is_link && !closed.contains(&place) && !on_the_way.contains(place.as_path()) {
                allowed.push(place);
            }
        }
    }
    Ok(allowed)
}

/// Where else the kernel's own device tree is mounted, as a container's build may have it.
fn other_device_trees() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let trees = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("devtmpfs ").then(|| left.split(' ').nth(4).map(PathBuf::from))?
    });
    // A run with a view of its own has single nodes mounted below its `/dev`.
    Ok(trees.filter(|place| !place.starts_with("/dev")).collect())
}
