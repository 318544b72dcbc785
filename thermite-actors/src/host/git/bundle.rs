//! Commits as bundles: out of the core's store, into a runner's (rules E3 to E5).
//!
//! Stores are shallow: a commit is there with its tree, its history mostly is not. Such a bundle says nothing of where
//! history was cut, so that it travels beside it and is written into the receiving store first. A bundle builds on
//! commits that the other side has, also on unrelated ones: two commits of one repository share most of their files. The
//! receiving side names the references that it takes, has git check every object and that nothing is missing, and
//! keeps the commits for their run, under `refs/thermite/runs/RUN/COMMIT`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use thermite_core::ids::RunId;
use thermite_core::limits;

use super::command::GitFault;
use super::{Commit, Git, clear_old_locks, format_of, is_disk_failing, is_locked, is_no_room, is_object_name};

/// Bases that a bundle builds on at most: each one's tree is walked, and the newest has nearly all there is to gain.
const BASES_MAX: usize = 16;
/// The longest header of a bundle that is read, in bytes.
const HEADER_BYTES_MAX: u64 = 64 * 1024;
/// What old tools wrote into commits and trees, and harms nobody who lays them out.
const HARMLESS: [&str; 14] = [
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badFilemode",
    "badName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "multipleAuthors",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
    "nulInCommit",
];

/// A bundle that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Where the history of what it brings ends.
    pub cut: Vec<Commit>,
    /// What it builds on; nothing where it is whole.
    pub bases: Vec<Commit>,
}

/// Why a bundle's commits are not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It builds on what is not there.
    MissingBase {
        /// What git said, or which.
        said: String,
    },
    /// It is no bundle of those commits, or not of sound ones.
    Unsound {
        /// What is wrong with it.
        said: String,
    },
    /// Git, or the disk below it, failed.
    Fault(GitFault),
}

impl Git {
    /// Writes a bundle of commits that are kept here into a new file, on top of what the other side has of `tips`.
    ///
    /// # Errors
    /// Where a commit is not kept, the file cannot be written, or git fails.
    pub fn make_bundle(&self, commits: &[Commit], tips: &[Commit], file: &Path) -> Result<Bundle, GitFault> {
        let format = commits.first().map_or("sha1", |commit| format_of(commit));
        let store = self.store_of(format);
        if let Some(gone) = self.missing(commits)?.first() {
            return Err(GitFault::Unexpected(format!("commit {gone} is not in the rig's store")));
        }
        let unknown: BTreeSet<Commit> = self.missing(tips)?.into_iter().collect();
        let usable = |tip: &&Commit| format_of(tip) == format && !unknown.contains(*tip);
        let bases: Vec<Commit> = tips.iter().filter(usable).take(BASES_MAX).cloned().collect();
        let mut revisions: Vec<String> = commits.to_vec();
        revisions.extend(bases.iter().map(|base| format!("^{base}")));
        let revisions = revisions.join("\n") + "\n";

        let listed = self.command("rev-list").git_dir(&store).input(revisions.clone().into_bytes()).run(["--stdin"])?;
        let brought: BTreeSet<String> = String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect();
        let shallow = std::fs::read_to_string(store.join("shallow")).unwrap_or_default();
        let cut = shallow.lines().filter(|line| brought.contains(*line)).map(str::to_owned).collect();

        let wrong = |error: io::Error| GitFault::Unexpected(format!("{} cannot be written: {error}", file.display()));
        let mut out = File::create_new(file).map_err(wrong)?;
        let mut header = match format {
            "sha256" => "# v3 git bundle\n@object-format=sha256\n".to_owned(),
            _ => "# v2 git bundle\n".to_owned(),
        };
        header.extend(bases.iter().map(|base| format!("-{base} \n")));
        header.extend(commits.iter().map(|commit| format!("{commit} refs/thermite/keep/{commit}\n")));
        header.push('\n');
        out.write_all(header.as_bytes()).map_err(wrong)?;
        let pack = self.command("pack-objects").git_dir(&store).input(revisions.into_bytes());
        pack.output_to(out.try_clone().map_err(wrong)?).limit(limits::BULK_GIT_MAX).run([
            "--revs",
            "--stdout",
            "--thin",
            // Bases need not be ancestors of what is sent.
            "--shallow",
            "--delta-base-offset",
            "--quiet",
        ])?;
        let size = out.metadata().map_err(wrong)?.len();
        let most = limits::BULK_TRANSFER_BYTES_MAX;
        if size > most {
            return Err(GitFault::Unexpected(format!("the commits are {size} bytes packed, at most {most}")));
        }
        out.sync_data().map_err(wrong)?;
        Ok(Bundle { cut, bases })
    }

    /// Those of some commits that no store here has; a commit that is kept is there with its whole tree.
    ///
    /// # Errors
    /// Where git fails.
    pub fn missing(&self, commits: &[Commit]) -> Result<Vec<Commit>, GitFault> {
        let mut there = BTreeSet::new();
        for store in self.stores() {
            let listed =
                self.command("for-each-ref").git_dir(&store).run(["--format=%(objectname)", "refs/thermite/"])?;
            there.extend(String::from_utf8_lossy(&listed).lines().map(str::to_owned));
        }
        Ok(commits.iter().filter(|commit| !there.contains(*commit)).cloned().collect())
    }

    /// Commits that are kept here in that format, the newest first, at most `most`.
    ///
    /// # Errors
    /// Where git fails.
    pub fn tips(&self, format: &str, most: usize) -> Result<Vec<Commit>, GitFault> {
        let store = self.store_of(format);
        if !store.join("info/attributes").exists() {
            return Ok(Vec::new());
        }
        let listed = self.command("for-each-ref").git_dir(&store).run([
            "--sort=-committerdate",
            "--format=%(objectname)",
            "refs/thermite/",
        ])?;
        let mut seen = BTreeSet::new();
        let tips = String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect::<Vec<_>>();
        Ok(tips.into_iter().filter(|tip| seen.insert(tip.clone())).take(most).collect())
    }

    /// Keeps commits that are here for a run as well.
    ///
    /// # Errors
    /// Where git fails.
    pub fn keep_for_run(&self, run: RunId, commits: &[Commit]) -> Result<(), GitFault> {
        for format in ["sha1", "sha256"] {
            let of_format: Vec<&Commit> = commits.iter().filter(|commit| format_of(commit) == format).collect();
            if of_format.is_empty() {
                continue;
            }
            let script: String =
                of_format.iter().map(|commit| format!("update {} {commit}\n", kept_for(run, commit))).collect();
            let store = self.store_of(format);
            self.command("update-ref").git_dir(&store).input(script.into_bytes()).run(["--stdin"])?;
        }
        Ok(())
    }

    /// Brings a bundle's commits into the store and keeps them for a run; `cut` says where their history ends. The caller
    /// keeps everybody else from writing in the stores meanwhile.
    ///
    /// # Errors
    /// Nothing of the bundle is kept then.
    pub fn take_bundle(&self, file: &Path, run: RunId, commits: &[Commit], cut: &[Commit]) -> Result<(), NotTaken> {
        let bases = read_header(file, commits)?;
        let format = commits.first().map_or("sha1", |commit| format_of(commit));
        let gone = self.missing(&bases)?;
        if !gone.is_empty() {
            return Err(NotTaken::MissingBase { said: gone.join(", ") });
        }
        let store = self.made_store(format)?;
        clear_old_locks(&store, "");
        end_history(&store, cut).map_err(|error| {
            GitFault::Unexpected(format!("{} cannot be written: {error}", store.join("shallow").display()))
        })?;
        let mut arguments: Vec<OsString> =
            ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"].map(OsString::from).into();
        arguments.extend(["--no-recurse-submodules".into(), file.as_os_str().to_owned()]);
        arguments.extend(
            commits.iter().map(|commit| format!("+refs/thermite/keep/{commit}:{}", kept_for(run, commit)).into()),
        );
        let fetch = self.command("fetch").git_dir(&store).limit(limits::BULK_GIT_MAX);
        let fetch = HARMLESS.iter().enumerate().fold(
            fetch.env("GIT_CONFIG_COUNT", (HARMLESS.len() + 1).to_string()),
            |fetch, (at, nit)| {
                fetch
                    .env(&format!("GIT_CONFIG_KEY_{at}"), format!("fetch.fsck.{nit}"))
                    .env(&format!("GIT_CONFIG_VALUE_{at}"), "ignore")
            },
        );
        let last = HARMLESS.len();
        let fetch = fetch
            .env(&format!("GIT_CONFIG_KEY_{last}"), "fetch.fsckObjects")
            .env(&format!("GIT_CONFIG_VALUE_{last}"), "true");
        fetch.run(arguments).map_err(|fault| blame(fault, !bases.is_empty()))?;
        for commit in commits {
            if let Err(fault) = self.check_size(&store, commit) {
                let script: String =
                    commits.iter().map(|commit| format!("delete {}\n", kept_for(run, commit))).collect();
                self.command("update-ref").git_dir(&store).input(script.into_bytes()).run(["--stdin"])?;
                return Err(blame(fault, false));
            }
        }
        Ok(())
    }

    /// Lets go what is kept for other runs than these, and the objects that only they had; gives how many references went.
    ///
    /// # Errors
    /// Where git fails or takes too long.
    pub fn prune_runs(&self, live: &BTreeSet<RunId>) -> Result<usize, GitFault> {
        let mut gone = 0;
        for store in self.stores() {
            let kept =
                self.command("for-each-ref").git_dir(&store).run(["--format=%(refname)", "refs/thermite/runs/"])?;
            let kept = String::from_utf8_lossy(&kept).into_owned();
            let is_live = |name: &str| {
                let run = name.strip_prefix("refs/thermite/runs/").and_then(|rest| rest.split('/').next());
                run.and_then(|run| run.parse().ok()).is_some_and(|run: RunId| live.contains(&run))
            };
            let stale: Vec<&str> = kept.lines().filter(|name| !is_live(name)).collect();
            if stale.is_empty() {
                continue;
            }
            let script: String = stale.iter().map(|name| format!("delete {name}\n")).collect();
            self.command("update-ref").git_dir(&store).input(script.into_bytes()).run(["--stdin"])?;
            gone += stale.len();
            self.let_go(&store)?;
        }
        Ok(gone)
    }
}

/// Where a commit is kept for a run.
fn kept_for(run: RunId, commit: &str) -> String {
    format!("refs/thermite/runs/{run}/{commit}")
}

impl From<GitFault> for NotTaken {
    fn from(fault: GitFault) -> NotTaken {
        NotTaken::Fault(fault)
    }
}

/// Whose fault a fetch is that failed: the disk's and git's own, else what was sent. A pack may also lack objects of a base
/// that is only half there; all of it, sent once, has them.
fn blame(fault: GitFault, has_bases: bool) -> NotTaken {
    let said = fault.to_string();
    match fault {
        GitFault::Failed { .. } | GitFault::Unexpected(_)
            if !(is_no_room(&said) || is_disk_failing(&said) || is_locked(&said)) =>
        {
            let lacks = ["unresolved delta", "necessary objects", "prerequisite commits"];
            if has_bases && lacks.iter().any(|words| said.contains(words)) {
                NotTaken::MissingBase { said }
            } else {
                NotTaken::Unsound { said }
            }
        }
        GitFault::Failed { .. } | GitFault::Unexpected(_) | GitFault::NotStarted(_) | GitFault::TookTooLong { .. } => {
            NotTaken::Fault(fault)
        }
    }
}

/// What a bundle builds on; its references must be exactly the commits that are asked for, each under its own name.
fn read_header(file: &Path, commits: &[Commit]) -> Result<Vec<Commit>, NotTaken> {
    let unsound = |said: &str| NotTaken::Unsound { said: said.to_owned() };
    let unreadable =
        |error: io::Error| NotTaken::Fault(GitFault::Unexpected(format!("the bundle cannot be read: {error}")));
    let format = commits.first().map_or("sha1", |commit| format_of(commit));
    let mut lines = BufReader::new(File::open(file).map_err(unreadable)?.take(HEADER_BYTES_MAX)).split(b'\n');
    let mut line = || -> Result<String, NotTaken> {
        let line = lines.next().ok_or_else(|| unsound("it has no header"))?.map_err(unreadable)?;
        String::from_utf8(line).map_err(|_| unsound("its header is no text"))
    };
    match (line()?.as_str(), format) {
        ("# v2 git bundle", "sha1") => {}
        ("# v3 git bundle", _) => {
            if line()? != format!("@object-format={format}") {
                return Err(unsound("it is of another object format than its commits"));
            }
        }
        _ => return Err(unsound("it is no git bundle")),
    }
    let mut bases = Vec::new();
    let mut references = BTreeSet::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        if let Some(base) = line.strip_prefix('-') {
            let base = base.split(' ').next().unwrap_or_default();
            if !is_object_name(base) || format_of(base) != format {
                return Err(unsound("it builds on what is no commit's name"));
            }
            bases.push(base.to_owned());
            continue;
        }
        let commit = line.split(' ').next().unwrap_or_default().to_owned();
        if line != format!("{commit} refs/thermite/keep/{commit}") {
            return Err(unsound("it has a reference that was not asked for"));
        }
        references.insert(commit);
    }
    if references != commits.iter().cloned().collect() {
        return Err(unsound("its commits are not those that were asked for"));
    }
    Ok(bases)
}

/// Notes in a store that the history of these commits ends there.
fn end_history(store: &Path, cut: &[Commit]) -> io::Result<()> {
    let file = store.join("shallow");
    let before = match std::fs::read_to_string(&file) {
        Ok(before) => before,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let known: BTreeSet<&str> = before.lines().collect();
    let new: Vec<&Commit> = cut.iter().filter(|commit| !known.contains(commit.as_str())).collect();
    if new.is_empty() {
        return Ok(());
    }
    // As git itself writes it: what lies there is whole.
    let lock = store.join("shallow.lock");
    let mut text = before.clone();
    text.extend(new.iter().map(|commit| format!("{commit}\n")));
    let mut out = File::create_new(&lock)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    match written.and_then(|()| std::fs::rename(&lock, &file)) {
        Ok(()) => Ok(()),
        Err(error) => {
            drop(std::fs::remove_file(&lock));
            Err(error)
        }
    }
}
