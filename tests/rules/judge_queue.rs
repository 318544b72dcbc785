//! The judge queue: what it accepts, in what order it works, and how jobs end (rules A3, A13, B7, D5, D7).

use std::collections::BTreeMap;

use proptest::prelude::*;
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, HoldId, JobId, MemberId};
use thermite_core::job::{ChangeStep, JobOutcome, StageKind};
use thermite_core::judge_queue::{
    JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, StageResult, Submission, Submit, Ticket,
};
use thermite_core::limits;
use thermite_core::pool::JudgeWork;
use thermite_core::refusal::{GaveUp, InfrastructureFailure, Refusal};
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};

use crate::scenario::{DEVICE, Scenario, hold, job, run};

const T: Moment = Moment::from_millis(1_000_000);

#[test]
fn a_submit_is_answered_only_once_it_is_durable_and_the_pool_knows() {
    let mut queue = running();

    let asked = queue.submit(submit(1, 1)).unwrap();
    let durable = queue.handle(T, JudgeInput::Recorded(Ticket::Submit(job(1))));
    let known = queue.handle(T, JudgeInput::WorkTaken { version: told(&durable).version });

    let facts = vec![JudgeFact::Submitted];
    let record = JudgeEffect::Record { ticket: Ticket::Submit(job(1)), job: job(1), facts };
    assert_eq!(asked, Submission::New(vec![record]));
    assert!(matches!(durable[..], [JudgeEffect::Tell(_)]));
    assert_eq!(known, [JudgeEffect::AnswerSubmitted { job: job(1), ahead: 0 }]);
}

#[test]
fn a_submit_that_cannot_be_recorded_is_told_so_and_may_be_asked_again() {
    let mut queue = running();
    queue.submit(submit(1, 1)).unwrap();

    let refused = queue.handle(T, JudgeInput::NotRecorded(Ticket::Submit(job(1))));

    assert_eq!(refused, [JudgeEffect::AnswerNotRecorded { job: job(1) }]);
    assert!(matches!(queue.submit(submit(1, 2)), Ok(Submission::New(_))));
}

#[test]
fn asking_twice_with_the_same_key_is_asking_once() {
    let mut queue = running();
    let keyed = |n| Submit { key: Some("k".to_owned()), ..submit(n, u64::from(n)) };
    queue.submit(keyed(1)).unwrap();

    let again = queue.submit(keyed(2));

    assert_eq!(again, Ok(Submission::Same { job: job(1), answered: false }));
}

#[test]
fn a_stage_starts_on_the_device_only_once_its_start_is_durable() {
    let mut queue = running();
    accepted(&mut queue, 1);

    let granted = grant(&mut queue, 1, 1);
    let durable = queue.handle(T, JudgeInput::Recorded(Ticket::Start(job(1), hold(1))));

    assert!(!granted.iter().any(|effect| matches!(effect, JudgeEffect::StartStage { .. })));
    let stage = StageKind::Screening;
    assert_eq!(durable, [JudgeEffect::StartStage { hold: hold(1), job: job(1), stage, attempt: 1 }]);
}

#[test]
fn a_burnt_holds_late_record_does_not_start_the_next_hold() {
    let mut queue = running();
    accepted(&mut queue, 1);
    grant(&mut queue, 1, 1);
    queue.handle(T, JudgeInput::HoldEnded { hold: hold(1), how: HoldEnd::NotStarted });
    grant(&mut queue, 1, 2);

    let late = queue.handle(T, JudgeInput::Recorded(Ticket::Start(job(1), hold(1))));

    assert_eq!(late, []);
}

#[test]
fn the_pool_knows_what_is_left_before_the_hold_ends() {
    let mut queue = running();
    accepted(&mut queue, 1);
    started(&mut queue, 1, 1);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });

    let durable = queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));
    let known = queue.handle(T, JudgeInput::WorkTaken { version: told(&durable).version });

    let entry = &told(&durable).entries[0];
    assert_eq!((entry.stage, entry.screened_on, entry.startable), (StageKind::Confirmation, Some(DEVICE), true));
    assert!(!durable.contains(&JudgeEffect::EndHold { hold: hold(1) }));
    assert!(known.contains(&JudgeEffect::EndHold { hold: hold(1) }));
}

#[test]
fn a_grant_for_jobs_that_are_gone_is_given_back() {
    let mut queue = running();

    let granted = grant(&mut queue, 7, 1);

    assert_eq!(granted, [JudgeEffect::ReleaseUnused { hold: hold(1) }]);
}

#[test]
fn the_earliest_of_the_jobs_a_grant_serves_is_picked() {
    let mut queue = running();
    accepted(&mut queue, 1);
    accepted(&mut queue, 2);
    let serves = vec![(job(2), StageKind::Screening), (job(1), StageKind::Screening)];

    queue.handle(T, JudgeInput::Granted { hold: hold(1), serves });

    assert_eq!(queue.live(1)[0].job, job(1));
    assert_eq!(queue.live(1)[0].attempt, 1);
}

#[test]
fn builds_take_turns_for_the_whole_rig() {
    let mut queue = running();
    accepted(&mut queue, 1);
    accepted(&mut queue, 2);
    grant(&mut queue, 1, 1);
    let elsewhere = HoldId { member: MemberId(1), number: 1 };
    let serves = vec![(job(2), StageKind::Screening)];

    let while_building = queue.handle(T, JudgeInput::Granted { hold: elsewhere, serves: serves.clone() });
    let built = queue.handle(T, JudgeInput::BuildsDone { hold: hold(1) });
    let next = queue.handle(T, JudgeInput::Granted { hold: elsewhere, serves });

    assert_eq!(while_building, [JudgeEffect::ReleaseUnused { hold: elsewhere }]);
    assert!(told(&built).entries.iter().any(|entry| entry.job == job(2) && entry.startable));
    assert!(next.contains(&JudgeEffect::Claim { hold: elsewhere }));
}

#[test]
fn a_confirmed_win_becomes_champion() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);

    rig.stage_ends(StageResult::Win).stage_ends(StageResult::Win);

    assert_eq!(rig.outcome(1), Some(&JobOutcome::Win { adopted: true }));
    assert_eq!(rig.judge.champion(run(1)), Some("commit of job 1"));
}

#[test]
fn a_win_against_a_champion_that_has_moved_is_not_adopted() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1).submit(2);
    rig.stage_ends(StageResult::Win).stage_ends(StageResult::Win);

    rig.stage_ends(StageResult::Win).stage_ends(StageResult::Win);

    assert_eq!(rig.outcome(2), Some(&JobOutcome::Win { adopted: false }));
    assert_eq!(rig.judge.champion(run(1)), Some("commit of job 1"));
}

#[test]
fn every_result_that_is_no_win_ends_the_job_with_it() {
    let failed = JobOutcome::ChangeFailed { step: ChangeStep::Check, why: "exit 1".to_owned() };
    for (result, outcome) in [
        (StageResult::NoGain { slower: true }, JobOutcome::NoGain { slower: true }),
        (StageResult::Undecided, JobOutcome::Undecided),
        (StageResult::ChangeFailed { step: ChangeStep::Check, why: "exit 1".to_owned() }, failed),
    ] {
        let mut rig = Scenario::one_shared_device();
        rig.submit(1);

        rig.stage_ends(result);

        assert_eq!(rig.outcome(1), Some(&outcome));
        assert_eq!(rig.holder(), None);
    }
}

#[test]
fn five_infrastructure_failures_end_a_job_without_a_verdict() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);

    for _ in 1..5 {
        rig.stage_ends(StageResult::Infrastructure(died()));
        assert_eq!(rig.outcome(1), None);
        rig.advance(limits::RETRY_AFTER);
    }
    rig.stage_ends(StageResult::Infrastructure(died()));

    assert_eq!(rig.outcome(1), Some(&JobOutcome::NoVerdict { why: died().to_string() }));
    assert_eq!(rig.stages().len(), 5);
}

#[test]
fn a_change_that_is_killed_more_often_than_chance_allows_has_failed_itself() {
    let killed = |killed: u32| InfrastructureFailure::ChangeKilled { killed, of: killed };
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);
    rig.submit(2);

    // 6 of 6 may be chance (1 in 32), and 12 of 12 is not (1 in 2,048).
    rig.stage_ends(StageResult::Infrastructure(killed(6)));
    assert_eq!(rig.outcome(1), None);
    rig.stage_ends(StageResult::Infrastructure(died()));
    rig.advance(limits::RETRY_AFTER);
    rig.stage_ends(StageResult::Infrastructure(killed(6)));

    let why = killed(6).to_string();
    assert_eq!(rig.outcome(1), Some(&JobOutcome::ChangeFailed { step: ChangeStep::Measure, why: why.clone() }));
    assert_eq!(rig.outcome(2), None, "each job counts its own");
    assert_eq!(
        why,
        "the change's measured run was ended by SIGKILL in 6 of 6 blocks, the champion's in none; neither the rig nor \
         the kernel for lack of memory did it"
    );
}

#[test]
fn a_failed_attempt_rests_and_lanes_wait_meanwhile() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);
    let waits = rig.ask(1).unwrap();

    rig.stage_ends(StageResult::Infrastructure(died()));
    let during = (rig.holder(), rig.wait(waits).is_some());
    rig.advance(limits::RETRY_AFTER);

    assert_eq!(during, (None, true));
    assert_eq!(rig.stages(), [job(1), job(1)]);
}

#[test]
fn a_rest_that_is_over_before_the_failure_is_durable_holds_nothing_back() {
    let mut queue = running();
    accepted(&mut queue, 1);
    started(&mut queue, 1, 1);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Infrastructure(died()) });

    let durable = queue.handle(T + limits::RETRY_AFTER, JudgeInput::Recorded(Ticket::Conclude(job(1))));

    assert!(told(&durable).entries[0].startable);
    assert_eq!(queue.next_deadline(), None);
}

#[test]
fn where_the_only_device_is_too_noisy_the_job_ends_at_once() {
    let noisy = InfrastructureFailure::TooNoisy {
        member: DEVICE,
        noise_percent: "9.0".to_owned(),
        limit_percent: "3.0".to_owned(),
    };
    let mut rig = Scenario::one_shared_device();
    rig.submit(1);

    rig.stage_ends(StageResult::Infrastructure(noisy.clone()));

    assert_eq!(rig.outcome(1), Some(&JobOutcome::NoVerdict { why: noisy.to_string() }));
}

#[test]
fn the_same_change_asked_again_gives_the_verdict_there_is() {
    let mut rig = Scenario::one_shared_device();
    rig.submit_as(1, "the same").unwrap();
    rig.stage_ends(StageResult::Undecided);

    let again = rig.submit_as(2, "the same");

    assert_eq!(again, Ok(job(1)));
    assert_eq!(rig.stages(), [job(1)]);
}

#[test]
fn a_change_without_a_verdict_may_be_submitted_again() {
    let mut rig = Scenario::one_shared_device();
    rig.submit_as(1, "the same").unwrap();
    for _ in 0..5 {
        rig.stage_ends(StageResult::Infrastructure(died())).advance(limits::RETRY_AFTER);
    }

    let again = rig.submit_as(2, "the same");

    assert_eq!(again, Ok(job(2)));
    assert_eq!(rig.accepted(2), Some(0));
}

#[test]
fn going_back_to_the_queue_is_no_failure() {
    let mut queue = running();
    accepted(&mut queue, 1);
    started(&mut queue, 1, 1);

    let back =
        queue.handle(T, JudgeInput::HoldEnded { hold: hold(1), how: HoldEnd::NotProved { why: "pid 7".to_owned() } });
    queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));

    let facts = vec![JudgeFact::SentBack];
    assert!(back.contains(&JudgeEffect::Record { ticket: Ticket::Conclude(job(1)), job: job(1), facts }));
    assert_eq!((queue.live(1)[0].failures, queue.live(1)[0].attempt), (0, 1));
}

#[test]
fn a_late_result_of_a_stage_that_was_sent_back_is_no_verdict() {
    let mut queue = running();
    accepted(&mut queue, 1);
    started(&mut queue, 1, 1);
    queue.handle(T, JudgeInput::HoldEnded { hold: hold(1), how: HoldEnd::Stopped(StopCause::RigEnding) });

    let late = queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });

    assert_eq!(late, []);
}

#[test]
fn a_paused_runs_stage_under_way_finishes_and_its_jobs_keep_their_place() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1).submit(2);

    rig.change_run(RunState::Paused).submit(3).stage_ends(StageResult::Undecided);
    let paused = rig.stages().to_vec();
    rig.change_run(RunState::Running);

    assert_eq!(rig.outcome(1), Some(&JobOutcome::Undecided));
    assert_eq!(paused, [job(1)]);
    assert_eq!(rig.stages(), [job(1), job(2)]);
    assert_eq!(rig.accepted(3), Some(2));
}

#[test]
fn each_change_of_a_run_counts_only_once_it_is_durable_itself() {
    let mut queue = running();
    queue.change_run(run(1), RunState::Paused).unwrap();
    queue.change_run(run(1), RunState::Running).unwrap();

    let first = queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));
    let between = queue.run_state(run(1));
    let known = queue.handle(T, JudgeInput::WorkTaken { version: told(&first).version });
    queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));

    assert_eq!(between, Some(RunState::Paused));
    assert_eq!(known, [JudgeEffect::AnswerRun { run: run(1), state: Some(RunState::Paused) }]);
    assert_eq!(queue.run_state(run(1)), Some(RunState::Running));
}

#[test]
fn a_run_whose_start_cannot_be_recorded_does_not_exist() {
    let mut queue = JudgeQueue::new(1);
    queue.start_run(run(1), "champion".to_owned()).unwrap();

    let refused = queue.handle(T, JudgeInput::NotRecorded(Ticket::Run(run(1))));

    assert_eq!(refused, [JudgeEffect::AnswerRun { run: run(1), state: None }]);
    assert_eq!(queue.takes_work(run(1)), Err(Refusal::UnknownRun { run: run(1) }));
    assert!(queue.start_run(run(2), "champion".to_owned()).is_ok());
}

#[test]
fn one_run_is_worked_on_at_a_time() {
    let mut queue = running();

    let second = queue.start_run(run(2), "champion".to_owned());

    assert_eq!(second, Err(Refusal::AnotherRun { under_way: run(1) }));
}

#[test]
fn the_pool_is_told_which_runs_may_not_wait_and_why() {
    let mut queue = running();
    queue.change_run(run(1), RunState::Paused).unwrap();

    let paused = queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));

    assert_eq!(told(&paused).stopped, [(run(1), GaveUp::RunPaused)]);
    assert!(paused.contains(&JudgeEffect::StopWaiters { run: run(1), why: GaveUp::RunPaused }));
}

#[test]
fn a_run_that_ends_ends_its_waiting_jobs_and_lets_the_stage_under_way_finish() {
    let mut rig = Scenario::one_shared_device();
    rig.submit(1).submit(2);

    rig.change_run(RunState::Ended);
    let waiting = rig.outcome(2).cloned();
    rig.stage_ends(StageResult::NoGain { slower: false });

    assert_eq!(waiting, Some(JobOutcome::NoVerdict { why: "the run has ended".to_owned() }));
    assert_eq!(rig.outcome(1), Some(&JobOutcome::NoGain { slower: false }));
}

#[test]
fn no_job_comes_back_to_the_line_of_a_run_that_has_ended() {
    // What was under way when the run ended: its acceptance, a win, a failure, a hold lost, a hold not started.
    for on_the_way in 0..5 {
        let mut queue = running();
        queue.submit(submit(1, 1)).unwrap();
        let late = match on_the_way {
            0 => JudgeInput::Recorded(Ticket::Submit(job(1))),
            _ => {
                queue.handle(T, JudgeInput::Recorded(Ticket::Submit(job(1))));
                started(&mut queue, 1, 1);
                match on_the_way {
                    1 => {
                        queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });
                        JudgeInput::Recorded(Ticket::Conclude(job(1)))
                    }
                    2 => {
                        let result = StageResult::Infrastructure(died());
                        queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result });
                        JudgeInput::Recorded(Ticket::Conclude(job(1)))
                    }
                    3 => {
                        let how = HoldEnd::Stopped(StopCause::RigEnding);
                        queue.handle(T, JudgeInput::HoldEnded { hold: hold(1), how });
                        JudgeInput::Recorded(Ticket::Conclude(job(1)))
                    }
                    _ => JudgeInput::HoldEnded { hold: hold(1), how: HoldEnd::NotStarted },
                }
            }
        };
        queue.change_run(run(1), RunState::Ended).unwrap();
        queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));

        let ending = queue.handle(T, late);
        let over = queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));

        assert!(ending.iter().any(|effect| matches!(effect, JudgeEffect::Record { .. })), "{on_the_way}: {ending:?}");
        assert!(matches!(over[0], JudgeEffect::JobEnded { .. }), "{on_the_way}: {over:?}");
        assert_eq!(queue.live_count(), 0, "{on_the_way}");
    }
}

#[test]
fn a_long_queue_is_told_in_part_and_counted_whole() {
    let mut queue = running();
    for n in 1..=60 {
        accepted(&mut queue, n);
    }

    let work = told(
        &queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1)))).into_iter().chain(queue.open()).collect::<Vec<_>>(),
    );

    assert_eq!(work.entries.len(), limits::WORK_LISTED_MAX);
    assert_eq!(work.entries.len() + work.unlisted as usize, 60);
}

proptest! {
    #[test]
    fn no_order_of_inputs_panics_ends_a_job_twice_or_leaves_a_deadline_due(
        inputs in proptest::collection::vec((input(), 0_u64..4_000), 1..200),
    ) {
        let mut queue = running();
        let mut now = T;
        let mut ended: BTreeMap<JobId, JobOutcome> = BTreeMap::new();
        let mut version = 0;
        let mut arrivals = 0;
        for (input, later) in inputs {
            now = now + Span::millis(later);
            let mut effects = queue.advance(now);
            prop_assert!(queue.next_deadline().is_none_or(|(due, _)| due > now));
            match input {
                Input::Tell(input) => effects.extend(queue.handle(now, input)),
                Input::Submit(n) if !ended.contains_key(&job(n)) => {
                    arrivals += 1;
                    if let Ok(Submission::New(asked)) = queue.submit(submit(n, arrivals)) {
                        effects.extend(asked);
                    }
                }
                Input::Submit(_) => {}
                Input::Change(state) => effects.extend(queue.change_run(run(1), state).unwrap_or_default()),
            }
            prop_assert!(queue.next_deadline().is_none_or(|(due, _)| due > now));
            for effect in effects {
                match effect {
                    JudgeEffect::JobEnded { job, outcome } => prop_assert_eq!(ended.insert(job, outcome), None),
                    JudgeEffect::Tell(work) => {
                        prop_assert!(work.version > version);
                        version = work.version;
                    }
                    _ => {}
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Input {
    Tell(JudgeInput),
    Submit(u8),
    Change(RunState),
}

fn input() -> impl Strategy<Value = Input> {
    let n = || 1_u8..5;
    let hold = || (1_u64..5).prop_map(hold);
    let result =
        prop_oneof![Just(StageResult::Win), Just(StageResult::Undecided), Just(StageResult::Infrastructure(died())),];
    let how = prop_oneof![Just(HoldEnd::NotStarted), Just(HoldEnd::Stopped(StopCause::StageOver))];
    let state = prop_oneof![8 => Just(RunState::Paused), 8 => Just(RunState::Running), 1 => Just(RunState::Ended)];
    prop_oneof![
        1 => n().prop_map(Input::Submit),
        1 => state.prop_map(Input::Change),
        1 => n().prop_map(|n| Input::Tell(JudgeInput::Recorded(Ticket::Submit(job(n))))),
        1 => n().prop_map(|n| Input::Tell(JudgeInput::NotRecorded(Ticket::Submit(job(n))))),
        2 => n().prop_map(|n| Input::Tell(JudgeInput::Recorded(Ticket::Conclude(job(n))))),
        2 => (n(), hold()).prop_map(|(n, hold)| Input::Tell(JudgeInput::Recorded(Ticket::Start(job(n), hold)))),
        1 => Just(Input::Tell(JudgeInput::Recorded(Ticket::Run(run(1))))),
        1 => (0_u64..20).prop_map(|version| Input::Tell(JudgeInput::WorkTaken { version })),
        3 => (n(), hold(), any::<bool>()).prop_map(|(n, hold, first)| {
            let stage = if first { StageKind::Screening } else { StageKind::Confirmation };
            Input::Tell(JudgeInput::Granted { hold, serves: vec![(job(n), stage)] })
        }),
        1 => hold().prop_map(|hold| Input::Tell(JudgeInput::BuildsDone { hold })),
        2 => (hold(), result).prop_map(|(hold, result)| Input::Tell(JudgeInput::StageEnded { hold, result })),
        1 => (hold(), how).prop_map(|(hold, how)| Input::Tell(JudgeInput::HoldEnded { hold, how })),
    ]
}

fn running() -> JudgeQueue {
    let mut queue = JudgeQueue::new(1);
    queue.start_run(run(1), "champion".to_owned()).expect("no other run is under way");
    let told = queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));
    let version = self::told(&told).version;
    queue.handle(T, JudgeInput::WorkTaken { version });
    queue
}

fn submit(n: u8, arrival: u64) -> Submit {
    Submit {
        job: job(n),
        run: run(1),
        arrival: Arrival(arrival),
        champion: "champion".to_owned(),
        candidate: format!("commit of job {n}"),
        same: format!("change {n}"),
        key: None,
        stage_worst: Span::minutes(1),
    }
}

fn accepted(queue: &mut JudgeQueue, n: u8) {
    queue.submit(submit(n, u64::from(n))).expect("it may be submitted");
    queue.handle(T, JudgeInput::Recorded(Ticket::Submit(job(n))));
}

fn grant(queue: &mut JudgeQueue, n: u8, number: u64) -> Vec<JudgeEffect> {
    let serves = vec![(job(n), StageKind::Screening)];
    queue.handle(T, JudgeInput::Granted { hold: hold(number), serves })
}

fn started(queue: &mut JudgeQueue, n: u8, number: u64) {
    grant(queue, n, number);
    queue.handle(T, JudgeInput::Recorded(Ticket::Start(job(n), hold(number))));
}

fn told(effects: &[JudgeEffect]) -> JudgeWork {
    effects
        .iter()
        .find_map(|effect| match effect {
            JudgeEffect::Tell(work) => Some(work.clone()),
            _ => None,
        })
        .expect("the pool is told")
}

fn died() -> InfrastructureFailure {
    InfrastructureFailure::Step { step: "build".to_owned(), why: "the disk is full".to_owned() }
}
