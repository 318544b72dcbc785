//! `thermite exit-codes`: what the number says with which a command ended.

use clap::Args;
use serde_json::json;

use super::exit;
use super::say::Say;

/// What `exit-codes` takes.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER}\n\nExit codes:\n{}", table()))]
pub(crate) struct ExitCodesArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Example:
  thermite exit-codes";

/// Prints the table.
pub(crate) fn exit_codes(args: &ExitCodesArgs, say: &Say) -> u8 {
    if args.json {
        let rows: Vec<_> = exit::TABLE
            .iter()
            .map(|row| json!({ "command": row.command, "code": row.code, "means": row.means }))
            .collect();
        say.json(&json!({ "exit_codes": rows }));
    } else {
        table().lines().for_each(|line| say.line(line));
    }
    exit::OK
}

/// The table as text, one command after the other.
pub(crate) fn table() -> String {
    let mut text = String::new();
    let mut command = "";
    for row in exit::TABLE {
        if row.command != command {
            text.push_str(row.command);
            text.push('\n');
            command = row.command;
        }
        text.push_str(&format!("  {:>7}  {}\n", row.code, row.means));
    }
    text
}
