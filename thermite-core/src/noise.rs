//! A device's noise, measured champion against champion (rule D6; docs/judging.md, noise per card).

use serde::{Deserialize, Serialize};

use crate::block::Side;
use crate::contract::Contract;
use crate::ids::MemberId;
use crate::job::StageKind;
use crate::limits;
use crate::refusal::InfrastructureFailure;
use crate::verdict::{self, Constants};

/// What one measure of noise is good for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NoiseKey {
    /// The device's UUID.
    pub device: String,
    /// SHA-256 of the kit's file.
    pub kit: String,
    /// The driver and its version.
    pub driver: String,
    /// How the device's clocks are set.
    pub clock_policy: String,
}

/// One measure of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Noise {
    /// What it is good for.
    pub key: NoiseKey,
    /// 1.4826 x the median absolute deviation of the block ratios d (no unit: a difference of logarithms).
    pub scale: f64,
    /// How many blocks it rests on.
    pub blocks: u32,
    /// When it was measured: wall clock, milliseconds since 1970, since it outlives the rig's clock.
    pub wall_ms: u64,
}

/// How a device's noise suits a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Suits {
    /// It can decide the plan effect within the blocks there are.
    Well,
    /// It will take many blocks: warn.
    Barely,
    /// It would run out of blocks: the device refuses the contract.
    Not,
}

impl Noise {
    /// The noise that these ratios of champion-twice blocks show; none where they are fewer than
    /// [`limits::NOISE_BLOCKS`].
    pub fn measured(key: NoiseKey, ratios: &[f64], wall_ms: u64) -> Option<Noise> {
        let blocks = u32::try_from(ratios.len()).ok()?;
        if blocks < limits::NOISE_BLOCKS {
            return None;
        }
        scale_of(ratios).map(|scale| Noise { key, scale, blocks, wall_ms })
    }

    /// Whether a job under `key` may still use it at `wall_ms`: the same key, and no older than 24 h. One from the
    /// future says that the wall clock was set back, and is measured again.
    pub fn is_good(&self, key: &NoiseKey, wall_ms: u64) -> bool {
        let age = wall_ms.checked_sub(self.wall_ms);
        self.key == *key && age.is_some_and(|age| age <= limits::NOISE_MAX_AGE.as_millis())
    }

    /// How it suits a plan effect (a difference of logarithms).
    pub fn suits(&self, plan_effect: f64) -> Suits {
        if self.scale > limits::NOISE_REFUSED_PLANS * plan_effect {
            Suits::Not
        } else if self.scale > limits::NOISE_WARNED_PLANS * plan_effect {
            Suits::Barely
        } else {
            Suits::Well
        }
    }

    /// Refuses a contract that it does not suit, with the figures.
    ///
    /// # Errors
    /// [`InfrastructureFailure::TooNoisy`] where the scale is over three plan effects.
    pub fn check(&self, member: MemberId, plan_effect: f64) -> Result<(), InfrastructureFailure> {
        match self.suits(plan_effect) {
            Suits::Well | Suits::Barely => Ok(()),
            Suits::Not => Err(InfrastructureFailure::TooNoisy {
                member,
                noise_percent: format!("{:.2}", 100.0 * self.scale),
                limit_percent: format!("{:.2}", 100.0 * limits::NOISE_REFUSED_PLANS * plan_effect),
            }),
        }
    }

    /// The warning of a device that suits a plan effect barely, with the figures; none where it suits well or not at all,
    /// which is a refusal.
    pub fn warning(&self, member: MemberId, plan_effect: f64) -> Option<String> {
        let percent = |ln: f64| format!("{:.2} %", 100.0 * ln);
        (self.suits(plan_effect) == Suits::Barely).then(|| {
            format!(
                "{member} is noisy for this contract: noise {}, over twice the plan effect of {}; expect about {:.0} \
                 blocks to screen and {:.0} to confirm",
                percent(self.scale),
                percent(plan_effect),
                self.expected_blocks(StageKind::Screening, plan_effect),
                self.expected_blocks(StageKind::Confirmation, plan_effect),
            )
        })
    }

    /// How many blocks a stage is expected to take on this device where the change is as good as the plan.
    pub fn expected_blocks(&self, stage: StageKind, plan_effect: f64) -> f64 {
        let plans = self.scale / plan_effect;
        match stage {
            StageKind::Screening => 11.0 * plans * plans,
            StageKind::Confirmation => 17.0 * plans * plans,
        }
    }

    /// Whether a job's own ratios show that the noise is to be measured again: their scale is under half or over twice
    /// this one. The verdict stands; its validity does not rest on the scale. Too few blocks show nothing.
    pub fn is_off(&self, ratios: &[f64]) -> bool {
        let own = if ratios.len() >= limits::NOISE_OFF_BLOCKS as usize { scale_of(ratios) } else { None };
        own.is_some_and(|own| {
            own > self.scale * limits::NOISE_OFF_FACTOR || own < self.scale / limits::NOISE_OFF_FACTOR
        })
    }
}

/// 1.4826 x the median absolute deviation from the median: the standard deviation where the ratios are normal, and
/// hardly moved by outliers. None without ratios.
pub fn scale_of(ratios: &[f64]) -> Option<f64> {
    let centre = median(ratios.to_vec())?;
    let deviation = median(ratios.iter().map(|ratio| (ratio - centre).abs()).collect())?;
    Some(1.4826 * deviation)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values.get(middle).copied()
    } else {
        let (low, high) = (values.get(middle.checked_sub(1)?)?, values.get(middle)?);
        Some((low + high) / 2.0)
    }
}

/// Why a measure of noise is taken anew before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoiseDoubt {
    /// A job's own blocks varied by less than half of it, or by more than twice of it.
    JobsOwnScale,
    /// Somebody asked for it.
    Asked,
    /// The device was out of service by a fault: champion against champion comes first when it is back (rule B10).
    Fault,
}

/// The champion-twice blocks that one attempt tried, as the lifelong alarm takes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChampionTwice {
    /// The device's UUID.
    pub device: String,
    /// The contract's plan effect.
    pub plan_effect: f64,
    /// The scale that was known before the first of them: the measure of noise there was, else the plan effect.
    pub scale: f64,
    /// The ratios of those that count, in order.
    pub ratios: Vec<f64>,
}

impl ChampionTwice {
    /// The scale and bets that the alarm takes them by: all of it was fixed before the first block.
    pub fn constants(&self) -> Constants {
        let contract = Contract { plan_effect: self.plan_effect, ..Contract::default() };
        Constants::new(StageKind::Confirmation, &contract, self.scale)
    }
}

/// The lifelong alarm of one device over its champion-twice blocks (docs/judging.md, noise per card).
///
/// With the same program under both labels neither label may ever gather evidence: where one does, the fault is in the
/// harness itself (a slot, a position, a label), and the device is quarantined. It is kept with the device's records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HarnessAlarm {
    change_faster: [f64; 4],
    champion_faster: [f64; 4],
    blocks: u32,
    raised: Option<RaisedAlarm>,
}

/// A harness that favours one label.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[error("champion against champion favours the place of {side}: evidence {evidence:.0} after {blocks} blocks")]
pub struct RaisedAlarm {
    /// The label that seems faster.
    pub side: Side,
    /// How often luck alone would have to be tried to see this once.
    pub evidence: f64,
    /// After how many blocks.
    pub blocks: u32,
}

impl HarnessAlarm {
    /// Takes the ratio of the next champion-twice block. `constants` give scale and bets; they must have been fixed
    /// before the block (from the measure of noise before this one, or from the plan effect where there is none).
    ///
    /// A raised alarm stays raised.
    pub fn add(&mut self, ratio: f64, constants: &Constants) -> Option<RaisedAlarm> {
        let bets = constants.bets();
        let z = constants.standardise(ratio, 0.0);
        verdict::add_bets(&mut self.change_faster, &bets, z);
        verdict::add_bets(&mut self.champion_faster, &bets, -z);
        self.blocks = self.blocks.saturating_add(1);
        for (side, logs) in [(Side::Change, &self.change_faster), (Side::Champion, &self.champion_faster)] {
            let ln_evidence = verdict::ln_mean_exp(logs);
            if ln_evidence >= libm::log(limits::HARNESS_ALARM) && self.raised.is_none() {
                self.raised = Some(RaisedAlarm { side, evidence: libm::exp(ln_evidence), blocks: self.blocks });
            }
        }
        self.raised
    }

    /// Takes all blocks of an attempt.
    pub fn take(&mut self, blocks: &ChampionTwice) -> Option<RaisedAlarm> {
        let constants = blocks.constants();
        for ratio in &blocks.ratios {
            self.add(*ratio, &constants);
        }
        self.raised
    }

    /// The larger of the two labels' evidence so far, as its natural logarithm: the alarm is raised at
    /// ln [`limits::HARNESS_ALARM`], about 6.9.
    pub fn ln_evidence(&self) -> f64 {
        verdict::ln_mean_exp(&self.change_faster).max(verdict::ln_mean_exp(&self.champion_faster))
    }

    /// The alarm, where it was raised.
    pub fn raised(&self) -> Option<RaisedAlarm> {
        self.raised
    }

    /// How many blocks it has seen.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
}
