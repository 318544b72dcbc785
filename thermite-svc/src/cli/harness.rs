//! `thermite harness`: launches and measures on this machine for the supervisor of a runner.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use thermite_svc::device_lock::DeviceLock;
use thermite_svc::folder::DataFolder;
use thermite_svc::harness::door::{HarnessDoor, serve};
use thermite_svc::serve::Signals;
use thermite_svc::settings::bus::HarnessSettings;

use super::assemble::lay;
use super::exit;
use super::say::Say;

/// What `harness` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct HarnessArgs {
    /// The runner's data folder, which its supervisor has too [default: $HOME/.local/share/thermite]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  THERMITE_ROLE=runner THERMITE_RIG_ID=lab THERMITE_TARGET=cpu thermite harness
  THERMITE_ROLE=runner THERMITE_RIG_ID=lab THERMITE_TARGET=cuda-gpu THERMITE_GPUS=0,1 \\
    thermite harness --data /var/lib/thermite

Listens to its supervisor alone, on a Unix socket that only its own user reaches (THERMITE_HARNESS_DIR, else a folder \
in the data folder). Each GPU is one runner, in order; without GPUs the machine's CPUs are the one runner. At its start \
it ends what an earlier harness left; when its supervisor is gone it ends all that runs.

Exit codes: 0 ended by its rules; 64 wrong usage or setting; 70 this machine cannot be a runner; 71 the system gave no \
signals; 74 the data folder or the socket cannot be had; 75 data folder or device is in use by another program.";

/// Serves a supervisor until a signal.
pub(crate) fn harness(args: &HarnessArgs, say: &Say) -> anyhow::Result<u8> {
    let settings = HarnessSettings::read(args.data.clone(), |name| std::env::var(name).ok())?;
    super::serve::log(&settings.machine.log, say);
    actix_web::rt::System::new().block_on(async {
        let mut signals = Signals::listen().context("signals cannot be had")?;
        let folder = match DataFolder::take(&settings.machine.folder) {
            Ok(folder) => folder,
            Err(fault) => {
                say.error(&fault.to_string());
                return Ok(thermite_svc::serve::ServeFault::from(fault).exit_code());
            }
        };
        let hidden =
            settings.data.canonicalize().with_context(|| format!("data folder {}", settings.data.display()))?;
        let laid = match lay(folder.path(), &hidden, &settings.machine).await {
            Ok(laid) => laid,
            Err(why) => {
                say.error(&why);
                return Ok(exit::INFRASTRUCTURE);
            }
        };
        let mut locks = Vec::new();
        for member in &laid.members {
            match DeviceLock::take(&settings.machine.device_locks, &member.driver.facts(), folder.path()) {
                Ok(lock) => locks.push(lock),
                Err(fault) => {
                    say.error(&fault.to_string());
                    return Ok(thermite_svc::serve::ServeFault::from(fault).exit_code());
                }
            }
        }
        let door = match HarnessDoor::open(&settings.socket) {
            Ok(door) => door,
            Err(fault) => {
                say.error(&fault.to_string());
                return Ok(exit::IO);
            }
        };
        say.line(&format!("thermite: a harness with {} listens at {}", devices(locks.len()), door.path().display()));
        serve(door, settings.rig.as_str(), laid.members, async {
            let signal = signals.next().await;
            tracing::info!(signal, "ending by the rules");
        })
        .await;
        Ok(exit::OK)
    })
}

fn devices(count: usize) -> String {
    match count {
        1 => "1 device".to_owned(),
        more => format!("{more} devices"),
    }
}
