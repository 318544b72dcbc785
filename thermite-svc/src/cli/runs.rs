//! `thermite start`, `pause`, `resume`, `end`: the run that is worked on.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use thermite_core::ids::RunId;
use thermite_core::run::RunState;
use thermite_svc::server::bodies::StartRun;

use crate::client::{Client, Fault, RunChange};

use super::exit;
use super::say::Say;

/// What `start` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER_START)]
pub(crate) struct StartArgs {
    /// The git repository
    #[arg(long, value_name = "DIR")]
    repo: PathBuf,
    /// The kit's file in it, read from the champion's commit
    #[arg(long, value_name = "FILE", default_value = "kit.toml")]
    kit: PathBuf,
    /// The champion: a branch, tag or commit
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    champion: String,
    /// A lane's worktree, lane 1 first; may be repeated
    #[arg(long = "lane", value_name = "DIR", required = true)]
    lanes: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_START: &str = "\
Example:
  thermite start --repo . --kit kit.toml --champion main --lane ../lane-1 --lane ../lane-2

Prints the run's id.";

/// What `pause`, `resume` and `end` take.
#[derive(Debug, Args)]
#[command(after_help = AFTER_CHANGE)]
pub(crate) struct ChangeArgs {
    /// The run [default: the one being worked on]
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_CHANGE: &str = "\
Examples:
  thermite pause          its jobs keep their place, its waiting development runs leave the line
  thermite resume         it goes on
  thermite end            it is over; another can be started";

/// Starts a run.
pub(crate) fn start(args: &StartArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let request = StartRun {
        repo: absolute(&args.repo)?,
        kit: text(&args.kit)?,
        champion: args.champion.clone(),
        lanes: args.lanes.iter().map(|lane| absolute(lane)).collect::<anyhow::Result<_>>()?,
    };
    let run = client.start_run(&request, None)?;
    if args.json {
        say.json(&json!({ "run": run }));
    } else {
        say.line(&run.to_string());
    }
    Ok(exit::OK)
}

/// Pauses, resumes or ends a run.
pub(crate) fn change(args: &ChangeArgs, change: RunChange, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let run = run_worked_on(client, args.run)?;
    client.change_run(run, change)?;
    let is = match change {
        RunChange::Pause => "paused",
        RunChange::Resume => "running",
        RunChange::End => "ended",
    };
    if args.json {
        say.json(&json!({ "run": run, "state": is }));
    } else {
        say.line(&format!("run {run}: {is}"));
    }
    Ok(exit::OK)
}

/// The run that is named, or else the one being worked on.
pub(crate) fn run_worked_on(client: &Client, named: Option<RunId>) -> Result<RunId, Fault> {
    if let Some(run) = named {
        return Ok(run);
    }
    let live = client.first_run()?.filter(|row| match row.state {
        RunState::Running | RunState::Paused => true,
        RunState::Ended => false,
    });
    live.map(|row| row.run).ok_or_else(|| Fault::Refused {
        sentence: "no run is being worked on; start one with `thermite start`, or name one with --run".to_owned(),
    })
}

/// The rig may have another working directory than the caller.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let found = std::path::absolute(path);
    text(&found.with_context(|| format!("failed to find {} from here", path.display()))?)
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("path {} is not UTF-8; rename it", path.display()))
}
