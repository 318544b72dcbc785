//! How large a commit is, before anything of it is copied.

use std::path::{Path, PathBuf};

use thermite_core::limits::{COMMIT_BYTES_MAX, COMMIT_FILE_BYTES_MAX};

use super::Git;
use super::command::{GitFault, path_of};

impl Git {
    /// Refuses a commit that holds a file, or files together, beyond what is laid out for each attempt.
    pub(super) fn check_size(&self, git_dir: &Path, commit: &str) -> Result<(), GitFault> {
        let listed = self.command("ls-tree").git_dir(git_dir).run(["-r", "-z", "--long", commit])?;
        let mut all: u64 = 0;
        for (path, size) in listed.split(|byte| *byte == 0).filter_map(entry) {
            if size > COMMIT_FILE_BYTES_MAX {
                let path = path.display();
                return Err(GitFault::Unexpected(format!(
                    "{path} is {size} bytes long in commit {commit}, at most {COMMIT_FILE_BYTES_MAX}; commit it smaller, \
                     or have the kit's build make it or fetch it"
                )));
            }
            all = all.saturating_add(size);
        }
        if all > COMMIT_BYTES_MAX {
            return Err(GitFault::Unexpected(format!(
                "the files of commit {commit} are {all} bytes together, at most {COMMIT_BYTES_MAX}; keep what is not \
                 built or measured out of it"
            )));
        }
        Ok(())
    }
}

/// Path and size of one line, `MODE TYPE NAME SIZE<tab>PATH`; none for what holds no content of its own.
fn entry(line: &[u8]) -> Option<(PathBuf, u64)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (about, path) = line.split_at(tab);
    let size = std::str::from_utf8(about).ok()?.split_ascii_whitespace().nth(3)?.parse().ok()?;
    Some((path_of(&path[1..]), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_its_path_and_size_and_a_nested_repository_none() {
        assert_eq!(entry(b"100644 blob 0123     120\tsrc/a b\n.c"), Some((PathBuf::from("src/a b\n.c"), 120)));
        assert_eq!(entry(b"160000 commit 0123       -\tnested"), None);
        assert_eq!(entry(b""), None);
    }
}
