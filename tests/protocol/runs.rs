//! Runs are started, paused, resumed and ended (rule A3).

use thermite_actors::rig::No;
use thermite_actors::testing::{DevRunScript, ScriptedWorkspaces};
use thermite_actors::view::JobStatus;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::ids::RunId;
use thermite_core::job::JobOutcome;
use thermite_core::refusal::{GaveUp, Refusal};
use thermite_core::run::RunState;
use thermite_core::stage::StepReport;
use thermite_core::time::Span;

use crate::scenario::{Scenario, endless};

#[test]
fn a_paused_runs_waiting_development_runs_leave_the_line_and_the_one_that_runs_goes_on() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::minutes(2)));
    let (runs, waits) = (rig.dev_run(1), rig.dev_run(2));

    let paused = rig.change_run(RunState::Paused);
    let (left, goes_on) = (rig.end_of(waits), rig.end_of(runs));
    let refused = rig.ask(3);

    assert_eq!(paused, Ok(RunState::Paused));
    assert_eq!(left, DevRunEnd::GaveUp { why: GaveUp::RunPaused });
    assert!(matches!(goes_on, DevRunEnd::Exited { .. }));
    assert_eq!(refused, Err(No::Refusal(Refusal::RunPaused { run: rig.run })));
    rig.assert_sound();
}

#[test]
fn a_paused_runs_stage_finishes_and_its_other_jobs_keep_their_place() {
    let rig = Scenario::one_shared_device();
    let (first, second) = (rig.job("equal-1"), rig.job("equal-2"));
    rig.advance(Span::seconds(10));

    rig.change_run(RunState::Paused).expect("a running run can be paused");
    let finished = rig.outcome_of(first);
    rig.advance(Span::hours(1));
    let waits = rig.job_sentence(second);
    rig.change_run(RunState::Running).expect("a paused run can be resumed");
    let resumed = rig.outcome_of(second);

    assert!(matches!(finished, JobOutcome::NoGain { .. }));
    assert!(waits.starts_with(&format!("waits for run {} to be resumed, next in line, since 1 h", rig.run)), "{waits}");
    assert!(waits.ends_with("no latest moment: the run is paused"), "{waits}");
    assert!(matches!(resumed, JobOutcome::NoGain { .. }));
    rig.assert_sound();
}

#[test]
fn a_paused_run_takes_jobs_and_another_runs_development_run_waits_for_them() {
    let rig = Scenario::one_shared_device();
    rig.change_run(RunState::Paused).expect("a running run can be paused");
    let job = rig.job("equal-1");
    let other = start_another(&rig);

    let mut ask = rig.asking(1);
    ask.run = other;
    let dev_run = rig.wait_for(rig.rig.ask(ask)).expect("the other run has idle lanes").dev_run;
    rig.time.settle();
    let sentence = rig.sentence(dev_run);
    let end = rig.end_of(dev_run);

    assert_eq!(
        sentence,
        format!(
            "waits for jobs of paused run {}, which keep their place until it is resumed, next in line, since 0.0 s, at \
             most 10 min more",
            rig.run
        )
    );
    assert_eq!(end, DevRunEnd::GaveUp { why: GaveUp::JudgeKeptDevice });
    assert!(rig.job_sentence(job).ends_with("no latest moment: the run is paused"));
    rig.assert_sound();
}

#[test]
fn one_run_is_worked_on_at_a_time() {
    let rig = Scenario::one_shared_device();

    let second = rig.wait_for(rig.rig.start_run(ScriptedWorkspaces::request(1), None));
    rig.change_run(RunState::Paused).expect("a running run can be paused");
    let other = start_another(&rig);
    let resumed = rig.change_run(RunState::Running);

    assert_eq!(second, Err(No::Refusal(Refusal::AnotherRun { under_way: rig.run })));
    assert_eq!(resumed, Err(No::Refusal(Refusal::AnotherRun { under_way: other })));
}

#[test]
fn ending_a_run_stops_its_development_run_first_and_ends_its_jobs() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let (runs, waits) = (rig.dev_run(1), rig.dev_run(2));
    rig.advance(Span::seconds(5));
    let job = rig.job("equal-1");

    let ended = rig.change_run(RunState::Ended);

    assert_eq!(ended, Ok(RunState::Ended));
    assert!(!rig.runs(runs), "the answer comes after the stop");
    assert_eq!(rig.end_of(runs), DevRunEnd::GaveUp { why: GaveUp::RunEnded });
    assert_eq!(rig.end_of(waits), DevRunEnd::GaveUp { why: GaveUp::RunEnded });
    assert_eq!(rig.outcome_of(job), JobOutcome::NoVerdict { why: "the run has ended".to_owned() });
    assert_eq!(rig.ask(1), Err(No::Refusal(Refusal::RunEnded { run: rig.run })));
    rig.assert_sound();
}

#[test]
fn a_development_run_asked_in_the_instant_of_the_pause_does_not_stay_in_the_line() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.dev_run(2);
    rig.records.take(Span::millis(50));
    let (handle, run, ask) = (rig.rig.clone(), rig.run, rig.asking(1));

    // The asking is accepted before the pause is asked for, and durable after it.
    let both = rig.begin_to(async move {
        futures_util::future::join(handle.ask(ask), handle.change_run(run, RunState::Paused)).await
    });
    rig.advance(Span::seconds(1));
    let (asked, paused) = both.now().expect("both are answered");
    let dev_run = asked.expect("the run was not paused when it was asked for").dev_run;
    let row = rig.dev_run_row(dev_run);

    assert_eq!(paused, Ok(RunState::Paused));
    let left = thermite_actors::view::DevRunStatus::Ended { end: DevRunEnd::GaveUp { why: GaveUp::RunPaused } };
    assert_eq!(row.status, left);
    rig.assert_sound();
}

#[test]
fn a_resumed_runs_development_runs_wait_again() {
    let rig = Scenario::one_shared_device();
    rig.change_run(RunState::Paused).expect("a running run can be paused");
    rig.change_run(RunState::Running).expect("a paused run can be resumed");

    let dev_run = rig.dev_run(1);

    assert!(matches!(rig.end_of(dev_run), DevRunEnd::Exited { .. }));
}

#[test]
fn ending_a_run_stops_its_stage_under_way_and_the_device_is_free() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(3));

    rig.change_run(RunState::Ended).expect("a running run can be ended");
    rig.advance(Span::seconds(1));

    let JobStatus::Ended { outcome, .. } = rig.job_row(job).status else { panic!("the job is over") };
    assert_eq!(outcome, JobOutcome::NoVerdict { why: "the run has ended".to_owned() });
    let device = &rig.wait_for(rig.rig.view()).expect("the rig is there").devices[0];
    assert_eq!(device.state, DeviceView::Ready);
    rig.assert_sound();
}

#[test]
fn a_job_whose_stage_is_stopped_after_its_run_ended_is_over() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(10));
    rig.change_run(RunState::Ended).expect("a running run can be ended");

    // Its steps fail from here on, which is an infrastructure failure.
    rig.device.script_steps(|_, _| Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() }));
    let outcome = rig.outcome_of(job);
    let other = start_another(&rig);
    let mut ask = rig.asking(1);
    ask.run = other;
    let dev_run = rig.wait_for(rig.rig.ask(ask)).expect("the other run has idle lanes").dev_run;

    assert!(matches!(outcome, JobOutcome::NoVerdict { .. }), "{outcome:?}");
    assert!(matches!(rig.end_of(dev_run), DevRunEnd::Exited { .. }), "nothing keeps the next run's lanes back");
    rig.assert_sound();
}

#[test]
fn a_job_that_goes_back_to_the_queue_of_a_run_that_has_ended_is_over() {
    // The run's end becomes durable somewhere around the failure of the job's attempt: before it, while the failure is
    // being made durable, or after.
    for offset in (100..1_200).step_by(50) {
        let rig = Scenario::one_shared_device();
        rig.device.script_steps(|_, _| Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() }));
        rig.records.take(Span::millis(200));
        let job = rig.job("equal-1");
        rig.advance(Span::millis(offset));

        rig.change_run(RunState::Ended).expect("a running run can be ended");
        rig.advance(Span::minutes(1));

        let status = rig.job_row(job).status;
        assert!(
            matches!(status, JobStatus::Ended { outcome: JobOutcome::NoVerdict { .. }, .. }),
            "{offset}: {status:?}"
        );
        assert_eq!(rig.view().jobs_live, 0);
        let other = start_another(&rig);
        let mut ask = rig.asking(1);
        ask.run = other;
        let dev_run = rig.wait_for(rig.rig.ask(ask)).expect("the other run has idle lanes").dev_run;
        assert!(matches!(rig.end_of(dev_run), DevRunEnd::Exited { .. }), "nothing keeps the next run's lanes back");
        rig.assert_sound();
    }
}

#[test]
fn a_pause_and_a_resume_in_one_instant_are_answered_in_their_order() {
    let rig = Scenario::one_shared_device();
    rig.records.take(Span::millis(50));
    let (handle, run) = (rig.rig.clone(), rig.run);

    let both = rig.begin_to(async move {
        futures_util::future::join(handle.change_run(run, RunState::Paused), handle.change_run(run, RunState::Running))
            .await
    });
    rig.advance(Span::seconds(5));

    assert_eq!(both.now(), Some((Ok(RunState::Paused), Ok(RunState::Running))));
    assert_eq!(rig.view().runs[0].state, RunState::Running);
    rig.assert_sound();
}

fn start_another(rig: &Scenario) -> RunId {
    let run = rig.wait_for(rig.rig.start_run(ScriptedWorkspaces::request(2), None)).expect("no run is worked on");
    rig.time.settle();
    run
}
