//! One attempt at one stage, step by step: prepare, build, check, measure noise where none is known, then blocks.
//!
//! The machine says what to do next and takes what came of it; the judge queue holds one for each stage it has
//! claimed a device for. It never starts anything itself. An attempt ends in a verdict with its record, in the change's
//! own failure, or void; only the first has a place for a number (docs/judging.md).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::block::{BlockTimes, Order, Pair, Side, TriedBlock, thrown_too_often};
use crate::coin::{Purpose, coin};
use crate::contract::{Kit, Timer};
use crate::ids::{HoldId, JobId};
use crate::job::{ChangeStep, JobSpec, StageKind};
use crate::limits;
use crate::noise::{ChampionTwice, HarnessAlarm, Noise, NoiseKey};
use crate::readiness::Reading;
use crate::record::{
    Artefacts, AttemptAudit, AttemptFacts, Coins, MeasuredOn, NoiseSource, RawStage, SCHEMA, Screened, VerdictRecord,
};
use crate::refusal::InfrastructureFailure;
use crate::time::{Moment, Span};
use crate::verdict::{Constants, Process, Verdict};

mod words;

pub use words::{StageStep, StepReport};

/// Everything that is fixed before an attempt begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StagePlan {
    /// The job.
    pub spec: JobSpec,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The hold it runs under.
    pub hold: HoldId,
    /// What it measures on.
    pub on: MeasuredOn,
    /// The measure of noise there is for [`StagePlan::noise_key`]. One that is not good is measured again.
    pub noise: Option<Noise>,
    /// The device's lifelong alarm so far: champion-twice blocks that raise it void the attempt.
    pub alarm: HarnessAlarm,
    /// The coins' seed: fresh from the operating system for each attempt.
    #[serde(with = "crate::record::u64_text")]
    pub seed: u64,
    /// The screening, for a confirmation.
    pub screened: Option<Screened>,
    /// How often to look at a device that is not ready.
    pub look_every: Span,
    /// How long to wait for it (rules C2, D1).
    pub ready_wait_max: Span,
    /// The wall clock at the start, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Which part of the attempt is done under this hold.
    #[serde(default)]
    pub part: StagePart,
}

/// Which part of an attempt is done under one hold (rule B7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StagePart {
    /// All of it.
    #[default]
    Whole,
    /// The builds, on the bench.
    Builds,
    /// What follows the builds; what they made.
    Built(Artefacts),
}

impl StagePlan {
    /// What a measure of noise must be for, to be of use here.
    pub fn noise_key(&self) -> NoiseKey {
        self.on.noise_key(&self.spec.pinned.kit_hash)
    }

    fn kit(&self) -> &Kit {
        &self.spec.pinned.kit
    }
}

/// What an attempt wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Directive {
    /// This step, once; its report is awaited. The same until it is reported.
    Do(StageStep),
    /// Nothing until that moment: the device is not ready.
    Wait {
        /// When it will be looked at next.
        until: Moment,
        /// What keeps it from being ready, with figures.
        why: String,
    },
    /// Nothing more: it is over.
    End(Box<StageEnd>),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StageEnd {
    /// With a verdict.
    Decided {
        /// The verdict.
        verdict: Verdict,
        /// Its record, closed.
        record: Box<VerdictRecord>,
        /// The device's noise, where this attempt measured it.
        noise: Option<Noise>,
    },
    /// Both sides are built, and no more was to be done here.
    Built {
        /// What was made.
        artefacts: Artefacts,
    },
    /// The change itself failed.
    ChangeFailed {
        /// Where.
        step: ChangeStep,
        /// The sentence to show, with the end of the output.
        why: String,
        /// The device's noise, where this attempt measured it.
        noise: Option<Noise>,
    },
    /// Void: dropped whole, tried again with new coins.
    Infrastructure {
        /// The cause.
        why: InfrastructureFailure,
        /// The device's noise, where this attempt measured it.
        noise: Option<Noise>,
        /// The raw figures, where any block was tried: kept to be seen, never merged.
        audit: Option<Box<AttemptAudit>>,
    },
}

/// One attempt at one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    plan: StagePlan,
    started: Moment,
    alarm: HarnessAlarm,
    twice: ChampionTwice,
    artefacts: Artefacts,
    /// Blocks of the comparison in which the change was killed without a cause that can be seen.
    killed: u32,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Phase {
    /// INVARIANT: never empty; the first is asked for.
    SettingUp(VecDeque<StageStep>),
    Measuring {
        series: Series,
        next: NextBlock,
    },
    Ended(Box<StageEnd>),
}

/// The blocks under way and what they are for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Series {
    Noise { blocks: Vec<TriedBlock> },
    Comparison { noise: NoiseSource, process: Box<Process>, lower: Option<f64>, blocks: Vec<TriedBlock> },
}

/// The block to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum NextBlock {
    /// The device is being read.
    Looking { busy: Option<Busy> },
    /// The device was not ready and is left alone for a while.
    Waiting { busy: Busy, until: Moment },
    /// The device was ready: the block is under way.
    Timing { order: Order },
}

/// A device that is waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Busy {
    since: Moment,
    why: String,
}

/// What an attempt is at, for the live table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum StagePhase {
    /// The workspaces are being laid out.
    Preparing,
    /// One side is being built.
    Building {
        /// Which.
        side: Side,
    },
    /// One side is being checked.
    Checking {
        /// Which.
        side: Side,
    },
    /// The champion runs under both labels, to measure the device's noise.
    MeasuringNoise,
    /// Champion and change are being compared.
    Comparing,
    /// It is over.
    Ended,
}

/// An attempt as people see it. The coins and their seed are not in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageView {
    /// The job.
    pub job: JobId,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What it is at.
    pub phase: StagePhase,
    /// Blocks of the present phase that count.
    pub accepted: u32,
    /// Blocks of the present phase that were thrown away.
    pub thrown: u32,
    /// The most blocks that the present phase may take; 0 where it takes none.
    pub blocks_most: u32,
    /// The lower bound of the effect so far, as ln(speed-up).
    pub lower: Option<f64>,
    /// The evidence so far that the change is faster: ln W at the null margin.
    pub ln_w: Option<f64>,
    /// The evidence so far against a change as good as the plan: ln F.
    pub ln_f: Option<f64>,
    /// The last accepted block's ratio.
    pub last_d: Option<f64>,
    /// What it waits for, while the device is not ready.
    pub waiting: Option<StageWait>,
}

/// A wait for a device to be ready (rules A9, C2, D1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StageWait {
    /// What keeps it from being ready, with figures.
    pub why: String,
    /// Since when.
    pub since: Moment,
    /// The latest moment: then the attempt is an infrastructure failure.
    pub until: Moment,
}

/// The steps before the first block, in order. What is measured is hashed where it is built, and where the kit names
/// artefacts that need no build.
fn set_up(plan: &StagePlan) -> VecDeque<StageStep> {
    let kit = plan.kit();
    let (builds, checks) = match plan.part {
        StagePart::Whole => (true, true),
        StagePart::Builds => (true, false),
        StagePart::Built(_) => (false, true),
    };
    let mut to_do = VecDeque::new();
    if builds {
        to_do.push_back(StageStep::Prepare);
    }
    for side in [Side::Champion, Side::Change] {
        if builds && (kit.build.is_some() || !kit.artefacts.is_empty()) {
            to_do.push_back(StageStep::Build { side });
        }
        if checks && kit.check.is_some() {
            to_do.push_back(StageStep::Check { side });
        }
    }
    to_do
}

/// The least a timed run may take with that timer, in nanoseconds.
pub const fn least_run_ns(timer: Timer) -> u64 {
    match timer {
        Timer::Wall => limits::LEAST_TIMED_RUN_NS,
        Timer::Reported | Timer::ReportedApart => limits::LEAST_REPORTED_RUN_NS,
    }
}

impl Stage {
    /// An attempt that begins at `now`. A device known to be too noisy for the contract ends it at once.
    pub fn new(now: Moment, plan: StagePlan) -> Stage {
        let to_do = set_up(&plan);
        let artefacts = match &plan.part {
            StagePart::Built(artefacts) => artefacts.clone(),
            StagePart::Whole | StagePart::Builds => Artefacts::default(),
        };
        let plan_effect = plan.kit().contract.plan_effect;
        let known = plan.noise.as_ref().filter(|noise| noise.key == plan.noise_key());
        let twice = ChampionTwice {
            device: plan.on.uuid.clone(),
            plan_effect,
            scale: known.map_or(plan_effect, |noise| noise.scale),
            ratios: Vec::new(),
        };
        let mut stage = Stage {
            alarm: plan.alarm.clone(),
            twice,
            plan,
            started: now,
            artefacts,
            killed: 0,
            phase: Phase::SettingUp(to_do),
        };
        if let Some(noise) = stage.kept_noise()
            && let Err(why) = noise.check(stage.plan.hold.member, stage.plan.kit().contract.plan_effect)
        {
            stage.void(why, None);
        }
        stage.begin_where_set_up();
        stage
    }

    /// The hold it runs under.
    pub fn hold(&self) -> HoldId {
        self.plan.hold
    }

    /// What the attempt wants.
    pub fn directive(&self) -> Directive {
        match &self.phase {
            Phase::SettingUp(to_do) => Directive::Do(to_do.front().expect("set-up ends with its last step").clone()),
            Phase::Measuring { next: NextBlock::Looking { .. }, .. } => Directive::Do(StageStep::Look),
            Phase::Measuring { next: NextBlock::Waiting { busy, until }, .. } => {
                Directive::Wait { until: *until, why: busy.why.clone() }
            }
            Phase::Measuring { series, next: NextBlock::Timing { order } } => {
                Directive::Do(StageStep::Block { pair: series.pair(), order: *order })
            }
            Phase::Ended(end) => Directive::End(end.clone()),
        }
    }

    /// When the attempt must be called again, and why. A step under way has the time limit of whoever carries it out,
    /// and is reported as failed or not carried out when that is over.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        match &self.phase {
            Phase::Measuring { next: NextBlock::Waiting { until, .. }, .. } => {
                Some((*until, "the next look at a device that is not ready"))
            }
            Phase::SettingUp(_) | Phase::Measuring { .. } | Phase::Ended(_) => None,
        }
    }

    /// Lets deadlines that have come take effect.
    pub fn advance(&mut self, now: Moment) {
        if let Phase::Measuring { next, .. } = &mut self.phase
            && let NextBlock::Waiting { busy, until } = next
            && *until <= now
        {
            *next = NextBlock::Looking { busy: Some(busy.clone()) };
        }
    }

    /// Takes what came of the step asked for. A report of anything else voids the attempt: it can no longer be told
    /// what was measured. An attempt that is over stays as it ended.
    pub fn report(&mut self, now: Moment, report: StepReport) {
        self.advance(now);
        let asked = match self.directive() {
            Directive::Do(asked) => asked,
            Directive::Wait { .. } => return self.unexpected("nothing was asked for".to_owned(), &report),
            Directive::End(_) => return,
        };
        match (asked, report) {
            (asked, StepReport::NotCarriedOut { why }) => {
                self.void(InfrastructureFailure::Step { step: asked.to_string(), why }, None);
            }
            (_, StepReport::NoRoom { why }) => self.void(InfrastructureFailure::DiskFull { why }, None),
            (StageStep::Prepare, StepReport::Prepared) => self.set_up_on(),
            (StageStep::Build { side }, StepReport::Built { side: built, artefact }) if built == side => {
                match side {
                    Side::Champion => self.artefacts.champion = Some(artefact),
                    Side::Change => self.artefacts.change = Some(artefact),
                }
                self.set_up_on();
            }
            (StageStep::Check { side }, StepReport::Checked { side: checked }) if checked == side => self.set_up_on(),
            (StageStep::Build { side }, StepReport::Failed { side: failed, why }) if failed == side => {
                self.failed(side, ChangeStep::Build, why);
            }
            (StageStep::Check { side }, StepReport::Failed { side: failed, why }) if failed == side => {
                self.failed(side, ChangeStep::Check, why);
            }
            (StageStep::Look, StepReport::Looked { reading }) => self.looked(now, &reading),
            (StageStep::Block { pair, .. }, StepReport::Failed { side, why }) => {
                self.failed(pair.program(side), ChangeStep::Measure, why);
            }
            (StageStep::Block { pair, order }, StepReport::Timed { times }) => self.timed(now, pair, order, times),
            (StageStep::Block { order, .. }, StepReport::Lost { side, why }) => {
                self.tried(now, TriedBlock::Lost { order, at: now, running: side, why });
            }
            (StageStep::Block { order, .. }, StepReport::Killed { side, why }) => {
                self.killed += u32::from(side == Side::Change);
                self.tried(now, TriedBlock::Lost { order, at: now, running: side, why });
            }
            (
                asked @ (StageStep::Build { .. } | StageStep::Check { .. }),
                StepReport::Lost { why, .. } | StepReport::Killed { why, .. },
            ) => self.void(InfrastructureFailure::Step { step: asked.to_string(), why }, None),
            (asked, report) => self.unexpected(format!("{asked} was asked for"), &report),
        }
    }

    /// The champion-twice blocks that counted so far, however the attempt ends; none where none did.
    pub fn champion_twice(&self) -> Option<&ChampionTwice> {
        (!self.twice.ratios.is_empty()).then_some(&self.twice)
    }

    /// The attempt as people see it.
    pub fn view(&self) -> StageView {
        let waiting = match &self.phase {
            Phase::Measuring {
                next: NextBlock::Waiting { busy, .. } | NextBlock::Looking { busy: Some(busy) },
                ..
            } => Some(StageWait {
                why: busy.why.clone(),
                since: busy.since,
                // The last look falls on the latest moment of the wait itself, and takes its time.
                until: busy.since + self.plan.ready_wait_max + limits::CPU_READING_MAX,
            }),
            Phase::SettingUp(_) | Phase::Measuring { .. } | Phase::Ended(_) => None,
        };
        let (blocks, blocks_most): (&[TriedBlock], u32) = match &self.phase {
            Phase::Measuring { series: Series::Noise { blocks }, .. } => (blocks, limits::NOISE_BLOCKS),
            Phase::Measuring { series: Series::Comparison { blocks, process, .. }, .. } => {
                (blocks, process.constants().blocks_most)
            }
            Phase::SettingUp(_) => (&[], 0),
            Phase::Ended(end) => match &**end {
                StageEnd::Decided { record, .. } => (&record.blocks, record.constants.blocks_most),
                StageEnd::Built { .. } | StageEnd::ChangeFailed { .. } | StageEnd::Infrastructure { .. } => (&[], 0),
            },
        };
        let accepted = blocks.iter().filter(|block| matches!(block, TriedBlock::Accepted { .. })).count();
        let (lower, after) = match &self.phase {
            Phase::Measuring { series: Series::Comparison { process, lower, .. }, .. } => {
                let after = process.ratios().last().map(|d| (process.ln_w(), process.ln_f(), *d));
                (*lower, after)
            }
            Phase::Ended(end) => match &**end {
                StageEnd::Decided { record, .. } => {
                    (record.bounds.lower, record.after.last().map(|after| (after.ln_w, after.ln_f, after.d)))
                }
                StageEnd::Built { .. } | StageEnd::ChangeFailed { .. } | StageEnd::Infrastructure { .. } => {
                    (None, None)
                }
            },
            Phase::SettingUp(_) | Phase::Measuring { .. } => (None, None),
        };
        let count = |blocks: usize| u32::try_from(blocks).expect("a contract allows at most 10000 blocks");
        StageView {
            job: self.plan.spec.job,
            stage: self.plan.stage,
            attempt: self.plan.attempt,
            phase: self.phase.shown(),
            accepted: count(accepted),
            thrown: count(blocks.len() - accepted),
            blocks_most,
            lower,
            ln_w: after.map(|(ln_w, ..)| ln_w),
            ln_f: after.map(|(_, ln_f, _)| ln_f),
            last_d: after.map(|(.., d)| d),
            waiting,
        }
    }

    /// What no attempt can be, where this one is it: one that is read from a file may be anything.
    pub(crate) fn unsound(&self) -> Option<&'static str> {
        if self.plan.kit().contract.check().is_err() {
            return Some("its contract cannot hold");
        }
        let Phase::Measuring { series, .. } = &self.phase else {
            let nothing_to_do = matches!(&self.phase, Phase::SettingUp(to_do) if to_do.is_empty());
            return nothing_to_do.then_some("it has nothing to set up and does not measure");
        };
        let ratios: Vec<f64> = series.blocks().iter().filter_map(TriedBlock::ratio).collect();
        if !ratios.iter().all(|ratio| ratio.is_finite()) {
            return Some("a block of it took no time");
        }
        let Series::Comparison { noise, process, .. } = series else { return None };
        let constants = Constants::new(self.plan.stage, &self.plan.kit().contract, noise.noise().scale);
        if *process.constants() != constants || process.ratios() != ratios {
            return Some("its evidence is not its blocks'");
        }
        process.decision().verdict().map(|_| "it is decided and goes on")
    }

    /// The measure of noise there was, where it is of use.
    fn kept_noise(&self) -> Option<&Noise> {
        self.plan.noise.as_ref().filter(|noise| noise.is_good(&self.plan.noise_key(), self.plan.wall_ms))
    }

    fn set_up_on(&mut self) {
        let Phase::SettingUp(to_do) = &mut self.phase else { return };
        to_do.pop_front();
        self.begin_where_set_up();
    }

    /// Goes on to what follows the set-up, once nothing of it is left.
    fn begin_where_set_up(&mut self) {
        let is_set_up = matches!(&self.phase, Phase::SettingUp(to_do) if to_do.is_empty());
        if is_set_up && self.plan.part == StagePart::Builds {
            self.phase = Phase::Ended(Box::new(StageEnd::Built { artefacts: self.artefacts.clone() }));
        } else if is_set_up {
            let series = match self.kept_noise() {
                Some(noise) => self.comparison(NoiseSource::Kept { noise: noise.clone() }),
                None => Series::Noise { blocks: Vec::new() },
            };
            self.phase = Phase::Measuring { series, next: NextBlock::Looking { busy: None } };
        }
    }

    fn comparison(&self, noise: NoiseSource) -> Series {
        let constants = Constants::new(self.plan.stage, &self.plan.kit().contract, noise.noise().scale);
        Series::Comparison { noise, process: Box::new(Process::new(constants)), lower: None, blocks: Vec::new() }
    }

    fn looked(&mut self, now: Moment, reading: &Reading) {
        let Phase::Measuring { series, next } = &mut self.phase else { return };
        let NextBlock::Looking { busy } = next else { return };
        let Some(why) = reading.not_ready() else {
            *next = NextBlock::Timing { order: series.coin(self.plan.seed, self.plan.stage) };
            return;
        };
        let since = busy.as_ref().map_or(now, |busy| busy.since);
        let waited = now.since(since);
        if waited >= self.plan.ready_wait_max {
            return self.void(InfrastructureFailure::StayedBusy { waited, signals: why }, None);
        }
        // The last look falls on the latest moment itself.
        let until = (now + self.plan.look_every).min(since + self.plan.ready_wait_max);
        *next = NextBlock::Waiting { busy: Busy { since, why }, until };
    }

    fn timed(&mut self, now: Moment, pair: Pair, order: Order, times: BlockTimes) {
        // Whether the block counts is settled from its readings before anyone looks at its times.
        let block = TriedBlock::judged(order, times);
        if let TriedBlock::Accepted { times, .. } = &block {
            let least = least_run_ns(self.plan.kit().timer);
            let runs = order.sides().into_iter().zip(times.ns);
            let short = runs.filter(|(_, ns)| *ns < least).map(|(side, ns)| (pair.program(side), ns)).min();
            if let Some((side, ns)) = short {
                let why = format!("a run of {ns} ns is too short to be timed; make it take at least {least} ns");
                return self.failed(side, ChangeStep::Measure, why);
            }
        }
        self.tried(now, block);
    }

    /// Takes a block that was tried, and goes on to the next or to an end.
    fn tried(&mut self, now: Moment, block: TriedBlock) {
        let Phase::Measuring { series, next } = &mut self.phase else { return };
        *next = NextBlock::Looking { busy: None };
        let ratio = block.ratio();
        series.blocks_mut().push(block);
        let Some(ratio) = ratio else {
            if let Some(why) = thrown_too_often(series.pair(), series.blocks()) {
                let why = self.or_change_killed(why);
                self.void(why, None);
            }
            return;
        };
        match series {
            Series::Noise { blocks } => {
                self.twice.ratios.push(ratio);
                if let Some(raised) = self.alarm.add(ratio, &self.twice.constants()) {
                    let member = self.plan.hold.member;
                    return self.void(InfrastructureFailure::OutOfService { member, why: raised.to_string() }, None);
                }
                let ratios: Vec<f64> = blocks.iter().filter_map(TriedBlock::ratio).collect();
                let wall_ms = self.plan.wall_ms + now.since(self.started).as_millis();
                if let Some(noise) = Noise::measured(self.plan.noise_key(), &ratios, wall_ms) {
                    self.noise_measured(noise);
                }
            }
            Series::Comparison { process, lower, .. } => {
                let decided = process.add(ratio).verdict();
                *lower = process.lower_after(*lower);
                if decided.is_some() {
                    self.decided();
                }
            }
        }
    }

    /// Says it as such where nothing but kills of the change without a visible cause was thrown away.
    fn or_change_killed(&self, why: InfrastructureFailure) -> InfrastructureFailure {
        match why {
            InfrastructureFailure::TooManyThrown { thrown, of, .. } if thrown == self.killed => {
                InfrastructureFailure::ChangeKilled { killed: thrown, of }
            }
            why => why,
        }
    }

    fn noise_measured(&mut self, noise: Noise) {
        if let Err(why) = noise.check(self.plan.hold.member, self.plan.kit().contract.plan_effect) {
            return self.void(why, Some(noise));
        }
        let blocks = match &mut self.phase {
            Phase::Measuring { series: Series::Noise { blocks }, .. } => std::mem::take(blocks),
            Phase::SettingUp(_) | Phase::Measuring { .. } | Phase::Ended(_) => return,
        };
        let series = self.comparison(NoiseSource::Measured { noise, blocks });
        self.phase = Phase::Measuring { series, next: NextBlock::Looking { busy: None } };
    }

    fn decided(&mut self) {
        let Phase::Measuring { series: Series::Comparison { noise, blocks, .. }, .. } = &self.phase else { return };
        let newly = noise.newly_measured().cloned();
        let raw = RawStage { facts: self.facts(), noise: noise.clone(), seed: self.plan.seed, blocks: blocks.clone() };
        let record = VerdictRecord::close(raw).expect("the process was decided by these very blocks");
        let end = StageEnd::Decided { verdict: record.verdict, record: Box::new(record), noise: newly };
        self.phase = Phase::Ended(Box::new(end));
    }

    /// A side failed by itself: the champion's failure is nobody's fault, the change's is its own.
    fn failed(&mut self, side: Side, step: ChangeStep, why: String) {
        match side {
            Side::Champion => {
                let step = match step {
                    ChangeStep::Build => "build",
                    ChangeStep::Check => "check",
                    ChangeStep::Measure => "measure",
                };
                self.void(InfrastructureFailure::Champion { step: step.to_owned(), why }, None);
            }
            Side::Change => {
                let noise = self.newly_measured();
                self.phase = Phase::Ended(Box::new(StageEnd::ChangeFailed { step, why, noise }));
            }
        }
    }

    fn unexpected(&mut self, asked: String, report: &StepReport) {
        let why = format!("the report was `{report}`");
        self.void(InfrastructureFailure::Step { step: asked, why }, None);
    }

    /// Ends the attempt without a number; `noise` is what it found the device's noise to be, if that voids it.
    fn void(&mut self, why: InfrastructureFailure, noise: Option<Noise>) {
        let noise = noise.or_else(|| self.newly_measured());
        let (noise_blocks, blocks) = match &self.phase {
            Phase::Measuring { series: Series::Noise { blocks }, .. } => (blocks.clone(), Vec::new()),
            Phase::Measuring { series: Series::Comparison { noise, blocks, .. }, .. } => {
                let noise_blocks = match noise {
                    NoiseSource::Kept { .. } => Vec::new(),
                    NoiseSource::Measured { blocks, .. } => blocks.clone(),
                };
                (noise_blocks, blocks.clone())
            }
            Phase::SettingUp(_) | Phase::Ended(_) => (Vec::new(), Vec::new()),
        };
        let audit = (!noise_blocks.is_empty() || !blocks.is_empty()).then(|| {
            Box::new(AttemptAudit {
                schema: SCHEMA,
                void: why.clone(),
                facts: self.facts(),
                coins: Coins::of(self.plan.seed),
                noise_blocks,
                blocks,
            })
        });
        self.phase = Phase::Ended(Box::new(StageEnd::Infrastructure { why, noise, audit }));
    }

    fn newly_measured(&self) -> Option<Noise> {
        match &self.phase {
            Phase::Measuring { series: Series::Comparison { noise, .. }, .. } => noise.newly_measured().cloned(),
            Phase::SettingUp(_) | Phase::Measuring { .. } | Phase::Ended(_) => None,
        }
    }

    fn facts(&self) -> AttemptFacts {
        let plan = &self.plan;
        AttemptFacts::new(
            &plan.spec,
            plan.stage,
            plan.attempt,
            plan.hold,
            plan.wall_ms,
            self.artefacts.clone(),
            plan.on.clone(),
            plan.screened.clone(),
        )
    }
}

impl Phase {
    fn shown(&self) -> StagePhase {
        match self {
            Phase::SettingUp(to_do) => match to_do.front() {
                Some(StageStep::Build { side }) => StagePhase::Building { side: *side },
                Some(StageStep::Check { side }) => StagePhase::Checking { side: *side },
                Some(StageStep::Prepare | StageStep::Look | StageStep::Block { .. }) | None => StagePhase::Preparing,
            },
            Phase::Measuring { series: Series::Noise { .. }, .. } => StagePhase::MeasuringNoise,
            Phase::Measuring { series: Series::Comparison { .. }, .. } => StagePhase::Comparing,
            Phase::Ended(_) => StagePhase::Ended,
        }
    }
}

impl Series {
    fn pair(&self) -> Pair {
        match self {
            Series::Noise { .. } => Pair::ChampionTwice,
            Series::Comparison { .. } => Pair::ChampionAndChange,
        }
    }

    fn blocks(&self) -> &[TriedBlock] {
        match self {
            Series::Noise { blocks } | Series::Comparison { blocks, .. } => blocks,
        }
    }

    fn blocks_mut(&mut self) -> &mut Vec<TriedBlock> {
        match self {
            Series::Noise { blocks } | Series::Comparison { blocks, .. } => blocks,
        }
    }

    /// The coin of the next block; thrown blocks have spent theirs.
    fn coin(&self, seed: u64, stage: StageKind) -> Order {
        let purpose = match self {
            Series::Noise { .. } => Purpose::Noise,
            Series::Comparison { .. } => Purpose::Stage(stage),
        };
        let block = u32::try_from(self.blocks().len()).expect("a contract allows at most 10000 blocks");
        coin(seed, purpose, block)
    }
}
