//! Drawings as SVG: marks with a shape of their own for what colour also tells, a title and a description for readers
//! who do not see them, colours and strokes by class only.

use maud::{Markup, html};

const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// How large a drawing is made; it scales with the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
}

impl Size {
    /// As wide as the page.
    pub(super) const fn whole(height: f64) -> Size {
        Size { width: 860.0, height, left: 64.0, right: 92.0 }
    }

    /// Half as wide, so that two stand side by side with letters of the same size.
    pub(super) const HALF: Size = Size { width: 420.0, height: 130.0, left: 46.0, right: 44.0 };
}

/// A drawing: what it is called, what it shows in words, and its marks.
#[derive(Debug)]
pub(super) struct Chart {
    id: String,
    title: String,
    description: String,
    size: Size,
    x: Scale,
    y: Scale,
    marks: Vec<Markup>,
    labels: Vec<Label>,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
}

/// A word at the right edge, beside what it names.
#[derive(Debug)]
struct Label {
    y: f64,
    class: &'static str,
    text: String,
}

/// What a mark looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A disc: a block in the order ABBA.
    Disc,
    /// A diamond: a block in the order BAAB.
    Diamond,
    /// A cross: a block that was thrown away.
    Cross,
}

/// How the numbers on the upright axis are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// As they are.
    Plain,
    /// Logarithms of a speed-up, as percent.
    SpeedUp,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let share = if self.to > self.from { (value - self.from) / (self.to - self.from) } else { 0.5 };
        self.low + share.clamp(-0.02, 1.02) * (self.high - self.low)
    }
}

impl Chart {
    /// An empty drawing over `blocks` blocks, whose upright axis covers `range`.
    pub(super) fn new(
        id: &str,
        title: &str,
        description: String,
        size: Size,
        blocks: usize,
        range: (f64, f64),
    ) -> Chart {
        let (low, high) = range;
        let room = ((high - low) * 0.06).max(1e-9);
        Chart {
            id: id.to_owned(),
            title: title.to_owned(),
            description,
            size,
            x: Scale { from: 0.5, to: blocks as f64 + 0.5, low: size.left, high: size.width - size.right },
            y: Scale { from: low - room, to: high + room, low: size.height - BOTTOM, high: TOP },
            marks: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Whether a value lies within the upright axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        (self.y.from..=self.y.to).contains(&value)
    }

    /// A level line over the whole width, named at its end.
    pub(super) fn level(&mut self, value: f64, class: &'static str, name: &str) {
        let y = self.y.at(value);
        let (left, right) = (self.x.low, self.x.high);
        self.marks.push(html! { line class=(class) x1=(px(left)) x2=(px(right)) y1=(px(y)) y2=(px(y)) {} });
        self.label(value, class, name);
    }

    /// A word at the right edge at the height of a value.
    pub(super) fn label(&mut self, value: f64, class: &'static str, text: &str) {
        self.labels.push(Label { y: self.y.at(value), class, text: text.to_owned() });
    }

    /// A mark at a block, with words that a pointer brings up. What lies outside is drawn at the edge, and said to;
    /// what has no value stands on the lower edge, at minus infinity.
    pub(super) fn mark(&mut self, block: f64, value: f64, shape: Shape, class: &'static str, words: &str) {
        let (x, y) = (self.x.at(block), self.y.at(value));
        let outside = if self.shows(value) || value.is_infinite() { "" } else { " (outside the drawing)" };
        let title = html! { title { (words) (outside) } };
        let r = if self.x.to > 160.0 { 2.4 } else { 3.6 };
        self.marks.push(match shape {
            Shape::Disc => html! { circle class=(class) cx=(px(x)) cy=(px(y)) r=(px(r)) { (title) } },
            Shape::Diamond => {
                let r = r * 1.25;
                let path = format!("M{} {}l{r:.1} {r:.1}l-{r:.1} {r:.1}l-{r:.1} -{r:.1}z", px(x), px(y - r));
                html! { path class=(class) d=(path) { (title) } }
            }
            Shape::Cross => {
                let (side, whole) = (r * 1.1, r * 2.2);
                let path = format!(
                    "M{} {}l{whole:.1} {whole:.1}m0 -{whole:.1}l-{whole:.1} {whole:.1}",
                    px(x - side),
                    px(y - side)
                );
                html! { path class=(class) d=(path) { (title) } }
            }
        });
    }

    /// A line through the values there are; it breaks where there is none.
    pub(super) fn line(&mut self, class: &'static str, values: impl IntoIterator<Item = (f64, Option<f64>)>) {
        let mut path = String::new();
        let mut pen_down = false;
        for (block, value) in values {
            match value.filter(|value| value.is_finite()) {
                Some(value) => {
                    let verb = if pen_down { 'L' } else { 'M' };
                    path.push_str(&format!("{verb}{} {}", px(self.x.at(block)), px(self.y.at(value))));
                    pen_down = true;
                }
                None => pen_down = false,
            }
        }
        if !path.is_empty() {
            self.marks.push(html! { path class=(class) d=(path) {} });
        }
    }

    /// The area between two steps that hold from each block to the next; an open side reaches the edge.
    pub(super) fn band(&mut self, class: &'static str, bounds: &[(f64, Option<f64>, Option<f64>)]) {
        let Some((first, ..)) = bounds.first() else { return };
        let (top, bottom) = (self.y.high, self.y.low);
        let mut upper = format!("M{} {}", px(self.x.at(*first)), px(top));
        let mut lower = Vec::new();
        for (at, (block, low, high)) in bounds.iter().enumerate() {
            let x = self.x.at(*block);
            let until = bounds.get(at + 1).map_or(self.x.high, |(next, ..)| self.x.at(*next));
            let high = high.map_or(top, |high| self.y.at(high));
            let low = low.map_or(bottom, |low| self.y.at(low));
            upper.push_str(&format!("L{} {y}L{} {y}", px(x), px(until), y = px(high)));
            lower.push(format!("L{} {y}L{} {y}", px(until), px(x), y = px(low)));
        }
        let path = lower.iter().rev().fold(upper, |path, step| path + step) + "z";
        self.marks.push(html! { path class=(class) d=(path) {} });
    }

    /// Steps that hold from each block to the next, where there is a value.
    pub(super) fn steps(&mut self, class: &'static str, values: &[(f64, Option<f64>)]) {
        let mut path = String::new();
        let mut pen_down = false;
        for (at, (block, value)) in values.iter().enumerate() {
            // What lies outside would be drawn along the edge, as if it were so.
            let Some(value) = value.filter(|value| self.shows(*value)) else {
                pen_down = false;
                continue;
            };
            let until = values.get(at + 1).map_or(self.x.high, |(next, _)| self.x.at(*next));
            let verb = if pen_down { 'L' } else { 'M' };
            let (x, y) = (px(self.x.at(*block)), px(self.y.at(value)));
            path.push_str(&format!("{verb}{x} {y}L{} {y}", px(until)));
            pen_down = true;
        }
        if !path.is_empty() {
            self.marks.push(html! { path class=(class) d=(path) {} });
        }
    }

    /// The drawing with its axes; `across` says what the level axis counts.
    pub(super) fn drawn(self, unit: Unit, across: &str) -> Markup {
        let (title, description) = (format!("{}-title", self.id), format!("{}-description", self.id));
        let (left, right, bottom) = (px(self.x.low), px(self.x.high), px(self.y.low));
        let Size { width, height, .. } = self.size;
        let upright = ticks(self.y.from, self.y.to, height / 44.0, unit);
        let level = level_ticks(self.x.to - 0.5, width / 80.0);
        let labels = spread(self.labels, TOP + 4.0, self.y.low);
        html! {
            svg role="img" viewBox=(format!("0 0 {width} {height}")) aria-labelledby=(format!("{title} {description}")) {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                g aria-hidden="true" {
                    @for (value, words) in &upright {
                        @let y = px(self.y.at(*value));
                        line class="grid" x1=(left) x2=(right) y1=(y) y2=(y) {}
                        text class="tick" x=(px(self.x.low - 8.0)) y=(y) dy="0.32em" text-anchor="end" { (words) }
                    }
                    line class="axis" x1=(left) x2=(right) y1=(bottom) y2=(bottom) {}
                    @for block in level {
                        @let x = px(self.x.at(block));
                        text class="tick" x=(x) y=(px(self.y.low + 16.0)) text-anchor="middle" { (block) }
                    }
                    text class="tick" x=(right) y=(px(height - 2.0)) text-anchor="end" { (across) }
                }
                g { @for mark in &self.marks { (mark) } }
                g aria-hidden="true" {
                    @for label in labels {
                        text class=(format!("label {}", label.class)) x=(px(self.x.high + 8.0)) y=(px(label.y)) dy="0.32em" {
                            (label.text)
                        }
                    }
                }
            }
        }
    }
}

/// A length with one digit, which is finer than any screen shows.
fn px(length: f64) -> String {
    format!("{length:.1}")
}

/// Labels moved apart so that each can be read, in their order.
fn spread(mut labels: Vec<Label>, top: f64, bottom: f64) -> Vec<Label> {
    const APART: f64 = 14.0;
    labels.sort_by(|one, other| one.y.total_cmp(&other.y));
    let mut least = top;
    for label in &mut labels {
        label.y = label.y.max(least);
        least = label.y + APART;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(most);
        most = label.y - APART;
    }
    labels
}

/// Round values on the upright axis, about `wanted` of them, with their words.
fn ticks(from: f64, to: f64, wanted: f64, unit: Unit) -> Vec<(f64, String)> {
    let (low, high) = match unit {
        Unit::Plain => (from, to),
        Unit::SpeedUp => (from.exp_m1() * 100.0, to.exp_m1() * 100.0),
    };
    let step = round_step((high - low) / wanted.max(1.0));
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let digits = if step >= 1.0 { 0 } else { (-step.log10()).ceil() as usize };
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 40.0) as u32;
    (0..=count)
        .map(|at| {
            let value = (first + f64::from(at)) * step;
            // Not a zero with a minus before it.
            let value = if value.abs() < step / 2.0 { 0.0 } else { value };
            match unit {
                Unit::Plain => (value, format!("{value:.digits$}")),
                Unit::SpeedUp if value == 0.0 => (0.0, "0\u{a0}%".to_owned()),
                Unit::SpeedUp => ((value / 100.0).ln_1p(), format!("{value:+.digits$}\u{a0}%")),
            }
        })
        .collect()
}

/// Block numbers to write below.
fn level_ticks(blocks: f64, wanted: f64) -> Vec<f64> {
    let step = round_step(blocks / wanted).max(1.0);
    let mut all = vec![1.0];
    let mut next = step;
    while next <= blocks {
        if next > 1.0 {
            all.push(next);
        }
        next += step;
    }
    all
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10.0_f64.powf(step.log10().floor());
    let share = step / power;
    let round = if share <= 1.0 {
        1.0
    } else if share <= 2.0 {
        2.0
    } else if share <= 5.0 {
        5.0
    } else {
        10.0
    };
    round * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_lie_inside() {
        let words = |from, to, unit| ticks(from, to, 5.0, unit).into_iter().map(|tick| tick.1).collect::<Vec<_>>();

        assert_eq!(words(-1.2, 4.7, Unit::Plain), ["0", "2", "4"]);
        assert_eq!(
            words(-0.011, 0.031, Unit::SpeedUp),
            ["-1\u{a0}%", "0\u{a0}%", "+1\u{a0}%", "+2\u{a0}%", "+3\u{a0}%"]
        );
        assert_eq!(words(1.0, 1.0, Unit::Plain), [] as [&str; 0]);
    }

    #[test]
    fn labels_that_would_lie_on_each_other_are_moved_apart() {
        let label = |y: f64| Label { y, class: "", text: String::new() };

        let spread = spread(vec![label(50.0), label(52.0), label(99.0)], 0.0, 100.0);

        let places: Vec<f64> = spread.iter().map(|label| label.y).collect();
        assert_eq!(places, [50.0, 64.0, 99.0]);
    }

    #[test]
    fn what_lies_outside_is_drawn_at_the_edge_and_said_to() {
        let mut chart = Chart::new("c", "t", String::new(), Size::HALF, 4, (0.0, 1.0));

        chart.mark(1.0, 9.0, Shape::Disc, "dot", "block 1");
        let drawn = chart.drawn(Unit::Plain, "block").into_string();

        assert!(drawn.contains("<title>block 1 (outside the drawing)</title>"), "{drawn}");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
