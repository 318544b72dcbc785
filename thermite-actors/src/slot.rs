//! A runner's own mailbox: asks in, answers out, over one device with its driver and executor. The rules are
//! `thermite_core::runner::Slot`'s.
//!
//! It is to the bus what `crate::device` is to a pool: the executor's proof comes before an end is told. What is
//! accepted is in the journal before it is begun.

use std::collections::BTreeMap;
use std::rc::Rc;

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use uuid::Uuid;

use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{DeviceEffect, DeviceInput, DeviceState};
use thermite_core::ids::{DevRunId, HoldId};
use thermite_core::limits;
use thermite_core::runner::{Heard, Slot, SlotEffect, SlotInput};
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::wire::{Answer, Ask, Document, SlotAnswer, SlotAsk, SlotFacts, SlotNo, StepOf, Work};

use crate::alarm::Alarm;
use crate::ports::{
    Clock, DeviceFacts, Executor, FreshCopies, Journal, Outputs, RecordsFault, StageRef, StopProof, TargetDriver,
};

/// What a runner is made of.
pub struct SlotPorts {
    /// Its place in the process, from 1.
    pub number: u16,
    /// How many runners the process serves.
    pub serves: u16,
    /// This start of the process.
    pub boot: Uuid,
    /// Its clock, which goes on through suspend.
    pub clock: Rc<dyn Clock>,
    /// Knows the device.
    pub driver: Rc<dyn TargetDriver>,
    /// Works it.
    pub executor: Rc<dyn Executor>,
    /// What its development runs wrote.
    pub outputs: Rc<dyn Outputs>,
    /// What it remembers.
    pub journal: Rc<dyn Journal>,
    /// Its copies of commits.
    pub copies: Rc<dyn FreshCopies>,
    /// Hints to the core that there is something to fetch; may be lost.
    pub hint: Rc<dyn Fn()>,
}

/// The core asks this runner; answered once it is known what to say.
#[derive(Message)]
#[rtype(result = "Answer")]
pub struct Asked(pub Ask);

/// What its harness can do has changed: it is there, and what its device is; or it is away.
#[derive(Message)]
#[rtype(result = "()")]
pub struct HarnessIs {
    /// Whether it is there.
    pub there: bool,
}

/// Its process ends: it does nothing more, and what runs under it is whoever's launched it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct EndSlot;

/// What is to be done under a grant.
enum Load {
    DevRun { spec: Box<DevRunSpec>, commit: String },
    Stage { step: Option<(u32, StepOf, StageStep)> },
}

/// One runner of a process.
pub struct SlotActor {
    slot: Slot,
    ports: SlotPorts,
    loads: BTreeMap<u64, Load>,
    /// Asks that are not answered yet.
    asked: BTreeMap<u64, oneshot::Sender<SlotAnswer>>,
    next_ask: u64,
    /// What the machine wanted at its birth.
    first: Vec<SlotEffect>,
    alarm: Alarm,
    /// Whether the driver is asked to tell of a fault.
    listens: bool,
    facts: Option<SlotFacts>,
}

impl SlotActor {
    /// A runner with what its journal tells; nothing is begun before the leftovers of earlier grants are proved gone.
    ///
    /// # Errors
    /// Where the journal cannot be read: without it nothing may be begun.
    pub async fn load(ports: SlotPorts) -> Result<SlotActor, RecordsFault> {
        let lines = ports.journal.load().await?;
        let target = ports.driver.facts().target;
        let (slot, first) = Slot::new(ports.clock.now(), ports.boot, ports.number, ports.serves, target, &lines);
        Ok(SlotActor {
            slot,
            ports,
            loads: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_ask: 1,
            first,
            alarm: Alarm::default(),
            listens: false,
            facts: None,
        })
    }

    fn take(&mut self, input: SlotInput, ctx: &mut Context<Self>) {
        let now = self.ports.clock.now();
        debug!(slot = self.ports.number, ?input, "slot takes");
        let mut effects = self.slot.advance(now); // Deadlines first: a late timer must not change an outcome.
        effects.extend(self.slot.handle(now, input));
        self.carry_out(effects, ctx);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.slot.advance(self.ports.clock.now());
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<SlotEffect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                SlotEffect::Answer { id, answer } => self.answer(id, answer),
                SlotEffect::AnswerOutput { id, dev_run, from, most } => {
                    let answer = self.output(dev_run, from, most);
                    self.answer(id, answer);
                }
                SlotEffect::Write { lines } => self.write(self.ports.journal.append(lines), ctx),
                SlotEffect::WriteAnew { lines } => self.write(self.ports.journal.replace(lines), ctx),
                SlotEffect::Prepare { grant } => self.prepare(grant, ctx),
                SlotEffect::Step { grant, number } => self.step(grant, number, ctx),
                SlotEffect::Device(effect) => self.work_device(effect, ctx),
                SlotEffect::Over { grant, dev_run } => {
                    self.loads.remove(&grant);
                    if let Some(dev_run) = dev_run {
                        ctx.spawn(self.ports.copies.discard(dev_run).into_actor(self));
                    }
                }
                // Outputs go with the budget of whoever keeps them.
                SlotEffect::Forget { grant, .. } => debug!(grant, "grant is forgotten"),
                SlotEffect::Hint => (self.ports.hint)(),
            }
        }
        self.listen_for_fault(ctx);
        let deadline = self.slot.next_deadline().map(|next| next.0);
        self.alarm.set(ctx, &self.ports.clock, deadline, Self::ring);
    }

    fn answer(&mut self, id: u64, answer: SlotAnswer) {
        if let Some(asker) = self.asked.remove(&id) {
            // An asker that is gone asks again.
            drop(asker.send(answer));
        }
    }

    fn output(&self, dev_run: DevRunId, from: u64, most: u32) -> SlotAnswer {
        let most = most.min(limits::RUNNER_OUTPUT_BYTES_MAX);
        match self.ports.outputs.read(dev_run, from, most as usize) {
            Some(slice) => SlotAnswer::Output {
                bytes: slice.bytes,
                offset: slice.offset,
                total: slice.total,
                cut: slice.cut,
                complete: slice.complete,
            },
            // It has written nothing yet, or never will.
            None => SlotAnswer::Output { bytes: Vec::new(), offset: from, total: from, cut: 0, complete: false },
        }
    }

    fn write(&mut self, written: LocalBoxFuture<'static, Result<(), RecordsFault>>, ctx: &mut Context<Self>) {
        ctx.spawn(written.into_actor(self).map(|written, slot, ctx| {
            let input = match written {
                Ok(()) => SlotInput::Written,
                Err(RecordsFault(why)) => {
                    warn!(slot = slot.ports.number, %why, "the journal cannot be written");
                    SlotInput::NotWritten { why }
                }
            };
            slot.take(input, ctx);
        }));
    }

    /// Lays out a development run's own copy of its commit.
    fn prepare(&mut self, grant: u64, ctx: &mut Context<Self>) {
        let Some(Load::DevRun { spec, commit }) = self.loads.get(&grant) else {
            let why = "nothing was given to start".to_owned();
            ctx.address().do_send(Told(SlotInput::NotPrepared { grant, why }));
            return;
        };
        let laid_out = self.ports.copies.lay_out(spec.dev_run, spec.lane, commit.clone()).into_actor(self);
        ctx.spawn(laid_out.map(move |laid_out, slot, ctx| {
            let input = match laid_out {
                Ok(folder) => match slot.loads.get_mut(&grant) {
                    Some(Load::DevRun { spec, .. }) => {
                        spec.worktree = folder;
                        SlotInput::Prepared { grant }
                    }
                    Some(Load::Stage { .. }) | None => return,
                },
                Err(why) => SlotInput::NotPrepared { grant, why },
            };
            slot.take(input, ctx);
        }));
    }

    fn step(&mut self, grant: u64, number: u32, ctx: &mut Context<Self>) {
        let hold = self.hold(grant);
        let Some(Load::Stage { step }) = self.loads.get_mut(&grant) else { return };
        let Some((_, of, step)) = step.take_if(|(of, ..)| *of == number) else { return };
        let work: LocalBoxFuture<'static, StepReport> = match step {
            StageStep::Look => {
                let (read, own) = (self.ports.driver.read(), ctx.address());
                Box::pin(async move {
                    match read.await {
                        Ok(reading) => StepReport::Looked { reading },
                        Err(fault) => {
                            // Not the stage's alone: the card goes out of service once the stage has ended (rule B10).
                            let input = DeviceInput::AtFault { why: fault.to_string() };
                            own.do_send(Told(SlotInput::Device(input)));
                            StepReport::NotCarriedOut { why: fault.to_string() }
                        }
                    }
                })
            }
            step @ (StageStep::Prepare
            | StageStep::Build { .. }
            | StageStep::Check { .. }
            | StageStep::Block { .. }) => {
                let StepOf { job, stage, attempt } = of;
                self.ports.executor.step(hold, StageRef { job, stage, attempt }, step)
            }
        };
        ctx.spawn(work.into_actor(self).map(move |report, slot, ctx| {
            let report = Document(serde_json::to_string(&report).expect("a report has only texts and numbers"));
            slot.take(SlotInput::Reported { grant, number, report }, ctx);
        }));
    }

    fn work_device(&mut self, effect: DeviceEffect, ctx: &mut Context<Self>) {
        match effect {
            DeviceEffect::Sweep => {
                let sweep = self.and_released(self.ports.executor.sweep()).into_actor(self);
                ctx.spawn(sweep.map(|proof, slot, ctx| {
                    let input = match proof {
                        StopProof::Empty => DeviceInput::Swept,
                        StopProof::NotProved { why } => DeviceInput::SweepFailed { why },
                    };
                    slot.take(SlotInput::Device(input), ctx);
                }));
            }
            DeviceEffect::StartDevRun { number } => self.launch(number, ctx),
            DeviceEffect::StopProcesses { number, gently } => {
                let stop = self.ports.executor.stop(self.hold(number), gently);
                let stop = self.and_released(stop).into_actor(self);
                ctx.spawn(stop.map(move |proof, slot, ctx| {
                    let input = match proof {
                        StopProof::Empty => DeviceInput::Emptied { number },
                        StopProof::NotProved { why } => DeviceInput::NotProved { number, why },
                    };
                    slot.take(SlotInput::Device(input), ctx);
                }));
            }
            DeviceEffect::Look => {
                let read = self.ports.driver.read().into_actor(self);
                ctx.spawn(read.map(|read, slot, ctx| {
                    let (fault, busy) = match read {
                        Ok(reading) => (None, reading.not_ready()),
                        Err(fault) => (Some(fault.to_string()), None),
                    };
                    slot.take(SlotInput::Device(DeviceInput::Looked { fault, busy }), ctx);
                }));
            }
            // The slot's own rules take these in.
            DeviceEffect::StageOpen { .. } | DeviceEffect::Distrust | DeviceEffect::Tell(_) => {}
        }
    }

    fn launch(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(Load::DevRun { spec, .. }) = self.loads.get(&number) else {
            let why = "nothing was given to start".to_owned();
            ctx.address().do_send(Told(SlotInput::Device(DeviceInput::StartFailed { number, why })));
            return;
        };
        let hold = self.hold(number);
        let launch = self.ports.executor.start(hold, spec.as_ref().clone()).into_actor(self);
        ctx.spawn(launch.map(move |launched, slot, ctx| match launched {
            Ok(launched) => {
                info!(%hold, pid = launched.pid, "development run started");
                slot.take(SlotInput::Device(DeviceInput::Started { number }), ctx);
                let exited = slot.ports.executor.exited(hold).into_actor(slot);
                ctx.spawn(exited.map(move |exit, slot, ctx| slot.take(SlotInput::Exited { grant: number, exit }, ctx)));
            }
            Err(why) => slot.take(SlotInput::Device(DeviceInput::StartFailed { number, why }), ctx),
        }));
    }

    /// The executor's proof, and then the device's own (rule A7), in time to be heard.
    fn and_released(&self, emptied: LocalBoxFuture<'static, StopProof>) -> LocalBoxFuture<'static, StopProof> {
        let (driver, clock) = (Rc::clone(&self.ports.driver), Rc::clone(&self.ports.clock));
        let latest = clock.now() + limits::PROOF_MAX - limits::RELEASE_TOLD_BEFORE;
        Box::pin(async move {
            match emptied.await {
                StopProof::Empty => driver.released(latest.since(clock.now())).await,
                not_proved @ StopProof::NotProved { .. } => not_proved,
            }
        })
    }

    /// Hears of the device's next fault, one ear at a time (rule B10).
    fn listen_for_fault(&mut self, ctx: &mut Context<Self>) {
        if self.listens || *self.slot.device().state() != DeviceState::Ready {
            return;
        }
        self.listens = true;
        let fault = self.ports.driver.at_fault().into_actor(self);
        ctx.spawn(fault.map(|fault, slot, ctx| {
            slot.listens = false;
            slot.take(SlotInput::Device(DeviceInput::AtFault { why: fault.to_string() }), ctx);
        }));
    }

    fn hold(&self, number: u64) -> HoldId {
        HoldId { member: self.slot.device().member(), number }
    }

    fn know_facts(&mut self, there: bool, ctx: &mut Context<Self>) {
        let facts = there.then(|| facts_of(self.ports.driver.facts(), self.ports.executor.containment()));
        if self.facts != facts {
            self.facts.clone_from(&facts);
            self.take(SlotInput::Facts { facts }, ctx);
        }
    }

    /// Keeps what an ask carries, for when it is to be carried out.
    fn keep_load(&mut self, ask: &SlotAsk) -> Result<(), SlotNo> {
        match ask {
            SlotAsk::Start { grant, work, .. } => {
                self.loads.entry(*grant).or_insert_with(|| match work.as_ref().clone() {
                    Work::DevRun { dev_run, run, lane, argv, env, contract, commit, models, .. } => {
                        let (worktree, contract) = (std::path::PathBuf::new(), *contract);
                        let spec = DevRunSpec { dev_run, run, lane, worktree, argv, env, contract, models };
                        Load::DevRun { spec: Box::new(spec), commit }
                    }
                    Work::Stage => Load::Stage { step: None },
                });
            }
            SlotAsk::Step { grant, number, of, step: Document(text), .. } => {
                let read = serde_json::from_str(text)
                    .map_err(|error| SlotNo::NotAble { why: format!("the step cannot be read: {error}") })?;
                if let Some(Load::Stage { step }) = self.loads.get_mut(grant) {
                    *step = Some((*number, of.as_ref().clone(), read));
                }
            }
            SlotAsk::Check { .. }
            | SlotAsk::Stop { .. }
            | SlotAsk::Tell { .. }
            | SlotAsk::Output { .. }
            | SlotAsk::Ack { .. } => {}
        }
        Ok(())
    }
}

fn facts_of(facts: DeviceFacts, containment: Option<String>) -> SlotFacts {
    let DeviceFacts { target, uuid, model, driver, clock_policy, cpus, cores } = facts;
    SlotFacts { target, uuid, model, driver, clock_policy, cpus, cores, containment }
}

/// An input for its own machine, in its turn.
#[derive(Message)]
#[rtype(result = "()")]
struct Told(SlotInput);

impl Actor for SlotActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let first = std::mem::take(&mut self.first);
        self.carry_out(first, ctx);
        self.know_facts(true, ctx);
    }
}

impl Handler<Told> for SlotActor {
    type Result = ();

    fn handle(&mut self, msg: Told, ctx: &mut Self::Context) {
        self.take(msg.0, ctx);
    }
}

impl Handler<EndSlot> for SlotActor {
    type Result = ();

    fn handle(&mut self, _: EndSlot, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

impl Handler<HarnessIs> for SlotActor {
    type Result = ();

    fn handle(&mut self, msg: HarnessIs, ctx: &mut Self::Context) {
        self.know_facts(msg.there, ctx);
    }
}

impl Handler<Asked> for SlotActor {
    type Result = ResponseFuture<Answer>;

    fn handle(&mut self, msg: Asked, ctx: &mut Self::Context) -> Self::Result {
        let Ask { epoch, what, .. } = msg.0;
        let boot = self.ports.boot;
        if let Err(no) = self.keep_load(&what) {
            return Box::pin(std::future::ready(Answer { boot, what: SlotAnswer::No(no) }));
        }
        let id = self.next_ask;
        self.next_ask += 1;
        let (asker, answer) = oneshot::channel();
        self.asked.insert(id, asker);
        self.take(SlotInput::Asked { id, epoch, what: Heard::of(&what) }, ctx);
        // What was refused leaves nothing behind.
        self.loads.retain(|grant, _| self.slot.works_on(*grant));
        let ended = SlotNo::NotAble { why: "it is ending".to_owned() };
        Box::pin(async move { Answer { boot, what: answer.await.unwrap_or(SlotAnswer::No(ended)) } })
    }
}

/// The runners of one process, as its bus asks them.
#[derive(Clone)]
pub struct Slots {
    boot: Uuid,
    slots: Vec<Addr<SlotActor>>,
}

impl Slots {
    /// These, the first one slot 1.
    pub fn new(boot: Uuid, slots: Vec<Addr<SlotActor>>) -> Slots {
        Slots { boot, slots }
    }

    /// Answers an ask.
    pub fn answer(&self, ask: Ask) -> LocalBoxFuture<'static, Answer> {
        let boot = self.boot;
        let serves = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        let slot = usize::from(ask.slot).checked_sub(1).and_then(|at| self.slots.get(at)).cloned();
        Box::pin(async move {
            let Some(slot) = slot else { return Answer { boot, what: SlotAnswer::No(SlotNo::NoSuchSlot { serves }) } };
            let ended = SlotNo::NotAble { why: "it is ending".to_owned() };
            slot.send(Asked(ask)).await.unwrap_or(Answer { boot, what: SlotAnswer::No(ended) })
        })
    }
}
