//! The pool's mailbox. The rules are `thermite_core::pool`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, error};

use thermite_core::device::DeviceInput;
use thermite_core::ids::{Arrival, DevRunId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::input_log::PoolTakes;
use thermite_core::judge_queue::JudgeInput;
use thermite_core::lane::LaneInput;
use thermite_core::pool::{Discipline, JudgesDevice, MemberView, Overlooked, Pool, PoolEffect, PoolInput};
use thermite_core::time::{Moment, Span};
use thermite_core::wait::Wait;

use crate::alarm::Alarm;
use crate::events::Events;
use crate::input_log::Traced;
use crate::judge_queue::{JudgeQueueActor, ToJudge};
use crate::lane::{LaneActor, ToLane};
use crate::member::ToMember;
use crate::ports::Clock;
use crate::roster::Roster;
use crate::runners::{RunnerLeft, RunnersActor};
use crate::view::RigHappening;

/// Says something to the pool.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ToPool(pub(crate) PoolInput);

/// Puts a lane's development run into the line, for the members that serve the lane.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct JoinLine {
    pub(crate) lane: LaneId,
    pub(crate) dev_run: DevRunId,
    pub(crate) run: RunId,
    pub(crate) arrival: Arrival,
    pub(crate) limit: Option<Span>,
    pub(crate) since: Moment,
    pub(crate) latest: Moment,
}

/// Gives the members out anew; what it answers resolves once that is in force, with a later one where that came between.
#[derive(Message)]
#[rtype(result = "oneshot::Receiver<()>")]
pub(crate) struct SetSplit {
    pub(crate) version: u64,
    pub(crate) disciplines: BTreeMap<MemberId, Discipline>,
}

/// What the pool knows.
#[derive(Message)]
#[rtype(result = "PoolLook")]
pub(crate) struct LookAtPool;

/// What the pool knows.
#[derive(MessageResponse)]
pub(crate) struct PoolLook {
    pub(crate) waits: Vec<(LaneId, DevRunId, Wait)>,
    pub(crate) device: JudgesDevice,
    /// How the device stands that a confirmation would get, by where its screening was won (rule B6).
    pub(crate) confirming: BTreeMap<MemberId, JudgesDevice>,
    /// How the device stands that a job would get that infrastructure has failed somewhere (rule D5).
    pub(crate) failed: BTreeMap<JobId, JudgesDevice>,
    /// How the bench stands, where there is one.
    pub(crate) bench: Option<JudgesDevice>,
    pub(crate) members: BTreeMap<MemberId, MemberView>,
    /// Until when the cards are being given out anew, where they are.
    pub(crate) new_split: Option<Moment>,
    /// For how long lanes may go before the judge on shared runners at most (rule E1).
    pub(crate) lanes_first: Span,
    /// The lanes that runners serve (rule E2).
    pub(crate) runners_serve: BTreeSet<LaneId>,
    /// How often the watchdog has found someone.
    pub(crate) overlooked: u64,
}

/// All members and waiters of a rig.
pub(crate) struct PoolActor {
    pub(crate) pool: Traced<Pool>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) events: Rc<Events>,
    pub(crate) roster: Roster,
    pub(crate) runners: Addr<RunnersActor>,
    pub(crate) lanes: BTreeMap<LaneId, Addr<LaneActor>>,
    pub(crate) judge: Addr<JudgeQueueActor>,
    pub(crate) watchdog: Watchdog,
    pub(crate) alarm: Alarm,
    /// Who waits for a new split to be in force, by its version.
    pub(crate) splitters: Vec<(u64, oneshot::Sender<()>)>,
}

/// Reports whoever waits beside a free ready device, once each time it comes to that (rule A9).
#[derive(Default)]
pub(crate) struct Watchdog {
    seen: Option<Overlooked>,
    found: u64,
}

impl Watchdog {
    fn look(&mut self, pool: &Pool, events: &Events) {
        let seen = pool.overlooked();
        if let Some(who) = seen.filter(|_| seen != self.seen) {
            self.found += 1;
            error!(fault = %who, "a waiter was overlooked");
            events.tell(RigHappening::Alarm { what: who.to_string() });
        }
        self.seen = seen;
    }
}

impl PoolActor {
    fn take(&mut self, input: PoolInput, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        debug!(?input, "pool takes");
        let effects = self.pool.take(now, PoolTakes::Input(input)).effects;
        self.carry_out(effects, ctx);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.pool.take(self.clock.now(), PoolTakes::Time).effects;
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<PoolEffect>, ctx: &mut Context<Self>) {
        for effect in effects {
            debug!(?effect, "pool wants");
            match effect {
                PoolEffect::InLine { lane, dev_run, ahead } => self.lane(lane, LaneInput::InLine { dev_run, ahead }),
                PoolEffect::GrantLane { lane, dev_run, hold, limit } => {
                    self.lane(lane, LaneInput::Granted { dev_run, hold, limit });
                }
                PoolEffect::GrantJudge { hold, serves } => self.judge(JudgeInput::Granted { hold, serves }),
                PoolEffect::GaveUp { lane, dev_run, why } => self.lane(lane, LaneInput::GaveUp { dev_run, why }),
                PoolEffect::WaitCancelled { lane, dev_run } => self.lane(lane, LaneInput::WaitCancelled { dev_run }),
                PoolEffect::Requeued { lane, hold } => self.lane(lane, LaneInput::Requeued { hold }),
                PoolEffect::HoldEnded { to: Holder::Lane(lane), hold, how } => {
                    self.lane(lane, LaneInput::HoldEnded { hold, how });
                }
                PoolEffect::HoldEnded { to: Holder::Judge, hold, how } => {
                    self.judge(JudgeInput::HoldEnded { hold, how })
                }
                PoolEffect::WorkTaken { version } => self.judge(JudgeInput::WorkTaken { version }),
                PoolEffect::SplitSet { version } => {
                    for (_, splitter) in self.splitters.extract_if(.., |splitter| splitter.0 <= version) {
                        // An asker that went away has no use for the answer.
                        let _ = splitter.send(());
                    }
                }
                PoolEffect::RunnerLeft { member } => self.runners.do_send(RunnerLeft(member)),
                PoolEffect::Void { hold } => self.member(hold.member, DeviceInput::Void { number: hold.number }),
                PoolEffect::Stop { hold, cause } => {
                    self.member(hold.member, DeviceInput::Stop { number: hold.number, cause });
                }
            }
        }
        self.events.stir();
        self.watchdog.look(&self.pool, &self.events);
        let deadline = self.pool.next_deadline().map(|next| next.0);
        self.alarm.set(ctx, &self.clock, deadline, Self::ring);
    }

    fn lane(&self, lane: LaneId, input: LaneInput) {
        if let Some(actor) = self.lanes.get(&lane) {
            actor.do_send(ToLane(input));
        }
    }

    fn judge(&self, input: JudgeInput) {
        self.judge.do_send(ToJudge(input));
    }

    fn member(&self, member: MemberId, input: DeviceInput) {
        if let Some(doors) = self.roster.doors(member) {
            doors.input.do_send(ToMember(input));
        }
    }
}

impl Actor for PoolActor {
    type Context = Context<Self>;
}

impl Handler<ToPool> for PoolActor {
    type Result = ();

    fn handle(&mut self, msg: ToPool, ctx: &mut Self::Context) {
        self.take(msg.0, ctx);
    }
}

impl Handler<JoinLine> for PoolActor {
    type Result = ();

    fn handle(&mut self, msg: JoinLine, ctx: &mut Self::Context) {
        let JoinLine { lane, dev_run, run, arrival, limit, since, latest } = msg;
        let acceptable = self.pool.acceptable(lane);
        self.take(PoolInput::Ask { lane, dev_run, run, arrival, acceptable, limit, since, latest }, ctx);
    }
}

impl Handler<SetSplit> for PoolActor {
    type Result = MessageResult<SetSplit>;

    fn handle(&mut self, msg: SetSplit, ctx: &mut Self::Context) -> Self::Result {
        let SetSplit { version, disciplines } = msg;
        let (splitter, in_force) = oneshot::channel();
        self.splitters.push((version, splitter));
        self.take(PoolInput::SetSplit { version, disciplines }, ctx);
        MessageResult(in_force)
    }
}

impl Handler<LookAtPool> for PoolActor {
    type Result = PoolLook;

    fn handle(&mut self, _: LookAtPool, _: &mut Self::Context) -> PoolLook {
        PoolLook {
            waits: self.pool.waits(),
            device: self.pool.judges_device(),
            confirming: self.pool.confirming().into_iter().collect(),
            failed: self.pool.devices_of_failed().into_iter().collect(),
            bench: self.pool.bench(),
            members: self.pool.members().into_iter().map(|member| (member.member, member)).collect(),
            new_split: self.pool.new_split(),
            lanes_first: self.pool.lanes_first(),
            runners_serve: self.lanes.keys().copied().filter(|lane| self.pool.runners_serve(*lane)).collect(),
            overlooked: self.watchdog.found,
        }
    }
}

#[cfg(test)]
mod tests {
    use thermite_core::device::MemberEvent;
    use thermite_core::pool::JudgeWork;

    use super::*;
    use crate::ports::NoInputLog;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Moment {
            Moment::START
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    /// A pool that a fault made forget its waiter: no matching pass came after the records could be written again.
    fn forgetful() -> Pool {
        let mut pool = Pool::new([(MemberId(0), Discipline::JudgeFirst)]);
        let lane = LaneId::new(1).expect("lane 1 exists");
        let ready = MemberEvent::Ready { last: 0 };
        for input in [
            PoolInput::Member { member: MemberId(0), event: ready },
            PoolInput::JudgeWork(JudgeWork { version: 1, ..JudgeWork::default() }),
            PoolInput::Recording(false),
            PoolInput::Ask {
                lane,
                dev_run: DevRunId(uuid::Uuid::nil()),
                run: RunId(uuid::Uuid::nil()),
                arrival: Arrival(1),
                acceptable: vec![MemberId(0)],
                limit: None,
                since: Moment::START,
                latest: Moment::from_millis(1_000),
            },
        ] {
            pool.handle(Moment::START, input);
        }
        let mut state = serde_json::to_value(&pool).expect("a state has JSON");
        state["recording"] = true.into();
        serde_json::from_value(state).expect("it is a pool's state")
    }

    #[test]
    fn the_watchdog_tells_whom_it_finds_once_and_counts() {
        let events = Events::new(Rc::new(Still));
        let mut heard = events.sender().subscribe();
        let pool = Traced::new(forgetful(), Rc::new(NoInputLog));
        let mut watchdog = Watchdog::default();

        watchdog.look(&pool, &events);
        watchdog.look(&pool, &events);

        let told = heard.try_recv().expect("it was told");
        let RigHappening::Alarm { what } = &told.what else { panic!("{told:?}") };
        assert!(what.ends_with("of lane 1 waits although device 0 is free and may serve it"), "{what}");
        assert!(heard.try_recv().is_err(), "it is told once");
        assert_eq!(watchdog.found, 1);
    }
}
