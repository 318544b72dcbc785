//! A whole program around a rig with ports of its own: what an embedder writes who does not use `host`.
//!
//! Its device is a thread of this process, its revisions are names of Rust functions, and its log is a `Vec`. It asks
//! for one development run and submits one change, follows both to their end and prints them:
//!
//! ```text
//! cargo run -p thermite-actors --example own_ports
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{FutureExt, LocalBoxFuture};
use tokio::process::Command;
use tokio::sync::{Notify, watch};

use thermite_actors::ports::{
    Batch, Clock, DeviceFacts, DeviceFault, Executor, FromRecords, Ids, Launched, MemberPorts, NoInputLog, Past,
    Records, RecordsFault, RigSettings, RunRequest, StageRef, StopProof, TargetDriver, WhichEnded, Workspaces,
};
use thermite_actors::rig::{AskDevRun, No, Rig, RigSetup, SubmitJob};
use thermite_actors::view::RigHappening;
use thermite_core::block::{BlockTimes, Order, Pair, Side};
use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ended::Ended;
use thermite_core::ids::{HoldId, JobId, MemberId};
use thermite_core::job::PinnedChange;
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::readiness::{Clocks, Reading};
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Moment;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // All policy actors live on this thread; the handle of the rig may go anywhere.
    actix::System::new().block_on(async {
        let clock = Rc::new(SinceStart { start: Instant::now() });
        let device = Rc::new(Device { clock: clock.clone(), running: Rc::default() });
        let rig = Rig::start(RigSetup {
            members: vec![MemberPorts { member: MemberId(0), driver: device.clone(), executor: device }],
            bench: None,
            workspaces: Rc::new(Functions),
            records: Rc::new(Log::default()),
            clock,
            ids: Rc::new(Names::default()),
            inputs: Rc::new(NoInputLog),
            settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: 2 },
            runners: thermite_actors::runners::RunnerSetup::default(),
        })
        .await?;
        let mut events = rig.events();
        let request = RunRequest {
            repo: PathBuf::from("."),
            kit: PathBuf::from("kit.toml"),
            champion: "slow".to_owned(),
            lanes: vec![PathBuf::from(".")],
        };
        let run = rig.start_run(request, None).await?;

        // A lane tries something on the device. Its number never counts.
        let argv = vec!["echo".to_owned(), "hello from the lane".to_owned()];
        let ask = AskDevRun { run, lane: 1, argv, env: Vec::new(), caller: Caller::Detached, key: None };
        let queued = rig.ask(ask).await?;
        println!("development run: {:?}", rig.dev_run_end(queued.dev_run).await?);

        // The judge measures a change against the champion, to a verdict.
        let submit = SubmitJob { run, champion: None, change: "quick".to_owned(), key: None };
        let job = rig.submit(submit).await?.job;
        loop {
            if let RigHappening::Recorded { fact } = &events.recv().await?.what
                && let LogEntry::JobEnded { job: ended, outcome, .. } = &**fact
                && *ended == job
            {
                println!("job: {outcome:?}");
                break;
            }
        }
        println!("champion: {}", rig.view().await?.runs[0].champion);
        rig.end().await;
        Ok(())
    })
}

/// What is measured: the sum of the first numbers, in two ways.
fn measured(revision: &str) -> u64 {
    let numbers = if revision.ends_with("quick") { 200_000 } else { 1_000_000 };
    (0..numbers).fold(0, |sum: u64, number| std::hint::black_box(sum.wrapping_add(number)))
}

/// Milliseconds since the program began. A rig that lives on through suspend takes CLOCK_BOOTTIME.
struct SinceStart {
    start: Instant,
}

impl Clock for SinceStart {
    fn now(&self) -> Moment {
        Moment::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn wall_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Names that sort by their making, and luck from the operating system.
#[derive(Default)]
struct Names {
    given: Cell<u64>,
}

impl Ids for Names {
    fn uuid(&self) -> uuid::Uuid {
        self.given.set(self.given.get() + 1);
        uuid::Uuid::from_u64_pair(self.given.get(), self.seed())
    }

    fn seed(&self) -> u64 {
        let mut bytes = [0; 8];
        let luck = std::fs::File::open("/dev/urandom").and_then(|mut urandom| urandom.read_exact(&mut bytes));
        luck.expect("/dev/urandom can always be read");
        u64::from_le_bytes(bytes)
    }
}

/// A log that lives as long as the program. What is to outlive it answers once it is durable.
#[derive(Default)]
struct Log {
    entries: RefCell<Vec<LogEntry>>,
    ended: RefCell<Vec<Ended>>,
}

impl Records for Log {
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.entries.borrow_mut().extend(batch.entries);
        self.ended.borrow_mut().extend(batch.ended);
        std::future::ready(Ok(())).boxed_local()
    }

    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>> {
        std::future::ready(Ok(self.entries.borrow().clone().into())).boxed_local()
    }

    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>> {
        let found = which.among(&self.ended.borrow());
        std::future::ready(Ok(FromRecords::Kept(found))).boxed_local()
    }
}

/// Revisions that are names of functions.
struct Functions;

impl Workspaces for Functions {
    fn open(&self, request: RunRequest) -> LocalBoxFuture<'static, Result<RunSpec, No>> {
        // Large effects on a machine that does other things as well.
        let contract = Contract { plan_effect: 1.5_f64.ln(), gate: 1.2_f64.ln(), ..Contract::default() };
        let kit = Kit {
            name: "functions".to_owned(),
            target: Target::Cpu,
            build: None,
            check: None,
            measure: Argv(vec!["measured".to_owned()]),
            timer: Timer::Wall,
            editable: vec!["*".to_owned()],
            artefacts: Vec::new(),
            models: Vec::new(),
            contract,
        };
        let RunRequest { repo, kit: kit_path, champion, lanes } = request;
        let spec = RunSpec { repo, kit_path, kit, kit_hash: "functions".to_owned(), champion, lanes };
        std::future::ready(Ok(spec)).boxed_local()
    }

    fn pin(&self, run: RunSpec, champion: String, change: String) -> LocalBoxFuture<'static, Result<PinnedChange, No>> {
        let pinned = PinnedChange {
            champion,
            candidate: change.clone(),
            candidate_tree: change.clone(),
            paths: vec![change.clone()],
            change,
            kit: run.kit,
            kit_hash: run.kit_hash,
        };
        std::future::ready(Ok(pinned)).boxed_local()
    }

    fn check_command(&self, spec: &DevRunSpec) -> Result<(), Refusal> {
        if spec.argv.is_empty() { Err(Refusal::EmptyCommand) } else { Ok(()) }
    }

    fn forget(&self, _: JobId) -> LocalBoxFuture<'static, ()> {
        std::future::ready(()).boxed_local()
    }
}

/// This machine, one thing at a time. Of a development run it knows its first process alone: to end all that a program
/// starts, and prove it gone, takes what `host` has.
struct Device {
    clock: Rc<SinceStart>,
    running: Rc<RefCell<BTreeMap<HoldId, Running>>>,
}

#[derive(Clone)]
struct Running {
    kill: Rc<Notify>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Running {
    async fn exited(mut self) -> Exit {
        let ended = self.exit.wait_for(Option::is_some).await.map(|exit| *exit);
        ended.ok().flatten().unwrap_or(Exit::Signal(9))
    }
}

impl TargetDriver for Device {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            target: Target::Cpu,
            uuid: "this-process".to_owned(),
            model: "a thread".to_owned(),
            driver: "own_ports 1".to_owned(),
            clock_policy: "as it is".to_owned(),
            cpus: "any".to_owned(),
            cores: 1,
        }
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        std::future::ready(Ok(reading(&self.clock))).boxed_local()
    }
}

/// A reading without signals: a driver that looks at nothing has a device that is always ready.
fn reading(clock: &SinceStart) -> Reading {
    let ms = clock.now().as_millis();
    let clocks = Clocks { boot_ms: ms, monotonic_ms: ms, wall_ms: clock.wall_ms() };
    Reading { at: clock.now(), signals: Vec::new(), throttle: Vec::new(), clocks }
}

impl Executor for Device {
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof> {
        // Nothing of it outlives the program.
        std::future::ready(StopProof::Empty).boxed_local()
    }

    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>> {
        let running = self.running.clone();
        async move {
            let mut command = Command::new(&spec.argv[0]);
            command.args(&spec.argv[1..]).envs(spec.env).current_dir(spec.worktree).stdin(Stdio::null());
            let mut child = command.kill_on_drop(true).spawn().map_err(|fault| fault.to_string())?;
            let pid = child.id().unwrap_or(0);
            let kill = Rc::new(Notify::new());
            let (ended, exit) = watch::channel(None);
            running.borrow_mut().insert(hold, Running { kill: kill.clone(), exit });
            tokio::task::spawn_local(async move {
                let exit = tokio::select! {
                    status = child.wait() => status.ok().and_then(|status| status.code()).map_or(Exit::Signal(9), Exit::Code),
                    () = kill.notified() => {
                        // Waits for its end as well.
                        drop(child.kill().await);
                        Exit::Signal(9)
                    }
                };
                ended.send_replace(Some(exit));
            });
            Ok(Launched { pid, containment: "none".to_owned() })
        }
        .boxed_local()
    }

    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit> {
        let running = self.running.borrow().get(&hold).cloned();
        async move {
            match running {
                Some(running) => running.exited().await,
                None => Exit::Signal(9),
            }
        }
        .boxed_local()
    }

    fn stop(&self, hold: HoldId, _gently: bool) -> LocalBoxFuture<'static, StopProof> {
        let running = self.running.borrow_mut().remove(&hold);
        async move {
            if let Some(running) = running {
                running.kill.notify_one();
                running.exited().await;
            }
            StopProof::Empty
        }
        .boxed_local()
    }

    fn step(&self, _: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport> {
        let clock = self.clock.clone();
        async move {
            match step {
                StageStep::Prepare => StepReport::Prepared,
                StageStep::Build { side } => StepReport::Built { side, artefact: "none".to_owned() },
                StageStep::Check { side } => StepReport::Checked { side },
                StageStep::Look => StepReport::Looked { reading: reading(&clock) },
                StageStep::Block { pair, order } => {
                    let (started, before) = (clock.now(), reading(&clock));
                    let programs = [stage.job.pinned.champion.clone(), stage.job.pinned.candidate.clone()];
                    // Measuring takes a thread of its own: the policy must go on.
                    match tokio::task::spawn_blocking(move || block(&programs, pair, order)).await {
                        Ok(ns) => {
                            let after = reading(&clock);
                            StepReport::Timed { times: BlockTimes { ns, started, before, after } }
                        }
                        Err(lost) => StepReport::NotCarriedOut { why: lost.to_string() },
                    }
                }
            }
        }
        .boxed_local()
    }
}

/// One warm-up of each program, then four timed runs in the order the coin chose.
fn block(programs: &[String; 2], pair: Pair, order: Order) -> [u64; 4] {
    let run = |label: Side| {
        let program = match pair.program(label) {
            Side::Champion => &programs[0],
            Side::Change => &programs[1],
        };
        let began = Instant::now();
        std::hint::black_box(measured(program));
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    let sides = order.sides();
    run(sides[0]);
    run(sides[1]);
    sides.map(run)
}
