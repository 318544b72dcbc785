//! Who disturbed which blocks: by cause, and beside whose development run (rule D3).

use thermite_core::blame::{Beside, Blame, Blamed, Disturbance, blame};
use thermite_core::block::{Order, Side, ThrowCause, TriedBlock};
use thermite_core::device::DeviceView;
use thermite_core::fold::RigHistory;
use thermite_core::hold::StopCause;
use thermite_core::ids::{HoldId, Holder, LaneId, MemberId};
use thermite_core::log::LogEntry;
use thermite_core::time::Moment;

use crate::scripted::times;

const CARD: &str = "GPU-1";

#[test]
fn a_lane_that_ran_alone_beside_a_block_is_named() {
    let mut beside = Beside::default();
    began(&mut beside, run(1), lane(1), at(1_000));

    let found = blame(CARD, &[thrown(2_000, 3_000, &[ThrowCause::OtherProgram])], &beside);

    assert_eq!(found, [blamed(Disturbance::OtherProgram, Some(1), 1)]);
}

#[test]
fn nobody_is_named_where_none_or_several_ran() {
    let mut beside = Beside::default();
    let block = thrown(2_000, 3_000, &[ThrowCause::OtherProgram]);
    let none = blame(CARD, [&block], &beside);
    began(&mut beside, run(1), lane(1), at(1_000));
    began(&mut beside, run(2), lane(2), at(2_500));

    let several = blame(CARD, [&block], &beside);

    assert_eq!(none, [blamed(Disturbance::OtherProgram, None, 1)]);
    assert_eq!(several, none);
}

/// A run whose hold was burnt waits again in its place: it has no device meanwhile, and disturbs nobody.
#[test]
fn a_run_is_beside_blocks_from_its_start_until_nothing_is_left_of_it() {
    let hold = run(1);
    let stop = |cause| DeviceView::Stopping { hold, cause, since: at(4_000), until: at(14_000) };
    let named = |views: &[DeviceView]| {
        let mut beside = Beside::default();
        for (view, now) in views.iter().zip([1_000, 4_000, 6_000]) {
            beside.stands(hold.member, view, at(now));
        }
        let found = blame(CARD, &[thrown(5_000, 5_500, &[ThrowCause::OtherProgram])], &beside);
        found[0].blame.lane
    };
    let (prepares, runs) = (held(hold, lane(1), None), held(hold, lane(1), Some(at(1_000))));

    assert_eq!(named(std::slice::from_ref(&prepares)), None, "it is being prepared");
    assert_eq!(named(&[prepares.clone(), DeviceView::Ready]), None, "its hold was burnt");
    assert_eq!(named(&[prepares, stop(StopCause::Cancelled)]), None, "it never began");
    assert_eq!(named(std::slice::from_ref(&runs)), Some(lane(1)));
    assert_eq!(
        named(&[runs.clone(), stop(StopCause::Cancelled), DeviceView::Ready]),
        Some(lane(1)),
        "until proved gone"
    );
    assert_eq!(named(&[runs, DeviceView::Ready]), None, "it was over");
}

#[test]
fn only_who_ran_during_the_block_counts() {
    let mut beside = Beside::default();
    began(&mut beside, run(1), lane(1), at(0));
    ended(&mut beside, run(1), at(2_000));
    began(&mut beside, run(2), lane(2), at(3_000));
    ended(&mut beside, run(3), at(2_500));
    let block = |from, until| thrown(from, until, &[ThrowCause::Slowed]);

    let before_during_after =
        [block(1_000, 1_900), block(2_000, 3_000), block(2_900, 3_100)].map(|block| blame(CARD, [&block], &beside));

    let lanes = before_during_after.map(|found| found[0].blame.lane.map(LaneId::number));
    assert_eq!(lanes, [Some(1), None, Some(2)]);
}

#[test]
fn no_lane_is_named_for_what_no_program_can_bring_about() {
    let mut beside = Beside::default();
    began(&mut beside, run(1), lane(1), at(0));
    let lost = TriedBlock::Lost { order: Order::Abba, at: at(9), running: Side::Change, why: "SIGKILL".into() };
    let causes = [ThrowCause::ClockStepped, ThrowCause::Slept];

    let found = blame(CARD, [&thrown(2_000, 3_000, &causes), &lost], &beside);

    let expected = [Disturbance::ClockStepped, Disturbance::Slept, Disturbance::ProcessLost];
    assert_eq!(found, expected.map(|cause| blamed(cause, None, 1)));
}

#[test]
fn a_block_counts_once_for_each_cause_and_accepted_ones_for_none() {
    let groups = ["/rig", "/"].map(|group| ThrowCause::Throttled { group: group.into() });
    let accepted = TriedBlock::Accepted { order: Order::Abba, times: times(at(0), Order::Abba, 1.0, 0) };

    let found = blame(CARD, [&thrown(0, 1, &groups), &accepted, &thrown(0, 1, &groups[..1])], &Beside::default());

    assert_eq!(found, [blamed(Disturbance::Throttled, None, 2)]);
}

#[test]
fn the_log_adds_up_what_disturbed() {
    let entry = |lane, blocks| LogEntry::BlocksDisturbed { blamed: vec![blamed(Disturbance::Slowed, lane, blocks)] };

    let history = RigHistory::of([entry(Some(1), 2), entry(None, 1), entry(Some(1), 3), LogEntry::RigStarted]);

    let totals: Vec<(Option<u8>, u64)> =
        history.disturbed.iter().map(|(blame, blocks)| (blame.lane.map(LaneId::number), *blocks)).collect();
    assert_eq!(totals, [(None, 1), (Some(1), 5)]);
    let written = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<RigHistory>(&written).unwrap(), history);
}

fn blamed(cause: Disturbance, by: Option<u8>, blocks: u64) -> Blamed {
    Blamed { blame: Blame { device: CARD.into(), cause, lane: by.map(lane) }, blocks }
}

fn thrown(from: u64, until: u64, causes: &[ThrowCause]) -> TriedBlock {
    let mut times = times(at(from), Order::Abba, 1.0, 0);
    times.after.at = at(until);
    TriedBlock::Thrown { order: Order::Abba, times, causes: causes.to_vec() }
}

/// The first hold of a device of that number.
fn run(number: u16) -> HoldId {
    HoldId { member: MemberId(number), number: 1 }
}

/// The lane's run of that hold starts.
fn began(beside: &mut Beside, hold: HoldId, by: LaneId, now: Moment) {
    beside.stands(hold.member, &held(hold, by, Some(now)), now);
}

fn ended(beside: &mut Beside, hold: HoldId, now: Moment) {
    beside.stands(hold.member, &DeviceView::Ready, now);
}

fn held(hold: HoldId, by: LaneId, running_since: Option<Moment>) -> DeviceView {
    DeviceView::Held { hold, by: Holder::Lane(by), running_since, limit_at: None }
}

fn lane(number: u8) -> LaneId {
    LaneId::new(number).expect("a lane of the tests is one there can be")
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}
