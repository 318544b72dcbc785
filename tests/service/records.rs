//! The records: nothing that was answered is lost, nothing is half there, and what cannot be read is named.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thermite_actors::ports::{Batch, Records, RecordsFault};
use thermite_core::ids::{JobId, RunId};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_svc::records::{FILE, KeyUse, OpenFault, RecordsReader, SCHEMA, SqliteRecords};
use uuid::Uuid;

use crate::support::{Again, Luck, block_on};

#[test]
fn a_batch_is_read_back_as_it_was_appended_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let entries = vec![
        LogEntry::RigStarted,
        LogEntry::RunChanged { run: RunId(Uuid::from_u128(7)), state: RunState::Paused },
        LogEntry::JobEnded { job: job(1), outcome: JobOutcome::Win { adopted: true }, record: Some("ab".into()) },
    ];

    let records = open(folder.path());
    block_on(records.append(Batch { entries: entries.clone(), ..Batch::default() })).unwrap();
    block_on(records.close()).unwrap();
    drop(records);

    assert_eq!(log_of(&open(folder.path())), entries);
}

#[test]
fn what_queues_up_behind_a_commit_goes_into_one_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    // Keeps the writer in its first transaction until all are queued.
    let other = rusqlite_lock(folder.path());
    let answers: Vec<_> = (0..1_000).map(|n| records.append(one(n))).collect();
    other.release();

    for answer in answers {
        block_on(answer).unwrap();
    }

    assert!(records.commits() <= 2, "1000 appends took {} commits", records.commits());
    assert_eq!(log_of(&records), (0..1_000).map(entry).collect::<Vec<_>>());
}

#[test]
fn every_acknowledged_entry_survives_kill_nine_and_no_batch_is_half_there() {
    const CHILD: &str = "THERMITE_TEST_APPENDS_TO";
    if let Some(folder) = std::env::var_os(CHILD) {
        append_threes_for_ever(Path::new(&folder));
    }
    let mut luck = Luck::seeded(0x7e_4717e);
    for _ in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let stop_after = 1 + luck.below(200);
        let mut child = Again::start(
            "records::every_acknowledged_entry_survives_kill_nine_and_no_batch_is_half_there",
            CHILD,
            folder.path().as_os_str(),
        );
        let mut acknowledged = 0;
        while acknowledged < stop_after {
            acknowledged = child.next("acknowledged ").expect("the child appends until it is killed").parse().unwrap();
        }
        child.kill();

        let found = log_of(&open(folder.path()));

        assert!(found.len() as u64 >= 3 * acknowledged, "{acknowledged} batches acknowledged, {} found", found.len());
        assert_eq!(found.len() % 3, 0, "a batch is half there");
        assert_eq!(found, (0..found.len() as u64).map(entry).collect::<Vec<_>>());
    }
}

#[test]
fn a_write_ahead_log_torn_anywhere_loses_whole_batches_from_its_end_only() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    for n in 0..20 {
        block_on(records.append(three(n))).unwrap();
    }
    let database = fs::read(folder.path().join(FILE)).unwrap();
    let log = fs::read(folder.path().join(format!("{FILE}-wal"))).unwrap();
    let mut luck = Luck::seeded(0x0704_2026);
    let mut lengths = Vec::new();
    for _ in 0..40 {
        let torn = tempfile::tempdir().unwrap();
        let kept = luck.below(log.len() as u64 + 1) as usize;
        fs::write(torn.path().join(FILE), &database).unwrap();
        fs::write(torn.path().join(format!("{FILE}-wal")), &log[..kept]).unwrap();

        // A log torn before the layout was committed is an empty folder, which is made anew.
        let found = log_of(&open(torn.path()));

        assert_eq!(found.len() % 3, 0, "a batch is half there with {kept} bytes kept");
        assert_eq!(found, (0..found.len() as u64).map(entry).collect::<Vec<_>>());
        lengths.push(found.len());
    }
    assert!(lengths.iter().any(|found| *found > 0 && *found < 60), "no cut fell inside: {lengths:?}");
}

#[test]
fn a_full_disk_answers_a_fault_leaves_nothing_half_and_goes_on_when_there_is_room() {
    const CHILD: &str = "THERMITE_TEST_FILLS";
    if let Some(folder) = std::env::var_os(CHILD) {
        return fill_and_go_on(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();

    // A process of its own, since the limit on file sizes that plays the full disk is a process's.
    let mut child = Again::start_ignoring_file_size_signal(
        "records::a_full_disk_answers_a_fault_leaves_nothing_half_and_goes_on_when_there_is_room",
        CHILD,
        folder.path().as_os_str(),
    );

    assert_eq!(child.exit_code(), Some(0));
    assert_eq!(log_of(&open(folder.path())), vec![entry(0), entry(2)]);
}

#[test]
fn a_newer_schema_is_refused_by_name_for_writing_and_for_reading() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    sql(folder.path(), "PRAGMA user_version = 7");

    let writing = SqliteRecords::open(folder.path()).err().unwrap();
    let reading = RecordsReader::open(folder.path()).err().unwrap();

    let said = format!(
        "data folder {} was written by a newer thermite (schema 7; this one reads up to {SCHEMA}); \
         use that thermite, or another data folder",
        folder.path().display()
    );
    assert_eq!(writing.to_string(), said);
    assert_eq!(reading.to_string(), said);
}

#[test]
fn another_programs_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    sql(folder.path(), "CREATE TABLE mine (a)");
    let before = fs::read(folder.path().join(FILE)).unwrap();

    let fault = SqliteRecords::open(folder.path()).err().unwrap();

    assert!(matches!(fault, OpenFault::Foreign { .. }), "{fault}");
    assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), before);
}

#[test]
fn a_damaged_row_is_named_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    block_on(records.append(three(0))).unwrap();
    sql(folder.path(), "UPDATE log SET body = '{\"entry\":\"sent_b' WHERE seq = 2");

    let fault = block_on(records.load()).unwrap_err();

    assert!(fault.0.starts_with("row 2 of the log in "), "{fault}");
}

#[test]
fn a_missing_row_is_damage_and_not_a_shorter_history() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    block_on(records.append(three(0))).unwrap();
    sql(folder.path(), "DELETE FROM log WHERE seq = 2");

    let fault = block_on(records.load()).unwrap_err();

    assert!(fault.0.contains("row 2 of the log in ") && fault.0.contains("missing"), "{fault}");
}

#[test]
fn a_reader_follows_a_writer_without_disturbing_it() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    block_on(records.append(three(0))).unwrap();

    let reader = RecordsReader::open(folder.path()).unwrap();
    let before = reader.log().unwrap().len();
    block_on(records.append(three(1))).unwrap();
    let after = reader.log().unwrap();

    assert_eq!((before, after.len()), (3, 6));
    assert_eq!(after[5].seq, 6);
    assert_eq!(reader.about(&job(4).0).unwrap().len(), 1);
}

#[test]
fn reading_a_folder_without_records_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();

    let fault = RecordsReader::open(folder.path()).err().unwrap();

    assert!(fault.to_string().ends_with("start `thermite serve` or `thermite try` on it first"), "{fault}");
    assert!(!folder.path().join(FILE).exists());
}

#[test]
fn appends_after_closing_are_answered_with_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    block_on(records.close()).unwrap();

    let answer = block_on(records.append(one(0)));

    assert_eq!(answer, Err(RecordsFault("the records are closed".into())));
}

#[test]
fn a_key_stands_for_one_request_through_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    let keys = records.keys();

    assert_eq!(block_on(keys.take("k", [1; 32])), Ok(KeyUse::ThisRequest));
    assert_eq!(block_on(keys.take("k", [1; 32])), Ok(KeyUse::ThisRequest));
    assert_eq!(block_on(keys.take("k", [2; 32])), Ok(KeyUse::AnotherRequest));
    // Durable no later than what was appended after it.
    block_on(records.append(one(0))).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for name in [FILE.to_owned(), format!("{FILE}-wal")] {
        fs::copy(folder.path().join(&name), copy.path().join(&name)).unwrap();
    }

    let keys = open(copy.path());
    assert_eq!(block_on(keys.keys().take("k", [2; 32])), Ok(KeyUse::AnotherRequest));
    assert_eq!(block_on(keys.keys().take("k", [1; 32])), Ok(KeyUse::ThisRequest));
}

#[test]
fn the_database_is_the_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    block_on(records.append(one(0))).unwrap();

    for name in [FILE.to_owned(), format!("{FILE}-wal")] {
        let mode = fs::metadata(folder.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

fn open(folder: &Path) -> SqliteRecords {
    SqliteRecords::open(folder).unwrap()
}

/// The whole log.
fn log_of(records: &SqliteRecords) -> Vec<LogEntry> {
    block_on(records.load()).unwrap().entries
}

fn job(n: u64) -> JobId {
    JobId(Uuid::from_u128(u128::from(n)))
}

/// The `n`-th entry of a log whose entries are told apart.
fn entry(n: u64) -> LogEntry {
    LogEntry::SentBack { job: job(n) }
}

fn one(n: u64) -> Batch {
    Batch { entries: vec![entry(n)], ..Batch::default() }
}

/// The `n`-th batch of three entries.
fn three(n: u64) -> Batch {
    Batch { entries: (3 * n..3 * n + 3).map(entry).collect(), ..Batch::default() }
}

fn append_threes_for_ever(folder: &Path) -> ! {
    let records = open(folder);
    for n in 0.. {
        block_on(records.append(three(n))).unwrap();
        println!("acknowledged {}", n + 1);
        std::io::stdout().flush().unwrap();
    }
    unreachable!("killed long before")
}

fn fill_and_go_on(folder: &Path) {
    let records = open(folder);
    block_on(records.append(one(0))).unwrap();
    let room = getrlimit(Resource::Fsize);
    let log = fs::metadata(folder.join(format!("{FILE}-wal"))).unwrap().len();
    setrlimit(Resource::Fsize, Rlimit { current: Some(log), ..room }).unwrap();

    let too_much = (0..5_000).map(|n| LogEntry::SentBack { job: job(n) }).collect();
    let full = block_on(records.append(Batch { entries: too_much, ..Batch::default() }));
    assert!(full.is_err_and(|fault| fault.0.contains("goes on")), "the full disk was not noticed");
    assert_eq!(log_of(&records), vec![entry(0)], "something of the failed batch stayed");

    // An empty append is how the rig asks whether there is room again.
    block_on(records.append(Batch::default())).unwrap_err();

    setrlimit(Resource::Fsize, room).unwrap();
    block_on(records.append(Batch::default())).unwrap();
    block_on(records.append(one(2))).unwrap();
}

/// Another program's lock on the database, held on a thread of its own.
struct OtherLock {
    release: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

fn rusqlite_lock(folder: &Path) -> OtherLock {
    let file = folder.join(FILE);
    let (release, released) = std::sync::mpsc::channel();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        locked.send(()).unwrap();
        released.recv().unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
    });
    is_locked.recv().unwrap();
    OtherLock { release, thread }
}

impl OtherLock {
    fn release(self) {
        self.release.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn sql(folder: &Path, statement: &str) {
    rusqlite::Connection::open(folder.join(FILE)).unwrap().execute_batch(statement).unwrap();
}
