//! Random mixes with runners: askings, new lists, drains, runners that go away and come back, and deaths of the core; and
//! what holds whatever comes (rules A1, A9, E1, E2, E8, E10 to E12, E17).
//!
//! `THERMITE_MIX_SEEDS=1000..2000 cargo test -p thermite-tests-protocol mix_runners` tries others.

use std::collections::BTreeMap;

use thermite_actors::testing::{DevRunScript, Luck};
use thermite_actors::view::{DevRunStatus, JobStatus, RigView, RunnerRuns};
use thermite_core::ids::MemberId;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_core::runner::RunnerState;
use thermite_core::runners::{LocalJudge, ProcessAsk, RunnerPool};
use thermite_core::time::Span;
use thermite_core::wait::WaitEnd;

use crate::mix::{each_seed, until_all_ends};
use crate::scenario::{Beginning, Scenario};

/// Bursts of askings in one mix.
const BURSTS: u64 = 40;
/// The processes of a mix, each with so many devices.
const PROCESSES: [(&str, usize); 4] = [("box-1", 1), ("box-2", 2), ("box-3", 1), ("box-4", 1)];
const POOLS: [&str; 5] = ["judge", "shared", "lane-1", "lane-2", "shared"];

#[test]
fn no_runner_has_two_holders_pools_hold_and_everything_ends_once_faults_stop() {
    // Twice the same course of events, at the price of one mix in four.
    each_seed(0..16, 4, mix);
}

fn mix(seed: u64) -> (u64, u64) {
    let mut luck = Luck::new(seed);
    let alone = seed.is_multiple_of(3);
    let local_judge = if alone { LocalJudge::Off } else { LocalJudge::On };
    let mut rig = Scenario::start(Beginning { seed, local_judge, set_runners: serve(), ..Beginning::default() });
    script(&rig, seed);
    set(&rig, vec![ask("box-1", &["judge"]), ask("box-2", &["shared", "lane-1"])]);
    rig.advance(Span::seconds(15));
    let request = thermite_actors::testing::ScriptedWorkspaces::request(3);
    rig.run = rig.wait_for(rig.rig.start_run(request, None)).expect("a first run is started");
    for burst in 0..BURSTS {
        for _ in 0..=luck.below(3) {
            ask_something(&rig, &mut luck, burst);
        }
        if luck.once_in(20) {
            rig = rig.kill_and_start_again(|_, _| {});
            script(&rig, seed);
        }
        rig.advance(luck.span(Span::ZERO, Span::seconds(40)));
        check(&rig.view(), alone);
    }
    for name in rig.runners.names() {
        rig.runners.cut_off(&name, false);
    }
    set(&rig, vec![ask("box-1", &["judge"]), ask("box-2", &["shared", "lane-1"])]);
    for row in rig.view().runners.runners {
        rig.wait_for(rig.rig.undrain(row.member)).expect("it is on the list");
    }
    rig.change_run(RunState::Running).expect("the run has not ended");
    until_all_ends(&rig, |view| check(view, alone));
    rig.advance(Span::minutes(2));
    let view = rig.view().runners;
    assert_eq!(view.runners.len(), 3);
    for row in &view.runners {
        let is_free = matches!(row.state, RunnerState::Ready { .. }) && row.runs.is_none() && row.takes_runs;
        assert!(is_free, "every hold is released, and every runner is back: {row:?}");
    }
    check_log(&rig.entries());
    rig.assert_sound();
    rig.trace()
}

fn ask_something(rig: &Scenario, luck: &mut Luck, burst: u64) {
    let handle = rig.rig.clone();
    let pick = |luck: &mut Luck, most: usize| usize::try_from(luck.below(most as u64)).expect("small");
    match luck.below(16) {
        0..5 => {
            let ask = rig.asking(1 + u32::try_from(luck.below(3)).expect("small"));
            drop(rig.begin_at_once(async move { handle.ask(ask).await }));
        }
        5..8 => {
            let change = ["equal", "faster", "slower", "broken"][pick(luck, 4)];
            let submit = rig.submitting(&format!("{change}-{burst}"));
            drop(rig.begin_at_once(async move { handle.submit(submit).await }));
        }
        8 => {
            let (run, paused) = (rig.run, luck.once_in(3));
            let state = if paused { RunState::Paused } else { RunState::Running };
            drop(rig.begin_at_once(async move { handle.change_run(run, state).await }));
        }
        9..12 => {
            let mut list = Vec::new();
            for (name, most) in PROCESSES {
                if luck.once_in(4) {
                    continue;
                }
                let pools: Vec<&str> = (0..=pick(luck, most)).map(|_| POOLS[pick(luck, POOLS.len())]).collect();
                list.push(ask(name, &pools));
            }
            drop(rig.begin_at_once(async move { handle.set_runners(list, None).await }));
        }
        12 => {
            let member = MemberId(MemberId::RUNNERS_FROM + u16::try_from(luck.below(5)).expect("small"));
            let drained = luck.once_in(2);
            drop(rig.begin_at_once(async move {
                // One that was never on the list is refused.
                if drained { handle.drain(member).await } else { handle.undrain(member).await }
            }));
        }
        _ => {
            let names = rig.runners.names();
            let name = &names[pick(luck, names.len())];
            rig.runners.cut_off(name, luck.once_in(3));
        }
    }
}

/// What must hold at any time.
fn check(view: &RigView, alone: bool) {
    for row in &view.runners.runners {
        let may = match (row.pool, row.runs) {
            // It is on its way out, or between two pools, with what it had.
            (_, None) | (None, _) => true,
            (Some(_), Some(_)) if !row.takes_runs => true,
            (Some(RunnerPool::Judge), Some(runs)) => matches!(runs, RunnerRuns::Judge { .. }),
            (Some(RunnerPool::Shared), Some(_)) => true,
            (Some(RunnerPool::Lane(own)), Some(runs)) => matches!(runs, RunnerRuns::Lane { lane, .. } if lane == own),
        };
        assert!(may, "a runner has what is not of its pool: {row:?}");
    }
    for row in &view.dev_runs {
        if let DevRunStatus::Waiting { wait, sentence } = &row.status {
            let WaitEnd::Latest { at } = wait.end else { panic!("no latest moment: {sentence}") };
            assert!(view.now <= at, "a wait passed its latest moment: {sentence}");
            assert!(at <= wait.since + limits::DEV_RUN_WAIT_MAX, "a latest moment was put off: {sentence}");
        }
        if let DevRunStatus::Starting { hold, .. } = &row.status {
            let is_there = view.runners.runners.iter().any(|known| known.member == hold.member);
            assert!(!hold.member.is_runner() || is_there, "{row:?} starts on a runner that is none of the rig's");
        }
    }
    for row in &view.jobs {
        if let JobStatus::Measuring { hold, .. } = &row.status {
            assert!(!alone || hold.member.is_runner(), "the core judges nothing: {row:?}");
        }
    }
    assert_eq!(view.overlooked, 0, "somebody waits beside a free ready runner");
}

/// What must hold of the whole log: no number twice, no verdict twice, one runner a number.
fn check_log(entries: &[LogEntry]) {
    let mut last: BTreeMap<MemberId, u64> = BTreeMap::new();
    let mut ended = BTreeMap::new();
    let mut names = BTreeMap::new();
    for entry in entries {
        match entry {
            LogEntry::StageStarted { hold, .. } | LogEntry::DevRunStarted { hold, .. } => {
                let before = last.insert(hold.member, hold.number).unwrap_or(0);
                assert!(hold.number > before || before == 0, "{hold} comes after number {before}");
            }
            LogEntry::JobEnded { job, outcome, .. } => {
                assert_eq!(ended.insert(*job, outcome.clone()), None, "{job} has two ends");
                let is_fault = matches!(outcome, JobOutcome::NoVerdict { why } if !why.contains("the run has ended"));
                assert!(!is_fault, "going back counts against nobody: {outcome:?}");
            }
            LogEntry::AttemptFailed { why, .. } => panic!("nothing failed here: {why}"),
            LogEntry::RunnersSet { runners } => {
                for set in runners {
                    let named = names.entry(set.member).or_insert_with(|| set.runner.clone());
                    assert_eq!(*named, set.runner, "{} is two runners' number", set.member);
                }
            }
            _ => {}
        }
    }
}

fn serve() -> Box<dyn FnOnce(&thermite_actors::testing::ScriptedRunners)> {
    Box::new(|runners| {
        for (name, most) in PROCESSES {
            for slot in 1..=most {
                runners.serve(&format!("{name}/{slot}"), u32::try_from(most).expect("few"));
            }
        }
    })
}

fn script(rig: &Scenario, seed: u64) {
    serve()(&rig.runners);
    for (at, name) in (0..).zip(rig.runners.names()) {
        let luck = std::cell::RefCell::new(Luck::new(seed * 16 + at));
        rig.runners
            .device(&name)
            .script_dev_runs(move |_| DevRunScript::lasting(luck.borrow_mut().span(Span::ZERO, Span::minutes(3))));
    }
}

fn ask(name: &str, pools: &[&str]) -> ProcessAsk {
    ProcessAsk { name: name.to_owned(), pools: pools.iter().map(|pool| (*pool).to_owned()).collect() }
}

fn set(rig: &Scenario, list: Vec<ProcessAsk>) {
    rig.wait_for(rig.rig.set_runners(list, None)).expect("it can be");
}
