//! What a hostile run tries, each attempt printed as `reached NAME` or `refused NAME ERROR`.
//!
//! Every attempt is harmless where it succeeds: the same program runs outside containment as the control.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::process::{Pid, test_kill_process};

/// Tries everything; `secret` is a file of the data folder, `open` a folder that anyone may write outside.
pub(crate) fn attempt_all(secret: &Path, open: &Path, rig: i32) {
    tell("read-data", fs::read(secret));
    tell("write-outside", fs::write(open.join("written"), "x"));
    for place in ["/", "/etc", "/usr", "/run", "/dev", "/proc/sys/kernel", "/sys/kernel"] {
        tell(&format!("write-in-{place}"), fs::write(Path::new(place).join("thermite-hostile"), "x"));
    }
    for group in groups() {
        tell("leave-cgroup", fs::write(group, "0"));
    }
    let pid = Pid::from_raw(rig).unwrap();
    tell("signal-rig", test_kill_process(pid));
    tell("ptrace-rig", seize(rig));
    tell("ptrace-init", seize(1));
    tell("read-init-environ", fs::read("/proc/1/environ"));
    tell("enter-init-root", fs::read_dir("/proc/1/root/"));
    tell("mount", mount_and_unmount(open));
    tell("remount", rustix::mount::mount_remount("/", MountFlags::BIND, ""));
    tell("mknod", mknod(&open.join("node")));
    tell("mknod-here", mknod(Path::new("node")));
    tell("become-root", rustix::thread::set_thread_uid(rustix::process::Uid::ROOT));
    tell("new-user-namespace", unshare_in_a_child());
    println!("uid {}", rustix::process::geteuid().as_raw());
    println!("cmdline-of-init {:?}", String::from_utf8_lossy(&fs::read("/proc/1/cmdline").unwrap()));
    let mut fds: Vec<String> =
        fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    fds.sort();
    // One of them is of the listing itself.
    println!("descriptors {}", fds.len() - 1);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for line in status.lines().filter(|line| line.starts_with("Cap") || line.starts_with("NoNewPrivs")) {
        println!("{}", line.replace('\t', " "));
    }
}

fn tell<T, E: std::fmt::Display>(name: &str, result: Result<T, E>) {
    match result {
        Ok(_) => println!("reached {name}"),
        Err(error) => println!("refused {name} {error}"),
    }
}

/// Every file by which a process could leave its cgroups.
fn groups() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let groups = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    groups.map(|at| format!("{at}/cgroup.procs")).collect()
}

#[expect(unsafe_code, reason = "an attempt to trace has no safe form")]
fn seize(pid: i32) -> io::Result<()> {
    // SAFETY: without arguments; a traced process is let go when this one ends.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mount_and_unmount(at: &Path) -> rustix::io::Result<()> {
    rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), None)?;
    rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH)
}

fn mknod(at: &Path) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, at, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 5))?;
    // A node that cannot be opened reaches nothing.
    rustix::fs::open(at, OFlags::RDONLY, Mode::empty()).map(drop)?;
    rustix::fs::unlink(at)
}

/// By a program, so that this process stays where it is.
fn unshare_in_a_child() -> io::Result<()> {
    let output = std::process::Command::new("unshare").args(["--user", "true"]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Forks until it is refused, at most `most` times; the children wait to be ended.
#[expect(unsafe_code, reason = "fork has no safe form")]
pub(crate) fn fork_until_refused(most: u32) {
    let mut forks = 0;
    let mut why = "the limit of this test".to_owned();
    while forks < most {
        // SAFETY: this program has one thread; the child only waits.
        match unsafe { libc::fork() } {
            0 => loop {
                rustix::event::pause();
            },
            -1 => {
                why = io::Error::last_os_error().to_string();
                break;
            }
            _ => forks += 1,
        }
    }
    println!("forks {forks} then {why}");
}
