//! Real control groups with a CPU quota: a test's own, one inside the other, by cgroup v1 or v2, gone with the value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long what was in a group may take to be reaped by whoever started it.
const EMPTY_MAX: Duration = Duration::from_secs(30);

/// Which of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that processes are put into.
    Own,
    /// The one around it.
    Ancestor,
}

/// Two groups without a quota yet.
pub(crate) struct QuotaGroup {
    is_v1: bool,
    outer: PathBuf,
    inner: PathBuf,
    /// The outer one's name as records have it.
    name: String,
}

impl QuotaGroup {
    /// None where this machine gives no group with the CPU controller, which is said.
    pub(crate) fn make() -> Option<QuotaGroup> {
        let tried = [QuotaGroup::v1(), QuotaGroup::v2()];
        let mut missing = Vec::new();
        for made in tried {
            match made {
                Ok(group) => return Some(group),
                Err(why) => missing.push(why),
            }
        }
        println!("skipped, no group with a CPU quota can be made here: {}", missing.join("; "));
        None
    }

    fn v1() -> Result<QuotaGroup, String> {
        let place = own_place("cgroup", |controllers| controllers.split(',').any(|name| name == "cpu"));
        let (mount, own) = place.ok_or("cgroup v1 has no mounted cpu controller")?;
        QuotaGroup::below(true, &mount, &own)
    }

    fn v2() -> Result<QuotaGroup, String> {
        let (mount, own) = own_place("cgroup2", str::is_empty).ok_or("cgroup v2 is not mounted")?;
        let has_cpu = |folder: &Path, file: &str| {
            fs::read_to_string(folder.join(file)).unwrap_or_default().split_whitespace().any(|name| name == "cpu")
        };
        // Below this process's own group where that may hand the controller on, else below the root.
        let mut why = String::new();
        for place in [own.as_str(), ""] {
            let folder = PathBuf::from(format!("{}{place}", mount.display()));
            if !has_cpu(&folder, "cgroup.controllers") {
                why = format!("cgroup v2 has no cpu controller at {}", folder.display());
                continue;
            }
            if has_cpu(&folder, "cgroup.subtree_control")
                || fs::write(folder.join("cgroup.subtree_control"), "+cpu").is_ok()
            {
                return QuotaGroup::below(false, &mount, place);
            }
            why = format!("cgroup v2 does not hand the cpu controller on at {}", folder.display());
        }
        Err(why)
    }

    fn below(is_v1: bool, mount: &Path, own: &str) -> Result<QuotaGroup, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = format!("{own}/quota-test-{pid}-{number}");
        let outer = PathBuf::from(format!("{}{path}", mount.display()));
        let inner = outer.join("inner");
        fs::create_dir(&outer).map_err(|error| format!("{}: {error}", outer.display()))?;
        let name = if is_v1 { format!("cpu:{path}") } else { path };
        let group = QuotaGroup { is_v1, outer, inner, name };
        if !is_v1 {
            let control = group.outer.join("cgroup.subtree_control");
            fs::write(&control, "+cpu").map_err(|error| format!("{}: {error}", control.display()))?;
        }
        fs::create_dir(&group.inner).map_err(|error| format!("{}: {error}", group.inner.display()))?;
        Ok(group)
    }

    /// A group's name as records have it.
    pub(crate) fn name(&self, which: Which) -> String {
        match which {
            Which::Own => format!("{}/inner", self.name),
            Which::Ancestor => self.name.clone(),
        }
    }

    /// Allows a group that much CPU time in each period, in microseconds.
    pub(crate) fn hold(&self, which: Which, quota_us: u32, period_us: u32) {
        let folder = self.folder(which);
        if self.is_v1 {
            fs::write(folder.join("cpu.cfs_period_us"), period_us.to_string()).unwrap();
            fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
        } else {
            fs::write(folder.join("cpu.max"), format!("{quota_us} {period_us}")).unwrap();
        }
    }

    /// Takes the quota away.
    pub(crate) fn lift(&self, which: Which) {
        let (file, none) = if self.is_v1 { ("cpu.cfs_quota_us", "-1") } else { ("cpu.max", "max 100000") };
        fs::write(self.folder(which).join(file), none).unwrap();
    }

    /// Puts a process into the inner group; what it starts from then on is in it too.
    pub(crate) fn take_in(&self, pid: u32) {
        fs::write(self.inner.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// The inner group's folder.
    pub(crate) fn inner(&self) -> &Path {
        &self.inner
    }

    /// The command, begun in the inner group.
    pub(crate) fn begin_in(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(self.inner().join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    fn folder(&self, which: Which) -> &Path {
        match which {
            Which::Own => &self.inner,
            Which::Ancestor => &self.outer,
        }
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // What is still ending must not do so at a crawl.
        let _none_was_set = [Which::Own, Which::Ancestor].map(|which| {
            let (file, none) = if self.is_v1 { ("cpu.cfs_quota_us", "-1") } else { ("cpu.max", "max 100000") };
            fs::write(self.folder(which).join(file), none)
        });
        let began = Instant::now();
        for folder in [&self.inner, &self.outer] {
            while folder.exists() && fs::remove_dir(folder).is_err() && began.elapsed() < EMPTY_MAX {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Where a hierarchy is mounted whole, and this process's group in it without a last slash.
fn own_place(kind: &str, is_it: impl Fn(&str) -> bool) -> Option<(PathBuf, String)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        is_it(controllers).then(|| path.trim_end_matches('/').to_owned())
    })?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, at) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let fits = back.next()? == kind && (kind == "cgroup2" || is_it(back.nth(1)?.trim_start_matches("rw,")));
        (fits && root == "/").then(|| PathBuf::from(at))
    })?;
    Some((mount, own))
}
