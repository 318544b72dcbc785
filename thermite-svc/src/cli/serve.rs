//! `thermite serve`: this machine's CPUs as a rig, until SIGTERM or Ctrl-C.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use sha2::{Digest, Sha256};

use thermite_actors::host::clock::BootClock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{ExecutorSettings, HostExecutor};
use thermite_actors::host::hex;
use thermite_actors::host::ids::OsIds;
use thermite_actors::host::launch::{Cards, Containment, Launcher, LauncherSettings};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::MemberPorts;
use thermite_actors::rig::RigSetup;
use thermite_core::ids::MemberId;
use thermite_svc::budget::Stores;
use thermite_svc::serve::{Ground, Parts, Service, serve as serve_rig};
use thermite_svc::settings::{Given, Settings};

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

/// Where the judge's own share of the load outlives the rig, in the data folder.
const OWN_SHARE: &str = "own-share.json";

const AFTER: &str = "\
Examples:
  thermite serve
  thermite serve --data ./rig --listen 127.0.0.1:0

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
    let settings = Settings::read(given, |name| std::env::var(name).ok())?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&settings.log))
        .with_ansi(say.side_ink.is_coloured())
        .with_writer(std::io::stderr)
        .init();

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

/// Says how runs are contained.
///
/// # Errors
/// Where they cannot be, with what is missing and the way out.
fn tell_containment(containment: &Containment) -> Result<(), String> {
    if containment.isolation().is_none() {
        return Err(format!(
            "no containment for a run here: {}; serve as root, or allow user namespaces; `thermite doctor` says more",
            containment.missing_in_words()
        ));
    }
    tracing::info!(%containment, "runs are contained");
    for missing in &containment.missing {
        tracing::info!(layer = %missing.layer, why = missing.why, "without it {}", missing.leaves_open);
    }
    if !containment.has_own_view() {
        tracing::warn!(%containment, "runs have no view of their own; `thermite doctor` says what that leaves open");
    }
    for open in &containment.open {
        tracing::info!("containment leaves open: {open}");
    }
    Ok(())
}

/// This machine as the rig's ports: its CPUs are the one device.
async fn assemble(ground: Ground) -> Result<Parts, String> {
    let Ground { folder, settings, records, inputs } = ground;
    let data = folder.path().to_owned();
    let accounts = Accounts::of_this_user(settings.lane_uid_base);
    // Two rigs of one machine have two folders, and must not take each other's runs for leftovers.
    let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let rig = format!("rig-{}", hex(&digest[..6]));
    let launcher = Launcher::open(LauncherSettings {
        rig: rig.clone(),
        state: data.join("runs"),
        hidden: vec![data.clone()],
        program: LauncherSettings::THIS_PROGRAM.into(),
        wanted: settings.containment,
        trial_uid: accounts.trial(),
        cards: Cards::default(),
    });
    let launcher = launcher.await.map_err(|fault| fault.to_string())?;
    tell_containment(launcher.containment())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut workspaces = HostWorkspaces::open(&data, accounts, path).map_err(|error| format!("workspaces: {error}"))?;
    if !launcher.containment().has_own_view() && accounts != Accounts::rigs_user() {
        // The data folder is closed to the judge's account, and nothing can be shown to it elsewhere.
        let open_to_all = PathBuf::from(format!("/var/tmp/thermite-{rig}"));
        workspaces =
            workspaces.lay_out_in(&open_to_all).map_err(|error| format!("{}: {error}", open_to_all.display()))?;
    }
    let driver = match &settings.proc_root {
        None => CpuDriver::of_this_machine(),
        Some(root) => {
            tracing::warn!(root = %root.display(), "THERMITE_PROC_ROOT is set: load is read there, not of this machine");
            CpuDriver::fed_from(root)
        }
    };
    driver.remember_own_use(&data.join(OWN_SHARE));
    let executor =
        HostExecutor::open(launcher, workspaces.clone(), driver.clone(), ExecutorSettings { rig, data, accounts });
    let executor = executor.map_err(|error| format!("outputs: {error}"))?;
    let outputs = Arc::new(executor.outputs().clone());
    let member = MemberPorts { member: MemberId(0), driver: Rc::new(driver), executor: Rc::new(executor) };
    let stores = Arc::new(HostStores(workspaces.clone()));
    let setup = RigSetup {
        members: vec![member],
        bench: None,
        workspaces: Rc::new(workspaces),
        records,
        clock: Rc::new(BootClock),
        ids: Rc::new(OsIds),
        inputs,
        settings: settings.rig,
    };
    Ok(Parts { setup, outputs, stores: Some(stores) })
}

/// The commits that this machine's workspaces keep.
struct HostStores(HostWorkspaces);

impl Stores for HostStores {
    fn prune(&self, needed: &BTreeSet<String>) -> Result<usize, String> {
        self.0.prune(needed)
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
