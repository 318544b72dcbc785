//! The verdict record: everything needed to recompute a verdict bit for bit (rule D9; docs/judging.md, the record).
//!
//! Raw figures ([`TriedBlock`]) and what follows from them ([`AfterBlock`], [`Bounds`]) are kept apart, so that the
//! second can be made again from the first. A void attempt has an [`AttemptAudit`] instead: raw figures and a cause,
//! with no place for a verdict, and no way from it to a record.

mod verify;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::block::TriedBlock;
use crate::coin;
use crate::contract::{Contract, Timer};
use crate::ids::{HoldId, JobId, RunId};
use crate::job::{JobSpec, StageKind};
use crate::noise::{Noise, NoiseKey};
use crate::refusal::InfrastructureFailure;
use crate::texts;
use crate::verdict::{Constants, METHOD, Process, Verdict};

pub use verify::{Verified, VerifyFault, verify, verify_json};

/// The version of the record's layout that is written.
///
/// Every earlier one is still verified ([`SCHEMA_OLDEST`]). 2: what is said of a reported time is exact
/// ([`timer_note`]), and a timer may be apart from the candidate.
pub const SCHEMA: u32 = 2;
/// The oldest layout that is verified.
pub const SCHEMA_OLDEST: u32 = 1;

/// What a comparison was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredOn {
    /// The device's name that stays: a GPU's UUID, a machine's id.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// The driver and its version.
    pub driver: String,
    /// How its clocks are set.
    pub clock_policy: String,
    /// The machine that did the work.
    pub runner: String,
    /// The CPUs the judge used, as a kernel list such as `0-3`.
    pub cpus: String,
}

impl MeasuredOn {
    /// What a measure of noise on this device with that kit is good for.
    pub fn noise_key(&self, kit_hash: &str) -> NoiseKey {
        NoiseKey {
            device: self.uuid.clone(),
            kit: kit_hash.to_owned(),
            driver: self.driver.clone(),
            clock_policy: self.clock_policy.clone(),
        }
    }
}

/// The screening that a confirmation follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Screened {
    /// SHA-256 of the screening's record.
    pub record: String,
    /// Whether no other device was in service, so that both were measured on the same one (rule B6).
    pub same_device: bool,
}

/// What was built for each side; none where the kit builds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Artefacts {
    /// SHA-256 over the champion's artefacts.
    pub champion: Option<String>,
    /// SHA-256 over the candidate's artefacts.
    pub change: Option<String>,
}

/// What was known of an attempt before its first block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttemptFacts {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: RunId,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The device's place in the rig's list.
    pub member: u16,
    /// The number of the hold on it.
    #[serde(with = "u64_text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+$"))]
    pub hold: u64,
    /// When the attempt began: wall clock, milliseconds since 1970.
    pub wall_ms: u64,
    /// The champion's commit.
    pub champion: String,
    /// The commit the change was asked for as.
    pub change: String,
    /// The commit that was measured: the champion plus the change's editable paths.
    pub candidate: String,
    /// Its tree.
    pub candidate_tree: String,
    /// What was built.
    pub artefacts: Artefacts,
    /// The kit's name.
    pub kit: String,
    /// SHA-256 of the kit's file.
    pub kit_hash: String,
    /// The limits in force.
    pub contract: Contract,
    /// Who took the time.
    pub timer: Timer,
    /// What that means, as a sentence.
    pub timer_note: String,
    /// What it was measured on.
    pub on: MeasuredOn,
    /// The screening, for a confirmation.
    pub screened: Option<Screened>,
}

impl AttemptFacts {
    /// The facts of one attempt at `spec`'s job.
    #[expect(clippy::too_many_arguments, reason = "each is a fact of its own, named at the only call")]
    pub(crate) fn new(
        spec: &JobSpec,
        stage: StageKind,
        attempt: u32,
        hold: HoldId,
        wall_ms: u64,
        artefacts: Artefacts,
        on: MeasuredOn,
        screened: Option<Screened>,
    ) -> AttemptFacts {
        let pinned = &spec.pinned;
        AttemptFacts {
            job: spec.job,
            run: spec.run,
            stage,
            attempt,
            member: hold.member.0,
            hold: hold.number,
            wall_ms,
            champion: pinned.champion.clone(),
            change: pinned.change.clone(),
            candidate: pinned.candidate.clone(),
            candidate_tree: pinned.candidate_tree.clone(),
            artefacts,
            kit: pinned.kit.name.clone(),
            kit_hash: pinned.kit_hash.clone(),
            contract: pinned.kit.contract.clone(),
            timer: pinned.kit.timer,
            timer_note: timer_note(pinned.kit.timer).to_owned(),
            on,
            screened,
        }
    }
}

/// What a timer's figures mean, as records say it.
pub const fn timer_note(timer: Timer) -> &'static str {
    match timer {
        Timer::Wall => "the judge's monotonic clock around the process",
        Timer::Reported => texts::TIMER_SHARES_PROCESS,
        Timer::ReportedApart => "reported by the kit's measuring program, apart from the candidate as the kit says",
    }
}

/// The same in a record of that layout; none where it has no such timer.
const fn timer_note_in(schema: u32, timer: Timer) -> Option<&'static str> {
    match (schema, timer) {
        (1, Timer::ReportedApart) => None,
        (1, Timer::Reported) => Some(
            "reported by the kit's measuring program: timer shares the process, unless that program runs the candidate \
             as device code or as a child of another user",
        ),
        (_, timer) => Some(timer_note(timer)),
    }
}

/// Where a stage's scale came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum NoiseSource {
    /// It had been measured before.
    Kept {
        /// The measure.
        noise: Noise,
    },
    /// The stage measured it first, by these champion-twice blocks.
    Measured {
        /// The measure.
        noise: Noise,
        /// Every block tried for it, in order.
        blocks: Vec<TriedBlock>,
    },
}

impl NoiseSource {
    /// The measure.
    pub fn noise(&self) -> &Noise {
        match self {
            NoiseSource::Kept { noise } | NoiseSource::Measured { noise, .. } => noise,
        }
    }

    /// The measure, where the stage itself took it.
    pub fn newly_measured(&self) -> Option<&Noise> {
        match self {
            NoiseSource::Kept { .. } => None,
            NoiseSource::Measured { noise, .. } => Some(noise),
        }
    }
}

/// How the coins were drawn; published with the verdict, never before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Coins {
    /// How a seed becomes coins: [`coin::ALGORITHM`].
    pub algorithm: String,
    /// The seed, from the operating system.
    #[serde(with = "u64_text")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+$"))]
    pub seed: u64,
}

impl Coins {
    /// Coins of that seed.
    pub fn of(seed: u64) -> Coins {
        Coins { algorithm: coin::ALGORITHM.to_owned(), seed }
    }
}

/// What followed from one accepted block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AfterBlock {
    /// The block's ratio: positive where the change is faster.
    pub d: f64,
    /// ln W at the null margin after it.
    pub ln_w: f64,
    /// ln F at the plan effect after it.
    pub ln_f: f64,
}

/// What may be said of the effect, as ln(speed-up). The lower bound is what is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The effect is above this, but for a chance of alpha; none where the blocks cannot say.
    pub lower: Option<f64>,
    /// The effect is below this, but for a chance of beta; none where the blocks cannot say.
    pub upper: Option<f64>,
    /// The Hodges-Lehmann estimate. Early-stopped: at a win it tends to lie above the truth.
    pub estimate_early_stopped: Option<f64>,
}

/// Why a stage stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// W had reached 1/alpha, the least blocks were there, and the estimate reached the gate.
    EvidenceAndGate,
    /// F reached 1/beta at the plan effect.
    Futility,
    /// The most blocks were there.
    MostBlocks,
}

/// One decided stage's record, closed with a hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VerdictRecord {
    /// The version of this layout.
    pub schema: u32,
    /// What was decided.
    pub verdict: Verdict,
    /// Why the stage stopped.
    pub stopped: StopReason,
    /// What may be claimed, as a sentence.
    pub claim: String,
    /// What may be said of the effect, the lower bound first.
    pub bounds: Bounds,
    /// The attempt.
    pub facts: AttemptFacts,
    /// The method's name.
    pub method: String,
    /// Every constant of it.
    pub constants: Constants,
    /// Where its scale came from.
    pub noise: NoiseSource,
    /// Whether the stage's own blocks show that the noise is to be measured again. The verdict stands.
    pub noise_off: bool,
    /// How the coins were drawn.
    pub coins: Coins,
    /// Every block tried, in order, thrown ones included.
    pub blocks: Vec<TriedBlock>,
    /// What followed from each accepted block, in order.
    pub after: Vec<AfterBlock>,
    /// SHA-256 over the record without this field, as JSON with sorted keys and no spaces.
    pub sha256: String,
}

/// What a decided stage has in hand, before its record is closed.
#[derive(Clone, Debug, PartialEq)]
pub struct RawStage {
    /// The attempt.
    pub facts: AttemptFacts,
    /// Where the scale came from.
    pub noise: NoiseSource,
    /// The coins' seed.
    pub seed: u64,
    /// Every block tried, in order.
    pub blocks: Vec<TriedBlock>,
}

impl VerdictRecord {
    /// Makes the record of a decided stage from its raw figures, and closes it with its hash.
    ///
    /// Everything that follows from the figures is made here and nowhere else, so that [`verify`] can make it again.
    ///
    /// # Errors
    /// Where the blocks do not lead to a verdict exactly at the last one.
    pub fn close(raw: RawStage) -> Result<VerdictRecord, NotDecided> {
        VerdictRecord::close_as(SCHEMA, raw)
    }

    /// The same in an earlier layout, to verify a record of it.
    fn close_as(schema: u32, raw: RawStage) -> Result<VerdictRecord, NotDecided> {
        let RawStage { facts, noise, seed, blocks } = raw;
        let constants = Constants::new(facts.stage, &facts.contract, noise.noise().scale);
        let mut process = Process::new(constants);
        let mut after = Vec::new();
        let mut verdict = None;
        for (at, block) in blocks.iter().enumerate() {
            if verdict.is_some() {
                return Err(NotDecided::BlocksAfterwards { block: at });
            }
            let Some(d) = block.ratio() else { continue };
            if !d.is_finite() {
                return Err(NotDecided::NoTime { block: at });
            }
            verdict = process.add(d).verdict();
            after.push(AfterBlock { d, ln_w: process.ln_w(), ln_f: process.ln_f() });
        }
        let verdict = verdict.ok_or(NotDecided::GoesOn { accepted: process.accepted() })?;
        let mut record = VerdictRecord {
            schema,
            verdict,
            stopped: match verdict {
                Verdict::Win => StopReason::EvidenceAndGate,
                Verdict::NoGain { .. } => StopReason::Futility,
                Verdict::Undecided => StopReason::MostBlocks,
            },
            claim: claim(facts.stage, verdict).to_owned(),
            bounds: Bounds {
                lower: process.lower(),
                upper: process.upper(),
                estimate_early_stopped: process.estimate(),
            },
            method: METHOD.to_owned(),
            noise_off: noise.noise().is_off(process.ratios()),
            constants: process.constants().clone(),
            coins: Coins::of(seed),
            facts,
            noise,
            blocks,
            after,
            sha256: String::new(),
        };
        record.sha256 = record.hash();
        Ok(record)
    }

    /// SHA-256 over the record without its `sha256`, as JSON with sorted keys and no spaces; lowercase hexadecimal.
    pub fn hash(&self) -> String {
        hash_of(&self.to_value())
    }

    /// The record as JSON with sorted keys and no spaces: the form to store, send and hand to [`verify_json`].
    pub fn to_json(&self) -> String {
        canonical(&self.to_value())
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a record has only text keys and numbers that JSON has")
    }
}

fn claim(stage: StageKind, verdict: Verdict) -> &'static str {
    match (stage, verdict) {
        (StageKind::Screening, Verdict::Win) => "none: a screening that is won starts a confirmation",
        (StageKind::Confirmation, Verdict::Win) => {
            "the change is faster, by the lower bound at least: at most 1% false wins per confirmed comparison"
        }
        (_, Verdict::NoGain { slower: false }) => "the change is not as much faster as planned",
        (_, Verdict::NoGain { slower: true }) => "the change is slower",
        (_, Verdict::Undecided) => "none: too noisy to tell",
    }
}

/// Raw figures that lead to no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// The stage goes on after its last block.
    #[error("the stage is not decided after {accepted} accepted blocks")]
    GoesOn {
        /// How many there are.
        accepted: u32,
    },
    /// The stage was decided before its last block.
    #[error("block {block} was run after the stage was decided")]
    BlocksAfterwards {
        /// Its place, from 0.
        block: usize,
    },
    /// A timed run took no time at all.
    #[error("block {block} has a run of 0 ns")]
    NoTime {
        /// Its place, from 0.
        block: usize,
    },
}

/// What is kept of a void attempt, to be seen and never merged: raw figures and the cause, no verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttemptAudit {
    /// The version of this layout.
    pub schema: u32,
    /// Why the attempt is void.
    pub void: InfrastructureFailure,
    /// The attempt.
    pub facts: AttemptFacts,
    /// How the coins were drawn.
    pub coins: Coins,
    /// Every champion-twice block that the attempt tried, in order.
    pub noise_blocks: Vec<TriedBlock>,
    /// Every block of the comparison that it tried, in order.
    pub blocks: Vec<TriedBlock>,
}

/// JSON with sorted keys and no spaces, whatever order the map keeps.
fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            text.push('{');
            for (at, key) in keys.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                write_canonical(&fields[key], text);
            }
            text.push('}');
        }
    }
}

/// The hash of a record's JSON, whatever its `sha256` says.
fn hash_of(record: &Value) -> String {
    let mut record = record.clone();
    if let Value::Object(fields) = &mut record {
        fields.remove("sha256");
    }
    Sha256::digest(canonical(&record)).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A 64-bit integer as text, so that no JSON reader rounds it.
pub mod u64_text {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the number as text.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads the number from text.
    ///
    /// # Errors
    /// Where the text is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// 64-bit integers as text, so that no JSON reader rounds them.
pub mod u64_text_option {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the number as text, or null.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// Reads the number from text, or null.
    ///
    /// # Errors
    /// Where the text is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// Four 64-bit integers as text.
pub mod u64_text_array {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the numbers as text.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(value: &[u64; 4], serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|ns| ns.to_string()).serialize(serializer)
    }

    /// Reads the numbers from text.
    ///
    /// # Errors
    /// Where a text is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; 4], D::Error> {
        let text = <[String; 4]>::deserialize(deserializer)?;
        let mut ns = [0; 4];
        for (ns, text) in ns.iter_mut().zip(text) {
            *ns = text.parse().map_err(serde::de::Error::custom)?;
        }
        Ok(ns)
    }
}
