//! The judge goes first on a shared device (rules A2, A3).

use thermite_actors::testing::{Call, DevRunScript};
use thermite_core::ids::{HoldId, JobId};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::time::{Moment, Span};

use crate::scenario::{Scenario, endless};

#[test]
fn a_waiting_development_run_is_granted_only_after_the_last_job() {
    let rig = Scenario::one_shared_device();
    let (first, second) = (rig.job("equal-1"), rig.job("equal-2"));

    let dev_run = rig.dev_run(1);
    let outcomes = [rig.outcome_of(first), rig.outcome_of(second)];
    rig.advance(Span::minutes(1));

    let began = rig.exec_of(dev_run).expect("it was started in the end");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, JobOutcome::NoGain { .. })), "{outcomes:?}");
    assert!(began >= last_step(&rig, second), "it was started while a job was not over");
    assert!(last_step(&rig, second) > last_step(&rig, first));
    rig.assert_sound();
}

#[test]
fn a_job_whose_confirmation_is_still_to_come_keeps_development_runs_back() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("faster-1");

    let dev_run = rig.dev_run(1);
    let outcome = rig.outcome_of(job);
    rig.advance(Span::minutes(1));

    let holds: Vec<HoldId> = holds_of(&rig, job);
    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(holds.len(), 2, "a screening and a confirmation");
    assert!(rig.exec_of(dev_run).expect("it was started in the end") >= last_step(&rig, job));
    rig.assert_sound();
}

#[test]
fn a_job_submitted_while_a_development_run_runs_waits_until_that_ends() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let dev_run = rig.dev_run(2);
    rig.advance(Span::minutes(1));

    let job = rig.job("equal-1");
    rig.advance(Span::minutes(1));
    let sentence = rig.job_sentence(job);
    let end = rig.end_of(dev_run);
    let ended = rig.now();
    rig.outcome_of(job);

    assert_eq!(
        sentence,
        format!(
            "waits for lane 2, which holds device 0 for development run {dev_run}, next in line, since 1 min, at most 3 \
             min 40 s more"
        )
    );
    assert!(matches!(end, thermite_core::dev_run::DevRunEnd::LimitReached { .. }));
    assert!(first_step(&rig, job) >= ended);
    rig.assert_sound();
}

#[test]
fn a_later_development_run_does_not_pass_a_job_that_waits() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::minutes(2)));
    rig.dev_run(1);
    let job = rig.job("equal-1");

    let later = rig.dev_run(2);
    rig.outcome_of(job);
    rig.advance(Span::minutes(1));

    assert!(rig.exec_of(later).expect("it was started in the end") >= last_step(&rig, job));
    rig.assert_sound();
}

#[test]
fn a_submit_that_is_answered_is_never_passed_by_a_development_run_asked_in_the_same_instant() {
    let rig = Scenario::one_shared_device();
    rig.records.take(Span::millis(5));

    let submitted = rig.begin_to({
        let (handle, job) = (rig.rig.clone(), rig.submitting("equal-1"));
        async move { handle.submit(job).await }
    });
    let queued = rig.begin_to({
        let (handle, ask) = (rig.rig.clone(), rig.asking(1));
        async move { handle.ask(ask).await }
    });
    rig.advance(Span::minutes(5));

    let job = submitted.now().expect("it was answered").expect("the run takes jobs").job;
    let dev_run = queued.now().expect("it was answered").expect("the lane is idle").dev_run;
    let began = rig.exec_of(dev_run).expect("it was started in the end");
    assert!(began >= last_step(&rig, job));
    rig.assert_sound();
}

fn steps(rig: &Scenario, of: JobId) -> Vec<Moment> {
    let diary = rig.diary();
    diary.iter().filter(|line| matches!(&line.call, Call::Step { job, .. } if *job == of)).map(|line| line.at).collect()
}

fn first_step(rig: &Scenario, job: JobId) -> Moment {
    *steps(rig, job).first().expect("the job was measured")
}

fn last_step(rig: &Scenario, job: JobId) -> Moment {
    *steps(rig, job).last().expect("the job was measured")
}

fn holds_of(rig: &Scenario, of: JobId) -> Vec<HoldId> {
    rig.entries()
        .into_iter()
        .filter_map(|entry| match entry {
            LogEntry::StageStarted { job, hold, .. } if job == of => Some(hold),
            _ => None,
        })
        .collect()
}
