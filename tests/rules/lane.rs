//! One lane: one development run at a time, its stop and its answer (rules A4, A6, A10).

use proptest::prelude::*;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::Arrival;
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput, LaneState};
use thermite_core::limits;
use thermite_core::refusal::GaveUp;
use thermite_core::time::{Moment, Span};

use crate::scenario::{Scenario, dev_run, hold, lane, run};

const T: Moment = Moment::from_millis(1_000_000);
const LIMIT: Option<Span> = Some(limits::SHARED_DEV_RUN_MAX);

#[test]
fn a_lane_asks_the_pool_only_once_the_asking_is_durable() {
    let mut lane = Lane::new(lane(1));

    let asked = lane.ask(ask(1)).unwrap();
    let recorded = lane.handle(T, LaneInput::AskRecorded);

    assert_eq!(asked, [LaneEffect::RecordAsk]);
    assert_eq!(recorded, [LaneEffect::AskPool]);
}

#[test]
fn a_granted_hold_starts_only_once_it_is_durable() {
    let mut lane = waiting();

    let granted = lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: LIMIT });
    let recorded = lane.handle(T, LaneInput::HoldRecorded { hold: hold(1) });

    let record = LaneEffect::RecordHold { dev_run: dev_run(1), hold: hold(1) };
    assert_eq!(granted, [LaneEffect::Claim { hold: hold(1) }, record]);
    let limit = Some(limits::SHARED_DEV_RUN_MAX);
    assert_eq!(recorded, [LaneEffect::Start { hold: hold(1), limit }]);
}

#[test]
fn a_burnt_holds_late_record_does_not_start_the_next_hold() {
    let mut lane = waiting();
    lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: LIMIT });
    lane.handle(T, LaneInput::Requeued { hold: hold(1) });
    lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(2), limit: LIMIT });

    let first = lane.handle(T, LaneInput::HoldRecorded { hold: hold(1) });
    let second = lane.handle(T, LaneInput::HoldRecorded { hold: hold(2) });

    assert_eq!(first, []);
    assert!(matches!(second[..], [LaneEffect::Start { hold, .. }] if hold.number == 2));
}

#[test]
fn an_asking_that_cannot_be_recorded_leaves_the_lane_free() {
    let mut lane = Lane::new(lane(1));
    lane.ask(ask(1)).unwrap();

    let refused = lane.handle(T, LaneInput::AskNotRecorded);

    assert_eq!(refused, [LaneEffect::AnswerNotRecorded { dev_run: dev_run(1) }]);
    assert!(lane.ask(ask(2)).is_ok());
}

#[test]
fn the_end_is_told_only_once_it_is_durable() {
    let mut lane = holding();

    let over = lane.handle(T, over(HoldEnd::Stopped(StopCause::Cancelled)));
    let recorded = lane.handle(T, LaneInput::EndRecorded);

    let end = DevRunEnd::Cancelled;
    assert_eq!(over, [LaneEffect::RecordEnd { dev_run: dev_run(1), end: end.clone() }]);
    assert_eq!(recorded, [LaneEffect::AnswerEnd { dev_run: dev_run(1), end }]);
    assert_eq!(lane.state(), &LaneState::Idle);
}

#[test]
fn an_end_that_is_recorded_when_nothing_ends_changes_nothing() {
    let mut lane = holding();
    let before = lane.clone();

    let told = lane.handle(T, LaneInput::EndRecorded);

    assert_eq!(told, []);
    assert_eq!(lane, before);
}

#[test]
fn a_cancel_before_the_line_ends_it_without_asking_the_pool() {
    let mut lane = Lane::new(lane(1));
    lane.ask(ask(1)).unwrap();
    lane.handle(T, cancel());

    let recorded = lane.handle(T, LaneInput::AskRecorded);

    assert!(!recorded.contains(&LaneEffect::AskPool));
    assert!(recorded.contains(&LaneEffect::RecordEnd { dev_run: dev_run(1), end: DevRunEnd::Cancelled }));
}

#[test]
fn a_cancel_in_the_line_leaves_it() {
    let mut rig = Scenario::one_shared_device();
    rig.ask(1).unwrap();
    let waits = rig.ask(2).unwrap();

    rig.cancel(2);

    assert_eq!(rig.end(waits), Some(&DevRunEnd::Cancelled));
    assert_eq!(rig.pool.waits(), []);
}

#[test]
fn a_grant_that_crosses_a_cancel_is_given_back() {
    let mut lane = waiting();
    lane.handle(T, cancel());

    let granted = lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: LIMIT });

    let end = DevRunEnd::Cancelled;
    let record = LaneEffect::RecordEnd { dev_run: dev_run(1), end };
    assert_eq!(granted, [LaneEffect::ReleaseUnused { hold: hold(1) }, record]);
}

#[test]
fn a_cancel_of_one_that_runs_is_answered_when_it_is_proved_gone() {
    let mut rig = Scenario::one_shared_device();
    rig.proves = false;
    let runs = rig.ask(1).unwrap();

    rig.cancel(1);
    let before = rig.end(runs).cloned();
    rig.device(thermite_core::device::DeviceInput::Emptied { number: 1 });

    assert_eq!(before, None);
    assert_eq!(rig.end(runs), Some(&DevRunEnd::Cancelled));
}

#[test]
fn a_cancel_that_cannot_be_proved_is_answered_after_ten_seconds() {
    let mut rig = Scenario::one_shared_device();
    rig.proves = false;
    let runs = rig.ask(1).unwrap();
    let begun = rig.now();

    rig.cancel(1).advance(Span::seconds(15));

    let why = "the stop of hold 1 was not proved within 10 s".to_owned();
    assert_eq!(rig.end(runs), Some(&DevRunEnd::NotProved { why }));
    assert_eq!(rig.ended_at(runs), Some(begun + Span::seconds(10)));
}

#[test]
fn later_causes_join_the_first() {
    let mut lane = holding();

    let first = lane.handle(T, stop(StopCause::RunEnded));
    let second = lane.handle(T, cancel());

    assert_eq!(first, [LaneEffect::StopHold { hold: hold(1), cause: StopCause::RunEnded }]);
    assert_eq!(second, []);
}

#[test]
fn the_cause_of_a_stop_before_the_device_is_what_the_end_says() {
    for (cause, end) in [
        (StopCause::Cancelled, DevRunEnd::Cancelled),
        (StopCause::RunEnded, DevRunEnd::GaveUp { why: GaveUp::RunEnded }),
        (StopCause::RigEnding, DevRunEnd::RigEnded),
    ] {
        let mut lane = waiting();
        lane.handle(T, stop(cause));

        let left = lane.handle(T, LaneInput::WaitCancelled { dev_run: dev_run(1) });

        assert_eq!(left, [LaneEffect::RecordEnd { dev_run: dev_run(1), end }]);
    }
}

#[test]
fn a_stop_while_the_hold_is_recorded_burns_it_instead_of_starting() {
    let mut lane = waiting();
    lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: LIMIT });
    lane.handle(T, cancel());

    let recorded = lane.handle(T, LaneInput::HoldRecorded { hold: hold(1) });

    assert_eq!(recorded, [LaneEffect::StopHold { hold: hold(1), cause: StopCause::Cancelled }]);
}

#[test]
fn a_caller_that_is_gone_for_ten_seconds_ends_its_run() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();
    let begun = rig.now();

    rig.lane(1, LaneInput::CallerGone { dev_run: runs }).advance(Span::minutes(1));

    assert_eq!(rig.end(runs), Some(&DevRunEnd::Cancelled));
    assert_eq!(rig.ended_at(runs), Some(begun + Span::seconds(10)));
}

#[test]
fn a_caller_that_is_back_in_time_keeps_its_run() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();

    rig.lane(1, LaneInput::CallerGone { dev_run: runs }).advance(Span::seconds(9));
    rig.lane(1, LaneInput::CallerBack { dev_run: runs }).advance(Span::minutes(1));

    assert_eq!(rig.end(runs), None);
}

#[test]
fn an_asking_that_the_records_do_not_take_by_its_latest_moment_gives_up_and_keeps_its_turn() {
    let mut lane = Lane::new(lane(1));
    lane.ask(ask(1)).unwrap();
    let latest = T + limits::DEV_RUN_WAIT_MAX;
    assert_eq!(lane.next_deadline().map(|next| next.0), Some(latest));

    let told = lane.advance(latest);
    let again = lane.ask(ask(2));
    let recorded = lane.handle(latest, LaneInput::AskRecorded);

    assert_eq!(told, [LaneEffect::AnswerTooLate { dev_run: dev_run(1) }]);
    assert!(again.is_err(), "whether the log has it is not known yet");
    let end = DevRunEnd::GaveUp { why: GaveUp::OutOfService };
    assert!(recorded.contains(&LaneEffect::RecordEnd { dev_run: dev_run(1), end }), "{recorded:?}");
    assert!(!recorded.contains(&LaneEffect::AskPool));
}

#[test]
fn a_detached_run_needs_no_caller() {
    let mut lane = Lane::new(lane(1));
    lane.ask(Ask { caller: Caller::Detached, ..ask(1) }).unwrap();
    lane.handle(T, LaneInput::AskRecorded);

    lane.handle(T, LaneInput::CallerGone { dev_run: dev_run(1) });

    assert_eq!(lane.next_deadline(), None);
}

#[test]
fn a_run_that_ends_by_itself_says_how_and_how_long_it_ran() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();

    rig.advance(Span::seconds(42)).exits();

    assert_eq!(rig.end(runs), Some(&DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::seconds(42) }));
}

#[test]
fn a_run_at_its_limit_is_ended_and_says_so() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();
    let begun = rig.now();

    rig.advance(Span::minutes(6));

    assert_eq!(rig.end(runs), Some(&DevRunEnd::LimitReached { limit: Span::minutes(5) }));
    assert_eq!(rig.ended_at(runs), Some(begun + Span::minutes(5)));
}

#[test]
fn after_a_suspend_over_its_limit_a_run_is_stopped_and_the_device_stays_in_service() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();

    rig.sleep(Span::hours(8));

    assert_eq!(rig.end(runs), Some(&DevRunEnd::LimitReached { limit: Span::minutes(5) }));
    assert!(rig.ask(1).is_ok_and(|_| rig.holder().is_some()));
}

proptest! {
    #[test]
    fn no_order_of_inputs_panics_or_leaves_a_deadline_due_or_answers_twice(
        inputs in proptest::collection::vec((input(), 0_u64..6_000), 1..200),
    ) {
        let mut lane = Lane::new(lane(1));
        let mut now = T;
        let mut asked = 0_u8;
        let mut ended = std::collections::BTreeSet::new();
        for (input, later) in inputs {
            now = now + Span::millis(later);
            let mut effects = lane.advance(now);
            prop_assert!(lane.next_deadline().is_none_or(|(due, _)| due > now));
            match input {
                Some(input) => effects.extend(lane.handle(now, input)),
                None => {
                    if let Ok(asking) = lane.ask(ask(asked % 4)) {
                        ended.remove(&dev_run(asked % 4));
                        asked = asked.wrapping_add(1);
                        effects.extend(asking);
                    }
                }
            }
            for effect in effects {
                if let LaneEffect::AnswerEnd { dev_run, .. } = effect {
                    prop_assert!(ended.insert(dev_run), "{} ended twice", dev_run);
                }
            }
        }
    }
}

fn input() -> impl Strategy<Value = Option<LaneInput>> {
    let dev_run = || (0_u8..4).prop_map(dev_run);
    let hold = || (1_u64..4).prop_map(hold);
    let how = prop_oneof![
        Just(HoldEnd::NotStarted),
        Just(HoldEnd::Stopped(StopCause::WaitedTooLong)),
        Just(HoldEnd::NotProved { why: String::new() }),
    ];
    prop_oneof![
        Just(None),
        Just(Some(LaneInput::AskRecorded)),
        Just(Some(LaneInput::AskNotRecorded)),
        hold().prop_map(|hold| Some(LaneInput::HoldRecorded { hold })),
        Just(Some(LaneInput::EndRecorded)),
        dev_run().prop_map(|dev_run| Some(LaneInput::InLine { dev_run, ahead: 0 })),
        (dev_run(), hold()).prop_map(|(dev_run, hold)| Some(LaneInput::Granted { dev_run, hold, limit: LIMIT })),
        hold().prop_map(|hold| Some(LaneInput::Requeued { hold })),
        dev_run().prop_map(|dev_run| Some(LaneInput::GaveUp { dev_run, why: GaveUp::RunPaused })),
        dev_run().prop_map(|dev_run| Some(LaneInput::WaitCancelled { dev_run })),
        (hold(), how).prop_map(|(hold, how)| Some(LaneInput::HoldEnded { hold, how })),
        dev_run().prop_map(|dev_run| Some(LaneInput::Stop { dev_run, cause: StopCause::RigEnding })),
        dev_run().prop_map(|dev_run| Some(LaneInput::CallerGone { dev_run })),
        dev_run().prop_map(|dev_run| Some(LaneInput::CallerBack { dev_run })),
    ]
}

fn ask(n: u8) -> Ask {
    let limit = Some(limits::SHARED_DEV_RUN_MAX);
    Ask {
        dev_run: dev_run(n),
        run: run(1),
        arrival: Arrival(1),
        limit,
        caller: Caller::Attached,
        since: T,
        latest: T + limits::DEV_RUN_WAIT_MAX,
    }
}

fn waiting() -> Lane {
    let mut lane = Lane::new(lane(1));
    lane.ask(ask(1)).expect("a fresh lane has none under way");
    lane.handle(T, LaneInput::AskRecorded);
    lane
}

fn holding() -> Lane {
    let mut lane = waiting();
    lane.handle(T, LaneInput::Granted { dev_run: dev_run(1), hold: hold(1), limit: LIMIT });
    lane.handle(T, LaneInput::HoldRecorded { hold: hold(1) });
    lane
}

fn stop(cause: StopCause) -> LaneInput {
    LaneInput::Stop { dev_run: dev_run(1), cause }
}

fn cancel() -> LaneInput {
    stop(StopCause::Cancelled)
}

fn over(how: HoldEnd) -> LaneInput {
    LaneInput::HoldEnded { hold: hold(1), how }
}
