//! A rig under test: its scripted ports, what is done to it in words, and what was seen of it.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::broadcast::error::RecvError;
use tracing::field::{Field, Visit};

use thermite_actors::ports::{Clock, DeviceFacts, Executor, RigSettings, TargetDriver};
use thermite_actors::rig::{AskDevRun, No, Queued, Rig, RigSetup, SubmitJob, Submitted};
use thermite_actors::runners::{RunnerSetup, Runners};
use thermite_actors::testing::{
    Call, DevRunScript, Happened, MemoryInputLog, MemoryRecords, PausedClock, ScriptedDevice, ScriptedRunners,
    ScriptedWorkspaces, SeededIds, VirtualTime,
};
use thermite_actors::view::{DevRunRow, DevRunStatus, JobRow, JobStatus, RigEvent, RigHappening, RigView};
use thermite_core::contract::Target;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{DevRunId, JobId, MemberId, RunId};
use thermite_core::job::JobOutcome;
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::RunState;
use thermite_core::runners::LocalJudge;
use thermite_core::time::{Moment, Span};

/// The one device of a rig under test.
pub(crate) const DEVICE: MemberId = MemberId(0);
/// The wall clock at the rig's moment 0, in milliseconds since 1970.
const WALL_MS: u64 = 1_750_000_000_000;
/// No answer of a rig takes longer than this, virtually: one that never comes is a failure and not a hang.
const NO_ANSWER: Span = Span::hours(48);

/// Sets the ports before a rig starts.
pub(crate) type SetPorts = Box<dyn FnOnce(&ScriptedDevice, &ScriptedWorkspaces)>;

/// How a rig under test begins.
pub(crate) struct Beginning {
    pub(crate) seed: u64,
    pub(crate) lanes: u8,
    /// What an earlier life left.
    pub(crate) records: Rc<MemoryRecords>,
    /// What the clock says at the start: an earlier life's clock went on.
    pub(crate) now: Moment,
    /// How the ports are set before the rig starts.
    pub(crate) set: SetPorts,
    /// The models of the rig's cards; none: one device, the machine's CPUs.
    pub(crate) cards: Vec<&'static str>,
    /// Whether jobs are built on a bench before they ask for a card.
    pub(crate) bench: bool,
    /// Whether the core's own devices judge (rule E13).
    pub(crate) local_judge: LocalJudge,
    /// How the runners are set before the rig starts.
    pub(crate) set_runners: Box<dyn FnOnce(&ScriptedRunners)>,
    /// How runners are reached; by script where that is not said.
    pub(crate) reach: Option<Reach>,
}

/// Makes the way to a rig's runners.
pub(crate) type Reach = Box<dyn FnOnce(Rc<PausedClock>) -> Rc<dyn Runners>>;

impl Default for Beginning {
    fn default() -> Beginning {
        Beginning {
            seed: 1,
            lanes: 3,
            records: Rc::new(MemoryRecords::new()),
            now: Moment::from_millis(1_000),
            set: Box::new(|_, _| {}),
            cards: Vec::new(),
            bench: true,
            local_judge: LocalJudge::On,
            set_runners: Box::new(|_| {}),
            reach: None,
        }
    }
}

/// A rig under test, with one run of it. Fields are dropped in this order: the system goes last.
pub(crate) struct Scenario {
    pub(crate) rig: Rig,
    pub(crate) run: RunId,
    /// The only device, or the first card.
    pub(crate) device: ScriptedDevice,
    /// Every card, by its number; the only device where there are none.
    pub(crate) cards: Vec<ScriptedDevice>,
    pub(crate) bench: Option<ScriptedDevice>,
    pub(crate) runners: ScriptedRunners,
    pub(crate) local_judge: LocalJudge,
    models: Vec<&'static str>,
    pub(crate) workspaces: Rc<ScriptedWorkspaces>,
    pub(crate) records: Rc<MemoryRecords>,
    pub(crate) clock: Rc<PausedClock>,
    pub(crate) inputs: Rc<MemoryInputLog>,
    trace: Rc<Trace>,
    overlooked: Arc<AtomicU64>,
    _watch: tracing::subscriber::DefaultGuard,
    pub(crate) time: VirtualTime,
}

/// An answer that is waited for.
pub(crate) struct Pending<T>(Rc<RefCell<Option<T>>>);

impl<T: Clone> Pending<T> {
    /// The answer, where it has come.
    pub(crate) fn now(&self) -> Option<T> {
        self.0.borrow().clone()
    }
}

/// The decisions of a rig, hashed in order.
#[derive(Default)]
struct Trace {
    hasher: RefCell<DefaultHasher>,
    lines: Cell<u64>,
    kept: RefCell<Vec<Arc<RigEvent>>>,
}

impl Trace {
    fn take(&self, event: Arc<RigEvent>) {
        let line = serde_json::to_string(&event).expect("an event is plain data");
        line.hash(&mut *self.hasher.borrow_mut());
        self.lines.set(self.lines.get() + 1);
        self.kept.borrow_mut().push(event);
    }
}

impl Scenario {
    /// A rig of one shared device, with a run of three lanes.
    pub(crate) fn one_shared_device() -> Scenario {
        Scenario::begin(Beginning::default())
    }

    /// A rig of so many cards of one model, with a run of three lanes.
    pub(crate) fn cards(count: usize) -> Scenario {
        Scenario::begin(Beginning { cards: vec!["a"; count], ..Beginning::default() })
    }

    /// A rig with a run.
    pub(crate) fn begin(beginning: Beginning) -> Scenario {
        let lanes = beginning.lanes;
        let mut scenario = Scenario::start(beginning);
        let request = ScriptedWorkspaces::request(lanes);
        scenario.run = scenario.wait_for(scenario.rig.start_run(request, None)).expect("a first run is started");
        scenario.time.settle();
        scenario
    }

    /// A rig over what the records have; its run is the last of them.
    pub(crate) fn start(beginning: Beginning) -> Scenario {
        let Beginning { seed, lanes, records, now, set, cards: models, bench, local_judge, set_runners, reach } =
            beginning;
        let overlooked = Arc::new(AtomicU64::new(0));
        let watch = tracing::subscriber::set_default(Watchdog { overlooked: overlooked.clone() });
        let time = VirtualTime::new();
        let run = records.entries().iter().rev().find_map(|entry| match entry {
            LogEntry::RunStarted { run, .. } => Some(*run),
            _ => None,
        });
        let target = if models.is_empty() { Target::Cpu } else { Target::CudaGpu };
        let workspaces = Rc::new(ScriptedWorkspaces::new(target));
        let trace = Rc::new(Trace::default());
        let inputs = Rc::new(MemoryInputLog::new());
        let of_models = models.clone();
        let (rig, cards, bench, runners, clock) = time.block_on(async {
            let clock = Rc::new(PausedClock::new(now, WALL_MS + now.as_millis()));
            let cards: Vec<ScriptedDevice> = if of_models.is_empty() {
                vec![ScriptedDevice::new(Target::Cpu, clock.clone(), seed)]
            } else {
                (0..).zip(of_models).map(|(at, model)| card(at, model, clock.clone(), seed)).collect()
            };
            set(&cards[0], &workspaces);
            let bench = (bench && cards.len() > 1).then(|| ScriptedDevice::new(target, clock.clone(), seed));
            let runners = ScriptedRunners::new(clock.clone(), target, seed);
            set_runners(&runners);
            let setup = RigSetup {
                members: (0..).zip(&cards).map(|(at, card)| card.ports(MemberId(at))).collect(),
                bench: bench.clone().map(|bench| Rc::new(bench) as Rc<dyn Executor>),
                workspaces: workspaces.clone(),
                records: records.clone(),
                clock: clock.clone(),
                ids: Rc::new(SeededIds::new(seed)),
                inputs: inputs.clone(),
                settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: lanes },
                runners: RunnerSetup {
                    port: reach
                        .map_or_else(|| Rc::new(runners.clone()) as Rc<dyn Runners>, |reach| reach(clock.clone())),
                    local_judge,
                },
            };
            let rig = Rig::start(setup).await.expect("the records can be read and written at the start");
            let (mut events, trace) = (rig.events(), trace.clone());
            tokio::task::spawn_local(async move {
                loop {
                    match events.recv().await {
                        Ok(event) => trace.take(event),
                        Err(RecvError::Lagged(missed)) => panic!("the trace missed {missed} events"),
                        Err(RecvError::Closed) => break,
                    }
                }
            });
            (rig, cards, bench, runners, clock)
        });
        let run = run.unwrap_or(RunId(uuid::Uuid::nil()));
        let scenario = Scenario {
            rig,
            run,
            device: cards[0].clone(),
            cards,
            bench,
            runners,
            local_judge,
            models,
            workspaces,
            records,
            clock,
            inputs,
            trace,
            overlooked,
            _watch: watch,
            time,
        };
        scenario.time.settle();
        scenario
    }

    /// Waits for an answer; time goes on where it must.
    pub(crate) fn wait_for<F: Future>(&self, answer: F) -> F::Output {
        self.time.block_on(async {
            tokio::time::timeout(NO_ANSWER.to_std(), answer).await.expect("an answer comes within two days")
        })
    }

    /// Asks without waiting for the answer, and lets this instant pass.
    pub(crate) fn begin_to<T: 'static>(&self, answer: impl Future<Output = T> + 'static) -> Pending<T> {
        let pending = self.begin_at_once(answer);
        self.time.settle();
        pending
    }

    /// Asks without waiting for anything: what is asked next is asked in the same instant.
    pub(crate) fn begin_at_once<T: 'static>(&self, answer: impl Future<Output = T> + 'static) -> Pending<T> {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.time.block_on(async move {
            tokio::task::spawn_local(async move {
                let answer = answer.await;
                *filled.borrow_mut() = Some(answer);
            });
        });
        Pending(slot)
    }

    pub(crate) fn advance(&self, span: Span) {
        self.time.advance(span);
    }

    pub(crate) fn now(&self) -> Moment {
        self.time.block_on(async { self.clock.now() })
    }

    pub(crate) fn asking(&self, lane: u32) -> AskDevRun {
        AskDevRun {
            run: self.run,
            lane,
            argv: vec!["./try".to_owned()],
            env: Vec::new(),
            caller: Caller::Detached,
            key: None,
        }
    }

    pub(crate) fn submitting(&self, change: &str) -> SubmitJob {
        SubmitJob { run: self.run, champion: None, change: change.to_owned(), key: None }
    }

    /// Asks for a development run of a lane.
    pub(crate) fn ask(&self, lane: u32) -> Result<Queued, No> {
        let answer = self.wait_for(self.rig.ask(self.asking(lane)));
        self.time.settle();
        answer
    }

    /// Asks for one that is accepted.
    pub(crate) fn dev_run(&self, lane: u32) -> DevRunId {
        self.ask(lane).expect("the lane has no other development run").dev_run
    }

    /// Submits a job.
    pub(crate) fn submit(&self, change: &str) -> Result<Submitted, No> {
        let answer = self.wait_for(self.rig.submit(self.submitting(change)));
        self.time.settle();
        answer
    }

    /// Submits one that is accepted.
    pub(crate) fn job(&self, change: &str) -> JobId {
        self.submit(change).expect("the run takes jobs").job
    }

    pub(crate) fn change_run(&self, state: RunState) -> Result<RunState, No> {
        let answer = self.wait_for(self.rig.change_run(self.run, state));
        self.time.settle();
        answer
    }

    /// Waits for a development run's end.
    pub(crate) fn end_of(&self, dev_run: DevRunId) -> DevRunEnd {
        let end = self.wait_for(self.rig.dev_run_end(dev_run)).expect("a development run that was asked for ends");
        self.time.settle();
        end
    }

    /// Lets time pass until a job is over.
    pub(crate) fn outcome_of(&self, job: JobId) -> JobOutcome {
        let until = self.now() + NO_ANSWER;
        while self.now() < until {
            if let JobStatus::Ended { outcome, .. } = self.job_row(job).status {
                return outcome;
            }
            self.advance(Span::seconds(1));
        }
        panic!("job {job} is not over after two days: {:?}", self.job_row(job));
    }

    pub(crate) fn view(&self) -> RigView {
        self.wait_for(self.rig.view()).expect("the rig is there")
    }

    pub(crate) fn job_row(&self, job: JobId) -> JobRow {
        self.wait_for(self.rig.job(job)).expect("the job is there")
    }

    pub(crate) fn dev_run_row(&self, dev_run: DevRunId) -> DevRunRow {
        self.wait_for(self.rig.dev_run(dev_run)).expect("the development run is there")
    }

    /// Whether a development run has been started, and is not over.
    pub(crate) fn runs(&self, dev_run: DevRunId) -> bool {
        matches!(self.dev_run_row(dev_run).status, DevRunStatus::Running { .. })
    }

    /// The sentence of a waiting development run.
    pub(crate) fn sentence(&self, dev_run: DevRunId) -> String {
        match self.dev_run_row(dev_run).status {
            DevRunStatus::Waiting { sentence, .. } => sentence,
            other => panic!("{dev_run} does not wait: {other:?}"),
        }
    }

    /// The sentence of a waiting job.
    pub(crate) fn job_sentence(&self, job: JobId) -> String {
        match self.job_row(job).status {
            JobStatus::Waiting { sentence, .. } => sentence,
            other => panic!("{job} does not wait: {other:?}"),
        }
    }

    /// When the device really started a development run (exec).
    pub(crate) fn exec_of(&self, dev_run: DevRunId) -> Option<Moment> {
        self.diary().into_iter().find(|line| line.call == Call::Exec(dev_run)).map(|line| line.at)
    }

    /// When that card really started a development run (exec).
    pub(crate) fn exec_on(&self, card: usize, dev_run: DevRunId) -> Option<Moment> {
        self.cards[card].diary().into_iter().find(|line| line.call == Call::Exec(dev_run)).map(|line| line.at)
    }

    /// The devices of all stages that have one so far, in order.
    pub(crate) fn stages_on(&self) -> Vec<MemberId> {
        let on = |entry| match entry {
            LogEntry::StageStarted { hold, .. } => Some(hold.member),
            _ => None,
        };
        self.entries().into_iter().filter_map(on).collect()
    }

    pub(crate) fn diary(&self) -> Vec<Happened> {
        self.device.diary()
    }

    /// Everything that the records have.
    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        self.records.entries()
    }

    /// A hash of every decision so far, and how many there were.
    pub(crate) fn trace(&self) -> (u64, u64) {
        self.time.settle();
        (self.trace.hasher.borrow().finish(), self.trace.lines.get())
    }

    /// Everything that a listener heard.
    pub(crate) fn events(&self) -> Vec<Arc<RigEvent>> {
        self.time.settle();
        self.trace.kept.borrow().clone()
    }

    /// Every fact that was recorded, and when.
    pub(crate) fn facts(&self) -> Vec<(Moment, Arc<LogEntry>)> {
        self.time.settle();
        let kept = self.trace.kept.borrow();
        let fact = |event: &Arc<RigEvent>| match &event.what {
            RigHappening::Recorded { fact } => Some((Moment::from_millis(event.wall_ms - WALL_MS), fact.clone())),
            RigHappening::Stage { .. }
            | RigHappening::DevRun { .. }
            | RigHappening::Device { .. }
            | RigHappening::Alarm { .. } => None,
        };
        kept.iter().filter_map(fact).collect()
    }

    /// What must hold of every rig at every time: one holder, no number used twice, nobody overlooked.
    pub(crate) fn assert_sound(&self) {
        let names = self.runners.names();
        let runners: Vec<ScriptedDevice> = names.iter().map(|name| self.runners.device(name)).collect();
        for card in self.cards.iter().chain(&self.bench).chain(&runners) {
            assert_eq!(card.faults(), Vec::<String>::new(), "the device saw what no rig may ask");
        }
        assert_eq!(self.overlooked.load(Ordering::SeqCst), 0, "the watchdog found a waiter beside a free ready device");
    }

    /// Kills the rig as `kill -9` does, and starts another over what its records kept.
    pub(crate) fn kill_and_start_again(
        self,
        set: impl FnOnce(&ScriptedDevice, &ScriptedWorkspaces) + 'static,
    ) -> Scenario {
        let now = self.now();
        let (records, cards, bench) = (self.records.clone(), self.models.clone(), self.bench.is_some());
        let local_judge = self.local_judge;
        drop(self);
        records.revive();
        // Each life draws ids of its own, none of which a first life draws by its seed.
        let starts = records.entries().iter().filter(|entry| matches!(entry, LogEntry::RigStarted)).count();
        let seed = (1 << 32) + starts as u64;
        let (set, cards) = (Box::new(set), cards);
        Scenario::start(Beginning { records, now, seed, set, cards, bench, local_judge, ..Beginning::default() })
    }
}

impl Drop for Scenario {
    /// Every simulated test's log replays to the same decisions (rule D10).
    fn drop(&mut self) {
        if !std::thread::panicking()
            && let Err(fault) = self.inputs.replay()
        {
            panic!("the input log does not replay: {fault}");
        }
    }
}

/// One of several cards: `card-0`, `card-1` and so on.
fn card(at: u16, model: &str, clock: Rc<PausedClock>, seed: u64) -> ScriptedDevice {
    let seed = seed + u64::from(at);
    let plain = ScriptedDevice::new(Target::CudaGpu, clock.clone(), seed);
    let facts = DeviceFacts { uuid: format!("card-{at}"), model: model.to_owned(), ..plain.facts() };
    ScriptedDevice::with_facts(clock, seed, facts)
}

/// A development run that runs until it is stopped.
pub(crate) fn endless(device: &ScriptedDevice) {
    device.script_dev_runs(|_| DevRunScript::endless());
}

/// The no of records that refuse.
pub(crate) fn not_recorded() -> No {
    No::Infrastructure(InfrastructureFailure::Records { why: "the log refused the entry".to_owned() })
}

/// Counts the pool's reports of an overlooked waiter.
struct Watchdog {
    overlooked: Arc<AtomicU64>,
}

impl tracing::Subscriber for Watchdog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Overlooked(bool);
        impl Visit for Overlooked {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}").contains("overlooked");
            }
        }
        let mut found = Overlooked(false);
        event.record(&mut found);
        if found.0 {
            self.overlooked.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
