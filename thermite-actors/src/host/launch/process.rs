//! The launcher process: one per run, a fresh exec of this binary, with one thread.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getgid, getuid, pidfd_send_signal};
use thermite_core::limits;

use super::Identity;
use super::bare;
use super::capture::Capture;
use super::cgroup::Group;
use super::cpuset;
use super::fault::{At, LaunchFault};
use super::guard::{self, Guard};
use super::init::{self, InitEnds};
use super::mark;
use super::order::Order;
use super::report;
use super::run_file::{self, RunFile};
use super::sys::{self, Side, wait_any};
use super::wanted::Isolation;
use super::wire::{self, InitFacts, Packet};

/// The launcher's name; a process of that name is one. Settings never stand in it: a run can read it.
pub(super) const LAUNCHER_NAME: &str = "thermite: launcher";
/// From here on a launcher keeps its descriptors: below are those that a command knows.
const OWN_FDS_FROM: i32 = 10;
/// How large the pipe of a run's output is made where the kernel lets it be, in bytes.
const OUTPUT_PIPE_BYTES: usize = 256 * 1024;
/// How long a launcher waits for the cgroup of an ended init to be empty; the rig has its own limit and tells.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// How long a launcher tries to end what a killed init left; the rig has its own limit and tells.
const GUARD_MAX: Duration = Duration::from_secs(60);

/// Takes over when this process is to be a launcher: to be called first thing in `main`, before any thread.
///
/// A rig starts its launchers by executing its own binary again. Answers `None` for every other start.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = thermite_actors::host::launch::entry() {
///         return code;
///     }
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != LAUNCHER_NAME) || arguments.next().is_some() {
        return None;
    }
    Some(match launcher() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            // Its standard error goes nowhere under a rig; this is for a person who called it by that name.
            eprintln!("failed to launch: {fault}");
            ExitCode::from(2)
        }
    })
}

/// What a rig sends with an order.
struct RigEnds {
    control: OwnedFd,
    lifeline: OwnedFd,
    gate: OwnedFd,
    start: OwnedFd,
}

fn launcher() -> Result<(), LaunchFault> {
    sys::close_from(3).at("close_range")?;
    // For people who look at processes; a name that cannot be set is no reason not to go on.
    let _ = rustix::thread::set_name(c"thermite-launch");
    let control = own(std::io::stdin().as_fd())?;
    let (order, ends) = take_order(control)?;
    let null = File::options().read(true).write(true).open("/dev/null").at("open /dev/null")?;
    for number in 0..3 {
        sys::place_at(null.as_fd(), number).at("place /dev/null")?;
    }
    sys::ignore_group_signals();
    let told = own(ends.control.as_fd())?;
    match Launching::begin(&order, ends) {
        Ok(launching) => {
            launching.watch();
            Ok(())
        }
        Err(fault) => {
            let _ = wire::send(&told, &Packet::Fault(fault.clone()), &[]);
            Err(fault)
        }
    }
}

/// A copy of a descriptor out of the way of those that a command knows.
fn own(fd: impl AsFd) -> Result<OwnedFd, LaunchFault> {
    rustix::io::fcntl_dupfd_cloexec(fd, OWN_FDS_FROM).at("duplicate a descriptor")
}

fn take_order(control: OwnedFd) -> Result<(Order, RigEnds), LaunchFault> {
    let received = wire::receive(&control, true).at("receive the launch order")?;
    let Some((Packet::Order, fds)) = received else {
        return Err(LaunchFault::new("receive the launch order", "the rig ended before it gave one"));
    };
    let [order, lifeline, gate, start] = <[OwnedFd; 4]>::try_from(fds)
        .map_err(|fds| LaunchFault::new("receive the launch order", format!("{} descriptors, not 4", fds.len())))?;
    let ends = RigEnds { control, lifeline: own(lifeline)?, gate: own(gate)?, start: own(start)? };
    Ok((Order::from_memory(order)?, ends))
}

struct Launching<'a> {
    order: &'a Order,
    control: OwnedFd,
    lifeline: OwnedFd,
    group: Option<Group>,
    init: Pid,
    pidfd: OwnedFd,
    /// The init's lifeline, where it tells of the leader's end.
    init_line: OwnedFd,
    output: Option<(OwnedFd, Capture)>,
}

impl<'a> Launching<'a> {
    fn begin(order: &'a Order, ends: RigEnds) -> Result<Launching<'a>, LaunchFault> {
        let RigEnds { control, lifeline, gate, start } = ends;
        let rigs_user = (getuid().as_raw(), getgid().as_raw());
        let (output, output_write) = open_output(order)?;
        let report = if order.spec.reports_times {
            let (read, write) = report::pair()?;
            Some((own(read)?, own(write)?))
        } else {
            None
        };
        let (init_line, launcher_line) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).at("socketpair")?;
        let (init_line, launcher_line) = (own(init_line)?, own(launcher_line)?);
        let mut group = order.cgroup.as_deref().map(Group::make).transpose()?;
        let cpu = match group.as_mut().and_then(Group::take_stat) {
            Some(stat) => Some(File::from(own(stat)?)),
            None => None,
        };

        // Whoever reads the run's output does not do so on the judge's CPUs; the leader keeps to its own.
        let kept = order.devices.launcher_cpus.as_ref().map_or(Ok(()), cpuset::keep_to);
        let forked = kept.and_then(|()| cpuset::narrow_v2(order)).and_then(|()| {
            let entered = cpuset::Entered::enter(order)?;
            let forked = fork_init(order, group.as_ref());
            if matches!(forked, Ok((Side::Child, _))) {
                // It stays in the cpuset: only the launcher leaves it.
                std::mem::forget(entered);
            } else if let Some(entered) = entered {
                drop(entered);
                // To leave a cpuset is to be given all CPUs of the next.
                let _ = order.devices.launcher_cpus.as_ref().map_or(Ok(()), cpuset::keep_to);
            }
            forked
        });
        let (init, pidfd) = match forked {
            Ok((Side::Child, leaders_group)) => {
                drop((init_line, output, group));
                let output = output_write;
                let ends = InitEnds {
                    control,
                    rig_lifeline: lifeline,
                    launcher: launcher_line,
                    gate,
                    start,
                    output,
                    report,
                    cpu,
                    rigs_user,
                    leaders_group,
                };
                init::run(order, ends)
            }
            Ok((Side::Parent { child, pidfd }, _)) => (child, pidfd),
            Err(fault) => {
                if let Some(group) = &group {
                    let _ = group.remove();
                }
                cpuset::remove(order.devices.cpuset.as_deref());
                let _ = bare::remove_home(order.home.as_deref());
                return Err(fault);
            }
        };
        drop((launcher_line, gate, start, output_write, report, cpu));
        let launching = Launching { order, control, lifeline, group, init, pidfd, init_line, output };
        if let Err(fault) = launching.announce() {
            // The init cannot go on without a rig that knows of it; the watch clears away after its end.
            let _ = pidfd_send_signal(&launching.pidfd, Signal::KILL);
            let _ = wire::send(&launching.control, &Packet::Fault(fault), &[]);
        }
        Ok(launching)
    }

    /// Writes the run file, then tells the rig of the init.
    fn announce(&self) -> Result<(), LaunchFault> {
        let order = self.order;
        let facts = |pid: u32| InitFacts { pid, start: run_file::start_time(pid).unwrap_or(0) };
        let init = facts(self.init.as_raw_nonzero().get().cast_unsigned());
        let file = RunFile {
            version: run_file::VERSION,
            rig: order.rig.clone(),
            name: order.spec.name.clone(),
            boot: run_file::boot().at("read the boot id")?,
            init,
            launcher: facts(std::process::id()),
            cgroup: order.cgroup.clone(),
            cpuset: order.devices.cpuset.clone(),
            uid: match order.spec.identity {
                Identity::Dedicated { uid, .. } => uid,
                Identity::RigsUser => getuid().as_raw(),
            },
            capture: order.spec.capture.clone(),
            mark: match order.isolation {
                Isolation::Namespaces => None,
                Isolation::OwnUid | Isolation::Children => Some(mark::of(&order.spec.name)),
            },
            home: order.home.clone(),
        };
        file.write(&order.run_file).at_path("write run file", &order.run_file)?;
        wire::send(&self.control, &Packet::Init(init), &[self.pidfd.as_fd()]).at("tell the rig of the init")
    }

    /// Keeps the output and waits for the init's end or the rig's; then proves the end and clears away.
    fn watch(mut self) {
        let mut drain_until: Option<Instant> = None;
        let mut rig_lives = true;
        let mut line_open = true;
        loop {
            let left = drain_until.map(|until| until.saturating_duration_since(Instant::now()));
            let [ended, rig, line, output] = wait_any(
                [
                    Some(self.pidfd.as_fd()),
                    rig_lives.then(|| self.lifeline.as_fd()),
                    line_open.then(|| self.init_line.as_fd()),
                    self.output.as_ref().map(|(pipe, _)| pipe.as_fd()),
                ],
                left,
            );
            if ended {
                break;
            }
            if rig {
                rig_lives = false;
                self.kill();
            }
            if line {
                // One byte: the leader ended, and what it left behind lives on. The end of the line: the init ends.
                line_open = matches!(rustix::io::read(&self.init_line, &mut [0; 8]), Ok(n) if n > 0);
                if line_open {
                    drain_until = Some(Instant::now() + limits::OUTPUT_DRAIN_MAX.to_std());
                }
            }
            if output {
                self.take_output();
            }
            if drain_until.is_some_and(|until| Instant::now() >= until) {
                drain_until = None;
                // The pipe stays open and is read on: a leftover that writes to a closed one would be ended by it.
                if let Some((_, capture)) = &mut self.output {
                    capture.complete();
                }
            }
        }
        self.clear_away();
    }

    fn kill(&self) {
        if let Some(group) = &self.group {
            let _ = group.kill();
        }
        match self.order.isolation {
            Isolation::Namespaces => drop(pidfd_send_signal(&self.pidfd, Signal::KILL)),
            // It sees the rig's end by itself, and is needed for the proof; it may have been stopped.
            Isolation::OwnUid | Isolation::Children => drop(pidfd_send_signal(&self.pidfd, Signal::CONT)),
        }
    }

    fn take_output(&mut self) {
        if let Some((pipe, capture)) = &mut self.output
            && !capture.take(pipe)
        {
            capture.complete();
            self.output = None;
        }
    }

    fn clear_away(mut self) {
        let _ = rustix::process::waitpid(Some(self.init), WaitOptions::empty());
        if !self.is_childless() {
            // The run file stays, for the next start to find what is left by.
            return;
        }
        let empty_by = Instant::now() + EMPTY_MAX;
        while self.group.as_ref().is_some_and(Group::populated) && Instant::now() < empty_by {
            self.kill();
            std::thread::sleep(Duration::from_millis(1));
        }
        let drain_until = Instant::now() + limits::OUTPUT_DRAIN_MAX.to_std();
        while let Some((pipe, _)) = &self.output {
            let left = drain_until.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait_any([Some(pipe.as_fd())], Some(left))[0] {
                break;
            }
            self.take_output();
        }
        if let Some((_, mut capture)) = self.output.take() {
            capture.complete();
        }
        let _ = bare::remove_home(self.order.home.as_deref());
        remove_traces(self.group.as_ref(), self.order.devices.cpuset.as_deref(), &self.order.run_file);
    }

    /// Whether nothing is left below this process once the init has ended: an init that was killed from outside leaves
    /// its run to the launcher, and the proof too.
    fn is_childless(&self) -> bool {
        match self.order.isolation {
            Isolation::Namespaces => true,
            Isolation::OwnUid | Isolation::Children => {
                let is_childless = Guard::new(self.order).end_all(GUARD_MAX);
                if is_childless {
                    // A rig that is gone needs no proof.
                    let _ = wire::send(&self.control, &Packet::Empty, &[]);
                }
                is_childless
            }
        }
    }
}

/// Forks the init: into namespaces of its own, or as the guard that orphans fall to.
///
/// The init's side has the group for its leader, where the init itself must stay outside of it.
fn fork_init(order: &Order, group: Option<&Group>) -> Result<(Side, Option<OwnedFd>), LaunchFault> {
    let directory = group.map(Group::directory).transpose()?;
    match order.isolation {
        Isolation::Namespaces => {
            let mut namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
            if order.spec.identity == Identity::RigsUser {
                namespaces |= libc::CLONE_NEWUSER;
            }
            let step = if directory.is_some() { "cgroup and namespaces (clone3)" } else { "namespaces (clone3)" };
            let side = sys::fork_contained(namespaces, directory.as_ref().map(OwnedFd::as_fd)).at(step)?;
            Ok((side, None))
        }
        Isolation::OwnUid | Isolation::Children => {
            bare::check(&order.spec)?;
            bare::make_home(order)?;
            guard::become_subreaper()?;
            // In a run of the rig's own user: not to be traced or read by it.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
                .at("prctl(PR_SET_DUMPABLE)")?;
            let directory = directory.map(own).transpose()?;
            Ok((sys::fork_watched().at("fork the guard")?, directory))
        }
    }
}

/// Removes an empty group and then the run file: while a group is there, so is the file that names it.
pub(super) fn remove_traces(group: Option<&Group>, cpuset: Option<&Path>, run_file: &Path) {
    cpuset::remove(cpuset);
    if group.is_none_or(|group| group.remove().is_ok()) {
        let _ = run_file::remove(run_file);
    }
}

/// The pipe or file that a run's output goes to, and the capture behind it.
fn open_output(order: &Order) -> Result<(Option<(OwnedFd, Capture)>, OwnedFd), LaunchFault> {
    let Some(path) = &order.spec.capture else {
        let null = File::options().write(true).open("/dev/null").at("open /dev/null")?;
        return Ok((None, own(null)?));
    };
    let capture = Capture::create(path).at_path("make the output file", path)?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
    // A larger pipe only spares wake-ups; the kernel may refuse it to a user with many.
    let _ = rustix::pipe::fcntl_setpipe_size(&write, OUTPUT_PIPE_BYTES);
    Ok((Some((own(read)?, capture)), own(write)?))
}
