//! The judge queue's mailbox: jobs, and the stage of each device it has claimed. The rules are
//! `thermite_core::judge_queue`'s and `thermite_core::stage`'s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use thermite_core::contract::Target;
use thermite_core::device::DeviceInput;
use thermite_core::fold::RigHistory;
use thermite_core::hold::StopCause;
use thermite_core::ids::{HoldId, Holder, JobId, MemberId, RunId};
use thermite_core::input_log::{Answer, JudgeTakes, StageTakes};
use thermite_core::job::{JobOutcome, JobSpec, StageKind};
use thermite_core::judge_queue::{
    Builds, JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, LiveJob, OtherModel, StageResult, Submit, Ticket,
};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::noise::{HarnessAlarm, Noise, NoiseKey};
use thermite_core::pool::PoolInput;
use thermite_core::readiness::look_every;
use thermite_core::record::{Artefacts, AttemptAudit, MeasuredOn, Screened, VerdictRecord};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::{RunSpec, RunState};
use thermite_core::settled::{self, Settled, SettledVerdict};
use thermite_core::stage::{Directive, Stage, StageEnd, StagePart, StagePlan, StageStep, StageView, StepReport};
use thermite_core::time::Moment;
use thermite_core::verdict::Verdict;

use crate::alarm::Alarm;
use crate::events::Events;
use crate::input_log::Traced;
use crate::member::{MemberDoors, RunStep, ToMember};
use crate::outbox::{Append, Outbox};
use crate::pool::{PoolActor, ToPool};
use crate::ports::{Batch, Clock, DeviceFacts, Ids, InputLog, Workspaces};
use crate::rig::{No, Submitted};
use crate::roster::Roster;
use crate::view::RigHappening;

mod noise;
mod reuse;
mod stages;

pub(crate) use noise::{Distrust, ForgetAlarm, ForgetNoise};

/// Says something to the judge queue.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ToJudge(pub(crate) JudgeInput);

/// A device says that the judge may ask for steps under this hold.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StageOpened {
    pub(crate) hold: HoldId,
}

/// The cards are given out anew (rule B9).
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct NewSplit {
    /// The devices that judge, the first of them first.
    pub(crate) judging: Vec<MemberId>,
    pub(crate) builds: Builds,
}

/// Other runners judge than before (rules E8, E9).
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct NewJudges {
    /// All members that judge, the first of them first.
    pub(crate) judging: Vec<MemberId>,
    /// Runners that do not any more.
    pub(crate) gone: BTreeSet<MemberId>,
}

/// Starts a run; answered once it is durable.
#[derive(Message)]
#[rtype(result = "Result<RunId, No>")]
pub(crate) struct StartRun {
    pub(crate) run: RunId,
    pub(crate) spec: RunSpec,
    pub(crate) key: Option<String>,
}

/// Pauses, resumes or ends a run; answered once it is so.
#[derive(Message)]
#[rtype(result = "Result<RunState, No>")]
pub(crate) struct ChangeRun {
    pub(crate) run: RunId,
    pub(crate) state: RunState,
}

/// Submits a pinned job; answered once it is durable and nobody passes it.
#[derive(Message)]
#[rtype(result = "Result<Submitted, No>")]
pub(crate) struct SubmitPinned {
    pub(crate) spec: JobSpec,
    pub(crate) key: Option<String>,
}

/// What a run is, for what is asked of it; refused where it takes no new work.
#[derive(Message)]
#[rtype(result = "Result<RunFacts, No>")]
pub(crate) struct TakesWork {
    pub(crate) run: RunId,
    /// Whether a paused run will do: its jobs are accepted and keep their place.
    pub(crate) paused_too: bool,
}

/// What a run is, for what is asked of it.
pub(crate) struct RunFacts {
    pub(crate) spec: RunSpec,
    pub(crate) champion: String,
}

/// What the judge does.
#[derive(Message)]
#[rtype(result = "JudgeLook")]
pub(crate) struct LookAtJudge {
    pub(crate) which: WhichJobs,
}

/// Which live jobs to look at.
pub(crate) enum WhichJobs {
    /// Those with a device, then the others in order, at most this many.
    First(usize),
    /// These.
    These(Vec<JobId>),
}

/// What the judge does.
#[derive(MessageResponse)]
pub(crate) struct JudgeLook {
    pub(crate) live: Vec<LiveJob>,
    pub(crate) live_count: usize,
    pub(crate) stages: BTreeMap<HoldId, StageView>,
    /// How many entries this actor keeps beside its machine.
    pub(crate) kept: usize,
    /// Since when each of the live ones is asked for, on this rig's clock.
    pub(crate) since: BTreeMap<JobId, Moment>,
}

/// A stage that a device was claimed for.
struct Claimed {
    job: JobId,
    stage: StageKind,
    attempt: u32,
    /// Its steps; none before the device opened it.
    steps: Option<Traced<Stage>>,
    /// Whether a step's report is awaited.
    asked: bool,
    builds_done: bool,
}

/// Who waits for a submission's answer, and whether the job was there before.
type Submitter = (bool, oneshot::Sender<Result<Submitted, No>>);

/// What a stage left to be made durable with what follows from it.
#[derive(Default)]
struct Closed {
    record: Option<VerdictRecord>,
    audit: Option<AttemptAudit>,
    /// What was learnt of the device.
    learnt: Vec<LogEntry>,
}

/// All jobs of all runs.
pub(crate) struct JudgeQueueActor {
    queue: Traced<JudgeQueue>,
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    job_keys: BTreeMap<JobId, String>,
    runs: BTreeMap<RunId, RunSpec>,
    starting: BTreeMap<RunId, Option<String>>,
    /// Where screenings were won, with the hashes of their records.
    screened: BTreeMap<JobId, (MemberId, String)>,
    since: BTreeMap<JobId, Moment>,
    noise: BTreeMap<NoiseKey, Noise>,
    /// Each device's lifelong alarm, by its UUID.
    alarms: BTreeMap<String, HarnessAlarm>,
    /// The verdicts that are given again, with their records.
    settled: Settled<SettledVerdict>,
    /// Those on their way to the records, with their keys.
    settling: BTreeMap<JobId, (String, SettledVerdict)>,
    claimed: BTreeMap<HoldId, Claimed>,
    /// What the bench has built, by job: for which stage and attempt.
    built: BTreeMap<JobId, (StageKind, u32, Artefacts)>,
    closed: BTreeMap<HoldId, Closed>,
    submitters: BTreeMap<JobId, Vec<Submitter>>,
    /// In order of asking, which is the order of their answers.
    run_askers: BTreeMap<RunId, VecDeque<oneshot::Sender<Result<RunState, No>>>>,
    roster: Roster,
    /// The devices that judge: all of one model (rule B8).
    judging: Vec<MemberId>,
    clock: Rc<dyn Clock>,
    inputs: Rc<dyn InputLog>,
    ids: Rc<dyn Ids>,
    events: Rc<Events>,
    workspaces: Rc<dyn Workspaces>,
    pool: Addr<PoolActor>,
    outbox: Addr<Outbox>,
    alarm: Alarm,
}

/// What a judge queue's actor is born with.
pub(crate) struct JudgeBirth {
    pub(crate) roster: Roster,
    pub(crate) split: NewSplit,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) inputs: Rc<dyn InputLog>,
    pub(crate) ids: Rc<dyn Ids>,
    pub(crate) events: Rc<Events>,
    pub(crate) workspaces: Rc<dyn Workspaces>,
    pub(crate) pool: Addr<PoolActor>,
    pub(crate) outbox: Addr<Outbox>,
}

impl JudgeQueueActor {
    pub(crate) fn new(history: &RigHistory, birth: JudgeBirth) -> JudgeQueueActor {
        let JudgeBirth { roster, split, clock, inputs, ids, events, workspaces, pool, outbox } = birth;
        let NewSplit { judging, builds } = split;
        let device = judging_device(&judging, &roster);
        let same = |spec: &JobSpec| same_change(spec, device.as_ref());
        let on_cards = device.as_ref().is_some_and(|device| device.target == Target::CudaGpu);
        let mut queue = JudgeQueue::new(judging.len()).building(builds).on_cards(on_cards);
        queue.restore(history, same, |spec| spec.pinned.kit.contract.stage_worst());
        queue.rest_for_leases(clock.now(), history);
        let open = history.jobs.iter().filter(|(_, job)| job.end.is_none());
        JudgeQueueActor {
            queue: Traced::new(queue, inputs.clone()),
            specs: open.clone().map(|(id, job)| (*id, job.spec.clone())).collect(),
            job_keys: BTreeMap::new(),
            runs: history.runs.iter().map(|(id, run)| (*id, run.spec.clone())).collect(),
            starting: BTreeMap::new(),
            screened: open.filter_map(|(id, job)| Some((*id, job.screened.clone()?))).collect(),
            since: history.jobs.iter().filter(|(_, job)| job.end.is_none()).map(|(id, _)| (*id, clock.now())).collect(),
            noise: history.usable_noise().map(|(key, noise)| (key.clone(), noise.clone())).collect(),
            alarms: history.alarms.clone(),
            settled: history.settled.clone(),
            settling: BTreeMap::new(),
            claimed: BTreeMap::new(),
            built: BTreeMap::new(),
            closed: BTreeMap::new(),
            submitters: BTreeMap::new(),
            run_askers: BTreeMap::new(),
            roster,
            judging,
            clock,
            inputs,
            ids,
            events,
            workspaces,
            pool,
            outbox,
            alarm: Alarm::default(),
        }
    }

    fn take(&mut self, input: JudgeInput, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        debug!(?input, "judge takes");
        let effects = self.queue.take(now, JudgeTakes::Input(input)).effects;
        self.carry_out(effects, ctx);
    }

    fn carry_out(&mut self, effects: Vec<JudgeEffect>, ctx: &mut Context<Self>) {
        for effect in effects {
            debug!(?effect, "judge wants");
            match effect {
                JudgeEffect::Record { ticket, job, facts } => self.record(ticket, job, facts, ctx),
                JudgeEffect::RecordRun { run, state } => self.record_run(run, state, ctx),
                JudgeEffect::Tell(work) => self.pool.do_send(ToPool(PoolInput::JudgeWork(work))),
                JudgeEffect::StopWaiters { run, why } => self.pool.do_send(ToPool(PoolInput::RunStopped { run, why })),
                JudgeEffect::Claim { hold } => self.pool.do_send(ToPool(PoolInput::Claim { by: Holder::Judge, hold })),
                JudgeEffect::ReleaseUnused { hold } => {
                    self.pool.do_send(ToPool(PoolInput::ReleaseUnused { by: Holder::Judge, hold }));
                }
                JudgeEffect::StartStage { hold, job, stage, attempt }
                | JudgeEffect::StartBuild { hold, job, stage, attempt } => {
                    let claimed = Claimed { job, stage, attempt, steps: None, asked: false, builds_done: false };
                    self.claimed.insert(hold, claimed);
                    self.tell_member(hold, DeviceInput::Start { number: hold.number, by: Holder::Judge, limit: None });
                }
                JudgeEffect::CardDoubted { hold } => {
                    self.tell_member(hold, DeviceInput::Doubted { number: hold.number })
                }
                JudgeEffect::CardFault { member, why } => {
                    warn!(%member, %why, "card is at fault");
                    if let Some(doors) = self.doors(member) {
                        doors.input.do_send(ToMember(DeviceInput::AtFault { why }));
                    }
                }
                JudgeEffect::EndHold { hold } => {
                    self.claimed.remove(&hold);
                    self.tell_member(hold, DeviceInput::Stop { number: hold.number, cause: StopCause::StageOver });
                }
                JudgeEffect::AnswerSubmitted { job, ahead } => {
                    for (same, submitter) in self.submitters.remove(&job).unwrap_or_default() {
                        // An asker that went away has no use for the answer.
                        drop(submitter.send(Ok(Submitted { job, ahead, same })));
                    }
                }
                JudgeEffect::AnswerNotRecorded { job } => {
                    self.specs.remove(&job);
                    for (_, submitter) in self.submitters.remove(&job).unwrap_or_default() {
                        drop(submitter.send(Err(not_recorded())));
                    }
                }
                JudgeEffect::AnswerRun { run, state } => {
                    if let Some(asker) = self.run_askers.get_mut(&run).and_then(VecDeque::pop_front) {
                        drop(asker.send(state.ok_or_else(not_recorded)));
                    }
                }
                JudgeEffect::JobEnded { job, outcome } => {
                    info!(%job, ?outcome, "verdict");
                    self.specs.remove(&job);
                    self.built.remove(&job);
                    self.screened.remove(&job);
                    self.since.remove(&job);
                    if let Some((key, verdict)) = self.settling.remove(&job) {
                        self.settled.insert(key, verdict);
                    }
                    ctx.spawn(self.workspaces.forget(job).into_actor(self));
                }
            }
        }
        self.set_alarm(ctx);
    }

    fn kept(&self) -> usize {
        let of_jobs = self.specs.len() + self.job_keys.len() + self.screened.len() + self.since.len();
        let of_stages = self.claimed.len() + self.closed.len() + self.built.len();
        of_jobs + of_stages + self.submitters.len() + self.run_askers.values().map(VecDeque::len).sum::<usize>()
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let stages = self.claimed.values().filter_map(|claimed| claimed.steps.as_ref()?.next_deadline());
        let deadline = stages.chain(self.queue.next_deadline()).map(|next| next.0).min();
        self.alarm.set(ctx, &self.clock, deadline, Self::ring);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm.rung();
        let effects = self.queue.take(self.clock.now(), JudgeTakes::Time).effects;
        self.carry_out(effects, ctx);
        self.advance_stages(ctx);
    }

    fn tell_member(&self, hold: HoldId, input: DeviceInput) {
        if let Some(doors) = self.doors(hold.member) {
            doors.input.do_send(ToMember(input));
        }
    }

    fn doors(&self, member: MemberId) -> Option<MemberDoors> {
        self.roster.doors(member)
    }

    /// What a stage on that member is settled as. Cards are told apart by their model; runners' CPUs are not (rule E9), so
    /// that all of them count as the first that judges.
    fn measured_on(&self, member: MemberId) -> Option<DeviceFacts> {
        let facts = self.roster.facts(member)?;
        if member.is_runner() && facts.target == Target::Cpu {
            return judging_device(&self.judging, &self.roster).or(Some(facts));
        }
        Some(facts)
    }

    /// Whether these are of another model than those that judge so far.
    fn is_another_model(&self, judging: &[MemberId]) -> bool {
        let model = |judging: &[MemberId]| judging_device(judging, &self.roster).map(|device| device.model);
        model(&self.judging) != model(judging)
    }

    /// What makes two askings the same on what judges, of every job that is not over.
    fn same_of_all(&self) -> BTreeMap<JobId, String> {
        let device = judging_device(&self.judging, &self.roster);
        self.specs.iter().map(|(job, spec)| (*job, same_change(spec, device.as_ref()))).collect()
    }

    /// Makes a job's facts durable. A submission is answered with the fault where they cannot be; what has happened is
    /// tried until they can.
    fn record(&mut self, ticket: Ticket, job: JobId, facts: Vec<JudgeFact>, ctx: &mut Context<Self>) {
        let mut batch = Batch::default();
        for fact in facts {
            self.write(job, fact, &mut batch);
        }
        let patient = !matches!(ticket, Ticket::Submit(_));
        let append = self.outbox.send(Append { batch, patient }).into_actor(self);
        ctx.spawn(append.map(move |answer, judge, ctx| {
            judge.take(
                match answer {
                    Ok(Ok(())) => JudgeInput::Recorded(ticket),
                    Ok(Err(_)) | Err(_) => JudgeInput::NotRecorded(ticket),
                },
                ctx,
            );
        }));
    }

    /// Writes one fact, with the stage's record and noise where it closes one.
    fn write(&mut self, job: JobId, fact: JudgeFact, batch: &mut Batch) {
        let closing = match &fact {
            JudgeFact::ScreeningWon { hold }
            | JudgeFact::AttemptFailed { hold, .. }
            | JudgeFact::Ended { hold: Some(hold), .. } => self.closed.remove(hold),
            JudgeFact::Submitted
            | JudgeFact::BuildStarted { .. }
            | JudgeFact::StageStarted { .. }
            | JudgeFact::SentBack
            | JudgeFact::Ended { hold: None, .. }
            | JudgeFact::Reused { .. }
            | JudgeFact::ChampionMoved { .. } => None,
        };
        let Closed { record, audit, learnt } = closing.unwrap_or_default();
        let hash = record.as_ref().map(|record| record.sha256.clone());
        batch.entries.extend(learnt);
        batch.entries.extend(match fact {
            JudgeFact::Submitted => self
                .specs
                .get(&job)
                .map(|spec| LogEntry::JobSubmitted { spec: spec.clone(), key: self.job_keys.remove(&job) }),
            JudgeFact::BuildStarted { stage, attempt, hold } => {
                self.begins(job, stage);
                Some(LogEntry::BuildStarted { job, stage, attempt, hold })
            }
            JudgeFact::StageStarted { stage, attempt, hold } => {
                self.begins(job, stage);
                Some(LogEntry::StageStarted { job, stage, attempt, hold })
            }
            JudgeFact::ScreeningWon { hold } => {
                let record = hash.expect("a screening is won with a record");
                self.screened.insert(job, (hold.member, record.clone()));
                let device = self.measured_on(hold.member);
                let key = self.specs.get(&job).map(|spec| same_change(spec, device.as_ref()));
                Some(LogEntry::ScreeningWon { job, hold, record, key })
            }
            JudgeFact::AttemptFailed { stage, hold, why } => Some(LogEntry::AttemptFailed { job, stage, hold, why }),
            JudgeFact::SentBack => Some(LogEntry::SentBack { job }),
            JudgeFact::Ended { outcome, hold } => return self.write_end(job, outcome, hold, record, audit, batch),
            JudgeFact::Reused { from, outcome } => return self.write_reuse(job, from, outcome, batch),
            JudgeFact::ChampionMoved { from, to } => {
                self.specs.get(&job).map(|spec| LogEntry::ChampionMoved { run: spec.run, from, to, by: job })
            }
        });
        batch.records.extend(record);
        batch.audits.extend(audit);
    }

    /// A screening that begins anew takes the place of one that was won on another model of card.
    fn begins(&mut self, job: JobId, stage: StageKind) {
        if stage == StageKind::Screening {
            self.screened.remove(&job);
        }
    }

    fn record_run(&mut self, run: RunId, state: RunState, ctx: &mut Context<Self>) {
        let entry = match (self.starting.remove(&run), self.runs.get(&run)) {
            (Some(key), Some(spec)) => LogEntry::RunStarted { run, spec: Box::new(spec.clone()), key },
            _ => LogEntry::RunChanged { run, state },
        };
        let append = self.outbox.send(Append { batch: vec![entry].into(), patient: false }).into_actor(self);
        ctx.spawn(append.map(move |answer, judge, ctx| {
            let ticket = Ticket::Run(run);
            judge.take(
                match answer {
                    Ok(Ok(())) => JudgeInput::Recorded(ticket),
                    Ok(Err(_)) | Err(_) => JudgeInput::NotRecorded(ticket),
                },
                ctx,
            );
        }));
    }
}

/// The first device that judges: all of them are of its model.
fn judging_device(judging: &[MemberId], roster: &Roster) -> Option<DeviceFacts> {
    judging.first().and_then(|member| roster.facts(*member))
}

/// What makes two askings the same (rule D5).
fn same_change(spec: &JobSpec, device: Option<&DeviceFacts>) -> String {
    settled::key(&spec.pinned, device.map_or("", |device| device.model.as_str()))
}

fn not_recorded() -> No {
    No::Infrastructure(InfrastructureFailure::Records { why: "the log refused the entry".to_owned() })
}

impl Actor for JudgeQueueActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let effects = self.queue.take(self.clock.now(), JudgeTakes::Open).effects;
        self.carry_out(effects, ctx);
    }
}

impl Handler<ToJudge> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: ToJudge, ctx: &mut Self::Context) {
        if let JudgeInput::HoldEnded { hold, .. } = &msg.0
            && let Some(claimed) = self.claimed.remove(hold)
        {
            self.note_cut_off(&claimed, ctx);
        }
        self.take(msg.0, ctx);
    }
}

impl Handler<NewSplit> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: NewSplit, ctx: &mut Self::Context) {
        let NewSplit { judging, builds } = msg;
        let devices = judging.len();
        let is_another = self.is_another_model(&judging);
        self.judging = judging;
        let other_model =
            is_another.then(|| OtherModel { cards: self.judging.iter().copied().collect(), same: self.same_of_all() });
        if is_another {
            self.built.clear();
        }
        self.take(JudgeInput::NewSplit { judging: devices, builds, other_model }, ctx);
    }
}

impl Handler<NewJudges> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: NewJudges, ctx: &mut Self::Context) {
        let NewJudges { judging, gone } = msg;
        let is_another = !judging.is_empty() && self.is_another_model(&judging);
        self.judging = judging;
        if is_another {
            self.built.clear();
        }
        let device = judging_device(&self.judging, &self.roster);
        let cards = device.is_some_and(|device| device.target == Target::CudaGpu);
        let same = is_another.then(|| self.same_of_all());
        let judging = self.judging.iter().copied().collect();
        self.take(JudgeInput::Runners { judging, gone, cards, same }, ctx);
    }
}

impl Handler<StageOpened> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: StageOpened, ctx: &mut Self::Context) {
        self.open_stage(msg.hold, ctx);
    }
}

impl Handler<StartRun> for JudgeQueueActor {
    type Result = ResponseFuture<Result<RunId, No>>;

    fn handle(&mut self, msg: StartRun, ctx: &mut Self::Context) -> Self::Result {
        let run = msg.run;
        let champion = msg.spec.champion.clone();
        let gave = self.queue.take(self.clock.now(), JudgeTakes::StartRun { run, champion });
        if let Some(Answer::Refused(refusal)) = gave.answer {
            self.carry_out(gave.effects, ctx);
            return Box::pin(std::future::ready(Err(No::Refusal(refusal))));
        }
        self.runs.insert(run, msg.spec);
        self.starting.insert(run, msg.key);
        let (asker, answer) = oneshot::channel();
        self.run_askers.entry(run).or_default().push_back(asker);
        self.carry_out(gave.effects, ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(No::ending())).map(|_| run) })
    }
}

impl Handler<ChangeRun> for JudgeQueueActor {
    type Result = ResponseFuture<Result<RunState, No>>;

    fn handle(&mut self, msg: ChangeRun, ctx: &mut Self::Context) -> Self::Result {
        let gave = self.queue.take(self.clock.now(), JudgeTakes::ChangeRun { run: msg.run, state: msg.state });
        if let Some(Answer::Refused(refusal)) = gave.answer {
            self.carry_out(gave.effects, ctx);
            return Box::pin(std::future::ready(Err(No::Refusal(refusal))));
        }
        let (asker, answer) = oneshot::channel();
        self.run_askers.entry(msg.run).or_default().push_back(asker);
        self.carry_out(gave.effects, ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(No::ending())) })
    }
}

impl Handler<SubmitPinned> for JudgeQueueActor {
    type Result = ResponseFuture<Result<Submitted, No>>;

    fn handle(&mut self, msg: SubmitPinned, ctx: &mut Self::Context) -> Self::Result {
        let SubmitPinned { spec, key } = msg;
        let device = judging_device(&self.judging, &self.roster);
        let submit = Submit {
            job: spec.job,
            run: spec.run,
            arrival: spec.arrival,
            champion: spec.pinned.champion.clone(),
            candidate: spec.pinned.candidate.clone(),
            same: same_change(&spec, device.as_ref()),
            key: key.clone(),
            stage_worst: spec.pinned.kit.contract.stage_worst(),
        };
        let gave = self.queue.take(self.clock.now(), JudgeTakes::Submit(submit));
        let (job, same) = match gave.answer {
            Some(Answer::Refused(refusal)) => {
                self.carry_out(gave.effects, ctx);
                return Box::pin(std::future::ready(Err(No::Refusal(refusal))));
            }
            Some(Answer::SameJob { job, answered: true }) => {
                self.carry_out(gave.effects, ctx);
                let ahead = self.queue.ahead(job);
                return Box::pin(std::future::ready(Ok(Submitted { job, ahead, same: true })));
            }
            Some(Answer::SameJob { job, answered: false }) => (job, true),
            None => {
                let job = spec.job;
                self.specs.insert(job, Arc::new(spec));
                self.since.insert(job, self.clock.now());
                self.job_keys.extend(key.map(|key| (job, key)));
                (job, false)
            }
        };
        let (submitter, answer) = oneshot::channel();
        self.submitters.entry(job).or_default().push((same, submitter));
        self.carry_out(gave.effects, ctx);
        Box::pin(async move { answer.await.unwrap_or(Err(No::ending())) })
    }
}

impl Handler<TakesWork> for JudgeQueueActor {
    type Result = Result<RunFacts, No>;

    fn handle(&mut self, msg: TakesWork, _: &mut Self::Context) -> Self::Result {
        match self.queue.takes_work(msg.run) {
            Err(thermite_core::refusal::Refusal::RunPaused { .. }) if msg.paused_too => {}
            answer => answer.map_err(No::Refusal)?,
        }
        let unknown = || No::Refusal(thermite_core::refusal::Refusal::UnknownRun { run: msg.run });
        let spec = self.runs.get(&msg.run).ok_or_else(unknown)?.clone();
        let champion = self.queue.champion(msg.run).ok_or_else(unknown)?.to_owned();
        Ok(RunFacts { spec, champion })
    }
}

impl Handler<LookAtJudge> for JudgeQueueActor {
    type Result = JudgeLook;

    fn handle(&mut self, msg: LookAtJudge, _: &mut Self::Context) -> JudgeLook {
        let live = match msg.which {
            WhichJobs::First(most) => self.queue.live(most),
            WhichJobs::These(ids) => ids.into_iter().filter_map(|id| self.queue.live_job(id)).collect(),
        };
        JudgeLook {
            since: live.iter().filter_map(|job| Some((job.job, *self.since.get(&job.job)?))).collect(),
            live,
            live_count: self.queue.live_count(),
            kept: self.kept(),
            stages: self
                .claimed
                .iter()
                .filter_map(|(hold, claimed)| Some((*hold, claimed.steps.as_ref()?.view())))
                .collect(),
        }
    }
}
