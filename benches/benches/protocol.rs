//! What the actors cost: development runs and submits a second through a whole rig with scripted ports.
//!
//! Time is virtual and ports answer at once, so that only the protocol itself is paid for.

use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use thermite_actors::ports::{InputLog, NoInputLog, RigSettings};
use thermite_actors::rig::{AskDevRun, Rig, RigSetup, SubmitJob};
use thermite_actors::testing::{
    DevRunScript, MemoryRecords, PausedClock, ScriptedDevice, ScriptedWorkspaces, SeededIds, VirtualTime,
};
use thermite_core::contract::Target;
use thermite_core::ids::{MemberId, RunId};
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::time::{Moment, Span};
use thermite_svc::input_log::{FileInputLog, Sizes};

/// A fresh rig with a run of 16 lanes, whose development runs end at once.
async fn start(inputs: Rc<dyn InputLog>) -> (Rig, RunId) {
    let clock = Rc::new(PausedClock::new(Moment::from_millis(1_000), 1_750_000_000_000));
    let device = ScriptedDevice::new(Target::Cpu, clock.clone(), 1);
    device.script_dev_runs(|_| DevRunScript::lasting(Span::ZERO));
    let setup = RigSetup {
        members: vec![device.ports(MemberId(0))],
        bench: None,
        workspaces: Rc::new(ScriptedWorkspaces::new(Target::Cpu)),
        records: Rc::new(MemoryRecords::new()),
        clock,
        ids: Rc::new(SeededIds::new(1)),
        inputs,
        settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: 16 },
        runners: thermite_actors::runners::RunnerSetup::default(),
    };
    let rig = Rig::start(setup).await.expect("records in memory can be written");
    let run = rig.start_run(ScriptedWorkspaces::request(16), None).await.expect("a first run is started");
    (rig, run)
}

fn ask(run: RunId, lane: u32) -> AskDevRun {
    AskDevRun { run, lane, argv: vec!["true".to_owned()], env: Vec::new(), caller: Caller::Detached, key: None }
}

/// The same with the input log on disk, its thread beside the policy's (rule D10).
fn logged(rounds: u64) -> Duration {
    let place = tempfile::tempdir().expect("a folder can be made");
    let log = Rc::new(FileInputLog::open(place.path(), Sizes::default()).expect("a thread can be had"));
    let took = dev_runs(rounds, log.clone());
    log.close();
    took
}

/// One lane asks again and again; each asking waits for its end.
fn one_after_another(rounds: u64) -> Duration {
    dev_runs(rounds, Rc::new(NoInputLog))
}

fn dev_runs(rounds: u64, inputs: Rc<dyn InputLog>) -> Duration {
    VirtualTime::new().block_on(async {
        let (rig, run) = start(inputs).await;
        let began = Instant::now();
        for _ in 0..rounds {
            let queued = rig.ask(ask(run, 1)).await.expect("the lane is idle");
            rig.dev_run_end(queued.dev_run).await.expect("it ends");
        }
        began.elapsed()
    })
}

/// All 16 lanes ask at once, and then wait for their ends.
fn all_lanes_at_once(rounds: u64) -> Duration {
    VirtualTime::new().block_on(async {
        let (rig, run) = start(Rc::new(NoInputLog)).await;
        let began = Instant::now();
        for _ in 0..rounds {
            let lanes = (1..=16).map(|lane| {
                let rig = rig.clone();
                async move {
                    let queued = rig.ask(ask(run, lane)).await.expect("the lane is idle");
                    rig.dev_run_end(queued.dev_run).await.expect("it ends");
                }
            });
            futures_util::future::join_all(lanes).await;
        }
        began.elapsed()
    })
}

/// Jobs are submitted one after another; each waits until it is durable and nobody passes it.
fn submits(rounds: u64) -> Duration {
    VirtualTime::new().block_on(async {
        let (rig, run) = start(Rc::new(NoInputLog)).await;
        let began = Instant::now();
        for number in 0..rounds {
            let submit = SubmitJob { run, champion: None, change: format!("equal-{number}"), key: None };
            rig.submit(submit).await.expect("the run takes jobs");
        }
        began.elapsed()
    })
}

/// The CPU time that this thread takes for it: the log's own thread does not count.
fn cpu_of(work: impl FnOnce() -> Duration) -> Duration {
    let cpu = || {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
    };
    let began = cpu();
    work();
    cpu() - began
}

fn protocol(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("protocol");
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500)).sample_size(20);
    group.throughput(Throughput::Elements(1));
    group.bench_function("development runs, one after another", |bencher| bencher.iter_custom(one_after_another));
    group.bench_function("development runs, one after another, inputs logged", |bencher| bencher.iter_custom(logged));
    group.bench_function("submits, one after another", |bencher| bencher.iter_custom(submits));
    group.throughput(Throughput::Elements(16));
    group.bench_function("development runs of 16 lanes at once", |bencher| bencher.iter_custom(all_lanes_at_once));
    group.finish();

    // Both in one run, turn by turn: what the log costs the policy's thread in CPU time, as a ratio.
    let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..10 {
        without += cpu_of(|| one_after_another(500));
        with += cpu_of(|| logged(500));
    }
    println!(
        "input log: {:.2} times the policy thread's CPU time with it as without",
        with.as_secs_f64() / without.as_secs_f64()
    );
}

criterion_group!(benches, protocol);
criterion_main!(benches);
