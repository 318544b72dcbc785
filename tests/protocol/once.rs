//! Asking twice is asking once (rules A13, D5).

use thermite_actors::testing::ScriptedWorkspaces;
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::time::Span;

use crate::scenario::{Scenario, endless, not_recorded};

#[test]
fn a_development_run_asked_twice_with_one_key_is_one() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let mut ask = rig.asking(1);
    ask.key = Some("try-1".to_owned());

    let first = rig.wait_for(rig.rig.ask(ask.clone()));
    let second = rig.wait_for(rig.rig.ask(ask));

    assert!(first.is_ok());
    assert_eq!(first, second);
    assert_eq!(asked(&rig), 1);
}

#[test]
fn askings_with_one_key_at_the_same_time_are_one() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.records.take(Span::millis(20));
    let mut ask = rig.asking(1);
    ask.key = Some("try-1".to_owned());
    let handle = rig.rig.clone();

    let answers = rig.begin_to(async move {
        let asks = (0..5).map(|_| handle.ask(ask.clone()));
        futures_util::future::join_all(asks).await
    });
    rig.advance(Span::seconds(1));

    let answers = answers.now().expect("all are answered");
    assert!(answers[0].is_ok());
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(asked(&rig), 1);
}

#[test]
fn a_key_whose_asking_was_refused_may_be_asked_again() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.records.refuse("disk full");
    let mut ask = rig.asking(1);
    ask.key = Some("try-1".to_owned());
    let refused = rig.wait_for(rig.rig.ask(ask.clone()));

    rig.records.mend();
    rig.advance(Span::seconds(2));
    let answer = rig.wait_for(rig.rig.ask(ask));

    assert_eq!(refused, Err(not_recorded()));
    assert!(answer.is_ok());
}

#[test]
fn a_job_submitted_twice_with_one_key_is_one_also_at_the_same_time() {
    let rig = Scenario::one_shared_device();
    rig.records.take(Span::millis(20));
    let mut submit = rig.submitting("equal-1");
    submit.key = Some("job-1".to_owned());
    let handle = rig.rig.clone();

    let answers = rig.begin_to({
        let submit = submit.clone();
        async move {
            let submits = (0..4).map(|_| handle.submit(submit.clone()));
            futures_util::future::join_all(submits).await
        }
    });
    rig.advance(Span::seconds(1));
    submit.change = "equal-2".to_owned();
    let later = rig.wait_for(rig.rig.submit(submit)).expect("the run takes jobs");

    let answers: Vec<_> =
        answers.now().expect("all are answered").into_iter().map(|a| a.expect("the run takes jobs")).collect();
    assert_eq!(answers.iter().map(|submitted| submitted.same).collect::<Vec<_>>(), [false, true, true, true]);
    assert!(answers.iter().all(|submitted| submitted.job == answers[0].job));
    assert_eq!((later.job, later.same), (answers[0].job, true));
    assert_eq!(submitted(&rig), 1);
}

#[test]
fn the_same_change_asked_again_gives_the_verdict_there_is() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    let outcome = rig.outcome_of(job);
    let measured = rig.diary().len();

    let again = rig.submit("equal-1").expect("the run takes jobs");

    assert!(matches!(outcome, JobOutcome::NoGain { .. }));
    assert_eq!((again.job, again.same), (job, true));
    assert_eq!(rig.diary().len(), measured, "nothing is measured again");
    assert_eq!(submitted(&rig), 1);
}

#[test]
fn a_job_without_a_verdict_may_be_submitted_again() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|_, _| {
        Some(thermite_core::stage::StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
    });
    let job = rig.job("equal-1");
    let first = rig.outcome_of(job);

    rig.device.script_steps(|_, _| None);
    let again = rig.submit("equal-1").expect("the run takes jobs");
    let second = rig.outcome_of(again.job);

    assert!(matches!(first, JobOutcome::NoVerdict { .. }));
    assert!(!again.same);
    assert_ne!(again.job, job);
    assert!(matches!(second, JobOutcome::NoGain { .. }));
}

#[test]
fn keys_outlive_the_rig() {
    let rig = Scenario::one_shared_device();
    let (mut ask, mut submit) = (rig.asking(1), rig.submitting("equal-1"));
    ask.key = Some("try-1".to_owned());
    submit.key = Some("job-1".to_owned());
    let first_ask = rig.wait_for(rig.rig.ask(ask.clone())).expect("the lane is idle");
    let first_job = rig.wait_for(rig.rig.submit(submit.clone())).expect("the run takes jobs");

    let rig = rig.kill_and_start_again(|_, _| {});
    let second_ask = rig.wait_for(rig.rig.ask(ask)).expect("it was asked before");
    let second_job = rig.wait_for(rig.rig.submit(submit)).expect("it was asked before");

    assert_eq!(second_ask.dev_run, first_ask.dev_run);
    assert_eq!((second_job.job, second_job.same), (first_job.job, true));
}

#[test]
fn a_run_started_twice_with_one_key_is_one() {
    let rig = Scenario::one_shared_device();
    rig.change_run(thermite_core::run::RunState::Ended).expect("a running run can be ended");
    let key = Some("run-1".to_owned());

    let first = rig.wait_for(rig.rig.start_run(ScriptedWorkspaces::request(1), key.clone()));
    let second = rig.wait_for(rig.rig.start_run(ScriptedWorkspaces::request(1), key));

    assert!(first.is_ok());
    assert_eq!(first, second);
}

fn asked(rig: &Scenario) -> usize {
    rig.entries().iter().filter(|entry| matches!(entry, LogEntry::DevRunAsked { .. })).count()
}

fn submitted(rig: &Scenario) -> usize {
    rig.entries().iter().filter(|entry| matches!(entry, LogEntry::JobSubmitted { .. })).count()
}
