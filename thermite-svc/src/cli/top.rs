//! `thermite top`: the rig live on a terminal, for whoever has it open at night.

use std::io::IsTerminal;

use clap::Args;

use crate::client::{Client, Fault};
use crate::top;

use super::exit;
use super::say::Say;

/// What `top` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct TopArgs {}

const AFTER: &str = "\
Examples:
  thermite top
  thermite top --url http://127.0.0.1:7077 --token-file token

Keys: q leaves; up and down, or k and j, choose what the detail is of; p freezes the picture and lets it go on. It only \
looks: nothing it does changes the rig. `thermite status` shows the same once, `thermite status --json` for programs.

Exit codes: 0 left; 69 not on a terminal, or refused; 70 infrastructure.";

/// Watches the rig until the watcher leaves.
pub(crate) fn top(_args: &TopArgs, client: impl FnOnce() -> anyhow::Result<Client>, say: &Say) -> anyhow::Result<u8> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let sentence = "top draws on a terminal, and this is none; `thermite status` shows the rig once, and \
                        `thermite status --json` for programs";
        return Err(Fault::Refused { sentence: sentence.to_owned() }.into());
    }
    let client = client()?;
    // What is wrong before the first picture is said as every command says it.
    let view = client.rig()?;
    top::watch(client, view, say.ink.is_coloured())?;
    Ok(exit::OK)
}
