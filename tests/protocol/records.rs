//! What leaves the rig waits until the records have it, and a full disk is survived (rule D7).

use thermite_actors::testing::Call;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::time::Span;

use crate::scenario::{Scenario, endless, not_recorded};

#[test]
fn a_submit_is_answered_only_when_it_is_durable() {
    let rig = Scenario::one_shared_device();
    rig.records.take(Span::millis(250));

    let answer = rig.begin_to({
        let (handle, submit) = (rig.rig.clone(), rig.submitting("equal-1"));
        async move { handle.submit(submit).await }
    });
    rig.advance(Span::millis(249));
    let before = answer.now();
    rig.advance(Span::millis(1));

    assert_eq!(before, None);
    assert!(answer.now().is_some_and(|answer| answer.is_ok()));
}

#[test]
fn nothing_starts_before_its_hold_is_durable() {
    let rig = Scenario::one_shared_device();
    rig.records.take(Span::millis(250));

    let dev_run = rig.dev_run(1);
    rig.advance(Span::millis(249));
    let before = rig.exec_of(dev_run);
    rig.advance(Span::millis(1));

    assert_eq!(before, None);
    assert!(rig.exec_of(dev_run).is_some());
}

#[test]
fn while_the_records_refuse_askers_are_told_and_nothing_is_granted() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let runs = rig.dev_run(1);
    let waits = rig.dev_run(2);
    rig.records.refuse("disk full");

    let (submit, ask) = (rig.submit("equal-1"), rig.ask(3));
    rig.advance(Span::seconds(1));
    let sentence = rig.sentence(waits);
    let fault = rig.view().records_fault;
    rig.advance(Span::minutes(6));
    let still_waits = rig.exec_of(waits);

    assert_eq!(submit, Err(not_recorded()));
    assert_eq!(ask.map(|_| ()), Err(not_recorded()));
    assert_eq!(
        sentence,
        "waits for the records, which cannot be written, next in line, since 2.0 s, at most 9 min 58 s more"
    );
    assert_eq!(fault.as_deref(), Some("disk full"));
    assert_eq!(still_waits, None, "the first has ended by its limit, and the device is free");
    assert!(rig.diary().iter().any(|line| line.call == Call::Emptied));

    rig.records.mend();
    rig.advance(Span::seconds(2));

    assert_eq!(rig.end_of(runs), DevRunEnd::LimitReached { limit: Span::minutes(5) });
    assert!(rig.exec_of(waits).is_some(), "it goes on when there is room");
    assert_eq!(rig.view().records_fault, None);
    rig.assert_sound();
}

#[test]
fn a_verdict_found_while_the_records_refuse_is_kept_and_given_once() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(2));

    rig.records.refuse("disk full");
    rig.advance(Span::minutes(10));
    let refused = rig.entries().iter().any(|entry| matches!(entry, LogEntry::JobEnded { .. }));
    rig.records.mend();
    let outcome = rig.outcome_of(job);

    assert!(!refused);
    assert!(matches!(outcome, JobOutcome::NoGain { .. }));
    let ends = rig.entries().iter().filter(|entry| matches!(entry, LogEntry::JobEnded { .. })).count();
    assert_eq!(ends, 1);
    assert_eq!(rig.records.verdict_records().len(), 1);
    rig.assert_sound();
}

#[test]
fn a_development_run_gives_up_in_time_while_the_records_refuse() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.dev_run(1);
    let waits = rig.dev_run(2);
    rig.records.refuse("disk full");

    rig.advance(Span::minutes(10));

    let status = rig.dev_run_row(waits).status;
    assert!(
        matches!(status, thermite_actors::view::DevRunStatus::Ended { end: DevRunEnd::GaveUp { .. } }),
        "{status:?}"
    );
    rig.assert_sound();
}

#[test]
fn many_askings_in_one_instant_share_one_append() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    rig.records.take(Span::millis(10));
    let before = rig.records.appends();
    let handle = rig.rig.clone();
    let submits: Vec<_> = (0..50).map(|number| rig.submitting(&format!("equal-{number}"))).collect();

    let answers = rig.begin_to(async move {
        futures_util::future::join_all(submits.into_iter().map(|submit| handle.submit(submit))).await
    });
    rig.advance(Span::millis(100));

    let answers = answers.now().expect("all are answered");
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(
        answers.iter().map(|a| a.as_ref().expect("checked").ahead).collect::<Vec<_>>(),
        (0..50).collect::<Vec<_>>()
    );
    assert!(rig.records.appends() - before <= 6, "{} appends for 50 submits", rig.records.appends() - before);
}
