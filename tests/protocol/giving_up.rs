//! A development run that has waited ten minutes gives up, with the sentence that is true then (rule A6).

use thermite_actors::testing::{DevRunScript, StopScript};
use thermite_core::contract::Contract;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::refusal::GaveUp;
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario};

#[test]
fn it_gives_up_on_a_judge_that_kept_the_device() {
    let rig = Scenario::one_shared_device();
    rig.device.steps_take(Span::millis(500), Span::minutes(2));
    rig.job("equal-1");

    let (end, waited) = asked_and_ended(&rig, 1);

    assert_eq!(end, DevRunEnd::GaveUp { why: GaveUp::JudgeKeptDevice });
    assert_eq!(sentence(&end), "the judge kept the device busy; try again later");
    assert_eq!(waited, Span::minutes(10));
    rig.assert_sound();
}

#[test]
fn it_gives_up_on_another_lane_that_held_the_device() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|device, workspaces| {
            device.script_dev_runs(|_| DevRunScript::endless());
            let contract = Contract { dev_run_max: Some(Span::minutes(30)), ..Contract::default() };
            workspaces.change_kit(|kit| kit.contract = contract);
        }),
        ..Beginning::default()
    });
    rig.dev_run(1);

    let (end, waited) = asked_and_ended(&rig, 2);

    assert_eq!(sentence(&end), "another lane's dev run held the device; try again later");
    assert_eq!(waited, Span::minutes(10));
    rig.assert_sound();
}

#[test]
fn it_gives_up_on_a_device_that_was_out_of_service() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript {
        stop: StopScript::NotProvedAfter(Span::seconds(3), "pid 4711 does not end".to_owned()),
        ..DevRunScript::lasting(Span::seconds(1))
    });
    rig.device.script_sweep(StopScript::NotProvedAfter(Span::seconds(1), "pid 4711 is still there".to_owned()));
    let fatal = rig.dev_run(1);
    rig.end_of(fatal);

    let (end, waited) = asked_and_ended(&rig, 2);

    assert_eq!(sentence(&end), "the device was out of service; try again later");
    assert_eq!(waited, Span::minutes(10));
    rig.assert_sound();
}

#[test]
fn the_trial_goes_on_after_giving_up() {
    let rig = Scenario::one_shared_device();
    rig.device.steps_take(Span::millis(500), Span::minutes(2));
    let job = rig.job("equal-1");
    let (gave_up, _) = asked_and_ended(&rig, 1);

    rig.device.steps_take(Span::millis(500), Span::millis(600));
    rig.outcome_of(job);
    let (end, _) = asked_and_ended(&rig, 1);

    assert!(matches!(gave_up, DevRunEnd::GaveUp { .. }));
    assert!(matches!(end, DevRunEnd::Exited { .. }));
    rig.assert_sound();
}

/// Asks for a development run and waits for its end; says how long that took.
fn asked_and_ended(rig: &Scenario, lane: u32) -> (DevRunEnd, Span) {
    let asked = rig.now();
    let dev_run = rig.dev_run(lane);
    let end = rig.end_of(dev_run);
    (end, rig.now().since(asked))
}

fn sentence(end: &DevRunEnd) -> String {
    match end {
        DevRunEnd::GaveUp { why } => why.to_string(),
        other => panic!("it did not give up: {other:?}"),
    }
}
