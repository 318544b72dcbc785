//! What is over leaves memory and stays readable; a disk without room is waited for (rules A13, D5, D7).

use thermite_actors::ports::Records;
use thermite_actors::rig::{No, Queued};
use thermite_actors::view::{DevRunStatus, JobStatus};
use thermite_core::ended::Ended;
use thermite_core::fold::RigHistory;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use crate::scenario::{Scenario, endless};

#[test]
fn what_left_memory_is_still_answered_for_and_asking_again_is_asking_once() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    let outcome = rig.outcome_of(job);
    let mut ask = rig.asking(1);
    ask.key = Some("first".to_owned());
    let first = rig.wait_for(rig.rig.ask(ask.clone())).unwrap();
    let end = rig.end_of(first.dev_run);
    // More than stay in memory; enough for a checkpoint.
    for _ in 0..700 {
        let next = rig.dev_run(2);
        rig.end_of(next);
    }

    let history = RigHistory::of(rig.entries());
    assert!(!history.dev_runs.contains_key(&first.dev_run), "the first has left memory");
    assert_eq!(history.dev_runs.len(), limits::ENDED_KEPT);
    assert_eq!(rig.dev_run_row(first.dev_run).status, DevRunStatus::Ended { end });
    assert_eq!(rig.wait_for(rig.rig.ask(ask.clone())), Ok(Queued { dev_run: first.dev_run, ahead: 0 }));
    let at = rig.records.checkpoint_at().expect("a checkpoint is due");
    assert!(at >= limits::CHECKPOINT_EVERY, "{at}");
    let state = rig.wait_for(rig.records.load()).unwrap().fold();
    assert_eq!(state.history, history, "checkpoint and tail fold to the whole");
    let asked = rig.entries().iter().filter(|entry| matches!(entry, LogEntry::DevRunAsked { .. })).count();
    assert_eq!(asked, 701);
    // The next life knows no more of it than the records do.
    let rig = rig.kill_and_start_again(|_, _| {});
    assert_eq!(rig.wait_for(rig.rig.ask(ask)), Ok(Queued { dev_run: first.dev_run, ahead: 0 }));
    assert_eq!(rig.outcome_of(job), outcome);
    rig.assert_sound();
}

#[test]
fn a_runs_jobs_are_listed_in_order_whether_in_memory_or_not() {
    let rig = Scenario::one_shared_device();
    let over: Vec<_> = (0..4).map(|number| rig.job(&format!("equal-{number}"))).collect();
    for job in &over {
        rig.outcome_of(*job);
    }
    // As if the first two had left: what the records tell of them is all there is.
    let ended = rig.wait_for(rig.records.ended(thermite_actors::ports::WhichEnded::JobsOf {
        run: rig.run,
        after: None,
        most: 2,
    }));
    let thermite_actors::ports::FromRecords::Kept(ended) = ended.unwrap() else { panic!("nothing was pruned") };
    let ids: Vec<_> = ended
        .iter()
        .map(|ended| match ended {
            Ended::Job { history } => history.spec.job,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, over[..2]);

    let waits = rig.job("equal-9");
    let listed = rig.wait_for(rig.rig.jobs(rig.run, None, 100)).unwrap();
    let after = rig.wait_for(rig.rig.jobs(rig.run, Some(over[1]), 2)).unwrap();

    assert_eq!(listed.iter().map(|row| row.job).collect::<Vec<_>>(), [&over[..], &[waits]].concat());
    assert_eq!(after.iter().map(|row| row.job).collect::<Vec<_>>(), over[2..4]);
}

#[test]
fn a_full_disk_inside_a_job_is_waited_for_and_eats_none_of_its_failures() {
    let rig = Scenario::one_shared_device();
    // Twice as often as infrastructure may fail it.
    let most = 2 * limits::INFRASTRUCTURE_FAILURES_MAX;
    rig.device.script_steps(move |stage, step| match step {
        StageStep::Prepare if stage.attempt <= most => {
            Some(StepReport::NoRoom { why: "No space left on device".to_owned() })
        }
        _ => None,
    });
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(2));

    let row = rig.job_row(job);
    let sentence = rig.job_sentence(job);
    let outcome = rig.outcome_of(job);

    assert!(matches!(&row.status, JobStatus::Waiting { .. }), "{row:?}");
    assert!(
        sentence.starts_with("waits for room on the data folder's disk, next in line, ")
            && sentence.ends_with("no latest moment: the disk is full or slow"),
        "{sentence}"
    );
    assert_eq!(row.failures, [] as [String; 0]);
    assert!(matches!(outcome, JobOutcome::NoGain { .. }), "{outcome:?}");
    let row = rig.job_row(job);
    assert_eq!((row.attempt, row.failures.len()), (most + 1, 0));
    // A rig that starts again does not count them either.
    assert_eq!(RigHistory::of(rig.entries()).jobs[&job].failures, [] as [String; 0]);
    rig.assert_sound();
}

#[test]
fn without_room_on_the_disk_nothing_new_is_taken_or_granted_until_there_is() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let runs = rig.dev_run(1);
    let waits = rig.dev_run(2);
    let mut known = rig.submitting("equal-1");
    known.key = Some("known".to_owned());
    rig.wait_for(rig.rig.tell_disk_room(Some("3 bytes free".to_owned())));
    let full = No::Infrastructure(InfrastructureFailure::DiskFull { why: "3 bytes free".to_owned() });

    let (submit, ask) = (rig.submit("equal-1"), rig.ask(3));
    let sentence = rig.sentence(waits);
    let fault = rig.view().records_fault;
    rig.advance(Span::minutes(6));

    assert_eq!(submit.map(|_| ()), Err(full.clone()));
    assert_eq!(ask.map(|_| ()), Err(full));
    assert!(sentence.starts_with("waits for room on the data folder's disk, next in line, "), "{sentence}");
    assert_eq!(fault.as_deref(), Some("3 bytes free"));
    assert!(matches!(rig.dev_run_row(runs).status, DevRunStatus::Ended { .. }), "what ran went on to its limit");
    assert_eq!(rig.exec_of(waits), None, "the device is free, and nothing is granted");

    rig.wait_for(rig.rig.tell_disk_room(None));
    rig.advance(Span::seconds(1));

    assert!(rig.exec_of(waits).is_some(), "it goes on when there is room");
    assert_eq!(rig.view().records_fault, None);
    assert!(rig.wait_for(rig.rig.submit(known)).is_ok());
    rig.assert_sound();
}
