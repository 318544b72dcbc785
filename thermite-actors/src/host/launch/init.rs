//! Pid 1 of a run's namespaces: makes the run's view, starts the leader, reaps, forwards a gentle stop, and ends with
//! its lifelines. When it ends, the kernel kills everything in the namespace before the end can be seen outside.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use rustix::thread::CapabilitySet;

use super::fault::{At, LaunchFault};
use super::leader::{self, LeaderEnds};
use super::order::Order;
use super::report::Report;
use super::sys::{self, SignalQueue, exit_now, wait_any};
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
    let InitEnds { control, rig_lifeline, launcher, gate, start, output, report, cpu, rigs_user } = ends;
    let prepared = (|| {
        // What is made for the run has to be open to its user, whatever the rig's own habit is.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let _ = rustix::thread::set_name(c"thermite-init");
        let (uid, gid) = match order.spec.identity {
            Identity::Dedicated { uid, gid } => (uid, gid),
            Identity::RigsUser => {
                leader::map_self(rigs_user.0, rigs_user.1)?;
                rigs_user
            }
        };
        world::make(order, uid, gid)?;
        SignalQueue::open().at("signalfd")
    })();
    let signals = match prepared {
        Ok(signals) => signals,
        Err(fault) => return Err((control, fault)),
    };
    let cpu_before = cpu.as_ref().and_then(cgroup::cpu_ns).unwrap_or(0);
    let (report_read, report_write) = report.map_or((None, None), |(read, write)| (Some(read), Some(write)));
    let leader_ends = LeaderEnds { control, gate, start, output, report: report_write };
    let leader = match sys::fork() {
        Ok(Some(leader)) => leader,
        Ok(None) => leader::lead(order, &leader_ends),
        Err(error) => return Err((leader_ends.control, LaunchFault::new("fork the leader", error))),
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
    })
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
    leader::empty_bounding_set()?;
    // To forward signals to a leader of another user.
    leader::give_up_capabilities(CapabilitySet::KILL)?;
    rustix::thread::set_no_new_privs(true).at("set no_new_privs")
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
}

impl Init {
    fn serve(mut self) -> ! {
        loop {
            let [signal, rig, launcher, report] = wait_any(
                [
                    Some(self.signals.fd().as_fd()),
                    Some(self.rig_lifeline.as_fd()),
                    Some(self.launcher.as_fd()),
                    self.report.fd(),
                ],
                None,
            );
            if rig {
                exit_now(RIG_ENDED);
            }
            if launcher {
                exit_now(LAUNCHER_ENDED);
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

    fn take_signals(&mut self) {
        while let Some(number) = self.signals.next() {
            if number == libc::SIGCHLD {
                self.reap();
            } else if let (Some(leader), Some(signal)) = (self.leader, Signal::from_named_raw(number)) {
                // The leader began a session, so its group has its number.
                let _ = rustix::process::kill_process_group(leader, signal);
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(pid) == self.leader {
                let at_ns = sys::now_ns();
                self.leader = None;
                self.leader_ended(status, at_ns);
            }
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
            exit_now(0);
        }
        let _ = rustix::io::write(&self.launcher, b"E");
    }

    fn pass_on(&self, report: Vec<u8>) {
        if !report.is_empty() {
            let _ = wire::send(&self.control, &Packet::Reported(report), &[]);
        }
    }
}
