//! One device: its hold, its stop and the proof (rules A1, A5, A7, A10, A11, B10).

use proptest::prelude::*;
use thermite_core::dev_run::Exit;
use thermite_core::device::{Device, DeviceEffect, DeviceInput, DeviceState, DeviceView, MemberEvent, Work};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::Holder;
use thermite_core::limits;
use thermite_core::time::{Moment, Span};

use crate::scenario::{DEVICE, hold, lane};

const T: Moment = Moment::from_millis(1_000_000);

#[test]
fn nothing_starts_before_leftovers_are_proved_gone() {
    let (mut device, asked) = Device::new(T, DEVICE, 7);

    let answer = device.handle(T, start(8, Holder::Judge));

    assert_eq!(asked, [DeviceEffect::Sweep]);
    assert_eq!(answer, [freed(8, HoldEnd::NotStarted)]);
}

#[test]
fn a_swept_device_says_the_last_number_that_the_records_know() {
    let (mut device, _) = Device::new(T, DEVICE, 7);

    let told = device.handle(T, DeviceInput::Swept);

    assert_eq!(told, [DeviceEffect::Tell(MemberEvent::Ready { last: 7 })]);
}

#[test]
fn what_is_said_with_an_old_number_is_refused_and_counted() {
    let mut device = running_by_lane_1();
    let before = device.state().clone();

    let old = [
        device.handle(T, start(1, Holder::Judge)),
        device.handle(T, DeviceInput::Started { number: 0 }),
        device.handle(T, DeviceInput::Exited { number: 0, exit: Exit::Code(0) }),
        device.handle(T, DeviceInput::Emptied { number: 0 }),
        device.handle(T, DeviceInput::NotProved { number: 0, why: "pid 7".to_owned() }),
    ];

    assert!(old.iter().all(Vec::is_empty), "{old:?}");
    assert_eq!(device.state(), &before);
    assert_eq!(device.refused(), 5);
}

#[test]
fn a_device_is_free_only_after_the_proof() {
    let mut device = running_by_lane_1();

    let stopping = device.handle(T, DeviceInput::Exited { number: 1, exit: Exit::Code(3) });
    let other = device.handle(T, start(2, Holder::Judge));
    let proved = device.handle(T, DeviceInput::Emptied { number: 1 });

    assert_eq!(stopping, [DeviceEffect::StopProcesses { number: 1, gently: false }]);
    assert_eq!(other, [freed(2, HoldEnd::NotStarted)]);
    let cause = StopCause::Exited { exit: Exit::Code(3), ran: Span::ZERO };
    assert_eq!(proved, [freed(1, HoldEnd::Stopped(cause))]);
    assert_eq!(device.state(), &DeviceState::Ready);
}

#[test]
fn a_quarantined_device_goes_out_of_service_once_its_holder_is_over_and_stays_there() {
    let mut device = running_by_lane_1();
    let why = "it favours one label".to_owned();

    let asked = device.handle(T, DeviceInput::Quarantine { why: why.clone() });
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    let over = device.handle(T, DeviceInput::Emptied { number: 1 });
    let start = device.handle(T, start(2, Holder::Judge));
    let later = device.advance(T + Span::hours(24 * 365));

    assert_eq!(asked, []);
    let gone = DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() });
    assert_eq!(over, [gone, freed(1, HoldEnd::Stopped(StopCause::Cancelled))], "gone first, so that nobody slips in");
    assert_eq!((start, later), (vec![freed(2, HoldEnd::NotStarted)], vec![]));
    assert_eq!(device.view(), DeviceView::Quarantined { why });
    assert_eq!(device.next_deadline(), None);
}

#[test]
fn a_quarantined_device_comes_back_swept_once_somebody_has_looked() {
    let why = "it favours one label".to_owned();
    let (mut device, _) = Device::new(T, DEVICE, 7);
    device.handle(T, DeviceInput::Quarantine { why: why.clone() });

    let after_a_start = device.handle(T, DeviceInput::Swept);
    let readmitted = device.handle(T, DeviceInput::Readmit);
    let swept = device.handle(T, DeviceInput::Swept);

    assert_eq!(after_a_start, [DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() })]);
    assert_eq!(readmitted, [DeviceEffect::Sweep]);
    assert_eq!(swept, [DeviceEffect::Tell(MemberEvent::Ready { last: 7 })]);
    // A free device goes at once; one that is readmitted before it is free never leaves.
    assert_eq!(
        device.handle(T, DeviceInput::Quarantine { why: why.clone() }),
        [DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() })]
    );
    let mut busy = running_by_lane_1();
    busy.handle(T, DeviceInput::Quarantine { why });
    assert_eq!(busy.handle(T, DeviceInput::Readmit), []);
    busy.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    busy.handle(T, DeviceInput::Emptied { number: 1 });
    assert_eq!(busy.state(), &DeviceState::Ready);
}

#[test]
fn a_repeated_proof_does_not_free_the_next_holder() {
    let mut device = running_by_lane_1();
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    device.handle(T, DeviceInput::Emptied { number: 1 });
    device.handle(T, start(2, Holder::Judge));

    let again = device.handle(T, DeviceInput::Emptied { number: 1 });

    assert_eq!(again, []);
    assert!(device.judge_may(hold(2)));
}

#[test]
fn a_stop_that_overtakes_its_start_burns_the_number() {
    let mut device = ready();

    let stopped = device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    let late_start = device.handle(T, start(1, Holder::Lane(lane(1))));

    assert_eq!(stopped, [freed(1, HoldEnd::Stopped(StopCause::Cancelled))]);
    assert_eq!(late_start, []);
    assert_eq!(device.state(), &DeviceState::Ready);
}

#[test]
fn a_number_that_nobody_claimed_is_burnt_once() {
    let mut device = ready();

    let burnt = device.handle(T, DeviceInput::Void { number: 1 });
    let late_start = device.handle(T, start(1, Holder::Lane(lane(1))));

    assert_eq!(burnt, [freed(1, HoldEnd::NotStarted)]);
    assert_eq!(late_start, []);
}

#[test]
fn a_number_that_has_started_is_not_burnt() {
    let mut device = running_by_lane_1();

    let answer = device.handle(T, DeviceInput::Void { number: 1 });

    assert_eq!(answer, [DeviceEffect::Tell(MemberEvent::Started { number: 1 })]);
}

#[test]
fn the_first_cause_of_a_stop_wins() {
    let mut device = running_by_lane_1();
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });

    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::RunEnded });
    device.handle(T, DeviceInput::Exited { number: 1, exit: Exit::Code(0) });
    let proved = device.handle(T, DeviceInput::Emptied { number: 1 });

    assert_eq!(proved, [freed(1, HoldEnd::Stopped(StopCause::Cancelled))]);
}

#[test]
fn the_limit_counts_from_the_start_and_not_from_preparing() {
    let mut device = ready();
    device.handle(T, start(1, Holder::Lane(lane(1))));
    let prepared = T + Span::seconds(90);
    device.handle(prepared, DeviceInput::Started { number: 1 });

    let limit = limits::SHARED_DEV_RUN_MAX;
    let before = device.advance(prepared + limit - Span::millis(1));
    let at = device.advance(prepared + limit);

    assert_eq!(before, []);
    assert_eq!(at, [DeviceEffect::StopProcesses { number: 1, gently: true }]);
    let proved = device.handle(prepared + limit, DeviceInput::Emptied { number: 1 });
    assert_eq!(proved, [freed(1, HoldEnd::Stopped(StopCause::LimitReached { limit }))]);
}

#[test]
fn preparing_has_a_limit_of_its_own() {
    let mut device = ready();
    device.handle(T, start(1, Holder::Lane(lane(1))));

    let late = device.advance(T + limits::DEV_RUN_PREPARE_MAX);

    assert_eq!(late, [DeviceEffect::StopProcesses { number: 1, gently: false }]);
    let proved = device.handle(T, DeviceInput::Emptied { number: 1 });
    let why = "it was not prepared within 2 min".to_owned();
    assert_eq!(proved, [freed(1, HoldEnd::Stopped(StopCause::StartFailed { why }))]);
}

#[test]
fn without_proof_in_ten_seconds_the_device_is_out_of_service_and_says_so_first() {
    let mut device = running_by_lane_1();
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });

    let told = device.advance(T + Span::seconds(10));

    let why = "the stop of hold 1 was not proved within 10 s".to_owned();
    let gone = DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() });
    assert_eq!(told, [gone, freed(1, HoldEnd::NotProved { why })]);
    assert!(matches!(device.view(), DeviceView::Out { .. }));
}

#[test]
fn an_unproved_stop_names_what_the_executor_knows() {
    let mut device = running_by_lane_1();
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });

    let told = device.handle(T, DeviceInput::NotProved { number: 1, why: "pid 4711 is in D state".to_owned() });

    let why = "pid 4711 is in D state".to_owned();
    assert_eq!(told[1], freed(1, HoldEnd::NotProved { why }));
}

#[test]
fn a_device_out_of_service_comes_back_by_itself_once_it_is_swept() {
    let mut device = running_by_lane_1();
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    device.handle(T, DeviceInput::NotProved { number: 1, why: "pid 7".to_owned() });

    let tried = device.advance(T + limits::REQUALIFY_AFTER);
    let back = device.handle(T + limits::REQUALIFY_AFTER, DeviceInput::Swept);

    assert_eq!(tried, [DeviceEffect::Sweep]);
    assert_eq!(back, [DeviceEffect::Tell(MemberEvent::Ready { last: 1 })]);
}

#[test]
fn a_free_device_at_fault_goes_out_of_service_and_comes_back_by_itself() {
    let (mut device, _) = Device::new(T, DEVICE, 4);
    device.handle(T, DeviceInput::Swept);
    let why = "card GPU-1 is lost".to_owned();

    let gone = device.handle(T, DeviceInput::AtFault { why: why.clone() });
    let granted_meanwhile = device.handle(T, DeviceInput::Start { number: 5, by: Holder::Judge, limit: None });
    let tried = device.advance(T + limits::REQUALIFY_AFTER);
    let back = device.handle(T + limits::REQUALIFY_AFTER, DeviceInput::Swept);

    assert_eq!(gone, [DeviceEffect::Tell(MemberEvent::Gone { why })]);
    assert_eq!(granted_meanwhile, [DeviceEffect::Tell(MemberEvent::Freed { number: 5, how: HoldEnd::NotStarted })]);
    assert_eq!(tried, [DeviceEffect::Sweep]);
    assert_eq!(back, [DeviceEffect::Tell(MemberEvent::Ready { last: 5 })]);
}

#[test]
fn a_fault_under_a_hold_takes_the_device_out_once_the_hold_is_over_and_says_so_first() {
    let mut device = running_by_lane_1();
    let why = "card GPU-1 is lost".to_owned();

    let told = device.handle(T, DeviceInput::AtFault { why: why.clone() });
    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::Cancelled });
    let over = device.handle(T, DeviceInput::Emptied { number: 1 });

    assert_eq!(told, [], "what has it goes on");
    assert_eq!(over[0], DeviceEffect::Tell(MemberEvent::Gone { why }));
    assert!(
        over.iter().any(|effect| matches!(effect, DeviceEffect::Tell(MemberEvent::Freed { number: 1, .. }))),
        "{over:?}"
    );
}

#[test]
fn a_stop_asked_for_after_a_suspend_has_its_whole_time() {
    let mut device = running_by_lane_1();
    let woken = T + Span::hours(9);

    let stopping = device.advance(woken);

    assert_eq!(stopping, [DeviceEffect::StopProcesses { number: 1, gently: true }]);
    assert_eq!(device.next_deadline(), Some((woken + limits::PROOF_MAX, "stop proved")));
}

#[test]
fn a_long_suspend_asks_for_one_sweep() {
    let (mut device, _) = Device::new(T, DEVICE, 0);
    device.handle(T, DeviceInput::SweepFailed { why: "pid 7".to_owned() });
    let woken = T + Span::hours(9);

    let tried = device.advance(woken);

    assert_eq!(tried, [DeviceEffect::Sweep]);
    assert_eq!(device.state(), &DeviceState::Sweeping { until: woken + limits::PROOF_MAX });
}

#[test]
fn the_judge_may_work_only_under_its_live_hold() {
    let mut device = ready();
    device.handle(T, start(1, Holder::Judge));
    assert!(device.judge_may(hold(1)));

    device.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::StageOver });

    assert!(!device.judge_may(hold(1)));
    assert!(!running_by_lane_1().judge_may(hold(1)));
}

#[test]
fn a_start_that_fails_is_proved_gone_like_any_other() {
    let mut device = ready();
    device.handle(T, start(1, Holder::Lane(lane(1))));

    let failed = device.handle(T, DeviceInput::StartFailed { number: 1, why: "no such file".to_owned() });

    assert_eq!(failed, [DeviceEffect::StopProcesses { number: 1, gently: false }]);
    assert!(matches!(device.state(), DeviceState::Stopping { .. }));
}

proptest! {
    #[test]
    fn no_order_of_inputs_panics_lowers_the_number_or_leaves_a_deadline_due(
        inputs in proptest::collection::vec((input(), 0_u64..400_000), 1..200),
    ) {
        let (mut device, _) = Device::new(T, DEVICE, 0);
        let mut now = T;
        let mut over = std::collections::BTreeSet::new();
        for (input, later) in inputs {
            now = now + Span::millis(later);
            let last = device.last();
            let mut effects = device.advance(now);
            prop_assert!(device.next_deadline().is_none_or(|(due, _)| due > now));
            effects.extend(device.handle(now, input));
            prop_assert!(device.last() >= last);
            prop_assert!(device.next_deadline().is_none_or(|(due, _)| due > now));
            for effect in effects {
                match effect {
                    DeviceEffect::StartDevRun { number } | DeviceEffect::StageOpen { number } => {
                        prop_assert!(number > last, "hold {} started again", number);
                    }
                    DeviceEffect::Tell(MemberEvent::Freed { number, .. }) => {
                        prop_assert!(over.insert(number), "hold {} ended again", number);
                    }
                    _ => {}
                }
            }
        }
    }
}

fn input() -> impl Strategy<Value = DeviceInput> {
    let number = || 0_u64..12;
    let holder = prop_oneof![Just(Holder::Judge), (1_u8..4).prop_map(|n| Holder::Lane(lane(n)))];
    prop_oneof![
        (number(), holder).prop_map(|(number, by)| start(number, by)),
        number().prop_map(|number| DeviceInput::Stop { number, cause: StopCause::Cancelled }),
        number().prop_map(|number| DeviceInput::Void { number }),
        number().prop_map(|number| DeviceInput::Started { number }),
        number().prop_map(|number| DeviceInput::StartFailed { number, why: String::new() }),
        number().prop_map(|number| DeviceInput::Exited { number, exit: Exit::Signal(9) }),
        number().prop_map(|number| DeviceInput::Emptied { number }),
        number().prop_map(|number| DeviceInput::NotProved { number, why: String::new() }),
        Just(DeviceInput::Swept),
        Just(DeviceInput::SweepFailed { why: String::new() }),
        Just(DeviceInput::AtFault { why: String::new() }),
    ]
}

fn ready() -> Device {
    let (mut device, _) = Device::new(T, DEVICE, 0);
    device.handle(T, DeviceInput::Swept);
    device
}

fn running_by_lane_1() -> Device {
    let mut device = ready();
    device.handle(T, start(1, Holder::Lane(lane(1))));
    device.handle(T, DeviceInput::Started { number: 1 });
    assert!(matches!(device.state(), DeviceState::Held { work: Work::Running { .. }, .. }));
    device
}

fn start(number: u64, by: Holder) -> DeviceInput {
    let limit = matches!(by, Holder::Lane(_)).then_some(limits::SHARED_DEV_RUN_MAX);
    DeviceInput::Start { number, by, limit }
}

fn freed(number: u64, how: HoldEnd) -> DeviceEffect {
    DeviceEffect::Tell(MemberEvent::Freed { number, how })
}
