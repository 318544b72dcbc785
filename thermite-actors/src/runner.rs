//! A runner's mailbox on the core: its machine, the asks it wants over the link, and a member's doors. The rules are
//! `thermite_core::runner`'s.
//!
//! To pool, judge queue and lanes it is a member like a local device (`crate::device`). What a start or a step needs is
//! brought first; a development run's output is pulled by offset while it runs and to its end before the end is told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, info};

use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{DeviceInput, MemberEvent};
use thermite_core::ids::{DevRunId, HoldId, Holder};
use thermite_core::input_log::RunnerTakes;
use thermite_core::limits;
use thermite_core::runner::{AskFault, Bus, Question, Runner, RunnerEffect, RunnerInput};
use thermite_core::runners::RunnerDevice;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::wire::{Answer, Ask, Document, SlotAsk, StepOf, Work};

use crate::alarm::Alarm;
use crate::input_log::Traced;
use crate::judge_queue::Distrust;
use crate::member::{
    EndKept, EndLeftovers, LookAtLeftovers, LookAtMember, MemberDoors, MemberLook, RunStep, StartDevRun, ToMember,
};
use crate::ports::{
    BringFault, Clock, DeviceFacts, LaneChanges, Leftovers, LinkFault, RemoteOutputs, RunnerLink, StopProof,
};
use crate::runners::{LookAtRunner, Retire, RunnerBirth, RunnerDoors, RunnerEars, RunnerLook, Runners};
use crate::view::RigHappening;

mod pull;

/// A rig's runners over one link: brings each to life as a member.
pub struct LinkedRunners {
    link: Rc<dyn RunnerLink>,
    changes: Rc<dyn LaneChanges>,
    outputs: Rc<dyn RemoteOutputs>,
    bus: Rc<RefCell<Bus>>,
    /// The least epoch of this start.
    epoch: u64,
}

impl LinkedRunners {
    /// Over that link.
    pub fn new(
        link: Rc<dyn RunnerLink>,
        changes: Rc<dyn LaneChanges>,
        outputs: Rc<dyn RemoteOutputs>,
    ) -> LinkedRunners {
        LinkedRunners { link, changes, outputs, bus: Rc::default(), epoch: 0 }
    }

    /// The same at an epoch no lower than that: the log of a rig that was restored from a backup has counted fewer starts
    /// than its runners have heard of.
    #[must_use]
    pub fn at_epoch(self, epoch: u64) -> LinkedRunners {
        LinkedRunners { epoch, ..self }
    }
}

impl Runners for LinkedRunners {
    fn bring(&self, birth: RunnerBirth) -> RunnerDoors {
        let birth = RunnerBirth { epoch: birth.epoch.max(self.epoch), ..birth };
        let actor = RunnerActor::new(
            birth,
            Rc::clone(&self.link),
            Rc::clone(&self.changes),
            Rc::clone(&self.outputs),
            Rc::clone(&self.bus),
        )
        .start();
        let member = MemberDoors { kept: Some(actor.clone().recipient()), ..MemberDoors::of(&actor) };
        RunnerDoors { member, look: actor.clone().recipient(), retire: actor.recipient() }
    }

    fn away(&self) -> Option<String> {
        let mut bus = self.bus.borrow_mut();
        bus.link(self.link.is_up());
        bus.is_away().then(|| BUS_AWAY.to_owned())
    }
}

/// How a rig that has lost its runners all at once says it (rule E11).
const BUS_AWAY: &str = "the bus is away: no runner is heard of; what they ran goes on as their leases say";

/// A step that the judge waits for.
struct Asked {
    hold: u64,
    of: StepOf,
    step: StageStep,
    reply: oneshot::Sender<Option<StepReport>>,
}

/// A development run that is to be started, or was.
struct ToStart {
    spec: Arc<DevRunSpec>,
    commit: Option<String>,
}

/// One runner.
pub struct RunnerActor {
    runner: Traced<Runner>,
    epoch: u64,
    link: Rc<dyn RunnerLink>,
    changes: Rc<dyn LaneChanges>,
    outputs: Rc<dyn RemoteOutputs>,
    bus: Rc<RefCell<Bus>>,
    ears: RunnerEars,
    clock: Rc<dyn Clock>,
    /// What its device was when it told last, as the records know it.
    remembered: Option<RunnerDevice>,
    /// What it told of itself, as it was passed on.
    found: Option<(DeviceFacts, u32)>,
    containment: Option<String>,
    starts: BTreeMap<u64, ToStart>,
    asked: Option<Asked>,
    /// What is being brought for a hold.
    bringing: Option<(u64, SpawnHandle)>,
    /// Outputs that are being pulled, by grant.
    pulls: BTreeMap<u64, SpawnHandle>,
    /// Grants whose end the log is to have, by development run.
    ends: BTreeMap<DevRunId, u64>,
    /// What the machine wanted at its birth.
    first: Vec<RunnerEffect>,
    alarm: Alarm,
}

impl RunnerActor {
    /// A runner that comes to life.
    fn new(
        birth: RunnerBirth,
        link: Rc<dyn RunnerLink>,
        changes: Rc<dyn LaneChanges>,
        outputs: Rc<dyn RemoteOutputs>,
        bus: Rc<RefCell<Bus>>,
    ) -> RunnerActor {
        let RunnerBirth { member, runner, last, epoch, quarantine, device, ears } = birth;
        let clock = ears.clock();
        let (mut machine, mut first) = Runner::new(clock.now(), member, runner, last, None);
        if let Some(why) = quarantine {
            let input = RunnerInput::Member(DeviceInput::Quarantine { why });
            first.extend(machine.handle(clock.now(), input));
        }
        RunnerActor {
            runner: Traced::new(machine, ears.inputs()),
            epoch,
            link,
            changes,
            outputs,
            bus,
            ears,
            clock,
            remembered: device,
            found: None,
            containment: None,
            starts: BTreeMap::new(),
            asked: None,
            bringing: None,
            pulls: BTreeMap::new(),
            ends: BTreeMap::new(),
            first,
            alarm: Alarm::default(),
        }
    }

    fn take(&mut self, input: RunnerInput, ctx: &mut Context<Self>) {
        debug!(runner = %self.runner.name(), ?input, "runner takes");
        let effects = self.runner.take(self.clock.now(), RunnerTakes::Input(input)).effects;
        self.carry_out(effects, ctx);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.runner.take(self.clock.now(), RunnerTakes::Time).effects;
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<RunnerEffect>, ctx: &mut Context<Self>) {
        self.tell_what_it_is();
        for effect in effects {
            match effect {
                RunnerEffect::Ask { id, what } => self.ask(id, what, ctx),
                RunnerEffect::Bring { number } => self.bring(number, ctx),
                RunnerEffect::StageOpen { number } => self.ears.stage_opened(number),
                RunnerEffect::StepDone { number, report } => self.step_done(number, report),
                RunnerEffect::Pull { number } => {
                    if let Some(ToStart { spec, .. }) = self.starts.get(&number) {
                        self.pull(number, spec.dev_run, false, ctx);
                    }
                }
                RunnerEffect::Fetch { number, dev_run } => self.pull(number, dev_run, true, ctx),
                RunnerEffect::Distrust => {
                    if let Some((facts, _)) = &self.found {
                        self.ears.judge.do_send(Distrust { uuid: facts.uuid.clone() });
                    }
                }
                RunnerEffect::Tell(event) => self.tell(event, ctx),
            }
        }
        self.bus.borrow_mut().runner(self.runner.member(), self.runner.is_missing());
        self.ears.events.tell(RigHappening::Device { member: self.runner.member(), state: self.runner.view() });
        let deadline = self.runner.next_deadline().map(|next| next.0);
        self.alarm.set(ctx, &self.clock, deadline, Self::ring);
    }

    /// Passes on what the runner told of itself, before anything by which it could be granted.
    fn tell_what_it_is(&mut self) {
        let Some(facts) = self.runner.facts() else { return };
        self.containment.clone_from(&facts.containment);
        let facts = DeviceFacts {
            target: facts.target,
            uuid: facts.uuid.clone(),
            model: facts.model.clone(),
            driver: facts.driver.clone(),
            clock_policy: facts.clock_policy.clone(),
            cpus: facts.cpus.clone(),
            cores: facts.cores,
        };
        let found = (facts, self.runner.serves().map_or(0, u32::from));
        if self.found.as_ref() != Some(&found) {
            self.found = Some(found.clone());
            self.ears.found(found.0, found.1);
        }
    }

    fn tell(&mut self, event: MemberEvent, ctx: &mut Context<Self>) {
        match &event {
            MemberEvent::Freed { number, .. } => self.freed(*number, ctx),
            MemberEvent::Gone { why } => info!(runner = %self.runner.name(), %why, "runner takes no runs"),
            MemberEvent::Ready { .. } => info!(runner = %self.runner.name(), "runner is ready"),
            MemberEvent::Started { .. } => {}
        }
        self.ears.says(event);
    }

    /// A hold is over: nothing is brought, pulled or waited for under it any more.
    fn freed(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some((of, handle)) = self.bringing.take() {
            if of == number {
                ctx.cancel_future(handle);
            } else {
                self.bringing = Some((of, handle));
            }
        }
        if let Some(handle) = self.pulls.remove(&number) {
            ctx.cancel_future(handle);
        }
        if let Some(ToStart { spec, .. }) = self.starts.remove(&number) {
            self.outputs.end(spec.dev_run);
            self.ends.insert(spec.dev_run, number);
        }
        if self.asked.as_ref().is_some_and(|asked| asked.hold == number) {
            self.step_done(number, None);
        }
    }

    fn ask(&mut self, id: u64, what: Question, ctx: &mut Context<Self>) {
        let Some(what) = self.loaded(what) else {
            // What it was to carry is gone with its hold: nothing was sent.
            ctx.address().do_send(Heard(RunnerInput::Failed { id, fault: AskFault::Down }));
            return;
        };
        let name = self.runner.name();
        let ask = Ask { epoch: self.epoch, slot: name.slot, what };
        let answer = self.link.ask(&name.process, ask).into_actor(self);
        ctx.spawn(answer.map(move |answer, runner, ctx| runner.take(heard(id, answer), ctx)));
    }

    /// The ask with all that it carries.
    fn loaded(&self, what: Question) -> Option<SlotAsk> {
        Some(match what {
            Question::Check { ticket } => SlotAsk::Check { ticket },
            Question::Start { ticket, number, by: Holder::Judge, .. } => {
                SlotAsk::Start { ticket, grant: number, work: Box::new(Work::Stage) }
            }
            Question::Start { ticket, number, by: Holder::Lane(_), limit } => {
                let ToStart { spec, commit: Some(commit) } = self.starts.get(&number)? else { return None };
                let DevRunSpec { dev_run, run, lane, argv, env, contract, models, .. } = spec.as_ref().clone();
                let commit = commit.clone();
                let contract = Box::new(contract);
                let work = Work::DevRun { dev_run, run, lane, argv, env, contract, limit, commit, models };
                SlotAsk::Start { ticket, grant: number, work: Box::new(work) }
            }
            Question::Step { boot, number, step } => {
                let asked = self.asked.as_ref().filter(|asked| asked.hold == number)?;
                let document = serde_json::to_string(&asked.step).expect("a step has only texts and numbers");
                let of = Box::new(asked.of.clone());
                SlotAsk::Step { boot, grant: number, number: step, of, step: Document(document) }
            }
            Question::Stop { number, cause } => SlotAsk::Stop { grant: number, cause },
            Question::Tell { number } => SlotAsk::Tell { grant: number },
            Question::Ack { number } => SlotAsk::Ack { grant: number },
        })
    }

    /// Brings the commit of a lane's tree to the runner.
    fn bring(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(ToStart { spec, .. }) = self.starts.get(&number) else {
            let why = "nothing was given to start".to_owned();
            ctx.address().do_send(Heard(RunnerInput::NotBrought { number, why }));
            return;
        };
        let (changes, spec) = (Rc::clone(&self.changes), spec.clone());
        let (link, process) = (Rc::clone(&self.link), self.runner.name().process.clone());
        let brought = async move {
            let commit = changes.commit_of(spec.as_ref().clone()).await?;
            bring_all(link, process, spec.run, vec![commit.clone()]).await?;
            Ok::<String, String>(commit)
        };
        let handle = ctx.spawn(brought.into_actor(self).map(move |brought, runner, ctx| {
            runner.bringing = None;
            let input = match brought {
                Ok(commit) => {
                    if let Some(start) = runner.starts.get_mut(&number) {
                        start.commit = Some(commit);
                    }
                    RunnerInput::Brought { number }
                }
                Err(why) => RunnerInput::NotBrought { number, why },
            };
            runner.take(input, ctx);
        }));
        self.bringing = Some((number, handle));
    }

    fn step_done(&mut self, number: u64, report: Option<Document>) {
        let Some(asked) = self.asked.take_if(|asked| asked.hold == number) else { return };
        let report = report.map(|Document(text)| {
            serde_json::from_str(&text).unwrap_or_else(|error| StepReport::NotCarriedOut {
                why: format!("the runner's report cannot be read: {error}"),
            })
        });
        // Whoever asked is gone where the hold is.
        drop(asked.reply.send(report));
    }

    /// What a judge's stage lays out is there: the step is asked for.
    fn step_ready(&mut self, number: u64, brought: Result<(), String>, ctx: &mut Context<Self>) {
        self.bringing = None;
        match brought {
            Ok(()) => self.take(RunnerInput::WantsStep { number }, ctx),
            Err(why) => {
                if let Some(asked) = self.asked.take_if(|asked| asked.hold == number) {
                    drop(asked.reply.send(Some(StepReport::NotCarriedOut { why })));
                }
            }
        }
    }

    fn listen_for_hints(&mut self, ctx: &mut Context<Self>) {
        let hinted = self.link.hinted(&self.runner.name().process).into_actor(self);
        ctx.spawn(hinted.map(|(), runner, ctx| {
            runner.take(RunnerInput::Hinted, ctx);
            runner.listen_for_hints(ctx);
        }));
    }
}

/// What an answer, or none, is to the machine.
fn heard(id: u64, answer: Result<Answer, LinkFault>) -> RunnerInput {
    match answer {
        Ok(answer) => RunnerInput::Answered { id, answer: Box::new(answer) },
        Err(LinkFault::Down) => RunnerInput::Failed { id, fault: AskFault::Down },
        Err(LinkFault::NoAnswer) => RunnerInput::Failed { id, fault: AskFault::NoAnswer },
        Err(LinkFault::Garbled(why)) => {
            debug!(%why, "an answer cannot be read");
            RunnerInput::Failed { id, fault: AskFault::NoAnswer }
        }
        Err(LinkFault::OtherWire { version }) => RunnerInput::Failed { id, fault: AskFault::OtherWire { version } },
    }
}

/// Brings commits, again and again where only the way fails: whoever waits gives up by its own rules.
async fn bring_all(
    link: Rc<dyn RunnerLink>,
    process: thermite_core::wire::ProcessName,
    run: thermite_core::ids::RunId,
    commits: Vec<String>,
) -> Result<(), String> {
    loop {
        match link.bring(&process, run, commits.clone()).await {
            Ok(()) => return Ok(()),
            Err(BringFault::Other(why)) => return Err(why),
            Err(BringFault::Link(fault)) => {
                debug!(%fault, "commits were not brought");
                tokio::time::sleep(limits::RUNNER_RETRY_EVERY.to_std()).await;
            }
        }
    }
}

/// An input for its own machine, in its turn.
#[derive(Message)]
#[rtype(result = "()")]
struct Heard(RunnerInput);

impl Actor for RunnerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let first = std::mem::take(&mut self.first);
        self.carry_out(first, ctx);
        self.listen_for_hints(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.bus.borrow_mut().forget(self.runner.member());
    }
}

impl Handler<Heard> for RunnerActor {
    type Result = ();

    fn handle(&mut self, msg: Heard, ctx: &mut Self::Context) {
        self.take(msg.0, ctx);
    }
}

impl Handler<ToMember> for RunnerActor {
    type Result = ();

    fn handle(&mut self, msg: ToMember, ctx: &mut Self::Context) {
        self.take(RunnerInput::Member(msg.0), ctx);
    }
}

impl Handler<StartDevRun> for RunnerActor {
    type Result = ();

    fn handle(&mut self, msg: StartDevRun, ctx: &mut Self::Context) {
        let number = msg.hold.number;
        let by = Holder::Lane(msg.spec.lane);
        self.starts.insert(number, ToStart { spec: msg.spec, commit: None });
        self.take(RunnerInput::Member(DeviceInput::Start { number, by, limit: msg.limit }), ctx);
    }
}

impl Handler<RunStep> for RunnerActor {
    type Result = ResponseFuture<Option<StepReport>>;

    fn handle(&mut self, msg: RunStep, ctx: &mut Self::Context) -> Self::Result {
        let RunStep { hold, job, stage, attempt, step } = msg;
        // A block cannot be asked for without a live hold (rule A1).
        if !self.runner.judge_may(hold) {
            return Box::pin(std::future::ready(None));
        }
        let HoldId { number, .. } = hold;
        let commits = match step {
            StageStep::Prepare => vec![job.pinned.champion.clone(), job.pinned.candidate.clone()],
            StageStep::Build { .. } | StageStep::Check { .. } | StageStep::Look | StageStep::Block { .. } => Vec::new(),
        };
        let run = job.run;
        let (reply, report) = oneshot::channel();
        self.asked = Some(Asked { hold: number, of: StepOf { job, stage, attempt }, step, reply });
        if commits.is_empty() {
            self.take(RunnerInput::WantsStep { number }, ctx);
        } else {
            let brought = bring_all(Rc::clone(&self.link), self.runner.name().process.clone(), run, commits);
            let brought = brought.into_actor(self);
            let handle = ctx.spawn(brought.map(move |brought, runner, ctx| runner.step_ready(number, brought, ctx)));
            self.bringing = Some((number, handle));
        }
        Box::pin(async move { report.await.ok().flatten() })
    }
}

impl Handler<EndKept> for RunnerActor {
    type Result = ();

    fn handle(&mut self, msg: EndKept, ctx: &mut Self::Context) {
        if let Some(number) = self.ends.remove(&msg.dev_run) {
            self.take(RunnerInput::Kept { number }, ctx);
        }
    }
}

impl Handler<LookAtMember> for RunnerActor {
    type Result = MemberLook;

    fn handle(&mut self, _: LookAtMember, _: &mut Self::Context) -> MemberLook {
        let facts = match (&self.found, &self.remembered) {
            (Some((facts, _)), _) => facts.clone(),
            (None, remembered) => {
                let unknown = String::new;
                let (target, uuid, model) = match remembered.clone() {
                    Some(RunnerDevice { target, uuid, model }) => (target, uuid, model),
                    None => (thermite_core::contract::Target::Cpu, unknown(), unknown()),
                };
                DeviceFacts {
                    target,
                    uuid,
                    model,
                    driver: unknown(),
                    clock_policy: unknown(),
                    cpus: unknown(),
                    cores: 0,
                }
            }
        };
        MemberLook {
            facts,
            state: self.runner.view(),
            refused: self.runner.refused(),
            containment: self.containment.clone(),
            index: None,
            reading: None,
        }
    }
}

impl Handler<LookAtLeftovers> for RunnerActor {
    type Result = Vec<Leftovers>;

    fn handle(&mut self, _: LookAtLeftovers, _: &mut Self::Context) -> Self::Result {
        // On a fresh copy that is thrown away nothing is kept (rule E5).
        Vec::new()
    }
}

impl Handler<EndLeftovers> for RunnerActor {
    type Result = ResponseFuture<StopProof>;

    fn handle(&mut self, _: EndLeftovers, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::ready(StopProof::Empty))
    }
}

impl Handler<LookAtRunner> for RunnerActor {
    type Result = RunnerLook;

    fn handle(&mut self, _: LookAtRunner, _: &mut Self::Context) -> RunnerLook {
        RunnerLook { state: self.runner.state(), answered: self.runner.last_answer() }
    }
}

impl Handler<Retire> for RunnerActor {
    type Result = ();

    fn handle(&mut self, _: Retire, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
