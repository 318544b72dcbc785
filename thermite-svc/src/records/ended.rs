//! What is over, as rows that stay readable: written in the transaction of the entry that ends it.

use rusqlite::{Connection, OptionalExtension, Statement};
use thermite_actors::ports::{FromRecords, RecordsFault, WhichEnded};
use thermite_core::ended::Ended;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::check_sum;

/// Puts a row in; one that is there stays, since nothing ends twice.
pub(super) const INSERT: &str = "INSERT OR IGNORE INTO ended (id, kind, run, arrival, key, adopted, wall_ms, sum, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// A row but for its time.
pub(super) struct EndedRow {
    id: String,
    kind: &'static str,
    run: String,
    arrival: Option<i64>,
    key: Option<String>,
    adopted: Option<String>,
    body: String,
}

/// The row of something that is over.
pub(super) fn row(ended: &Ended) -> Result<EndedRow, RecordsFault> {
    let (id, kind, arrival, adopted) = match ended {
        Ended::Job { history } => {
            let adopted = matches!(history.end, Some((JobOutcome::Win { adopted: true }, _)));
            let adopted = adopted.then(|| history.spec.pinned.candidate.clone());
            (history.spec.job.to_string(), "job", Some(history.spec.arrival.0.cast_signed()), adopted)
        }
        Ended::DevRun { history } => (history.spec.dev_run.to_string(), "dev_run", None, None),
        Ended::Run { run, .. } => (run.to_string(), "run", None, None),
    };
    let body =
        serde_json::to_string(ended).map_err(|cause| RecordsFault(format!("{kind} {id} has no JSON: {cause}")))?;
    let (run, key) = (ended.run().to_string(), ended.key().map(str::to_owned));
    Ok(EndedRow { id, kind, run, arrival, key, adopted, body })
}

impl EndedRow {
    pub(super) fn insert(&self, insert: &mut Statement<'_>, wall_ms: i64) -> rusqlite::Result<()> {
        let EndedRow { id, kind, run, arrival, key, adopted, body } = self;
        let sum = check_sum(body.as_bytes()).cast_signed();
        insert.execute((id, kind, run, arrival, key, adopted, wall_ms, sum, body))?;
        Ok(())
    }
}

/// Reads what is over.
pub(super) fn read(connection: &Connection, which: &WhichEnded, wall_ms: i64) -> Result<FromRecords, ReadFault> {
    // A key stands for its request for a day after the end of what it made (rule A13).
    let since = wall_ms - i64::try_from(limits::IDEMPOTENCY_KEPT.as_millis()).unwrap_or(i64::MAX);
    let by_key = |kind: &str, key: &str| {
        query(
            connection,
            "SELECT body, sum FROM ended WHERE kind = ?1 AND key = ?2 AND wall_ms > ?3 ORDER BY seq DESC LIMIT 1",
            (kind, key, since),
        )
    };
    let by_id = |id: String| query(connection, "SELECT body, sum FROM ended WHERE id = ?1", [id]);
    let kept = match which {
        WhichEnded::Job(id) => by_id(id.to_string())?,
        WhichEnded::Run(id) => by_id(id.to_string())?,
        WhichEnded::JobKey(key) => by_key("job", key)?,
        WhichEnded::DevRunKey(key) => by_key("dev_run", key)?,
        WhichEnded::RunKey(key) => by_key("run", key)?,
        WhichEnded::JobsOf { run, after, most } => {
            let after = after.map_or(-1, |after| after.0.cast_signed());
            let most = i64::try_from(*most).unwrap_or(i64::MAX);
            query(
                connection,
                "SELECT body, sum FROM ended WHERE kind = 'job' AND run = ?1 AND arrival > ?2 ORDER BY arrival LIMIT ?3",
                (run.to_string(), after, most),
            )?
        }
        WhichEnded::DevRunsOf { run, after, most } => {
            let most = i64::try_from(*most).unwrap_or(i64::MAX);
            query(
                connection,
                "SELECT body, sum FROM ended WHERE kind = 'dev_run' AND run = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
                (run.to_string(), after.map_or(String::new(), |after| after.to_string()), most),
            )?
        }
        WhichEnded::Runs { before, most } => {
            let most = i64::try_from(*most).unwrap_or(i64::MAX);
            query(
                connection,
                "SELECT body, sum FROM ended WHERE kind = 'run' AND id < ?1 ORDER BY id DESC LIMIT ?2",
                // Every id sorts before it.
                (before.map_or("g".to_owned(), |before| before.to_string()), most),
            )?
        }
        WhichEnded::DevRun(id) => {
            let kept = by_id(id.to_string())?;
            if kept.is_empty()
                && let Some(wall_ms) = pruned_at(connection, "dev_runs", &id.to_string())?
            {
                return Ok(FromRecords::Pruned { wall_ms });
            }
            kept
        }
    };
    Ok(FromRecords::Kept(kept))
}

/// When what has this id was pruned, where all up to it were. Ids of later askings sort after those of earlier ones.
pub(super) fn pruned_at(connection: &Connection, what: &str, id: &str) -> Result<Option<u64>, ReadFault> {
    let found = connection
        .prepare_cached("SELECT wall_ms FROM pruned WHERE what = ?1 AND through >= ?2 ORDER BY id LIMIT 1")?
        .query_row((what, id), |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(found.map(i64::cast_unsigned))
}

/// A row could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("a row of what is over is damaged: {0}; put back a copy of the data folder (`thermite restore`)")]
    Damaged(String),
}

fn query(connection: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<Vec<Ended>, ReadFault> {
    let mut query = connection.prepare_cached(sql)?;
    let mut rows = query.query(values)?;
    let mut ended = Vec::new();
    while let Some(row) = rows.next()? {
        let (body, sum): (String, i64) = (row.get(0)?, row.get(1)?);
        if check_sum(body.as_bytes()).cast_signed() != sum {
            return Err(ReadFault::Damaged("its check sum differs".to_owned()));
        }
        ended.push(serde_json::from_str(&body).map_err(|cause| ReadFault::Damaged(cause.to_string()))?);
    }
    Ok(ended)
}
