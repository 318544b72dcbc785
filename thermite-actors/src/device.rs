//! The device's mailbox: one local device with its driver and executor. The rules are `thermite_core::device`'s.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use tracing::{debug, info};

use thermite_core::contract::Target;
use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{Device, DeviceEffect, DeviceInput, DeviceState, MemberEvent};
use thermite_core::ids::{HoldId, Holder, MemberId};
use thermite_core::input_log::DeviceTakes;
use thermite_core::limits;
use thermite_core::pool::PoolInput;
use thermite_core::stage::{StageStep, StepReport};

use crate::alarm::Alarm;
use crate::events::Events;
use crate::input_log::Traced;
use crate::judge_queue::{Distrust, JudgeQueueActor, StageOpened};
use crate::member::{EndLeftovers, LookAtLeftovers, LookAtMember, MemberLook, RunStep, StartDevRun, ToMember};
use crate::pool::ToPool;
use crate::ports::{Clock, Executor, InputLog, Leftovers, MemberPorts, StageRef, StopProof, TargetDriver};
use crate::view::RigHappening;

/// What the records tell of a device at the start of the rig.
pub(crate) struct DevicePast {
    /// The highest number of a hold.
    pub(crate) last: u64,
    /// Why it is quarantined, where it is.
    pub(crate) quarantine: Option<String>,
}

/// One local device.
pub(crate) struct DeviceActor {
    device: Traced<Device>,
    driver: Rc<dyn TargetDriver>,
    executor: Rc<dyn Executor>,
    clock: Rc<dyn Clock>,
    events: Rc<Events>,
    pool: Recipient<ToPool>,
    judge: Addr<JudgeQueueActor>,
    /// Development runs to start, by hold number; taken out when they are started or burnt.
    specs: BTreeMap<u64, Arc<DevRunSpec>>,
    /// What the machine wanted at its birth.
    first: Vec<DeviceEffect>,
    alarm: Alarm,
    /// Whether the driver is asked to tell of a fault.
    listens: bool,
    /// Which sweep is the latest: what an earlier one, or the look after it, still answers says nothing of this one.
    sweeps: u64,
}

impl DeviceActor {
    pub(crate) fn new(
        ports: MemberPorts,
        past: DevicePast,
        clock: Rc<dyn Clock>,
        inputs: Rc<dyn InputLog>,
        events: Rc<Events>,
        pool: Recipient<ToPool>,
        judge: Addr<JudgeQueueActor>,
    ) -> DeviceActor {
        let (mut device, mut first) = Device::new(clock.now(), ports.member, past.last);
        if ports.member != MemberId::BENCH && ports.driver.facts().target == Target::CudaGpu {
            device = device.as_card();
        }
        let kept_out = past.quarantine.map(|why| device.handle(clock.now(), DeviceInput::Quarantine { why }));
        first.extend(kept_out.into_iter().flatten());
        DeviceActor {
            device: Traced::new(device, inputs),
            driver: ports.driver,
            executor: ports.executor,
            clock,
            events,
            pool,
            judge,
            specs: BTreeMap::new(),
            first,
            alarm: Alarm::default(),
            listens: false,
            sweeps: 0,
        }
    }

    fn take(&mut self, input: DeviceInput, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        debug!(device = %self.member(), ?input, "device takes");
        let effects = self.device.take(now, DeviceTakes::Input(input)).effects;
        self.carry_out(effects, ctx);
    }

    /// What came of a sweep, or of the look after it. The answer of an earlier one comes too late to be one.
    fn take_of_sweep(&mut self, of: u64, input: DeviceInput, ctx: &mut Context<Self>) {
        if of == self.sweeps {
            self.take(input, ctx);
        } else {
            debug!(device = %self.member(), ?input, "an earlier sweep answers late");
        }
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.device.take(self.clock.now(), DeviceTakes::Time).effects;
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<DeviceEffect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                DeviceEffect::Sweep => {
                    self.sweeps += 1;
                    let of = self.sweeps;
                    let sweep = self.and_released(self.executor.sweep()).into_actor(self);
                    ctx.spawn(sweep.map(move |proof, device, ctx| {
                        device.take_of_sweep(
                            of,
                            match proof {
                                StopProof::Empty => DeviceInput::Swept,
                                StopProof::NotProved { why } => DeviceInput::SweepFailed { why },
                            },
                            ctx,
                        );
                    }));
                }
                DeviceEffect::StartDevRun { number } => self.launch(number, ctx),
                DeviceEffect::StageOpen { number } => self.judge.do_send(StageOpened { hold: self.hold(number) }),
                DeviceEffect::StopProcesses { number, gently } => {
                    let stop = self.and_released(self.executor.stop(self.hold(number), gently)).into_actor(self);
                    ctx.spawn(stop.map(move |proof, device, ctx| {
                        device.take(
                            match proof {
                                StopProof::Empty => DeviceInput::Emptied { number },
                                StopProof::NotProved { why } => DeviceInput::NotProved { number, why },
                            },
                            ctx,
                        );
                    }));
                }
                DeviceEffect::Look => {
                    let of = self.sweeps;
                    let read = self.driver.read().into_actor(self);
                    ctx.spawn(read.map(move |read, device, ctx| {
                        let (fault, busy) = match read {
                            Ok(reading) => (None, reading.not_ready()),
                            Err(fault) => (Some(fault.to_string()), None),
                        };
                        device.take_of_sweep(of, DeviceInput::Looked { fault, busy }, ctx);
                    }));
                }
                DeviceEffect::Distrust => self.judge.do_send(Distrust { uuid: self.driver.facts().uuid }),
                DeviceEffect::Tell(event) => {
                    match &event {
                        MemberEvent::Ready { .. } => info!(device = %self.member(), "device is in service"),
                        MemberEvent::Gone { why } => info!(device = %self.member(), %why, "device is out of service"),
                        MemberEvent::Started { .. } => {}
                        MemberEvent::Freed { number, .. } => drop(self.specs.remove(number)),
                    }
                    self.pool.do_send(ToPool(PoolInput::Member { member: self.member(), event }));
                }
            }
        }
        self.listen_for_fault(ctx);
        if self.member() != MemberId::BENCH {
            self.events.tell(RigHappening::Device { member: self.member(), state: self.device.view() });
        }
        let deadline = self.device.next_deadline().map(|next| next.0);
        self.alarm.set(ctx, &self.clock, deadline, Self::ring);
    }

    /// The executor's proof that the process tree is empty, and then the device's own (rule A7), in time to be heard:
    /// after [`limits::PROOF_MAX`] the machine gives up by itself and has no pid to name.
    fn and_released(&self, emptied: LocalBoxFuture<'static, StopProof>) -> LocalBoxFuture<'static, StopProof> {
        let (driver, clock) = (Rc::clone(&self.driver), Rc::clone(&self.clock));
        let latest = clock.now() + limits::PROOF_MAX - limits::RELEASE_TOLD_BEFORE;
        Box::pin(async move {
            match emptied.await {
                StopProof::Empty => driver.released(latest.since(clock.now())).await,
                not_proved @ StopProof::NotProved { .. } => not_proved,
            }
        })
    }

    /// Hears of the device's next fault, one ear at a time: it goes out of service even while nobody has it (rule B10).
    fn listen_for_fault(&mut self, ctx: &mut Context<Self>) {
        if self.listens || *self.device.state() != DeviceState::Ready {
            return;
        }
        self.listens = true;
        let fault = self.driver.at_fault().into_actor(self);
        ctx.spawn(fault.map(|fault, device, ctx| {
            device.listens = false;
            device.take(DeviceInput::AtFault { why: fault.to_string() }, ctx);
        }));
    }

    fn launch(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(spec) = self.specs.remove(&number) else {
            let why = "nothing was given to start".to_owned();
            self.take(DeviceInput::StartFailed { number, why }, ctx);
            return;
        };
        let hold = self.hold(number);
        let launch = self.executor.start(hold, spec.as_ref().clone()).into_actor(self);
        ctx.spawn(launch.map(move |launched, device, ctx| match launched {
            Ok(launched) => {
                debug!(%hold, pid = launched.pid, containment = launched.containment, "development run started");
                device.take(DeviceInput::Started { number }, ctx);
                let exited = device.executor.exited(hold).into_actor(device);
                ctx.spawn(exited.map(move |exit, device, ctx| device.take(DeviceInput::Exited { number, exit }, ctx)));
            }
            Err(why) => device.take(DeviceInput::StartFailed { number, why }, ctx),
        }));
    }

    fn member(&self) -> MemberId {
        self.device.member()
    }

    fn hold(&self, number: u64) -> HoldId {
        HoldId { member: self.member(), number }
    }
}

impl Actor for DeviceActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let first = std::mem::take(&mut self.first);
        self.carry_out(first, ctx);
    }
}

impl Handler<ToMember> for DeviceActor {
    type Result = ();

    fn handle(&mut self, msg: ToMember, ctx: &mut Self::Context) {
        self.take(msg.0, ctx);
    }
}

impl Handler<StartDevRun> for DeviceActor {
    type Result = ();

    fn handle(&mut self, msg: StartDevRun, ctx: &mut Self::Context) {
        let number = msg.hold.number;
        let by = Holder::Lane(msg.spec.lane);
        self.specs.insert(number, msg.spec);
        self.take(DeviceInput::Start { number, by, limit: msg.limit }, ctx);
    }
}

impl Handler<RunStep> for DeviceActor {
    type Result = ResponseActFuture<Self, Option<StepReport>>;

    fn handle(&mut self, msg: RunStep, ctx: &mut Self::Context) -> Self::Result {
        let RunStep { hold, job, stage, attempt, step } = msg;
        // A block cannot be asked for without a live hold (rule A1).
        if !self.device.judge_may(hold) {
            return Box::pin(actix::fut::ready(None));
        }
        let work: LocalBoxFuture<'static, StepReport> = match step {
            StageStep::Look => {
                let (read, device) = (self.driver.read(), ctx.address());
                Box::pin(async move {
                    match read.await {
                        Ok(reading) => StepReport::Looked { reading },
                        Err(fault) => {
                            // Not the stage's alone: the card goes out of service once the stage has ended (rule B10).
                            device.do_send(ToMember(DeviceInput::AtFault { why: fault.to_string() }));
                            StepReport::NotCarriedOut { why: fault.to_string() }
                        }
                    }
                })
            }
            step @ (StageStep::Prepare
            | StageStep::Build { .. }
            | StageStep::Check { .. }
            | StageStep::Block { .. }) => self.executor.step(hold, StageRef { job, stage, attempt }, step),
        };
        // What a step says that was stopped with its hold is nobody's failure (rules B9, D5): the hold's end is told.
        Box::pin(work.into_actor(self).map(move |report, device, _| device.device.judge_may(hold).then_some(report)))
    }
}

impl Handler<LookAtMember> for DeviceActor {
    type Result = MemberLook;

    fn handle(&mut self, _: LookAtMember, _: &mut Self::Context) -> MemberLook {
        MemberLook {
            facts: self.driver.facts(),
            state: self.device.view(),
            refused: self.device.refused(),
            containment: self.executor.containment(),
            index: self.driver.index(),
            reading: self.driver.latest(),
        }
    }
}

impl Handler<LookAtLeftovers> for DeviceActor {
    type Result = Vec<Leftovers>;

    fn handle(&mut self, _: LookAtLeftovers, _: &mut Self::Context) -> Self::Result {
        self.executor.leftovers()
    }
}

impl Handler<EndLeftovers> for DeviceActor {
    type Result = ResponseFuture<StopProof>;

    fn handle(&mut self, _: EndLeftovers, _: &mut Self::Context) -> Self::Result {
        self.executor.end_leftovers()
    }
}
