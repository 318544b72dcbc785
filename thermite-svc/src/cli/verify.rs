//! `thermite verify`: a verdict recomputed from its record (rule D9).

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use thermite_core::record::{self, Verified, VerifyFault};
use thermite_core::texts;

use crate::client::Client;

use super::say::Say;
use super::{exit, find, show};

/// What `verify` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct VerifyArgs {
    /// A record's file, a record's SHA-256, or the id of a job; the latter two are looked up in the data folder
    #[arg(value_name = "RECORD")]
    record: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite verify record.json
  thermite verify 01890a5d-ac96-774b-bcce-b302099a8057

Everything the record says is made again from its raw figures and compared to the last bit.
Exit codes: 0 it holds; 1 it does not; 69 no such record.";

/// Verifies a record.
pub(crate) fn verify(
    args: &VerifyArgs,
    folder: PathBuf,
    client: impl FnOnce() -> anyhow::Result<Client>,
    say: &Say,
) -> anyhow::Result<u8> {
    let text = find::record(&args.record, &folder, client)?;
    let answer = check(&text);
    if args.json {
        say.json(&match &answer {
            Ok(found) => json!({
                "holds": true,
                "verdict": found.verdict,
                "blocks": found.accepted,
                "thrown": found.thrown,
                "lower": found.lower,
                "timer_shares_process": found.timer_shares_process,
                "sha256": found.sha256,
            }),
            Err(why) => json!({ "holds": false, "why": why.to_string() }),
        });
    }
    match answer {
        Ok(found) => {
            if !args.json {
                say.line(&holds(&found));
            }
            Ok(exit::OK)
        }
        Err(why) => {
            if !args.json {
                say.error(&format!("record {} does not hold: {why}", args.record));
            }
            Ok(exit::DOES_NOT_HOLD)
        }
    }
}

/// The one place where a record is verified.
pub(crate) fn check(text: &str) -> Result<Verified, VerifyFault> {
    record::verify_json(text)
}

fn holds(found: &Verified) -> String {
    let lower = found.lower.map_or("none".to_owned(), show::lower);
    let note = if found.timer_shares_process { format!("; {}", texts::TIMER_SHARES_PROCESS) } else { String::new() };
    format!(
        "the record holds: {}; lower bound {lower}; {} blocks, {} thrown{note}; sha256 {}",
        found.verdict, found.accepted, found.thrown, found.sha256
    )
}
