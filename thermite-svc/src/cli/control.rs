//! `thermite control`: serves control, and asks it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock;
use thermite_core::runners::{ProcessAsk, parse};
use thermite_core::time::Span;
use thermite_core::wire::ProcessName;
use thermite_svc::bus::subjects::RigName;
use thermite_svc::control::authority::Second;
use thermite_svc::control::bus_config::{BusPlace, bus_config};
use thermite_svc::control::serve::{ControlService, known_operator, operator_in, serve as serve_control};
use thermite_svc::control::settings::{ControlGiven, ControlSettings, control_folder};
use thermite_svc::control::tokens::{ControlToken, ControlTokenRow};
use thermite_svc::control::words::{
    ControlTokenKind, ControlTokenMade, HistoryRow, NewControlToken, NewRig, ProcessRow, Removed, RigMade, RigRow,
    RigSettingsAsk, RigSettingsView, Step,
};
use thermite_svc::folder::{DataFolder, OWNER_TOKEN};
use thermite_svc::plain::plain;
use thermite_svc::settings::bus::control_tls;
use thermite_svc::settings::{SettingFault, rig_url};
use thermite_svc::tokens::TokenId;

use crate::client::control::{ControlClient, ControlPlace};

use super::exit;
use super::say::Say;

/// What `control` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct ControlArgs {
    #[command(subcommand)]
    what: What,
    /// Control's data folder [default: $HOME/.local/share/thermite-control]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Control's address [default: told by its data folder]
    #[arg(long, global = true, value_name = "URL", env = "CONTROL_URL", hide_env = true)]
    url: Option<String>,
    /// The file with the token [default: the owner's, in control's data folder]
    #[arg(long, global = true, value_name = "FILE", env = "THERMITE_CONTROL_TOKEN_FILE", hide_env = true)]
    token_file: Option<PathBuf>,
    /// The file with certificates (PEM) that control's own is checked against, beside the platform's
    #[arg(long, global = true, value_name = "FILE", env = "THERMITE_CONTROL_CA_FILE", hide_env = true)]
    ca_file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite control bus-config --accounts /var/lib/nats --cert bus.pem --key bus.key > nats.conf
  thermite control serve --nats-url tls://bus.example:4222 --nats-ca-file ca.pem
  thermite control rig add lab > lab.token
  thermite control settings lab --runner box-1=judge --runner box-2=shared
  thermite control runners lab
  thermite control runner remove lab box-2
  thermite control history lab

Control owns the rights on the bus: it makes the operator's key at its first start, and gives each process of a rig rights \
to its own subjects, which end at once when it is removed. docs/control.md goes from nothing to a core and two runners.

Exit codes: 0 done; 64 wrong usage or setting; 69 refused; 70 control is not there or cannot; of `serve` also 71, 74, \
75 and 78, as `thermite serve` has them.";

#[derive(Debug, Subcommand)]
enum What {
    /// Serve control until SIGTERM or Ctrl-C
    Serve(ServeArgs),
    /// Print the configuration of the bus's server that goes with this control's operator
    #[command(name = "bus-config")]
    BusConfig(BusConfigArgs),
    /// Make, list or remove rigs
    Rig {
        #[command(subcommand)]
        what: RigWhat,
    },
    /// Show a rig's settings, or set them: with any flag below they are set as a whole
    Settings(SettingsArgs),
    /// Show a rig's runners: listed, registered, removed
    Runners {
        /// The rig
        #[arg(value_name = "RIG")]
        rig: RigName,
    },
    /// Remove a runner: its token, its name and key, its rights on the bus
    Runner {
        #[command(subcommand)]
        what: RunnerWhat,
    },
    /// Show every step of setting a rig up
    History {
        /// The rig
        #[arg(value_name = "RIG")]
        rig: RigName,
    },
    /// Make, list or revoke tokens
    Token {
        #[command(subcommand)]
        what: TokenWhat,
    },
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Where to listen [default: 127.0.0.1:7078; port 0 takes any free one]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Allow an address that other machines reach; control has tokens and no TLS of its own
    #[arg(long)]
    listen_open: bool,
    /// The bus's address, as control and runners reach it [default: THERMITE_NATS_URL]
    #[arg(long, value_name = "URL")]
    nats_url: Option<String>,
    /// The certificates that the bus's is checked against; runners are given them [default: THERMITE_NATS_CA_FILE]
    #[arg(long, value_name = "FILE")]
    nats_ca_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct BusConfigArgs {
    /// Where the bus's server listens
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:4222")]
    listen: String,
    /// The folder where it keeps accounts
    #[arg(long, value_name = "DIR")]
    accounts: PathBuf,
    /// Its certificate
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its certificate's key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(Debug, Subcommand)]
enum RigWhat {
    /// Make a rig; its token is shown once
    Add {
        /// Its name: 2 to 64 of a-z, 0-9 and -
        #[arg(value_name = "NAME")]
        rig: RigName,
    },
    /// List the rigs
    List,
    /// Remove a rig with its runners: all its tokens and rights end
    Remove {
        /// The rig
        #[arg(value_name = "RIG")]
        rig: RigName,
    },
    /// Remove a rig's core: its key is barred, its rights end, and another process may take its place
    #[command(name = "remove-core")]
    RemoveCore {
        /// The rig
        #[arg(value_name = "RIG")]
        rig: RigName,
    },
}

#[derive(Debug, Subcommand)]
enum RunnerWhat {
    /// Remove a runner until it is listed again
    Remove {
        /// The rig
        #[arg(value_name = "RIG")]
        rig: RigName,
        /// The runner
        #[arg(value_name = "RUNNER")]
        runner: ProcessName,
    },
}

#[derive(Debug, Args)]
struct SettingsArgs {
    /// The rig
    #[arg(value_name = "RIG")]
    rig: RigName,
    /// A runner and its pools in order, such as box-2=judge,lane-1; give each
    #[arg(long = "runner", value_name = "NAME=POOLS", value_parser = listed)]
    runners: Vec<ProcessAsk>,
    /// Set a list without runners
    #[arg(long, conflicts_with = "runners")]
    no_runners: bool,
    /// How many workers are at work at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    workers: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum TokenWhat {
    /// Make a token; it is shown once
    New {
        /// For this rig's core and self-started runners; without it an owner's
        #[arg(long, value_name = "RIG")]
        rig: Option<RigName>,
        /// For this runner of the rig alone
        #[arg(long, value_name = "RUNNER", requires = "rig")]
        runner: Option<ProcessName>,
        /// A word beside it for the listing
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// How long it is valid, such as 12h or 30d [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = super::token::seconds)]
        valid: Option<u64>,
    },
    /// List the tokens by their public names
    List,
    /// Revoke a token at once
    Revoke {
        /// The token's public name, as `thermite control token list` shows it
        #[arg(value_name = "ID", value_parser = super::token::shown_by("thermite control token list"))]
        token: TokenId,
    },
}

/// Does what is asked.
pub(crate) fn control(args: &ControlArgs, say: &Say) -> anyhow::Result<u8> {
    match &args.what {
        What::Serve(serve) => serve_until_signal(args, serve, say),
        What::BusConfig(config) => print_config(args, config, say),
        What::Rig { what } => rig(args, what, &args.client()?, say),
        What::Settings(settings) => self::settings(args, settings, &args.client()?, say),
        What::Runners { rig } => {
            let rows: Vec<ProcessRow> = args.client()?.get(&format!("/v1/rigs/{rig}/runners"))?;
            args.rows(say, "runners", &rows, runner_line);
            Ok(exit::OK)
        }
        What::Runner { what: RunnerWhat::Remove { rig, runner } } => {
            let removed: Removed = args.client()?.delete(&format!("/v1/rigs/{rig}/runners/{runner}"))?;
            args.removed(say, &removed, &format!("runner {runner} of rig {rig} is removed"));
            Ok(exit::OK)
        }
        What::History { rig } => {
            let rows = whole_history(&args.client()?, rig)?;
            args.rows(say, "history", &rows, history_line);
            Ok(exit::OK)
        }
        What::Token { what } => token(args, what, &args.client()?, say),
    }
}

impl ControlArgs {
    fn client(&self) -> anyhow::Result<ControlClient> {
        let url = self.url.clone().filter(|url| !url.is_empty());
        let url = url.map(rig_url).transpose().map_err(|fault| SettingFault {
            setting: "CONTROL_URL (--url)",
            expected: "control's address, such as http://127.0.0.1:7078".to_owned(),
            ..fault
        })?;
        let token_file = self.token_file.clone().filter(|file| !file.as_os_str().is_empty());
        let folder = control_folder(self.data.clone(), &environment)?;
        let ca_file = self.ca_file.clone().filter(|file| !file.as_os_str().is_empty());
        let is_asked_for = ca_file.is_some() || url.as_deref().is_some_and(|url| url.starts_with("https:"));
        let tls = is_asked_for.then(|| control_tls(ca_file.as_deref())).transpose()?;
        Ok(ControlClient::open(&ControlPlace { url, token_file, tls, folder })?)
    }

    fn rows<T: serde::Serialize>(&self, say: &Say, name: &str, rows: &[T], line: impl Fn(&T) -> String) {
        if self.json {
            say.json(&json!({ name: rows }));
        } else {
            rows.iter().for_each(|row| say.line(&line(row)));
        }
    }

    fn removed(&self, say: &Say, removed: &Removed, sentence: &str) {
        if self.json {
            return say.json(removed);
        }
        say.line(sentence);
        if !removed.rights_ended {
            say.aside("the bus is away: its rights there end as soon as it is back; it gets no new ones");
        }
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn serve_until_signal(args: &ControlArgs, serve: &ServeArgs, say: &Say) -> anyhow::Result<u8> {
    let given = ControlGiven {
        folder: args.data.clone(),
        listen: serve.listen.clone(),
        listen_open: serve.listen_open,
        nats_url: serve.nats_url.clone(),
        ca_file: serve.nats_ca_file.clone(),
    };
    let settings = ControlSettings::read(given, environment)?;
    super::serve::log(&settings.log, say);
    let listening = |service: &ControlService| {
        let token = service.folder().path().join(OWNER_TOKEN);
        if args.json {
            return say.json(&json!({
                "url": service.endpoint().url,
                "pid": service.endpoint().pid,
                "data": service.folder().path(),
                "token_file": token,
            }));
        }
        say.line(&format!("thermite: control listens at {}", service.endpoint().url));
        if service.token_made() {
            say.line(&format!("thermite: its owner's token is in {}", token.display()));
        }
    };
    match actix_web::rt::System::new().block_on(serve_control(settings, listening)) {
        Ok(()) => Ok(exit::OK),
        Err(fault) => {
            say.error(&fault.to_string());
            Ok(fault.exit_code())
        }
    }
}

fn print_config(args: &ControlArgs, config: &BusConfigArgs, say: &Say) -> anyhow::Result<u8> {
    let folder = control_folder(args.data.clone(), &environment)?;
    // Before control's first start there is no key yet: it is made here, and control goes on with it.
    let operator = match known_operator(&folder)? {
        Some(operator) => operator,
        None => operator_in(&DataFolder::take(&folder)?)?,
    };
    let absolute = |path: &PathBuf| std::path::absolute(path);
    let place = BusPlace {
        listen: config.listen.clone(),
        accounts: absolute(&config.accounts)?,
        certificate: absolute(&config.cert)?,
        key: absolute(&config.key)?,
    };
    let text = bus_config(&operator, &place, &[], Second(BootClock.wall_ms() / 1_000))?;
    if args.json {
        say.json(&json!({ "config": text }))
    } else {
        say.line(text.trim_end())
    }
    Ok(exit::OK)
}

fn rig(args: &ControlArgs, what: &RigWhat, client: &ControlClient, say: &Say) -> anyhow::Result<u8> {
    match what {
        RigWhat::Add { rig } => {
            let made: RigMade = client.post("/v1/rigs", &NewRig { name: rig.clone() })?;
            if args.json {
                say.json(&made);
            } else {
                say.line(&made.secret);
                say.aside(&format!(
                    "this is the only time it is shown: token {} of rig {rig}, for its core and its runners \
                     (THERMITE_CONTROL_TOKEN_FILE)",
                    made.token
                ));
            }
        }
        RigWhat::List => {
            let rows: Vec<RigRow> = client.get("/v1/rigs")?;
            args.rows(say, "rigs", &rows, rig_line);
        }
        RigWhat::Remove { rig } => {
            let removed: Removed = client.delete(&format!("/v1/rigs/{rig}"))?;
            args.removed(say, &removed, &format!("rig {rig} is removed, with its runners"));
        }
        RigWhat::RemoveCore { rig } => {
            let removed: Removed = client.delete(&format!("/v1/rigs/{rig}/core"))?;
            args.removed(say, &removed, &format!("the core of rig {rig} is removed; another may take its place"));
            if !args.json {
                say.aside(&format!(
                    "its key is barred; a machine in other hands also has the rig's token: make another (`thermite control \
                     token new --rig {rig}`), give it to the others, and revoke the old one"
                ));
            }
        }
    }
    Ok(exit::OK)
}

fn settings(args: &ControlArgs, asked: &SettingsArgs, client: &ControlClient, say: &Say) -> anyhow::Result<u8> {
    let path = format!("/v1/rigs/{}/settings", asked.rig);
    let mut view: RigSettingsView = client.get(&path)?;
    if asked.no_runners || !asked.runners.is_empty() || asked.workers.is_some() {
        let before = view.settings;
        let keeps = asked.runners.is_empty() && !asked.no_runners;
        let settings = RigSettingsAsk {
            runners: if keeps { before.runners } else { asked.runners.clone() },
            gpus: before.gpus,
            workers: asked.workers.or(before.workers),
        };
        view = client.put(&path, &settings, view.revision)?;
    }
    if args.json {
        say.json(&view);
        return Ok(exit::OK);
    }
    let taken = if view.taken >= view.revision {
        "the rig has them".to_owned()
    } else {
        format!("the rig has revision {}", view.taken)
    };
    let whence = if view.from_rig { ", set at the rig itself" } else { "" };
    say.line(&format!("revision {}{whence}; {taken}", view.revision));
    for runner in &view.settings.runners {
        say.line(&format!("{}: {}", runner.name, runner.pools.join(", ")));
    }
    if let Some(workers) = view.settings.workers {
        say.line(&format!("workers at a time: {workers}"));
    }
    Ok(exit::OK)
}

fn token(args: &ControlArgs, what: &TokenWhat, client: &ControlClient, say: &Say) -> anyhow::Result<u8> {
    match what {
        TokenWhat::New { rig, runner, note, valid } => {
            let kind = match (rig, runner) {
                (Some(_), Some(_)) => ControlTokenKind::Runner,
                (Some(_), None) => ControlTokenKind::Rig,
                (None, _) => ControlTokenKind::Owner,
            };
            let (rig, runner) = (rig.clone(), runner.clone());
            let new = NewControlToken { kind, rig, runner, note: note.clone(), valid_s: *valid };
            let made: ControlTokenMade = client.post("/v1/tokens", &new)?;
            if args.json {
                say.json(&made);
            } else {
                say.line(&made.secret);
                say.aside(&format!("this is the only time it is shown: {}", token_line(&made.row)));
            }
        }
        TokenWhat::List => {
            let rows: Vec<ControlTokenRow> = client.get("/v1/tokens")?;
            args.rows(say, "tokens", &rows, token_line);
        }
        TokenWhat::Revoke { token } => {
            let _nothing: Value = client.delete(&format!("/v1/tokens/{token}"))?;
            if args.json {
                say.json(&json!({ "revoked": token }))
            } else {
                say.line(&format!("token {token} is revoked"))
            }
        }
    }
    Ok(exit::OK)
}

fn whole_history(client: &ControlClient, rig: &RigName) -> anyhow::Result<Vec<HistoryRow>> {
    let mut rows: Vec<HistoryRow> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.seq);
        let page: Vec<HistoryRow> = client.get(&format!("/v1/rigs/{rig}/history?after={after}"))?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
    }
}

fn rig_line(row: &RigRow) -> String {
    let reported = match row.reported_ago_ms {
        Some(ago) => format!("reported {} ago", Span::millis(ago)),
        None => "its core has not reported".to_owned(),
    };
    format!("{}: settings at revision {}, the rig has {}; {reported}", row.rig, row.revision, row.taken)
}

fn runner_line(row: &ProcessRow) -> String {
    let name = row.runner.as_ref().map_or_else(|| "the core".to_owned(), ToString::to_string);
    let pools = if row.pools.is_empty() { "not listed".to_owned() } else { row.pools.join(", ") };
    let now = BootClock.wall_ms();
    let heard = match (row.barred, row.heard_ms) {
        (true, _) => "removed; it comes back once it is listed again".to_owned(),
        (false, None) => "has not registered".to_owned(),
        (false, Some(heard)) => format!("registered {} ago", Span::millis(now.saturating_sub(heard))),
    };
    format!("{name}: {pools}; {heard}")
}

fn history_line(row: &HistoryRow) -> String {
    let what = match &row.step {
        Step::RigMade => "the rig was made".to_owned(),
        Step::RigRemoved => "the rig was removed, with its runners".to_owned(),
        Step::TokenMade { token } => format!("token {token} was made"),
        Step::TokenRevoked { token } => format!("token {token} was revoked"),
        Step::SettingsSet { revision, settings } => {
            format!("settings were set to revision {revision}, with {} runner processes", settings.runners.len())
        }
        Step::SettingsTaken { revision } => format!("the rig has settings of revision {revision}"),
        Step::SettingsRefused { revision, why } => format!("the rig refuses revision {revision}: {}", plain(why)),
        Step::Registered { runner, .. } => match runner {
            Some(runner) => format!("runner {runner} registered"),
            None => "the core registered".to_owned(),
        },
        Step::RunnerRemoved { runner } => format!("runner {runner} was removed"),
        Step::RunnerListedAgain { runner } => format!("runner {runner}, removed before, was listed again"),
        Step::CoreRemoved => "the core was removed".to_owned(),
    };
    let ago = Span::millis(BootClock.wall_ms().saturating_sub(row.wall_ms));
    format!("{}. {ago} ago, by {}: {what}", row.seq, plain(&row.by))
}

fn token_line(row: &ControlTokenRow) -> String {
    let opens = match &row.opens {
        ControlToken::Owner if row.from_file => "owner, in the data folder's file".to_owned(),
        ControlToken::Owner => "owner".to_owned(),
        ControlToken::Rig { rig } => format!("rig {rig}"),
        ControlToken::Runner { rig, runner } => format!("runner {runner} of rig {rig}"),
    };
    let now = BootClock.wall_ms();
    let ends = match row.expires_ms {
        None => "until it is revoked".to_owned(),
        Some(end) if end <= now => "expired".to_owned(),
        Some(end) => format!("for {} more", Span::millis(end - now)),
    };
    let note = if row.note.is_empty() { String::new() } else { format!(", {}", row.note) };
    format!("{}: {opens}, {ends}{note}", row.token)
}

fn listed(text: &str) -> Result<ProcessAsk, String> {
    let (name, pools) = text.split_once('=').ok_or("write NAME=POOLS, such as box-2=judge,lane-1")?;
    let ask = ProcessAsk { name: name.to_owned(), pools: pools.split(',').map(str::to_owned).collect() };
    parse(std::slice::from_ref(&ask)).map_err(|no| no.to_string())?;
    Ok(ask)
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn a_runner_and_its_pools_are_one_word() {
        assert_eq!(listed("box-2=judge,lane-1").unwrap().pools, ["judge", "lane-1"]);
        for wrong in ["", "box-2", "box-2=", "=judge", "Box=judge", "box-2=lane-17", "box-2=judge,,judge"] {
            assert!(listed(wrong).is_err(), "{wrong}");
        }
    }
}
