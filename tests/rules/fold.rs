//! State is the fold of the log, and a rig that starts again goes on from it (rules A1, D5, D7).

use std::collections::BTreeMap;
use std::sync::Arc;

use thermite_core::contract::Contract;
use thermite_core::dev_run::{DevRunEnd, DevRunSpec};
use thermite_core::ended::Ended;
use thermite_core::fold::{Behind, RigHistory};
use thermite_core::ids::{Arrival, DevRunId, HoldId, JobId, MemberId, RunId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::judge_queue::{Builds, JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, Submission, Submit};
use thermite_core::lane::LaneInput;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::pool::{Wants, WorkEntry};
use thermite_core::refusal::{GaveUp, InfrastructureFailure};
use thermite_core::run::RunState;
use thermite_core::time::Span;
use uuid::Uuid;

use crate::scenario::{DEVICE, dev_run, hold, job, job_spec, lane, run, run_spec};

#[test]
fn a_queued_job_stays_queued_in_its_place() {
    let history = RigHistory::of([started(), submitted(2, 5), submitted(1, 7)]);

    let (queue, _) = restored(&history);

    let order: Vec<_> = queue.live(9).into_iter().map(|live| (live.job, live.arrival)).collect();
    assert_eq!(order, [(job(2), Arrival(5)), (job(1), Arrival(7))]);
    assert_eq!(history.last_arrival, 7);
}

#[test]
fn a_stage_in_progress_starts_over_and_its_number_stays_used() {
    let history = RigHistory::of([started(), submitted(1, 1), stage_started(1, StageKind::Screening, 1, 4)]);

    let (queue, opening) = restored(&history);

    let live = &queue.live(1)[0];
    assert_eq!((live.stage, live.attempt, live.failures), (StageKind::Screening, 1, 0));
    assert!(matches!(&opening[..], [JudgeEffect::Tell(work)] if work.entries[0].startable));
    assert_eq!(history.last_holds[&DEVICE], 4);
}

#[test]
fn a_won_screening_is_kept_and_its_confirmation_starts_over() {
    let won = LogEntry::ScreeningWon { job: job(1), hold: hold(1), record: "5c".to_owned(), key: None };
    let history = RigHistory::of([
        started(),
        submitted(1, 1),
        stage_started(1, StageKind::Screening, 1, 1),
        won,
        stage_started(1, StageKind::Confirmation, 2, 2),
    ]);

    let (_, opening) = restored(&history);

    let JudgeEffect::Tell(work) = &opening[0] else { panic!("the pool is told first: {opening:?}") };
    assert_eq!((work.entries[0].stage, work.entries[0].screened_on), (StageKind::Confirmation, Some(DEVICE)));
    assert_eq!(history.jobs[&job(1)].screened, Some((DEVICE, "5c".to_owned())));
}

#[test]
fn infrastructure_failures_are_counted_through_a_restart() {
    let failed = LogEntry::AttemptFailed {
        job: job(1),
        stage: StageKind::Screening,
        hold: hold(1),
        why: InfrastructureFailure::RigEnding,
    };
    let history = RigHistory::of([started(), submitted(1, 1), failed.clone(), failed]);

    let (queue, _) = restored(&history);

    assert_eq!(queue.live(1)[0].failures, 2);
    assert_eq!(history.jobs[&job(1)].failures, ["the rig is ending", "the rig is ending"]);
}

#[test]
fn a_verdict_is_never_given_twice() {
    let first = JobOutcome::Win { adopted: true };
    let history = RigHistory::of([started(), submitted(1, 1), ended(first.clone()), ended(JobOutcome::Undecided)]);

    let (mut queue, opening) = restored(&history);

    assert_eq!(history.jobs[&job(1)].end, Some((first, None)));
    assert_eq!(queue.live_count(), 0);
    assert!(matches!(&opening[..], [JudgeEffect::Tell(work)] if work.entries.is_empty()));
    assert_eq!(queue.submit(submit(2, "change 1")), Ok(Submission::Same { job: job(1), answered: true }));
}

#[test]
fn a_change_without_a_verdict_may_be_submitted_again_after_a_restart() {
    let why = "the disk is full".to_owned();
    let history = RigHistory::of([started(), submitted(1, 1), ended(JobOutcome::NoVerdict { why })]);

    let (mut queue, _) = restored(&history);

    assert!(matches!(queue.submit(submit(2, "change 1")), Ok(Submission::New(_))));
}

#[test]
fn a_paused_run_stays_paused_and_its_development_runs_may_not_wait() {
    let paused = LogEntry::RunChanged { run: run(1), state: RunState::Paused };
    let history = RigHistory::of([started(), submitted(1, 1), paused]);

    let (queue, opening) = restored(&history);

    let JudgeEffect::Tell(work) = &opening[0] else { panic!("the pool is told first: {opening:?}") };
    assert_eq!(queue.run_state(run(1)), Some(RunState::Paused));
    assert!(work.entries[0].paused);
    assert_eq!(work.stopped.len(), 1);
}

#[test]
fn what_waited_in_a_run_that_had_ended_ends_at_the_start() {
    let over = LogEntry::RunChanged { run: run(1), state: RunState::Ended };
    let history = RigHistory::of([started(), submitted(1, 1), over]);

    let (_, opening) = restored(&history);

    let ends = opening.iter().any(
        |effect| matches!(effect, JudgeEffect::Record { facts, .. } if matches!(facts[..], [JudgeFact::Ended { .. }])),
    );
    assert!(ends, "{opening:?}");
}

#[test]
fn the_champion_is_the_last_one_that_won() {
    let moved =
        LogEntry::ChampionMoved { run: run(1), from: "champion".to_owned(), to: "better".to_owned(), by: job(1) };
    let history = RigHistory::of([started(), moved]);

    let (queue, _) = restored(&history);

    assert_eq!(queue.champion(run(1)), Some("better"));
}

#[test]
fn a_development_run_without_an_end_is_one_that_the_rig_left() {
    let spec = spec_of_dev_run();
    let asked = LogEntry::DevRunAsked { spec: Box::new(spec), arrival: Arrival(9), key: None };
    let held = LogEntry::DevRunStarted { dev_run: dev_run(1), hold: HoldId { member: DEVICE, number: 3 } };
    let over = LogEntry::DevRunEnded { dev_run: dev_run(1), end: DevRunEnd::RigEnded };

    let before = RigHistory::of([started(), asked.clone(), held.clone()]);
    let after = RigHistory::of([started(), asked, held, over]);

    assert!(before.dev_runs[&dev_run(1)].started && before.dev_runs[&dev_run(1)].end.is_none());
    assert_eq!(after.dev_runs[&dev_run(1)].end, Some(DevRunEnd::RigEnded));
    assert_eq!((after.last_arrival, after.last_holds[&DEVICE]), (9, 3));
}

#[test]
fn the_fold_does_not_depend_on_where_it_is_cut() {
    let log = [
        LogEntry::RigStarted,
        started(),
        submitted(1, 1),
        stage_started(1, StageKind::Screening, 1, 1),
        LogEntry::SentBack { job: job(1) },
        stage_started(1, StageKind::Screening, 2, 2),
        LogEntry::ScreeningWon { job: job(1), hold: hold(2), record: String::new(), key: None },
        ended(JobOutcome::NoGain { slower: false }),
    ];
    let whole = RigHistory::of(log.clone());

    for cut in 0..=log.len() {
        let mut history = RigHistory::of(log[..cut].to_vec());
        log[cut..].iter().for_each(|entry| history.apply(entry.clone()));

        assert_eq!(history, whole, "cut at {cut}");
    }
}

#[test]
fn what_is_over_leaves_after_a_while_and_what_is_open_stays() {
    let mut history = RigHistory::of([started(), submitted(255, 1)]);
    let most = limits::ENDED_KEPT as u32;

    for n in 1..=most + 10 {
        over_and_done(&mut history, n);
    }

    assert_eq!((history.jobs.len(), history.open()), (limits::ENDED_KEPT + 1, 1));
    assert!(history.jobs[&job(255)].end.is_none(), "the open one stays");
    assert!(!history.jobs.contains_key(&numbered(1)), "the oldest end left first");
    assert!(history.jobs.contains_key(&numbered(most + 10)));
    assert_eq!(history.last_arrival, u64::from(most) + 11, "its number stays used");
}

#[test]
fn what_ends_is_told_whole_also_where_it_began_in_the_same_batch() {
    let history = RigHistory::of([started(), submitted(1, 1), stage_started(1, StageKind::Screening, 1, 1)]);
    let batch = [submitted(2, 2), ended(JobOutcome::Undecided), ended_of(2), ended(JobOutcome::Win { adopted: true })];

    let told = history.ended_by(&batch);

    let found: Vec<_> = told
        .iter()
        .map(|ended| match ended {
            Ended::Job { history } => (history.spec.job, history.attempt, history.end.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let end = |outcome| Some((outcome, None));
    let no_gain = JobOutcome::NoGain { slower: false };
    assert_eq!(found, [(job(1), 1, end(JobOutcome::Undecided)), (job(2), 0, end(no_gain))]);
    assert_eq!(history.ended_by(&[submitted(3, 3)]), []);
}

#[test]
fn numbers_jump_ahead_when_a_rig_is_restored() {
    let mut history = RigHistory::of([started(), submitted(1, 4), stage_started(1, StageKind::Screening, 1, 9)]);

    history.apply(LogEntry::RigRestored { numbers_skipped: 1_000 });
    let restored = (history.last_arrival, history.last_hold(DEVICE), history.last_hold(MemberId(7)));
    history.apply(stage_started(1, StageKind::Screening, 2, 1_010));

    assert_eq!(restored, (1_004, 1_009, 1_009), "a device that the backup did not know may have had holds since");
    assert_eq!(history.last_hold(DEVICE), 1_010);
}

/// A log of many runs, jobs and development runs that begin and end in any order.
fn any_log(length: usize, luck: &mut impl FnMut(u64) -> u64) -> Vec<LogEntry> {
    let mut log = vec![LogEntry::RigStarted];
    let (mut jobs, mut dev_runs, mut runs) = (Vec::new(), Vec::new(), vec![run(1)]);
    log.push(started());
    for n in 1..length as u32 {
        let pick = |list: usize, luck: &mut dyn FnMut(u64) -> u64| luck(list.max(1) as u64) as usize;
        let entry = match luck(12) {
            0..=2 => {
                jobs.push(numbered(n));
                let of = runs[pick(runs.len(), luck)];
                let spec = job_spec(numbered(n), of, u64::from(n), &format!("change {n}"));
                LogEntry::JobSubmitted { spec: Arc::new(spec), key: (n % 3 == 0).then(|| format!("key {n}")) }
            }
            3..=4 if !jobs.is_empty() => {
                let job = jobs.swap_remove(pick(jobs.len(), luck));
                LogEntry::JobEnded { job, outcome: JobOutcome::Undecided, record: Some("5c".repeat(32)) }
            }
            5 if !jobs.is_empty() => {
                let job = jobs[pick(jobs.len(), luck)];
                LogEntry::StageStarted { job, stage: StageKind::Screening, attempt: 1, hold: hold(u64::from(n)) }
            }
            6..=8 => {
                dev_runs.push(DevRunId(Uuid::from_u128(u128::from(n))));
                let spec = DevRunSpec { dev_run: dev_runs[dev_runs.len() - 1], ..spec_of_dev_run() };
                LogEntry::DevRunAsked { spec: Box::new(spec), arrival: Arrival(u64::from(n)), key: None }
            }
            9..=10 if !dev_runs.is_empty() => {
                let dev_run = dev_runs.swap_remove(pick(dev_runs.len(), luck));
                LogEntry::DevRunEnded { dev_run, end: DevRunEnd::Cancelled }
            }
            11 if luck(4) == 0 => {
                let next = RunId(Uuid::from_u128(u128::from(n) << 32));
                runs.push(next);
                LogEntry::RunStarted { run: next, spec: Box::new(run_spec("champion")), key: None }
            }
            11 => LogEntry::RunChanged { run: runs[pick(runs.len(), luck)], state: RunState::Ended },
            _ => LogEntry::RigStarted,
        };
        log.push(entry);
    }
    log
}

#[test]
fn a_fold_from_a_checkpoint_and_a_fold_of_the_whole_log_are_equal() {
    // Long enough that much of what is over has left at both cuts.
    for seed in 1..=8_u64 {
        let mut state = seed;
        let mut luck = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let log = any_log(6_000, &mut luck);
        let whole = RigHistory::of(log.clone());
        assert!(whole.jobs.len() < 2_000 && whole.open() > 0, "seed {seed}: nothing left memory");

        for cut in [0, 1, luck(6_000) as usize, 3_000, luck(6_000) as usize, 5_999, log.len()] {
            let checkpoint = RigHistory::of(log[..cut].to_vec());
            // As the records keep it: written down and read back.
            let written = serde_json::to_string(&checkpoint).unwrap();
            let mut history: RigHistory = serde_json::from_str(&written).unwrap();
            log[cut..].iter().for_each(|entry| history.apply(entry.clone()));

            assert_eq!(history, whole, "seed {seed}, cut at {cut}");
        }
    }
}

#[test]
fn every_end_is_told_once_whatever_the_batches() {
    let mut state = 7_u64;
    let mut luck = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let log = any_log(3_000, &mut luck);
    let ends =
        log.iter().filter(|entry| matches!(entry, LogEntry::JobEnded { .. } | LogEntry::DevRunEnded { .. })).count();

    let (mut history, mut told, mut at) = (RigHistory::default(), 0, 0);
    while at < log.len() {
        let batch = &log[at..log.len().min(at + 1 + luck(40) as usize)];
        told += history.ended_by(batch).iter().filter(|ended| !matches!(ended, Ended::Run { .. })).count();
        batch.iter().for_each(|entry| history.apply(entry.clone()));
        at += batch.len();
    }

    assert_eq!(told, ends);
}

fn over_and_done(history: &mut RigHistory, n: u32) {
    let spec = job_spec(numbered(n), run(1), u64::from(n) + 1, &format!("change {n}"));
    history.apply(LogEntry::JobSubmitted { spec: Arc::new(spec), key: None });
    history.apply(LogEntry::JobEnded { job: numbered(n), outcome: JobOutcome::Undecided, record: None });
}

/// A job of a number beyond those of the scenario.
fn numbered(n: u32) -> JobId {
    JobId(Uuid::from_u128(u128::from(n) << 16))
}

fn spec_of_dev_run() -> DevRunSpec {
    DevRunSpec {
        dev_run: dev_run(1),
        run: run(1),
        lane: lane(1),
        worktree: "/lane".into(),
        argv: vec!["true".to_owned()],
        env: Vec::new(),
        contract: Contract::default(),
        models: Vec::new(),
    }
}

fn ended_of(n: u8) -> LogEntry {
    LogEntry::JobEnded { job: job(n), outcome: JobOutcome::NoGain { slower: false }, record: None }
}

/// What a log of before the bench and the cards' limits says still replays.
#[test]
fn words_of_older_input_logs_are_still_understood() {
    let entry = serde_json::json!({
        "job": job(1), "run": run(1), "stage": StageKind::Screening, "arrival": 1, "startable": true, "paused": false,
        "screened_on": null, "running_on": null,
    });
    let granted = serde_json::json!({ "Granted": { "dev_run": dev_run(1), "hold": hold(1) } });
    let split = serde_json::json!({ "NewSplit": { "judging": 1, "builds": "OnBench" } });

    let entry: WorkEntry = serde_json::from_value(entry).expect("it is a stage");
    let granted: LaneInput = serde_json::from_value(granted).expect("it is a grant");
    let split: JudgeInput = serde_json::from_value(split).expect("it is a split");

    assert_eq!((entry.wants, entry.failed_on.len()), (Wants::Device, 0));
    assert_eq!(granted, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: None });
    assert_eq!(split, JudgeInput::NewSplit { judging: 1, builds: Builds::OnBench, other_model: None });
}

/// A build is a hold of the bench's until its job has a card, and keeps no development run from one.
#[test]
fn who_builds_holds_the_bench() {
    let bench = HoldId { member: MemberId::BENCH, number: 1 };
    let building = LogEntry::BuildStarted { job: job(1), stage: StageKind::Screening, attempt: 1, hold: bench };
    let asked = LogEntry::DevRunAsked { spec: Box::new(spec_of_dev_run()), arrival: Arrival(2), key: None };
    let gave_up = DevRunEnd::GaveUp { why: GaveUp::OutOfService };
    let mut history = RigHistory::of([started(), submitted(1, 1), building, asked]);

    let builds = history.holding.clone();
    history.apply(LogEntry::DevRunEnded { dev_run: dev_run(1), end: gave_up });
    history.apply(stage_started(1, StageKind::Screening, 1, 1));

    let behind = |member| BTreeMap::from([(member, Behind::Job { job: job(1), member })]);
    assert_eq!(builds, behind(MemberId::BENCH));
    assert_eq!(history.dev_runs[&dev_run(1)].behind, None);
    assert_eq!(history.holding, behind(DEVICE));
}

fn restored(history: &RigHistory) -> (JudgeQueue, Vec<JudgeEffect>) {
    let mut queue = JudgeQueue::new(1);
    queue.restore(history, |spec| spec.pinned.candidate_tree.clone(), |_| Span::minutes(1));
    let opening = queue.open();
    (queue, opening)
}

fn started() -> LogEntry {
    LogEntry::RunStarted { run: run(1), spec: Box::new(run_spec("champion")), key: None }
}

fn submitted(n: u8, arrival: u64) -> LogEntry {
    LogEntry::JobSubmitted { spec: Arc::new(job_spec(job(n), run(1), arrival, &format!("change {n}"))), key: None }
}

fn stage_started(n: u8, stage: StageKind, attempt: u32, number: u64) -> LogEntry {
    LogEntry::StageStarted { job: job(n), stage, attempt, hold: hold(number) }
}

fn ended(outcome: JobOutcome) -> LogEntry {
    LogEntry::JobEnded { job: job(1), outcome, record: None }
}

fn submit(n: u8, same: &str) -> Submit {
    Submit {
        job: job(n),
        run: run(1),
        arrival: Arrival(20),
        champion: "champion".to_owned(),
        candidate: "commit".to_owned(),
        same: same.to_owned(),
        key: None,
        stage_worst: Span::minutes(1),
    }
}
