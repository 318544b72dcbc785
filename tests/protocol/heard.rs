//! What listeners hear (rule A9): each change of a development run's status, with the sentence that all doors give.

use thermite_actors::testing::{DevRunScript, StartScript, StopScript};
use thermite_actors::view::{DevRunStatus, RigHappening};
use thermite_core::ids::DevRunId;
use thermite_core::time::Span;

use crate::scenario::Scenario;

#[test]
fn a_development_runs_changes_are_told_each_once_and_in_order() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| unhurried());
    let first = rig.dev_run(1);
    let second = rig.dev_run(2);
    rig.end_of(first);
    rig.end_of(second);

    let heard = statuses(&rig, second);

    let line = format!(
        "waits for lane 1, which holds device 0 for development run {first}, next in line, since 0.0 s, at most 10 min more"
    );
    let words: Vec<String> = heard.iter().map(word).collect();
    assert_eq!(words, ["recording", line.as_str(), "starting", "running", "stopping", "ended"]);
}

#[test]
fn a_wait_whose_reason_changes_is_told_again() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| unhurried());
    rig.dev_run(1);
    let waits = rig.dev_run(2);
    rig.advance(Span::seconds(5));
    let job = rig.job("equal-1");
    rig.end_of(waits);

    let heard = statuses(&rig, waits);

    let words: Vec<String> = heard.iter().map(word).collect();
    let for_judge = format!("waits for the judge, which holds device 0 for job {job}, next in line, since 22 s");
    let told = words.iter().position(|word| word.starts_with(&for_judge));
    assert!(told.is_some_and(|told| words[told + 1..] == ["starting", "running", "stopping", "ended"]), "{words:#?}");
}

/// One of which every status lasts: the herald tells what it sees, not what is over in the same instant.
fn unhurried() -> DevRunScript {
    DevRunScript {
        start: StartScript::After(Span::seconds(1)),
        stop: StopScript::ProvedAfter(Span::seconds(1)),
        ..DevRunScript::lasting(Span::seconds(20))
    }
}

fn statuses(rig: &Scenario, of: DevRunId) -> Vec<DevRunStatus> {
    rig.events()
        .iter()
        .filter_map(|event| match &event.what {
            RigHappening::DevRun { row } if row.dev_run == of => Some(row.status.clone()),
            _ => None,
        })
        .collect()
}

fn word(status: &DevRunStatus) -> String {
    match status {
        DevRunStatus::Recording { .. } => "recording".to_owned(),
        DevRunStatus::Waiting { sentence, .. } => sentence.clone(),
        DevRunStatus::Starting { .. } => "starting".to_owned(),
        DevRunStatus::Running { .. } => "running".to_owned(),
        DevRunStatus::Stopping { .. } => "stopping".to_owned(),
        DevRunStatus::Ended { .. } => "ended".to_owned(),
    }
}
