//! Development runs on runners (rule E5): the core makes a commit of the lane's tree, the runner a fresh copy of it.
//!
//! Core's data folder: `repositories.json`, each lane's worktree with its repository. Runner's: `work/copy-DEV_RUN`, the
//! files of that commit and nothing else: neither `.git` nor what an earlier run built.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{DevRunId, LaneId};

use super::super::git::command::GitFault;
use super::super::launch::{Identity, hand_over};
use super::{HostWorkspaces, Shared, in_turn};
use crate::ports::{FreshCopies, LaneChanges};
use crate::rig::No;

/// The file of the lanes' repositories, in the data folder.
const REPOSITORIES: &str = "repositories.json";
/// How many nested repositories a sentence names.
const NESTED_SHOWN: usize = 5;

/// The repositories of the lanes' worktrees that the data folder knows, and their file.
pub(super) fn known_repositories(data: &Path) -> io::Result<(BTreeMap<PathBuf, PathBuf>, PathBuf)> {
    let file = data.join(REPOSITORIES);
    let known = match std::fs::read(&file) {
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|error| io::Error::other(format!("{REPOSITORIES}: {error}")))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error),
    };
    Ok((known, file))
}

impl LaneChanges for HostWorkspaces {
    fn commit_of(&self, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<String, String>> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.commit_of(&spec))
    }
}

impl FreshCopies for HostWorkspaces {
    fn lay_out(
        &self,
        dev_run: DevRunId,
        lane: LaneId,
        commit: String,
    ) -> LocalBoxFuture<'static, Result<PathBuf, String>> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.fresh_copy(dev_run, lane, &commit))
    }

    fn discard(&self, dev_run: DevRunId) -> LocalBoxFuture<'static, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let discarded = blocking(move || shared.discard_copy(dev_run)).await;
            if let Err(why) = discarded {
                tracing::warn!(%dev_run, %why, "a development run's copy stays");
            }
        })
    }
}

/// Does disk and git work on a thread of its own.
fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> LocalBoxFuture<'static, Result<T, String>> {
    Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            Err(error) => Err(error.to_string()),
        }
    })
}

impl Shared {
    /// Keeps the repository of these lanes' worktrees, also for after a restart.
    pub(super) fn remember_repository(&self, repository: &Path, lanes: &[PathBuf]) -> Result<(), No> {
        let mut known = in_turn(&self.repositories);
        if lanes.iter().all(|lane| known.get(lane).is_some_and(|of| of == repository)) {
            return Ok(());
        }
        known.extend(lanes.iter().map(|lane| (lane.clone(), repository.to_owned())));
        let text = serde_json::to_vec(&*known).expect("paths of lanes are UTF-8: others are refused");
        let beside = self.repositories_file.with_extension("new");
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &self.repositories_file)).map_err(
            |error| {
                GitFault::Unexpected(format!("{} cannot be written: {error}", self.repositories_file.display())).into()
            },
        )
    }

    fn commit_of(&self, spec: &DevRunSpec) -> Result<String, String> {
        let tree = &spec.worktree;
        let repository = in_turn(&self.repositories).get(tree).cloned();
        let repository = repository.ok_or_else(|| {
            format!("the repository of {} is not known; end the run and start it again", tree.display())
        })?;
        let said = |fault: GitFault| fault.to_string();
        let repository = self.git.repository(&repository).map_err(said)?;
        let worktree = self.git.worktree(&repository, tree).map_err(said)?;
        let captured = {
            let _storing = in_turn(&self.storing);
            let captured = self.git.capture(&repository, &worktree, &|_| true).map_err(said)?;
            self.note(&captured.head);
            self.note(&captured.commit);
            captured
        };
        let nested: Vec<&PathBuf> = captured.nested.iter().chain(&captured.submodules).collect();
        if nested.is_empty() {
            return Ok(captured.commit);
        }
        let shown: Vec<String> = nested.iter().take(NESTED_SHOWN).map(|path| path.display().to_string()).collect();
        let more = nested.len().saturating_sub(NESTED_SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        Err(format!(
            "a runner's copy would be without the files of nested repositories, which git does not carry: {}{more}; have \
             git ignore them, or remove their .git",
            shown.join(", ")
        ))
    }

    fn copy_of(&self, dev_run: DevRunId) -> PathBuf {
        self.work.join(format!("copy-{dev_run}"))
    }

    fn fresh_copy(&self, dev_run: DevRunId, lane: LaneId, commit: &str) -> Result<PathBuf, String> {
        self.discard_copy(dev_run)?;
        let _laying = in_turn(&self.laying);
        let folder = self.copy_of(dev_run);
        self.git.lay_out(commit, &folder).map_err(|fault| fault.to_string())?;
        if let Identity::Dedicated { uid, gid } = self.accounts.lane(lane) {
            hand_over(&folder, uid, gid).map_err(|fault| fault.to_string())?;
        }
        Ok(folder)
    }

    fn discard_copy(&self, dev_run: DevRunId) -> Result<(), String> {
        let _laying = in_turn(&self.laying);
        let folder = self.copy_of(dev_run);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{} cannot be removed: {error}", folder.display()))
            }
            _ => Ok(()),
        }
    }
}

impl HostWorkspaces {
    /// Throws away the copies of development runs that an earlier start of the runner left; nothing of them may run.
    ///
    /// # Errors
    /// Where they cannot be listed or removed.
    pub fn discard_all_copies(&self) -> io::Result<()> {
        let _laying = in_turn(&self.shared.laying);
        for entry in std::fs::read_dir(&self.shared.work)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b"copy-") {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}
