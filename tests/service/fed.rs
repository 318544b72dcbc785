//! A machine made of files that says it is idle, for `THERMITE_PROC_ROOT`: no test waits for a quiet moment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Lays the files out below `root`, which is there; what is there of an earlier call is replaced at once.
pub(crate) fn idle(root: &Path) {
    // Put in place at once: a rig that reads meanwhile finds the old or the new.
    let new = root.with_extension("new");
    let cores = std::thread::available_parallelism().unwrap().get();
    let lines: String = (0..cores).map(|cpu| format!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n")).collect();
    for (name, text) in [
        ("loadavg", "0.00 0.00 0.00 1/200 77\n".to_owned()),
        ("stat", format!("cpu 0 0 0 0 0 0 0 0 0 0\n{lines}")),
        ("sys/kernel/random/boot_id", "boot-of-the-test\n".to_owned()),
        ("self/stat", "7 (rig) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0".to_owned()),
        ("self/status", format!("Name:\trig\nCpus_allowed_list:\t0-{}\n", cores - 1)),
    ] {
        fs::create_dir_all(new.join(name).parent().unwrap()).unwrap();
        fs::write(new.join(name), text).unwrap();
    }
    let _no_link = fs::remove_file(root.join("proc"));
    fs::rename(&new, root.join("proc")).unwrap();
}

/// Lets a rig see its real control groups beside an idle machine.
pub(crate) fn with_real_groups(root: &Path) {
    for file in ["cgroup", "mountinfo"] {
        // Followed by whoever reads: the rig finds its own.
        symlink(Path::new("/proc/self").join(file), root.join("proc/self").join(file)).unwrap();
    }
    symlink("/sys", root.join("sys")).unwrap();
}
