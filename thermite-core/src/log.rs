//! The append log: the rig's truth. State is its fold (rule D7).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blame::Blamed;
use crate::dev_run::{DevRunEnd, DevRunSpec};
use crate::ids::{Arrival, DevRunId, HoldId, JobId, MemberId, RunId};
use crate::job::{JobOutcome, JobSpec, StageKind};
use crate::noise::{ChampionTwice, Noise, NoiseDoubt, NoiseKey};
use crate::run::{RunSpec, RunState};
use crate::runners::{RunnerDevice, RunnerSet};
use crate::settings::LiveSettings;
use crate::split::SplitAsk;

/// One fact of the rig's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "entry")]
pub enum LogEntry {
    /// The rig started over the same data folder.
    RigStarted,
    /// The data folder was restored from a backup: what was given out since the backup is not known.
    RigRestored {
        /// How far arrivals and hold numbers jump ahead, so that none is given out twice (rule A1).
        numbers_skipped: u64,
    },
    /// A run was started.
    RunStarted {
        /// The run.
        run: RunId,
        /// What it is made of.
        spec: Box<RunSpec>,
        /// The asker's idempotency key (rule A13).
        key: Option<String>,
    },
    /// A run was paused, resumed or ended.
    RunChanged {
        /// The run.
        run: RunId,
        /// What it is from here on.
        state: RunState,
    },
    /// A job was accepted.
    JobSubmitted {
        /// The job.
        spec: Arc<JobSpec>,
        /// The asker's idempotency key (rule A13).
        key: Option<String>,
    },
    /// A stage has claimed a device; its hold's number is used.
    StageStarted {
        /// The job.
        job: JobId,
        /// Which stage.
        stage: StageKind,
        /// Which attempt, from 1.
        attempt: u32,
        /// Under which hold.
        hold: HoldId,
    },
    /// A screening was won; the confirmation is still to come.
    ScreeningWon {
        /// The job.
        job: JobId,
        /// Under which hold.
        hold: HoldId,
        /// SHA-256 of the screening's record.
        record: String,
        /// What was measured: [`crate::settled::key`], with the kind of card. Older logs do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// An attempt ended in an infrastructure failure and is dropped whole.
    AttemptFailed {
        /// The job.
        job: JobId,
        /// Which stage.
        stage: StageKind,
        /// Under which hold.
        hold: HoldId,
        /// The cause.
        why: crate::refusal::InfrastructureFailure,
    },
    /// A job went back to its place in the queue (restart, split, away); no failure.
    SentBack {
        /// The job.
        job: JobId,
    },
    /// A job is over.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
        /// SHA-256 of the deciding stage's record, where there is one.
        record: Option<String>,
    },
    /// A confirmed win became the champion.
    ChampionMoved {
        /// The run.
        run: RunId,
        /// The commit that was champion.
        from: String,
        /// The commit that is.
        to: String,
        /// The job that won.
        by: JobId,
    },
    /// A job's outcome is the verdict that the same asking is given from here on (rule D5).
    VerdictSettled {
        /// The job, over by now.
        job: JobId,
        /// What makes askings the same: [`crate::settled::key`].
        key: String,
    },
    /// A job is about to end with the verdict of another, without being measured.
    VerdictReused {
        /// The job.
        job: JobId,
        /// The job that was measured.
        from: JobId,
        /// Where that one's screening was won, with the hash of the record.
        screened: Option<(MemberId, String)>,
    },
    /// A device's noise was measured.
    NoiseMeasured {
        /// What was found, with its key.
        noise: Noise,
    },
    /// A measure of noise is not to be used any more: the next stage takes it anew.
    NoiseDoubted {
        /// Which.
        key: NoiseKey,
        /// Why.
        why: NoiseDoubt,
    },
    /// An attempt measured the champion against itself; the device's lifelong alarm takes it.
    ChampionTwice {
        /// The blocks.
        blocks: ChampionTwice,
    },
    /// Blocks of an attempt were thrown away.
    BlocksDisturbed {
        /// For what, and beside whom.
        blamed: Vec<Blamed>,
    },
    /// A device's alarm was raised: it is out of service until somebody has looked.
    DeviceQuarantined {
        /// The device's UUID.
        device: String,
        /// The sentence to show.
        why: String,
    },
    /// Somebody has looked: the device comes back, and its alarm begins anew.
    QuarantineCleared {
        /// The device's UUID.
        device: String,
    },
    /// A job's sides are being built, apart from any device (rule B7); the hold's number is used.
    BuildStarted {
        /// The job.
        job: JobId,
        /// For which stage.
        stage: StageKind,
        /// Which attempt, from 1.
        attempt: u32,
        /// Under which hold.
        hold: HoldId,
    },
    /// The split of the cards was set; the newest stands (rule B9).
    SplitSet {
        /// What was asked for.
        ask: SplitAsk,
    },
    /// A device finishes what it has and takes nothing more (rule B10).
    DeviceDrained {
        /// The device's UUID.
        device: String,
    },
    /// That was undone.
    DeviceUndrained {
        /// The device's UUID.
        device: String,
    },
    /// The rig's runners were set, as a whole list; the newest stands (rule E8).
    RunnersSet {
        /// All of them, each with its pool and its number.
        runners: Vec<RunnerSet>,
    },
    /// A runner told what its device is, for the first time or anew (rule E9).
    RunnerMet {
        /// The runner's number.
        member: MemberId,
        /// What its device is.
        device: RunnerDevice,
    },
    /// What may be set while the rig runs was set; the newest stands.
    SettingsChanged {
        /// What it is from here on.
        settings: LiveSettings,
    },
    /// A development run was asked for and has a place in the line.
    DevRunAsked {
        /// What it is.
        spec: Box<DevRunSpec>,
        /// Its place in the order of all askings.
        arrival: Arrival,
        /// The asker's idempotency key (rule A13).
        key: Option<String>,
    },
    /// A development run got a device; its hold's number is used.
    DevRunStarted {
        /// The development run.
        dev_run: DevRunId,
        /// Under which hold.
        hold: HoldId,
    },
    /// A development run is over.
    DevRunEnded {
        /// The development run.
        dev_run: DevRunId,
        /// How.
        end: DevRunEnd,
    },
}

/// A check sum of an entry as it is written: damage on the disk must not read as another fact.
///
/// FNV-1a, 64 bits: against luck, not against malice.
pub fn check_sum(written: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    written.iter().fold(OFFSET, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME))
}
