//! Reading the records: the whole log, one subject's part of it, and verdict records by hash.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rusqlite::{Connection, OptionalExtension};
use thermite_actors::ports::RecordsFault;
use thermite_core::log::LogEntry;
use tokio::sync::oneshot;

use super::schema::{self, OpenFault};

/// One row of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its place in the log, from 1.
    pub seq: u64,
    /// When it was written: milliseconds since 1970.
    pub wall_ms: u64,
    /// The fact.
    pub entry: LogEntry,
}

/// The records of a data folder, read by `status`, `why` and `verify` beside the rig that writes them, or without one.
pub struct RecordsReader {
    connection: Connection,
    file: PathBuf,
}

/// A verdict record's canonical JSON, byte for byte as it was closed.
pub type VerdictText = String;

/// Reads verdict records on a thread of its own. May be cloned and used from any thread.
#[derive(Clone)]
pub struct VerdictReader(mpsc::Sender<Option<Ask>>);

struct Ask {
    hash: String,
    answer: oneshot::Sender<Result<Option<VerdictText>, RecordsFault>>,
}

impl RecordsReader {
    /// Opens the records in `folder` for reading alone.
    ///
    /// # Errors
    /// Where there are none, or another schema wrote them.
    pub fn open(folder: &Path) -> Result<RecordsReader, OpenFault> {
        let file = folder.join(super::FILE);
        Ok(RecordsReader { connection: schema::open_for_reading(&file)?, file })
    }

    /// The whole log, in order.
    ///
    /// # Errors
    /// Names the row that cannot be read.
    pub fn log(&self) -> Result<Vec<Recorded>, RecordsFault> {
        let mut log = Vec::new();
        each(&self.connection, &self.file, Part::Whole, |recorded| log.push(recorded))?;
        Ok(log)
    }

    /// What the log says of one run, job or development run, in order.
    ///
    /// # Errors
    /// Names the row that cannot be read.
    pub fn about(&self, subject: &uuid::Uuid) -> Result<Vec<Recorded>, RecordsFault> {
        let mut log = Vec::new();
        each(&self.connection, &self.file, Part::About(&subject.to_string()), |recorded| log.push(recorded))?;
        Ok(log)
    }

    /// The verdict record that closes with `hash`.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn verdict(&self, hash: &str) -> Result<Option<VerdictText>, RecordsFault> {
        verdict(&self.connection, &self.file, hash)
    }
}

impl VerdictReader {
    pub(super) fn open(file: &Path) -> Result<VerdictReader, OpenFault> {
        let connection = schema::open_for_reading(file)?;
        let (asks, queue) = mpsc::channel::<Option<Ask>>();
        let owned = file.to_owned();
        std::thread::Builder::new()
            .name("verdicts".to_owned())
            .spawn(move || {
                while let Ok(Some(Ask { hash, answer })) = queue.recv() {
                    let _ = answer.send(verdict(&connection, &owned, &hash));
                }
            })
            .map_err(|source| OpenFault::Thread { file: file.to_owned(), source })?;
        Ok(VerdictReader(asks))
    }

    /// The verdict record that closes with `hash`.
    ///
    /// # Errors
    /// Where the file cannot be read, or the records are closed.
    pub async fn verdict(&self, hash: &str) -> Result<Option<VerdictText>, RecordsFault> {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Some(Ask { hash: hash.to_owned(), answer }));
        super::answer_of(sent.is_ok(), answered).await
    }

    pub(super) fn close(&self) {
        let _ = self.0.send(None);
    }
}

/// All entries in order.
pub(super) fn load(connection: &Connection, file: &Path) -> Result<Vec<LogEntry>, RecordsFault> {
    let mut entries = Vec::new();
    each(connection, file, Part::Whole, |recorded| entries.push(recorded.entry))?;
    Ok(entries)
}

enum Part<'a> {
    Whole,
    About(&'a str),
}

fn each(
    connection: &Connection,
    file: &Path,
    part: Part<'_>,
    mut take: impl FnMut(Recorded),
) -> Result<(), RecordsFault> {
    let fault = |cause: rusqlite::Error| RecordsFault(format!("{} cannot be read: {cause}", file.display()));
    let whole = matches!(part, Part::Whole);
    let filter = if whole { "" } else { "WHERE subject = ?1" };
    let mut query =
        connection.prepare(&format!("SELECT seq, wall_ms, body FROM log {filter} ORDER BY seq")).map_err(fault)?;
    let mut rows = match part {
        Part::Whole => query.query(()),
        Part::About(subject) => query.query([subject]),
    }
    .map_err(fault)?;
    let mut before = 0;
    while let Some(row) = rows.next().map_err(|cause| damaged(file, before + 1, &cause))? {
        let seq = row.get::<_, i64>(0).map_err(|cause| damaged(file, before + 1, &cause))?.cast_unsigned();
        // INVARIANT: nothing deletes from the log, so a gap is damage and not a fact.
        if whole && seq != before + 1 {
            return Err(damaged(file, before + 1, &"it is missing"));
        }
        before = seq;
        let wall_ms = row.get::<_, i64>(1).map_err(|cause| damaged(file, seq, &cause))?.cast_unsigned();
        let body = row.get_ref(2).map_err(|cause| damaged(file, seq, &cause))?;
        let body = body.as_bytes().map_err(|cause| damaged(file, seq, &cause))?;
        let entry = serde_json::from_slice(body).map_err(|cause| damaged(file, seq, &cause))?;
        take(Recorded { seq, wall_ms, entry });
    }
    Ok(())
}

fn damaged(file: &Path, seq: u64, cause: &dyn std::fmt::Display) -> RecordsFault {
    RecordsFault(format!(
        "row {seq} of the log in {} is damaged: {cause}; put back a copy of the data folder, or use another",
        file.display()
    ))
}

fn verdict(connection: &Connection, file: &Path, hash: &str) -> Result<Option<VerdictText>, RecordsFault> {
    connection
        .prepare_cached("SELECT body FROM verdicts WHERE hash = ?1")
        .and_then(|mut query| query.query_row([hash], |row| row.get(0)).optional())
        .map_err(|cause| RecordsFault(format!("{} cannot be read: {cause}", file.display())))
}
