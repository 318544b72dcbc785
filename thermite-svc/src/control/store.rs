//! What control keeps, in one SQLite file of its data folder: rigs with their keys on the bus, tokens, runners, what was
//! taken back, and every step of setting up. Each change is one transaction, on the disk before it is answered.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};
use thermite_actors::ports::RecordsFault;
use thermite_core::limits;

/// The database's name.
pub const FILE: &str = "control.db";
/// The layout that this program writes, and the newest that it reads.
pub const LAYOUT: u32 = MIGRATIONS.len() as u32;
/// "thrc" in the file's header: a database of another program, a rig's too, is never taken for this.
const APPLICATION: i32 = 0x7468_7263;

/// One step each, never changed once published.
const MIGRATIONS: &[&str] = &[LAYOUT_1, LAYOUT_2];

const LAYOUT_1: &str = "
    CREATE TABLE rigs (
        id         INTEGER PRIMARY KEY,
        name       TEXT NOT NULL,
        account    TEXT NOT NULL,     -- seed of its account's key: secret
        signing    TEXT NOT NULL,     -- seed of the key that signs the account's users: secret
        signed_s   INTEGER NOT NULL,  -- second of the newest account that was sent: they only rise
        revision   INTEGER NOT NULL,  -- of its settings
        settings   TEXT NOT NULL,     -- as JSON
        taken      INTEGER NOT NULL,  -- the revision that the rig said last that it has
        made_ms    INTEGER NOT NULL,  -- milliseconds since 1970, as all that ends in _ms
        removed_ms INTEGER            -- when it was removed; its account goes on to be refused until all rights are over
    );
    CREATE UNIQUE INDEX rigs_name ON rigs (name) WHERE removed_ms IS NULL;
    CREATE TABLE tokens (
        id         TEXT PRIMARY KEY,  -- public: names the token in logs
        kind       TEXT NOT NULL,     -- owner, rig or runner
        sha256     BLOB NOT NULL UNIQUE,
        rig        TEXT,
        runner     TEXT,
        note       TEXT NOT NULL,
        from_file  INTEGER NOT NULL,
        made_ms    INTEGER NOT NULL,
        expires_ms INTEGER,
        used_ms    INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE runners (            -- processes that registered, the core's under an empty name
        rig        INTEGER NOT NULL,
        name       TEXT NOT NULL,
        key        TEXT,              -- its public key; none where it is barred alone
        boot       TEXT,              -- its newest start
        given_s    INTEGER NOT NULL,  -- the second its newest rights count from
        ends_s     INTEGER NOT NULL,  -- the second they end
        heard_ms   INTEGER,           -- when it asked for rights last
        barred_ms  INTEGER,           -- when it was removed: barred until it is listed again
        PRIMARY KEY (rig, name)
    ) WITHOUT ROWID;
    CREATE TABLE starts (             -- starts that a newer one has replaced
        rig        INTEGER NOT NULL,
        name       TEXT NOT NULL,
        boot       TEXT NOT NULL,
        wall_ms    INTEGER NOT NULL,
        PRIMARY KEY (rig, name, boot)
    ) WITHOUT ROWID;
    CREATE TABLE barred_keys (        -- keys of removed runners, until their name is listed again
        rig        INTEGER NOT NULL,
        key        TEXT NOT NULL,
        name       TEXT NOT NULL,
        PRIMARY KEY (rig, key)
    ) WITHOUT ROWID;
    CREATE TABLE revocations (        -- what each account no longer honours; * is every key
        rig        INTEGER NOT NULL,
        key        TEXT NOT NULL,
        at_s       INTEGER NOT NULL,
        PRIMARY KEY (rig, key)
    ) WITHOUT ROWID;
    CREATE TABLE history (
        seq        INTEGER PRIMARY KEY AUTOINCREMENT,
        wall_ms    INTEGER NOT NULL,
        rig        TEXT NOT NULL,
        by         TEXT NOT NULL,     -- the public name of the token that asked
        body       TEXT NOT NULL      -- the step as JSON
    );
    CREATE INDEX history_rig ON history (rig, seq);
";

/// The keys of removed cores are barred, too, under an empty name.
const LAYOUT_2: &str = "
    ALTER TABLE runners ADD COLUMN since_ms INTEGER;  -- when its key was registered; none before this layout
    ALTER TABLE rigs ADD COLUMN from_rig INTEGER NOT NULL DEFAULT 0;  -- whether its settings were set at the rig itself
";

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// A newer program wrote it.
    #[error(
        "{} was written by a newer thermite (layout {found}; this one reads up to {LAYOUT}); use that thermite",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The layout found.
        found: u32,
    },
    /// The file is another program's.
    #[error("{} is no store of thermite control; name another data folder", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file is damaged.
    #[error("{} is damaged: {why}; put a copy of the data folder in its place", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        why: String,
    },
    /// The disk said no.
    #[error("{} cannot be opened: {why}", file.display())]
    Disk {
        /// The file.
        file: PathBuf,
        /// The cause.
        why: String,
    },
}

/// The store, open.
pub struct Store {
    connection: Connection,
    file: PathBuf,
}

impl Store {
    /// Opens it in `folder`, making or bringing it up where needed.
    ///
    /// # Errors
    /// Names what hinders and the way out.
    pub fn open(folder: &Path) -> Result<Store, StoreFault> {
        let file = folder.join(FILE);
        let disk = |why: String| StoreFault::Disk { file: file.clone(), why };
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&file)
            .map_err(|error| disk(error.to_string()))?;
        let fault = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => StoreFault::Foreign { file: file.clone() },
            Some(ErrorCode::DatabaseCorrupt) => StoreFault::Damaged { file: file.clone(), why: error.to_string() },
            _ => StoreFault::Disk { file: file.clone(), why: error.to_string() },
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&file, flags).map_err(fault)?;
        connection.busy_timeout(limits::RECORDS_LOCK_WAIT_MAX.to_std()).map_err(fault)?;
        let number = |pragma: &str| connection.query_row(pragma, (), |row| row.get::<_, i32>(0)).map_err(fault);
        let (application, found) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?.cast_unsigned());
        if application != APPLICATION && (application != 0 || number("SELECT count(*) FROM sqlite_schema")? > 0) {
            return Err(StoreFault::Foreign { file });
        }
        if found > LAYOUT {
            return Err(StoreFault::Newer { file, found });
        }
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(fault)?;
        if mode != "wal" {
            let why = format!("journal mode {mode}; put the data folder on a local file system");
            return Err(StoreFault::Disk { file, why });
        }
        // FULL: what was answered survives power loss, not only kill -9.
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON").map_err(fault)?;
        let said: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(fault)?;
        if said != "ok" {
            return Err(StoreFault::Damaged { file, why: said });
        }
        migrate(&mut connection).map_err(fault)?;
        Ok(Store { connection, file })
    }

    /// One change, whole or not at all: what `how` refuses is as if it had never been asked.
    pub(super) fn change<T, E: From<RecordsFault>>(
        &mut self,
        how: impl FnOnce(&Transaction<'_>) -> Result<T, Cut<E>>,
    ) -> Result<T, E> {
        let file = self.file.clone();
        let changed = || -> Result<T, Cut<E>> {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = how(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        changed().map_err(|cut| match cut {
            Cut::No(no) => no,
            Cut::Sqlite(cause) => RecordsFault(format!("{}: {cause}", file.display())).into(),
        })
    }

    /// Reads.
    pub(super) fn read<T>(&self, how: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RecordsFault> {
        how(&self.connection).map_err(|cause| RecordsFault(format!("{}: {cause}", self.file.display())))
    }
}

/// Why a change is not made.
pub(super) enum Cut<E> {
    /// The asker is told no.
    No(E),
    /// The disk says no.
    Sqlite(rusqlite::Error),
}

impl<E> From<rusqlite::Error> for Cut<E> {
    fn from(cause: rusqlite::Error) -> Cut<E> {
        Cut::Sqlite(cause)
    }
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    // One transaction, taken before the version is read: two programs never migrate side by side.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(found as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", LAYOUT)?;
    transaction.commit()
}

/// The one row, where there is one.
pub(super) fn one<T>(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
    how: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(query)?.query_row(values, how).optional()
}

/// All rows.
pub(super) fn all<T>(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
    how: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(query)?.query_map(values, how)?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_once_for_its_owner_alone_and_another_programs_is_left_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(folder.path()).unwrap());
        drop(Store::open(folder.path()).unwrap());
        let file = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Store::open(folder.path()), Err(StoreFault::Newer { found: 99, .. })));
        Connection::open(&file).unwrap().pragma_update(None, "application_id", 7).unwrap();
        assert!(matches!(Store::open(folder.path()), Err(StoreFault::Foreign { .. })));
        std::fs::write(&file, "something else that is long enough to be no header of a database").unwrap();
        assert!(matches!(Store::open(folder.path()), Err(StoreFault::Foreign { .. })));
    }
}
