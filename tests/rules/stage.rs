//! One attempt at one stage, driven by scripted reports on fed moments (rules A9, C2, D1 to D6).

use proptest::prelude::*;
use thermite_core::block::{Order, Pair, Side, TriedBlock};
use thermite_core::contract::Timer;
use thermite_core::job::{ChangeStep, StageKind};
use thermite_core::limits;
use thermite_core::noise::{ChampionTwice, HarnessAlarm, NoiseKey};
use thermite_core::record::{NoiseSource, verify};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::stage::{Directive, StageEnd, StagePhase, StageStep, StepReport};
use thermite_core::time::{Moment, Span};
use thermite_core::verdict::Verdict;

use crate::scripted::{Rig, busy, confirmation, plan, times, well};

#[test]
fn a_faster_change_wins_and_its_record_verifies() {
    let mut rig = Rig::new(plan());

    let end = rig.run(|now, step| well(now, step, 0.97, now.as_millis() % 50_000));

    let StageEnd::Decided { verdict, record, noise } = end else { panic!("{end:?}") };
    assert_eq!(verdict, Verdict::Win);
    assert_eq!(noise, None);
    assert!(record.bounds.lower > Some(0.0));
    assert!(record.bounds.lower <= record.bounds.estimate_early_stopped);
    assert_eq!(record.facts.artefacts.change, Some("a2".repeat(32)));
    assert_eq!(verify(&record).map(|verified| verified.verdict), Ok(Verdict::Win));
    assert_eq!(
        rig.asked[..7],
        [
            StageStep::Prepare,
            StageStep::Build { side: Side::Champion },
            StageStep::Check { side: Side::Champion },
            StageStep::Build { side: Side::Change },
            StageStep::Check { side: Side::Change },
            StageStep::Look,
            rig.asked[6].clone(),
        ]
    );
    assert!(matches!(rig.asked[6], StageStep::Block { pair: Pair::ChampionAndChange, .. }));
    assert_eq!(rig.asked.iter().filter(|step| **step == StageStep::Look).count(), record.blocks.len());
}

#[test]
fn a_confirmation_names_its_screening_and_claims_the_win() {
    let end = Rig::new(confirmation()).run(|now, step| well(now, step, 0.97, 0));

    let StageEnd::Decided { record, .. } = end else { panic!("{end:?}") };
    assert_eq!(record.facts.stage, StageKind::Confirmation);
    assert_eq!(record.constants.alpha, 0.01);
    assert_eq!(record.facts.screened, confirmation().screened);
    assert!(record.claim.contains("at most 1% false wins per confirmed comparison"));
    assert_eq!(verify(&record).map(|verified| verified.verdict), Ok(Verdict::Win));
}

#[test]
fn a_slower_change_has_no_gain_and_is_said_to_be_slower() {
    let end = Rig::new(plan()).run(|now, step| well(now, step, 1.04, 0));

    let StageEnd::Decided { verdict, record, .. } = end else { panic!("{end:?}") };
    assert_eq!(verdict, Verdict::NoGain { slower: true });
    assert!(record.bounds.upper < Some(0.0));
    verify(&record).unwrap();
}

#[test]
fn blocks_that_run_out_are_undecided() {
    let mut plan = plan();
    plan.spec.pinned.kit.contract.blocks_most = 9;
    plan.noise.as_mut().unwrap().scale = 0.025;

    let end = Rig::new(plan).run(|now, step| well(now, step, 0.994, 0));

    let StageEnd::Decided { verdict, record, .. } = end else { panic!("{end:?}") };
    assert_eq!(verdict, Verdict::Undecided);
    assert_eq!(record.after.len(), 9);
    verify(&record).unwrap();
}

#[test]
fn steps_that_a_kit_lacks_are_left_out() {
    let mut plan = plan();
    plan.spec.pinned.kit.build = None;
    plan.spec.pinned.kit.artefacts = Vec::new();
    plan.spec.pinned.kit.check = None;
    let mut rig = Rig::new(plan);

    let end = rig.run(|now, step| well(now, step, 0.97, 0));

    let StageEnd::Decided { record, .. } = end else { panic!("{end:?}") };
    assert_eq!(record.facts.artefacts.champion, None);
    assert_eq!(rig.asked[..2], [StageStep::Prepare, StageStep::Look]);
}

#[test]
fn artefacts_are_hashed_also_where_nothing_is_built() {
    let mut plan = plan();
    plan.spec.pinned.kit.build = None;
    plan.spec.pinned.kit.artefacts = vec!["kernel.cubin".to_owned()];
    let mut rig = Rig::new(plan);

    let end = rig.run(|now, step| well(now, step, 0.97, 0));

    let StageEnd::Decided { record, .. } = end else { panic!("{end:?}") };
    assert!(record.facts.artefacts.champion.is_some() && record.facts.artefacts.change.is_some(), "{record:?}");
    assert_eq!(rig.asked[1], StageStep::Build { side: Side::Champion });
}

#[test]
fn a_directive_stays_the_same_until_it_is_reported() {
    let mut rig = Rig::new(plan());
    rig.set_up();
    let reading = crate::scripted::quiet(rig.now);
    rig.report(StepReport::Looked { reading });

    let asked = rig.stage.directive();
    rig.stage.advance(rig.now + Span::hours(1));

    assert!(matches!(asked, Directive::Do(StageStep::Block { .. })));
    assert_eq!(rig.stage.directive(), asked);
    assert_eq!(rig.stage.next_deadline(), None);
}

#[test]
fn thrown_blocks_spend_their_coin_and_the_stage_goes_on() {
    let mut tried = 0;
    let mut rig = Rig::new(plan());

    let end = rig.run(|now, step| {
        let mut report = well(now, step, 0.97, 0);
        if let StepReport::Timed { times } = &mut report {
            tried += 1;
            if tried == 2 {
                times.after.throttle[0].periods = Some(4);
            }
            if tried == 4 {
                return StepReport::Lost { side: Side::Change, why: "the machine ran out of memory".to_owned() };
            }
        }
        report
    });

    let StageEnd::Decided { verdict, record, .. } = end else { panic!("{end:?}") };
    assert_eq!(verdict, Verdict::Win);
    assert!(matches!(record.blocks[1], TriedBlock::Thrown { .. }));
    assert!(matches!(record.blocks[3], TriedBlock::Lost { running: Side::Change, .. }));
    assert_eq!(record.after.len() + 2, record.blocks.len());
    let asked: Vec<Order> = rig
        .asked
        .iter()
        .filter_map(|step| if let StageStep::Block { order, .. } = step { Some(*order) } else { None })
        .collect();
    assert_eq!(record.blocks.iter().map(TriedBlock::order).collect::<Vec<_>>(), asked);
    verify(&record).unwrap();
}

#[test]
fn too_many_thrown_blocks_void_the_attempt_and_leave_no_number() {
    let end = Rig::new(plan()).run(|now, step| {
        let mut report = well(now, step, 0.97, 0);
        if let StepReport::Timed { times } = &mut report {
            times.after.throttle[0].periods = Some(4);
        }
        report
    });

    let StageEnd::Infrastructure { why, audit, .. } = end else { panic!("{end:?}") };
    assert_eq!(why.to_string(), "throttled 6 of 6 blocks: a CPU quota held back group /rig");
    let audit = audit.expect("six blocks were tried");
    assert_eq!((audit.blocks.len(), &audit.void), (6, &why));
    let text = serde_json::to_string(&audit).unwrap();
    for number in ["verdict", "lower", "estimate", "ln_w"] {
        assert!(!text.contains(number), "{number}");
    }
}

#[test]
fn losses_of_the_change_alone_are_taken_for_steered() {
    // With a gate out of reach the stage goes on long enough to show them.
    let mut plan = plan();
    plan.spec.pinned.kit.contract.gate = 1.0;
    let mut tried = 0;

    let end = Rig::new(plan).run(|now, step| {
        if matches!(step, StageStep::Block { .. }) {
            tried += 1;
            if tried % 6 == 0 {
                return StepReport::Lost { side: Side::Change, why: "killed".to_owned() };
            }
        }
        well(now, step, 0.97, 0)
    });

    let StageEnd::Infrastructure { why, .. } = end else { panic!("{end:?}") };
    assert_eq!(why.to_string(), "blocks thrown away fall on the change more than chance allows (11 of 11)");
}

#[test]
fn only_kills_of_the_change_without_a_cause_that_can_be_seen_are_said_as_such() {
    let killed = |side| StepReport::Killed { side, why: "killed".to_owned() };
    let lost = |side| StepReport::Lost { side, why: "killed for memory".to_owned() };
    let end_of = |report: &dyn Fn(u32) -> StepReport| {
        let mut tried = 0;
        let end = Rig::new(plan()).run(|now, step| {
            if matches!(step, StageStep::Block { .. }) {
                tried += 1;
                return report(tried);
            }
            well(now, step, 0.97, 0)
        });
        let StageEnd::Infrastructure { why, .. } = end else { panic!("{end:?}") };
        why
    };

    let each_time = end_of(&|_| killed(Side::Change));
    let once_for_memory = end_of(&|tried| if tried == 3 { lost(Side::Change) } else { killed(Side::Change) });
    let once_the_champion = end_of(&|tried| killed(if tried == 3 { Side::Champion } else { Side::Change }));
    let only_the_champion = end_of(&|_| killed(Side::Champion));

    assert_eq!(each_time, InfrastructureFailure::ChangeKilled { killed: 6, of: 6 });
    for other in [once_for_memory, once_the_champion, only_the_champion] {
        assert!(matches!(other, InfrastructureFailure::TooManyThrown { thrown: 6, of: 6, .. }), "{other:?}");
    }
}

#[test]
fn a_build_that_is_killed_is_infrastructure_and_says_so() {
    for report in [
        StepReport::Killed { side: Side::Change, why: "its build was killed".to_owned() },
        StepReport::Lost { side: Side::Change, why: "its build was killed".to_owned() },
    ] {
        let is_it = |step: &StageStep| *step == StageStep::Build { side: Side::Change };
        let end = Rig::new(plan()).run(|now, step| if is_it(step) { report.clone() } else { well(now, step, 0.97, 0) });

        let StageEnd::Infrastructure { why, .. } = end else { panic!("{end:?}") };
        assert_eq!(why.to_string(), "building the change could not be carried out: its build was killed");
    }
}

#[test]
fn a_busy_device_is_looked_at_again_until_it_is_ready() {
    let mut rig = Rig::new(plan());
    rig.set_up();
    let began = rig.now + Span::millis(10);

    let reading = busy(rig.now);
    rig.report(StepReport::Looked { reading });

    let why = "gpu_use 64.00 of at most 5.00 %".to_owned();
    assert_eq!(rig.stage.directive(), Directive::Wait { until: began + Span::seconds(5), why: why.clone() });
    let waiting = rig.stage.view().waiting.unwrap();
    assert_eq!((waiting.why, waiting.since, waiting.until), (why, began, began + Span::seconds(190)));
    rig.stage.advance(began + Span::millis(4_999));
    assert!(matches!(rig.stage.directive(), Directive::Wait { .. }));
    rig.stage.advance(began + Span::seconds(5));
    assert_eq!(rig.stage.directive(), Directive::Do(StageStep::Look));
    let reading = crate::scripted::quiet(rig.now);
    rig.report(StepReport::Looked { reading });
    assert!(matches!(rig.stage.directive(), Directive::Do(StageStep::Block { .. })));
    assert_eq!(rig.stage.view().waiting, None);
}

#[test]
fn a_device_that_stays_busy_voids_the_attempt_at_its_latest_moment() {
    let mut plan = plan();
    plan.look_every = Span::seconds(7);
    let mut rig = Rig::new(plan);
    rig.set_up();
    let began = rig.now;

    let end = rig.run(|now, _| StepReport::Looked { reading: busy(now) });

    let StageEnd::Infrastructure { why, audit, .. } = end else { panic!("{end:?}") };
    let InfrastructureFailure::StayedBusy { waited, signals } = why else { panic!("{why:?}") };
    assert_eq!(signals, "gpu_use 64.00 of at most 5.00 %");
    assert!(waited >= Span::seconds(180) && waited < Span::seconds(181), "{waited}");
    assert!(rig.now.since(began) < Span::seconds(181));
    assert_eq!(audit, None);
}

#[test]
fn each_block_waits_for_a_ready_device_anew() {
    let mut looks = 0;

    // Every first look finds it busy: 5 s of waiting a block, far over 180 s in all, and no failure.
    let mut rig = Rig::new(plan());
    let end = rig.run(|now, step| {
        if *step == StageStep::Look {
            looks += 1;
            if looks % 30 != 0 {
                return StepReport::Looked { reading: busy(now) };
            }
        }
        well(now, step, 0.97, 0)
    });

    assert!(matches!(end, StageEnd::Decided { verdict: Verdict::Win, .. }), "{end:?}");
    assert!(rig.now.since(Moment::START) > Span::seconds(180));
}

#[test]
fn a_champion_that_fails_is_infrastructure() {
    for (step, at) in [("build", 0), ("check", 1), ("measure", 2)] {
        let why = failing(Side::Champion, at);

        let StageEnd::Infrastructure { why: InfrastructureFailure::Champion { step: failed, why }, .. } = why else {
            panic!("{why:?}")
        };
        assert_eq!((failed.as_str(), why.as_str()), (step, "exit code 2"));
    }
}

#[test]
fn a_change_that_fails_fails_by_itself() {
    for (step, at) in [(ChangeStep::Build, 0), (ChangeStep::Check, 1), (ChangeStep::Measure, 2)] {
        let end = failing(Side::Change, at);

        let expected = StageEnd::ChangeFailed { step, why: "exit code 2".to_owned(), noise: None };
        assert_eq!(end, expected);
    }
}

#[test]
fn a_run_too_short_to_be_timed_fails_its_side() {
    let change = with_short_run(Side::Change, Timer::Wall, 999_999);
    let champion = with_short_run(Side::Champion, Timer::Wall, 999_999);
    let reported = with_short_run(Side::Change, Timer::Reported, 20_000);

    let StageEnd::ChangeFailed { step: ChangeStep::Measure, why, .. } = change else { panic!("{change:?}") };
    assert_eq!(why, "a run of 999999 ns is too short to be timed; make it take at least 1000000 ns");
    let why = "the champion failed to measure: \
               a run of 999999 ns is too short to be timed; make it take at least 1000000 ns";
    assert!(matches!(champion, StageEnd::Infrastructure { why: found, .. } if found.to_string() == why));
    assert!(matches!(reported, StageEnd::Decided { .. }), "{reported:?}");
}

#[test]
fn noise_is_measured_first_where_none_is_good() {
    let mut stale = plan();
    stale.noise.as_mut().unwrap().wall_ms -= Span::hours(24).as_millis();
    let mut of_another_driver = plan();
    let key = &mut of_another_driver.noise.as_mut().unwrap().key;
    *key = NoiseKey { driver: "1.0".to_owned(), ..key.clone() };
    let mut none = plan();
    none.noise = None;

    for plan in [stale, of_another_driver, none] {
        let mut rig = Rig::new(plan);
        let mut blocks = 0;

        let end = rig.run(|now, step| {
            let noise_block = matches!(step, StageStep::Block { pair: Pair::ChampionTwice, .. });
            blocks += u64::from(noise_block);
            let mut report = well(now, step, 0.97, 0);
            if let StepReport::Timed { times } = &mut report
                && noise_block
            {
                times.ns[0] += blocks * 8_000;
            }
            report
        });

        let StageEnd::Decided { verdict: Verdict::Win, record, noise: Some(noise) } = end else { panic!("{end:?}") };
        assert_eq!((noise.blocks, blocks), (40, 40));
        assert!(noise.scale > 0.0 && noise.scale < 0.01);
        assert_eq!(record.constants.scale, 1.25 * noise.scale);
        let NoiseSource::Measured { blocks: kept, .. } = &record.noise else { panic!("{:?}", record.noise) };
        assert_eq!(kept.len(), 40);
        verify(&record).unwrap();
    }
}

const TOO_NOISY: &str = "device 2 is too noisy for this contract: noise 5.00 %, limit 2.99 %; make the machine quieter \
                         and have it measured anew (`thermite noise --again 2`), or plan for a larger effect";

/// The champion differs from itself by its label: whatever the comparison then said would be false.
#[test]
fn blocks_of_the_champion_twice_that_raise_the_alarm_void_the_attempt_before_anything_is_compared() {
    let mut plan = plan();
    plan.noise = None;

    let mut rig = Rig::new(plan.clone());
    let end = rig.run(|now, step| {
        let mut report = well(now, step, 1.0, 0);
        if let (StepReport::Timed { times }, StageStep::Block { order, .. }) = (&mut report, step) {
            for (ns, side) in times.ns.iter_mut().zip(order.sides()) {
                *ns = if side == Side::Change { 24_000_000 } else { 25_000_000 };
            }
        }
        report
    });

    let StageEnd::Infrastructure { why, noise: None, audit: Some(audit) } = end else { panic!("{end:?}") };
    let said = "device 2 is out of service: champion against champion favours the place of the change: evidence ";
    assert!(why.to_string().starts_with(said), "{why}");
    let twice = rig.stage.champion_twice().expect("blocks were tried");
    assert_eq!((audit.noise_blocks.len(), audit.blocks.len()), (twice.ratios.len(), 0));
    assert!(twice.ratios.len() < 40, "{}", twice.ratios.len());
    assert_eq!((twice.device.as_str(), twice.scale), ("GPU-6f2c", twice.plan_effect));
    // The alarm of a whole life takes the same blocks by the same scale.
    let mut alarm = HarnessAlarm::default();
    assert!(alarm.take(twice).is_some());
    // A device that had seen most of it before is stopped sooner.
    let mut before = HarnessAlarm::default();
    before.take(&ChampionTwice { ratios: twice.ratios[1..].to_vec(), ..twice.clone() });
    assert_eq!(before.raised(), None);
}

#[test]
fn a_device_found_too_noisy_refuses_the_contract_and_its_noise_is_kept() {
    let mut plan = plan();
    plan.noise = None;

    let end = Rig::new(plan).run(|now, step| {
        let mut report = well(now, step, 0.97, 0);
        if let StepReport::Timed { times } = &mut report {
            times.ns[0] += now.as_millis() % 977 * 20_000;
        }
        report
    });

    let StageEnd::Infrastructure { why, noise: Some(noise), audit: Some(audit) } = end else { panic!("{end:?}") };
    assert!(matches!(why, InfrastructureFailure::TooNoisy { .. }), "{why}");
    assert!(noise.scale > 0.03);
    assert_eq!((audit.noise_blocks.len(), audit.blocks.len()), (40, 0));
}

#[test]
fn a_device_known_to_be_too_noisy_refuses_before_anything_is_built() {
    let mut plan = plan();
    plan.noise.as_mut().unwrap().scale = 0.05;

    let rig = Rig::new(plan);

    let Directive::End(end) = rig.stage.directive() else { panic!("{:?}", rig.stage.directive()) };
    let StageEnd::Infrastructure { why, .. } = *end else { panic!("{end:?}") };
    assert_eq!(why.to_string(), TOO_NOISY);
}

#[test]
fn a_label_of_the_champion_twice_that_fails_is_the_champion() {
    let mut plan = plan();
    plan.noise = None;

    let end = Rig::new(plan).run(|now, step| match step {
        StageStep::Block { .. } => StepReport::Failed { side: Side::Change, why: "signal 11".to_owned() },
        StageStep::Prepare | StageStep::Build { .. } | StageStep::Check { .. } | StageStep::Look => {
            well(now, step, 1.0, 0)
        }
    });

    assert!(matches!(end, StageEnd::Infrastructure { why: InfrastructureFailure::Champion { .. }, .. }), "{end:?}");
}

#[test]
fn a_step_that_cannot_be_carried_out_is_infrastructure() {
    let end = Rig::new(plan()).run(|_, _| StepReport::NotCarriedOut { why: "no space left on device".to_owned() });

    let StageEnd::Infrastructure { why, .. } = end else { panic!("{end:?}") };
    assert_eq!(why.to_string(), "laying out the workspaces could not be carried out: no space left on device");
}

#[test]
fn a_report_that_was_not_asked_for_voids_the_attempt() {
    let mut other_side = Rig::new(plan());
    other_side.report(StepReport::Prepared);
    other_side.report(StepReport::Built { side: Side::Change, artefact: "a2".repeat(32) });
    let mut while_waiting = Rig::new(plan());
    while_waiting.set_up();
    let reading = busy(while_waiting.now);
    while_waiting.report(StepReport::Looked { reading });
    let late = times(while_waiting.now, Order::Abba, 0.5, 0);
    while_waiting.report(StepReport::Timed { times: late });

    for rig in [other_side, while_waiting] {
        let Directive::End(end) = rig.stage.directive() else { panic!("{:?}", rig.stage.directive()) };
        assert!(matches!(*end, StageEnd::Infrastructure { why: InfrastructureFailure::Step { .. }, .. }), "{end:?}");
    }
}

#[test]
fn an_attempt_that_is_over_stays_as_it_ended() {
    let mut rig = Rig::new(plan());
    let end = rig.run(|now, step| well(now, step, 0.97, 0));

    rig.report(StepReport::NotCarriedOut { why: "late".to_owned() });
    rig.stage.advance(rig.now + Span::hours(1));

    assert_eq!(rig.stage.directive(), Directive::End(Box::new(end)));
    assert_eq!(rig.stage.next_deadline(), None);
}

#[test]
fn the_view_shows_progress_and_never_the_coins() {
    let mut rig = Rig::new(plan());
    assert_eq!(rig.stage.view().phase, StagePhase::Preparing);
    rig.report(StepReport::Prepared);
    assert_eq!(rig.stage.view().phase, StagePhase::Building { side: Side::Champion });
    rig.set_up();
    let mut seen = Vec::new();

    for _ in 0..14 {
        let Directive::Do(step) = rig.stage.directive() else { break };
        let report = well(rig.now, &step, 0.97, 0);
        rig.report(report);
        seen.push(rig.stage.view());
    }

    let last = seen.last().unwrap();
    assert_eq!((last.phase, last.accepted, last.thrown), (StagePhase::Comparing, 7, 0));
    assert_eq!(last.blocks_most, 200);
    assert!(last.ln_w > Some(0.0) && last.ln_f < Some(0.0));
    assert!((last.last_d.unwrap() + 0.97_f64.ln()).abs() < 1e-4);
    assert!(last.lower < last.last_d);
    let text = serde_json::to_string(&seen).unwrap();
    assert!(!text.contains("seed") && !text.contains("ABBA") && !text.contains("BAAB"));
}

#[test]
fn the_same_reports_give_the_same_attempt() {
    let run = || Rig::new(plan()).run(|now, step| well(now, step, 0.985, now.as_millis() % 70_000));

    assert_eq!(run(), run());
}

proptest! {
    /// Whatever is reported, in whatever order: no panic, an end that stays, and a record that verifies.
    #[test]
    fn any_reports_lead_to_an_end_that_stays(
        reports in prop::collection::vec((0_u8..12, 0_u8..40), 0..300),
        measures_noise: bool,
    ) {
        let mut plan = plan();
        plan.spec.pinned.kit.contract.blocks_most = 30;
        if measures_noise {
            plan.noise = None;
        }
        let mut rig = Rig::new(plan);
        for (report, of_forty) in reports {
            rig.stage.advance(rig.now);
            let was = rig.stage.directive();
            let asked = match &was {
                Directive::Do(step) => step.clone(),
                Directive::Wait { .. } | Directive::End(_) => StageStep::Look,
            };
            let report = any_report(&rig, &asked, report, of_forty);
            rig.now = rig.now + Span::seconds(u64::from(of_forty));
            rig.report(report);
            if let Directive::End(_) = was {
                prop_assert_eq!(&rig.stage.directive(), &was);
            }
            prop_assert!(rig.stage.next_deadline().is_none_or(|(at, _)| at > rig.now));
        }
        if let Directive::End(end) = rig.stage.directive()
            && let StageEnd::Decided { record, .. } = *end
        {
            prop_assert!(verify(&record).is_ok());
        }
    }
}

/// Mostly what was asked for; a busy device, a thrown or lost block now and then; seldom something else.
fn any_report(rig: &Rig, asked: &StageStep, report: u8, of_forty: u8) -> StepReport {
    let side = if of_forty.is_multiple_of(2) { Side::Champion } else { Side::Change };
    match (report, asked) {
        (0, StageStep::Look) => StepReport::Looked { reading: busy(rig.now) },
        (1, StageStep::Block { .. }) => StepReport::Lost { side, why: "killed".to_owned() },
        (2, StageStep::Block { order, .. }) => {
            let mut times = times(rig.now, *order, 1.0, 0);
            times.after.clocks.wall_ms += 60_000;
            StepReport::Timed { times }
        }
        (3, _) if of_forty == 0 => StepReport::NotCarriedOut { why: "disk full".to_owned() },
        (4, _) if of_forty == 0 => StepReport::Failed { side, why: "exit code 2".to_owned() },
        (5, _) if of_forty == 0 => StepReport::Prepared,
        (6, _) if of_forty == 0 => StepReport::Timed { times: times(rig.now, Order::Abba, 0.5, 0) },
        _ => well(rig.now, asked, 0.98, u64::from(of_forty) * 10_000),
    }
}

/// An attempt in which `side` fails at its build (0), check (1) or measured run (2).
fn failing(side: Side, at: usize) -> StageEnd {
    Rig::new(plan()).run(|now, step| {
        let fails = match step {
            StageStep::Build { side: asked } => at == 0 && *asked == side,
            StageStep::Check { side: asked } => at == 1 && *asked == side,
            StageStep::Block { .. } => at == 2,
            StageStep::Prepare | StageStep::Look => false,
        };
        if fails { StepReport::Failed { side, why: "exit code 2".to_owned() } } else { well(now, step, 1.0, 0) }
    })
}

fn with_short_run(side: Side, timer: Timer, ns: u64) -> StageEnd {
    let mut plan = plan();
    plan.spec.pinned.kit.timer = timer;
    Rig::new(plan).run(|now, step| {
        let mut report = well(now, step, 0.97, 0);
        if let (StepReport::Timed { times }, StageStep::Block { order, .. }) = (&mut report, step) {
            let place = order.sides().iter().position(|label| *label == side).expect("each side runs twice");
            times.ns[place] = ns;
        }
        report
    })
}

#[test]
fn the_least_run_times_are_those_of_the_limits() {
    assert_eq!(thermite_core::stage::least_run_ns(Timer::Wall), limits::LEAST_TIMED_RUN_NS);
    for timer in [Timer::Reported, Timer::ReportedApart] {
        assert_eq!(thermite_core::stage::least_run_ns(timer), limits::LEAST_REPORTED_RUN_NS);
    }
}
