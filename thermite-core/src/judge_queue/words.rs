//! What the judge queue takes and what it wants done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hold::HoldEnd;
use crate::ids::{Arrival, HoldId, JobId, MemberId, RunId};
use crate::job::{ChangeStep, JobOutcome, StageKind};
use crate::pool::JudgeWork;
use crate::refusal::{GaveUp, InfrastructureFailure};
use crate::run::RunState;
use crate::time::Span;

/// How a stage ended, as far as the queue must know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StageResult {
    /// Both sides are built: the stage asks for a card next (rule B7).
    Built,
    /// The change is faster.
    Win,
    /// It is not faster by the plan.
    NoGain {
        /// Whether it is slower for certain.
        slower: bool,
    },
    /// The blocks ran out.
    Undecided,
    /// The change itself failed.
    ChangeFailed {
        /// Where.
        step: ChangeStep,
        /// The sentence to show.
        why: String,
    },
    /// Nobody's fault; the attempt is dropped whole.
    Infrastructure(InfrastructureFailure),
}

/// A job as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submit {
    /// The job's id, fresh.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// Its place in the order of all askings.
    pub arrival: Arrival,
    /// The champion it is measured against (rule D5: pinned when submitted).
    pub champion: String,
    /// The commit that becomes champion on a win.
    pub candidate: String,
    /// What makes two askings the same, in whichever run: [`crate::settled::key`].
    pub same: String,
    /// The asker's idempotency key.
    pub key: Option<String>,
    /// How long one of its stages can take at most, for certificates.
    pub stage_worst: Span,
}

/// What the records must have before anything of it leaves the rig.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JudgeFact {
    /// The job was accepted.
    Submitted,
    /// A stage's sides are being built on the bench.
    BuildStarted {
        /// For which stage.
        stage: StageKind,
        /// Which attempt, from 1.
        attempt: u32,
        /// Under which hold.
        hold: HoldId,
    },
    /// A stage claimed a device.
    StageStarted {
        /// Which stage.
        stage: StageKind,
        /// Which attempt, from 1.
        attempt: u32,
        /// Under which hold.
        hold: HoldId,
    },
    /// A screening was won.
    ScreeningWon {
        /// Under which hold.
        hold: HoldId,
    },
    /// An attempt ended in an infrastructure failure.
    AttemptFailed {
        /// Which stage.
        stage: StageKind,
        /// Under which hold.
        hold: HoldId,
        /// The cause.
        why: InfrastructureFailure,
    },
    /// The job went back to its place.
    SentBack,
    /// The job is over.
    Ended {
        /// How.
        outcome: JobOutcome,
        /// The hold of the deciding stage, where there is one.
        hold: Option<HoldId>,
    },
    /// The job is over without being measured: it is given the verdict there is (rule D5).
    Reused {
        /// The job that was measured.
        from: JobId,
        /// How it ends.
        outcome: JobOutcome,
    },
    /// The champion changed with it.
    ChampionMoved {
        /// The commit that was champion.
        from: String,
        /// The commit that is.
        to: String,
    },
}

/// What is waited for from the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ticket {
    /// A job's acceptance.
    Submit(JobId),
    /// A stage's start under a hold.
    Start(JobId, HoldId),
    /// What followed a stage, or an end without one.
    Conclude(JobId),
    /// A run's start or change.
    Run(RunId),
}

/// What a judge queue takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JudgeInput {
    /// The records have it.
    Recorded(Ticket),
    /// The records refuse it; only a submission or a run's start is taken back.
    NotRecorded(Ticket),
    /// The pool knows the work up to this version.
    WorkTaken {
        /// The version.
        version: u64,
    },
    /// The pool grants a device.
    Granted {
        /// The hold.
        hold: HoldId,
        /// The stages it may be used for.
        serves: Vec<(JobId, StageKind)>,
    },
    /// The cards are given out anew (rule B9).
    NewSplit {
        /// How many devices judge.
        judging: usize,
        /// Where a job builds.
        builds: Builds,
        /// That the cards that judge are of another model than those that did, where they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_model: Option<OtherModel>,
    },
    /// Other runners judge than before (rules E8, E9); what is measured goes on.
    Runners {
        /// The members that judge.
        judging: BTreeSet<MemberId>,
        /// Runners that do not judge any more.
        gone: BTreeSet<MemberId>,
        /// Whether they are cards.
        cards: bool,
        /// That those that judge are of another model than those that did, where they are: what makes two askings the
        /// same on them, of every job that is not over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        same: Option<BTreeMap<JobId, String>>,
    },
    /// A stage has built both sides: the next may build.
    BuildsDone {
        /// The stage's hold.
        hold: HoldId,
    },
    /// A stage is over.
    StageEnded {
        /// The stage's hold.
        hold: HoldId,
        /// How.
        result: StageResult,
    },
    /// A hold is over.
    HoldEnded {
        /// The hold.
        hold: HoldId,
        /// How.
        how: HoldEnd,
    },
}

/// The cards that judge are of another model than those that did: nothing measured there says anything here (rules B5,
/// D5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OtherModel {
    /// The cards that judge: a grant of another one is of before.
    pub cards: BTreeSet<MemberId>,
    /// What makes two askings the same on them, of every job that is not over: [`crate::settled::key`].
    pub same: BTreeMap<JobId, String>,
}

/// What a judge queue wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JudgeEffect {
    /// Make facts of a job durable, in order, all or none.
    Record {
        /// What is waited for.
        ticket: Ticket,
        /// The job.
        job: JobId,
        /// The facts.
        facts: Vec<JudgeFact>,
    },
    /// Make a run's state durable.
    RecordRun {
        /// The run.
        run: RunId,
        /// Its state.
        state: RunState,
    },
    /// Tell the pool.
    Tell(JudgeWork),
    /// Tell the pool that waiting development runs of a run leave the line.
    StopWaiters {
        /// The run.
        run: RunId,
        /// Why.
        why: GaveUp,
    },
    /// Take a granted hold.
    Claim {
        /// The hold.
        hold: HoldId,
    },
    /// Give a granted hold back unused.
    ReleaseUnused {
        /// The hold.
        hold: HoldId,
    },
    /// Start a stage on the device.
    StartStage {
        /// The hold.
        hold: HoldId,
        /// The job.
        job: JobId,
        /// Which stage.
        stage: StageKind,
        /// Which attempt.
        attempt: u32,
    },
    /// Start a stage's builds on the bench.
    StartBuild {
        /// The hold.
        hold: HoldId,
        /// The job.
        job: JobId,
        /// For which stage.
        stage: StageKind,
        /// Which attempt.
        attempt: u32,
    },
    /// An attempt failed on a card, by what may be the card's fault: that its hold comes to an end says nothing good of it
    /// (rule B10).
    CardDoubted {
        /// The hold.
        hold: HoldId,
    },
    /// A card has failed different jobs: take it out of service (rules B10, D5).
    CardFault {
        /// Which.
        member: MemberId,
        /// The sentence to show.
        why: String,
    },
    /// End the hold of a stage that is over.
    EndHold {
        /// The hold.
        hold: HoldId,
    },
    /// Answer everyone who submitted this job: it is durable and nobody passes it.
    AnswerSubmitted {
        /// The job.
        job: JobId,
        /// How many jobs are before it.
        ahead: u32,
    },
    /// Answer everyone who submitted this job: the records cannot be written.
    AnswerNotRecorded {
        /// The job.
        job: JobId,
    },
    /// Answer everyone who asked for a run's state: it is so.
    AnswerRun {
        /// The run.
        run: RunId,
        /// Its state; none where the records could not be written.
        state: Option<RunState>,
    },
    /// A job is over.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },
}

/// Where jobs build (rule B7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Builds {
    /// Under their hold on the device, taking hold and build turn together.
    #[default]
    UnderHold,
    /// On the bench, before they ask for a card.
    OnBench,
}

/// How a submission was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Submission {
    /// As a new job; the answer follows once it is durable.
    New(Vec<JudgeEffect>),
    /// It was asked before: that job is the answer (rules A13, D5).
    Same {
        /// The job.
        job: JobId,
        /// Whether its acceptance has been answered already.
        answered: bool,
    },
}
