//! State is the fold of the log, and a rig that starts again goes on from it (rules A1, D5, D7).

use std::sync::Arc;

use thermite_core::contract::Contract;
use thermite_core::dev_run::{DevRunEnd, DevRunSpec};
use thermite_core::fold::RigHistory;
use thermite_core::ids::{Arrival, HoldId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::judge_queue::{JudgeEffect, JudgeFact, JudgeQueue, Submission, Submit};
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::RunState;
use thermite_core::time::Span;

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
    let won = LogEntry::ScreeningWon { job: job(1), hold: hold(1), record: "5c".to_owned() };
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
    let spec = DevRunSpec {
        dev_run: dev_run(1),
        run: run(1),
        lane: lane(1),
        worktree: "/lane".into(),
        argv: vec!["true".to_owned()],
        env: Vec::new(),
        contract: Contract::default(),
    };
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
        LogEntry::ScreeningWon { job: job(1), hold: hold(2), record: String::new() },
        ended(JobOutcome::NoGain { slower: false }),
    ];
    let whole = RigHistory::of(log.clone());

    for cut in 0..=log.len() {
        let mut history = RigHistory::of(log[..cut].to_vec());
        log[cut..].iter().for_each(|entry| history.apply(entry.clone()));

        assert_eq!(history, whole, "cut at {cut}");
    }
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
