//! `thermite serve`: this machine's CPUs or GPUs as a rig, until SIGTERM or Ctrl-C.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use thermite_svc::serve::{Service, serve as serve_rig};
use thermite_svc::settings::bus::CoreBus;
use thermite_svc::settings::{Given, Settings};

use super::assemble::assemble;
use super::exit;
use super::say::Say;

/// What `serve` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct ServeArgs {
    /// Where to listen [default: 127.0.0.1:7077; port 0 takes any free one]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The rig's data folder [default: $HOME/.local/share/thermite]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Allow an address that other machines reach; REST has tokens and no TLS of its own
    #[arg(long)]
    listen_open: bool,
    /// Print one JSON object when it listens: its address, its data folder, its owner's token file
    #[arg(long)]
    json: bool,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    ends_with_parent: bool,
}

const AFTER: &str = "\
Examples:
  thermite serve
  thermite serve --data ./rig --listen 127.0.0.1:0
  THERMITE_TARGET=cuda-gpu thermite serve
  THERMITE_TARGET=cuda-gpu THERMITE_GPUS=0,2 thermite serve

A rig's device is the machine's CPUs. With THERMITE_TARGET=cuda-gpu its devices are the machine's GPUs: all, or those \
that THERMITE_GPUS names by index or UUID, in that order; two or more are split between judge and lanes, unless \
THERMITE_SPLIT=shared says otherwise (see `thermite split`).

With CONTROL_URL, THERMITE_CONTROL_TOKEN_FILE and THERMITE_RIG_ID it has a bus, and runners on other machines (see \
`thermite runners`); THERMITE_LOCAL_JUDGE=0 has its runners alone judge.

Ends by its rules at SIGTERM or Ctrl-C: what runs is stopped and proved gone, all is recorded. THERMITE_LOG sets \
what is logged (info, debug, trace).

Exit codes: 0 ended by its rules; 64 wrong usage or setting; 70 this machine cannot be a rig; 71 the system gave no \
threads or signals; 74 the data folder cannot be read or written; 75 something is in use by another program; 78 \
something named cannot be used.";

/// Serves until a signal.
pub(crate) fn serve(args: &ServeArgs, say: &Say) -> anyhow::Result<u8> {
    if args.ends_with_parent {
        end_with_parent()?;
    }
    let given = Given { folder: args.data.clone(), listen: args.listen.clone(), listen_open: args.listen_open };
    let mut settings = Settings::read(given, |name| std::env::var(name).ok())?;
    settings.bus = CoreBus::read(|name| std::env::var(name).ok())?;
    log(&settings.log, say);
    let served =
        actix_web::rt::System::new().block_on(serve_rig(settings, assemble, |service| tell(service, args.json, say)));
    match served {
        Ok(()) => Ok(exit::OK),
        Err(fault) => {
            say.error(&fault.to_string());
            Ok(fault.exit_code())
        }
    }
}

/// Has what happens logged to standard error, as the setting says.
pub(super) fn log(wanted: &str, say: &Say) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(wanted))
        .with_ansi(say.side_ink.is_coloured())
        .with_writer(std::io::stderr)
        .init();
}

fn tell(service: &Service, json: bool, say: &Say) {
    let token = service.folder().path().join(thermite_svc::folder::OWNER_TOKEN);
    if json {
        return say.json(&serde_json::json!({
            "url": service.endpoint().url,
            "pid": service.endpoint().pid,
            "data": service.folder().path(),
            "token_file": token,
        }));
    }
    say.line(&format!("thermite: a rig listens at {}", service.endpoint().url));
    if service.token_made() {
        say.line(&format!("thermite: its owner's token is in {}", token.display()));
    }
}

/// The kernel sends SIGTERM when the parent is gone, also where it was killed: nothing outlives a `thermite try`.
fn end_with_parent() -> anyhow::Result<()> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("failed to end with the process that started this one")?;
    // It may have ended before the kernel was asked.
    anyhow::ensure!(
        rustix::process::getppid() == parent && parent.is_some(),
        "the process that started this one ended"
    );
    Ok(())
}
