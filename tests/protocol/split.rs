//! The split of several cards: what it is at the start, and what setting another does to the work under way (rules B1,
//! B2, B8, B9).

use thermite_actors::rig::No;
use thermite_actors::testing::{Call, DevRunScript, StopScript};
use thermite_actors::view::{DevRunStatus, DevicePool, SplitView};
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{MemberId, RunId};
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::refusal::{GaveUp, Refusal};
use thermite_core::split::SplitAsk;
use thermite_core::time::Span;
use thermite_core::wait::WaitEnd;

use crate::scenario::{Beginning, Scenario};

#[test]
fn cards_are_split_by_default_and_one_card_is_shared() {
    for (count, judge, agents) in [(1, vec![0], vec![0]), (2, vec![0], vec![1]), (3, vec![0, 1], vec![2])] {
        let rig = Scenario::cards(count);

        let split = view(&rig);

        assert_eq!((split.shared, split.revision, places(&split)), (count == 1, 0, (judge, agents)));
    }
    let eight = Scenario::cards(8);
    let pools: Vec<DevicePool> = eight.view().devices.iter().map(|row| row.pool).collect();
    assert_eq!(pools, [[DevicePool::Judge; 4], [DevicePool::Agents; 4]].concat());
}

#[test]
fn a_rig_of_cpus_knows_of_no_split() {
    let rig = Scenario::one_shared_device();

    let split = view(&rig);

    assert!(split.shared && split.idle.is_empty());
    assert_eq!(rig.view().devices[0].pool, DevicePool::Shared);
}

#[test]
fn of_mixed_models_the_first_judges_and_the_others_are_shown_idle() {
    let rig = Scenario::begin(Beginning { cards: vec!["a", "b", "b"], ..Beginning::default() });

    let split = view(&rig);
    let row = &rig.view().devices[1];

    let why = "the judge's cards are of several models: only the first, card-0 (a), judges";
    assert_eq!(places(&split), (vec![0], vec![2]));
    assert_eq!(split.note.as_deref(), Some(why));
    assert_eq!((row.pool, row.idle.as_deref()), (DevicePool::Idle, Some(why)));
}

#[test]
fn neither_side_waits_for_the_other() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let runs = rig.dev_run(1);
    let job = rig.job("faster");

    let outcome = rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert!(rig.runs(runs), "the judge went on beside it, and it beside the judge");
    rig.assert_sound();
}

#[test]
fn development_runs_take_any_free_agents_card_and_wait_only_when_all_are_busy() {
    let rig = Scenario::cards(4);
    for card in &rig.cards {
        card.script_dev_runs(|_| DevRunScript::endless());
    }
    let (first, second) = (rig.dev_run(1), rig.dev_run(2));
    let third = rig.dev_run(3);

    let sentence = rig.sentence(third);
    rig.wait_for(rig.rig.cancel(first)).expect("it is under way");
    rig.time.settle();

    assert!(rig.runs(second) && rig.runs(third));
    assert!(sentence.starts_with("waits for lane 1, which holds device 2 for development run"), "{sentence}");
    assert!(rig.cards[..2].iter().all(|card| card.diary().iter().all(|line| !matches!(line.call, Call::Start(_)))));
    rig.assert_sound();
}

#[test]
fn an_agents_card_has_no_time_limit_unless_the_contract_sets_one() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let free = rig.dev_run(1);
    rig.advance(Span::hours(3));
    assert!(rig.runs(free));

    let limited = Scenario::begin(Beginning {
        cards: vec!["a"; 2],
        set: Box::new(|_, workspaces| {
            workspaces.change_kit(|kit| kit.contract.dev_run_max = Some(Span::minutes(7)));
        }),
        ..Beginning::default()
    });
    limited.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let ends = limited.dev_run(1);

    assert_eq!(limited.end_of(ends), DevRunEnd::LimitReached { limit: Span::minutes(7) });
}

#[test]
fn behind_a_run_without_a_limit_a_wait_still_has_its_latest_moment() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    rig.dev_run(1);
    let waits = rig.dev_run(2);
    let DevRunStatus::Waiting { wait, .. } = rig.dev_run_row(waits).status else { panic!("it waits") };

    let end = rig.end_of(waits);

    assert_eq!(wait.end, WaitEnd::Latest { at: wait.since + limits::DEV_RUN_WAIT_MAX });
    assert_eq!(end, DevRunEnd::GaveUp { why: GaveUp::LaneHeldDevice });
}

#[test]
fn shared_by_choice_the_judge_goes_first_on_each_and_the_limit_holds() {
    let rig = Scenario::cards(2);
    set(&rig, SplitAsk::Shared).expect("cards may be shared");
    for card in &rig.cards {
        card.script_dev_runs(|_| DevRunScript::endless());
    }
    let job = rig.job("slower");
    let waits = rig.dev_run(1);

    let sentence = rig.sentence(waits);
    let outcome = rig.outcome_of(job);
    let end = rig.end_of(waits);

    assert!(sentence.contains("the judge"), "{sentence}");
    assert_eq!(outcome, JobOutcome::NoGain { slower: true });
    assert_eq!(end, DevRunEnd::LimitReached { limit: limits::SHARED_DEV_RUN_MAX });
    rig.assert_sound();
}

#[test]
fn a_bad_split_is_refused_and_changes_nothing() {
    let rig = Scenario::cards(2);

    let refused = set(&rig, cards(&[0, 1], &[1]));

    let why = "card card-1 is on both sides".to_owned();
    assert_eq!(refused, Err(No::Refusal(Refusal::BadSplit { why })));
    assert_eq!((view(&rig).revision, places(&view(&rig))), (0, (vec![0], vec![1])));
}

#[test]
fn a_split_read_before_another_one_was_set_is_refused() {
    let rig = Scenario::cards(3);
    let read = view(&rig).revision;
    set(&rig, cards(&[2], &[0, 1])).expect("it can be");

    let late = rig.wait_for(rig.rig.set_split(SplitAsk::Shared, Some(read)));
    let fresh = rig.wait_for(rig.rig.set_split(SplitAsk::Shared, Some(1))).expect("its revision was read");

    assert_eq!(late, Err(No::Refusal(Refusal::SplitMoved { revision: 1 })));
    assert_eq!((fresh.revision, fresh.shared), (2, true));
}

#[test]
fn a_new_split_sends_jobs_back_ends_runs_and_keeps_who_waits() {
    let rig = Scenario::cards(2);
    rig.cards[0].steps_take(Span::seconds(5), Span::seconds(5));
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let job = rig.job("faster");
    let runs = rig.dev_run(1);
    let waits = rig.dev_run(2);
    let DevRunStatus::Waiting { wait: before, .. } = rig.dev_run_row(waits).status else { panic!("it waits") };
    rig.advance(Span::seconds(20));

    set(&rig, cards(&[1], &[0])).expect("it can be");
    let after = view(&rig);
    rig.time.settle();

    assert_eq!((after.revision, places(&after), after.in_force_by), (1, (vec![1], vec![0]), None));
    assert_eq!(rig.end_of(runs), DevRunEnd::NewSplit, "its lane is told to run its command again");
    assert!(rig.exec_on(0, waits).is_some(), "who waited has the card that is the agents' now");
    assert_eq!(before.place, 0);
    let sent_back = rig.entries().iter().filter(|entry| matches!(entry, LogEntry::SentBack { .. })).count();
    let failed = rig.entries().iter().filter(|entry| matches!(entry, LogEntry::AttemptFailed { .. })).count();
    assert_eq!((sent_back, failed), (1, 0), "going back is no failure");
    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    let judged_on = rig.stages_on();
    assert!(judged_on[1..].iter().all(|member| *member == MemberId(1)), "{judged_on:?}");
    rig.assert_sound();
}

/// Rules B5, D5: what was measured on the one model says nothing on the other.
#[test]
fn a_new_split_to_another_model_screens_again_and_settles_for_that_model() {
    for dies in [false, true] {
        let begin = || Scenario::begin(Beginning { cards: vec!["a", "a", "b", "b"], ..Beginning::default() });
        let rig = begin();
        for card in &rig.cards {
            card.steps_take(Span::seconds(1), Span::seconds(1));
        }
        let job = rig.job("faster");
        let won = |rig: &Scenario| {
            let entries = rig.entries();
            entries.iter().filter(|entry| matches!(entry, LogEntry::ScreeningWon { .. })).count()
        };
        let mut waited = 0;
        while won(&rig) == 0 {
            rig.advance(Span::seconds(5));
            waited += 1;
            assert!(waited < 1_000, "the screening comes to an end");
        }
        let before = rig.stages_on().len();

        set(&rig, cards(&[2, 3], &[0, 1])).expect("it can be");
        let rig = if dies { rig.kill_and_start_again(|_, _| {}) } else { rig };
        let outcome = rig.outcome_of(job);

        assert_eq!(outcome, JobOutcome::Win { adopted: true });
        let entries = rig.entries();
        let spec = entries.iter().find_map(|entry| match entry {
            LogEntry::JobSubmitted { spec, .. } => Some(spec),
            _ => None,
        });
        let pinned = &spec.expect("it was submitted").pinned;
        let settled: Vec<&LogEntry> =
            entries.iter().filter(|entry| matches!(entry, LogEntry::VerdictSettled { .. })).collect();
        assert_eq!(settled, [&LogEntry::VerdictSettled { job, key: thermite_core::settled::key(pinned, "b") }]);
        let judged_on = rig.stages_on();
        let after: Vec<u16> = judged_on[before..].iter().map(|member| member.0).filter(|at| *at > 1).collect();
        assert_eq!((won(&rig), after), (2, vec![2, 3]), "screened and confirmed on the other model, {judged_on:?}");
        let records = rig.records.verdict_records();
        let models: Vec<&str> = records.iter().map(|record| record.facts.on.model.as_str()).collect();
        assert_eq!(models, ["a", "b", "b"]);
        assert_eq!(
            records[2].facts.screened.as_ref().map(|screened| screened.record.as_str()),
            Some(records[1].sha256.as_str())
        );
        assert!(!rig.entries().iter().any(|entry| matches!(entry, LogEntry::AttemptFailed { .. })));
        rig.assert_sound();
    }
}

#[test]
fn a_waiter_keeps_its_latest_moment_over_a_new_split() {
    let rig = Scenario::cards(3);
    rig.cards[2].script_dev_runs(|_| DevRunScript::endless());
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    rig.dev_run(1);
    let waits = rig.dev_run(2);
    let asked = rig.now();
    rig.advance(Span::minutes(9));
    rig.job("faster");

    // The agents' card is another one, and the judge's is lost to nobody: all are at the judge's for a moment.
    set(&rig, cards(&[0, 2], &[1])).expect("it can be");
    rig.time.settle();

    assert!(rig.exec_on(1, waits).is_some_and(|at| at < asked + limits::DEV_RUN_WAIT_MAX));
}

#[test]
fn the_same_split_again_stops_nothing() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript::endless());
    let runs = rig.dev_run(1);

    let again = set(&rig, cards(&[0], &[1])).expect("it can be");

    assert_eq!(again.revision, 1);
    assert!(rig.runs(runs));
}

#[test]
fn the_latest_asked_split_wins_while_one_is_still_on_its_way() {
    let rig = Scenario::cards(3);
    for card in &rig.cards {
        card.script_dev_runs(|_| DevRunScript {
            stop: StopScript::ProvedAfter(Span::seconds(4)),
            ..DevRunScript::endless()
        });
    }
    rig.dev_run(1);
    let first = rig.begin_to({
        let handle = rig.rig.clone();
        async move { handle.set_split(cards(&[2], &[0]), None).await }
    });
    let on_its_way = view(&rig);
    let waits = rig.dev_run(2);
    let sentence = rig.sentence(waits);
    let second = rig.begin_to({
        let handle = rig.rig.clone();
        async move { handle.set_split(cards(&[1], &[2, 0]), None).await }
    });
    rig.advance(Span::seconds(5));

    assert!(first.now().is_some_and(|answer| answer.is_ok_and(|split| split.revision == 2)));
    assert!(second.now().is_some_and(|answer| answer.is_ok_and(|split| places(&split) == (vec![1], vec![2, 0]))));
    assert!(on_its_way.in_force_by.is_some_and(|by| by > rig.now()));
    assert!(sentence.starts_with("waits for the cards, which are being given out anew,"), "{sentence}");
    assert!(rig.exec_on(0, waits).is_some() || rig.exec_on(2, waits).is_some());
    rig.assert_sound();
}

#[test]
fn a_split_waits_no_longer_than_a_proof_for_a_card_that_cannot_prove_its_stop() {
    let rig = Scenario::cards(2);
    rig.cards[1].script_dev_runs(|_| DevRunScript { stop: StopScript::Hangs, ..DevRunScript::endless() });
    rig.dev_run(1);
    let asked = rig.now();

    set(&rig, SplitAsk::Shared).expect("a card out of service holds nothing up");

    assert!(rig.now() <= asked + limits::NEW_SPLIT_MAX);
    assert!(rig.view().devices[1].quarantine.is_some());
}

#[test]
fn a_set_split_survives_the_death_of_the_rig() {
    let rig = Scenario::cards(3);
    set(&rig, cards(&[2], &[0, 1])).expect("it can be");

    let rig = rig.kill_and_start_again(|_, _| {});

    assert_eq!((view(&rig).revision, places(&view(&rig))), (1, (vec![2], vec![0, 1])));
    let pools: Vec<DevicePool> = rig.view().devices.iter().map(|row| row.pool).collect();
    assert_eq!(pools, [DevicePool::Agents, DevicePool::Agents, DevicePool::Judge]);
}

#[test]
fn a_split_that_the_records_refuse_is_not_in_force() {
    let rig = Scenario::cards(2);
    rig.records.refuse("disk full");

    let refused = set(&rig, SplitAsk::Shared);
    rig.records.mend();
    rig.advance(Span::seconds(5));

    assert!(matches!(refused, Err(No::Infrastructure(_))), "{refused:?}");
    assert_eq!((view(&rig).revision, view(&rig).shared), (0, false));
}

#[test]
fn a_run_that_is_paused_over_a_new_split_goes_on_with_its_jobs_in_place() {
    let rig = Scenario::cards(2);
    let job = rig.job("faster");
    rig.advance(Span::seconds(3));
    rig.change_run(thermite_core::run::RunState::Paused).expect("it runs");
    set(&rig, cards(&[1], &[0])).expect("it can be");
    rig.advance(Span::minutes(5));
    let sentence = rig.job_sentence(job);

    rig.change_run(thermite_core::run::RunState::Running).expect("it is paused");

    assert!(sentence.contains("to be resumed"), "{sentence}");
    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    assert_ne!(rig.run, RunId(uuid::Uuid::nil()));
}

fn view(rig: &Scenario) -> SplitView {
    rig.wait_for(rig.rig.split()).expect("the rig is there")
}

fn set(rig: &Scenario, ask: SplitAsk) -> Result<SplitView, No> {
    rig.wait_for(rig.rig.set_split(ask, None))
}

fn cards(judge: &[u16], agents: &[u16]) -> SplitAsk {
    let named = |side: &[u16]| side.iter().map(|at| format!("card-{at}")).collect();
    SplitAsk::Cards { judge: named(judge), agents: named(agents) }
}

fn places(split: &SplitView) -> (Vec<u16>, Vec<u16>) {
    let side = |rows: &[thermite_actors::view::CardRow]| rows.iter().map(|row| row.member.0).collect();
    (side(&split.judge), side(&split.agents))
}
