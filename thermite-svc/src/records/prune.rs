//! Taking old rows away to keep within the byte budget, a few at a time: appends go on between.
//!
//! Verdict records and ended jobs are never taken: they are what the rig is for.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// What may be taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Idempotency keys written before a moment of the wall clock (milliseconds since 1970).
    Keys {
        /// The moment.
        before_ms: i64,
    },
    /// Raw figures of void attempts, the oldest first.
    Audits,
    /// The log's beginning, as far as both kept checkpoints hold it.
    Log,
    /// Ended development runs, the oldest first.
    DevRuns,
    /// Nothing of the database: a note that files were taken, up to this id or number.
    Files {
        /// What they were.
        what: &'static str,
        /// The last of them.
        through: String,
    },
}

/// Takes at most `most` rows; how many it took.
pub(super) fn carry_out(
    connection: &mut Connection,
    prune: &Prune,
    most: u32,
    wall_ms: i64,
) -> rusqlite::Result<usize> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let taken = match prune {
        Prune::Keys { before_ms } => transaction.execute(
            "DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency WHERE wall_ms < ?1 LIMIT ?2)",
            (before_ms, most),
        )?,
        Prune::Audits => {
            let last: Option<i64> = transaction.query_row(
                "SELECT max(id) FROM (SELECT id FROM audits ORDER BY id LIMIT ?1)",
                [most],
                |row| row.get(0),
            )?;
            match last {
                None => 0,
                Some(last) => {
                    note(&transaction, "audits", &last.to_string(), wall_ms)?;
                    transaction.execute("DELETE FROM audits WHERE id <= ?1", [last])?
                }
            }
        }
        Prune::Log => log(&transaction, most, wall_ms)?,
        Prune::DevRuns => dev_runs(&transaction, most, wall_ms)?,
        Prune::Files { what, through } => {
            note(&transaction, what, through, wall_ms)?;
            0
        }
    };
    transaction.commit()?;
    if taken > 0 {
        // Gives the freed pages back to the file system, a bounded number at a time.
        connection.execute_batch("PRAGMA incremental_vacuum(4096)")?;
    }
    Ok(taken)
}

fn log(transaction: &Transaction<'_>, most: u32, wall_ms: i64) -> rusqlite::Result<usize> {
    // The older checkpoint's position: were the newer one damaged, the older one and the log after it must be there.
    let held: Option<i64> = transaction
        .query_row("SELECT position FROM checkpoints ORDER BY position DESC LIMIT 1 OFFSET 1", (), |row| row.get(0))
        .optional()?;
    let (first, last): (Option<i64>, Option<i64>) =
        transaction.query_row("SELECT min(seq), max(seq) FROM log", (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(held), Some(first), Some(last)) = (held, first, last) else { return Ok(0) };
    // INVARIANT: the last row stays, or the next would get its number again.
    let through = held.min(last - 1).min(first + i64::from(most) - 1);
    if through < first {
        return Ok(0);
    }
    note(transaction, "log", &through.to_string(), wall_ms)?;
    transaction.execute("DELETE FROM log WHERE seq <= ?1", [through])
}

fn dev_runs(transaction: &Transaction<'_>, most: u32, wall_ms: i64) -> rusqlite::Result<usize> {
    let last: Option<i64> = transaction.query_row(
        "SELECT max(seq) FROM (SELECT seq FROM ended WHERE kind = 'dev_run' ORDER BY seq LIMIT ?1)",
        [most],
        |row| row.get(0),
    )?;
    let Some(last) = last else { return Ok(0) };
    let through: String =
        transaction
            .query_row("SELECT max(id) FROM ended WHERE kind = 'dev_run' AND seq <= ?1", [last], |row| row.get(0))?;
    note(transaction, "dev_runs", &through, wall_ms)?;
    transaction.execute("DELETE FROM ended WHERE kind = 'dev_run' AND seq <= ?1", [last])
}

/// Remembers what was taken, one row a day for each kind. What is noted only rises: an old thing that was live until
/// now goes after younger ones.
fn note(transaction: &Transaction<'_>, what: &str, through: &str, wall_ms: i64) -> rusqlite::Result<()> {
    const DAY_MS: i64 = 86_400_000;
    let before: Option<(i64, String, i64)> = transaction
        .query_row("SELECT id, through, wall_ms FROM pruned WHERE what = ?1 ORDER BY id DESC LIMIT 1", [what], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let later = before.as_ref().map_or(through, |(_, noted, _)| later(noted, through));
    match before {
        Some((id, _, on)) if on / DAY_MS == wall_ms / DAY_MS => {
            transaction.execute("UPDATE pruned SET through = ?2, wall_ms = ?3 WHERE id = ?1", (id, later, wall_ms))
        }
        _ => transaction
            .execute("INSERT INTO pruned (what, through, wall_ms) VALUES (?1, ?2, ?3)", (what, later, wall_ms)),
    }?;
    Ok(())
}

/// The later of two numbers, or of two ids.
fn later<'a>(one: &'a str, other: &'a str) -> &'a str {
    let is_one = match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one > other,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => one > other,
    };
    if is_one { one } else { other }
}

/// How much the database holds, in bytes: its pages in use.
pub(super) fn size(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| connection.query_row(pragma, (), |row| row.get::<_, i64>(0)).map(i64::cast_unsigned);
    let (pages, free, bytes) =
        (number("PRAGMA page_count")?, number("PRAGMA freelist_count")?, number("PRAGMA page_size")?);
    Ok((pages - free.min(pages)) * bytes)
}
