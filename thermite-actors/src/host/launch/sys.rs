//! The few system calls that rustix does not offer, each behind the smallest safe function.
//!
//! All but [`fork_contained`] and [`fork`] are plain calls on descriptors. Those two are sound only while the process
//! has one thread, which holds in the launcher: it is a fresh exec that starts none.

use std::ffi::{CStr, CString, c_int, c_uint, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

/// Which side of a fork this is.
pub(super) enum Side {
    /// The parent, with the child and its pidfd.
    Parent { child: Pid, pidfd: OwnedFd },
    /// The child.
    Child,
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Forks into new namespaces and, where given, a cgroup (`clone3`, kernel 5.7).
#[expect(unsafe_code, reason = "rustix has no clone3")]
pub(super) fn fork_contained(namespaces: c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    /// `CLONE_INTO_CGROUP`, which the C library's constant cannot hold on all targets.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    assert_eq!(threads(), 1, "the launcher forks with one thread only");
    let mut pidfd: c_int = -1;
    let mut flags = u64::from(namespaces.cast_unsigned()) | u64::from(libc::CLONE_PIDFD.cast_unsigned());
    if cgroup.is_some() {
        flags |= INTO_CGROUP;
    }
    let args = libc::clone_args {
        flags,
        pidfd: &raw mut pidfd as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of all memory and its own copy of the stack. The
    // process has one thread, so no lock is held by a thread that the child lacks. `args` and `pidfd` outlive the call.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) })?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    let child = Pid::from_raw(pid as i32).expect("the kernel gives a parent a positive pid");
    // SAFETY: the kernel has just put a descriptor there that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Side::Parent { child, pidfd })
}

/// Forks; the child's side gives `None`.
#[expect(unsafe_code, reason = "rustix has no fork outside its runtime module")]
pub(super) fn fork() -> io::Result<Option<Pid>> {
    assert_eq!(threads(), 1, "the launcher forks with one thread only");
    // SAFETY: one thread, so the child may go on as if nothing had happened.
    let pid = check(libc::c_long::from(unsafe { libc::fork() }))?;
    Ok(Pid::from_raw(pid as i32))
}

/// Forks, and watches the child; its pid is its own until the caller reaps it.
pub(super) fn fork_watched() -> io::Result<Side> {
    match fork()? {
        None => Ok(Side::Child),
        Some(child) => {
            let pidfd = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty())?;
            Ok(Side::Parent { child, pidfd })
        }
    }
}

/// Starts a helper that takes the uid `uid` and kills everything it may: all processes of that uid. Its pid.
///
/// What the kernel answers to the one call tells nothing (`kill` of -1 counts also what it may not signal): the proof is
/// the caller's.
#[expect(unsafe_code, reason = "rustix has no kill of all processes")]
pub(super) fn kill_all_of(uid: u32) -> io::Result<Pid> {
    assert_ne!(uid, 0, "root's processes are never a run's");
    match fork()? {
        Some(helper) => Ok(helper),
        None => {
            let user = rustix::process::Uid::from_raw(uid);
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            let is_only_that_user = rustix::thread::set_thread_res_uid(user, user, user).is_ok()
                && rustix::thread::set_capabilities(None, sets).is_ok()
                && rustix::thread::capabilities(None)
                    .is_ok_and(|has| has.effective.is_empty() && has.permitted.is_empty())
                && rustix::process::getuid() == user
                && rustix::process::geteuid() == user;
            // INVARIANT: from here on it may signal nothing but that uid's processes.
            if is_only_that_user {
                // SAFETY: a plain call; this process itself is left out by the kernel.
                unsafe {
                    libc::kill(-1, libc::SIGKILL);
                }
            }
            exit_now(0)
        }
    }
}

/// What every mount under a place gets.
#[derive(Clone, Copy)]
pub(super) struct MountAttributes {
    pub(super) read_only: bool,
    pub(super) recursive: bool,
}

const ATTR_RDONLY: u64 = 0x1;
const ATTR_NOSUID: u64 = 0x2;
const ATTR_NODEV: u64 = 0x4;

/// Sets attributes on the mount that `fd` is, or that is at `path` (`mount_setattr`, kernel 5.12). `nosuid` and
/// `nodev` always where recursive.
#[expect(unsafe_code, reason = "rustix has no mount_setattr")]
pub(super) fn set_mount_attributes(
    fd: Option<BorrowedFd<'_>>,
    path: &CStr,
    attributes: MountAttributes,
) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let mut set = 0;
    if attributes.read_only {
        set |= ATTR_RDONLY;
    }
    if attributes.recursive {
        set |= ATTR_NOSUID | ATTR_NODEV;
    }
    let attr = MountAttr { set, clear: 0, propagation: 0, user_namespace: 0 };
    let mut flags: c_uint = 0;
    if attributes.recursive {
        flags |= libc::AT_RECURSIVE as c_uint;
    }
    if fd.is_some() {
        flags |= libc::AT_EMPTY_PATH as c_uint;
    }
    let dir = fd.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    // SAFETY: `path` is a C string and `attr` has the size that is given; both outlive the call.
    check(unsafe {
        libc::syscall(libc::SYS_mount_setattr, dir, path.as_ptr(), flags, &raw const attr, size_of::<MountAttr>())
    })?;
    Ok(())
}

/// Marks every descriptor from `first` on to be closed at exec (kernel 5.11).
#[expect(unsafe_code, reason = "rustix has no close_range")]
pub(super) fn close_at_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: sets a flag on descriptors; none is closed here.
    check(unsafe {
        libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as c_uint)
    })?;
    Ok(())
}

/// Closes every descriptor from `first` on: what a rig's other parts left open is not the launcher's.
///
/// Called before the launcher has opened any of its own.
#[expect(unsafe_code, reason = "rustix has no close_range")]
pub(super) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: called first thing in a fresh process image that owns no descriptor above 2.
    check(unsafe { libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, 0 as c_uint) })?;
    Ok(())
}

/// Puts a descriptor at a fixed number, where it stays open at exec.
///
/// What was there is closed; callers keep their own descriptors at 10 and above.
#[expect(unsafe_code, reason = "the number is a raw one by nature: 0, 1, 2 or 3")]
pub(super) fn place_at(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    assert!(number < 10, "only the numbers a command knows are placed");
    // SAFETY: descriptors below 10 have no owner in the launcher.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), number) }))?;
    Ok(())
}

/// Gives every signal its default action and blocks none.
#[expect(unsafe_code, reason = "rustix has no signal dispositions")]
pub(super) fn reset_signals() {
    // SAFETY: default actions and an empty mask are valid; a signal that cannot be changed gives an error, ignored.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ignores the signals that a terminal or a service manager sends to a whole group.
#[expect(unsafe_code, reason = "rustix has no signal dispositions")]
pub(super) fn ignore_group_signals() {
    // SAFETY: ignoring a signal is a valid disposition.
    unsafe {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Signals that an init takes by descriptor.
pub(super) struct SignalQueue(OwnedFd);

impl SignalQueue {
    /// Blocks the signals an init forwards or is told by, and SIGCHLD, and opens a descriptor that yields them.
    #[expect(unsafe_code, reason = "rustix has no signalfd")]
    pub(super) fn open() -> io::Result<SignalQueue> {
        // SAFETY: the set is initialised before use; the new descriptor has no other owner.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            check(libc::c_long::from(fd))?;
            Ok(SignalQueue(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// The next signal's number.
    pub(super) fn next(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(n) if n == info.len() => Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])),
            Ok(_) | Err(_) => None,
        }
    }

    /// The descriptor, to wait on.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Joins a session keyring of its own, so that the rig's keys are not the run's. Absent in some kernels: no error.
#[expect(unsafe_code, reason = "rustix has no keyctl")]
pub(super) fn leave_keyring() {
    const JOIN_SESSION_KEYRING: c_ulong = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    unsafe {
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0 as c_ulong);
    }
}

/// Puts the calling process into a user namespace of its own.
#[expect(unsafe_code, reason = "rustix marks unshare unsafe for the sake of CLONE_FILES, which is not used")]
pub(super) fn unshare_user() -> io::Result<()> {
    // SAFETY: the descriptor table stays shared with nobody.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?;
    Ok(())
}

/// CPU time of the children that were waited for, in nanoseconds.
#[expect(unsafe_code, reason = "rustix has no getrusage")]
pub(super) fn children_cpu_ns() -> u64 {
    // SAFETY: a zeroed rusage is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// A program with its arguments and environment, laid out so that nothing is left to do at exec.
pub(super) struct Prepared {
    paths: Vec<CString>,
    // The strings that the pointer lists below point into.
    _argv: Vec<CString>,
    _envp: Vec<CString>,
    argv_pointers: Vec<*const libc::c_char>,
    envp_pointers: Vec<*const libc::c_char>,
}

impl Prepared {
    /// Lays out a command; `paths` are tried in order.
    pub(super) fn new(paths: Vec<CString>, argv: Vec<CString>, envp: Vec<CString>) -> Prepared {
        let pointers = |strings: &[CString]| {
            strings.iter().map(|string| string.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
        };
        let (argv_pointers, envp_pointers) = (pointers(&argv), pointers(&envp));
        Prepared { paths, _argv: argv, _envp: envp, argv_pointers, envp_pointers }
    }

    /// Becomes the program, or says why not: the most telling of the errors.
    #[expect(unsafe_code, reason = "rustix has no execve outside its runtime module")]
    pub(super) fn exec(&self) -> io::Error {
        let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
        for path in &self.paths {
            // SAFETY: both lists end with null and point into strings that `self` owns.
            unsafe {
                libc::execve(path.as_ptr(), self.argv_pointers.as_ptr(), self.envp_pointers.as_ptr());
            }
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) {
                worst = error;
            }
        }
        worst
    }
}

/// Ends the process at once, running no clean-up that belongs to the process it was forked from.
#[expect(unsafe_code, reason = "rustix has no _exit outside its runtime module")]
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits for any of the descriptors; which of them are ready.
pub(super) fn wait_any<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Option<std::time::Duration>,
) -> [bool; N] {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.map(|timeout| rustix::event::Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    // An interrupted wait is a wait in which nothing was ready.
    let ready = poll(&mut polled, timeout.as_ref()).unwrap_or(0) > 0;
    let mut states = polled.iter().map(|fd| ready && !fd.revents().is_empty());
    fds.map(|fd| fd.is_some() && states.next().unwrap_or(false))
}
