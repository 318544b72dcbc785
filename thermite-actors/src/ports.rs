//! What the actors need from outside, as traits: embedders bring their own, `host` is this machine's, tests script them.
//!
//! Every call is answered: a port whose work may hang sets its own time limit and answers with a fault. Futures need
//! not be `Send`: all policy actors live on one arbiter, and a port hands heavy work to threads of its own.

use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use thermite_core::contract::Target;
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ended::Ended;
use thermite_core::fold::RigHistory;
use thermite_core::ids::{Arrival, DevRunId, HoldId, JobId, LaneId, MemberId, RunId};
use thermite_core::input_log::Line;
use thermite_core::job::{JobSpec, PinnedChange, StageKind};
use thermite_core::log::LogEntry;
use thermite_core::readiness::Reading;
use thermite_core::record::{AttemptAudit, VerdictRecord};
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;
use thermite_core::runner::JournalLine;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk};
use thermite_core::wire::{Answer, Ask, ProcessName};

use crate::rig::No;

/// The rig's clock: milliseconds that go on through suspend (rule A11).
pub trait Clock {
    /// The moment it is.
    fn now(&self) -> Moment;
    /// The wall clock, for people and for what outlives the rig's clock: milliseconds since 1970. Decides nothing.
    fn wall_ms(&self) -> u64;
}

/// Where new names and luck come from.
pub trait Ids {
    /// A fresh UUID, later ones sorting after earlier ones.
    fn uuid(&self) -> uuid::Uuid;
    /// 64 fair bits, never shown to a measured program.
    fn seed(&self) -> u64;
}

/// What a device is, as records and people name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceFacts {
    /// Its kind.
    pub target: Target,
    /// A name that stays: a GPU's UUID, a machine's id.
    pub uuid: String,
    /// Its model, such as the CPU's name.
    pub model: String,
    /// The driver and its version.
    pub driver: String,
    /// How its clocks are set, where that can be told (`governor performance`).
    pub clock_policy: String,
    /// The CPUs the judge uses, as a kernel list such as `0-3`.
    pub cpus: String,
    /// How many cores the load is held against.
    pub cores: u32,
}

/// A device did not answer as it should; each with the sentence to show, which names the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceFault {
    /// It is gone, such as a card that fell off its bus.
    #[error("{0}")]
    Lost(String),
    /// A call to it has not come back.
    #[error("{0}")]
    Hung(String),
    /// Its driver and the library that speaks to it are not of one version.
    #[error("{0}")]
    Mismatch(String),
    /// The rig may not open it, or may no longer.
    #[error("{0}")]
    AccessLost(String),
    /// It is split into parts that nobody measures on: a card in MIG mode.
    #[error("{0}")]
    Mig(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// The processes of a block that is under way, as a driver may ask for them from any thread.
pub trait OwnProcesses: Send + Sync {
    /// Whether that process belongs to the block; none where this machine shows no such process.
    fn owns(&self, pid: u32) -> Option<bool>;
    /// How many live processes the block has.
    fn live(&self) -> usize;
}

/// What a driver is told of a block that begins.
#[derive(Clone)]
pub struct BlockWatch {
    /// The block's processes.
    pub own: std::sync::Arc<dyn OwnProcesses>,
    /// Whether it is the first under its hold, in which the placement of what is measured is checked (rule B3).
    pub is_first: bool,
}

/// Knows one kind of device.
pub trait TargetDriver {
    /// What the device is.
    fn facts(&self) -> DeviceFacts;
    /// Looks at the device once (rules C2, D1, D2); the judge's own share is taken off.
    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>>;
    /// Its place in the driver's own list, as the driver's tools count; none where there is no such list.
    fn index(&self) -> Option<u32> {
        None
    }
    /// The newest reading of a driver that looks all the time; decides nothing.
    fn latest(&self) -> Option<Reading> {
        None
    }
    /// A block begins on it: what its processes use from here on is the judge's own, and what else happens on the
    /// device belongs to the reading after the block (rule D3).
    fn block_begins(&self, watch: BlockWatch) {
        drop(watch);
    }
    /// The block is over, from the call itself on; the answer is the reading after it, with what was seen within it.
    fn block_ends(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        self.read()
    }
    /// Proves that nothing of a hold is left on the device itself, once its process tree is empty (rule A7): none of
    /// its processes is listed there and its memory is back at the resting level. Answers within `within`.
    fn released(&self, within: Span) -> LocalBoxFuture<'static, StopProof> {
        let _ = within;
        Box::pin(std::future::ready(StopProof::Empty))
    }
    /// Answers once the device is at fault; never while it is well. Asked again each time the device goes into service.
    fn at_fault(&self) -> LocalBoxFuture<'static, DeviceFault> {
        Box::pin(std::future::pending())
    }
}

/// A development run that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The run's outermost process as the machine sees it.
    pub pid: u32,
    /// The containment in force, such as `namespaces + cgroup`.
    pub containment: String,
}

/// How a stop went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopProof {
    /// The kernel itself says that nothing is left.
    Empty,
    /// No proof within the limit; the device is out of service with this reason (rules A7, A10).
    NotProved {
        /// Pids and what is known of them.
        why: String,
    },
}

/// What one development run left behind, which lives on until the rig ends (rule C3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// The development run.
    pub dev_run: DevRunId,
    /// Its run.
    pub run: RunId,
    /// Its lane.
    pub lane: LaneId,
    /// When it ended by itself.
    pub since: Moment,
    /// Its live processes, at most [`LEFTOVERS_SHOWN_MAX`](thermite_core::limits::LEFTOVERS_SHOWN_MAX).
    pub processes: Vec<LeftoverProcess>,
}

/// A live process that a development run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverProcess {
    /// Its pid as the machine sees it.
    pub pid: u32,
    /// The name of what it executes.
    pub command: String,
}

/// Carries out work on one device. One per device; calls for a hold that is not the newest are refused by the actor
/// before they come here.
pub trait Executor {
    /// Finds and ends what earlier holds left behind, and proves it gone (start of the rig, and before service).
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof>;
    /// Prepares and starts a development run, its output captured under its id. Answers once it runs (exec).
    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>>;
    /// Answers when the first process of the hold's development run has ended.
    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit>;
    /// Ends everything of the hold: SIGTERM and grace where `gently`, then kill, then proof. Idempotent; valid for a
    /// hold that never started, and while `start` or `step` is under way (those then answer with a fault).
    fn stop(&self, hold: HoldId, gently: bool) -> LocalBoxFuture<'static, StopProof>;
    /// Carries out one step of a judge's stage (all but `Look`, which is the driver's).
    fn step(&self, hold: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport>;
    /// The containment in force for what it starts, such as `namespaces + cgroup`; none where that is not its to tell.
    fn containment(&self) -> Option<String> {
        None
    }
    /// What development runs left behind and keep (rule C3), in the order of their ends; nothing where nothing is kept.
    fn leftovers(&self) -> Vec<Leftovers> {
        Vec::new()
    }
    /// Ends what is kept and proves it gone, at the rig's end.
    fn end_leftovers(&self) -> LocalBoxFuture<'static, StopProof> {
        Box::pin(std::future::ready(StopProof::Empty))
    }
}

/// The stage a step belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct StageRef {
    /// The job with all that is pinned.
    pub job: std::sync::Arc<JobSpec>,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// What a run is started with, as people give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The repository.
    pub repo: PathBuf,
    /// The kit's file, relative to the repository's root and read from the champion's commit.
    pub kit: PathBuf,
    /// The champion's revision.
    pub champion: String,
    /// The lanes' worktrees, lane 1 first.
    pub lanes: Vec<PathBuf>,
}

/// Repositories, worktrees and what a change is.
pub trait Workspaces {
    /// Finds everything a run names (rule A12). Refuses what the asker got wrong; a full disk or a tool that does not
    /// answer is infrastructure.
    fn open(&self, request: RunRequest) -> LocalBoxFuture<'static, Result<RunSpec, No>>;
    /// Pins a change against a champion: content, kit and editable paths; refuses one that touches others.
    fn pin(&self, run: RunSpec, champion: String, change: String) -> LocalBoxFuture<'static, Result<PinnedChange, No>>;
    /// Says whether a command can be started at all: not empty, its program there (rule A12).
    fn check_command(&self, spec: &DevRunSpec) -> Result<(), Refusal>;
    /// Forgets what an ended job's attempts laid out.
    fn forget(&self, job: JobId) -> LocalBoxFuture<'static, ()>;
}

/// What a caller may read of a development run's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSlice {
    /// The bytes from `offset` on.
    pub bytes: Vec<u8>,
    /// Where they begin in all that the run wrote; larger than asked for where a part was cut.
    pub offset: u64,
    /// How many bytes the run wrote in all so far.
    pub total: u64,
    /// How many bytes between head and tail were not kept.
    pub cut: u64,
    /// Whether nothing more will come.
    pub complete: bool,
}

/// Reads the captured output of development runs; used by shells, never by policy.
pub trait Outputs: Send + Sync {
    /// The output from `offset` on, at most `most` bytes; `None` where the run has none.
    fn read(&self, dev_run: DevRunId, offset: u64, most: usize) -> Option<OutputSlice>;
}

/// The records could not take something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordsFault(pub String);

/// What is made durable together: all of it or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Facts, in order.
    pub entries: Vec<LogEntry>,
    /// Closed verdict records that the entries name by their hash.
    pub records: Vec<VerdictRecord>,
    /// Raw figures of void attempts: kept to be seen, never merged, never a verdict.
    pub audits: Vec<AttemptAudit>,
    /// What the entries end, with all that the log says of it: readable after it has left the rig's memory.
    pub ended: Vec<Ended>,
}

/// The state that the log's first `position` entries fold to.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// How many entries.
    pub position: u64,
    /// Their fold.
    pub history: RigHistory,
}

/// What the records tell a rig that starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// The newest checkpoint, where there is one.
    pub checkpoint: Option<Checkpoint>,
    /// All entries after it, in order.
    pub entries: Vec<LogEntry>,
}

impl Past {
    /// The whole log's fold.
    pub fn fold(self) -> Checkpoint {
        let start = self.checkpoint.unwrap_or_else(|| Checkpoint { position: 0, history: RigHistory::default() });
        let Checkpoint { mut position, mut history } = start;
        for entry in self.entries {
            history.apply(entry);
            position += 1;
        }
        Checkpoint { position, history }
    }
}

impl From<Vec<LogEntry>> for Past {
    fn from(entries: Vec<LogEntry>) -> Past {
        Past { checkpoint: None, entries }
    }
}

/// Which of what is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichEnded {
    /// A job.
    Job(JobId),
    /// A development run.
    DevRun(DevRunId),
    /// A run.
    Run(RunId),
    /// The jobs of a run that were asked for after an arrival, in order of asking.
    JobsOf {
        /// The run.
        run: RunId,
        /// The arrival.
        after: Option<Arrival>,
        /// At most this many.
        most: usize,
    },
    /// The development runs of a run after one, in the order of their ids.
    DevRunsOf {
        /// The run.
        run: RunId,
        /// The one.
        after: Option<DevRunId>,
        /// At most this many.
        most: usize,
    },
    /// Runs before one, the newest first.
    Runs {
        /// The one.
        before: Option<RunId>,
        /// At most this many.
        most: usize,
    },
    /// The job that was asked for with this idempotency key (rule A13).
    JobKey(String),
    /// The development run that was.
    DevRunKey(String),
    /// The run that was.
    RunKey(String),
}

impl WhichEnded {
    /// Those of `ended`, in the order asked for: what records that hold all of it in memory answer.
    pub fn among(&self, ended: &[Ended]) -> Vec<Ended> {
        let all = |is_it: &dyn Fn(&Ended) -> bool| ended.iter().filter(|ended| is_it(ended)).cloned().collect();
        let is_key = |ended: &Ended, key: &String| ended.key() == Some(key);
        match self {
            WhichEnded::Job(id) => all(&|ended| matches!(ended, Ended::Job { history } if history.spec.job == *id)),
            WhichEnded::DevRun(id) => {
                all(&|ended| matches!(ended, Ended::DevRun { history } if history.spec.dev_run == *id))
            }
            WhichEnded::Run(id) => all(&|ended| matches!(ended, Ended::Run { run, .. } if run == id)),
            WhichEnded::JobKey(key) => all(&|ended| matches!(ended, Ended::Job { .. }) && is_key(ended, key)),
            WhichEnded::DevRunKey(key) => all(&|ended| matches!(ended, Ended::DevRun { .. }) && is_key(ended, key)),
            WhichEnded::RunKey(key) => all(&|ended| matches!(ended, Ended::Run { .. }) && is_key(ended, key)),
            WhichEnded::DevRunsOf { run, after, most } => {
                let id = |ended: &Ended| match ended {
                    Ended::DevRun { history } if history.spec.run == *run => Some(history.spec.dev_run),
                    Ended::Job { .. } | Ended::DevRun { .. } | Ended::Run { .. } => None,
                };
                let mut dev_runs: Vec<Ended> =
                    all(&|ended| id(ended).is_some_and(|id| after.is_none_or(|after| id > after)));
                dev_runs.sort_by_key(id);
                dev_runs.truncate(*most);
                dev_runs
            }
            WhichEnded::Runs { before, most } => {
                let id = |ended: &Ended| match ended {
                    Ended::Run { run, .. } => Some(*run),
                    Ended::Job { .. } | Ended::DevRun { .. } => None,
                };
                let mut runs: Vec<Ended> =
                    all(&|ended| id(ended).is_some_and(|id| before.is_none_or(|before| id < before)));
                runs.sort_by_key(|ended| std::cmp::Reverse(id(ended)));
                runs.truncate(*most);
                runs
            }
            WhichEnded::JobsOf { run, after, most } => {
                let arrival = |ended: &Ended| match ended {
                    Ended::Job { history } if history.spec.run == *run => Some(history.spec.arrival),
                    Ended::Job { .. } | Ended::DevRun { .. } | Ended::Run { .. } => None,
                };
                let mut jobs: Vec<Ended> =
                    all(&|ended| arrival(ended).is_some_and(|at| after.is_none_or(|after| at > after)));
                jobs.sort_by_key(arrival);
                jobs.truncate(*most);
                jobs
            }
        }
    }
}

/// What the records know of something that is over.
#[derive(Clone, Debug, PartialEq)]
pub enum FromRecords {
    /// This, in the order asked for; nothing where there was no such thing.
    Kept(Vec<Ended>),
    /// Not whether there was such a thing: it would have been pruned.
    Pruned {
        /// When, on the wall clock: milliseconds since 1970.
        wall_ms: u64,
    },
}

impl From<Vec<LogEntry>> for Batch {
    fn from(entries: Vec<LogEntry>) -> Batch {
        Batch { entries, ..Batch::default() }
    }
}

/// The append log that is the rig's truth (rule D7).
pub trait Records {
    /// Appends a batch; answers once it is durable. Batches become durable in the order of the calls.
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>>;
    /// What the log tells, at the start.
    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>>;
    /// Something that is over, by the batches' `ended`: the rig forgets it after a while and asks here.
    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>>;
    /// Keeps a checkpoint, so that a start need not read the log before it. Records without checkpoints do nothing.
    fn checkpoint(&self, checkpoint: Checkpoint) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        drop(checkpoint);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Where the inputs of the policy's machines are logged, so that a decision can be replayed (rule D10). It explains; it
/// is not the truth, and must never hold the policy up.
pub trait InputLog {
    /// The stretch of the log that lines go into now; none where nothing is kept. A machine tells its state before its
    /// first step of each stretch, so that each replays alone.
    fn epoch(&self) -> Option<u64>;
    /// Keeps a line. What cannot be kept is counted, and a new stretch begins once it can.
    fn write(&self, line: Line);
}

/// No input log, for embedders that do not want one: nothing can be replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInputLog;

impl InputLog for NoInputLog {
    fn epoch(&self) -> Option<u64> {
        None
    }

    fn write(&self, _: Line) {}
}

/// An ask over the bus that was not answered as it should be: whether it was taken is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// No answer within the time limit.
    #[error("no answer")]
    NoAnswer,
    /// The core's own link is down.
    #[error("the bus is away")]
    Down,
    /// The other side speaks another version of the wire.
    #[error("it speaks wire version {version}")]
    OtherWire {
        /// Its version.
        version: u32,
    },
    /// What came back cannot be read.
    #[error("the answer cannot be read: {0}")]
    Garbled(String),
}

/// The core's side of the bus to its runners.
pub trait RunnerLink {
    /// Asks a runner's process once, with a time limit of [`RUNNER_ASK_MAX`](thermite_core::limits::RUNNER_ASK_MAX); that
    /// nobody listens there is tried again within it. Nothing is sent while the link is down. What was not answered may
    /// still arrive, much later.
    fn ask(&self, to: &ProcessName, ask: Ask) -> LocalBoxFuture<'static, Result<Answer, LinkFault>>;
    /// Whether the core's own link is up.
    fn is_up(&self) -> bool;
    /// Answers at the process's next hint that there is something to fetch. Hints may be lost.
    fn hinted(&self, to: &ProcessName) -> LocalBoxFuture<'static, ()>;
    /// Brings the commits that the process's store lacks, for a run's work (rule E4). Goes on where it stood; a fault or
    /// a sentence ends this try.
    fn bring(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: Vec<String>,
    ) -> LocalBoxFuture<'static, Result<(), BringFault>>;
}

/// Commits could not be brought to a runner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BringFault {
    /// The way there failed; it goes on where it stood.
    #[error("{0}")]
    Link(#[from] LinkFault),
    /// Not by the way: a disk without room, a store without those commits. Infrastructure.
    #[error("{0}")]
    Other(String),
}

/// Makes a commit of a lane's tree for a runner (rule E5).
pub trait LaneChanges {
    /// The commit of the lane's starting point with its change applied; the lane's index stays byte for byte as it was.
    /// The error is a sentence: infrastructure.
    fn commit_of(&self, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<String, String>>;
}

/// Where the output of a development run on a runner is kept on the core, for [`Outputs`] to read.
pub trait RemoteOutputs {
    /// How many bytes of all that the run wrote were taken so far; the next ask begins there.
    fn taken(&self, dev_run: DevRunId) -> u64;
    /// Takes what a runner gave. What does not follow on what there is was asked for twice, and is left out.
    fn take(&self, dev_run: DevRunId, slice: OutputSlice) -> LocalBoxFuture<'static, Result<(), RecordsFault>>;
    /// Nothing more will come of it: who reads it need not wait.
    fn end(&self, dev_run: DevRunId);
}

/// A runner's memory of its grants, one file a runner (docs/bus.md).
pub trait Journal {
    /// All that is written down, in order; a torn last line is none.
    fn load(&self) -> LocalBoxFuture<'static, Result<Vec<JournalLine>, RecordsFault>>;
    /// Writes lines down; answers once they are durable. Lines become durable in the order of the calls.
    fn append(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>>;
    /// Puts these in place of all that is written down, at once and durably.
    fn replace(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>>;
}

/// The connection that commits go to runners over, apart from the one of small asks.
pub trait BulkLink {
    /// Asks once, with a time limit of its own, which must be longer than
    /// [`BULK_TAKE_ANSWER`](thermite_core::limits::BULK_TAKE_ANSWER). Several may be under way to one process.
    fn ask(&self, to: &ProcessName, ask: BulkAsk) -> LocalBoxFuture<'static, Result<BulkAnswer, LinkFault>>;
}

/// A runner's copies of commits for development runs (rule E5), made from the commits that were brought to its store.
pub trait FreshCopies {
    /// Lays out that commit in a folder of the development run's own, for its lane to work in; the answer is the folder,
    /// or a sentence: infrastructure. Asked again it is laid out anew.
    fn lay_out(
        &self,
        dev_run: DevRunId,
        lane: LaneId,
        commit: String,
    ) -> LocalBoxFuture<'static, Result<PathBuf, String>>;
    /// Throws the copy away; valid for one that there never was. Its run must be proved gone.
    fn discard(&self, dev_run: DevRunId) -> LocalBoxFuture<'static, ()>;
}

/// How the rig is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RigSettings {
    /// How long a development run waits before it gives up (rule A6).
    pub dev_run_wait: Span,
    /// How many lanes a run may have.
    pub lanes_most: u8,
}

/// One device of the rig with the ports that work it.
pub struct MemberPorts {
    /// Its place in the rig's list.
    pub member: MemberId,
    /// Knows it.
    pub driver: std::rc::Rc<dyn TargetDriver>,
    /// Works it.
    pub executor: std::rc::Rc<dyn Executor>,
}
