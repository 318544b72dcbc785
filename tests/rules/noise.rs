//! A device's noise: its measure, its age, what it refuses, and the alarm on the harness (rules B10, D6).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use thermite_core::block::Side;
use thermite_core::contract::Contract;
use thermite_core::fold::RigHistory;
use thermite_core::ids::MemberId;
use thermite_core::job::StageKind;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::noise::{ChampionTwice, HarnessAlarm, Noise, NoiseDoubt, NoiseKey, Suits, scale_of};
use thermite_core::time::Span;
use thermite_core::verdict::Constants;

const PLAN: f64 = 0.01;

#[test]
fn the_scale_is_the_median_absolute_deviation() {
    let outlier = scale_of(&[0.01, -0.01, 0.03, -0.02, 9.0]);
    let even = scale_of(&[1.0, 2.0, 3.0, 4.0]);

    assert!((outlier.unwrap() - 1.4826 * 0.02).abs() < 1e-12, "{outlier:?}");
    assert!((even.unwrap() - 1.4826).abs() < 1e-12);
    assert_eq!(scale_of(&[]), None);
    assert_eq!(scale_of(&[0.5]), Some(0.0));
}

#[test]
fn a_measure_needs_forty_blocks() {
    let ratios: Vec<f64> = (0..40).map(|at| f64::from(at) / 1_000.0).collect();

    assert_eq!(Noise::measured(key(), &ratios[..39], 5), None);
    let noise = Noise::measured(key(), &ratios, 5).unwrap();
    assert_eq!((noise.blocks, noise.wall_ms), (40, 5));
    assert!((noise.scale - 1.4826 * 0.01).abs() < 1e-12);
}

#[test]
fn a_measure_is_good_for_its_key_and_for_a_day() {
    let noise = noise(0.01);
    let day = Span::hours(24).as_millis();
    let other = NoiseKey { driver: "581.10".to_owned(), ..key() };

    assert!(noise.is_good(&key(), noise.wall_ms + day));
    assert!(!noise.is_good(&key(), noise.wall_ms + day + 1));
    assert!(!noise.is_good(&key(), noise.wall_ms - 1));
    assert!(!noise.is_good(&other, noise.wall_ms));
}

#[test]
fn a_device_refuses_above_three_plans_and_warns_above_two() {
    assert_eq!(noise(2.0 * PLAN).suits(PLAN), Suits::Well);
    assert_eq!(noise(2.01 * PLAN).suits(PLAN), Suits::Barely);
    assert_eq!(noise(3.0 * PLAN).suits(PLAN), Suits::Barely);
    assert_eq!(noise(3.01 * PLAN).suits(PLAN), Suits::Not);
    assert_eq!(noise(3.0 * PLAN).check(MemberId(1), PLAN), Ok(()));
}

#[test]
fn a_refusal_names_noise_and_limit() {
    let refused = noise(0.042).check(MemberId(1), PLAN).unwrap_err();

    assert_eq!(
        refused.to_string(),
        "device 1 is too noisy for this contract: noise 4.20 %, limit 3.00 %; make the machine quieter and have it \
         measured anew (`thermite noise --again 1`), or plan for a larger effect"
    );
}

#[test]
fn a_warning_names_noise_plan_and_what_to_expect() {
    let warning = |scale: f64| noise(scale).warning(MemberId(1), PLAN);

    assert_eq!(
        warning(0.024).unwrap(),
        "device 1 is noisy for this contract: noise 2.40 %, over twice the plan effect of 1.00 %; expect about 63 blocks \
         to screen and 98 to confirm"
    );
    assert_eq!((warning(0.02), warning(0.031)), (None, None), "well enough; and refused, which is no warning");
}

#[test]
fn the_blocks_to_expect_grow_with_the_square_of_the_noise() {
    assert!((noise(0.02).expected_blocks(StageKind::Confirmation, PLAN) - 68.0).abs() < 1e-9);
    assert!((noise(0.02).expected_blocks(StageKind::Screening, PLAN) - 44.0).abs() < 1e-9);
}

#[test]
fn a_jobs_own_scale_outside_half_to_twice_asks_for_a_new_measure() {
    let noise = noise(0.01);
    let ratios = |scale: f64, blocks: u32| -> Vec<f64> {
        (0..blocks).map(|at| if at % 2 == 0 { scale / 1.4826 } else { -scale / 1.4826 }).collect()
    };

    assert!(!noise.is_off(&ratios(0.019, 40)));
    assert!(noise.is_off(&ratios(0.021, 40)));
    assert!(!noise.is_off(&ratios(0.0051, 40)));
    assert!(noise.is_off(&ratios(0.0049, 40)));
    assert!(!noise.is_off(&ratios(0.5, limits::NOISE_OFF_BLOCKS - 1)));
}

#[test]
fn a_harness_that_favours_one_place_raises_the_alarm_for_good() {
    for (sign, side) in [(1.0, Side::Change), (-1.0, Side::Champion)] {
        let constants = constants();
        let mut alarm = HarnessAlarm::default();
        let mut raised = None;
        for _ in 0..60 {
            raised = raised.or(alarm.add(sign * 0.01, &constants));
        }

        let raised = raised.expect("a lasting bias of one noise scale is found within 60 blocks");
        assert_eq!(raised.side, side);
        assert!(raised.evidence >= 1_000.0 && raised.blocks < 60);
        for _ in 0..200 {
            alarm.add(-sign * 0.01, &constants);
        }
        assert_eq!(alarm.raised(), Some(raised));
    }
}

#[test]
fn a_fair_harness_raises_no_alarm_in_200_lives_of_1000_blocks() {
    let constants = constants();
    let mut coins = ChaCha8Rng::seed_from_u64(11);
    println!("seed 11");

    let alarms = (0..200)
        .filter(|_| {
            let mut alarm = HarnessAlarm::default();
            (0..1_000).any(|_| {
                let size = f64::from(coins.next_u32() % 1_000) / 50_000.0;
                alarm.add(if coins.next_u32() & 1 == 0 { size } else { -size }, &constants).is_some()
            })
        })
        .count();

    // At most 0.4 are to be expected; four or more have a chance under one in a thousand.
    assert!(alarms < 4, "{alarms} of 200");
}

#[test]
fn the_alarm_survives_being_stored() {
    let constants = constants();
    let mut alarm = HarnessAlarm::default();
    for at in 0..37 {
        alarm.add(0.001 * f64::from(at % 5) - 0.0017, &constants);
    }

    let stored: HarnessAlarm = serde_json::from_str(&serde_json::to_string(&alarm).unwrap()).unwrap();

    assert_eq!(stored, alarm);
    assert_eq!(stored.blocks(), 37);
}

/// Honest blocks of all sizes, measured under kits of different plans and scales, as a card sees them in years.
#[test]
fn a_fair_device_stays_in_service_over_100000_blocks() {
    for seed in 21..24 {
        println!("seed {seed}");
        let mut luck = ChaCha8Rng::seed_from_u64(seed);
        let mut history = RigHistory::default();
        let mut scale = PLAN;
        for attempt in 0..2_500 {
            let noise = [0.0004, 0.003, 0.02, 0.4][attempt % 4];
            let ratios: Vec<f64> = (0..40).map(|_| noise * fair(&mut luck)).collect();
            history.apply(twice(scale, &ratios));
            scale = scale_of(&ratios).expect("forty blocks have a scale");
        }

        let alarm = &history.alarms["GPU-6f2c"];
        assert_eq!((alarm.blocks(), alarm.raised()), (100_000, None), "evidence ln {:.2}", alarm.ln_evidence());
    }
}

#[test]
fn a_biased_device_raises_its_alarm_whichever_kit_it_is_seen_with() {
    let mut luck = ChaCha8Rng::seed_from_u64(5);
    println!("seed 5");
    let mut history = RigHistory::default();
    let mut attempts = 0;
    while history.alarms.get("GPU-6f2c").and_then(HarnessAlarm::raised).is_none() {
        attempts += 1;
        assert!(attempts < 20, "a bias of one noise is found within 800 blocks");
        let noise = [0.001, 0.01][attempts % 2];
        let ratios: Vec<f64> = (0..40).map(|_| noise * (fair(&mut luck) + 1.0)).collect();
        history.apply(twice(noise, &ratios));
    }

    let raised = history.alarms["GPU-6f2c"].raised().expect("the loop ends with it");
    println!("after {attempts} attempts: {raised}");
    assert_eq!(raised.side, Side::Change);
    let said = raised.to_string();
    assert!(said.starts_with("champion against champion favours the place of the change: evidence 1"), "{said}");
}

#[test]
fn a_cleared_alarm_begins_anew_and_the_log_tells_it() {
    let quarantined =
        LogEntry::DeviceQuarantined { device: "GPU-6f2c".to_owned(), why: "it favours the change".to_owned() };
    let log = [twice(PLAN, &[0.02; 40]), quarantined, LogEntry::QuarantineCleared { device: "GPU-6f2c".to_owned() }];

    let before = RigHistory::of(log[..2].to_vec());
    let after = RigHistory::of(log);

    assert!(before.alarms["GPU-6f2c"].raised().is_some());
    assert_eq!(before.quarantined["GPU-6f2c"], "it favours the change");
    assert!(after.alarms.is_empty() && after.quarantined.is_empty());
}

#[test]
fn a_doubted_measure_is_kept_to_be_seen_and_not_used_until_there_is_a_new_one() {
    let measured = |scale| LogEntry::NoiseMeasured { noise: noise(scale) };
    let doubted = LogEntry::NoiseDoubted { key: key(), why: NoiseDoubt::JobsOwnScale };

    let history = RigHistory::of([measured(0.01), doubted.clone()]);
    let again = RigHistory::of([measured(0.01), doubted, measured(0.02)]);

    assert_eq!((history.noise.len(), history.usable_noise().count()), (1, 0));
    assert_eq!(again.usable_noise().map(|(_, noise)| noise.scale).collect::<Vec<_>>(), [0.02]);
}

fn twice(scale: f64, ratios: &[f64]) -> LogEntry {
    let blocks = ChampionTwice { device: "GPU-6f2c".to_owned(), plan_effect: PLAN, scale, ratios: ratios.to_vec() };
    LogEntry::ChampionTwice { blocks }
}

/// A symmetric number with a spread of about one.
fn fair(luck: &mut ChaCha8Rng) -> f64 {
    (0..3).map(|_| f64::from(luck.next_u32()) / f64::from(u32::MAX) * 2.0 - 1.0).sum()
}

fn key() -> NoiseKey {
    NoiseKey {
        device: "GPU-6f2c".to_owned(),
        kit: "d4".repeat(32),
        driver: "580.95".to_owned(),
        clock_policy: "locked".to_owned(),
    }
}

fn noise(scale: f64) -> Noise {
    Noise { key: key(), scale, blocks: 40, wall_ms: 1_790_000_000_000 }
}

fn constants() -> Constants {
    Constants::new(StageKind::Confirmation, &Contract::default(), 0.01)
}
