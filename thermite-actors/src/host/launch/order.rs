//! What the rig hands its launcher: the spec and what the rig decided about it.
//!
//! It travels in a memory file by descriptor, never as an argument: a run could read those as `/proc/1/cmdline`.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use thermite_core::cpus::CpuList;

use super::LaunchSpec;
use super::cards::CardWay;
use super::fault::{At, LaunchFault};
use super::wanted::Isolation;

/// Everything a launcher needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The command.
    pub(super) spec: LaunchSpec,
    /// How the run is kept apart and ended.
    pub(super) isolation: Isolation,
    /// The place made for its HOME, where it has no view of its own.
    pub(super) home: Option<PathBuf>,
    /// The rig's name.
    pub(super) rig: String,
    /// The run's cgroup, to be made; none without layer B.
    pub(super) cgroup: Option<PathBuf>,
    /// What concerns its card and its CPUs.
    pub(super) devices: Devices,
    /// Where the run file goes.
    pub(super) run_file: PathBuf,
    /// Whether the leader of a run with a dedicated uid gets a user namespace of its own.
    pub(super) run_user_namespace: bool,
    /// Processes the run may have at once.
    pub(super) processes_most: u64,
    /// Whether this is a trial of the containment: the leader ends in place of an exec.
    pub(super) trial: bool,
}

/// What the rig decided about a run's card and CPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Devices {
    /// What keeps the run from cards that it is not granted; none where there are no cards.
    pub(super) way: Option<CardWay>,
    /// The nodes of cards that it is kept from.
    pub(super) kept_nodes: Vec<PathBuf>,
    /// The CPUs that the launcher itself keeps to.
    pub(super) launcher_cpus: Option<CpuList>,
    /// The run's version 1 cpuset, to be made; none where something else keeps it to its CPUs.
    pub(super) cpuset: Option<PathBuf>,
    /// Whether the run's cgroup keeps it to its CPUs.
    pub(super) cpuset_v2: bool,
}

impl Order {
    /// Writes the order into a memory file.
    pub(super) fn to_memory(&self) -> Result<OwnedFd, LaunchFault> {
        let text = serde_json::to_vec(self).at("write the launch order")?;
        let fd = memfd_create("thermite-order", MemfdFlags::CLOEXEC).at("memfd_create")?;
        let mut file = File::from(fd);
        file.write_all(&text).at("write the launch order")?;
        Ok(file.into())
    }

    /// Reads the order from a memory file.
    pub(super) fn from_memory(fd: OwnedFd) -> Result<Order, LaunchFault> {
        let mut file = File::from(fd);
        let mut text = Vec::new();
        file.rewind().at("read the launch order")?;
        file.read_to_end(&mut text).at("read the launch order")?;
        serde_json::from_slice(&text).at("read the launch order")
    }
}
