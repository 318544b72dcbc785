//! A rig's runners: the list as it is asked for, their numbers, what a new list changes, who fits; and what it does to the
//! pool (rules E1, E2, E8 to E10, E13).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use thermite_core::contract::Target;
use thermite_core::device::MemberEvent;
use thermite_core::fold::RigHistory;
use thermite_core::hold::{HoldEnd, RunnerLoss, StopCause};
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, LaneId, MemberId, RunId};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::pool::{Discipline, JudgeWork, Pool, PoolEffect, PoolInput};
use thermite_core::refusal::Refusal;
use thermite_core::runner::WhyNot;
use thermite_core::runners::{self, LocalJudge, ProcessAsk, RunnerChange, RunnerDevice, RunnerPool, RunnerSet};
use thermite_core::time::{Moment, Span};
use thermite_core::wire::RunnerName;

const T: Moment = Moment::from_millis(1_000);
const CORE: MemberId = MemberId(0);
const FIRST: MemberId = MemberId(MemberId::RUNNERS_FROM);
const SECOND: MemberId = MemberId(MemberId::RUNNERS_FROM + 1);

#[test]
fn every_pool_has_one_way_to_be_written() {
    let lanes = (1..=16).map(|number| format!("lane-{number}"));
    for text in ["judge".to_owned(), "shared".to_owned()].into_iter().chain(lanes) {
        assert_eq!(text.parse::<RunnerPool>().map(|pool| pool.to_string()), Ok(text));
    }
    for none in ["", "Judge", "lane-0", "lane-17", "lane-01", "lane-+1", "lane-", "lane-256", "lane 1", "judge "] {
        assert!(none.parse::<RunnerPool>().is_err(), "{none:?}");
    }
}

#[test]
fn a_list_that_cannot_be_is_refused_with_the_reason() {
    let many = vec!["judge"; limits::RUNNERS_OF_PROCESS_MAX + 1];
    let processes: Vec<ProcessAsk> =
        (0..=limits::RUNNER_PROCESSES_MAX).map(|at| ask(&format!("box-{at}"), &["judge"])).collect();
    let full = vec!["judge"; limits::RUNNERS_OF_PROCESS_MAX];
    let too_many: Vec<ProcessAsk> = (0..17).map(|at| ask(&format!("box-{at}"), &full)).collect();
    for (list, why) in [
        (vec![ask("b", &["judge"])], "\"b\" is no runner's name: 2 to 40 of a-z, 0-9 and -"),
        (vec![ask("Box", &["judge"])], "\"Box\" is no runner's name: 2 to 40 of a-z, 0-9 and -"),
        (
            vec![ask("box", &["judge"]), ask("box", &["shared"])],
            "box is named twice; give all its pools in one entry, in order",
        ),
        (vec![ask("box", &[])], "box has no pool; give one for each of its runners, or leave it out"),
        (
            vec![ask("box", &["judge", "agents"])],
            "box: there is no pool \"agents\": it is `judge`, `shared`, or `lane-1` to `lane-16`",
        ),
        (vec![ask("box", &many)], "box has 17 pools; at most 16"),
        (processes, "65 runner processes are too many; at most 64"),
        (too_many, "272 runners are too many; at most 256"),
    ] {
        let why = why.to_owned();
        assert_eq!(runners::parse(&list), Err(Refusal::BadRunners { why }));
    }
}

#[test]
fn no_number_is_ever_another_runners_and_none_is_a_devices() {
    let mut history = RigHistory::default();
    let first = set(&mut history, &[("box-1", &["judge"]), ("box-2", &["shared", "lane-1"])]);
    set(&mut history, &[]);
    let again = set(&mut history, &[("box-3", &["judge"]), ("box-2", &["lane-2", "judge", "shared"])]);

    let numbers =
        |set: &[RunnerSet]| set.iter().map(|known| (known.runner.to_string(), known.member.0)).collect::<Vec<_>>();
    let of = |name: &str, at: u16| (name.to_owned(), MemberId::RUNNERS_FROM + at);
    assert_eq!(numbers(&first), [of("box-1/1", 0), of("box-2/1", 1), of("box-2/2", 2)]);
    assert_eq!(numbers(&again), [of("box-3/1", 3), of("box-2/1", 1), of("box-2/2", 2), of("box-2/3", 4)]);
    assert_eq!(history.runners_revision, 3);
    assert!(again.iter().all(|known| known.member.is_runner()) && !CORE.is_runner() && !MemberId::BENCH.is_runner());
}

#[test]
fn a_restored_rig_gives_out_no_number_that_it_may_have_given_out_since_the_backup() {
    let mut history = RigHistory::default();
    set(&mut history, &[("box-1", &["judge"])]);
    history.apply(LogEntry::RigRestored { numbers_skipped: 1_000 });

    let after = set(&mut history, &[("box-1", &["judge"]), ("box-2", &["judge"])]);

    assert_eq!(after[0].member, FIRST);
    assert_eq!(after[1].member.0, MemberId::RUNNERS_FROM + 1 + limits::RUNNER_NUMBERS_SKIPPED);
    assert!(history.last_hold(FIRST) >= 1_000);
}

#[test]
fn numbers_that_have_run_out_are_said() {
    let list = runners::parse(&[ask("box-1", &["judge"])]).expect("it can be");

    let last = runners::number(&list, &BTreeMap::new(), MemberId::BENCH.0 - 1);
    let none = runners::number(&list, &BTreeMap::new(), MemberId::BENCH.0);

    assert_eq!(last.map(|set| set[0].member), Ok(MemberId(MemberId::BENCH.0 - 1)));
    assert!(matches!(none, Err(Refusal::BadRunners { .. })));
}

proptest! {
    /// Whatever lists follow one another: what a new one changes, played on the old one, gives the new one.
    #[test]
    fn what_a_list_changes_leads_from_the_old_one_to_the_new(old in lists(), new in lists()) {
        let mut history = RigHistory::default();
        let (old, new) = (set_all(&mut history, &old), set_all(&mut history, &new));

        let mut played: BTreeMap<RunnerName, RunnerPool> =
            old.iter().map(|known| (known.runner.clone(), known.pool)).collect();
        for (known, change) in runners::changes(&old, &new) {
            match change {
                RunnerChange::Added => prop_assert_eq!(played.insert(known.runner, known.pool), None),
                RunnerChange::Removed => prop_assert_eq!(played.remove(&known.runner), Some(known.pool)),
                RunnerChange::Moved { from } => {
                    prop_assert_ne!(from, known.pool);
                    prop_assert_eq!(played.insert(known.runner, known.pool), Some(from));
                }
                RunnerChange::Unchanged => prop_assert_eq!(played.get(&known.runner), Some(&known.pool)),
            }
        }

        let wanted: BTreeMap<RunnerName, RunnerPool> =
            new.iter().map(|known| (known.runner.clone(), known.pool)).collect();
        prop_assert_eq!(played, wanted);
        let numbers: BTreeSet<MemberId> = new.iter().map(|known| known.member).collect();
        prop_assert_eq!(numbers.len(), new.len());
    }
}

#[test]
fn the_first_listed_judge_or_shared_runner_sets_the_kind_where_the_core_judges_nothing() {
    let mut history = RigHistory::default();
    let listed = set(&mut history, &[("lane", &["lane-1"]), ("late", &["judge"]), ("good", &["shared"])]);
    let (lane, late, good) = (listed[0].member, listed[1].member, listed[2].member);
    let core = device(Target::Cpu, "x");
    let mut known = BTreeMap::from([(lane, device(Target::Cpu, "x")), (good, device(Target::CudaGpu, "a"))]);

    let off = runners::measures_on(&listed, &known, Some(&core), LocalJudge::Off).cloned();
    let on = runners::measures_on(&listed, &known, Some(&core), LocalJudge::On).cloned();
    known.insert(late, device(Target::CudaGpu, "b"));
    let once_known = runners::measures_on(&listed, &known, None, LocalJudge::Off).cloned();

    assert_eq!(off, Some(device(Target::CudaGpu, "a")));
    assert_eq!(on, Some(core));
    assert_eq!(once_known, Some(device(Target::CudaGpu, "b")));
    assert_eq!(runners::measures_on(&listed, &BTreeMap::new(), None, LocalJudge::Off), None);
}

#[test]
fn a_runner_of_another_kind_or_model_or_of_a_process_with_too_few_does_not_fit_and_others_do() {
    let mut history = RigHistory::default();
    let listed = set(
        &mut history,
        &[("cpus", &["judge"]), ("other", &["lane-1"]), ("small", &["judge", "shared"]), ("good", &["judge"])],
    );
    let members: Vec<MemberId> = listed.iter().map(|known| known.member).collect();
    let known = BTreeMap::from([
        (members[0], device(Target::Cpu, "x")),
        (members[1], device(Target::CudaGpu, "b")),
        (members[2], device(Target::CudaGpu, "a")),
        (members[4], device(Target::CudaGpu, "a")),
    ]);
    let serves = BTreeMap::from([(listed[2].runner.process.clone(), 1), (listed[4].runner.process.clone(), 3)]);

    let unfit = runners::unfit(&listed, &serves, &known, Some(&device(Target::CudaGpu, "a")));

    let too_many = WhyNot::TooManyPools { pools: 2, serves: 1 };
    let expected = BTreeMap::from([
        (members[0], WhyNot::OtherTarget { has: Target::Cpu, wants: Target::CudaGpu }),
        (members[1], WhyNot::OtherModel { has: "b".to_owned(), wants: "a".to_owned() }),
        (members[2], too_many.clone()),
        (members[3], too_many),
    ]);
    assert_eq!(unfit, expected);
    let idle: Vec<String> = runners::without_pool(&listed, &serves).iter().map(RunnerName::to_string).collect();
    assert_eq!(idle, ["good/2", "good/3"]);
}

#[test]
fn machines_cpus_are_no_other_model() {
    let mut history = RigHistory::default();
    let listed = set(&mut history, &[("box-1", &["judge"]), ("box-2", &["judge"])]);
    let known = BTreeMap::from([(FIRST, device(Target::Cpu, "x")), (SECOND, device(Target::Cpu, "y"))]);

    assert_eq!(runners::unfit(&listed, &BTreeMap::new(), &known, known.get(&FIRST)), BTreeMap::new());
}

#[test]
fn where_the_core_judges_nothing_its_devices_are_the_lanes_or_idle() {
    for (of_split, off) in [
        (Discipline::JudgeFirst, Discipline::LanesOnly),
        (Discipline::JudgeOnly, Discipline::Idle),
        (Discipline::LanesOnly, Discipline::LanesOnly),
        (Discipline::Idle, Discipline::Idle),
    ] {
        assert_eq!((LocalJudge::On.discipline(of_split), LocalJudge::Off.discipline(of_split)), (of_split, off));
    }
}

#[test]
fn a_lane_may_use_its_own_runner_then_shared_ones_and_the_core_only_where_none_serves_it() {
    let mut pool = pool_with(&[(FIRST, Discipline::FirstCome), (SECOND, Discipline::OneLane(lane(1)))]);

    let with_both = (pool.acceptable(lane(1)), pool.acceptable(lane(2)));
    set_pools(&mut pool, &[(SECOND, Discipline::OneLane(lane(1)))]);
    let without_shared = (pool.acceptable(lane(1)), pool.acceptable(lane(2)));

    assert_eq!(with_both, (vec![SECOND, FIRST], vec![FIRST]));
    assert_eq!(without_shared, (vec![SECOND], vec![CORE]), "assigned is serving, whether it answers or not");
}

#[test]
fn a_runner_is_granted_nothing_before_it_answers_and_nothing_while_it_does_not_fit() {
    let mut pool = pool_with(&[(FIRST, Discipline::OneLane(lane(1)))]);
    let asked = ask_for(&mut pool, 1, 1);
    let why = "it is of another kind".to_owned();
    pool.handle(T, PoolInput::Unfit { runners: BTreeMap::from([(FIRST, why)]) });

    let answered = ready(&mut pool, FIRST);
    let fits = pool.handle(T, PoolInput::Unfit { runners: BTreeMap::new() });

    assert!(granted(&asked).is_none() && granted(&answered).is_none());
    assert_eq!(granted(&fits), Some(HoldId { member: FIRST, number: 1 }));
    assert_eq!(pool.overlooked(), None);
}

#[test]
fn a_runner_that_is_taken_away_stops_what_runs_and_burns_what_has_not_begun() {
    for (begun, effect) in [
        (false, PoolEffect::Void { hold: HoldId { member: FIRST, number: 1 } }),
        (
            true,
            PoolEffect::Stop {
                hold: HoldId { member: FIRST, number: 1 },
                cause: StopCause::RunnerLost { how: RunnerLoss::TakenAway },
            },
        ),
    ] {
        let mut pool = pool_with(&[(FIRST, Discipline::OneLane(lane(1))), (SECOND, Discipline::OneLane(lane(2)))]);
        ready(&mut pool, FIRST);
        ready(&mut pool, SECOND);
        ask_for(&mut pool, 1, 1);
        ask_for(&mut pool, 2, 2);
        if begun {
            begin(&mut pool, FIRST, 1, 1);
            begin(&mut pool, SECOND, 2, 1);
        }

        let told = set_pools(&mut pool, &[(SECOND, Discipline::OneLane(lane(2)))]);
        let late = pool.handle(T, PoolInput::Member { member: FIRST, event: MemberEvent::Started { number: 1 } });
        let how = if begun { HoldEnd::Stopped(StopCause::Cancelled) } else { HoldEnd::NotStarted };
        let freed = pool.handle(T, PoolInput::Member { member: FIRST, event: MemberEvent::Freed { number: 1, how } });

        assert_eq!(told, [effect], "and nothing is done to the other runner");
        assert_eq!(late.len(), usize::from(!begun), "what had begun after all is stopped: {late:?}");
        assert!(freed.contains(&PoolEffect::RunnerLeft { member: FIRST }), "{freed:?}");
        assert_eq!(pool.members().len(), 2);
        // What never began waits again, on what serves its lane now.
        assert_eq!(granted(&freed).map(|hold| hold.member), (!begun).then_some(CORE));
    }
}

#[test]
fn the_latest_of_two_lists_wins_while_a_stop_is_on_its_way() {
    let mut pool = pool_with(&[(FIRST, Discipline::OneLane(lane(1)))]);
    ready(&mut pool, FIRST);
    ask_for(&mut pool, 1, 1);
    begin(&mut pool, FIRST, 1, 1);
    set_pools(&mut pool, &[]);

    let second = set_pools(&mut pool, &[(FIRST, Discipline::FirstCome)]);
    let how = HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::TakenAway });
    let freed = pool.handle(T, PoolInput::Member { member: FIRST, event: MemberEvent::Freed { number: 1, how } });

    assert_eq!(second, [], "it is being stopped already");
    assert!(!freed.iter().any(|effect| matches!(effect, PoolEffect::RunnerLeft { .. })), "{freed:?}");
    assert_eq!(pool.members()[1].discipline, Discipline::FirstCome);
    assert_eq!(pool.acceptable(lane(2)), [FIRST]);
}

#[test]
fn a_runner_that_comes_back_goes_on_with_its_numbers() {
    let mut pool = pool_with(&[(FIRST, Discipline::OneLane(lane(1)))]);
    ready(&mut pool, FIRST);
    let first = granted(&ask_for(&mut pool, 1, 1));
    let freed = MemberEvent::Freed { number: 1, how: HoldEnd::NotStarted };
    pool.handle(T, PoolInput::CancelWait { lane: lane(1), dev_run: dev_run(1) });
    pool.handle(T, PoolInput::Member { member: FIRST, event: freed });
    let left = set_pools(&mut pool, &[]);
    add(&mut pool, FIRST, Discipline::OneLane(lane(1)));
    ready(&mut pool, FIRST);

    let second = granted(&ask_for(&mut pool, 1, 2));

    assert_eq!(left, [PoolEffect::RunnerLeft { member: FIRST }]);
    assert_eq!((first.map(|hold| hold.number), second.map(|hold| hold.number)), (Some(1), Some(2)));
}

#[test]
fn a_new_list_puts_no_latest_moment_off() {
    let mut pool = pool_with(&[(FIRST, Discipline::OneLane(lane(1)))]);
    ask_for(&mut pool, 1, 1);
    let before = pool.waits();

    add(&mut pool, SECOND, Discipline::FirstCome);
    set_pools(&mut pool, &[(SECOND, Discipline::FirstCome)]);
    let after = pool.waits();
    let late = pool.advance(T + limits::DEV_RUN_WAIT_MAX);

    assert_eq!((before[0].2.since, before[0].2.end), (after[0].2.since, after[0].2.end));
    assert!(matches!(late[..], [PoolEffect::GaveUp { .. }]), "{late:?}");
}

fn ask(name: &str, pools: &[&str]) -> ProcessAsk {
    ProcessAsk { name: name.to_owned(), pools: pools.iter().map(|pool| (*pool).to_owned()).collect() }
}

/// Sets a list as the door does.
fn set(history: &mut RigHistory, list: &[(&str, &[&str])]) -> Vec<RunnerSet> {
    let list: Vec<ProcessAsk> = list.iter().map(|(name, pools)| ask(name, pools)).collect();
    set_all(history, &list)
}

fn set_all(history: &mut RigHistory, list: &[ProcessAsk]) -> Vec<RunnerSet> {
    let list = runners::parse(list).expect("it can be");
    let set = runners::number(&list, &history.runner_numbers, history.runner_next).expect("numbers are left");
    history.apply(LogEntry::RunnersSet { runners: set.clone() });
    set
}

fn lists() -> impl Strategy<Value = Vec<ProcessAsk>> {
    let pool = prop_oneof![
        Just("judge".to_owned()),
        Just("shared".to_owned()),
        (1_u8..=16).prop_map(|number| format!("lane-{number}"))
    ];
    let pools = prop::collection::vec(pool, 1..4);
    prop::collection::btree_map("box-[0-5]", pools, 0..5)
        .prop_map(|list| list.into_iter().map(|(name, pools)| ProcessAsk { name, pools }).collect())
}

fn device(target: Target, model: &str) -> RunnerDevice {
    RunnerDevice { target, uuid: format!("of-{model}"), model: model.to_owned() }
}

/// A pool of the core's shared device, which is out of nobody's way, and these runners.
fn pool_with(runners: &[(MemberId, Discipline)]) -> Pool {
    let mut pool = Pool::new([(CORE, Discipline::JudgeFirst)]);
    ready(&mut pool, CORE);
    pool.handle(T, PoolInput::JudgeWork(JudgeWork { version: 1, ..JudgeWork::default() }));
    runners.iter().for_each(|(member, discipline)| add(&mut pool, *member, *discipline));
    pool
}

fn add(pool: &mut Pool, member: MemberId, discipline: Discipline) {
    pool.handle(T, PoolInput::AddRunner { member, discipline, drained: false });
}

fn set_pools(pool: &mut Pool, pools: &[(MemberId, Discipline)]) -> Vec<PoolEffect> {
    pool.handle(T, PoolInput::SetRunners { pools: pools.iter().copied().collect() })
}

fn ready(pool: &mut Pool, member: MemberId) -> Vec<PoolEffect> {
    pool.handle(T, PoolInput::Member { member, event: MemberEvent::Ready { last: 0 } })
}

fn ask_for(pool: &mut Pool, number: u8, arrival: u64) -> Vec<PoolEffect> {
    let asker = lane(number);
    let acceptable = pool.acceptable(asker);
    pool.handle(
        T,
        PoolInput::Ask {
            lane: asker,
            dev_run: dev_run(u128::from(number)),
            run: RunId(uuid::Uuid::nil()),
            arrival: Arrival(arrival),
            acceptable,
            limit: None,
            since: T,
            latest: T + limits::DEV_RUN_WAIT_MAX,
        },
    )
}

fn begin(pool: &mut Pool, member: MemberId, of: u8, number: u64) {
    pool.handle(T, PoolInput::Claim { by: Holder::Lane(lane(of)), hold: HoldId { member, number } });
    pool.handle(T + Span::ZERO, PoolInput::Member { member, event: MemberEvent::Started { number } });
}

fn granted(effects: &[PoolEffect]) -> Option<HoldId> {
    effects.iter().find_map(|effect| match effect {
        PoolEffect::GrantLane { hold, .. } | PoolEffect::GrantJudge { hold, .. } => Some(*hold),
        _ => None,
    })
}

fn lane(number: u8) -> LaneId {
    LaneId::new(number).expect("the lane exists")
}

fn dev_run(number: u128) -> DevRunId {
    DevRunId(uuid::Uuid::from_u128(number))
}
