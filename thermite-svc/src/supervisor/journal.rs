//! A runner's journal on this machine's disk, written by a thread of its own: a slow disk holds up nobody else.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;
use tracing::warn;

use thermite_actors::ports::{Journal, RecordsFault};
use thermite_core::runner::JournalLine;

use super::line_file::LineFile;

/// A journal in a file.
pub struct FileJournal {
    first: Vec<JournalLine>,
    /// Handled in the order of the calls; the thread ends when this is let go of.
    writes: mpsc::Sender<Write>,
}

struct Write {
    lines: Vec<JournalLine>,
    instead: bool,
    done: oneshot::Sender<Result<(), RecordsFault>>,
}

impl FileJournal {
    /// Opens the journal, or makes it.
    ///
    /// # Errors
    /// Where the file cannot be had, or a line that was durable does not hold.
    pub fn open(path: &Path) -> io::Result<FileJournal> {
        let (file, texts, torn) = LineFile::open(path)?;
        if torn > 0 {
            warn!(journal = %path.display(), torn, "a line that was being written was cut off: it never counted");
        }
        let line = |text: &String| {
            serde_json::from_str(text).map_err(|error| {
                let said = format!("{} has a line that cannot be read: {error}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, said)
            })
        };
        let first = texts.iter().map(line).collect::<io::Result<Vec<JournalLine>>>()?;
        let (writes, asked) = mpsc::channel();
        thread::Builder::new().name("journal".to_owned()).spawn(move || write_all(file, &asked))?;
        Ok(FileJournal { first, writes })
    }

    fn write(&self, lines: Vec<JournalLine>, instead: bool) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let (done, answer) = oneshot::channel();
        let sent = self.writes.send(Write { lines, instead, done });
        Box::pin(async move {
            let ended = || RecordsFault("the journal's thread has ended".to_owned());
            sent.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        })
    }
}

fn write_all(mut file: LineFile, asked: &mpsc::Receiver<Write>) {
    while let Ok(Write { lines, instead, done }) = asked.recv() {
        let texts: Result<Vec<String>, _> = lines.iter().map(serde_json::to_string).collect();
        let written = texts.map_err(io::Error::from).and_then(|texts| {
            let texts = texts.iter().map(String::as_str);
            if instead { file.replace(texts) } else { file.append(texts) }
        });
        // Who asked may be gone; what was asked is done all the same.
        let _ = done.send(written.map_err(|error| RecordsFault(format!("the journal cannot be written: {error}"))));
    }
}

impl Journal for FileJournal {
    fn load(&self) -> LocalBoxFuture<'static, Result<Vec<JournalLine>, RecordsFault>> {
        let first = self.first.clone();
        Box::pin(async move { Ok(first) })
    }

    fn append(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.write(lines, false)
    }

    fn replace(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.write(lines, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_was_answered_is_read_again_by_the_next_start() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("slot-1.journal");
        let journal = FileJournal::open(&path).unwrap();
        let (accepted, burnt) = (JournalLine::Accepted { grant: 3, dev_run: None }, JournalLine::Burnt { grant: 9 });

        let (first, second) = (journal.append(vec![accepted.clone()]), journal.append(vec![burnt.clone()]));
        second.await.unwrap();
        first.await.unwrap();
        let read = FileJournal::open(&path).unwrap().load().await.unwrap();
        journal.replace(vec![burnt.clone()]).await.unwrap();

        assert_eq!(read, [accepted, burnt.clone()]);
        assert_eq!(FileJournal::open(&path).unwrap().load().await.unwrap(), [burnt]);
    }

    #[test]
    fn a_line_of_a_newer_release_is_named_and_not_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("slot-1.journal");
        LineFile::open(&path).unwrap().0.append([r#"{"reborn":{"grant":1}}"#]).unwrap();

        let fault = FileJournal::open(&path).err().unwrap();

        assert!(fault.to_string().contains("has a line that cannot be read"), "{fault}");
    }
}
