//! `why` says of every waiter the sentence that every other door says, and of what is over who and what was behind it
//! (rules A9, D10).

use thermite_actors::rig::No;
use thermite_actors::testing::{DevRunScript, Luck};
use thermite_actors::view::JobStatus;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::job::StageKind;
use thermite_core::refusal::Refusal;
use thermite_core::run::RunState;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;
use thermite_core::why::{self, Explanation};

use crate::scenario::{Scenario, endless};

#[test]
fn why_says_the_sentence_of_the_view_in_every_state_of_a_mix() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(50)));
    rig.device.script_steps(|stage, step| match step {
        StageStep::Prepare if stage.attempt == 1 => {
            Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
        }
        _ => None,
    });
    let mut luck = Luck::new(5);
    let mut compared = 0;
    for round in 0..240 {
        for lane in 1..=3 {
            drop(rig.ask(lane));
        }
        if round % 6 == 0 {
            rig.job(&format!("equal-{round}"));
        }
        rig.device.be_busy(luck.once_in(4).then_some("load1"));
        if round == 20 {
            rig.change_run(RunState::Paused).expect("it runs");
        }
        if round == 30 {
            rig.change_run(RunState::Running).expect("it is paused");
        }
        rig.advance(luck.span(Span::ZERO, Span::seconds(90)));
        let view = rig.view();
        for row in &view.dev_runs {
            if let Some((_, sentence)) = row.status.wait() {
                assert_eq!(explain(&rig, row.dev_run).says, sentence);
                compared += 1;
            }
        }
        for row in &view.jobs {
            if let Some(sentence) = row.status.sentence() {
                assert_eq!(explain(&rig, row.job).says, sentence);
                compared += 1;
            }
        }
        for row in &view.devices {
            assert_eq!(explain(&rig, row.member).says, why::device_state(&row.state, view.now));
        }
    }
    assert!(compared > 150, "{compared}");
}

#[test]
fn one_that_gave_up_is_told_who_had_the_device_at_that_moment() {
    let rig = Scenario::one_shared_device();
    rig.device.steps_take(Span::minutes(20), Span::seconds(1));
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(1));
    let behind_the_judge = rig.dev_run(1);
    rig.end_of(behind_the_judge);

    let told = explain(&rig, behind_the_judge);

    assert_eq!(told.says, "the judge kept the device busy; try again later");
    let held = format!("at that moment the judge held device 0 for job {job}");
    assert!(told.because.contains(&held), "{told:?}");
    assert!(told.because.contains(&"it never had a device, and nothing of it ran".to_owned()), "{told:?}");
}

#[test]
fn one_that_waited_for_a_lane_is_told_which() {
    let rig = Scenario::begin(crate::scenario::Beginning {
        set: Box::new(|device, workspaces| {
            endless(device);
            workspaces.change_kit(|kit| kit.contract.dev_run_max = Some(Span::minutes(30)));
        }),
        ..crate::scenario::Beginning::default()
    });
    let holder = rig.dev_run(2);
    let waits = rig.dev_run(1);
    rig.end_of(waits);

    let told = explain(&rig, waits);
    let device = explain(&rig, "0");

    assert_eq!(told.says, "another lane's dev run held the device; try again later");
    let held = format!("at that moment lane 2 held device 0 for development run {holder}");
    assert!(told.because.contains(&held), "{told:?}");
    assert!(
        device.because.contains(&format!("hold 1 of device 0 is for development run {holder} of lane 2")),
        "{device:?}"
    );
    assert!(device.says.starts_with("held by lane 2, runs since"), "{device:?}");
}

#[test]
fn who_stopped_it_first_is_told() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let cancelled = rig.dev_run(1);
    rig.wait_for(rig.rig.cancel(cancelled)).expect("it runs");
    let limited = rig.dev_run(1);
    assert!(matches!(rig.end_of(limited), DevRunEnd::LimitReached { .. }));

    let told = [explain(&rig, cancelled), explain(&rig, limited)];

    assert_eq!(told[0].says, "cancelled");
    assert!(told[0].because[1].starts_with("the first cause of its stop: its lane cancelled it"), "{told:?}");
    assert_eq!(told[1].says, "ended at its limit of 5 min");
    assert_eq!(told[1].because[1], "the first cause of its stop: its limit (rule A5)");
}

#[test]
fn a_job_tells_its_failed_attempts_and_what_became_of_the_champion() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|stage, step| match step {
        StageStep::Prepare
            if stage.attempt == 1 && stage.stage == StageKind::Screening && stage.job.pinned.change == "faster-1" =>
        {
            Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
        }
        _ => None,
    });
    let (first, second) = (rig.job("faster-1"), rig.job("faster-2"));
    rig.outcome_of(second);

    let told = [explain(&rig, first), explain(&rig, second)];
    let run = explain(&rig, rig.run);

    assert_eq!(told[0].says, "win");
    assert!(told[0].because.iter().any(|line| line.starts_with("infrastructure failure 1 of at most 5: ")), "{told:?}");
    assert!(told[0].because.iter().any(|line| line.starts_with("the champion moved to ")), "{told:?}");
    assert_eq!(told[0].records.len(), 2);
    assert_eq!(told[1].says, "win, not adopted: the champion moved");
    assert!(told[1].because.iter().any(|line| line.starts_with("the champion stayed: it had become ")), "{told:?}");
    assert_eq!(run.says, "running, with 0 jobs and 0 development runs under way");
    assert!(run.because[0].ends_with(&format!("won by job {first}")), "{run:?}");
    for (row, stages) in [(first, 2), (second, 2)] {
        let JobStatus::Ended { .. } = rig.job_row(row).status else { panic!("it is over") };
        let records = rig.records.verdict_records();
        let of_job: Vec<_> = records.iter().filter(|record| record.facts.job == row).collect();
        assert_eq!(of_job.len(), stages);
        for record in of_job {
            let lines = why::of_record(record);
            assert!(lines[0].contains("the evidence that it is faster crossed: ln W"), "{lines:?}");
            assert!(lines[1].ends_with("no block was thrown away"), "{lines:?}");
        }
    }
}

#[test]
fn thrown_blocks_are_told_by_cause_and_count() {
    let rig = Scenario::one_shared_device();
    let lost = std::cell::Cell::new(0);
    rig.device.script_steps(move |_, step| match step {
        StageStep::Block { order, .. } if lost.get() < 2 => {
            lost.set(lost.get() + 1);
            Some(StepReport::Lost { side: order.sides()[0], why: "it was killed".to_owned() })
        }
        _ => None,
    });
    let (lossy, plain) = (rig.job("slower-1"), rig.job("slower-2"));
    rig.outcome_of(plain);

    // The first job's noise blocks were lost; of the second, its own.
    let records = rig.records.verdict_records();
    let lines: Vec<_> = records.iter().filter(|record| record.facts.job == lossy).flat_map(why::of_record).collect();

    assert!(lines[0].contains("futility: the evidence against a gain of +1.0 % reached ln F"), "{lines:?}");
}

#[test]
fn what_nothing_has_for_a_name_is_refused_with_that_name() {
    let rig = Scenario::one_shared_device();
    for name in ["nonsense", "7", "00000000-0000-0000-0000-000000000000"] {
        let refused = rig.wait_for(rig.rig.why(name.to_owned())).expect_err("nothing has that name");

        assert_eq!(refused, No::Refusal(Refusal::UnknownId { id: name.to_owned() }));
        assert_eq!(refused.to_string(), format!("{name} is no run, job, development run or device of this rig"));
    }
    let by_uuid = explain(&rig, "scripted-0");
    assert!(matches!(rig.view().devices[0].state, DeviceView::Ready));
    assert_eq!(by_uuid.says, "free");
}

fn explain(rig: &Scenario, id: impl ToString) -> Explanation {
    rig.wait_for(rig.rig.why(id.to_string())).expect("it is the rig's")
}
