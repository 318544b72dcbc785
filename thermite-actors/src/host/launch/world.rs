//! The run's own view of the machine, made by its init in a new mount namespace.
//!
//! `/` is read-only; the workspace is writable where it was asked for; `/tmp`, `/var/tmp`, `/run`, HOME, `/dev`,
//! `/dev/shm` and `/proc` are its own; hidden trees are empty. The order matters: clones are taken while their sources
//! can be reached and devices open, then everything is closed, then the clones are put in place.

use std::collections::BTreeSet;
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

use super::HOME_AT;
use super::fault::{At, LaunchFault};
use super::order::Order;
use super::sys::{MountAttributes, set_mount_attributes};

/// The nodes every run has; none of them leads to a device.
pub(super) const PLAIN_NODES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// The most that `/tmp`, `/var/tmp` and HOME hold each: they are memory.
const SCRATCH: &str = "size=1g,nr_inodes=100k";
/// The most that `/dev/shm` holds.
const SHARED_MEMORY: &str = "mode=1777,size=64m,nr_inodes=10k";

/// What every run has of its own, whatever is hidden.
const OWN_PLACES: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/dev", "/proc"];
/// What covers a hidden file.
const EMPTY_FILE: &str = "/run/.empty";

/// A mount that is not yet anywhere.
struct Clone {
    mount: OwnedFd,
    is_directory: bool,
}

/// What is done at a place of the view.
enum Change {
    /// Covered, so that nothing of it can be seen.
    Hide,
    /// Given.
    Give(Clone),
}

/// Makes the view. `uid` and `gid` are the run's, as this namespace numbers them.
pub(super) fn make(order: &Order, uid: u32, gid: u32) -> Result<(), LaunchFault> {
    let spec = &order.spec;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).at("make / private")?;

    let changes = changes(order)?;
    let mut nodes = Vec::new();
    for node in PLAIN_NODES.iter().map(Path::new).filter(|node| node.exists()) {
        nodes.push((node, clone_node(node)?));
    }
    for node in spec.grant.nodes() {
        nodes.push((node, clone_node(node)?));
    }

    set_mount_attributes(None, c"/", MountAttributes { read_only: true, recursive: true })
        .at("make / read-only (mount_setattr, kernel 5.12)")?;
    memory("proc", "/proc", MountFlags::NOEXEC, "")?;
    let owner = format!("uid={uid},gid={gid}");
    for place in ["/tmp", "/var/tmp"] {
        if Path::new(place).is_dir() {
            memory("tmpfs", place, MountFlags::empty(), &format!("mode=1777,{SCRATCH},{owner}"))?;
        }
    }
    memory("tmpfs", "/run", MountFlags::empty(), "mode=755,size=16m,nr_inodes=10k")?;
    fs::create_dir(HOME_AT).at("make HOME")?;
    memory("tmpfs", HOME_AT, MountFlags::empty(), &format!("mode=700,{SCRATCH},{owner}"))?;
    fs::write(EMPTY_FILE, "").at("make an empty file")?;
    make_dev(nodes)?;

    let mut covers = Vec::new();
    for (place, change) in changes {
        match change {
            Change::Hide => covers.extend(hide(place)?),
            Change::Give(tree) => give(tree, &place)?,
        }
    }
    let closed = MountAttributes { read_only: true, recursive: false };
    for place in ["/run", "/dev"].map(PathBuf::from).into_iter().chain(covers) {
        set_mount_attributes(None, &c_path(&place)?, closed).at_path("close", &place)?;
    }
    Ok(())
}

/// What is hidden and given where, outer places first.
///
/// What is hidden is hidden also inside a given tree; what is given is given also inside a hidden one, or at its place.
fn changes(order: &Order) -> Result<Vec<(PathBuf, Change)>, LaunchFault> {
    let spec = &order.spec;
    let workspace = (&spec.workspace, &spec.workspace_at, spec.workspace_read_only);
    let granted = spec.read_only.iter().map(|(from, to)| (from, to, true));
    // One place has one name: links are resolved as the machine has them.
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let trees: Vec<(PathBuf, PathBuf, bool)> = std::iter::once(workspace)
        .chain(granted)
        .map(|(from, to, read_only)| (resolved(from), resolved(to), read_only))
        .collect();
    let mut hidden = BTreeSet::new();
    for tree in spec.hidden.iter().map(|tree| resolved(tree)) {
        if tree == Path::new("/") {
            return Err(LaunchFault::new("hide /", "a run cannot be without it; name the trees below it"));
        }
        for (from, to, _) in &trees {
            if let Ok(below) = tree.strip_prefix(from) {
                hidden.insert(to.join(below));
            }
        }
        hidden.insert(tree);
    }
    let mut changes = Vec::new();
    for place in hidden {
        let is_given = trees.iter().any(|(_, to, _)| *to == place);
        let is_its_own = OWN_PLACES.iter().any(|own| Path::new(own) == place);
        if !is_given && !is_its_own {
            changes.push((place, Change::Hide));
        }
    }
    for (from, to, read_only) in trees {
        changes.push((to, Change::Give(clone_tree(&from, read_only)?)));
    }
    changes.sort_by_key(|(place, _)| place.components().count());
    Ok(changes)
}

fn c_path(path: &Path) -> Result<CString, LaunchFault> {
    CString::new(path.as_os_str().as_bytes()).at_path("take path", path)
}

fn clone_tree(from: &Path, read_only: bool) -> Result<Clone, LaunchFault> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, from, flags).at_path("open the tree", from)?;
    set_mount_attributes(Some(mount.as_fd()), c"", MountAttributes { read_only, recursive: true })
        .at_path("set attributes of the tree", from)?;
    Ok(Clone { mount, is_directory: from.is_dir() })
}

fn clone_node(node: &Path) -> Result<Clone, LaunchFault> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, node, flags).at_path("open the device node", node)?;
    Ok(Clone { mount, is_directory: false })
}

/// A file system in memory.
fn memory(kind: &str, at: &str, more: MountFlags, options: &str) -> Result<(), LaunchFault> {
    let options = CString::new(options).expect("the options are written here and hold no nul");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | more;
    mount(kind, at, kind, flags, Some(options.as_c_str())).at_path(&format!("mount {kind} on"), Path::new(at))
}

/// Covers what the run must not see; answers a folder's cover, to be closed once it is filled.
fn hide(place: PathBuf) -> Result<Option<PathBuf>, LaunchFault> {
    let about = match fs::metadata(&place) {
        Ok(about) => about,
        // What this init cannot reach the run, which has fewer rights, cannot either.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).at_path("hide", &place),
    };
    if about.is_dir() {
        let options: &CStr = c"mode=755,size=1m,nr_inodes=10k";
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("hidden", &place, "tmpfs", flags, Some(options)).at_path("hide", &place)?;
        return Ok(Some(place));
    }
    let empty = clone_tree(Path::new(EMPTY_FILE), true)?;
    move_mount(empty.mount, "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at_path("hide", &place)?;
    Ok(None)
}

fn make_dev(nodes: Vec<(&Path, Clone)>) -> Result<(), LaunchFault> {
    let options: &CStr = c"mode=755,size=64k";
    mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(options))
        .at("mount tmpfs on /dev")?;
    for (at, node) in nodes {
        give(node, at)?;
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
    memory("tmpfs", "/dev/shm", MountFlags::NOEXEC, SHARED_MEMORY)
}

/// Puts a clone in its place, making the place where that is in memory.
fn give(tree: Clone, to: &Path) -> Result<(), LaunchFault> {
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
