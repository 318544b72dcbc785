//! The layout of the database and how it grows: a list of migrations, the count of them in `user_version`.
//!
//! Before an older layout is brought up, a copy of the whole database is put beside it; all steps are one transaction.

use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};
use thermite_actors::ports::RecordsFault;
use thermite_core::fold::RigHistory;
use thermite_core::limits;

use super::mark::Mark;
use super::{ended, reader};

/// The schema that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// "thrm" in the file's header: a database of another program is never migrated.
const APPLICATION: i32 = 0x7468_726d;

/// One step each, never changed once published; plain SQL types only, so that another engine can take them over.
const MIGRATIONS: &[Step] = &[
    Step { sql: LAYOUT_1, then: nothing },
    Step { sql: LAYOUT_2, then: nothing },
    Step { sql: LAYOUT_3, then: keep_what_is_over },
];

/// One step from a layout to the next: statements, then what statements cannot do.
struct Step {
    sql: &'static str,
    then: fn(&Transaction<'_>, &Path) -> rusqlite::Result<()>,
}

const LAYOUT_1: &str = "
    CREATE TABLE log (
        seq     INTEGER PRIMARY KEY,  -- order of the facts, from 1 without a gap
        wall_ms INTEGER NOT NULL,     -- when it was written: milliseconds since 1970, for people
        kind    TEXT NOT NULL,        -- the entry's name
        subject TEXT,                 -- the run, job or development run it is about
        body    TEXT NOT NULL         -- the entry as JSON
    );
    CREATE INDEX log_subject ON log (subject, seq) WHERE subject IS NOT NULL;
    CREATE TABLE verdicts (
        hash    TEXT PRIMARY KEY,     -- SHA-256 that the record closes with
        job     TEXT NOT NULL,
        stage   TEXT NOT NULL,
        verdict TEXT NOT NULL,
        wall_ms INTEGER NOT NULL,
        body    TEXT NOT NULL         -- the record's canonical JSON, byte for byte
    ) WITHOUT ROWID;
    CREATE TABLE audits (             -- raw figures of void attempts: kept to be seen, never a verdict
        id      INTEGER PRIMARY KEY,
        job     TEXT NOT NULL,
        stage   TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        wall_ms INTEGER NOT NULL,
        body    TEXT NOT NULL         -- as JSON
    );
    CREATE TABLE idempotency (
        key     TEXT PRIMARY KEY,
        request BLOB NOT NULL,        -- SHA-256 of the request the key stands for
        wall_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE tried (
        id      INTEGER PRIMARY KEY CHECK (id = 1),
        wall_ms INTEGER NOT NULL      -- when an empty append last asked whether the disk takes writes
    );
    CREATE TABLE tokens (
        id      TEXT PRIMARY KEY,     -- public: names the token in logs
        kind    TEXT NOT NULL,
        sha256  BLOB NOT NULL,        -- of the token; the token itself is nowhere in here
        wall_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
";

const LAYOUT_2: &str = "
    ALTER TABLE tokens ADD COLUMN from_file INTEGER NOT NULL DEFAULT 1; -- whether it is the data folder's file that has it
    ALTER TABLE tokens ADD COLUMN lane INTEGER;       -- a lane's token: the lane
    ALTER TABLE tokens ADD COLUMN run TEXT;           -- and the run, where it is for one alone
    ALTER TABLE tokens ADD COLUMN note TEXT NOT NULL DEFAULT '';
    ALTER TABLE tokens ADD COLUMN expires_ms INTEGER; -- when it ends: milliseconds since 1970
    ALTER TABLE tokens ADD COLUMN used_ms INTEGER;    -- when it was last used, coarsely
";

const LAYOUT_3: &str = "
    ALTER TABLE log ADD COLUMN sum INTEGER;   -- check sum of the body; none in rows of layouts 1 and 2
    CREATE TABLE ended (
        seq     INTEGER PRIMARY KEY,  -- order of the ends
        id      TEXT NOT NULL UNIQUE, -- the job, development run or run
        kind    TEXT NOT NULL,        -- job, dev_run or run
        run     TEXT NOT NULL,        -- the run it belongs to
        arrival INTEGER,              -- a job's place in the order of all askings
        key     TEXT,                 -- the idempotency key it was asked with
        adopted TEXT,                 -- the commit that a win made champion
        wall_ms INTEGER NOT NULL,     -- when it ended
        sum     INTEGER NOT NULL,     -- check sum of the body
        body    TEXT NOT NULL         -- all that the log said of it, as JSON
    );
    CREATE INDEX ended_jobs ON ended (run, arrival) WHERE kind = 'job';
    CREATE INDEX ended_keys ON ended (kind, key) WHERE key IS NOT NULL;
    CREATE INDEX ended_adopted ON ended (adopted) WHERE adopted IS NOT NULL;
    CREATE INDEX ended_dev_runs ON ended (seq) WHERE kind = 'dev_run';
    CREATE INDEX ended_dev_runs_of ON ended (run, id) WHERE kind = 'dev_run';
    CREATE INDEX ended_runs ON ended (id) WHERE kind = 'run';
    CREATE TABLE checkpoints (        -- the fold of the log's first entries; the last two are kept
        position INTEGER PRIMARY KEY, -- how many entries
        wall_ms  INTEGER NOT NULL,
        sha256   BLOB NOT NULL,       -- of the body
        body     TEXT NOT NULL        -- as JSON
    );
    CREATE TABLE pruned (             -- what was taken away to keep within the byte budget
        id      INTEGER PRIMARY KEY,
        what    TEXT NOT NULL,        -- outputs, audits, log, dev_runs or inputs
        through TEXT NOT NULL,        -- the last id or number of them
        wall_ms INTEGER NOT NULL
    );
    CREATE INDEX pruned_what ON pruned (what, id);
    CREATE INDEX idempotency_age ON idempotency (wall_ms);
";

fn nothing(_: &Transaction<'_>, _: &Path) -> rusqlite::Result<()> {
    Ok(())
}

/// Layouts 1 and 2 had what is over in the log alone.
fn keep_what_is_over(transaction: &Transaction<'_>, file: &Path) -> rusqlite::Result<()> {
    let mut history = RigHistory::default();
    let mut keep = transaction.prepare(ended::INSERT)?;
    let unreadable = |fault: RecordsFault| rusqlite::Error::ToSqlConversionFailure(fault.0.into());
    let mut failed = None;
    reader::each(transaction, file, reader::Part::Whole, |recorded| {
        let reader::Recorded { wall_ms, entry, .. } = recorded;
        for ended in history.ended_by(std::slice::from_ref(&entry)) {
            let kept = ended::row(&ended).map_err(unreadable).and_then(|row| row.insert(&mut keep, wall_ms as i64));
            failed = failed.take().or(kept.err());
        }
        history.apply(entry);
    })
    .map_err(unreadable)?;
    failed.map_or(Ok(()), Err)
}

/// The records could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// A newer program wrote them.
    #[error(
        "data folder {} was written by a newer thermite (schema {found}; this one reads up to {SCHEMA}); \
         use that thermite, or another data folder",
        folder.display()
    )]
    Newer {
        /// The data folder.
        folder: PathBuf,
        /// The schema found.
        found: u32,
    },
    /// An older program wrote them, and reading alone cannot bring them up.
    #[error(
        "data folder {} was written by an older thermite (schema {found}; this one reads {SCHEMA}); \
         start `thermite serve` on it once, which brings it up",
        folder.display()
    )]
    Older {
        /// The data folder.
        folder: PathBuf,
        /// The schema found.
        found: u32,
    },
    /// There are none.
    #[error("data folder {} holds no records; start `thermite serve` or `thermite try` on it first", folder.display())]
    None {
        /// The data folder.
        folder: PathBuf,
    },
    /// The file is another program's.
    #[error("{} is not a database of thermite; name another data folder", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file system has no write-ahead log.
    #[error(
        "{} cannot have a write-ahead log (journal mode {mode}); put the data folder on a local file system",
        file.display()
    )]
    NoWriteAheadLog {
        /// The file.
        file: PathBuf,
        /// The journal mode that SQLite fell back to.
        mode: String,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged: {why}; put it aside and bring the data folder back with `thermite restore BACKUP --data DIR`",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        why: String,
    },
    /// Less is there than was acknowledged.
    #[error(
        "{} has lost its end: it has {found} entries, and entry {acknowledged} was acknowledged; put back a copy of the \
         data folder (`thermite restore BACKUP --data DIR`), or remove {} to go on without the lost ones",
        file.display(), mark.display()
    )]
    Lost {
        /// The file.
        file: PathBuf,
        /// Where the number acknowledged last is kept.
        mark: PathBuf,
        /// How many entries there are.
        found: u64,
        /// How many there were.
        acknowledged: u64,
    },
    /// The copy that precedes a migration cannot be made.
    #[error("{} is of an older layout, and the copy to keep of it cannot be made: {why}; make room, and start again", file.display())]
    NoCopy {
        /// The file.
        file: PathBuf,
        /// The cause.
        why: String,
    },
    /// SQLite said no.
    #[error("{} cannot be opened: {source}", file.display())]
    Sqlite {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The file cannot be made or read.
    #[error("{} cannot be opened: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No thread for the writer or reader.
    #[error("no thread for the records in {}: {source}", file.display())]
    Thread {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Opens for writing, makes or migrates the layout.
pub(super) fn open_for_writing(folder: &Path, file: &Path) -> Result<Connection, OpenFault> {
    let sqlite = |source| fault(file, source);
    let mark = Mark::of(folder);
    let acknowledged = mark.read();
    let is_empty = std::fs::metadata(file).map_or(true, |about| about.len() == 0);
    if is_empty && acknowledged > 0 {
        return Err(OpenFault::Lost { file: file.to_owned(), mark: mark.file().to_owned(), found: 0, acknowledged });
    }
    // Made here, so that nobody else may read it even where the folder is opened up later.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)
        .map_err(|source| OpenFault::File { file: file.to_owned(), source })?;
    let mut connection = connect(file).map_err(sqlite)?;
    let found = refuse_foreign(&connection, folder, file)?;
    if is_empty {
        // What is pruned gives its room back to the file system.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(sqlite)?;
    }
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenFault::NoWriteAheadLog { file: file.to_owned(), mode });
    }
    connection.execute_batch(EACH_CONNECTION).map_err(sqlite)?;
    check_pages(&connection, file)?;
    lost_nothing(&connection, file, &mark, found, acknowledged)?;
    if found > 0 && found < SCHEMA {
        copy_aside(&connection, folder, file, found)?;
    }
    migrate(&mut connection, file).map_err(sqlite)?;
    Ok(connection)
}

/// What holds for one connection alone. FULL: a commit that was answered survives power loss, not only kill -9 (rule D7).
const EACH_CONNECTION: &str =
    "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA cell_size_check = ON;";

/// A second connection for writing, to what [`open_for_writing`] has looked through and brought up.
pub(super) fn open_beside(file: &Path) -> Result<Connection, OpenFault> {
    let connection = connect(file).map_err(|source| fault(file, source))?;
    connection.execute_batch(EACH_CONNECTION).map_err(|source| fault(file, source))?;
    Ok(connection)
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(limits::RECORDS_LOCK_WAIT_MAX.to_std())?;
    Ok(connection)
}

/// Damage is told apart from a disk that fails: the one needs a copy, the other passes.
fn fault(file: &Path, source: rusqlite::Error) -> OpenFault {
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => OpenFault::Damaged { file: file.to_owned(), why: source.to_string() },
        Some(ErrorCode::NotADatabase) => OpenFault::Foreign { file: file.to_owned() },
        _ => OpenFault::Sqlite { file: file.to_owned(), source },
    }
}

/// Looks through all pages, where that takes no time to speak of; a larger file is found damaged where it is read.
fn check_pages(connection: &Connection, file: &Path) -> Result<(), OpenFault> {
    if std::fs::metadata(file).map_or(0, |about| about.len()) > limits::RECORDS_CHECKED_BYTES {
        return Ok(());
    }
    let said: String =
        connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(|source| fault(file, source))?;
    if said == "ok" {
        return Ok(());
    }
    Err(OpenFault::Damaged { file: file.to_owned(), why: said })
}

/// A log that ends before what was acknowledged is refused: going on would give numbers out twice.
fn lost_nothing(
    connection: &Connection,
    file: &Path,
    mark: &Mark,
    layout: u32,
    acknowledged: u64,
) -> Result<(), OpenFault> {
    let last = || connection.query_row("SELECT max(seq) FROM log", (), |row| row.get::<_, Option<i64>>(0));
    // A database without a layout is a new one, or one whose whole write-ahead log is gone.
    let last = if layout == 0 { None } else { last().map_err(|source| fault(file, source))? };
    let found = last.unwrap_or(0).cast_unsigned();
    if found >= acknowledged {
        return Ok(());
    }
    Err(OpenFault::Lost { file: file.to_owned(), mark: mark.file().to_owned(), found, acknowledged })
}

/// The name of the copy that is kept of an older layout.
pub fn copy_of(folder: &Path, schema: u32) -> PathBuf {
    folder.join(format!("{}.schema-{schema}", super::FILE))
}

/// Puts a copy of the whole database beside it, whole or not at all.
fn copy_aside(connection: &Connection, folder: &Path, file: &Path, found: u32) -> Result<(), OpenFault> {
    let copy = copy_of(folder, found);
    let new = copy.with_extension("new");
    let no_copy = |why: String| OpenFault::NoCopy { file: file.to_owned(), why };
    // A start that was cut off may have left one.
    let _none = std::fs::remove_file(&new);
    let path = new.to_str().ok_or_else(|| no_copy(format!("{} is not UTF-8", new.display())))?;
    connection.execute("VACUUM INTO ?1", [path]).map_err(|error| no_copy(error.to_string()))?;
    let keep = || {
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &copy)
    };
    keep().map_err(|error| no_copy(error.to_string()))?;
    tracing::warn!(from = found, to = SCHEMA, copy = %copy.display(), "the records are brought up; a copy is kept");
    Ok(())
}

/// Opens for reading beside whoever writes.
pub(super) fn open_for_reading(file: &Path) -> Result<Connection, OpenFault> {
    let folder = file.parent().unwrap_or(file);
    if !file.exists() {
        return Err(OpenFault::None { folder: folder.to_owned() });
    }
    let sqlite = |source| fault(file, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(sqlite)?;
    connection.busy_timeout(limits::RECORDS_LOCK_WAIT_MAX.to_std()).map_err(sqlite)?;
    match refuse_foreign(&connection, folder, file)? {
        0 => Err(OpenFault::None { folder: folder.to_owned() }),
        found if found < SCHEMA => Err(OpenFault::Older { folder: folder.to_owned(), found }),
        _ => Ok(connection),
    }
}

/// The schema found, where the file is thermite's and not newer than this program.
pub(super) fn refuse_foreign(connection: &Connection, folder: &Path, file: &Path) -> Result<u32, OpenFault> {
    let sqlite = |source| fault(file, source);
    let number = |pragma: &str| connection.query_row(pragma, (), |row| row.get::<_, i32>(0)).map_err(sqlite);
    let application = number("PRAGMA application_id")?;
    let found = number("PRAGMA user_version")?.cast_unsigned();
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        return Err(OpenFault::Foreign { file: file.to_owned() });
    }
    if found > SCHEMA {
        return Err(OpenFault::Newer { folder: folder.to_owned(), found });
    }
    Ok(found)
}

fn migrate(connection: &mut Connection, file: &Path) -> rusqlite::Result<()> {
    // One transaction, taken before the version is read: two programs never migrate side by side.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(found as usize) {
        transaction.execute_batch(step.sql)?;
        (step.then)(&transaction, file)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()
}
