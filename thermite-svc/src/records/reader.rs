//! Reading the records: the log, one subject's part of it, what is over, and verdict records by hash.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use futures_util::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension};
use thermite_actors::ports::{FromRecords, RecordsFault, WhichEnded};
use thermite_core::ended::Ended;
use thermite_core::ids::DevRunId;
use thermite_core::log::{LogEntry, check_sum};
use tokio::sync::oneshot;

use super::ended;
use super::prune;
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

/// Reads what is over on a thread of its own, beside the writer. May be cloned and used from any thread.
#[derive(Clone)]
pub struct VerdictReader(mpsc::Sender<Option<Read>>);

type Read = Box<dyn FnOnce(&Connection, &Path) + Send>;

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

    /// Something that is over.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn ended(&self, which: &WhichEnded) -> Result<FromRecords, RecordsFault> {
        ended::read(&self.connection, which, super::writer::wall_ms()).map_err(|cause| unreadable(&self.file, &cause))
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
        let (asks, queue) = mpsc::channel::<Option<Read>>();
        let owned = file.to_owned();
        std::thread::Builder::new()
            .name("verdicts".to_owned())
            .spawn(move || {
                while let Ok(Some(read)) = queue.recv() {
                    read(&connection, &owned);
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
        let hash = hash.to_owned();
        self.read(move |connection, file| verdict(connection, file, &hash)).await
    }

    /// Something that is over.
    ///
    /// # Errors
    /// Where the file cannot be read, or the records are closed.
    pub fn ended(&self, which: WhichEnded) -> BoxFuture<'static, Result<FromRecords, RecordsFault>> {
        self.read(move |connection, file| {
            ended::read(connection, &which, super::writer::wall_ms()).map_err(|cause| unreadable(file, &cause))
        })
    }

    /// When the output of this development run was pruned, where it was.
    ///
    /// # Errors
    /// Where the file cannot be read, or the records are closed.
    pub async fn output_pruned(&self, dev_run: DevRunId) -> Result<Option<u64>, RecordsFault> {
        let id = dev_run.to_string();
        self.read(move |connection, file| {
            ended::pruned_at(connection, super::OUTPUTS, &id).map_err(|cause| unreadable(file, &cause))
        })
        .await
    }

    /// Every commit that a win ever made champion, and the first and last champion of every ended run.
    ///
    /// # Errors
    /// Where the file cannot be read, or the records are closed.
    pub async fn champions(&self) -> Result<BTreeSet<String>, RecordsFault> {
        self.read(|connection, file| champions(connection).map_err(|cause| unreadable(file, &cause))).await
    }

    /// What the database holds, in bytes.
    ///
    /// # Errors
    /// Where the file cannot be read, or the records are closed.
    pub async fn size(&self) -> Result<u64, RecordsFault> {
        self.read(|connection, file| prune::size(connection).map_err(|cause| unreadable(file, &cause))).await
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, &Path) -> Result<T, RecordsFault> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, RecordsFault>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Some(Box::new(move |connection, file| drop(answer.send(read(connection, file))))));
        Box::pin(super::answer_of(sent.is_ok(), answered))
    }

    pub(super) fn close(&self) {
        let _ = self.0.send(None);
    }
}

/// Which part of the log.
pub(super) enum Part<'a> {
    /// All of it.
    Whole,
    /// What comes after that many entries.
    After(u64),
    /// What it says of one subject.
    About(&'a str),
}

/// Gives each row in order; the number of the log's last one, of those looked at or before them.
pub(super) fn each(
    connection: &Connection,
    file: &Path,
    part: Part<'_>,
    mut take: impl FnMut(Recorded),
) -> Result<u64, RecordsFault> {
    let fault = |cause: rusqlite::Error| unreadable(file, &cause);
    let begins = begins_after(connection).map_err(fault)?;
    let (filter, mut before) = match part {
        Part::Whole => ("WHERE seq > ?1", Some(begins)),
        Part::After(position) => ("WHERE seq > ?1", Some(position.max(begins))),
        Part::About(_) => ("WHERE subject = ?1", None),
    };
    if let Part::After(position) = part
        && position < begins
    {
        return Err(RecordsFault(format!(
            "the log in {} was pruned up to row {begins}, and no checkpoint of it holds; put back a copy of the data folder \
             (`thermite restore BACKUP --data DIR`)",
            file.display()
        )));
    }
    let mut query =
        connection.prepare(&format!("SELECT seq, wall_ms, body, sum FROM log {filter} ORDER BY seq")).map_err(fault)?;
    let mut rows = match part {
        Part::About(subject) => query.query([subject]),
        Part::Whole | Part::After(_) => query.query([before.unwrap_or(0).cast_signed()]),
    }
    .map_err(fault)?;
    let mut last = None;
    while let Some(row) = rows.next().map_err(|cause| damaged(file, last.or(before).unwrap_or(0) + 1, &cause))? {
        let expected = last.or(before).unwrap_or(0) + 1;
        let seq = row.get::<_, i64>(0).map_err(|cause| damaged(file, expected, &cause))?.cast_unsigned();
        // INVARIANT: only the log's beginning is ever taken away, so a gap is damage and not a fact.
        if before.is_some() && seq != expected {
            return Err(damaged(file, expected, &"it is missing"));
        }
        last = Some(seq);
        before = before.map(|_| seq);
        let wall_ms = row.get::<_, i64>(1).map_err(|cause| damaged(file, seq, &cause))?.cast_unsigned();
        let body = row.get_ref(2).map_err(|cause| damaged(file, seq, &cause))?;
        let body = body.as_bytes().map_err(|cause| damaged(file, seq, &cause))?;
        let sum = row.get::<_, Option<i64>>(3).map_err(|cause| damaged(file, seq, &cause))?;
        if sum.is_some_and(|sum| sum.cast_unsigned() != check_sum(body)) {
            return Err(damaged(file, seq, &"its check sum differs"));
        }
        let entry = serde_json::from_slice(body).map_err(|cause| damaged(file, seq, &cause))?;
        take(Recorded { seq, wall_ms, entry });
    }
    match last {
        Some(last) => Ok(last),
        None => {
            let last: Option<i64> =
                connection.query_row("SELECT max(seq) FROM log", (), |row| row.get(0)).map_err(fault)?;
            Ok(last.unwrap_or(0).cast_unsigned())
        }
    }
}

/// How many entries of the log's beginning were pruned.
fn begins_after(connection: &Connection) -> rusqlite::Result<u64> {
    let through: Option<i64> =
        connection
            .query_row("SELECT max(CAST(through AS INTEGER)) FROM pruned WHERE what = 'log'", (), |row| row.get(0))?;
    Ok(through.unwrap_or(0).cast_unsigned())
}

fn champions(connection: &Connection) -> Result<BTreeSet<String>, ended::ReadFault> {
    let mut commits = BTreeSet::new();
    let mut query = connection.prepare("SELECT adopted FROM ended WHERE adopted IS NOT NULL")?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        commits.insert(row.get(0)?);
    }
    let mut query = connection.prepare("SELECT body FROM ended WHERE kind = 'run'")?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        let ended: Ended = serde_json::from_str(&row.get::<_, String>(0)?)
            .map_err(|cause| ended::ReadFault::Damaged(cause.to_string()))?;
        if let Ended::Run { history, .. } = ended {
            commits.extend([history.champion, history.spec.champion]);
        }
    }
    Ok(commits)
}

fn unreadable(file: &Path, cause: &dyn std::fmt::Display) -> RecordsFault {
    RecordsFault(format!("{} cannot be read: {cause}", file.display()))
}

fn damaged(file: &Path, seq: u64, cause: &dyn std::fmt::Display) -> RecordsFault {
    RecordsFault(format!(
        "row {seq} of the log in {} is damaged: {cause}; put back a copy of the data folder (`thermite restore BACKUP \
         --data DIR`), or use another",
        file.display()
    ))
}

fn verdict(connection: &Connection, file: &Path, hash: &str) -> Result<Option<VerdictText>, RecordsFault> {
    connection
        .prepare_cached("SELECT body FROM verdicts WHERE hash = ?1")
        .and_then(|mut query| query.query_row([hash], |row| row.get(0)).optional())
        .map_err(|cause| RecordsFault(format!("{} cannot be read: {cause}", file.display())))
}
