//! The layout of the database and how it grows: a list of migrations, the count of them in `user_version`.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use thermite_core::limits;

/// The schema that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// "thrm" in the file's header: a database of another program is never migrated.
const APPLICATION: i32 = 0x7468_726d;

/// One step each, never changed once published; plain SQL types only, so that another engine can take them over.
const MIGRATIONS: &[&str] = &["
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
", "
    ALTER TABLE tokens ADD COLUMN from_file INTEGER NOT NULL DEFAULT 1; -- whether it is the data folder's file that has it
    ALTER TABLE tokens ADD COLUMN lane INTEGER;       -- a lane's token: the lane
    ALTER TABLE tokens ADD COLUMN run TEXT;           -- and the run, where it is for one alone
    ALTER TABLE tokens ADD COLUMN note TEXT NOT NULL DEFAULT '';
    ALTER TABLE tokens ADD COLUMN expires_ms INTEGER; -- when it ends: milliseconds since 1970
    ALTER TABLE tokens ADD COLUMN used_ms INTEGER;    -- when it was last used, coarsely
"];

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
    // Made here, so that nobody else may read it even where the folder is opened up later.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)
        .map_err(|source| OpenFault::File { file: file.to_owned(), source })?;
    let sqlite = |source| OpenFault::Sqlite { file: file.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags).map_err(sqlite)?;
    connection.busy_timeout(limits::RECORDS_LOCK_WAIT_MAX.to_std()).map_err(sqlite)?;
    refuse_foreign(&connection, folder, file)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenFault::NoWriteAheadLog { file: file.to_owned(), mode });
    }
    // FULL: a commit that was answered survives power loss, not only kill -9 (rule D7).
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;").map_err(sqlite)?;
    migrate(&mut connection).map_err(sqlite)?;
    Ok(connection)
}

/// Opens for reading beside whoever writes.
pub(super) fn open_for_reading(file: &Path) -> Result<Connection, OpenFault> {
    let folder = file.parent().unwrap_or(file);
    if !file.exists() {
        return Err(OpenFault::None { folder: folder.to_owned() });
    }
    let sqlite = |source| OpenFault::Sqlite { file: file.to_owned(), source };
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
fn refuse_foreign(connection: &Connection, folder: &Path, file: &Path) -> Result<u32, OpenFault> {
    let sqlite = |source| OpenFault::Sqlite { file: file.to_owned(), source };
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

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    // One transaction, taken before the version is read: two programs never migrate side by side.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(found as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()
}
