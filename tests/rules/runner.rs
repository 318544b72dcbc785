//! The shape of a runner: what it may be given, and why not.

use thermite_core::contract::Target;
use thermite_core::hold::StopCause;
use thermite_core::ids::Holder;
use thermite_core::runner::{RunnerState, WhyNot};
use thermite_core::time::Moment;

#[test]
fn only_a_runner_that_answers_and_is_free_takes_runs() {
    let answered = Moment::from_millis(5);
    let busy = RunnerState::Busy { number: 3, by: Holder::Judge, answered, stop: Some(StopCause::StageOver) };

    assert!(RunnerState::Ready { answered }.takes_runs());
    for state in [
        RunnerState::Reconciling,
        busy,
        RunnerState::Unfit { why: WhyNot::Drained },
        RunnerState::Away { hand_on: answered },
    ] {
        assert!(!state.takes_runs(), "{state:?}");
    }
}

#[test]
fn why_not_names_both_sides_and_the_way_out() {
    let kinds = WhyNot::OtherTarget { has: Target::Cpu, wants: Target::CudaGpu };
    let pools = WhyNot::TooManyPools { pools: 3, serves: 2 };

    assert_eq!(kinds.to_string(), "it measures on cpu; this rig on cuda-gpu");
    assert_eq!(pools.to_string(), "it is given 3 pools and serves 2 runners; give it as many as it serves");
}
