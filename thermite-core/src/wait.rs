//! Why something waits and how the wait ends: a closed list, one sentence for all doors (rule A9).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DevRunId, JobId, LaneId, MemberId, RunId};
use crate::judge_queue::JobWaits;
use crate::limits;
use crate::pool::JudgesDevice;
use crate::stage::StageWait;
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
    /// No runner of its pool takes runs: it does not answer, or says why it cannot (rules E9, E12).
    NoRunner {
        /// The first of them, where there is one.
        member: Option<MemberId>,
        /// What is known of it.
        why: String,
    },
    /// The runner it had does not answer: it goes on once nothing of it can be left there (rule E11).
    RunnerAway {
        /// The runner.
        member: MemberId,
    },
    /// Every device that would serve takes nothing more, by somebody's wish (rule B10).
    Drained {
        /// The first of them.
        member: MemberId,
    },
    /// The cards are being given out anew; its place and its latest moment stay (rule B9).
    NewSplit,
    /// Its confirmation is to be on another card than its screening, and that one is busy (rule B6).
    AnotherCard {
        /// Where its screening was won.
        screened_on: MemberId,
        /// The card it waits for.
        member: MemberId,
        /// The job under way there.
        job: Option<JobId>,
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
    /// As many jobs are built as may wait for a card: the next builds once one of them has one (rule B7).
    BuiltFirst {
        /// How many.
        jobs: u32,
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
    /// What was asked for, or what has come of it, is being made durable (rule D7).
    Durable,
    /// What ran under its hold is being ended and proved gone (rules A7, A10).
    StopProof {
        /// The device.
        member: MemberId,
    },
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
    /// With something that has no latest moment.
    Unbounded {
        /// What that is.
        cause: NoLatest,
    },
}

/// What a wait can end with that has no latest moment (rule A9): a closed list. A development run never waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoLatest {
    /// Its run is paused, until somebody resumes it.
    PausedRun,
    /// No runner answers.
    NoRunner,
    /// No device is in service, until one is.
    NoReadyDevice,
    /// The device takes nothing more, until that is undone.
    Drained,
    /// The disk takes no records, or takes its time.
    DiskFull,
}

impl fmt::Display for NoLatest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoLatest::PausedRun => "the run is paused",
            NoLatest::NoRunner => "no runner answers",
            NoLatest::NoReadyDevice => "no device is ready",
            NoLatest::Drained => "the device is drained",
            NoLatest::DiskFull => "the disk is full or slow",
        })
    }
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
    /// A waiting job's certificate: its own reason or the device's, and a latest moment where there is one.
    ///
    /// It holds while the device stays in service, the records can be written, the run goes on, and the rig lives
    /// (docs/protocol.md, certificates): each of these voids it, and the next one says so.
    pub fn of_job(now: Moment, since: Moment, waits: &JobWaits, device: &JudgesDevice) -> Wait {
        let latest = |free_by: Moment| {
            let rested = waits.rests_until.map_or(now, |until| until + waits.passed_by);
            WaitEnd::Latest {
                at: free_by.max(rested).max(now) + waits.ahead_worst + waits.later_first + limits::STAGE_TURN_MAX,
            }
        };
        let (reason, end) = match device {
            JudgesDevice::Free { member } => (WaitReason::Starting { member: *member }, latest(now)),
            // Whose stage it is counts among those ahead; what is left of a hold is its stop.
            JudgesDevice::Judges { member, job } => {
                let (member, job) = (*member, *job);
                let reason = match waits.screened_on {
                    Some(screened_on) if screened_on != member => WaitReason::AnotherCard { screened_on, member, job },
                    Some(_) | None => WaitReason::JudgeHolds { member, job },
                };
                (reason, latest(now))
            }
            JudgesDevice::Lanes { member, lane, dev_run, free_by } => (
                WaitReason::LaneHolds { member: *member, lane: *lane, dev_run: *dev_run },
                free_by.map_or(WaitEnd::Unbounded { cause: NoLatest::NoReadyDevice }, latest),
            ),
            JudgesDevice::Out { why } => {
                (WaitReason::NoReadyDevice { why: why.clone() }, WaitEnd::Unbounded { cause: NoLatest::NoReadyDevice })
            }
            JudgesDevice::NoRunner { member, why } => (
                WaitReason::NoRunner { member: *member, why: why.clone() },
                WaitEnd::Unbounded { cause: NoLatest::NoRunner },
            ),
            JudgesDevice::Drained { member } => {
                (WaitReason::Drained { member: *member }, WaitEnd::Unbounded { cause: NoLatest::Drained })
            }
            JudgesDevice::NewSplit { until } => (WaitReason::NewSplit, latest(*until)),
            JudgesDevice::NoRoom => (WaitReason::DiskFull, WaitEnd::Unbounded { cause: NoLatest::DiskFull }),
            JudgesDevice::NoRecords => (WaitReason::Records, WaitEnd::Unbounded { cause: NoLatest::DiskFull }),
        };
        let end = match waits.reason {
            Some(WaitReason::RunPaused { .. }) => WaitEnd::Unbounded { cause: NoLatest::PausedRun },
            Some(WaitReason::DiskFull) => WaitEnd::Unbounded { cause: NoLatest::DiskFull },
            _ => end,
        };
        Wait { reason: waits.reason.clone().unwrap_or(reason), place: waits.ahead, since, end }
    }

    /// The certificate of something that is being made durable: `latest` where it is given up then.
    pub fn durable(since: Moment, latest: Option<Moment>) -> Wait {
        let end = latest.map_or(WaitEnd::Unbounded { cause: NoLatest::DiskFull }, |at| WaitEnd::Latest { at });
        Wait { reason: WaitReason::Durable, place: 0, since, end }
    }

    /// The certificate of a development run that has a device and has not started.
    pub fn starting(member: MemberId, since: Moment, latest: Moment) -> Wait {
        Wait { reason: WaitReason::Starting { member }, place: 0, since, end: WaitEnd::Latest { at: latest } }
    }

    /// The certificate of a stop that is to be proved.
    pub fn stop(member: MemberId, since: Moment, until: Moment) -> Wait {
        Wait { reason: WaitReason::StopProof { member }, place: 0, since, end: WaitEnd::Latest { at: until } }
    }

    /// The certificate of a stage that waits for a quiet device.
    pub fn quiet(stage: &StageWait) -> Wait {
        let reason = WaitReason::DeviceBusy { signals: stage.why.clone() };
        Wait { reason, place: 0, since: stage.since, end: WaitEnd::Latest { at: stage.until } }
    }

    /// The same where lanes may go first on a shared runner: those that wait, for so long at most (rule E1).
    #[must_use]
    pub fn after_lanes(self, lanes_first: Span) -> Wait {
        let end = match self.end {
            WaitEnd::Latest { at } => WaitEnd::Latest { at: at + lanes_first },
            WaitEnd::Unbounded { cause } => WaitEnd::Unbounded { cause },
        };
        Wait { end, ..self }
    }

    /// The certificate of a stage whose runner does not answer: by then nothing of it is left there (rule E11).
    pub fn runner_away(member: MemberId, since: Moment, hand_on: Moment) -> Wait {
        let (reason, end) = (WaitReason::RunnerAway { member }, WaitEnd::Latest { at: hand_on });
        Wait { reason, place: 0, since, end }
    }

    /// The one sentence for people and agents.
    pub fn sentence(&self, now: Moment) -> String {
        self.sentence_naming(now, &|member| member.to_string())
    }

    /// The one sentence, with members called as people call them.
    pub fn sentence_naming(&self, now: Moment, name: &dyn Fn(MemberId) -> String) -> String {
        let waited = now.since(self.since);
        let end = match self.end {
            // A queued job's bound adds up every limit of what is ahead; said alone it would read as a forecast.
            WaitEnd::Latest { at } if at.since(now) > Span::hours(1) => {
                format!("at most {} more if every limit ahead is reached", at.since(now))
            }
            WaitEnd::Latest { at } => format!("at most {} more", at.since(now)),
            WaitEnd::Unbounded { cause } => format!("no latest moment: {cause}"),
        };
        let place = match (&self.reason, self.place) {
            // These stand in no line.
            (
                WaitReason::Durable
                | WaitReason::StopProof { .. }
                | WaitReason::Starting { .. }
                | WaitReason::RunnerAway { .. }
                | WaitReason::DeviceBusy { .. },
                0,
            ) => String::new(),
            (_, 0) => " next in line,".to_owned(),
            (_, ahead) => format!(" {ahead} ahead,"),
        };
        format!("waits for {},{place} since {waited}, {end}", self.reason.told(name))
    }
}

impl WaitReason {
    /// The reason in words, with members called as `name` says.
    pub fn told(&self, name: &dyn Fn(MemberId) -> String) -> String {
        match self {
            WaitReason::JudgeHasWork { jobs: 1 } => "the judge, which has 1 job".to_owned(),
            WaitReason::JudgeHasWork { jobs } => format!("the judge, which has {jobs} jobs"),
            WaitReason::PausedRunsJobs { run } => {
                format!("jobs of paused run {run}, which keep their place until it is resumed")
            }
            WaitReason::JudgeHolds { member, job: Some(job) } => {
                format!("the judge, which holds {} for job {job}", name(*member))
            }
            WaitReason::JudgeHolds { member, job: None } => format!("the judge, which holds {}", name(*member)),
            WaitReason::LaneHolds { member, lane, dev_run } => {
                format!("{lane}, which holds {} for development run {dev_run}", name(*member))
            }
            WaitReason::Earlier { ahead: 1 } => "1 asked for earlier".to_owned(),
            WaitReason::Earlier { ahead } => format!("{ahead} asked for earlier"),
            WaitReason::NoReadyDevice { why } => format!("a ready device: {why}"),
            WaitReason::NoRunner { member: Some(member), why } => {
                format!("a runner that takes runs: {}: {why}", name(*member))
            }
            WaitReason::NoRunner { member: None, why } => format!("a runner that takes runs: {why}"),
            WaitReason::RunnerAway { member } => {
                format!("{}, which does not answer, to be over with it: then it starts over", name(*member))
            }
            WaitReason::Drained { member } => format!("{}, which is drained, to be undrained", name(*member)),
            WaitReason::NewSplit => "the cards, which are being given out anew".to_owned(),
            WaitReason::AnotherCard { screened_on, member, job } => {
                let (screened_on, member) = (name(*screened_on), name(*member));
                let job = job.map_or_else(String::new, |job| format!(" for job {job}"));
                format!("another card than {screened_on}, where its screening was won: the judge holds {member}{job}")
            }
            WaitReason::RunPaused { run } => format!("run {run} to be resumed"),
            WaitReason::BuildTurn { job } => format!("the build of job {job}"),
            WaitReason::BuiltFirst { jobs: 1 } => "a card for the 1 job that is built already".to_owned(),
            WaitReason::BuiltFirst { jobs } => format!("a card for one of the {jobs} jobs that are built already"),
            // It rests for no failure: a runner may work on it still (rule E17).
            WaitReason::Retry { failures: 0 } => "the end of the lease under which a runner had it".to_owned(),
            WaitReason::Retry { failures } => {
                format!("its next attempt after infrastructure failure {failures}")
            }
            WaitReason::DiskFull => "room on the data folder's disk".to_owned(),
            WaitReason::Records => "the records, which cannot be written".to_owned(),
            WaitReason::Durable => "the records to have it".to_owned(),
            WaitReason::StopProof { member } => {
                format!("the proof that nothing of it is left on {}", name(*member))
            }
            WaitReason::Starting { member } => format!("its start on {}", name(*member)),
            WaitReason::DeviceBusy { signals } => format!("a quiet device: {signals}"),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&|member| member.to_string()))
    }
}

/// The latest end of a list of turns, each at most `each` long: for certificates of queued jobs.
pub fn after_turns(from: Moment, turns: u32, each: Span) -> Moment {
    from + Span::millis(each.as_millis().saturating_mul(u64::from(turns)))
}
