//! A day of mixed work leaves no more behind than two hours of it: every machine's state, and what the actors keep.
//!
//! What the records remember of work that is over, and the judge queue of verdicts that were given, is theirs to bound.

use thermite_actors::testing::{DevRunScript, Luck};
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};

use crate::scenario::Scenario;

#[test]
fn a_day_of_mixed_work_keeps_no_more_than_two_hours_of_it() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(70)));
    let began = rig.now();

    let mut luck = Luck::new(9);
    let early = work_until(&rig, &mut luck, began + Span::hours(2));
    let late = work_until(&rig, &mut luck, began + Span::hours(24));

    println!("after 2 h: {early:?}; after 24 h: {late:?}");
    assert_eq!(early.kept, 0);
    assert_eq!(late.kept, 0);
    for (machine, values) in early.states.iter().filter(|(machine, _)| *machine != "verdicts") {
        assert_eq!(late.states[machine], *values, "{machine}");
    }
    assert!(late.states.len() > 4, "{late:?}");
    rig.assert_sound();
}

#[derive(Debug)]
struct Size {
    states: std::collections::BTreeMap<String, usize>,
    kept: usize,
}

/// Works until that moment, and measures once all is over.
fn work_until(rig: &Scenario, luck: &mut Luck, until: Moment) -> Size {
    let mut number = rig.now().as_millis();
    while rig.now() < until {
        number += 1;
        for lane in 1..=3 {
            if luck.once_in(3) {
                drop(rig.ask(lane));
            }
        }
        if luck.once_in(4) {
            let change = ["equal", "faster", "slower", "broken"][usize::try_from(luck.below(4)).expect("small")];
            rig.job(&format!("{change}-{number}"));
        }
        rig.device.be_busy(luck.once_in(20).then_some("load1"));
        rig.advance(luck.span(Span::ZERO, Span::minutes(6)));
        // What was heard of is not what the rig keeps.
        drop(rig.device.take_diary());
    }
    rig.device.be_busy(None);
    while rig.view().jobs_live > 0 || !rig.view().dev_runs.is_empty() {
        rig.advance(Span::minutes(1));
    }
    // Each machine tells its state before its next step, and all is over.
    rig.inputs.begin_segment();
    rig.change_run(RunState::Running).expect("it runs already");
    let kept = rig.wait_for(rig.rig.kept()).expect("the rig is there");
    for lane in 1..=3 {
        let dev_run = rig.dev_run(lane);
        rig.end_of(dev_run);
    }
    Size { states: rig.inputs.state_sizes(), kept }
}
