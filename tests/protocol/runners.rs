//! Runners on other machines: who gets which, what a new list does to the work under way, and what people see of them
//! (rules E1 to E3, E8 to E14, E17).

use thermite_actors::rig::No;
use thermite_actors::testing::{Call, DevRunScript, Happened};
use thermite_actors::view::{DevRunStatus, JobStatus, RunnerRow, RunnerRuns, RunnersView, WhoWaits};
use thermite_core::contract::Target;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::hold::RunnerLoss;
use thermite_core::ids::{DevRunId, HoldId, MemberId};
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use thermite_core::runner::RunnerState;
use thermite_core::runners::{LocalJudge, ProcessAsk};
use thermite_core::stage::StageStep;
use thermite_core::time::Span;
use thermite_core::wait::{NoLatest, WaitEnd};

use crate::scenario::{Beginning, DEVICE, Scenario};

/// The first runner that a rig's log numbers.
const FIRST: MemberId = MemberId(MemberId::RUNNERS_FROM);
const SECOND: MemberId = MemberId(MemberId::RUNNERS_FROM + 1);

#[test]
fn a_runner_takes_runs_within_fifteen_seconds_of_its_first_answer() {
    let rig = Scenario::one_shared_device();

    let view = set(&rig, &[("box-1", &["judge"])]).expect("it can be");
    rig.advance(Span::seconds(15));
    let job = rig.job("faster");
    let outcome = rig.outcome_of(job);

    assert_eq!((view.revision, view.runners.len(), view.runners[0].name.as_str()), (1, 1, "box-1/1"));
    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    // Both judge: the confirmation is on the core's own, since it is another than the screening's (rule B6).
    assert_eq!(rig.stages_on(), [FIRST, DEVICE]);
    rig.assert_sound();
}

#[test]
fn the_judge_takes_its_own_runners_before_shared_ones_and_those_before_the_core() {
    let rig = core_and(&[("box-1", &["shared"]), ("box-2", &["judge"])]);
    let own = number(&rig, "box-2/1");

    let job = rig.job("faster");

    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    assert_eq!(rig.stages_on(), [own, number(&rig, "box-1/1")]);
}

#[test]
fn screening_and_confirmation_are_on_two_runners_and_each_builds_for_itself() {
    let rig = runners_alone(&[("box-1", &["judge"]), ("box-2", &["judge"])]);

    let job = rig.job("faster");
    let outcome = rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(rig.stages_on(), [FIRST, SECOND]);
    for name in ["box-1/1", "box-2/1"] {
        let set_up = rig.runners.device(name).diary().into_iter().filter(is_set_up).count();
        assert_eq!(set_up, 1, "{name} sets up both sides for itself");
    }
    let on: Vec<String> = rig.records.verdict_records().iter().map(|record| record.facts.on.runner.clone()).collect();
    assert_eq!(on, ["box-1/1", "box-2/1"]);
    rig.assert_sound();
}

#[test]
fn builds_take_turns_over_all_runners() {
    let rig = runners_alone(&[("box-1", &["judge"]), ("box-2", &["shared"])]);
    for name in ["box-1/1", "box-2/1"] {
        rig.runners.device(name).steps_take(Span::seconds(10), Span::seconds(1));
    }
    rig.job("slower-1");
    let second = rig.job("slower-2");
    rig.advance(Span::seconds(5));

    let sentence = rig.job_sentence(second);
    rig.advance(Span::minutes(1));

    assert!(sentence.starts_with("waits for the build of job"), "{sentence}");
    let starts = starts_of(&rig);
    assert_eq!(starts.iter().map(|hold| hold.member).collect::<Vec<_>>(), [FIRST, SECOND]);
}

#[test]
fn a_shared_runner_goes_by_arrival_and_not_by_who_asks() {
    let rig = runners_alone(&[("box-1", &["shared"])]);
    let device = rig.runners.device("box-1/1");
    device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(30)));
    let first = rig.dev_run(1);
    let job = rig.job("slower");
    let second = rig.dev_run(2);

    let (of_job, of_lane) = (rig.job_sentence(job), rig.sentence(second));
    rig.end_of(second);

    assert!(of_job.starts_with("waits for lane 1, which holds runner box-1/1 for development run"), "{of_job}");
    assert!(of_lane.starts_with("waits for lane 1, which holds runner box-1/1"), "{of_lane}");
    let order: Vec<String> = device
        .diary()
        .into_iter()
        .filter_map(|line| match line.call {
            Call::Exec(id) if id == first => Some("first".to_owned()),
            Call::Exec(id) if id == second => Some("second".to_owned()),
            Call::Step { step: StageStep::Prepare, .. } => Some("judge".to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["first", "judge", "second"]);
    rig.assert_sound();
}

#[test]
fn a_job_on_a_shared_runner_ends_by_its_latest_moment_with_lanes_before_it() {
    let rig = runners_alone(&[("box-1", &["shared"])]);
    rig.runners.device("box-1/1").script_dev_runs(|_| DevRunScript::endless());
    for lane in 1..=3 {
        rig.dev_run(lane);
    }
    let job = rig.job("slower");
    let JobStatus::Waiting { wait, .. } = rig.job_row(job).status else { panic!("it waits") };
    let WaitEnd::Latest { at } = wait.end else { panic!("{wait:?}") };

    rig.advance(Span::minutes(16));

    // Two lanes with an earlier arrival go first, each up to its limit; the third has waited ten minutes by then.
    let started = rig.facts().into_iter().find(|(_, fact)| matches!(**fact, LogEntry::StageStarted { .. }));
    assert!(started.is_some_and(|(when, _)| when <= at && when > wait.since + Span::minutes(5)));
}

#[test]
fn a_lane_takes_its_own_runner_first_then_a_shared_one_and_never_the_core() {
    let rig = core_and(&[("box-1", &["lane-1"]), ("box-2", &["shared"])]);
    endless(&rig, &["box-1/1", "box-2/1"]);

    let first = rig.dev_run(1);
    let second = rig.dev_run(2);
    let third = rig.dev_run(3);

    assert_eq!(exec_on(&rig, first), ["box-1/1"]);
    assert_eq!(exec_on(&rig, second), ["box-2/1"]);
    let sentence = rig.sentence(third);
    assert!(sentence.starts_with("waits for lane 2, which holds runner box-2/1"), "{sentence}");
    assert!(rig.exec_of(third).is_none(), "a shared runner serves it, so the core's machine does not");
}

#[test]
fn with_its_own_runner_away_a_lane_takes_a_shared_one_else_it_waits_and_never_falls_to_the_core() {
    let rig = core_and(&[("box-1", &["lane-1"])]);
    rig.runners.cut_off("box-1/1", true);
    rig.time.settle();

    let waits = rig.dev_run(1);
    let sentence = rig.sentence(waits);
    let other = rig.dev_run(2);
    set(&rig, &[("box-1", &["lane-1"]), ("box-2", &["shared"])]).expect("it can be");
    rig.advance(Span::seconds(15));

    assert!(
        sentence.starts_with("waits for a runner that takes runs: runner box-1/1: it does not answer, next in line"),
        "{sentence}"
    );
    assert!(rig.exec_of(other).is_some(), "a lane that no runner serves runs on the core's machine");
    assert_eq!(exec_on(&rig, waits), ["box-2/1"]);
}

#[test]
fn one_place_in_line_serves_whichever_runner_comes_first() {
    let rig = core_and(&[("box-1", &["lane-1"]), ("box-2", &["shared"])]);
    rig.runners.cut_off("box-1/1", true);
    rig.runners.device("box-2/1").script_dev_runs(|_| DevRunScript::endless());
    rig.dev_run(2);
    let waits = rig.dev_run(1);
    rig.advance(Span::minutes(1));

    rig.runners.cut_off("box-1/1", false);
    rig.time.settle();

    assert_eq!(exec_on(&rig, waits), ["box-1/1"]);
}

#[test]
fn five_minutes_hold_on_shared_runners_and_not_on_a_lanes_own() {
    let rig = core_and(&[("box-1", &["lane-1"]), ("box-2", &["shared"])]);
    endless(&rig, &["box-1/1", "box-2/1"]);
    let (own, shared) = (rig.dev_run(1), rig.dev_run(2));

    let end = rig.end_of(shared);
    rig.advance(Span::hours(2));

    assert_eq!(end, DevRunEnd::LimitReached { limit: limits::SHARED_DEV_RUN_MAX });
    assert!(rig.runs(own));
}

#[test]
fn the_judge_never_measures_on_a_lanes_own_runner() {
    let rig = runners_alone(&[("box-1", &["lane-1"]), ("box-2", &["judge"])]);

    let job = rig.job("faster");

    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    let judges = number(&rig, "box-2/1");
    assert_eq!(rig.stages_on(), [judges, judges], "no other judges, so it is confirmed on the same one");
}

#[test]
fn a_removed_runner_sends_the_job_back_to_its_place_and_others_go_on_untouched() {
    let rig = runners_alone(&[("box-1", &["judge"]), ("box-2", &["judge"]), ("box-3", &["lane-1"])]);
    for name in ["box-1/1", "box-2/1"] {
        rig.runners.device(name).steps_take(Span::seconds(1), Span::seconds(5));
    }
    endless(&rig, &["box-3/1"]);
    let (first, second) = (rig.job("slower-1"), rig.job("slower-2"));
    let runs = rig.dev_run(1);
    rig.advance(Span::seconds(20));
    let before = starts_of(&rig);

    set(&rig, &[("box-2", &["judge"]), ("box-3", &["lane-1"])]).expect("it can be");
    rig.advance(Span::seconds(5));
    let row = rig.job_row(first);

    assert_eq!(before.iter().map(|hold| hold.member).collect::<Vec<_>>(), [FIRST, SECOND]);
    assert!(matches!(row.status, JobStatus::Waiting { .. }), "{row:?}");
    assert_eq!((row.failures.len(), count(&rig, |entry| matches!(entry, LogEntry::SentBack { .. }))), (0, 1));
    assert!(matches!(rig.job_row(second).status, JobStatus::Measuring { hold, .. } if hold == before[1]));
    assert!(rig.runs(runs), "what other runners hold goes on");
    assert_eq!(rig.outcome_of(first), JobOutcome::NoGain { slower: true });
    assert_eq!(rig.outcome_of(second), JobOutcome::NoGain { slower: true });
    assert_eq!(count(&rig, |entry| matches!(entry, LogEntry::AttemptFailed { .. })), 0, "it is no failure");
    rig.assert_sound();
}

#[test]
fn a_runner_given_another_pool_tells_its_lane_to_run_the_command_again() {
    let rig = core_and(&[("box-1", &["lane-1"]), ("box-2", &["lane-2"])]);
    endless(&rig, &["box-1/1", "box-2/1"]);
    let (moved, goes_on) = (rig.dev_run(1), rig.dev_run(2));

    set(&rig, &[("box-1", &["lane-3"]), ("box-2", &["lane-2"])]).expect("it can be");
    let end = rig.end_of(moved);
    let why = rig.wait_for(rig.rig.why(moved.to_string())).expect("it is there");

    assert_eq!(end, DevRunEnd::RunnerLost { how: RunnerLoss::NewPool });
    assert_eq!(why.says, "its runner was given another pool while it ran; run the command again");
    assert!(rig.runs(goes_on));
    let third = rig.dev_run(3);
    assert_eq!(exec_on(&rig, third), ["box-1/1"]);
    let again = rig.dev_run(1);
    assert!(rig.exec_of(again).is_some(), "no runner serves it any more, so it runs on the core's machine");
    rig.assert_sound();
}

#[test]
fn a_waiter_keeps_its_place_and_latest_moment_over_a_new_list() {
    let rig = core_and(&[("box-1", &["shared"])]);
    endless(&rig, &["box-1/1", "box-2/1"]);
    rig.dev_run(1);
    let (second, third) = (rig.dev_run(2), rig.dev_run(3));
    let waits = |id: DevRunId| match rig.dev_run_row(id).status {
        DevRunStatus::Waiting { wait, .. } => (wait.place, wait.since, wait.end),
        other => panic!("it waits: {other:?}"),
    };
    let before = (waits(second), waits(third));
    rig.advance(Span::minutes(2));

    set(&rig, &[("box-1", &["shared"]), ("box-9", &["lane-1"])]).expect("it can be");
    let after = (waits(second), waits(third));
    set(&rig, &[("box-1", &["shared"]), ("box-2", &["shared"])]).expect("it can be");
    rig.advance(Span::seconds(15));

    assert_eq!(before, after);
    assert_eq!(exec_on(&rig, second), ["box-2/1"], "the first in line has it");
}

#[test]
fn the_same_list_again_stops_nothing_and_the_latest_asked_wins() {
    let rig = core_and(&[("box-1", &["lane-1"])]);
    endless(&rig, &["box-1/1"]);
    let runs = rig.dev_run(1);

    let again = set(&rig, &[("box-1", &["lane-1"])]).expect("it can be");
    let stale = rig.wait_for(rig.rig.set_runners(list(&[]), Some(1)));
    let fresh = rig.wait_for(rig.rig.set_runners(list(&[]), Some(2))).expect("its revision was read");

    assert_eq!(again.revision, 2);
    assert_eq!(stale, Err(No::Refusal(Refusal::RunnersMoved { revision: 2 })));
    assert_eq!(fresh.revision, 3);
    assert_eq!(rig.end_of(runs), DevRunEnd::RunnerLost { how: RunnerLoss::TakenAway });
}

#[test]
fn a_runner_that_comes_back_has_its_old_number_and_no_number_of_a_hold_twice() {
    let rig = runners_alone(&[("box-1", &["judge"])]);
    let first = rig.job("slower-1");
    rig.outcome_of(first);
    set(&rig, &[("box-2", &["judge"])]).expect("it can be");
    rig.advance(Span::seconds(15));
    set(&rig, &[("box-2", &["lane-2"]), ("box-1", &["judge"])]).expect("it can be");
    rig.advance(Span::seconds(15));

    let second = rig.job("slower-2");
    rig.outcome_of(second);

    let starts = starts_of(&rig);
    assert_eq!((number(&rig, "box-1/1"), number(&rig, "box-2/1")), (FIRST, SECOND));
    assert_eq!(starts.iter().map(|hold| (hold.member, hold.number)).collect::<Vec<_>>(), [(FIRST, 1), (FIRST, 2)]);
    rig.assert_sound();
}

#[test]
fn a_runner_that_is_listed_again_while_it_leaves_begins_another_life_once_its_stop_is_proved() {
    let rig = core_and(&[("box-1", &["lane-1"])]);
    rig.runners.device("box-1/1").script_dev_runs(|_| DevRunScript {
        stop: thermite_actors::testing::StopScript::ProvedAfter(Span::seconds(4)),
        ..DevRunScript::endless()
    });
    let first = rig.dev_run(1);
    set(&rig, &[]).expect("it can be");

    let leaves = runners(&rig);
    set(&rig, &[("box-1", &["lane-1"])]).expect("it can be");
    let end = rig.end_of(first);
    rig.advance(Span::seconds(15));
    let second = rig.dev_run(1);

    assert_eq!(leaves.runners[0].why_not.as_deref(), Some("it is taken away once what it had is over"));
    assert_eq!((leaves.runners[0].pool, leaves.asked.len()), (None, 0));
    assert_eq!(end, DevRunEnd::RunnerLost { how: RunnerLoss::TakenAway });
    assert!(rig.runs(second));
    rig.assert_sound();
}

#[test]
fn what_a_runner_had_that_does_not_answer_is_handed_on_once_its_lease_is_over() {
    let rig = runners_alone(&[("box-1", &["judge"]), ("box-2", &["shared"]), ("box-3", &["lane-1"])]);
    rig.runners.device("box-1/1").steps_take(Span::seconds(1), Span::seconds(5));
    endless(&rig, &["box-3/1"]);
    let (job, runs) = (rig.job("slower"), rig.dev_run(1));
    rig.advance(Span::seconds(10));
    let cut = rig.now();
    rig.runners.cut_off("box-1/1", true);
    rig.runners.cut_off("box-3/1", true);
    rig.time.settle();

    let JobStatus::Measuring { sentence, .. } = rig.job_row(job).status else { panic!("it has its hold still") };
    let row = row(&rig, "box-1/1");
    rig.advance(Span::seconds(60));
    let held = rig.job_row(job).status;
    rig.advance(Span::seconds(2));
    let end = rig.end_of(runs);
    let outcome = rig.outcome_of(job);

    assert_eq!(
        sentence.as_deref(),
        Some(
            "waits for runner box-1/1, which does not answer, to be over with it: then it starts over, since 25 s, at \
             most 1 min 1 s more"
        )
    );
    assert_eq!(row.state, RunnerState::Away { hand_on: cut + limits::HAND_ON_AFTER });
    assert!(matches!(held, JobStatus::Measuring { .. }), "nothing is handed on early: {held:?}");
    assert_eq!(end, DevRunEnd::RunnerLost { how: RunnerLoss::Away });
    assert_eq!(outcome, JobOutcome::NoGain { slower: true });
    assert_eq!(rig.stages_on(), [FIRST, SECOND]);
    assert_eq!(count(&rig, |entry| matches!(entry, LogEntry::AttemptFailed { .. })), 0);
    rig.assert_sound();
}

#[test]
fn a_runner_that_is_heard_again_before_its_lease_is_over_goes_on() {
    let rig = runners_alone(&[("box-1", &["judge"])]);
    rig.runners.device("box-1/1").steps_take(Span::seconds(1), Span::seconds(5));
    let job = rig.job("slower");
    rig.advance(Span::seconds(10));

    rig.runners.cut_off("box-1/1", true);
    rig.advance(Span::seconds(40));
    rig.runners.cut_off("box-1/1", false);

    assert_eq!(rig.outcome_of(job), JobOutcome::NoGain { slower: true });
    assert_eq!(rig.stages_on().len(), 1);
}

#[test]
fn of_another_kind_another_model_or_with_too_few_devices_a_runner_takes_nothing_and_says_why() {
    let rig = Scenario::begin(Beginning {
        cards: vec!["a"; 2],
        set_runners: Box::new(|runners| {
            runners.be_of_target("cpus/1", Target::Cpu);
            runners.be_of_model("other/1", "b");
            runners.be_of_model("good/1", "a");
            runners.serve("good/1", 3);
            runners.be_of_model("small/1", "a");
            runners.serve("small/1", 1);
            runners.be_of_model("small/2", "a");
            runners.serve("small/2", 1);
        }),
        ..Beginning::default()
    });
    let pools: [(&str, &[&str]); 4] =
        [("cpus", &["judge"]), ("other", &["judge"]), ("good", &["judge"]), ("small", &["judge", "shared"])];
    set(&rig, &pools).expect("it can be");
    rig.advance(Span::seconds(15));

    let view = runners(&rig);
    let why: Vec<(&str, Option<&str>)> =
        view.runners.iter().map(|row| (row.name.as_str(), row.why_not.as_deref())).collect();
    let job = rig.job("faster");
    rig.outcome_of(job);

    let too_many = Some("it is given 2 pools and serves 1 runners; give it as many as it serves");
    assert_eq!(
        why,
        [
            ("cpus/1", Some("it measures on cpu; this rig on cuda-gpu")),
            ("other/1", Some("its device is b; this rig measures on a")),
            ("good/1", None),
            ("small/1", too_many),
            ("small/2", too_many),
        ]
    );
    assert_eq!(view.without_pool, ["good/2", "good/3"]);
    let unfit: Vec<MemberId> = ["cpus/1", "other/1", "small/1", "small/2"].map(|name| number(&rig, name)).to_vec();
    assert!(rig.stages_on().iter().all(|on| !unfit.contains(on)));
    rig.assert_sound();
}

#[test]
fn where_the_core_judges_nothing_the_first_listed_judge_or_shared_runner_sets_the_kind() {
    let rig = Scenario::start(Beginning {
        local_judge: LocalJudge::Off,
        set_runners: Box::new(|runners| {
            runners.be_of_target("gpus/1", Target::CudaGpu);
            runners.be_of_target("lane/1", Target::CudaGpu);
            runners.be_of_target("cpus/1", Target::Cpu);
        }),
        ..Beginning::default()
    });
    let request = thermite_actors::testing::ScriptedWorkspaces::request(1);
    let early = rig.wait_for(rig.rig.start_run(request.clone(), None));
    set(&rig, &[("lane", &["lane-1"]), ("cpus", &["shared"]), ("gpus", &["judge"])]).expect("it can be");
    rig.advance(Span::seconds(15));

    let view = runners(&rig);
    let started = rig.wait_for(rig.rig.start_run(request, None));

    assert!(matches!(early, Err(No::Infrastructure(InfrastructureFailure::Step { .. }))), "{early:?}");
    assert_eq!((view.target, view.core_judges), (Some(Target::Cpu), false));
    let fit: Vec<(&str, bool)> = view.runners.iter().map(|row| (row.name.as_str(), row.takes_runs)).collect();
    assert_eq!(fit, [("lane/1", false), ("cpus/1", true), ("gpus/1", false)]);
    assert!(started.is_ok(), "kits of the runners' kind are taken: {started:?}");
}

#[test]
fn where_the_core_judges_nothing_jobs_wait_until_a_judges_runner_answers() {
    let rig = runners_alone(&[("box-1", &["judge"])]);
    rig.runners.cut_off("box-1/1", true);
    rig.time.settle();
    let job = rig.job("slower");
    let JobStatus::Waiting { wait, sentence } = rig.job_row(job).status else { panic!("it waits") };
    let shown = runners(&rig).waits;
    let lane = rig.dev_run(2);
    let on_core = rig.exec_of(lane);
    rig.advance(Span::minutes(30));

    rig.runners.cut_off("box-1/1", false);
    let outcome = rig.outcome_of(job);

    assert_eq!(wait.end, WaitEnd::Unbounded { cause: NoLatest::NoRunner });
    assert_eq!(
        sentence,
        "waits for a runner that takes runs: runner box-1/1: it does not answer, next in line, since 0.0 s, no latest \
         moment: no runner answers"
    );
    assert_eq!(
        shown.iter().map(|row| (row.who, row.sentence.clone())).collect::<Vec<_>>(),
        [(WhoWaits::Job { job }, sentence)]
    );
    assert!(on_core.is_some(), "the core's machine is the lanes' that no runner serves, whatever the judge waits for");
    assert_eq!(outcome, JobOutcome::NoGain { slower: true });
    assert_eq!(rig.stages_on(), [FIRST]);
}

#[test]
fn a_rig_whose_list_has_no_judges_runner_says_so() {
    let rig = runners_alone(&[("box-1", &["judge"])]);
    let job = rig.job("slower");

    set(&rig, &[("box-1", &["lane-1", "lane-9"])]).expect("it can be");
    rig.advance(Span::seconds(1));
    let (sentence, view) = (rig.job_sentence(job), runners(&rig));

    let none = "the rig's list has no judge's or shared runner, and the core judges nothing";
    assert!(sentence.contains(none), "{sentence}");
    assert_eq!(view.notes, [none, "box-1/2 serves lane 9 alone, and this rig has 3 lanes: it stays idle"]);
}

#[test]
fn the_block_says_of_each_runner_what_it_runs_and_how_long_ago_it_answered() {
    let rig = core_and(&[("box-1", &["judge"]), ("box-2", &["lane-2"]), ("box-3", &["shared"])]);
    rig.runners.device("box-1/1").steps_take(Span::seconds(1), Span::seconds(5));
    endless(&rig, &["box-2/1"]);
    let (job, runs) = (rig.job("slower"), rig.dev_run(2));
    rig.advance(Span::seconds(5));

    let view = runners(&rig);

    let hold = |member| HoldId { member, number: 1 };
    let third = number(&rig, "box-3/1");
    let lane = thermite_core::ids::LaneId::new(2).expect("it exists");
    let held: Vec<Option<RunnerRuns>> = view.runners.iter().map(|row| row.runs).collect();
    assert_eq!(
        held,
        [
            Some(RunnerRuns::Judge { hold: hold(FIRST), job: Some(job) }),
            Some(RunnerRuns::Lane { hold: hold(SECOND), lane, dev_run: runs }),
            None
        ]
    );
    assert_eq!(view.runners[2].member, third);
    assert!(view.runners.iter().all(|row| row.answered.is_some() && row.takes_runs));
    assert_eq!(rig.view().devices.len(), 1, "the devices are the core's own");
    let said: Vec<String> =
        ["box-1", "box-3/1"].map(|name| rig.wait_for(rig.rig.why(name.to_owned())).expect("it is there").says).to_vec();
    assert_eq!(said, ["busy; takes its next run once this one is over", "free"]);
}

#[test]
fn a_drained_runner_finishes_what_it_has_and_takes_nothing_more_also_after_a_restart() {
    let rig = core_and(&[("box-1", &["lane-1"])]);
    rig.runners.device("box-1/1").script_dev_runs(|_| DevRunScript::lasting(Span::minutes(1)));
    let runs = rig.dev_run(1);

    rig.wait_for(rig.rig.drain(FIRST)).expect("it is there");
    let end = rig.end_of(runs);
    let waits = rig.dev_run(1);
    let sentence = rig.sentence(waits);
    let rig = rig.kill_and_start_again(|_, _| {});
    rig.advance(Span::seconds(15));
    let drained = row(&rig, "box-1/1");
    let again = rig.dev_run(1);
    rig.wait_for(rig.rig.undrain(FIRST)).expect("it is there");
    rig.time.settle();

    assert!(matches!(end, DevRunEnd::Exited { .. }), "{end:?}");
    assert!(sentence.starts_with("waits for runner box-1/1, which is drained, to be undrained"), "{sentence}");
    assert_eq!(
        (drained.drained, drained.why_not.as_deref()),
        (true, Some("it is drained; undrain it to give it runs again"))
    );
    assert_eq!(exec_on(&rig, again), ["box-1/1"]);
}

#[test]
fn a_restarted_core_knows_its_runners_starts_their_jobs_over_and_tells_their_lanes() {
    let rig = runners_alone(&[("box-1", &["judge"]), ("box-2", &["lane-1"])]);
    rig.runners.device("box-1/1").steps_take(Span::seconds(1), Span::seconds(5));
    endless(&rig, &["box-2/1"]);
    let (job, runs) = (rig.job("slower"), rig.dev_run(1));
    rig.advance(Span::seconds(20));

    let rig = rig.kill_and_start_again(|_, _| {});
    let at_once = runners(&rig);
    let again = rig.submit("slower").expect("the run takes jobs");
    rig.advance(Span::seconds(15));
    let outcome = rig.outcome_of(job);

    assert_eq!((at_once.revision, at_once.asked.len()), (1, 2));
    assert_eq!((again.job, again.same), (job, true), "what it measures on is known before its runners are back");
    assert_eq!((number(&rig, "box-1/1"), number(&rig, "box-2/1")), (FIRST, SECOND));
    assert_eq!(rig.end_of(runs), DevRunEnd::RigEnded);
    assert_eq!(outcome, JobOutcome::NoGain { slower: true });
    let starts: Vec<(MemberId, u64)> = starts_of(&rig).iter().map(|hold| (hold.member, hold.number)).collect();
    assert_eq!(starts, [(FIRST, 1), (FIRST, 2)], "no number twice, over restarts too");
    assert_eq!(count(&rig, |entry| matches!(entry, LogEntry::AttemptFailed { .. })), 0);
}

#[test]
fn a_list_that_cannot_be_is_refused_and_changes_nothing() {
    let rig = core_and(&[("box-1", &["lane-1"])]);

    let refused = set(&rig, &[("box-2", &["lane-17"])]);

    let why = "box-2: there is no pool \"lane-17\": it is `judge`, `shared`, or `lane-1` to `lane-16`".to_owned();
    assert_eq!(refused, Err(No::Refusal(Refusal::BadRunners { why })));
    assert_eq!(runners(&rig).revision, 1);
}

#[test]
fn a_list_that_the_records_refuse_is_not_in_force() {
    let rig = core_and(&[("box-1", &["lane-1"])]);
    rig.records.refuse("disk full");

    let refused = set(&rig, &[]);
    rig.records.mend();
    rig.advance(Span::seconds(5));

    assert!(matches!(refused, Err(No::Infrastructure(_))), "{refused:?}");
    assert_eq!((runners(&rig).revision, runners(&rig).runners.len()), (1, 1));
}

#[test]
fn a_new_split_leaves_what_runners_hold_alone() {
    let rig = Scenario::cards(2);
    set(&rig, &[("box-1", &["judge"]), ("box-2", &["lane-1"])]).expect("it can be");
    rig.advance(Span::seconds(15));
    rig.runners.device("box-1/1").steps_take(Span::seconds(1), Span::seconds(5));
    endless(&rig, &["box-2/1"]);
    rig.cards[0].steps_take(Span::seconds(1), Span::seconds(5));
    let (first, second, runs) = (rig.job("slower-1"), rig.job("slower-2"), rig.dev_run(1));
    rig.advance(Span::seconds(20));

    let split = thermite_core::split::SplitAsk::Shared;
    rig.wait_for(rig.rig.set_split(split, None)).expect("it can be");
    rig.advance(Span::seconds(5));

    assert!(rig.runs(runs));
    let on_runner = |job| matches!(rig.job_row(job).status, JobStatus::Measuring { hold, .. } if hold.member == FIRST);
    assert!(on_runner(first) || on_runner(second), "the stage on the runner goes on");
    assert_eq!(rig.outcome_of(first), JobOutcome::NoGain { slower: true });
    assert_eq!(rig.outcome_of(second), JobOutcome::NoGain { slower: true });
    rig.assert_sound();
}

#[test]
fn a_job_that_the_bench_has_built_builds_anew_on_a_runner() {
    let rig = Scenario::cards(2);
    let bench = rig.bench.clone().expect("there is one");
    rig.cards[0].steps_take(Span::seconds(1), Span::seconds(60));
    let (first, second) = (rig.job("slower-1"), rig.job("slower-2"));
    rig.advance(Span::seconds(30));
    let built = bench.diary().into_iter().filter(is_set_up).count();

    set(&rig, &[("box-1", &["judge"])]).expect("it can be");
    rig.advance(Span::seconds(20));
    let JobStatus::Measuring { hold, .. } = rig.job_row(second).status else { panic!("a free runner takes it") };
    rig.outcome_of(second);
    rig.outcome_of(first);

    assert_eq!(built, 2, "the bench has built both jobs");
    assert_eq!(hold.member, FIRST);
    let record = rig.records.verdict_records().into_iter().find(|record| record.facts.on.runner == "box-1/1");
    assert!(record.is_some(), "it was measured there, with what was built there");
    rig.assert_sound();
}

/// A rig whose core judges too, with these runners, all answering.
fn core_and(pools: &[(&str, &[&str])]) -> Scenario {
    let rig = Scenario::one_shared_device();
    set(&rig, pools).expect("it can be");
    rig.advance(Span::seconds(15));
    rig
}

/// A rig whose core judges nothing, with these runners, all answering, and a run.
fn runners_alone(pools: &[(&str, &[&str])]) -> Scenario {
    let mut rig = Scenario::start(Beginning { local_judge: LocalJudge::Off, ..Beginning::default() });
    set(&rig, pools).expect("it can be");
    rig.advance(Span::seconds(15));
    let request = thermite_actors::testing::ScriptedWorkspaces::request(3);
    rig.run = rig.wait_for(rig.rig.start_run(request, None)).expect("a first run is started");
    rig.time.settle();
    rig
}

fn list(pools: &[(&str, &[&str])]) -> Vec<ProcessAsk> {
    let one = |(name, pools): &(&str, &[&str])| ProcessAsk {
        name: (*name).to_owned(),
        pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
    };
    pools.iter().map(one).collect()
}

fn set(rig: &Scenario, pools: &[(&str, &[&str])]) -> Result<RunnersView, No> {
    rig.wait_for(rig.rig.set_runners(list(pools), None))
}

fn runners(rig: &Scenario) -> RunnersView {
    rig.wait_for(rig.rig.runners()).expect("the rig is there")
}

fn row(rig: &Scenario, name: &str) -> RunnerRow {
    runners(rig).runners.into_iter().find(|row| row.name == name).expect("it is on the list")
}

fn number(rig: &Scenario, name: &str) -> MemberId {
    row(rig, name).member
}

fn endless(rig: &Scenario, names: &[&str]) {
    for name in names {
        rig.runners.device(name).script_dev_runs(|_| DevRunScript::endless());
    }
}

/// The runners on which a development run was really started.
fn exec_on(rig: &Scenario, dev_run: DevRunId) -> Vec<String> {
    let started = |name: &String| rig.runners.device(name).diary().iter().any(|line| line.call == Call::Exec(dev_run));
    rig.runners.names().into_iter().filter(started).collect()
}

fn is_set_up(line: &Happened) -> bool {
    matches!(line.call, Call::Step { step: StageStep::Prepare, .. })
}

fn starts_of(rig: &Scenario) -> Vec<HoldId> {
    let start = |entry| match entry {
        LogEntry::StageStarted { hold, .. } => Some(hold),
        _ => None,
    };
    rig.entries().into_iter().filter_map(start).collect()
}

fn count(rig: &Scenario, is_it: impl Fn(&LogEntry) -> bool) -> usize {
    rig.entries().iter().filter(|entry| is_it(entry)).count()
}
