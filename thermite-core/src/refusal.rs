//! The two kinds of no, never mixed: [`Refusal`] (the asker may not) and [`InfrastructureFailure`] (nobody's fault).

use serde::{Deserialize, Serialize};

use crate::block::ThrownFor;
use crate::contract::Target;
use crate::ids::{DevRunId, JobId, LaneId, MemberId, RunId};
use crate::texts;
use crate::time::Span;

/// The asker may not, with the sentence to show.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "refusal")]
pub enum Refusal {
    /// Rule A4: a lane has one development run at a time.
    #[error("{lane} already has development run {under_way} under way; wait for its end or cancel it")]
    LaneBusy {
        /// The lane.
        lane: LaneId,
        /// The run under way.
        under_way: DevRunId,
    },
    /// The run has no such lane.
    #[error("lane {lane} does not exist: this run has {have}")]
    UnknownLane {
        /// What was asked for.
        lane: u32,
        /// The lanes there are, such as `lanes 1 to 3`.
        have: String,
    },
    /// No such run.
    #[error("run {run} does not exist")]
    UnknownRun {
        /// What was asked for.
        run: RunId,
    },
    /// No such job.
    #[error("job {job} does not exist")]
    UnknownJob {
        /// What was asked for.
        job: JobId,
    },
    /// Nothing has that name.
    #[error("{id} is no run, job, development run or device of this rig")]
    UnknownId {
        /// What was asked for.
        id: String,
    },
    /// No such development run.
    #[error("development run {dev_run} does not exist")]
    UnknownDevRun {
        /// What was asked for.
        dev_run: DevRunId,
    },
    /// One run is worked on at a time.
    #[error("run {under_way} is being worked on; end it first")]
    AnotherRun {
        /// The run under way.
        under_way: RunId,
    },
    /// Rule A3: a paused run takes no new work.
    #[error("run {run} is paused; resume it first")]
    RunPaused {
        /// The run.
        run: RunId,
    },
    /// The run is over.
    #[error("run {run} has ended")]
    RunEnded {
        /// The run.
        run: RunId,
    },
    /// A command without a program.
    #[error("the command is empty: give a program and its arguments, such as `-- cargo test`")]
    EmptyCommand,
    /// A command beyond what the kernel and the records take.
    #[error("the command is too long: {size} {unit}, at most {most}")]
    CommandTooLong {
        /// How long it is.
        size: usize,
        /// Of what.
        unit: String,
        /// How long it may be.
        most: usize,
    },
    /// Rule A12: the program is not there.
    #[error("program {program} was not found; looked in {looked_in}")]
    NoSuchProgram {
        /// The program.
        program: String,
        /// Where it was looked for.
        looked_in: String,
    },
    /// Rule A12: the program is there and cannot be executed.
    #[error("program {program} is not executable: {file} {why}")]
    NotExecutable {
        /// The program.
        program: String,
        /// The file it was found as.
        file: String,
        /// What it is, and the way out.
        why: String,
    },
    /// Rule A12: the lane's worktree was deleted after the run was started.
    #[error(
        "{lane}'s worktree {worktree} is gone; make it again there (`git worktree prune`, then `git worktree add`), or \
         end the run and start one with the worktrees there are"
    )]
    WorktreeGone {
        /// The lane.
        lane: LaneId,
        /// Where its worktree was.
        worktree: String,
    },
    /// The kit cannot be used; the sentence names file, line and what was expected.
    #[error("{why}")]
    Kit {
        /// The sentence.
        why: String,
    },
    /// Rule A12: a kit of another kind.
    #[error("kit {kit} measures on {wants}; this rig has {has}")]
    WrongTarget {
        /// The kit's name.
        kit: String,
        /// What it measures on.
        wants: Target,
        /// What the rig has.
        has: Target,
    },
    /// Rule A12: something asked for cannot be: a limit of 0, a missing path, a bad name.
    #[error("{thing} is {value}; it must be {expected}")]
    Impossible {
        /// What it is about.
        thing: String,
        /// What was given.
        value: String,
        /// What it must be.
        expected: String,
    },
    /// A repository or commit that is not there.
    #[error("{why}")]
    Repository {
        /// The sentence, with the path or revision.
        why: String,
    },
    /// A change outside the editable paths.
    #[error(
        "the change touches {outside}, outside the kit's editable paths ({editable}); leave it as the champion has it"
    )]
    OutsideEditable {
        /// The first few paths outside.
        outside: String,
        /// The kit's globs.
        editable: String,
    },
    /// A change that changes nothing.
    #[error(
        "change {change} does not differ from champion {champion} in any editable path; if it has won already, name the \
         champion it was measured against (--champion)"
    )]
    NothingChanged {
        /// The change.
        change: String,
        /// The champion.
        champion: String,
    },
    /// The settings are others than those that were read.
    #[error("the settings have been changed meanwhile (revision {revision}); read them again")]
    SettingsMoved {
        /// Their revision.
        revision: u64,
    },
    /// Rule B1: a split that cannot be.
    #[error("the split cannot be: {why}")]
    BadSplit {
        /// The reason.
        why: String,
    },
    /// The split is another than the one that was read.
    #[error("the split has been changed meanwhile (revision {revision}); read it again")]
    SplitMoved {
        /// Its revision.
        revision: u64,
    },
    /// Rule E8: a list of runners that cannot be.
    #[error("the runners cannot be: {why}")]
    BadRunners {
        /// The reason.
        why: String,
    },
    /// The list of runners is another than the one that was read.
    #[error("the runners have been set meanwhile (revision {revision}); read them again")]
    RunnersMoved {
        /// Its revision.
        revision: u64,
    },
    /// The rig has no such runner.
    #[error("runner {runner} does not exist: this rig has {have}")]
    UnknownRunner {
        /// What was asked for.
        runner: String,
        /// The runners there are.
        have: String,
    },
    /// Too many jobs wait.
    #[error("{most} jobs wait already; submit again when some are done")]
    QueueFull {
        /// How many may wait.
        most: usize,
    },
    /// The rig has no such device.
    #[error("device {device} does not exist: this rig has {have}")]
    UnknownDevice {
        /// What was asked for.
        device: String,
        /// The devices there are, such as `device 0`.
        have: String,
    },
    /// There is no alarm to clear.
    #[error("{member} has no alarm to clear: it is not quarantined")]
    NotQuarantined {
        /// The device.
        member: MemberId,
    },
    /// There is nothing to measure anew.
    #[error("the noise of {member} has not been measured yet: its next stage does it")]
    NoNoiseYet {
        /// The device.
        member: MemberId,
    },
    /// It was taken away to keep the data folder within its byte budget.
    #[error("{what} was pruned on {} by the byte budget (THERMITE_KEEP)", texts::day(*.wall_ms))]
    Pruned {
        /// What.
        what: String,
        /// When, on the wall clock: milliseconds since 1970.
        wall_ms: u64,
    },
    /// Rule B3: isolation cannot be had here; `thermite doctor` says what is missing.
    #[error("no isolation for a run here: {missing}; `thermite doctor` says how to get it")]
    NoIsolation {
        /// What is missing.
        missing: String,
    },
}

/// Why a development run ended without having been started (rule A6) or was asked to leave the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// The judge held it, or had work.
    #[error("{}", texts::JUDGE_KEPT_DEVICE)]
    JudgeKeptDevice,
    /// Another lane's development run held it.
    #[error("{}", texts::LANE_HELD_DEVICE)]
    LaneHeldDevice,
    /// Neither is true.
    #[error("{}", texts::DEVICE_OUT_OF_SERVICE)]
    OutOfService,
    /// Rule A3: its run was paused.
    #[error("the run was paused; resume it and try again")]
    RunPaused,
    /// Its run ended.
    #[error("the run has ended")]
    RunEnded,
}

/// Nobody's fault, tried again, never counted against the research.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "infrastructure")]
pub enum InfrastructureFailure {
    /// Rules C2, D1: the device did not get quiet.
    #[error("{}", texts::stayed_busy(*waited, signals))]
    StayedBusy {
        /// How long was waited.
        waited: Span,
        /// The signals that were not ok, with their figures.
        signals: String,
    },
    /// Rule D3: too many blocks were thrown away.
    #[error("{}", texts::too_many_thrown(*thrown, *of, causes))]
    TooManyThrown {
        /// Blocks thrown away.
        thrown: u32,
        /// Blocks tried.
        of: u32,
        /// What for, the commonest cause first.
        #[serde(default)]
        causes: Vec<ThrownFor>,
    },
    /// The change steers which blocks are thrown away.
    #[error("blocks thrown away fall on {side} more than chance allows ({on_side} of {thrown})")]
    ThrowsSteered {
        /// The label they fall on.
        side: String,
        /// How many fall on it.
        on_side: u32,
        /// How many were thrown.
        thrown: u32,
    },
    /// Nothing but kills of the change was thrown away, and no cause of them can be seen. In one attempt that may be
    /// chance; see [`crate::block::is_steered`].
    #[error("{}", texts::change_killed(*killed, *of))]
    ChangeKilled {
        /// Blocks in which the change was killed.
        killed: u32,
        /// Blocks tried.
        of: u32,
    },
    /// The device is too noisy for the contract (JUDGING.md, noise per card).
    #[error(
        "{member} is too noisy for this contract: noise {noise_percent} %, limit {limit_percent} %; make the machine \
         quieter and have it measured anew (`thermite noise --again {}`), or plan for a larger effect",
        member.0
    )]
    TooNoisy {
        /// The device.
        member: MemberId,
        /// Its noise as text, in percent.
        noise_percent: String,
        /// Three times the plan effect as text, in percent.
        limit_percent: String,
    },
    /// The champion itself does not build, check or measure: the kit's or the machine's fault, not the change's.
    #[error("the champion failed to {step}: {why}")]
    Champion {
        /// The step.
        step: String,
        /// What it said.
        why: String,
    },
    /// A step could not be carried out.
    #[error("{step} could not be carried out: {why}")]
    Step {
        /// The step.
        step: String,
        /// The cause.
        why: String,
    },
    /// The device is out of service.
    #[error("{member} is out of service: {why}")]
    OutOfService {
        /// The device.
        member: MemberId,
        /// The cause.
        why: String,
    },
    /// The records cannot be written.
    #[error("the records cannot be written: {why}")]
    Records {
        /// The cause.
        why: String,
    },
    /// The disk of the data folder has no room for what was asked.
    #[error("the data folder's disk is full: {why}; make room on it and ask again")]
    DiskFull {
        /// What could not be written.
        why: String,
    },
    /// The rig is ending.
    #[error("the rig is ending")]
    RigEnding,
}
