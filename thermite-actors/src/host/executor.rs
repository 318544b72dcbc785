//! Carries out work on this machine: lanes' development runs and the judge's steps, each contained by the launcher.
//!
//! Each device has an executor of its own; what those of a rig share is in `shared`.
//! What belongs to one hold is kept together in `holds`, so that a stop reaches it whatever is under way; the judge's
//! steps are in `judge`, what names a measured artefact in `artefact`. What is deliberately absent: any decision.
//! Limits of development runs are enforced by whoever asks for the stop, those of the judge's steps here.

use std::cell::OnceCell;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use thermite_core::contract::Leftovers as KeepOrStop;
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::HoldId;
use thermite_core::limits;
use thermite_core::stage::{StageStep, StepReport};

use super::clock::{self, BootClock};
use super::cpu::CpuDriver;
use super::launch::{CaptureDir, HOME_AT, Identity, LaunchSpec, Launcher, Toolchains, hand_over, toolchain_mounts};
use super::models::ModelsInUse;
use super::workspaces::HostWorkspaces;
use crate::ports::{Clock, Executor, Launched, Leftovers, StageRef, StopProof};

mod artefact;
mod holds;
mod judge;
mod kept;
mod own;
mod room;
mod shared;

use holds::{HeldDevRun, Hold, Holds};
use kept::Kept;
use shared::{Place, Shared};

pub use shared::{CardSeat, ExecutorSettings, Executors, OUTPUTS};

/// Works one device of this machine: its CPUs, a card, or the bench where a rig with cards builds.
#[derive(Clone)]
pub struct HostExecutor {
    inner: Rc<Inner>,
}

struct Inner {
    shared: Rc<Shared>,
    place: Place,
    /// The tools as the account that measures reaches them.
    judge_toolchains: OnceCell<Toolchains>,
    holds: Holds,
    /// Runs that ended by themselves and whose leftovers live on (rule C3).
    kept: Kept,
}

impl HostExecutor {
    /// The one executor of a rig whose device is the machine's CPUs; see [`Executors`].
    ///
    /// # Errors
    /// Where the data folder is not there, or the outputs' folders cannot be made in it.
    pub fn open(
        launcher: Launcher,
        workspaces: HostWorkspaces,
        driver: CpuDriver,
        settings: ExecutorSettings,
    ) -> std::io::Result<HostExecutor> {
        Ok(Executors::open(launcher, workspaces, settings)?.of_machine(driver))
    }

    /// The captured output of development runs, for shells to read.
    pub fn outputs(&self) -> &CaptureDir {
        &self.inner.shared.outputs
    }
}

impl Executor for HostExecutor {
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof> {
        let inner = Rc::clone(&self.inner);
        Box::pin(async move { inner.shared.sweep(&inner.place).await })
    }

    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>> {
        let inner = Rc::clone(&self.inner);
        Box::pin(async move { inner.start(hold, spec).await })
    }

    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit> {
        let held = self.inner.holds.find(hold);
        Box::pin(async move {
            let run = held.as_ref().and_then(|held| held.dev_run());
            let (Some(held), Some(run)) = (held, run) else {
                // Nothing of that hold was ever started, or it was never asked for: it has ended.
                return Exit::Signal(libc::SIGKILL);
            };
            let ended = run.ended().await;
            held.note_end();
            ended.exit
        })
    }

    fn stop(&self, hold: HoldId, gently: bool) -> LocalBoxFuture<'static, StopProof> {
        let inner = Rc::clone(&self.inner);
        Box::pin(async move { inner.stop(hold, gently).await })
    }

    fn step(&self, hold: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport> {
        let inner = Rc::clone(&self.inner);
        Box::pin(async move { inner.step(hold, &stage, step).await })
    }

    fn containment(&self) -> Option<String> {
        Some(self.inner.shared.containment(&self.inner.place))
    }

    fn leftovers(&self) -> Vec<Leftovers> {
        self.inner.kept.leftovers()
    }

    fn end_leftovers(&self) -> LocalBoxFuture<'static, StopProof> {
        let inner = Rc::clone(&self.inner);
        Box::pin(async move { inner.kept.end().await })
    }
}

impl Inner {
    fn new(shared: Rc<Shared>, place: Place) -> Inner {
        Inner { shared, place, judge_toolchains: OnceCell::new(), holds: Holds::default(), kept: Kept::default() }
    }

    /// The name of a launch, which no other has.
    fn run_name(&self, kind: &str) -> String {
        format!("{}{kind}-{}", self.place.run_prefix(), uuid::Uuid::now_v7())
    }

    async fn start(&self, id: HoldId, spec: DevRunSpec) -> Result<Launched, String> {
        let (hold, _under_way) = self.holds.begin(id)?;
        if let Place::Bench { .. } = self.place {
            return Err("the bench builds for the judge; no development run works there".to_owned());
        }
        let identity = self.shared.settings.accounts.lane(spec.lane);
        let tree = spec.worktree.clone();
        let known = self.shared.toolchains.borrow().get(&spec.lane).cloned();
        let is_known = known.is_some();
        let prepared = tokio::task::spawn_blocking(move || {
            if let Identity::Dedicated { uid, gid } = identity {
                give_worktree(&tree, uid, gid)?;
            }
            Ok::<_, String>(known.unwrap_or_else(|| find_toolchains(identity)))
        });
        let toolchains: Toolchains = tokio::select! {
            prepared = prepared => prepared.map_err(|error| error.to_string())??,
            () = hold.stopped() => return Err("it was stopped before its start".to_owned()),
            () = clock::sleep_until(BootClock.now() + limits::DEV_RUN_PREPARE_MAX) => {
                return Err(format!("preparing it took longer than {}", limits::DEV_RUN_PREPARE_MAX));
            }
        };
        if !is_known {
            self.shared.toolchains.borrow_mut().insert(spec.lane, toolchains.clone());
        }
        let models = self.shared.models(&hold, &spec.models).await?;
        let (dev_run, program) = (spec.dev_run, spec.argv.first().cloned().unwrap_or_default());
        let (of_run, lane) = (spec.run, spec.lane);
        let keeps_leftovers = spec.contract.leftovers == KeepOrStop::Keep;
        let launch_spec = self.launch_spec(spec, identity, toolchains, &models);
        let launched = self.shared.launcher.launch(launch_spec).await;
        let run = Rc::new(launched.map_err(|fault| format!("program {program} could not be started: {fault}"))?);
        // From here on a stop finds it.
        hold.set_dev_run(HeldDevRun { dev_run, of_run, lane, run: Rc::clone(&run), keeps_leftovers, _models: models });
        if hold.is_stopped() {
            return Err("it was stopped before its start".to_owned());
        }
        run.go().await.map_err(|fault| format!("program {program} could not be executed: {}", fault.why))?;
        Ok(Launched { pid: run.pid(), containment: self.shared.containment(&self.place) })
    }

    fn launch_spec(
        &self,
        spec: DevRunSpec,
        identity: Identity,
        toolchains: Toolchains,
        models: &ModelsInUse,
    ) -> LaunchSpec {
        let mut env = plain_env(&toolchains);
        set(&mut env, "THERMITE_LANE", spec.lane.number().to_string());
        set(&mut env, "THERMITE_RUN", spec.run.to_string());
        set(&mut env, "THERMITE_DEV_RUN", spec.dev_run.to_string());
        for (name, value) in spec.env {
            set(&mut env, &name, value);
        }
        let grant = self.place.dev_grant();
        // Last: a lane that names a card by its index would not get the one it has.
        for (name, value) in grant.env() {
            set(&mut env, &name, value);
        }
        let mut read_only = toolchains.read_only;
        self.shared.show_models(models, &mut env, &mut read_only);
        let mut hidden = toolchains.hidden;
        hidden.push(self.shared.settings.data.clone());
        hidden.extend(self.shared.workspaces.others_trees(&spec.worktree));
        LaunchSpec {
            // The same development run is started once; a number of its own keeps a mistake from being a name clash.
            name: self.run_name("dev"),
            argv: spec.argv,
            env,
            workspace_at: spec.worktree.clone(),
            workspace_read_only: false,
            workspace: spec.worktree,
            read_only,
            hidden,
            grant,
            identity,
            capture: Some(self.shared.outputs.file(spec.dev_run)),
            reports_times: false,
            keeps_leftovers: spec.contract.leftovers == KeepOrStop::Keep,
        }
    }

    async fn stop(&self, id: HoldId, gently: bool) -> StopProof {
        let hold = self.holds.find_or_bar(id);
        if hold.ended_by_itself() && self.kept.has_room() {
            self.kept.extend(hold.take_kept());
        }
        hold.stop(gently).await
    }
}

/// What of the rig's own tools a run of this account needs to reach them.
fn find_toolchains(identity: Identity) -> Toolchains {
    toolchain_mounts(identity, |name| std::env::var(name).ok())
}

/// The environment every run starts from.
fn plain_env(toolchains: &Toolchains) -> Vec<(String, String)> {
    let mut env = vec![];
    for (name, value) in [
        ("HOME", HOME_AT),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        // A tree's owner need not be the run's user: without this git refuses to answer in it.
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ] {
        set(&mut env, name, value.to_owned());
    }
    for (name, value) in &toolchains.env {
        set(&mut env, name, value.clone());
    }
    env
}

fn set(env: &mut Vec<(String, String)>, name: &str, value: String) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => env.push((name.to_owned(), value)),
    }
}

/// Gives a lane's worktree to the lane's account, except what git looks at to know whose tree it is.
///
/// The folder itself and its `.git` keep their owner, so that git goes on answering the user there; the lane may write
/// in the folder by its group.
fn give_worktree(tree: &Path, uid: u32, gid: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("worktree {} cannot be given to the lane: {error}", tree.display());
    let before = std::fs::symlink_metadata(tree).map_err(failed)?;
    hand_over(tree, uid, gid).map_err(|fault| format!("the worktree cannot be given to the lane: {fault}"))?;
    if before.uid() == uid {
        return Ok(());
    }
    let owner = before.uid();
    std::os::unix::fs::lchown(tree, Some(owner), Some(gid)).map_err(failed)?;
    let mode = before.permissions().mode() | 0o070;
    std::fs::set_permissions(tree, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    let link = tree.join(".git");
    match std::fs::symlink_metadata(&link) {
        Ok(about) if about.is_file() => {
            std::os::unix::fs::lchown(&link, Some(owner), Some(before.gid())).map_err(failed)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
