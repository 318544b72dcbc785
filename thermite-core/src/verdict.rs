//! The decision method `sign-fair-e/1`: two betting processes over the blocks' ratios (docs/judging.md).
//!
//! The coin of a block makes the sign of its ratio fair where champion and change do not differ, whatever drifts, so
//! the evidence for the change is a supermartingale there and reaches `1/alpha` with a chance of at most `alpha`,
//! however often one looks (Ville's inequality). Everything here is a function of the ratios and the constants. All
//! transcendental functions are `libm`'s, so that a verdict recomputes bit for bit on every platform (rule D9).

use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::job::StageKind;
use crate::limits;

/// The method's name in records.
pub const METHOD: &str = "sign-fair-e/1";

/// Every constant of one stage, fixed before its first block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Constants {
    /// The largest chance of a false win.
    pub alpha: f64,
    /// The largest chance that a change as good as the plan is given up early.
    pub beta: f64,
    /// The margin of the null hypothesis, as ln(speed-up).
    pub null_margin: f64,
    /// The effect the plan is made for, as ln(speed-up).
    pub plan_effect: f64,
    /// The least effect that wins, as ln(speed-up).
    pub gate: f64,
    /// The bets as multiples of plan effect over scale.
    pub multipliers: [f64; 4],
    /// The smallest bet.
    pub bet_least: f64,
    /// The largest bet.
    pub bet_most: f64,
    /// How many scales away a ratio still counts in full.
    pub clip: f64,
    /// The least number of blocks for a win.
    pub blocks_least: u32,
    /// The largest number of blocks.
    pub blocks_most: u32,
    /// The scale of a block's ratio when nothing differs (a difference of logarithms).
    pub scale: f64,
}

impl Constants {
    /// The constants of a stage on a device whose noise is `noise_scale` (see [`crate::noise::Noise::scale`]).
    ///
    /// The margin on the noise is taken here. Validity does not depend on the scale, only on its being fixed first.
    pub fn new(stage: StageKind, contract: &Contract, noise_scale: f64) -> Constants {
        Constants {
            alpha: match stage {
                StageKind::Screening => limits::SCREENING_ALPHA,
                StageKind::Confirmation => limits::CONFIRMATION_ALPHA,
            },
            beta: limits::FUTILITY_BETA,
            null_margin: contract.null_margin,
            plan_effect: contract.plan_effect,
            gate: contract.gate,
            multipliers: limits::BET_MULTIPLIERS,
            bet_least: limits::BET_LEAST,
            bet_most: limits::BET_MOST,
            clip: limits::RATIO_CLIP,
            blocks_least: contract.blocks_least,
            blocks_most: contract.blocks_most,
            scale: (limits::SCALE_MARGIN * noise_scale).max(limits::SCALE_LEAST),
        }
    }

    /// The four bets.
    pub fn bets(&self) -> [f64; 4] {
        self.multipliers.map(|multiplier| {
            let bet = multiplier * self.plan_effect / self.scale;
            bet.max(self.bet_least).min(self.bet_most)
        })
    }

    /// One block's ratio against the effect `m`, in scales, clipped.
    pub(crate) fn standardise(&self, ratio: f64, m: f64) -> f64 {
        ((ratio - m) / self.scale).max(-self.clip).min(self.clip)
    }
}

/// How a stage was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The change is faster, by at least the gate.
    Win,
    /// The change is not faster by the plan.
    NoGain {
        /// Whether it is slower for certain: the upper bound is below zero.
        slower: bool,
    },
    /// The blocks ran out first: never a win.
    Undecided,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Win => "win",
            Verdict::NoGain { slower: false } => "no gain",
            Verdict::NoGain { slower: true } => "no gain, slower",
            Verdict::Undecided => "undecided",
        })
    }
}

/// What a stage does after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It goes on with the next block.
    Continue,
    /// It is over.
    Decided(Verdict),
}

impl Decision {
    /// The verdict, where there is one.
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Decision::Continue => None,
            Decision::Decided(verdict) => Some(verdict),
        }
    }
}

/// The running evidence of one stage. A block costs a fixed time, plus the estimate once the evidence suffices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "ProcessFacts", try_from = "ProcessFacts")]
pub struct Process {
    constants: Constants,
    bets: [f64; 4],
    for_change: [f64; 4],
    against_plan: [f64; 4],
    /// The highest ln W(null margin) so far.
    highest: f64,
    crossed: bool,
    ratios: Vec<f64>,
    decision: Decision,
}

/// What a process follows from: read back, it is made again block by block, so that none can be told that could not be.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ProcessFacts {
    constants: Constants,
    ratios: Vec<f64>,
}

impl From<Process> for ProcessFacts {
    fn from(process: Process) -> ProcessFacts {
        ProcessFacts { constants: process.constants, ratios: process.ratios }
    }
}

impl TryFrom<ProcessFacts> for Process {
    type Error = &'static str;

    fn try_from(facts: ProcessFacts) -> Result<Process, &'static str> {
        let mut process = Process::new(facts.constants);
        for ratio in facts.ratios {
            if process.decision != Decision::Continue {
                return Err("a decided stage takes no more blocks");
            }
            // The times of a block are 64-bit integers, and ln 2^64 is 44.4.
            if ratio.is_nan() || ratio.abs() > 45.0 {
                return Err("no block has that ratio");
            }
            process.add(ratio);
        }
        Ok(process)
    }
}

impl Process {
    /// A stage before its first block.
    pub fn new(constants: Constants) -> Process {
        Process {
            bets: constants.bets(),
            constants,
            for_change: [0.0; 4],
            against_plan: [0.0; 4],
            highest: 0.0,
            crossed: false,
            ratios: Vec::new(),
            decision: Decision::Continue,
        }
    }

    /// Takes the ratio of the next accepted block and decides.
    ///
    /// # Panics
    /// Where the stage is decided already, or the ratio is not finite: a false verdict would follow.
    pub fn add(&mut self, ratio: f64) -> Decision {
        assert_eq!(self.decision, Decision::Continue, "a decided stage takes no more blocks");
        assert!(ratio.is_finite(), "a block's ratio is a finite number");
        self.ratios.push(ratio);
        let constants = &self.constants;
        let z_null = constants.standardise(ratio, constants.null_margin);
        let z_plan = constants.standardise(ratio, constants.plan_effect);
        add_bets(&mut self.for_change, &self.bets, z_null);
        add_bets(&mut self.against_plan, &self.bets, -z_plan);
        let ln_w = self.ln_w();
        self.highest = if self.ratios.len() == 1 { ln_w } else { self.highest.max(ln_w) };
        self.crossed |= ln_w >= threshold(self.constants.alpha);
        self.decision = self.decide();
        self.decision
    }

    fn decide(&self) -> Decision {
        let blocks = self.accepted();
        if self.crossed && blocks >= self.constants.blocks_least && self.estimate() >= Some(self.constants.gate) {
            return Decision::Decided(Verdict::Win);
        }
        if self.ln_f() >= threshold(self.constants.beta) {
            return Decision::Decided(Verdict::NoGain { slower: self.is_slower() });
        }
        if blocks >= self.constants.blocks_most {
            return Decision::Decided(Verdict::Undecided);
        }
        Decision::Continue
    }

    /// What was decided after the last block.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The constants in force.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The ratios of the accepted blocks, in order.
    pub fn ratios(&self) -> &[f64] {
        &self.ratios
    }

    /// How many blocks were accepted.
    pub fn accepted(&self) -> u32 {
        u32::try_from(self.ratios.len()).expect("a contract allows at most 10000 blocks")
    }

    /// ln W at the null margin: the evidence that the change is faster.
    pub fn ln_w(&self) -> f64 {
        ln_mean_exp(&self.for_change)
    }

    /// ln F at the plan effect: the evidence that the change is not as fast as planned.
    pub fn ln_f(&self) -> f64 {
        ln_mean_exp(&self.against_plan)
    }

    /// The highest ln W at the null margin after any block so far; 0 before the first.
    pub fn highest_ln_w(&self) -> f64 {
        self.highest
    }

    /// ln W at any effect `m`, over all blocks so far.
    pub fn evidence_above(&self, m: f64) -> f64 {
        evidence(&self.constants, &self.bets, &self.ratios, m, 1.0)
    }

    /// ln F at any effect `m`, over all blocks so far.
    pub fn evidence_below(&self, m: f64) -> f64 {
        evidence(&self.constants, &self.bets, &self.ratios, m, -1.0)
    }

    /// The Hodges-Lehmann estimate of the effect, as ln(speed-up); none before the first block.
    ///
    /// It is early-stopped: at a win it tends to lie above the truth. The lower bound is what is claimed.
    pub fn estimate(&self) -> Option<f64> {
        hodges_lehmann(&self.ratios)
    }

    /// The lower bound of the effect: the largest effect that the evidence after some block rules out from below.
    /// None where the blocks cannot rule out any.
    pub fn lower(&self) -> Option<f64> {
        let wanted = threshold(self.constants.alpha);
        self.bound(wanted, 1.0)
    }

    /// The upper bound of the effect, the mirror of [`Process::lower`] at beta.
    pub fn upper(&self) -> Option<f64> {
        let wanted = threshold(self.constants.beta);
        self.bound(wanted, -1.0).map(|bound| -bound)
    }

    /// Whether some block's evidence rules out that the effect is zero or more.
    fn is_slower(&self) -> bool {
        // One pass says no for nearly every stage; only then is the bound itself worth its bisection.
        let mut logs = [0.0; 4];
        let wanted = threshold(self.constants.beta);
        let possible = self.ratios.iter().any(|ratio| {
            add_bets(&mut logs, &self.bets, -self.constants.standardise(*ratio, 0.0));
            ln_mean_exp(&logs) >= wanted
        });
        possible && self.upper().is_some_and(|upper| upper < 0.0)
    }

    /// The lower bound after the last block, given that before it: [`Process::lower`] but for its last bits, at a
    /// fraction of its cost. For live views.
    pub fn lower_after(&self, before: Option<f64>) -> Option<f64> {
        self.bound_after(before, threshold(self.constants.alpha), 1.0)
    }

    /// The upper bound after the last block, the mirror of [`Process::lower_after`].
    pub fn upper_after(&self, before: Option<f64>) -> Option<f64> {
        let mirrored = before.map(|bound| -bound);
        self.bound_after(mirrored, threshold(self.constants.beta), -1.0).map(|bound| -bound)
    }

    fn bound_after(&self, before: Option<f64>, wanted: f64, side: f64) -> Option<f64> {
        let (lowest, _) = self.extent(side);
        let x = before.unwrap_or(lowest);
        if evidence(&self.constants, &self.bets, &self.ratios, side * x, side) < wanted {
            return before;
        }
        Some(self.bisect(self.ratios.len(), before, wanted, side))
    }

    /// `max_k sup{x : E_k(x) >= wanted}` for the ratios (`side` = 1) or their mirror image (`side` = -1), where `E_k`
    /// falls in `x`.
    ///
    /// One pass at the bound found so far tells which `k` raise it; of those the last is bisected, and so on until none
    /// is left. That is a few passes and bisections, not one of each for every block.
    fn bound(&self, wanted: f64, side: f64) -> Option<f64> {
        let (lowest, _) = self.extent(side);
        let mut tried = vec![false; self.ratios.len()];
        let mut best: Option<f64> = None;
        while let Some(at) = self.last_reaching(best.unwrap_or(lowest), wanted, side, &tried) {
            tried[at] = true;
            best = Some(self.bisect(at + 1, best, wanted, side));
        }
        best
    }

    /// Where every ratio counts in full for the evidence, so that what is not reached there is reached nowhere; and
    /// where every ratio counts in full against it.
    fn extent(&self, side: f64) -> (f64, f64) {
        let reach = (self.constants.clip + 1.0) * self.constants.scale;
        let lowest = self.ratios.iter().fold(f64::INFINITY, |lowest, ratio| lowest.min(side * ratio));
        let highest = self.ratios.iter().fold(f64::NEG_INFINITY, |highest, ratio| highest.max(side * ratio));
        (lowest - reach, highest + reach)
    }

    /// The largest `x` at which the evidence of the first `blocks` suffices, where it does at `known` (or at all).
    fn bisect(&self, blocks: usize, known: Option<f64>, wanted: f64, side: f64) -> f64 {
        let (lowest, mut beyond) = self.extent(side);
        let mut reached = known.unwrap_or(lowest);
        for _ in 0..BISECTIONS {
            let middle = reached + (beyond - reached) / 2.0;
            if evidence(&self.constants, &self.bets, &self.ratios[..blocks], side * middle, side) >= wanted {
                reached = middle;
            } else {
                beyond = middle;
            }
        }
        reached
    }

    /// The last block not yet tried after which the evidence at `x` suffices.
    fn last_reaching(&self, x: f64, wanted: f64, side: f64, tried: &[bool]) -> Option<usize> {
        let mut logs = [0.0; 4];
        let mut last = None;
        for (at, ratio) in self.ratios.iter().enumerate() {
            add_bets(&mut logs, &self.bets, side * self.constants.standardise(*ratio, side * x));
            if !tried[at] && ln_mean_exp(&logs) >= wanted {
                last = Some(at);
            }
        }
        last
    }
}

/// Halvings of a bound's bracket: it ends below the last bit of a bound of one part in a thousand.
const BISECTIONS: u32 = 64;

/// `ln(1/chance)`: the evidence that has at most that chance to be reached by luck.
fn threshold(chance: f64) -> f64 {
    libm::log(1.0 / chance)
}

/// Adds one block's outcome of each bet to its running logarithm.
pub(crate) fn add_bets(logs: &mut [f64; 4], bets: &[f64; 4], z: f64) {
    for (log, bet) in logs.iter_mut().zip(bets) {
        *log += ln_bet(bet * z);
    }
}

/// `ln(1 + tanh x)`, without loss where tanh is close to -1.
fn ln_bet(x: f64) -> f64 {
    std::f64::consts::LN_2 - libm::log1p(libm::exp(-2.0 * x))
}

/// The logarithm of the mean of four exponentials.
pub(crate) fn ln_mean_exp(logs: &[f64; 4]) -> f64 {
    let highest = logs.iter().fold(f64::NEG_INFINITY, |highest, log| highest.max(*log));
    let sum: f64 = logs.iter().map(|log| libm::exp(log - highest)).sum();
    highest + libm::log(sum / 4.0)
}

fn evidence(constants: &Constants, bets: &[f64; 4], ratios: &[f64], m: f64, side: f64) -> f64 {
    let mut logs = [0.0; 4];
    for ratio in ratios {
        add_bets(&mut logs, bets, side * constants.standardise(*ratio, m));
    }
    ln_mean_exp(&logs)
}

/// The median of `(d_i + d_j) / 2` over all `i <= j`.
///
/// The averages are not listed: there are 50 million for 10,000 blocks. The order of the doubles is halved 64 times,
/// counting at each the averages at or below it in one pass over the sorted ratios; the answer is one of the averages
/// itself (or the mean of two), so it is exact.
pub fn hodges_lehmann(ratios: &[f64]) -> Option<f64> {
    if ratios.is_empty() {
        return None;
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as u64;
    let pairs = n * (n + 1) / 2;
    let lower = nth_average(&sorted, pairs.div_ceil(2));
    if pairs % 2 == 1 {
        return Some(lower);
    }
    let upper = nth_average(&sorted, pairs / 2 + 1);
    Some((lower + upper) / 2.0)
}

/// The `nth` smallest (from 1) average of two of the sorted ratios.
fn nth_average(sorted: &[f64], nth: u64) -> f64 {
    let mut below = ordinal(sorted[0]) - 1;
    let mut at_or_above = ordinal(sorted[sorted.len() - 1]);
    while at_or_above - below > 1 {
        let middle = below + (at_or_above - below) / 2;
        if averages_up_to(sorted, from_ordinal(middle)) >= nth {
            at_or_above = middle;
        } else {
            below = middle;
        }
    }
    from_ordinal(at_or_above)
}

/// How many averages of two of the sorted ratios, each pair once and each ratio with itself, are at most `value`.
fn averages_up_to(sorted: &[f64], value: f64) -> u64 {
    let mut count = 0;
    let mut partners = sorted.len();
    for (at, ratio) in sorted.iter().enumerate() {
        // Rounding keeps order: as the ratio grows, the partners that fit only become fewer.
        while partners > at && (ratio + sorted[partners - 1]) / 2.0 > value {
            partners -= 1;
        }
        if partners <= at {
            break;
        }
        count += (partners - at) as u64;
    }
    count
}

/// The place of a finite double in the order of all doubles; both zeros have the place 0.
fn ordinal(value: f64) -> i128 {
    let magnitude = i128::from(value.abs().to_bits());
    if value < 0.0 { -magnitude } else { magnitude }
}

fn from_ordinal(ordinal: i128) -> f64 {
    let bits = u64::try_from(ordinal.unsigned_abs()).expect("a place in the order of doubles has at most 63 bits");
    let magnitude = f64::from_bits(bits);
    if ordinal < 0 { -magnitude } else { magnitude }
}
