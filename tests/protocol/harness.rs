//! The harness itself: a test that cannot fail proves nothing.

use std::cell::RefCell;
use std::rc::Rc;

use thermite_actors::ports::Executor;
use thermite_actors::testing::{DevRunScript, VirtualTime};
use thermite_core::contract::Contract;
use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{DevRunId, HoldId, LaneId};
use thermite_core::time::Span;

use crate::scenario::{DEVICE, Scenario};

#[test]
fn the_barrier_drains_this_instant_and_lets_no_time_pass() {
    let time = VirtualTime::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (early, late) = (seen.clone(), seen.clone());
    let began = time.block_on(async { tokio::time::Instant::now() });
    time.block_on(async move {
        tokio::task::spawn_local(async move {
            for step in 0..100 {
                tokio::task::yield_now().await;
                early.borrow_mut().push(step);
            }
        });
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Span::millis(1).to_std()).await;
            late.borrow_mut().push(1_000);
        });
    });

    time.settle();
    let at_once = seen.borrow().clone();
    let passed = time.block_on(async move { began.elapsed() });
    time.advance(Span::millis(1));

    assert_eq!(at_once, (0..100).collect::<Vec<_>>());
    assert_eq!(passed, std::time::Duration::ZERO);
    assert_eq!(seen.borrow().last(), Some(&1_000));
}

#[test]
fn a_device_notes_two_holders_and_work_under_a_used_number() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::endless());
    let hold = |number| HoldId { member: DEVICE, number };
    let spec = |number: u128| DevRunSpec {
        dev_run: DevRunId(uuid::Uuid::from_u128(number)),
        run: rig.run,
        lane: LaneId::new(1).expect("lane 1 exists"),
        worktree: "/lanes/1".into(),
        argv: vec!["./try".to_owned()],
        env: Vec::new(),
        contract: Contract::default(),
        models: Vec::new(),
    };

    drop(rig.device.start(hold(1), spec(1)));
    drop(rig.device.start(hold(2), spec(2)));
    rig.wait_for(rig.device.stop(hold(2), true));
    drop(rig.device.start(hold(2), spec(3)));

    assert_eq!(
        rig.device.faults(),
        [
            "hold 2 of device 0 began beside [HoldId { member: MemberId(0), number: 1 }]",
            "hold 2 of device 0 began beside [HoldId { member: MemberId(0), number: 1 }]",
            "hold 2 of device 0 was used after its stop",
        ]
    );
}

#[test]
#[should_panic(expected = "the watchdog found a waiter")]
fn an_overlooked_waiter_is_counted() {
    let rig = Scenario::one_shared_device();

    tracing::error!(fault = "lane 1", "a waiter was overlooked");

    rig.assert_sound();
}
