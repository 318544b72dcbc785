//! Git by its command line, over a store of the rig's own.
//!
//! The store is a bare repository in the data folder. Commits are fetched into it before anything is read from them,
//! so that a job's content cannot vanish under it, and everything that walks a lane's tree works with the store's
//! configuration: a lane's hooks, filters, attributes and file system monitor never run with the rig's rights. A
//! user's repository is asked for two things only: which commit a revision names, and that commit's objects.
//!
//! Files are taken and laid out byte for byte: line ends, `ident` and filters (`git lfs` among them) are not applied.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub mod bundle;
pub mod capture;
pub mod command;
mod prune;
mod size;
pub mod whole;

use command::{GitCommand, GitFault, path_of};

/// Who candidates are committed as; fixed, so that equal content on equal champions is one commit.
const COMMITTER: (&str, &str) = ("thermite", "thermite@localhost");
/// The longest revision that is looked up, in bytes.
const REVISION_BYTES_MAX: usize = 1_024;
/// Where the stores are, in the data folder.
pub const STORES: &str = "git";
/// What the store's attributes say of every path: nothing is converted, filtered or left out.
const ATTRIBUTES: &str =
    "* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst -diff -merge\n";
const CONFIG: &str = "[core]\n\tfsync = committed,loose-object,reference\n[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n\
                      [maintenance]\n\tauto = false\n[transfer]\n\tunpackLimit = 100\n";

/// Whether such words are a disk's without room: what the C library says of ENOSPC and EDQUOT; git runs with
/// `LC_ALL=C`, and Rust sets no locale.
pub fn is_no_room(said: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"].iter().any(|words| said.contains(words))
}

/// Whether such words are a failing disk's, EIO and EROFS: the rig only ever writes to its own stores, so that the asker
/// has nothing to do with it.
pub fn is_disk_failing(said: &str) -> bool {
    ["Input/output error", "Read-only file system"].iter().any(|words| said.contains(words))
}

/// Whether such words are of a lock in the store that a git of the rig's left behind: it was killed, or its disk failed.
/// Nobody else writes there, and the next one to write takes it away once it is old.
pub fn is_locked(said: &str) -> bool {
    said.contains(".lock': File exists")
}

/// How old a lock in the store is that nobody holds any more: the rig's gits write one at a time, each for milliseconds,
/// and one that the rig outlived or that outlived the rig has lost its pipes by then.
const LOCK_OLD: Duration = Duration::from_secs(5);

/// Takes away locks that a git left behind; called by the one who may write in the store.
fn clear_old_locks(store: &Path, commit: &str) {
    let of_ref = format!("refs/thermite/keep/{commit}.lock");
    for name in ["shallow.lock", "packed-refs.lock", "HEAD.lock", "config.lock", of_ref.as_str()] {
        let lock = store.join(name);
        let age = std::fs::metadata(&lock).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= LOCK_OLD) {
            // Where it cannot be taken away git says so.
            let taken = std::fs::remove_file(&lock);
            tracing::warn!(lock = %lock.display(), ?taken, "a lock that a killed git left in the store is taken away");
        }
    }
}

/// A commit's name, in full.
pub type Commit = String;

/// A user's repository, found and looked at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its folder as it was given, without symbolic links.
    pub path: PathBuf,
    /// Where its objects, references and list of worktrees are.
    pub common: PathBuf,
    /// How it names objects: `sha1` or `sha256`.
    pub object_format: String,
}

/// A worktree of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// Its folder, without symbolic links.
    pub path: PathBuf,
    /// Where its own HEAD and index are: inside the repository's common folder, never read from the worktree.
    pub git_dir: PathBuf,
    /// The name of its HEAD as the repository knows it.
    pub head: String,
}

/// A path that differs between two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, from the root.
    pub path: PathBuf,
    /// Whether the newer side has a nested repository there, whose content git does not carry.
    pub is_nested: bool,
}

/// The rig's own git: configuration and stores in the data folder.
#[derive(Clone, Debug)]
pub struct Git {
    folder: PathBuf,
    config: PathBuf,
}

impl Git {
    /// Opens or makes the rig's git folder in the data folder.
    ///
    /// # Errors
    /// Where the folder cannot be made or written.
    pub fn open(data: &Path) -> io::Result<Git> {
        let folder = data.join(STORES);
        std::fs::create_dir_all(folder.join("tmp"))?;
        // What a process that died left half done.
        for entry in std::fs::read_dir(folder.join("tmp"))? {
            std::fs::remove_dir_all(entry?.path())?;
        }
        let config = folder.join("config");
        std::fs::write(&config, CONFIG)?;
        Ok(Git { folder, config })
    }

    fn command(&self, subcommand: &str) -> GitCommand {
        GitCommand::new(&self.config, subcommand)
    }

    /// Finds the repository at this folder, not in a folder above it.
    ///
    /// # Errors
    /// Where there is none, with the sentence to show.
    pub fn repository(&self, path: &Path) -> Result<Repository, GitFault> {
        let shown = path.display();
        let path = path
            .canonicalize()
            .map_err(|error| GitFault::Unexpected(format!("repository {shown} cannot be opened: {error}")))?;
        let ceiling = path.parent().unwrap_or(Path::new("/"));
        let found = self.command("rev-parse").cwd(&path).env("GIT_CEILING_DIRECTORIES", ceiling).asks([
            "--path-format=absolute",
            "--git-common-dir",
            "--show-object-format",
        ])?;
        let no_repository = || {
            GitFault::Unexpected(format!(
                "{shown} is not the root of a git repository; give the root, or `git init` it"
            ))
        };
        let found = found.ok_or_else(no_repository)?;
        let mut lines = found.split(|byte| *byte == b'\n');
        let (Some(common), Some(format)) = (lines.next(), lines.next()) else { return Err(no_repository()) };
        let object_format = String::from_utf8_lossy(format).into_owned();
        if object_format != "sha1" && object_format != "sha256" {
            return Err(GitFault::Unexpected(format!(
                "{shown} names its objects by {object_format:?}, not sha1 or sha256"
            )));
        }
        let common = path_of(common).canonicalize().map_err(|_| no_repository())?;
        Ok(Repository { path, common, object_format })
    }

    /// Finds a folder among the worktrees the repository itself lists: what a lane writes in its own tree is not asked.
    ///
    /// # Errors
    /// Where the folder is none of them, with the sentence to show.
    pub fn worktree(&self, repository: &Repository, folder: &Path) -> Result<Worktree, GitFault> {
        let shown = folder.display();
        let path = folder
            .canonicalize()
            .map_err(|error| GitFault::Unexpected(format!("worktree {shown} cannot be opened: {error}")))?;
        if path.join(".git").canonicalize().is_ok_and(|git_dir| git_dir == repository.common) {
            return Ok(Worktree { path, git_dir: repository.common.clone(), head: "HEAD".to_owned() });
        }
        for entry in std::fs::read_dir(repository.common.join("worktrees")).into_iter().flatten().flatten() {
            let git_dir = entry.path();
            let Ok(back) = std::fs::read_to_string(git_dir.join("gitdir")) else { continue };
            let back = git_dir.join(back.trim_end_matches('\n'));
            let is_it = back.parent().and_then(|tree| tree.canonicalize().ok()).is_some_and(|tree| tree == path);
            if let (true, Some(name)) = (is_it, entry.file_name().to_str()) {
                return Ok(Worktree { path, git_dir, head: format!("worktrees/{name}/HEAD") });
            }
        }
        Err(GitFault::Unexpected(format!(
            "{shown} is no worktree of repository {}; make one with `git -C {} worktree add {shown}`",
            repository.path.display(),
            repository.path.display()
        )))
    }

    /// The commit that a revision names in the repository, or in the store, where adopted candidates are.
    ///
    /// # Errors
    /// Where it names none, with the sentence to show.
    pub fn resolve(&self, repository: &Repository, revision: &str) -> Result<Commit, GitFault> {
        let unknown =
            || GitFault::Unexpected(format!("revision {revision:?} names no commit in {}", repository.path.display()));
        let odd = |letter: char| letter.is_control();
        if revision.is_empty() || revision.len() > REVISION_BYTES_MAX || revision.contains(odd) {
            return Err(unknown());
        }
        let wanted = format!("{revision}^{{commit}}");
        for git_dir in [&repository.common, &self.store(repository)?] {
            let found = self.command("rev-parse").git_dir(git_dir).asks([
                "--verify",
                "--quiet",
                "--end-of-options",
                wanted.as_str(),
            ])?;
            if let Some(commit) = found.and_then(|found| object_name(&found)) {
                return Ok(commit);
            }
        }
        Err(unknown())
    }

    /// The store for repositories that name objects as this one does, made where there is none.
    fn store(&self, repository: &Repository) -> Result<PathBuf, GitFault> {
        self.made_store(&repository.object_format)
    }

    /// The store of that object format, made where there is none.
    fn made_store(&self, object_format: &str) -> Result<PathBuf, GitFault> {
        let store = self.store_of(object_format);
        if store.join("info/attributes").exists() {
            return Ok(store);
        }
        let format = format!("--object-format={object_format}");
        self.command("init").run([
            OsString::from("--bare"),
            "--quiet".into(),
            "--template=".into(),
            "--initial-branch=none".into(),
            format.into(),
            store.clone().into(),
        ])?;
        std::fs::create_dir_all(store.join("info"))
            .and_then(|()| std::fs::write(store.join("info/attributes"), ATTRIBUTES))
            .map_err(|error| GitFault::Unexpected(format!("{} cannot be written: {error}", store.display())))?;
        Ok(store)
    }

    fn store_of(&self, object_format: &str) -> PathBuf {
        self.folder.join(format!("{object_format}.git"))
    }

    /// Brings a commit's whole tree into the store, without its history.
    ///
    /// # Errors
    /// Where the repository lacks it.
    pub fn keep(&self, repository: &Repository, commit: &str) -> Result<(), GitFault> {
        let store = self.store(repository)?;
        let kept = format!("refs/thermite/keep/{commit}");
        let have = self.command("rev-parse").git_dir(&store).asks(["--verify", "--quiet", kept.as_str()])?;
        if have.is_some() {
            return Ok(());
        }
        self.check_size(&repository.common, commit)?;
        clear_old_locks(&store, commit);
        self.command("fetch").git_dir(&store).run([
            OsString::from("--quiet"),
            "--no-tags".into(),
            "--no-write-fetch-head".into(),
            "--no-auto-maintenance".into(),
            "--no-recurse-submodules".into(),
            "--depth=1".into(),
            repository.common.clone().into(),
            format!("{commit}:{kept}").into(),
        ])?;
        Ok(())
    }

    /// A file's bytes as a kept commit has it; `None` where it has no file of that name.
    ///
    /// # Errors
    /// Where the file is larger than `most` bytes, or git fails.
    pub fn file(
        &self,
        repository: &Repository,
        commit: &str,
        path: &Path,
        most: u64,
    ) -> Result<Option<Vec<u8>>, GitFault> {
        let store = self.store(repository)?;
        let mut object = OsString::from(format!("{commit}:"));
        object.push(path);
        let cat_file = || self.command("cat-file").git_dir(&store);
        let Some(kind) = cat_file().asks([OsString::from("-t"), object.clone()])? else { return Ok(None) };
        if kind.trim_ascii() != b"blob" {
            return Ok(None);
        }
        let size = cat_file().run([OsString::from("-s"), object.clone()])?;
        let size: u64 = String::from_utf8_lossy(&size).trim().parse().unwrap_or(u64::MAX);
        if size > most {
            let path = path.display();
            return Err(GitFault::Unexpected(format!("{path} is {size} bytes long in {commit}, at most {most}")));
        }
        cat_file().run([OsString::from("blob"), object]).map(Some)
    }

    /// Whether a path of a kept commit is a symbolic link.
    ///
    /// # Errors
    /// Where git fails.
    pub fn is_link(&self, repository: &Repository, commit: &str, path: &Path) -> Result<bool, GitFault> {
        let store = self.store(repository)?;
        let list = self.command("ls-tree").git_dir(&store);
        let entry = list.run([OsString::from("-z"), commit.into(), "--".into(), path.as_os_str().to_owned()])?;
        Ok(entry.starts_with(b"120000 "))
    }

    /// The paths that differ between two kept commits, in git's order.
    ///
    /// # Errors
    /// Where git fails.
    pub fn differences(&self, repository: &Repository, from: &str, to: &str) -> Result<Vec<Difference>, GitFault> {
        let store = self.store(repository)?;
        let raw = self.command("diff-tree").git_dir(&store).run([
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--end-of-options",
            from,
            to,
        ])?;
        // `:oldmode newmode oldname newname status` NUL path NUL
        let mut fields = raw.split(|byte| *byte == 0);
        let mut differences = Vec::new();
        while let (Some(about), Some(path)) = (fields.next(), fields.next()) {
            let newer = about.split(|byte| *byte == b' ').nth(1);
            differences.push(Difference { path: path_of(path), is_nested: newer == Some(b"160000".as_slice()) });
        }
        Ok(differences)
    }

    /// The tree of a kept commit.
    ///
    /// # Errors
    /// Where git fails.
    pub fn tree(&self, repository: &Repository, commit: &str) -> Result<String, GitFault> {
        let store = self.store(repository)?;
        let tree = format!("{commit}^{{tree}}");
        let found = self.command("rev-parse").git_dir(&store).run(["--verify", "--end-of-options", tree.as_str()])?;
        object_name(&found).ok_or_else(|| GitFault::Unexpected(format!("{commit} has no tree")))
    }

    /// Commits a tree on top of a kept commit and keeps it. The same tree on the same parent is the same commit.
    ///
    /// # Errors
    /// Where git fails.
    pub fn commit(&self, repository: &Repository, tree: &str, parent: &str) -> Result<Commit, GitFault> {
        let store = self.store(repository)?;
        let date = self.command("show").git_dir(&store).run([
            "--no-patch",
            "--format=%cd",
            "--date=raw",
            "--end-of-options",
            parent,
        ])?;
        let date = format!("@{}", String::from_utf8_lossy(&date).trim());
        let message = format!("Candidate on {parent}\n");
        let commit =
            self.commit_tree(&store, &date).input(message.into_bytes()).run([tree, "-p", parent, "-F", "-"])?;
        let commit =
            object_name(&commit).ok_or_else(|| GitFault::Unexpected("git commit-tree named no commit".to_owned()))?;
        let kept = format!("refs/thermite/keep/{commit}");
        clear_old_locks(&store, &commit);
        self.command("update-ref").git_dir(&store).run([kept.as_str(), commit.as_str()])?;
        Ok(commit)
    }

    fn commit_tree(&self, store: &Path, date: &str) -> GitCommand {
        let (name, email) = COMMITTER;
        let command = self.command("commit-tree").git_dir(store);
        ["AUTHOR", "COMMITTER"].into_iter().fold(command, |command, who| {
            command
                .env(&format!("GIT_{who}_NAME"), name)
                .env(&format!("GIT_{who}_EMAIL"), email)
                .env(&format!("GIT_{who}_DATE"), date)
        })
    }

    /// Lays out the files of a kept commit in an empty or missing folder.
    ///
    /// # Errors
    /// Where the folder cannot be made, or git fails.
    pub fn lay_out(&self, commit: &str, folder: &Path) -> Result<(), GitFault> {
        // The name's length tells the store, so that the user's repository need not be there any more.
        let store = self.store_of(format_of(commit));
        let wrong = |error: io::Error| GitFault::Unexpected(format!("{} cannot be made: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(wrong)?;
        let scratch = self.scratch()?;
        let index = scratch.path().join("index");
        let with_index = |subcommand| {
            let command = self.command(subcommand).git_dir(&store);
            command.env("GIT_INDEX_FILE", &index).env("GIT_WORK_TREE", folder).cwd(folder)
        };
        with_index("read-tree").run(["--end-of-options", commit])?;
        with_index("checkout-index").run(["--all", "--quiet"])?;
        Ok(())
    }

    /// A folder of the rig's own that goes away by itself.
    fn scratch(&self) -> Result<Scratch, GitFault> {
        Scratch::below(&self.folder.join("tmp"))
            .map_err(|error| GitFault::Unexpected(format!("{} cannot be written: {error}", self.folder.display())))
    }
}

/// A folder removed with all that is in it when the value goes away.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn below(folder: &Path) -> io::Result<Scratch> {
        let path = folder.join(uuid::Uuid::now_v7().to_string());
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            // Removed at the next start at the latest.
            tracing::debug!(folder = %self.0.display(), %error, "a scratch folder stays");
        }
    }
}

/// How the store of a commit of that name names its objects.
pub(super) fn format_of(commit: &str) -> &'static str {
    if commit.len() == 64 { "sha256" } else { "sha1" }
}

/// Whether a text is an object's name in full.
pub(super) fn is_object_name(name: &str) -> bool {
    (name.len() == 40 || name.len() == 64) && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The object name that a command printed as its only line.
fn object_name(printed: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(printed).ok()?.trim();
    is_object_name(name).then(|| name.to_owned())
}
