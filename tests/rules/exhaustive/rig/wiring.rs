//! Who hears what of whom: each machine's effects as letters to its neighbours, the disk and the executor.

use std::sync::Arc;

use thermite_core::device::{DeviceEffect, DeviceInput, DeviceState, MemberEvent};
use thermite_core::hold::StopCause;
use thermite_core::ids::{Holder, JobId, LaneId};
use thermite_core::judge_queue::{JudgeEffect, JudgeFact, JudgeInput, Ticket};
use thermite_core::lane::{LaneEffect, LaneInput, LaneState};
use thermite_core::pool::{HolderView, PoolEffect, PoolInput};
use thermite_core::refusal::GaveUp;
use thermite_core::time::Moment;

use super::properties::{EXCLUSIVE, JUDGE_FIRST, NUMBER_ONCE, ONE_END, RECORDED_FIRST};
use super::{Append, DEVICE, Letter, NOW, OpenStage, Party, Phase, Rig, Setup, Tree, lane_id};
use crate::exhaustive::known::Fact;
use crate::exhaustive::mutants::Mutant;

impl Rig {
    pub(super) fn deliver(&mut self, setup: &Setup, from: Party, to: Party) {
        let letters = self.mail.get_mut(&(from, to)).expect("the step was offered");
        let letter = letters.pop_front().expect("a channel without letters is none");
        if letters.is_empty() {
            self.mail.remove(&(from, to));
        }
        self.open(setup, to, letter);
    }

    pub(super) fn open(&mut self, setup: &Setup, to: Party, letter: Letter) {
        match (to, letter) {
            (Party::Pool, Letter::Pool(input)) => self.pool_gets(setup, input),
            (Party::Device, Letter::Device(input)) => self.device_gets(setup, input),
            (Party::Judge, Letter::Judge(input)) => self.judge_gets(setup, input),
            (Party::Lane(lane), Letter::Lane(input)) => self.lane_gets(setup, lane, input),
            (to, letter) => unreachable!("{letter:?} does not go to {to:?}"),
        }
    }

    pub(super) fn send(&mut self, from: Party, to: Party, letter: Letter) {
        self.mail.entry((from, to)).or_default().push_back(letter);
    }

    pub(super) fn pool_gets(&mut self, setup: &Setup, input: PoolInput) {
        let input = setup.mutant.pool_hears(input, self.pool.members()[0].held.as_ref().map(|held| held.0.number));
        let started = match &input {
            PoolInput::Member { event: MemberEvent::Started { number }, .. } => Some(*number),
            _ => None,
        };
        let effects = Arc::make_mut(&mut self.pool).handle(NOW, input);
        if let Some(number) = started
            && let Some((held, HolderView::Lane { dev_run, .. })) = &self.pool.members()[0].held
            && held.number == number
        {
            // It has started: its wait is over.
            self.promises.latest.remove(dev_run);
        }
        self.told_by_pool(&effects);
        self.pool_wants(effects);
    }

    pub(super) fn device_gets(&mut self, setup: &Setup, input: DeviceInput) {
        let effects = Arc::make_mut(&mut self.device).handle(NOW, input);
        self.device_wants(setup, effects);
    }

    pub(super) fn judge_gets(&mut self, setup: &Setup, input: JudgeInput) {
        if setup.mutant == Mutant::WorkTakenIsLost && matches!(input, JudgeInput::WorkTaken { .. }) {
            return;
        }
        let effects = Arc::make_mut(&mut self.judge).handle(NOW, input);
        self.judge_wants(setup, effects);
    }

    pub(super) fn lane_gets(&mut self, setup: &Setup, lane: u8, input: LaneInput) {
        let effects = Arc::make_mut(&mut self.lanes[usize::from(lane)]).handle(NOW, input);
        self.lane_wants(setup, lane, effects);
    }

    pub(super) fn pool_wants(&mut self, effects: Vec<PoolEffect>) {
        for effect in effects {
            let number = |lane: LaneId| lane.number() - 1;
            let (to, letter) = match effect {
                PoolEffect::InLine { lane, dev_run, ahead } => {
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::InLine { dev_run, ahead }))
                }
                PoolEffect::GrantLane { lane, dev_run, hold, limit } => {
                    if !self.promises.accepted.is_subset(&self.promises.ended) {
                        self.broken = Some(JUDGE_FIRST);
                    }
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::Granted { dev_run, hold, limit }))
                }
                PoolEffect::GrantJudge { hold, serves } => {
                    (Party::Judge, Letter::Judge(JudgeInput::Granted { hold, serves }))
                }
                PoolEffect::GaveUp { lane, dev_run, why } => {
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::GaveUp { dev_run, why }))
                }
                PoolEffect::WaitCancelled { lane, dev_run } => {
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::WaitCancelled { dev_run }))
                }
                PoolEffect::Requeued { lane, hold } => {
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::Requeued { hold }))
                }
                PoolEffect::HoldEnded { to: Holder::Lane(lane), hold, how } => {
                    (Party::Lane(number(lane)), Letter::Lane(LaneInput::HoldEnded { hold, how }))
                }
                PoolEffect::HoldEnded { to: Holder::Judge, hold, how } => {
                    (Party::Judge, Letter::Judge(JudgeInput::HoldEnded { hold, how }))
                }
                PoolEffect::WorkTaken { version } => (Party::Judge, Letter::Judge(JudgeInput::WorkTaken { version })),
                PoolEffect::RunnerLeft { .. } => unreachable!("no runner is set here"),
                PoolEffect::SplitSet { .. } => unreachable!("one device is not split"),
                PoolEffect::Void { hold } => (Party::Device, Letter::Device(DeviceInput::Void { number: hold.number })),
                PoolEffect::Stop { hold, cause } => {
                    (Party::Device, Letter::Device(DeviceInput::Stop { number: hold.number, cause }))
                }
            };
            self.send(Party::Pool, to, letter);
        }
    }

    pub(super) fn device_wants(&mut self, setup: &Setup, effects: Vec<DeviceEffect>) {
        for effect in effects {
            match effect {
                DeviceEffect::Sweep => self.executor.sweeping = true,
                DeviceEffect::StartDevRun { number } => {
                    let by = match self.device.state() {
                        DeviceState::Held { by, .. } => *by,
                        other => unreachable!("a start leaves the device held, not {other:?}"),
                    };
                    self.really_start(number, Tree { by, phase: Phase::Starting, stop_asked: false });
                }
                DeviceEffect::StageOpen { number } => {
                    self.really_start(number, Tree { by: Holder::Judge, phase: Phase::Judging, stop_asked: false });
                    self.stage = Some(OpenStage { number, built: false });
                }
                DeviceEffect::Look | DeviceEffect::Distrust => unreachable!("the device is no card"),
                DeviceEffect::StopProcesses { number, .. } => {
                    if let Some(tree) = self.executor.trees.get_mut(&number) {
                        tree.stop_asked = true;
                    }
                    if setup.mutant == Mutant::FreedWhenStopIsSent {
                        let effects = Arc::make_mut(&mut self.device).handle(NOW, DeviceInput::Emptied { number });
                        self.device_wants(setup, effects);
                    }
                }
                DeviceEffect::Tell(event) => {
                    let twice =
                        setup.mutant == Mutant::StaleFreedFreesNext && matches!(event, MemberEvent::Freed { .. });
                    let letter = Letter::Pool(PoolInput::Member { member: DEVICE, event });
                    if twice {
                        self.send(Party::Device, Party::Pool, letter.clone());
                    }
                    self.send(Party::Device, Party::Pool, letter);
                }
            }
        }
    }

    pub(super) fn really_start(&mut self, number: u64, tree: Tree) {
        if !self.executor.trees.is_empty() {
            self.broken = Some(EXCLUSIVE);
        }
        if number <= self.executor.used {
            self.broken = Some(NUMBER_ONCE);
        }
        if self.known.last_hold() < number {
            self.broken = Some(RECORDED_FIRST);
        }
        self.executor.used = number;
        self.executor.trees.insert(number, tree);
    }

    pub(super) fn judge_wants(&mut self, setup: &Setup, effects: Vec<JudgeEffect>) {
        let to_pool = |input| (Party::Pool, Letter::Pool(input));
        for effect in effects {
            let (to, letter) = match effect {
                JudgeEffect::Record { ticket, job, facts } => {
                    let facts = facts.into_iter().map(|fact| self.job_fact(job, fact)).collect();
                    let nack = match ticket {
                        Ticket::Submit(_) => Some(Letter::Judge(JudgeInput::NotRecorded(ticket))),
                        Ticket::Start(..) | Ticket::Conclude(_) | Ticket::Run(_) => None,
                    };
                    let ack = Letter::Judge(JudgeInput::Recorded(ticket));
                    self.append(setup, Append { facts, to: Party::Judge, ack, nack });
                    continue;
                }
                JudgeEffect::RecordRun { run, state } => {
                    let ack = Letter::Judge(JudgeInput::Recorded(Ticket::Run(run)));
                    let nack = Some(Letter::Judge(JudgeInput::NotRecorded(Ticket::Run(run))));
                    self.append(setup, Append { facts: vec![Fact::Run(state)], to: Party::Judge, ack, nack });
                    continue;
                }
                JudgeEffect::Tell(work) => to_pool(PoolInput::JudgeWork(setup.mutant.judge_tells(work))),
                JudgeEffect::StopWaiters { run, why } => {
                    if why == GaveUp::RunEnded {
                        self.stop_lanes();
                    }
                    to_pool(PoolInput::RunStopped { run, why })
                }
                JudgeEffect::Claim { hold } => to_pool(PoolInput::Claim { by: Holder::Judge, hold }),
                JudgeEffect::ReleaseUnused { hold } => to_pool(PoolInput::ReleaseUnused { by: Holder::Judge, hold }),
                JudgeEffect::StartStage { hold, job, .. } => {
                    if !self.known.stage_started(job, hold.number) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    let start = DeviceInput::Start { number: hold.number, by: Holder::Judge, limit: None };
                    (Party::Device, Letter::Device(start))
                }
                JudgeEffect::StartBuild { .. } | JudgeEffect::CardDoubted { .. } | JudgeEffect::CardFault { .. } => {
                    unreachable!("one device has no bench, and no other card")
                }
                JudgeEffect::EndHold { hold } => {
                    if setup.mutant.ends_holds_early() {
                        continue;
                    }
                    let stop = DeviceInput::Stop { number: hold.number, cause: StopCause::StageOver };
                    (Party::Device, Letter::Device(stop))
                }
                JudgeEffect::AnswerSubmitted { job, .. } => {
                    if !self.known.has_job(job) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    self.promises.accepted.insert(job);
                    continue;
                }
                JudgeEffect::AnswerNotRecorded { .. } => continue,
                JudgeEffect::AnswerRun { .. } => {
                    let changes = &mut self.promises.run_changes;
                    changes.answered += 1;
                    if changes.answered > changes.durable {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    continue;
                }
                JudgeEffect::JobEnded { job, .. } => {
                    if !self.known.job_over(job) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    if !self.promises.ended.insert(job) {
                        self.broken = Some(ONE_END);
                    }
                    continue;
                }
            };
            self.send(Party::Judge, to, letter);
        }
    }

    /// The run is over: whatever its lanes have under way is stopped.
    pub(super) fn stop_lanes(&mut self) {
        for at in 0..self.lanes.len() {
            if let Some(dev_run) = self.lanes[at].under_way() {
                let lane = u8::try_from(at).expect("set-ups have few lanes");
                let stop = LaneInput::Stop { dev_run, cause: StopCause::RunEnded };
                self.send(Party::Judge, Party::Lane(lane), Letter::Lane(stop));
            }
        }
    }

    pub(super) fn lane_wants(&mut self, setup: &Setup, lane: u8, effects: Vec<LaneEffect>) {
        let by = Holder::Lane(lane_id(lane));
        let from = Party::Lane(lane);
        let to_pool = |input| (Party::Pool, Letter::Pool(input));
        for effect in effects {
            let dev_run = self.lanes[usize::from(lane)].under_way();
            let (to, letter) = match effect {
                LaneEffect::RecordAsk => {
                    let dev_run = dev_run.expect("a lane that records has one under way");
                    let ack = Letter::Lane(LaneInput::AskRecorded);
                    let nack = Some(Letter::Lane(LaneInput::AskNotRecorded));
                    self.append(setup, Append { facts: vec![Fact::Asked { dev_run }], to: from, ack, nack });
                    continue;
                }
                LaneEffect::RecordHold { dev_run, hold } => {
                    let ack = Letter::Lane(LaneInput::HoldRecorded { hold });
                    let facts = vec![Fact::Held { dev_run, number: hold.number }];
                    self.append(setup, Append { facts, to: from, ack, nack: None });
                    continue;
                }
                LaneEffect::RecordEnd { dev_run, .. } => {
                    let ack = Letter::Lane(LaneInput::EndRecorded);
                    let facts = vec![Fact::DevRunOver { dev_run }];
                    self.append(setup, Append { facts, to: from, ack, nack: None });
                    continue;
                }
                LaneEffect::AskPool => {
                    let LaneState::Waiting { ask, .. } = self.lanes[usize::from(lane)].state() else {
                        unreachable!("a lane that asks waits");
                    };
                    to_pool(PoolInput::Ask {
                        lane: lane_id(lane),
                        dev_run: ask.dev_run,
                        run: ask.run,
                        arrival: ask.arrival,
                        acceptable: self.pool.acceptable(lane_id(lane)),
                        limit: ask.limit,
                        since: Moment::START,
                        latest: ask.latest,
                    })
                }
                LaneEffect::CancelWait { dev_run } => to_pool(PoolInput::CancelWait { lane: lane_id(lane), dev_run }),
                LaneEffect::Claim { hold } => to_pool(PoolInput::Claim { by, hold }),
                LaneEffect::ReleaseUnused { hold } => {
                    if setup.mutant == Mutant::LaneForgetsRelease {
                        continue;
                    }
                    to_pool(PoolInput::ReleaseUnused { by, hold })
                }
                LaneEffect::Start { hold, limit } => {
                    if !self.known.dev_run_holds(dev_run, hold.number) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    (Party::Device, Letter::Device(DeviceInput::Start { number: hold.number, by, limit }))
                }
                LaneEffect::StopHold { hold, cause } => {
                    (Party::Device, Letter::Device(DeviceInput::Stop { number: hold.number, cause }))
                }
                LaneEffect::AnswerQueued { dev_run, .. } => {
                    if !self.known.has_dev_run(dev_run) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    continue;
                }
                LaneEffect::AnswerNotRecorded { .. } | LaneEffect::AnswerTooLate { .. } => continue,
                LaneEffect::AnswerEnd { dev_run, .. } => {
                    if !self.known.dev_run_over(dev_run) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    if !self.promises.dev_runs_ended.insert(dev_run) {
                        self.broken = Some(ONE_END);
                    }
                    continue;
                }
            };
            self.send(from, to, letter);
        }
    }

    pub(super) fn job_fact(&self, job: JobId, fact: JudgeFact) -> Fact {
        // The arrival is what the shell wrote into the job's specification.
        Fact::Job { job, fact, arrival: self.arrivals }
    }

    pub(super) fn append(&mut self, setup: &Setup, append: Append) {
        if setup.mutant == Mutant::AcksBeforeDurable {
            self.send(Party::Records, append.to, append.ack.clone());
        }
        if setup.slow_records {
            self.appends.push_back(append);
        } else {
            self.durable(append.facts);
            self.open(setup, append.to, append.ack);
        }
    }

    pub(super) fn durable(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            if let Fact::Run(_) = fact {
                self.promises.run_changes.durable += 1;
            }
            if !self.known.apply(fact) {
                self.broken = Some(ONE_END);
            }
        }
    }
}
