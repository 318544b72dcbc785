//! The CPU driver: this machine's CPUs as a device, and whether they are quiet enough to time on (rules C2, D1-D3).
//!
//! A reading holds the load average and a direct sample of what other programs use, both with the judge's own use
//! taken off, besides throttle counters and clocks. All files are read below a root, so that tests can give readings.
//!
//! The direct sample does not make a reading slow: it covers the time since an earlier reading where that lies
//! [`limits::DIRECT_SAMPLE`] or more back, and only otherwise waits. What the rig itself and all that it ran and has
//! reaped used in between is taken off: readings are taken while none of the judge's runs is under way, so a run's CPU
//! time falls into the same sample as its work. The load average is told by [`CpuDriver::note_own_use`].
//!
//! Which figure decides is looked at anew for each reading, since quotas, CPU sets and groups change under a process
//! that runs. Measured processes are started in the rig's own group, or (v2) in one below it that has no quota: what
//! binds them is that group and its ancestors.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::LocalBoxFuture;
use sha2::{Digest, Sha256};

use thermite_core::contract::Target;
use thermite_core::limits;
use thermite_core::readiness::{self, Clocks, OwnShare, Reading, Signal, SignalState, ThrottleCounter, names};
use thermite_core::time::{Moment, Span};

use crate::ports::{DeviceFacts, DeviceFault, TargetDriver};

pub mod cgroups;
mod own_share;
pub mod proc_files;

use own_share::OwnShareFile;
use proc_files::CpuList;

/// Linux shows CPU time in hundredths of a second (`USER_HZ`) on every machine that Rust's standard library runs on.
const TICK_MS: f64 = 10.0;
/// The oldest sample that a reading is compared with: two looks apart.
const SAMPLE_AGE_MAX: Span = Span::millis(2 * limits::CPU_LOOK_EVERY.as_millis());
/// Samples kept; a block makes two.
const SAMPLES_MAX: usize = 256;

/// Reads the machine's clocks: the kernel's, or a test's.
pub type ReadClocks = Arc<dyn Fn() -> Clocks + Send + Sync>;
/// Asks the kernel itself for the host's one-minute load average, past what a container has in front of `/proc`.
pub type ReadLoad = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// This machine's CPUs as a device. Clones share one ledger of samples and own use.
#[derive(Clone)]
pub struct CpuDriver {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    clocks: ReadClocks,
    kernel_load: ReadLoad,
    facts: DeviceFacts,
    seen: Mutex<Seen>,
    /// Where the judge's own share outlives the rig; one writer at a time.
    kept: Mutex<Option<OwnShareFile>>,
}

/// What holds for this process at the moment of a reading.
struct Scope {
    /// The CPUs it may run on.
    allowed: CpuList,
    narrowed: Vec<Narrowed>,
    groups: Vec<cgroups::Group>,
    /// Whether `/proc/stat` is a container's view.
    stat_is_by_lxcfs: bool,
}

/// Why the host's load average is not the figure to go by (rule C2).
#[derive(Clone, Debug, PartialEq)]
enum Narrowed {
    /// The process may run on some of the host's CPUs only.
    CpuSet { cores: u32 },
    /// A quota gives it less than the CPUs it may run on.
    Quota { cores: f64 },
    /// lxcfs shows the load, of the container or of the host: it does not say which.
    Lxcfs { shown: Option<f64> },
}

/// What earlier readings saw.
#[derive(Default)]
struct Seen {
    samples: VecDeque<Sample>,
    own: OwnShare,
}

/// Counters at one moment.
#[derive(Clone, Debug)]
struct Sample {
    at_ms: u64,
    /// The CPUs that `busy_ms` is of.
    cpus: CpuList,
    busy_ms: Option<f64>,
    own_ms: Option<f64>,
    pressure_us: Option<u64>,
}

impl CpuDriver {
    /// The driver of the machine this process runs on.
    pub fn of_this_machine() -> CpuDriver {
        CpuDriver::with_load(PathBuf::from("/"), Arc::new(super::clock::clocks), Arc::new(kernel_load))
    }

    /// A driver that reads `proc`, `sys`, `etc` and the control groups below `root` and tells the time by `clocks`.
    pub fn below(root: PathBuf, clocks: ReadClocks) -> CpuDriver {
        CpuDriver::with_load(root, clocks, Arc::new(|| None))
    }

    /// The same, which asks `kernel_load` where `/proc/loadavg` is not the kernel's own.
    pub fn with_load(root: PathBuf, clocks: ReadClocks, kernel_load: ReadLoad) -> CpuDriver {
        let facts = facts(&root, &allowed(&root));
        let shared = Shared { root, clocks, kernel_load, facts, seen: Mutex::default(), kept: Mutex::default() };
        let driver = CpuDriver { shared: Arc::new(shared) };
        // The first reading then seldom has to wait.
        driver.shared.sample(&driver.shared.scope());
        driver
    }

    /// A driver with the kernel's clocks and all else read below `root`, which somebody else feeds: for tests, and for
    /// embedders that know the machine's load better than its `/proc` does. Its facts say so, and with them every
    /// record of what was measured under it.
    pub fn fed_from(root: &Path) -> CpuDriver {
        let mut driver = CpuDriver::below(root.to_owned(), Arc::new(super::clock::clocks));
        let shared = Arc::get_mut(&mut driver.shared).expect("nobody has a clone of a driver that was just made");
        shared.facts.driver.push_str(&format!(", fed from {}", root.display()));
        driver
    }

    /// Keeps the judge's own share in that file from here on, and takes over what an earlier rig of this boot left
    /// there: a rig that was killed and started again goes on taking off what its judge did before (rule C2).
    pub fn remember_own_use(&self, file: &Path) {
        let boot = read(&self.shared.root, "proc/sys/kernel/random/boot_id");
        let Some(kept) = OwnShareFile::new(file, &boot) else { return };
        let now = Moment::from_millis((self.shared.clocks)().boot_ms);
        if let Some(share) = kept.read(now) {
            tracing::info!(cores = share.value(now), "the judge's own share of the load is taken over");
            self.shared.seen().own = share;
        }
        *self.shared.kept() = Some(kept);
    }

    /// Notes CPU time in nanoseconds that the judge's own process groups took between two moments (rule C2).
    pub fn note_own_use(&self, cpu_ns: u64, from: Moment, to: Moment) {
        // A core's length of time has whole milliseconds: a use within one counts for the whole of it.
        let span = to.since(from).max(Span::millis(1));
        self.shared.seen().own.add(to, Span::millis(cpu_ns / 1_000_000), span);
        let shared = Arc::clone(&self.shared);
        // A slow disk must not hold up whoever tells.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || shared.keep_own_share())),
            Err(_) => shared.keep_own_share(),
        }
    }

    /// Takes one reading on the calling thread; waits up to [`limits::DIRECT_SAMPLE`] where no earlier sample serves.
    pub fn read_here(&self) -> Reading {
        self.shared.reading()
    }
}

impl TargetDriver for CpuDriver {
    fn facts(&self) -> DeviceFacts {
        self.shared.facts.clone()
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || shared.reading());
            match tokio::time::timeout(limits::CPU_READING_MAX.to_std(), reading).await {
                Ok(Ok(reading)) => Ok(reading),
                Ok(Err(error)) => Err(DeviceFault::Other(format!("reading the machine's CPUs failed: {error}"))),
                Err(_) => Err(DeviceFault::Hung(format!(
                    "reading the machine's CPUs took longer than {}",
                    limits::CPU_READING_MAX
                ))),
            }
        })
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no thread panics while it holds this lock: it only moves figures")
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<OwnShareFile>> {
        self.kept.lock().expect("no thread panics while it holds this lock: writing a file does not")
    }

    fn keep_own_share(&self) {
        let kept = self.kept();
        let Some(file) = &*kept else { return };
        // Read under the file's lock: the last writer has the newest.
        let own = self.seen().own;
        if let Err(error) = file.write(own) {
            tracing::debug!(%error, "the judge's own share of the load is not kept");
        }
    }

    /// Finds out what binds this process.
    fn scope(&self) -> Scope {
        let allowed = allowed(&self.root);
        let online = CpuList::read(&read(&self.root, "sys/devices/system/cpu/online"));
        let mounts = read(&self.root, "proc/self/mountinfo");
        let groups = cgroups::groups(&self.root, &read(&self.root, "proc/self/cgroup"), &mounts);
        let quota = groups.iter().filter_map(cgroups::Group::quota).min_by(f64::total_cmp);
        let mut narrowed = Vec::new();
        if let Some(cores) = quota.filter(|cores| *cores < f64::from(allowed.count())) {
            narrowed.push(Narrowed::Quota { cores });
        }
        if online.is_some_and(|online| allowed.count() < online.count()) {
            narrowed.push(Narrowed::CpuSet { cores: allowed.count() });
        }
        if proc_files::is_by_lxcfs(&mounts, "/proc/loadavg") {
            narrowed.push(Narrowed::Lxcfs { shown: proc_files::load1(&read(&self.root, "proc/loadavg")) });
        }
        let stat_is_by_lxcfs = proc_files::is_by_lxcfs(&mounts, "/proc/stat");
        Scope { allowed, narrowed, groups, stat_is_by_lxcfs }
    }

    /// Reads the counters and keeps them for later readings.
    fn sample(&self, scope: &Scope) -> Sample {
        let at_ms = (self.clocks)().boot_ms;
        let ticks = |ticks: u64| ticks as f64 * TICK_MS;
        let running = if scope.stat_is_by_lxcfs { read(&self.root, "proc/schedstat") } else { String::new() };
        // Where the kernel has no such file a container's view is all there is.
        let busy_ms = match proc_files::running_ns(&running, &scope.allowed) {
            Some(ns) => Some(ns as f64 / 1e6),
            None => proc_files::busy_ticks(&read(&self.root, "proc/stat"), &scope.allowed).map(ticks),
        };
        let sample = Sample {
            at_ms,
            cpus: scope.allowed.clone(),
            busy_ms,
            own_ms: proc_files::process_ticks(&read(&self.root, "proc/self/stat")).map(ticks),
            pressure_us: proc_files::pressure_us(&read(&self.root, "proc/pressure/cpu")),
        };
        let mut seen = self.seen();
        seen.samples.retain(|past| past.at_ms + SAMPLE_AGE_MAX.as_millis() >= at_ms && past.cpus == sample.cpus);
        if seen.samples.len() == SAMPLES_MAX {
            seen.samples.pop_front();
        }
        seen.samples.push_back(sample.clone());
        sample
    }

    /// The youngest sample that lies at least the length of a direct sample before `at_ms`.
    fn base(&self, at_ms: u64) -> Option<Sample> {
        let seen = self.seen();
        let old_enough = |past: &&Sample| past.at_ms + limits::DIRECT_SAMPLE.as_millis() <= at_ms;
        seen.samples.iter().rev().find(old_enough).cloned()
    }

    fn reading(&self) -> Reading {
        let scope = self.scope();
        let mut last = self.sample(&scope);
        let base = self.base(last.at_ms).unwrap_or_else(|| {
            let base = last.clone();
            std::thread::sleep(limits::DIRECT_SAMPLE.to_std());
            last = self.sample(&scope);
            base
        });
        let clocks = (self.clocks)();
        Reading {
            at: Moment::from_millis(clocks.boot_ms),
            signals: self.signals(&scope, &base, &last),
            throttle: throttle(&scope.groups),
            clocks,
        }
    }

    fn signals(&self, scope: &Scope, base: &Sample, last: &Sample) -> Vec<Signal> {
        let cores = scope.allowed.count();
        let own = self.seen().own.value(Moment::from_millis(last.at_ms));
        let by_lxcfs = scope.narrowed.iter().any(|narrowed| matches!(narrowed, Narrowed::Lxcfs { .. }));
        let load = if by_lxcfs { (self.kernel_load)() } else { proc_files::load1(&read(&self.root, "proc/loadavg")) };
        let pressure = match (base.pressure_us, last.pressure_us, last.at_ms.saturating_sub(base.at_ms)) {
            (Some(before), Some(after), ms) if ms > 0 => Some(after.saturating_sub(before) as f64 / (ms as f64 * 10.0)),
            _ => None,
        };
        let mut load1 = readiness::load1(load, own, cores);
        if !scope.narrowed.is_empty() {
            // It is about CPUs this process may not use: recorded, and the direct sample decides.
            load1 = recorded(names::LOAD1_OF_HOST, load1.value, "cores");
        }
        let mut signals = vec![
            load1,
            readiness::load1_own(own),
            readiness::direct_sample(other_use(base, last), cores),
            recorded("cpu_pressure", pressure, "%"),
        ];
        signals.extend(scope.narrowed.iter().map(|narrowed| match narrowed {
            Narrowed::Quota { cores } => recorded("quota", Some(*cores), "cores"),
            Narrowed::CpuSet { cores } => recorded("cpu_set", Some(f64::from(*cores)), "cores"),
            Narrowed::Lxcfs { shown } => recorded("load1_by_lxcfs", *shown, "cores"),
        }));
        signals
    }
}

/// The counters of all groups, and of the process's own what holds it back from above.
fn throttle(groups: &[cgroups::Group]) -> Vec<ThrottleCounter> {
    let own = groups.iter().find(|group| group.version == cgroups::Version::V2);
    let from_above = own.and_then(cgroups::Group::throttle_from_above);
    groups.iter().map(cgroups::Group::throttle).chain(from_above).collect()
}

/// How often quotas have held this process's groups back so far, for drivers of other devices (rule D3).
pub(crate) fn quota_counters(root: &Path) -> Vec<ThrottleCounter> {
    throttle(&cgroups::groups(root, &read(root, "proc/self/cgroup"), &read(root, "proc/self/mountinfo")))
}

/// The host's load average by sysinfo(2), which lxcfs does not stand in front of.
fn kernel_load() -> Option<f64> {
    Some(rustix::system::sysinfo().loads[0] as f64 / 65_536.0)
}

/// Cores that other programs kept busy between two samples: all but the rig and what it ran.
fn other_use(base: &Sample, last: &Sample) -> Option<f64> {
    let grown = |before: Option<f64>, after: Option<f64>| Some(after? - before?).filter(|grown| *grown >= 0.0);
    let busy = grown(base.busy_ms, last.busy_ms)?;
    let own = grown(base.own_ms, last.own_ms)?;
    let span_ms = last.at_ms.checked_sub(base.at_ms).filter(|ms| *ms > 0)?;
    Some((busy - own).max(0.0) / span_ms as f64)
}

/// The CPUs this process may run on.
pub(super) fn allowed(root: &Path) -> CpuList {
    let online = CpuList::read(&read(root, "sys/devices/system/cpu/online"));
    let allowed = read(root, "proc/self/status")
        .lines()
        .find_map(|line| CpuList::read(line.strip_prefix("Cpus_allowed_list:")?))
        .or_else(|| online.clone())
        .unwrap_or_else(|| CpuList([0].into()));
    match &online {
        Some(online) => CpuList(allowed.0.intersection(&online.0).copied().collect()),
        None => allowed,
    }
}

/// A signal that is recorded only.
fn recorded(name: &str, value: Option<f64>, unit: &str) -> Signal {
    let state = if value.is_some() { SignalState::Ok } else { SignalState::Unknown };
    Signal { name: name.to_owned(), value, limit: None, unit: unit.to_owned(), state, required: false }
}

/// The file's text, or nothing: what cannot be read is unknown to whoever asks for a figure.
fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn facts(root: &Path, allowed: &CpuList) -> DeviceFacts {
    let kernel = read(root, "proc/sys/kernel/osrelease");
    DeviceFacts {
        target: Target::Cpu,
        uuid: machine_name(root),
        model: proc_files::cpu_model(&read(root, "proc/cpuinfo")).unwrap_or_else(|| "unknown CPU".to_owned()),
        driver: format!("cpu, Linux {}", kernel.trim()),
        clock_policy: clock_policy(root, allowed),
        cpus: allowed.to_string(),
        cores: allowed.count(),
    }
}

/// A name of this machine that stays. machine-id(5) asks that the id itself be shown to nobody: its hash is.
fn machine_name(root: &Path) -> String {
    let id = ["etc/machine-id", "var/lib/dbus/machine-id", "proc/sys/kernel/random/boot_id"]
        .into_iter()
        .map(|path| read(root, path))
        .find(|id| !id.trim().is_empty());
    match id {
        Some(id) => format!("cpu-{}", &super::hex(&Sha256::digest(format!("thermite {}", id.trim())))[..32]),
        None => "cpu-unknown".to_owned(),
    }
}

/// How the CPUs' clocks are set: `governor performance`, several where they differ, `governor unknown`.
fn clock_policy(root: &Path, cpus: &CpuList) -> String {
    let governors: std::collections::BTreeSet<String> = cpus
        .0
        .iter()
        .map(|cpu| read(root, &format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")))
        .map(|text| text.trim().to_owned())
        .map(|name| if name.is_empty() { "unknown".to_owned() } else { name })
        .collect();
    format!("governor {}", governors.into_iter().collect::<Vec<_>>().join(" and "))
}
