//! Checkpoints: the fold of the log's beginning, so that a start reads only what came after.

use std::path::Path;

use rusqlite::{Connection, Transaction};
use sha2::{Digest, Sha256};
use thermite_actors::ports::{Checkpoint, Past, RecordsFault};
use tracing::warn;

use super::reader::{self, Part};

/// A checkpoint as it is written.
pub(super) struct Written {
    pub(super) position: u64,
    pub(super) sha256: [u8; 32],
    pub(super) body: String,
}

/// Writes a checkpoint down. Takes time with much open work: not for the policy's thread, nor the writer's.
pub(super) fn written(checkpoint: &Checkpoint) -> Result<Written, RecordsFault> {
    let body = serde_json::to_string(&checkpoint.history)
        .map_err(|cause| RecordsFault(format!("a checkpoint has no JSON: {cause}")))?;
    Ok(Written { position: checkpoint.position, sha256: Sha256::digest(body.as_bytes()).into(), body })
}

/// Puts a checkpoint in and lets all but the last two go: a damaged one leaves the one before.
pub(super) fn insert(transaction: &Transaction<'_>, written: &Written, wall_ms: i64) -> rusqlite::Result<()> {
    let position = written.position.cast_signed();
    transaction.execute(
        "INSERT OR REPLACE INTO checkpoints (position, wall_ms, sha256, body) VALUES (?1, ?2, ?3, ?4)",
        (position, wall_ms, written.sha256.as_slice(), &written.body),
    )?;
    transaction.execute(
        "DELETE FROM checkpoints WHERE position NOT IN (SELECT position FROM checkpoints ORDER BY position DESC LIMIT 2)",
        (),
    )?;
    Ok(())
}

/// The newest checkpoint that holds, and the log after it.
pub(super) fn load(connection: &Connection, file: &Path) -> Result<Past, RecordsFault> {
    let checkpoint = newest(connection, file)?;
    let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position);
    let mut entries = Vec::new();
    let last = reader::each(connection, file, Part::After(after), |recorded| entries.push(recorded.entry))?;
    if last < after {
        return Err(RecordsFault(format!(
            "the log in {} ends at row {last}, and a checkpoint was written after row {after}; put back a copy of the data \
             folder (`thermite restore BACKUP --data DIR`)",
            file.display()
        )));
    }
    Ok(Past { checkpoint, entries })
}

fn newest(connection: &Connection, file: &Path) -> Result<Option<Checkpoint>, RecordsFault> {
    let fault = |cause: rusqlite::Error| RecordsFault(format!("{} cannot be read: {cause}", file.display()));
    let mut query =
        connection.prepare("SELECT position, sha256, body FROM checkpoints ORDER BY position DESC").map_err(fault)?;
    let mut rows = query.query(()).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let position: i64 = row.get(0).map_err(fault)?;
        match read(row) {
            Ok(history) => return Ok(Some(Checkpoint { position: position.cast_unsigned(), history })),
            Err(why) => warn!(position, why, "a checkpoint does not hold; the one before it is read"),
        }
    }
    Ok(None)
}

fn read(row: &rusqlite::Row<'_>) -> Result<thermite_core::fold::RigHistory, String> {
    let sha256: Vec<u8> = row.get(1).map_err(|cause| cause.to_string())?;
    let body: String = row.get(2).map_err(|cause| cause.to_string())?;
    if Sha256::digest(body.as_bytes()).as_slice() != sha256 {
        return Err("its hash differs".to_owned());
    }
    serde_json::from_str(&body).map_err(|cause| cause.to_string())
}
