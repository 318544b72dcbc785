//! Blocks: their ratio, what throws them away, and how often that may happen (rules A11, D3).

use thermite_core::block::{
    Order, Pair, Side, ThrowCause, TriedBlock, lopsided_chance, throw_causes, thrown_too_often,
};
use thermite_core::readiness::{Reading, SignalState, ThrottleCounter, names};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::{Moment, Span};

use crate::scripted::{quiet, signal, times};

#[test]
fn a_faster_change_has_a_positive_ratio_in_either_order() {
    let abba = Order::Abba.ratio(&[20_000_000, 10_000_000, 10_000_000, 20_000_000]);
    let baab = Order::Baab.ratio(&[10_000_000, 20_000_000, 20_000_000, 10_000_000]);

    assert!((abba - 2.0_f64.ln()).abs() < 1e-12);
    assert_eq!(abba, baab);
}

#[test]
fn quiet_readings_throw_nothing() {
    assert_eq!(causes(|_, _| {}), []);
}

#[test]
fn a_quota_that_held_the_judge_back_in_any_group_throws_the_block() {
    let by_periods = causes(|_, after| after.throttle[0].periods = Some(4));
    let by_time = causes(|before, after| {
        before.throttle.push(counter("/", None, Some(100)));
        after.throttle.push(counter("/", None, Some(101)));
    });

    assert_eq!(by_periods, [ThrowCause::Throttled { group: "/rig".to_owned() }]);
    assert_eq!(by_time, [ThrowCause::Throttled { group: "/".to_owned() }]);
}

#[test]
fn a_missing_counter_is_unknown_and_never_zero() {
    let missing_before = causes(|before, _| before.throttle[0].periods = None);
    let missing_after = causes(|_, after| after.throttle[0].periods = None);
    let group_missing_before = causes(|before, _| before.throttle.clear());
    let group_made_anew = causes(|_, after| after.throttle[0].periods = Some(0));

    for found in [missing_before, missing_after, group_missing_before, group_made_anew] {
        assert_eq!(found, []);
    }
}

#[test]
fn a_slowed_device_or_another_program_throws_the_block_on_either_side_of_it() {
    let slowed = causes(|_, after| after.signals[1] = signal(names::SLOWED, Some(64.0), 0.0, "bits"));
    let other = causes(|before, _| before.signals.push(signal(names::OTHER_PROGRAMS, Some(1.0), 0.0, "")));
    let other_cpu = causes(|_, after| after.signals.push(signal(names::DIRECT_SAMPLE, Some(1.2), 1.0, "cores")));
    let unknown = causes(|_, after| after.signals.push(signal(names::OTHER_PROGRAMS, None, 0.0, "")));
    let recorded_only = causes(|_, after| {
        let mut signal = signal(names::OTHER_PROGRAMS, Some(1.0), 0.0, "");
        signal.required = false;
        assert_eq!(signal.state, SignalState::Busy);
        after.signals.push(signal);
    });

    assert_eq!(slowed, [ThrowCause::Slowed]);
    assert_eq!(other, [ThrowCause::OtherProgram]);
    assert_eq!(other_cpu, [ThrowCause::OtherProgram]);
    assert_eq!((unknown, recorded_only), (vec![], vec![]));
}

#[test]
fn a_step_of_the_wall_clock_throws_the_block_in_either_direction() {
    let on = causes(|_, after| after.clocks.wall_ms += 101);
    let back = causes(|_, after| after.clocks.wall_ms -= 3_600_000);
    let within = causes(|_, after| after.clocks.wall_ms += 100);

    assert_eq!((on, back), (vec![ThrowCause::ClockStepped], vec![ThrowCause::ClockStepped]));
    assert_eq!(within, []);
}

#[test]
fn a_suspend_throws_the_block_and_is_no_step_of_the_clock() {
    let slept = causes(|_, after| {
        after.clocks.boot_ms += 30_000;
        after.clocks.wall_ms += 30_000;
    });

    assert_eq!(slept, [ThrowCause::Slept]);
}

#[test]
fn every_cause_is_kept() {
    let all = causes(|_, after| {
        after.throttle[0].periods = Some(9);
        after.clocks.wall_ms += 5_000;
    });

    assert_eq!(all, [ThrowCause::Throttled { group: "/rig".to_owned() }, ThrowCause::ClockStepped]);
}

#[test]
fn a_thrown_block_has_no_ratio() {
    let mut figures = times(Moment::START, Order::Abba, 0.9, 0);
    figures.after.throttle[0].periods = Some(4);

    let thrown = TriedBlock::judged(Order::Abba, figures);

    assert!(matches!(thrown, TriedBlock::Thrown { .. }));
    assert_eq!(thrown.ratio(), None);
    assert_eq!(lost(Side::Change).ratio(), None);
}

#[test]
fn five_thrown_blocks_are_borne_and_the_sixth_ends_the_attempt() {
    let mut blocks = vec![accepted(); 3];
    blocks.extend(vec![throttled(); 5]);

    assert_eq!(thrown_too_often(Pair::ChampionAndChange, &blocks), None);
    blocks.push(throttled());
    let failure = thrown_too_often(Pair::ChampionAndChange, &blocks);

    let text = "throttled 6 of 9 blocks: a CPU quota held back group /rig";
    assert_eq!(failure.map(|failure| failure.to_string()).as_deref(), Some(text));
}

#[test]
fn too_many_thrown_blocks_are_said_by_their_cause() {
    let clocks = |slept: u64, stepped: u64| {
        thrown(|after| {
            after.clocks.boot_ms += slept;
            after.clocks.wall_ms += slept + stepped;
        })
    };
    let other = thrown(|after| after.signals.push(signal(names::OTHER_PROGRAMS, Some(1.0), 0.0, "")));
    let slowed = thrown(|after| after.signals[1] = signal(names::SLOWED, Some(64.0), 0.0, "bits"));
    let both_groups = thrown(|after| {
        after.throttle[0].periods = Some(4);
        after.throttle.push(counter("/", Some(1), None));
    });

    for (kind, text) in [
        (clocks(30_000, 0), "the machine slept in 6 of 6 blocks"),
        (clocks(0, 5_000), "the wall clock stepped in 6 of 6 blocks"),
        (other, "another program used the device in 6 of 6 blocks"),
        (slowed, "the device was slowed for heat or power in 6 of 6 blocks"),
        (both_groups, "throttled 6 of 6 blocks: a CPU quota held back group /"),
    ] {
        assert_eq!(said_of(&vec![kind; 6]), text);
    }
    let mut mixed = vec![clocks(30_000, 0); 2];
    mixed.extend(vec![throttled(); 3]);
    mixed.push(lost(Side::Change));
    mixed.extend(vec![accepted(); 4]);
    assert_eq!(
        said_of(&mixed),
        "throttled 3 of 10 blocks: a CPU quota held back group /rig; the machine slept in 2 of 10 blocks; a measured \
         process died of infrastructure in 1 of 10 blocks (6 of 10 blocks were thrown away)"
    );
    let alike = [vec![lost(Side::Champion); 3], vec![lost(Side::Change); 3]].concat();
    assert_eq!(said_of(&alike), "a measured process died of infrastructure in 6 of 6 blocks");
}

#[test]
fn a_failure_that_was_recorded_without_its_causes_is_still_read() {
    let old = r#"{"infrastructure":"too_many_thrown","thrown":6,"of":9,"cause":"the machine slept"}"#;

    let failure: InfrastructureFailure = serde_json::from_str(old).unwrap();

    assert_eq!(failure.to_string(), "6 of 9 blocks were thrown away");
}

#[test]
fn with_many_accepted_blocks_a_quarter_of_them_is_borne() {
    let mut blocks = vec![accepted(); 100];
    blocks.extend(vec![throttled(); 25]);

    assert_eq!(thrown_too_often(Pair::ChampionAndChange, &blocks), None);
    blocks.push(throttled());
    assert!(matches!(
        thrown_too_often(Pair::ChampionAndChange, &blocks),
        Some(InfrastructureFailure::TooManyThrown { thrown: 26, of: 126, .. })
    ));
}

#[test]
fn losses_that_fall_on_one_label_are_taken_for_steered() {
    let mut blocks = vec![accepted(); 100];
    blocks.extend(vec![lost(Side::Change); 10]);

    assert_eq!(thrown_too_often(Pair::ChampionAndChange, &blocks), None);
    blocks.push(lost(Side::Change));
    let expected = InfrastructureFailure::ThrowsSteered { side: Side::Change.to_string(), on_side: 11, thrown: 11 };
    assert_eq!(thrown_too_often(Pair::ChampionAndChange, &blocks), Some(expected));
    assert_eq!(thrown_too_often(Pair::ChampionTwice, &blocks), None);
}

#[test]
fn throws_whose_label_cannot_be_told_count_for_neither() {
    let mut blocks = vec![accepted(); 100];
    blocks.extend(vec![throttled(); 12]);
    blocks.extend(vec![lost(Side::Champion); 10]);

    assert_eq!(thrown_too_often(Pair::ChampionAndChange, &blocks), None);
}

#[test]
fn the_chance_of_a_lopsided_row_is_the_binomials() {
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} and {expected}");

    near(lopsided_chance(0, 0), 1.0);
    near(lopsided_chance(11, 11), 2.0 / 2048.0);
    near(lopsided_chance(10, 11), 2.0 * 12.0 / 2048.0);
    near(lopsided_chance(5, 10), 1.0);
    assert!(lopsided_chance(1_400, 2_500) < 0.001);
    assert!(lopsided_chance(1_300, 2_500) > 0.01);
}

fn causes(change: impl FnOnce(&mut Reading, &mut Reading)) -> Vec<ThrowCause> {
    let mut before = quiet(Moment::from_millis(5_000));
    let mut after = quiet(Moment::from_millis(5_000) + Span::millis(400));
    change(&mut before, &mut after);
    throw_causes(&before, &after)
}

fn counter(group: &str, periods: Option<u64>, held_ns: Option<u64>) -> ThrottleCounter {
    ThrottleCounter { group: group.to_owned(), periods, held_ns }
}

fn accepted() -> TriedBlock {
    TriedBlock::judged(Order::Abba, times(Moment::START, Order::Abba, 1.0, 0))
}

fn throttled() -> TriedBlock {
    let mut figures = times(Moment::START, Order::Baab, 1.0, 0);
    figures.after.throttle[0].periods = Some(4);
    TriedBlock::judged(Order::Baab, figures)
}

fn thrown(change: impl FnOnce(&mut Reading)) -> TriedBlock {
    let mut figures = times(Moment::START, Order::Baab, 1.0, 0);
    figures.before.throttle.push(counter("/", Some(0), None));
    change(&mut figures.after);
    TriedBlock::judged(Order::Baab, figures)
}

fn said_of(blocks: &[TriedBlock]) -> String {
    let failure = thrown_too_often(Pair::ChampionAndChange, blocks);
    failure.expect("more than are borne").to_string()
}

fn lost(running: Side) -> TriedBlock {
    TriedBlock::Lost { order: Order::Abba, at: Moment::START, running, why: "killed for memory".to_owned() }
}
