//! Tools that live under a home a run's user cannot enter, such as root's `~/.cargo` and `~/.rustup`.
//!
//! Each closed place is covered by an empty one, and the tools' trees are put back at their own paths, read-only: so
//! absolute paths inside them (shims, virtual environments, cargo's registry) go on working.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Identity;

/// What a run needs so that the rig's tools work in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// For [`super::LaunchSpec::read_only`].
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// For [`super::LaunchSpec::hidden`]: the closed places that the tools are put into.
    pub hidden: Vec<PathBuf>,
    /// For [`super::LaunchSpec::env`]: PATH, and CARGO_HOME and RUSTUP_HOME where there are such.
    pub env: Vec<(String, String)>,
}

/// What of a cargo home a run may see; its credentials are not among it.
const CARGO_PARTS: [&str; 6] = ["bin", "registry", "git", "config.toml", "config", "env"];

/// Works out what a run of `identity` needs to use the tools on the rig's own PATH.
///
/// `variable` answers the rig's environment (`PATH`, `HOME`, `CARGO_HOME`, `RUSTUP_HOME`). Symbolic links are resolved
/// first, those inside the folders of PATH too. Reads folders only: once per rig is enough.
pub fn toolchain_mounts(identity: Identity, variable: impl Fn(&str) -> Option<String>) -> Toolchains {
    let mut found = Found { identity, trees: BTreeSet::new(), covers: BTreeSet::new() };
    let home = variable("HOME").map(PathBuf::from);
    let home_of = |name: &str, below: &str| {
        let path = variable(name).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(below)))?;
        path.canonicalize().ok().filter(|path| path.is_dir())
    };
    let cargo = home_of("CARGO_HOME", ".cargo");
    let rustup = home_of("RUSTUP_HOME", ".rustup");

    let mut path: Vec<PathBuf> = Vec::new();
    for entry in variable("PATH").unwrap_or_default().split(':').filter(|entry| entry.starts_with('/')) {
        let Ok(entry) = Path::new(entry).canonicalize() else { continue };
        if entry.is_dir() && !path.contains(&entry) {
            path.push(entry);
        }
    }
    for entry in &path {
        found.need_programs_of(entry, cargo.as_deref());
        for link in links_out_of(entry) {
            if let Some(folder) = link.parent() {
                found.need_programs_of(folder, cargo.as_deref());
            }
        }
    }
    if let Some(cargo) = &cargo {
        for part in CARGO_PARTS {
            found.need(&cargo.join(part));
        }
    }
    if let Some(rustup) = &rustup {
        found.need(rustup);
    }

    let words: Vec<String> = path.iter().map(|entry| entry.display().to_string()).collect();
    let mut env = vec![("PATH".to_owned(), words.join(":"))];
    for (name, home) in [("CARGO_HOME", &cargo), ("RUSTUP_HOME", &rustup)] {
        if let Some(home) = home {
            env.push((name.to_owned(), home.display().to_string()));
        }
    }
    let trees = found.trees;
    let inside_another = |tree: &PathBuf| trees.iter().any(|other| other != tree && tree.starts_with(other));
    let read_only =
        trees.iter().filter(|tree| !inside_another(tree)).map(|tree| (tree.clone(), tree.clone())).collect();
    Toolchains { read_only, hidden: found.covers.into_iter().collect(), env }
}

struct Found {
    identity: Identity,
    trees: BTreeSet<PathBuf>,
    covers: BTreeSet<PathBuf>,
}

impl Found {
    /// A folder of programs: with what lies beside it (`lib`, `libexec`), unless that is the closed place as a whole.
    fn need_programs_of(&mut self, folder: &Path, cargo: Option<&Path>) {
        let Some(closed) = closed_place(self.identity, folder) else { return };
        let beside = folder.parent().filter(|beside| *beside != closed && beside.starts_with(&closed));
        let whole = match beside {
            // A cargo home holds credentials; its parts are named one by one.
            Some(beside) if Some(beside) != cargo => beside,
            Some(_) | None => folder,
        };
        self.need(whole);
    }

    fn need(&mut self, tree: &Path) {
        if !tree.exists() {
            return;
        }
        if let Some(closed) = closed_place(self.identity, tree) {
            // A closed place that is itself the tree has nothing above it to be covered.
            self.covers.insert(closed);
            self.trees.insert(tree.to_owned());
        }
    }
}

/// The outermost folder above or at a path that a run's user cannot enter.
fn closed_place(identity: Identity, path: &Path) -> Option<PathBuf> {
    let Identity::Dedicated { uid, gid } = identity else { return None };
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let closed = ancestors
        .into_iter()
        .find(|place| fs::metadata(place).is_ok_and(|about| about.is_dir() && !may_enter(uid, gid, &about)))?;
    Some(closed.to_owned())
}

fn may_enter(uid: u32, gid: u32, about: &Metadata) -> bool {
    let shift = if about.uid() == uid {
        6
    } else if about.gid() == gid {
        3
    } else {
        0
    };
    let rights = about.mode() >> shift;
    rights & 0o5 == 0o5
}

/// Where the symbolic links in a folder of programs lead.
fn links_out_of(folder: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| entry.path().canonicalize().ok())
        .filter(|target| target.is_file() && !target.starts_with(folder))
        .collect()
}
