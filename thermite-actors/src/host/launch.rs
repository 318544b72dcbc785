//! Starts one command in containment, times it, and proves its end.
//!
//! A small launcher process per run (this same binary, re-executed; see [`entry`]) makes the namespaces and the
//! cgroup, writes the run file before exec, watches lifelines, keeps the output, and reports over a control socket:
//! ```text
//! rig ──lifeline──> launcher ──lifeline──> init (pid 1 of the run's own namespaces) ──> leader (the command)
//! ```
//! The rig stops a run by its own descriptors (the init's pidfd, the cgroup), never by way of the launcher, so a
//! launcher that is gone hinders nothing. Where namespaces cannot be had the init stays outside as the run's guard:
//! orphans fall to it, it ends them by the run's own uid or by walking the tree, and says when the kernel knows of none
//! (`guard`). Such a run sees the machine as its user does; [`Containment`] says so. What is deliberately absent: a run
//! that nothing contains, and one as root.

mod bare;
mod capture;
mod cards;
mod cgroup;
mod cpuset;
mod fault;
mod fence;
mod grant;
mod guard;
mod handover;
mod init;
mod leader;
mod mark;
mod order;
mod probe;
mod process;
mod report;
mod run;
mod run_file;
mod sweep;
mod sys;
mod toolchain;
mod wanted;
mod wire;
mod world;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thermite_core::dev_run::Exit;

pub use capture::CaptureDir;
pub use cards::{CardWay, Cards};
pub use cpuset::CpuHold;
pub use fault::LaunchFault;
pub use grant::{CardGrant, Grant};
pub use handover::{HandOverFault, hand_over};
pub use probe::{Containment, Layer, Missing};
pub use process::entry;
pub use run::{Launcher, LauncherSettings, Run, RunProcess};
pub use sweep::{Swept, sweep};
pub use toolchain::{Toolchains, toolchain_mounts};
pub use wanted::{Isolation, Wanted};

/// Where a run's HOME is: a private, empty, writable place that ends with it. A run without namespaces has such a place
/// elsewhere, and is told so in its environment.
pub const HOME_AT: &str = "/run/home";
/// A place under which a workspace or a granted tree can be put that has no path of its own inside a run.
pub const MOUNTS_AT: &str = "/run/thermite";
/// How many bytes of what a run writes on descriptor 3 are kept; the rest is read and dropped.
pub const REPORT_BYTES_MAX: usize = 64 * 1024;

/// Who a contained command runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
///
/// All paths are absolute. A tree is given by the path under which the rig sees it; where the command sees it, the
/// place must exist on the machine or lie under `/run`, `/tmp`, `/var/tmp` or a hidden tree.
///
/// Without namespaces ([`Containment::has_own_view`]) a command sees the machine as its user does: it works in the
/// workspace's own path, nothing is hidden, and a launch that grants a tree at another path is refused. A launch that no
/// [`CardWay`] keeps to its card is refused whatever the containment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Unique among all launches of this machine and all time; names the run file and the cgroup. Letters, digits,
    /// `-` and `_`.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The tree the command works in, and may write unless it is given read-only; as the rig sees it.
    pub workspace: PathBuf,
    /// Where the command sees it; its working directory.
    pub workspace_at: PathBuf,
    /// Whether the command may only read it: a measured run must not leave something there for the next.
    pub workspace_read_only: bool,
    /// Trees it may read: as the rig sees them, and where the command does.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// Trees it must not see at all: the data folder, other lanes' trees.
    pub hidden: Vec<PathBuf>,
    /// The card it may open, and the CPUs it is kept to.
    #[serde(default)]
    pub grant: Grant,
    /// Who it runs as.
    pub identity: Identity,
    /// Where its output goes; nowhere without it.
    pub capture: Option<PathBuf>,
    /// Whether it gets descriptor 3 to report times on.
    pub reports_times: bool,
    /// Whether what it leaves behind lives on when it ends by itself (rule C3).
    pub keeps_leftovers: bool,
}

/// How a contained command's first process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How. A run that was ended from outside counts as ended by SIGKILL.
    pub exit: Exit,
    /// From just before exec to the reaping of the first process, on the monotonic clock, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the whole tree until then, in nanoseconds: a diagnostic, and the judge's own share of the load
    /// (rule C2). From the cgroup where there is one, else of what was reaped. 0 where the end was not seen.
    pub cpu_ns: u64,
    /// What it wrote on descriptor 3, at most [`REPORT_BYTES_MAX`]; what other processes wrote there is no part of it.
    pub reported: Vec<u8>,
    /// Whether another process than the first one wrote on descriptor 3.
    pub reported_by_others: bool,
}
