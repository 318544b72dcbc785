//! One shared device's machines, composed as in the rig, with everything around them as an environment that does
//! what it may in any order.
//!
//! Letters between two parties keep their order; letters of different senders do not. Whatever a machine may not rely
//! on (the disk, the executor, the stage, callers, the clock, `kill -9`) is a [`Step`] of the environment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::device::{Device, DeviceEffect, DeviceInput, MemberEvent};
use thermite_core::hold::StopCause;
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{ChangeStep, JobOutcome};
use thermite_core::judge_queue::{
    JudgeEffect, JudgeFact, JudgeInput, JudgeQueue, StageResult, Submission, Submit, Ticket,
};
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput, LaneState};
use thermite_core::pool::{Discipline, JudgeWork, Pool, PoolEffect, PoolInput};
use thermite_core::refusal::{GaveUp, InfrastructureFailure};
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};
use uuid::Uuid;

use super::known::{Fact, Known};
use super::mutants::Mutant;

/// The one device.
pub(super) const DEVICE: MemberId = MemberId(0);
/// The one run.
pub(super) const RUN: RunId = RunId(Uuid::from_u128(1));
/// After every step the machines' times are told from here, so that the space stays finite; far from the clock's
/// start, so that what has been keeps its distance.
const NOW: Moment = Moment::from_millis(100_000_000);
/// All waits and limits are multiples of 5 s: few different times between them.
const WAIT_MAX: Span = Span::seconds(10);
const DEV_RUN_LIMIT: Span = Span::seconds(10);

/// Who writes and gets letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Party {
    Pool,
    Device,
    Judge,
    Lane(u8),
    Records,
}

/// What a letter says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Letter {
    ToPool(PoolInput),
    ToDevice(DeviceInput),
    ToJudge(JudgeInput),
    ToLane(LaneInput),
}

/// How often the environment may do what it need not do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budgets {
    /// Cancels of development runs.
    pub(super) cancels: u8,
    /// Callers' streams that drop.
    pub(super) drops: u8,
    /// Pauses of the run; a paused run can always be resumed.
    pub(super) pauses: u8,
    /// Ends of the run.
    pub(super) ends: u8,
    /// Stops that the executor cannot prove.
    pub(super) not_proved: u8,
    /// Sweeps that it cannot prove.
    pub(super) not_swept: u8,
    /// Starts of development runs that fail.
    pub(super) not_started: u8,
    /// Stages that infrastructure fails.
    pub(super) infrastructure: u8,
    /// Appends that the records refuse.
    pub(super) not_recorded: u8,
    /// Deadlines that pass while letters or appends are still on their way.
    pub(super) late: u8,
    /// `kill -9` of the rig.
    pub(super) kills: u8,
}

/// What is checked.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) lanes: u8,
    pub(super) jobs: u8,
    /// Development runs of each lane.
    pub(super) asks: u8,
    pub(super) budgets: Budgets,
    /// Whether appends become durable some time after they were asked for; else in the same step.
    pub(super) slow_records: bool,
    /// Whether lanes open their letters in the step that sends them.
    pub(super) prompt_lanes: bool,
    /// Whether every result of a stage is tried, and builds have a moment of their own; else win and no gain only.
    pub(super) all_results: bool,
    pub(super) mutant: Mutant,
}

/// How a stage may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Came {
    Win,
    NoGain,
    Undecided,
    ChangeFailed,
    Infrastructure,
    TooNoisy,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Deliver { from: Party, to: Party },
    Durable,
    NotRecorded,
    Ask { lane: u8 },
    Cancel { lane: u8 },
    CallerDrops { lane: u8 },
    Submit { job: u8 },
    Pause,
    Resume,
    EndRun,
    NextDeadline,
    Started,
    StartFails,
    Exits,
    Emptied { number: u64 },
    NotProved { number: u64 },
    Swept,
    NotSwept,
    Built,
    StageEnds(Came),
    Kill,
}

/// How far the processes under a hold really are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Starting,
    Running,
    Exited,
    Judging,
}

/// Processes that really exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tree {
    by: Holder,
    phase: Phase,
    stop_asked: bool,
}

/// What the executor has and does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Executor {
    /// Under which hold numbers processes exist.
    trees: BTreeMap<u64, Tree>,
    sweeping: bool,
    /// The highest number anything was started under.
    used: u64,
}

/// A stage that may work, in the judge's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenStage {
    number: u64,
    built: bool,
}

/// An append on its way to the disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Append {
    facts: Vec<Fact>,
    to: Party,
    ack: Letter,
    /// What is said instead where the records refuse it; without, it is written again until they take it.
    nack: Option<Letter>,
}

/// How far changes of a run's state are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct RunChanges {
    asked: u8,
    durable: u8,
    answered: u8,
    last: Option<RunState>,
}

/// The promises that were given to people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Promises {
    /// Jobs whose submission was answered.
    accepted: BTreeSet<JobId>,
    /// Jobs whose end was told.
    ended: BTreeSet<JobId>,
    /// Development runs whose end was told.
    dev_runs_ended: BTreeSet<DevRunId>,
    /// Changes of the run's state since the start of the rig.
    run_changes: RunChanges,
    /// The latest moment that a waiting development run was given.
    latest: BTreeMap<DevRunId, Moment>,
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rig {
    pool: Arc<Pool>,
    device: Arc<Device>,
    judge: Arc<JudgeQueue>,
    lanes: Vec<Arc<Lane>>,
    mail: BTreeMap<(Party, Party), VecDeque<Letter>>,
    appends: VecDeque<Append>,
    known: Known,
    executor: Executor,
    stage: Option<OpenStage>,
    promises: Promises,
    /// Askings so far, of each lane.
    asked: Vec<u8>,
    submitted: u8,
    arrivals: u64,
    left: Budgets,
    /// The property that was broken.
    pub(super) broken: Option<&'static str>,
}

pub(super) const EXCLUSIVE: &str = "one holder at a time (A1)";
pub(super) const NUMBER_ONCE: &str = "a hold number is used once (A1)";
pub(super) const POOL_KNOWS: &str = "nothing runs under a hold that the pool takes for over (A1, A7)";
pub(super) const JUDGE_FIRST: &str = "no lane is granted the device while an accepted job may use it (A2)";
pub(super) const CERTIFICATE: &str = "no wait passes the latest moment it was given (A6, A9)";
pub(super) const OVERLOOKED: &str = "nobody eligible waits beside a free ready device (A9)";
pub(super) const HELD_BY_NONE: &str = "a held device is held by someone (A9)";
pub(super) const PAUSED_LEAVE: &str = "no development run of a run that is not running stays in the line (A3)";
pub(super) const GHOST: &str = "everyone in the line waits (A9)";
pub(super) const ONE_END: &str = "a job ends once, a development run ends once (D7)";
pub(super) const RECORDED_FIRST: &str = "nothing leaves before its record (D7)";

/// All properties of safety.
pub(super) const PROPERTIES: [&str; 11] = [
    EXCLUSIVE,
    NUMBER_ONCE,
    POOL_KNOWS,
    JUDGE_FIRST,
    CERTIFICATE,
    OVERLOOKED,
    HELD_BY_NONE,
    PAUSED_LEAVE,
    GHOST,
    ONE_END,
    RECORDED_FIRST,
];

fn lane_id(lane: u8) -> LaneId {
    LaneId::new(lane + 1).expect("set-ups have few lanes")
}

fn dev_run_id(lane: u8, ask: u8) -> DevRunId {
    DevRunId(Uuid::from_u128(u128::from(lane + 1) * 16 + u128::from(ask)))
}

fn job_id(job: u8) -> JobId {
    JobId(Uuid::from_u128(u128::from(job) + 1))
}

fn hold(number: u64) -> HoldId {
    HoldId { member: DEVICE, number }
}

impl Rig {
    /// A rig over a fresh data folder, its one run running, its device swept.
    pub(super) fn fresh(setup: &Setup) -> Rig {
        let known = Known::default();
        let (device, _) = Device::new(NOW, DEVICE, 0);
        let mut rig = Rig {
            pool: Arc::new(Pool::new([(DEVICE, Discipline::JudgeFirst)], WAIT_MAX)),
            device: Arc::new(device),
            judge: Arc::new(JudgeQueue::new(1)),
            lanes: (0..setup.lanes).map(|lane| Arc::new(Lane::new(lane_id(lane)))).collect(),
            mail: BTreeMap::new(),
            appends: VecDeque::new(),
            known,
            executor: Executor::default(),
            stage: None,
            promises: Promises::default(),
            asked: vec![0; usize::from(setup.lanes)],
            submitted: 0,
            arrivals: 0,
            left: setup.budgets.clone(),
            broken: None,
        };
        rig.boot(setup);
        rig.executor.sweeping = false;
        rig.to_device(setup, DeviceInput::Swept);
        while let Some((from, to)) = rig.mail.keys().next().copied() {
            rig.deliver(setup, from, to);
        }
        rig.settle();
        rig
    }

    /// What can happen next.
    pub(super) fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        steps.extend(self.mail.keys().map(|(from, to)| Step::Deliver { from: *from, to: *to }));
        if let Some(append) = self.appends.front() {
            steps.push(Step::Durable);
            if self.left.not_recorded > 0 && append.nack.is_some() {
                steps.push(Step::NotRecorded);
            }
        }
        self.people_steps(setup, steps);
        self.executor_steps(steps);
        if let Some(stage) = self.stage {
            if stage.built || !setup.all_results {
                steps.extend([Step::StageEnds(Came::Win), Step::StageEnds(Came::NoGain)]);
                if self.left.infrastructure > 0 {
                    steps.push(Step::StageEnds(Came::Infrastructure));
                }
                if setup.all_results {
                    steps.extend([Step::StageEnds(Came::Undecided), Step::StageEnds(Came::TooNoisy)]);
                }
            } else {
                steps.extend([Step::Built, Step::StageEnds(Came::ChangeFailed)]);
            }
        }
        let quiet = self.mail.is_empty() && self.appends.is_empty();
        if (quiet || self.left.late > 0) && self.next_deadline().is_some() {
            steps.push(Step::NextDeadline);
        }
        if self.left.kills > 0 {
            steps.push(Step::Kill);
        }
    }

    fn people_steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        let run = self.judge.run_state(RUN);
        for lane in 0..setup.lanes {
            let at = usize::from(lane);
            // Lanes are alike: the first to ask is called lane 1, the second lane 2.
            let its_turn = lane == 0 || self.asked[at - 1] > 0;
            let under_way = self.lanes[at].under_way();
            if under_way.is_none() && self.asked[at] < setup.asks && its_turn && self.judge.takes_work(RUN).is_ok() {
                steps.push(Step::Ask { lane });
            }
            let (stoppable, attached) = match self.lanes[at].state() {
                LaneState::Idle | LaneState::Ending { .. } => (false, false),
                LaneState::Recording { ask, stop } | LaneState::Waiting { ask, stop } => {
                    (stop.is_none(), ask.caller == Caller::Attached)
                }
                LaneState::Granted { ask, stop, .. } | LaneState::Holding { ask, stop, .. } => {
                    (stop.is_none(), ask.caller == Caller::Attached)
                }
            };
            if self.left.cancels > 0 && stoppable {
                steps.push(Step::Cancel { lane });
            }
            if self.left.drops > 0 && attached {
                steps.push(Step::CallerDrops { lane });
            }
        }
        if self.submitted < setup.jobs && run != Some(RunState::Ended) {
            steps.push(Step::Submit { job: self.submitted });
        }
        match run {
            Some(RunState::Running) if self.left.pauses > 0 => steps.push(Step::Pause),
            _ => {}
        }
        if self.promises.run_changes.last.or(run) == Some(RunState::Paused) {
            steps.push(Step::Resume);
        }
        if run != Some(RunState::Ended) && self.left.ends > 0 {
            steps.push(Step::EndRun);
        }
    }

    fn executor_steps(&self, steps: &mut Vec<Step>) {
        for (number, tree) in &self.executor.trees {
            match tree.phase {
                _ if tree.stop_asked => {
                    steps.push(Step::Emptied { number: *number });
                    if self.left.not_proved > 0 {
                        steps.push(Step::NotProved { number: *number });
                    }
                }
                Phase::Starting => {
                    steps.push(Step::Started);
                    if self.left.not_started > 0 {
                        steps.push(Step::StartFails);
                    }
                }
                Phase::Running => steps.push(Step::Exits),
                Phase::Exited | Phase::Judging => {}
            }
        }
        if self.executor.sweeping {
            steps.push(Step::Swept);
            if self.left.not_swept > 0 {
                steps.push(Step::NotSwept);
            }
        }
    }

    /// The world after a step.
    pub(super) fn after(&self, setup: &Setup, step: Step) -> Rig {
        let mut next = self.clone();
        next.take(setup, step);
        while setup.prompt_lanes
            && let Some((from, to)) = next.mail.keys().find(|(_, to)| matches!(to, Party::Lane(_))).copied()
        {
            next.deliver(setup, from, to);
        }
        next.look();
        next.settle();
        next
    }

    /// Whether everything asked for has come to its end and the device is free again.
    pub(super) fn ended(&self, setup: &Setup) -> bool {
        let over = self.judge.run_state(RUN) == Some(RunState::Ended);
        self.quiet()
            && (over || (self.submitted == setup.jobs && self.asked.iter().all(|asked| *asked == setup.asks)))
            && self.lanes.iter().all(|lane| lane.under_way().is_none())
            && self.judge.live_count() == 0
            && self.known.all_over()
            && self.promises.run_changes.asked == self.promises.run_changes.answered
            && self.executor.trees.is_empty()
            && self.pool.waits().is_empty()
            && self.pool.members().iter().all(|member| member.held.is_none() && member.gone.is_none())
    }

    /// A step as a line of a story.
    pub(super) fn tell(&self, step: Step) -> String {
        match step {
            Step::Deliver { from, to } => format!("{from:?} -> {to:?}: {:?}", self.mail[&(from, to)][0]),
            other => format!("* {other:?}"),
        }
    }

    fn quiet(&self) -> bool {
        self.mail.is_empty() && self.appends.is_empty()
    }

    fn take(&mut self, setup: &Setup, step: Step) {
        match step {
            Step::Deliver { from, to } => self.deliver(setup, from, to),
            Step::Durable => {
                let append = self.appends.pop_front().expect("an append is on its way");
                self.durable(append.facts);
                if setup.mutant != Mutant::AcksBeforeDurable {
                    self.send(Party::Records, append.to, append.ack);
                }
            }
            Step::NotRecorded => {
                self.left.not_recorded -= 1;
                let append = self.appends.pop_front().expect("an append is on its way");
                let nack = append.nack.expect("it can be refused");
                if let [Fact::Run(_)] = append.facts[..] {
                    self.promises.run_changes.durable += 1;
                }
                self.send(Party::Records, append.to, nack);
            }
            Step::Ask { lane } => self.ask(setup, lane),
            Step::Cancel { lane } => {
                self.left.cancels -= 1;
                let dev_run = self.lanes[usize::from(lane)].under_way().expect("only what is under way is cancelled");
                self.to_lane(setup, lane, LaneInput::Stop { dev_run, cause: StopCause::Cancelled });
            }
            Step::CallerDrops { lane } => {
                self.left.drops -= 1;
                let dev_run = self.lanes[usize::from(lane)].under_way().expect("only what is under way has a caller");
                self.to_lane(setup, lane, LaneInput::CallerGone { dev_run });
            }
            Step::Submit { job } => self.submit(setup, job),
            Step::Pause => {
                self.left.pauses -= 1;
                self.change_run(setup, RunState::Paused);
            }
            Step::Resume => self.change_run(setup, RunState::Running),
            Step::EndRun => {
                self.left.ends -= 1;
                self.change_run(setup, RunState::Ended);
            }
            Step::NextDeadline => self.jump(setup),
            Step::Started => {
                let number = self.phase_goes(Phase::Starting, Phase::Running);
                self.to_device(setup, DeviceInput::Started { number });
            }
            Step::StartFails => {
                self.left.not_started -= 1;
                let number = self.phase_goes(Phase::Starting, Phase::Exited);
                self.to_device(setup, DeviceInput::StartFailed { number, why: String::new() });
            }
            Step::Exits => {
                let number = self.phase_goes(Phase::Running, Phase::Exited);
                self.to_device(setup, DeviceInput::Exited { number, exit: Exit::Code(0) });
            }
            Step::Emptied { number } => {
                self.executor.trees.remove(&number);
                self.to_device(setup, DeviceInput::Emptied { number });
            }
            Step::NotProved { number } => {
                self.left.not_proved -= 1;
                let tree = self.executor.trees.get_mut(&number).expect("there are processes");
                tree.stop_asked = false;
                tree.phase = Phase::Exited;
                self.to_device(setup, DeviceInput::NotProved { number, why: String::new() });
            }
            Step::Swept => {
                self.executor.sweeping = false;
                self.executor.trees.clear();
                self.to_device(setup, DeviceInput::Swept);
            }
            Step::NotSwept => {
                self.left.not_swept -= 1;
                self.executor.sweeping = false;
                self.to_device(setup, DeviceInput::SweepFailed { why: String::new() });
            }
            Step::Built => {
                let stage = self.stage.as_mut().expect("a stage is open");
                stage.built = true;
                let hold = hold(stage.number);
                self.to_judge(setup, JudgeInput::BuildsDone { hold });
            }
            Step::StageEnds(came) => {
                let stage = self.stage.take().expect("a stage is open");
                if came == Came::Infrastructure {
                    self.left.infrastructure -= 1;
                }
                self.to_judge(setup, JudgeInput::StageEnded { hold: hold(stage.number), result: result(came) });
                if setup.mutant == Mutant::HoldEndsBeforeWork {
                    self.send(
                        Party::Judge,
                        Party::Device,
                        Letter::ToDevice(DeviceInput::Stop { number: stage.number, cause: StopCause::StageOver }),
                    );
                }
            }
            Step::Kill => {
                self.left.kills -= 1;
                self.boot(setup);
            }
        }
    }

    fn phase_goes(&mut self, from: Phase, to: Phase) -> u64 {
        let (number, tree) =
            self.executor.trees.iter_mut().find(|(_, tree)| tree.phase == from).expect("the step was offered");
        tree.phase = to;
        *number
    }

    fn ask(&mut self, setup: &Setup, lane: u8) {
        let at = usize::from(lane);
        self.asked[at] += 1;
        self.arrivals += 1;
        let caller = if setup.budgets.drops > 0 { Caller::Attached } else { Caller::Detached };
        let ask = Ask {
            dev_run: dev_run_id(lane, self.asked[at]),
            run: RUN,
            arrival: Arrival(self.arrivals),
            limit: Some(DEV_RUN_LIMIT),
            caller,
        };
        let effects = Arc::make_mut(&mut self.lanes[at]).ask(ask).expect("the lane has none under way");
        self.lane_wants(setup, lane, effects);
    }

    fn submit(&mut self, setup: &Setup, job: u8) {
        self.submitted += 1;
        self.arrivals += 1;
        let submit = Submit {
            job: job_id(job),
            run: RUN,
            arrival: Arrival(self.arrivals),
            champion: String::new(),
            candidate: job.to_string(),
            same: job.to_string(),
            key: None,
            stage_worst: Span::ZERO,
        };
        match Arc::make_mut(&mut self.judge).submit(submit) {
            Ok(Submission::New(effects)) => self.judge_wants(setup, effects),
            Ok(Submission::Same { .. }) => unreachable!("each job is another change"),
            // The run is about to be over.
            Err(_) => {}
        }
    }

    fn change_run(&mut self, setup: &Setup, state: RunState) {
        if let Ok(effects) = Arc::make_mut(&mut self.judge).change_run(RUN, state) {
            self.promises.run_changes.asked += 1;
            self.promises.run_changes.last = Some(state);
            self.judge_wants(setup, effects);
        }
    }

    /// A start of the rig's process: only what is durable is left, and what really runs.
    fn boot(&mut self, setup: &Setup) {
        self.mail.clear();
        self.appends.clear();
        self.stage = None;
        self.promises.latest.clear();
        self.promises.run_changes = RunChanges::default();
        // Nobody was told of the ends that became durable just before.
        self.promises.ended.extend(self.known.jobs_over());
        self.lanes = (0..setup.lanes).map(|lane| Arc::new(Lane::new(lane_id(lane)))).collect();
        let mut pool = Pool::new([(DEVICE, Discipline::JudgeFirst)], WAIT_MAX);
        let history = self.known.history();
        let mut judge = JudgeQueue::new(1);
        judge.restore(&history, |spec| spec.pinned.candidate_tree.clone(), |_| Span::ZERO);
        let opening = judge.open();
        let last = history.last_holds.get(&DEVICE).copied().unwrap_or(0);
        let (device, sweep) = Device::new(NOW, DEVICE, last);
        // What ran when the rig died is over: the start records it before it takes anything.
        self.known.lanes_runs_are_over();
        if setup.mutant == Mutant::GrantsBeforeFirstWork {
            pool.handle(NOW, PoolInput::JudgeWork(JudgeWork::default()));
        }
        self.pool = Arc::new(pool);
        self.judge = Arc::new(judge);
        self.device = Arc::new(device);
        for tree in self.executor.trees.values_mut() {
            tree.stop_asked = false;
            tree.phase = Phase::Exited;
        }
        self.device_wants(setup, sweep);
        self.judge_wants(setup, opening);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let lanes = self.lanes.iter().filter_map(|lane| lane.next_deadline());
        let others = [self.pool.next_deadline(), self.device.next_deadline(), self.judge.next_deadline()];
        others.into_iter().flatten().chain(lanes).map(|(at, _)| at).min()
    }

    /// The clock goes on to the next deadline, for all at once.
    fn jump(&mut self, setup: &Setup) {
        if !self.quiet() {
            self.left.late -= 1;
        }
        let at = self.next_deadline().expect("there is a deadline");
        let pool = Arc::make_mut(&mut self.pool).advance(at);
        let device = Arc::make_mut(&mut self.device).advance(at);
        let judge = Arc::make_mut(&mut self.judge).advance(at);
        let lanes: Vec<_> = self.lanes.iter_mut().map(|lane| Arc::make_mut(lane).advance(at)).collect();
        assert!(self.next_deadline().is_none_or(|next| next > at), "a deadline is still due after advance");
        self.told_by_pool(&pool);
        if self.promises.latest.values().any(|latest| *latest <= at) {
            self.broken = Some(CERTIFICATE);
        }
        let origin = Moment::from_millis(at.since(NOW).as_millis());
        self.promises.latest.values_mut().for_each(|latest| *latest = latest.rebase(origin));
        Arc::make_mut(&mut self.pool).rebase(origin, 0, |_| 0);
        Arc::make_mut(&mut self.device).rebase(origin, 0);
        Arc::make_mut(&mut self.judge).rebase(origin, 0, |_| 0);
        self.lanes.iter_mut().for_each(|lane| Arc::make_mut(lane).rebase(origin, |_| 0));
        self.pool_wants(setup, pool);
        self.device_wants(setup, device);
        self.judge_wants(setup, judge);
        for (lane, effects) in (0..).zip(lanes) {
            self.lane_wants(setup, lane, effects);
        }
    }

    fn deliver(&mut self, setup: &Setup, from: Party, to: Party) {
        let letters = self.mail.get_mut(&(from, to)).expect("the step was offered");
        let letter = letters.pop_front().expect("a channel without letters is none");
        if letters.is_empty() {
            self.mail.remove(&(from, to));
        }
        self.open(setup, to, letter);
    }

    fn open(&mut self, setup: &Setup, to: Party, letter: Letter) {
        match (to, letter) {
            (Party::Pool, Letter::ToPool(input)) => self.to_pool(setup, input),
            (Party::Device, Letter::ToDevice(input)) => self.to_device(setup, input),
            (Party::Judge, Letter::ToJudge(input)) => self.to_judge(setup, input),
            (Party::Lane(lane), Letter::ToLane(input)) => self.to_lane(setup, lane, input),
            (to, letter) => unreachable!("{letter:?} does not go to {to:?}"),
        }
    }

    fn send(&mut self, from: Party, to: Party, letter: Letter) {
        self.mail.entry((from, to)).or_default().push_back(letter);
    }

    fn to_pool(&mut self, setup: &Setup, input: PoolInput) {
        let input = setup.mutant.pool_hears(input, self.pool.members()[0].held.as_ref().map(|held| held.0.number));
        let started = match &input {
            PoolInput::Member { event: MemberEvent::Started { number }, .. } => Some(*number),
            _ => None,
        };
        let effects = Arc::make_mut(&mut self.pool).handle(NOW, input);
        if let Some(number) = started
            && let Some((held, thermite_core::pool::HolderView::Lane { dev_run, .. })) = &self.pool.members()[0].held
            && held.number == number
        {
            // It has started: its wait is over.
            self.promises.latest.remove(dev_run);
        }
        self.told_by_pool(&effects);
        self.pool_wants(setup, effects);
    }

    fn to_device(&mut self, setup: &Setup, input: DeviceInput) {
        let effects = Arc::make_mut(&mut self.device).handle(NOW, input);
        self.device_wants(setup, effects);
    }

    fn to_judge(&mut self, setup: &Setup, input: JudgeInput) {
        let effects = Arc::make_mut(&mut self.judge).handle(NOW, input);
        self.judge_wants(setup, effects);
    }

    fn to_lane(&mut self, setup: &Setup, lane: u8, input: LaneInput) {
        let effects = Arc::make_mut(&mut self.lanes[usize::from(lane)]).handle(NOW, input);
        self.lane_wants(setup, lane, effects);
    }

    /// Keeps account of the latest moments that the pool has promised.
    fn told_by_pool(&mut self, effects: &[PoolEffect]) {
        for effect in effects {
            if let PoolEffect::GaveUp { dev_run, .. } = effect {
                self.promises.latest.remove(dev_run);
            }
        }
        let waits = self.pool.waits();
        let held = match &self.pool.members()[0].held {
            Some((_, thermite_core::pool::HolderView::Lane { dev_run, .. })) => Some(*dev_run),
            _ => None,
        };
        self.promises.latest.retain(|known, _| Some(*known) == held || waits.iter().any(|(_, w, _)| w == known));
        for (_, dev_run, wait) in waits {
            let thermite_core::wait::WaitEnd::Latest { at } = wait.end else {
                self.broken = Some(CERTIFICATE);
                continue;
            };
            let before = *self.promises.latest.entry(dev_run).or_insert(at);
            if at > before {
                self.broken = Some(CERTIFICATE);
            }
        }
    }

    fn pool_wants(&mut self, setup: &Setup, effects: Vec<PoolEffect>) {
        for effect in effects {
            let number = |lane: LaneId| lane.number() - 1;
            let (to, letter) = match effect {
                PoolEffect::InLine { lane, dev_run, ahead } => {
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::InLine { dev_run, ahead }))
                }
                PoolEffect::GrantLane { lane, dev_run, hold } => {
                    if !self.promises.accepted.is_subset(&self.promises.ended) {
                        self.broken = Some(JUDGE_FIRST);
                    }
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::Granted { dev_run, hold }))
                }
                PoolEffect::GrantJudge { hold, serves } => {
                    (Party::Judge, Letter::ToJudge(JudgeInput::Granted { hold, serves }))
                }
                PoolEffect::GaveUp { lane, dev_run, why } => {
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::GaveUp { dev_run, why }))
                }
                PoolEffect::WaitCancelled { lane, dev_run } => {
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::WaitCancelled { dev_run }))
                }
                PoolEffect::Requeued { lane, hold } => {
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::Requeued { hold }))
                }
                PoolEffect::HoldEnded { to: Holder::Lane(lane), hold, how } => {
                    (Party::Lane(number(lane)), Letter::ToLane(LaneInput::HoldEnded { hold, how }))
                }
                PoolEffect::HoldEnded { to: Holder::Judge, hold, how } => {
                    (Party::Judge, Letter::ToJudge(JudgeInput::HoldEnded { hold, how }))
                }
                PoolEffect::WorkTaken { version } => (Party::Judge, Letter::ToJudge(JudgeInput::WorkTaken { version })),
                PoolEffect::Void { hold } => {
                    (Party::Device, Letter::ToDevice(DeviceInput::Void { number: hold.number }))
                }
                PoolEffect::Stop { hold, cause } => {
                    (Party::Device, Letter::ToDevice(DeviceInput::Stop { number: hold.number, cause }))
                }
            };
            let _ = setup;
            self.send(Party::Pool, to, letter);
        }
    }

    fn device_wants(&mut self, setup: &Setup, effects: Vec<DeviceEffect>) {
        for effect in effects {
            match effect {
                DeviceEffect::Sweep => self.executor.sweeping = true,
                DeviceEffect::StartDevRun { number } => {
                    let by = match self.device.state() {
                        thermite_core::device::DeviceState::Held { by, .. } => *by,
                        other => unreachable!("a start leaves the device held, not {other:?}"),
                    };
                    self.really_start(number, Tree { by, phase: Phase::Starting, stop_asked: false });
                }
                DeviceEffect::StageOpen { number } => {
                    self.really_start(number, Tree { by: Holder::Judge, phase: Phase::Judging, stop_asked: false });
                    self.stage = Some(OpenStage { number, built: false });
                }
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
                    let letter = Letter::ToPool(PoolInput::Member { member: DEVICE, event });
                    if twice {
                        self.send(Party::Device, Party::Pool, letter.clone());
                    }
                    self.send(Party::Device, Party::Pool, letter);
                }
            }
        }
    }

    fn really_start(&mut self, number: u64, tree: Tree) {
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

    fn judge_wants(&mut self, setup: &Setup, effects: Vec<JudgeEffect>) {
        let to_pool = |input| (Party::Pool, Letter::ToPool(input));
        for effect in effects {
            let (to, letter) = match effect {
                JudgeEffect::Record { ticket, job, facts } => {
                    let facts = facts.into_iter().map(|fact| self.job_fact(job, fact)).collect();
                    let nack = match ticket {
                        Ticket::Submit(_) => Some(Letter::ToJudge(JudgeInput::NotRecorded(ticket))),
                        Ticket::Start(..) | Ticket::Conclude(_) | Ticket::Run(_) => None,
                    };
                    let ack = Letter::ToJudge(JudgeInput::Recorded(ticket));
                    self.append(setup, Append { facts, to: Party::Judge, ack, nack });
                    continue;
                }
                JudgeEffect::RecordRun { run, state } => {
                    let ack = Letter::ToJudge(JudgeInput::Recorded(Ticket::Run(run)));
                    let nack = Some(Letter::ToJudge(JudgeInput::NotRecorded(Ticket::Run(run))));
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
                    (Party::Device, Letter::ToDevice(start))
                }
                JudgeEffect::EndHold { hold } => {
                    if setup.mutant == Mutant::HoldEndsBeforeWork {
                        continue;
                    }
                    let stop = DeviceInput::Stop { number: hold.number, cause: StopCause::StageOver };
                    (Party::Device, Letter::ToDevice(stop))
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
    fn stop_lanes(&mut self) {
        for at in 0..self.lanes.len() {
            if let Some(dev_run) = self.lanes[at].under_way() {
                let lane = u8::try_from(at).expect("set-ups have few lanes");
                let stop = LaneInput::Stop { dev_run, cause: StopCause::RunEnded };
                self.send(Party::Judge, Party::Lane(lane), Letter::ToLane(stop));
            }
        }
    }

    fn lane_wants(&mut self, setup: &Setup, lane: u8, effects: Vec<LaneEffect>) {
        let by = Holder::Lane(lane_id(lane));
        let from = Party::Lane(lane);
        let to_pool = |input| (Party::Pool, Letter::ToPool(input));
        for effect in effects {
            let dev_run = self.lanes[usize::from(lane)].under_way();
            let (to, letter) = match effect {
                LaneEffect::RecordAsk => {
                    let dev_run = dev_run.expect("a lane that records has one under way");
                    let ack = Letter::ToLane(LaneInput::AskRecorded);
                    let nack = Some(Letter::ToLane(LaneInput::AskNotRecorded));
                    self.append(setup, Append { facts: vec![Fact::Asked { dev_run }], to: from, ack, nack });
                    continue;
                }
                LaneEffect::RecordHold { dev_run, hold } => {
                    let ack = Letter::ToLane(LaneInput::HoldRecorded { hold });
                    let facts = vec![Fact::Held { dev_run, number: hold.number }];
                    self.append(setup, Append { facts, to: from, ack, nack: None });
                    continue;
                }
                LaneEffect::RecordEnd { dev_run, end } => {
                    let ack = Letter::ToLane(LaneInput::EndRecorded);
                    let end = !matches!(end, DevRunEnd::NotProved { .. });
                    self.append(
                        setup,
                        Append { facts: vec![Fact::DevRunOver { dev_run, proved: end }], to: from, ack, nack: None },
                    );
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
                    (Party::Device, Letter::ToDevice(DeviceInput::Start { number: hold.number, by, limit }))
                }
                LaneEffect::StopHold { hold, cause } => {
                    (Party::Device, Letter::ToDevice(DeviceInput::Stop { number: hold.number, cause }))
                }
                LaneEffect::AnswerQueued { dev_run, .. } => {
                    if !self.known.has_dev_run(dev_run) {
                        self.broken = Some(RECORDED_FIRST);
                    }
                    continue;
                }
                LaneEffect::AnswerNotRecorded { .. } => continue,
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

    fn job_fact(&self, job: JobId, fact: JudgeFact) -> Fact {
        // The arrival is what the shell wrote into the job's specification.
        Fact::Job { job, fact, arrival: self.arrivals }
    }

    fn append(&mut self, setup: &Setup, append: Append) {
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

    fn durable(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            if let Fact::Run(_) = fact {
                self.promises.run_changes.durable += 1;
            }
            if !self.known.apply(fact) {
                self.broken = Some(ONE_END);
            }
        }
    }

    /// Looks for what must hold in every state, and for what must hold when nothing is on its way.
    fn look(&mut self) {
        use thermite_core::device::DeviceState;
        let member = &self.pool.members()[0];
        let held = member.held.as_ref().map(|held| held.0.number);
        if member.gone.is_none() && self.executor.trees.keys().any(|number| Some(*number) != held) {
            self.broken = Some(POOL_KNOWS);
        }
        if !self.quiet() || self.broken.is_some() {
            return;
        }
        if self.pool.overlooked().is_some() {
            self.broken = Some(OVERLOOKED);
        }
        let waits = self.pool.waits();
        if *self.device.state() == DeviceState::Ready {
            if held.is_some() {
                self.broken = Some(HELD_BY_NONE);
            } else if self.lanes.iter().any(|lane| matches!(lane.state(), LaneState::Waiting { .. }))
                && self.judge.live_count() == 0
            {
                self.broken = Some(OVERLOOKED);
            }
        }
        if !waits.is_empty() && self.judge.run_state(RUN) != Some(RunState::Running) {
            self.broken = Some(PAUSED_LEAVE);
        }
        let waiting = |lane: &LaneId, dev_run: &DevRunId| {
            matches!(self.lanes[usize::from(lane.number() - 1)].state(),
                LaneState::Waiting { ask, .. } if ask.dev_run == *dev_run)
        };
        if !waits.iter().all(|(lane, dev_run, _)| waiting(lane, dev_run)) {
            self.broken = Some(GHOST);
        }
    }

    /// Tells numbers and versions from the lowest that is still spoken of, once nothing is on its way.
    fn settle(&mut self) {
        if !self.quiet() || self.broken.is_some() {
            return;
        }
        let lowest = self.device.last().min(self.known.last_hold()).min(self.executor.used);
        let lowest = self.executor.trees.keys().next().map_or(lowest, |number| lowest.min(number - 1));
        let version = self.judge.lowest_version();
        Arc::make_mut(&mut self.device).rebase(Moment::START, lowest);
        Arc::make_mut(&mut self.pool).rebase(Moment::START, version, |_| lowest);
        Arc::make_mut(&mut self.judge).rebase(Moment::START, version, |_| lowest);
        self.lanes.iter_mut().for_each(|lane| Arc::make_mut(lane).rebase(Moment::START, |_| lowest));
        self.known.rebase(lowest);
        self.executor.used -= lowest;
        self.executor.trees =
            std::mem::take(&mut self.executor.trees).into_iter().map(|(n, t)| (n - lowest, t)).collect();
        if let Some(stage) = &mut self.stage {
            stage.number = stage.number.saturating_sub(lowest);
        }
    }
}

fn result(came: Came) -> StageResult {
    match came {
        Came::Win => StageResult::Win,
        Came::NoGain => StageResult::NoGain { slower: false },
        Came::Undecided => StageResult::Undecided,
        Came::ChangeFailed => StageResult::ChangeFailed { step: ChangeStep::Build, why: String::new() },
        Came::Infrastructure => StageResult::Infrastructure(InfrastructureFailure::RigEnding),
        Came::TooNoisy => StageResult::Infrastructure(InfrastructureFailure::TooNoisy {
            member: DEVICE,
            noise_percent: String::new(),
            limit_percent: String::new(),
        }),
    }
}

/// Whether an outcome is a verdict or the lack of one: each ends the job.
pub(super) fn is_end(fact: &JudgeFact) -> Option<&JobOutcome> {
    match fact {
        JudgeFact::Ended { outcome, .. } => Some(outcome),
        _ => None,
    }
}
