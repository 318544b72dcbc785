//! `thermite cancel`: ends a development run, waiting or running (rule A10).

use clap::Args;
use serde_json::json;

use thermite_actors::view::DevRunStatus;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::DevRunId;

use crate::client::Client;

use super::say::Say;
use super::{exit, show};

/// What `cancel` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct CancelArgs {
    /// The development run, as `thermite run --detach` printed it
    #[arg(value_name = "ID")]
    dev_run: DevRunId,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Example:
  thermite cancel 01890a5d-ac96-774b-bcce-b302099a8057

Answers once nothing of it is left, or after 10 s. Exit codes: 0 over; 69 refused; 70 its end is not proved.";

/// Cancels and says how it ended.
pub(crate) fn cancel(args: &CancelArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    client.cancel(args.dev_run)?;
    let row = client.dev_run(args.dev_run)?;
    let rig_says = show::dev_run_status(&row.status, thermite_core::time::Moment::START);
    if args.json {
        say.json(&json!({ "dev_run": args.dev_run, "is": row.status }));
    } else {
        say.line(&format!("development run {}: {rig_says}", args.dev_run));
    }
    Ok(match row.status {
        DevRunStatus::Ended { end: DevRunEnd::NotProved { .. } } => exit::INFRASTRUCTURE,
        DevRunStatus::Ended { .. } => exit::OK,
        DevRunStatus::Recording { .. }
        | DevRunStatus::Waiting { .. }
        | DevRunStatus::Starting { .. }
        | DevRunStatus::Running { .. }
        | DevRunStatus::Stopping { .. } => exit::INFRASTRUCTURE,
    })
}
