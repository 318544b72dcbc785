//! Runners that do what they are told, over no bus: a scripted device each, which can go away, come back, and be other
//! than the rig wants.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use actix::prelude::*;
use tokio::sync::Notify;

use thermite_core::contract::Target;
use thermite_core::device::{DeviceInput, DeviceView, MemberEvent};
use thermite_core::hold::{RunnerLoss, StopCause};
use thermite_core::ids::MemberId;
use thermite_core::limits;
use thermite_core::pool::PoolInput;
use thermite_core::runner::RunnerState;
use thermite_core::stage::StepReport;
use thermite_core::time::Moment;
use thermite_core::wire::RunnerName;

use crate::device::{DeviceActor, DevicePast};
use crate::member::{
    EndLeftovers, LookAtLeftovers, LookAtMember, MemberDoors, MemberLook, RunStep, StartDevRun, ToMember,
};
use crate::pool::ToPool;
use crate::ports::{Clock, DeviceFacts, Leftovers, StopProof, TargetDriver};
use crate::runners::{LookAtRunner, Retire, RunnerBirth, RunnerDoors, RunnerEars, RunnerLook, Runners};

use super::ScriptedDevice;

/// All runners of a rig under test, by name; a handle of them.
#[derive(Clone)]
pub struct ScriptedRunners(Rc<All>);

struct All {
    clock: Rc<dyn Clock>,
    target: Target,
    seed: u64,
    runners: RefCell<BTreeMap<String, Scripted>>,
    away: RefCell<Option<String>>,
}

#[derive(Clone)]
struct Scripted {
    device: ScriptedDevice,
    serves: Rc<Cell<u32>>,
    link: Rc<Link>,
}

/// The way between a runner and its core.
#[derive(Default)]
struct Link {
    is_cut: Cell<bool>,
    changed: Notify,
}

impl ScriptedRunners {
    /// Runners of that kind of target; what their devices' times vary by follows from the seed.
    pub fn new(clock: Rc<dyn Clock>, target: Target, seed: u64) -> ScriptedRunners {
        let (runners, away) = (RefCell::default(), RefCell::default());
        ScriptedRunners(Rc::new(All { clock, target, seed, runners, away }))
    }

    /// Says of which model the device of a runner is, before it comes to life.
    pub fn be_of_model(&self, name: &str, model: &str) {
        self.declare(name, self.0.target, model);
    }

    /// Says of which kind the device of a runner is, before it comes to life.
    pub fn be_of_target(&self, name: &str, target: Target) {
        self.declare(name, target, "a");
    }

    /// Says how many runners the process serves that this one belongs to; by default as many as its slot's number.
    pub fn serve(&self, name: &str, serves: u32) {
        self.scripted(name).serves.set(serves);
    }

    /// A runner's device.
    pub fn device(&self, name: &str) -> ScriptedDevice {
        self.scripted(name).device
    }

    /// Cuts a runner off, or lets it be heard again. One that is cut off goes on with what it has until its lease is over.
    pub fn cut_off(&self, name: &str, is_cut: bool) {
        let link = self.scripted(name).link;
        link.is_cut.set(is_cut);
        link.changed.notify_waiters();
    }

    /// Says that no runner can be reached at all, and why, or that they can.
    pub fn be_away(&self, why: Option<&str>) {
        *self.0.away.borrow_mut() = why.map(str::to_owned);
    }

    /// Every runner that was ever spoken of.
    pub fn names(&self) -> Vec<String> {
        self.0.runners.borrow().keys().cloned().collect()
    }

    fn declare(&self, name: &str, target: Target, model: &str) {
        let seed = self.0.seed.wrapping_add(name.bytes().fold(0, |sum: u64, byte| sum * 31 + u64::from(byte)) % 1_000);
        let plain = ScriptedDevice::new(target, Rc::clone(&self.0.clock), seed);
        let facts = DeviceFacts { uuid: format!("of-{name}"), model: model.to_owned(), ..plain.facts() };
        let slot = name.rsplit('/').next().and_then(|slot| slot.parse().ok()).unwrap_or(1);
        let scripted = Scripted {
            device: ScriptedDevice::with_facts(Rc::clone(&self.0.clock), seed, facts),
            serves: Rc::new(Cell::new(slot)),
            link: Rc::default(),
        };
        self.0.runners.borrow_mut().insert(name.to_owned(), scripted);
    }

    fn scripted(&self, name: &str) -> Scripted {
        if !self.0.runners.borrow().contains_key(name) {
            self.be_of_model(name, "a");
        }
        self.0.runners.borrow()[name].clone()
    }

    /// What a process serves in all: the most that any of its runners was said to belong to.
    fn served(&self, name: &RunnerName) -> u32 {
        let runners = self.0.runners.borrow();
        let of_process =
            |known: &&String| known.rsplit_once('/').is_some_and(|(process, _)| process == name.process.as_str());
        runners.iter().filter(|(known, _)| of_process(known)).map(|(_, known)| known.serves.get()).max().unwrap_or(1)
    }
}

impl Runners for ScriptedRunners {
    fn bring(&self, birth: RunnerBirth) -> RunnerDoors {
        let scripted = self.scripted(&birth.runner.to_string());
        let ctx = Context::<RunnerOfScript>::new();
        let (own, ears) = (ctx.address(), birth.ears);
        let past = DevicePast { last: birth.last, quarantine: birth.quarantine };
        let device = DeviceActor::new(
            scripted.device.ports(birth.member),
            past,
            ears.clock(),
            ears.inputs(),
            ears.events.clone(),
            own.clone().recipient(),
            ears.judge.clone(),
        );
        ctx.run(RunnerOfScript {
            member: birth.member,
            facts: scripted.device.facts(),
            scripted,
            all: self.clone(),
            name: birth.runner,
            device: MemberDoors::of(&device.start()),
            ears,
            hears: Hears::Nothing { since_start: true, hand_on: Moment::START },
            answered: None,
            kept: Vec::new(),
            hold: None,
            is_out: true,
        });
        RunnerDoors { member: MemberDoors::of(&own), look: own.clone().recipient(), retire: own.recipient() }
    }

    fn away(&self) -> Option<String> {
        self.0.away.borrow().clone()
    }
}

/// What the core hears of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hears {
    /// All.
    All,
    /// Nothing: its work is handed on then.
    Nothing { since_start: bool, hand_on: Moment },
}

/// One of them: a local device, with the way to it between.
struct RunnerOfScript {
    member: MemberId,
    name: RunnerName,
    facts: DeviceFacts,
    scripted: Scripted,
    all: ScriptedRunners,
    device: MemberDoors,
    ears: RunnerEars,
    hears: Hears,
    answered: Option<Moment>,
    /// What it said while nobody heard it.
    kept: Vec<MemberEvent>,
    /// The hold that it works under.
    hold: Option<u64>,
    /// Whether its device is out of service, or has not been swept yet.
    is_out: bool,
}

impl RunnerOfScript {
    /// Looks at the way to it, now and whenever that changes.
    fn look_at_link(&mut self, ctx: &mut Context<Self>) {
        let is_cut = self.scripted.link.is_cut.get();
        match (is_cut, self.hears) {
            (false, Hears::Nothing { .. }) => self.is_heard(),
            (true, Hears::All) => self.is_lost(ctx),
            (false, Hears::All) | (true, Hears::Nothing { .. }) => {}
        }
        let link = Rc::clone(&self.scripted.link);
        let changed = async move { link.changed.notified().await }.into_actor(self);
        ctx.spawn(changed.map(|(), runner, ctx| runner.look_at_link(ctx)));
    }

    fn is_heard(&mut self) {
        self.hears = Hears::All;
        self.answered = Some(self.ears.clock().now());
        self.ears.found(self.facts.clone(), self.all.served(&self.name));
        for event in std::mem::take(&mut self.kept) {
            self.ears.says(event);
        }
        // What it works on it has still, and takes more once that is over.
        if !self.is_out {
            self.ears.says(MemberEvent::Ready { last: 0 });
        }
    }

    fn is_lost(&mut self, ctx: &mut Context<Self>) {
        let hand_on = self.ears.clock().now() + limits::HAND_ON_AFTER;
        self.hears = Hears::Nothing { since_start: false, hand_on };
        self.ears.says(MemberEvent::Gone { why: "it does not answer".to_owned() });
        let lost = self.hold;
        ctx.run_later(limits::HAND_ON_AFTER.to_std(), move |runner, _| runner.hand_on(lost, hand_on));
    }

    /// Its lease is over: nothing of its work is left, whatever it could not say.
    fn hand_on(&mut self, lost: Option<u64>, at: Moment) {
        if let (Hears::Nothing { hand_on, .. }, Some(number)) = (self.hears, lost)
            && hand_on == at
            && self.hold == Some(number)
        {
            let cause = StopCause::RunnerLost { how: RunnerLoss::Away };
            self.device.input.do_send(ToMember(DeviceInput::Stop { number, cause }));
        }
    }
}

impl Actor for RunnerOfScript {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look_at_link(ctx);
    }
}

impl Handler<ToPool> for RunnerOfScript {
    type Result = ();

    /// What its device says.
    fn handle(&mut self, msg: ToPool, _: &mut Self::Context) {
        let PoolInput::Member { event, .. } = msg.0 else { return };
        let mut is_end = false;
        if let MemberEvent::Freed { number, .. } = &event {
            is_end = self.hold == Some(*number);
            self.hold = self.hold.filter(|held| held != number);
        }
        match &event {
            MemberEvent::Ready { .. } => self.is_out = false,
            MemberEvent::Gone { .. } => self.is_out = true,
            MemberEvent::Started { .. } | MemberEvent::Freed { .. } => {}
        }
        match self.hears {
            Hears::All => self.ears.says(event),
            // The core hands it on by its own clock.
            Hears::Nothing { hand_on, .. } if is_end && self.ears.clock().now() >= hand_on => self.ears.says(event),
            Hears::Nothing { .. } => {
                // That it is ready is said when it is heard again.
                if !matches!(event, MemberEvent::Ready { .. }) {
                    self.kept.push(event);
                }
            }
        }
    }
}

impl Handler<ToMember> for RunnerOfScript {
    type Result = ();

    fn handle(&mut self, msg: ToMember, _: &mut Self::Context) {
        if let DeviceInput::Start { number, .. } = msg.0 {
            self.hold = Some(number);
        }
        self.device.input.do_send(msg);
    }
}

impl Handler<StartDevRun> for RunnerOfScript {
    type Result = ();

    fn handle(&mut self, msg: StartDevRun, _: &mut Self::Context) {
        self.hold = Some(msg.hold.number);
        self.device.start.do_send(msg);
    }
}

impl Handler<RunStep> for RunnerOfScript {
    type Result = ResponseActFuture<Self, Option<StepReport>>;

    fn handle(&mut self, msg: RunStep, _: &mut Self::Context) -> Self::Result {
        let (link, number, step) = (Rc::clone(&self.scripted.link), msg.hold.number, self.device.step.send(msg));
        let report = async move {
            let report = step.await.ok().flatten();
            while link.is_cut.get() {
                link.changed.notified().await;
            }
            report
        };
        // A hold that is over by then has no use for it.
        Box::pin(report.into_actor(self).map(move |report, runner, _| report.filter(|_| runner.hold == Some(number))))
    }
}

impl Handler<LookAtMember> for RunnerOfScript {
    type Result = ResponseFuture<MemberLook>;

    fn handle(&mut self, _: LookAtMember, _: &mut Self::Context) -> Self::Result {
        let look = self.device.look.send(LookAtMember);
        Box::pin(async move { look.await.expect("the device lives as long as its runner") })
    }
}

impl Handler<LookAtLeftovers> for RunnerOfScript {
    type Result = Vec<Leftovers>;

    fn handle(&mut self, _: LookAtLeftovers, _: &mut Self::Context) -> Self::Result {
        Vec::new()
    }
}

impl Handler<EndLeftovers> for RunnerOfScript {
    type Result = ResponseFuture<StopProof>;

    fn handle(&mut self, _: EndLeftovers, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::ready(StopProof::Empty))
    }
}

impl Handler<LookAtRunner> for RunnerOfScript {
    type Result = ResponseActFuture<Self, RunnerLook>;

    fn handle(&mut self, _: LookAtRunner, _: &mut Self::Context) -> Self::Result {
        let look = self.device.look.send(LookAtMember).into_actor(self);
        Box::pin(look.map(|look, runner, _| {
            let answered = runner.answered;
            let state = match (runner.hears, answered, look.map(|look| look.state)) {
                (Hears::Nothing { since_start: false, hand_on }, ..) => RunnerState::Away { hand_on },
                (Hears::Nothing { since_start: true, .. }, ..) | (Hears::All, None, _) => RunnerState::Reconciling,
                (Hears::All, Some(answered), Ok(DeviceView::Held { hold, by, .. })) => {
                    RunnerState::Busy { number: hold.number, by, answered, stop: None }
                }
                (Hears::All, Some(answered), Ok(DeviceView::Ready)) => RunnerState::Ready { answered },
                (Hears::All, Some(_), _) => RunnerState::Reconciling,
            };
            RunnerLook { state, answered }
        }))
    }
}

impl Handler<Retire> for RunnerOfScript {
    type Result = ();

    fn handle(&mut self, _: Retire, ctx: &mut Self::Context) {
        assert_eq!(self.hold, None, "{} is let go while it works", self.member);
        ctx.stop();
    }
}
