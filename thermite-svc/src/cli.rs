//! The commands people type. Each parses, calls one thing, and says how it went by words and exit code.
//!
//! No runtime is started for a command that talks to a rig: it opens one connection and is gone.

mod assemble;
mod backup;
mod cancel;
mod completions;
mod control;
mod doctor;
#[cfg(test)]
mod documented;
pub(crate) mod exit;
mod exit_codes;
mod find;
pub(crate) mod follow;
mod groups;
mod harness;
pub(crate) mod ink;
pub(crate) mod judge;
mod man;
mod noise;
mod replay;
mod run;
mod runners;
mod runs;
pub(crate) mod say;
mod serve;
pub(crate) mod show;
mod split;
mod status;
pub(crate) mod stop;
mod supervisor;
mod token;
mod top;
pub(crate) mod verdict;
pub(crate) mod verify;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use thermite_core::contract::Target;
use thermite_svc::settings::{data_folder, rig_url};

use crate::client::{Client, Place, RunChange};
use crate::try_out::{Wishes, try_out};

use say::Say;
use stop::Stop;

/// Lets programming agents, each in a lane of its own, and a judge take turns on one device.
#[derive(Debug, Parser)]
#[command(name = "thermite", version, max_term_width = 100, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  thermite try                                  see the whole thing work on this machine
  thermite serve                                serve this machine as a rig
  thermite run --lane 1 -- cargo bench          try a command on the device, in turn
  thermite judge --change my-branch             measure a change against the champion

Exit codes: 0 done; 64 wrong usage; 69 refused; 70 infrastructure. `run`, `judge` and others have more: see \
`thermite exit-codes`.";

/// How to reach the rig.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reaching the rig")]
struct Reach {
    /// The rig's address, such as http://127.0.0.1:7077 [default: told by its data folder]
    #[arg(long, global = true, value_name = "URL", env = "THERMITE_URL", hide_env = true)]
    url: Option<String>,
    /// The file with the token [default: the owner's, in the data folder]
    #[arg(long, global = true, value_name = "FILE", env = "THERMITE_TOKEN_FILE", hide_env = true)]
    token_file: Option<PathBuf>,
    /// The rig's data folder
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A command that talks to a rig.
#[derive(Debug, Args)]
struct OnRig<A: Args> {
    #[command(flatten)]
    args: A,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try the whole thing on this machine: real lanes, a real comparison, verdicts
    Try(TryArgs),
    /// Say what this machine can do for a rig, what is missing, and how to get it
    Doctor(doctor::DoctorArgs),
    /// Serve this machine's CPUs or GPUs as a rig
    Serve(serve::ServeArgs),
    /// Answer a rig's core on another machine as one of its runners
    Supervisor(supervisor::SupervisorArgs),
    /// Launch and measure on this machine for a runner's supervisor
    Harness(harness::HarnessArgs),
    /// Serve and ask control: rigs' rights on the bus, their runners, their settings
    Control(control::ControlArgs),
    /// Run a command on the device, in turn, and show its output
    Run(OnRig<run::RunArgs>),
    /// Measure a change against the champion, and follow to the verdict
    Judge(OnRig<judge::JudgeArgs>),
    /// Start a run: a repository, its kit, its champion and its lanes
    Start(OnRig<runs::StartArgs>),
    /// Pause a run: it takes no new work, its jobs keep their place
    Pause(OnRig<runs::ChangeArgs>),
    /// Resume a paused run
    Resume(OnRig<runs::ChangeArgs>),
    /// End a run
    End(OnRig<runs::ChangeArgs>),
    /// Show the rig: device, runs, who waits for what
    Status(OnRig<status::StatusArgs>),
    /// Watch the rig live: devices, the line, blocks as they come
    Top(OnRig<top::TopArgs>),
    /// Show how much the devices vary by themselves, and the alarm on the harness
    Noise(OnRig<noise::NoiseArgs>),
    /// Show which cards are the judge's and which the lanes', or set it
    Split(OnRig<split::SplitArgs>),
    /// Show the rig's runners on other machines, or set them
    Runners(OnRig<runners::RunnersArgs>),
    /// Have a device or runner finish what it has and take nothing more
    Drain(OnRig<split::DrainArgs>),
    /// Let a drained device or runner take work again
    Undrain(OnRig<split::DrainArgs>),
    /// Say why something waits, or came out as it did
    Why(OnRig<why::WhyArgs>),
    /// Cancel a development run, waiting or running
    Cancel(OnRig<cancel::CancelArgs>),
    /// Make, list, rotate or revoke tokens of the rig
    Token(OnRig<token::TokenArgs>),
    /// Show a job's verdict: what may be claimed, block by block; also as a page
    Verdict(OnRig<verdict::VerdictArgs>),
    /// Take a backup of the rig's data folder, whether or not it runs
    Backup(backup::BackupArgs),
    /// Make a data folder of a backup
    Restore(backup::RestoreArgs),
    /// Replay a rig's input log: the same machines, the same decisions
    Replay(replay::ReplayArgs),
    /// Recompute a verdict from its record, bit for bit
    Verify(OnRig<verify::VerifyArgs>),
    /// Print what a shell needs to complete commands
    Completions(completions::CompletionsArgs),
    /// Print or write manual pages
    Man(man::ManArgs),
    /// Show what each exit code says
    #[command(name = "exit-codes")]
    ExitCodes(exit_codes::ExitCodesArgs),
}

/// What `try` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER_TRY)]
struct TryArgs {
    /// Print one JSON object at the end, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Keep everything in this new or empty folder; else only the records stay
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Plan for a speed-up of that many percent: a machine that is too noisy for 5 may do for 20 [default: 5 on CPUs, 20
    /// on a GPU]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    plan: Option<u8>,
    /// What to try [default: a GPU where there is one with nvcc, else the CPUs]
    #[arg(long, value_name = "KIND")]
    target: Option<Kind>,
}

/// A kind of device, as it is written.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Cpu,
    CudaGpu,
}

impl From<Kind> for Target {
    fn from(kind: Kind) -> Target {
        match kind {
            Kind::Cpu => Target::Cpu,
            Kind::CudaGpu => Target::CudaGpu,
        }
    }
}

const AFTER_TRY: &str = "\
Examples:
  thermite try
  thermite try --json --keep ./trial
  thermite try --plan 20
  thermite try --target cpu

Serves this machine as a rig on a free loopback port, lets three lanes try and submit a change each to a small \
program, and ends what it started: a kernel on a GPU where there is one with nvcc, else a Rust program on the CPUs; it \
says which, and why. It takes a few minutes on a quiet machine; on a busy one it says what it waits for. It needs git, \
and nvcc or rustc.

Exit codes: 0 all steps ran, every verdict is of the expected kind, every record holds; 1 not so; 64 a setting is \
wrong; 69 refused; 70 infrastructure; 130 ended by Ctrl-C.";

/// Runs the command that the arguments name.
pub(crate) fn main() -> ExitCode {
    let parsed = commands().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(shown) => {
            // Help and version are no errors; where nobody reads them any more, nothing is lost.
            let code = if shown.use_stderr() { exit::USAGE } else { exit::OK };
            let _nobody_reads = shown.print();
            return ExitCode::from(code);
        }
    };
    let say = Say::new();
    match carry_out(&cli, &say) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say.error(&format!("{error:#}"));
            ExitCode::from(exit::of_error(&error))
        }
    }
}

/// All commands, with the list of them in groups.
fn commands() -> clap::Command {
    groups::grouped(Cli::command())
}

fn carry_out(cli: &Cli, say: &Say) -> anyhow::Result<u8> {
    match &cli.command {
        Command::Try(args) => {
            let wishes = Wishes {
                json: args.json,
                keep: args.keep.clone(),
                plan_percent: args.plan,
                target: args.target.map(Target::from),
            };
            match try_out(&wishes, &Stop::listen()?, say) {
                Ok(code) => Ok(code),
                Err(fault) => {
                    say.error(&fault.to_string());
                    Ok(fault.exit_code())
                }
            }
        }
        Command::Doctor(args) => doctor::doctor(args, say),
        Command::Serve(args) => serve::serve(args, say),
        Command::Control(args) => control::control(args, say),
        Command::Supervisor(args) => supervisor::supervisor(args, say),
        Command::Harness(args) => harness::harness(args, say),
        Command::Run(OnRig { args, reach }) => run::run(args, || reach.client(), say),
        Command::Judge(OnRig { args, reach }) => judge::judge(args, || reach.client(), say),
        Command::Start(OnRig { args, reach }) => runs::start(args, &reach.client()?, say),
        Command::Pause(OnRig { args, reach }) => runs::change(args, RunChange::Pause, &reach.client()?, say),
        Command::Resume(OnRig { args, reach }) => runs::change(args, RunChange::Resume, &reach.client()?, say),
        Command::End(OnRig { args, reach }) => runs::change(args, RunChange::End, &reach.client()?, say),
        Command::Status(OnRig { args, reach }) => status::status(args, &reach.client()?, say),
        Command::Noise(OnRig { args, reach }) => noise::noise(args, &reach.client()?, say),
        Command::Split(OnRig { args, reach }) => split::split(args, &reach.client()?, say),
        Command::Runners(OnRig { args, reach }) => runners::runners(args, &reach.client()?, say),
        Command::Drain(OnRig { args, reach }) => split::drain(args, true, &reach.client()?, say),
        Command::Undrain(OnRig { args, reach }) => split::drain(args, false, &reach.client()?, say),
        Command::Why(OnRig { args, reach }) => why::why(args, &reach.client()?, say),
        Command::Replay(args) => replay::replay(args, say),
        Command::Cancel(OnRig { args, reach }) => cancel::cancel(args, &reach.client()?, say),
        Command::Token(OnRig { args, reach }) => token::token(args, &reach.client()?, say),
        Command::Top(OnRig { args, reach }) => top::top(args, || reach.client(), say),
        Command::Verdict(OnRig { args, reach }) => verdict::verdict(args, reach.folder()?, || reach.client(), say),
        Command::Completions(args) => Ok(completions::completions(args, commands(), say)),
        Command::Man(args) => man::man(args, commands(), say),
        Command::ExitCodes(args) => Ok(exit_codes::exit_codes(args, say)),
        Command::Backup(args) => {
            let folder = data_folder(args.data.clone(), &|name| std::env::var(name).ok())?;
            Ok(backup::backup(args, &folder, say))
        }
        Command::Restore(args) => Ok(backup::restore(args, say)),
        Command::Verify(OnRig { args, reach }) => verify::verify(args, reach.folder()?, || reach.client(), say),
    }
}

impl Reach {
    fn client(&self) -> anyhow::Result<Client> {
        // An empty variable is one that is not set.
        let given = self.url.clone().filter(|url| !url.is_empty());
        let url = given.map(rig_url).transpose()?;
        let token_file = self.token_file.clone().filter(|file| !file.as_os_str().is_empty());
        Ok(Client::open(&Place { url, token_file, folder: self.folder()? })?)
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        Ok(data_folder(self.data.clone(), &|name| std::env::var(name).ok())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        commands().debug_assert();
    }

    #[test]
    fn the_list_of_commands_names_each_once_and_under_a_heading() {
        let help = commands().render_long_help().to_string();

        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let lines = help.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
            assert_eq!(lines, 1, "{name} is listed {lines} times:\n{help}");
        }
        let headings = help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).count();
        assert!(headings >= 6, "{help}");
    }

    #[test]
    fn the_help_of_each_command_names_its_exit_codes() {
        let mut whole = Cli::command();
        for row in exit::TABLE {
            let Some(command) = whole.find_subcommand_mut(row.command) else { continue };
            let help = command.render_long_help().to_string();
            let first = row.code.split("..").next().unwrap();
            let is_said = row.code.contains("..") || help.contains(&format!("{first} "));
            assert!(is_said, "{}'s help does not say {}:\n{help}", row.command, row.code);
        }
    }

    #[test]
    fn every_help_text_has_an_example() {
        let mut whole = Cli::command();
        for command in whole.get_subcommands_mut() {
            let name = command.get_name().to_owned();
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{name} has no example:\n{help}");
            assert!(help.contains(&format!("thermite {name}")), "{name}'s example does not show it:\n{help}");
        }
    }

    #[test]
    fn wrong_usage_is_told_apart_from_every_verdict() {
        for line in [
            &["thermite"][..],
            &["thermite", "nonsense"],
            &["thermite", "run", "--", "true"],
            &["thermite", "run", "--lane", "one", "--", "true"],
            &["thermite", "judge"],
            &["thermite", "pause", "--run", "not-an-id"],
        ] {
            let shown = Cli::try_parse_from(line).unwrap_err();
            let is_help = !shown.use_stderr();
            assert!(!is_help, "{line:?} was taken as asking for help");
        }
        assert!(![0, 1, 2, 3, 4].contains(&exit::USAGE));
    }

    #[test]
    fn everything_after_two_dashes_is_the_command() {
        let cli = Cli::try_parse_from(["thermite", "run", "--lane", "2", "--", "cargo", "bench", "--json"]).unwrap();

        let Command::Run(OnRig { args, .. }) = cli.command else { panic!("not run") };
        assert_eq!(args.command, ["cargo", "bench", "--json"]);
        assert!(!args.json);
    }
}
