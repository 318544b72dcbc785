//! A lane's mailbox: one development run at a time, and its answers. The rules are `thermite_core::lane`'s.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, info};

use thermite_core::dev_run::{DevRunEnd, DevRunSpec};
use thermite_core::hold::StopCause;
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, LaneId};
use thermite_core::input_log::{Answer, LaneTakes};
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput, LaneState};
use thermite_core::log::LogEntry;
use thermite_core::pool::PoolInput;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::Span;

use crate::alarm::Alarm;
use crate::input_log::Traced;
use crate::member::{EndKept, StartDevRun, ToMember};
use crate::outbox::{Append, Outbox};
use crate::pool::{JoinLine, PoolActor, ToPool};
use crate::ports::{Clock, InputLog};
use crate::rig::{No, Queued};
use crate::roster::Roster;

/// Says something to a lane.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ToLane(pub(crate) LaneInput);

/// Asks a lane for a development run; answered once it is durable and in the line.
#[derive(Message)]
#[rtype(result = "Result<Queued, No>")]
pub(crate) struct AskLane {
    pub(crate) spec: DevRunSpec,
    pub(crate) arrival: Arrival,
    pub(crate) caller: Caller,
    pub(crate) key: Option<String>,
    /// How long it waits at most.
    pub(crate) wait: Span,
}

/// Waits for a development run's end, stopping it first where a cause is given. `None`: it is not under way here.
#[derive(Message)]
#[rtype(result = "Option<DevRunEnd>")]
pub(crate) struct AwaitEnd {
    pub(crate) dev_run: DevRunId,
    pub(crate) stop: Option<StopCause>,
}

/// What a lane does.
#[derive(Message)]
#[rtype(result = "Option<LaneLook>")]
pub(crate) struct LookAtLane;

/// What a lane does.
pub(crate) struct LaneLook {
    pub(crate) spec: Arc<DevRunSpec>,
    pub(crate) state: LaneState,
}

struct UnderWay {
    spec: Arc<DevRunSpec>,
    arrival: Arrival,
    key: Option<String>,
    askers: Vec<oneshot::Sender<Result<Queued, No>>>,
    enders: Vec<oneshot::Sender<DevRunEnd>>,
}

/// One lane.
pub(crate) struct LaneActor {
    id: LaneId,
    lane: Traced<Lane>,
    under_way: Option<UnderWay>,
    clock: Rc<dyn Clock>,
    pool: Addr<PoolActor>,
    outbox: Addr<Outbox>,
    roster: Roster,
    alarm: Alarm,
}

impl LaneActor {
    pub(crate) fn new(
        id: LaneId,
        clock: Rc<dyn Clock>,
        inputs: Rc<dyn InputLog>,
        pool: Addr<PoolActor>,
        outbox: Addr<Outbox>,
        roster: Roster,
    ) -> LaneActor {
        let lane = Traced::new(Lane::new(id), inputs);
        LaneActor { id, lane, under_way: None, clock, pool, outbox, roster, alarm: Alarm::default() }
    }

    fn take(&mut self, input: LaneInput, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        debug!(lane = %self.id, ?input, "lane takes");
        let effects = self.lane.take(now, LaneTakes::Input(input)).effects;
        self.carry_out(effects, ctx);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.lane.take(self.clock.now(), LaneTakes::Time).effects;
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<LaneEffect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                LaneEffect::RecordAsk => self.record_ask(ctx),
                LaneEffect::RecordHold { dev_run, hold } => {
                    let entry = LogEntry::DevRunStarted { dev_run, hold };
                    self.record(entry, LaneInput::HoldRecorded { hold }, ctx);
                }
                LaneEffect::RecordEnd { dev_run, end } => {
                    self.record(LogEntry::DevRunEnded { dev_run, end }, LaneInput::EndRecorded, ctx);
                }
                LaneEffect::AskPool => self.join_line(),
                LaneEffect::CancelWait { dev_run } => {
                    self.pool.do_send(ToPool(PoolInput::CancelWait { lane: self.id, dev_run }));
                }
                LaneEffect::Claim { hold } => {
                    self.pool.do_send(ToPool(PoolInput::Claim { by: Holder::Lane(self.id), hold }));
                }
                LaneEffect::ReleaseUnused { hold } => {
                    self.pool.do_send(ToPool(PoolInput::ReleaseUnused { by: Holder::Lane(self.id), hold }));
                }
                LaneEffect::Start { hold, limit } => self.start_on(hold, limit),
                LaneEffect::StopHold { hold, cause } => {
                    if let Some(doors) = self.roster.doors(hold.member) {
                        let input = thermite_core::device::DeviceInput::Stop { number: hold.number, cause };
                        doors.input.do_send(ToMember(input));
                    }
                }
                LaneEffect::AnswerQueued { dev_run, ahead } => self.answer_asker(Ok(Queued { dev_run, ahead })),
                LaneEffect::AnswerTooLate { .. } => {
                    let why = "the log took longer than a development run waits".to_owned();
                    self.answer_asker(Err(No::Infrastructure(InfrastructureFailure::Records { why })));
                }
                LaneEffect::AnswerNotRecorded { .. } => self.not_recorded(),
                LaneEffect::AnswerEnd { dev_run, end } => self.answer_end(dev_run, &end),
            }
        }
        let deadline = self.lane.next_deadline().map(|next| next.0);
        self.alarm.set(ctx, &self.clock, deadline, Self::ring);
    }

    fn record_ask(&mut self, ctx: &mut Context<Self>) {
        let Some(UnderWay { spec, arrival, key, .. }) = &self.under_way else { return };
        let spec = Box::new(spec.as_ref().clone());
        let entry = LogEntry::DevRunAsked { spec, arrival: *arrival, key: key.clone() };
        let append = self.outbox.send(Append { batch: vec![entry].into(), patient: false }).into_actor(self);
        ctx.spawn(append.map(|answer, lane, ctx| {
            lane.take(
                match answer {
                    Ok(Ok(())) => LaneInput::AskRecorded,
                    Ok(Err(_)) | Err(_) => LaneInput::AskNotRecorded,
                },
                ctx,
            );
        }));
    }

    /// Makes a fact durable that has happened already; it is tried until the records take it.
    fn record(&mut self, entry: LogEntry, then: LaneInput, ctx: &mut Context<Self>) {
        let append = self.outbox.send(Append { batch: vec![entry].into(), patient: true }).into_actor(self);
        ctx.spawn(append.map(move |answer, lane, ctx| {
            if let Ok(Ok(())) = answer {
                lane.take(then, ctx);
            }
        }));
    }

    fn join_line(&self) {
        let (Some(UnderWay { spec, arrival, .. }), LaneState::Waiting { ask, .. }) =
            (&self.under_way, self.lane.state())
        else {
            return;
        };
        self.pool.do_send(JoinLine {
            lane: self.id,
            dev_run: spec.dev_run,
            run: spec.run,
            arrival: *arrival,
            limit: ask.limit,
            since: ask.since,
            latest: ask.latest,
        });
    }

    fn start_on(&self, hold: HoldId, limit: Option<Span>) {
        if let (Some(under_way), Some(doors)) = (&self.under_way, self.roster.doors(hold.member)) {
            doors.start.do_send(StartDevRun { hold, spec: under_way.spec.clone(), limit });
        }
    }

    fn answer_asker(&mut self, answer: Result<Queued, No>) {
        let askers = self.under_way.as_mut().map(|under_way| std::mem::take(&mut under_way.askers)).unwrap_or_default();
        for asker in askers {
            // An asker that went away has no use for the answer.
            drop(asker.send(answer.clone()));
        }
    }

    fn not_recorded(&mut self) {
        let why = "the log refused the entry".to_owned();
        self.answer_asker(Err(No::Infrastructure(InfrastructureFailure::Records { why })));
        self.under_way = None;
    }

    fn answer_end(&mut self, dev_run: DevRunId, end: &DevRunEnd) {
        info!(lane = %self.id, %dev_run, ?end, "development run ended");
        for kept in self.roster.all().into_iter().filter_map(|(_, doors)| doors.kept) {
            kept.do_send(EndKept { dev_run });
        }
        if let Some(under_way) = self.under_way.take() {
            for ender in under_way.enders {
                drop(ender.send(end.clone()));
            }
        }
    }
}

impl Actor for LaneActor {
    type Context = Context<Self>;
}

impl Handler<ToLane> for LaneActor {
    type Result = ();

    fn handle(&mut self, msg: ToLane, ctx: &mut Self::Context) {
        self.take(msg.0, ctx);
    }
}

impl Handler<AskLane> for LaneActor {
    type Result = ResponseFuture<Result<Queued, No>>;

    fn handle(&mut self, msg: AskLane, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        let ask = Ask {
            dev_run: msg.spec.dev_run,
            run: msg.spec.run,
            arrival: msg.arrival,
            limit: msg.spec.contract.dev_run_max,
            caller: msg.caller,
            since: now,
            latest: now + msg.wait,
        };
        let gave = self.lane.take(now, LaneTakes::Ask(ask));
        if let Some(Answer::Refused(refusal)) = gave.answer {
            self.carry_out(gave.effects, ctx);
            return Box::pin(std::future::ready(Err(No::Refusal(refusal))));
        }
        let (asker, answer) = oneshot::channel();
        self.under_way = Some(UnderWay {
            spec: Arc::new(msg.spec),
            arrival: msg.arrival,
            key: msg.key,
            askers: vec![asker],
            enders: Vec::new(),
        });
        self.carry_out(gave.effects, ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(No::ending())) })
    }
}

impl Handler<AwaitEnd> for LaneActor {
    type Result = ResponseFuture<Option<DevRunEnd>>;

    fn handle(&mut self, msg: AwaitEnd, ctx: &mut Self::Context) -> Self::Result {
        let Some(under_way) = self.under_way.as_mut().filter(|known| known.spec.dev_run == msg.dev_run) else {
            return Box::pin(std::future::ready(None));
        };
        let (ender, end) = oneshot::channel();
        under_way.enders.push(ender);
        if let Some(cause) = msg.stop {
            self.take(LaneInput::Stop { dev_run: msg.dev_run, cause }, ctx);
        }
        Box::pin(async move { end.await.ok() })
    }
}

impl Handler<LookAtLane> for LaneActor {
    type Result = Option<LaneLook>;

    fn handle(&mut self, _: LookAtLane, _: &mut Self::Context) -> Self::Result {
        let under_way = self.under_way.as_ref()?;
        Some(LaneLook { spec: under_way.spec.clone(), state: self.lane.state().clone() })
    }
}
