//! The rig's runners as a whole: who is on the list, brought to life and let go while the rig runs, and which of them
//! fit it (rules E8 to E10, E13). The rules are `thermite_core::runners`'; one runner is an actor behind [`Runners`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use actix::prelude::*;
use tracing::{debug, info};

use thermite_core::contract::Target;
use thermite_core::device::{DeviceView, MemberEvent};
use thermite_core::ids::{HoldId, MemberId};
use thermite_core::log::LogEntry;
use thermite_core::pool::PoolInput;
use thermite_core::runner::{RunnerState, WhyNot};
use thermite_core::runners::{self, LocalJudge, RunnerDevice, RunnerSet};
use thermite_core::time::Moment;
use thermite_core::wire::{ProcessName, RunnerName};

use crate::door::split::Cards;
use crate::events::Events;
use crate::judge_queue::{JudgeQueueActor, NewJudges, StageOpened};
use crate::member::MemberDoors;
use crate::outbox::{Append, Outbox, Recall};
use crate::pool::{PoolActor, ToPool};
use crate::ports::{Clock, DeviceFacts, InputLog};
use crate::roster::Roster;
use crate::view::RigHappening;

mod none;

pub use none::NoRunners;

/// How a rig reaches runners: brings each to life as a member of its pool. The bus's, an embedder's own, or scripted.
pub trait Runners {
    /// Brings one to life; it says what it is before it says that it is ready.
    fn bring(&self, birth: RunnerBirth) -> RunnerDoors;
    /// Why no runner can be reached at all, where that is so: the rig has no bus, or its own link is down.
    fn away(&self) -> Option<String> {
        None
    }
    /// Whether runners can be listed at all.
    ///
    /// # Errors
    /// With the sentence to show where the rig was started without a way to reach any.
    fn reaches(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What a runner's actor is born with.
pub struct RunnerBirth {
    /// Its number in the pool.
    pub member: MemberId,
    /// Its name.
    pub runner: RunnerName,
    /// The highest number of a hold that it may have had.
    pub last: u64,
    /// Which start of the core this is: one higher with each.
    pub epoch: u64,
    /// Why an alarm keeps its device out of service, where one does.
    pub quarantine: Option<String>,
    /// What its device was when it told last, in this rig's life or before.
    pub device: Option<RunnerDevice>,
    /// Whom it tells.
    pub ears: RunnerEars,
}

/// Whom a runner's actor tells what. What is said here is heard in the order it is said in.
#[derive(Clone)]
pub struct RunnerEars {
    member: MemberId,
    runners: Addr<RunnersActor>,
    pub(crate) judge: Addr<JudgeQueueActor>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) inputs: Rc<dyn InputLog>,
    /// Also for an actor of a local device that plays a runner's part in tests.
    pub(crate) events: Rc<Events>,
}

impl RunnerEars {
    /// What its device is, and how many runners its process serves: each time that may have changed, before
    /// [`MemberEvent::Ready`] is said.
    pub fn found(&self, facts: DeviceFacts, serves: u32) {
        self.runners.do_send(RunnerFound { member: self.member, facts, serves });
    }

    /// What any member says to the pool.
    pub fn says(&self, event: MemberEvent) {
        self.runners.do_send(ToPool(PoolInput::Member { member: self.member, event }));
    }

    /// The judge may ask for steps under the hold of that number.
    pub fn stage_opened(&self, number: u64) {
        self.judge.do_send(StageOpened { hold: HoldId { member: self.member, number } });
    }

    /// What it does, for whoever listens to the rig: each time that changes.
    pub fn stands(&self, state: DeviceView) {
        self.events.tell(RigHappening::Device { member: self.member, state });
    }

    /// The rig's clock.
    pub fn clock(&self) -> Rc<dyn Clock> {
        Rc::clone(&self.clock)
    }

    /// The log of what machines take.
    pub fn inputs(&self) -> Rc<dyn InputLog> {
        Rc::clone(&self.inputs)
    }
}

/// The doors of one runner.
#[derive(Clone)]
pub struct RunnerDoors {
    /// Those of any member.
    pub member: MemberDoors,
    /// For the runners block.
    pub look: Recipient<LookAtRunner>,
    /// For its end.
    pub retire: Recipient<Retire>,
}

/// How a runner stands.
#[derive(Message)]
#[rtype(result = "RunnerLook")]
pub struct LookAtRunner;

/// It is off the list and holds nothing: it asks nothing any more and ends.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Retire;

/// How a runner stands.
#[derive(Clone, Debug, PartialEq, MessageResponse)]
pub struct RunnerLook {
    /// Its state.
    pub state: RunnerState,
    /// When its last answer came; none where it never answered in this life of the rig.
    pub answered: Option<Moment>,
}

/// How a rig is set up for runners.
#[derive(Clone)]
pub struct RunnerSetup {
    /// How it reaches them.
    pub port: Rc<dyn Runners>,
    /// Whether the core's own devices judge (rule E13).
    pub local_judge: LocalJudge,
}

impl Default for RunnerSetup {
    /// A rig of one machine.
    fn default() -> RunnerSetup {
        RunnerSetup { port: Rc::new(NoRunners), local_judge: LocalJudge::On }
    }
}

/// The runners that judge, as the split must know them too.
#[derive(Clone, Default)]
pub(crate) struct RunnerJudges(Rc<RefCell<Vec<MemberId>>>);

impl RunnerJudges {
    pub(crate) fn members(&self) -> Vec<MemberId> {
        self.0.borrow().clone()
    }
}

/// A runner told what it is.
#[derive(Message)]
#[rtype(result = "()")]
struct RunnerFound {
    member: MemberId,
    facts: DeviceFacts,
    serves: u32,
}

/// Puts a list in force that is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PutInForce(pub(crate) Vec<RunnerSet>);

/// A runner has left the pool.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RunnerLeft(pub(crate) MemberId);

/// The cards that judge are others: what fits them is looked at anew.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct JudgeAnew;

/// What is known of all runners.
#[derive(Message)]
#[rtype(result = "RunnersLook")]
pub(crate) struct LookAtRunners;

/// What is known of all runners.
#[derive(MessageResponse)]
pub(crate) struct RunnersLook {
    pub(crate) set: Vec<RunnerSet>,
    pub(crate) looks: BTreeMap<MemberId, Recipient<LookAtRunner>>,
    pub(crate) known: BTreeMap<MemberId, RunnerDevice>,
    pub(crate) unfit: BTreeMap<MemberId, WhyNot>,
    /// Runners that are served and have no pool.
    pub(crate) without_pool: Vec<RunnerName>,
    /// The rig's kind of target, where it is known.
    pub(crate) target: Option<Target>,
    pub(crate) local_judge: LocalJudge,
    /// Why none can be reached, where that is so.
    pub(crate) away: Option<String>,
}

enum Life {
    /// What the records know of it is on its way.
    Coming,
    Here(RunnerDoors),
}

/// All runners of a rig.
pub(crate) struct RunnersActor {
    pub(crate) set: Vec<RunnerSet>,
    pub(crate) target: Target,
    pub(crate) setup: RunnerSetup,
    pub(crate) cards: Cards,
    pub(crate) roster: Roster,
    pub(crate) events: Rc<Events>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) inputs: Rc<dyn InputLog>,
    pub(crate) pool: Addr<PoolActor>,
    pub(crate) judge: Addr<JudgeQueueActor>,
    pub(crate) outbox: Addr<Outbox>,
    /// What each runner's device is, as the records and the runners themselves told.
    pub(crate) known: BTreeMap<MemberId, RunnerDevice>,
    lives: BTreeMap<MemberId, Life>,
    /// How many runners each process serves, since it told in this life of the rig.
    serves: BTreeMap<ProcessName, u32>,
}

/// What a runners' actor is born with.
pub(crate) struct RunnersBirth {
    pub(crate) set: Vec<RunnerSet>,
    pub(crate) known: BTreeMap<MemberId, RunnerDevice>,
    pub(crate) target: Target,
    pub(crate) setup: RunnerSetup,
    pub(crate) cards: Cards,
    pub(crate) roster: Roster,
    pub(crate) events: Rc<Events>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) inputs: Rc<dyn InputLog>,
    pub(crate) pool: Addr<PoolActor>,
    pub(crate) judge: Addr<JudgeQueueActor>,
    pub(crate) outbox: Addr<Outbox>,
}

impl RunnersActor {
    pub(crate) fn new(birth: RunnersBirth) -> RunnersActor {
        let RunnersBirth { set, known, target, setup, cards, roster, events, clock, inputs, pool, judge, outbox } =
            birth;
        let (lives, serves) = (BTreeMap::new(), BTreeMap::new());
        let actor = RunnersActor {
            set,
            target,
            setup,
            cards,
            roster,
            events,
            clock,
            inputs,
            pool,
            judge,
            outbox,
            known,
            lives,
            serves,
        };
        for (member, device) in &actor.known {
            actor.roster.found(*member, remembered(device.clone()));
        }
        // The judge is born knowing them, by what the records remember.
        *actor.cards.runners.0.borrow_mut() = actor.judges();
        actor
    }

    /// What the rig measures on, where that is known (rules E9, E13).
    fn measures_on(&self) -> Option<RunnerDevice> {
        let core = self.cards.first(self.target);
        runners::measures_on(&self.set, &self.known, core.as_ref(), self.setup.local_judge).cloned()
    }

    fn unfit(&self) -> BTreeMap<MemberId, WhyNot> {
        runners::unfit(&self.set, &self.serves, &self.known, self.measures_on().as_ref())
    }

    /// The runners that judge: the judge's and shared ones that are known and fit, in the list's order.
    fn judges(&self) -> Vec<MemberId> {
        let unfit = self.unfit();
        let judges = |runner: &&RunnerSet| {
            runner.pool.judges() && self.known.contains_key(&runner.member) && !unfit.contains_key(&runner.member)
        };
        self.set.iter().filter(judges).map(|runner| runner.member).collect()
    }

    /// Says anew who fits and who judges: before anything that a runner says by which it could be granted.
    fn judge_anew(&mut self) {
        let unfit = self.unfit().into_iter().map(|(member, why)| (member, why.to_string())).collect();
        self.pool.do_send(ToPool(PoolInput::Unfit { runners: unfit }));
        let (before, judges) = (self.cards.runners.members(), self.judges());
        if before == judges {
            return;
        }
        let gone: BTreeSet<MemberId> = before.into_iter().filter(|member| !judges.contains(member)).collect();
        *self.cards.runners.0.borrow_mut() = judges;
        self.judge.do_send(NewJudges { judging: self.cards.for_judge().judging, gone });
    }

    /// Brings a listed runner to life, once it is known what numbers it has had.
    fn call(&mut self, member: MemberId, ctx: &mut Context<Self>) {
        self.lives.insert(member, Life::Coming);
        let Some(name) = self.set.iter().find(|known| known.member == member).map(|known| known.runner.clone()) else {
            return;
        };
        let called = name.to_string();
        let known = self.known.get(&member).map(|device| device.uuid.clone());
        let past = Recall(Box::new(move |history: &thermite_core::fold::RigHistory| {
            let quarantine = known.and_then(|uuid| history.quarantined.get(&uuid).cloned());
            (history.last_hold(member), history.starts, history.drained.contains(&called), quarantine)
        }));
        let past = self.outbox.send(past).into_actor(self);
        ctx.spawn(past.map(move |past, runners, ctx| {
            if let Ok((last, epoch, drained, quarantine)) = past {
                runners.born(member, (last, epoch), drained, quarantine, ctx);
            }
        }));
    }

    fn born(
        &mut self,
        member: MemberId,
        (last, epoch): (u64, u64),
        drained: bool,
        quarantine: Option<String>,
        ctx: &mut Context<Self>,
    ) {
        let Some(set) = self.set.iter().find(|known| known.member == member).cloned() else {
            // It was taken off the list meanwhile.
            self.lives.remove(&member);
            return;
        };
        let ears = RunnerEars {
            member,
            runners: ctx.address(),
            judge: self.judge.clone(),
            clock: self.clock.clone(),
            inputs: self.inputs.clone(),
            events: self.events.clone(),
        };
        let device = self.known.get(&member).cloned();
        info!(runner = %set.runner, %member, pool = %set.pool, "runner is on the list");
        let add = PoolInput::AddRunner { member, discipline: set.pool.discipline(), drained };
        self.pool.do_send(ToPool(add));
        self.judge_anew();
        let birth = RunnerBirth { member, runner: set.runner.clone(), last, epoch, quarantine, device, ears };
        let doors = self.setup.port.bring(birth);
        self.roster.insert_runner(member, set.runner, doors.member.clone());
        self.lives.insert(member, Life::Here(doors));
    }

    fn call_missing(&mut self, ctx: &mut Context<Self>) {
        let missing: Vec<MemberId> =
            self.set.iter().map(|set| set.member).filter(|member| !self.lives.contains_key(member)).collect();
        missing.into_iter().for_each(|member| self.call(member, ctx));
    }
}

/// What the records know of a runner's device.
fn remembered(device: RunnerDevice) -> DeviceFacts {
    let RunnerDevice { target, uuid, model } = device;
    let unknown = String::new;
    DeviceFacts { target, uuid, model, driver: unknown(), clock_policy: unknown(), cpus: unknown(), cores: 0 }
}

impl Actor for RunnersActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.call_missing(ctx);
    }
}

impl Handler<ToPool> for RunnersActor {
    type Result = ();

    /// What a runner says passes here, so that what it is has been heard before the pool hears that it is ready.
    fn handle(&mut self, msg: ToPool, _: &mut Self::Context) {
        self.pool.do_send(msg);
    }
}

impl Handler<RunnerFound> for RunnersActor {
    type Result = ();

    fn handle(&mut self, msg: RunnerFound, _: &mut Self::Context) {
        let RunnerFound { member, facts, serves } = msg;
        debug!(%member, ?facts, serves, "runner told what it is");
        let Some(set) = self.set.iter().find(|known| known.member == member) else { return };
        self.serves.insert(set.runner.process.clone(), serves);
        let device = RunnerDevice { target: facts.target, uuid: facts.uuid.clone(), model: facts.model.clone() };
        self.roster.found(member, facts);
        if self.known.get(&member) != Some(&device) {
            self.known.insert(member, device.clone());
            let entry = LogEntry::RunnerMet { member, device };
            // It is told again with the next answer, should the rig die before it is durable.
            self.outbox.do_send(Append { batch: vec![entry].into(), patient: true });
        }
        self.judge_anew();
    }
}

impl Handler<PutInForce> for RunnersActor {
    type Result = ();

    fn handle(&mut self, msg: PutInForce, ctx: &mut Self::Context) {
        self.set = msg.0;
        let pools = self.set.iter().map(|set| (set.member, set.pool.discipline())).collect();
        self.judge_anew();
        self.pool.do_send(ToPool(PoolInput::SetRunners { pools }));
        self.call_missing(ctx);
    }
}

impl Handler<RunnerLeft> for RunnersActor {
    type Result = ();

    fn handle(&mut self, msg: RunnerLeft, ctx: &mut Self::Context) {
        let RunnerLeft(member) = msg;
        if let Some(Life::Here(doors)) = self.lives.remove(&member) {
            info!(runner = %self.roster.name(member), "runner has left");
            doors.retire.do_send(Retire);
        }
        self.roster.remove(member);
        // It was listed again while it left: another life begins.
        self.call_missing(ctx);
    }
}

impl Handler<JudgeAnew> for RunnersActor {
    type Result = ();

    fn handle(&mut self, _: JudgeAnew, _: &mut Self::Context) {
        self.judge_anew();
    }
}

impl Handler<LookAtRunners> for RunnersActor {
    type Result = RunnersLook;

    fn handle(&mut self, _: LookAtRunners, _: &mut Self::Context) -> RunnersLook {
        let looks = self.lives.iter().filter_map(|(member, life)| match life {
            Life::Here(doors) => Some((*member, doors.look.clone())),
            Life::Coming => None,
        });
        RunnersLook {
            set: self.set.clone(),
            looks: looks.collect(),
            known: self.known.clone(),
            unfit: self.unfit(),
            without_pool: runners::without_pool(&self.set, &self.serves),
            target: self.measures_on().map(|device| device.target),
            local_judge: self.setup.local_judge,
            away: self.setup.port.away(),
        }
    }
}
