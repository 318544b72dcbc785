//! Recomputing a verdict from its record (rule D9).

use serde_json::Value;

use super::{
    NoiseSource, NotDecided, RawStage, SCHEMA, SCHEMA_OLDEST, VerdictRecord, canonical, hash_of, timer_note_in,
};
use crate::block::{Pair, TriedBlock, throw_causes, thrown_too_often};
use crate::coin::{self, Purpose, coin};
use crate::contract::{ContractFault, Timer};
use crate::limits;
use crate::noise::{Noise, Suits};
use crate::stage::least_run_ns;
use crate::verdict::{METHOD, Verdict};

/// A record that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The verdict it gives.
    pub verdict: Verdict,
    /// How many blocks count.
    pub accepted: u32,
    /// How many blocks were thrown away.
    pub thrown: u32,
    /// The lower bound of the effect, as ln(speed-up).
    pub lower: Option<f64>,
    /// Whether the candidate could have reached the clock ([`crate::texts::TIMER_SHARES_PROCESS`]).
    pub timer_shares_process: bool,
    /// The record's hash.
    pub sha256: String,
}

/// A record that does not hold, with the first thing that does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    /// The text is no record.
    #[error("the text is no verdict record: {why}")]
    NoRecord {
        /// What the reader said.
        why: String,
    },
    /// A number is not written the one way a record writes it.
    #[error("the number {number} is written differently than a record writes it ({expected})")]
    NumberForm {
        /// As it stands.
        number: String,
        /// As a record writes it.
        expected: String,
    },
    /// The text says more or other than the record read from it.
    #[error("the text holds fields or forms that no record has")]
    Form,
    /// The layout is of another version.
    #[error("the record has layout {found}; this program verifies layouts {SCHEMA_OLDEST} to {SCHEMA}")]
    Schema {
        /// Its version.
        found: u32,
    },
    /// The hash is not that of the record.
    #[error("the hash does not match: the record says {stated}, its content gives {found}")]
    Hash {
        /// What it says.
        stated: String,
        /// What it is.
        found: String,
    },
    /// A field is not what the method, the raw figures or another field make it.
    #[error("{field} is {stated}; it must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it says.
        stated: String,
        /// What it must be.
        expected: String,
    },
    /// The contract cannot hold.
    #[error(transparent)]
    Contract(#[from] ContractFault),
    /// A block is not as its coin, readings or times make it.
    #[error("{series} block {block}: {why}")]
    Block {
        /// Which series it belongs to.
        series: &'static str,
        /// Its place in it, from 0.
        block: usize,
        /// What does not hold.
        why: String,
    },
    /// The raw figures lead to no verdict.
    #[error(transparent)]
    NotDecided(#[from] NotDecided),
}

/// Verifies a record as it was stored or sent, in any spacing and order of keys.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify_json(text: &str) -> Result<Verified, VerifyFault> {
    let no_record = |error: serde_json::Error| VerifyFault::NoRecord { why: error.to_string() };
    // Two texts may round to one double; only the shortest is a record's, so that no digit can change unseen.
    numbers_are_in_form(text)?;
    let value: Value = serde_json::from_str(text).map_err(no_record)?;
    let record: VerdictRecord = serde_json::from_str(text).map_err(no_record)?;
    let found = hash_of(&value);
    if found != record.sha256 {
        return Err(VerifyFault::Hash { stated: record.sha256, found });
    }
    if canonical(&value) != record.to_json() {
        return Err(VerifyFault::Form);
    }
    verify(&record)
}

/// Recomputes everything that a record says from its raw figures, to the last bit.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify(record: &VerdictRecord) -> Result<Verified, VerifyFault> {
    if !(SCHEMA_OLDEST..=SCHEMA).contains(&record.schema) {
        return Err(VerifyFault::Schema { found: record.schema });
    }
    must_be("method", record.method.as_str(), METHOD)?;
    must_be("coins.algorithm", record.coins.algorithm.as_str(), coin::ALGORITHM)?;
    let facts = &record.facts;
    let note = timer_note_in(record.schema, facts.timer);
    must_be("facts.timer_note", &Some(facts.timer_note.as_str()), &note)?;
    facts.contract.check()?;
    let is_confirmation = facts.stage == crate::job::StageKind::Confirmation;
    must_be("facts.screened", &facts.screened.is_some(), &is_confirmation)?;
    verify_noise(record)?;
    verify_blocks(record, Pair::ChampionAndChange, &record.blocks)?;
    let raw = RawStage {
        facts: facts.clone(),
        noise: record.noise.clone(),
        seed: record.coins.seed,
        blocks: record.blocks.clone(),
    };
    let again = VerdictRecord::close_as(record.schema, raw)?;
    same_bits(record, &again)?;
    Ok(Verified {
        verdict: again.verdict,
        accepted: u32::try_from(again.after.len()).expect("a contract allows at most 10000 blocks"),
        thrown: u32::try_from(again.blocks.len() - again.after.len()).expect("thrown blocks are at most a quarter"),
        lower: again.bounds.lower,
        timer_shares_process: facts.timer == Timer::Reported,
        sha256: again.sha256,
    })
}

/// Compares what is derived, naming the first difference, and at last the whole by its hash.
fn same_bits(record: &VerdictRecord, again: &VerdictRecord) -> Result<(), VerifyFault> {
    let bits = |figure: Option<f64>| figure.map(f64::to_bits);
    let figure = |field, stated: Option<f64>, expected: Option<f64>| {
        if bits(stated) == bits(expected) { Ok(()) } else { Err(differs(field, &stated, &expected)) }
    };
    must_be("constants", &record.constants, &again.constants)?;
    must_be("the number of figures after blocks", &record.after.len(), &again.after.len())?;
    for (stated, expected) in record.after.iter().zip(&again.after) {
        figure("d", Some(stated.d), Some(expected.d))?;
        figure("ln_w", Some(stated.ln_w), Some(expected.ln_w))?;
        figure("ln_f", Some(stated.ln_f), Some(expected.ln_f))?;
    }
    figure("bounds.lower", record.bounds.lower, again.bounds.lower)?;
    figure("bounds.upper", record.bounds.upper, again.bounds.upper)?;
    let (stated, expected) = (record.bounds.estimate_early_stopped, again.bounds.estimate_early_stopped);
    figure("bounds.estimate_early_stopped", stated, expected)?;
    must_be("verdict", &record.verdict, &again.verdict)?;
    must_be("stopped", &record.stopped, &again.stopped)?;
    must_be("claim", &record.claim, &again.claim)?;
    must_be("noise_off", &record.noise_off, &again.noise_off)?;
    if record.sha256 != again.sha256 {
        return Err(VerifyFault::Hash { stated: record.sha256.clone(), found: again.sha256.clone() });
    }
    Ok(())
}

fn verify_noise(record: &VerdictRecord) -> Result<(), VerifyFault> {
    let facts = &record.facts;
    let noise = record.noise.noise();
    must_be("noise.key", &noise.key, &facts.on.noise_key(&facts.kit_hash))?;
    match &record.noise {
        NoiseSource::Kept { noise } => {
            must_be("whether the noise is fresh", &noise.is_good(&noise.key, facts.wall_ms), &true)?;
            must_be("whether the noise rests on enough blocks", &(noise.blocks >= limits::NOISE_BLOCKS), &true)?;
        }
        NoiseSource::Measured { noise, blocks } => {
            verify_blocks(record, Pair::ChampionTwice, blocks)?;
            let ratios: Vec<f64> = blocks.iter().filter_map(TriedBlock::ratio).collect();
            let again = Noise::measured(noise.key.clone(), &ratios, noise.wall_ms);
            must_be("noise", &Some(noise), &again.as_ref())?;
        }
    }
    must_be("whether the device is too noisy", &(noise.suits(facts.contract.plan_effect) == Suits::Not), &false)
}

/// Checks each block against its coin, its readings and the limits that an honest stage keeps.
fn verify_blocks(record: &VerdictRecord, pair: Pair, blocks: &[TriedBlock]) -> Result<(), VerifyFault> {
    let (series, purpose) = match pair {
        Pair::ChampionAndChange => ("comparison", Purpose::Stage(record.facts.stage)),
        Pair::ChampionTwice => ("noise", Purpose::Noise),
    };
    let least = least_run_ns(record.facts.timer);
    for (at, block) in blocks.iter().enumerate() {
        let fault = |why: String| Err(VerifyFault::Block { series, block: at, why });
        let number = u32::try_from(at).expect("a contract allows at most 10000 blocks");
        let order = coin(record.coins.seed, purpose, number);
        if block.order() != order {
            return fault(format!("its order is {:?}, its coin gave {order:?}", block.order()));
        }
        match block {
            TriedBlock::Accepted { times, .. } => {
                if let Some(cause) = throw_causes(&times.before, &times.after).first() {
                    return fault(format!("it is accepted, but {cause}"));
                }
                if let Some(ns) = times.ns.iter().find(|ns| **ns < least) {
                    return fault(format!("a run of {ns} ns is too short to be timed, at least {least} ns"));
                }
            }
            TriedBlock::Thrown { times, causes, .. } => {
                if causes.is_empty() || *causes != throw_causes(&times.before, &times.after) {
                    return fault("its causes are not those that its readings show".to_owned());
                }
            }
            TriedBlock::Lost { .. } => {}
        }
        let thrown = !matches!(block, TriedBlock::Accepted { .. });
        if thrown && let Some(failure) = thrown_too_often(pair, &blocks[..=at]) {
            return fault(format!("the attempt is void: {failure}"));
        }
    }
    Ok(())
}

fn must_be<T: std::fmt::Debug + PartialEq + ?Sized>(
    field: &'static str,
    stated: &T,
    expected: &T,
) -> Result<(), VerifyFault> {
    if stated == expected { Ok(()) } else { Err(differs(field, stated, expected)) }
}

fn differs<T: std::fmt::Debug + ?Sized>(field: &'static str, stated: &T, expected: &T) -> VerifyFault {
    VerifyFault::Field { field, stated: format!("{stated:?}"), expected: format!("{expected:?}") }
}

/// Checks that every number outside text is written as serde_json writes it: the shortest form of its value.
fn numbers_are_in_form(text: &str) -> Result<(), VerifyFault> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut in_text = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'-' | b'0'..=b'9' if !in_text => {
                let length = bytes[at..].iter().take_while(|byte| is_of_number(**byte)).count();
                let number = &text[at..at + length];
                let expected = match serde_json::from_str::<serde_json::Number>(number) {
                    Ok(value) => value.to_string(),
                    Err(error) => return Err(VerifyFault::NoRecord { why: format!("{number}: {error}") }),
                };
                if number != expected {
                    return Err(VerifyFault::NumberForm { number: number.to_owned(), expected });
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}
