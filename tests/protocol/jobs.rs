//! Jobs go from the submit to a verdict, once each (rule D5).

use thermite_actors::testing::StopScript;
use thermite_core::block::{Pair, Side};
use thermite_core::job::{ChangeStep, JobOutcome, StageKind};
use thermite_core::log::LogEntry;
use thermite_core::refusal::Refusal;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use thermite_actors::rig::No;

use crate::scenario::Scenario;

#[test]
fn a_win_moves_the_champion_and_the_next_job_is_measured_against_it() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("faster-1");

    let outcome = rig.outcome_of(job);
    let next = rig.job("equal-2");

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(rig.view().runs[0].champion, "main+faster-1");
    assert_eq!(rig.job_row(next).champion, "main+faster-1");
    let moved = |entry: &LogEntry| {
        matches!(entry, LogEntry::ChampionMoved { from, to, by, .. }
        if from == "main" && to == "main+faster-1" && *by == job)
    };
    assert_eq!(rig.entries().iter().filter(|entry| moved(entry)).count(), 1);
    rig.assert_sound();
}

#[test]
fn a_win_against_a_champion_that_moved_is_not_adopted() {
    let rig = Scenario::one_shared_device();
    let (first, second) = (rig.job("faster-1"), rig.job("faster-2"));

    let outcomes = [rig.outcome_of(first), rig.outcome_of(second)];

    assert_eq!(outcomes, [JobOutcome::Win { adopted: true }, JobOutcome::Win { adopted: false }]);
    assert_eq!(rig.view().runs[0].champion, "main+faster-1");
    rig.assert_sound();
}

#[test]
fn a_verdicts_record_is_kept_and_both_stages_name_theirs() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("faster-1");

    rig.outcome_of(job);

    let status = rig.job_row(job).status;
    let thermite_actors::view::JobStatus::Ended { record: Some(record), screening: Some(screening), .. } = status
    else {
        panic!("a win names two records: {status:?}");
    };
    let hashes: Vec<String> = rig.records.verdict_records().iter().map(|record| record.hash()).collect();
    assert_eq!(hashes, [screening, record]);
}

#[test]
fn slower_and_broken_changes_are_said_to_be_so() {
    let rig = Scenario::one_shared_device();
    let (slower, broken) = (rig.job("slower-1"), rig.job("broken-1"));

    let outcomes = [rig.outcome_of(slower), rig.outcome_of(broken)];

    assert_eq!(outcomes[0], JobOutcome::NoGain { slower: true });
    assert_eq!(outcomes[1], JobOutcome::ChangeFailed { step: ChangeStep::Measure, why: "exit status 1".to_owned() });
    rig.assert_sound();
}

#[test]
fn five_infrastructure_failures_end_a_job_without_a_verdict() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|_, step| match step {
        StageStep::Block { .. } => Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() }),
        _ => None,
    });
    let job = rig.job("faster-1");

    let outcome = rig.outcome_of(job);

    let why = "a block of the champion twice could not be carried out: the disk is full".to_owned();
    assert_eq!(outcome, JobOutcome::NoVerdict { why });
    let row = rig.job_row(job);
    assert_eq!((row.attempt, row.failures.len()), (5, 4), "the fifth failure is the outcome itself");
    rig.assert_sound();
}

#[test]
fn a_void_attempts_raw_figures_are_kept_and_are_no_record() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|stage, step| match step {
        StageStep::Block { order, .. } if stage.attempt == 1 => {
            Some(StepReport::Lost { side: order.sides()[0], why: "killed by the machine".to_owned() })
        }
        _ => None,
    });
    let job = rig.job("equal-1");

    rig.outcome_of(job);

    let audits = rig.records.audits();
    assert_eq!(audits.len(), 1, "one attempt was void");
    assert_eq!((audits[0].facts.job, audits[0].facts.attempt), (job, 1));
    assert!(!audits[0].noise_blocks.is_empty(), "the blocks it tried are there");
    let decided: Vec<u32> = rig.records.verdict_records().iter().map(|record| record.facts.attempt).collect();
    assert!(!decided.contains(&1), "no record of attempt 1 may exist: {decided:?}");
    rig.assert_sound();
}

#[test]
fn a_rest_after_a_failure_is_said_and_keeps_the_place() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|stage, step| match step {
        StageStep::Prepare if stage.attempt == 1 => {
            Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
        }
        _ => None,
    });
    let (first, second) = (rig.job("equal-1"), rig.job("equal-2"));
    rig.advance(Span::millis(700));

    let sentence = rig.job_sentence(first);
    rig.outcome_of(first);
    rig.outcome_of(second);

    assert!(sentence.starts_with("waits for its next attempt after infrastructure failure 1, "), "{sentence}");
    rig.assert_sound();
}

#[test]
fn a_device_that_stays_busy_is_waited_for_three_minutes() {
    let rig = Scenario::one_shared_device();
    rig.device.be_busy(Some("load1"));
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(61));

    let row = rig.job_row(job);
    rig.advance(Span::minutes(2) + Span::seconds(1));
    let failed = rig.job_row(job).failures;
    rig.device.be_busy(None);
    let outcome = rig.outcome_of(job);

    let thermite_actors::view::JobStatus::Measuring { sentence: Some(sentence), .. } = row.status else {
        panic!("it waits inside its stage: {row:?}");
    };
    assert_eq!(sentence, "waits for a quiet device: load1 is busy, since 1 min, at most 2 min 9 s more");
    assert_eq!(failed, ["the device stayed busy for 3 min: load1 is busy"]);
    assert!(matches!(outcome, JobOutcome::NoGain { .. }));
}

#[test]
fn a_device_lost_under_a_stage_sends_the_job_back_without_counting_it() {
    let rig = Scenario::one_shared_device();
    rig.device.script_judge_stop(StopScript::NotProvedAfter(Span::seconds(1), "pid 9 is left".to_owned()));
    let (first, second) = (rig.job("equal-1"), rig.job("equal-2"));
    let outcome = rig.outcome_of(first);
    rig.device.script_judge_stop(StopScript::ProvedAfter(Span::ZERO));

    let next = rig.outcome_of(second);

    assert!(matches!((outcome, next), (JobOutcome::NoGain { .. }, JobOutcome::NoGain { .. })));
    assert_eq!(rig.job_row(second).failures, Vec::<String>::new());
    rig.assert_sound();
}

#[test]
fn what_cannot_be_measured_is_refused_when_it_is_submitted() {
    let rig = Scenario::one_shared_device();
    let refusal = Refusal::NothingChanged { change: "none".to_owned(), champion: "main".to_owned() };
    rig.workspaces.refuse("none", refusal.clone());

    let answer = rig.submit("none");

    assert_eq!(answer, Err(No::Refusal(refusal)));
    assert_eq!(rig.view().jobs_live, 0);
}

#[test]
fn a_change_that_fails_only_in_its_confirmation_fails_by_its_own_fault() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|stage, step| match (stage.stage, step) {
        (StageKind::Confirmation, StageStep::Block { pair: Pair::ChampionAndChange, .. }) => {
            Some(StepReport::Failed { side: Side::Change, why: "exit status 139".to_owned() })
        }
        _ => None,
    });
    let job = rig.job("faster-1");

    let outcome = rig.outcome_of(job);

    assert!(matches!(outcome, JobOutcome::ChangeFailed { step: ChangeStep::Measure, .. }));
    rig.assert_sound();
}

#[test]
fn an_ended_jobs_attempts_are_forgotten_once() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("faster-1");

    rig.outcome_of(job);
    rig.advance(Span::minutes(1));

    assert_eq!(rig.workspaces.forgotten(), [job]);
}
