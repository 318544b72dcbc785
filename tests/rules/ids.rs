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
fn a_device_is_named_by_its_number_or_as_it_is_printed() {
    let read = |text: &str| text.parse().ok().map(|MemberId(number)| number);

    assert_eq!(["2", "device 2", "device-2", "002"].map(read), [Some(2); 4]);
    assert_eq!(["1000", "runner 1000", "runner-1000"].map(read), [Some(1000); 3]);
    let not = ["", "+2", "-2", "device", "device2", "device--2", "device 1000", "runner 2", "65536", "2 ", "GPU-2"];
    assert_eq!(not.map(read), [None; 11]);
    assert_eq!(MemberId(2).to_string().parse(), Ok(MemberId(2)));
    assert_eq!(MemberId(1000).to_string().parse(), Ok(MemberId(1000)));
}

#[test]
fn holders_and_holds_read_well_in_a_sentence() {
    assert_eq!(Holder::Judge.to_string(), "the judge");
    assert_eq!(Holder::Lane(lane(3)).to_string(), "lane 3");
    assert_eq!(HoldId { member: MemberId(2), number: 7 }.to_string(), "hold 7 of device 2");
}
