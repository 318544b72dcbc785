//! Limits and waits go on while the machine sleeps, and a wall clock that is set changes none of them (rule A11).

use thermite_core::contract::Contract;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::DevRunId;
use thermite_core::limits;
use thermite_core::refusal::GaveUp;
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario, endless};

/// A limit longer than another lane waits.
const RUN_MAX: Span = Span::minutes(30);

#[test]
fn a_development_run_is_over_its_limit_once_the_machine_wakes() {
    let rig = with_endless_runs();
    let runs = rig.dev_run(1);
    rig.advance(Span::minutes(1));

    rig.clock.sleep(Span::hours(1));
    let late = ended_within(&rig, runs);

    println!("its end was said {late} after the machine woke");
    assert_eq!(rig.end_of(runs), DevRunEnd::LimitReached { limit: RUN_MAX });
    rig.assert_sound();
}

#[test]
fn a_wait_is_over_once_the_machine_wakes() {
    let rig = with_endless_runs();
    let holds = rig.dev_run(1);
    let waits = rig.dev_run(2);
    rig.advance(Span::minutes(1));

    rig.clock.sleep(Span::minutes(10));
    let late = ended_within(&rig, waits);

    println!("its end was said {late} after the machine woke");
    assert_eq!(rig.end_of(waits), DevRunEnd::GaveUp { why: GaveUp::LaneHeldDevice });
    assert!(rig.runs(holds), "its own limit is later");
    rig.assert_sound();
}

#[test]
fn a_wall_clock_that_is_set_on_or_back_by_a_day_ends_no_wait_early_or_late() {
    for day_ms in [86_400_000, -86_400_000] {
        let rig = with_endless_runs();
        rig.dev_run(1);
        let waits = rig.dev_run(2);
        let asked = rig.now();
        rig.advance(Span::minutes(1));

        rig.clock.step_wall(day_ms);
        let end = rig.end_of(waits);

        assert_eq!(end, DevRunEnd::GaveUp { why: GaveUp::LaneHeldDevice }, "{day_ms}");
        assert_eq!(rig.now().since(asked), limits::DEV_RUN_WAIT_MAX, "{day_ms}");
        rig.assert_sound();
    }
}

fn with_endless_runs() -> Scenario {
    let contract = Contract { dev_run_max: Some(RUN_MAX), ..Contract::default() };
    Scenario::begin(Beginning {
        set: Box::new(move |device, workspaces| {
            endless(device);
            workspaces.change_kit(|kit| kit.contract = contract);
        }),
        ..Beginning::default()
    })
}

/// How long after this moment the run's end is known; no longer than a timer may oversleep, and the stop's proof.
fn ended_within(rig: &Scenario, dev_run: DevRunId) -> Span {
    let from = rig.now();
    rig.end_of(dev_run);
    let late = rig.now().since(from);
    assert!(late <= limits::CLOCK_LOOK_EVERY + limits::STOP_GRACE, "{late}");
    late
}
