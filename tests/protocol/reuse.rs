//! The verdict there is, given again to another run (rule D5).

use thermite_actors::rig::{SubmitJob, Submitted};
use thermite_actors::testing::ScriptedWorkspaces;
use thermite_actors::view::JobStatus;
use thermite_core::ids::{JobId, RunId};
use thermite_core::job::{ChangeStep, JobOutcome};
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_core::stage::{StageStep, StepReport};

use crate::scenario::Scenario;

#[test]
fn another_run_is_given_the_verdict_there_is_by_a_job_of_its_own_and_nothing_is_measured() {
    for change in ["equal-1", "slower-1"] {
        let rig = Scenario::one_shared_device();
        let first = rig.job(change);
        let outcome = rig.outcome_of(first);
        let measured = rig.diary().len();

        let other = next_run(&rig, "main");
        let again = submit(&rig, other, change);
        let given = rig.outcome_of(again.job);

        assert_eq!((again.same, again.ahead), (false, 0));
        assert_ne!(again.job, first);
        assert_eq!(given, outcome);
        assert_eq!(rig.diary().len(), measured, "nothing is measured again");
        let row = rig.job_row(again.job);
        assert_eq!((row.run, row.reused_from), (other, Some(first)));
        assert_eq!(records(&rig, again.job), records(&rig, first), "the very records of the job that was measured");
        // Asked once more in that run it is that run's job.
        let once_more = submit(&rig, other, change);
        assert_eq!((once_more.job, once_more.same), (again.job, true));
        rig.assert_sound();
    }
}

#[test]
fn an_old_win_makes_the_change_champion_of_a_run_whose_champion_it_was_measured_against() {
    let rig = Scenario::one_shared_device();
    let first = rig.job("faster-1");
    rig.outcome_of(first);

    let other = next_run(&rig, "main");
    let again = submit(&rig, other, "faster-1");
    let given = rig.outcome_of(again.job);

    assert_eq!(given, JobOutcome::Win { adopted: true });
    assert_eq!(rig.view().runs[0].champion, "main+faster-1");
    assert_eq!(records(&rig, again.job), records(&rig, first));
    let moved: Vec<JobId> = rig.entries().iter().filter_map(moved_by).collect();
    assert_eq!(moved, [first, again.job]);
    rig.assert_sound();
}

#[test]
fn an_old_win_moves_no_champion_that_has_moved_meanwhile() {
    let rig = Scenario::one_shared_device();
    let first = rig.job("faster-1");
    rig.outcome_of(first);

    let other = next_run(&rig, "main");
    let second = submit(&rig, other, "faster-2");
    rig.outcome_of(second.job);
    let old = SubmitJob { champion: Some("main".to_owned()), ..asking(other, "faster-1") };
    let again = rig.wait_for(rig.rig.submit(old)).expect("the run takes jobs");
    let given = rig.outcome_of(again.job);

    assert_eq!(given, JobOutcome::Win { adopted: false }, "win, not adopted: the champion moved");
    assert_eq!(rig.view().runs[0].champion, "main+faster-2");
    // Against the champion there is by now it is another asking.
    let anew = submit(&rig, other, "faster-1");
    rig.outcome_of(anew.job);
    assert_eq!(rig.job_row(anew.job).reused_from, None);
    rig.assert_sound();
}

#[test]
fn another_champion_kit_or_contract_is_another_asking() {
    let rig = Scenario::one_shared_device();
    rig.outcome_of(rig.job("equal-1"));

    let other = next_run(&rig, "elsewhere");
    let of_champion = submit(&rig, other, "equal-1");
    rig.outcome_of(of_champion.job);
    rig.wait_for(rig.rig.change_run(other, RunState::Ended)).expect("it can be ended");
    rig.workspaces.change_kit(|kit| kit.contract.blocks_most = 150);
    let third = start(&rig, "main");
    let of_contract = submit(&rig, third, "equal-1");
    rig.outcome_of(of_contract.job);

    for job in [of_champion.job, of_contract.job] {
        assert_eq!(rig.job_row(job).reused_from, None);
    }
}

#[test]
fn a_change_that_failed_is_judged_anew_in_another_run() {
    let rig = Scenario::one_shared_device();
    let first = rig.job("broken-1");
    let outcome = rig.outcome_of(first);
    assert!(matches!(outcome, JobOutcome::ChangeFailed { step: ChangeStep::Measure, .. }));

    let other = next_run(&rig, "main");
    let again = submit(&rig, other, "broken-1");
    rig.outcome_of(again.job);

    assert_eq!(rig.job_row(again.job).reused_from, None);
}

#[test]
fn a_verdict_is_given_again_by_a_rig_that_was_killed_and_once() {
    // At every append from the submission on, kept or lost with the machine.
    for (append, durable) in [(1, false), (1, true), (2, false), (2, true)] {
        let rig = Scenario::one_shared_device();
        let first = rig.job("faster-1");
        rig.outcome_of(first);
        let other = next_run(&rig, "main");
        rig.records.die_at(rig.records.appends() + append, durable);
        let submit = asking(other, "faster-1");
        let keyed = SubmitJob { key: Some("k".to_owned()), ..submit };
        let answer = rig.begin_to({
            let (rig, keyed) = (rig.rig.clone(), keyed.clone());
            async move { rig.submit(keyed).await }
        });
        assert!(rig.records.is_dead(), "append {append} was asked for");
        assert!(answer.now().is_none_or(|answer| answer.is_ok() && append == 2));

        let rig = rig.kill_and_start_again(|device, _| {
            device.script_steps(|_, step| panic!("nothing is measured again: {step}"));
        });
        let again = rig.wait_for(rig.rig.submit(keyed)).expect("the run takes jobs");
        let given = rig.outcome_of(again.job);

        assert_eq!(given, JobOutcome::Win { adopted: true }, "append {append}, durable {durable}");
        let moved: Vec<JobId> = rig.entries().iter().filter_map(moved_by).collect();
        assert_eq!(moved, [first, again.job], "append {append}, durable {durable}");
        let ends = rig.entries().iter().filter(|entry| matches!(entry, LogEntry::JobEnded { .. })).count();
        assert_eq!(ends, 2);
        assert_eq!(rig.job_row(again.job).reused_from, Some(first));
        rig.assert_sound();
    }
}

#[test]
fn a_screening_won_in_a_run_that_ended_before_the_confirmation_is_no_verdict() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|stage, step| match (stage.stage, step) {
        (thermite_core::job::StageKind::Confirmation, StageStep::Prepare) if stage.attempt == 1 => {
            Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
        }
        _ => None,
    });
    let first = rig.job("faster-1");
    while !rig.entries().iter().any(|entry| matches!(entry, LogEntry::AttemptFailed { .. })) {
        rig.advance(thermite_core::time::Span::millis(500));
    }
    let other = next_run(&rig, "main");
    assert!(matches!(rig.outcome_of(first), JobOutcome::NoVerdict { .. }));

    rig.device.script_steps(|_, _| None);
    let again = submit(&rig, other, "faster-1");
    rig.outcome_of(again.job);

    assert_eq!(rig.job_row(again.job).reused_from, None);
}

/// Ends the run and starts another over that champion.
fn next_run(rig: &Scenario, champion: &str) -> RunId {
    rig.change_run(RunState::Ended).expect("a running run can be ended");
    start(rig, champion)
}

fn start(rig: &Scenario, champion: &str) -> RunId {
    let mut request = ScriptedWorkspaces::request(3);
    request.champion = champion.to_owned();
    let run = rig.wait_for(rig.rig.start_run(request, None)).expect("no other run is worked on");
    rig.time.settle();
    run
}

fn asking(run: RunId, change: &str) -> SubmitJob {
    SubmitJob { run, champion: None, change: change.to_owned(), key: None }
}

fn submit(rig: &Scenario, run: RunId, change: &str) -> Submitted {
    let answer = rig.wait_for(rig.rig.submit(asking(run, change))).expect("the run takes jobs");
    rig.time.settle();
    answer
}

fn records(rig: &Scenario, job: JobId) -> (Option<String>, Option<String>) {
    match rig.job_row(job).status {
        JobStatus::Ended { record, screening, .. } => (record, screening),
        status => panic!("{job} is not over: {status:?}"),
    }
}

fn moved_by(entry: &LogEntry) -> Option<JobId> {
    match entry {
        LogEntry::ChampionMoved { by, .. } => Some(*by),
        _ => None,
    }
}
