//! The input log on disk: `inputs/NNNNNN.jsonl` in the data folder, and its replay (rule D10).
//!
//! A thread of its own writes; the policy never waits for it. Nothing is synced: the log explains, the records are the
//! truth. What cannot be written in time is left out, counted, and said by the next segment's first line.

use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::{Clock, InputLog};
use thermite_core::input_log::{Because, Beginning, Line, Replay, ReplayFault, Replayed};
use thermite_core::limits;
use tracing::{info, warn};

/// The folder's name in the data folder.
pub const INPUTS: &str = "inputs";

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number; later ones have higher numbers.
    pub number: u64,
    /// The file.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

/// The segments in a log's folder, oldest first; none where there is no such folder.
///
/// # Errors
/// Where the folder cannot be listed.
pub fn segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jsonl")?.parse().ok());
        if let (Some(number), Ok(about)) = (number, fs::symlink_metadata(&path))
            && about.is_file()
        {
            segments.push(Segment { number, path, bytes: about.len() });
        }
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

/// Removes the oldest segments until all together are at most `most` bytes; the newest always stays. Gives what was
/// freed, in bytes.
///
/// # Errors
/// Where the folder cannot be listed or a segment cannot be removed.
pub fn keep_within(folder: &Path, most: u64) -> io::Result<u64> {
    let segments = segments(folder)?;
    let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut freed = 0;
    for segment in segments.iter().take(segments.len().saturating_sub(1)) {
        if bytes <= most {
            break;
        }
        match fs::remove_file(&segment.path) {
            // The folder's byte budget removes segments as well.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        bytes -= segment.bytes;
        freed += segment.bytes;
    }
    Ok(freed)
}

/// How large a log grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size at which a segment is closed, in bytes.
    pub segment: u64,
    /// All segments together, in bytes.
    pub all: u64,
    /// Entries on their way to the disk.
    pub waiting: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            segment: limits::INPUT_SEGMENT_BYTES,
            all: limits::INPUT_LOG_BYTES_MAX,
            waiting: limits::INPUT_LOG_WAITING_MAX,
        }
    }
}

enum Letter {
    Line(Line),
    Segment(Because),
}

/// The log of a rig's life, written until it is closed or dropped.
pub struct FileInputLog {
    letters: RefCell<Option<SyncSender<Letter>>>,
    epoch: Cell<u64>,
    missed: Cell<u64>,
    /// Set by the writer: what follows belongs into a new segment.
    wants_segment: Arc<AtomicBool>,
    writer: RefCell<Option<JoinHandle<()>>>,
}

impl FileInputLog {
    /// A log in that folder's `inputs`; its first segment begins with the first line.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn open(data: &Path, sizes: Sizes) -> io::Result<FileInputLog> {
        let wants_segment = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(data.join(INPUTS), sizes, wants_segment.clone());
        FileInputLog::with(writer, wants_segment, sizes.waiting)
    }

    fn with(writer: Writer, wants_segment: Arc<AtomicBool>, waiting: usize) -> io::Result<FileInputLog> {
        let (letters, received) = sync_channel(waiting);
        let thread = std::thread::Builder::new().name("input-log".to_owned()).spawn(move || writer.run(&received))?;
        // The channel is empty and the thread is there: the first segment is asked for at once.
        let _empty = letters.try_send(Letter::Segment(Because::Started));
        Ok(FileInputLog {
            letters: RefCell::new(Some(letters)),
            epoch: Cell::new(1),
            missed: Cell::new(0),
            wants_segment,
            writer: RefCell::new(Some(thread)),
        })
    }

    /// Writes what waits, and closes the log; nothing is taken any more.
    pub fn close(&self) {
        drop(self.letters.take());
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            warn!("the input log's thread ended by a panic");
        }
    }

    fn send(&self, letter: Letter) -> bool {
        self.letters.borrow().as_ref().is_some_and(|letters| letters.try_send(letter).is_ok())
    }
}

impl InputLog for FileInputLog {
    fn epoch(&self) -> Option<u64> {
        let missed = self.missed.get();
        if missed > 0 {
            if !self.send(Letter::Segment(Because::Missed { entries: missed })) {
                self.missed.set(missed + 1);
                return None;
            }
            self.missed.set(0);
            self.epoch.set(self.epoch.get() + 1);
        } else if self.wants_segment.load(Ordering::Relaxed) && self.send(Letter::Segment(Because::Full)) {
            self.wants_segment.store(false, Ordering::Relaxed);
            self.epoch.set(self.epoch.get() + 1);
        }
        Some(self.epoch.get())
    }

    fn write(&self, line: Line) {
        // Once one is missing, what follows it would not replay: nothing more goes into this segment.
        if self.missed.get() > 0 || !self.send(Letter::Line(line)) {
            self.missed.set(self.missed.get() + 1);
        }
    }
}

impl Drop for FileInputLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread that writes.
struct Writer {
    folder: PathBuf,
    sizes: Sizes,
    wants_segment: Arc<AtomicBool>,
    file: Option<(BufWriter<File>, u64)>,
    /// Entries that could not be written since the last segment began.
    lost: u64,
    retry: Option<Instant>,
}

impl Writer {
    fn new(folder: PathBuf, sizes: Sizes, wants_segment: Arc<AtomicBool>) -> Writer {
        Writer { folder, sizes, wants_segment, file: None, lost: 0, retry: None }
    }

    fn run(mut self, letters: &Receiver<Letter>) {
        let mut gathered = true;
        loop {
            let letter = match letters.try_recv() {
                Ok(letter) => letter,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if !gathered => {
                    // What a reader may want is in the file before this thread rests. It does not wait for the next
                    // letter yet: waking it is what costs the policy most.
                    self.flush();
                    std::thread::sleep(limits::INPUT_LOG_GATHERED.to_std());
                    gathered = true;
                    continue;
                }
                Err(TryRecvError::Empty) => {
                    let Ok(letter) = letters.recv() else { break };
                    letter
                }
            };
            gathered = false;
            match letter {
                Letter::Segment(because) => self.begin(because),
                Letter::Line(line) => self.write(&line),
            }
        }
        self.flush();
    }

    fn begin(&mut self, because: Because) {
        self.flush();
        let because = match (std::mem::take(&mut self.lost), because) {
            (0, because) => because,
            (lost, Because::Missed { entries }) => Because::Missed { entries: entries + lost },
            (lost, Because::Started | Because::Full) => Because::Missed { entries: lost },
        };
        self.file = None;
        match self.open() {
            Ok(file) => {
                self.file = Some((BufWriter::new(file), 0));
                self.retry = None;
                self.write(&Line::Begins(Beginning::now(BootClock.wall_ms(), because)));
            }
            Err(error) => self.fail(&error),
        }
    }

    fn open(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        keep_within(&self.folder, self.sizes.all.saturating_sub(self.sizes.segment))?;
        let number = segments(&self.folder)?.last().map_or(1, |last| last.number + 1);
        let path = self.folder.join(format!("{number:06}.jsonl"));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    fn write(&mut self, line: &Line) {
        let Some((file, bytes)) = &mut self.file else {
            self.lost += 1;
            if self.retry.is_some_and(|retry| retry <= Instant::now()) {
                self.retry = None;
                self.wants_segment.store(true, Ordering::Relaxed);
            }
            return;
        };
        let mut text = line.to_text();
        text.push('\n');
        if let Err(error) = file.write_all(text.as_bytes()) {
            self.lost += 1;
            return self.fail(&error);
        }
        // States do not count: a long queue's alone is larger than a segment, and would fill one with each step.
        if let Line::Took { .. } = line {
            *bytes += text.len() as u64;
        }
        if *bytes >= self.sizes.segment {
            self.wants_segment.store(true, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) {
        if let Some((file, _)) = &mut self.file
            && let Err(error) = file.flush()
        {
            self.lost += 1;
            self.fail(&error);
        }
    }

    /// A full disk must not fill the program's log as well: it is said once for each segment that fails.
    fn fail(&mut self, error: &io::Error) {
        warn!(folder = %self.folder.display(), %error, "the input log cannot be written; entries are left out until it can");
        if let Some((file, _)) = self.file.take() {
            // Its buffer would be tried again when it is dropped.
            let (_file, _unwritten) = file.into_parts();
        }
        self.retry = Some(Instant::now() + limits::RECORDS_RETRY_EVERY.to_std());
    }
}

/// A log that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// It is not there, or is something else.
    #[error("input log {}: {why}", path.display())]
    NoLog {
        /// What was named.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It does not replay.
    #[error("{}: {fault}", path.display())]
    Replay {
        /// The segment.
        path: PathBuf,
        /// How.
        fault: ReplayFault,
    },
}

/// Replays a segment, or all segments of a folder: a data folder, or the log's own.
///
/// # Errors
/// Where there is no log, or where it does not lead to the same decisions.
pub fn replay(path: &Path) -> Result<Replayed, LogFault> {
    let no_log = |why: String| LogFault::NoLog { path: path.to_owned(), why };
    let about = fs::metadata(path).map_err(|error| no_log(error.to_string()))?;
    let files = if about.is_file() {
        vec![path.to_owned()]
    } else if about.is_dir() {
        let own = path.join(INPUTS);
        let folder = if own.is_dir() { own } else { path.to_owned() };
        let found = segments(&folder).map_err(|error| no_log(error.to_string()))?;
        found.into_iter().map(|segment| segment.path).collect()
    } else {
        return Err(no_log("it is neither a file nor a folder; give a segment or a rig's data folder".to_owned()));
    };
    if files.is_empty() {
        return Err(no_log("it has no segments; give a segment or a rig's data folder".to_owned()));
    }
    let mut replay = Replay::new();
    for file in files {
        replay_file(&mut replay, &file)?;
    }
    Ok(replay.replayed())
}

fn replay_file(replay: &mut Replay, path: &Path) -> Result<(), LogFault> {
    let no_log = |why: String| LogFault::NoLog { path: path.to_owned(), why };
    let file = File::open(path).map_err(|error| no_log(error.to_string()))?;
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than a line may have, so that a longer one is seen to be longer.
        let most = limits::INPUT_LINE_BYTES_MAX as u64 + 1;
        let read = (&mut lines).take(most).read_until(b'\n', &mut line).map_err(|error| no_log(error.to_string()))?;
        if read == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read as u64 == most {
            return Err(no_log(format!("a line is longer than {} bytes", limits::INPUT_LINE_BYTES_MAX)));
        } else {
            // A rig that was killed, or that is still writing, leaves a part of its last line.
            info!(segment = %path.display(), bytes = read, "its last line is cut off");
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        replay.take(&text).map_err(|fault| LogFault::Replay { path: path.to_owned(), fault })?;
    }
}
