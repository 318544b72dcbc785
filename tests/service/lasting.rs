//! Records that last: a short start over a long log, old rows pruned, older layouts brought up, damage refused by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use thermite_actors::ports::{Batch, Checkpoint, FromRecords, Records, WhichEnded};
use thermite_core::contract::Contract;
use thermite_core::dev_run::{DevRunEnd, DevRunSpec, Exit};
use thermite_core::ended::Ended;
use thermite_core::fold::RigHistory;
use thermite_core::ids::{Arrival, DevRunId, HoldId, LaneId, MemberId, RunId};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::time::Span;
use thermite_svc::records::{FILE, MARK, OUTPUTS, OpenFault, Prune, RecordsReader, SCHEMA, SqliteRecords, copy_of};
use uuid::Uuid;

use crate::support::{Again, Luck, block_on};

/// What an append of these entries is once the rig has the log before them.
fn batch_after(history: &mut RigHistory, entries: Vec<LogEntry>) -> Batch {
    let ended = history.ended_by(&entries);
    entries.iter().for_each(|entry| history.apply(entry.clone()));
    Batch { entries, ended, ..Batch::default() }
}

fn dev_run(n: u64) -> DevRunId {
    DevRunId(Uuid::from_u128(u128::from(n) << 64))
}

/// The three entries of the `n`-th development run.
fn run_through(n: u64) -> Vec<LogEntry> {
    let spec = DevRunSpec {
        dev_run: dev_run(n),
        run: RunId(Uuid::from_u128(1)),
        lane: LaneId::new(1).unwrap(),
        worktree: "/lane-1".into(),
        argv: vec!["cargo".to_owned(), "bench".to_owned()],
        env: Vec::new(),
        contract: Contract::default(),
        models: Vec::new(),
    };
    let end = DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::millis(n % 1_000) };
    vec![
        LogEntry::DevRunAsked { spec: Box::new(spec), arrival: Arrival(n), key: Some(format!("key-{n}")) },
        LogEntry::DevRunStarted { dev_run: dev_run(n), hold: HoldId { member: MemberId(0), number: n } },
        LogEntry::DevRunEnded { dev_run: dev_run(n), end },
    ]
}

/// A folder with that many development runs that are over, and their fold.
fn filled(folder: &Path, dev_runs: u64) -> RigHistory {
    let records = SqliteRecords::open(folder).unwrap();
    let mut history = RigHistory::default();
    let mut next = 1;
    while next <= dev_runs {
        let last = dev_runs.min(next + 1_299);
        let entries: Vec<LogEntry> = (next..=last).flat_map(run_through).collect();
        block_on(records.append(batch_after(&mut history, entries))).unwrap();
        next = last + 1;
    }
    block_on(records.close()).unwrap();
    history
}

fn check_in(folder: &Path, history: &RigHistory, position: u64) {
    let records = SqliteRecords::open(folder).unwrap();
    block_on(records.checkpoint(Checkpoint { position, history: history.clone() })).unwrap();
    block_on(records.close()).unwrap();
}

fn started(folder: &Path) -> (Checkpoint, std::time::Duration) {
    let began = Instant::now();
    let records = SqliteRecords::open(folder).unwrap();
    let state = block_on(records.load()).unwrap().fold();
    let took = began.elapsed();
    block_on(records.close()).unwrap();
    (state, took)
}

fn sql(folder: &Path, statement: &str) {
    rusqlite::Connection::open(folder.join(FILE)).unwrap().execute_batch(statement).unwrap();
}

#[test]
fn a_start_over_a_hundred_thousand_entries_reads_the_checkpoint_and_what_came_after() {
    let folder = tempfile::tempdir().unwrap();
    let dev_runs = 33_334;
    let history = filled(folder.path(), dev_runs);
    let entries = 3 * dev_runs;
    // The newest checkpoint is as old as it gets before the next is due.
    let mut before = RigHistory::default();
    let at = dev_runs - limits::CHECKPOINT_EVERY / 3;
    (1..=at).flat_map(run_through).for_each(|entry| before.apply(entry));

    let (whole, without) = started(folder.path());
    check_in(folder.path(), &before, 3 * at);
    let (tail, with) = started(folder.path());

    println!("a start over {entries} entries: {without:?} without a checkpoint, {with:?} with one");
    assert_eq!((whole.position, tail.position), (entries, entries));
    assert_eq!(whole.history, history);
    assert_eq!(tail.history, history, "the checkpoint's fold is the whole log's");
    assert_eq!(history.dev_runs.len(), limits::ENDED_KEPT, "memory follows the work there is");
    // Compared within the run: a busy machine slows both.
    assert!(with * 5 < without, "{with:?} with a checkpoint, {without:?} without");
}

#[test]
fn what_left_memory_is_read_from_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let history = filled(folder.path(), 2_000);
    assert!(!history.dev_runs.contains_key(&dev_run(1)));
    let records = SqliteRecords::open(folder.path()).unwrap();

    let old = block_on(records.ended(WhichEnded::DevRun(dev_run(1)))).unwrap();
    let by_key = block_on(records.ended(WhichEnded::DevRunKey("key-7".to_owned()))).unwrap();
    let never = block_on(records.ended(WhichEnded::DevRun(dev_run(5_000)))).unwrap();
    let no_job = block_on(records.ended(WhichEnded::JobKey("key-7".to_owned()))).unwrap();

    let end = |found: &FromRecords| match found {
        FromRecords::Kept(kept) => match kept.as_slice() {
            [Ended::DevRun { history }] => Some((history.spec.dev_run, history.end.clone())),
            _ => None,
        },
        FromRecords::Pruned { .. } => None,
    };
    let exited = |n| Some((dev_run(n), Some(DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::millis(n) })));
    assert_eq!(end(&old), exited(1));
    assert_eq!(end(&by_key), exited(7));
    assert_eq!((never, no_job), (FromRecords::Kept(vec![]), FromRecords::Kept(vec![])));
}

#[test]
fn a_damaged_checkpoint_leaves_the_one_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let history = filled(folder.path(), 100);
    let mut early = RigHistory::default();
    (1..=20).flat_map(run_through).for_each(|entry| early.apply(entry));
    check_in(folder.path(), &early, 60);
    check_in(folder.path(), &history, 300);
    sql(folder.path(), "UPDATE checkpoints SET body = replace(body, 'bench', 'belch') WHERE position = 300");

    let (state, _) = started(folder.path());

    assert_eq!((state.position, &state.history), (300, &history));
    sql(folder.path(), "UPDATE checkpoints SET body = '{' WHERE position = 60");
    let (state, _) = started(folder.path());
    assert_eq!((state.position, &state.history), (300, &history), "the whole log is there all the same");
}

#[test]
fn the_logs_beginning_goes_only_as_far_as_both_checkpoints_hold_it() {
    let folder = tempfile::tempdir().unwrap();
    let history = filled(folder.path(), 100);
    let mut early = RigHistory::default();
    (1..=50).flat_map(run_through).for_each(|entry| early.apply(entry));
    let records = SqliteRecords::open(folder.path()).unwrap();
    let pruner = records.pruner();
    let all = |prune: Prune| {
        let mut taken = 0;
        while let more @ 1.. = block_on(pruner.take(prune.clone())).unwrap() {
            taken += more;
        }
        taken
    };

    let without = all(Prune::Log);
    block_on(records.checkpoint(Checkpoint { position: 150, history: early })).unwrap();
    let with_one = all(Prune::Log);
    block_on(records.checkpoint(Checkpoint { position: 300, history: history.clone() })).unwrap();
    let with_two = all(Prune::Log);
    block_on(records.close()).unwrap();
    drop(records);

    assert_eq!((without, with_one, with_two), (0, 0, 150));
    let (state, _) = started(folder.path());
    assert_eq!((state.position, &state.history), (300, &history));
    let log = RecordsReader::open(folder.path()).unwrap().log().unwrap();
    assert_eq!((log.len(), log[0].seq), (150, 151));
    // Were the newest damaged, the older one and the log after it are enough; were both, nothing is guessed.
    sql(folder.path(), "UPDATE checkpoints SET body = '{' WHERE position = 300");
    assert_eq!(started(folder.path()).0.history, history);
    sql(folder.path(), "DELETE FROM checkpoints");
    let fault = block_on(SqliteRecords::open(folder.path()).unwrap().load()).unwrap_err().to_string();
    assert!(fault.contains("was pruned up to row 150, and no checkpoint of it holds"), "{fault}");
    assert!(fault.contains("thermite restore BACKUP"), "{fault}");
}

#[test]
fn pruned_development_runs_are_answered_for_with_the_day() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), limits::PRUNE_ROWS_MAX.into());
    let records = SqliteRecords::open(folder.path()).unwrap();
    let pruner = records.pruner();

    let taken = block_on(pruner.take(Prune::DevRuns)).unwrap();
    block_on(pruner.take(Prune::Files { what: OUTPUTS, through: dev_run(5).to_string() })).unwrap();

    assert_eq!(taken, limits::PRUNE_ROWS_MAX as usize);
    let pruned = block_on(records.ended(WhichEnded::DevRun(dev_run(3)))).unwrap();
    assert!(matches!(pruned, FromRecords::Pruned { wall_ms } if wall_ms > 1_700_000_000_000), "{pruned:?}");
    let later = block_on(records.ended(WhichEnded::DevRun(dev_run(9_999)))).unwrap();
    assert_eq!(later, FromRecords::Kept(vec![]), "what was never there is unknown, not pruned");
    let verdicts = records.verdicts();
    assert!(block_on(verdicts.output_pruned(dev_run(5))).unwrap().is_some());
    assert_eq!(block_on(verdicts.output_pruned(dev_run(6))).unwrap(), None);
    // One that ran on while younger ones went.
    block_on(pruner.take(Prune::Files { what: OUTPUTS, through: dev_run(2).to_string() })).unwrap();
    assert!(block_on(verdicts.output_pruned(dev_run(5))).unwrap().is_some(), "what is noted only rises");
}

#[test]
fn keys_go_after_their_day() {
    let folder = tempfile::tempdir().unwrap();
    let records = SqliteRecords::open(folder.path()).unwrap();
    let keys = records.keys();
    block_on(keys.take("old", [1; 32])).unwrap();
    block_on(records.append(Batch::default())).unwrap();
    sql(folder.path(), "UPDATE idempotency SET wall_ms = 1");
    block_on(keys.take("new", [1; 32])).unwrap();
    block_on(records.append(Batch::default())).unwrap();

    let taken = block_on(records.pruner().take(Prune::Keys { before_ms: 1_000 })).unwrap();

    assert_eq!(taken, 1);
    use thermite_svc::records::KeyUse::{AnotherRequest, ThisRequest};
    assert_eq!(block_on(keys.take("old", [2; 32])), Ok(ThisRequest), "its day is over");
    assert_eq!(block_on(keys.take("new", [2; 32])), Ok(AnotherRequest));
}

/// The database of each layout there was, as SQL: real ones, written by the programs of their time.
fn layouts() -> Vec<(u32, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cases/schema");
    let mut layouts: Vec<(u32, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), fs::read_to_string(path).unwrap()))
        .collect();
    layouts.sort();
    layouts
}

fn laid_out(folder: &Path, text: &str) {
    let connection = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    connection.execute_batch(text).unwrap();
}

#[test]
fn every_older_layout_is_brought_up_with_a_copy_of_what_was() {
    let layouts = layouts();
    let versions: Vec<u32> = layouts.iter().map(|layout| layout.0).collect();
    assert_eq!(versions, (1..SCHEMA).collect::<Vec<_>>(), "each older layout has a database in tests/cases/schema");
    for (version, text) in layouts {
        let folder = tempfile::tempdir().unwrap();
        laid_out(folder.path(), &text);

        let records = SqliteRecords::open(folder.path()).unwrap();

        let state = block_on(records.load()).unwrap().fold();
        let [run] = state.history.runs.keys().copied().collect::<Vec<_>>()[..] else { panic!("one run") };
        let FromRecords::Kept(jobs) =
            block_on(records.ended(WhichEnded::JobsOf { run, after: None, most: 9 })).unwrap()
        else {
            panic!("nothing was pruned")
        };
        let told: Vec<_> = state.history.jobs.values().filter(|job| job.end.is_some()).cloned().collect();
        let kept = jobs.iter().map(|ended| match ended {
            Ended::Job { history } => (**history).clone(),
            other => panic!("{other:?}"),
        });
        let kept: Vec<_> = kept.collect();
        assert!(!told.is_empty() && kept == told, "layout {version}: {kept:?}");
        let dev_runs = state.history.dev_runs.keys();
        for id in dev_runs {
            assert!(
                matches!(block_on(records.ended(WhichEnded::DevRun(*id))), Ok(FromRecords::Kept(kept)) if kept.len() == 1)
            );
        }
        for hash in told.iter().filter_map(|job| job.end.clone()?.1) {
            let text = block_on(records.verdicts().verdict(&hash)).unwrap().expect("its record is there");
            assert_eq!(thermite_core::record::verify_json(&text).unwrap().sha256, hash);
        }
        let entries = state.position as usize;
        drop(records);
        let copy = rusqlite::Connection::open(copy_of(folder.path(), version)).unwrap();
        let found: (u32, usize) = copy
            .query_row("SELECT (SELECT user_version FROM pragma_user_version), count(*) FROM log", (), |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)? as usize))
            })
            .unwrap();
        assert_eq!(found, (version, entries), "the copy is of the old layout, and whole");
        // Reading alone refuses an older one, and names the way out; brought up, it reads.
        assert_eq!(RecordsReader::open(folder.path()).unwrap().log().unwrap().len(), entries);
    }
}

#[test]
fn a_layout_that_cannot_be_brought_up_stays_as_it_is() {
    let (_, text) = layouts().remove(0);
    let folder = tempfile::tempdir().unwrap();
    laid_out(folder.path(), &text);
    sql(folder.path(), "UPDATE log SET body = '{\"entry\":\"job_en' WHERE seq = 11");

    let fault = SqliteRecords::open(folder.path()).err().unwrap().to_string();

    assert!(fault.contains("row 11 of the log in") && fault.contains("damaged"), "{fault}");
    let connection = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let version: u32 = connection.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
    let tables: u32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'ended'", (), |row| row.get(0)).unwrap();
    assert_eq!((version, tables), (1, 0), "one transaction: all of it or nothing");
}

#[test]
fn a_file_that_is_no_longer_a_database_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), 300);
    let file = folder.path().join(FILE);
    let whole = fs::read(&file).unwrap();
    let refused = || SqliteRecords::open(folder.path()).err().map(|fault| fault.to_string()).unwrap_or_default();

    fs::write(&file, "a letter to my aunt, who likes databases").unwrap();
    let foreign = refused();
    fs::write(&file, "").unwrap();
    let empty = refused();
    fs::remove_file(&file).unwrap();
    let gone = refused();
    // A page of the middle, overwritten.
    let mut garbled = whole.clone();
    let middle = (whole.len() / 4_096 / 2) * 4_096;
    garbled[middle..middle + 4_096].fill(0xa5);
    fs::write(&file, &garbled).unwrap();
    let damaged = refused();
    let mut cut = whole.clone();
    cut.truncate(whole.len() / 3);
    fs::write(&file, &cut).unwrap();
    let short = refused();

    assert!(foreign.contains("is not a database of thermite"), "{foreign}");
    for said in [&empty, &gone] {
        assert!(said.contains("has lost its end: it has 0 entries, and entry 900 was acknowledged"), "{said}");
    }
    for said in [&damaged, &short] {
        assert!(said.contains("is damaged: ") && said.contains("thermite restore BACKUP"), "{said}");
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(refused(), "", "the file as it was is taken");
}

/// A copy of a store that was not closed, as a power loss leaves it.
struct Torn {
    folder: tempfile::TempDir,
    log: Vec<u8>,
}

impl Torn {
    fn of(folder: &Path) -> Torn {
        let copy = tempfile::tempdir().unwrap();
        for name in [FILE, MARK] {
            fs::copy(folder.join(name), copy.path().join(name)).unwrap();
        }
        Torn { folder: copy, log: fs::read(folder.join(format!("{FILE}-wal"))).unwrap() }
    }

    fn with_log(&self, log: &[u8]) -> Result<u64, String> {
        let place = tempfile::tempdir().unwrap();
        for name in [FILE, MARK] {
            fs::copy(self.folder.path().join(name), place.path().join(name)).unwrap();
        }
        fs::write(place.path().join(format!("{FILE}-wal")), log).unwrap();
        let records = SqliteRecords::open(place.path()).map_err(|fault| fault.to_string())?;
        let past = block_on(records.load()).map_err(|fault| fault.0)?;
        let state = past.fold();
        // What is read is what was written, never something else.
        let mut expected = RigHistory::default();
        (1..=state.position / 3).flat_map(run_through).for_each(|entry| expected.apply(entry));
        assert_eq!(state.position % 3, 0, "a batch is half there");
        assert_eq!(state.history, expected, "silently wrong");
        Ok(state.position)
    }
}

#[test]
fn torn_and_garbled_writes_lose_nothing_acknowledged_or_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let records = SqliteRecords::open(folder.path()).unwrap();
    let mut history = RigHistory::default();
    for n in 1..=40 {
        block_on(records.append(batch_after(&mut history, run_through(n)))).unwrap();
    }
    let acknowledged = 120;
    let torn = Torn::of(folder.path());
    // The bytes of a commit whose sync never came: there in part, or in any order.
    block_on(records.append(batch_after(&mut history, run_through(41)))).unwrap();
    let after = fs::read(folder.path().join(format!("{FILE}-wal"))).unwrap();
    drop(records);
    let synced = torn.log.len();
    assert!(after.len() > synced && after[..synced] == torn.log[..]);
    let mut luck = Luck::seeded(0x70_4e);

    let (mut whole, mut refused) = (0, 0);
    for round in 0..120 {
        let mut log = after.clone();
        let in_tail = round % 2 == 0;
        if in_tail {
            // Pages of the unsynced commit that never reached the disk, and a cut in it.
            for page in (synced..after.len()).step_by(512) {
                if luck.below(2) == 0 {
                    let end = after.len().min(page + 512);
                    log[page..end].fill(0);
                }
            }
            log.truncate(synced + luck.below((after.len() - synced) as u64 + 1) as usize);
        } else if luck.below(2) == 0 {
            log.truncate(luck.below(synced as u64) as usize);
        } else {
            let at = luck.below(synced as u64) as usize;
            let end = synced.min(at + 1 + luck.below(600) as usize);
            log[at..end].iter_mut().for_each(|byte| *byte ^= 1 + luck.below(255) as u8);
        }
        match torn.with_log(&log) {
            Ok(found) => {
                assert!(found >= acknowledged, "round {round}: {found} of {acknowledged} acknowledged entries");
                whole += 1;
            }
            Err(said) => {
                assert!(!in_tail, "round {round}: a torn write after the last sync is refused: {said}");
                let named =
                    said.contains("has lost its end: ") || said.contains("is damaged: ") || said.contains("damaged");
                assert!(named && said.contains(FILE), "round {round}: {said}");
                refused += 1;
            }
        }
    }
    println!("120 torn stores: {whole} whole, {refused} refused by name, none silently wrong");
    assert!(whole >= 60 && refused > 20, "{whole} whole, {refused} refused");
}

#[test]
fn kill_nine_amid_checkpoints_and_pruning_loses_nothing() {
    const CHILD: &str = "THERMITE_TEST_CHECKS_IN";
    if let Some(folder) = std::env::var_os(CHILD) {
        append_check_in_and_prune(Path::new(&folder));
    }
    let mut luck = Luck::seeded(0xc4ec);
    let folder = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut pruned) = (0_u64, 0);
    for kill in 0..12 {
        let mut child = Again::start(
            "lasting::kill_nine_amid_checkpoints_and_pruning_loses_nothing",
            CHILD,
            folder.path().as_os_str(),
        );
        let stop_after = acknowledged + 1 + luck.below(60);
        while acknowledged < stop_after {
            acknowledged = child.next("acknowledged ").expect("the child appends until it is killed").parse().unwrap();
        }
        child.kill();

        let (state, _) = started(folder.path());

        assert!(state.position >= 3 * acknowledged, "kill {kill}: {} of {acknowledged} batches", state.position / 3);
        let mut expected = RigHistory::default();
        (1..=state.position / 3).flat_map(run_through).for_each(|entry| expected.apply(entry));
        assert_eq!(state.history, expected, "kill {kill}");
        pruned = RecordsReader::open(folder.path()).unwrap().log().unwrap()[0].seq - 1;
    }
    println!("12 kills; {acknowledged} batches acknowledged, {pruned} entries of the log pruned meanwhile");
    assert!(pruned > 0, "no kill came after pruning");
}

fn append_check_in_and_prune(folder: &Path) -> ! {
    let records = SqliteRecords::open(folder).unwrap();
    let Checkpoint { mut position, mut history } = block_on(records.load()).unwrap().fold();
    let pruner = records.pruner();
    loop {
        let n = position / 3 + 1;
        block_on(records.append(batch_after(&mut history, run_through(n)))).unwrap();
        position += 3;
        println!("acknowledged {n}");
        // Under way beside the next appends, as a rig's are.
        if n.is_multiple_of(5) {
            drop(records.checkpoint(Checkpoint { position, history: history.clone() }));
        }
        if n.is_multiple_of(7) {
            block_on(pruner.take(Prune::Log)).unwrap();
            block_on(pruner.take(Prune::DevRuns)).unwrap();
        }
    }
}

#[test]
fn a_read_only_disk_is_said_and_left_when_it_takes_writes_again() {
    // The same words whether the whole disk or the file alone is read-only; the whole disk is `whole::room`'s.
    let folder = tempfile::tempdir().unwrap();
    let records = SqliteRecords::open(folder.path()).unwrap();
    let mut history = RigHistory::default();
    block_on(records.append(batch_after(&mut history, run_through(1)))).unwrap();
    sql(folder.path(), "CREATE TRIGGER no BEFORE INSERT ON log BEGIN SELECT raise(ABORT, 'disk I/O error'); END");

    let fault = block_on(records.append(run_through(2).into())).unwrap_err();
    sql(folder.path(), "DROP TRIGGER no");
    block_on(records.append(batch_after(&mut history, run_through(2)))).unwrap();

    assert!(fault.0.contains(FILE), "{fault}");
    assert_eq!(block_on(records.load()).unwrap().fold().history, history);
}

#[test]
fn a_newer_layout_is_refused_for_backups_too() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), 1);
    sql(folder.path(), "PRAGMA user_version = 99");

    let fault = RecordsReader::open(folder.path()).err().unwrap();

    assert!(matches!(fault, OpenFault::Newer { found: 99, .. }), "{fault}");
    let fault = thermite_svc::backup::take(folder.path(), &folder.path().join("b"), 1).unwrap_err().to_string();
    assert!(fault.contains("schema 99"), "{fault}");
}
