//! `thermite supervisor`: a runner of a rig whose core is on another machine.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Context;
use clap::Args;

use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::FreshCopies;
use thermite_svc::serve::Signals;
use thermite_svc::settings::bus::SupervisorSettings;
use thermite_svc::supervisor::run::run;

use super::exit;
use super::say::Say;

/// What `supervisor` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct SupervisorArgs {
    /// The runner's data folder, which its harness has too [default: $HOME/.local/share/thermite]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  THERMITE_ROLE=runner THERMITE_RIG_ID=lab THERMITE_RUNNER=box-2 \\
    CONTROL_URL=https://control.example:7078 THERMITE_CONTROL_TOKEN_FILE=/etc/thermite/token \\
    thermite supervisor --data /var/lib/thermite
  THERMITE_ROLE=runner THERMITE_RIG_ID=lab THERMITE_RUNNER=box-2 \\
    THERMITE_NATS_URL=nats://127.0.0.1:4222 thermite supervisor

Makes its key once, registers it with control and answers its rig's core over the bus; the work is done by `thermite \
harness` of the same data folder. THERMITE_NATS_URL and THERMITE_NATS_CA_FILE take the place of what control says of the \
bus; without control only a bus on this machine is used, without rights.

Exit codes: 0 ended by its rules; 64 wrong usage or setting; 69 control lets it in no longer, or refuses it; 70 its harness \
came back with other devices; 71 the system gave no threads or signals; 74 the data folder cannot be read or written; 75 \
the data folder is in use by another program; 78 something named cannot be used.";

/// Answers on the bus until a signal.
pub(crate) fn supervisor(args: &SupervisorArgs, say: &Say) -> anyhow::Result<u8> {
    let environment = |name: &str| std::env::var(name).ok();
    let settings = SupervisorSettings::read(args.data.clone(), environment)?;
    super::serve::log(&settings.log, say);
    let uid_base = settings.lane_uid_base;
    let lived = actix_web::rt::System::new().block_on(async {
        let mut signals = Signals::listen().context("signals cannot be had")?;
        let copies = |data: &std::path::Path| {
            let path = std::env::var("PATH").unwrap_or_default();
            let workspaces = HostWorkspaces::open(data, Accounts::of_this_user(uid_base), path)?;
            // The harness is here, so that nothing of an earlier start runs any more.
            workspaces.discard_all_copies()?;
            Ok(Rc::new(workspaces) as Rc<dyn FreshCopies>)
        };
        let told_to_end = async {
            let signal = signals.next().await;
            tracing::info!(signal, "ending; what runs is ended by the harness");
        };
        anyhow::Ok(run(settings, copies, told_to_end).await)
    })?;
    match lived {
        Ok(()) => Ok(exit::OK),
        Err(fault) => {
            say.error(&fault.to_string());
            Ok(fault.exit_code())
        }
    }
}
