//! A lane's change as it stands, uncommitted work included, taken without touching the lane (rule E5).
//!
//! Git only lists: which tracked files differ from a copy of the lane's index, and which files are new and not
//! ignored. The rig then reads those files itself, below the worktree and through no symbolic link, and hands their
//! bytes to git. So the lane's index stays as it was, byte for byte, and no filter, hook, attribute or nested
//! repository's configuration of the lane's runs with the rig's rights. `git add` would not do: in a nested repository
//! it runs `git status` under that repository's own configuration.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use rustix::io::Errno;

use thermite_core::limits::{CHANGE_BYTES_MAX, CHANGE_FILES_MAX};

use super::command::{GitCommand, GitFault, path_of};
use super::{Commit, Git, Repository, Worktree, object_name};

/// The largest index that is copied, in bytes.
const INDEX_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many files a refusal of a change that is too large names.
const LARGEST_SHOWN: usize = 5;

/// A lane's change as it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Where the lane started from: its HEAD.
    pub head: Commit,
    /// A commit on top of it that holds the lane's tree; kept in the store.
    pub commit: Commit,
    /// Nested repositories in the tree: git does not carry their content, and the lane should be told.
    pub nested: Vec<PathBuf>,
    /// Submodules whose files lie in the tree: git does not carry those either.
    pub submodules: Vec<PathBuf>,
}

/// What one path of the worktree is.
enum Found {
    Missing,
    File { blob: usize, executable: bool },
    Link { blob: usize },
}

impl Git {
    /// Takes a lane's tree as it stands; new files only where `takes_new` says so.
    ///
    /// # Errors
    /// Where the change is too large, or the tree cannot be read, with the sentence to show.
    pub fn capture(
        &self,
        repository: &Repository,
        worktree: &Worktree,
        takes_new: &dyn Fn(&Path) -> bool,
    ) -> Result<Captured, GitFault> {
        let head = self.resolve(repository, &worktree.head)?;
        self.keep(repository, &head)?;
        let scratch = self.scratch()?;
        let view = View::open(self, repository, worktree, scratch.path())?;
        view.fill_index(&head)?;
        let (mut paths, nested) = view.list(takes_new)?;
        paths.retain(|path| !path.as_os_str().is_empty());
        view.check_size(&paths)?;
        view.update(&paths)?;
        let submodules = view.submodules()?;
        let tree = view.command("write-tree").run::<[&str; 0]>([])?;
        let tree = object_name(&tree).ok_or_else(|| GitFault::Unexpected("git write-tree named no tree".to_owned()))?;
        view.move_into_store(&tree, &head)?;
        let commit = self.commit(repository, &tree, &head)?;
        Ok(Captured { head, commit, nested, submodules })
    }
}

/// A worktree seen with the store's configuration and a scratch index.
struct View<'a> {
    git: &'a Git,
    store: PathBuf,
    user_common: &'a Path,
    worktree: &'a Worktree,
    scratch: &'a Path,
    root: OwnedFd,
}

impl<'a> View<'a> {
    fn open(
        git: &'a Git,
        repository: &'a Repository,
        worktree: &'a Worktree,
        scratch: &'a Path,
    ) -> Result<View<'a>, GitFault> {
        let root = rustix::fs::open(&worktree.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| unreadable(&worktree.path, error.into()))?;
        for folder in ["objects", "blobs"] {
            std::fs::create_dir(scratch.join(folder)).map_err(|error| unreadable(scratch, error))?;
        }
        Ok(View { git, store: git.store(repository)?, user_common: &repository.common, worktree, scratch, root })
    }

    /// A command that sees the lane's files, the scratch index, and writes objects into the scratch folder.
    fn command(&self, subcommand: &str) -> GitCommand {
        let mut others = quoted(&self.store.join("objects"));
        others.push(":");
        // Content that the lane has staged is in the user's repository only.
        others.push(quoted(&self.user_common.join("objects")));
        self.git
            .command(subcommand)
            .git_dir(&self.store)
            .cwd(&self.worktree.path)
            .env("GIT_WORK_TREE", &self.worktree.path)
            .env("GIT_INDEX_FILE", self.scratch.join("index"))
            .env("GIT_OBJECT_DIRECTORY", self.scratch.join("objects"))
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", others)
    }

    /// Copies the lane's index, which spares reading every file, or makes one from HEAD where the copy is of no use.
    fn fill_index(&self, head: &str) -> Result<(), GitFault> {
        let refresh = || self.command("update-index").asks(["-q", "--refresh", "--ignore-submodules"]);
        let usable = |listed: Option<Vec<u8>>| listed.is_some();
        let copied = copy_index(&self.worktree.git_dir.join("index"), &self.scratch.join("index"));
        if copied.is_err() || !usable(self.command("ls-files").asks(["--cached"])?) {
            drop(std::fs::remove_file(self.scratch.join("index")));
            self.command("read-tree").run(["--end-of-options", head])?;
        }
        // Its answer only says whether files differ, which is asked for next.
        refresh()?;
        Ok(())
    }

    /// The tracked paths that differ and the new ones that are wanted, and nested repositories.
    fn list(&self, takes_new: &dyn Fn(&Path) -> bool) -> Result<(BTreeSet<PathBuf>, Vec<PathBuf>), GitFault> {
        let changed =
            self.command("diff-files").run(["--name-only", "-z", "--no-renames", "--ignore-submodules=all"])?;
        let mut paths: BTreeSet<PathBuf> = changed.split(|byte| *byte == 0).map(path_of).collect();
        let mut arguments: Vec<OsString> = ["--others", "-z", "--exclude-standard"].map(OsString::from).into();
        let exclude = self.user_common.join("info/exclude");
        if exclude.is_file() {
            let mut argument = OsString::from("--exclude-from=");
            argument.push(exclude);
            arguments.push(argument);
        }
        let mut nested = Vec::new();
        for new in self.command("ls-files").run(arguments)?.split(|byte| *byte == 0) {
            match new.strip_suffix(b"/") {
                Some(folder) => nested.push(path_of(folder)),
                None if takes_new(&path_of(new)) => {
                    paths.insert(path_of(new));
                }
                None => {}
            }
        }
        if paths.len() > CHANGE_FILES_MAX {
            let (count, tree) = (paths.len(), self.worktree.path.display());
            return Err(GitFault::Unexpected(format!(
                "the change in {tree} has {count} new or changed files, at most {CHANGE_FILES_MAX}; have git ignore what is not part of it"
            )));
        }
        Ok((paths, nested))
    }

    /// Refuses a change that is too large before anything of it is read, and names what is largest.
    fn check_size(&self, paths: &BTreeSet<PathBuf>) -> Result<(), GitFault> {
        let mut sizes: Vec<(u64, &PathBuf)> =
            paths.iter().filter_map(|path| Some((self.size_of(path)?, path))).collect();
        let all = sizes.iter().fold(0_u64, |all, (size, _)| all.saturating_add(*size));
        if all <= CHANGE_BYTES_MAX {
            return Ok(());
        }
        sizes.sort_by(|one, other| other.cmp(one));
        let largest: Vec<String> = sizes
            .iter()
            .take(LARGEST_SHOWN)
            .map(|(size, path)| {
                let path: String = path.display().to_string().chars().flat_map(char::escape_default).collect();
                format!("{path} ({size} bytes)")
            })
            .collect();
        Err(GitFault::Unexpected(format!(
            "the change in {} has {all} bytes of new or changed content, at most {CHANGE_BYTES_MAX}; have git ignore what \
             is not part of it, or list it as a model file of the kit; the largest: {}",
            self.worktree.path.display(),
            largest.join(", ")
        )))
    }

    /// How large a file of the worktree is; none where there is none that would be read.
    fn size_of(&self, path: &Path) -> Option<u64> {
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(self.root.as_fd(), path, flags, Mode::empty(), inside).ok()?;
        let about = File::from(file).metadata().ok()?;
        about.is_file().then_some(about.len())
    }

    /// Nested repositories that are tracked, and whose folders hold files.
    fn submodules(&self) -> Result<Vec<PathBuf>, GitFault> {
        let listed = self.command("ls-files").run(["--stage", "-z"])?;
        let links = listed.split(|byte| *byte == 0).filter(|line| line.starts_with(b"160000 "));
        let paths = links.filter_map(|line| Some(path_of(&line[line.iter().position(|byte| *byte == b'\t')? + 1..])));
        Ok(paths.filter(|path| self.holds_files(path)).collect())
    }

    fn holds_files(&self, folder: &Path) -> bool {
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat2(self.root.as_fd(), folder, flags, Mode::empty(), inside) else { return false };
        let Ok(mut entries) = rustix::fs::Dir::new(folder) else { return false };
        entries.any(|entry| entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")))
    }

    /// Brings the scratch index to what the worktree has at these paths.
    fn update(&self, paths: &BTreeSet<PathBuf>) -> Result<(), GitFault> {
        let mut budget = CHANGE_BYTES_MAX;
        let mut blobs = 0;
        let mut found = Vec::new();
        for path in paths {
            let what = self
                .take(path, &mut blobs, &mut budget)
                .map_err(|error| unreadable(&self.worktree.path.join(path), error))?;
            found.push((path, what));
        }
        let names: String = (0..blobs).map(|blob| format!("{blob}\n")).collect();
        let hashed = self.command("hash-object").cwd(&self.scratch.join("blobs")).input(names.into_bytes()).run([
            "-w",
            "--no-filters",
            "--stdin-paths",
        ])?;
        let hashed = String::from_utf8_lossy(&hashed).into_owned();
        let hashed: Vec<&str> = hashed.lines().collect();
        if hashed.len() != blobs {
            return Err(GitFault::Unexpected(format!("git hash-object named {} of {blobs} files", hashed.len())));
        }
        let zero = "0".repeat(hashed.first().map_or(40, |name| name.len()));
        let mut input = Vec::new();
        let mut line = |mode: &str, name: &str, path: &Path| {
            input.extend_from_slice(format!("{mode} {name}\t").as_bytes());
            input.extend_from_slice(path.as_os_str().as_bytes());
            input.push(0);
        };
        for (path, what) in &found {
            // First away with all its stages: a path in conflict has three.
            line("0", &zero, path);
            match what {
                Found::Missing => {}
                Found::File { blob, executable } => {
                    line(if *executable { "100755" } else { "100644" }, hashed[*blob], path);
                }
                Found::Link { blob } => line("120000", hashed[*blob], path),
            }
        }
        self.command("update-index").input(input).run(["-z", "--index-info"])?;
        Ok(())
    }

    /// Reads one path below the worktree, through no symbolic link, into the scratch folder.
    fn take(&self, path: &Path, blobs: &mut usize, budget: &mut u64) -> io::Result<Found> {
        let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else {
            return Ok(Found::Missing);
        };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match openat2(self.root.as_fd(), parent, folder_flags, Mode::empty(), inside) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Found::Missing),
            Err(error) => return Err(error.into()),
        };
        let kind = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(Found::Missing),
            Err(error) => return Err(error.into()),
        };
        let blob = *blobs;
        let copy = self.scratch.join("blobs").join(blob.to_string());
        let found = match kind {
            FileType::Symlink => {
                let target = readlinkat(&folder, name, Vec::new())?;
                std::fs::write(copy, target.as_bytes())?;
                Found::Link { blob }
            }
            FileType::RegularFile => {
                // Not to be held up where it has become a pipe in between.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = File::from(openat2(&folder, name, flags, Mode::empty(), inside)?);
                let about = file.metadata()?;
                if !about.is_file() {
                    return Ok(Found::Missing);
                }
                let taken = io::copy(&mut file.take(*budget + 1), &mut File::create_new(copy)?)?;
                *budget = budget.checked_sub(taken).ok_or_else(|| {
                    io::Error::other(format!(
                        "the change has more than {CHANGE_BYTES_MAX} bytes of new or changed content; have git ignore \
                         what is not part of it"
                    ))
                })?;
                let executable = std::os::unix::fs::MetadataExt::mode(&about) & 0o100 != 0;
                Found::File { blob, executable }
            }
            // A folder in a file's place, a pipe, a socket, a device: nothing that git carries.
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(Found::Missing),
        };
        *blobs += 1;
        Ok(found)
    }

    /// Copies the tree's objects that the store lacks out of the scratch folder and the user's repository.
    fn move_into_store(&self, tree: &str, head: &str) -> Result<(), GitFault> {
        let wanted = format!("{tree}\n^{head}\n");
        let pack = self.store.join("objects/pack/pack");
        std::fs::create_dir_all(self.store.join("objects/pack")).map_err(|error| unreadable(&pack, error))?;
        self.command("pack-objects").input(wanted.into_bytes()).run([
            OsString::from("--revs"),
            "--quiet".into(),
            "--non-empty".into(),
            pack.into(),
        ])?;
        Ok(())
    }
}

/// Copies an index with its time of change, which git needs to tell files that changed in the same instant.
fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = File::from(rustix::fs::open(from, flags, Mode::empty())?);
    let about = from.metadata()?;
    if !about.is_file() || about.len() > INDEX_BYTES_MAX {
        return Err(io::Error::other("no index of a size to copy"));
    }
    let mut copy = File::create_new(to)?;
    io::copy(&mut from.take(INDEX_BYTES_MAX), &mut copy)?;
    copy.flush()?;
    copy.set_times(std::fs::FileTimes::new().set_modified(about.modified()?))
}

/// A path as git reads it in a list of paths, where a colon would end it.
fn quoted(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

fn unreadable(path: &Path, error: io::Error) -> GitFault {
    GitFault::Unexpected(format!("{} cannot be read: {error}", path.display()))
}
