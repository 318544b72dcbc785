//! A device that does what it is told: its driver and its executor in one, with a diary.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use tokio::sync::Notify;
use tokio::time::sleep;

use thermite_core::block::{BlockTimes, Order, Pair, Side};
use thermite_core::contract::Target;
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::{DevRunId, HoldId, JobId, MemberId};
use thermite_core::job::StageKind;
use thermite_core::limits;
use thermite_core::readiness::{Clocks, Reading, Signal, SignalState, names};
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};

use crate::ports::{
    Clock, DeviceFacts, DeviceFault, Executor, Launched, MemberPorts, StageRef, StopProof, TargetDriver,
};

use super::Luck;

mod driver;

/// How a development run goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevRunScript {
    /// How it starts.
    pub start: StartScript,
    /// How long it runs by itself; none where only a stop ends it.
    pub runs: Option<Span>,
    /// How it exits by itself.
    pub exit: Exit,
    /// How its stop goes.
    pub stop: StopScript,
}

impl DevRunScript {
    /// One that starts at once, runs that long, exits with 0 and leaves nothing behind.
    pub fn lasting(runs: Span) -> DevRunScript {
        DevRunScript {
            start: StartScript::After(Span::ZERO),
            runs: Some(runs),
            exit: Exit::Code(0),
            stop: StopScript::ProvedAfter(Span::ZERO),
        }
    }

    /// One that starts at once and runs until it is stopped.
    pub fn endless() -> DevRunScript {
        DevRunScript { runs: None, ..DevRunScript::lasting(Span::ZERO) }
    }
}

/// How a start goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartScript {
    /// It runs after that long.
    After(Span),
    /// It fails after that long.
    Fails(Span, String),
    /// It is never answered, until it is stopped.
    Hangs,
}

/// How a stop or a sweep goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopScript {
    /// Nothing is left, proved after that long.
    ProvedAfter(Span),
    /// It is given up after that long.
    NotProvedAfter(Span, String),
    /// It is never answered.
    Hangs,
}

/// What a device was asked for, or did.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A sweep was asked for.
    Sweep,
    /// A development run is to be prepared and started.
    Start(DevRunId),
    /// It runs.
    Exec(DevRunId),
    /// Its first process ended.
    Exited(Exit),
    /// Everything of the hold is to be ended.
    Stop {
        /// Whether SIGTERM and grace come first.
        gently: bool,
    },
    /// Nothing of the hold is left.
    Emptied,
    /// The device itself is to be proved released; noted from the moment on that a script says how that goes.
    Release,
    /// A step of a stage is to be carried out.
    Step {
        /// The job.
        job: JobId,
        /// Which stage.
        stage: StageKind,
        /// Which attempt.
        attempt: u32,
        /// The step.
        step: StageStep,
    },
}

/// One line of a device's diary.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// When.
    pub at: Moment,
    /// Under which hold; none for a sweep.
    pub hold: Option<HoldId>,
    /// What.
    pub call: Call,
}

type DevRuns = Rc<dyn Fn(&DevRunSpec) -> DevRunScript>;
type Steps = Rc<dyn Fn(&StageRef, &StageStep) -> Option<StepReport>>;

/// A device whose development runs and blocks follow a script.
///
/// Without one, a development run lasts 1 s, and a change is what the first word of its name says: `faster` by 5 %,
/// `slower` by 5 %, `broken` where its measured run fails; any other is as fast as its champion.
#[derive(Clone)]
pub struct ScriptedDevice {
    inner: Rc<Inner>,
}

struct Inner {
    clock: Rc<dyn Clock>,
    facts: DeviceFacts,
    said: driver::Said,
    dev_runs: RefCell<DevRuns>,
    steps: RefCell<Steps>,
    set_up_takes: Cell<Span>,
    block_takes: Cell<Span>,
    judge_stop: RefCell<StopScript>,
    sweep: RefCell<StopScript>,
    luck: RefCell<Luck>,
    live: RefCell<BTreeMap<HoldId, Rc<Live>>>,
    diary: RefCell<Vec<Happened>>,
    faults: RefCell<Vec<String>>,
}

/// A hold of which something may be left.
struct Live {
    script: Option<(DevRunId, DevRunScript)>,
    stopping: Flag,
}

/// Something that becomes true once.
#[derive(Default)]
struct Flag {
    up: Cell<bool>,
    raised: Notify,
}

impl Flag {
    fn raise(&self) {
        self.up.set(true);
        self.raised.notify_waiters();
    }

    async fn wait(&self) {
        while !self.up.get() {
            self.raised.notified().await;
        }
    }
}

impl ScriptedDevice {
    /// A device of that kind; what its times vary by follows from the seed.
    pub fn new(target: Target, clock: Rc<dyn Clock>, seed: u64) -> ScriptedDevice {
        ScriptedDevice::with_facts(
            clock,
            seed,
            DeviceFacts {
                target,
                uuid: "scripted-0".to_owned(),
                model: "scripted".to_owned(),
                driver: "scripted 1".to_owned(),
                clock_policy: "fixed".to_owned(),
                cpus: "0-3".to_owned(),
                cores: 4,
            },
        )
    }

    /// A card of that UUID.
    pub fn card(uuid: &str, clock: Rc<dyn Clock>, seed: u64) -> ScriptedDevice {
        let plain = ScriptedDevice::new(Target::CudaGpu, Rc::clone(&clock), seed);
        ScriptedDevice::with_facts(clock, seed, DeviceFacts { uuid: uuid.to_owned(), ..plain.facts() })
    }

    /// A device of those facts.
    pub fn with_facts(clock: Rc<dyn Clock>, seed: u64, facts: DeviceFacts) -> ScriptedDevice {
        let dev_runs: DevRuns = Rc::new(|_| DevRunScript::lasting(Span::seconds(1)));
        let steps: Steps = Rc::new(|_, _| None);
        let inner = Inner {
            clock,
            facts,
            said: driver::Said::default(),
            dev_runs: RefCell::new(dev_runs),
            steps: RefCell::new(steps),
            set_up_takes: Cell::new(Span::millis(500)),
            block_takes: Cell::new(Span::millis(600)),
            judge_stop: RefCell::new(StopScript::ProvedAfter(Span::ZERO)),
            sweep: RefCell::new(StopScript::ProvedAfter(Span::ZERO)),
            luck: RefCell::new(Luck::new(seed)),
            live: RefCell::new(BTreeMap::new()),
            diary: RefCell::new(Vec::new()),
            faults: RefCell::new(Vec::new()),
        };
        ScriptedDevice { inner: Rc::new(inner) }
    }

    /// The device as the rig's member of that place.
    pub fn ports(&self, member: MemberId) -> MemberPorts {
        MemberPorts { member, driver: Rc::new(self.clone()), executor: Rc::new(self.clone()) }
    }

    /// Says how development runs go that start from here on.
    pub fn script_dev_runs(&self, script: impl Fn(&DevRunSpec) -> DevRunScript + 'static) {
        *self.inner.dev_runs.borrow_mut() = Rc::new(script);
    }

    /// Answers steps of a stage from here on; none where a step goes as usual.
    pub fn script_steps(&self, script: impl Fn(&StageRef, &StageStep) -> Option<StepReport> + 'static) {
        *self.inner.steps.borrow_mut() = Rc::new(script);
    }

    /// Says how long each step of setting up takes from here on, and each block.
    pub fn steps_take(&self, set_up: Span, block: Span) {
        self.inner.set_up_takes.set(set_up);
        self.inner.block_takes.set(block);
    }

    /// Says how the stop of a judge's stage goes from here on.
    pub fn script_judge_stop(&self, script: StopScript) {
        *self.inner.judge_stop.borrow_mut() = script;
    }

    /// Says how sweeps go from here on.
    pub fn script_sweep(&self, script: StopScript) {
        *self.inner.sweep.borrow_mut() = script;
    }

    /// Everything that it was asked for and did, in order.
    pub fn diary(&self) -> Vec<Happened> {
        self.inner.diary.borrow().clone()
    }

    /// Takes the diary so far out, for programs that run long.
    pub fn take_diary(&self) -> Vec<Happened> {
        self.inner.diary.take()
    }

    /// What no rig may ever ask of a device: two holders at once, work under a number that is used up (rule A1).
    pub fn faults(&self) -> Vec<String> {
        self.inner.faults.borrow().clone()
    }
}

impl Inner {
    fn note(&self, hold: Option<HoldId>, call: Call) {
        self.diary.borrow_mut().push(Happened { at: self.clock.now(), hold, call });
    }

    /// Takes work under a hold, and notes what is wrong with that.
    fn begin(&self, hold: HoldId, script: Option<(DevRunId, DevRunScript)>) -> Rc<Live> {
        let mut live = self.live.borrow_mut();
        let again = script.is_some() && live.contains_key(&hold);
        let others: Vec<HoldId> = live.keys().copied().filter(|other| *other != hold).collect();
        if again {
            self.faults.borrow_mut().push(format!("{hold} was started twice"));
        }
        if !others.is_empty() {
            self.faults.borrow_mut().push(format!("{hold} began beside {others:?}"));
        }
        let used_up = |line: &Happened| line.hold == Some(hold) && matches!(line.call, Call::Stop { .. });
        if self.diary.borrow().iter().rev().take_while(|line| line.hold == Some(hold)).any(used_up) {
            self.faults.borrow_mut().push(format!("{hold} was used after its stop"));
        }
        live.entry(hold).or_insert_with(|| Rc::new(Live { script, stopping: Flag::default() })).clone()
    }

    fn reading(&self) -> Reading {
        self.said.reading(self.clock.now(), self.clock.wall_ms())
    }

    /// Four runs of about 100 ms; they vary by about 0.2 %.
    fn times(&self, order: Order, speed_up: f64) -> [u64; 4] {
        let mut luck = self.luck.borrow_mut();
        order.sides().map(|side| {
            let vary = (luck.below(4_001) as f64 - 2_000.0) * 1e-6;
            let faster = if side == Side::Change { speed_up } else { 1.0 };
            (100e6 * (1.0 + vary) / faster) as u64
        })
    }

    /// What comes of a step where no script says otherwise.
    fn usual(&self, stage: &StageRef, step: &StageStep, before: Reading) -> StepReport {
        match step {
            StageStep::Prepare => StepReport::Prepared,
            StageStep::Build { side } => StepReport::Built { side: *side, artefact: "a".repeat(64) },
            StageStep::Check { side } => StepReport::Checked { side: *side },
            StageStep::Look => StepReport::Looked { reading: before },
            StageStep::Block { pair, order } => {
                let change = stage.job.pinned.change.as_str();
                let word = change.split('-').next().unwrap_or(change);
                let speed_up = match (pair, word) {
                    (Pair::ChampionAndChange, "broken") => {
                        return StepReport::Failed { side: Side::Change, why: "exit status 1".to_owned() };
                    }
                    (Pair::ChampionAndChange, "faster") => 1.05,
                    (Pair::ChampionAndChange, "slower") => 1.0 / 1.05,
                    (Pair::ChampionAndChange | Pair::ChampionTwice, _) => 1.0,
                };
                let times =
                    BlockTimes { ns: self.times(*order, speed_up), started: before.at, before, after: self.reading() };
                StepReport::Timed { times }
            }
        }
    }
}

impl Executor for ScriptedDevice {
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof> {
        let inner = self.inner.clone();
        inner.note(None, Call::Sweep);
        Box::pin(async move {
            let script = inner.sweep.borrow().clone();
            let proof = proof_of(script).await;
            if proof == StopProof::Empty {
                inner.live.borrow_mut().clear();
            }
            proof
        })
    }

    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>> {
        let inner = self.inner.clone();
        let script = (inner.dev_runs.borrow().clone())(&spec);
        inner.note(Some(hold), Call::Start(spec.dev_run));
        let live = inner.begin(hold, Some((spec.dev_run, script.clone())));
        Box::pin(async move {
            let prepared = async {
                match script.start {
                    StartScript::After(span) => {
                        pause(span).await;
                        Ok(())
                    }
                    StartScript::Fails(span, why) => {
                        pause(span).await;
                        Err(why)
                    }
                    StartScript::Hangs => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = live.stopping.wait() => Err("it was stopped while it was being prepared".to_owned()),
                prepared = prepared => {
                    prepared?;
                    inner.note(Some(hold), Call::Exec(spec.dev_run));
                    let pid = u32::try_from(hold.number).unwrap_or(u32::MAX);
                    Ok(Launched { pid, containment: "scripted".to_owned() })
                }
            }
        })
    }

    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let live = inner.live.borrow().get(&hold).cloned();
            let Some((live, script)) = live.and_then(|live| Some((live.clone(), live.script.clone()?.1))) else {
                return std::future::pending().await;
            };
            let ends = async {
                match script.runs {
                    Some(runs) => pause(runs).await,
                    None => std::future::pending().await,
                }
            };
            let exit = tokio::select! {
                biased;
                () = live.stopping.wait() => Exit::Signal(15),
                () = ends => script.exit,
            };
            inner.note(Some(hold), Call::Exited(exit));
            exit
        })
    }

    fn stop(&self, hold: HoldId, gently: bool) -> LocalBoxFuture<'static, StopProof> {
        let inner = self.inner.clone();
        inner.note(Some(hold), Call::Stop { gently });
        let live = inner.live.borrow().get(&hold).cloned();
        let script = match live.as_ref().map(|live| &live.script) {
            Some(Some((_, script))) => script.stop.clone(),
            Some(None) | None => inner.judge_stop.borrow().clone(),
        };
        if let Some(live) = live {
            live.stopping.raise();
        }
        Box::pin(async move {
            let proof = proof_of(script).await;
            if proof == StopProof::Empty {
                inner.live.borrow_mut().remove(&hold);
                inner.note(Some(hold), Call::Emptied);
            }
            proof
        })
    }

    fn step(&self, hold: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport> {
        let inner = self.inner.clone();
        let call = Call::Step { job: stage.job.job, stage: stage.stage, attempt: stage.attempt, step: step.clone() };
        inner.note(Some(hold), call);
        let live = inner.begin(hold, None);
        Box::pin(async move {
            let before = inner.reading();
            let takes = match step {
                StageStep::Block { .. } => inner.block_takes.get(),
                StageStep::Prepare | StageStep::Build { .. } | StageStep::Check { .. } | StageStep::Look => {
                    inner.set_up_takes.get()
                }
            };
            tokio::select! {
                biased;
                () = live.stopping.wait() => StepReport::NotCarriedOut { why: "it was stopped".to_owned() },
                () = pause(takes) => {
                    let script = inner.steps.borrow().clone();
                    script(&stage, &step).unwrap_or_else(|| inner.usual(&stage, &step, before))
                }
            }
        })
    }
}

async fn proof_of(script: StopScript) -> StopProof {
    match script {
        StopScript::ProvedAfter(span) => {
            pause(span).await;
            StopProof::Empty
        }
        StopScript::NotProvedAfter(span, why) => {
            pause(span).await;
            StopProof::NotProved { why }
        }
        StopScript::Hangs => std::future::pending().await,
    }
}

/// Lets a span pass; none of it where it is zero, since a timer lasts a millisecond at least.
async fn pause(span: Span) {
    if span > Span::ZERO {
        sleep(span.to_std()).await;
    }
}
