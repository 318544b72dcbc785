//! One seed gives one course of events, and a day of a rig takes little time.

use std::collections::BTreeSet;

use rustix::time::{ClockId, clock_gettime};

use thermite_actors::testing::{DevRunScript, Luck};
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario};

#[test]
fn a_thousand_runs_of_one_seed_are_one_run() {
    let traces: BTreeSet<(u64, u64)> = (0..1_000).map(|_| short_story(7)).collect();

    let (_, decisions) = traces.first().copied().expect("it ran");
    println!("1000 runs of {decisions} decisions: {} traces", traces.len());
    assert_eq!(traces.len(), 1);
    assert!(decisions > 20, "a trace of {decisions} decisions tells little");
}

#[test]
fn other_seeds_are_other_runs() {
    let traces: BTreeSet<(u64, u64)> = (0..50).map(short_story).collect();

    assert_eq!(traces.len(), 50);
}

#[test]
fn a_day_of_lanes_and_jobs_takes_less_than_a_second() {
    let before = cpu_time();

    let rig = Scenario::begin(Beginning { lanes: 4, ..Beginning::default() });
    let mut luck = Luck::new(24);
    rig.device.script_dev_runs(|spec| DevRunScript::lasting(Span::seconds(20 * u64::from(spec.lane.number()))));
    let (mut dev_runs, mut jobs) = (0, 0);
    for slot in 0..24 * 12 {
        if slot % 12 == 0 {
            rig.job(&format!("equal-{slot}"));
            jobs += 1;
        }
        let lane = 1 + u32::try_from(luck.below(4)).expect("a small number");
        dev_runs += usize::from(rig.ask(lane).is_ok());
        rig.advance(Span::minutes(5));
    }
    let took = cpu_time() - before;

    let (_, decisions) = rig.trace();
    println!("24 h: {jobs} jobs, {dev_runs} development runs, {decisions} decisions in {took:?} of CPU time");
    assert!(rig.now().as_millis() >= Span::hours(24).as_millis());
    assert!(dev_runs > 200 && decisions > 1_000, "the day was not an idle one");
    assert_eq!(rig.view().jobs_live, 0);
    assert!(took.as_secs_f64() < 5.0, "a day took {took:?} of CPU time; under a second is usual");
    rig.assert_sound();
}

/// A few minutes with luck in it.
fn short_story(seed: u64) -> (u64, u64) {
    let rig = Scenario::begin(Beginning { seed, ..Beginning::default() });
    let mut luck = Luck::new(seed);
    let runs = luck.span(Span::seconds(1), Span::seconds(90));
    rig.device.script_dev_runs(move |_| DevRunScript::lasting(runs));
    rig.records.take(luck.span(Span::ZERO, Span::millis(20)));
    for lane in [1, 2, 3] {
        rig.ask(lane).expect("the lane is idle");
        rig.advance(luck.span(Span::ZERO, Span::seconds(40)));
    }
    rig.advance(Span::minutes(5));
    rig.trace()
}

/// The CPU time of this thread: a loaded machine changes it little.
fn cpu_time() -> std::time::Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread's CPU time is not negative");
    std::time::Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}
