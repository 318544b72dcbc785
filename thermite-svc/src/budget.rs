//! The data folder's byte budget, and the room on its disk.
//!
//! One setting, `THERMITE_KEEP`, says what the folder may hold of what can be pruned. Over it, the oldest goes first, in
//! this order: outputs of ended development runs; segments of the input log; raw figures of void attempts; commits that
//! nothing refers to; the log's beginning, as far as checkpoints hold it; ended development runs. Verdict records, ended
//! jobs, champions and whatever live work needs are never pruned: a folder that is over its budget by those alone says
//! so. What was pruned is answered for as such (410).
//!
//! Below the disk's floor, `THERMITE_DISK_FLOOR`, the rig takes and grants no new work, says so, and goes on by itself
//! when there is room.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use thermite_actors::host::clock::BootClock;
use thermite_actors::host::disk::{free, size};
use thermite_actors::host::executor::OUTPUTS as OUTPUTS_FOLDER;
use thermite_actors::host::git::STORES;
use thermite_actors::ports::Clock;
use thermite_actors::rig::Rig;
use thermite_core::fold::RigHistory;
use thermite_core::ids::DevRunId;
use thermite_core::limits;
use thermite_core::run::RunState;
use tracing::{debug, info, warn};

use crate::input_log::{self, INPUTS};
use crate::records::{OUTPUTS, Prune, Pruner, VerdictReader};
use crate::settings::Settings;
use crate::size::Size;

/// Lets go what nothing refers to: the host's stores of commits.
pub trait Stores: Send + Sync {
    /// Takes all but these commits, and those asked for a short while ago, out of the stores; gives how many went.
    ///
    /// # Errors
    /// A sentence; what is left is tried another time.
    fn prune(&self, needed: &BTreeSet<String>) -> Result<usize, String>;
}

/// What holds a data folder within its budget.
pub struct Budget {
    folder: PathBuf,
    keep: u64,
    floor: u64,
    every: std::time::Duration,
    rig: Rig,
    reader: VerdictReader,
    pruner: Pruner,
    stores: Option<Arc<dyn Stores>>,
    /// When the stores were pruned last: not more often than what is young may go.
    stores_pruned: Option<Instant>,
    is_below: bool,
    is_told: bool,
}

impl Budget {
    /// Holds `folder` within what `settings` say.
    pub fn new(
        folder: &Path,
        settings: &Settings,
        rig: Rig,
        reader: VerdictReader,
        pruner: Pruner,
        stores: Option<Arc<dyn Stores>>,
    ) -> Budget {
        Budget {
            folder: folder.to_owned(),
            keep: settings.keep,
            floor: settings.disk_floor,
            every: settings.keep_every.to_std(),
            rig,
            reader,
            pruner,
            stores,
            stores_pruned: None,
            is_below: false,
            is_told: false,
        }
    }

    /// Looks at the room often and at the budget now and then, until it is dropped.
    pub async fn hold(mut self) {
        let mut looked: Option<Instant> = None;
        loop {
            self.look_at_room().await;
            if looked.is_none_or(|looked| looked.elapsed() >= self.every) {
                if let Err(why) = self.keep_within().await {
                    warn!(why, "the data folder could not be held against its byte budget");
                }
                looked = Some(Instant::now());
            }
            tokio::time::sleep(limits::DISK_LOOK_EVERY.to_std().min(self.every)).await;
        }
    }

    async fn look_at_room(&mut self) {
        let Ok(free) = free(&self.folder) else { return };
        let is_below = free < self.floor;
        if is_below != self.is_below {
            let why = format!(
                "{} has {} free, and new work needs {} (THERMITE_DISK_FLOOR)",
                self.folder.display(),
                Size(free),
                Size(self.floor)
            );
            self.rig.tell_disk_room(is_below.then_some(why)).await;
            self.is_below = is_below;
        }
    }

    async fn keep_within(&mut self) -> Result<(), String> {
        let kept = i64::try_from(limits::IDEMPOTENCY_KEPT.as_millis()).unwrap_or(i64::MAX);
        let keys = Prune::Keys { before_ms: BootClock.wall_ms().cast_signed() - kept };
        while self.take(keys.clone()).await? > 0 {}
        let mut held = self.held().await?;
        if held.total() <= self.keep {
            self.is_told = false;
            return Ok(());
        }
        let before = held;
        // A little more than is needed, so that it is not done again with every output.
        let aim = self.keep - self.keep / 10;
        let history = self.rig.history().await.map_err(|no| no.to_string())?;
        self.prune_outputs(&mut held, aim, &history).await?;
        self.prune_inputs(&mut held, aim).await?;
        self.prune_rows(&mut held, aim, Prune::Audits).await?;
        self.prune_stores(&mut held, aim, &history).await?;
        self.prune_rows(&mut held, aim, Prune::Log).await?;
        self.prune_rows(&mut held, aim, Prune::DevRuns).await?;
        info!(before = %Size(before.total()), after = %Size(held.total()), "the data folder was pruned to its byte budget");
        let over = held.total().saturating_sub(self.keep);
        if over > 0 && !std::mem::replace(&mut self.is_told, true) {
            warn!(
                over = %Size(over),
                "the data folder is over its byte budget by what is never pruned: verdicts, ended jobs, live work; give \
                 THERMITE_KEEP more, or take a backup and begin a new folder"
            );
        }
        Ok(())
    }

    async fn take(&self, prune: Prune) -> Result<usize, String> {
        self.pruner.take(prune).await.map_err(|fault| fault.0)
    }

    async fn held(&self) -> Result<Held, String> {
        let records = self.reader.size().await.map_err(|fault| fault.0)?;
        let folder = self.folder.clone();
        let walked = move || Held {
            records,
            outputs: size(&folder.join(OUTPUTS_FOLDER)),
            inputs: size(&folder.join(INPUTS)),
            git: size(&folder.join(STORES)),
        };
        tokio::task::spawn_blocking(walked).await.map_err(|error| error.to_string())
    }

    async fn prune_outputs(&self, held: &mut Held, aim: u64, history: &RigHistory) -> Result<(), String> {
        let need = held.total().saturating_sub(aim);
        if need == 0 {
            return Ok(());
        }
        let live: BTreeSet<DevRunId> =
            history.dev_runs.iter().filter(|(_, run)| run.end.is_none()).map(|(id, _)| *id).collect();
        let folder = self.folder.join(OUTPUTS_FOLDER);
        let picked = tokio::task::spawn_blocking(move || oldest_outputs(&folder, &live, need));
        let (files, freed) = picked.await.map_err(|error| error.to_string())?;
        let Some((last, _)) = files.last() else { return Ok(()) };
        // Noted first: an output that is gone and not noted would read as one that never was.
        self.take(Prune::Files { what: OUTPUTS, through: last.to_string() }).await?;
        remove(files.into_iter().map(|(_, file)| file).collect()).await?;
        held.outputs = held.outputs.saturating_sub(freed);
        Ok(())
    }

    async fn prune_inputs(&self, held: &mut Held, aim: u64) -> Result<(), String> {
        let need = held.total().saturating_sub(aim);
        if need == 0 {
            return Ok(());
        }
        let folder = self.folder.join(INPUTS);
        let picked = tokio::task::spawn_blocking(move || oldest_segments(&folder, need));
        let (files, freed) = picked.await.map_err(|error| error.to_string())?;
        let last = files.last().and_then(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
        let Some(through) = last else { return Ok(()) };
        self.take(Prune::Files { what: INPUTS, through }).await?;
        remove(files).await?;
        held.inputs = held.inputs.saturating_sub(freed);
        Ok(())
    }

    async fn prune_rows(&self, held: &mut Held, aim: u64, prune: Prune) -> Result<(), String> {
        while held.total() > aim && self.take(prune.clone()).await? > 0 {
            held.records = self.reader.size().await.map_err(|fault| fault.0)?;
        }
        Ok(())
    }

    async fn prune_stores(&mut self, held: &mut Held, aim: u64, history: &RigHistory) -> Result<(), String> {
        let Some(stores) = self.stores.clone().filter(|_| held.total() > aim) else { return Ok(()) };
        let is_due = |pruned: Instant| pruned.elapsed() >= limits::STORE_KEPT_MIN.to_std();
        if !self.stores_pruned.is_none_or(is_due) {
            return Ok(());
        }
        self.stores_pruned = Some(Instant::now());
        let mut needed = self.reader.champions().await.map_err(|fault| fault.0)?;
        needed.extend(needed_by(history));
        let pruned = tokio::task::spawn_blocking(move || stores.prune(&needed)).await;
        match pruned.map_err(|error| error.to_string())? {
            Ok(gone) => debug!(gone, "commits that nothing refers to were let go"),
            // The rest of what can be pruned is pruned all the same.
            Err(why) => warn!(why, "the git store was not pruned"),
        }
        *held = self.held().await?;
        Ok(())
    }
}

/// What a data folder holds of what can be pruned, in bytes.
#[derive(Clone, Copy, Debug)]
struct Held {
    records: u64,
    outputs: u64,
    inputs: u64,
    git: u64,
}

impl Held {
    fn total(self) -> u64 {
        self.records + self.outputs + self.inputs + self.git
    }
}

/// The commits that live work and runs refer to.
fn needed_by(history: &RigHistory) -> BTreeSet<String> {
    let runs = history.runs.values().filter(|run| run.state != RunState::Ended);
    let runs = runs.flat_map(|run| [run.champion.clone(), run.spec.champion.clone()]);
    let open = history.jobs.values().filter(|job| job.end.is_none());
    let jobs = open.flat_map(|job| {
        let pinned = &job.spec.pinned;
        [pinned.champion.clone(), pinned.change.clone(), pinned.candidate.clone()]
    });
    runs.chain(jobs).collect()
}

/// The oldest outputs of what is not live, that are enough; and how many bytes they are.
fn oldest_outputs(folder: &Path, live: &BTreeSet<DevRunId>, need: u64) -> (Vec<(DevRunId, PathBuf)>, u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<((DevRunId, PathBuf), u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let id: DevRunId = name.to_str()?.strip_suffix(".out")?.parse().ok()?;
            let bytes = entry.metadata().ok()?.blocks() * 512;
            (!live.contains(&id)).then(|| ((id, entry.path()), bytes))
        })
        .collect();
    // Ids of later askings sort after those of earlier ones.
    files.sort_by_key(|file| file.0.0);
    enough(files, need)
}

/// The oldest segments of the input log that are enough; the newest is being written, and stays.
fn oldest_segments(folder: &Path, need: u64) -> (Vec<PathBuf>, u64) {
    let mut found = input_log::segments(folder).unwrap_or_default();
    found.pop();
    let files = found.into_iter().filter_map(|segment| {
        let bytes = std::fs::metadata(&segment.path).ok()?.blocks() * 512;
        Some((segment.path, bytes))
    });
    enough(files, need)
}

/// The first of them that are enough together, and how many bytes they are.
fn enough<T>(files: impl IntoIterator<Item = (T, u64)>, need: u64) -> (Vec<T>, u64) {
    let (mut picked, mut freed) = (Vec::new(), 0);
    for (file, bytes) in files {
        if freed >= need {
            break;
        }
        freed += bytes;
        picked.push(file);
    }
    (picked, freed)
}

async fn remove(files: Vec<PathBuf>) -> Result<(), String> {
    let removed = tokio::task::spawn_blocking(move || {
        for file in files {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{} cannot be removed: {error}", file.display()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    });
    removed.await.map_err(|error| error.to_string())?
}
