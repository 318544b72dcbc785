//! A log of its own: one JSON line a batch, on the disk before the rig goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use thermite_actors::ports::{Batch, FromRecords, Past, Records, RecordsFault, WhichEnded};
use thermite_core::fold::RigHistory;
use thermite_core::log::LogEntry;
use thermite_core::record::VerdictRecord;

/// A file of JSON lines.
pub(crate) struct Journal {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

/// What is durable together is one line: a torn last line was never answered.
#[derive(Default, Serialize, Deserialize)]
struct Line {
    entries: Vec<LogEntry>,
    records: Vec<VerdictRecord>,
}

impl Journal {
    /// Opens or makes the file. A last line without its end is what a crash left of a batch nobody was told of: it goes.
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut whole = 0;
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if line.ends_with(b"\n") {
                whole += line.len() as u64;
            }
            line.clear();
        }
        file.set_len(whole)?;
        Ok(Journal { path: path.to_owned(), file: Arc::new(Mutex::new(file)) })
    }
}

impl Records for Journal {
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let file = Arc::clone(&self.file);
        async move {
            let write = move || -> io::Result<()> {
                let mut line = serde_json::to_vec(&Line { entries: batch.entries, records: batch.records })?;
                line.push(b'\n');
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let before = file.metadata()?.len();
                // All of it or none: half a line would hide every later one.
                file.write_all(&line)
                    .and_then(|()| file.sync_data())
                    .or_else(|fault| file.set_len(before).and(Err(fault)))
            };
            let written = tokio::task::spawn_blocking(write).await;
            written.map_err(io::Error::other).flatten().map_err(|fault| RecordsFault(fault.to_string()))
        }
        .boxed_local()
    }

    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>> {
        let path = self.path.clone();
        async move { elsewhere(move || entries(&path)).await.map(Past::from) }.boxed_local()
    }

    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>> {
        let path = self.path.clone();
        async move {
            // Rarely asked, and of a short journal: it is read again.
            let read = move || {
                let mut history = RigHistory::default();
                let mut ended = Vec::new();
                for entry in entries(&path)? {
                    ended.extend(history.ended_by(std::slice::from_ref(&entry)));
                    history.apply(entry);
                }
                Ok(FromRecords::Kept(which.among(&ended)))
            };
            elsewhere(read).await
        }
        .boxed_local()
    }
}

fn entries(path: &Path) -> io::Result<Vec<LogEntry>> {
    let mut entries = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        entries.extend(serde_json::from_str::<Line>(&line?)?.entries);
    }
    Ok(entries)
}

async fn elsewhere<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, RecordsFault> {
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(io::Error::other).flatten().map_err(|fault| RecordsFault(fault.to_string()))
}
