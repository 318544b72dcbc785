//! `thermite run`: a command on the device, in turn, its output as it comes.

use clap::Args;
use serde_json::json;

use thermite_actors::host::hex;
use thermite_actors::view::DevRunStatus;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{DevRunId, RunId};
use thermite_core::refusal::Refusal;
use thermite_core::texts;
use thermite_svc::plain::plain;
use thermite_svc::server::bodies::AskDevRun;

use crate::client::Client;

use super::follow::{News, Wish, follow};
use super::runs::run_worked_on;
use super::say::{Progress, Say};
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
    /// Print JSON lines: queued, status, output, ended; output that is no UTF-8 text also as hex
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
error. Ctrl-C cancels it and waits until nothing of it is left; a second Ctrl-C leaves at once.

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

    stop.leaves_behind(format!("development run {dev_run} is ended by the rig within 10 s; see `thermite status`"));

    let mut teller = Teller { say, json: args.json, dev_run, progress: Progress::default(), text: TextOf::default() };
    let mut nobody_reads = false;
    let end = follow(&client, dev_run, |news| {
        // To one who went away nothing more is said.
        nobody_reads = nobody_reads || !teller.tell(&news);
        if stop.is_asked() {
            teller.cancels();
        }
        if nobody_reads || stop.is_asked() { Wish::Cancel } else { Wish::GoOn }
    })?;
    // Where the rig is gone by now, what holds of every development run is said.
    let note = client.dev_run(dev_run).map_or_else(|_| texts::note_of_dev_run(false), |row| row.note);
    teller.end(&end, &note);
    Ok(exit::of_dev_run(&end))
}

/// Tells what comes of a development run: its output on standard output, the rest beside it, or all as JSON lines.
struct Teller<'a> {
    say: &'a Say,
    json: bool,
    dev_run: DevRunId,
    progress: Progress,
    text: TextOf,
}

impl Teller<'_> {
    /// False where nobody reads any more.
    fn tell(&mut self, news: &News<'_>) -> bool {
        match news {
            News::Status { status, is_new } if self.json => {
                !is_new || self.line(&json!({ "event": "status", "dev_run": self.dev_run, "is": status }))
            }
            News::Status { status, is_new: _ } => {
                match worth_saying(status) {
                    Some((key, text)) => self.progress.show(self.say, key, &format!("thermite: {text}")),
                    None => self.progress.clear(),
                }
                true
            }
            News::Output { bytes, missed } if self.json => self.output_line(bytes, *missed),
            News::Output { bytes, missed } => {
                self.progress.clear();
                if *missed > 0 {
                    let text = format!("thermite: {missed} bytes of output were not kept");
                    self.say.aside(&self.say.side_ink.dim(&text));
                }
                self.say.output(bytes)
            }
        }
    }

    fn cancels(&mut self) {
        let text = "thermite: cancelled, waits until nothing of it is left; Ctrl-C again leaves at once";
        self.progress.show(self.say, "cancels".to_owned(), text);
    }

    fn end(&mut self, end: &DevRunEnd, note: &str) {
        self.progress.clear();
        if self.json {
            let rest = self.text.rest();
            if !rest.is_empty() {
                self.output_line_of(&rest, 0);
            }
            self.line(&json!({ "event": "ended", "dev_run": self.dev_run, "end": end, "note": note }));
        } else {
            let text = format!("thermite: {}; {note}", show::dev_run_end(end));
            self.say.aside(&self.say.side_ink.dim(&text));
        }
    }

    fn output_line(&mut self, bytes: &[u8], missed: u64) -> bool {
        let whole = self.text.whole(bytes);
        whole.is_empty() && missed == 0 || self.output_line_of(&whole, missed)
    }

    /// Text as text; what is none also byte for byte, in hexadecimal.
    fn output_line_of(&self, bytes: &[u8], missed: u64) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let mut line = json!({ "event": "output", "dev_run": self.dev_run, "missed": missed, "text": text });
        if std::str::from_utf8(bytes).is_err() {
            let hex = hex(bytes);
            line["hex"] = hex.into();
        }
        self.line(&line)
    }

    fn line(&self, value: &serde_json::Value) -> bool {
        self.say.output(format!("{value}\n").as_bytes())
    }
}

/// Cuts output where letters end: what is read may end inside of one.
#[derive(Debug, Default)]
struct TextOf {
    begun: Vec<u8>,
}

impl TextOf {
    /// What was begun and these, up to the last whole letter.
    fn whole(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.begun.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.begun) {
            // Only what more bytes can complete is kept back: at most three.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => {
                let tail = self.begun.len().saturating_sub(3);
                let begins = (tail..self.begun.len()).find(|at| is_begun(&self.begun[*at..]));
                begins.unwrap_or(self.begun.len())
            }
            Ok(_) => self.begun.len(),
        };
        let rest = self.begun.split_off(whole);
        std::mem::replace(&mut self.begun, rest)
    }

    /// What no more bytes complete.
    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }
}

/// Whether these are the first bytes of one letter that is not whole.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// The end is said apart; what goes by in a moment is not said at all. The key tells what is news from times that run on.
fn worth_saying(status: &DevRunStatus) -> Option<(String, String)> {
    match status {
        DevRunStatus::Waiting { sentence, wait } => {
            Some((format!("{:?} {}", wait.reason, wait.place), plain(sentence)))
        }
        DevRunStatus::Stopping { .. } => Some(("stopping".to_owned(), "what it started is being ended".to_owned())),
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
    fn output_is_cut_between_letters_and_what_is_no_text_is_kept() {
        let mut text = TextOf::default();
        let bytes = "ü→".as_bytes();

        assert_eq!(text.whole(&bytes[..1]), b"");
        assert_eq!(text.whole(&bytes[1..4]), "ü".as_bytes());
        assert_eq!(text.whole(&bytes[4..]), "→".as_bytes());
        assert_eq!(text.whole(b"\xff\xc3"), b"\xff");
        assert_eq!(text.whole(b"\x28a"), b"\xc3\x28a");
        assert_eq!(text.whole(b"\xe2\x86"), b"");
        assert_eq!(text.rest(), b"\xe2\x86");
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
