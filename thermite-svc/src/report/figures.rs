//! The figures of one stage as a report shows them, made from its record: every block tried, and the intervals as they
//! closed. Nothing here decides; the last interval is the record's own.

use thermite_core::block::{BlockTimes, Order, TriedBlock};
use thermite_core::readiness::Reading;
use thermite_core::record::{Bounds, VerdictRecord};
use thermite_core::verdict::Process;

use super::words;

/// Blocks up to which every interval is drawn: each costs a pass over all blocks before it.
const INTERVALS_MOST: usize = 1_000;

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Every block tried, in order.
    pub blocks: Vec<BlockFigures>,
    /// What was looked at before and after each block, by name.
    pub signals: Vec<SignalFigures>,
    /// How long a quota held the judge back within each block, in milliseconds; none where no counter is known.
    pub held_ms: Vec<Option<f64>>,
    /// How far the clocks parted within each block, in milliseconds.
    pub parted_ms: Vec<Option<f64>>,
}

/// One block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFigures {
    /// Its place among all tried, from 1.
    pub number: usize,
    /// The order that its coin chose.
    pub order: Order,
    /// The four timed runs in run order, in nanoseconds; none for one that was lost.
    pub ns: Option<[u64; 4]>,
    /// Its ratio, also where it was thrown away; none for one that was lost.
    pub d: Option<f64>,
    /// Why it was thrown away; empty for one that counts.
    pub causes: Vec<String>,
    /// What followed, where it counts.
    pub after: Option<After>,
}

/// What followed from a block that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct After {
    /// Its place among those that count, from 1.
    pub accepted: usize,
    /// ln W at the null margin.
    pub ln_w: f64,
    /// ln F at the plan effect.
    pub ln_f: f64,
    /// The lower bound so far.
    pub lower: Option<f64>,
    /// The upper bound so far.
    pub upper: Option<f64>,
}

/// One signal over all blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalFigures {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Its limit, where it has one.
    pub limit: Option<f64>,
    /// Its value before each block.
    pub before: Vec<Option<f64>>,
    /// Its value after each block.
    pub after: Vec<Option<f64>>,
}

impl Figures {
    /// The figures of a decided stage.
    pub fn of(record: &VerdictRecord) -> Figures {
        let intervals = intervals(record);
        let mut accepted = 0;
        let mut blocks = Vec::with_capacity(record.blocks.len());
        for (at, block) in record.blocks.iter().enumerate() {
            let times = times(block);
            let after = match block {
                TriedBlock::Accepted { .. } => record.after.get(accepted).map(|after| {
                    let bounds = intervals[accepted];
                    accepted += 1;
                    After { accepted, ln_w: after.ln_w, ln_f: after.ln_f, lower: bounds.0, upper: bounds.1 }
                }),
                TriedBlock::Thrown { .. } | TriedBlock::Lost { .. } => None,
            };
            blocks.push(BlockFigures {
                number: at + 1,
                order: block.order(),
                ns: times.map(|times| times.ns),
                d: times.map(|times| block.order().ratio(&times.ns)).filter(|d| d.is_finite()),
                causes: words::causes_of(block),
                after,
            });
        }
        let all: Vec<Option<&BlockTimes>> = record.blocks.iter().map(times).collect();
        Figures {
            blocks,
            signals: signals(&all),
            held_ms: all.iter().map(|times| times.and_then(held_ms)).collect(),
            parted_ms: all.iter().map(|times| times.map(parted_ms)).collect(),
        }
    }

    /// The blocks that count, with what followed from each.
    pub fn counted(&self) -> impl Iterator<Item = (&BlockFigures, After)> {
        self.blocks.iter().filter_map(|block| Some((block, block.after?)))
    }
}

fn times(block: &TriedBlock) -> Option<&BlockTimes> {
    match block {
        TriedBlock::Accepted { times, .. } | TriedBlock::Thrown { times, .. } => Some(times),
        TriedBlock::Lost { .. } => None,
    }
}

/// The bounds after each block that counts. In a long stage they are made again only at some, and hold in between.
fn intervals(record: &VerdictRecord) -> Vec<(Option<f64>, Option<f64>)> {
    let blocks = record.after.len();
    let stride = blocks.div_ceil(INTERVALS_MOST).max(1);
    let mut process = Process::new(record.constants.clone());
    let (mut lower, mut upper) = (None, None);
    let mut all = Vec::with_capacity(blocks);
    for (at, after) in record.after.iter().enumerate() {
        // A record that was tampered with may go on after its decision; what it says of its bounds is shown as said.
        if process.decision().verdict().is_none() && after.d.is_finite() {
            process.add(after.d);
            if at % stride == 0 || at + 1 == blocks {
                lower = process.lower_after(lower);
                upper = process.upper_after(upper);
            }
        }
        all.push((lower, upper));
    }
    if let Some(last) = all.last_mut() {
        let Bounds { lower, upper, estimate_early_stopped: _ } = record.bounds;
        *last = (lower, upper);
    }
    all
}

fn signals(all: &[Option<&BlockTimes>]) -> Vec<SignalFigures> {
    let mut signals: Vec<SignalFigures> = Vec::new();
    for reading in all.iter().flatten().flat_map(|times| [&times.before, &times.after]) {
        for signal in reading.signals.iter().filter(|signal| signal.value.is_some_and(f64::is_finite)) {
            match signals.iter_mut().find(|known| known.name == signal.name) {
                Some(known) => known.limit = known.limit.or(signal.limit),
                None => signals.push(SignalFigures {
                    name: signal.name.clone(),
                    unit: signal.unit.clone(),
                    limit: signal.limit,
                    before: Vec::new(),
                    after: Vec::new(),
                }),
            }
        }
    }
    for known in &mut signals {
        let value = |reading: &Reading| {
            let signal = reading.signals.iter().find(|signal| signal.name == known.name)?;
            signal.value.filter(|value| value.is_finite())
        };
        known.before = all.iter().map(|times| times.and_then(|times| value(&times.before))).collect();
        known.after = all.iter().map(|times| times.and_then(|times| value(&times.after))).collect();
    }
    signals
}

/// The most that any group was held back within the block.
fn held_ms(times: &BlockTimes) -> Option<f64> {
    let groups = times.after.throttle.iter().filter_map(|after| {
        let before = times.before.throttle.iter().find(|before| before.group == after.group)?;
        Some(after.held_ns?.saturating_sub(before.held_ns?) as f64 / 1e6)
    });
    groups.fold(None, |most: Option<f64>, held| Some(most.map_or(held, |most| most.max(held))))
}

/// By how much two of the three clocks differ in what passed: a step of the wall clock, or a suspend.
fn parted_ms(times: &BlockTimes) -> f64 {
    let (before, after) = (times.before.clocks, times.after.clocks);
    let grown = |before: u64, after: u64| after as f64 - before as f64;
    let boot = grown(before.boot_ms, after.boot_ms);
    let wall = grown(before.wall_ms, after.wall_ms) - boot;
    let suspend = boot - grown(before.monotonic_ms, after.monotonic_ms);
    if wall.abs() >= suspend.abs() { wall } else { suspend }
}
