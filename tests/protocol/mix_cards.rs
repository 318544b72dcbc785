//! Random mixes on several cards: askings, pauses, new splits, drains, faults of cards and deaths of the rig, and what
//! holds whatever comes (rules A1, B2, B9, B10).
//!
//! `THERMITE_MIX_SEEDS=1000..2000 cargo test -p thermite-tests-protocol mix_cards` tries others.

use std::cell::Cell;
use std::rc::Rc;

use thermite_actors::ports::DeviceFault;
use thermite_actors::testing::{DevRunScript, Luck, ScriptedDevice, StopScript};
use thermite_actors::view::{DevRunStatus, DevicePool, JobStatus, RigView};
use thermite_core::device::DeviceView;
use thermite_core::ids::{Holder, MemberId};
use thermite_core::limits;
use thermite_core::run::RunState;
use thermite_core::split::SplitAsk;
use thermite_core::stage::StepReport;
use thermite_core::time::Span;
use thermite_core::wait::{WaitEnd, WaitReason};

use crate::mix::{each_seed, until_all_ends};
use crate::scenario::{Beginning, Scenario};

/// How many cards a mix has, by its seed.
const CARDS: [usize; 4] = [2, 3, 8, 1];
/// Bursts of askings in one mix.
const BURSTS: u64 = 40;

#[test]
fn no_card_has_two_holders_no_side_waits_for_the_other_and_every_hold_is_released() {
    // Twice the same course of events, at the price of one mix in four.
    each_seed(0..16, 4, mix);
}

fn mix(seed: u64) -> (u64, u64) {
    let count = CARDS[usize::try_from(seed % 4).expect("small")];
    let faulty = Rc::new(Cell::new(true));
    let mut luck = Luck::new(seed);
    let mut rig = Scenario::begin(Beginning { seed, cards: vec!["a"; count], ..Beginning::default() });
    script(&rig, seed, &faulty);
    for burst in 0..BURSTS {
        for _ in 0..=luck.below(3) {
            ask_something(&rig, &mut luck, count, burst);
        }
        if luck.once_in(20) {
            rig = rig.kill_and_start_again(|_, _| {});
            script(&rig, seed, &faulty);
        }
        rig.advance(luck.span(Span::ZERO, Span::seconds(40)));
        check(&rig.view());
    }
    faulty.set(false);
    for (at, card) in (0..).zip(&rig.cards) {
        card.be_at_fault(None);
        card.be_busy(None);
        rig.wait_for(rig.rig.undrain(MemberId(at))).expect("the card is there");
    }
    rig.change_run(RunState::Running).expect("the run has not ended");
    until_all_ends(&rig, check);
    rig.advance(limits::REQUALIFY_MOST + Span::minutes(1));
    let left: Vec<DeviceView> = rig.view().devices.into_iter().map(|row| row.state).collect();
    assert_eq!(left, vec![DeviceView::Ready; count], "every hold is released and every card is back");
    rig.assert_sound();
    rig.trace()
}

fn ask_something(rig: &Scenario, luck: &mut Luck, count: usize, burst: u64) {
    let handle = rig.rig.clone();
    let pick = |luck: &mut Luck| usize::try_from(luck.below(count as u64)).expect("few cards");
    let card = pick(luck);
    let member = MemberId(u16::try_from(card).expect("few cards"));
    match luck.below(16) {
        0..5 => {
            let ask = rig.asking(1 + u32::try_from(luck.below(3)).expect("small"));
            drop(rig.begin_at_once(async move { handle.ask(ask).await }));
        }
        5..8 => {
            let change = ["equal", "faster", "slower", "broken"][usize::try_from(luck.below(4)).expect("small")];
            let submit = rig.submitting(&format!("{change}-{burst}"));
            drop(rig.begin_at_once(async move { handle.submit(submit).await }));
        }
        8 => {
            let (run, paused) = (rig.run, luck.once_in(3));
            let state = if paused { RunState::Paused } else { RunState::Running };
            drop(rig.begin_at_once(async move { handle.change_run(run, state).await }));
        }
        9..11 => {
            let other = pick(luck);
            let named = |at: usize| vec![format!("card-{at}")];
            let ask = match luck.below(3) {
                0 => SplitAsk::Default,
                1 => SplitAsk::Shared,
                // The same card on both sides is refused, which changes nothing.
                _ => SplitAsk::Cards { judge: named(card), agents: named(other) },
            };
            drop(rig.begin_at_once(async move { handle.set_split(ask, None).await }));
        }
        11 => drop(rig.begin_at_once(async move { handle.drain(member).await })),
        12 | 13 => drop(rig.begin_at_once(async move { handle.undrain(member).await })),
        14 => {
            let fault = luck.once_in(2).then(|| DeviceFault::Lost("it fell off its bus".to_owned()));
            rig.cards[card].be_at_fault(fault);
        }
        _ => rig.cards[card].be_busy(luck.once_in(3).then_some("use")),
    }
}

/// What must hold at any time.
fn check(view: &RigView) {
    for row in &view.devices {
        let by = match &row.state {
            DeviceView::Held { by, .. } => *by,
            _ => continue,
        };
        let may = match (row.pool, by) {
            (DevicePool::Shared, _) | (DevicePool::Judge, Holder::Judge) | (DevicePool::Agents, Holder::Lane(_)) => {
                true
            }
            (DevicePool::Judge, Holder::Lane(_)) | (DevicePool::Agents, Holder::Judge) | (DevicePool::Idle, _) => false,
        };
        assert!(may, "{by} holds {}, which is of pool {:?}", row.member, row.pool);
    }
    let is_split = view.devices.iter().all(|row| row.pool != DevicePool::Shared);
    for row in &view.dev_runs {
        if let DevRunStatus::Waiting { wait, sentence } = &row.status {
            let WaitEnd::Latest { at } = wait.end else { panic!("no latest moment: {sentence}") };
            assert!(view.now <= at, "a wait passed its latest moment: {sentence}");
            let for_judge = matches!(wait.reason, WaitReason::JudgeHolds { .. } | WaitReason::JudgeHasWork { .. });
            assert!(!(is_split && for_judge), "a lane waits for the judge on a split rig: {sentence}");
        }
    }
    for row in &view.jobs {
        if let JobStatus::Waiting { wait, sentence } = &row.status {
            let for_lane = matches!(wait.reason, WaitReason::LaneHolds { .. });
            assert!(!(is_split && for_lane), "the judge waits for a lane on a split rig: {sentence}");
        }
    }
    assert_eq!(view.overlooked, 0, "somebody waits beside a free ready card");
}

/// Development runs and steps that go wrong now and then, until the faults stop.
fn script(rig: &Scenario, seed: u64, faulty: &Rc<Cell<bool>>) {
    for (at, card) in (0..).zip(&rig.cards) {
        script_card(card, seed * 16 + at, faulty);
    }
}

fn script_card(card: &ScriptedDevice, seed: u64, faulty: &Rc<Cell<bool>>) {
    let (luck, is_faulty) = (Cell::new(Some(Luck::new(seed))), faulty.clone());
    card.script_dev_runs(move |_| {
        let mut lucky = luck.take().expect("one run is scripted at a time");
        let mut script = DevRunScript::lasting(lucky.span(Span::ZERO, Span::minutes(2)));
        if is_faulty.get() && lucky.once_in(8) {
            script.stop = StopScript::NotProvedAfter(Span::seconds(3), "pid 7 is left".to_owned());
        }
        luck.set(Some(lucky));
        script
    });
    let (luck, is_faulty) = (Cell::new(Some(Luck::new(seed + 8))), faulty.clone());
    card.script_steps(move |_, _| {
        let mut lucky = luck.take().expect("one step is scripted at a time");
        let fails = is_faulty.get() && lucky.once_in(60);
        luck.set(Some(lucky));
        fails.then(|| StepReport::NotCarriedOut { why: "no answer".to_owned() })
    });
}
