//! `thermite verdict`: what a job's comparison found, block by block; for people, as JSON, as a page.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use thermite_core::record::VerdictRecord;
use thermite_svc::plain::plain;
use thermite_svc::report::figures::Figures;
use thermite_svc::report::{self, Comparison, Stage, words};

use crate::client::Client;

use super::ink::Ink;
use super::say::Say;
use super::{exit, find, show, verify};

/// What `verdict` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct VerdictArgs {
    /// A job's id, a record's file, or a record's SHA-256; files need no rig
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<String>,
    /// Write a page that needs nothing else: drawings, readings, tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite verdict 01890a5d-ac96-774b-bcce-b302099a8057
  thermite verdict 01890a5d-ac96-774b-bcce-b302099a8057 --html verdict.html
  thermite verdict lane-1-screening.json lane-1-confirmation.json --html verdict.html

The lower bound comes first: it is what may be claimed. The estimate is early-stopped, and tends to lie above the truth \
at a win.

Exit codes: 0 shown, whatever the verdict; 69 no such job or record, or no verdict yet; 70 infrastructure.";

/// Shows the verdict.
pub(crate) fn verdict(
    args: &VerdictArgs,
    folder: PathBuf,
    client: impl Fn() -> anyhow::Result<Client>,
    say: &Say,
) -> anyhow::Result<u8> {
    let comparisons = find::comparisons(&args.records, &folder, client)?;
    if let Some(file) = &args.html {
        let page = report::page("Verdict", &comparisons);
        let cannot = || format!("failed to write {}; name another file with --html", file.display());
        std::fs::write(file, page).with_context(cannot)?;
        if !args.json {
            say.aside(&format!("thermite: the page is {}", file.display()));
        }
    }
    if args.json {
        say.json(&json!({
            "comparisons": comparisons.iter().map(comparison_json).collect::<Vec<_>>(),
            "html": args.html,
        }));
    } else {
        let lines = comparisons.iter().flat_map(|comparison| lines(comparison, say.ink));
        lines.for_each(|line| say.line(&line));
    }
    Ok(exit::OK)
}

/// A record as a report has it: read, and checked.
///
/// # Errors
/// Where the text is no record at all.
pub(crate) fn stage(text: &str) -> Result<Stage, String> {
    let record: VerdictRecord = serde_json::from_str(text).map_err(|error| format!("it is no record: {error}"))?;
    Ok(Stage { record, fault: verify::check(text).err().map(|fault| fault.to_string()) })
}

fn comparison_json(comparison: &Comparison) -> Value {
    json!({
        "name": comparison.name,
        "ended": comparison.ended,
        "stages": comparison.stages.iter().map(stage_json).collect::<Vec<_>>(),
    })
}

fn stage_json(stage: &Stage) -> Value {
    let record = &stage.record;
    let figures = Figures::of(record);
    let intervals: Vec<_> = figures.counted().map(|(_, after)| json!([after.lower, after.upper])).collect();
    let thrown: Vec<_> = figures
        .blocks
        .iter()
        .filter(|block| !block.causes.is_empty())
        .map(|block| json!({ "block": block.number, "causes": block.causes }))
        .collect();
    let readings: Vec<_> = figures
        .signals
        .iter()
        .map(|signal| {
            let most = signal.before.iter().chain(&signal.after).flatten().copied().fold(f64::NEG_INFINITY, f64::max);
            json!({ "name": signal.name, "unit": signal.unit, "limit": signal.limit, "most": most })
        })
        .collect();
    json!({
        "job": record.facts.job,
        "stage": record.facts.stage,
        "verdict": record.verdict,
        "sentence": words::sentence(record),
        "claim": record.claim,
        "bounds": record.bounds,
        "blocks": record.after.len(),
        "thrown": thrown,
        "ratios": record.after.iter().map(|after| after.d).collect::<Vec<_>>(),
        "intervals": intervals,
        "readings": readings,
        "holds": stage.fault.is_none(),
        "fault": stage.fault,
        "record": record.sha256,
    })
}

/// The deciding stage first.
fn lines(comparison: &Comparison, ink: Ink) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(name) = &comparison.name {
        lines.push(plain(name));
    }
    if let Some(ended) = &comparison.ended {
        lines.push(ink.bad(&plain(ended)));
    }
    if let Some(last) = comparison.stages.last() {
        lines.push(ink.bold(&format!("{}.", spaced(words::sentence(&last.record)))));
        lines.push(format!("  may be claimed: {}", plain(&last.record.claim)));
    }
    for stage in comparison.stages.iter().rev() {
        lines.extend(stage_lines(stage, ink));
    }
    lines
}

fn stage_lines(stage: &Stage, ink: Ink) -> Vec<String> {
    let record = &stage.record;
    let figures = Figures::of(record);
    let thrown = record.blocks.len() - record.after.len();
    let effect = show::effect(&record.bounds, record.after.len(), thrown);
    let constants = &record.constants;
    let last = figures.counted().last().map(|(_, after)| after);
    let evidence = last.map_or_else(String::new, |after| {
        let (win, futile) = ((1.0 / constants.alpha).ln(), (1.0 / constants.beta).ln());
        format!("ln W {:.2} of {win:.2}, ln F {:.2} of {futile:.2}", after.ln_w, after.ln_f)
    });
    let mut lines = vec![
        format!("{}: {}; {effect}", record.facts.stage, record.verdict),
        format!("  {}", spaced(words::stopped(record))),
        format!("  blocks    {}", sparkline(&figures)),
        format!("  evidence  {evidence}"),
    ];
    for (cause, times) in words::thrown_by_cause(&record.blocks) {
        lines.push(format!("  thrown    {times}: {cause}"));
    }
    for signal in &figures.signals {
        let most = signal.before.iter().chain(&signal.after).flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let limit = signal.limit.map(|limit| format!(" of at most {limit:.2}")).unwrap_or_default();
        lines.push(format!("  reading   {} up to {most:.2}{limit} {}", plain(&signal.name), plain(&signal.unit)));
    }
    lines.push(match &stage.fault {
        None => format!("  record    {} {}", plain(&record.sha256), ink.good("holds")),
        Some(fault) => format!("  record    {}", ink.bad(&format!("does not hold: {}", plain(fault)))),
    });
    lines
}

/// Every block as one letter, in order: higher is faster, `x` was thrown away. The last hundred of a long stage.
fn sparkline(figures: &Figures) -> String {
    const LETTERS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const MOST: usize = 100;
    let counted = || figures.counted().filter_map(|(block, _)| block.d);
    let (low, high) = counted().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), d| (low.min(d), high.max(d)));
    let letter = |d: f64| {
        let share = if high > low { (d - low) / (high - low) } else { 0.5 };
        LETTERS[((share * 8.0) as usize).min(7)]
    };
    let blocks = &figures.blocks[figures.blocks.len().saturating_sub(MOST)..];
    let drawn: String =
        blocks.iter().map(|block| if block.causes.is_empty() { block.d.map_or('?', letter) } else { 'x' }).collect();
    let more = if blocks.len() < figures.blocks.len() { "…" } else { "" };
    if low > high {
        return format!("{more}{drawn}");
    }
    format!("{more}{drawn}  {} to {}", show::percent(low), show::percent(high))
}

/// A terminal breaks lines by itself, and a pipe's reader looks for plain spaces.
fn spaced(text: String) -> String {
    text.replace('\u{a0}', " ")
}
