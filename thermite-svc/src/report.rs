//! A verdict as one page that anyone can keep, print and check: no script, nothing loaded from elsewhere.
//!
//! Pure: records in, text out. Every figure is the record's own or follows from it ([`figures`]); whether a record
//! holds is the caller's to say. All text of others goes through [`crate::plain`] and is escaped by `maud`.

mod blocks;
mod chart;
mod charts;
pub mod figures;
mod tables;
pub mod words;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use thermite_core::job::StageKind;
use thermite_core::record::{NoiseSource, VerdictRecord};
use thermite_core::verdict::Verdict;

use crate::plain::plain;

use figures::Figures;

/// The largest record that a page carries with it, in bytes; a larger one is named by its hash alone.
const CARRIED_MOST: usize = 4 * 1024 * 1024;
const STYLE: &str = include_str!("report/style.css");

/// One change against one champion: its stages, the deciding one last.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What to call it, where it has a name beside its job's id.
    pub name: Option<String>,
    /// What became of the job where no stage's verdict says it, such as `no verdict: ...`.
    pub ended: Option<String>,
    /// Its stages, in the order in which they were run.
    pub stages: Vec<Stage>,
}

/// One stage's record, and what checking it found.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The record.
    pub record: VerdictRecord,
    /// Why it does not hold, where it does not.
    pub fault: Option<String>,
}

/// The page.
pub fn page(title: &str, comparisons: &[Comparison]) -> String {
    let title = plain(title);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(format!("thermite {}", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { p class="brand" { "Thermite" } p class="what" { (title) } }
                main {
                    @if comparisons.len() > 1 { (overview(comparisons)) }
                    @for (at, comparison) in comparisons.iter().enumerate() { (whole(at, comparison)) }
                }
                footer {
                    p {
                        "Made by thermite " (env!("CARGO_PKG_VERSION")) " from verdict records. The method is "
                        code { (thermite_core::verdict::METHOD) } "; every figure here is in the record or follows from it."
                    }
                }
            }
        }
    };
    page.into_string()
}

fn overview(comparisons: &[Comparison]) -> Markup {
    html! {
        nav aria-label="Comparisons" {
            table class="overview" {
                thead { tr { th scope="col" { "Comparison" } th scope="col" { "Verdict" } th scope="col" { "Lower bound" }
                    th scope="col" { "Upper bound" } th scope="col" { "Blocks" } } }
                tbody {
                    @for (at, comparison) in comparisons.iter().enumerate() {
                        @let last = comparison.stages.last().map(|stage| &stage.record);
                        tr {
                            th scope="row" { a href=(format!("#c{at}")) { (name(at, comparison)) } }
                            td { (verdict_words(comparison)) }
                            td class="figure" { (last.map_or_else(String::new, |last| words::lower(last.bounds.lower))) }
                            td class="figure" { (last.map_or_else(String::new, |last| words::upper(last.bounds.upper))) }
                            td class="figure" { (last.map_or(0, |last| last.after.len())) }
                        }
                    }
                }
            }
        }
    }
}

fn whole(at: usize, comparison: &Comparison) -> Markup {
    let last = comparison.stages.last();
    html! {
        article id=(format!("c{at}")) {
            @if let Some(named) = &comparison.name { p class="name" { (plain(named)) } }
            @match last {
                Some(stage) => (headline(&stage.record)),
                None => h1 { (verdict_words(comparison)) },
            }
            @if let (Some(_), Some(ended)) = (last, &comparison.ended) { p class="warning" { (plain(ended)) } }
            @for stage in comparison.stages.iter().filter(|stage| stage.fault.is_some()) {
                p class="warning" role="alert" {
                    strong { "The record of the " (stage.record.facts.stage) " does not hold: " }
                    (plain(stage.fault.as_deref().unwrap_or_default())) ". Nothing on this page may be quoted from it."
                }
            }
            @for (stage_at, stage) in comparison.stages.iter().enumerate().rev() {
                (one_stage(&format!("c{at}s{stage_at}"), stage, stage_at + 1 == comparison.stages.len()))
            }
        }
    }
}

/// The sentence to quote, what may be claimed, and the figures it rests on: the lower bound first.
fn headline(record: &VerdictRecord) -> Markup {
    let facts = &record.facts;
    let bounds = &record.bounds;
    let thrown = record.blocks.len() - record.after.len();
    html! {
        p { (pill(record.verdict)) }
        h1 { (words::sentence(record)) "." }
        p class="claim" { strong { "What may be claimed: " } (plain(&record.claim)) "." }
        p class="measured" {
            "Kit " strong { (plain(&facts.kit)) } ", measured on " strong { (plain(&facts.on.model)) } ", "
            time { (words::date(facts.wall_ms)) } "."
        }
        dl class="cards" {
            div class="card first" { dt { "Lower bound" } dd { (words::lower(bounds.lower)) }
                dd class="note" { "above this, but for a chance of " (share(record.constants.alpha)) } }
            div class="card" { dt { "Upper bound" } dd { (words::upper(bounds.upper)) }
                dd class="note" { "below this, but for a chance of " (share(record.constants.beta)) } }
            div class="card" { dt { "Estimate" } dd { (words::percent_or_none(bounds.estimate_early_stopped)) }
                dd class="note" { "Hodges-Lehmann, early-stopped: at a win it tends to lie above the truth" } }
            div class="card" { dt { "Blocks" } dd { (record.after.len()) }
                dd class="note" { (thrown) " thrown away, of " (record.blocks.len()) " tried" } }
        }
    }
}

fn one_stage(id: &str, stage: &Stage, decides: bool) -> Markup {
    let record = &stage.record;
    let figures = Figures::of(record);
    let heading = match record.facts.stage {
        StageKind::Screening => "Screening",
        StageKind::Confirmation => "Confirmation",
    };
    html! {
        section id=(id) aria-labelledby=(format!("{id}-heading")) {
            h2 id=(format!("{id}-heading")) { (heading) " " (pill(record.verdict)) }
            p { (words::stopped(record)) @if !decides { " " (words::sentence(record)) "." } }
            (notes(record))
            (charts::ratios(id, record, &figures))
            (charts::intervals(id, record, &figures))
            (charts::evidence(id, record, &figures))
            (charts::readings(id, &figures))
            (blocks::thrown(&figures))
            details { summary { "All blocks as a table" } (blocks::table(&figures)) }
            details { summary { "Constants: fixed before the first block" } (tables::constants(record)) }
            details { summary { "What was measured, and the hashes" } (tables::facts(record)) }
            (check(stage))
        }
    }
}

/// What a reader has to know beside the figures.
fn notes(record: &VerdictRecord) -> Markup {
    let same_device = record.facts.screened.as_ref().is_some_and(|screened| screened.same_device);
    let measured_here = matches!(record.noise, NoiseSource::Measured { .. });
    html! {
        ul class="notes" {
            li {
                "Noise of this device with this kit: " (words::noise(record.noise.noise().scale)) " a block, "
                @if measured_here { "measured by this stage first, champion against champion" } @else { "measured before" }
                ", over " (record.noise.noise().blocks) " blocks."
            }
            li { "Time: " (plain(&record.facts.timer_note)) "." }
            @if record.noise_off {
                li { "The blocks of this stage show another noise than was measured; it is measured again. The verdict stands: "
                    "it does not rest on the noise." }
            }
            @if same_device {
                li { "Screened and confirmed on the same device: no other was in service." }
            }
        }
    }
}

/// How to check the record, which the page carries where it is not too large.
fn check(stage: &Stage) -> Markup {
    let record = &stage.record;
    let json = record.to_json();
    let file = format!("{}-{}.json", record.facts.job, record.facts.stage);
    html! {
        div class="check" {
            h3 { "Check it" }
            p {
                @match &stage.fault {
                    None => { "The record held when this page was made. " }
                    Some(fault) => { strong { "The record did not hold: " (plain(fault)) ". " } }
                }
                "Everything it says is made again from its raw figures, to the last bit, by"
            }
            pre { code { "thermite verify " (file) } }
            @if json.len() <= CARRIED_MOST {
                p { a download=(file) href=(format!("data:application/json;base64,{}", base64(json.as_bytes()))) {
                    "The record" } " (" (json.len().div_ceil(1024)) " KiB) is in this page." }
            }
            p { "SHA-256 over the record without this field, as JSON with sorted keys and no spaces:" br;
                code class="hash" { (plain(&record.sha256)) } }
        }
    }
}

fn name(at: usize, comparison: &Comparison) -> String {
    let job = comparison.stages.first().map(|stage| format!("job {}", stage.record.facts.job));
    let name = comparison.name.as_deref().map(plain);
    name.or(job).unwrap_or_else(|| format!("comparison {}", at + 1))
}

fn verdict_words(comparison: &Comparison) -> String {
    match (&comparison.ended, comparison.stages.last()) {
        (Some(ended), _) => plain(ended),
        (None, Some(stage)) => stage.record.verdict.to_string(),
        (None, None) => "no verdict".to_owned(),
    }
}

fn pill(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Win => "pill win",
        Verdict::NoGain { .. } => "pill no-gain",
        Verdict::Undecided => "pill undecided",
    };
    html! { span class=(class) { (verdict) } }
}

/// A chance in percent, without digits that it does not have.
fn share(chance: f64) -> String {
    format!("{}\u{a0}%", (chance * 1e4).round() / 1e2)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_the_standard_has_it() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
