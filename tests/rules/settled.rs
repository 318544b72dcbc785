//! Verdicts that are given again: what makes two askings the same, which outcomes count, and how many are kept (rule D5).

use std::sync::Arc;

use thermite_core::contract::Contract;
use thermite_core::fold::RigHistory;
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, JobId, MemberId, RunId};
use thermite_core::job::{ChangeStep, JobOutcome, StageKind};
use thermite_core::judge_queue::{
    Builds, JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, OtherModel, StageResult, Submission, Submit, Ticket,
};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_core::settled::{self, Settled};
use thermite_core::time::{Moment, Span};

use crate::scenario::{DEVICE, hold, job, job_spec, run, run_spec};

const T: Moment = Moment::from_millis(1_000_000);

#[test]
fn content_champion_kit_contract_and_kind_of_card_make_an_asking_and_nothing_else_does() {
    let pinned = job_spec(job(1), run(1), 1, "content").pinned;
    let key = settled::key(&pinned, "a card");

    let mut same = job_spec(job(2), run(2), 9, "content").pinned;
    same.change = "by another name".to_owned();
    same.candidate = "of another commit".to_owned();
    assert_eq!(settled::key(&same, "a card"), key);
    type Change = fn(&mut thermite_core::job::PinnedChange);
    let others: [Change; 4] = [
        |pinned| pinned.candidate_tree.push('x'),
        |pinned| pinned.champion.push('x'),
        |pinned| pinned.kit_hash.push('x'),
        |pinned| pinned.kit.contract.blocks_most += 1,
    ];
    for change in others {
        let mut other = pinned.clone();
        change(&mut other);
        assert_ne!(settled::key(&other, "a card"), key);
    }
    assert_ne!(settled::key(&pinned, "another card"), key);
    // What stands in one part cannot stand in its neighbour.
    let (mut left, mut right) = (pinned.clone(), pinned);
    (left.candidate_tree, left.champion) = ("ab".to_owned(), "c".to_owned());
    (right.candidate_tree, right.champion) = ("a".to_owned(), "bc".to_owned());
    assert_ne!(settled::key(&left, "a card"), settled::key(&right, "a card"));
}

/// The value is worked out by hand from the rule under which verdicts were settled while a contract always had a limit on
/// development runs: SHA-256 over each part behind its length, the contract with `"dev_run_max":300000`.
#[test]
fn verdicts_of_before_a_contract_could_leave_out_the_limit_on_development_runs_are_given_again() {
    let mut pinned = job_spec(job(1), run(1), 1, "content").pinned;
    pinned.kit.contract = Contract { plan_effect: 0.01, gate: 0.005, ..Contract::default() };

    assert_eq!(pinned.kit.contract.dev_run_max, None);
    assert_eq!(settled::key(&pinned, "a card"), "6b8b2fe4dd060608bbc3a76aa8f43fc88b4b4b9d091a7103debbb96a4951fd9f");
}

#[test]
fn the_first_verdict_of_a_key_stays_and_the_oldest_key_goes_first() {
    let mut list = Settled::default();
    for n in 0..limits::SETTLED_VERDICTS_MAX {
        list.insert(n.to_string(), n);
    }
    list.insert("0".to_owned(), 7);

    assert_eq!((list.get("0"), list.len()), (Some(&0), limits::SETTLED_VERDICTS_MAX));
    list.insert("one more".to_owned(), 7);
    assert_eq!((list.get("0"), list.get("1"), list.len()), (None, Some(&1), limits::SETTLED_VERDICTS_MAX));
}

#[test]
fn another_runs_job_ends_at_once_with_the_verdict_there_is_and_says_whose() {
    for result in [StageResult::NoGain { slower: true }, StageResult::Undecided] {
        let mut queue = one_run();
        let outcome = measured(&mut queue, 1, result);

        accept(&mut queue, 2, 2, "champion");
        let ended = recorded(&mut queue, Ticket::Submit(job(2)));
        let over = recorded(&mut queue, Ticket::Conclude(job(2)));

        let facts = vec![JudgeFact::Reused { from: job(1), outcome: outcome.clone() }];
        assert!(ended.contains(&JudgeEffect::Record { ticket: Ticket::Conclude(job(2)), job: job(2), facts }));
        assert!(over.contains(&JudgeEffect::JobEnded { job: job(2), outcome }));
        assert_eq!(queue.live_count(), 0);
        // Asked a second time in that run it is the same job.
        let again = queue.submit(submit(3, 2, "champion"));
        assert_eq!(again, Ok(Submission::Same { job: job(2), answered: true }));
    }
}

#[test]
fn the_asker_is_answered_once_the_pool_knows_also_where_the_job_is_over_by_then() {
    let mut queue = one_run();
    measured(&mut queue, 1, StageResult::Undecided);
    accept(&mut queue, 2, 2, "champion");
    let version = told(&recorded(&mut queue, Ticket::Submit(job(2))));
    recorded(&mut queue, Ticket::Conclude(job(2)));

    let answered = queue.handle(T, JudgeInput::WorkTaken { version });

    assert!(answered.contains(&JudgeEffect::AnswerSubmitted { job: job(2), ahead: 0 }), "{answered:?}");
}

#[test]
fn an_old_win_moves_a_champion_only_while_it_still_is_the_one_that_was_measured_against() {
    let mut queue = one_run();
    measured_win(&mut queue, 1);
    let moved = |effects: &[JudgeEffect]| {
        effects.iter().find_map(|effect| match effect {
            JudgeEffect::Record { facts, .. } if matches!(facts[0], JudgeFact::Reused { .. }) => Some(facts.clone()),
            _ => None,
        })
    };

    accept(&mut queue, 2, 2, "champion");
    let first = moved(&recorded(&mut queue, Ticket::Submit(job(2))));
    // Before the first move is durable, and after it: the champion is, or is about to be, another one.
    queue.submit(Submit { same: "other".to_owned(), ..submit(4, 2, "champion") }).expect("the run takes jobs");
    let in_between = queue.champion(run(2)).map(str::to_owned);
    recorded(&mut queue, Ticket::Conclude(job(2)));

    let win = |adopted| JudgeFact::Reused { from: job(1), outcome: JobOutcome::Win { adopted } };
    let to = "candidate 2".to_owned();
    let first_facts = vec![win(true), JudgeFact::ChampionMoved { from: "champion".to_owned(), to: to.clone() }];
    assert_eq!(first, Some(first_facts));
    assert_eq!((in_between.as_deref(), queue.champion(run(2))), (Some("champion"), Some(to.as_str())));
    queue.change_run(run(2), RunState::Ended).expect("it can be ended");
    recorded(&mut queue, Ticket::Run(run(2)));
    start(&mut queue, 3, "elsewhere");
    accept(&mut queue, 5, 3, "champion");
    assert_eq!(moved(&recorded(&mut queue, Ticket::Submit(job(5)))), Some(vec![win(false)]));
    recorded(&mut queue, Ticket::Conclude(job(5)));
    assert_eq!(queue.champion(run(3)), Some("elsewhere"));
}

/// Two wins on their way to the records at once must not both move the champion.
#[test]
fn a_champion_that_is_about_to_move_has_moved() {
    let mut queue = one_run();
    measured_win(&mut queue, 1);
    let other = Submit { same: "other".to_owned(), ..submit(4, 2, "champion") };
    queue.submit(other).expect("the run takes jobs");
    recorded(&mut queue, Ticket::Submit(job(4)));
    confirm(&mut queue, 4, StageResult::Win);

    // Job 4's win is not durable yet when job 2 is given its own.
    accept(&mut queue, 2, 2, "champion");
    let given = recorded(&mut queue, Ticket::Submit(job(2)));

    let facts = vec![JudgeFact::Reused { from: job(1), outcome: JobOutcome::Win { adopted: false } }];
    assert!(given.contains(&JudgeEffect::Record { ticket: Ticket::Conclude(job(2)), job: job(2), facts }));
    recorded(&mut queue, Ticket::Conclude(job(4)));
    recorded(&mut queue, Ticket::Conclude(job(2)));
    assert_eq!(queue.champion(run(2)), Some("candidate 4"));
}

#[test]
fn a_change_that_failed_and_a_job_without_a_verdict_are_judged_anew_in_another_run() {
    for result in [
        StageResult::ChangeFailed { step: ChangeStep::Build, why: "it does not build".to_owned() },
        StageResult::Infrastructure(thermite_core::refusal::InfrastructureFailure::TooNoisy {
            member: DEVICE,
            noise_percent: "9".to_owned(),
            limit_percent: "3".to_owned(),
        }),
    ] {
        let mut queue = one_run();
        measured(&mut queue, 1, result);

        accept(&mut queue, 2, 2, "champion");
        let effects = recorded(&mut queue, Ticket::Submit(job(2)));

        assert!(matches!(&effects[..], [JudgeEffect::Tell(work)] if work.entries[0].startable), "{effects:?}");
    }
}

#[test]
fn a_screening_that_was_won_and_not_confirmed_is_no_verdict() {
    let mut queue = one_run();
    accept(&mut queue, 1, 1, "champion");
    recorded(&mut queue, Ticket::Submit(job(1)));
    stage(&mut queue, 1, StageKind::Screening, 1);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });
    recorded(&mut queue, Ticket::Conclude(job(1)));
    end_run(&mut queue, 1);
    recorded(&mut queue, Ticket::Conclude(job(1)));
    start(&mut queue, 2, "champion");

    accept(&mut queue, 2, 2, "champion");
    let effects = recorded(&mut queue, Ticket::Submit(job(2)));

    assert!(matches!(&effects[..], [JudgeEffect::Tell(work)] if work.entries[0].startable), "{effects:?}");
}

#[test]
fn a_paused_runs_job_that_waits_for_the_same_is_given_the_verdict_when_it_is_there() {
    let mut queue = one_run();
    accept(&mut queue, 1, 1, "champion");
    recorded(&mut queue, Ticket::Submit(job(1)));
    queue.change_run(run(1), RunState::Paused).expect("it can be paused");
    recorded(&mut queue, Ticket::Run(run(1)));
    start(&mut queue, 2, "champion");

    accept(&mut queue, 2, 2, "champion");
    recorded(&mut queue, Ticket::Submit(job(2)));
    stage(&mut queue, 2, StageKind::Screening, 1);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::NoGain { slower: false } });
    let concluded = recorded(&mut queue, Ticket::Conclude(job(2)));

    let facts = vec![JudgeFact::Reused { from: job(2), outcome: JobOutcome::NoGain { slower: false } }];
    assert!(concluded.contains(&JudgeEffect::Record { ticket: Ticket::Conclude(job(1)), job: job(1), facts }));
}

#[test]
fn verdicts_are_given_again_after_a_restart_and_an_end_that_was_not_durable_is_given_then() {
    let started = |n: u8| LogEntry::RunStarted { run: run(n), spec: Box::new(run_spec("champion")), key: None };
    let submitted = |n: u8, of: u8| {
        let mut spec = job_spec(job(n), run(of), u64::from(n), "content");
        spec.pinned.champion = "champion".to_owned();
        LogEntry::JobSubmitted { spec: Arc::new(spec), key: None }
    };
    let outcome = JobOutcome::Win { adopted: true };
    let history = RigHistory::of([
        started(1),
        submitted(1, 1),
        LogEntry::ScreeningWon { job: job(1), hold: hold(1), record: "5c".to_owned(), key: None },
        LogEntry::JobEnded { job: job(1), outcome: outcome.clone(), record: Some("c0".to_owned()) },
        LogEntry::VerdictSettled { job: job(1), key: "content".to_owned() },
        LogEntry::RunChanged { run: run(1), state: RunState::Ended },
        started(2),
        // The rig died between accepting this one and ending it.
        submitted(2, 2),
    ]);
    let mut forgotten = history.clone();
    forgotten.jobs.remove(&job(1));

    for history in [history, forgotten] {
        let mut queue = JudgeQueue::new(1);
        queue.restore(&history, |spec| spec.pinned.candidate_tree.clone(), |_| Span::minutes(1));
        let opening = queue.open();

        let facts = [
            JudgeFact::Reused { from: job(1), outcome: outcome.clone() },
            JudgeFact::ChampionMoved { from: "champion".to_owned(), to: "content".to_owned() },
        ];
        let given = JudgeEffect::Record { ticket: Ticket::Conclude(job(2)), job: job(2), facts: facts.into() };
        assert!(opening.contains(&given), "{opening:?}");
        let kept = history.settled.get("content").expect("the list outlives the jobs");
        assert_eq!((kept.from, kept.record.as_deref()), (job(1), Some("c0")));
        assert_eq!(kept.screened, Some((DEVICE, "5c".to_owned())));
    }
}

#[test]
fn a_job_that_was_given_a_verdict_names_its_source_and_its_records_in_the_fold() {
    let spec = job_spec(job(2), run(2), 2, "content");
    let history = RigHistory::of([
        LogEntry::JobSubmitted { spec: Arc::new(spec), key: None },
        LogEntry::VerdictReused { job: job(2), from: job(1), screened: Some((DEVICE, "5c".to_owned())) },
        LogEntry::JobEnded { job: job(2), outcome: JobOutcome::Win { adopted: false }, record: Some("c0".to_owned()) },
    ]);

    let known = &history.jobs[&job(2)];
    assert_eq!((known.reused_from, known.screened.clone()), (Some(job(1)), Some((DEVICE, "5c".to_owned()))));
    assert_eq!(known.end.as_ref().and_then(|end| end.1.as_deref()), Some("c0"));
    assert!(history.settled.is_empty(), "what was given only is settled by the job that was measured");
}

#[test]
fn an_ended_job_answers_for_the_same_in_its_run_until_many_others_are_over() {
    let mut queue = one_run();
    let asked = |n: u64| Submit {
        job: JobId(uuid::Uuid::from_u128(u128::from(n))),
        arrival: Arrival(n),
        same: format!("content {n}"),
        ..submit(1, 1, "champion")
    };
    let most = u64::try_from(limits::KEYS_REMEMBERED).unwrap();
    for n in 1..=most + 1 {
        let submit = asked(n);
        let job = submit.job;
        assert!(matches!(queue.submit(submit), Ok(Submission::New(_))), "job {n}");
        recorded(&mut queue, Ticket::Submit(job));
        queue.handle(T, JudgeInput::Granted { hold: hold(n), serves: vec![(job, StageKind::Screening)] });
        recorded(&mut queue, Ticket::Start(job, hold(n)));
        queue.handle(T, JudgeInput::StageEnded { hold: hold(n), result: StageResult::Undecided });
        let version = told(&recorded(&mut queue, Ticket::Conclude(job)));
        queue.handle(T, JudgeInput::WorkTaken { version });
    }

    let second = queue.submit(Submit { job: job(1), ..asked(2) });
    let first = queue.submit(Submit { job: job(2), ..asked(1) });

    assert_eq!(second, Ok(Submission::Same { job: asked(2).job, answered: true }));
    // It is a job of its own again, and is given the verdict there is without measuring.
    assert!(matches!(first, Ok(Submission::New(_))), "{first:?}");
    let given = recorded(&mut queue, Ticket::Submit(job(2)));
    let facts = vec![JudgeFact::Reused { from: asked(1).job, outcome: JobOutcome::Undecided }];
    assert!(given.contains(&JudgeEffect::Record { ticket: Ticket::Conclude(job(2)), job: job(2), facts }), "{given:?}");
}

#[test]
fn after_a_restart_the_job_that_is_under_way_answers_for_an_asking_not_the_one_that_had_no_verdict() {
    let submitted = |n: u8| {
        let mut spec = job_spec(job(n), run(1), u64::from(n), "content");
        spec.pinned.champion = "champion".to_owned();
        LogEntry::JobSubmitted { spec: Arc::new(spec), key: None }
    };
    let history = RigHistory::of([
        LogEntry::RunStarted { run: run(1), spec: Box::new(run_spec("champion")), key: None },
        submitted(1),
        LogEntry::JobEnded {
            job: job(1),
            outcome: JobOutcome::NoVerdict { why: "the rig lost its disk".to_owned() },
            record: None,
        },
        submitted(2),
    ]);
    let mut queue = JudgeQueue::new(1);
    queue.restore(&history, |spec| spec.pinned.candidate_tree.clone(), |_| Span::minutes(1));
    queue.open();

    let again = queue.submit(Submit { same: "content".to_owned(), ..submit(3, 1, "champion") });

    assert_eq!(again, Ok(Submission::Same { job: job(2), answered: true }));
}

/// Rules B5, D5: a new split to cards of another model, after a screening was won.
#[test]
fn what_was_won_on_another_model_is_screened_again_and_settled_as_what_is_measured() {
    let mut queue = one_run();
    accept(&mut queue, 1, 1, "champion");
    recorded(&mut queue, Ticket::Submit(job(1)));
    stage(&mut queue, 1, StageKind::Screening, 1);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });
    recorded(&mut queue, Ticket::Conclude(job(1)));

    let split = queue.handle(T, other_model(&[1], "on b"));
    let again = queue.submit(Submit { same: "on b".to_owned(), ..submit(2, 1, "champion") });
    stage(&mut queue, 1, StageKind::Screening, 2);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(2), result: StageResult::Undecided });
    conclude(&mut queue, 1);

    let work = split.iter().find_map(|effect| match effect {
        JudgeEffect::Tell(work) => Some(work),
        _ => None,
    });
    let entry = &work.expect("the pool is told").entries[0];
    assert_eq!((entry.stage, entry.startable, entry.arrival), (StageKind::Screening, true, Arrival(1)));
    assert_eq!(again, Ok(Submission::Same { job: job(1), answered: false }), "it answers for the model that judges");
    assert_eq!((gives(&mut queue, 3, "content"), gives(&mut queue, 4, "on b")), (false, true));
}

#[test]
fn back_on_the_model_that_screened_it_the_screening_counts_until_it_is_screened_anew() {
    for screened_anew in [false, true] {
        let mut queue = one_run();
        accept(&mut queue, 1, 1, "champion");
        recorded(&mut queue, Ticket::Submit(job(1)));
        stage(&mut queue, 1, StageKind::Screening, 1);
        queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Win });
        recorded(&mut queue, Ticket::Conclude(job(1)));
        queue.handle(T, other_model(&[1], "on b"));
        if screened_anew {
            stage(&mut queue, 1, StageKind::Screening, 2);
            queue.handle(T, JudgeInput::HoldEnded { hold: hold(2), how: HoldEnd::Stopped(StopCause::NewSplit) });
            recorded(&mut queue, Ticket::Conclude(job(1)));
        }

        queue.handle(T, other_model(&[1], "content"));

        let live = queue.live_job(job(1)).expect("it is not over");
        let stage = if screened_anew { StageKind::Screening } else { StageKind::Confirmation };
        assert_eq!((live.stage, live.failures), (stage, 0));
    }
}

/// What ends between the asking for a split and the stop of the hold is about the card that measured it.
#[test]
fn a_stage_that_ends_before_the_split_stops_it_is_settled_as_it_was_measured() {
    let mut queue = one_run();
    accept(&mut queue, 1, 1, "champion");
    recorded(&mut queue, Ticket::Submit(job(1)));
    stage(&mut queue, 1, StageKind::Screening, 1);
    queue.handle(T, other_model(&[1], "on b"));

    queue.handle(T, JudgeInput::StageEnded { hold: hold(1), result: StageResult::Undecided });
    conclude(&mut queue, 1);

    assert_eq!((gives(&mut queue, 3, "on b"), gives(&mut queue, 4, "content")), (false, true));
}

#[test]
fn a_job_that_a_new_split_sends_back_is_given_the_verdict_there_is_on_the_new_model() {
    let mut queue = one_run();
    measured(&mut queue, 1, StageResult::Undecided);
    for (n, same) in [(2, "waits on a"), (3, "held on a")] {
        queue.submit(Submit { same: same.to_owned(), ..submit(n, 2, "champion") }).expect("the run takes jobs");
        recorded(&mut queue, Ticket::Submit(job(n)));
    }
    stage(&mut queue, 3, StageKind::Screening, 3);

    let same = [(job(2), "content".to_owned()), (job(3), "content".to_owned())].into();
    let other_model = Some(OtherModel { cards: [MemberId(0)].into(), same });
    let split = queue.handle(T, JudgeInput::NewSplit { judging: 1, builds: Builds::UnderHold, other_model });
    queue.handle(T, JudgeInput::HoldEnded { hold: hold(3), how: HoldEnd::Stopped(StopCause::NewSplit) });
    let sent_back = recorded(&mut queue, Ticket::Conclude(job(3)));

    let facts = vec![JudgeFact::Reused { from: job(1), outcome: JobOutcome::Undecided }];
    for (effects, n) in [(split, 2), (sent_back, 3)] {
        let given = JudgeEffect::Record { ticket: Ticket::Conclude(job(n)), job: job(n), facts: facts.clone() };
        assert!(effects.contains(&given), "job {n}: {effects:?}");
    }
}

#[test]
fn a_grant_of_a_card_of_the_other_model_is_of_before_the_new_split() {
    let mut queue = one_run();
    accept(&mut queue, 1, 1, "champion");
    recorded(&mut queue, Ticket::Submit(job(1)));
    let serves = vec![(job(1), StageKind::Screening)];
    queue.handle(T, other_model_on(&[1], "on b", MemberId(7)));

    let crossed = queue.handle(T, JudgeInput::Granted { hold: hold(1), serves });

    assert_eq!(crossed, [JudgeEffect::ReleaseUnused { hold: hold(1) }]);
}

#[test]
fn a_rig_that_starts_again_with_another_model_screens_again_and_with_the_same_one_does_not() {
    let submitted = LogEntry::JobSubmitted { spec: Arc::new(job_spec(job(1), run(1), 1, "content")), key: None };
    let started = LogEntry::RunStarted { run: run(1), spec: Box::new(run_spec("champion")), key: None };
    let won = |key: Option<&str>| LogEntry::ScreeningWon {
        job: job(1),
        hold: hold(1),
        record: "5c".to_owned(),
        key: key.map(str::to_owned),
    };
    let begun = |stage| LogEntry::StageStarted { job: job(1), stage, attempt: 1, hold: hold(2) };
    for (won, stage) in [
        (won(Some("content on a")), StageKind::Screening),
        (won(Some("content on b")), StageKind::Confirmation),
        // A log of before says nothing of the model.
        (won(None), StageKind::Confirmation),
    ] {
        let mut history = RigHistory::of([started.clone(), submitted.clone(), won, begun(StageKind::Confirmation)]);
        let mut queue = JudgeQueue::new(1);
        queue.restore(&history, |spec| format!("{} on b", spec.pinned.candidate_tree), |_| Span::minutes(1));
        queue.open();

        let live = queue.live_job(job(1)).expect("it is not over");
        let attempts = u32::from(stage == StageKind::Confirmation);
        assert_eq!((live.stage, live.attempt, live.failures), (stage, attempts, 0));

        history.apply(begun(StageKind::Screening));
        let known = &history.jobs[&job(1)];
        assert_eq!((known.stage, &known.screened, &known.screened_as), (StageKind::Screening, &None, &None));
    }
}

/// The judge's card is of another model: these jobs are the same as `same` there.
fn other_model(jobs: &[u8], same: &str) -> JudgeInput {
    other_model_on(jobs, same, DEVICE)
}

fn other_model_on(jobs: &[u8], same: &str, card: MemberId) -> JudgeInput {
    let same = jobs.iter().map(|n| (job(*n), same.to_owned())).collect();
    let other_model = Some(OtherModel { cards: [card].into(), same });
    JudgeInput::NewSplit { judging: 1, builds: Builds::UnderHold, other_model }
}

/// Whether a job of run 2 that asks for this is given a verdict.
fn gives(queue: &mut JudgeQueue, n: u8, same: &str) -> bool {
    queue.submit(Submit { same: same.to_owned(), ..submit(n, 2, "champion") }).expect("the run takes jobs");
    let effects = recorded(queue, Ticket::Submit(job(n)));
    effects.iter().any(
        |effect| matches!(effect, JudgeEffect::Record { facts, .. } if matches!(facts[0], JudgeFact::Reused { .. })),
    )
}

/// Run 1 is being worked on.
fn one_run() -> JudgeQueue {
    let mut queue = JudgeQueue::new(1);
    queue.open();
    start(&mut queue, 1, "champion");
    queue
}

fn start(queue: &mut JudgeQueue, n: u8, champion: &str) {
    queue.start_run(run(n), champion.to_owned()).expect("no other run is under way");
    recorded(queue, Ticket::Run(run(n)));
}

fn end_run(queue: &mut JudgeQueue, n: u8) {
    queue.change_run(run(n), RunState::Ended).expect("it can be ended");
    recorded(queue, Ticket::Run(run(n)));
}

/// Run 1's job 1 is measured to this end, run 1 ends, and run 2 is being worked on.
fn measured(queue: &mut JudgeQueue, n: u8, result: StageResult) -> JobOutcome {
    accept(queue, n, 1, "champion");
    recorded(queue, Ticket::Submit(job(n)));
    stage(queue, n, StageKind::Screening, u64::from(n));
    queue.handle(T, JudgeInput::StageEnded { hold: hold(u64::from(n)), result });
    conclude(queue, n)
}

fn measured_win(queue: &mut JudgeQueue, n: u8) -> JobOutcome {
    accept(queue, n, 1, "champion");
    recorded(queue, Ticket::Submit(job(n)));
    confirm(queue, n, StageResult::Win);
    conclude(queue, n)
}

fn conclude(queue: &mut JudgeQueue, n: u8) -> JobOutcome {
    let over = recorded(queue, Ticket::Conclude(job(n)));
    end_run(queue, 1);
    start(queue, 2, "champion");
    let outcome = over.into_iter().find_map(|effect| match effect {
        JudgeEffect::JobEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    outcome.expect("the job is over")
}

/// A job wins its screening; its confirmation has this result, which is not durable yet.
fn confirm(queue: &mut JudgeQueue, n: u8, result: StageResult) {
    let (screening, confirmation) = (10 * u64::from(n), 10 * u64::from(n) + 1);
    stage(queue, n, StageKind::Screening, screening);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(screening), result: StageResult::Win });
    recorded(queue, Ticket::Conclude(job(n)));
    stage(queue, n, StageKind::Confirmation, confirmation);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(confirmation), result });
}

fn stage(queue: &mut JudgeQueue, n: u8, stage: StageKind, number: u64) {
    queue.handle(T, JudgeInput::Granted { hold: hold(number), serves: vec![(job(n), stage)] });
    recorded(queue, Ticket::Start(job(n), hold(number)));
}

fn accept(queue: &mut JudgeQueue, n: u8, of: u8, champion: &str) {
    let answer = queue.submit(submit(n, of, champion)).expect("the run takes jobs");
    assert!(matches!(answer, Submission::New(_)), "{answer:?}");
}

fn recorded(queue: &mut JudgeQueue, ticket: Ticket) -> Vec<JudgeEffect> {
    queue.handle(T, JudgeInput::Recorded(ticket))
}

fn told(effects: &[JudgeEffect]) -> u64 {
    let told = effects.iter().find_map(|effect| match effect {
        JudgeEffect::Tell(work) => Some(work.version),
        _ => None,
    });
    told.expect("the pool is told")
}

fn submit(n: u8, of: u8, champion: &str) -> Submit {
    let (job, run): (JobId, RunId) = (job(n), run(of));
    Submit {
        job,
        run,
        arrival: Arrival(u64::from(n)),
        champion: champion.to_owned(),
        candidate: format!("candidate {n}"),
        same: "content".to_owned(),
        key: None,
        stage_worst: Span::minutes(1),
    }
}
