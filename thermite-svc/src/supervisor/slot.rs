//! One runner as its supervisor carries it out: the rules are `thermite_core::runner::slot`'s, the work is its harness's.
//!
//! Thin: it hands inputs to the machine and its effects to ports, on the one thread that all runners of the process share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tracing::{debug, info, warn};
use uuid::Uuid;

use thermite_actors::host::clock::{self, BootClock};
use thermite_actors::host::launch::CaptureDir;
use thermite_actors::ports::{
    Clock, Executor, FreshCopies, Journal, Outputs, RecordsFault, StageRef, StopProof, TargetDriver,
};
use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{DeviceEffect, DeviceInput, DeviceState};
use thermite_core::ids::{DevRunId, HoldId, MemberId};
use thermite_core::limits;
use thermite_core::runner::{Heard, Slot, SlotEffect, SlotInput};
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::wire::{Answer, Ask, Document, SlotAnswer, SlotAsk, SlotFacts, SlotNo, StepOf, Work};

/// Work whose start was asked for: one is live, and what was refused is pushed out by what follows.
const WORKS_KEPT: usize = 4;

/// What works one runner.
pub struct SlotPorts {
    /// Works its device.
    pub executor: Rc<dyn Executor>,
    /// Knows its device.
    pub driver: Rc<dyn TargetDriver>,
    /// Remembers its grants.
    pub journal: Rc<dyn Journal>,
    /// Lays out what its development runs work in.
    pub copies: Rc<dyn FreshCopies>,
    /// Has their output.
    pub outputs: CaptureDir,
    /// Hints to the core.
    pub hint: Rc<dyn Fn()>,
}

/// One runner that lives on this thread.
#[derive(Clone)]
pub struct SlotDoor {
    input: mpsc::UnboundedSender<Heads>,
}

/// What comes to a runner.
enum Heads {
    /// An ask over the bus.
    Asked { ask: Box<Ask>, answer: oneshot::Sender<Answer> },
    /// What came of an effect, or what is known of its harness.
    Input(SlotInput),
    /// What a development run works in is laid out.
    LaidOut { grant: u64, tree: PathBuf },
    /// The driver has told of a fault: it is to be asked again.
    AtFault { why: String },
}

impl SlotDoor {
    /// Answers an ask; not where the runner is ending.
    pub fn ask(&self, ask: Ask, answer: oneshot::Sender<Answer>) {
        let _ending = self.input.send(Heads::Asked { ask: Box::new(ask), answer });
    }

    /// Tells what the device is; none while its harness is away.
    pub fn tell_facts(&self, facts: Option<SlotFacts>) {
        let _ending = self.input.send(Heads::Input(SlotInput::Facts { facts }));
    }
}

/// Brings runner `number` of `serves` up, with what its journal says.
///
/// # Errors
/// Where the journal cannot be read.
pub async fn start(ports: SlotPorts, boot: Uuid, number: u16, serves: u16) -> Result<SlotDoor, RecordsFault> {
    let lines = ports.journal.load().await?;
    let target = ports.driver.facts().target;
    let (slot, first) = Slot::new(BootClock.now(), boot, number, serves, target, &lines);
    let (input, inputs) = mpsc::unbounded_channel();
    let runner = Runner {
        slot,
        boot,
        member: MemberId(number),
        ports,
        own: input.clone(),
        asked: BTreeMap::new(),
        next_ask: 0,
        works: BTreeMap::new(),
        steps: BTreeMap::new(),
        trees: BTreeMap::new(),
        listens: false,
    };
    spawn_local(runner.live(first, inputs));
    Ok(SlotDoor { input })
}

struct Runner {
    slot: Slot,
    boot: Uuid,
    member: MemberId,
    ports: SlotPorts,
    own: mpsc::UnboundedSender<Heads>,
    asked: BTreeMap<u64, oneshot::Sender<Answer>>,
    next_ask: u64,
    works: BTreeMap<u64, Work>,
    /// The newest step asked for, until it is begun.
    steps: BTreeMap<u64, (StepOf, Document)>,
    /// What development runs work in.
    trees: BTreeMap<u64, PathBuf>,
    /// Whether the driver is asked to tell of a fault.
    listens: bool,
}

impl Runner {
    async fn live(mut self, first: Vec<SlotEffect>, mut inputs: mpsc::UnboundedReceiver<Heads>) {
        self.carry_out(first);
        loop {
            let deadline = self.slot.next_deadline();
            let due = async {
                match deadline {
                    Some((at, _)) => clock::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Deadlines first: a late timer must not change an outcome.
            let heard = tokio::select! {
                biased;
                () = due => None,
                heard = inputs.recv() => heard,
            };
            let now = BootClock.now();
            let effects = self.slot.advance(now);
            self.carry_out(effects);
            if let Some(heard) = heard {
                self.take(heard);
            }
        }
    }

    fn take(&mut self, heard: Heads) {
        let input = match heard {
            Heads::Asked { ask, answer } => self.heard(*ask, answer),
            Heads::Input(input) => input,
            Heads::LaidOut { grant, tree } => {
                self.trees.insert(grant, tree);
                SlotInput::Prepared { grant }
            }
            Heads::AtFault { why } => {
                self.listens = false;
                SlotInput::Device(DeviceInput::AtFault { why })
            }
        };
        debug!(runner = %self.member, ?input, "runner takes");
        let effects = self.slot.handle(BootClock.now(), input);
        self.carry_out(effects);
    }

    /// An ask as the rules see it; what it carries stays here.
    fn heard(&mut self, ask: Ask, answer: oneshot::Sender<Answer>) -> SlotInput {
        let Ask { epoch, what, .. } = ask;
        let id = self.next_ask;
        self.next_ask += 1;
        self.asked.insert(id, answer);
        let heard = Heard::of(&what);
        match what {
            SlotAsk::Start { grant, work, .. } => {
                self.works.entry(grant).or_insert(*work);
                while self.works.len() > WORKS_KEPT {
                    self.works.pop_first();
                }
            }
            SlotAsk::Step { grant, of, step, .. } => {
                self.steps.clear();
                self.steps.insert(grant, (*of, step));
            }
            SlotAsk::Check { .. }
            | SlotAsk::Stop { .. }
            | SlotAsk::Tell { .. }
            | SlotAsk::Output { .. }
            | SlotAsk::Ack { .. } => {}
        }
        SlotInput::Asked { id, epoch, what: heard }
    }

    fn carry_out(&mut self, effects: Vec<SlotEffect>) {
        for effect in effects {
            match effect {
                SlotEffect::Answer { id, answer } => self.answer(id, answer),
                SlotEffect::AnswerOutput { id, dev_run, from, most } => {
                    let answer = self.output(dev_run, from, most);
                    self.answer(id, answer);
                }
                SlotEffect::Write { lines } => self.written(self.ports.journal.append(lines)),
                SlotEffect::WriteAnew { lines } => self.written(self.ports.journal.replace(lines)),
                SlotEffect::Prepare { grant } => self.prepare(grant),
                SlotEffect::Step { grant, number } => self.step(grant, number),
                SlotEffect::Device(effect) => self.device(effect),
                SlotEffect::Over { grant, dev_run } => {
                    self.works.remove(&grant);
                    self.trees.remove(&grant);
                    if let Some(dev_run) = dev_run {
                        spawn_local(self.ports.copies.discard(dev_run));
                    }
                }
                SlotEffect::Forget { dev_run, .. } => {
                    if let Some(dev_run) = dev_run {
                        let _never_was = std::fs::remove_file(self.ports.outputs.file(dev_run));
                    }
                }
                SlotEffect::Hint => (self.ports.hint)(),
            }
        }
        self.listen_for_fault();
    }

    fn answer(&mut self, id: u64, what: SlotAnswer) {
        if let Some(answer) = self.asked.remove(&id) {
            // Who asked may have given up: it asks again.
            let _ = answer.send(Answer { boot: self.boot, what });
        }
    }

    fn output(&self, dev_run: DevRunId, from: u64, most: u32) -> SlotAnswer {
        let most = most.min(limits::RUNNER_OUTPUT_BYTES_MAX) as usize;
        match self.ports.outputs.read(dev_run, from, most) {
            Some(slice) => SlotAnswer::Output {
                bytes: slice.bytes,
                offset: slice.offset,
                total: slice.total,
                cut: slice.cut,
                complete: slice.complete,
            },
            // It was never begun, or its file is gone: nothing will come.
            None => SlotAnswer::Output { bytes: Vec::new(), offset: from, total: from, cut: 0, complete: true },
        }
    }

    /// Has a port's answer come back as an input.
    fn later(&self, work: impl Future<Output = SlotInput> + 'static) {
        let own = self.own.clone();
        spawn_local(async move {
            let input = work.await;
            let _ending = own.send(Heads::Input(input));
        });
    }

    fn written(&self, write: LocalBoxFuture<'static, Result<(), RecordsFault>>) {
        self.later(async move {
            match write.await {
                Ok(()) => SlotInput::Written,
                Err(fault) => SlotInput::NotWritten { why: fault.to_string() },
            }
        });
    }

    fn prepare(&self, grant: u64) {
        let Some(Work::DevRun { dev_run, lane, commit, .. }) = self.works.get(&grant) else {
            return self.later(async move { SlotInput::NotPrepared { grant, why: NOTHING_GIVEN.to_owned() } });
        };
        let laid = self.ports.copies.lay_out(*dev_run, *lane, commit.clone());
        let own = self.own.clone();
        spawn_local(async move {
            let heard = match laid.await {
                Ok(tree) => Heads::LaidOut { grant, tree },
                Err(why) => Heads::Input(SlotInput::NotPrepared { grant, why }),
            };
            let _ending = own.send(heard);
        });
    }

    fn device(&self, effect: DeviceEffect) {
        match effect {
            DeviceEffect::Sweep => {
                let swept = self.and_released(self.ports.executor.sweep());
                self.later(async move {
                    SlotInput::Device(match swept.await {
                        StopProof::Empty => DeviceInput::Swept,
                        StopProof::NotProved { why } => DeviceInput::SweepFailed { why },
                    })
                });
            }
            DeviceEffect::StartDevRun { number } => self.launch(number),
            DeviceEffect::StopProcesses { number, gently } => {
                let stopped = self.and_released(self.ports.executor.stop(self.hold(number), gently));
                self.later(async move {
                    SlotInput::Device(match stopped.await {
                        StopProof::Empty => DeviceInput::Emptied { number },
                        StopProof::NotProved { why } => DeviceInput::NotProved { number, why },
                    })
                });
            }
            DeviceEffect::Look => {
                let read = self.ports.driver.read();
                self.later(async move {
                    let (fault, busy) = match read.await {
                        Ok(reading) => (None, reading.not_ready()),
                        Err(fault) => (Some(fault.to_string()), None),
                    };
                    SlotInput::Device(DeviceInput::Looked { fault, busy })
                });
            }
            // The rules of a slot keep these to themselves.
            DeviceEffect::StageOpen { .. } | DeviceEffect::Distrust | DeviceEffect::Tell(_) => {}
        }
    }

    fn launch(&self, number: u64) {
        let (work, tree) = (self.works.get(&number), self.trees.get(&number));
        let (Some(Work::DevRun { dev_run, run, lane, argv, env, contract, models, .. }), Some(tree)) = (work, tree)
        else {
            let failed = DeviceInput::StartFailed { number, why: NOTHING_GIVEN.to_owned() };
            return self.later(async move { SlotInput::Device(failed) });
        };
        let spec = DevRunSpec {
            dev_run: *dev_run,
            run: *run,
            lane: *lane,
            worktree: tree.clone(),
            argv: argv.clone(),
            env: env.clone(),
            contract: contract.as_ref().clone(),
            models: models.clone(),
        };
        let (hold, own) = (self.hold(number), self.own.clone());
        let (launched, executor) = (self.ports.executor.start(hold, spec), Rc::clone(&self.ports.executor));
        spawn_local(async move {
            let started = match launched.await {
                Ok(launched) => {
                    info!(%hold, pid = launched.pid, containment = launched.containment, "development run started");
                    DeviceInput::Started { number }
                }
                Err(why) => {
                    let _ending = own.send(Heads::Input(SlotInput::Device(DeviceInput::StartFailed { number, why })));
                    return;
                }
            };
            let _ending = own.send(Heads::Input(SlotInput::Device(started)));
            let exit = executor.exited(hold).await;
            let _ending = own.send(Heads::Input(SlotInput::Exited { grant: number, exit }));
        });
    }

    fn step(&mut self, grant: u64, number: u32) {
        let asked = self.steps.remove(&grant).map(|(of, step)| (of, serde_json::from_str::<StageStep>(&step.0)));
        let work: LocalBoxFuture<'static, StepReport> = match asked {
            Some((_, Ok(StageStep::Look))) => {
                let (read, own) = (self.ports.driver.read(), self.own.clone());
                Box::pin(async move {
                    match read.await {
                        Ok(reading) => StepReport::Looked { reading },
                        Err(fault) => {
                            // Not the stage's alone: the card goes out of service once the stage has ended (rule B10).
                            let why = fault.to_string();
                            let at_fault = SlotInput::Device(DeviceInput::AtFault { why: why.clone() });
                            let _ending = own.send(Heads::Input(at_fault));
                            StepReport::NotCarriedOut { why }
                        }
                    }
                })
            }
            Some((StepOf { job, stage, attempt }, Ok(step))) => {
                self.ports.executor.step(self.hold(grant), StageRef { job, stage, attempt }, step)
            }
            Some((_, Err(error))) => not_carried_out(format!("the step cannot be read: {error}")),
            None => not_carried_out(NOTHING_GIVEN.to_owned()),
        };
        self.later(async move {
            let report = work.await;
            let report = serde_json::to_string(&report).unwrap_or_else(|error| {
                warn!(%error, "a report that has no text");
                format!("{{\"came\":\"not_carried_out\",\"why\":{:?}}}", error.to_string())
            });
            SlotInput::Reported { grant, number, report: Document(report) }
        });
    }

    /// The executor's proof that the process tree is empty, and then the device's own (rule A7), in time to be heard.
    fn and_released(&self, emptied: LocalBoxFuture<'static, StopProof>) -> LocalBoxFuture<'static, StopProof> {
        let driver = Rc::clone(&self.ports.driver);
        let latest = BootClock.now() + limits::PROOF_MAX - limits::RELEASE_TOLD_BEFORE;
        Box::pin(async move {
            match emptied.await {
                StopProof::Empty => driver.released(latest.since(BootClock.now())).await,
                not_proved @ StopProof::NotProved { .. } => not_proved,
            }
        })
    }

    /// Hears of the device's next fault, one ear at a time.
    fn listen_for_fault(&mut self) {
        if self.listens || *self.slot.device().state() != DeviceState::Ready {
            return;
        }
        self.listens = true;
        let (fault, own) = (self.ports.driver.at_fault(), self.own.clone());
        spawn_local(async move {
            let why = fault.await.to_string();
            let _ending = own.send(Heads::AtFault { why });
        });
    }

    fn hold(&self, number: u64) -> HoldId {
        HoldId { member: self.member, number }
    }
}

const NOTHING_GIVEN: &str = "nothing was given to start";

fn not_carried_out(why: String) -> LocalBoxFuture<'static, StepReport> {
    Box::pin(std::future::ready(StepReport::NotCarriedOut { why }))
}

/// What is said where no runner of that number is served, or none yet.
pub fn no_slot(boot: Uuid, serves: Option<u16>) -> Answer {
    let no = match serves {
        Some(serves) => SlotNo::NoSuchSlot { serves },
        None => SlotNo::NotAble { why: "its harness has not come up yet".to_owned() },
    };
    Answer { boot, what: SlotAnswer::No(no) }
}
