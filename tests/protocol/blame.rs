//! What disturbed blocks becomes a fact with its attempt, names who alone ran beside them, and outlives the rig.

use std::cell::Cell;

use thermite_actors::testing::DevRunScript;
use thermite_core::blame::{Blame, Blamed, Disturbance};
use thermite_core::block::BlockTimes;
use thermite_core::ids::{LaneId, MemberId};
use thermite_core::readiness::{Clocks, Reading, Signal, SignalState, names};
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};

use crate::scenario::Scenario;

#[test]
fn thrown_blocks_are_counted_by_cause_and_lane_and_outlive_the_rig() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let thrown = Cell::new(0);
    rig.cards[0].script_steps(move |_, step| match step {
        StageStep::Block { .. } if thrown.get() < 3 => {
            thrown.set(thrown.get() + 1);
            let reading = |at, state| Reading {
                at,
                signals: vec![Signal {
                    name: names::SLOWED.to_owned(),
                    value: None,
                    limit: None,
                    unit: String::new(),
                    state,
                    required: true,
                }],
                throttle: Vec::new(),
                clocks: Clocks::default(),
            };
            // Far in the rig's future: whoever runs by then runs beside it.
            let (started, ended) = (Moment::START + Span::seconds(1_000_000), Moment::START + Span::seconds(1_000_001));
            let (before, after) = (reading(started, SignalState::Ok), reading(ended, SignalState::Busy));
            Some(StepReport::Timed { times: BlockTimes { ns: [100_000_000; 4], started, before, after } })
        }
        _ => None,
    });
    let dev_run = rig.dev_run(2);
    assert!(rig.exec_on(1, dev_run).is_some());

    let job = rig.job("slower-1");
    rig.outcome_of(job);

    let lane = Some(LaneId::new(2).unwrap());
    let blame = Blame { device: "card-0".to_owned(), cause: Disturbance::Slowed, lane };
    let expected = [Blamed { blame, blocks: 3 }];
    assert_eq!(disturbed(&rig, 0), expected);
    assert_eq!(disturbed(&rig, 1), []);
    let rig = rig.kill_and_start_again(|_, _| {});
    assert_eq!(disturbed(&rig, 0), expected);
}

fn disturbed(rig: &Scenario, card: u16) -> Vec<Blamed> {
    let view = rig.view();
    let row = view.devices.iter().find(|row| row.member == MemberId(card)).expect("the card is shown");
    row.disturbed.clone()
}
