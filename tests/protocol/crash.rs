//! A rig that is killed at any append goes on where its records are (rule D7).

use std::collections::BTreeMap;

use thermite_actors::rig::{No, Queued, Submitted};
use thermite_actors::testing::{Call, DevRunScript, Happened, ScriptedDevice};
use thermite_core::fold::RigHistory;
use thermite_core::ids::{Arrival, JobId};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::time::Span;

use crate::scenario::{Pending, Scenario};

/// What was asked in a life, and what of it was answered.
struct Asked {
    submits: Vec<Pending<Result<Submitted, No>>>,
    asks: Vec<Pending<Result<Queued, No>>>,
}

#[test]
fn a_rig_killed_at_any_append_loses_no_job_and_judges_none_twice() {
    let appends = {
        let rig = Scenario::one_shared_device();
        script(&rig.device);
        let before = rig.records.appends();
        live(&rig);
        rig.records.appends() - before
    };
    assert!(appends > 15, "the scenario writes enough to be cut off in many places: {appends} appends");

    for append in 1..=appends {
        for durable in [false, true] {
            println!("killed at append {append} of {appends}, durable: {durable}");
            killed_once(append, durable);
        }
    }
}

#[test]
fn a_rig_killed_again_in_its_second_life_loses_nothing_either() {
    for append in 1..=12 {
        println!("killed at append 9, and at append {append} of the second life");
        let rig = Scenario::one_shared_device();
        script(&rig.device);
        rig.records.die_at(rig.records.appends() + 9, true);
        let asked = live(&rig);
        let answered = answered_jobs(&asked);
        let first = rig.diary();

        let rig = rig.kill_and_start_again(|device, _| script(device));
        let second_appends = rig.records.appends();
        rig.records.die_at(second_appends + append, append % 2 == 0);
        rig.advance(Span::minutes(10));
        let second = rig.diary();
        let rig = rig.kill_and_start_again(|device, _| script(device));

        assert_all_is_well(&rig, &answered, &[first, second]);
    }
}

fn killed_once(append: u64, durable: bool) {
    let rig = Scenario::one_shared_device();
    script(&rig.device);
    rig.records.die_at(rig.records.appends() + append, durable);
    let asked = live(&rig);
    assert!(rig.records.is_dead(), "the append of that number is one of the scenario's");
    let answered = answered_jobs(&asked);
    let dev_runs: Vec<_> = asked.asks.iter().filter_map(|ask| ask.now()?.ok()).map(|queued| queued.dev_run).collect();
    let over: Vec<JobId> = ends(&rig.entries()).keys().copied().collect();
    let before = rig.diary();

    let rig = rig.kill_and_start_again(|device, _| script(device));

    assert_all_is_well(&rig, &answered, &[before]);
    for dev_run in dev_runs {
        rig.end_of(dev_run);
    }
    let again: Vec<JobId> = rig.diary().iter().filter_map(measured).filter(|job| over.contains(job)).collect();
    assert_eq!(again, [], "a job whose verdict is recorded is not measured again");
}

/// Two wins against one champion, a job that gains nothing, and development runs between them.
fn live(rig: &Scenario) -> Asked {
    let submit = |change: &str| {
        let (handle, submit) = (rig.rig.clone(), rig.submitting(change));
        rig.begin_to(async move { handle.submit(submit).await })
    };
    let ask = |lane: u32| {
        let (handle, ask) = (rig.rig.clone(), rig.asking(lane));
        rig.begin_to(async move { handle.ask(ask).await })
    };
    let mut asked = Asked { submits: Vec::new(), asks: Vec::new() };
    asked.asks.push(ask(1));
    rig.advance(Span::seconds(5));
    asked.submits.push(submit("faster-1"));
    asked.submits.push(submit("faster-2"));
    asked.asks.push(ask(2));
    rig.advance(Span::seconds(40));
    asked.submits.push(submit("equal-3"));
    asked.asks.push(ask(3));
    rig.advance(Span::minutes(10));
    asked
}

fn script(device: &ScriptedDevice) {
    device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(20)));
}

fn answered_jobs(asked: &Asked) -> Vec<JobId> {
    asked.submits.iter().filter_map(|submit| submit.now()?.ok()).map(|submitted| submitted.job).collect()
}

/// Lets the last life finish, and checks all lives together.
fn assert_all_is_well(rig: &Scenario, answered: &[JobId], earlier: &[Vec<Happened>]) {
    let accepted: Vec<(Arrival, JobId)> =
        RigHistory::of(rig.entries()).jobs.values().map(|job| (job.spec.arrival, job.spec.job)).collect();
    for job in answered {
        assert!(accepted.iter().any(|(_, known)| known == job), "answered job {job} is not in the records");
    }
    for (_, job) in &accepted {
        rig.outcome_of(*job);
    }
    let entries = rig.entries();
    let mut arrivals = BTreeMap::new();
    let mut last_end = Arrival(0);
    let mut ended = Vec::new();
    let mut last_hold = 0;
    for entry in &entries {
        match entry {
            LogEntry::JobSubmitted { spec, .. } => {
                arrivals.insert(spec.job, spec.arrival);
            }
            LogEntry::JobEnded { job, .. } => {
                assert!(!ended.contains(job), "job {job} was judged twice");
                assert!(arrivals[job] > last_end, "job {job} passed an earlier one");
                last_end = arrivals[job];
                ended.push(*job);
            }
            LogEntry::StageStarted { hold, .. } | LogEntry::DevRunStarted { hold, .. } => {
                assert!(hold.number > last_hold, "hold {} came after {last_hold}", hold.number);
                last_hold = hold.number;
            }
            _ => {}
        }
    }
    assert_eq!(ended.len(), accepted.len());
    let mut highest = 0;
    for diary in earlier.iter().chain([&rig.diary()]) {
        let used = || diary.iter().filter_map(|line| line.hold).map(|hold| hold.number);
        assert!(used().min().is_none_or(|least| least > highest), "a later life used a number again");
        highest = used().max().unwrap_or(highest);
    }
    let wins: Vec<&JobOutcome> =
        ends(&entries).into_values().filter(|outcome| matches!(outcome, JobOutcome::Win { .. })).collect();
    let adopted = wins.iter().filter(|win| matches!(win, JobOutcome::Win { adopted: true })).count();
    let moves = entries.iter().filter(|entry| matches!(entry, LogEntry::ChampionMoved { .. })).count();
    assert_eq!((adopted, moves), (wins.len().min(1), wins.len().min(1)), "{wins:?}");
    rig.assert_sound();
}

fn ends(entries: &[LogEntry]) -> BTreeMap<JobId, &JobOutcome> {
    entries
        .iter()
        .filter_map(|entry| match entry {
            LogEntry::JobEnded { job, outcome, .. } => Some((*job, outcome)),
            _ => None,
        })
        .collect()
}

fn measured(line: &Happened) -> Option<JobId> {
    match &line.call {
        Call::Step { job, .. } => Some(*job),
        _ => None,
    }
}
