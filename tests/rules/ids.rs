//! Names of things.

use thermite_core::ids::{HoldId, Holder, LANE_MAX, LaneId, MemberId};

use crate::scenario::lane;

#[test]
fn lanes_are_numbered_one_to_sixteen() {
    assert!((1..=LANE_MAX).all(|n| LaneId::new(n).is_ok()));

    let refused: Vec<String> = [0, 17].into_iter().map(|n| LaneId::new(n).unwrap_err().to_string()).collect();

    assert_eq!(
        refused,
        ["lane 0 does not exist: lanes are numbered 1 to 16", "lane 17 does not exist: lanes are numbered 1 to 16"]
    );
}

#[test]
fn a_lane_from_outside_is_checked_too() {
    let good: Result<LaneId, _> = serde_json::from_str("16");
    let bad: Result<LaneId, _> = serde_json::from_str("17");

    assert_eq!(good.unwrap(), lane(16));
    assert!(bad.is_err());
}

#[test]
fn holders_and_holds_read_well_in_a_sentence() {
    assert_eq!(Holder::Judge.to_string(), "the judge");
    assert_eq!(Holder::Lane(lane(3)).to_string(), "lane 3");
    assert_eq!(HoldId { member: MemberId(2), number: 7 }.to_string(), "hold 7 of device 2");
}
