//! Readiness of a card, what is seen in a block, and what is left after a hold (rules A7, B3, D1, D3).

use proptest::prelude::*;

use thermite_core::block::{ThrowCause, throw_causes};
use thermite_core::contract::Target;
use thermite_core::limits;
use thermite_core::readiness::gpu::{
    Card, Programs, Resting, Sample, Seen, after_block, before_block, is_required, left_over, slowed_by, unnamed,
};
use thermite_core::readiness::{Reading, Signal, SignalState, look_every, names};
use thermite_core::time::{Moment, Span};

use crate::scripted::quiet;

const MIB: u64 = 1024 * 1024;

#[test]
fn an_idle_card_is_ready() {
    let signals = before_block(&card(), &rested(), &idle(5));

    assert_eq!(reading(signals.clone()).not_ready(), None);
    let required: Vec<&str> = signals.iter().filter(|of| of.required).map(|of| of.name.as_str()).collect();
    assert_eq!(required, [names::GPU_USE, names::GPU_MEMORY, names::OTHER_PROGRAMS, names::TEMPERATURE, names::SLOWED]);
}

#[test]
fn use_is_the_median_of_at_least_five_samples() {
    let used = |figures: &[f64]| {
        let samples: Vec<Sample> =
            figures.iter().map(|figure| Sample { use_percent: Some(*figure), ..sample() }).collect();
        state(&before_block(&card(), &rested(), &samples), names::GPU_USE)
    };

    assert_eq!(used(&[0.0, 100.0, 5.0, 100.0, 1.0]), SignalState::Ok);
    assert_eq!(used(&[0.0, 100.0, 6.0, 100.0, 1.0]), SignalState::Busy);
    assert_eq!(used(&[0.0; 4]), SignalState::Unknown);
    assert_eq!(used(&[100.0, 100.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0]), SignalState::Ok, "the newest count");
}

#[test]
fn one_unknown_use_among_the_newest_makes_it_unknown() {
    let mut samples = idle(5);
    samples[2].use_percent = None;

    let signals = before_block(&card(), &rested(), &samples);

    assert_eq!(reading(signals).not_ready().as_deref(), Some("gpu_use is unknown"));
}

#[test]
fn a_card_without_samples_is_unknown_throughout_and_not_ready() {
    let signals = before_block(&card(), &Resting::default(), &[]);

    assert!(signals.iter().all(|signal| signal.state == SignalState::Unknown && signal.value.is_none()));
    assert!(reading(signals).not_ready().is_some());
}

#[test]
fn memory_is_held_against_the_resting_level_and_the_larger_allowance() {
    let with = |used: u64, total: u64| {
        let card = Card { memory_total: Some(total), ..card() };
        let samples: Vec<Sample> = idle(5).into_iter().map(|of| Sample { memory_used: Some(used), ..of }).collect();
        state(&before_block(&card, &rested(), &samples), names::GPU_MEMORY)
    };

    assert_eq!(with(856 * MIB, 8_000 * MIB), SignalState::Ok, "600 at rest and 256 beside");
    assert_eq!(with(857 * MIB, 8_000 * MIB), SignalState::Busy);
    assert_eq!(with(2_600 * MIB, 100_000 * MIB), SignalState::Ok, "600 at rest and 2 %");
    assert_eq!(with(2_601 * MIB, 100_000 * MIB), SignalState::Busy);
}

#[test]
fn the_resting_level_is_learnt_only_while_nobody_computes_and_is_believed_only_so_far() {
    let mut resting = Resting::default();
    resting.learn(&Sample { memory_used: Some(300 * MIB), programs: Some(Programs { own: 0, others: 1 }), ..sample() });
    resting.learn(&Sample { memory_used: Some(200 * MIB), programs: None, ..sample() });
    assert_eq!(resting.level(&card()), None);

    resting.learn(&Sample { memory_used: Some(70_000 * MIB), ..sample() });
    assert_eq!(resting.level(&card()), Some(10_000 * MIB), "a tenth of 100,000 MiB");
    resting.learn(&Sample { memory_used: Some(700 * MIB), ..sample() });
    resting.learn(&Sample { memory_used: Some(900 * MIB), ..sample() });
    assert_eq!(resting.level(&card()), Some(700 * MIB));
}

#[test]
fn another_program_in_any_of_the_newest_samples_keeps_the_judge_off() {
    let mut samples = idle(5);
    samples[1].programs = Some(Programs { own: 0, others: 1 });

    let signals = before_block(&card(), &rested(), &samples);

    assert_eq!(reading(signals).not_ready().as_deref(), Some("other_programs 1.00 of at most 0.00 programs"));
}

#[test]
fn heat_is_held_against_the_cards_own_slow_down_point() {
    let at = |temperature: f64, slow_down_at: Option<f64>| {
        let samples: Vec<Sample> =
            idle(5).into_iter().map(|of| Sample { temperature: Some(temperature), ..of }).collect();
        state(&before_block(&Card { slow_down_at, ..card() }, &rested(), &samples), names::TEMPERATURE)
    };

    assert_eq!((at(77.0, Some(87.0)), at(78.0, Some(87.0))), (SignalState::Ok, SignalState::Busy));
    assert_eq!((at(83.0, None), at(84.0, None)), (SignalState::Ok, SignalState::Busy));
}

#[test]
fn a_slowed_card_is_not_ready_and_says_by_what() {
    let mut samples = idle(5);
    samples[4].clock_reasons = Some(0x44);

    let signals = before_block(&card(), &rested(), &samples);

    assert_eq!(reading(signals).not_ready().as_deref(), Some("slowed 68.00 (power cap, heat by hardware)"));
}

#[test]
fn idle_and_settings_are_no_slow_down_and_unnamed_bits_are_told_and_not_judged() {
    // Idle, application clocks, sync boost, display clock, and two bits from a driver to come.
    let bits = 0x1 | 0x2 | 0x10 | 0x100 | 0x200 | 0x8000;
    let samples: Vec<Sample> = idle(5).into_iter().map(|of| Sample { clock_reasons: Some(bits), ..of }).collect();

    let signals = before_block(&card(), &rested(), &samples);

    assert_eq!(reading(signals.clone()).not_ready(), None);
    assert_eq!(unnamed(bits), 0x8200);
    let told = signals.iter().find(|of| of.name == "unnamed_clock_reasons").expect("it is recorded");
    assert_eq!((told.value, told.required), (Some(f64::from(0x8200)), false));
    assert!(slowed_by(bits).is_empty());
}

#[test]
fn every_bit_that_slows_a_card_has_a_name() {
    for bit in (0..64).map(|shift| 1_u64 << shift) {
        assert_eq!(slowed_by(bit).len(), usize::from(limits::GPU_SLOWED_BITS & bit != 0), "bit {bit:#x}");
    }
}

#[test]
fn a_gb10_need_not_tell_its_memory_and_other_cards_must() {
    let samples: Vec<Sample> = idle(5).into_iter().map(|of| Sample { memory_used: None, ..of }).collect();
    let silent = |model: &str| Card { model: model.to_owned(), memory_total: None, ..card() };

    let gb10 = before_block(&silent("NVIDIA GB10"), &Resting::default(), &samples);
    let h200 = before_block(&silent("NVIDIA H200"), &Resting::default(), &samples);

    assert_eq!(state(&gb10, names::GPU_MEMORY), SignalState::Unknown);
    assert_eq!(reading(gb10).not_ready(), None);
    assert_eq!(reading(h200).not_ready().as_deref(), Some("gpu_memory is unknown"));
    assert!(is_required("NVIDIA GB10", names::OTHER_PROGRAMS));
    assert!(!is_required("NVIDIA H200", "power"));
}

#[test]
fn what_is_not_told_is_unknown_for_every_required_signal() {
    type Silence = fn(&mut Sample);
    let silences: [(&str, Silence); 5] = [
        (names::GPU_USE, |of| of.use_percent = None),
        (names::GPU_MEMORY, |of| of.memory_used = None),
        (names::OTHER_PROGRAMS, |of| of.programs = None),
        (names::TEMPERATURE, |of| of.temperature = None),
        (names::SLOWED, |of| of.clock_reasons = None),
    ];
    for (name, silence) in silences {
        let mut samples = idle(5);
        samples.iter_mut().for_each(silence);

        let signals = before_block(&card(), &rested(), &samples);

        assert_eq!(reading(signals).not_ready(), Some(format!("{name} is unknown")));
    }
}

#[test]
fn programs_are_told_apart_by_pid_and_where_pids_mean_nothing_by_count() {
    let apart = |owned: &[Option<bool>], live: usize| {
        let found = Programs::tell_apart(owned, live);
        (found.own, found.others)
    };

    assert_eq!(apart(&[Some(true), Some(false), Some(true)], 5), (2, 1));
    // In a container: before, with ours, back.
    assert_eq!(apart(&[], 0), (0, 0));
    assert_eq!(apart(&[None], 1), (1, 0));
    assert_eq!(apart(&[None, None], 1), (1, 1), "one more than the block has");
    assert_eq!(apart(&[None], 0), (0, 1), "the block is over and it is still there");
    assert_eq!(apart(&[Some(true), None], 1), (1, 1), "the only live process was found already");
}

proptest! {
    #[test]
    fn no_program_is_lost_in_telling_apart(owned in prop::collection::vec(any::<Option<bool>>(), 0..9), live in 0_usize..9) {
        let found = Programs::tell_apart(&owned, live);

        prop_assert_eq!((found.own + found.others) as usize, owned.len());
        prop_assert!(found.others as usize >= owned.iter().filter(|of| **of == Some(false)).count());
    }

    #[test]
    fn a_ready_card_has_every_required_signal_within_its_limit(
        usage in prop::option::of(0.0_f64..100.0), used in prop::option::of(0_u64..4_000), temperature in prop::option::of(20.0_f64..100.0),
        bits in prop::option::of(0_u64..0x400), others in prop::option::of(0_u32..2),
    ) {
        let said = Sample {
            use_percent: usage,
            memory_used: used.map(|used| used * MIB),
            temperature,
            clock_reasons: bits,
            programs: others.map(|others| Programs { own: 0, others }),
            ..sample()
        };
        let ready = reading(before_block(&card(), &rested(), &vec![said; 5])).not_ready().is_none();

        let plainly = usage.is_some_and(|figure| figure <= 5.0)
            && used.is_some_and(|used| used <= 2_600)
            && temperature.is_some_and(|degrees| degrees <= 77.0)
            && bits.is_some_and(|bits| bits & 0xEC == 0)
            && others == Some(0);
        prop_assert_eq!(ready, plainly);
    }
}

#[test]
fn the_blocks_own_use_throws_nothing() {
    let mut seen = Seen::default();
    for _ in 0..3 {
        seen.take(&Sample {
            use_percent: Some(100.0),
            memory_used: Some(90_000 * MIB),
            programs: Some(Programs { own: 1, others: 0 }),
            ..sample()
        });
    }

    assert_eq!(thrown(&seen, true), []);
}

#[test]
fn a_block_beside_another_program_or_on_a_slowed_card_is_thrown_however_short_it_was() {
    let own = Sample { programs: Some(Programs { own: 1, others: 0 }), ..sample() };
    let shared = Sample { programs: Some(Programs { own: 1, others: 1 }), ..sample() };
    let slow = Sample { clock_reasons: Some(0x80), ..own.clone() };
    let after = |samples: &[&Sample]| {
        let mut seen = Seen::default();
        samples.iter().for_each(|sample| seen.take(sample));
        thrown(&seen, true)
    };

    assert_eq!(after(&[&own, &shared, &own]), [ThrowCause::OtherProgram]);
    assert_eq!(after(&[&own, &own, &slow]), [ThrowCause::Slowed], "right after it");
    assert_eq!(after(&[&slow, &shared]), [ThrowCause::Slowed, ThrowCause::OtherProgram]);
}

#[test]
fn the_first_block_must_be_seen_on_the_card_and_later_ones_need_not() {
    let mut elsewhere = Seen::default();
    elsewhere.take(&sample());
    let mut untold = Seen::default();
    untold.take(&Sample { programs: None, ..sample() });

    assert_eq!(thrown(&elsewhere, true), [ThrowCause::Elsewhere]);
    assert_eq!(thrown(&elsewhere, false), []);
    assert_eq!(thrown(&untold, true), [ThrowCause::Elsewhere], "unknown is not known to be here");
    assert_eq!(thrown(&Seen::default(), true), [ThrowCause::Elsewhere]);
    assert_eq!(ThrowCause::Elsewhere.to_string(), "what was measured was not seen on the granted device");
}

#[test]
fn what_is_left_on_a_card_is_said_with_pid_and_memory() {
    let held = Sample { programs: Some(Programs { own: 0, others: 1 }), memory_used: Some(3_000 * MIB), ..sample() };
    let orphaned = Sample { memory_used: Some(3_000 * MIB), ..sample() };

    assert_eq!(left_over(&card(), &rested(), &sample(), &[]), None);
    assert_eq!(
        left_over(&card(), &rested(), &held, &["pid 4711 (python3, state D)".to_owned()]).as_deref(),
        Some("the card still lists pid 4711 (python3, state D), with 3000 MiB of its memory in use")
    );
    assert_eq!(
        left_over(&card(), &rested(), &orphaned, &[]).as_deref(),
        Some(
            "3000 MiB of the card's memory is in use and no program is listed, at rest it is at most 2600 MiB; end what \
             holds it, or reset the card"
        )
    );
}

#[test]
fn a_card_that_does_not_tell_proves_nothing() {
    let silent = Sample { programs: None, memory_used: None, ..sample() };
    let gb10 = Card { model: "NVIDIA GB10".to_owned(), ..card() };
    let memory_untold = Sample { memory_used: None, ..sample() };

    assert_eq!(
        left_over(&card(), &rested(), &silent, &[]).as_deref(),
        Some("nothing proves that the card is free: other_programs is unknown")
    );
    assert_eq!(
        left_over(&card(), &rested(), &memory_untold, &[]).as_deref(),
        Some("nothing proves that the card is free: gpu_memory is unknown")
    );
    assert_eq!(left_over(&gb10, &rested(), &memory_untold, &[]), None);
    assert!(left_over(&gb10, &rested(), &silent, &[]).is_some());
}

#[test]
fn a_card_is_looked_at_every_two_seconds_and_a_machine_every_five() {
    assert_eq!(look_every(Target::CudaGpu), Span::seconds(2));
    assert_eq!(look_every(Target::Cpu), Span::seconds(5));
}

fn card() -> Card {
    Card { model: "NVIDIA H200".to_owned(), memory_total: Some(100_000 * MIB), slow_down_at: Some(87.0) }
}

/// A card at rest holds 600 MiB.
fn rested() -> Resting {
    let mut resting = Resting::default();
    resting.learn(&sample());
    resting
}

fn sample() -> Sample {
    Sample {
        at: Moment::START,
        use_percent: Some(0.0),
        memory_used: Some(600 * MIB),
        programs: Some(Programs::default()),
        graphics: Some(0),
        temperature: Some(41.0),
        clock_reasons: Some(1),
        sm_clock: Some(345.0),
        memory_clock: Some(2_619.0),
        power: Some(75.0),
    }
}

fn idle(count: usize) -> Vec<Sample> {
    vec![sample(); count]
}

fn reading(signals: Vec<Signal>) -> Reading {
    Reading { signals, ..quiet(Moment::START) }
}

fn state(signals: &[Signal], name: &str) -> SignalState {
    signals.iter().find(|signal| signal.name == name).expect("it is among them").state
}

fn thrown(seen: &Seen, is_first: bool) -> Vec<ThrowCause> {
    let before = reading(before_block(&card(), &rested(), &idle(5)));
    throw_causes(&before, &reading(after_block(&card(), seen, is_first)))
}
