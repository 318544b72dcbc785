//! A rig ends by the rules: what runs is stopped and proved gone, and all is recorded.

use thermite_actors::rig::No;
use thermite_actors::testing::{Call, DevRunScript, StopScript};
use thermite_core::dev_run::DevRunEnd;
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::Span;

use crate::scenario::Scenario;

#[test]
fn the_end_stops_what_runs_and_what_waits_and_takes_nothing_more() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript {
        stop: StopScript::ProvedAfter(Span::seconds(2)),
        ..DevRunScript::endless()
    });
    let (runs, waits) = (rig.dev_run(1), rig.dev_run(2));
    rig.advance(Span::seconds(10));
    let began = rig.now();

    rig.wait_for(rig.rig.end());

    assert_eq!(rig.now().since(began), Span::seconds(2));
    assert_eq!(rig.diary().last().map(|line| line.call.clone()), Some(Call::Emptied));
    let ends: Vec<_> = rig
        .entries()
        .into_iter()
        .filter_map(|entry| match entry {
            LogEntry::DevRunEnded { dev_run, end } => Some((dev_run, end)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(waits, DevRunEnd::RigEnded), (runs, DevRunEnd::RigEnded)]);
    assert_eq!(rig.ask(3), Err(No::Infrastructure(InfrastructureFailure::RigEnding)));
    assert_eq!(rig.submit("equal-1"), Err(No::Infrastructure(InfrastructureFailure::RigEnding)));
    rig.assert_sound();
}

#[test]
fn a_job_under_way_at_the_end_starts_over_in_the_next_life() {
    let rig = Scenario::one_shared_device();
    let (first, second) = (rig.job("equal-1"), rig.job("equal-2"));
    rig.advance(Span::seconds(10));

    rig.wait_for(rig.rig.end());
    let sent_back = rig.entries().iter().any(|entry| matches!(entry, LogEntry::SentBack { job } if *job == first));
    let rig = rig.kill_and_start_again(|_, _| {});
    let outcomes = [rig.outcome_of(first), rig.outcome_of(second)];

    assert!(sent_back, "going back is recorded before the end is answered");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, JobOutcome::NoGain { .. })));
    assert_eq!(rig.job_row(first).failures, Vec::<String>::new());
    rig.assert_sound();
}

#[test]
fn a_stop_that_cannot_be_proved_does_not_keep_the_rig_from_ending() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript { stop: StopScript::Hangs, ..DevRunScript::endless() });
    rig.dev_run(1);
    let began = rig.now();

    rig.wait_for(rig.rig.end());

    assert!(rig.now().since(began) <= Span::seconds(11), "{}", rig.now().since(began));
}

#[test]
fn records_that_refuse_do_not_keep_the_rig_from_ending() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::endless());
    let dev_run = rig.dev_run(1);
    rig.advance(Span::seconds(1));
    rig.records.refuse("disk full");
    let began = rig.now();

    rig.wait_for(rig.rig.end());
    let took = rig.now().since(began);
    let rig = rig.kill_and_start_again(|_, _| {});

    assert!(took <= Span::seconds(30), "{took}");
    assert_eq!(rig.end_of(dev_run), DevRunEnd::RigEnded, "the next life writes what this one could not");
}
