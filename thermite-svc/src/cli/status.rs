//! `thermite status`: the rig at this moment.

use clap::Args;

use thermite_actors::view::RigView;

use crate::client::Client;

use super::say::Say;
use super::{exit, show};

/// What `status` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite status
  thermite status --json

Timing is shared: more agents at once mean more load on this machine, and a judge that waits longer for quiet.";

/// Shows the rig.
pub(crate) fn status(args: &StatusArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let view = client.rig()?;
    if args.json {
        say.json(&view);
    } else {
        lines(&view).iter().for_each(|line| say.line(line));
    }
    Ok(exit::OK)
}

fn lines(view: &RigView) -> Vec<String> {
    let mut lines: Vec<String> = view.devices.iter().map(|row| show::device(row, view.now)).collect();
    lines.extend(view.runs.iter().map(show::run));
    if view.runs.is_empty() {
        lines.push("no run: start one with `thermite start`".to_owned());
    }
    lines.extend(view.dev_runs.iter().map(|row| format!("  {}", show::dev_run(row, view.now))));
    lines.extend(view.jobs.iter().map(|row| format!("  {}", show::job(row))));
    let more = view.jobs_live.saturating_sub(view.jobs.len());
    if more > 0 {
        lines.push(format!("  and {more} more jobs"));
    }
    if view.overlooked > 0 {
        let times = view.overlooked;
        lines.push(format!("the watchdog found a waiter beside a free ready device, {times} times: please report it"));
    }
    lines.extend(view.leftovers.iter().map(|row| format!("  {}", show::leftover(row, view.now))));
    if view.leftovers_more {
        lines.push("  and more processes that development runs left behind".to_owned());
    }
    if let Some(fault) = &view.records_fault {
        lines.push(format!("the records cannot be written: {fault}"));
    }
    lines
}
