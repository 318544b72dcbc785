//! Development runs: one at a time, in turn, each with an end.

use thermite_actors::rig::{No, Queued};
use thermite_actors::testing::{Call, DevRunScript, StopScript};
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::ids::LaneId;
use thermite_core::refusal::Refusal;
use thermite_core::time::Span;

use crate::scenario::{Scenario, endless};

#[test]
fn a_development_run_goes_from_the_asking_to_its_end() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(7)));

    let queued = rig.ask(1).expect("the lane is idle");
    let end = rig.end_of(queued.dev_run);

    assert_eq!(queued.ahead, 0);
    assert_eq!(end, DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::seconds(7) });
    let calls: Vec<Call> = rig.diary().into_iter().map(|line| line.call).collect();
    assert_eq!(
        calls,
        [
            Call::Sweep,
            Call::Start(queued.dev_run),
            Call::Exec(queued.dev_run),
            Call::Exited(Exit::Code(0)),
            Call::Stop { gently: false },
            Call::Emptied,
        ]
    );
    rig.assert_sound();
}

#[test]
fn a_lane_has_one_development_run_and_the_refusal_names_it() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let under_way = rig.dev_run(2);

    let answer = rig.ask(2);

    let lane = LaneId::new(2).expect("lane 2 exists");
    assert_eq!(answer, Err(No::Refusal(Refusal::LaneBusy { lane, under_way })));
    rig.assert_sound();
}

#[test]
fn development_runs_of_all_lanes_take_turns_in_order_of_arrival() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::minutes(1)));

    let asked: Vec<Queued> = [3, 1, 2].map(|lane| rig.ask(lane).expect("the lane is idle")).to_vec();
    rig.advance(Span::minutes(10));

    let execs: Vec<_> = asked.iter().map(|queued| rig.exec_of(queued.dev_run).expect("it was started")).collect();
    assert_eq!(asked.iter().map(|queued| queued.ahead).collect::<Vec<_>>(), [0, 0, 1]);
    assert!(execs.is_sorted(), "{execs:?}");
    rig.assert_sound();
}

#[test]
fn a_development_run_is_ended_at_its_five_minutes() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript {
        stop: StopScript::ProvedAfter(Span::seconds(2)),
        ..DevRunScript::endless()
    });
    let dev_run = rig.dev_run(1);

    let end = rig.end_of(dev_run);

    let began = rig.exec_of(dev_run).expect("it was started");
    assert_eq!(end, DevRunEnd::LimitReached { limit: Span::minutes(5) });
    assert_eq!(rig.now().since(began), Span::minutes(5) + Span::seconds(2));
    assert!(rig.diary().iter().any(|line| line.call == Call::Stop { gently: true }));
    rig.assert_sound();
}

#[test]
fn what_can_never_run_is_refused_when_it_is_asked_for() {
    let rig = Scenario::one_shared_device();
    let mut empty = rig.asking(1);
    empty.argv.clear();

    let answers = [rig.ask(4), rig.ask(0), rig.wait_for(rig.rig.ask(empty))];

    let unknown = |lane| Err(No::Refusal(Refusal::UnknownLane { lane, have: "lanes 1 to 3".to_owned() }));
    assert_eq!(answers, [unknown(4), unknown(0), Err(No::Refusal(Refusal::EmptyCommand))]);
    assert_eq!(rig.view().dev_runs, []);
}
