//! The tokens' table, on a connection of its own: a token is made, ended or used a few times a day, and must not wait in
//! the log's queue.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Row, TransactionBehavior};
use thermite_actors::ports::RecordsFault;

use super::schema::{self, OpenFault};

/// One token as it is kept. The token itself is nowhere in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRecord {
    /// Its public name.
    pub(crate) id: String,
    /// `owner` or `lane`.
    pub(crate) kind: String,
    /// Of the token.
    pub(crate) sha256: Vec<u8>,
    /// When it was made: milliseconds since 1970, as all times here.
    pub(crate) made_ms: u64,
    /// Whether the data folder's file has it.
    pub(crate) from_file: bool,
    /// A lane's token: the lane.
    pub(crate) lane: Option<u8>,
    /// And the run, where it is for one alone.
    pub(crate) run: Option<String>,
    /// What its maker wrote beside it.
    pub(crate) note: String,
    /// When it ends.
    pub(crate) expires_ms: Option<u64>,
    /// When it was last used, coarsely.
    pub(crate) used_ms: Option<u64>,
}

/// The table.
pub(crate) struct TokenTable {
    connection: Connection,
    file: PathBuf,
}

const COLUMNS: &str = "id, kind, sha256, wall_ms, from_file, lane, run, note, expires_ms, used_ms";

impl TokenTable {
    /// Opens it; the records in `folder` are there already.
    pub(crate) fn open(folder: &Path) -> Result<TokenTable, OpenFault> {
        let file = folder.join(super::FILE);
        Ok(TokenTable { connection: schema::open_beside(&file)?, file })
    }

    /// Makes `record` the only one that the data folder's file has, and takes away those that ended before `now_ms`.
    pub(crate) fn keep_files(&mut self, record: &TokenRecord, now_ms: u64) -> Result<(), RecordsFault> {
        let kept = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|transaction| {
            transaction.execute("DELETE FROM tokens WHERE from_file = 1 AND sha256 <> ?1", [&record.sha256])?;
            transaction.execute("DELETE FROM tokens WHERE expires_ms <= ?1", [now_ms.cast_signed()])?;
            insert(&transaction, record, "INSERT OR IGNORE")?;
            transaction.commit()
        });
        kept.map_err(|cause| self.fault(&cause))
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Result<Vec<TokenRecord>, RecordsFault> {
        let mut query = self
            .connection
            .prepare(&format!("SELECT {COLUMNS} FROM tokens ORDER BY id"))
            .map_err(|cause| self.fault(&cause))?;
        let rows = query.query_map((), record).map_err(|cause| self.fault(&cause))?;
        rows.collect::<Result<_, _>>().map_err(|cause| self.fault(&cause))
    }

    /// Adds one.
    pub(crate) fn add(&self, record: &TokenRecord) -> Result<(), RecordsFault> {
        insert(&self.connection, record, "INSERT").map_err(|cause| self.fault(&cause))
    }

    /// Adds one in another's place, which ends at `expires_ms`: both or neither.
    pub(crate) fn replace(&mut self, old: &str, expires_ms: u64, record: &TokenRecord) -> Result<(), RecordsFault> {
        let replaced =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|transaction| {
                transaction
                    .execute("UPDATE tokens SET expires_ms = ?2 WHERE id = ?1", (old, expires_ms.cast_signed()))?;
                insert(&transaction, record, "INSERT")?;
                transaction.commit()
            });
        replaced.map_err(|cause| self.fault(&cause))
    }

    /// Takes one away.
    pub(crate) fn remove(&self, id: &str) -> Result<(), RecordsFault> {
        self.connection.execute("DELETE FROM tokens WHERE id = ?1", [id]).map(drop).map_err(|cause| self.fault(&cause))
    }

    /// Says when one was used.
    pub(crate) fn used(&self, id: &str, used_ms: u64) -> Result<(), RecordsFault> {
        let update = "UPDATE tokens SET used_ms = ?2 WHERE id = ?1";
        self.connection.execute(update, (id, used_ms.cast_signed())).map(drop).map_err(|cause| self.fault(&cause))
    }

    fn fault(&self, cause: &rusqlite::Error) -> RecordsFault {
        RecordsFault(format!("the tokens in {}: {cause}", self.file.display()))
    }
}

fn insert(connection: &Connection, record: &TokenRecord, verb: &str) -> rusqlite::Result<()> {
    let values = "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10";
    connection
        .execute(
            &format!("{verb} INTO tokens ({COLUMNS}) VALUES ({values})"),
            (
                &record.id,
                &record.kind,
                &record.sha256,
                record.made_ms.cast_signed(),
                record.from_file,
                record.lane,
                &record.run,
                &record.note,
                record.expires_ms.map(u64::cast_signed),
                record.used_ms.map(u64::cast_signed),
            ),
        )
        .map(drop)
}

fn record(row: &Row<'_>) -> rusqlite::Result<TokenRecord> {
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|ms| ms.map(i64::cast_unsigned));
    Ok(TokenRecord {
        id: row.get(0)?,
        kind: row.get(1)?,
        sha256: row.get(2)?,
        made_ms: row.get::<_, i64>(3)?.cast_unsigned(),
        from_file: row.get(4)?,
        lane: row.get(5)?,
        run: row.get(6)?,
        note: row.get(7)?,
        expires_ms: time(8)?,
        used_ms: time(9)?,
    })
}
