//! `thermite replay`: the policy's decisions made again from their logged inputs (rule D10).

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use thermite_core::input_log::ReplayFault;
use thermite_svc::input_log::{self, LogFault};

use crate::client::Fault;

use super::exit;
use super::say::Say;

/// What `replay` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct ReplayArgs {
    /// A segment of an input log, the folder of all segments, or a rig's data folder
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite replay ~/.local/share/thermite
  thermite replay --json inputs/000007.jsonl

A rig logs what its machines took and decided, in inputs/ of its data folder. The same machines take it again here, \
and every decision is compared.
Exit codes: 0 all the same; 1 one is not; 69 no such log, or another version's.";

/// Replays a log.
pub(crate) fn replay(args: &ReplayArgs, say: &Say) -> anyhow::Result<u8> {
    say_so_where_it_contradicts_itself();
    match input_log::replay(&args.log) {
        Ok(done) => {
            if args.json {
                say.json(&json!({ "same": true, "inputs": done.inputs, "machines": done.machines,
                    "segments": done.segments, "missed": done.missed }));
            } else {
                say.line(&done.to_string());
            }
            Ok(exit::OK)
        }
        Err(LogFault::Replay {
            path,
            fault: fault @ (ReplayFault::Difference(_) | ReplayFault::OtherState { .. }),
        }) => {
            if args.json {
                let first = if let ReplayFault::Difference(first) = &fault { Some(first) } else { None };
                say.json(&json!({ "same": false, "segment": path, "first": first, "why": fault.to_string() }));
            } else {
                say.error(&format!("{}: {fault}", path.display()));
            }
            Ok(exit::DOES_NOT_HOLD)
        }
        Err(fault @ (LogFault::NoLog { .. } | LogFault::Replay { .. })) => {
            Err(Fault::Refused { sentence: fault.to_string() }.into())
        }
    }
}

/// The machines assert what always holds. A made-up log may give them a state in which it does not; that is the log's
/// fault, and is said as such instead of as a fault of this program.
fn say_so_where_it_contradicts_itself() {
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or("a state that cannot be");
        eprintln!("thermite: the log contradicts itself, no rig has written it: {why}");
        std::process::exit(i32::from(exit::REFUSED));
    }));
}
