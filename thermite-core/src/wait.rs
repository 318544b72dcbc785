//! Why something waits and how the wait ends: a closed list, one sentence for all doors (rule A9).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DevRunId, JobId, LaneId, MemberId, RunId};
use crate::time::{Moment, Span};

/// Why a waiter waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum WaitReason {
    /// The judge has jobs queued or running that may use the device (rule A2).
    JudgeHasWork {
        /// How many jobs.
        jobs: u32,
    },
    /// The jobs that hold the line are a paused run's (rule A3).
    PausedRunsJobs {
        /// The paused run.
        run: RunId,
    },
    /// The judge holds the device.
    JudgeHolds {
        /// The device.
        member: MemberId,
        /// The job under way.
        job: Option<JobId>,
    },
    /// A lane's development run holds the device.
    LaneHolds {
        /// The device.
        member: MemberId,
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
    /// Earlier ones wait for the same device.
    Earlier {
        /// How many.
        ahead: u32,
    },
    /// No device is ready: out of service, or its leftovers are being looked for.
    NoReadyDevice {
        /// What is known of the first of them.
        why: String,
    },
    /// The job's run is paused (rule A3).
    RunPaused {
        /// The run.
        run: RunId,
    },
    /// Another job builds (rule B7).
    BuildTurn {
        /// The job that has the turn.
        job: JobId,
    },
    /// The job rests after an infrastructure failure.
    Retry {
        /// How often infrastructure has failed it.
        failures: u32,
    },
    /// The records cannot be written, so nothing is granted.
    Records,
    /// The data folder's disk has too little room for new work, or had too little for the job's last attempt.
    DiskFull,
    /// It has been granted the device and is about to start.
    Starting {
        /// The device.
        member: MemberId,
    },
    /// The device is not quiet enough to time on.
    DeviceBusy {
        /// The signals that are not ok, with their figures.
        signals: String,
    },
}

/// How a wait ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "ends")]
pub enum WaitEnd {
    /// At a moment that no wait passes.
    Latest {
        /// The moment, on the rig's clock.
        at: Moment,
    },
    /// With something that has no latest moment; the reason names it.
    Unbounded,
}

/// A waiter's certificate: the reason, its place, since when, and how the wait ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Wait {
    /// Why it waits.
    #[serde(flatten)]
    pub reason: WaitReason,
    /// How many are served before it; 0 is next.
    pub place: u32,
    /// Since when it waits.
    pub since: Moment,
    /// How it ends.
    #[serde(flatten)]
    pub end: WaitEnd,
}

impl Wait {
    /// The one sentence for people and agents.
    pub fn sentence(&self, now: Moment) -> String {
        let waited = now.since(self.since);
        let end = match self.end {
            // A queued job's bound adds up every limit of what is ahead; said alone it would read as a forecast.
            WaitEnd::Latest { at } if at.since(now) > Span::hours(1) => {
                format!("at most {} more if every limit ahead is reached", at.since(now))
            }
            WaitEnd::Latest { at } => format!("at most {} more", at.since(now)),
            WaitEnd::Unbounded => "no latest moment".to_owned(),
        };
        let place = match self.place {
            0 => "next in line".to_owned(),
            ahead => format!("{ahead} ahead"),
        };
        format!("waits for {}, {place}, since {waited}, {end}", self.reason)
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::JudgeHasWork { jobs: 1 } => f.write_str("the judge, which has 1 job"),
            WaitReason::JudgeHasWork { jobs } => write!(f, "the judge, which has {jobs} jobs"),
            WaitReason::PausedRunsJobs { run } => {
                write!(f, "jobs of paused run {run}, which keep their place until it is resumed")
            }
            WaitReason::JudgeHolds { member, job: Some(job) } => {
                write!(f, "the judge, which holds {member} for job {job}")
            }
            WaitReason::JudgeHolds { member, job: None } => write!(f, "the judge, which holds {member}"),
            WaitReason::LaneHolds { member, lane, dev_run } => {
                write!(f, "{lane}, which holds {member} for development run {dev_run}")
            }
            WaitReason::Earlier { ahead: 1 } => f.write_str("1 asked for earlier"),
            WaitReason::Earlier { ahead } => write!(f, "{ahead} asked for earlier"),
            WaitReason::NoReadyDevice { why } => write!(f, "a ready device: {why}"),
            WaitReason::RunPaused { run } => write!(f, "run {run} to be resumed"),
            WaitReason::BuildTurn { job } => write!(f, "the build of job {job}"),
            WaitReason::Retry { failures } => {
                write!(f, "its next attempt after infrastructure failure {failures}")
            }
            WaitReason::DiskFull => f.write_str("room on the data folder's disk"),
            WaitReason::Records => f.write_str("the records, which cannot be written"),
            WaitReason::Starting { member } => write!(f, "its start on {member}"),
            WaitReason::DeviceBusy { signals } => write!(f, "a quiet device: {signals}"),
        }
    }
}

/// The latest end of a list of turns, each at most `each` long: for certificates of queued jobs.
pub fn after_turns(from: Moment, turns: u32, each: Span) -> Moment {
    from + Span::millis(each.as_millis().saturating_mul(u64::from(turns)))
}
