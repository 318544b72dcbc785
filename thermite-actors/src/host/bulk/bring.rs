//! The core's end: brings the commits that a runner's store lacks, each bundle in chunks, from where it stands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use sha2::{Digest, Sha256};

use thermite_core::ids::{ContentHash, RunId};
use thermite_core::limits;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::wire::ProcessName;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk, BulkNo, Chunk};

use super::super::git::bundle::Bundle;
use super::super::git::command::GitFault;
use super::super::git::{Git, is_no_room};
use super::leftovers::make_room;
use super::server::hash_of;
use crate::ports::{BringFault, BulkLink, LinkFault};

/// Where made bundles lie until they are brought, in the data folder.
pub const BUNDLES: &str = "bundles";

/// What was done to have commits on a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Transfers of a bundle; none where nothing was missing.
    pub transfers: u32,
    /// Bytes of bundles that the runner has stored meanwhile.
    pub bytes: u64,
    /// Whether all of it was sent, on no base.
    pub whole: bool,
}

/// Why commits are not on a runner: always infrastructure, tried again, and gone on with from where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkFault {
    /// The bus.
    #[error("{0}")]
    Link(#[from] LinkFault),
    /// The runner does not take them.
    #[error("{0}")]
    Runner(BulkNo),
    /// The runner answered what was not asked.
    #[error("the runner answered what was not asked")]
    OtherAnswer,
    /// The core's own store or disk.
    #[error("{0}")]
    Own(String),
}

impl From<GitFault> for BulkFault {
    fn from(fault: GitFault) -> BulkFault {
        BulkFault::Own(fault.to_string())
    }
}

impl From<BulkFault> for BringFault {
    fn from(fault: BulkFault) -> BringFault {
        match fault {
            BulkFault::Link(fault) => BringFault::Link(fault),
            BulkFault::Runner(_) | BulkFault::OtherAnswer | BulkFault::Own(_) => BringFault::Other(fault.to_string()),
        }
    }
}

impl BulkFault {
    /// As what it counts: nobody's fault, whatever it is.
    pub fn failure(&self, to: &ProcessName) -> InfrastructureFailure {
        match self {
            BulkFault::Own(why) if is_no_room(why) => InfrastructureFailure::DiskFull { why: why.clone() },
            BulkFault::Own(_) | BulkFault::Link(_) | BulkFault::Runner(_) | BulkFault::OtherAnswer => {
                InfrastructureFailure::Step { step: format!("bringing commits to {to}"), why: self.to_string() }
            }
        }
    }
}

/// Brings commits to runners. Clones are one.
#[derive(Clone)]
pub struct Bringer {
    shared: Rc<Shared>,
}

struct Shared {
    git: Git,
    folder: PathBuf,
    link: Rc<dyn BulkLink>,
    /// One bringing to a process at a time: the second then finds nothing missing.
    turns: RefCell<BTreeMap<ProcessName, Rc<tokio::sync::Mutex<()>>>>,
    /// One thread at a time makes a bundle: two processes may lack the same.
    making: Arc<Mutex<()>>,
}

/// A bundle on this machine's disk.
struct Ready {
    file: Arc<std::fs::File>,
    path: PathBuf,
    transfer: ContentHash,
    total: u64,
    about: Bundle,
}

impl Ready {
    /// Takes it off the disk: it is there, or must be made anew.
    fn remove(&self) {
        for file in [&self.path, &self.path.with_extension("about")] {
            // A leftover otherwise, and bounded as one.
            drop(std::fs::remove_file(file));
        }
    }
}

impl Bringer {
    /// Brings commits out of the data folder's store.
    ///
    /// # Errors
    /// Where the folder of bundles cannot be made.
    pub fn open(data: &Path, link: Rc<dyn BulkLink>) -> io::Result<Bringer> {
        let folder = data.join(BUNDLES);
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "new") {
                std::fs::remove_file(path)?;
            }
        }
        Ok(Bringer {
            shared: Rc::new(Shared {
                git: Git::beside(data),
                folder,
                link,
                turns: RefCell::default(),
                making: Arc::default(),
            }),
        })
    }

    /// Has these commits in the store of that process, kept for that run. Asked again after a fault it goes on from where
    /// it stood.
    ///
    /// # Errors
    /// Infrastructure, always: [`BulkFault::failure`].
    pub async fn bring(&self, to: &ProcessName, run: RunId, commits: &[String]) -> Result<Brought, BulkFault> {
        let turn = Rc::clone(self.shared.turns.borrow_mut().entry(to.clone()).or_default());
        let _turn = turn.lock().await;
        let mut brought = Brought::default();
        for part in commits.chunks(limits::BULK_COMMITS_MAX) {
            self.shared.bring(to, run, part, &mut brought).await?;
        }
        Ok(brought)
    }

    /// Tells that process which runs are not over, so that it lets go what it keeps for others.
    ///
    /// # Errors
    /// Infrastructure, always; it may be told again at any time.
    pub async fn tell_runs(&self, to: &ProcessName, live: Vec<RunId>) -> Result<(), BulkFault> {
        match self.shared.ask(to, BulkAsk::Runs { live }).await? {
            BulkAnswer::Noted => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(answer: BulkAnswer) -> BulkFault {
    match answer {
        BulkAnswer::No(no) => BulkFault::Runner(no),
        BulkAnswer::Tips { .. }
        | BulkAnswer::Stored { .. }
        | BulkAnswer::Taking
        | BulkAnswer::Taken
        | BulkAnswer::Noted => BulkFault::OtherAnswer,
    }
}

impl Shared {
    /// Asks until it is answered, a few times.
    async fn ask(&self, to: &ProcessName, ask: BulkAsk) -> Result<BulkAnswer, BulkFault> {
        let mut unanswered = 0;
        loop {
            match self.link.ask(to, ask.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(LinkFault::NoAnswer) if unanswered < limits::BULK_UNANSWERED_MAX => unanswered += 1,
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    async fn bring(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: &[String],
        brought: &mut Brought,
    ) -> Result<(), BulkFault> {
        let mut builds_on_tips = true;
        let mut last = BulkFault::OtherAnswer;
        for _ in 0..limits::BULK_TRANSFERS_TRIED_MAX {
            let wanted = commits.to_vec();
            let (missing, tips) = match self.ask(to, BulkAsk::Tips { run, wanted }).await? {
                BulkAnswer::Tips { missing, tips } => (missing, tips),
                other => return Err(unexpected(other)),
            };
            // Named by another machine: only what was asked about is sent.
            let missing: Vec<String> = commits.iter().filter(|commit| missing.contains(commit)).cloned().collect();
            if missing.is_empty() {
                return Ok(());
            }
            let tips = if builds_on_tips { tips } else { Vec::new() };
            let ready = self.bundle(&missing, tips).await?;
            brought.transfers += 1;
            brought.whole = ready.about.bases.is_empty();
            match self.send(to, run, &missing, &ready, brought).await {
                Ok(()) => {
                    ready.remove();
                    return Ok(());
                }
                Err(BulkFault::Runner(no @ BulkNo::MissingBase { .. })) if builds_on_tips => {
                    tracing::info!(%to, %no, "all of it is sent");
                    ready.remove();
                    builds_on_tips = false;
                    last = BulkFault::Runner(no);
                }
                // The bytes were changed on their way, or lie wrong on a disk: once more from the start.
                Err(BulkFault::Runner(no @ (BulkNo::WrongHash { .. } | BulkNo::Unsound { .. }))) => {
                    tracing::warn!(%to, %no, "a transfer is sent anew");
                    ready.remove();
                    last = BulkFault::Runner(no);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(last)
    }

    /// The bundle of these commits on those tips: the one that lies there, so that a transfer goes on, or a new one.
    async fn bundle(&self, commits: &[String], tips: Vec<String>) -> Result<Ready, BulkFault> {
        let (git, folder, commits) = (self.git.clone(), self.folder.clone(), commits.to_vec());
        let making = Arc::clone(&self.making);
        let made = tokio::task::spawn_blocking(move || {
            // The order alone is guarded: what a panic left is made anew.
            let _making = making.lock().unwrap_or_else(PoisonError::into_inner);
            ready(&git, &folder, &commits, &tips)
        });
        made.await.map_err(|error| BulkFault::Own(error.to_string()))?
    }

    async fn send(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: &[String],
        ready: &Ready,
        brought: &mut Brought,
    ) -> Result<(), BulkFault> {
        let Ready { transfer, total, about, .. } = ready;
        let (transfer, total) = (transfer.clone(), *total);
        let mut cut_short = 0;
        loop {
            self.put_all(to, ready, brought).await?;
            let take = || BulkAsk::Take {
                transfer: transfer.clone(),
                total,
                run,
                commits: commits.to_vec(),
                cut: about.cut.clone(),
            };
            loop {
                match self.ask(to, take()).await? {
                    BulkAnswer::Taken => return Ok(()),
                    BulkAnswer::Taking => {}
                    // It was put aside for others meanwhile.
                    BulkAnswer::No(BulkNo::NotWhole { .. }) if cut_short < limits::BULK_UNANSWERED_MAX => {
                        cut_short += 1;
                        break;
                    }
                    other => return Err(unexpected(other)),
                }
            }
        }
    }

    /// Puts a bundle's bytes there, a few chunks at a time, from where the runner says it stands.
    async fn put_all(&self, to: &ProcessName, ready: &Ready, brought: &mut Brought) -> Result<(), BulkFault> {
        let chunk = limits::BULK_CHUNK_BYTES_MAX as u64;
        let put = |from: u64, bytes: Vec<u8>| BulkAsk::Put {
            transfer: ready.transfer.clone(),
            total: ready.total,
            from,
            bytes: Chunk(bytes),
        };
        let stored = |answer: BulkAnswer| match answer {
            BulkAnswer::Stored { length } => Ok(length.min(ready.total)),
            other => Err(unexpected(other)),
        };
        let mut length = stored(self.ask(to, put(0, Vec::new())).await?)?;
        let mut in_vain = 0;
        while length < ready.total {
            let starts = (0..limits::BULK_WINDOW as u64).map(|at| length + at * chunk);
            let mut asks = Vec::new();
            for from in starts.take_while(|from| *from < ready.total) {
                let size = usize::try_from(chunk.min(ready.total - from)).expect("a chunk fits in memory");
                let file = Arc::clone(&ready.file);
                let read = tokio::task::spawn_blocking(move || {
                    let mut bytes = vec![0; size];
                    file.read_exact_at(&mut bytes, from).map(|()| bytes)
                });
                let bytes = read.await.map_err(io::Error::other).flatten();
                let bytes = bytes.map_err(|error| BulkFault::Own(format!("the bundle cannot be read: {error}")))?;
                asks.push(self.link.ask(to, put(from, bytes)));
            }
            let mut farthest = None;
            let mut fault = LinkFault::NoAnswer;
            for answer in join_all(asks).await {
                match answer {
                    Ok(answer) => farthest = farthest.max(Some(stored(answer)?)),
                    Err(said) => fault = said,
                }
            }
            let before = length;
            length = farthest.unwrap_or(length);
            if length > before {
                in_vain = 0;
                brought.bytes += length - before;
                continue;
            }
            match fault {
                LinkFault::NoAnswer if in_vain < limits::BULK_UNANSWERED_MAX => in_vain += 1,
                fault => return Err(fault.into()),
            }
        }
        Ok(())
    }
}

/// Finds or makes the bundle on disk. Its name says what it is of, so that the same asked again is the same bytes.
fn ready(git: &Git, folder: &Path, commits: &[String], tips: &[String]) -> Result<Ready, BulkFault> {
    let own = |error: io::Error| BulkFault::Own(format!("{} cannot be written: {error}", folder.display()));
    let mut name = Sha256::new();
    for (kind, names) in [("commits", commits), ("on", tips)] {
        name.update(kind);
        names.iter().for_each(|commit| name.update(commit));
    }
    let name = ContentHash::new(name.finalize().into());
    let (path, beside) = (folder.join(format!("{name}.bundle")), folder.join(format!("{name}.about")));
    let known = std::fs::read_to_string(&beside).ok().filter(|_| path.is_file());
    let about = match known.and_then(|text| serde_json::from_str::<(Vec<String>, Vec<String>)>(&text).ok()) {
        Some((cut, bases)) => Bundle { cut, bases },
        None => {
            make_room(folder, 0, &path).map_err(own)?;
            let new = folder.join(format!("{name}.new"));
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(own(error)),
                _ => {}
            }
            let about = git.make_bundle(commits, tips, &new).inspect_err(|_| drop(std::fs::remove_file(&new)))?;
            std::fs::rename(&new, &path).map_err(own)?;
            let text = serde_json::to_string(&(&about.cut, &about.bases)).expect("lists of texts are JSON");
            std::fs::write(&beside, text).map_err(own)?;
            about
        }
    };
    let transfer = hash_of(&path).map_err(own)?;
    let file = std::fs::File::open(&path).map_err(own)?;
    let total = file.metadata().map_err(own)?.len();
    Ok(Ready { file: Arc::new(file), path, transfer, total, about })
}
