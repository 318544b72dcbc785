//! Pid 1 of a run's namespaces: makes the run's view, starts the leader, reaps, forwards a gentle stop, and ends with
//! its lifelines. When it ends, the kernel kills everything in the namespace before the end can be seen outside.
//!
//! Where there are no namespaces it is the run's guard instead: it ends everything itself, proves it, and ends last.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitStatus};
use rustix::thread::CapabilitySet;

use super::fault::{At, LaunchFault};
use super::guard::{self, Guard, Reaped, Strike};
use super::leader::{self, LeaderEnds};
use super::order::Order;
use super::report::Report;
use super::sys::{self, Side, SignalQueue, exit_now, wait_any};
use super::wanted::Isolation;
use super::wire::{self, LeaderEnd, Packet};
use super::{Identity, cgroup, world};

/// What an init is given by the launcher it was forked from.
pub(super) struct InitEnds {
    /// To the rig.
    pub(super) control: OwnedFd,
    /// Closed by the rig's end.
    pub(super) rig_lifeline: OwnedFd,
    /// Closed by the launcher's end; the leader's end is told there.
    pub(super) launcher: OwnedFd,
    pub(super) gate: OwnedFd,
    pub(super) start: OwnedFd,
    pub(super) output: OwnedFd,
    /// Both ends of descriptor 3, reading end first.
    pub(super) report: Option<(OwnedFd, OwnedFd)>,
    /// The run's CPU figures, where it has a cgroup.
    pub(super) cpu: Option<File>,
    /// The rig's uid and gid outside.
    pub(super) rigs_user: (u32, u32),
    /// The group that the leader is started in, where the init is not in it.
    pub(super) leaders_group: Option<OwnedFd>,
}

/// The exit code when the rig's lifeline ended, for whoever looks with a debugger.
const RIG_ENDED: i32 = 123;
/// The exit code when the launcher's lifeline ended.
const LAUNCHER_ENDED: i32 = 124;

/// Runs as the init of the new namespaces.
pub(super) fn run(order: &Order, ends: InitEnds) -> ! {
    match start(order, ends) {
        Ok(init) => init.serve(),
        Err((control, fault)) => {
            let _ = wire::send(&control, &Packet::Fault(fault), &[]);
            exit_now(126)
        }
    }
}

fn start(order: &Order, ends: InitEnds) -> Result<Init, (OwnedFd, LaunchFault)> {
    let InitEnds { control, rig_lifeline, launcher, gate, start, output, report, cpu, rigs_user, leaders_group } = ends;
    let prepared = (|| {
        // What is made for the run has to be open to its user, whatever the rig's own habit is.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let _ = rustix::thread::set_name(c"thermite-init");
        match order.isolation {
            Isolation::Namespaces => make_view(order, rigs_user)?,
            Isolation::OwnUid | Isolation::Children => guard::become_subreaper()?,
        }
        SignalQueue::open().at("signalfd")
    })();
    let signals = match prepared {
        Ok(signals) => signals,
        Err(fault) => return Err((control, fault)),
    };
    let cpu_before = cpu.as_ref().and_then(cgroup::cpu_ns).unwrap_or(0);
    let (report_read, report_write) = report.map_or((None, None), |(read, write)| (Some(read), Some(write)));
    let leader_ends = LeaderEnds { control, gate, start, output, report: report_write };
    let leader = match fork_leader(leaders_group) {
        Ok(Some(leader)) => leader,
        Ok(None) => leader::lead(order, &leader_ends),
        Err(fault) => return Err((leader_ends.control, fault)),
    };
    let LeaderEnds { control, gate: _, start: _, output: _, report: _ } = leader_ends;
    if let Err(fault) = shrink(order) {
        return Err((control, fault));
    }
    Ok(Init {
        control,
        rig_lifeline,
        launcher,
        signals,
        report: Report::new(report_read, leader),
        cpu: cpu.map(|file| (file, cpu_before)),
        leader: Some(leader),
        keeps_leftovers: order.spec.keeps_leftovers,
        guard: match order.isolation {
            Isolation::Namespaces => None,
            Isolation::OwnUid | Isolation::Children => Some(Guard::new(order)),
        },
        ending: None,
    })
}

fn make_view(order: &Order, rigs_user: (u32, u32)) -> Result<(), LaunchFault> {
    let (uid, gid) = match order.spec.identity {
        Identity::Dedicated { uid, gid } => (uid, gid),
        Identity::RigsUser => {
            leader::map_self(rigs_user.0, rigs_user.1)?;
            rigs_user
        }
    };
    world::make(order, uid, gid)
}

/// Forks the leader, into the group where one is given; its own side has none.
fn fork_leader(group: Option<OwnedFd>) -> Result<Option<Pid>, LaunchFault> {
    match group {
        None => sys::fork().at("fork the leader"),
        Some(group) => match sys::fork_contained(0, Some(group.as_fd())).at("enter the cgroup (clone3)")? {
            Side::Parent { child, .. } => Ok(Some(child)),
            Side::Child => Ok(None),
        },
    }
}

/// Gives up what an init that only reaps does not need.
fn shrink(order: &Order) -> Result<(), LaunchFault> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).at("prctl(PR_SET_DUMPABLE)")?;
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).at("limit core files")?;
    match order.spec.identity {
        Identity::Dedicated { .. } => rustix::thread::set_thread_groups(&[]).at("setgroups")?,
        // Its namespace forbids setgroups.
        Identity::RigsUser => {}
    }
    // To forward signals to a leader of another user, and to end what is left of it as that user.
    let keep = match (order.isolation, order.spec.identity) {
        (Isolation::Namespaces, _) | (Isolation::Children, Identity::Dedicated { .. }) => CapabilitySet::KILL,
        (Isolation::OwnUid, _) => CapabilitySet::KILL | CapabilitySet::SETUID,
        (Isolation::Children, Identity::RigsUser) => CapabilitySet::empty(),
    };
    if leader::may_empty_bounding_set(order) {
        leader::empty_bounding_set()?;
    }
    leader::give_up_capabilities(keep)?;
    rustix::thread::set_no_new_privs(true).at("set no_new_privs")
}

/// What the rig tells by a signal: to end all, by the uid or, where another run has it too, by children alone.
fn strike_of(signal: i32) -> Option<Strike> {
    match signal {
        libc::SIGUSR1 => Some(Strike::ByUid),
        libc::SIGUSR2 => Some(Strike::Children),
        _ => None,
    }
}

struct Init {
    control: OwnedFd,
    rig_lifeline: OwnedFd,
    launcher: OwnedFd,
    signals: SignalQueue,
    report: Report,
    cpu: Option<(File, u64)>,
    /// The leader, until it is reaped.
    leader: Option<Pid>,
    keeps_leftovers: bool,
    /// Ends the run where no namespace does.
    guard: Option<Guard>,
    /// Set once the run is to end.
    ending: Option<Ending>,
}

/// Why and how an init ends its run.
#[derive(Clone, Copy)]
struct Ending {
    code: i32,
    how: Strike,
}

impl Init {
    fn serve(mut self) -> ! {
        loop {
            if let Some(ending) = self.ending {
                self.end(ending);
            }
            let [signal, rig, launcher, report] = wait_any(
                [
                    Some(self.signals.fd().as_fd()),
                    Some(self.rig_lifeline.as_fd()),
                    Some(self.launcher.as_fd()),
                    self.report.fd(),
                ],
                None,
            );
            // The launcher ends when its rig does, so the rig is looked at first.
            if rig {
                self.ending = Some(Ending { code: RIG_ENDED, how: Strike::Either });
            } else if launcher {
                self.ending = Some(Ending { code: LAUNCHER_ENDED, how: Strike::Either });
            }
            if signal {
                self.take_signals();
            }
            if report {
                let taken = self.report.take();
                self.pass_on(taken);
            }
        }
    }

    /// Ends the run and then itself: by its own end where that takes all with it, else by ending all first.
    fn end(mut self, ending: Ending) -> ! {
        let Some(mut guard) = self.guard.take() else { exit_now(ending.code) };
        guard.begin();
        let mut how = ending.how;
        self.keeps_leftovers = true;
        loop {
            match guard::reap() {
                Reaped::One(pid, status) => {
                    guard.reaped(pid);
                    self.note_reaped(pid, status);
                    continue;
                }
                Reaped::NoChildren => break,
                Reaped::NoneYet => {}
            }
            guard.strike(how);
            wait_any([Some(self.signals.fd().as_fd())], Some(guard.tick()));
            while let Some(number) = self.signals.next() {
                how = strike_of(number).unwrap_or(how);
            }
        }
        let _ = wire::send(&self.control, &Packet::Empty, &[]);
        exit_now(ending.code)
    }

    fn take_signals(&mut self) {
        while let Some(number) = self.signals.next() {
            if number == libc::SIGCHLD {
                self.reap();
            } else if let Some(how) = strike_of(number) {
                self.ending = Some(Ending { code: 0, how });
            } else if let (Some(leader), Some(signal)) = (self.leader, Signal::from_named_raw(number)) {
                // The leader began a session, so its group has its number.
                let _ = rustix::process::kill_process_group(leader, signal);
            }
        }
    }

    fn reap(&mut self) {
        loop {
            match guard::reap() {
                Reaped::One(pid, status) => self.note_reaped(pid, status),
                Reaped::NoneYet => return,
                Reaped::NoChildren => break,
            }
        }
        if self.leader.is_none() {
            // What was kept has ended by itself: there is nothing more to stay for.
            self.ending.get_or_insert(Ending { code: 0, how: Strike::Children });
        }
    }

    fn note_reaped(&mut self, pid: Pid, status: WaitStatus) {
        if Some(pid) == self.leader {
            let at_ns = sys::now_ns();
            self.leader = None;
            self.leader_ended(status, at_ns);
        }
    }

    fn leader_ended(&mut self, status: WaitStatus, at_ns: u64) {
        let cpu_ns = match &self.cpu {
            Some((stat, before)) => cgroup::cpu_ns(stat).unwrap_or(0).saturating_sub(*before),
            None => sys::children_cpu_ns(),
        };
        // What is in the socket is all that the leader wrote.
        for taken in self.report.drain() {
            self.pass_on(taken);
        }
        let end = LeaderEnd {
            code: status.exit_status(),
            signal: status.terminating_signal().unwrap_or(0),
            at_ns,
            cpu_ns,
            reported_by_others: self.report.by_others(),
        };
        let _ = wire::send(&self.control, &Packet::Ended(end), &[]);
        if !self.keeps_leftovers {
            // At once, before the next of the signals that wait: nothing of it is to go on.
            self.ending.get_or_insert(Ending { code: 0, how: Strike::Children });
            return;
        }
        let _ = rustix::io::write(&self.launcher, b"E");
    }

    fn pass_on(&self, report: Vec<u8>) {
        if !report.is_empty() {
            let _ = wire::send(&self.control, &Packet::Reported(report), &[]);
        }
    }
}
