//! The pool: who gets which device, and how every wait ends (rules A1 to A6, A9, A13 by its numbers, B6, E1, E2).

use std::collections::BTreeSet;

use proptest::prelude::*;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::device::{DeviceInput, MemberEvent};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, HoldId, Holder, MemberId};
use thermite_core::job::StageKind;
use thermite_core::judge_queue::StageResult;
use thermite_core::limits;
use thermite_core::pool::{
    Discipline, JudgeWork, JudgesDevice, Overlooked, Pool, PoolEffect, PoolInput, Wants, WorkEntry,
};
use thermite_core::refusal::{GaveUp, Refusal};
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};
use thermite_core::wait::{WaitEnd, WaitReason};

use crate::scenario::{DEVICE, Scenario, dev_run, hold, job, lane, run};

const T: Moment = Moment::from_millis(1_000_000);
const LIMIT: Option<Span> = Some(limits::SHARED_DEV_RUN_MAX);

#[test]
fn a_free_device_goes_to_the_one_that_asks() {
    let mut rig = Scenario::one_shared_device();

    let asked = rig.ask(1).unwrap();

    assert_eq!(rig.queued(asked), Some(0));
    assert_eq!(rig.holder(), Some(Holder::Lane(lane(1))));
}

#[test]
fn lanes_are_served_in_order_of_arrival() {
    let mut rig = Scenario::one_shared_device();
    rig.ask(3).unwrap();
    let second = rig.ask(1).unwrap();
    let third = rig.ask(2).unwrap();

    rig.exits();
    let after_one = rig.holder();
    rig.exits();

    assert_eq!((rig.queued(second), rig.queued(third)), (Some(0), Some(1)));
    assert_eq!(after_one, Some(Holder::Lane(lane(1))));
    assert_eq!(rig.holder(), Some(Holder::Lane(lane(2))));
}

#[test]
fn a_lane_has_one_development_run_and_a_second_is_refused_by_name() {
    let mut rig = Scenario::one_shared_device();
    let under_way = rig.ask(1).unwrap();

    let second = rig.ask(1);

    assert_eq!(second, Err(Refusal::LaneBusy { lane: lane(1), under_way }));
    rig.exits();
    assert!(rig.ask(1).is_ok());
}

#[test]
fn a_development_run_waits_while_the_judge_has_work() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);

    let asked = rig.ask(1).unwrap();
    let wait = rig.wait(asked).unwrap();

    assert_eq!(rig.holder(), Some(Holder::Judge));
    assert_eq!(wait.reason, WaitReason::JudgeHolds { member: DEVICE, job: Some(job(1)) });
    assert_eq!(wait.end, WaitEnd::Latest { at: rig.now() + Span::minutes(10) });
}

#[test]
fn the_judge_starts_nothing_while_a_development_run_holds_the_device() {
    let mut rig = Scenario::one_shared_device();
    let asked = rig.ask(1).unwrap();

    rig.submit(1);

    assert_eq!(rig.accepted(1), Some(0));
    assert_eq!(rig.stages(), []);
    // It runs since now.
    let free_by = Some(rig.now() + limits::SHARED_DEV_RUN_MAX + limits::PROOF_MAX);
    assert_eq!(
        rig.pool.judges_device(),
        JudgesDevice::Lanes { member: DEVICE, lane: lane(1), dev_run: asked, free_by }
    );
    rig.exits();
    assert_eq!(rig.stages(), [job(1)]);
}

#[test]
fn a_job_whose_confirmation_is_still_to_come_holds_lanes_back() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);
    rig.ask(1).unwrap();

    rig.stage_ends(StageResult::Win);

    assert_eq!(rig.stages(), [job(1), job(1)]);
    assert_eq!(rig.holder(), Some(Holder::Judge));
    rig.stage_ends(StageResult::NoGain { slower: false });
    assert_eq!(rig.holder(), Some(Holder::Lane(lane(1))));
}

#[test]
fn a_paused_runs_jobs_hold_back_development_runs_and_the_reason_names_it() {
    let mut pool = swept();
    let paused = WorkEntry { paused: true, startable: false, ..entry(1, 1) };
    pool.handle(T, work(1, vec![paused]));

    pool.handle(T, ask(1, 2, 3));
    let (_, _, wait) = pool.waits().remove(0);

    assert_eq!(wait.reason, WaitReason::PausedRunsJobs { run: run(1) });
    let end = pool.advance(wait_end(wait.end));
    assert!(end.contains(&gave_up(1, 2, GaveUp::JudgeKeptDevice)), "{end:?}");
}

#[test]
fn pausing_a_run_lets_its_waiters_go_and_what_runs_goes_on() {
    let mut rig = Scenario::one_shared_device();
    let runs = rig.ask(1).unwrap();
    let waits = rig.ask(2).unwrap();

    rig.change_run(RunState::Paused);
    let refused = rig.ask(3);

    assert_eq!(rig.end(waits), Some(&DevRunEnd::GaveUp { why: GaveUp::RunPaused }));
    assert_eq!(refused, Err(Refusal::RunPaused { run: run(1) }));
    rig.advance(Span::seconds(20)).exits();
    let ran = Span::seconds(20);
    assert_eq!(rig.end(runs), Some(&DevRunEnd::Exited { exit: Exit::Code(0), ran }));
}

#[test]
fn a_development_run_that_comes_to_the_line_after_its_run_was_paused_leaves_it_at_once() {
    let mut pool = swept();
    let stopped = vec![(run(1), GaveUp::RunPaused)];
    pool.handle(T, PoolInput::JudgeWork(JudgeWork { version: 1, stopped, ..JudgeWork::default() }));

    let told = pool.handle(T, ask(1, 2, 3));

    assert_eq!(told.last(), Some(&gave_up(1, 2, GaveUp::RunPaused)));
    assert_eq!(pool.waits(), []);
}

#[test]
fn one_that_the_device_did_not_take_does_not_return_to_a_paused_runs_line() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    let stopped = vec![(run(1), GaveUp::RunPaused)];
    pool.handle(T, PoolInput::JudgeWork(JudgeWork { version: 2, stopped, ..JudgeWork::default() }));

    let told = pool.handle(T, freed(1, HoldEnd::NotStarted));

    assert_eq!(told, [PoolEffect::Requeued { lane: lane(1), hold: hold(1) }, gave_up(1, 2, GaveUp::RunPaused)]);
}

#[test]
fn who_waits_ten_minutes_behind_the_judge_is_told_that_the_judge_kept_the_device() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);
    let asked = rig.ask(1).unwrap();
    let begun = rig.now();

    rig.advance(Span::minutes(11));

    assert_eq!(rig.end(asked), Some(&DevRunEnd::GaveUp { why: GaveUp::JudgeKeptDevice }));
    assert_eq!(rig.ended_at(asked), Some(begun + Span::minutes(10)));
    assert_eq!(GaveUp::JudgeKeptDevice.to_string(), "the judge kept the device busy; try again later");
    assert!(rig.ask(1).is_ok());
}

#[test]
fn who_waits_ten_minutes_behind_lanes_is_told_that_a_lane_held_the_device() {
    let mut rig = Scenario::one_shared_device();
    for n in [1, 2, 3] {
        rig.ask(n).unwrap();
    }
    let last = rig.ask(4).unwrap();

    // Each of the first two holds it for its whole five minutes, the third is in its own.
    rig.advance(Span::minutes(10));

    assert_eq!(rig.end(last), Some(&DevRunEnd::GaveUp { why: GaveUp::LaneHeldDevice }));
    assert_eq!(GaveUp::LaneHeldDevice.to_string(), "another lane's dev run held the device; try again later");
}

#[test]
fn who_waits_ten_minutes_for_a_broken_device_is_told_that_it_was_out_of_service() {
    let mut rig = Scenario::one_shared_device();
    rig.proves = false;
    let first = rig.ask(1).unwrap();
    let second = rig.ask(2).unwrap();

    rig.exits();
    rig.advance(Span::minutes(10));

    assert!(matches!(rig.end(first), Some(DevRunEnd::NotProved { .. })));
    assert_eq!(rig.end(second), Some(&DevRunEnd::GaveUp { why: GaveUp::OutOfService }));
    assert_eq!(GaveUp::OutOfService.to_string(), "the device was out of service; try again later");
}

#[test]
fn the_latest_moment_holds_until_the_start() {
    let mut rig = Scenario::one_shared_device();
    rig.starts = false;
    rig.ask(1).unwrap();
    let second = rig.ask(2).unwrap();
    let begun = rig.now();

    // The first is never prepared, the second is granted after two minutes and is not prepared either.
    rig.advance(Span::minutes(3));
    let waits = rig.wait(second);
    rig.advance(Span::minutes(1));

    assert_eq!(waits, None);
    assert!(matches!(rig.end(second), Some(DevRunEnd::NotStarted { .. })));
    assert!(rig.ended_at(second).unwrap() < begun + limits::DEV_RUN_WAIT_MAX);
}

#[test]
fn one_granted_but_not_started_by_its_latest_moment_is_stopped_and_keeps_its_turn_until_freed() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    pool.handle(T, PoolInput::Claim { by: Holder::Lane(lane(1)), hold: hold(1) });

    let late = pool.advance(T + limits::DEV_RUN_WAIT_MAX);
    let other = pool.handle(T + limits::DEV_RUN_WAIT_MAX, ask_until(2, 4, 5, T + Span::hours(1)));
    let burnt = pool.handle(T + limits::DEV_RUN_WAIT_MAX, freed(1, HoldEnd::Stopped(StopCause::WaitedTooLong)));

    let stop = PoolEffect::Stop { hold: hold(1), cause: StopCause::WaitedTooLong };
    assert_eq!(late, [gave_up(1, 2, GaveUp::OutOfService), stop]);
    assert!(!other.iter().any(|effect| matches!(effect, PoolEffect::GrantLane { .. })));
    assert!(burnt.contains(&PoolEffect::GrantLane { lane: lane(2), dev_run: dev_run(4), hold: hold(2), limit: LIMIT }));
}

#[test]
fn a_grant_nobody_claims_is_burnt_and_the_place_in_the_line_is_kept() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));

    let late = pool.advance(T + limits::CLAIM_MAX);
    let burnt = pool.handle(T + limits::CLAIM_MAX, freed(1, HoldEnd::NotStarted));

    assert_eq!(late, [PoolEffect::Void { hold: hold(1) }]);
    let again = PoolEffect::GrantLane { lane: lane(1), dev_run: dev_run(2), hold: hold(2), limit: LIMIT };
    assert_eq!(burnt, [PoolEffect::Requeued { lane: lane(1), hold: hold(1) }, again]);
}

#[test]
fn a_lane_that_left_while_its_grant_was_on_the_way_is_not_put_back() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    pool.handle(T, PoolInput::CancelWait { lane: lane(1), dev_run: dev_run(2) });
    pool.advance(T + limits::CLAIM_MAX);

    let burnt = pool.handle(T + limits::CLAIM_MAX, freed(1, HoldEnd::NotStarted));

    assert!(!burnt.iter().any(|told| matches!(told, PoolEffect::Requeued { .. } | PoolEffect::GrantLane { .. })));
    assert_eq!(pool.waits(), []);
}

#[test]
fn a_number_given_back_unused_is_not_used_again() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    pool.handle(T, PoolInput::ReleaseUnused { by: Holder::Lane(lane(1)), hold: hold(1) });

    let next = pool.handle(T, ask(2, 4, 5));

    assert!(next.contains(&PoolEffect::GrantLane { lane: lane(2), dev_run: dev_run(4), hold: hold(2), limit: LIMIT }));
}

#[test]
fn nothing_is_granted_before_the_judge_has_told_its_work() {
    let mut pool = swept();

    let before = pool.handle(T, ask(1, 2, 3));
    let after = pool.handle(T, work(1, vec![]));

    assert_eq!(before, [PoolEffect::InLine { lane: lane(1), dev_run: dev_run(2), ahead: 0 }]);
    assert!(after.contains(&PoolEffect::GrantLane { lane: lane(1), dev_run: dev_run(2), hold: hold(1), limit: LIMIT }));
}

#[test]
fn nothing_is_granted_while_the_records_cannot_be_written() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, PoolInput::Recording(false));

    let asked = pool.handle(T, ask(1, 2, 3));
    let reason = pool.waits()[0].2.reason.clone();
    let written = pool.handle(T, PoolInput::Recording(true));

    assert_eq!(asked.len(), 1);
    assert_eq!(reason, WaitReason::Records);
    assert!(matches!(written[..], [PoolEffect::GrantLane { .. }]));
}

#[test]
fn a_device_that_said_it_is_gone_is_granted_only_after_it_is_ready() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    pool.handle(T, member(0, MemberEvent::Gone { why: "pid 7".to_owned() }));
    pool.handle(T, freed(1, HoldEnd::NotProved { why: "pid 7".to_owned() }));

    let asked = pool.handle(T, ask(2, 4, 5));
    let reason = pool.waits()[0].2.reason.clone();
    let ready = pool.handle(T, member(0, MemberEvent::Ready { last: 1 }));

    assert_eq!(asked.len(), 1);
    assert_eq!(reason, WaitReason::NoReadyDevice { why: "pid 7".to_owned() });
    assert_eq!(ready, [PoolEffect::GrantLane { lane: lane(2), dev_run: dev_run(4), hold: hold(2), limit: LIMIT }]);
}

#[test]
fn a_stale_freed_does_not_free_the_next_holder() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, ask(1, 2, 3));
    pool.handle(T, ask(2, 4, 5));
    pool.handle(T, freed(1, HoldEnd::Stopped(StopCause::Cancelled)));

    let again = pool.handle(T, freed(1, HoldEnd::Stopped(StopCause::Cancelled)));

    assert_eq!(again, []);
    assert_eq!(pool.members()[0].held.as_ref().map(|held| held.0), Some(hold(2)));
}

#[test]
fn a_stage_whose_hold_is_over_counts_until_the_judge_tells_its_work_again() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![entry(1, 1)]));
    let running = WorkEntry { startable: false, running_on: Some(hold(1)), ..entry(1, 1) };
    pool.handle(T, work(2, vec![running]));
    pool.handle(T, PoolInput::Claim { by: Holder::Judge, hold: hold(1) });
    pool.handle(T, ask(1, 2, 3));

    let over = pool.handle(T, freed(1, HoldEnd::Stopped(StopCause::StageOver)));
    let told = pool.handle(T, work(3, vec![]));

    assert!(!over.iter().any(|told| matches!(told, PoolEffect::GrantLane { .. })));
    assert!(told.iter().any(|told| matches!(told, PoolEffect::GrantLane { .. })));
}

#[test]
fn a_confirmation_goes_to_another_card_in_service_and_waits_for_it() {
    let mut pool = two_cards();
    let confirmation = WorkEntry { stage: StageKind::Confirmation, screened_on: Some(DEVICE), ..entry(1, 1) };

    let told = pool.handle(T, work(1, vec![confirmation]));

    let other = HoldId { member: MemberId(1), number: 1 };
    let serves = vec![(job(1), StageKind::Confirmation)];
    assert!(told.contains(&PoolEffect::GrantJudge { hold: other, serves }), "{told:?}");
}

#[test]
fn a_confirmation_stays_on_its_card_where_no_other_is_in_service() {
    let mut pool = two_cards();
    pool.handle(T, member(1, MemberEvent::Gone { why: "lost".to_owned() }));
    let confirmation = WorkEntry { stage: StageKind::Confirmation, screened_on: Some(DEVICE), ..entry(1, 1) };

    let told = pool.handle(T, work(1, vec![confirmation]));

    assert!(told.iter().any(|told| matches!(told, PoolEffect::GrantJudge { hold, .. } if hold.member == DEVICE)));
}

/// Rules A9, D5: what a certificate says and what the matching does are one test.
#[test]
fn a_job_that_failed_on_a_card_waits_for_the_other_one_and_its_certificate_names_that() {
    let mut pool = two_cards();
    let failed = |startable, failed_on: &[u16]| WorkEntry {
        startable,
        failed_on: failed_on.iter().map(|at| MemberId(*at)).collect(),
        ..entry(2, 2)
    };
    pool.handle(T, work(1, vec![WorkEntry { failed_on: [DEVICE].into(), ..entry(1, 1) }]));
    let second = HoldId { member: MemberId(1), number: 1 };
    pool.handle(T, PoolInput::Claim { by: Holder::Judge, hold: second });
    let holds = WorkEntry { startable: false, running_on: Some(second), ..entry(1, 1) };

    let told = pool.handle(T, work(2, vec![holds.clone(), failed(true, &[0])]));
    let waits = pool.devices_of_failed();
    pool.handle(T, work(3, vec![holds, failed(false, &[0, 1])]));
    let failed_on_both = pool.devices_of_failed();

    assert!(!told.iter().any(|told| matches!(told, PoolEffect::GrantJudge { .. })), "{told:?}");
    assert_eq!(waits, [(job(2), JudgesDevice::Judges { member: MemberId(1), job: Some(job(1)) })]);
    assert_eq!(failed_on_both, [(job(2), JudgesDevice::Free { member: DEVICE })]);
}

#[test]
fn a_shared_runner_serves_judge_and_lanes_in_order_of_arrival() {
    let mut pool = Pool::new([(DEVICE, Discipline::FirstCome)]);
    pool.handle(T, work(1, vec![entry(1, 5)]));
    pool.handle(T, ask(1, 2, 4));
    pool.handle(T, ask(2, 3, 6));

    let first = pool.handle(T, member(0, MemberEvent::Ready { last: 0 }));
    let second = pool.handle(T, freed(1, HoldEnd::Stopped(StopCause::Cancelled)));

    assert!(matches!(first[..], [PoolEffect::GrantLane { dev_run, .. }] if dev_run == self::dev_run(2)));
    assert!(second.iter().any(|told| matches!(told, PoolEffect::GrantJudge { .. })));
}

#[test]
fn a_lane_uses_its_own_runner_then_shared_ones_and_never_falls_to_the_core() {
    let own = MemberId(2);
    let pool = Pool::new([
        (DEVICE, Discipline::JudgeFirst),
        (MemberId(1), Discipline::FirstCome),
        (own, Discipline::OneLane(lane(1))),
    ]);
    let alone = Pool::new([(DEVICE, Discipline::JudgeFirst)]);

    assert_eq!(pool.acceptable(lane(1)), [own, MemberId(1)]);
    assert_eq!(pool.acceptable(lane(2)), [MemberId(1)]);
    assert_eq!(alone.acceptable(lane(1)), [DEVICE]);
}

#[test]
fn one_that_comes_to_the_line_after_its_latest_moment_is_not_granted_any_more() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));

    let told = pool.handle(T + Span::seconds(9), ask_until(1, 2, 3, T + Span::seconds(9)));

    let in_line = PoolEffect::InLine { lane: lane(1), dev_run: dev_run(2), ahead: 0 };
    assert_eq!(told, [in_line, gave_up(1, 2, GaveUp::OutOfService)]);
}

/// A pool whose state was changed behind its back: the mutant of a matching that forgets.
fn with_records_again(pool: &Pool) -> Pool {
    let mut state = serde_json::to_value(pool).expect("a pool can be written");
    assert_eq!(state["recording"], false);
    state["recording"] = true.into();
    serde_json::from_value(state).expect("what was written can be read")
}

#[test]
fn the_watchdog_finds_a_development_run_that_stands_beside_a_free_device() {
    let mut pool = swept();
    pool.handle(T, work(1, vec![]));
    pool.handle(T, PoolInput::Recording(false));
    pool.handle(T, ask(1, 2, 3));

    let sound = pool.overlooked();
    let found = with_records_again(&pool).overlooked();

    assert_eq!(sound, None);
    assert_eq!(found, Some(Overlooked::DevRun { lane: lane(1), dev_run: dev_run(2), member: DEVICE }));
    assert_eq!(
        found.unwrap().to_string(),
        format!("development run {} of lane 1 waits although device 0 is free and may serve it", dev_run(2))
    );
}

#[test]
fn the_watchdog_finds_a_job_that_stands_beside_a_free_device_and_no_lane_behind_it() {
    let mut pool = swept();
    pool.handle(T, PoolInput::Recording(false));
    pool.handle(T, work(1, vec![entry(1, 7)]));
    pool.handle(T, ask(1, 2, 3));

    let found = with_records_again(&pool).overlooked();

    assert_eq!(found, Some(Overlooked::Job { job: job(1), member: DEVICE }));
}

#[test]
fn the_watchdog_lets_those_wait_who_have_to() {
    let mut paused = swept();
    paused.handle(T, PoolInput::Recording(false));
    paused.handle(T, work(1, vec![WorkEntry { paused: true, ..entry(1, 7) }]));
    paused.handle(T, ask(1, 2, 3));
    let mut resting = swept();
    resting.handle(T, PoolInput::Recording(false));
    resting.handle(T, work(1, vec![WorkEntry { startable: false, ..entry(1, 7) }]));
    resting.handle(T, ask(1, 2, 3));

    let found = [&paused, &resting].map(|pool| with_records_again(pool).overlooked());

    assert_eq!(found, [None, None]);
}

#[test]
fn a_waiter_beside_a_free_device_is_never_left_standing() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);
    rig.ask(1).unwrap();

    rig.stage_ends(StageResult::Undecided);
    let during = rig.pool.overlooked();
    rig.device(DeviceInput::Exited { number: rig.device.last(), exit: Exit::Code(0) });

    assert_eq!((during, rig.pool.overlooked()), (None, None));
    assert_eq!(rig.holder(), None);
}

proptest! {
    #[test]
    fn no_order_of_inputs_panics_uses_a_number_twice_or_leaves_a_deadline_due(
        inputs in proptest::collection::vec((input(), 0_u64..8_000), 1..200),
    ) {
        let mut pool = Pool::new([(DEVICE, Discipline::JudgeFirst), (MemberId(1), Discipline::FirstCome)]);
        let mut now = T;
        let mut granted = std::collections::BTreeMap::new();
        for (input, later) in inputs {
            now = now + Span::millis(later);
            let mut effects = pool.advance(now);
            prop_assert!(pool.next_deadline().is_none_or(|(due, _)| due > now));
            effects.extend(pool.handle(now, input));
            prop_assert!(pool.next_deadline().is_none_or(|(due, _)| due > now));
            prop_assert_eq!(pool.overlooked(), None);
            for effect in effects {
                if let PoolEffect::GrantLane { hold, .. } | PoolEffect::GrantJudge { hold, .. } = effect {
                    let last = granted.insert(hold.member, hold.number).unwrap_or(0);
                    prop_assert!(hold.number > last, "{} was used before", hold);
                }
            }
            for (_, _, wait) in pool.waits() {
                prop_assert!(wait_end(wait.end) > now);
            }
        }
    }
}

fn input() -> impl Strategy<Value = PoolInput> {
    let hold = || (0_u16..2, 0_u64..6).prop_map(|(member, number)| HoldId { member: MemberId(member), number });
    let by = || prop_oneof![Just(Holder::Judge), (1_u8..4).prop_map(|n| Holder::Lane(lane(n)))];
    let event = prop_oneof![
        (0_u64..3).prop_map(|last| MemberEvent::Ready { last }),
        Just(MemberEvent::Gone { why: String::new() }),
        (0_u64..6).prop_map(|number| MemberEvent::Started { number }),
        (0_u64..6).prop_map(|number| MemberEvent::Freed { number, how: HoldEnd::NotStarted }),
        (0_u64..6).prop_map(|number| MemberEvent::Freed { number, how: HoldEnd::Stopped(StopCause::Cancelled) }),
    ];
    let entry = (1_u8..4, any::<bool>(), any::<bool>(), proptest::option::of(hold())).prop_map(
        |(n, startable, paused, running_on)| WorkEntry { startable, paused, running_on, ..entry(n, u64::from(n)) },
    );
    prop_oneof![
        4 => (1_u8..4, 1_u8..20, 1_u64..30, 0_u64..900)
            .prop_map(|(n, d, arrival, latest)| ask_until(n, d, arrival, T + Span::seconds(latest))),
        1 => (1_u8..4, 1_u8..20).prop_map(|(n, d)| PoolInput::CancelWait { lane: lane(n), dev_run: dev_run(d) }),
        3 => (by(), hold()).prop_map(|(by, hold)| PoolInput::Claim { by, hold }),
        2 => (by(), hold()).prop_map(|(by, hold)| PoolInput::ReleaseUnused { by, hold }),
        6 => (0_u16..2, event).prop_map(|(at, event)| member(at, event)),
        3 => (1_u64..9, proptest::collection::vec(entry, 0..3)).prop_map(|(version, entries)| work(version, entries)),
        1 => Just(PoolInput::RunStopped { run: run(1), why: GaveUp::RunPaused }),
        1 => any::<bool>().prop_map(PoolInput::Recording),
    ]
}

fn swept() -> Pool {
    let mut pool = Pool::new([(DEVICE, Discipline::JudgeFirst)]);
    pool.handle(T, member(0, MemberEvent::Ready { last: 0 }));
    pool
}

fn two_cards() -> Pool {
    let cards = [(DEVICE, Discipline::JudgeOnly), (MemberId(1), Discipline::JudgeOnly)];
    let mut pool = Pool::new(cards);
    pool.handle(T, member(0, MemberEvent::Ready { last: 0 }));
    pool.handle(T, member(1, MemberEvent::Ready { last: 0 }));
    pool
}

fn ask(n: u8, d: u8, arrival: u64) -> PoolInput {
    ask_until(n, d, arrival, T + limits::DEV_RUN_WAIT_MAX)
}

fn ask_until(n: u8, d: u8, arrival: u64, latest: Moment) -> PoolInput {
    PoolInput::Ask {
        lane: lane(n),
        dev_run: dev_run(d),
        run: run(1),
        arrival: Arrival(arrival),
        acceptable: vec![DEVICE],
        limit: Some(limits::SHARED_DEV_RUN_MAX),
        since: T,
        latest,
    }
}

fn entry(n: u8, arrival: u64) -> WorkEntry {
    WorkEntry {
        job: job(n),
        run: run(1),
        stage: StageKind::Screening,
        arrival: Arrival(arrival),
        startable: true,
        paused: false,
        screened_on: None,
        running_on: None,
        wants: Wants::Device,
        may_build: true,
        failed_on: BTreeSet::new(),
    }
}

fn work(version: u64, entries: Vec<WorkEntry>) -> PoolInput {
    PoolInput::JudgeWork(JudgeWork { version, entries, ..JudgeWork::default() })
}

fn member(at: u16, event: MemberEvent) -> PoolInput {
    PoolInput::Member { member: MemberId(at), event }
}

fn freed(number: u64, how: HoldEnd) -> PoolInput {
    member(0, MemberEvent::Freed { number, how })
}

fn gave_up(n: u8, d: u8, why: GaveUp) -> PoolEffect {
    PoolEffect::GaveUp { lane: lane(n), dev_run: dev_run(d), why }
}

fn wait_end(end: WaitEnd) -> Moment {
    match end {
        WaitEnd::Latest { at } => at,
        WaitEnd::Unbounded { .. } => unreachable!("a development run always has a latest moment"),
    }
}
