//! The rig's side: a launcher that knows the machine, and a run it holds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thermite_core::dev_run::Exit;
use thermite_core::limits;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OnceCell, watch};

use super::capture::{self, make_private};
use super::cgroup::{self, Group};
use super::fault::{At, LaunchFault};
use super::order::Order;
use super::probe::{self, Containment};
use super::process::{LAUNCHER_NAME, remove_traces};
use super::sys::wait_any;
use super::wire::{self, InitFacts, LeaderEnd, Packet};
use super::{Ended, LaunchSpec, run_file};
use crate::ports::StopProof;

/// How long a launcher may take to have a run at its gate.
const LAUNCH_MAX: Duration = Duration::from_secs(10);
/// How long a launcher may take to drain and clear away after its run's end.
const CLEAR_AWAY_MAX: Duration = Duration::from_secs(12);
/// How often a group that should be empty is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How many pids are named when a stop is not proved.
const NAMED_PIDS_MAX: usize = 8;

/// What a rig's launcher is told once.
#[derive(Clone, Debug)]
pub struct LauncherSettings {
    /// The rig's name: 1 to 40 of `a-z`, `0-9`, `-`. Cgroups and run files carry it.
    pub rig: String,
    /// Where run files go; made where missing.
    pub state: PathBuf,
    /// Trees no run may see, such as the data folder; the state folder is always among them.
    pub hidden: Vec<PathBuf>,
    /// The program that becomes the launcher: one whose `main` calls [`super::entry`] first.
    pub program: PathBuf,
}

impl LauncherSettings {
    /// This very binary, also after its file was replaced.
    pub const THIS_PROGRAM: &str = "/proc/self/exe";
}

/// What was found to work on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// The group below which runs get theirs.
    pub(super) cgroup_parent: Option<PathBuf>,
    /// Whether a run with a dedicated uid gets a user namespace.
    pub(super) run_user_namespace: bool,
}

/// Starts contained commands; cheap to clone.
#[derive(Clone)]
pub struct Launcher {
    shared: Arc<Shared>,
    containment: Arc<Containment>,
    layers: Layers,
}

pub(super) struct Shared {
    settings: LauncherSettings,
    /// Launchers whose run is no longer held; reaped at the next launch.
    retired: Mutex<Vec<Traces>>,
}

/// A launcher process and what it clears away; a launcher that was killed leaves that to the rig.
struct Traces {
    child: Child,
    run_file: PathBuf,
    group: Option<PathBuf>,
    capture: Option<PathBuf>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded here is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Launcher {
    /// Finds out by throwaway runs what containment this machine gives.
    ///
    /// A machine that gives none is no error here: [`Launcher::containment`] says what is missing, and every launch
    /// is refused.
    ///
    /// # Errors
    /// When the rig's name is not one, or the state folder cannot be made.
    pub async fn open(mut settings: LauncherSettings) -> Result<Launcher, LaunchFault> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if settings.rig.is_empty() || settings.rig.len() > 40 || !settings.rig.chars().all(plain) {
            let why = "it must be 1 to 40 of a-z, 0-9 and -";
            return Err(LaunchFault::new(format!("take the rig's name {:?}", settings.rig), why));
        }
        make_private(&settings.state).at_path("make the state folder", &settings.state)?;
        settings.state = settings.state.canonicalize().at_path("find the state folder", &settings.state)?;
        make_private(&run_file::directory(&settings.state)).at_path("make the folder of", &settings.state)?;
        if !settings.hidden.contains(&settings.state) {
            settings.hidden.push(settings.state.clone());
        }
        let shared = Arc::new(Shared { settings, retired: Mutex::default() });
        let (layers, containment) = probe::probe(&shared).await;
        Ok(Launcher { shared, containment: Arc::new(containment), layers })
    }

    /// What containment is in force, and what is missing and why.
    pub fn containment(&self) -> &Containment {
        &self.containment
    }

    /// The folder of this launcher's run files.
    pub fn state(&self) -> &std::path::Path {
        &self.shared.settings.state
    }

    /// Prepares a run up to its exec and holds it at the gate.
    ///
    /// # Errors
    /// When this machine gives no isolation, or a call fails on the way; nothing is left of the run then.
    pub async fn launch(&self, spec: LaunchSpec) -> Result<Run, LaunchFault> {
        if !self.containment.is_isolating() {
            return Err(LaunchFault::new("isolate the run", self.containment.missing_in_words()));
        }
        self.shared.launch(&self.layers, spec, false).await
    }
}

impl Shared {
    pub(super) fn settings(&self) -> &LauncherSettings {
        &self.settings
    }

    /// Reaps launchers that have ended since, and clears away after those that could not.
    fn reap(&self) {
        let mut retired = lock(&self.retired);
        retired.retain_mut(|traces| match traces.child.try_wait() {
            Ok(None) => true,
            Ok(Some(_)) => {
                traces.clear();
                false
            }
            // Somebody else reaped it; there is nothing to wait for.
            Err(_) => false,
        });
    }

    pub(super) async fn launch(
        self: &Arc<Shared>,
        layers: &Layers,
        mut spec: LaunchSpec,
        trial: bool,
    ) -> Result<Run, LaunchFault> {
        self.reap();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if spec.name.is_empty() || spec.name.len() > 120 || !spec.name.chars().all(plain) {
            let why = "it must be 1 to 120 letters, digits, - and _";
            return Err(LaunchFault::new(format!("take the run's name {:?}", spec.name), why));
        }
        spec.hidden.extend(self.settings.hidden.iter().cloned());
        let run_file = run_file::path(&self.settings.state, &spec.name);
        if run_file.exists() {
            return Err(LaunchFault::new(format!("take the run's name {}", spec.name), "a run of that name exists"));
        }
        let name = cgroup::group_name(&self.settings.rig, &spec.name);
        let order = Order {
            cgroup: layers.cgroup_parent.as_ref().map(|parent| parent.join(name)),
            rig: self.settings.rig.clone(),
            run_file,
            run_user_namespace: layers.run_user_namespace,
            processes_most: limits::RUN_PROCESSES_MAX,
            trial,
            spec,
        };
        Starting::spawn(self, &order)?.at_gate().await
    }
}

impl Traces {
    /// Does what a killed launcher left undone. Its init ended with it, by the lifeline.
    fn clear(&self) {
        if !self.run_file.exists() {
            return;
        }
        if let Some(capture) = &self.capture {
            let _ = capture::mark_complete(capture);
        }
        let group = self.group.as_deref().and_then(|path| Group::open(path).ok());
        remove_traces(group.as_ref(), &self.run_file);
    }
}

/// A launcher that was started: letting go of it has it end what there is and clear away.
struct Held {
    shared: Arc<Shared>,
    traces: Option<Traces>,
    lifeline: Option<OwnedFd>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        lock(&self.shared.retired).extend(self.traces.take());
    }
}

/// A launch under way. Dropped before its run is at the gate, nothing is left of it.
struct Starting {
    held: Held,
    launcher: Pid,
    group: Option<PathBuf>,
    control: AsyncFd<OwnedFd>,
    gate: OwnedFd,
    start: AsyncFd<OwnedFd>,
    name: String,
}

#[expect(unsafe_code, reason = "tokio asks its callers to vouch for the descriptor")]
fn watched(fd: OwnedFd, what: &str) -> Result<AsyncFd<OwnedFd>, LaunchFault> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and nothing here takes it out of the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.at(what)
}

impl Starting {
    fn spawn(shared: &Arc<Shared>, order: &Order) -> Result<Starting, LaunchFault> {
        let memory = order.to_memory()?;
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).at("socketpair")?;
        let (lifeline_read, lifeline) = pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
        let (gate_read, gate) = pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
        let (start, start_write) = pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
        rustix::io::ioctl_fionbio(&start, true).at("make the start pipe non-blocking")?;
        let control = watched(control, "watch the control socket")?;
        let start = watched(start, "watch the start pipe")?;
        // Without a hook before exec this is a posix_spawn, whose cost does not grow with the rig's memory.
        let child = Command::new(&shared.settings.program)
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .at_path("start the launcher", &shared.settings.program)?;
        let launcher = Pid::from_child(&child);
        let traces = Traces {
            child,
            run_file: order.run_file.clone(),
            group: order.cgroup.clone(),
            capture: order.spec.capture.clone(),
        };
        let held = Held { shared: shared.clone(), traces: Some(traces), lifeline: Some(lifeline) };
        let (name, group) = (order.spec.name.clone(), order.cgroup.clone());
        let starting = Starting { held, launcher, group, control, gate, start, name };
        let fds = [memory.as_fd(), lifeline_read.as_fd(), gate_read.as_fd(), start_write.as_fd()];
        wire::send(starting.control.get_ref(), &Packet::Order, &fds).at("give the launch order")?;
        Ok(starting)
    }

    async fn at_gate(self) -> Result<Run, LaunchFault> {
        let (init, pidfd) = tokio::time::timeout(LAUNCH_MAX, self.hear()).await.unwrap_or_else(|_| {
            Err(LaunchFault::new("wait for the launcher", format!("nothing for {} s", LAUNCH_MAX.as_secs())))
        })?;
        // The launcher is not reaped as long as it is held, so its pid is still its own.
        let launcher = pidfd_open(self.launcher, PidfdFlags::empty()).at("pidfd_open of the launcher")?;
        Ok(Run {
            name: self.name,
            init,
            init_pidfd: watched(pidfd, "watch the init")?,
            launcher: self.launcher,
            launcher_pidfd: watched(launcher, "watch the launcher")?,
            group: self.group.as_deref().map(Group::open).transpose()?,
            control: self.control,
            gate: self.gate,
            start: self.start,
            opened: AtomicBool::new(false),
            start_bytes: Mutex::default(),
            started: OnceCell::new(),
            heard: Mutex::default(),
            ended: OnceCell::new(),
            hurry: watch::Sender::new(false),
            turn: tokio::sync::Mutex::new(()),
            shared: self.held.shared.clone(),
            held: Mutex::new(Some(self.held)),
        })
    }

    async fn hear(&self) -> Result<(InitFacts, OwnedFd), LaunchFault> {
        let mut init = None;
        let mut at_gate = false;
        while !at_gate || init.is_none() {
            match receive(&self.control).await.at("hear the launcher")? {
                Some((Packet::Init(facts), fds)) => {
                    let pidfd = fds.into_iter().next();
                    let pidfd = pidfd.ok_or_else(|| LaunchFault::new("hear the launcher", "no pidfd came"))?;
                    init = Some((facts, pidfd));
                }
                Some((Packet::AtGate, _)) => at_gate = true,
                Some((Packet::Fault(fault), _)) => return Err(fault),
                // A leader that was killed at once; the packets behind it tell no more.
                Some((Packet::Ended(_) | Packet::Reported(_) | Packet::Order, _)) | None => {
                    return Err(LaunchFault::new("hear the launcher", "it ended before the run was at its gate"));
                }
            }
        }
        Ok(init.expect("the loop ends only with it"))
    }
}

async fn receive(control: &AsyncFd<OwnedFd>) -> io::Result<Option<(Packet, Vec<OwnedFd>)>> {
    loop {
        let mut guard = control.readable().await?;
        if let Ok(received) = guard.try_io(|control| wire::receive(control.get_ref(), false)) {
            return received;
        }
    }
}

/// What was heard of a run's end so far; kept apart from the wait, which may be dropped.
#[derive(Default)]
struct Heard {
    reported: Vec<u8>,
    end: Option<LeaderEnd>,
}

/// One contained command: at its gate, running, or ended. Dropping it ends it.
///
/// Its waits can be dropped and asked again, and several can be under way at once.
pub struct Run {
    shared: Arc<Shared>,
    name: String,
    init: InitFacts,
    init_pidfd: AsyncFd<OwnedFd>,
    launcher: Pid,
    launcher_pidfd: AsyncFd<OwnedFd>,
    group: Option<Group>,
    control: AsyncFd<OwnedFd>,
    gate: OwnedFd,
    start: AsyncFd<OwnedFd>,
    opened: AtomicBool,
    start_bytes: Mutex<Vec<u8>>,
    started: OnceCell<Result<u64, LaunchFault>>,
    heard: Mutex<Heard>,
    ended: OnceCell<Ended>,
    /// Set once a stop does not want to wait for a grace.
    hurry: watch::Sender<bool>,
    /// One stop at a time works; the others then find its result.
    turn: tokio::sync::Mutex<()>,
    held: Mutex<Option<Held>>,
}

impl Run {
    /// The launch's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The run's outermost process: the init of its namespaces.
    pub fn pid(&self) -> u32 {
        self.init.pid
    }

    /// The launcher process's pid, as long as the run is not [finished](Run::finished).
    pub fn launcher_pid(&self) -> u32 {
        self.launcher.as_raw_nonzero().get().cast_unsigned()
    }

    /// Opens the gate; answers once the command runs (exec). Asking again gives the same answer.
    ///
    /// # Errors
    /// When the program cannot be executed, or the run was stopped before.
    pub async fn go(&self) -> Result<(), LaunchFault> {
        if !self.opened.swap(true, Ordering::AcqRel) {
            // A leader that is gone shows as the end of the start pipe.
            let _ = rustix::io::write(&self.gate, b"g");
        }
        self.start_time().await.map(|_| ())
    }

    /// When the leader went into exec, `CLOCK_MONOTONIC` in nanoseconds.
    async fn start_time(&self) -> Result<u64, LaunchFault> {
        self.started
            .get_or_init(async || {
                let end = self.read_start().await;
                let bytes = std::mem::take(&mut *lock(&self.start_bytes));
                end.at("read the start pipe")?;
                let Some((began, fault)) = bytes.split_first_chunk() else {
                    return Err(LaunchFault::new("execute the command", "it was stopped at its gate"));
                };
                if fault.is_empty() {
                    return Ok(u64::from_ne_bytes(*began));
                }
                Err(serde_json::from_slice(fault)
                    .unwrap_or_else(|error| LaunchFault::new("execute the command", error)))
            })
            .await
            .clone()
    }

    async fn read_start(&self) -> io::Result<()> {
        loop {
            let mut guard = self.start.readable().await?;
            let mut bytes = [0; 512];
            match guard.try_io(|start| Ok(rustix::io::read(start.get_ref(), &mut bytes)?)) {
                Ok(Ok(0)) => return Ok(()),
                Ok(Ok(n)) => lock(&self.start_bytes).extend_from_slice(&bytes[..n]),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }

    /// Answers when the command's first process has ended.
    pub async fn ended(&self) -> Ended {
        self.ended
            .get_or_init(async || {
                let end = self.hear_end().await;
                // The start pipe ends with the leader at the latest.
                let began = if self.opened.load(Ordering::Acquire) { self.start_time().await.ok() } else { None };
                let reported = std::mem::take(&mut lock(&self.heard).reported);
                let at_ns = end.map_or_else(super::sys::now_ns, |end| end.at_ns);
                Ended {
                    exit: match end {
                        Some(LeaderEnd { code: Some(code), .. }) => Exit::Code(code),
                        Some(LeaderEnd { code: None, signal, .. }) => Exit::Signal(signal),
                        None => Exit::Signal(libc::SIGKILL),
                    },
                    wall_ns: began.map_or(0, |began| at_ns.saturating_sub(began)),
                    cpu_ns: end.map_or(0, |end| end.cpu_ns),
                    reported,
                    reported_by_others: end.is_some_and(|end| end.reported_by_others),
                }
            })
            .await
            .clone()
    }

    /// The leader's end as its init told it; `None` where the init was ended first.
    async fn hear_end(&self) -> Option<LeaderEnd> {
        loop {
            if let Some(end) = lock(&self.heard).end {
                return Some(end);
            }
            let gone = self.init_ended();
            let packet = if gone {
                // All that the init ever said is in the socket.
                wire::receive(self.control.get_ref(), false).ok().flatten()
            } else {
                tokio::select! {
                    packet = receive(&self.control) => packet.ok().flatten(),
                    () = self.init_end() => continue,
                }
            };
            match packet {
                Some((Packet::Reported(bytes), _)) => lock(&self.heard).reported.extend(bytes),
                Some((Packet::Ended(end), _)) => lock(&self.heard).end = Some(end),
                Some((Packet::Fault(_) | Packet::AtGate | Packet::Init(_) | Packet::Order, _)) => {}
                None if gone => return None,
                None => self.init_end().await,
            }
        }
    }

    /// Whether the kernel says that the init, and with it all of its namespace, is gone.
    fn init_ended(&self) -> bool {
        wait_any([Some(self.init_pidfd.as_fd())], Some(Duration::ZERO))[0]
    }

    async fn init_end(&self) {
        loop {
            let Ok(mut guard) = self.init_pidfd.readable().await else { return };
            if self.init_ended() {
                return;
            }
            guard.clear_ready();
        }
    }

    fn is_empty(&self) -> bool {
        self.init_ended() && !self.group.as_ref().is_some_and(Group::populated)
    }

    /// Ends everything of the run and proves it (rules A5, A7, A10).
    ///
    /// `gently` gives the leader's process group SIGTERM and [`limits::STOP_GRACE`]; a later call without it cuts that
    /// short. The proof is the kernel's: the init's pidfd, and the cgroup where there is one. Without a proof within
    /// [`limits::PROOF_MAX`] it says which pids are left; asking again tries again. The last of the output may still be
    /// on its way to the disk then: [`Run::finished`] waits for it.
    pub async fn stop(&self, gently: bool) -> StopProof {
        if !gently {
            self.hurry.send_replace(true);
        }
        let _turn = self.turn.lock().await;
        if self.is_empty() {
            return StopProof::Empty;
        }
        if gently && pidfd_send_signal(self.init_pidfd.get_ref(), Signal::TERM).is_ok() {
            let mut hurry = self.hurry.subscribe();
            tokio::select! {
                () = self.init_end() => {}
                // What it leaves behind is not waited for.
                _ = self.ended() => {}
                _ = hurry.wait_for(|hurry| *hurry) => {}
                () = tokio::time::sleep(limits::STOP_GRACE.to_std()) => {}
            }
        }
        match tokio::time::timeout(limits::PROOF_MAX.to_std(), self.kill_until_empty()).await {
            Ok(()) => StopProof::Empty,
            Err(_) => StopProof::NotProved { why: self.remains() },
        }
    }

    fn kill(&self) {
        // ESRCH: it is gone already.
        let _ = pidfd_send_signal(self.init_pidfd.get_ref(), Signal::KILL);
        if let Some(group) = &self.group {
            // The group is removed by the launcher as soon as it is empty.
            let _ = group.kill();
        }
    }

    async fn kill_until_empty(&self) {
        self.kill();
        self.init_end().await;
        while !self.is_empty() {
            self.kill();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What is left of a run that could not be ended.
    fn remains(&self) -> String {
        let mut pids = self.group.as_ref().map_or_else(Vec::new, |group| group.pids(NAMED_PIDS_MAX));
        if !self.init_ended() && !pids.contains(&self.init.pid) {
            pids.insert(0, self.init.pid);
        }
        let named: Vec<String> = pids.iter().map(|pid| describe(*pid)).collect();
        format!("{} s after the kill these are left: {}", limits::PROOF_MAX.as_millis() / 1_000, named.join(", "))
    }

    /// Answers when the launcher has drained the output and cleared away; to be asked once the run is ended and
    /// empty. A launcher that was killed, or does not come to an end, is done for here.
    pub async fn finished(&self) {
        let ended = async {
            loop {
                let Ok(mut guard) = self.launcher_pidfd.readable().await else { return };
                if wait_any([Some(self.launcher_pidfd.as_fd())], Some(Duration::ZERO))[0] {
                    return;
                }
                guard.clear_ready();
            }
        };
        if tokio::time::timeout(CLEAR_AWAY_MAX, ended).await.is_err() {
            let _ = pidfd_send_signal(self.launcher_pidfd.get_ref(), Signal::KILL);
        }
        // Letting go takes the list's lock, so not while the other is held.
        let held = lock(&self.held).take();
        drop(held);
        self.shared.reap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.init_ended() {
            self.kill();
        }
    }
}

/// A process as a person looks for it.
pub(super) fn describe(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
    format!("pid {pid} ({}, state {})", field("Name:"), field("State:"))
}
