//! What the pool takes and what it wants done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::device::MemberEvent;
use crate::hold::{HoldEnd, StopCause};
use crate::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use crate::job::StageKind;
use crate::refusal::GaveUp;
use crate::time::{Moment, Span};

use super::Discipline;

/// One stage that the judge wants a device for, or has one for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkEntry {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// Which stage.
    pub stage: StageKind,
    /// The job's place in the order of all askings.
    pub arrival: Arrival,
    /// Whether it may start at once.
    pub startable: bool,
    /// Whether its run is paused.
    pub paused: bool,
    /// Where its screening was won, for a confirmation (rule B6).
    pub screened_on: Option<MemberId>,
    /// The hold it runs under.
    pub running_on: Option<HoldId>,
    /// What it wants; a log of before there was a bench does not say.
    #[serde(default)]
    pub wants: Wants,
    /// Whether it may build under its own hold, as it does on a runner: nobody else builds (rule B7).
    #[serde(default)]
    pub may_build: bool,
    /// Members on which infrastructure failed it: another is better, where there is one. Older logs do not say.
    #[serde(default)]
    pub failed_on: BTreeSet<MemberId>,
}

/// What a stage wants from the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wants {
    /// A device to measure on.
    #[default]
    Device,
    /// The bench, to build on before it asks for a card (rule B7).
    Bench,
}

/// What the judge has to do, told whole each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JudgeWork {
    /// Rises with each telling.
    pub version: u64,
    /// Running stages, then the earliest others, at most [`crate::limits::WORK_LISTED_MAX`].
    pub entries: Vec<WorkEntry>,
    /// How many more jobs there are.
    pub unlisted: u32,
    /// Runs whose development runs may not wait, and why: paused ones, and those that ended (rule A3).
    pub stopped: Vec<(RunId, GaveUp)>,
}

/// What a pool takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolInput {
    /// A lane asks for a device.
    Ask {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// Its run.
        run: RunId,
        /// Its place in the order of all askings.
        arrival: Arrival,
        /// Members it may use, in order of preference.
        acceptable: Vec<MemberId>,
        /// How long it may hold a device by its contract, where that says.
        limit: Option<Span>,
        /// Since when it waits: since it was asked for.
        since: Moment,
        /// The moment no wait of it passes.
        latest: Moment,
    },
    /// A lane leaves the line.
    CancelWait {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// A holder takes its granted hold.
    Claim {
        /// Who.
        by: Holder,
        /// The hold.
        hold: HoldId,
    },
    /// A holder gives its granted hold back unused.
    ReleaseUnused {
        /// Who.
        by: Holder,
        /// The hold.
        hold: HoldId,
    },
    /// A member says something.
    Member {
        /// The member.
        member: MemberId,
        /// What.
        event: MemberEvent,
    },
    /// The judge tells its work.
    JudgeWork(JudgeWork),
    /// A run was paused or ended: its waiting development runs leave the line.
    RunStopped {
        /// The run.
        run: RunId,
        /// Why they leave.
        why: GaveUp,
    },
    /// The cards are given out anew (rule B9).
    SetSplit {
        /// Rises with each asking; the latest wins.
        version: u64,
        /// Whom each member serves from then on.
        disciplines: BTreeMap<MemberId, Discipline>,
    },
    /// A member finishes what it has and takes nothing more, or takes work again (rule B10).
    Drain {
        /// The member.
        member: MemberId,
        /// Whether it takes nothing more.
        drained: bool,
    },
    /// A runner has come to life; it takes work once it has answered (rule E8).
    AddRunner {
        /// The runner.
        member: MemberId,
        /// Whom it serves.
        discipline: Discipline,
        /// Whether it takes nothing more, by somebody's wish.
        drained: bool,
    },
    /// The rig's runners are these (rule E10): the others leave, and those with another pool move. The latest wins.
    SetRunners {
        /// Whom each serves from then on.
        pools: BTreeMap<MemberId, Discipline>,
    },
    /// These runners take no runs although they answer (rule E9); the others do.
    Unfit {
        /// Why, of each.
        runners: BTreeMap<MemberId, String>,
    },
    /// The records can or cannot be written.
    Recording(bool),
    /// The disk has, or lacks, the room for new work.
    Room(bool),
    /// The rig is ending: nothing is granted any more.
    Close,
}

/// What a pool wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolEffect {
    /// Tell a lane its place.
    InLine {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// How many are served before it.
        ahead: u32,
    },
    /// Grant a hold to a lane.
    GrantLane {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// The hold.
        hold: HoldId,
        /// How long it may hold the member from its start.
        limit: Option<Span>,
    },
    /// Grant a hold to the judge.
    GrantJudge {
        /// The hold.
        hold: HoldId,
        /// The stages it may be used for.
        serves: Vec<(JobId, StageKind)>,
    },
    /// Tell a lane that its wait is over without a device.
    GaveUp {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// Why.
        why: GaveUp,
    },
    /// Tell a lane that it has left the line as it wished.
    WaitCancelled {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// Tell a lane that its hold was burnt and it waits again in its old place.
    Requeued {
        /// The lane.
        lane: LaneId,
        /// The hold.
        hold: HoldId,
    },
    /// Tell a holder that its hold is over.
    HoldEnded {
        /// The holder.
        to: Holder,
        /// The hold.
        hold: HoldId,
        /// How.
        how: HoldEnd,
    },
    /// Tell the judge that its work is known.
    WorkTaken {
        /// Up to which version.
        version: u64,
    },
    /// Answer whoever set the split: it is in force up to this version.
    SplitSet {
        /// Which.
        version: u64,
    },
    /// Tell that a runner has left the pool: nothing will be granted on it any more.
    RunnerLeft {
        /// The runner.
        member: MemberId,
    },
    /// Ask a member to burn a number that has not started.
    Void {
        /// The hold.
        hold: HoldId,
    },
    /// Stop a hold that has not started by its latest moment.
    Stop {
        /// The hold.
        hold: HoldId,
        /// Why.
        cause: StopCause,
    },
}
