//! What a waiter is told, word for word (rule A9). Sentences that other tests reach are asserted there.

use thermite_actors::testing::{DevRunScript, StopScript};
use thermite_actors::view::{DevRunStatus, JobStatus};
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;
use thermite_core::wait::WaitEnd;

use crate::scenario::{Beginning, Scenario, endless};

#[test]
fn a_development_run_behind_the_judge() {
    let rig = Scenario::one_shared_device();
    let job = rig.job("equal-1");
    rig.advance(Span::seconds(10));
    let (first, second) = (rig.dev_run(1), rig.dev_run(2));
    rig.advance(Span::seconds(5));

    let sentences = [rig.sentence(first), rig.sentence(second)];

    assert_eq!(
        sentences,
        [
            format!(
                "waits for the judge, which holds device 0 for job {job}, next in line, since 5.0 s, at most 9 min 55 s more"
            ),
            format!(
                "waits for the judge, which holds device 0 for job {job}, 1 ahead, since 5.0 s, at most 9 min 55 s more"
            ),
        ]
    );
}

#[test]
fn a_development_run_behind_a_job_that_rests() {
    let rig = Scenario::one_shared_device();
    rig.device.script_steps(|_, step| match step {
        StageStep::Prepare => Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() }),
        _ => None,
    });
    let job = rig.job("equal-1");
    let dev_run = rig.dev_run(1);
    rig.advance(Span::millis(1_500));

    let sentences = [rig.sentence(dev_run), rig.job_sentence(job)];

    assert_eq!(
        sentences,
        [
            "waits for the judge, which has 1 job, next in line, since 1.5 s, at most 9 min 58 s more",
            "waits for its next attempt after infrastructure failure 1, next in line, since 1.5 s, at most 34 s more",
        ]
    );
}

#[test]
fn development_runs_behind_another_lane() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let holder = rig.dev_run(3);
    rig.advance(Span::seconds(100));
    let (first, second) = (rig.dev_run(1), rig.dev_run(2));

    let sentences = [rig.sentence(first), rig.sentence(second)];

    assert_eq!(
        sentences,
        [
            format!(
                "waits for lane 3, which holds device 0 for development run {holder}, next in line, since 0.0 s, at most 10 \
                 min more"
            ),
            format!(
                "waits for lane 3, which holds device 0 for development run {holder}, 1 ahead, since 0.0 s, at most 10 min \
                 more"
            ),
        ]
    );
}

#[test]
fn anyone_while_leftovers_are_looked_for() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|device, _| device.script_sweep(StopScript::ProvedAfter(Span::seconds(5)))),
        ..Beginning::default()
    });
    let (dev_run, job) = (rig.dev_run(1), rig.job("equal-1"));

    let sentences = [rig.sentence(dev_run), rig.job_sentence(job)];

    assert_eq!(
        sentences,
        [
            "waits for a ready device: what earlier runs left behind is being looked for, next in line, since 0.0 s, at most \
             10 min more",
            "waits for a ready device: what earlier runs left behind is being looked for, next in line, since 0.0 s, no \
             latest moment: no device is ready",
        ]
    );
}

#[test]
fn jobs_behind_one_that_builds_and_behind_others() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|_, workspaces| {
            workspaces.change_kit(|kit| kit.contract.measure_max = Span::seconds(1));
        }),
        ..Beginning::default()
    });
    let jobs = ["equal-1", "equal-2", "equal-3"].map(|change| rig.job(change));

    let building = [rig.job_sentence(jobs[1]), rig.job_sentence(jobs[2])];
    rig.advance(Span::seconds(10));
    let timing = rig.job_sentence(jobs[1]);

    let end = |sentence: &str| sentence.split(", at most").next().expect("a sentence has a beginning").to_owned();
    assert_eq!(end(&building[0]), format!("waits for the build of job {}, 1 ahead, since 0.0 s", jobs[0]));
    assert_eq!(end(&building[1]), "waits for 2 asked for earlier, 2 ahead, since 0.0 s");
    assert_eq!(end(&timing), "waits for 1 asked for earlier, 1 ahead, since 10 s");
}

#[test]
fn every_development_run_carries_that_its_number_never_counts() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(1)));
    let dev_run = rig.dev_run(1);

    let running = rig.dev_run_row(dev_run).note;
    rig.end_of(dev_run);

    assert_eq!(running, "diagnostic only: this number never counts");
    assert_eq!(rig.dev_run_row(dev_run).note, running);
}

#[test]
fn a_jobs_certificate_is_kept() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|device, workspaces| {
            device.script_dev_runs(|_| DevRunScript::endless());
            workspaces.change_kit(|kit| kit.contract.measure_max = Span::seconds(1));
        }),
        ..Beginning::default()
    });
    rig.dev_run(1);
    let job = rig.job("equal-1");
    let JobStatus::Waiting { wait, .. } = rig.job_row(job).status else { panic!("a lane holds the device") };
    let WaitEnd::Latest { at } = wait.end else { panic!("the lane's limit ends the wait") };

    let mut began = None;
    while began.is_none() {
        rig.advance(Span::seconds(1));
        began = matches!(rig.job_row(job).status, JobStatus::Measuring { .. }).then(|| rig.now());
    }

    assert!(began.expect("the loop ends with it") <= at);
}

#[test]
fn a_running_development_run_says_when_it_is_ended_at_the_latest() {
    let rig = Scenario::one_shared_device();
    endless(&rig.device);
    let dev_run = rig.dev_run(1);

    let DevRunStatus::Running { since, limit_at, .. } = rig.dev_run_row(dev_run).status else {
        panic!("the device was free")
    };

    assert_eq!(limit_at, Some(since + Span::minutes(5)));
}
