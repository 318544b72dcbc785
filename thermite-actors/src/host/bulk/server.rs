//! A runner process's end: takes transfers in pieces, checks them, and brings their commits into its store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::LocalBoxFuture;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use thermite_core::ids::{ContentHash, RunId};
use thermite_core::limits;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk, BulkNo, Chunk};

use super::super::git::bundle::NotTaken;
use super::super::git::command::GitFault;
use super::super::git::{Git, format_of, is_no_room, is_object_name};
use super::leftovers::make_room;

/// Where unfinished transfers lie, in the data folder.
pub const TRANSFERS: &str = "transfers";

/// Answers the core's asks about commits. Clones are one server; a data folder has one.
#[derive(Clone)]
pub struct BulkServer {
    shared: Arc<Shared>,
}

struct Shared {
    git: Git,
    folder: PathBuf,
    /// One thread at a time writes transfers.
    putting: Mutex<()>,
    /// One thread at a time writes into the stores.
    storing: Mutex<()>,
    /// Bundles that are being checked, each with what came of it once that is known.
    taking: Mutex<BTreeMap<ContentHash, watch::Receiver<Option<BulkAnswer>>>>,
    /// Runs by the order in which they were last asked about, the newest last.
    runs: Mutex<Vec<RunId>>,
}

impl BulkServer {
    /// Opens the commits' part of a runner's data folder. Whoever lays commits out from it opens it by itself.
    ///
    /// # Errors
    /// Where the folder cannot be read or written.
    pub fn open(data: &Path) -> io::Result<BulkServer> {
        let folder = data.join(TRANSFERS);
        std::fs::create_dir_all(&folder)?;
        Ok(BulkServer {
            shared: Arc::new(Shared {
                git: Git::begin(data)?,
                folder,
                putting: Mutex::default(),
                storing: Mutex::default(),
                taking: Mutex::default(),
                runs: Mutex::default(),
            }),
        })
    }

    /// What is said to one ask. It may come late, twice or never: the answer is then what holds at that moment.
    pub fn answer(&self, ask: BulkAsk) -> LocalBoxFuture<'static, BulkAnswer> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match ask {
                BulkAsk::Tips { run, wanted } => elsewhere(move || shared.tips(run, &wanted)).await,
                BulkAsk::Put { transfer, total, from, bytes } => {
                    elsewhere(move || shared.put(&transfer, total, from, &bytes)).await
                }
                BulkAsk::Take { transfer, total, run, commits, cut } => {
                    shared.take(Taken { transfer, total, run, commits, cut }).await
                }
                BulkAsk::Runs { live } => elsewhere(move || shared.let_go(&live)).await,
            }
        })
    }
}

/// What a take is about.
struct Taken {
    transfer: ContentHash,
    total: u64,
    run: RunId,
    commits: Vec<String>,
    cut: Vec<String>,
}

/// Does disk and git work on a thread of its own.
async fn elsewhere(work: impl FnOnce() -> Result<BulkAnswer, BulkNo> + Send + 'static) -> BulkAnswer {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(no)) => BulkAnswer::No(no),
        Err(error) => BulkAnswer::No(BulkNo::NotAble { said: error.to_string() }),
    }
}

/// What is guarded is the order alone: whoever panicked in its turn left files that are checked before they are used.
fn in_turn<T>(order: &Mutex<T>) -> MutexGuard<'_, T> {
    order.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn tips(&self, run: RunId, wanted: &[String]) -> Result<BulkAnswer, BulkNo> {
        check_names(wanted)?;
        let _storing = in_turn(&self.storing);
        let missing = self.git.missing(wanted).map_err(not_able)?;
        let there: Vec<String> = wanted.iter().filter(|commit| !missing.contains(commit)).cloned().collect();
        self.git.keep_for_run(run, &there).map_err(not_able)?;
        self.note(run);
        let tips = if missing.is_empty() {
            Vec::new()
        } else {
            self.git.tips(format_of(&missing[0]), limits::BULK_TIPS_MAX).map_err(not_able)?
        };
        Ok(BulkAnswer::Tips { missing, tips })
    }

    fn put(&self, transfer: &ContentHash, total: u64, from: u64, bytes: &Chunk) -> Result<BulkAnswer, BulkNo> {
        let Chunk(bytes) = bytes;
        too_much("a chunk", bytes.len() as u64, limits::BULK_CHUNK_BYTES_MAX as u64)?;
        too_much("a transfer", total, limits::BULK_TRANSFER_BYTES_MAX)?;
        let end = from.saturating_add(bytes.len() as u64);
        if end > total {
            return Err(BulkNo::BeyondEnd { end, total });
        }
        let _putting = in_turn(&self.putting);
        let file = self.part(transfer, total)?;
        let length = length_of(&file).map_err(disk)?;
        if end <= length {
            return Ok(BulkAnswer::Stored { length });
        }
        // A gap: what is before it was lost, or is still on its way.
        if from > length {
            return Ok(BulkAnswer::Stored { length });
        }
        if length == 0 {
            make_room(&self.folder, total, &file).map_err(disk)?;
        }
        let new = &bytes[usize::try_from(length - from).expect("a part of a chunk is no longer than it")..];
        let part = OpenOptions::new().create(true).truncate(false).write(true).open(&file).map_err(disk)?;
        part.write_all_at(new, length).map_err(disk)?;
        Ok(BulkAnswer::Stored { length: end })
    }

    /// The file of a transfer; one transfer has one length.
    fn part(&self, transfer: &ContentHash, total: u64) -> Result<PathBuf, BulkNo> {
        let own = format!("{transfer}-{total}.part");
        for entry in std::fs::read_dir(&self.folder).map_err(disk)? {
            let name = entry.map_err(disk)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(transfer.as_str()) && *name != own) else {
                continue;
            };
            let other = name.rsplit('-').next().and_then(|rest| rest.strip_suffix(".part"));
            if let Some(other) = other.and_then(|other| other.parse().ok()) {
                return Err(BulkNo::BeyondEnd { end: total, total: other });
            }
        }
        Ok(self.folder.join(own))
    }

    async fn take(self: Arc<Shared>, taken: Taken) -> BulkAnswer {
        let names = check_names(&taken.commits).and_then(|()| check_names(&taken.cut));
        if let Err(no) = names.and_then(|()| too_much("a transfer", taken.total, limits::BULK_TRANSFER_BYTES_MAX)) {
            return BulkAnswer::No(no);
        }
        let transfer = taken.transfer.clone();
        let mut outcome = {
            let mut taking = in_turn(&self.taking);
            match taking.get(&transfer) {
                Some(outcome) => outcome.clone(),
                None => {
                    let (tell, outcome) = watch::channel(None);
                    taking.insert(transfer.clone(), outcome.clone());
                    let shared = Arc::clone(&self);
                    tokio::task::spawn_blocking(move || {
                        let answer = shared.take_here(&taken).unwrap_or_else(BulkAnswer::No);
                        // Asked once more it is looked at anew: what is there answers by itself.
                        in_turn(&shared.taking).remove(&taken.transfer);
                        tell.send_replace(Some(answer));
                    });
                    outcome
                }
            }
        };
        let known = outcome.wait_for(Option::is_some);
        match tokio::time::timeout(limits::BULK_TAKE_ANSWER.to_std(), known).await {
            Ok(Ok(answer)) => answer.clone().unwrap_or(BulkAnswer::Taking),
            Ok(Err(_)) => {
                // The thread that took it is gone without a word.
                in_turn(&self.taking).remove(&transfer);
                BulkAnswer::No(BulkNo::NotAble { said: "checking the bundle came to no end".to_owned() })
            }
            Err(_) => BulkAnswer::Taking,
        }
    }

    fn take_here(&self, taken: &Taken) -> Result<BulkAnswer, BulkNo> {
        let Taken { transfer, total, run, commits, cut } = taken;
        let _storing = in_turn(&self.storing);
        if self.git.missing(commits).map_err(not_able)?.is_empty() {
            self.git.keep_for_run(*run, commits).map_err(not_able)?;
            self.note(*run);
            return Ok(BulkAnswer::Taken);
        }
        if *total == 0 {
            return Err(BulkNo::Unsound { said: "it has no bytes".to_owned() });
        }
        let file = {
            let _putting = in_turn(&self.putting);
            self.part(transfer, *total)?
        };
        let length = length_of(&file).map_err(disk)?;
        if length < *total {
            return Err(BulkNo::NotWhole { length, total: *total });
        }
        let found = hash_of(&file).map_err(disk)?;
        if found != *transfer {
            remove(&file);
            return Err(BulkNo::WrongHash { expected: transfer.clone(), found });
        }
        match self.git.take_bundle(&file, *run, commits, cut) {
            Ok(()) => {
                remove(&file);
                self.note(*run);
                self.forget_oldest_runs();
                Ok(BulkAnswer::Taken)
            }
            // It stays: should this answer be lost, the same ask has the same one again.
            Err(NotTaken::MissingBase { said }) => Err(BulkNo::MissingBase { said }),
            Err(NotTaken::Unsound { said }) => {
                remove(&file);
                Err(BulkNo::Unsound { said })
            }
            Err(NotTaken::Fault(fault)) => Err(not_able(fault)),
        }
    }

    fn let_go(&self, live: &[RunId]) -> Result<BulkAnswer, BulkNo> {
        let _storing = in_turn(&self.storing);
        let live: BTreeSet<RunId> = live.iter().copied().collect();
        in_turn(&self.runs).retain(|run| live.contains(run));
        self.git.prune_runs(&live).map_err(not_able)?;
        Ok(BulkAnswer::Noted)
    }

    fn note(&self, run: RunId) {
        let mut runs = in_turn(&self.runs);
        runs.retain(|known| *known != run);
        runs.push(run);
    }

    /// Keeps commits of the newest runs alone, for a core that never says which are over.
    fn forget_oldest_runs(&self) {
        let live = {
            let mut runs = in_turn(&self.runs);
            let over = runs.len().saturating_sub(limits::BULK_RUNS_KEPT);
            if over == 0 {
                return;
            }
            runs.drain(..over);
            runs.iter().copied().collect()
        };
        if let Err(fault) = self.git.prune_runs(&live) {
            tracing::warn!(%fault, "commits of old runs stay");
        }
    }
}

/// Refuses what is no list of commits' names in full, all of one kind.
fn check_names(commits: &[String]) -> Result<(), BulkNo> {
    too_much("commits", commits.len() as u64, limits::BULK_COMMITS_MAX as u64)?;
    let length = commits.first().map_or(0, String::len);
    match commits.iter().find(|commit| !is_object_name(commit) || commit.len() != length) {
        None => Ok(()),
        Some(odd) => {
            let odd: String = odd.chars().take(80).flat_map(char::escape_default).collect();
            Err(BulkNo::Unsound { said: format!("{odd} is no commit's name in full") })
        }
    }
}

fn too_much(what: &str, size: u64, most: u64) -> Result<(), BulkNo> {
    if size > most { Err(BulkNo::TooMuch { what: what.to_owned(), size, most }) } else { Ok(()) }
}

fn not_able(fault: GitFault) -> BulkNo {
    let said = fault.to_string();
    if is_no_room(&said) { BulkNo::NoRoom { said } } else { BulkNo::NotAble { said } }
}

fn disk(error: io::Error) -> BulkNo {
    let said = error.to_string();
    if is_no_room(&said) { BulkNo::NoRoom { said } } else { BulkNo::NotAble { said } }
}

fn length_of(file: &Path) -> io::Result<u64> {
    match std::fs::metadata(file) {
        Ok(about) => Ok(about.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn remove(file: &Path) {
    if let Err(error) = std::fs::remove_file(file) {
        // It is a leftover then, and bounded as one.
        tracing::debug!(file = %file.display(), %error, "a transfer stays");
    }
}

/// The name of a file's bytes.
pub(super) fn hash_of(file: &Path) -> io::Result<ContentHash> {
    let mut file = File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(ContentHash::new(hash.finalize().into()));
        }
        hash.update(&buffer[..read]);
    }
}
