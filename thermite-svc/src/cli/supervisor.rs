//! `thermite supervisor`: a runner of a rig whose core is on another machine.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Context;
use clap::Args;

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
            std::fs::create_dir_all(data.join("work"))?;
            let _ = uid_base;
            Ok(Rc::new(StoreCopies(data.canonicalize()?)) as Rc<dyn FreshCopies>)
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

struct StoreCopies(PathBuf);

impl FreshCopies for StoreCopies {
    fn lay_out(
        &self,
        dev_run: thermite_core::ids::DevRunId,
        _: thermite_core::ids::LaneId,
        commit: String,
    ) -> futures_util::future::LocalBoxFuture<'static, Result<PathBuf, String>> {
        let (data, folder) = (self.0.clone(), self.0.join(format!("work/copy-{dev_run}")));
        Box::pin(async move {
            thermite_actors::host::git::Git::beside(&data)
                .lay_out(&commit, &folder)
                .map_err(|fault| fault.to_string())?;
            Ok(folder)
        })
    }

    fn discard(&self, dev_run: thermite_core::ids::DevRunId) -> futures_util::future::LocalBoxFuture<'static, ()> {
        let _ = std::fs::remove_dir_all(self.0.join(format!("work/copy-{dev_run}")));
        Box::pin(std::future::ready(()))
    }
}
