//! The input log: what each machine took, when, and what it decided (rule D10); and its replay by the same machines.
//!
//! A machine decides by its state, the moment and what it takes, and by nothing else. So a log that has its state once
//! and all it took since can be run again anywhere, and must give the same decisions. The log explains; the records
//! are the truth (rule D7). One JSON object a line; a segment is a file of lines that replays alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceEffect, DeviceInput};
use crate::ids::{HoldId, JobId, LaneId, MemberId, RunId};
use crate::judge_queue::{JudgeEffect, JudgeInput, JudgeQueue, Submission, Submit};
use crate::lane::{Ask, Lane, LaneEffect, LaneInput};
use crate::pool::{Pool, PoolEffect, PoolInput};
use crate::refusal::{InfrastructureFailure, Refusal};
use crate::run::RunState;
use crate::runner::{Runner, RunnerEffect, RunnerInput};
use crate::stage::{Directive, Stage, StageEnd, StagePlan, StageStep, StepReport};
use crate::time::Moment;
use crate::verdict::Verdict;

mod replay;

pub use replay::{Difference, Replay, ReplayFault, Replayed};

/// The version of the lines' layout.
pub const FORMAT: u32 = 1;
/// The version of the library whose decisions a log holds: another's may differ.
pub const LIBRARY: &str = env!("CARGO_PKG_VERSION");

/// Which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineId {
    /// The pool.
    Pool,
    /// The judge queue.
    Judge,
    /// A local device.
    Device(MemberId),
    /// A runner, as the core sees it.
    Runner(MemberId),
    /// A lane.
    Lane(LaneId),
    /// An attempt at a stage, by its hold.
    Stage(HoldId),
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineId::Pool => f.write_str("the pool"),
            MachineId::Judge => f.write_str("the judge queue"),
            MachineId::Device(member) => member.fmt(f),
            MachineId::Runner(member) => write!(f, "the runner at place {}", member.0),
            MachineId::Lane(lane) => lane.fmt(f),
            MachineId::Stage(hold) => write!(f, "the stage under {hold}"),
        }
    }
}

/// What a machine decided on one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gave<E> {
    /// What it wants done, in order.
    pub effects: Vec<E>,
    /// What it answers whoever asked, where it answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// An answer that waits for nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It may not be.
    Refused(Refusal),
    /// It was asked before.
    SameJob {
        /// That job.
        job: JobId,
        /// Whether its acceptance has been answered already.
        answered: bool,
    },
}

impl<E> From<Vec<E>> for Gave<E> {
    fn from(effects: Vec<E>) -> Gave<E> {
        Gave { effects, answer: None }
    }
}

/// What a device takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceTakes {
    /// Time alone.
    Time,
    /// An input.
    Input(DeviceInput),
}

/// What a runner's machine takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerTakes {
    /// Time alone.
    Time,
    /// An input.
    Input(RunnerInput),
}

/// What a pool takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolTakes {
    /// Time alone.
    Time,
    /// An input.
    Input(PoolInput),
}

/// What a lane takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneTakes {
    /// Time alone.
    Time,
    /// A development run is asked for.
    Ask(Ask),
    /// An input.
    Input(LaneInput),
}

/// What a judge queue takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeTakes {
    /// Time alone.
    Time,
    /// The rig has started.
    Open,
    /// A run is to be started.
    StartRun {
        /// The run.
        run: RunId,
        /// Its champion's commit.
        champion: String,
    },
    /// A run is to be paused, resumed or ended.
    ChangeRun {
        /// The run.
        run: RunId,
        /// What it is to be.
        state: RunState,
    },
    /// A job is submitted.
    Submit(Submit),
    /// An input.
    Input(JudgeInput),
}

/// What an attempt at a stage takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageTakes {
    /// It begins.
    Begin(Box<StagePlan>),
    /// Time alone.
    Time,
    /// What came of the step it asked for.
    Report(StepReport),
}

/// What an attempt wants after an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageWants {
    /// This step.
    Step(StageStep),
    /// Nothing until that moment.
    Nothing {
        /// When it will look next.
        until: Moment,
        /// What keeps the device from being ready.
        why: String,
    },
    /// It is decided.
    Decided {
        /// The verdict.
        verdict: Verdict,
        /// SHA-256 of its record: everything of it, to the last bit.
        record: String,
    },
    /// Both sides are built, and no more was to be done here.
    Built,
    /// The change itself failed.
    ChangeFailed {
        /// The sentence to show.
        why: String,
    },
    /// It is void.
    Void {
        /// The cause.
        why: InfrastructureFailure,
    },
}

impl StageWants {
    /// What that attempt wants.
    pub fn of(stage: &Stage) -> StageWants {
        match stage.directive() {
            Directive::Do(step) => StageWants::Step(step),
            Directive::Wait { until, why } => StageWants::Nothing { until, why },
            Directive::End(end) => match *end {
                StageEnd::Decided { verdict, record, .. } => StageWants::Decided { verdict, record: record.sha256 },
                StageEnd::Built { .. } => StageWants::Built,
                StageEnd::ChangeFailed { why, .. } => StageWants::ChangeFailed { why },
                StageEnd::Infrastructure { why, .. } => StageWants::Void { why },
            },
        }
    }

    fn is_over(&self) -> bool {
        match self {
            StageWants::Step(_) | StageWants::Nothing { .. } => false,
            StageWants::Built
            | StageWants::Decided { .. }
            | StageWants::ChangeFailed { .. }
            | StageWants::Void { .. } => true,
        }
    }
}

/// A machine of the policy, as the log sees it: deadlines pass first, then it takes the input.
pub trait Machine: Clone + PartialEq {
    /// What it takes.
    type Takes: Clone;
    /// What it gives.
    type Gives: Clone + PartialEq + fmt::Debug;

    /// Lets every deadline up to `now` pass, takes the input, and decides.
    fn take(&mut self, now: Moment, takes: Self::Takes) -> Self::Gives;
    /// Its state as a line says it.
    fn told(self) -> State;
    /// What it took and gave as a line says it.
    fn step(&self, takes: Self::Takes, gave: Self::Gives) -> Step;
}

/// A machine's whole state.
#[expect(clippy::large_enum_variant, reason = "one is made for each machine of a segment, and written away")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A device's.
    Device(Device),
    /// A runner's.
    Runner(Box<Runner>),
    /// The pool's.
    Pool(Pool),
    /// The judge queue's.
    Judge(JudgeQueue),
    /// A lane's.
    Lane(Lane),
    /// An attempt's.
    Stage(Box<Stage>),
}

/// What one machine took and gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A device.
    Device {
        /// Which.
        of: MemberId,
        /// What it took.
        takes: DeviceTakes,
        /// What it gave.
        gave: Gave<DeviceEffect>,
    },
    /// A runner.
    Runner {
        /// Which.
        of: MemberId,
        /// What it took.
        takes: RunnerTakes,
        /// What it gave.
        gave: Gave<RunnerEffect>,
    },
    /// The pool.
    Pool {
        /// What it took.
        takes: PoolTakes,
        /// What it gave.
        gave: Gave<PoolEffect>,
    },
    /// The judge queue.
    Judge {
        /// What it took.
        takes: JudgeTakes,
        /// What it gave.
        gave: Gave<JudgeEffect>,
    },
    /// A lane.
    Lane {
        /// Which.
        of: LaneId,
        /// What it took.
        takes: LaneTakes,
        /// What it gave.
        gave: Gave<LaneEffect>,
    },
    /// An attempt at a stage.
    Stage {
        /// Its hold.
        of: HoldId,
        /// What it took.
        takes: StageTakes,
        /// What it wants.
        gave: StageWants,
    },
}

impl Step {
    /// Whose it is.
    pub fn machine(&self) -> MachineId {
        match self {
            Step::Device { of, .. } => MachineId::Device(*of),
            Step::Runner { of, .. } => MachineId::Runner(*of),
            Step::Pool { .. } => MachineId::Pool,
            Step::Judge { .. } => MachineId::Judge,
            Step::Lane { of, .. } => MachineId::Lane(*of),
            Step::Stage { of, .. } => MachineId::Stage(*of),
        }
    }
}

/// Why a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The rig started.
    Started,
    /// The one before it was full: nothing is missing between them.
    Full,
    /// The log could not be written as fast as the machines decided; so many entries are missing.
    Missed {
        /// How many.
        entries: u64,
    },
}

/// A segment's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// The version of the layout.
    pub format: u32,
    /// The version of the library.
    pub library: String,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Why it begins.
    pub because: Because,
}

impl Beginning {
    /// The beginning of a segment that this library writes.
    pub fn now(wall_ms: u64, because: Because) -> Beginning {
        Beginning { format: FORMAT, library: LIBRARY.to_owned(), wall_ms, because }
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A segment begins.
    Begins(Beginning),
    /// A machine's state, before its first step of the segment.
    State(Box<State>),
    /// A machine took something.
    Took {
        /// When.
        at: Moment,
        /// What, and what it gave.
        step: Box<Step>,
    },
}

impl Line {
    /// The line as text, without its end.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a line has only text keys and numbers that JSON has")
    }
}

impl Machine for Device {
    type Takes = DeviceTakes;
    type Gives = Gave<DeviceEffect>;

    fn take(&mut self, now: Moment, takes: DeviceTakes) -> Gave<DeviceEffect> {
        let mut effects = self.advance(now); // Deadlines first: a late timer must not change an outcome.
        match takes {
            DeviceTakes::Time => {}
            DeviceTakes::Input(input) => effects.extend(self.handle(now, input)),
        }
        effects.into()
    }

    fn told(self) -> State {
        State::Device(self)
    }

    fn step(&self, takes: DeviceTakes, gave: Gave<DeviceEffect>) -> Step {
        Step::Device { of: self.member(), takes, gave }
    }
}

impl Machine for Runner {
    type Takes = RunnerTakes;
    type Gives = Gave<RunnerEffect>;

    fn take(&mut self, now: Moment, takes: RunnerTakes) -> Gave<RunnerEffect> {
        let mut effects = self.advance(now); // Deadlines first: a late answer must not change an outcome.
        match takes {
            RunnerTakes::Time => {}
            RunnerTakes::Input(input) => effects.extend(self.handle(now, input)),
        }
        effects.into()
    }

    fn told(self) -> State {
        State::Runner(Box::new(self))
    }

    fn step(&self, takes: RunnerTakes, gave: Gave<RunnerEffect>) -> Step {
        Step::Runner { of: self.member(), takes, gave }
    }
}

impl Machine for Pool {
    type Takes = PoolTakes;
    type Gives = Gave<PoolEffect>;

    fn take(&mut self, now: Moment, takes: PoolTakes) -> Gave<PoolEffect> {
        let mut effects = self.advance(now);
        match takes {
            PoolTakes::Time => {}
            PoolTakes::Input(input) => effects.extend(self.handle(now, input)),
        }
        effects.into()
    }

    fn told(self) -> State {
        State::Pool(self)
    }

    fn step(&self, takes: PoolTakes, gave: Gave<PoolEffect>) -> Step {
        Step::Pool { takes, gave }
    }
}

impl Machine for Lane {
    type Takes = LaneTakes;
    type Gives = Gave<LaneEffect>;

    fn take(&mut self, now: Moment, takes: LaneTakes) -> Gave<LaneEffect> {
        let mut effects = self.advance(now);
        let mut answer = None;
        match takes {
            LaneTakes::Time => {}
            LaneTakes::Ask(ask) => match self.ask(ask) {
                Ok(more) => effects.extend(more),
                Err(refusal) => answer = Some(Answer::Refused(refusal)),
            },
            LaneTakes::Input(input) => effects.extend(self.handle(now, input)),
        }
        Gave { effects, answer }
    }

    fn told(self) -> State {
        State::Lane(self)
    }

    fn step(&self, takes: LaneTakes, gave: Gave<LaneEffect>) -> Step {
        Step::Lane { of: self.id(), takes, gave }
    }
}

impl Machine for JudgeQueue {
    type Takes = JudgeTakes;
    type Gives = Gave<JudgeEffect>;

    fn take(&mut self, now: Moment, takes: JudgeTakes) -> Gave<JudgeEffect> {
        let mut effects = self.advance(now);
        let more = match takes {
            JudgeTakes::Time => Ok(Vec::new()),
            JudgeTakes::Open => Ok(self.open()),
            JudgeTakes::StartRun { run, champion } => self.start_run(run, champion),
            JudgeTakes::ChangeRun { run, state } => self.change_run(run, state),
            JudgeTakes::Submit(submit) => match self.submit(submit) {
                Ok(Submission::New(more)) => Ok(more),
                Ok(Submission::Same { job, answered }) => {
                    return Gave { effects, answer: Some(Answer::SameJob { job, answered }) };
                }
                Err(refusal) => Err(refusal),
            },
            JudgeTakes::Input(input) => Ok(self.handle(now, input)),
        };
        match more {
            Ok(more) => {
                effects.extend(more);
                effects.into()
            }
            Err(refusal) => Gave { effects, answer: Some(Answer::Refused(refusal)) },
        }
    }

    fn told(self) -> State {
        State::Judge(self)
    }

    fn step(&self, takes: JudgeTakes, gave: Gave<JudgeEffect>) -> Step {
        Step::Judge { takes, gave }
    }
}

impl Machine for Stage {
    type Takes = StageTakes;
    type Gives = StageWants;

    fn take(&mut self, now: Moment, takes: StageTakes) -> StageWants {
        match takes {
            StageTakes::Begin(plan) => *self = Stage::new(now, *plan),
            StageTakes::Time => self.advance(now),
            StageTakes::Report(report) => {
                self.advance(now);
                self.report(now, report);
            }
        }
        StageWants::of(self)
    }

    fn told(self) -> State {
        State::Stage(Box::new(self))
    }

    fn step(&self, takes: StageTakes, gave: StageWants) -> Step {
        Step::Stage { of: self.hold(), takes, gave }
    }
}
