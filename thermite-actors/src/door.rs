//! Behind the rig's door: what is asked is checked, given its place in the order of all askings, and sent to the actor
//! whose matter it is.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::broadcast;

use thermite_core::contract::Target;
use thermite_core::dev_run::{DevRunEnd, DevRunSpec};
use thermite_core::ended::Ended;
use thermite_core::fold::RigHistory;
use thermite_core::hold::StopCause;
use thermite_core::ids::{Arrival, DevRunId, JobId, LaneId, MemberId, RunId};
use thermite_core::job::JobSpec;
use thermite_core::lane::LaneInput;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::pool::{Discipline, Pool, PoolInput};
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use thermite_core::run::{RunSpec, RunState};
use thermite_core::split::CardFact;
use thermite_core::time::Span;

use crate::alarm::Alarm;
use crate::bench::BenchDriver;
use crate::device::{DeviceActor, DevicePast};
use crate::events::Events;
use crate::input_log::Traced;
use crate::judge_queue::{ChangeRun, JudgeBirth, JudgeQueueActor, RunFacts, StartRun, SubmitPinned, TakesWork};
use crate::lane::{AskLane, AwaitEnd, LaneActor, LookAtLane, ToLane};
use crate::member::{EndLeftovers, MemberDoors};
use crate::outbox::{Append, DiskRoom, Outbox};
use crate::pool::{PoolActor, ToPool, Watchdog};
use crate::ports::{Clock, DeviceFacts, Ids, MemberPorts, Records, RunRequest, StopProof, WhichEnded, Workspaces};
use crate::rig::{AskDevRun, No, Queued, RigSetup, SubmitJob, Submitted};
use crate::roster::Roster;
use crate::runners::{RunnersActor, RunnersBirth};
use crate::view::{DevRunRow, JobRow, RigEvent, RigView};

mod askings;
mod herald;
pub(crate) mod list;
mod look;
mod noise;
mod over;
pub(crate) mod runners;
pub(crate) mod settings;
pub(crate) mod split;
pub(crate) mod why;

use askings::Askings;
pub(crate) use noise::{AskClear, AskNoiseAgain, LookAtNoise};
use split::Cards;

/// Asks for a run.
#[derive(Message)]
#[rtype(result = "Result<RunId, No>")]
pub(crate) struct AskRun {
    pub(crate) request: RunRequest,
    pub(crate) key: Option<String>,
}

/// Asks for a run's state to be changed.
#[derive(Message)]
#[rtype(result = "Result<RunState, No>")]
pub(crate) struct AskRunState {
    pub(crate) run: RunId,
    pub(crate) state: RunState,
}

/// Asks for a development run.
#[derive(Message)]
#[rtype(result = "Result<Queued, No>")]
pub(crate) struct AskForDevRun(pub(crate) AskDevRun);

/// Says whether a caller's stream is there.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct CallerPresent {
    pub(crate) dev_run: DevRunId,
    pub(crate) present: bool,
}

/// Waits for a development run's end, cancelling it first where asked.
#[derive(Message)]
#[rtype(result = "Result<DevRunEnd, No>")]
pub(crate) struct AskEnd {
    pub(crate) dev_run: DevRunId,
    pub(crate) cancel: bool,
}

/// Submits a job.
#[derive(Message)]
#[rtype(result = "Result<Submitted, No>")]
pub(crate) struct AskJob(pub(crate) SubmitJob);

/// Looks at the whole rig.
#[derive(Message)]
#[rtype(result = "RigView")]
pub(crate) struct Look;

/// Looks at one development run.
#[derive(Message)]
#[rtype(result = "Result<DevRunRow, No>")]
pub(crate) struct LookAtDevRun(pub(crate) DevRunId);

/// Says why the disk has too little room for new work, or that it has enough.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TellDiskRoom(pub(crate) Option<String>);

/// All that the rig remembers.
#[derive(Message)]
#[rtype(result = "Result<RigHistory, No>")]
pub(crate) struct Remember;

/// Looks at one job.
#[derive(Message)]
#[rtype(result = "Result<JobRow, No>")]
pub(crate) struct LookAtJob(pub(crate) JobId);

/// Looks at a run's jobs.
#[derive(Message)]
#[rtype(result = "Result<Vec<JobRow>, No>")]
pub(crate) struct LookAtJobs {
    pub(crate) run: RunId,
    pub(crate) after: Option<JobId>,
    pub(crate) most: usize,
}

/// Counts what the actors keep.
#[derive(Message)]
#[rtype(result = "usize")]
pub(crate) struct Kept;

/// Ends the rig.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct End;

/// The actors of a rig, and the ports that only the door uses.
#[derive(Clone)]
struct Actors {
    pool: Addr<PoolActor>,
    judge: Addr<JudgeQueueActor>,
    outbox: Addr<Outbox>,
    lanes: BTreeMap<LaneId, Addr<LaneActor>>,
    runners: Addr<RunnersActor>,
    /// Whether runners can be reached at all, and why not where they cannot.
    reaches_runners: Result<(), String>,
    /// One list at a time becomes durable, each numbered after the one before it.
    runners_turn: Arc<tokio::sync::Mutex<()>>,
    roster: Roster,
    cards: Cards,
    workspaces: Rc<dyn Workspaces>,
    records: Rc<dyn Records>,
    clock: Rc<dyn Clock>,
    ids: Rc<dyn Ids>,
    /// How long a development run that is asked for waits at most (rule A6).
    dev_run_wait: Rc<Cell<Span>>,
}

/// The door of a rig.
pub(crate) struct Door {
    actors: Actors,
    given: settings::Given,
    last_arrival: u64,
    run_keys: Askings<RunId>,
    dev_run_keys: Askings<Queued>,
    closing: bool,
    /// Why the disk has too little room for new work, where it has.
    no_room: Option<String>,
}

/// Brings a rig's actors to life.
pub(crate) async fn open(
    setup: RigSetup,
) -> Result<(Addr<Door>, broadcast::Sender<Arc<RigEvent>>), InfrastructureFailure> {
    let RigSetup { members, bench, workspaces, records, clock, ids, inputs, settings, runners } = setup;
    let failed = |fault: crate::ports::RecordsFault| InfrastructureFailure::Records { why: fault.0 };
    let past = records.load().await.map_err(failed)?;
    let checked = past.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position);
    let past = past.fold();
    let history = past.history.clone();
    let target = members.first().map_or(Target::Cpu, |member| member.driver.facts().target);
    let events = Events::new(clock.clone());

    // Addresses come first, so that every actor is born with its neighbours.
    let pool_ctx = Context::<PoolActor>::new();
    let judge_ctx = Context::<JudgeQueueActor>::new();
    let (pool, judge) = (pool_ctx.address(), judge_ctx.address());
    let outbox = Outbox::new(records.clone(), checked, past, events.clone(), pool.clone()).start();
    append(&outbox, start_entries(&history)).await?;

    let card = |ports: &MemberPorts| {
        let DeviceFacts { uuid, model, .. } = ports.driver.facts();
        CardFact { member: ports.member, uuid, model }
    };
    let cards =
        Cards::at_start(members.iter().map(card).collect(), &history.split, bench.is_some(), runners.local_judge);
    let mut at_start = Pool::new(cards.disciplines());
    for card in cards.all.iter().filter(|card| history.drained.contains(&card.uuid)) {
        at_start.handle(clock.now(), PoolInput::Drain { member: card.member, drained: true });
    }
    let roster = Roster::default();
    if let Some(executor) = bench {
        let ports = MemberPorts { member: MemberId::BENCH, driver: Rc::new(BenchDriver { target }), executor };
        let past = DevicePast { last: history.last_hold(MemberId::BENCH), quarantine: None };
        let (clock, inputs) = (clock.clone(), inputs.clone());
        let (pool, judge) = (pool.clone().recipient(), judge.clone());
        let bench = DeviceActor::new(ports, past, clock, inputs, events.clone(), pool, judge).start();
        roster.insert_bench(MemberDoors::of(&bench));
    }
    for ports in members {
        let (member, facts): (MemberId, DeviceFacts) = (ports.member, ports.driver.facts());
        let quarantine = history.quarantined.get(&facts.uuid).cloned();
        let past = DevicePast { last: history.last_hold(member), quarantine };
        let (clock, inputs) = (clock.clone(), inputs.clone());
        let (pool, judge) = (pool.clone().recipient(), judge.clone());
        let device = DeviceActor::new(ports, past, clock, inputs, events.clone(), pool, judge).start();
        roster.insert_device(member, MemberDoors::of(&device), facts);
    }
    let lanes: BTreeMap<LaneId, Addr<LaneActor>> = (1..=settings.lanes_most)
        .filter_map(|number| LaneId::new(number).ok())
        .map(|lane| {
            let (clock, inputs) = (clock.clone(), inputs.clone());
            let actor = LaneActor::new(lane, clock, inputs, pool.clone(), outbox.clone(), roster.clone());
            (lane, actor.start())
        })
        .collect();
    let reaches_runners = runners.port.reaches();
    let birth = RunnersBirth {
        set: history.runners.clone(),
        known: history.runner_devices.clone(),
        target,
        setup: runners,
        cards: cards.clone(),
        roster: roster.clone(),
        events: events.clone(),
        clock: clock.clone(),
        inputs: inputs.clone(),
        pool: pool.clone(),
        judge: judge.clone(),
        outbox: outbox.clone(),
    };
    let runners = RunnersActor::new(birth).start();
    let given =
        settings::Given { dev_run_wait: settings.dev_run_wait, lanes_most: settings.lanes_most, turn: Arc::default() };
    pool_ctx.run(PoolActor {
        pool: Traced::new(at_start, inputs.clone()),
        clock: clock.clone(),
        events: events.clone(),
        roster: roster.clone(),
        runners: runners.clone(),
        lanes: lanes.clone(),
        judge: judge.clone(),
        watchdog: Watchdog::default(),
        alarm: Alarm::default(),
        splitters: Vec::new(),
    });
    judge_ctx.run(JudgeQueueActor::new(
        &history,
        JudgeBirth {
            roster: roster.clone(),
            split: cards.for_judge(),
            clock: clock.clone(),
            inputs,
            ids: ids.clone(),
            events: events.clone(),
            workspaces: workspaces.clone(),
            pool: pool.clone(),
            outbox: outbox.clone(),
        },
    ));
    let dev_run_wait = Rc::new(Cell::new(given.wait(history.settings)));
    let actors = Actors {
        dev_run_wait,
        pool,
        judge,
        outbox,
        lanes,
        runners,
        reaches_runners,
        runners_turn: Arc::default(),
        roster,
        cards,
        workspaces,
        records,
        clock,
        ids,
    };
    actix::spawn(herald::tell(actors.clone(), events.clone(), events.sender().subscribe()));
    let door = Door {
        actors,
        given,
        last_arrival: history.last_arrival,
        run_keys: Askings::known(history.runs.iter().map(|(id, run)| (&run.key, *id))),
        dev_run_keys: Askings::known(
            history.dev_runs.iter().map(|(id, known)| (&known.key, Queued { dev_run: *id, ahead: 0 })),
        ),
        closing: false,
        no_room: None,
    };
    Ok((door.start(), events.sender()))
}

/// The log's first words of a rig's life: development runs under way when it died are over, and their lanes are told.
fn start_entries(history: &RigHistory) -> Vec<LogEntry> {
    let cut_off = history.dev_runs.iter().filter(|(_, known)| known.end.is_none());
    let ended = cut_off.map(|(id, _)| LogEntry::DevRunEnded { dev_run: *id, end: DevRunEnd::RigEnded });
    std::iter::once(LogEntry::RigStarted).chain(ended).collect()
}

async fn append(outbox: &Addr<Outbox>, entries: Vec<LogEntry>) -> Result<(), InfrastructureFailure> {
    match outbox.send(Append { batch: entries.into(), patient: false }).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => Err(InfrastructureFailure::Records { why: fault.0 }),
        Err(_) => Err(InfrastructureFailure::RigEnding),
    }
}

impl Door {
    fn arrive(&mut self) -> Arrival {
        self.last_arrival += 1;
        Arrival(self.last_arrival)
    }

    fn open_for_work(&self) -> Result<(), No> {
        if self.closing { Err(No::ending()) } else { Ok(()) }
    }

    /// Whether there is room for what was not asked for before.
    fn room(&self) -> Result<(), No> {
        match &self.no_room {
            None => Ok(()),
            Some(why) => Err(No::Infrastructure(InfrastructureFailure::DiskFull { why: why.clone() })),
        }
    }
}

impl Actor for Door {
    type Context = Context<Self>;
}

impl Handler<AskRun> for Door {
    type Result = ResponseFuture<Result<RunId, No>>;

    fn handle(&mut self, msg: AskRun, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        let actors = self.actors.clone();
        let (key, room) = (msg.key.clone(), self.room());
        self.run_keys.once(msg.key, move || {
            Box::pin(async move {
                if let Some(run) = over::run_of_key(&actors, key.as_ref()).await? {
                    return Ok(run);
                }
                room?;
                start_run(actors, msg.request, key).await
            })
        })
    }
}

async fn start_run(actors: Actors, request: RunRequest, key: Option<String>) -> Result<RunId, No> {
    let lanes = request.lanes.len();
    if lanes > actors.lanes.len() {
        return Err(No::Refusal(Refusal::Impossible {
            thing: "the number of lanes".to_owned(),
            value: lanes.to_string(),
            expected: format!("at most {}", actors.lanes.len()),
        }));
    }
    let spec: RunSpec = actors.workspaces.open(request).await?;
    let target = runners::target(&actors).await?;
    if spec.kit.target != target {
        return Err(No::Refusal(Refusal::WrongTarget { kit: spec.kit.name, wants: spec.kit.target, has: target }));
    }
    let run = RunId(actors.ids.uuid());
    actors.judge.send(StartRun { run, spec, key }).await.map_err(|_| No::ending())?
}

impl Handler<AskRunState> for Door {
    type Result = ResponseFuture<Result<RunState, No>>;

    fn handle(&mut self, msg: AskRunState, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        let AskRunState { run, state } = msg;
        Box::pin(async move {
            let answer = actors.judge.send(ChangeRun { run, state }).await.map_err(|_| No::ending())?;
            if answer == Ok(RunState::Ended) {
                look::stop_stages(&actors, run).await;
                // Waiting ones have left the line; one that runs is stopped, and proved gone.
                stop_all(&actors, Some(run), &StopCause::RunEnded).await;
            }
            answer
        })
    }
}

/// Stops the development runs under way (of one run, or all), and waits for their ends.
async fn stop_all(actors: &Actors, run: Option<RunId>, cause: &StopCause) {
    let mut ends = Vec::new();
    for lane in actors.lanes.values() {
        if let Ok(Some(look)) = lane.send(LookAtLane).await
            && run.is_none_or(|run| run == look.spec.run)
        {
            ends.push(lane.send(AwaitEnd { dev_run: look.spec.dev_run, stop: Some(cause.clone()) }));
        }
    }
    for end in ends {
        drop(end.await);
    }
}

/// Ends what development runs left behind and kept until here (rule C3).
async fn end_leftovers(actors: &Actors) {
    let measuring = actors.roster.measuring();
    let ends: Vec<_> = measuring.iter().map(|(id, doors)| (*id, doors.end_leftovers.send(EndLeftovers))).collect();
    for (member, end) in ends {
        if let Ok(StopProof::NotProved { why }) = end.await {
            tracing::warn!(%member, why, "what development runs left behind is not proved gone");
        }
    }
}

impl Handler<AskForDevRun> for Door {
    type Result = ResponseFuture<Result<Queued, No>>;

    fn handle(&mut self, msg: AskForDevRun, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        let arrival = self.arrive();
        let actors = self.actors.clone();
        let (key, room) = (msg.0.key.clone(), self.room());
        self.dev_run_keys.once(key, move || {
            Box::pin(async move {
                if let Some(queued) = over::dev_run_of_key(&actors, msg.0.key.as_ref()).await? {
                    return Ok(queued);
                }
                room?;
                ask_lane(actors, arrival, msg.0).await
            })
        })
    }
}

async fn ask_lane(actors: Actors, arrival: Arrival, ask: AskDevRun) -> Result<Queued, No> {
    let facts = TakesWork { run: ask.run, paused_too: false };
    let RunFacts { spec: run, .. } = actors.judge.send(facts).await.map_err(|_| No::ending())??;
    let lane = u8::try_from(ask.lane).ok().and_then(|number| LaneId::new(number).ok());
    let place = lane.and_then(|lane| Some((lane, run.lanes.get(usize::from(lane.number()) - 1)?)));
    let Some((lane, worktree)) = place else {
        let have = match run.lanes.len() {
            0 => "no lanes".to_owned(),
            1 => "lane 1".to_owned(),
            most => format!("lanes 1 to {most}"),
        };
        return Err(No::Refusal(Refusal::UnknownLane { lane: ask.lane, have }));
    };
    let spec = DevRunSpec {
        dev_run: DevRunId(actors.ids.uuid()),
        run: ask.run,
        lane,
        worktree: worktree.clone(),
        argv: ask.argv,
        env: ask.env,
        contract: run.kit.contract.clone(),
        models: run.kit.models.clone(),
    };
    actors.workspaces.check_command(&spec)?;
    let actor = actors.lanes.get(&lane).ok_or_else(No::ending)?;
    let wait = actors.dev_run_wait.get();
    actor.send(AskLane { spec, arrival, caller: ask.caller, key: ask.key, wait }).await.map_err(|_| No::ending())?
}

impl Handler<CallerPresent> for Door {
    type Result = ();

    fn handle(&mut self, msg: CallerPresent, _: &mut Self::Context) {
        let CallerPresent { dev_run, present } = msg;
        // Only the lane that has it under way takes it.
        for lane in self.actors.lanes.values() {
            lane.do_send(ToLane(if present {
                LaneInput::CallerBack { dev_run }
            } else {
                LaneInput::CallerGone { dev_run }
            }));
        }
    }
}

impl Handler<AskEnd> for Door {
    type Result = ResponseFuture<Result<DevRunEnd, No>>;

    fn handle(&mut self, msg: AskEnd, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        let AskEnd { dev_run, cancel } = msg;
        Box::pin(async move {
            let stop = cancel.then_some(StopCause::Cancelled);
            for lane in actors.lanes.values() {
                let end = lane.send(AwaitEnd { dev_run, stop: stop.clone() }).await.map_err(|_| No::ending())?;
                if let Some(end) = end {
                    return Ok(end);
                }
            }
            look::ended(&actors, dev_run).await?.ok_or_else(No::ending)
        })
    }
}

impl Handler<AskJob> for Door {
    type Result = ResponseFuture<Result<Submitted, No>>;

    fn handle(&mut self, msg: AskJob, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        let arrival = self.arrive();
        let actors = self.actors.clone();
        let room = self.room();
        Box::pin(async move {
            if let Some(submitted) = over::job_of_key(&actors, msg.0.key.as_ref()).await? {
                return Ok(submitted);
            }
            room?;
            submit(actors, arrival, msg.0).await
        })
    }
}

async fn submit(actors: Actors, arrival: Arrival, ask: SubmitJob) -> Result<Submitted, No> {
    let facts = TakesWork { run: ask.run, paused_too: true };
    let RunFacts { spec, champion } = actors.judge.send(facts).await.map_err(|_| No::ending())??;
    let champion = ask.champion.unwrap_or(champion);
    let pinned = actors.workspaces.pin(spec, champion, ask.change).await?;
    let job = JobId(actors.ids.uuid());
    let spec = JobSpec { job, run: ask.run, arrival, pinned };
    actors.judge.send(SubmitPinned { spec, key: ask.key }).await.map_err(|_| No::ending())?
}

impl Handler<Look> for Door {
    type Result = ResponseFuture<RigView>;

    fn handle(&mut self, _: Look, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::whole(&actors).await })
    }
}

impl Handler<Kept> for Door {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, _: Kept, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::kept(&actors).await })
    }
}

impl Handler<LookAtDevRun> for Door {
    type Result = ResponseFuture<Result<DevRunRow, No>>;

    fn handle(&mut self, msg: LookAtDevRun, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::dev_run(&actors, msg.0).await })
    }
}

impl Handler<TellDiskRoom> for Door {
    type Result = ();

    fn handle(&mut self, msg: TellDiskRoom, _: &mut Self::Context) {
        self.no_room.clone_from(&msg.0);
        self.actors.outbox.do_send(DiskRoom(msg.0));
    }
}

impl Handler<Remember> for Door {
    type Result = ResponseFuture<Result<RigHistory, No>>;

    fn handle(&mut self, _: Remember, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::recall(&actors, RigHistory::clone).await })
    }
}

impl Handler<LookAtJob> for Door {
    type Result = ResponseFuture<Result<JobRow, No>>;

    fn handle(&mut self, msg: LookAtJob, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::job(&actors, msg.0).await })
    }
}

impl Handler<LookAtJobs> for Door {
    type Result = ResponseFuture<Result<Vec<JobRow>, No>>;

    fn handle(&mut self, msg: LookAtJobs, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look::jobs(&actors, msg.run, msg.after, msg.most).await })
    }
}

impl Handler<End> for Door {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: End, _: &mut Self::Context) -> Self::Result {
        self.closing = true;
        let actors = self.actors.clone();
        Box::pin(async move {
            let _ = actors.pool.send(ToPool(PoolInput::Close)).await;
            look::stop_judge(&actors).await;
            let by_the_rules = async {
                stop_all(&actors, None, &StopCause::RigEnding).await;
                look::wait_until_free(&actors).await;
                end_leftovers(&actors).await;
                // Whatever was still to be written is written before this empty batch is.
                drop(append(&actors.outbox, Vec::new()).await);
            };
            // Records that refuse, or never answer, must not keep a rig from ending.
            drop(tokio::time::timeout(limits::RIG_END_MAX.to_std(), by_the_rules).await);
        })
    }
}
