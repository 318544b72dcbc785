//! Real repositories in temporary folders, for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A user's repository with whatever worktrees a test adds.
pub(crate) struct Repo {
    pub(crate) folder: tempfile::TempDir,
}

impl Repo {
    /// A repository whose first commit holds these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Repo {
        let repo = Repo { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(repo.path()).unwrap();
        repo.git(&["init", "--quiet", "--initial-branch=main"]);
        for (path, text) in files {
            write(&repo.path().join(path), text);
        }
        repo.commit("first");
        repo
    }

    /// The repository's own worktree, without symbolic links.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("repo")
    }

    /// A data folder beside it.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("data")
    }

    /// Runs git in the repository and gives what it printed.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.path(), arguments)
    }

    /// Commits everything there is and gives the commit.
    pub(crate) fn commit(&self, message: &str) -> String {
        commit(&self.path(), message)
    }

    /// Adds a linked worktree on a branch of its name.
    pub(crate) fn lane(&self, name: &str) -> PathBuf {
        let path = self.folder.path().canonicalize().unwrap().join(name);
        self.git(&["worktree", "add", "--quiet", "-b", name, path.to_str().unwrap()]);
        path
    }
}

pub(crate) fn commit(tree: &Path, message: &str) -> String {
    git(tree, &["add", "--all"]);
    git(tree, &["commit", "--quiet", "--allow-empty", "-m", message]);
    git(tree, &["rev-parse", "HEAD"])
}

pub(crate) fn git(tree: &Path, arguments: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(tree)
        .args(arguments)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([
            ("GIT_AUTHOR_NAME", "A User"),
            ("GIT_AUTHOR_EMAIL", "user@example.invalid"),
            ("GIT_COMMITTER_NAME", "A User"),
            ("GIT_COMMITTER_EMAIL", "user@example.invalid"),
        ])
        .output()
        .unwrap();
    assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Makes a file executable.
pub(crate) fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
