//! One sentence for every wait (rule A9).

use thermite_core::time::{Moment, Span};
use thermite_core::wait::{NoLatest, Wait, WaitEnd, WaitReason, after_turns};

use crate::scenario::{DEVICE, dev_run, job, lane, run};

const T: Moment = Moment::from_millis(1_000_000);
const ID: &str = "00000000-0000-0000-0000-00000000000";

#[test]
fn every_reason_has_its_words() {
    let reasons = [
        (WaitReason::JudgeHasWork { jobs: 1 }, "the judge, which has 1 job".to_owned()),
        (WaitReason::JudgeHasWork { jobs: 3 }, "the judge, which has 3 jobs".to_owned()),
        (
            WaitReason::PausedRunsJobs { run: run(2) },
            format!("jobs of paused run {ID}2, which keep their place until it is resumed"),
        ),
        (
            WaitReason::JudgeHolds { member: DEVICE, job: Some(job(4)) },
            format!("the judge, which holds device 0 for job {ID}4"),
        ),
        (WaitReason::JudgeHolds { member: DEVICE, job: None }, "the judge, which holds device 0".to_owned()),
        (
            WaitReason::LaneHolds { member: DEVICE, lane: lane(2), dev_run: dev_run(5) },
            format!("lane 2, which holds device 0 for development run {ID}5"),
        ),
        (WaitReason::Earlier { ahead: 1 }, "1 asked for earlier".to_owned()),
        (WaitReason::Earlier { ahead: 2 }, "2 asked for earlier".to_owned()),
        (WaitReason::NoReadyDevice { why: "pid 7 is stuck".to_owned() }, "a ready device: pid 7 is stuck".to_owned()),
        (WaitReason::RunPaused { run: run(1) }, format!("run {ID}1 to be resumed")),
        (WaitReason::BuildTurn { job: job(3) }, format!("the build of job {ID}3")),
        (WaitReason::BuiltFirst { jobs: 1 }, "a card for the 1 job that is built already".to_owned()),
        (WaitReason::BuiltFirst { jobs: 2 }, "a card for one of the 2 jobs that are built already".to_owned()),
        (WaitReason::Retry { failures: 2 }, "its next attempt after infrastructure failure 2".to_owned()),
        (WaitReason::Records, "the records, which cannot be written".to_owned()),
        (WaitReason::Starting { member: DEVICE }, "its start on device 0".to_owned()),
        (
            WaitReason::DeviceBusy { signals: "load 3.2 of 1.5".to_owned() },
            "a quiet device: load 3.2 of 1.5".to_owned(),
        ),
    ];

    for (reason, words) in reasons {
        assert_eq!(reason.to_string(), words);
    }
}

#[test]
fn a_sentence_says_reason_place_since_when_and_the_end() {
    let wait = Wait {
        reason: WaitReason::JudgeHasWork { jobs: 2 },
        place: 0,
        since: T,
        end: WaitEnd::Latest { at: T + Span::minutes(10) },
    };

    let sentence = wait.sentence(T + Span::seconds(200));

    assert_eq!(
        sentence,
        "waits for the judge, which has 2 jobs, next in line, since 3 min 20 s, at most 6 min 40 s more"
    );
}

#[test]
fn a_wait_without_a_latest_moment_says_so() {
    let wait = Wait {
        reason: WaitReason::RunPaused { run: run(1) },
        place: 3,
        since: T,
        end: WaitEnd::Unbounded { cause: NoLatest::PausedRun },
    };

    let sentence = wait.sentence(T);

    assert_eq!(
        sentence,
        format!("waits for run {ID}1 to be resumed, 3 ahead, since 0.0 s, no latest moment: the run is paused")
    );
}

#[test]
fn a_certificate_over_many_turns_never_wraps() {
    let end = after_turns(T, u32::MAX, Span::millis(u64::MAX));

    assert_eq!(end, Moment::from_millis(u64::MAX));
    assert_eq!(after_turns(T, 3, Span::seconds(2)), T + Span::seconds(6));
}
