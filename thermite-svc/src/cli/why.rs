//! `thermite why`: why something waits, or came out as it did (rule D10).

use clap::Args;

use crate::client::Client;

use super::exit;
use super::say::Say;

/// What `why` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct WhyArgs {
    /// A development run, a job or a run by its id; or a device, such as `0`
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite why 01890a5d-ac96-774b-bcce-b302099a8057
  thermite why 0

Exit codes: 0 explained; 69 nothing of the rig has that name.";

/// Explains.
pub(crate) fn why(args: &WhyArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let told = client.why(&args.id)?;
    if args.json {
        say.json(&told);
    } else {
        say.line(&told.says);
        told.because.iter().for_each(|line| say.line(&format!("  {line}")));
    }
    Ok(exit::OK)
}
