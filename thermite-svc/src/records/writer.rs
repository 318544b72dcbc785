//! The writer thread: takes all that is queued, makes it durable in one transaction, then answers.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::{Batch, Clock, Past, RecordsFault};
use thermite_core::limits;
use thermite_core::log::{LogEntry, check_sum};
use thermite_core::record::{AttemptAudit, VerdictRecord};
use thermite_core::verdict::Verdict;
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::KeyUse;
use super::checkpoint::{self, Written};
use super::ended::{self, EndedRow};
use super::mark::Mark;
use super::prune::{self, Prune};

/// What the writer is asked for.
pub(super) enum Ask {
    /// Make a batch durable.
    Append { batch: Batch, answer: oneshot::Sender<Result<(), RecordsFault>> },
    /// Take an idempotency key.
    TakeKey { key: String, request: [u8; 32], answer: oneshot::Sender<Result<KeyUse, RecordsFault>> },
    /// Read the newest checkpoint and the log after it, after all that was asked before.
    Load { answer: oneshot::Sender<Result<Past, RecordsFault>> },
    /// Keep a checkpoint.
    Checkpoint { written: Written, answer: oneshot::Sender<Result<(), RecordsFault>> },
    /// Take old rows away; answers how many.
    Prune { prune: Prune, answer: oneshot::Sender<Result<usize, RecordsFault>> },
    /// Make durable what was asked before, bring the file to rest, end.
    Close { answer: oneshot::Sender<Result<(), RecordsFault>> },
}

/// Starts the writer; it ends with [`Ask::Close`] or when nobody can ask any more.
pub(super) fn start(
    connection: Connection,
    file: PathBuf,
    queue: Receiver<Ask>,
    commits: Arc<AtomicU64>,
) -> io::Result<JoinHandle<()>> {
    let mark = Mark::of(file.parent().unwrap_or(&file));
    let (keys, group) = (BTreeMap::new(), Group::default());
    let writer = Writer { connection, file, commits, keys, group, failing: false, mark };
    std::thread::Builder::new().name("records".to_owned()).spawn(move || writer.run(&queue))
}

struct Writer {
    connection: Connection,
    file: PathBuf,
    commits: Arc<AtomicU64>,
    /// Keys taken and not yet in the file; they go into the next transaction.
    keys: BTreeMap<String, [u8; 32]>,
    group: Group,
    /// Whether the last transaction failed, so that a full disk is logged once and not for each append.
    failing: bool,
    mark: Mark,
}

#[derive(Default)]
struct Group {
    entries: Vec<EntryRow>,
    ended: Vec<EndedRow>,
    records: Vec<RecordRow>,
    audits: Vec<AuditRow>,
    answers: Vec<oneshot::Sender<Result<(), RecordsFault>>>,
}

struct EntryRow {
    kind: &'static str,
    subject: Option<String>,
    body: String,
}

struct RecordRow {
    hash: String,
    job: String,
    stage: String,
    verdict: &'static str,
    body: String,
}

struct AuditRow {
    job: String,
    stage: String,
    attempt: u32,
    body: String,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Ask>) {
        loop {
            let first = if self.keys.is_empty() || self.failing {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(limits::KEYS_WAIT_MAX.to_std())
            };
            let mut next = match first {
                Ok(ask) => Some(ask),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            // Everything that queued up while the last transaction went to the disk goes into this one.
            while let Some(ask) = next {
                if self.take(ask).is_break() {
                    return;
                }
                let full = self.group.entries.len() + self.group.records.len() + self.group.audits.len()
                    >= limits::GROUP_COMMIT_ROWS_MAX;
                next = if full { None } else { queue.try_recv().ok() };
            }
            if !self.group.answers.is_empty() || !self.keys.is_empty() && !self.failing {
                self.commit();
            }
        }
        self.commit();
    }

    fn take(&mut self, ask: Ask) -> std::ops::ControlFlow<()> {
        match ask {
            Ask::Append { batch, answer } => match rows(&batch) {
                Ok(Rows { entries, ended, records, audits }) => {
                    self.group.entries.extend(entries);
                    self.group.ended.extend(ended);
                    self.group.records.extend(records);
                    self.group.audits.extend(audits);
                    self.group.answers.push(answer);
                }
                // Only this batch is at fault; those that wait with it are not.
                Err(fault) => drop(answer.send(Err(fault))),
            },
            Ask::TakeKey { key, request, answer } => drop(answer.send(self.take_key(key, request))),
            Ask::Load { answer } => {
                self.commit();
                drop(answer.send(checkpoint::load(&self.connection, &self.file)));
            }
            Ask::Checkpoint { written, answer } => {
                // What it holds is in the log before it.
                self.commit();
                drop(answer.send(self.keep_checkpoint(&written).map_err(|cause| self.fault(&cause))));
            }
            Ask::Prune { prune, answer } => {
                self.commit();
                let taken = prune::carry_out(&mut self.connection, &prune, limits::PRUNE_ROWS_MAX, wall_ms());
                drop(answer.send(taken.map_err(|cause| self.fault(&cause))));
            }
            Ask::Close { answer } => {
                self.commit();
                drop(answer.send(self.rest()));
                return std::ops::ControlFlow::Break(());
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    fn take_key(&mut self, key: String, request: [u8; 32]) -> Result<KeyUse, RecordsFault> {
        let known: Option<Vec<u8>> = match self.keys.get(&key) {
            Some(request) => Some(request.to_vec()),
            None => self
                .connection
                .prepare_cached("SELECT request FROM idempotency WHERE key = ?1")
                .and_then(|mut query| query.query_row([&key], |row| row.get(0)).optional())
                .map_err(|cause| self.fault(&cause))?,
        };
        Ok(match known {
            None if self.failing && self.keys.len() >= limits::GROUP_COMMIT_ROWS_MAX => {
                let why = format!("{} cannot be written, and no more keys are kept until it can", self.file.display());
                return Err(RecordsFault(why));
            }
            None => {
                self.keys.insert(key, request);
                KeyUse::ThisRequest
            }
            Some(known) if known == request => KeyUse::ThisRequest,
            Some(_) => KeyUse::AnotherRequest,
        })
    }

    fn commit(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.answers.is_empty() && self.keys.is_empty() {
            return;
        }
        let outcome = self.write(&group).map_err(|cause| self.fault(&cause));
        match &outcome {
            Ok(()) => {
                self.keys.clear();
                self.commits.fetch_add(1, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) {
                    warn!(file = %self.file.display(), "the records are written again");
                }
            }
            Err(fault) => {
                if !std::mem::replace(&mut self.failing, true) {
                    error!(file = %self.file.display(), %fault, "the records cannot be written");
                }
            }
        }
        for answer in group.answers {
            // An asker that is gone asked all the same: what it appended stays.
            let _ = answer.send(outcome.clone());
        }
    }

    /// One transaction: all of it or nothing. A failure rolls it back when the transaction is dropped.
    ///
    /// After a failed commit the disk may still hold the whole group (its last sync is what failed); until the next
    /// commit overwrites it, a crash may bring it back. Whole groups only, so the fold of the log stays sound.
    fn write(&mut self, group: &Group) -> rusqlite::Result<()> {
        let wall_ms = wall_ms();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let last = insert(&transaction, group, &self.keys, wall_ms)?;
        transaction.commit()?;
        if let Some(last) = last {
            self.mark.write(last);
        }
        Ok(())
    }

    fn keep_checkpoint(&mut self, written: &Written) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        checkpoint::insert(&transaction, written, wall_ms())?;
        transaction.commit()
    }

    fn rest(&self) -> Result<(), RecordsFault> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).map_err(|cause| self.fault(&cause))
    }

    fn fault(&self, cause: &rusqlite::Error) -> RecordsFault {
        let file = self.file.display();
        RecordsFault(match cause.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => format!("no room left on the disk for {file}; make room, and it goes on"),
            Some(ErrorCode::ReadOnly) => format!("{file} may not be written; make it writable, and it goes on"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                format!("another program keeps {file} locked; end it, and it goes on")
            }
            Some(ErrorCode::SystemIoFailure) => {
                format!("the disk of {file} failed or is full ({cause}); once it takes writes, it goes on")
            }
            _ => format!("{file}: {cause}"),
        })
    }
}

/// Puts a group in; the number of its last entry, where it has entries.
fn insert(
    transaction: &Transaction<'_>,
    group: &Group,
    keys: &BTreeMap<String, [u8; 32]>,
    wall_ms: i64,
) -> rusqlite::Result<Option<u64>> {
    let mut record = transaction.prepare_cached(
        // The hash is that of the content: the same record twice is one row.
        "INSERT OR IGNORE INTO verdicts (hash, job, stage, verdict, wall_ms, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for row in &group.records {
        record.execute((&row.hash, &row.job, &row.stage, row.verdict, wall_ms, &row.body))?;
    }
    let mut audit = transaction
        .prepare_cached("INSERT INTO audits (job, stage, attempt, wall_ms, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for row in &group.audits {
        audit.execute((&row.job, &row.stage, row.attempt, wall_ms, &row.body))?;
    }
    let mut over = transaction.prepare_cached(ended::INSERT)?;
    for row in &group.ended {
        row.insert(&mut over, wall_ms)?;
    }
    let mut entry = transaction
        .prepare_cached("INSERT INTO log (wall_ms, kind, subject, body, sum) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut last = None;
    for row in &group.entries {
        let sum = check_sum(row.body.as_bytes()).cast_signed();
        last = Some(entry.insert((wall_ms, row.kind, &row.subject, &row.body, sum))?.cast_unsigned());
    }
    if group.entries.is_empty() {
        // Nothing but a question: whether the disk takes writes (again). A commit without a change would not tell.
        transaction.execute("INSERT OR REPLACE INTO tried (id, wall_ms) VALUES (1, ?1)", [wall_ms])?;
    }
    let mut key =
        transaction.prepare_cached("INSERT OR IGNORE INTO idempotency (key, request, wall_ms) VALUES (?1, ?2, ?3)")?;
    for (name, request) in keys {
        key.execute((name, request.as_slice(), wall_ms))?;
    }
    Ok(last)
}

/// A batch as rows of the tables.
struct Rows {
    entries: Vec<EntryRow>,
    ended: Vec<EndedRow>,
    records: Vec<RecordRow>,
    audits: Vec<AuditRow>,
}

fn rows(batch: &Batch) -> Result<Rows, RecordsFault> {
    let entries = batch.entries.iter().map(entry_row).collect::<Result<_, _>>()?;
    let records = batch.records.iter().map(record_row).collect::<Result<_, _>>()?;
    let audits = batch.audits.iter().map(audit_row).collect::<Result<_, _>>()?;
    let ended = batch.ended.iter().map(ended::row).collect::<Result<_, _>>()?;
    Ok(Rows { entries, ended, records, audits })
}

fn entry_row(entry: &LogEntry) -> Result<EntryRow, RecordsFault> {
    let (kind, subject) = named(entry);
    let body = serde_json::to_string(entry).map_err(|cause| RecordsFault(format!("a {kind} has no JSON: {cause}")))?;
    bounded(kind, body).map(|body| EntryRow { kind, subject, body })
}

fn record_row(record: &VerdictRecord) -> Result<RecordRow, RecordsFault> {
    Ok(RecordRow {
        hash: record.sha256.clone(),
        job: record.facts.job.to_string(),
        stage: record.facts.stage.to_string(),
        verdict: match record.verdict {
            Verdict::Win => "win",
            Verdict::NoGain { .. } => "no_gain",
            Verdict::Undecided => "undecided",
        },
        body: bounded("verdict record", record.to_json())?,
    })
}

fn audit_row(audit: &AttemptAudit) -> Result<AuditRow, RecordsFault> {
    let body = serde_json::to_string(audit).map_err(|cause| RecordsFault(format!("an audit has no JSON: {cause}")))?;
    Ok(AuditRow {
        job: audit.facts.job.to_string(),
        stage: audit.facts.stage.to_string(),
        attempt: audit.facts.attempt,
        body: bounded("audit of a void attempt", body)?,
    })
}

/// Refused whole rather than cut: a log entry that cannot be read back would stop the next start.
fn bounded(what: &str, body: String) -> Result<String, RecordsFault> {
    if body.len() <= limits::RECORD_BYTES_MAX {
        return Ok(body);
    }
    Err(RecordsFault(format!("a {what} has {} bytes, at most {}", body.len(), limits::RECORD_BYTES_MAX)))
}

/// The entry's name in the log, and what it is about.
pub(super) fn named(entry: &LogEntry) -> (&'static str, Option<String>) {
    match entry {
        LogEntry::RigStarted => ("rig_started", None),
        LogEntry::RigRestored { .. } => ("rig_restored", None),
        LogEntry::RunStarted { run, .. } => ("run_started", Some(run.to_string())),
        LogEntry::RunChanged { run, .. } => ("run_changed", Some(run.to_string())),
        LogEntry::JobSubmitted { spec, .. } => ("job_submitted", Some(spec.job.to_string())),
        LogEntry::StageStarted { job, .. } => ("stage_started", Some(job.to_string())),
        LogEntry::ScreeningWon { job, .. } => ("screening_won", Some(job.to_string())),
        LogEntry::AttemptFailed { job, .. } => ("attempt_failed", Some(job.to_string())),
        LogEntry::SentBack { job } => ("sent_back", Some(job.to_string())),
        LogEntry::JobEnded { job, .. } => ("job_ended", Some(job.to_string())),
        LogEntry::ChampionMoved { run, .. } => ("champion_moved", Some(run.to_string())),
        LogEntry::VerdictSettled { job, .. } => ("verdict_settled", Some(job.to_string())),
        LogEntry::VerdictReused { job, .. } => ("verdict_reused", Some(job.to_string())),
        LogEntry::NoiseMeasured { .. } => ("noise_measured", None),
        LogEntry::NoiseDoubted { .. } => ("noise_doubted", None),
        LogEntry::ChampionTwice { .. } => ("champion_twice", None),
        LogEntry::DeviceQuarantined { .. } => ("device_quarantined", None),
        LogEntry::BlocksDisturbed { .. } => ("blocks_disturbed", None),
        LogEntry::QuarantineCleared { .. } => ("quarantine_cleared", None),
        LogEntry::BuildStarted { job, .. } => ("build_started", Some(job.to_string())),
        LogEntry::SplitSet { .. } => ("split_set", None),
        LogEntry::RunnersSet { .. } => ("runners_set", None),
        LogEntry::RunnerMet { .. } => ("runner_met", None),
        LogEntry::DeviceDrained { .. } => ("device_drained", None),
        LogEntry::DeviceUndrained { .. } => ("device_undrained", None),
        LogEntry::SettingsChanged { .. } => ("settings_changed", None),
        LogEntry::DevRunAsked { spec, .. } => ("dev_run_asked", Some(spec.dev_run.to_string())),
        LogEntry::DevRunStarted { dev_run, .. } => ("dev_run_started", Some(dev_run.to_string())),
        LogEntry::DevRunEnded { dev_run, .. } => ("dev_run_ended", Some(dev_run.to_string())),
    }
}

/// For the columns that people read; decides nothing.
pub(super) fn wall_ms() -> i64 {
    BootClock.wall_ms().cast_signed()
}
