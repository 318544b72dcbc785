//! The words of a report: what may be quoted, and how figures are rounded so that a quote claims no more than is so.

use thermite_core::block::TriedBlock;
use thermite_core::contract::Timer;
use thermite_core::job::StageKind;
use thermite_core::record::{StopReason, VerdictRecord};
use thermite_core::texts;
use thermite_core::verdict::Verdict;

use crate::plain::plain;

/// A no-break space, between a figure and its unit.
const NBSP: char = '\u{a0}';

/// The verdict of one stage as a sentence to quote; the figure in it is a bound, rounded against the claim.
pub fn sentence(record: &VerdictRecord) -> String {
    let change = format!("change {}", commit(&record.facts.change));
    let champion = format!("champion {}", commit(&record.facts.champion));
    let bounds = &record.bounds;
    match (record.verdict, record.facts.stage) {
        (Verdict::Win, StageKind::Confirmation) => match bounds.lower.filter(|lower| *lower > 0.0) {
            Some(lower) => format!("{} is at least {} faster than {champion}", capital(&change), share_down(lower)),
            None => format!("{} is faster than {champion}", capital(&change)),
        },
        (Verdict::Win, StageKind::Screening) => {
            format!("{} won its screening against {champion}; a confirmation is to decide", capital(&change))
        }
        (Verdict::NoGain { slower: true }, _) => match bounds.upper.filter(|upper| *upper < 0.0) {
            Some(upper) => format!("{} is at least {} slower than {champion}", capital(&change), loss_down(upper)),
            None => format!("{} is slower than {champion}", capital(&change)),
        },
        (Verdict::NoGain { slower: false }, _) => format!(
            "{} is not {} faster than {champion}, which is what this comparison was planned to find",
            capital(&change),
            share_down(record.constants.plan_effect)
        ),
        (Verdict::Undecided, _) => {
            let blocks = record.after.len();
            format!("It is undecided whether {change} is faster than {champion}: {blocks} blocks could not tell")
        }
    }
}

/// Why the stage stopped, as a sentence.
pub fn stopped(record: &VerdictRecord) -> String {
    let blocks = count(record.after.len(), "block", "blocks");
    match record.stopped {
        StopReason::EvidenceAndGate => {
            format!("Stopped after {blocks}: the evidence was in, and the estimate had reached the gate.")
        }
        StopReason::Futility => format!("Stopped after {blocks}: a gain as planned had become too unlikely."),
        StopReason::MostBlocks => format!("Stopped after {blocks}: the most that this contract allows."),
    }
}

/// How many blocks were thrown away, by cause, the commonest first.
pub fn thrown_by_cause(blocks: &[TriedBlock]) -> Vec<(String, usize)> {
    let mut causes: Vec<(String, usize)> = Vec::new();
    for cause in blocks.iter().flat_map(causes_of) {
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, times)) => *times += 1,
            None => causes.push((cause, 1)),
        }
    }
    causes.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    causes
}

/// Why a block was thrown away; nothing for one that counts.
pub fn causes_of(block: &TriedBlock) -> Vec<String> {
    match block {
        TriedBlock::Accepted { .. } => Vec::new(),
        TriedBlock::Thrown { causes, .. } => causes.iter().map(|cause| plain(&cause.to_string())).collect(),
        TriedBlock::Lost { running, why, .. } => {
            vec![format!("a measured process died of infrastructure while {running} ran: {}", plain(why))]
        }
    }
}

/// Who took the time.
pub fn timer(timer: Timer) -> &'static str {
    match timer {
        Timer::Wall => "wall",
        Timer::Reported => "reported",
        Timer::ReportedApart => "reported apart",
    }
}

/// A speed-up given as its logarithm: `+14.12 %`.
pub fn percent(ln: f64) -> String {
    format!("{:+.2}{NBSP}%", ln.exp_m1() * 100.0)
}

/// The same where there is one.
pub fn percent_or_none(ln: Option<f64>) -> String {
    ln.map_or_else(|| "none".to_owned(), percent)
}

/// A lower bound, rounded down: what is said must not be more than what is so.
pub fn lower(ln: Option<f64>) -> String {
    let round = |ln: f64| (ln.exp_m1() * 1e4 + 1e-9).floor() / 1e2;
    ln.map_or_else(|| "none".to_owned(), |ln| format!("{:+.2}{NBSP}%", round(ln) + 0.0))
}

/// An upper bound, rounded up.
pub fn upper(ln: Option<f64>) -> String {
    let round = |ln: f64| (ln.exp_m1() * 1e4 - 1e-9).ceil() / 1e2;
    ln.map_or_else(|| "none".to_owned(), |ln| format!("{:+.2}{NBSP}%", round(ln) + 0.0))
}

/// A device's noise, which has no direction.
pub fn noise(scale: f64) -> String {
    format!("{:.2}{NBSP}%", scale.exp_m1() * 100.0)
}

/// A positive effect as a share without a sign, rounded down: fit to follow "at least".
pub fn share_down(ln: f64) -> String {
    rounded_down(ln.exp_m1() * 100.0)
}

/// A negative effect likewise.
fn loss_down(ln: f64) -> String {
    rounded_down(-ln.exp_m1() * 100.0)
}

fn rounded_down(share: f64) -> String {
    let digits = if share >= 1.0 { 1 } else { 2 };
    let scale = f64::powi(10.0, digits);
    // A share that is exact to the last digits shown must not fall by one for its last bit.
    let rounded = ((share * scale) + 1e-9).floor() / scale;
    format!("{rounded:.*}{NBSP}%", digits as usize)
}

/// A time in nanoseconds as people read it.
pub fn nanoseconds(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns >= 1e9 => format!("{:.4}{NBSP}s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.3}{NBSP}ms", ns / 1e6),
        ns => format!("{:.3}{NBSP}µs", ns / 1e3),
    }
}

/// A moment of the wall clock, in UTC.
pub fn date(wall_ms: u64) -> String {
    let second = wall_ms / 1_000 % 86_400;
    format!("{} {:02}:{:02}{NBSP}UTC", texts::day(wall_ms), second / 3_600, second % 3_600 / 60)
}

/// A commit as people write it.
pub fn commit(commit: &str) -> String {
    plain(&commit.chars().take(12).collect::<String>())
}

/// `1 block`, `7 blocks`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1{NBSP}{one}") } else { format!("{number}{NBSP}{many}") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_at_least_is_rounded_down() {
        assert_eq!(share_down(0.1046_f64.ln_1p()), "10.4\u{a0}%");
        assert_eq!(share_down(0.05_f64.ln_1p()), "5.0\u{a0}%");
        assert_eq!(share_down(0.0049_f64.ln_1p()), "0.49\u{a0}%");
        assert_eq!(share_down(0.00499_f64.ln_1p()), "0.49\u{a0}%");
        assert_eq!(loss_down((-0.0479_f64).ln_1p()), "4.7\u{a0}%");
    }

    #[test]
    fn bounds_are_rounded_away_from_each_other() {
        let effect = Some(0.102_066_f64.ln_1p());

        assert_eq!((lower(effect), upper(effect)), ("+10.20\u{a0}%".into(), "+10.21\u{a0}%".into()));
        assert_eq!((lower(None), upper(Some(-1e-9))), ("none".into(), "+0.00\u{a0}%".into()));
    }

    #[test]
    fn a_moment_is_a_date() {
        assert_eq!(date(0), "1970-01-01 00:00\u{a0}UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00\u{a0}UTC");
        assert_eq!(date(1_798_761_599_000), "2026-12-31 23:59\u{a0}UTC");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(nanoseconds(1_234_567_890), "1.2346\u{a0}s");
        assert_eq!(nanoseconds(12_345_678), "12.346\u{a0}ms");
        assert_eq!(nanoseconds(1_234), "1.234\u{a0}µs");
    }
}
