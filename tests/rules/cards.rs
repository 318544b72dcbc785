//! Several cards, machine by machine: a new split in the pool, the bench in the judge queue, a card's fault in the device
//! (rules B7, B9, B10, D5).

use std::collections::BTreeMap;

use thermite_core::device::{Device, DeviceEffect, DeviceInput, DeviceState, MemberEvent};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, HoldId, Holder, MemberId};
use thermite_core::job::StageKind;
use thermite_core::judge_queue::{
    Builds, JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, StageResult, Standing, Submission, Submit, Ticket,
};
use thermite_core::limits;
use thermite_core::pool::{Discipline, JudgeWork, JudgesDevice, Pool, PoolEffect, PoolInput, Wants};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};
use thermite_core::wait::{NoLatest, Wait, WaitEnd, WaitReason};

use crate::scenario::{dev_run, job, lane, run};

const T: Moment = Moment::from_millis(1_000_000);
const JUDGES: MemberId = MemberId(0);
const AGENTS: MemberId = MemberId(1);

#[test]
fn a_grant_that_has_not_started_is_burnt_by_a_new_split_and_waits_again_with_its_latest_moment() {
    let mut pool = split_pool();
    pool.handle(T, ask(1));
    pool.handle(T, PoolInput::Claim { by: Holder::Lane(lane(1)), hold: hold(AGENTS, 1) });

    let set = pool.handle(T, swapped(1));
    let burnt = pool.handle(T, said(AGENTS, MemberEvent::Freed { number: 1, how: HoldEnd::NotStarted }));

    assert_eq!(set, [PoolEffect::Void { hold: hold(AGENTS, 1) }]);
    assert!(burnt.contains(&PoolEffect::Requeued { lane: lane(1), hold: hold(AGENTS, 1) }));
    assert!(burnt.contains(&PoolEffect::SplitSet { version: 1 }));
    let granted = PoolEffect::GrantLane { lane: lane(1), dev_run: dev_run(1), hold: hold(JUDGES, 1), limit: None };
    assert_eq!(burnt.last(), Some(&granted), "the other card is the agents' by then");
}

#[test]
fn work_that_began_while_its_number_was_to_be_burnt_is_stopped() {
    let mut pool = split_pool();
    pool.handle(T, ask(1));
    pool.handle(T, PoolInput::Claim { by: Holder::Lane(lane(1)), hold: hold(AGENTS, 1) });
    pool.handle(T, swapped(1));

    let begun = pool.handle(T, said(AGENTS, MemberEvent::Started { number: 1 }));

    assert_eq!(begun, [PoolEffect::Stop { hold: hold(AGENTS, 1), cause: StopCause::NewSplit }]);
}

#[test]
fn nothing_is_granted_while_a_new_split_is_on_its_way_and_waiters_say_so() {
    let mut pool = split_pool();
    pool.handle(T, ask(1));
    pool.handle(T, swapped(1));

    let asked = pool.handle(T, ask(2));
    let reasons: Vec<WaitReason> = pool.waits().into_iter().map(|(_, _, wait)| wait.reason).collect();

    assert!(!asked.iter().any(|effect| matches!(effect, PoolEffect::GrantLane { .. })));
    assert_eq!(reasons, [WaitReason::NewSplit]);
    assert_eq!(pool.new_split(), Some(T + limits::NEW_SPLIT_MAX));
    assert_eq!(pool.overlooked(), None);
}

#[test]
fn of_two_splits_the_latest_wins_and_is_answered_once_in_force() {
    let mut pool = split_pool();
    pool.handle(T, ask(1));
    pool.handle(T, swapped(1));

    let second = pool.handle(T, set(2, Discipline::JudgeFirst, Discipline::JudgeFirst));
    let stale = pool.handle(T, set(1, Discipline::Idle, Discipline::Idle));
    let over = pool.handle(T, said(AGENTS, MemberEvent::Freed { number: 1, how: HoldEnd::NotStarted }));

    assert!(second.is_empty() && stale.is_empty());
    assert!(over.contains(&PoolEffect::SplitSet { version: 2 }));
    assert!(pool.members().iter().all(|member| member.discipline == Discipline::JudgeFirst));
}

#[test]
fn a_card_is_looked_at_before_it_comes_into_service_and_a_machines_cpus_are_not() {
    let (plain, _) = Device::new(T, JUDGES, 0);
    let mut card = plain.clone().as_card();
    let mut plain = plain;

    let swept = card.handle(T, DeviceInput::Swept);
    let well = card.handle(T, DeviceInput::Looked { fault: None, busy: Some("use 40 %".to_owned()) });
    let cpus = plain.handle(T, DeviceInput::Swept);

    let ready = DeviceEffect::Tell(MemberEvent::Ready { last: 0 });
    assert_eq!(swept, [DeviceEffect::Look]);
    assert_eq!(well, [ready], "at the start of the rig a busy card is in service");
    assert_eq!(cpus, well);
}

#[test]
fn a_free_card_at_fault_is_out_at_once_and_a_held_one_once_its_hold_is_over() {
    let why = "the card fell off its bus".to_owned();
    let fault = DeviceInput::AtFault { why: why.clone() };
    let gone = DeviceEffect::Tell(MemberEvent::Gone { why: why.clone() });
    let mut free = ready_card();
    let mut held = ready_card();
    held.handle(T, DeviceInput::Start { number: 1, by: Holder::Judge, limit: None });
    let meanwhile = held.handle(T, fault.clone());
    held.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::StageOver });

    let at_once = free.handle(T, fault);
    let once_over = held.handle(T, DeviceInput::Emptied { number: 1 });

    let freed = MemberEvent::Freed { number: 1, how: HoldEnd::Stopped(StopCause::StageOver) };
    assert_eq!(at_once, [DeviceEffect::Distrust, gone.clone()]);
    assert_eq!(meanwhile, []);
    assert_eq!(once_over, [DeviceEffect::Distrust, gone, DeviceEffect::Tell(freed)]);
    assert_eq!(free.state(), &DeviceState::Out { why, next_try: T + limits::REQUALIFY_AFTER });
}

#[test]
fn each_fault_in_a_row_rests_twice_as_long_and_a_good_hold_begins_anew() {
    let mut card = ready_card();
    let mut rests = Vec::new();
    for _ in 0..8 {
        card.handle(T, DeviceInput::AtFault { why: "no answer".to_owned() });
        let DeviceState::Out { next_try, .. } = *card.state() else { panic!("it is out") };
        rests.push(next_try.since(T).as_millis() / 1_000);
        card.advance(next_try);
        card.handle(T, DeviceInput::Swept);
        card.handle(T, DeviceInput::Looked { fault: None, busy: None });
    }
    card.handle(T, DeviceInput::Start { number: 1, by: Holder::Judge, limit: None });
    card.handle(T, DeviceInput::Stop { number: 1, cause: StopCause::StageOver });
    card.handle(T, DeviceInput::Emptied { number: 1 });

    assert_eq!(rests, [30, 60, 120, 240, 480, 900, 900, 900]);
    assert_eq!(card.faults(), 0);
}

/// Else faults that jobs provoke never rest longer: several holds fail before the card is taken out.
#[test]
fn a_hold_whose_work_failed_does_not_make_a_card_good_again() {
    let mut card = ready_card();
    let mut number = 0;
    let mut hold = |card: &mut Device, doubted: bool, cause: StopCause| {
        number += 1;
        card.handle(T, DeviceInput::Start { number, by: Holder::Judge, limit: None });
        if doubted {
            card.handle(T, DeviceInput::Doubted { number });
        }
        card.handle(T, DeviceInput::Stop { number, cause });
        card.handle(T, DeviceInput::Emptied { number });
    };
    let mut rests = Vec::new();
    for _ in 0..3 {
        hold(&mut card, true, StopCause::StageOver);
        hold(&mut card, false, StopCause::StartFailed { why: "no such card".to_owned() });
        card.handle(T, DeviceInput::AtFault { why: "three jobs failed on it".to_owned() });
        let DeviceState::Out { next_try, .. } = *card.state() else { panic!("it is out") };
        rests.push(next_try.since(T).as_millis() / 1_000);
        card.advance(next_try);
        card.handle(T, DeviceInput::Swept);
        card.handle(T, DeviceInput::Looked { fault: None, busy: None });
    }
    assert_eq!(rests, [30, 60, 120]);

    hold(&mut card, false, StopCause::StageOver);

    assert_eq!(card.faults(), 0, "a good one does");
}

#[test]
fn the_judge_doubts_a_card_that_an_attempt_failed_on() {
    let mut queue = queue(1, 1);

    let failed = fails_on_card(&mut queue, job(1), 1);

    assert!(failed.contains(&JudgeEffect::CardDoubted { hold: hold(JUDGES, 1) }), "{failed:?}");
}

#[test]
fn a_card_that_comes_back_must_be_quiet() {
    let mut card = ready_card();
    card.handle(T, DeviceInput::AtFault { why: "no answer".to_owned() });
    let back = T + limits::REQUALIFY_AFTER;
    card.advance(back);
    card.handle(back, DeviceInput::Swept);

    card.handle(back, DeviceInput::Looked { fault: None, busy: Some("use 40 %".to_owned()) });

    let DeviceState::Out { why, .. } = card.state() else { panic!("it is out: {:?}", card.state()) };
    assert_eq!(why, "it is not quiet: use 40 %");
}

#[test]
fn a_job_builds_on_the_bench_and_asks_for_a_card_as_the_same_attempt() {
    let mut queue = queue(2, 1);
    let bench = hold(MemberId::BENCH, 1);

    let wants_first = wants(&last_work(&mut queue));
    let granted = grant(&mut queue, bench, 1, StageKind::Screening);
    let built = queue.handle(T, JudgeInput::StageEnded { hold: bench, result: StageResult::Built });
    let wants_then = wants(&work_of(&built));
    let on_card = grant(&mut queue, hold(JUDGES, 1), 1, StageKind::Screening);

    assert_eq!((wants_first, wants_then), (vec![Wants::Bench], vec![Wants::Device]));
    let attempt_of = |facts: &[JudgeFact]| match facts {
        [JudgeFact::BuildStarted { attempt, .. } | JudgeFact::StageStarted { attempt, .. }] => *attempt,
        other => panic!("{other:?}"),
    };
    assert_eq!((attempt_of(&granted), attempt_of(&on_card)), (1, 1));
}

#[test]
fn a_card_is_not_given_to_a_job_that_has_still_to_build() {
    let mut queue = queue(2, 1);

    let crossed =
        queue.handle(T, JudgeInput::Granted { hold: hold(JUDGES, 1), serves: vec![(job(1), StageKind::Screening)] });

    assert_eq!(crossed, [JudgeEffect::ReleaseUnused { hold: hold(JUDGES, 1) }]);
}

#[test]
fn builds_run_ahead_of_the_cards_by_a_bounded_number_of_jobs() {
    let mut queue = queue(1, 5);
    let mut built = 0;
    for number in 1..=5 {
        let bench = hold(MemberId::BENCH, number);
        let work = last_work(&mut queue);
        let Some(entry) = work.entries.iter().find(|entry| entry.startable && entry.wants == Wants::Bench) else {
            break;
        };
        let serves = vec![(entry.job, entry.stage)];
        queue.handle(T, JudgeInput::Granted { hold: bench, serves });
        queue.handle(T, JudgeInput::Recorded(Ticket::Start(entry.job, bench)));
        queue.handle(T, JudgeInput::StageEnded { hold: bench, result: StageResult::Built });
        built += 1;
    }

    assert_eq!(built, 2, "two for the one judge's card");
}

/// Rule A9: it does not start on the bench, free as that is.
#[test]
fn a_job_that_may_not_build_yet_waits_for_a_card_for_those_that_are_built() {
    let mut queue = queue(1, 3);
    for (number, id) in (1..).zip(last_work(&mut queue).entries.iter().take(2).map(|entry| entry.job)) {
        let bench = hold(MemberId::BENCH, number);
        queue.handle(T, JudgeInput::Granted { hold: bench, serves: vec![(id, StageKind::Screening)] });
        queue.handle(T, JudgeInput::Recorded(Ticket::Start(id, bench)));
        queue.handle(T, JudgeInput::StageEnded { hold: bench, result: StageResult::Built });
    }

    let third = queue.live(3).pop().expect("three are under way");

    let Standing::Waiting(waits) = third.standing else { panic!("it waits: {third:?}") };
    assert_eq!((waits.reason.clone(), waits.wants), (Some(WaitReason::BuiltFirst { jobs: 2 }), Wants::Device));
    let wait = Wait::of_job(T, T, &waits, &JudgesDevice::Out { why: "pid 7".to_owned() });
    assert_eq!(wait.end, WaitEnd::Unbounded { cause: NoLatest::NoReadyDevice });
    let stage = Span::minutes(1) + limits::STAGE_TURN_MAX;
    assert_eq!(waits.later_first, stage + stage, "two built ones of later may go before it");
}

#[test]
fn an_attempt_that_fails_on_a_card_builds_anew_and_asks_for_another_card() {
    let mut queue = queue(2, 1);
    let bench = hold(MemberId::BENCH, 1);
    grant(&mut queue, bench, 1, StageKind::Screening);
    queue.handle(T, JudgeInput::StageEnded { hold: bench, result: StageResult::Built });
    grant(&mut queue, hold(JUDGES, 1), 1, StageKind::Screening);
    let why = InfrastructureFailure::Step { step: "a block".to_owned(), why: "no answer".to_owned() };

    queue.handle(T, JudgeInput::StageEnded { hold: hold(JUDGES, 1), result: StageResult::Infrastructure(why) });
    let failed = queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));

    let entry = &work_of(&failed).entries[0];
    assert_eq!((entry.wants, entry.failed_on.iter().copied().collect::<Vec<_>>()), (Wants::Bench, vec![JUDGES]));
}

#[test]
fn noise_of_the_cards_that_judged_ends_no_job_on_those_that_judge_now() {
    let mut queue = queue(2, 1);
    let noisy = InfrastructureFailure::TooNoisy {
        member: JUDGES,
        noise_percent: "9.0".to_owned(),
        limit_percent: "3.0".to_owned(),
    };
    let build_fails = InfrastructureFailure::Step { step: "build".to_owned(), why: "no answer".to_owned() };
    let bench = |number| hold(MemberId::BENCH, number);
    let rested = T + limits::RETRY_AFTER;
    grant(&mut queue, bench(1), 1, StageKind::Screening);
    queue.handle(T, JudgeInput::StageEnded { hold: bench(1), result: StageResult::Built });
    grant(&mut queue, hold(JUDGES, 1), 1, StageKind::Screening);
    queue.handle(T, JudgeInput::StageEnded { hold: hold(JUDGES, 1), result: StageResult::Infrastructure(noisy) });
    queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));
    queue.advance(rested);

    let split = queue.handle(rested, JudgeInput::NewSplit { judging: 1, builds: Builds::OnBench, other_model: None });
    grant(&mut queue, bench(2), 1, StageKind::Screening);
    let failed = queue
        .handle(rested, JudgeInput::StageEnded { hold: bench(2), result: StageResult::Infrastructure(build_fails) });

    assert!(work_of(&split).entries[0].failed_on.is_empty(), "{split:?}");
    let recorded = failed.iter().find_map(|effect| match effect {
        JudgeEffect::Record { facts, .. } => Some(facts.as_slice()),
        _ => None,
    });
    assert!(matches!(recorded, Some([JudgeFact::AttemptFailed { .. }])), "{failed:?}");
}

/// Rule D5: the default split of two cards has one that judges.
#[test]
fn different_jobs_that_fail_on_the_one_judges_card_take_it_out_and_on_cpus_they_do_not() {
    for on_cards in [true, false] {
        let mut queue = queue(1, 4).on_cards(on_cards);
        let mut faults = Vec::new();
        for number in 1..=limits::CARD_FAULT_JOBS as u64 {
            let work = last_work(&mut queue);
            let id = work.entries.iter().find(|entry| entry.startable).expect("others rest").job;
            faults.extend(fails_on_card(&mut queue, id, number));
            queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(id)));
        }

        let taken_out: Vec<MemberId> = faults
            .iter()
            .filter_map(|effect| match effect {
                JudgeEffect::CardFault { member, .. } => Some(*member),
                _ => None,
            })
            .collect();
        assert_eq!(taken_out, if on_cards { vec![JUDGES] } else { vec![] });
    }
}

#[test]
fn a_free_bench_is_not_said_to_start_anything_while_nothing_can_be_granted() {
    let mut pool = Pool::new([(MemberId::BENCH, Discipline::Builds), (JUDGES, Discipline::JudgeOnly)]);
    for member in [MemberId::BENCH, JUDGES] {
        pool.handle(T, said(member, MemberEvent::Ready { last: 0 }));
    }
    let stands = |pool: &Pool| (pool.bench(), pool.judges_device());

    let free = stands(&pool);
    pool.handle(T, PoolInput::Room(false));
    let no_room = stands(&pool);
    pool.handle(T, PoolInput::Recording(false));
    let no_records = stands(&pool);

    assert_eq!(free.0, Some(JudgesDevice::Free { member: MemberId::BENCH }));
    assert_eq!(no_room, (Some(JudgesDevice::NoRoom), JudgesDevice::NoRoom));
    assert_eq!(no_records, (Some(JudgesDevice::NoRecords), JudgesDevice::NoRecords));
}

#[test]
fn what_is_told_of_a_run_that_ends_with_thousands_waiting_stays_short() {
    let mut queue = queue(1, 3_000);
    queue.change_run(run(1), RunState::Ended).expect("the run goes on");

    let ended = queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));
    let next = queue.handle(T, JudgeInput::Recorded(Ticket::Conclude(job(1))));

    for told in [work_of(&ended), work_of(&next)] {
        assert!(told.entries.len() <= 2 * limits::WORK_LISTED_MAX, "{} entries", told.entries.len());
        assert!(told.unlisted > 2_000);
    }
    assert_eq!(queue.live_count(), 2_999);
}

/// A pool of a judge's and an agents' card, both free.
fn split_pool() -> Pool {
    let mut pool = Pool::new([(JUDGES, Discipline::JudgeOnly), (AGENTS, Discipline::LanesOnly)]);
    pool.handle(T, PoolInput::JudgeWork(JudgeWork { version: 1, ..JudgeWork::default() }));
    for member in [JUDGES, AGENTS] {
        pool.handle(T, said(member, MemberEvent::Ready { last: 0 }));
    }
    pool
}

fn set(version: u64, judges: Discipline, agents: Discipline) -> PoolInput {
    PoolInput::SetSplit { version, disciplines: BTreeMap::from([(JUDGES, judges), (AGENTS, agents)]) }
}

fn swapped(version: u64) -> PoolInput {
    set(version, Discipline::LanesOnly, Discipline::JudgeOnly)
}

fn said(member: MemberId, event: MemberEvent) -> PoolInput {
    PoolInput::Member { member, event }
}

fn ask(of: u8) -> PoolInput {
    PoolInput::Ask {
        lane: lane(of),
        dev_run: dev_run(of),
        run: run(1),
        arrival: Arrival(of.into()),
        acceptable: vec![AGENTS],
        limit: None,
        since: T,
        latest: T + limits::DEV_RUN_WAIT_MAX,
    }
}

fn hold(member: MemberId, number: u64) -> HoldId {
    HoldId { member, number }
}

fn ready_card() -> Device {
    let mut card = Device::new(T, JUDGES, 0).0.as_card();
    card.handle(T, DeviceInput::Swept);
    card.handle(T, DeviceInput::Looked { fault: None, busy: None });
    card
}

/// The job builds on the bench and fails on the judge's card, both under this number; it goes on to rest.
fn fails_on_card(queue: &mut JudgeQueue, id: thermite_core::ids::JobId, number: u64) -> Vec<JudgeEffect> {
    let why = InfrastructureFailure::Step { step: "a block".to_owned(), why: "no answer".to_owned() };
    let mut effects = Vec::new();
    for (hold, result) in
        [(hold(MemberId::BENCH, number), StageResult::Built), (hold(JUDGES, number), StageResult::Infrastructure(why))]
    {
        queue.handle(T, JudgeInput::Granted { hold, serves: vec![(id, StageKind::Screening)] });
        queue.handle(T, JudgeInput::Recorded(Ticket::Start(id, hold)));
        effects = queue.handle(T, JudgeInput::StageEnded { hold, result });
    }
    effects
}

/// A queue over so many judging cards, with a bench and so many jobs of one run.
fn queue(cards: usize, jobs: u64) -> JudgeQueue {
    let mut queue = JudgeQueue::new(cards).building(Builds::OnBench).on_cards(true);
    queue.start_run(run(1), "champion".to_owned()).expect("it is the first");
    queue.handle(T, JudgeInput::Recorded(Ticket::Run(run(1))));
    for at in 1..=jobs {
        let id = thermite_core::ids::JobId(uuid::Uuid::from_u128(job(1).0.as_u128() - 1 + u128::from(at)));
        let submit = Submit {
            job: id,
            run: run(1),
            arrival: Arrival(at),
            champion: "champion".to_owned(),
            candidate: at.to_string(),
            same: at.to_string(),
            key: None,
            stage_worst: Span::minutes(1),
        };
        assert!(matches!(queue.submit(submit), Ok(Submission::New(_))));
        queue.handle(T, JudgeInput::Recorded(Ticket::Submit(id)));
    }
    queue
}

/// Grants a hold for a stage, makes its start durable, and gives the facts that were recorded.
fn grant(queue: &mut JudgeQueue, hold: HoldId, of: u8, stage: StageKind) -> Vec<JudgeFact> {
    let effects = queue.handle(T, JudgeInput::Granted { hold, serves: vec![(job(of), stage)] });
    queue.handle(T, JudgeInput::Recorded(Ticket::Start(job(of), hold)));
    let recorded = effects.into_iter().find_map(|effect| match effect {
        JudgeEffect::Record { facts, .. } => Some(facts),
        _ => None,
    });
    recorded.expect("a grant that is taken is recorded")
}

fn work_of(effects: &[JudgeEffect]) -> JudgeWork {
    let told = effects.iter().rev().find_map(|effect| match effect {
        JudgeEffect::Tell(work) => Some(work.clone()),
        _ => None,
    });
    told.expect("the work is told")
}

/// The work as it is told next.
fn last_work(queue: &mut JudgeQueue) -> JudgeWork {
    work_of(&queue.open())
}

fn wants(work: &JudgeWork) -> Vec<Wants> {
    work.entries.iter().map(|entry| entry.wants).collect()
}
