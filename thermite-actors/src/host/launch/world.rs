//! The run's own view of the machine, made by its init in a new mount namespace.
//!
//! `/` is read-only; the workspace is writable where it was asked for; `/tmp`, `/var/tmp`, `/run`, HOME, `/dev`,
//! `/dev/shm` and `/proc` are its own; hidden trees are empty. The order matters: clones are taken while their sources
//! can be reached and devices open, then everything is closed, then the clones are put in place.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};

use super::fault::{At, LaunchFault};
use super::order::Order;
use super::sys::{MountAttributes, set_mount_attributes};
use super::{HOME_AT, Identity};

/// The nodes every run has; none of them leads to a device.
const PLAIN_NODES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// The most that `/tmp`, `/var/tmp` and HOME hold each: they are memory.
const SCRATCH: &str = "size=1g,nr_inodes=100k";
/// The most that `/dev/shm` holds.
const SHARED_MEMORY: &str = "mode=1777,size=64m,nr_inodes=10k";

/// A mount that is not yet anywhere.
struct Clone {
    mount: OwnedFd,
    to: PathBuf,
    is_directory: bool,
}

/// Makes the view. `uid` and `gid` are the run's, as this namespace numbers them.
pub(super) fn make(order: &Order, uid: u32, gid: u32) -> Result<(), LaunchFault> {
    let spec = &order.spec;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).at("make / private")?;

    let mut trees = vec![clone_tree(&spec.workspace, &spec.workspace_at, false)?];
    for (from, to) in &spec.read_only {
        trees.push(clone_tree(from, to, true)?);
    }
    // A tree inside another is put in place after it.
    trees.sort_by_key(|tree| tree.to.components().count());
    let mut nodes = Vec::new();
    for node in PLAIN_NODES.iter().map(Path::new).filter(|node| node.exists()) {
        nodes.push(clone_node(node)?);
    }
    for node in &spec.nodes {
        nodes.push(clone_node(node)?);
    }

    set_mount_attributes(None, c"/", MountAttributes { read_only: true, recursive: true })
        .at("make / read-only (mount_setattr, kernel 5.12)")?;
    tmpfs_like("proc", "/proc", MountFlags::NOEXEC, "")?;

    let hidden = hide(&spec.hidden)?;
    let owner = match spec.identity {
        Identity::Dedicated { .. } | Identity::RigsUser => format!("uid={uid},gid={gid}"),
    };
    for place in ["/tmp", "/var/tmp"] {
        if Path::new(place).is_dir() {
            tmpfs_like("tmpfs", place, MountFlags::empty(), &format!("mode=1777,{SCRATCH},{owner}"))?;
        }
    }
    tmpfs_like("tmpfs", "/run", MountFlags::empty(), "mode=755,size=16m,nr_inodes=10k")?;
    fs::create_dir(HOME_AT).at("make HOME")?;
    tmpfs_like("tmpfs", HOME_AT, MountFlags::empty(), &format!("mode=700,{SCRATCH},{owner}"))?;
    make_dev(nodes)?;

    for tree in trees {
        place(tree)?;
    }
    let closed = MountAttributes { read_only: true, recursive: false };
    set_mount_attributes(None, c"/run", closed).at("make /run read-only")?;
    set_mount_attributes(None, c"/dev", closed).at("make /dev read-only")?;
    for tree in hidden {
        // One that lies under another, or under /tmp, went with it.
        if tree.is_dir() && is_mount_of_ours(&tree) {
            set_mount_attributes(None, &c_path(&tree)?, closed).at_path("close", &tree)?;
        }
    }
    Ok(())
}

fn c_path(path: &Path) -> Result<CString, LaunchFault> {
    CString::new(path.as_os_str().as_bytes()).at_path("take path", path)
}

fn clone_tree(from: &Path, to: &Path, read_only: bool) -> Result<Clone, LaunchFault> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, from, flags).at_path("open the tree", from)?;
    set_mount_attributes(Some(mount.as_fd()), c"", MountAttributes { read_only, recursive: true })
        .at_path("set attributes of the tree", from)?;
    let is_directory = from.is_dir();
    Ok(Clone { mount, to: to.to_owned(), is_directory })
}

fn clone_node(node: &Path) -> Result<Clone, LaunchFault> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, node, flags).at_path("open the device node", node)?;
    Ok(Clone { mount, to: node.to_owned(), is_directory: false })
}

fn tmpfs_like(kind: &str, at: &str, more: MountFlags, options: &str) -> Result<(), LaunchFault> {
    let options = CString::new(options).expect("the options are written here and hold no nul");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | more;
    mount(kind, at, kind, flags, Some(options.as_c_str())).at_path(&format!("mount {kind} on"), Path::new(at))
}

/// Covers what the run must not see; answers what was covered.
fn hide(hidden: &[PathBuf]) -> Result<Vec<PathBuf>, LaunchFault> {
    let mut sorted = hidden.to_vec();
    sorted.sort();
    sorted.dedup();
    let mut covered = Vec::new();
    for tree in sorted {
        let about = match fs::metadata(&tree) {
            Ok(about) => about,
            // What this init cannot reach the run, which has fewer rights, cannot either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error).at_path("hide", &tree),
        };
        if about.is_dir() {
            let options: &CStr = c"mode=755,size=1m,nr_inodes=10k";
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("thermite-hidden", &tree, "tmpfs", flags, Some(options)).at_path("hide", &tree)?;
        } else {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            // An empty file that nobody can change.
            let empty = open_tree(CWD, "/proc/self/oom_score_adj", flags).at("open an empty file")?;
            move_mount(empty, "", CWD, &tree, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at_path("hide", &tree)?;
        }
        covered.push(tree);
    }
    Ok(covered)
}

/// Whether the mount at a place is one that hides: its device differs from its parent's and it is in memory.
fn is_mount_of_ours(tree: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| {
        let at = tree.to_string_lossy();
        mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*at) && line.contains(" - tmpfs thermite-hidden "))
    })
}

fn make_dev(nodes: Vec<Clone>) -> Result<(), LaunchFault> {
    let options: &CStr = c"mode=755,size=64k";
    mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(options))
        .at("mount tmpfs on /dev")?;
    for node in nodes {
        place(node)?;
    }
    for (to, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ] {
        std::os::unix::fs::symlink(to, link).at_path("link", Path::new(link))?;
    }
    fs::create_dir("/dev/pts").at("make /dev/pts")?;
    let options: &CStr = c"newinstance,ptmxmode=0666,mode=620";
    mount("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(options))
        .at("mount devpts on /dev/pts")?;
    fs::create_dir("/dev/shm").at("make /dev/shm")?;
    tmpfs_like("tmpfs", "/dev/shm", MountFlags::NOEXEC, SHARED_MEMORY)
}

/// Puts a clone in its place, making the place where that is in memory.
fn place(tree: Clone) -> Result<(), LaunchFault> {
    let to = &tree.to;
    if !to.exists() {
        let made = if tree.is_directory {
            fs::create_dir_all(to)
        } else {
            to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(to, ""))
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let why = "it does not exist and / is read-only in a run; choose a place under /run or /tmp";
                return Err(LaunchFault::new(format!("make the place {}", to.display()), why));
            }
            made => made.at_path("make the place", to)?,
        }
    }
    move_mount(tree.mount, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at_path("put in place", to)
}
