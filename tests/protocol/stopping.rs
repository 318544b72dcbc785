//! Stops: cancels, dropped streams, and proofs that do not come (rules A7, A10, B10).

use thermite_actors::testing::{Call, DevRunScript, StartScript, StopScript};
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::device::DeviceView;
use thermite_core::ids::DevRunId;
use thermite_core::lane::Caller;
use thermite_core::time::Span;

use crate::scenario::{Pending, Scenario, endless};

#[test]
fn a_cancel_is_answered_only_when_nothing_is_left() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript {
        stop: StopScript::ProvedAfter(Span::seconds(3)),
        ..DevRunScript::endless()
    });
    let dev_run = rig.dev_run(1);
    rig.advance(Span::seconds(30));

    let answer = begin_cancel(&rig, dev_run);
    rig.advance(Span::millis(2_999));
    let before = answer.now();
    rig.advance(Span::millis(1));

    assert_eq!(before, None);
    assert_eq!(answer.now(), Some(DevRunEnd::Cancelled));
    assert_eq!(rig.diary().last().expect("something happened").call, Call::Emptied);
    rig.assert_sound();
}

#[test]
fn a_waiting_development_run_leaves_the_line_when_cancelled_and_is_never_started() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.dev_run(1);
    let waiting = rig.dev_run(2);

    let answer = begin_cancel(&rig, waiting);
    rig.advance(Span::minutes(20));

    assert_eq!(answer.now(), Some(DevRunEnd::Cancelled));
    assert_eq!(rig.exec_of(waiting), None);
    rig.assert_sound();
}

#[test]
fn the_first_cause_of_a_stop_wins_and_later_cancels_join_it() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript {
        stop: StopScript::ProvedAfter(Span::seconds(4)),
        ..DevRunScript::endless()
    });
    let dev_run = rig.dev_run(1);
    rig.advance(Span::minutes(5) + Span::seconds(1));

    let answers = [begin_cancel(&rig, dev_run), begin_cancel(&rig, dev_run)];
    rig.advance(Span::seconds(3));

    let limit = DevRunEnd::LimitReached { limit: Span::minutes(5) };
    assert_eq!(answers.map(|answer| answer.now()), [Some(limit.clone()), Some(limit)]);
    let stops = rig.diary().iter().filter(|line| matches!(line.call, Call::Stop { .. })).count();
    assert_eq!(stops, 1, "the stop under way is not begun again");
    rig.assert_sound();
}

#[test]
fn a_cancel_while_it_is_prepared_stops_the_start() {
    let rig = Scenario::one_shared_device();
    rig.device
        .script_dev_runs(|_| DevRunScript { start: StartScript::After(Span::minutes(1)), ..DevRunScript::endless() });
    let dev_run = rig.dev_run(1);
    rig.advance(Span::seconds(30));

    let answer = begin_cancel(&rig, dev_run);
    rig.advance(Span::minutes(2));

    assert_eq!(answer.now(), Some(DevRunEnd::Cancelled));
    assert_eq!(rig.exec_of(dev_run), None);
    rig.assert_sound();
}

#[test]
fn a_cancel_in_the_instant_of_the_asking_is_kept() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.records.take(Span::seconds(1));
    let asked = rig.begin_to({
        let (handle, ask) = (rig.rig.clone(), rig.asking(1));
        async move { handle.ask(ask).await }
    });
    let dev_run = rig.view().dev_runs[0].dev_run;

    let answer = begin_cancel(&rig, dev_run);
    rig.advance(Span::seconds(5));

    assert_eq!(asked.now().map(|queued| queued.expect("it is accepted").dev_run), Some(dev_run));
    assert_eq!(answer.now(), Some(DevRunEnd::Cancelled));
    assert_eq!(rig.exec_of(dev_run), None);
    rig.assert_sound();
}

#[test]
fn a_preparation_that_hangs_is_ended_at_its_limit() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript { start: StartScript::Hangs, ..DevRunScript::endless() });
    let asked = rig.now();
    let dev_run = rig.dev_run(1);

    let end = rig.end_of(dev_run);

    assert_eq!(end, DevRunEnd::NotStarted { why: "it was not prepared within 2 min".to_owned() });
    assert_eq!(rig.now().since(asked), Span::minutes(2));
    rig.assert_sound();
}

#[test]
fn a_start_that_fails_says_why_and_frees_the_device() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|spec| {
        if spec.lane.number() == 1 {
            let start = StartScript::Fails(Span::seconds(1), "no such file or directory".to_owned());
            DevRunScript { start, ..DevRunScript::endless() }
        } else {
            DevRunScript::lasting(Span::seconds(1))
        }
    });
    let (fails, next) = (rig.dev_run(1), rig.dev_run(2));

    let ends = [rig.end_of(fails), rig.end_of(next)];

    assert_eq!(ends[0], DevRunEnd::NotStarted { why: "no such file or directory".to_owned() });
    assert!(matches!(ends[1], DevRunEnd::Exited { .. }));
    rig.assert_sound();
}

#[test]
fn a_stop_that_is_not_proved_says_so_after_ten_seconds_and_takes_the_device_out() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript { stop: StopScript::Hangs, ..DevRunScript::endless() });
    let dev_run = rig.dev_run(1);
    rig.advance(Span::seconds(1));

    let answer = begin_cancel(&rig, dev_run);
    rig.advance(Span::millis(9_999));
    let before = answer.now();
    rig.advance(Span::millis(1));

    let why = "the stop of hold 1 was not proved within 10 s".to_owned();
    assert_eq!(before, None);
    assert_eq!(answer.now(), Some(DevRunEnd::NotProved { why: why.clone() }));
    assert!(matches!(&rig.view().devices[0].state, DeviceView::Out { why: said, .. } if *said == why));
    rig.assert_sound();
}

#[test]
fn a_device_out_of_service_comes_back_by_itself_and_others_go_on() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|spec| {
        if spec.lane.number() == 1 {
            let stop = StopScript::NotProvedAfter(Span::seconds(5), "pid 4711 does not end".to_owned());
            DevRunScript { stop, ..DevRunScript::lasting(Span::seconds(1)) }
        } else {
            DevRunScript::lasting(Span::seconds(1))
        }
    });
    let (fatal, waiting) = (rig.dev_run(1), rig.dev_run(2));

    let fatal = rig.end_of(fatal);
    let out_at = rig.now();
    let sentence = rig.sentence(waiting);
    let end = rig.end_of(waiting);

    assert_eq!(fatal, DevRunEnd::NotProved { why: "pid 4711 does not end".to_owned() });
    assert_eq!(
        sentence,
        "waits for a ready device: pid 4711 does not end, next in line, since 6.0 s, at most 9 min 54 s more"
    );
    assert_eq!(end, DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::seconds(1) });
    assert_eq!(rig.now().since(out_at), Span::seconds(31), "it rests 30 s, is swept, and runs for 1 s");
    rig.assert_sound();
}

#[test]
fn a_device_whose_sweep_fails_is_tried_again_until_it_is_clean() {
    let rig = Scenario::begin(crate::scenario::Beginning {
        set: Box::new(|device, _| {
            device.script_sweep(StopScript::NotProvedAfter(Span::seconds(1), "pid 7 is left".to_owned()));
        }),
        ..Default::default()
    });
    let dev_run = rig.dev_run(1);
    rig.advance(Span::minutes(2));
    let sweeps = rig.diary().iter().filter(|line| line.call == Call::Sweep).count();

    rig.device.script_sweep(StopScript::ProvedAfter(Span::seconds(1)));
    let end = rig.end_of(dev_run);

    assert!(sweeps >= 3, "{sweeps} sweeps in 2 minutes");
    assert!(matches!(end, DevRunEnd::Exited { .. }));
    rig.assert_sound();
}

#[test]
fn a_run_is_ended_ten_seconds_after_its_callers_stream_dropped() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let dev_run = attached(&rig);

    rig.wait_for(rig.rig.caller_present(dev_run, false));
    rig.advance(Span::millis(9_999));
    let before = rig.runs(dev_run);
    rig.advance(Span::millis(1));

    assert!(before);
    assert_eq!(rig.end_of(dev_run), DevRunEnd::Cancelled);
    rig.assert_sound();
}

#[test]
fn a_caller_that_is_back_in_time_keeps_its_run_and_one_that_is_late_does_not() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let dev_run = attached(&rig);

    rig.wait_for(rig.rig.caller_present(dev_run, false));
    rig.advance(Span::seconds(9));
    rig.wait_for(rig.rig.caller_present(dev_run, true));
    rig.advance(Span::seconds(60));
    let kept = rig.runs(dev_run);
    rig.wait_for(rig.rig.caller_present(dev_run, false));
    rig.advance(Span::seconds(10));
    rig.wait_for(rig.rig.caller_present(dev_run, true));

    assert!(kept);
    assert_eq!(rig.end_of(dev_run), DevRunEnd::Cancelled, "it does not return");
    rig.assert_sound();
}

#[test]
fn a_detached_run_does_not_need_its_caller() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let dev_run = rig.dev_run(1);

    rig.wait_for(rig.rig.caller_present(dev_run, false));
    rig.advance(Span::minutes(1));

    assert!(rig.runs(dev_run));
    rig.assert_sound();
}

#[test]
fn an_attached_run_leaves_the_line_when_its_caller_is_gone() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.dev_run(2);
    let waiting = attached(&rig);

    rig.wait_for(rig.rig.caller_present(waiting, false));
    rig.advance(Span::seconds(10));

    assert_eq!(rig.end_of(waiting), DevRunEnd::Cancelled);
    assert_eq!(rig.exec_of(waiting), None);
    rig.assert_sound();
}

fn attached(rig: &Scenario) -> DevRunId {
    let mut ask = rig.asking(1);
    ask.caller = Caller::Attached;
    let queued = rig.wait_for(rig.rig.ask(ask)).expect("the lane is idle");
    rig.time.settle();
    queued.dev_run
}

fn begin_cancel(rig: &Scenario, dev_run: DevRunId) -> Pending<DevRunEnd> {
    let handle = rig.rig.clone();
    rig.begin_to(async move { handle.cancel(dev_run).await.expect("the development run is there") })
}
