//! The rig's records in SQLite: one append log that is the truth, and the verdict records it names (rules D7, D9).
//!
//! Write-ahead log, `synchronous = FULL`, one writer thread. Everything that is queued when the writer is free goes
//! into one transaction (group commit), and an append is answered after that transaction is on the disk. Reading the
//! log back is [`RecordsReader`]'s, on a connection of its own. There is deliberately no query that policy could
//! lean on: state is the fold of the log. What is over is kept as rows beside it, to be read when it has left the rig's
//! memory; checkpoints make a start short; the log's beginning and other old rows may be pruned.

mod checkpoint;
mod ended;
mod mark;
mod prune;
mod reader;
mod schema;
mod tokens;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use futures_util::future::LocalBoxFuture;
use thermite_actors::ports::{Batch, Checkpoint, FromRecords, Past, Records, RecordsFault, WhichEnded};
use tokio::sync::oneshot;

pub use mark::MARK;
pub use prune::Prune;
pub use reader::{Recorded, RecordsReader, VerdictReader, VerdictText};
pub use schema::{OpenFault, SCHEMA, copy_of};
pub(crate) use tokens::{TokenRecord, TokenTable};

use writer::Ask;

/// The database's name in the data folder.
pub const FILE: &str = "rig.db";

/// The outputs of development runs, as a kind of what is pruned.
pub const OUTPUTS: &str = "outputs";

/// The log and the verdict records of one data folder, open for writing.
pub struct SqliteRecords {
    file: PathBuf,
    asks: mpsc::Sender<Ask>,
    verdicts: VerdictReader,
    commits: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

/// Takes old rows away, a few at a time. May be cloned and used from any thread.
#[derive(Clone)]
pub struct Pruner(mpsc::Sender<Ask>);

impl Pruner {
    /// Takes some of what may be taken, the oldest first; how many, 0 where there are none left.
    ///
    /// # Errors
    /// Where the records are closed or cannot be written.
    pub async fn take(&self, prune: Prune) -> Result<usize, RecordsFault> {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Ask::Prune { prune, answer });
        answer_of(sent.is_ok(), answered).await
    }
}

/// Remembers which request an idempotency key stands for (rule A13). May be cloned and used from any thread.
#[derive(Clone)]
pub struct Keys(mpsc::Sender<Ask>);

/// What an idempotency key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// This request, for the first time or again.
    ThisRequest,
    /// Another request; this one must not use it.
    AnotherRequest,
}

impl SqliteRecords {
    /// Opens the records in `folder`, making or migrating them as needed. The caller holds the folder's lock.
    ///
    /// # Errors
    /// Where the file cannot be opened, is not thermite's, or was written by a newer schema.
    pub fn open(folder: &Path) -> Result<SqliteRecords, OpenFault> {
        let file = folder.join(FILE);
        let connection = schema::open_for_writing(folder, &file)?;
        let verdicts = VerdictReader::open(&file)?;
        let commits = Arc::new(AtomicU64::new(0));
        let (asks, queue) = mpsc::channel();
        let writer = writer::start(connection, file.clone(), queue, Arc::clone(&commits))
            .map_err(|source| OpenFault::Thread { file: file.clone(), source })?;
        Ok(SqliteRecords { file, asks, verdicts, commits, writer: Some(writer) })
    }

    /// Writes records of its own in an empty folder, syncs them and reads them back: whether records could be kept
    /// there. Blocks; the folder is the caller's to remove.
    ///
    /// # Errors
    /// Where the disk says no.
    pub fn try_out(folder: &Path) -> Result<(), OpenFault> {
        drop(SqliteRecords::open(folder)?);
        drop(SqliteRecords::open(folder)?);
        Ok(())
    }

    /// The database's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads verdict records by their hash, beside the writer.
    pub fn verdicts(&self) -> VerdictReader {
        self.verdicts.clone()
    }

    /// Remembers idempotency keys, beside the log and in its transactions.
    pub fn keys(&self) -> Keys {
        Keys(self.asks.clone())
    }

    /// Takes old rows away.
    pub fn pruner(&self) -> Pruner {
        Pruner(self.asks.clone())
    }

    /// Transactions committed since the records were opened: appends over commits is what group commit gains.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Makes durable what was queued, folds the write-ahead log into the file, and closes it. Appends that come later
    /// are answered with a fault.
    ///
    /// # Errors
    /// Where the file cannot be brought to rest; everything that was answered is durable all the same.
    pub async fn close(&self) -> Result<(), RecordsFault> {
        self.verdicts.close();
        let (answer, answered) = oneshot::channel();
        if self.asks.send(Ask::Close { answer }).is_err() {
            return Ok(());
        }
        answered.await.unwrap_or(Ok(()))
    }
}

impl Drop for SqliteRecords {
    fn drop(&mut self) {
        // The writer outlives every clone of its queue: it is told, and it is waited for, so that a folder whose
        // records were dropped is at rest.
        let (answer, _nobody) = oneshot::channel();
        let _ = self.asks.send(Ask::Close { answer });
        self.verdicts.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Records for SqliteRecords {
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let (answer, answered) = oneshot::channel();
        // Sent here, not in the future: the order of the calls is the order of the log.
        let sent = self.asks.send(Ask::Append { batch, answer });
        Box::pin(async move { answer_of(sent.is_ok(), answered).await })
    }

    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.asks.send(Ask::Load { answer });
        Box::pin(async move { answer_of(sent.is_ok(), answered).await })
    }

    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>> {
        Box::pin(self.verdicts.ended(which))
    }

    fn checkpoint(&self, checkpoint: Checkpoint) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let (answer, answered) = oneshot::channel();
        let asks = self.asks.clone();
        // Off the policy's thread and the writer's: with much open work it is long.
        let started = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
            match checkpoint::written(&checkpoint) {
                // A writer that is gone drops the answer, which says so.
                Ok(written) => drop(asks.send(Ask::Checkpoint { written, answer })),
                Err(fault) => drop(answer.send(Err(fault))),
            }
        });
        Box::pin(async move { answer_of(started.is_ok(), answered).await })
    }
}

impl Keys {
    /// Takes `key` for the request whose SHA-256 is `request`, or says what it stands for already.
    ///
    /// Durable no later than anything appended after the answer: it goes into the same transaction or an earlier one.
    ///
    /// # Errors
    /// Where the records are closed or cannot be read.
    pub async fn take(&self, key: &str, request: [u8; 32]) -> Result<KeyUse, RecordsFault> {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Ask::TakeKey { key: key.to_owned(), request, answer });
        answer_of(sent.is_ok(), answered).await
    }
}

/// The layout of a database, where it is thermite's and not newer than this program; 0 for an empty one.
pub(crate) fn layout_of(connection: &rusqlite::Connection, folder: &Path, file: &Path) -> Result<u32, OpenFault> {
    schema::refuse_foreign(connection, folder, file)
}

async fn answer_of<T>(sent: bool, answered: oneshot::Receiver<Result<T, RecordsFault>>) -> Result<T, RecordsFault> {
    let closed = || RecordsFault("the records are closed".to_owned());
    if !sent {
        return Err(closed());
    }
    answered.await.unwrap_or_else(|_| Err(closed()))
}
