//! A device's noise from its first measure to its alarm (rules B10, D6).

use std::cell::Cell;

use thermite_actors::noise::DeviceNoise;
use thermite_actors::ports::StageRef;
use thermite_actors::rig::No;
use thermite_actors::testing::Call;
use thermite_actors::view::JobStatus;
use thermite_core::block::{BlockTimes, Pair, Side};
use thermite_core::device::DeviceView;
use thermite_core::ids::MemberId;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::noise::{NoiseDoubt, Suits};
use thermite_core::readiness::{Clocks, Reading};
use thermite_core::refusal::Refusal;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};

use crate::scenario::{DEVICE, Scenario};

#[test]
fn noise_is_measured_once_for_a_key_and_again_after_a_day() {
    let rig = Scenario::one_shared_device();
    let none_yet = noise(&rig);
    rig.outcome_of(rig.job("equal-1"));
    let first = measured(&rig);
    rig.outcome_of(rig.job("equal-2"));
    let second = measured(&rig);
    rig.advance(Span::hours(25));
    let stale = noise(&rig);
    rig.outcome_of(rig.job("equal-3"));

    assert!(none_yet.kits.is_empty() && none_yet.alarm.blocks == 0);
    assert_eq!((first, second, measured(&rig)), (1, 1, 2));
    assert!(!stale.kits[0].is_good);
    let fresh = noise(&rig);
    assert_eq!((fresh.kits.len(), fresh.kits[0].is_good, fresh.alarm.blocks), (1, true, 80));
    let plan = fresh.kits[0].plan.as_ref().expect("the run's kit is known");
    assert_eq!((fresh.kits[0].kit.as_deref(), plan.suits, plan.warning.clone()), (Some("scripted"), Suits::Well, None));
    let plans = fresh.kits[0].noise.scale / plan.plan_effect;
    assert!((plan.blocks_to_screen - 11.0 * plans * plans).abs() < 1e-9);
    assert!((plan.blocks_to_confirm - 17.0 * plans * plans).abs() < 1e-9);
}

#[test]
fn a_job_that_varies_by_another_measure_has_the_next_stage_measure_anew() {
    let rig = Scenario::one_shared_device();
    rig.outcome_of(rig.job("equal-1"));
    // Many times the noise that was measured, around neither nothing nor the plan: it goes on until the blocks run out.
    rig.device.script_steps(varying(0.018, 0.002));
    rig.outcome_of(rig.job("equal-2"));

    let doubted = |entry: &LogEntry| matches!(entry, LogEntry::NoiseDoubted { why: NoiseDoubt::JobsOwnScale, .. });
    assert_eq!(rig.entries().iter().filter(|entry| doubted(entry)).count(), 1);
    assert!(!noise(&rig).kits[0].is_good);
    rig.device.script_steps(|_, _| None);
    rig.outcome_of(rig.job("equal-3"));
    assert_eq!(measured(&rig), 2);
    assert!(noise(&rig).kits[0].is_good);
    rig.assert_sound();
}

#[test]
fn noise_is_measured_anew_when_somebody_asks_also_after_a_restart() {
    let rig = Scenario::one_shared_device();
    let before = rig.wait_for(rig.rig.measure_noise_again(DEVICE));
    rig.outcome_of(rig.job("equal-1"));
    let dropped = rig.wait_for(rig.rig.measure_noise_again(DEVICE));
    let nobody = rig.wait_for(rig.rig.measure_noise_again(MemberId(7)));
    assert!(!noise(&rig).kits[0].is_good);

    let rig = rig.kill_and_start_again(|_, _| {});
    assert!(!noise(&rig).kits[0].is_good);
    rig.outcome_of(rig.job("equal-2"));

    assert_eq!(before, Err(No::Refusal(Refusal::NoNoiseYet { member: DEVICE })));
    assert_eq!(dropped, Ok(1));
    let unknown = Refusal::UnknownDevice { device: "7".to_owned(), have: "device 0".to_owned() };
    assert_eq!(nobody, Err(No::Refusal(unknown)));
    assert_eq!(measured(&rig), 2);
}

#[test]
fn a_noisy_device_warns_on_the_job_and_in_the_view() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(varying(0.025, 0.025));
    let job = rig.job("equal-1");
    while measured(&rig) == 0 {
        rig.advance(Span::seconds(5));
    }
    let next = rig.job("equal-2");

    let row = rig.job_row(next);
    let view = rig.view();
    let warning = row.warning.expect("the device suits the contract barely");
    assert!(warning.starts_with("device 0 is noisy for this contract: noise 2."), "{warning}");
    assert!(warning.ends_with("; expect about 69 blocks to screen and 107 to confirm"), "{warning}");
    assert_eq!(view.devices[0].warnings, std::slice::from_ref(&warning));
    assert!(view.jobs.iter().all(|row| row.warning.as_ref() == Some(&warning)));
    assert_eq!(noise(&rig).kits[0].plan.as_ref().and_then(|plan| plan.warning.clone()), Some(warning));
    rig.outcome_of(job);
}

#[test]
fn a_device_too_noisy_for_the_contract_ends_its_jobs_at_once_with_the_figures() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(varying(0.05, 0.05));
    let first = rig.outcome_of(rig.job("equal-1"));
    let blocks = blocks(&rig);
    let second = rig.outcome_of(rig.job("equal-2"));

    for outcome in [first, second] {
        let JobOutcome::NoVerdict { why } = outcome else { panic!("{outcome:?}") };
        assert!(why.starts_with("device 0 is too noisy for this contract: noise "), "{why}");
        assert!(
            why.contains("; make the machine quieter and have it measured anew (`thermite noise --again 0`)"),
            "{why}"
        );
    }
    assert_eq!(self::blocks(&rig), blocks, "the second was told at once");
    // The way out it names.
    rig.device.script_steps(|_, _| None);
    rig.wait_for(rig.rig.measure_noise_again(DEVICE)).expect("there is a measure");
    assert!(matches!(rig.outcome_of(rig.job("equal-2")), JobOutcome::NoGain { .. }));
    rig.assert_sound();
}

#[test]
fn a_harness_that_favours_a_label_quarantines_its_device_until_somebody_has_looked() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(biased());
    let job = rig.job("faster-1");
    rig.advance(Span::minutes(2));

    let DeviceView::Quarantined { why } = rig.view().devices[0].state.clone() else { panic!("{:?}", rig.view()) };
    assert!(why.starts_with("champion against champion favours the place of the change: evidence "), "{why}");
    assert!(why.contains("`thermite noise --clear 0`"), "{why}");
    assert_eq!(noise(&rig).alarm.quarantined, Some(why.clone()));
    let row = rig.job_row(job);
    assert!(matches!(row.status, JobStatus::Waiting { .. }), "no verdict comes from such a device: {row:?}");
    assert!(rig.job_sentence(job).contains(&why), "{}", rig.job_sentence(job));
    assert!(row.failures[0].starts_with("device 0 is out of service: champion against champion favours"), "{row:?}");

    // A restart keeps it; so does a day.
    let rig = rig.kill_and_start_again(|device, _| device.script_steps(biased()));
    rig.advance(Span::hours(24));
    assert_eq!(rig.view().devices[0].state, DeviceView::Quarantined { why: why.clone() });
    let dev_run = rig.dev_run(1);
    assert!(rig.sentence(dev_run).contains(&why), "{}", rig.sentence(dev_run));

    // Mended and looked at, it comes back and the job goes on; there is nothing to clear a second time.
    rig.device.script_steps(|_, _| None);
    rig.wait_for(rig.rig.clear_alarm(DEVICE)).expect("it is quarantined");
    let again = rig.wait_for(rig.rig.clear_alarm(DEVICE));
    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    assert_eq!(again, Err(No::Refusal(Refusal::NotQuarantined { member: DEVICE })));
    assert_eq!((noise(&rig).alarm.quarantined, noise(&rig).alarm.blocks), (None, 40));
    rig.assert_sound();
}

/// A bias too small for one measure is found over the device's life.
#[test]
fn a_small_bias_is_found_over_many_measures_and_restarts() {
    let mut rig = Scenario::one_shared_device();
    rig.device.script_steps(slightly_biased());
    let mut jobs = 0;
    while !matches!(rig.view().devices[0].state, DeviceView::Quarantined { .. }) {
        jobs += 1;
        assert!(jobs < 60, "evidence ln {:.1} after {jobs} measures", noise(&rig).alarm.ln_evidence);
        let job = rig.job(&format!("equal-{jobs}"));
        for _ in 0..200 {
            if matches!(rig.job_row(job).status, JobStatus::Ended { .. })
                || matches!(rig.view().devices[0].state, DeviceView::Quarantined { .. })
            {
                break;
            }
            rig.advance(Span::seconds(5));
        }
        if jobs == 3 {
            rig = rig.kill_and_start_again(|device, _| device.script_steps(slightly_biased()));
        }
        // Refused where the alarm was raised.
        drop(rig.wait_for(rig.rig.measure_noise_again(DEVICE)));
    }

    println!("quarantined after {jobs} measures of 40 blocks");
    assert!(jobs > 1, "one measure would have told it");
}

#[test]
fn a_fair_device_is_never_quarantined() {
    let rig = Scenario::one_shared_device();
    for n in 0..40 {
        rig.outcome_of(rig.job(&format!("equal-{n}")));
        drop(rig.wait_for(rig.rig.measure_noise_again(DEVICE)));
    }

    let alarm = noise(&rig).alarm;
    assert_eq!((alarm.blocks, alarm.quarantined), (1_600, None));
    assert!(alarm.ln_evidence < limits::HARNESS_ALARM.ln());
}

#[test]
fn a_stage_that_is_cut_off_leaves_its_champion_twice_blocks_to_the_alarm() {
    let rig = Scenario::one_shared_device();
    rig.job("equal-1");
    while blocks(&rig) < 10 {
        rig.advance(Span::millis(300));
    }
    rig.change_run(thermite_core::run::RunState::Ended).expect("a running run can be ended");
    rig.advance(Span::seconds(5));

    let alarm = noise(&rig).alarm;
    assert!((5..15).contains(&alarm.blocks), "{alarm:?}");
    assert_eq!(measured(&rig), 0);
}

fn noise(rig: &Scenario) -> DeviceNoise {
    rig.wait_for(rig.rig.noise()).expect("the rig is there").remove(0)
}

fn measured(rig: &Scenario) -> usize {
    rig.entries().iter().filter(|entry| matches!(entry, LogEntry::NoiseMeasured { .. })).count()
}

fn blocks(rig: &Scenario) -> usize {
    let block = |call: &Call| matches!(call, Call::Step { step: StageStep::Block { .. }, .. });
    rig.diary().iter().filter(|line| block(&line.call)).count()
}

type Script = Box<dyn Fn(&StageRef, &StageStep) -> Option<StepReport>>;

/// Blocks whose ratios have that scale: those of a comparison, and of the champion twice.
fn varying(comparison: f64, twice: f64) -> Script {
    block_ratios(move |pair, step| step * if pair == Pair::ChampionTwice { twice } else { comparison } / 1.4826)
}

/// The label of the change is 2 % faster, whatever runs under it.
fn biased() -> Script {
    block_ratios(|_, _| 0.02)
}

/// The label of the change is 0.15 % faster, within a noise of 0.7 %.
fn slightly_biased() -> Script {
    block_ratios(|_, step| 0.005 * step + 0.0015)
}

/// Blocks with these ratios, told in steps whose median is 0 and whose median deviation is 1.
fn block_ratios(ratio: impl Fn(Pair, f64) -> f64 + 'static) -> Script {
    let next = Cell::new(0);
    Box::new(move |_, step| {
        let StageStep::Block { pair, order } = step else { return None };
        let at = next.replace((next.get() + 1) % 4);
        let change_ns = 100e6 * (-ratio(*pair, [1.5, -1.5, 0.5, -0.5][at])).exp();
        let ns = order.sides().map(|side| if side == Side::Change { change_ns as u64 } else { 100_000_000 });
        let reading =
            Reading { at: Moment::START, signals: Vec::new(), throttle: Vec::new(), clocks: Clocks::default() };
        let times = BlockTimes { ns, started: Moment::START, before: reading.clone(), after: reading };
        Some(StepReport::Timed { times })
    })
}
