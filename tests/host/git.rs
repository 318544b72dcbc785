//! Git over the rig's own store: what is found, what is refused, and that nothing of a lane's runs or changes.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use thermite_actors::host::git::Git;
use thermite_actors::host::git::capture::Captured;
use thermite_actors::host::git::command::GitCommand;
use thermite_core::limits::{CHANGE_BYTES_MAX, COMMIT_FILE_BYTES_MAX};
use thermite_core::time::Span;

use crate::driver::{alive, unique, wait_until};
use crate::repo::{Repo, commit, executable, git, write};

#[test]
fn a_folder_inside_a_repository_is_not_its_root() {
    let repo = Repo::with(&[("src/a.c", "1\n")]);
    let rig = Git::open(&repo.data()).unwrap();

    let root = rig.repository(&repo.path()).unwrap();
    let inside = rig.repository(&repo.path().join("src")).unwrap_err();
    let missing = rig.repository(Path::new("/no/such/place")).unwrap_err();

    assert_eq!((root.common, root.object_format.as_str()), (repo.path().join(".git"), "sha1"));
    let src = repo.path().join("src");
    assert_eq!(
        inside.to_string(),
        format!("{} is not the root of a git repository; give the root, or `git init` it", src.display())
    );
    assert_eq!(
        missing.to_string(),
        "repository /no/such/place cannot be opened: No such file or directory (os error 2)"
    );
}

#[test]
fn a_bare_repository_and_one_of_sha256_serve_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    git(&root, &["init", "--quiet", "--object-format=sha256", "wide"]);
    write(&root.join("wide/a"), "1\n");
    let wide = commit(&root.join("wide"), "first");
    git(&root, &["clone", "--quiet", "--bare", "wide", "bare.git"]);
    let rig = Git::open(&root.join("data")).unwrap();

    let bare = rig.repository(&root.join("bare.git")).unwrap();
    let found = rig.resolve(&bare, "HEAD").unwrap();
    rig.keep(&bare, &found).unwrap();

    assert_eq!((found.as_str(), found.len()), (wide.as_str(), 64));
    assert_eq!(rig.file(&bare, &found, Path::new("a"), 10).unwrap(), Some(b"1\n".to_vec()));
}

#[test]
fn a_lock_that_a_killed_git_left_in_the_store_stops_nobody_for_long() {
    let repo = Repo::with(&[("src/a.c", "1\n")]);
    let rig = Git::open(&repo.data()).unwrap();
    let repository = rig.repository(&repo.path()).unwrap();
    let first = rig.resolve(&repository, "HEAD").unwrap();
    rig.keep(&repository, &first).unwrap();
    write(&repo.path().join("src/a.c"), "2\n");
    let second = commit(&repo.path(), "second");
    let lock = repo.data().join("git/sha1.git/shallow.lock");
    write(&lock, "");

    let fresh = rig.keep(&repository, &second).unwrap_err();
    grow_old(&lock);
    rig.keep(&repository, &second).unwrap();
    // The same candidate again meets the lock of its own name.
    let tree = rig.tree(&repository, &second).unwrap();
    let candidate = rig.commit(&repository, &tree, &first).unwrap();
    let of_ref = repo.data().join(format!("git/sha1.git/refs/thermite/keep/{candidate}.lock"));
    write(&of_ref, "");
    let held = rig.commit(&repository, &tree, &first).unwrap_err();
    grow_old(&of_ref);
    assert_eq!(rig.commit(&repository, &tree, &first).unwrap(), candidate);

    for no in [fresh, held] {
        assert!(thermite_actors::host::git::is_locked(&no.to_string()), "{no}");
    }
    assert!(!lock.exists() && !of_ref.exists());
    assert_eq!(rig.file(&repository, &second, Path::new("src/a.c"), 10).unwrap(), Some(b"2\n".to_vec()));
}

/// Makes a file a minute older than it is.
fn grow_old(file: &Path) {
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
}

#[test]
fn a_git_that_hangs_or_floods_is_ended_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let tag = unique("hanging-git");
    write(
        &config,
        &format!(
            "[alias]\n\thang = \"!sh -c 'while :; do sleep 1; done' x {tag} & wait #\"\n\
             \tflood = !head -c 70000000 /dev/zero\n\tfail = \"!echo one >&2; echo two >&2; exit 3 #\"\n"
        ),
    );
    let none: [&str; 0] = [];

    let hung = GitCommand::new(&config, "hang").limit(Span::millis(500)).run(none).unwrap_err();
    let flooded = GitCommand::new(&config, "flood").run(none).unwrap_err();
    let failed = GitCommand::new(&config, "fail").run(none).unwrap_err();

    assert_eq!(hung.to_string(), "git hang took longer than 0.5 s and was ended");
    wait_until("what it started is gone", || alive(&tag) == 0);
    assert_eq!(flooded.to_string(), "git flood wrote more than 67108864 bytes");
    assert_eq!(failed.to_string(), "git fail failed: one; two");
}

#[test]
fn revisions_are_looked_up_literally() {
    let repo = Repo::with(&[("a", "1\n")]);
    repo.git(&["tag", "v1"]);
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();
    let head = repo.git(&["rev-parse", "HEAD"]);

    for revision in ["HEAD", "main", "v1", &head[..8], "HEAD~0"] {
        assert_eq!(rig.resolve(&found, revision).as_deref(), Ok(head.as_str()), "{revision}");
    }
    for revision in ["", "no-such", "--all", "--output=/tmp/x", "-h", "HEAD:a", "HEAD\nmain", "HEAD --all", "a..b"] {
        let fault = rig.resolve(&found, revision).unwrap_err();
        let expected = format!("revision {revision:?} names no commit in {}", repo.path().display());
        assert_eq!(fault.to_string(), expected);
    }
}

#[test]
fn what_is_kept_outlives_the_users_own_clean_up() {
    let repo = Repo::with(&[("a", "1\n")]);
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();
    write(&repo.path().join("a"), "2\n");
    let gone = repo.commit("second");
    rig.keep(&found, &gone).unwrap();

    repo.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "--quiet", "--prune=now"]);

    assert_eq!(rig.resolve(&found, &gone).unwrap(), gone, "found in the store");
    assert_eq!(rig.file(&found, &gone, Path::new("a"), 10).unwrap(), Some(b"2\n".to_vec()));
}

#[test]
fn a_file_beyond_its_limit_is_refused_and_a_folder_is_no_file() {
    let repo = Repo::with(&[("dir/a", "12345")]);
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();
    let head = rig.resolve(&found, "HEAD").unwrap();
    rig.keep(&found, &head).unwrap();

    assert_eq!(rig.file(&found, &head, Path::new("dir/a"), 5).unwrap(), Some(b"12345".to_vec()));
    assert_eq!(rig.file(&found, &head, Path::new("dir"), 5).unwrap(), None);
    assert_eq!(rig.file(&found, &head, Path::new("b"), 5).unwrap(), None);
    let fault = rig.file(&found, &head, Path::new("dir/a"), 4).unwrap_err();
    assert_eq!(fault.to_string(), format!("dir/a is 5 bytes long in {head}, at most 4"));
}

#[test]
fn a_worktree_is_found_by_what_the_repository_lists() {
    let repo = Repo::with(&[("a", "1\n")]);
    let lane = repo.lane("lane-1");
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();
    // What the lane writes in its own tree decides nothing.
    let foreign = Repo::with(&[("evil", "1\n")]);
    write(&lane.join(".git"), &format!("gitdir: {}\n", foreign.path().join(".git").display()));

    let own = rig.worktree(&found, &repo.path()).unwrap();
    let linked = rig.worktree(&found, &lane).unwrap();
    let other = rig.worktree(&found, &foreign.path()).unwrap_err();

    assert_eq!((own.git_dir, own.head.as_str()), (repo.path().join(".git"), "HEAD"));
    assert_eq!(linked.git_dir, repo.path().join(".git/worktrees/lane-1"));
    assert_eq!(rig.resolve(&found, &linked.head).unwrap(), repo.git(&["rev-parse", "lane-1"]));
    let (other_path, repo_path) = (foreign.path(), repo.path());
    assert_eq!(
        other.to_string(),
        format!(
            "{other_path} is no worktree of repository {repo_path}; make one with `git -C {repo_path} worktree add \
             {other_path}`",
            other_path = other_path.display(),
            repo_path = repo_path.display()
        )
    );
}

#[test]
fn a_lanes_change_is_captured_whole_and_its_index_stays_byte_for_byte() {
    let lane = Lane::new(&[
        ("both", "1\n"),
        ("deleted", "1\n"),
        ("renamed", "long enough to be seen as the same\n"),
        ("mode", "1\n"),
        ("to-link", "1\n"),
        ("file-to-folder", "1\n"),
        ("untouched", "1\n"),
        (".gitignore", "ignored\n"),
    ]);
    let tree = &lane.tree;
    write(&tree.join("both"), "staged\n");
    git(tree, &["add", "both"]);
    write(&tree.join("both"), "unstaged\n");
    write(&tree.join("only-staged"), "staged\n");
    git(tree, &["add", "only-staged"]);
    std::fs::remove_file(tree.join("deleted")).unwrap();
    git(tree, &["mv", "renamed", "new name"]);
    executable(&tree.join("mode"));
    std::fs::remove_file(tree.join("to-link")).unwrap();
    symlink("/etc/passwd", tree.join("to-link")).unwrap();
    std::fs::remove_file(tree.join("file-to-folder")).unwrap();
    write(&tree.join("file-to-folder/inside"), "1\n");
    write(&tree.join("intended"), "1\n");
    git(tree, &["add", "--intent-to-add", "intended"]);
    write(&tree.join("new/deep/file"), "new\n");
    write(&tree.join("ignored"), "1\n");
    let before = lane.index();
    let status = git(tree, &["--no-optional-locks", "status", "--porcelain=v2"]);

    let captured = lane.capture_all();

    assert_eq!(lane.index(), before, "bytes, inode and times of the index");
    assert_eq!(git(tree, &["--no-optional-locks", "status", "--porcelain=v2"]), status);
    let laid = lane.laid_out(&captured);
    assert_eq!(
        listing(&laid),
        [
            ".gitignore = ignored",
            "both = unstaged",
            "file-to-folder/inside = 1",
            "intended = 1",
            "mode* = 1",
            "new name = long enough to be seen as the same",
            "new/deep/file = new",
            "only-staged = staged",
            "to-link -> /etc/passwd",
            "untouched = 1",
        ]
    );
    assert_eq!(captured.nested, Vec::<PathBuf>::new());
}

#[test]
fn capturing_works_while_the_lane_holds_its_index_lock() {
    let lane = Lane::new(&[("a", "1\n")]);
    write(&lane.tree.join("a"), "2\n");
    write(&lane.git_dir().join("index.lock"), "");

    let captured = lane.capture_all();

    assert_eq!(listing(&lane.laid_out(&captured)), ["a = 2"]);
    assert!(lane.git_dir().join("index.lock").exists());
}

#[test]
fn a_lane_without_a_usable_index_is_captured_from_its_head() {
    for index in [None, Some("DIRC but not an index")] {
        let lane = Lane::new(&[("a", "1\n"), ("b", "1\n")]);
        write(&lane.tree.join("a"), "2\n");
        match index {
            None => std::fs::remove_file(lane.git_dir().join("index")).unwrap(),
            Some(bytes) => std::fs::write(lane.git_dir().join("index"), bytes).unwrap(),
        }

        let captured = lane.capture_all();

        assert_eq!(listing(&lane.laid_out(&captured)), ["a = 2", "b = 1"], "{index:?}");
    }
}

#[test]
fn a_path_in_conflict_is_captured_as_it_lies_there() {
    let lane = Lane::new(&[("a", "1\n")]);
    git(&lane.tree, &["checkout", "--quiet", "-b", "side"]);
    write(&lane.tree.join("a"), "side\n");
    commit(&lane.tree, "side");
    git(&lane.tree, &["checkout", "--quiet", "lane-1"]);
    write(&lane.tree.join("a"), "ours\n");
    commit(&lane.tree, "ours");
    let merge = std::process::Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.invalid", "merge", "side"])
        .current_dir(&lane.tree)
        .output()
        .unwrap();
    assert!(!merge.status.success(), "the merge conflicts");
    write(&lane.tree.join("a"), "half way\n");

    let captured = lane.capture_all();

    assert_eq!(listing(&lane.laid_out(&captured)), ["a = half way"]);
}

#[test]
fn nothing_of_a_lanes_runs_while_its_change_is_taken() {
    let lane = Lane::new(&[("a.txt", "1\n"), ("src/b.c", "1\n")]);
    let marks = lane.repo.folder.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    let mark = |name: &str| format!("touch {}/{name}; cat", marks.display());
    let script = |name: &str| {
        let path = lane.repo.folder.path().join(format!("{name}.sh"));
        write(&path, &format!("#!/bin/sh\ntouch {}/{name}\nexit 0\n", marks.display()));
        executable(&path);
        path
    };
    let set = |name: &str, value: &str| git(&lane.tree, &["config", name, value]);
    // A lane's configuration, as hostile as it gets; the repository's is shared by its worktrees.
    set("filter.evil.clean", &mark("clean"));
    set("filter.evil.smudge", &mark("smudge"));
    set("filter.evil.process", script("process").to_str().unwrap());
    set("core.fsmonitor", script("fsmonitor").to_str().unwrap());
    set("core.hooksPath", lane.repo.folder.path().join("hooks").to_str().unwrap());
    set("diff.external", script("diff").to_str().unwrap());
    set("core.pager", script("pager").to_str().unwrap());
    set("uploadpack.packObjectsHook", script("upload").to_str().unwrap());
    set("core.sshCommand", script("ssh").to_str().unwrap());
    set("core.alternateRefsCommand", script("alternate").to_str().unwrap());
    for hook in ["post-checkout", "post-index-change", "pre-commit", "reference-transaction", "post-commit"] {
        let path = lane.repo.folder.path().join("hooks").join(hook);
        write(&path, &format!("#!/bin/sh\ntouch {}/{hook}\n", marks.display()));
        executable(&path);
    }
    write(&lane.tree.join(".gitattributes"), "* filter=evil diff=evil text eol=crlf ident\n");
    write(&lane.tree.join("a.txt"), "$Id$ 2\n");
    // A nested repository with a configuration of its own, staged as one.
    let nested = lane.tree.join("nested");
    git(&lane.tree, &["init", "--quiet", "nested"]);
    write(&nested.join("x"), "1\n");
    commit(&nested, "x");
    git(&nested, &["config", "core.fsmonitor", script("nested-fsmonitor").to_str().unwrap()]);
    git(&nested, &["config", "filter.evil.clean", &mark("nested-clean")]);
    write(&nested.join(".gitattributes"), "* filter=evil\n");
    let link = git(&nested, &["rev-parse", "HEAD"]);
    let plain = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "filter.evil.process="];
    git(
        &lane.tree,
        &[&plain[..], &["update-index", "--add", "--cacheinfo", &format!("160000,{link},nested")]].concat(),
    );
    write(&nested.join("x"), "2\n");
    std::fs::remove_dir_all(&marks).unwrap();
    std::fs::create_dir(&marks).unwrap();

    let captured = lane.capture_all();
    let laid = lane.laid_out(&captured);

    let ran: Vec<_> = std::fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(ran, Vec::<std::ffi::OsString>::new(), "what ran with the rig's rights");
    assert_eq!(std::fs::read(laid.join("a.txt")).unwrap(), b"$Id$ 2\n", "byte for byte, no attribute at work");
    // The filter is a real one: git itself, asked in the lane's tree, runs it.
    git(&lane.tree, &["config", "--unset", "filter.evil.process"]);
    git(&lane.tree, &["-c", "core.fsmonitor=false", "add", "a.txt"]);
    assert!(marks.join("clean").exists());
}

#[test]
fn a_nested_repository_is_told_and_its_files_are_not_taken() {
    let lane = Lane::new(&[("a", "1\n")]);
    git(&lane.tree, &["init", "--quiet", "inner"]);
    write(&lane.tree.join("inner/x"), "1\n");
    commit(&lane.tree.join("inner"), "x");

    let captured = lane.capture_all();

    assert_eq!(captured.nested, [PathBuf::from("inner")]);
    assert_eq!(listing(&lane.laid_out(&captured)), ["a = 1"]);
}

#[test]
fn a_folder_swapped_for_a_link_leads_nowhere() {
    let lane = Lane::new(&[("dir/a", "1\n"), ("b", "1\n")]);
    let secret = lane.repo.folder.path().join("secret");
    write(&secret.join("a"), "not the lane's\n");
    std::fs::remove_dir_all(lane.tree.join("dir")).unwrap();
    symlink(&secret, lane.tree.join("dir")).unwrap();

    let captured = lane.capture_all();

    let laid = listing(&lane.laid_out(&captured));
    assert_eq!(laid, ["b = 1".to_owned(), format!("dir -> {}", secret.display())]);
}

#[test]
fn a_pipe_does_not_hold_the_rig_up() {
    let lane = Lane::new(&[("a", "1\n"), ("b", "1\n")]);
    std::fs::remove_file(lane.tree.join("a")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        lane.tree.join("a"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();

    let captured = lane.capture_all();

    assert_eq!(listing(&lane.laid_out(&captured)), ["b = 1"]);
}

#[test]
fn a_commit_with_a_file_that_is_too_large_is_refused_before_it_is_copied() {
    let repo = Repo::with(&[("a", "1\n")]);
    let file = std::fs::File::create(repo.path().join("big one")).unwrap();
    file.set_len(100 * 1024 * 1024).unwrap();
    let large = repo.commit("a large file");
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();

    let fault = rig.keep(&found, &large).unwrap_err().to_string();

    assert_eq!(
        fault,
        format!(
            "big one is 104857600 bytes long in commit {large}, at most {COMMIT_FILE_BYTES_MAX}; commit it smaller, or \
             have the kit's build make it or fetch it"
        )
    );
    let first = repo.git(&["rev-parse", "HEAD~1"]);
    assert_eq!(rig.keep(&found, &first), Ok(()), "its neighbours are not");
}

#[test]
fn a_change_that_is_too_large_is_refused_before_it_fills_the_store() {
    let lane = Lane::new(&[("a", "1\n")]);
    let file = std::fs::File::create(lane.tree.join("big")).unwrap();
    file.set_len(CHANGE_BYTES_MAX + 1).unwrap();

    let fault = lane.capture().unwrap_err();

    assert_eq!(
        fault,
        format!(
            "the change in {} has {} bytes of new or changed content, at most {CHANGE_BYTES_MAX}; have git ignore what is \
             not part of it, or list it as a model file of the kit; the largest: big ({} bytes)",
            lane.tree.display(),
            CHANGE_BYTES_MAX + 1,
            CHANGE_BYTES_MAX + 1,
        )
    );
    let scratch = std::fs::read_dir(lane.repo.data().join("git/tmp")).unwrap().count();
    assert_eq!(scratch, 0, "nothing is left behind");
}

#[test]
fn two_gigabytes_are_refused_with_the_largest_files_before_anything_is_read() {
    let lane = Lane::new(&[("a", "1\n"), (".gitignore", "ignored\n")]);
    let sized = |name: &str, bytes: u64| std::fs::File::create(lane.tree.join(name)).unwrap().set_len(bytes).unwrap();
    sized("weights\nof two lines", 2 << 30);
    sized("ignored", 4 << 30);
    for (at, name) in ["b", "c", "d", "e", "f"].into_iter().enumerate() {
        sized(name, 1_000 * (at as u64 + 1));
    }
    let accessed = |name: &str| std::fs::metadata(lane.tree.join(name)).unwrap().accessed().unwrap();
    // Older than what it was changed last at: a read would move it, whatever the mount says of access times.
    let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
    let large = std::fs::File::options().write(true).open(lane.tree.join("weights\nof two lines")).unwrap();
    large.set_times(std::fs::FileTimes::new().set_accessed(past)).unwrap();

    let fault = lane.capture().unwrap_err();

    let largest = "the largest: weights\\nof two lines (2147483648 bytes), f (5000 bytes), e (4000 bytes), d (3000 bytes), \
                   c (2000 bytes)";
    assert!(fault.ends_with(largest), "{fault}");
    assert!(fault.contains(" has 2147498648 bytes of new or changed content, at most "), "{fault}");
    assert_eq!(accessed("weights\nof two lines"), past, "it was not read");
    assert_eq!(std::fs::read_dir(lane.repo.data().join("git/tmp")).unwrap().count(), 0);
}

#[test]
fn a_submodule_whose_files_lie_there_is_told() {
    let lane = Lane::new(&[("a", "1\n")]);
    git(&lane.tree, &["init", "--quiet", "part"]);
    write(&lane.tree.join("part/x"), "1\n");
    let link = commit(&lane.tree.join("part"), "x");
    git(&lane.tree, &["update-index", "--add", "--cacheinfo", &format!("160000,{link},part")]);
    git(&lane.tree, &["update-index", "--add", "--cacheinfo", &format!("160000,{link},not here")]);
    std::fs::create_dir(lane.tree.join("not here")).unwrap();

    let captured = lane.capture_all();

    assert_eq!((captured.nested, captured.submodules), (Vec::new(), vec![PathBuf::from("part")]));
}

#[test]
fn a_captured_change_does_not_write_into_the_lanes_repository() {
    let lane = Lane::new(&[("a", "1\n")]);
    write(&lane.tree.join("new"), "new content\n");
    let objects = |repo: &Repo| repo.git(&["count-objects", "-v"]);
    let before = objects(&lane.repo);

    let captured = lane.capture_all();

    assert_eq!(objects(&lane.repo), before);
    assert!(!lane.repo.git(&["for-each-ref"]).contains(&captured.commit));
}

/// A lane's worktree beside its repository, and the rig's git.
struct Lane {
    repo: Repo,
    tree: PathBuf,
    rig: Git,
}

impl Lane {
    fn new(files: &[(&str, &str)]) -> Lane {
        let repo = Repo::with(files);
        let tree = repo.lane("lane-1");
        let rig = Git::open(&repo.data()).unwrap();
        Lane { repo, tree, rig }
    }

    fn git_dir(&self) -> PathBuf {
        self.repo.path().join(".git/worktrees/lane-1")
    }

    /// The index's bytes, inode and times.
    fn index(&self) -> (Vec<u8>, u64, (i64, i64), (i64, i64)) {
        let path = self.git_dir().join("index");
        let about = std::fs::metadata(&path).unwrap();
        let changed = (about.ctime(), about.ctime_nsec());
        (std::fs::read(&path).unwrap(), about.ino(), (about.mtime(), about.mtime_nsec()), changed)
    }

    fn capture(&self) -> Result<Captured, String> {
        let repository = self.rig.repository(&self.repo.path()).unwrap();
        let worktree = self.rig.worktree(&repository, &self.tree).unwrap();
        self.rig.capture(&repository, &worktree, &|_| true).map_err(|fault| fault.to_string())
    }

    fn capture_all(&self) -> Captured {
        self.capture().unwrap()
    }

    fn laid_out(&self, captured: &Captured) -> PathBuf {
        let folder = self.repo.folder.path().join("laid");
        self.rig.lay_out(&captured.commit, &folder).unwrap();
        folder
    }
}

/// Every file below a folder: `path = text`, `path* = text` where it is executable, `path -> target` for a link.
fn listing(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, root: &Path, lines: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let about = path.symlink_metadata().unwrap();
            if about.is_symlink() {
                lines.push(format!("{name} -> {}", std::fs::read_link(&path).unwrap().display()));
            } else if about.is_dir() {
                walk(&path, root, lines);
            } else {
                let mark = if about.mode() & 0o100 == 0 { "" } else { "*" };
                let text = std::fs::read_to_string(&path).unwrap();
                lines.push(format!("{name}{mark} = {}", text.trim_end()));
            }
        }
    }
    let mut lines = Vec::new();
    walk(folder, folder, &mut lines);
    lines.sort();
    lines
}

#[test]
fn what_nothing_refers_to_leaves_the_store_once_it_is_old_and_can_be_kept_again() {
    let repo = Repo::with(&[("a", "kept\n")]);
    let needed = repo.git(&["rev-parse", "HEAD"]);
    write(&repo.path().join("a"), "let go\n");
    let stale = repo.commit("stale");
    let rig = Git::open(&repo.data()).unwrap();
    let found = rig.repository(&repo.path()).unwrap();
    for name in [&needed, &stale] {
        rig.keep(&found, name).unwrap();
    }
    let file = |name: &str| rig.file(&found, name, Path::new("a"), 100);
    let keep = std::collections::BTreeSet::from([needed.clone()]);

    let gone = rig.prune(&keep).unwrap();
    let young = file(&stale).unwrap();
    let store = repo.data().join("git/sha1.git");
    let aged = std::process::Command::new("find")
        .arg(store.join("objects"))
        .args(["-type", "f", "-exec", "touch", "-d", "2 hours ago", "{}", "+"])
        .status()
        .unwrap();
    assert!(aged.success());
    let again = rig.prune(&keep).unwrap();

    assert_eq!((gone, again), (1, 0));
    assert_eq!(young, Some(b"let go\n".to_vec()), "what may be on its way into the log stays for an hour");
    assert_eq!(file(&stale).unwrap_or(None), None, "its objects are gone");
    assert_eq!(file(&needed).unwrap(), Some(b"kept\n".to_vec()));
    let laid = repo.data().join("laid");
    rig.lay_out(&needed, &laid).unwrap();
    assert_eq!(std::fs::read_to_string(laid.join("a")).unwrap(), "kept\n");
    rig.keep(&found, &stale).unwrap();
    assert_eq!(file(&stale).unwrap(), Some(b"let go\n".to_vec()), "it can be kept again");
}
