//! Starts one command in containment, times it, and proves its end.
//!
//! A small launcher process per run (this same binary, re-executed; see [`entry`]) makes the namespaces and the
//! cgroup, writes the run file before exec, watches lifelines, and reports over a control socket.

use std::path::PathBuf;

use thermite_core::dev_run::Exit;

use crate::ports::StopProof;

/// Who a contained command runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A uid and gid of its own: the rig is root.
    Dedicated {
        /// The uid.
        uid: u32,
        /// The gid.
        gid: u32,
    },
    /// The rig's own user inside a user namespace: the rig is not root.
    RigsUser,
}

/// One command to start.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// Unique among all launches of this machine and all time; names the run file and the cgroup.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The tree the command may write, as the rig sees it.
    pub workspace: PathBuf,
    /// Where the command sees it; its working directory.
    pub workspace_at: PathBuf,
    /// Trees it may read: as the rig sees them, and where the command does.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// Trees it must not see at all: the data folder, other lanes' trees.
    pub hidden: Vec<PathBuf>,
    /// Device nodes it may open beyond the plain ones.
    pub nodes: Vec<PathBuf>,
    /// Who it runs as.
    pub identity: Identity,
    /// Where its output goes.
    pub capture: Option<PathBuf>,
    /// Whether it gets descriptor 3 to report times on.
    pub reports_times: bool,
    /// Whether what it leaves behind lives on when it ends by itself (rule C3).
    pub keeps_leftovers: bool,
}

/// How a contained command's first process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub exit: Exit,
    /// From exec to exit on the monotonic clock, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the whole tree, in nanoseconds: a diagnostic, and the judge's own share of the load (rule C2).
    pub cpu_ns: u64,
    /// What it wrote on descriptor 3.
    pub reported: Vec<u8>,
}

/// A launch that did not come to exec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {why}")]
pub struct LaunchFault {
    /// The call that failed.
    pub step: String,
    /// The error, in words.
    pub why: String,
}

#[expect(dead_code, reason = "FIXME: placeholder for the proof type's use until the launcher is written")]
type Proof = StopProof;
