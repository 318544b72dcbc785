//! Whether a card is quiet enough to time on, and what was seen on it during a block (rules B3, D1, D3).
//!
//! The driver samples a card all the time and only reads figures; what they mean is judged here. A figure that a card
//! does not tell is none, and none is unknown, never zero.

use std::collections::BTreeSet;

use crate::limits;
use crate::readiness::{Signal, SignalState, names};
use crate::texts;
use crate::time::Moment;

/// What a card is, as far as its limits depend on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// Its model, such as `NVIDIA H200`.
    pub model: String,
    /// Its memory in bytes.
    pub memory_total: Option<u64>,
    /// The temperature at which it slows itself down, in degrees Celsius.
    pub slow_down_at: Option<f64>,
}

/// What a card said at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// How much of the last moments it was busy, in percent.
    pub use_percent: Option<f64>,
    /// Its memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// The programs that compute on it.
    pub programs: Option<Programs>,
    /// How many programs draw on it.
    pub graphics: Option<u32>,
    /// Its temperature, in degrees Celsius.
    pub temperature: Option<f64>,
    /// Why its clocks are what they are: NVML's bits, also those that nobody has named.
    pub clock_reasons: Option<u64>,
    /// Its processor clock in MHz.
    pub sm_clock: Option<f64>,
    /// Its memory clock in MHz.
    pub memory_clock: Option<f64>,
    /// What it draws, in watts.
    pub power: Option<f64>,
}

/// Programs that compute on a card, told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// Those of the judge's block.
    pub own: u32,
    /// All others.
    pub others: u32,
}

impl Programs {
    /// Tells the programs that a card lists apart. `owned` says of each whether it is the block's, none where its pid
    /// means nothing here: in a container the pids are the host's. `own_live` is how many live processes the block has.
    ///
    /// Of those that cannot be told, as many may be the block's as it has live processes that were not found among the
    /// others; the rest are not (rule D1: counts before, with ours, back).
    pub fn tell_apart(owned: &[Option<bool>], own_live: usize) -> Programs {
        let count = |what: Option<bool>| owned.iter().filter(|owned| **owned == what).count();
        let (own, others, untold) = (count(Some(true)), count(Some(false)), count(None));
        let may_be_own = untold.min(own_live.saturating_sub(own));
        let few = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Programs { own: few(own + may_be_own), others: few(others + untold - may_be_own) }
    }
}

/// Whether a card of that model must have the signal `Ok` to be ready (rule D1); what need not be is recorded only.
pub fn is_required(model: &str, signal: &str) -> bool {
    match signal {
        // It shares the machine's memory, and its driver does not say what of it is in use.
        names::GPU_MEMORY => !model.contains("GB10"),
        names::GPU_USE | names::OTHER_PROGRAMS | names::TEMPERATURE | names::SLOWED => true,
        _ => false,
    }
}

/// What a card's memory holds while nobody computes on it: the least that was ever seen then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resting {
    lowest: Option<u64>,
}

impl Resting {
    /// Learns from a sample that was taken apart from the judge's own use.
    pub fn learn(&mut self, sample: &Sample) {
        let nobody = sample.programs.is_some_and(|programs| programs == Programs::default());
        if let (true, Some(used)) = (nobody, sample.memory_used) {
            self.lowest = Some(self.lowest.map_or(used, |lowest| lowest.min(used)));
        }
    }

    /// The resting level in bytes. What a card that rests can hold at most is believed, no more: memory that a dead
    /// process held before the rig came does not become the level.
    pub fn level(&self, card: &Card) -> Option<u64> {
        let share = card.memory_total.map_or(0.0, |total| total as f64 * limits::GPU_RESTING_SHARE_MAX);
        self.lowest.map(|lowest| lowest.min((share as u64).max(limits::GPU_RESTING_BYTES_MAX)))
    }

    /// What may be in use at most where nobody computes (rules A7, D1).
    pub fn memory_max(&self, card: &Card) -> Option<u64> {
        let share = card.memory_total.map_or(0.0, |total| total as f64 * limits::GPU_MEMORY_SHARE_OVER_RESTING);
        self.level(card).map(|level| level + (share as u64).max(limits::GPU_MEMORY_BYTES_OVER_RESTING))
    }
}

/// What a card says before a block (rule D1): `samples` are the newest, in order, apart from the judge's own use.
pub fn before_block(card: &Card, resting: &Resting, samples: &[Sample]) -> Vec<Signal> {
    let newest: &[Sample] = &samples[samples.len().saturating_sub(limits::GPU_USE_SAMPLES_LEAST)..];
    let is_enough = newest.len() == limits::GPU_USE_SAMPLES_LEAST;
    let last = samples.last();
    let figures: Option<Vec<f64>> = newest.iter().map(|sample| sample.use_percent).collect();
    let usage = figures.filter(|_| is_enough).and_then(median);
    // A program that came and went between two looks, and a card that was slowed between them, is no quiet card yet.
    let others: Option<Vec<u32>> = newest.iter().map(|sample| sample.programs.map(|of| of.own + of.others)).collect();
    let others = others.filter(|_| is_enough).and_then(|others| others.into_iter().max());
    let reasons: Option<Vec<u64>> = newest.iter().map(|sample| sample.clock_reasons).collect();
    let reasons = reasons.filter(|_| is_enough).map(|all| all.into_iter().fold(0, |bits, more| bits | more));
    let mut signals = vec![
        at_most(card, names::GPU_USE, usage, limits::GPU_USE_MAX, "%"),
        memory(card, resting, last.and_then(|last| last.memory_used)),
        at_most(card, names::OTHER_PROGRAMS, others.map(f64::from), 0.0, "programs"),
        at_most(
            card,
            names::TEMPERATURE,
            last.and_then(|last| last.temperature),
            card.slow_down_at.map_or(limits::GPU_TEMPERATURE_MAX, |at| at - limits::GPU_TEMPERATURE_BELOW_SLOW_DOWN),
            "C",
        ),
        slowed(card, reasons),
    ];
    signals.extend(last.into_iter().flat_map(|last| told(last.graphics, last)));
    signals
}

/// What was seen on a card from the beginning of a block to right after it, in bounded room however long it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    samples: u32,
    own: Option<u32>,
    others: Option<u32>,
    reasons: Option<u64>,
    use_most: Option<f64>,
    memory_most: Option<u64>,
    hottest: Option<f64>,
    last: Sample,
}

impl Seen {
    /// Takes a sample of the block in.
    pub fn take(&mut self, sample: &Sample) {
        fn most<T: PartialOrd>(known: &mut Option<T>, figure: Option<T>) {
            if let Some(figure) = figure
                && known.as_ref().is_none_or(|known| *known < figure)
            {
                *known = Some(figure);
            }
        }
        self.samples = self.samples.saturating_add(1);
        most(&mut self.own, sample.programs.map(|of| of.own));
        most(&mut self.others, sample.programs.map(|of| of.others));
        most(&mut self.use_most, sample.use_percent);
        most(&mut self.memory_most, sample.memory_used);
        most(&mut self.hottest, sample.temperature);
        if let Some(bits) = sample.clock_reasons {
            self.reasons = Some(self.reasons.unwrap_or(0) | bits);
        }
        self.last = sample.clone();
    }

    /// Whether a program of the block was seen on the card.
    pub fn is_placed(&self) -> bool {
        self.own.is_some_and(|own| own > 0)
    }
}

/// What a card says after a block: whether it was slowed or shared during it or right after it (rule D3), and in the
/// first block of a hold whether what was measured ran on it at all (rule B3). Its own use is no fault of a block.
pub fn after_block(card: &Card, seen: &Seen, is_first: bool) -> Vec<Signal> {
    let memory = |bytes: Option<u64>| bytes.map(mib);
    let mut placed = Signal {
        name: names::PLACEMENT.to_owned(),
        value: seen.own.map(f64::from),
        limit: None,
        unit: "programs".to_owned(),
        state: match seen.own {
            None => SignalState::Unknown,
            Some(0) => SignalState::Busy,
            Some(_) => SignalState::Ok,
        },
        required: is_first,
    };
    if !is_first && placed.state == SignalState::Busy {
        // A block may be too short to be seen: once is enough.
        placed.state = SignalState::Unknown;
        placed.value = None;
    }
    let mut signals = vec![
        placed,
        at_most(card, names::OTHER_PROGRAMS, seen.others.map(f64::from), 0.0, "programs"),
        slowed(card, seen.reasons),
        recorded(names::GPU_USE, seen.use_most, "%"),
        recorded(names::GPU_MEMORY, memory(seen.memory_most), "MiB"),
        recorded(names::TEMPERATURE, seen.hottest, "C"),
    ];
    signals.extend(told(seen.last.graphics, &seen.last));
    signals
}

/// What is left on a card after a hold, as far as it says: none where nothing is (rule A7). `listed` describes each
/// program that it lists.
pub fn left_over(card: &Card, resting: &Resting, sample: &Sample, listed: &[String]) -> Option<String> {
    if !listed.is_empty() {
        return Some(texts::card_not_released(&listed.join(", "), sample.memory_used.map(mib)));
    }
    let unknown = |signal: &str| is_required(&card.model, signal).then(|| texts::card_does_not_tell(signal));
    let Some(programs) = sample.programs else { return unknown(names::OTHER_PROGRAMS) };
    if programs != Programs::default() {
        let count = format!("{} programs", programs.own + programs.others);
        return Some(texts::card_not_released(&count, sample.memory_used.map(mib)));
    }
    match (sample.memory_used, resting.memory_max(card)) {
        (Some(used), Some(most)) => (used > most).then(|| texts::card_holds_memory(mib(used), mib(most))),
        (None, _) | (_, None) => unknown(names::GPU_MEMORY),
    }
}

/// The bits of `reasons` by which a card is slowed, in words.
pub fn slowed_by(reasons: u64) -> Vec<&'static str> {
    const NAMES: [(u64, &str); 5] = [
        (0x04, "power cap"),
        (0x08, "hardware slow-down"),
        (0x20, "heat by software"),
        (0x40, "heat by hardware"),
        (0x80, "power brake"),
    ];
    NAMES.iter().filter(|(bit, _)| reasons & limits::GPU_SLOWED_BITS & bit != 0).map(|(_, name)| *name).collect()
}

/// The bits of `reasons` that this version has no name for: told, never judged.
pub fn unnamed(reasons: u64) -> u64 {
    /// Idle, application clocks, the five that slow, sync boost, display clock.
    const NAMED: u64 = 0x1FF;
    reasons & !NAMED
}

/// The names of those signals of a reading that a card does not tell.
pub fn untold(signals: &[Signal]) -> BTreeSet<String> {
    signals.iter().filter(|signal| signal.state == SignalState::Unknown).map(|signal| signal.name.clone()).collect()
}

fn memory(card: &Card, resting: &Resting, used: Option<u64>) -> Signal {
    let Some(most) = resting.memory_max(card) else {
        // Without a resting level the figure says nothing.
        let mut signal = recorded(names::GPU_MEMORY, None, "MiB");
        signal.required = is_required(&card.model, names::GPU_MEMORY);
        return signal;
    };
    at_most(card, names::GPU_MEMORY, used.map(mib), mib(most), "MiB")
}

fn slowed(card: &Card, reasons: Option<u64>) -> Signal {
    let bits = reasons.map(|reasons| reasons & limits::GPU_SLOWED_BITS);
    let by = reasons.map(slowed_by).unwrap_or_default();
    Signal {
        name: names::SLOWED.to_owned(),
        value: bits.map(|bits| bits as f64),
        limit: None,
        unit: if by.is_empty() { String::new() } else { format!("({})", by.join(", ")) },
        state: match bits {
            None => SignalState::Unknown,
            Some(0) => SignalState::Ok,
            Some(_) => SignalState::Busy,
        },
        required: is_required(&card.model, names::SLOWED),
    }
}

/// What is recorded beside the signals that decide.
fn told(graphics: Option<u32>, last: &Sample) -> Vec<Signal> {
    vec![
        recorded("graphics_programs", graphics.map(f64::from), "programs"),
        recorded("clock_reasons", last.clock_reasons.map(|bits| bits as f64), ""),
        recorded("unnamed_clock_reasons", last.clock_reasons.map(|bits| unnamed(bits) as f64), ""),
        recorded("sm_clock", last.sm_clock, "MHz"),
        recorded("memory_clock", last.memory_clock, "MHz"),
        recorded("power", last.power, "W"),
    ]
}

fn recorded(name: &str, value: Option<f64>, unit: &str) -> Signal {
    let value = value.filter(|value| value.is_finite());
    let state = if value.is_some() { SignalState::Ok } else { SignalState::Unknown };
    Signal { name: name.to_owned(), value, limit: None, unit: unit.to_owned(), state, required: false }
}

fn at_most(card: &Card, name: &str, value: Option<f64>, limit: f64, unit: &str) -> Signal {
    let value = value.filter(|value| value.is_finite());
    let state = match value {
        None => SignalState::Unknown,
        Some(value) if value <= limit => SignalState::Ok,
        Some(_) => SignalState::Busy,
    };
    let required = is_required(&card.model, name);
    Signal { name: name.to_owned(), value, limit: Some(limit), unit: unit.to_owned(), state, required }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    if figures.is_empty() || figures.iter().any(|figure| !figure.is_finite()) {
        return None;
    }
    figures.sort_by(f64::total_cmp);
    let (below, above) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
    Some((below + above) / 2.0)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
