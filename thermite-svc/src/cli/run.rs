//! `thermite run`: a command on the device, in turn, its output as it comes.

use anyhow::anyhow;
use clap::Args;
use serde_json::json;

use thermite_actors::view::DevRunStatus;
use thermite_core::ids::RunId;
use thermite_core::refusal::Refusal;
use thermite_core::texts;
use thermite_svc::server::bodies::AskDevRun;

use crate::client::Client;

use super::follow::{News, Wish, follow};
use super::runs::run_worked_on;
use super::say::Say;
use super::stop::Stop;
use super::{exit, show};

/// What `run` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct RunArgs {
    /// The lane's number
    #[arg(long, value_name = "N")]
    pub(crate) lane: u32,
    /// The run [default: the one being worked on]
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<RunId>,
    /// Leave once it has a place in the line, and print its id
    #[arg(long)]
    pub(crate) detach: bool,
    /// Print JSON lines: queued, status, output, ended
    #[arg(long)]
    pub(crate) json: bool,
    /// Set a variable of its environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Asking twice with the same key is asking once
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

const AFTER: &str = "\
Examples:
  thermite run --lane 1 -- cargo bench
  thermite run --lane 2 --detach -- ./measure --size 4096

The command runs in the lane's own tree. Its output comes on standard output, everything else on standard \
error. Ctrl-C cancels it and waits for its end; a second Ctrl-C leaves at once.

Exit codes: the command's own; 128 + N when signal N ended it; 124 ended at its limit; 75 gave up waiting; \
69 refused; 70 infrastructure; 130 cancelled.";

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE, such as RUST_LOG=debug".to_owned()),
    }
}

/// Asks for a development run and follows it.
pub(crate) fn run(args: &RunArgs, client: impl FnOnce() -> anyhow::Result<Client>, say: &Say) -> anyhow::Result<u8> {
    if args.command.is_empty() {
        return Err(Refusal::EmptyCommand.into());
    }
    let stop = if args.detach { None } else { Some(Stop::listen_twice()?) };
    let client = client()?;
    let run = run_worked_on(&client, args.run)?;
    let ask = AskDevRun { argv: args.command.clone(), env: args.env.clone(), attached: !args.detach };
    let queued = client.ask(run, args.lane, &ask, args.key.clone())?;
    let dev_run = queued.dev_run;
    if args.json {
        say.json(&json!({ "event": "queued", "dev_run": dev_run, "ahead": queued.ahead }));
    } else if args.detach {
        say.line(&dev_run.to_string());
    }
    let Some(stop) = stop else { return Ok(exit::OK) };

    let mut nobody_reads = false;
    let end = follow(&client, dev_run, |news| {
        match news {
            None => {}
            Some(News::Status(status)) => {
                if args.json {
                    nobody_reads |= !line_of_json(say, &json!({ "event": "status", "dev_run": dev_run, "is": status }));
                } else if let Some(text) = worth_saying(status) {
                    say.aside(&say.side_ink.dim(&format!("thermite: {text}")));
                }
            }
            Some(News::Output { bytes, missed }) => {
                if args.json {
                    let text = String::from_utf8_lossy(bytes);
                    let line = json!({ "event": "output", "dev_run": dev_run, "missed": missed, "text": text });
                    nobody_reads |= !line_of_json(say, &line);
                } else {
                    if missed > 0 {
                        say.aside(&say.side_ink.dim(&format!("thermite: {missed} bytes of output were not kept")));
                    }
                    nobody_reads |= !say.output(bytes);
                }
            }
        }
        if nobody_reads || stop.is_asked() { Wish::Cancel } else { Wish::GoOn }
    })?;

    if args.json {
        say.json(&json!({ "event": "ended", "dev_run": dev_run, "end": end, "note": texts::DIAGNOSTIC_ONLY }));
    } else {
        let text = format!("thermite: {}; {}", show::dev_run_end(&end), texts::DIAGNOSTIC_ONLY);
        say.aside(&say.side_ink.dim(&text));
    }
    if nobody_reads && !stop.is_asked() {
        return Err(anyhow!("nobody reads the output any more: development run {dev_run} was cancelled"));
    }
    Ok(exit::of_dev_run(&end))
}

fn line_of_json(say: &Say, value: &serde_json::Value) -> bool {
    say.output(format!("{value}\n").as_bytes())
}

/// The end is said apart; what goes by in a moment is not said at all.
fn worth_saying(status: &DevRunStatus) -> Option<String> {
    match status {
        DevRunStatus::Waiting { sentence, .. } => Some(sentence.clone()),
        DevRunStatus::Stopping { .. } => Some("what it started is being ended".to_owned()),
        DevRunStatus::Recording { .. }
        | DevRunStatus::Starting { .. }
        | DevRunStatus::Running { .. }
        | DevRunStatus::Ended { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_without_a_name_is_refused_with_what_is_expected() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("=b"), Err("expected NAME=VALUE, such as RUST_LOG=debug".into()));
        assert_eq!(variable("A"), Err("expected NAME=VALUE, such as RUST_LOG=debug".into()));
    }

    #[test]
    fn an_empty_command_is_refused_before_any_rig_is_asked() {
        let args =
            RunArgs { lane: 1, run: None, detach: false, json: false, env: Vec::new(), key: None, command: Vec::new() };

        let error = run(&args, || panic!("the rig was asked"), &Say::new()).unwrap_err();

        assert_eq!(exit::of_error(&error), exit::REFUSED);
        assert_eq!(error.to_string(), Refusal::EmptyCommand.to_string());
    }
}
