//! From the fork in the init to the exec of the command: everything the leader gives up before it is let loose.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::Identity;
use super::bare;
use super::cards::{self, CardWay};
use super::cpuset;
use super::fault::{At, LaunchFault};
use super::fence::Fence;
use super::mark;
use super::order::Order;
use super::sys;
use super::wanted::Isolation;
use super::wire::{self, Packet};

/// The descriptors a leader needs until its exec; all at 10 or above and closed by it.
pub(super) struct LeaderEnds {
    pub(super) control: OwnedFd,
    pub(super) gate: OwnedFd,
    pub(super) start: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) report: Option<OwnedFd>,
}

/// Becomes the command.
pub(super) fn lead(order: &Order, ends: &LeaderEnds) -> ! {
    let fault = match prepare(order, ends) {
        Ok(command) => wait_at_gate_and_exec(order, ends, &command),
        Err(fault) => fault,
    };
    // The rig may be gone; then the lifeline ends this init.
    let _ = wire::send(&ends.control, &Packet::Fault(fault), &[]);
    sys::exit_now(126)
}

fn wait_at_gate_and_exec(order: &Order, ends: &LeaderEnds, command: &sys::Prepared) -> ! {
    if wire::send(&ends.control, &Packet::AtGate, &[]).is_err() {
        sys::exit_now(125);
    }
    let mut byte = [0];
    loop {
        match rustix::io::read(&ends.gate, &mut byte) {
            Ok(1) => break,
            Err(rustix::io::Errno::INTR) => {}
            // The rig closed the gate for good.
            Ok(_) | Err(_) => sys::exit_now(125),
        }
    }
    if order.trial {
        match order.isolation {
            Isolation::Namespaces => sys::exit_now(0),
            // Something has to be there to be ended.
            Isolation::OwnUid | Isolation::Children => loop {
                rustix::event::pause();
            },
        }
    }
    let began = sys::now_ns();
    let _ = rustix::io::write(&ends.start, &began.to_ne_bytes());
    let error = command.exec();
    let fault = LaunchFault::new(format!("execute {}", order.spec.argv[0]), error);
    let _ = rustix::io::write(&ends.start, fault_bytes(&fault).as_slice());
    sys::exit_now(127)
}

/// The exec's fault as it goes through the start pipe.
fn fault_bytes(fault: &LaunchFault) -> Vec<u8> {
    serde_json::to_vec(fault).expect("two strings have a JSON form")
}

fn prepare(order: &Order, ends: &LeaderEnds) -> Result<sys::Prepared, LaunchFault> {
    let command = lay_out(order)?;
    rustix::process::setsid().at("setsid")?;
    sys::leave_keyring();
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).at("limit core files")?;
    let (most, at) = match order.isolation {
        Isolation::Namespaces => (order.processes_most, &order.spec.workspace_at),
        Isolation::OwnUid | Isolation::Children => {
            mark::put_on(mark::of(&order.spec.name)).at("mark the run (RLIMIT_LOCKS)")?;
            (bare::processes_most(order), &order.spec.workspace)
        }
    };
    if let Some(cpus) = order.spec.grant.cpus() {
        cpuset::keep_to(cpus)?;
    }
    // Laid out by whoever can reach every place, entered last.
    let fence = match order.devices.way {
        Some(CardWay::Landlock) => Some(Fence::lay_out(order.spec.grant.nodes(), &order.devices.kept_nodes)?),
        Some(CardWay::View | CardWay::Modes) | None => None,
    };
    match order.spec.identity {
        Identity::Dedicated { uid, gid } => become_user(order, uid, gid)?,
        Identity::RigsUser => {}
    }
    if may_empty_bounding_set(order) {
        empty_bounding_set()?;
    }
    // After the user namespace: a count begins there, so runs of one uid do not eat each other's processes.
    let most = Some(most);
    rustix::process::setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most }).at("limit processes")?;
    give_up_capabilities(CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true).at("set no_new_privs")?;
    rustix::process::chdir(at).at_path("enter", at)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::reset_signals();
    place_descriptors(ends)?;
    if let Some(fence) = fence {
        fence.enter()?;
        if order.trial {
            Fence::prove(&order.devices.kept_nodes)?;
        }
    }
    Ok(command)
}

fn become_user(order: &Order, uid: u32, gid: u32) -> Result<(), LaunchFault> {
    if uid == 0 || gid == 0 {
        return Err(LaunchFault::new("change to the run's user", "a run is never root"));
    }
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if !order.run_user_namespace {
        // The right to empty it goes with the change of user. A new namespace would fill it again, for itself alone,
        // so there it is emptied afterwards.
        empty_bounding_set()?;
    }
    let groups: Vec<Gid> = match order.devices.way {
        Some(CardWay::Modes) => cards::groups_of(&order.spec.grant).into_iter().map(Gid::from_raw).collect(),
        Some(CardWay::View | CardWay::Landlock) | None => Vec::new(),
    };
    rustix::thread::set_thread_groups(&groups).at("setgroups")?;
    rustix::thread::set_thread_res_gid(group, group, group).at("setresgid")?;
    rustix::thread::set_thread_res_uid(user, user, user).at("setresuid")?;
    if order.run_user_namespace {
        // The change of user made this process's own /proc files root's; its map has to be written by itself.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).at("prctl(PR_SET_DUMPABLE)")?;
        sys::unshare_user().at("user namespace of the run")?;
        map_self(uid, gid)
            .map_err(|fault| LaunchFault::new(format!("user namespace of the run: {}", fault.step), fault.why))?;
    }
    Ok(())
}

/// Maps one user and group onto themselves in the namespace the process is in, and forbids further ones below it: a
/// nested namespace could mount views of the cgroup tree.
pub(super) fn map_self(uid: u32, gid: u32) -> Result<(), LaunchFault> {
    fs::write("/proc/self/setgroups", "deny").at("write /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).at("write /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).at("write /proc/self/gid_map")?;
    fs::write("/proc/sys/user/max_user_namespaces", "0").at("write /proc/sys/user/max_user_namespaces")
}

/// Whether the bounding set can be emptied: an ordinary user outside a user namespace may not, and need not, since it
/// has no capability that no_new_privs would not keep it from.
pub(super) fn may_empty_bounding_set(order: &Order) -> bool {
    match (order.isolation, order.spec.identity) {
        (Isolation::Namespaces, _) | (_, Identity::Dedicated { .. }) => true,
        (Isolation::OwnUid | Isolation::Children, Identity::RigsUser) => false,
    }
}

/// Takes every capability out of the set that exec could give back.
pub(super) fn empty_bounding_set() -> Result<(), LaunchFault> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // A number the kernel does not know ends the list.
        let Ok(has) = rustix::thread::capability_is_in_bounding_set(capability) else { break };
        if has {
            rustix::thread::remove_capability_from_bounding_set(capability).at("empty the bounding set")?;
        }
    }
    Ok(())
}

/// Keeps only the given capabilities.
pub(super) fn give_up_capabilities(keep: CapabilitySet) -> Result<(), LaunchFault> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).at("capset")
}

fn place_descriptors(ends: &LeaderEnds) -> Result<(), LaunchFault> {
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, Mode::empty())
        .at("open /dev/null")?;
    sys::place_at(null.as_fd(), 0).at("place stdin")?;
    sys::place_at(ends.output.as_fd(), 1).at("place stdout")?;
    sys::place_at(ends.output.as_fd(), 2).at("place stderr")?;
    let first_own = if let Some(report) = &ends.report {
        sys::place_at(report.as_fd(), 3).at("place descriptor 3")?;
        4
    } else {
        3
    };
    sys::close_at_exec_from(first_own).at("close_range")
}

/// Lays out program, arguments and environment; a program without a slash is looked for in the run's PATH.
fn lay_out(order: &Order) -> Result<sys::Prepared, LaunchFault> {
    let spec = &order.spec;
    let env = bare::environment(order);
    let text = |text: &str| CString::new(text).at("take an argument");
    if order.trial {
        return Ok(sys::Prepared::new(Vec::new(), Vec::new(), Vec::new()));
    }
    let program = spec.argv.first().filter(|program| !program.is_empty());
    let program = program.ok_or_else(|| LaunchFault::new("take the command", "it is empty"))?;
    let paths = if program.contains('/') {
        vec![text(program)?]
    } else {
        let path = env.iter().find(|(name, _)| name == "PATH").map_or("/usr/bin:/bin", |(_, path)| path.as_str());
        path.split(':')
            .filter(|dir| !dir.is_empty())
            .map(|dir| text(&format!("{dir}/{program}")))
            .collect::<Result<_, _>>()?
    };
    let argv = spec.argv.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?;
    let envp = env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect::<Result<_, _>>()?;
    Ok(sys::Prepared::new(paths, argv, envp))
}
