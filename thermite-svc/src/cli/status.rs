//! `thermite status`: the rig at this moment.

use std::cmp::Reverse;

use clap::Args;

use thermite_actors::view::{DeviceRow, RigView, RunRow};
use thermite_core::contract::Target;
use thermite_core::device::DeviceView;
use thermite_core::run::RunState;
use thermite_core::time::Moment;
use thermite_svc::plain::plain;
use thermite_svc::runner_lines;

use crate::client::Client;

use super::ink::Ink;
use super::say::Say;
use super::{exit, show};

/// What `status` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct StatusArgs {
    /// List every run that has ended, not only the last three
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite status
  thermite status --all
  thermite status --json

`thermite top` shows the same live. Timing is shared: more agents at once mean more load on this machine, and a judge that waits longer for quiet.";

/// How many runs that have ended are listed, the last ones first.
const ENDED_SHOWN: usize = 3;
/// Rule C5, in one line.
const TRADE_OFF: &str = "more agents at once mean more load on this machine, and a judge that waits longer for quiet";

/// Shows the rig.
pub(crate) fn status(args: &StatusArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let view = client.rig()?;
    if args.json {
        say.json(&view);
        return Ok(exit::OK);
    }
    // The view has only the last of those that ended.
    let ended = view.runs.iter().filter(|run| run.state == RunState::Ended).count();
    let runs = if ended > ENDED_SHOWN { client.runs()? } else { Vec::new() };
    let ended = runs.iter().filter(|run| run.state == RunState::Ended).count().max(ended);
    let shown = if args.all { usize::MAX } else { ENDED_SHOWN };
    let all = if args.all && !runs.is_empty() { newest_first(runs) } else { view.runs.clone() };
    lines(&view, &all, shown, ended, say.ink).iter().for_each(|line| say.line(line));
    Ok(exit::OK)
}

fn newest_first(mut runs: Vec<RunRow>) -> Vec<RunRow> {
    runs.sort_by_key(|run| Reverse(run.run));
    runs
}

/// What is live comes first, in the order in which it is served; what is over comes last.
fn lines(view: &RigView, runs: &[RunRow], shown: usize, ended: usize, ink: Ink) -> Vec<String> {
    let mut lines = Vec::new();
    for row in &view.devices {
        lines.push(device(row, view.now, ink));
        lines.extend(row.containment.as_ref().map(|layers| format!("  runs on it are contained by {layers}")));
        lines.extend(card(row));
        lines.extend(
            row.reading.as_ref().map(|reading| format!("  newest reading: {}", plain(&show::reading(reading)))),
        );
        lines
            .extend(row.disturbed.iter().map(|row| format!("  thrown away, {}", show::blamed(&row.blame, row.blocks))));
        lines.extend(row.warnings.iter().map(|warning| format!("  warning: {warning}")));
    }
    if !view.runners.is_empty() {
        lines.extend(runner_lines::lines(&view.runners, view.now));
    }
    if let Some(fault) = &view.records_fault {
        lines.push(ink.bad(&format!("the records cannot be written: {}", plain(fault))));
    }
    let is_live = |run: &&RunRow| run.state != RunState::Ended;
    let mut live = runs.iter().filter(is_live).peekable();
    if live.peek().is_none() {
        lines.push("no run is being worked on: start one with `thermite start`".to_owned());
    }
    lines.extend(live.map(show::run));
    lines.extend(view.dev_runs.iter().map(|row| format!("  {}", show::dev_run(row, view.now))));
    lines.extend(view.jobs.iter().map(|row| format!("  {}", show::job(row))));
    let more = view.jobs_live.saturating_sub(view.jobs.len());
    if more > 0 {
        lines.push(format!("  and {more} more jobs wait"));
    }
    if view.overlooked > 0 {
        let times = view.overlooked;
        lines.push(format!("the watchdog found a waiter beside a free ready device, {times} times: please report it"));
    }
    lines.extend(view.leftovers.iter().map(|row| format!("  {}", show::leftover(row, view.now))));
    if view.leftovers_more {
        lines.push("  and more processes that development runs left behind".to_owned());
    }
    if view.devices.iter().any(|row| row.facts.target == Target::Cpu) && runs.iter().any(|run| is_live(&run)) {
        lines.push(ink.dim(TRADE_OFF));
    }
    let over: Vec<&RunRow> = runs.iter().filter(|run| run.state == RunState::Ended).take(shown).collect();
    lines.extend(over.iter().map(|row| ink.dim(&show::run(row))));
    match ended.saturating_sub(over.len()) {
        0 => {}
        1 => lines.push(ink.dim("and 1 run more that has ended; --all lists it")),
        more => lines.push(ink.dim(&format!("and {more} runs more that have ended; --all lists them"))),
    }
    lines
}

fn device(row: &DeviceRow, now: Moment, ink: Ink) -> String {
    let text = show::device(row, now);
    match &row.state {
        DeviceView::Ready => ink.good(&text),
        DeviceView::Out { .. } | DeviceView::Quarantined { .. } => ink.bad(&text),
        DeviceView::Sweeping | DeviceView::Stopping { .. } => ink.warn(&text),
        DeviceView::Held { .. } => ink.bold(&text),
    }
}

/// What names a card, since several may be of one model, and whom it serves.
fn card(row: &DeviceRow) -> Option<String> {
    let facts = &row.facts;
    match facts.target {
        Target::Cpu => None,
        Target::CudaGpu => {
            let index = row.index.map(|index| format!("index {index}, ")).unwrap_or_default();
            let noise = row.noise.iter().map(|noise| noise.scale).reduce(f64::max);
            let noise =
                noise.map(|scale| format!(", noise {:.1} % a block", scale.exp_m1() * 100.0)).unwrap_or_default();
            let pool = show::pool(row);
            Some(format!("  {pool}; {index}{}, {}{noise}", plain(&facts.uuid), plain(&facts.driver)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    use thermite_core::ids::RunId;

    #[test]
    fn what_is_live_comes_first_and_what_is_over_is_counted() {
        let run = |number: u128, state| RunRow {
            run: RunId(Uuid::from_u128(number)),
            state,
            repo: "/repo\x1b[2J".into(),
            kit: "sum".into(),
            champion: "a".repeat(40),
            lanes: 2,
        };
        let runs: Vec<RunRow> =
            (1..=9).rev().map(|at| run(at, if at == 4 { RunState::Paused } else { RunState::Ended })).collect();
        let view = RigView {
            now: Moment::START,
            wall_ms: 0,
            devices: Vec::new(),
            runs: runs.clone(),
            dev_runs: Vec::new(),
            jobs: Vec::new(),
            jobs_live: 0,
            records_fault: None,
            overlooked: 0,
            leftovers: Vec::new(),
            leftovers_more: false,
            runners: thermite_actors::view::RunnersView {
                core_judges: true,
                ..thermite_actors::view::RunnersView::default()
            },
        };

        let lines = lines(&view, &runs, ENDED_SHOWN, 8, Ink::PLAIN);

        let starts: Vec<&str> = lines.iter().map(|line| line.get(39..46).unwrap_or(line)).collect();
        assert!(lines[0].contains(": paused, kit sum, 2 lanes"), "{lines:?}");
        assert_eq!(lines.len(), 5, "{starts:?}");
        assert!(lines[1].starts_with(&format!("run {}", Uuid::from_u128(9))), "the last one first: {lines:?}");
        assert_eq!(lines[4], "and 5 runs more that have ended; --all lists them");
        assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
    }
}
