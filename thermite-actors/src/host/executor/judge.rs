//! The judge's steps: laying out both sides, building, checking, and blocks (JUDGING.md, a block).
//!
//! Both sides run in turn at the same path, with the same arguments and environment, as the judge's own account; no
//! label is handed over. The champion's commands are used for both: a candidate is the champion with editable paths
//! changed, and the kit is read from the champion.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use thermite_core::block::{BlockTimes, Order, Pair, Side};
use thermite_core::contract::{Argv, Kit, ModelFile, Timer};
use thermite_core::dev_run::Exit;
use thermite_core::ids::{DevRunId, HoldId};
use thermite_core::limits::{self, FAILURE_TAIL_BYTES, REPORTED_TIME_BYTES_MAX, REPORTED_TIME_MAX};
use thermite_core::readiness::Reading;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};

use super::{Hold, Inner, Place, artefact, find_toolchains, plain_env, room, set};
use crate::host::clock::{self, BootClock};
use crate::host::cpu::CpuDriver;
use crate::host::git;
use crate::host::launch::{Ended, HandOverFault, Identity, LaunchSpec, Run, Toolchains, hand_over};
use crate::host::models::ModelsInUse;
use crate::ports::{Clock, DeviceFault, Outputs, StageRef, StopProof, TargetDriver};

/// Where both sides see their own tree.
const WORKSPACE_AT: &str = "/run/judge";

/// A command of the judge's that did not end as it should.
pub(super) enum Trouble {
    /// The side's own: a failure, a hang, a program that is not there.
    Sides(String),
    /// The process was killed, perhaps by the kernel for lack of memory.
    Lost(String),
    /// The process was killed, and neither the rig nor the kernel for lack of memory did it.
    Killed(String),
    /// It could not be carried out.
    Infrastructure(String),
    /// The disk had no room for it.
    NoRoom(String),
}

/// What a judge's command is for: the words of its faults and its limit.
struct Purpose<'a> {
    /// Such as `its build`.
    what: &'a str,
    /// Whether it builds: without the card, off the judge's CPUs, as an account of its own where there are cards.
    builds: bool,
    limit: Span,
    /// The contract's name of the limit.
    limit_name: &'a str,
    /// A measured run only reads its workspace: what it left there would be the next run's.
    is_timed: bool,
    reports_times: bool,
    /// The kit's model files.
    models: &'a [ModelFile],
    own_use: &'a OwnUse<'a>,
}

/// The judge's own CPU time since a moment; told to the driver when it goes, and on the way where the rig may be killed
/// before that (rule C2).
struct OwnUse<'a> {
    /// None where the device is not the CPUs.
    driver: Option<&'a CpuDriver>,
    from: Cell<Moment>,
    cpu_ns: Cell<u64>,
}

/// A model file that is not there: nobody's fault (rule E4).
fn not_fetched(why: String) -> Trouble {
    if git::is_no_room(&why) { Trouble::NoRoom(why) } else { Trouble::Infrastructure(why) }
}

impl OwnUse<'_> {
    fn add(&self, cpu_ns: u64) {
        self.cpu_ns.set(self.cpu_ns.get().saturating_add(cpu_ns));
    }

    fn tell(&self) {
        let now = BootClock.now();
        let (cpu_ns, from) = (self.cpu_ns.take(), self.from.replace(now));
        if let Some(driver) = self.driver {
            driver.note_own_use(cpu_ns, from, now);
        }
    }
}

/// A block that a driver watches, to its end on every path.
struct Watched<'a>(Option<&'a dyn TargetDriver>);

impl Watched<'_> {
    fn end(mut self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        self.0.take().expect("only its end takes the driver out").block_ends()
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // The block ended early: the reading after it is for nobody.
        drop(self.0.map(|driver| driver.block_ends()));
    }
}

impl Drop for OwnUse<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

impl Inner {
    pub(super) async fn step(&self, id: HoldId, stage: &StageRef, step: StageStep) -> StepReport {
        let (hold, _under_way) = match self.holds.begin(id) {
            Ok(begun) => begun,
            Err(why) => return StepReport::NotCarriedOut { why },
        };
        let kit = &stage.job.pinned.kit;
        match step {
            StageStep::Prepare => self.prepare(&hold, stage).await,
            StageStep::Build { side } => self.build(&hold, stage, kit, side).await,
            StageStep::Check { side } => self.check(&hold, stage, kit, side).await,
            StageStep::Look => {
                StepReport::NotCarriedOut { why: "a look is the driver's, not the executor's".to_owned() }
            }
            StageStep::Block { pair, order } => self.block(&hold, stage, kit, pair, order).await,
        }
    }

    async fn prepare(&self, hold: &Hold, stage: &StageRef) -> StepReport {
        let workspaces = self.shared.workspaces.clone();
        let (job, kind, attempt) = (Box::new((*stage.job).clone()), stage.stage, stage.attempt);
        let laid = tokio::task::spawn_blocking(move || workspaces.lay_out(&job, kind, attempt));
        let why = tokio::select! {
            laid = laid => match laid {
                // Fetched before anything is built or timed, which then only finds them there.
                Ok(Ok(())) => match self.shared.models(hold, &stage.job.pinned.kit.models).await {
                    Ok(_) => return StepReport::Prepared,
                    Err(why) => why,
                },
                Ok(Err(why)) => why,
                Err(error) => error.to_string(),
            },
            () = hold.stopped() => "it was stopped".to_owned(),
        };
        let trouble = if git::is_no_room(&why) { Trouble::NoRoom(why) } else { Trouble::Infrastructure(why) };
        // Not every git says why it could not write.
        match room::blame(trouble, &self.shared.settings.data).await {
            Trouble::NoRoom(why) => StepReport::NoRoom { why },
            Trouble::Infrastructure(why) | Trouble::Sides(why) | Trouble::Lost(why) | Trouble::Killed(why) => {
                StepReport::NotCarriedOut { why }
            }
        }
    }

    async fn build(&self, hold: &Hold, stage: &StageRef, kit: &Kit, side: Side) -> StepReport {
        let Some(workspace) = self.side(stage, side) else { return not_laid_out() };
        if let Some(build) = &kit.build {
            let _turn = tokio::select! {
                turn = self.shared.build_turn.lock() => turn,
                () = hold.stopped() => return StepReport::NotCarriedOut { why: "it was stopped".to_owned() },
            };
            let own_use = &self.own_use();
            let limit = kit.contract.build_max;
            let purpose = Purpose {
                what: "its build",
                builds: true,
                limit,
                limit_name: "build_max",
                is_timed: false,
                reports_times: false,
                models: &kit.models,
                own_use,
            };
            if let Err(trouble) = self.run(hold, &workspace, build, &purpose).await {
                return room::blame(trouble, &workspace).await.report(side);
            }
        }
        let commit = match side {
            Side::Champion => stage.job.pinned.champion.clone(),
            Side::Change => stage.job.pinned.candidate.clone(),
        };
        let kit = kit.clone();
        let hashed = tokio::task::spawn_blocking(move || artefact::hash(&kit, &workspace, &commit));
        tokio::select! {
            hashed = hashed => match hashed {
                Ok(Ok(artefact)) => StepReport::Built { side, artefact },
                Ok(Err(why)) => StepReport::Failed { side, why },
                Err(error) => StepReport::NotCarriedOut { why: error.to_string() },
            },
            () = hold.stopped() => StepReport::NotCarriedOut { why: "it was stopped".to_owned() },
        }
    }

    async fn check(&self, hold: &Hold, stage: &StageRef, kit: &Kit, side: Side) -> StepReport {
        let Some(workspace) = self.side(stage, side) else { return not_laid_out() };
        let Some(check) = &kit.check else { return StepReport::Checked { side } };
        let own_use = &self.own_use();
        let limit = kit.contract.check_max;
        let purpose = Purpose {
            what: "its check",
            builds: false,
            limit,
            limit_name: "check_max",
            is_timed: false,
            reports_times: false,
            models: &kit.models,
            own_use,
        };
        match self.run(hold, &workspace, check, &purpose).await {
            Ok(_) => StepReport::Checked { side },
            Err(trouble) => room::blame(trouble, &workspace).await.report(side),
        }
    }

    async fn block(&self, hold: &Hold, stage: &StageRef, kit: &Kit, pair: Pair, order: Order) -> StepReport {
        // Noise is measured with the champion under both labels, by the same path of code.
        let of_label = |label: Side| self.side(stage, pair.program(label));
        let (Some(champion), Some(change)) = (of_label(Side::Champion), of_label(Side::Change)) else {
            return not_laid_out();
        };
        let Some(driver) = self.place.driver() else {
            return StepReport::NotCarriedOut { why: "nothing is measured on the bench".to_owned() };
        };
        let before = match driver.read().await {
            Ok(reading) => reading,
            Err(fault) => return StepReport::NotCarriedOut { why: fault.to_string() },
        };
        let timed = order.sides();
        let warm_up = [timed[0], timed[1]];
        let own_use = self.own_use();
        driver.block_begins(hold.block_watch());
        let watched = Watched(Some(driver));
        let started = BootClock.now();
        let mut ns = [0; 4];
        for (at, label) in warm_up.into_iter().chain(timed).enumerate() {
            let workspace = match label {
                Side::Champion => &champion,
                Side::Change => &change,
            };
            let run = match self.measure(hold, workspace, kit, &own_use).await {
                Ok(run) => run,
                Err(trouble) => return trouble.report(pair.program(label)),
            };
            if let Some(timed) = at.checked_sub(warm_up.len()) {
                ns[timed] = run;
            }
        }
        // The reading after takes it off.
        drop(own_use);
        match watched.end().await {
            Ok(after) => {
                hold.note_placed(&after);
                StepReport::Timed { times: BlockTimes { ns, started, before, after } }
            }
            Err(fault) => StepReport::NotCarriedOut { why: fault.to_string() },
        }
    }

    /// Runs one side once and gives its time in nanoseconds.
    async fn measure(&self, hold: &Hold, workspace: &Path, kit: &Kit, own_use: &OwnUse<'_>) -> Result<u64, Trouble> {
        let limit = kit.contract.measure_max;
        let reports_times = kit.timer.is_reported();
        let purpose = Purpose {
            what: "its measured run",
            builds: false,
            limit,
            limit_name: "measure_max",
            is_timed: true,
            reports_times,
            models: &kit.models,
            own_use,
        };
        let ended = self.run(hold, workspace, &kit.measure, &purpose).await?;
        match kit.timer {
            Timer::Reported | Timer::ReportedApart => reported_ns(&ended).map_err(Trouble::Sides),
            Timer::Wall => Ok(ended.wall_ns),
        }
    }

    fn own_use(&self) -> OwnUse<'_> {
        OwnUse { driver: self.place.cpu_driver(), from: Cell::new(BootClock.now()), cpu_ns: Cell::new(0) }
    }

    fn side(&self, stage: &StageRef, side: Side) -> Option<PathBuf> {
        self.shared.workspaces.side(stage.job.job, stage.stage, stage.attempt, side)
    }

    /// Runs one of the kit's commands to its end, and proves that nothing of it is left.
    async fn run(&self, hold: &Hold, workspace: &Path, argv: &Argv, purpose: &Purpose<'_>) -> Result<Ended, Trouble> {
        let stopped = || Trouble::Infrastructure("it was stopped".to_owned());
        if hold.is_stopped() {
            return Err(stopped());
        }
        self.give_workspace(workspace, purpose).await?;
        let output = DevRunId(uuid::Uuid::now_v7());
        let models = self.shared.models(hold, purpose.models).await.map_err(not_fetched)?;
        let spec = self.judge_spec(workspace, argv, output, purpose, &models);
        let kills_before = memory_kills();
        let run = self.shared.launcher.launch(spec).await.map_err(|fault| {
            let why = fault.to_string();
            if git::is_no_room(&why) { Trouble::NoRoom(why) } else { Trouble::Infrastructure(why) }
        })?;
        let run = Rc::new(run);
        // From here on a stop finds it.
        hold.add(Rc::clone(&run));
        let _remove = RemoveAtEnd(self.shared.judge_outputs.file(output));
        if hold.is_stopped() {
            return Err(stopped());
        }
        let executed = run.go().await;
        let latest = BootClock.now() + purpose.limit;
        let told = Cell::new(0);
        let ended = match &executed {
            Err(_) => None,
            Ok(()) => tokio::select! {
                ended = run.ended() => Some(ended),
                () = clock::sleep_until(latest) => None,
                () = hold.stopped() => return Err(stopped()),
                () = tell_on_the_way(&run, purpose, &told) => None,
            },
        };
        let proof = run.stop(false).await;
        if let StopProof::NotProved { why } = proof {
            return Err(Trouble::Infrastructure(why));
        }
        purpose.own_use.add(run.ended().await.cpu_ns.saturating_sub(told.get()));
        run.finished().await;
        hold.remove(&run);
        if hold.is_stopped() {
            return Err(stopped());
        }
        if let Err(fault) = executed {
            let program = argv.0.first().map_or("", String::as_str);
            return Err(Trouble::Sides(format!("program {program} could not be executed: {}", fault.why)));
        }
        let what = purpose.what;
        let Some(ended) = ended else {
            let (limit, name) = (purpose.limit, purpose.limit_name);
            let tail = self.tail(output);
            return Err(Trouble::Sides(format!(
                "{what} took longer than {limit} ({name} in the kit's contract) and was ended{tail}"
            )));
        };
        match ended.exit {
            Exit::Code(0) => Ok(ended),
            Exit::Code(code) => Err(Trouble::Sides(format!("{what} exited with {code}{}", self.tail(output)))),
            // Nobody of ours ended it: its init, which the rig kills first, lived to tell.
            Exit::Signal(libc::SIGKILL) => {
                let said = format!("{what} was killed{}", self.tail(output));
                // The whole machine's count, also of groups' own limits; unknown is not none.
                let none_for_memory = kills_before.is_some() && kills_before == memory_kills();
                Err(if none_for_memory { Trouble::Killed(said) } else { Trouble::Lost(said) })
            }
            Exit::Signal(signal) => {
                Err(Trouble::Sides(format!("{what} was ended by signal {signal}{}", self.tail(output))))
            }
        }
    }

    fn judge_spec(
        &self,
        workspace: &Path,
        argv: &Argv,
        output: DevRunId,
        purpose: &Purpose<'_>,
        models: &ModelsInUse,
    ) -> LaunchSpec {
        let identity = self.judges_identity(purpose);
        let toolchains = self.judges_toolchains(purpose, identity);
        let grant = if purpose.builds { self.place.build_grant() } else { self.place.judge_grant() };
        let mut env = plain_env(toolchains);
        for (name, value) in grant.env() {
            set(&mut env, &name, value);
        }
        let mut read_only = toolchains.read_only.clone();
        self.shared.show_models(models, &mut env, &mut read_only);
        let mut hidden = toolchains.hidden.clone();
        hidden.push(self.shared.settings.data.clone());
        // A candidate may not read what the lanes have at hand.
        hidden.extend(self.shared.workspaces.others_trees(workspace));
        LaunchSpec {
            name: self.run_name("judge"),
            argv: argv.0.clone(),
            env,
            workspace: workspace.to_owned(),
            workspace_at: WORKSPACE_AT.into(),
            workspace_read_only: purpose.is_timed,
            read_only,
            hidden,
            grant,
            identity,
            capture: Some(self.shared.judge_outputs.file(output)),
            reports_times: purpose.reports_times,
            keeps_leftovers: false,
        }
    }

    /// Who a command of the judge's runs as: its card's timing user, or the account that builds.
    fn judges_identity(&self, purpose: &Purpose<'_>) -> Identity {
        match &self.place {
            Place::Card { seat, .. } if !purpose.builds => self.shared.settings.accounts.timing(seat.seat),
            Place::Card { .. } | Place::Cpus(_) | Place::Bench { .. } => self.shared.settings.accounts.judge(),
        }
    }

    fn judges_toolchains(&self, purpose: &Purpose<'_>, identity: Identity) -> &Toolchains {
        // Found once: reading PATH's folders before each timed run would only make noise.
        let found = if purpose.builds { &self.shared.build_toolchains } else { &self.judge_toolchains };
        found.get_or_init(|| find_toolchains(identity))
    }

    /// Gives a side's workspace to whoever is to work in it next. Nothing runs in it at that moment.
    async fn give_workspace(&self, workspace: &Path, purpose: &Purpose<'_>) -> Result<(), Trouble> {
        let Identity::Dedicated { uid, gid } = self.judges_identity(purpose) else { return Ok(()) };
        if std::fs::symlink_metadata(workspace).is_ok_and(|about| about.uid() == uid) {
            return Ok(());
        }
        let tree = workspace.to_owned();
        match tokio::task::spawn_blocking(move || hand_over(&tree, uid, gid)).await {
            Ok(Ok(_)) => Ok(()),
            // A file that the side has linked to from elsewhere is its own doing.
            Ok(Err(fault @ HandOverFault::SharedFile { .. })) => Err(Trouble::Sides(fault.to_string())),
            Ok(Err(fault @ HandOverFault::Path { .. })) => Err(Trouble::Infrastructure(fault.to_string())),
            Err(error) => Err(Trouble::Infrastructure(error.to_string())),
        }
    }

    /// The end of a command's output, as the end of a sentence.
    fn tail(&self, output: DevRunId) -> String {
        let whole = self.shared.judge_outputs.read(output, 0, 0).map_or(0, |slice| slice.total);
        let from = whole.saturating_sub(FAILURE_TAIL_BYTES);
        let Some(slice) = self.shared.judge_outputs.read(output, from, FAILURE_TAIL_BYTES as usize) else {
            return String::new();
        };
        let text = String::from_utf8_lossy(&slice.bytes);
        let text = text.trim();
        if text.is_empty() {
            return ", and wrote nothing".to_owned();
        }
        let cut = if from > 0 { "..." } else { "" };
        format!("; its output ends: {cut}{text}")
    }
}

impl Trouble {
    fn report(self, side: Side) -> StepReport {
        match self {
            Trouble::Sides(why) => StepReport::Failed { side, why },
            Trouble::Lost(why) => StepReport::Lost { side, why },
            Trouble::Killed(why) => StepReport::Killed { side, why },
            Trouble::Infrastructure(why) => StepReport::NotCarriedOut { why },
            Trouble::NoRoom(why) => StepReport::NoRoom { why },
        }
    }
}

/// Tells the driver every few seconds what a run has used, for ever. Not of a timed run: nothing is done beside those.
async fn tell_on_the_way(run: &Run, purpose: &Purpose<'_>, told: &Cell<u64>) {
    if purpose.is_timed {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(limits::CPU_LOOK_EVERY.to_std()).await;
        let used = run.cpu_ns_so_far().unwrap_or(0).max(told.get());
        purpose.own_use.add(used - told.replace(used));
        purpose.own_use.tell();
    }
}

/// How many processes the kernel has killed for lack of memory since the boot (`proc_vmstat(5)`, kernel 4.13).
fn memory_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// A file that goes with the value.
struct RemoveAtEnd(PathBuf);

impl Drop for RemoveAtEnd {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(file = %self.0.display(), %error, "an output file stays");
        }
    }
}

fn not_laid_out() -> StepReport {
    StepReport::NotCarriedOut { why: "the workspaces of this attempt are not laid out".to_owned() }
}

/// Reads the seconds that a measuring program wrote on descriptor 3, as whole nanoseconds.
///
/// Whatever else stands there is the measured side's own failure: its measuring program wrote it, or something that it
/// loaded or started.
fn reported_ns(ended: &Ended) -> Result<u64, String> {
    if ended.reported_by_others {
        return Err(
            "its measured run let another process write on descriptor 3; only the program that `measure` starts \
                    may (close it in what that starts, or `exec` it from a shell)"
                .to_owned(),
        );
    }
    let expected = "expected its time in seconds, once, such as 0.125";
    let bytes = &ended.reported;
    if bytes.len() > REPORTED_TIME_BYTES_MAX {
        let length = bytes.len();
        return Err(format!("its measured run wrote {length} bytes on descriptor 3; {expected}"));
    }
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(format!("its measured run wrote nothing on descriptor 3; {expected}"));
    }
    // `f64` would take "inf" and "nan"; a time has digits.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let seconds = text.parse::<f64>().ok().filter(|_| is_number);
    match seconds.map(|seconds| (seconds * 1e9).round()) {
        Some(ns) if (1.0..=REPORTED_TIME_MAX.as_millis() as f64 * 1e6).contains(&ns) => Ok(ns as u64),
        Some(_) => Err(format!(
            "its measured run wrote {text:?} on descriptor 3; expected a time above 0 s and up to {REPORTED_TIME_MAX}"
        )),
        None => Err(format!("its measured run wrote {text:?} on descriptor 3; {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(bytes: &[u8]) -> Result<u64, String> {
        let ended =
            Ended { exit: Exit::Code(0), wall_ns: 0, cpu_ns: 0, reported: bytes.to_vec(), reported_by_others: false };
        reported_ns(&ended)
    }

    #[test]
    fn a_reported_time_is_seconds_and_nothing_else() {
        assert_eq!(reported(b"0.125\n"), Ok(125_000_000));
        assert_eq!(reported(b" 1e-6 "), Ok(1_000));
        assert_eq!(reported(b"0.1234567894"), Ok(123_456_789), "whole nanoseconds");
        let expected = "expected its time in seconds, once, such as 0.125";
        let nothing = format!("its measured run wrote nothing on descriptor 3; {expected}");
        assert_eq!(reported(b""), Err(nothing.clone()));
        assert_eq!(reported(b" \n"), Err(nothing));
        for text in ["nan", "inf", "-infinity", "0.1 s", "0.1\n0.2", "1e", "0x1p3", "1_0", "\u{fffd}"] {
            let said = format!("its measured run wrote {text:?} on descriptor 3; {expected}");
            assert_eq!(reported(text.as_bytes()), Err(said));
        }
    }

    #[test]
    fn a_reported_time_is_possible() {
        assert_eq!(reported(b"86400"), Ok(86_400_000_000_000));
        for text in ["0", "-1", "-0", "4e-10", "1e300", "1e999", "86400.001"] {
            let why = "expected a time above 0 s and up to 24 h";
            assert_eq!(
                reported(text.as_bytes()),
                Err(format!("its measured run wrote {text:?} on descriptor 3; {why}"))
            );
        }
    }

    #[test]
    fn a_report_that_is_too_long_is_refused_whatever_it_begins_with() {
        let long = format!("0.1{}", " ".repeat(REPORTED_TIME_BYTES_MAX));
        let said = "its measured run wrote 67 bytes on descriptor 3; expected its time in seconds, once, such as 0.125";
        assert_eq!(reported(long.as_bytes()), Err(said.to_owned()));
    }

    #[test]
    fn what_another_process_wrote_is_no_report() {
        let ended =
            Ended { exit: Exit::Code(0), wall_ns: 0, cpu_ns: 0, reported: b"0.1".to_vec(), reported_by_others: true };
        let said = reported_ns(&ended).unwrap_err();
        assert!(said.starts_with("its measured run let another process write on descriptor 3; "), "{said}");
    }
}
