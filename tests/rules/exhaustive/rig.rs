//! One shared device's machines, composed as in the rig, with everything around them as an environment that does
//! what it may in any order.
//!
//! Letters between two parties keep their order; letters of different senders do not. Whatever a machine may not rely
//! on (the disk, the executor, the stage, callers, the clock, `kill -9`) is a [`Step`] of the environment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thermite_core::dev_run::Exit;
use thermite_core::device::{Device, DeviceInput};
use thermite_core::hold::StopCause;
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::job::ChangeStep;
use thermite_core::judge_queue::{JudgeInput, JudgeQueue, StageResult, Submission, Submit};
use thermite_core::lane::{Ask, Caller, Lane, LaneInput, LaneState};
use thermite_core::pool::{Discipline, JudgeWork, Pool, PoolInput};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::run::RunState;
use thermite_core::time::{Moment, Span};
use uuid::Uuid;

use super::graph::World;
use super::known::{Fact, Known};
use super::mutants::Mutant;

pub(super) mod properties;
mod wiring;

use properties::CERTIFICATE;

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
    Pool(PoolInput),
    Device(DeviceInput),
    Judge(JudgeInput),
    Lane(LaneInput),
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
    /// What people, processes, stages and the clock do while letters are on their way; without a number, all they can.
    pub(super) hasty: Option<u8>,
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
    /// Whether lanes and the judge open their letters in the step that sends them.
    pub(super) prompt: bool,
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
            pool: Arc::new(Pool::new([(DEVICE, Discipline::JudgeFirst)])),
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
        rig.device_gets(setup, DeviceInput::Swept);
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
        if self.left.kills > 0 {
            steps.push(Step::Kill);
        }
        if self.left.hasty == Some(0) && !self.mail.is_empty() {
            return;
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
        while setup.prompt
            && let Some((from, to)) =
                next.mail.keys().find(|(_, to)| matches!(to, Party::Lane(_) | Party::Judge)).copied()
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
        if let Some(hasty) = &mut self.left.hasty
            && !self.mail.is_empty()
            && !matches!(step, Step::Deliver { .. } | Step::Durable | Step::NotRecorded | Step::Kill)
        {
            *hasty -= 1;
        }
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
                    // It can be asked for again.
                    self.promises.run_changes.durable += 1;
                    self.promises.run_changes.last = None;
                }
                self.send(Party::Records, append.to, nack);
            }
            Step::Ask { lane } => self.ask(setup, lane),
            Step::Cancel { lane } => {
                self.left.cancels -= 1;
                let dev_run = self.lanes[usize::from(lane)].under_way().expect("only what is under way is cancelled");
                self.lane_gets(setup, lane, LaneInput::Stop { dev_run, cause: StopCause::Cancelled });
            }
            Step::CallerDrops { lane } => {
                self.left.drops -= 1;
                let dev_run = self.lanes[usize::from(lane)].under_way().expect("only what is under way has a caller");
                self.lane_gets(setup, lane, LaneInput::CallerGone { dev_run });
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
                self.device_gets(setup, DeviceInput::Started { number });
            }
            Step::StartFails => {
                self.left.not_started -= 1;
                let number = self.phase_goes(Phase::Starting, Phase::Exited);
                self.device_gets(setup, DeviceInput::StartFailed { number, why: String::new() });
            }
            Step::Exits => {
                let number = self.phase_goes(Phase::Running, Phase::Exited);
                self.device_gets(setup, DeviceInput::Exited { number, exit: Exit::Code(0) });
            }
            Step::Emptied { number } => {
                self.executor.trees.remove(&number);
                self.device_gets(setup, DeviceInput::Emptied { number });
            }
            Step::NotProved { number } => {
                self.left.not_proved -= 1;
                let tree = self.executor.trees.get_mut(&number).expect("there are processes");
                tree.stop_asked = false;
                tree.phase = Phase::Exited;
                self.device_gets(setup, DeviceInput::NotProved { number, why: String::new() });
            }
            Step::Swept => {
                self.executor.sweeping = false;
                self.executor.trees.clear();
                self.device_gets(setup, DeviceInput::Swept);
            }
            Step::NotSwept => {
                self.left.not_swept -= 1;
                self.executor.sweeping = false;
                self.device_gets(setup, DeviceInput::SweepFailed { why: String::new() });
            }
            Step::Built => {
                let stage = self.stage.as_mut().expect("a stage is open");
                stage.built = true;
                let hold = hold(stage.number);
                self.judge_gets(setup, JudgeInput::BuildsDone { hold });
            }
            Step::StageEnds(came) => {
                let stage = self.stage.take().expect("a stage is open");
                if came == Came::Infrastructure {
                    self.left.infrastructure -= 1;
                }
                self.judge_gets(setup, JudgeInput::StageEnded { hold: hold(stage.number), result: result(came) });
                if setup.mutant.ends_holds_early() {
                    self.send(
                        Party::Judge,
                        Party::Device,
                        Letter::Device(DeviceInput::Stop { number: stage.number, cause: StopCause::StageOver }),
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
            since: NOW,
            latest: NOW + WAIT_MAX,
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
        let mut pool = Pool::new([(DEVICE, Discipline::JudgeFirst)]);
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
        for letter in self.mail.values_mut().flat_map(|letters| letters.iter_mut()) {
            if let Letter::Pool(PoolInput::Ask { latest, .. }) = letter {
                *latest = latest.rebase(origin);
            }
        }
        self.pool_wants(pool);
        self.device_wants(setup, device);
        self.judge_wants(setup, judge);
        for (lane, effects) in (0..).zip(lanes) {
            self.lane_wants(setup, lane, effects);
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

impl World for Rig {
    type Setup = Setup;
    type Step = Step;

    fn fresh(setup: &Setup) -> Rig {
        Rig::fresh(setup)
    }

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        Rig::steps(self, setup, steps);
    }

    fn after(&self, setup: &Setup, step: Step) -> Rig {
        Rig::after(self, setup, step)
    }

    fn ended(&self, setup: &Setup) -> bool {
        Rig::ended(self, setup)
    }

    fn broken(&self) -> Option<&'static str> {
        self.broken
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
