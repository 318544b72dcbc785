//! A block: one untimed warm-up of each program, then four timed runs in an order a fair coin chose; and when a block
//! is thrown away (rule D3; docs/judging.md, thrown blocks).
//!
//! Whether a block counts is judged from readings alone. No function here that throws a block away is given its times.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::readiness::{Clocks, Reading, ThrottleCounter, names};
use crate::refusal::InfrastructureFailure;
use crate::texts;
use crate::time::Moment;

/// Which program of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// A: the champion.
    Champion,
    /// B: the change.
    Change,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Champion => "the champion",
            Side::Change => "the change",
        })
    }
}

/// The order of a block's four timed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Order {
    /// Champion, change, change, champion.
    #[serde(rename = "ABBA")]
    Abba,
    /// Change, champion, champion, change.
    #[serde(rename = "BAAB")]
    Baab,
}

impl Order {
    /// The sides of the four timed runs, in run order.
    pub const fn sides(self) -> [Side; 4] {
        match self {
            Order::Abba => [Side::Champion, Side::Change, Side::Change, Side::Champion],
            Order::Baab => [Side::Change, Side::Champion, Side::Champion, Side::Change],
        }
    }

    /// The block's ratio d: the mean ln of the champion's two times less that of the change's two. Positive where the
    /// change is faster; its speed-up is `exp(d) - 1`. No trimming: the method clips, the same on both sides.
    ///
    /// Not finite where a time is 0, which no accepted block has (see [`crate::limits::LEAST_REPORTED_RUN_NS`]).
    pub fn ratio(self, ns: &[u64; 4]) -> f64 {
        let ln = ns.map(|ns| libm::log(ns as f64));
        // Each side's two runs are added in run order, so that swapping labels flips the ratio to the last bit.
        let outer = (ln[0] + ln[3]) / 2.0;
        let inner = (ln[1] + ln[2]) / 2.0;
        match self {
            Order::Abba => outer - inner,
            Order::Baab => inner - outer,
        }
    }
}

/// What a block compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pair {
    /// Champion and change: a job's block.
    ChampionAndChange,
    /// The champion under both labels: a block that measures noise (rule D6).
    ChampionTwice,
}

impl Pair {
    /// The program that runs under that label.
    pub const fn program(self, label: Side) -> Side {
        match self {
            Pair::ChampionAndChange => label,
            Pair::ChampionTwice => Side::Champion,
        }
    }
}

/// The raw figures of one block, as the executor reports them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockTimes {
    /// The four timed runs in run order, in nanoseconds.
    #[serde(with = "crate::record::u64_text_array")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, min_items = 4, max_items = 4))]
    pub ns: [u64; 4],
    /// When the first warm-up began.
    pub started: Moment,
    /// The driver's reading just before.
    pub before: Reading,
    /// The driver's reading just after.
    pub after: Reading,
}

/// Why a block was thrown away: a closed list of signals that do not look at the times (rule D3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum ThrowCause {
    /// A CPU quota held the judge back.
    Throttled {
        /// The group whose counter rose.
        group: String,
    },
    /// The device was slowed for heat or power.
    Slowed,
    /// Another program used the device.
    OtherProgram,
    /// What was measured did not run on the granted device (rule B3).
    Elsewhere,
    /// The wall clock stepped.
    ClockStepped,
    /// The machine slept.
    Slept,
    /// The measured process died of infrastructure.
    ProcessLost,
}

impl fmt::Display for ThrowCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&texts::throw_cause(self))
    }
}

/// How many blocks of a series were thrown away for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThrownFor {
    /// The cause; of a throttled block the group that was held back most often in the series.
    pub cause: ThrowCause,
    /// In how many blocks.
    pub blocks: u32,
}

/// One block as it was tried, in raw figures: what the record holds of it (rule D2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "block")]
pub enum TriedBlock {
    /// It counts.
    Accepted {
        /// The order the coin chose.
        order: Order,
        /// Its figures.
        times: BlockTimes,
    },
    /// It was run and thrown away. Which program ran when it happened cannot be told.
    Thrown {
        /// The order the coin chose.
        order: Order,
        /// Its figures, kept to be seen; they count for nothing.
        times: BlockTimes,
        /// Every cause that the readings show; at least one.
        causes: Vec<ThrowCause>,
    },
    /// A measured process died of infrastructure: [`ThrowCause::ProcessLost`].
    Lost {
        /// The order the coin chose.
        order: Order,
        /// When it was reported.
        at: Moment,
        /// The program that ran when it happened.
        running: Side,
        /// What happened.
        why: String,
    },
}

impl TriedBlock {
    /// A block that ran to its end: accepted, or thrown where its readings show a cause.
    pub fn judged(order: Order, times: BlockTimes) -> TriedBlock {
        let causes = throw_causes(&times.before, &times.after);
        if causes.is_empty() {
            TriedBlock::Accepted { order, times }
        } else {
            TriedBlock::Thrown { order, times, causes }
        }
    }

    /// The order the coin chose.
    pub fn order(&self) -> Order {
        match self {
            TriedBlock::Accepted { order, .. } | TriedBlock::Thrown { order, .. } | TriedBlock::Lost { order, .. } => {
                *order
            }
        }
    }

    /// The block's ratio, for a block that counts.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            TriedBlock::Accepted { order, times } => Some(order.ratio(&times.ns)),
            TriedBlock::Thrown { .. } | TriedBlock::Lost { .. } => None,
        }
    }
}

/// Every reason that two readings give to throw away the block between them, in the order of [`ThrowCause`].
///
/// A counter that is missing on either side is unknown, never zero, and throws nothing; so does one that fell, which
/// belongs to a group made anew. Signals that are recorded only throw nothing either.
pub fn throw_causes(before: &Reading, after: &Reading) -> Vec<ThrowCause> {
    let mut causes = Vec::new();
    for counter in &after.throttle {
        let earlier = before.throttle.iter().find(|earlier| earlier.group == counter.group);
        if earlier.is_some_and(|earlier| was_held_back(earlier, counter)) {
            causes.push(ThrowCause::Throttled { group: counter.group.clone() });
        }
    }
    let shows = |names: &[&str]| before.is_busy(names) || after.is_busy(names);
    if shows(&[names::SLOWED]) {
        causes.push(ThrowCause::Slowed);
    }
    if shows(&[names::OTHER_PROGRAMS, names::DIRECT_SAMPLE]) {
        causes.push(ThrowCause::OtherProgram);
    }
    if after.is_elsewhere() {
        causes.push(ThrowCause::Elsewhere);
    }
    if wall_clock_stepped(before.clocks, after.clocks) {
        causes.push(ThrowCause::ClockStepped);
    }
    if slept(before.clocks, after.clocks) {
        causes.push(ThrowCause::Slept);
    }
    causes
}

fn was_held_back(before: &ThrottleCounter, after: &ThrottleCounter) -> bool {
    let rose =
        |before: Option<u64>, after: Option<u64>| before.zip(after).is_some_and(|(before, after)| after > before);
    rose(before.periods, after.periods) || rose(before.held_ns, after.held_ns)
}

fn grown(before: u64, after: u64) -> i128 {
    i128::from(after) - i128::from(before)
}

fn parted(one: i128, other: i128) -> bool {
    (one - other).unsigned_abs() > u128::from(limits::CLOCK_PART_MAX.as_millis())
}

fn wall_clock_stepped(before: Clocks, after: Clocks) -> bool {
    parted(grown(before.wall_ms, after.wall_ms), grown(before.boot_ms, after.boot_ms))
}

fn slept(before: Clocks, after: Clocks) -> bool {
    parted(grown(before.boot_ms, after.boot_ms), grown(before.monotonic_ms, after.monotonic_ms))
}

/// Whether the thrown blocks of a series end its attempt: they fall on one label more than chance allows, so that the
/// change may be steering them, or they are too many (rule D3). The champion twice has nobody to steer it.
pub fn thrown_too_often(pair: Pair, blocks: &[TriedBlock]) -> Option<InfrastructureFailure> {
    let (mut accepted, mut thrown) = (0_u32, 0_u32);
    let (mut on_champion, mut on_change) = (0_u32, 0_u32);
    for block in blocks {
        match block {
            TriedBlock::Accepted { .. } => accepted += 1,
            TriedBlock::Thrown { .. } => thrown += 1,
            TriedBlock::Lost { running, .. } => {
                thrown += 1;
                match running {
                    Side::Champion => on_champion += 1,
                    Side::Change => on_change += 1,
                }
            }
        }
    }
    let labelled = on_champion + on_change;
    let on_side = on_champion.max(on_change);
    if pair == Pair::ChampionAndChange && is_steered(on_side, labelled) {
        let side = if on_change >= on_champion { Side::Change } else { Side::Champion };
        return Some(InfrastructureFailure::ThrowsSteered { side: side.to_string(), on_side, thrown: labelled });
    }
    let share = accepted.saturating_mul(limits::THROWN_PERCENT_MAX) / 100;
    if thrown <= share.max(limits::THROWN_FREE) {
        return None;
    }
    Some(InfrastructureFailure::TooManyThrown { thrown, of: accepted + thrown, causes: thrown_for(blocks) })
}

/// What the blocks of a series were thrown away for, the commonest cause first; of equally common ones the first in
/// the order of [`ThrowCause`]. A block counts once for each cause, however many groups were held back in it.
pub fn thrown_for(blocks: &[TriedBlock]) -> Vec<ThrownFor> {
    let mut throttled = 0_u32;
    let mut held_back: BTreeMap<&str, u32> = BTreeMap::new();
    let mut others: BTreeMap<ThrowCause, u32> = BTreeMap::new();
    for block in blocks {
        let causes: &[ThrowCause] = match block {
            TriedBlock::Accepted { .. } => &[],
            TriedBlock::Thrown { causes, .. } => causes,
            TriedBlock::Lost { .. } => &[ThrowCause::ProcessLost],
        };
        let mut is_throttled = false;
        for cause in causes {
            match cause {
                ThrowCause::Throttled { group } => {
                    is_throttled = true;
                    *held_back.entry(group).or_default() += 1;
                }
                ThrowCause::Slowed
                | ThrowCause::OtherProgram
                | ThrowCause::Elsewhere
                | ThrowCause::ClockStepped
                | ThrowCause::Slept
                | ThrowCause::ProcessLost => *others.entry(cause.clone()).or_default() += 1,
            }
        }
        throttled += u32::from(is_throttled);
    }
    // `max_by_key` gives the last of equals.
    let most = held_back.iter().rev().max_by_key(|(_, times)| **times);
    let throttled = most.map(|(group, _)| (ThrowCause::Throttled { group: (*group).to_owned() }, throttled));
    let mut found: Vec<ThrownFor> =
        throttled.into_iter().chain(others).map(|(cause, blocks)| ThrownFor { cause, blocks }).collect();
    found.sort_by_key(|thrown| std::cmp::Reverse(thrown.blocks));
    found
}

/// Whether that many of `of` throws on one label are more than chance allows.
pub fn is_steered(on_side: u32, of: u32) -> bool {
    lopsided_chance(on_side, of) < limits::STEERED_CHANCE
}

/// The chance that of `of` fair throws at least `on_side` fall on one side, whichever it is.
pub fn lopsided_chance(on_side: u32, of: u32) -> f64 {
    // ln C(of, k) is summed up term by term: a term itself leaves the range of doubles beyond 1,000 throws.
    let mut ln_choices = 0.0;
    let mut chance = 0.0;
    for k in (on_side..=of).rev() {
        chance += libm::exp(ln_choices - f64::from(of) * std::f64::consts::LN_2);
        ln_choices += libm::log(f64::from(k)) - libm::log(f64::from(of - k + 1));
        if k == 0 {
            break;
        }
    }
    f64::min(1.0, 2.0 * chance)
}
