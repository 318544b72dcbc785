//! The four drawings of a stage.

use maud::{Markup, html};

use thermite_core::block::Order;
use thermite_core::record::VerdictRecord;

use crate::plain::plain;

use super::chart::{Chart, Shape, Size, Unit};
use super::figures::{Figures, SignalFigures};
use super::words::{self, percent};

/// How many scales from the middle a drawing reaches; what lies further out is drawn at its edge.
const REACH: f64 = 10.0;

/// Every block's ratio in order, with the coin's order and what was thrown away.
pub(super) fn ratios(id: &str, record: &VerdictRecord, figures: &Figures) -> Markup {
    let (constants, bounds) = (&record.constants, &record.bounds);
    let range = ratio_range(record, figures);
    let thrown = record.blocks.len() - record.after.len();
    let description = format!(
        "{} blocks in the order they were run: {} count, {thrown} were thrown away. The bounds at the end are {} and {}.",
        record.blocks.len(),
        record.after.len(),
        words::lower(bounds.lower),
        words::upper(bounds.upper)
    );
    let mut chart = Chart::new(
        &format!("{id}-ratios"),
        "Speed-up in each block",
        description,
        Size::whole(320.0),
        figures.blocks.len(),
        range,
    );
    levels(&mut chart, record);
    if let Some(lower) = bounds.lower.filter(|lower| chart.shows(*lower)) {
        chart.level(lower, "bound", "lower");
    }
    if let Some(estimate) = bounds.estimate_early_stopped {
        chart.level(estimate, "estimate", "estimate");
    }
    for block in &figures.blocks {
        let place = block.number as f64;
        let order = order(block.order);
        if block.causes.is_empty() {
            let d = block.d.unwrap_or(constants.null_margin);
            let shape = if block.order == Order::Abba { Shape::Disc } else { Shape::Diamond };
            chart.mark(place, d, shape, "counted", &format!("block {}, {order}: {}", block.number, percent(d)));
        } else {
            let causes = block.causes.join("; ");
            let said = block.d.map_or_else(|| "no time".to_owned(), percent);
            let words =
                format!("block {}, {order}, thrown away: {causes} ({said}, which counts for nothing)", block.number);
            chart.mark(place, block.d.unwrap_or(f64::NEG_INFINITY), Shape::Cross, "thrown", &words);
        }
    }
    figure(
        chart.drawn(Unit::SpeedUp, "block, in the order run"),
        html! {
            strong { "Speed-up in each block." } " Above zero the change was faster. A fair coin chose each block's order: "
            (legend("M7 3.4a3.6 3.6 0 1 1-.1 0z", "counted")) " champion first and last, "
            (legend("M7 2.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", "counted")) " change first and last. "
            (legend("M3 3l8 8m0 -8l-8 8", "thrown")) " thrown away, without a look at its times."
        },
    )
}

/// The interval as it closed.
pub(super) fn intervals(id: &str, record: &VerdictRecord, figures: &Figures) -> Markup {
    let counted: Vec<_> = figures.counted().map(|(_, after)| after).collect();
    let range = ratio_range(record, figures);
    let description = format!(
        "After the last block the effect lies above {} and below {}.",
        words::lower(record.bounds.lower),
        words::upper(record.bounds.upper)
    );
    let mut chart = Chart::new(
        &format!("{id}-intervals"),
        "The interval as it closed",
        description,
        Size::whole(240.0),
        counted.len(),
        range,
    );
    let place = |accepted: usize| accepted as f64;
    let band: Vec<_> = counted.iter().map(|after| (place(after.accepted), after.lower, after.upper)).collect();
    chart.band("band", &band);
    levels(&mut chart, record);
    let lower: Vec<_> = counted.iter().map(|after| (place(after.accepted), after.lower)).collect();
    let upper: Vec<_> = counted.iter().map(|after| (place(after.accepted), after.upper)).collect();
    chart.steps("bound", &lower);
    chart.steps("bound upper", &upper);
    if let Some(lower) = record.bounds.lower {
        chart.label(lower, "bound", "lower");
    }
    if let Some(upper) = record.bounds.upper {
        chart.label(upper, "bound upper", "upper");
    }
    figure(
        chart.drawn(Unit::SpeedUp, "blocks that count"),
        html! {
            strong { "The interval as it closed." } " After each block: what the effect is above, but for a chance of "
            (super::share(record.constants.alpha)) ", and below, but for a chance of " (super::share(record.constants.beta))
            ". It only ever narrows; a side that is open reaches the edge."
        },
    )
}

/// W and F against what decides.
pub(super) fn evidence(id: &str, record: &VerdictRecord, figures: &Figures) -> Markup {
    let (alpha, beta) = (record.constants.alpha, record.constants.beta);
    let (win, futile) = ((1.0 / alpha).ln(), (1.0 / beta).ln());
    let counted: Vec<_> = figures.counted().map(|(_, after)| after).collect();
    let all = counted.iter().flat_map(|after| [after.ln_w, after.ln_f]).filter(|value| value.is_finite());
    let (low, high) = all.fold((0.0_f64, win.max(futile)), |(low, high), value| (low.min(value), high.max(value)));
    // A stage that is lost drives one of the two far down, where its depth says nothing more.
    let range = (low.max(-1.5 * high), high);
    let last = counted.last();
    let description = format!(
        "ln W ends at {:.2}, and {win:.2} decides for a win. ln F ends at {:.2}, and {futile:.2} decides against the plan.",
        last.map_or(0.0, |after| after.ln_w),
        last.map_or(0.0, |after| after.ln_f)
    );
    let mut chart = Chart::new(
        &format!("{id}-evidence"),
        "Evidence against its thresholds",
        description,
        Size::whole(240.0),
        counted.len(),
        range,
    );
    chart.level(0.0, "zero", "");
    chart.level(win, "threshold for", "W decides");
    if (win - futile).abs() > 1e-9 {
        chart.level(futile, "threshold against", "F decides");
    }
    chart.line("trace for", counted.iter().map(|after| (after.accepted as f64, Some(after.ln_w))));
    chart.line("trace against", counted.iter().map(|after| (after.accepted as f64, Some(after.ln_f))));
    if let Some(last) = last {
        chart.label(last.ln_w.max(range.0), "for", "ln W");
        chart.label(last.ln_f.max(range.0), "against", "ln F");
    }
    figure(
        chart.drawn(Unit::Plain, "blocks that count"),
        html! {
            strong { "Evidence against its thresholds." } " ln W, that the change is faster"
            @if record.constants.null_margin > 0.0 { " than " (percent(record.constants.null_margin)) }
            ", decides at ln(1/" (alpha) ") = " (format!("{win:.2}")) " together with the gate; ln F, that it is not as fast as planned, at ln(1/"
            (beta) ") = " (format!("{futile:.2}")) ". With nothing to find, W reaches its threshold with a chance of at most "
            (super::share(alpha)) ", however often one looks."
        },
    )
}

/// What the driver read before and after each block.
pub(super) fn readings(id: &str, figures: &Figures) -> Markup {
    let held = figures.held_ms.iter().flatten().copied().fold(0.0, f64::max);
    let parted = figures.parted_ms.iter().flatten().copied().fold(0.0, |most: f64, part| most.max(part.abs()));
    html! {
        h3 { "Readings" }
        p { "What the driver read before (line) and after (dotted) each block, the judge's own share taken off where it says so; "
            "above its limit a device is not ready." }
        div class="multiples" {
            @for (at, signal) in figures.signals.iter().enumerate() { (one_signal(&format!("{id}-signal{at}"), signal)) }
            @if figures.held_ms.iter().any(Option::is_some) {
                (one_series(&format!("{id}-held"), "Held back by a CPU quota", "ms", &figures.held_ms, held))
            }
            @if figures.parted_ms.iter().any(Option::is_some) {
                (one_series(&format!("{id}-clocks"), "The clocks parted by", "ms", &figures.parted_ms, parted))
            }
        }
    }
}

fn one_signal(id: &str, signal: &SignalFigures) -> Markup {
    let values = || signal.before.iter().chain(&signal.after).flatten().copied();
    let most = values().fold(signal.limit.unwrap_or(0.0), f64::max);
    let least = values().fold(0.0, f64::min);
    let reached = values().fold(f64::NEG_INFINITY, f64::max);
    let (name, unit) = (plain(&signal.name), plain(&signal.unit));
    let limit = signal.limit.map(|limit| format!(", limit {limit:.2}")).unwrap_or_default();
    let description = format!("{name}: at most {reached:.2} {unit}{limit}.");
    let mut chart =
        Chart::new(id, &name, description, Size::HALF, signal.before.len(), (least, most.max(least + 1e-6)));
    if let Some(limit) = signal.limit {
        chart.level(limit, "threshold against", "limit");
    }
    chart.line("trace reading", numbered(&signal.before));
    chart.line("trace reading after", numbered(&signal.after));
    figure(
        chart.drawn(Unit::Plain, "block"),
        html! {
            strong { (name) } " in " (unit) ": at most " (format!("{reached:.2}")) (limit)
        },
    )
}

fn one_series(id: &str, name: &str, unit: &str, values: &[Option<f64>], most: f64) -> Markup {
    let description = format!("{name}: at most {most:.1} {unit} in a block.");
    let lowest = values.iter().flatten().copied().fold(0.0, f64::min);
    let mut chart = Chart::new(id, name, description, Size::HALF, values.len(), (lowest, most.max(1.0)));
    chart.level(0.0, "zero", "");
    chart.line("trace reading", numbered(values));
    figure(
        chart.drawn(Unit::Plain, "block"),
        html! { strong { (name) } " at most " (format!("{most:.1}")) " " (unit) " in a block" },
    )
}

fn numbered(values: &[Option<f64>]) -> impl Iterator<Item = (f64, Option<f64>)> {
    values.iter().enumerate().map(|(at, value)| (at as f64 + 1.0, *value))
}

/// Zero, the gate and the plan.
fn levels(chart: &mut Chart, record: &VerdictRecord) {
    let constants = &record.constants;
    chart.level(0.0, "zero", "equal");
    if chart.shows(constants.gate) && constants.gate > 0.0 {
        chart.level(constants.gate, "gate", &format!("gate {}", words::share_down(constants.gate)));
    }
    if chart.shows(constants.plan_effect) {
        chart.level(constants.plan_effect, "plan", &format!("plan {}", words::share_down(constants.plan_effect)));
    }
}

/// What both drawings of the effect cover: all blocks that count, but for what lies far out, and all levels.
fn ratio_range(record: &VerdictRecord, figures: &Figures) -> (f64, f64) {
    let mut ratios: Vec<f64> = figures.counted().filter_map(|(block, _)| block.d).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
    let reach = REACH * record.constants.scale;
    let near = ratios.iter().copied().filter(|ratio| (ratio - middle).abs() <= reach);
    let bounds = &record.bounds;
    let levels =
        [Some(0.0), Some(record.constants.plan_effect), bounds.lower, bounds.upper, bounds.estimate_early_stopped];
    let all = near.chain(levels.into_iter().flatten()).filter(|value| value.is_finite());
    all.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
}

pub(super) fn order(order: Order) -> &'static str {
    match order {
        Order::Abba => "ABBA",
        Order::Baab => "BAAB",
    }
}

fn figure(drawing: Markup, caption: Markup) -> Markup {
    html! { figure { (drawing) figcaption { (caption) } } }
}

fn legend(path: &str, class: &str) -> Markup {
    html! { svg class="legend" viewBox="0 0 14 14" aria-hidden="true" { path class=(class) d=(path) {} } }
}
