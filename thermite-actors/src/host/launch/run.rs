//! The rig's side: a launcher that knows the machine, and a run it holds.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thermite_core::dev_run::Exit;
use thermite_core::limits;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, OnceCell, watch};

use super::bare;
use super::capture::{self, make_private};
use super::cards::{Cards, Tried};
use super::cgroup::{self, Group};
use super::cpuset::CpuHold;
use super::fault::{At, LaunchFault};
use super::guard;
use super::mark;
use super::order::Order;
use super::probe::{self, Containment};
use super::process::{LAUNCHER_NAME, remove_traces};
use super::sys::wait_any;
use super::wanted::{Isolation, Wanted};
use super::wire::{self, InitFacts, LeaderEnd, Packet};
use super::{Ended, Identity, LaunchSpec, run_file};
use crate::ports::StopProof;

mod devices;
mod heard;
mod process;

pub(super) use devices::Purpose;
use heard::Heard;
pub use process::RunProcess;
pub(super) use process::describe;

/// How long a launcher may take to have a run at its gate.
const LAUNCH_MAX: Duration = Duration::from_secs(10);
/// How long a launcher may take to drain and clear away after its run's end.
const CLEAR_AWAY_MAX: Duration = Duration::from_secs(12);
/// How often a group that should be empty is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often a guard is told again to end its run: it works by itself, unless it was stopped.
const TELL_AGAIN: Duration = Duration::from_millis(20);
/// How long a rig ends by itself what it finds of a run whose guards were all killed.
const UNGUARDED_MAX: Duration = Duration::from_secs(1);
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
    /// Which layers may be used.
    pub wanted: Wanted,
    /// A uid (and gid) that nothing else on the machine has, not even this rig's runs: as it a root rig tries out
    /// whether runs can be ended by their uid. Without it that is not used.
    pub trial_uid: Option<u32>,
    /// The machine's cards, as far as runs are kept from them.
    pub cards: Cards,
}

impl LauncherSettings {
    /// This very binary, also after its file was replaced.
    pub const THIS_PROGRAM: &str = "/proc/self/exe";
}

/// What was found to work on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// What is under every run.
    pub(super) isolation: Isolation,
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
    /// None where nothing can be launched.
    layers: Option<Layers>,
}

pub(super) struct Shared {
    settings: LauncherSettings,
    /// How many runs there are of each dedicated uid, from before their start to after their end.
    tenants: Mutex<BTreeMap<u32, usize>>,
    /// Launchers whose run is no longer held; reaped at the next launch.
    retired: Mutex<Vec<Traces>>,
    /// The ways to keep runs to their cards; tried out when first asked for.
    card_ways: OnceCell<Tried>,
    /// What keeps runs to their CPUs; tried out when first asked for.
    cpu_hold: OnceLock<CpuHold>,
}

/// A launcher process and what it clears away; a launcher that was killed leaves that to the rig.
struct Traces {
    child: Child,
    run_file: PathBuf,
    group: Option<PathBuf>,
    cpuset: Option<PathBuf>,
    capture: Option<PathBuf>,
    home: Option<PathBuf>,
    /// The mark of what it may leave, where it has no namespaces.
    mark: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded here is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launcher").field("rig", &self.shared.settings.rig).finish_non_exhaustive()
    }
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
        let shared = Arc::new(Shared {
            settings,
            tenants: Mutex::default(),
            retired: Mutex::default(),
            card_ways: OnceCell::new(),
            cpu_hold: OnceLock::new(),
        });
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
    /// When this machine gives no containment, or a call fails on the way; nothing is left of the run then.
    pub async fn launch(&self, spec: LaunchSpec) -> Result<Run, LaunchFault> {
        match &self.layers {
            Some(layers) => {
                let way = self.way_to_cards(spec.identity, &spec.grant).await;
                let way =
                    way.map_err(|missing| LaunchFault::new("keep the run from cards that are not its own", missing))?;
                self.shared.launch(layers, spec, Purpose::Command(way)).await
            }
            None => Err(LaunchFault::new("contain the run", self.containment.missing_in_words())),
        }
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
        purpose: Purpose,
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
        let tenancy = match spec.identity {
            Identity::Dedicated { uid, .. } => Some(Tenancy::begin(self, uid)),
            Identity::RigsUser => None,
        };
        let devices = self.devices(layers, &spec, purpose);
        let order = Order {
            isolation: layers.isolation,
            home: match layers.isolation {
                Isolation::Namespaces => None,
                Isolation::OwnUid | Isolation::Children => Some(bare::home_of(&spec.name)),
            },
            cgroup: layers.cgroup_parent.as_ref().map(|parent| parent.join(name)),
            rig: self.settings.rig.clone(),
            run_file,
            run_user_namespace: layers.run_user_namespace,
            processes_most: limits::RUN_PROCESSES_MAX,
            trial: purpose.is_trial(),
            devices,
            spec,
        };
        Starting::spawn(self, &order, tenancy)?.at_gate().await
    }

    fn has_neighbours(&self, uid: u32) -> bool {
        lock(&self.tenants).get(&uid).is_some_and(|runs| *runs > 1)
    }
}

/// One run's part in a dedicated uid: while there are others, none is ended by the uid.
struct Tenancy {
    shared: Arc<Shared>,
    uid: u32,
}

impl Tenancy {
    fn begin(shared: &Arc<Shared>, uid: u32) -> Tenancy {
        *lock(&shared.tenants).entry(uid).or_default() += 1;
        Tenancy { shared: shared.clone(), uid }
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let mut tenants = lock(&self.shared.tenants);
        if let Some(runs) = tenants.get_mut(&self.uid) {
            *runs -= 1;
        }
        tenants.retain(|_, runs| *runs > 0);
    }
}

impl Traces {
    /// Does what a killed launcher left undone. Its init ended with it, by the lifeline.
    fn clear(&self) {
        if !self.run_file.exists() {
            return;
        }
        if self.mark.is_some_and(|mark| !mark::processes(mark).is_empty()) {
            // The file stays for a sweep to find them by.
            return;
        }
        let _ = bare::remove_home(self.home.as_deref());
        if let Some(capture) = &self.capture {
            let _ = capture::mark_complete(capture);
        }
        let group = self.group.as_deref().and_then(|path| Group::open(path).ok());
        remove_traces(group.as_ref(), self.cpuset.as_deref(), &self.run_file);
    }
}

/// A launcher that was started: letting go of it has it end what there is and clear away.
struct Held {
    shared: Arc<Shared>,
    traces: Option<Traces>,
    lifeline: Option<OwnedFd>,
    tenancy: Option<Tenancy>,
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
    isolation: Isolation,
}

#[expect(unsafe_code, reason = "tokio asks its callers to vouch for the descriptor")]
fn watched(fd: OwnedFd, what: &str) -> Result<AsyncFd<OwnedFd>, LaunchFault> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and nothing here takes it out of the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.at(what)
}

impl Starting {
    fn spawn(shared: &Arc<Shared>, order: &Order, tenancy: Option<Tenancy>) -> Result<Starting, LaunchFault> {
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
            cpuset: order.devices.cpuset.clone(),
            capture: order.spec.capture.clone(),
            home: order.home.clone(),
            mark: match order.isolation {
                Isolation::Namespaces => None,
                Isolation::OwnUid | Isolation::Children => Some(mark::of(&order.spec.name)),
            },
        };
        let held = Held { shared: shared.clone(), traces: Some(traces), lifeline: Some(lifeline), tenancy };
        let (name, group, isolation) = (order.spec.name.clone(), order.cgroup.clone(), order.isolation);
        let starting = Starting { held, launcher, group, control, gate, start, name, isolation };
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
            isolation: self.isolation,
            uid: self.held.tenancy.as_ref().map(|tenancy| tenancy.uid),
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
            told: Notify::new(),
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
                Some((Packet::Ended(_) | Packet::Empty | Packet::Reported(_) | Packet::Order, _)) | None => {
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

/// One contained command: at its gate, running, or ended. Dropping it ends it.
///
/// Its waits can be dropped and asked again, and several can be under way at once.
pub struct Run {
    shared: Arc<Shared>,
    name: String,
    isolation: Isolation,
    /// The uid it has of its own.
    uid: Option<u32>,
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
    /// Rung when one wait has heard what another may be waiting for.
    told: Notify,
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

    /// The run's outermost process: the init of its namespaces, or its guard where it has none.
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

    /// CPU time of the run's tree so far, in nanoseconds; none where it has no cgroup that counts it.
    pub fn cpu_ns_so_far(&self) -> Option<u64> {
        self.group.as_ref()?.cpu_ns()
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
            // Before the look: what is heard in between rings it.
            let told = self.told.notified();
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
                    () = told => continue,
                }
            };
            match packet {
                Some((packet, _)) => lock(&self.heard).take(packet),
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
        // A guard that was killed from outside ends without having said so.
        let said = match self.isolation {
            Isolation::Namespaces => true,
            Isolation::OwnUid | Isolation::Children => self.is_said_empty(),
        };
        said && self.init_ended() && !self.group.as_ref().is_some_and(Group::populated)
    }

    /// Whether a guard said that nothing is left; takes what has come.
    fn is_said_empty(&self) -> bool {
        while !lock(&self.heard).empty {
            let Ok(Some((packet, _))) = wire::receive(self.control.get_ref(), false) else { break };
            lock(&self.heard).take(packet);
            self.told.notify_waiters();
        }
        lock(&self.heard).empty
    }

    /// Whether nobody is left who could prove anything, of a run without namespaces.
    fn is_unguarded(&self) -> bool {
        let launcher_ended = || wait_any([Some(self.launcher_pidfd.as_fd())], Some(Duration::ZERO))[0];
        self.init_ended() && launcher_ended() && !self.is_said_empty()
    }

    /// The live processes of the run, at most `most`: those below its outermost one, or that carry its mark.
    pub fn processes(&self, most: usize) -> Vec<RunProcess> {
        let mut left: Vec<Pid> = guard::children(self.init_pid());
        let mut found = Vec::new();
        while let Some(pid) = left.pop() {
            left.extend(guard::children(pid));
            found.extend(RunProcess::look(pid.as_raw_nonzero().get().cast_unsigned()));
            if found.len() >= most {
                break;
            }
        }
        found
    }

    /// Whether anything of the run is left, as far as is known without ending it.
    pub fn is_over(&self) -> bool {
        self.init_ended()
    }

    fn init_pid(&self) -> Pid {
        Pid::from_raw(self.init.pid.cast_signed()).expect("an init's pid is one")
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
        let emptied = async {
            match self.isolation {
                Isolation::Namespaces => self.kill_until_empty().await,
                Isolation::OwnUid | Isolation::Children => self.have_ended().await,
            }
        };
        match tokio::time::timeout(limits::PROOF_MAX.to_std(), emptied).await {
            Ok(proof) => proof,
            Err(_) => StopProof::NotProved { why: self.remains() },
        }
    }

    fn kill(&self) {
        // ESRCH: it is gone already.
        match self.isolation {
            Isolation::Namespaces => drop(pidfd_send_signal(self.init_pidfd.get_ref(), Signal::KILL)),
            Isolation::OwnUid | Isolation::Children => {
                let by_children = self.uid.is_none_or(|uid| self.shared.has_neighbours(uid));
                let how = if by_children { Signal::USR2 } else { Signal::USR1 };
                let _ = pidfd_send_signal(self.init_pidfd.get_ref(), how);
                // A run of the rig's own user can stop its guard.
                let _ = pidfd_send_signal(self.init_pidfd.get_ref(), Signal::CONT);
            }
        }
        if let Some(group) = &self.group {
            // The group is removed by the launcher as soon as it is empty.
            let _ = group.kill();
        }
    }

    async fn kill_until_empty(&self) -> StopProof {
        self.kill();
        self.init_end().await;
        while !self.is_empty() {
            self.kill();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        StopProof::Empty
    }

    /// Has the guard end everything and prove it; one that was killed has left that to the launcher.
    async fn have_ended(&self) -> StopProof {
        let mut unguarded_since = None;
        while !self.is_empty() {
            self.kill();
            if self.is_unguarded() {
                let since = *unguarded_since.get_or_insert_with(std::time::Instant::now);
                let left = self.end_marked();
                if left.is_empty() || since.elapsed() >= UNGUARDED_MAX {
                    return StopProof::NotProved { why: unguarded(&left) };
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            } else if self.init_ended() {
                tokio::time::sleep(LOOK_AGAIN).await;
            } else {
                let _ = tokio::time::timeout(TELL_AGAIN, self.init_end()).await;
            }
        }
        StopProof::Empty
    }

    /// Kills what carries the run's mark; what that was.
    fn end_marked(&self) -> Vec<InitFacts> {
        let found = mark::processes(mark::of(&self.name));
        for process in &found {
            run_file::kill(*process);
        }
        found
    }

    /// What is left of a run that could not be ended.
    fn remains(&self) -> String {
        let mut pids = self.group.as_ref().map_or_else(Vec::new, |group| group.pids(NAMED_PIDS_MAX));
        if !self.init_ended() && !pids.contains(&self.init.pid) {
            pids.insert(0, self.init.pid);
        }
        if self.isolation != Isolation::Namespaces {
            let marked = mark::processes(mark::of(&self.name)).into_iter().map(|process| process.pid);
            pids.extend(marked.filter(|pid| *pid != self.init.pid).take(NAMED_PIDS_MAX));
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

/// Why nothing is proved of a run whose guards were killed.
fn unguarded(left: &[InitFacts]) -> String {
    let named: Vec<String> = left.iter().take(NAMED_PIDS_MAX).map(|process| describe(process.pid)).collect();
    let left = if named.is_empty() { "nothing more of it is found".to_owned() } else { named.join(", ") };
    format!("all guards of the run were killed, so the kernel's word on its end is lost; left: {left}")
}
