//! The CPU driver: this machine's CPUs as a device, and whether they are quiet enough to time on (rules C2, D1-D3).
//!
//! A reading holds the load average and a direct sample of what other programs use, both with the judge's own use
//! taken off, besides throttle counters and clocks. All files are read below a root, so that tests can give readings.
//!
//! The direct sample does not make a reading slow: it covers the time since an earlier reading where that lies
//! [`limits::DIRECT_SAMPLE`] or more back, and only otherwise waits. What the rig itself and all that it ran and has
//! reaped used in between is taken off: readings are taken while none of the judge's runs is under way, so a run's CPU
//! time falls into the same sample as its work. The load average is told by [`CpuDriver::note_own_use`].

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::LocalBoxFuture;
use sha2::{Digest, Sha256};

use thermite_core::contract::Target;
use thermite_core::limits;
use thermite_core::readiness::{self, Clocks, OwnShare, Reading, Signal, SignalState};
use thermite_core::time::{Moment, Span};

use crate::ports::{DeviceFacts, DeviceFault, TargetDriver};

pub mod cgroups;
pub mod proc_files;

use proc_files::CpuList;

/// Linux shows CPU time in hundredths of a second (`USER_HZ`) on every machine that Rust's standard library runs on.
const TICK_MS: f64 = 10.0;
/// The oldest sample that a reading is compared with: two looks apart.
const SAMPLE_AGE_MAX: Span = Span::millis(2 * limits::CPU_LOOK_EVERY.as_millis());
/// Samples kept; a block makes two.
const SAMPLES_MAX: usize = 256;

/// Reads the machine's clocks: the kernel's, or a test's.
pub type ReadClocks = Arc<dyn Fn() -> Clocks + Send + Sync>;

/// This machine's CPUs as a device. Clones share one ledger of samples and own use.
#[derive(Clone)]
pub struct CpuDriver {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    clocks: ReadClocks,
    facts: DeviceFacts,
    /// The CPUs this process may run on.
    allowed: CpuList,
    /// Whether the host's load average says nothing of what this process may use.
    narrowed: Option<Narrowed>,
    groups: Vec<cgroups::Group>,
    seen: Mutex<Seen>,
}

/// Why the host's load average is not the figure to go by (rule C2).
#[derive(Clone, Debug, PartialEq)]
enum Narrowed {
    /// The process may run on some of the host's CPUs only.
    CpuSet,
    /// A quota gives it less than the CPUs it may run on.
    Quota { cores: f64 },
}

/// What earlier readings saw.
#[derive(Default)]
struct Seen {
    samples: VecDeque<Sample>,
    own: OwnShare,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    busy_ticks: Option<u64>,
    own_ticks: Option<u64>,
    pressure_us: Option<u64>,
}

impl CpuDriver {
    /// The driver of the machine this process runs on.
    pub fn of_this_machine() -> CpuDriver {
        CpuDriver::below(PathBuf::from("/"), Arc::new(super::clock::clocks))
    }

    /// A driver that reads `proc`, `sys`, `etc` and the control groups below `root` and tells the time by `clocks`.
    pub fn below(root: PathBuf, clocks: ReadClocks) -> CpuDriver {
        let read = |path: &str| read(&root, path);
        let online = CpuList::read(&read("sys/devices/system/cpu/online"));
        let allowed = read("proc/self/status")
            .lines()
            .find_map(|line| CpuList::read(line.strip_prefix("Cpus_allowed_list:")?))
            .or_else(|| online.clone())
            .unwrap_or_else(|| CpuList([0].into()));
        let allowed = match &online {
            Some(online) => CpuList(allowed.0.intersection(&online.0).copied().collect()),
            None => allowed,
        };
        let groups = cgroups::groups(&root, &read("proc/self/cgroup"), &read("proc/self/mountinfo"));
        let quota = groups.iter().filter_map(cgroups::Group::quota).min_by(f64::total_cmp);
        let narrowed = match quota {
            Some(cores) if cores < f64::from(allowed.count()) => Some(Narrowed::Quota { cores }),
            _ if online.is_some_and(|online| allowed.count() < online.count()) => Some(Narrowed::CpuSet),
            _ => None,
        };
        let facts = facts(&root, &allowed, narrowed.as_ref());
        let driver = CpuDriver {
            shared: Arc::new(Shared {
                root,
                clocks,
                facts,
                allowed,
                narrowed,
                groups,
                seen: Mutex::new(Seen::default()),
            }),
        };
        // The first reading then seldom has to wait.
        driver.shared.sample();
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

    /// Notes CPU time in nanoseconds that the judge's own process groups took between two moments (rule C2).
    pub fn note_own_use(&self, cpu_ns: u64, from: Moment, to: Moment) {
        // A core's length of time has whole milliseconds: a use within one counts for the whole of it.
        let span = to.since(from).max(Span::millis(1));
        self.shared.seen().own.add(to, Span::millis(cpu_ns / 1_000_000), span);
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
                Ok(Err(error)) => Err(DeviceFault(format!("reading the machine's CPUs failed: {error}"))),
                Err(_) => {
                    Err(DeviceFault(format!("reading the machine's CPUs took longer than {}", limits::CPU_READING_MAX)))
                }
            }
        })
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no thread panics while it holds this lock: it only moves figures")
    }

    /// Reads the counters and keeps them for later readings.
    fn sample(&self) -> Sample {
        let at_ms = (self.clocks)().boot_ms;
        let sample = Sample {
            at_ms,
            busy_ticks: proc_files::busy_ticks(&read(&self.root, "proc/stat"), &self.allowed),
            own_ticks: proc_files::process_ticks(&read(&self.root, "proc/self/stat")),
            pressure_us: proc_files::pressure_us(&read(&self.root, "proc/pressure/cpu")),
        };
        let mut seen = self.seen();
        seen.samples.retain(|past| past.at_ms + SAMPLE_AGE_MAX.as_millis() >= at_ms);
        if seen.samples.len() == SAMPLES_MAX {
            seen.samples.pop_front();
        }
        seen.samples.push_back(sample);
        sample
    }

    /// The youngest sample that lies at least the length of a direct sample before `at_ms`.
    fn base(&self, at_ms: u64) -> Option<Sample> {
        let seen = self.seen();
        let old_enough = |past: &&Sample| past.at_ms + limits::DIRECT_SAMPLE.as_millis() <= at_ms;
        seen.samples.iter().rev().find(old_enough).copied()
    }

    fn reading(&self) -> Reading {
        let mut last = self.sample();
        let base = self.base(last.at_ms).unwrap_or_else(|| {
            let base = last;
            std::thread::sleep(limits::DIRECT_SAMPLE.to_std());
            last = self.sample();
            base
        });
        let clocks = (self.clocks)();
        Reading {
            at: Moment::from_millis(clocks.boot_ms),
            signals: self.signals(&base, &last),
            throttle: self.groups.iter().map(cgroups::Group::throttle).collect(),
            clocks,
        }
    }

    fn signals(&self, base: &Sample, last: &Sample) -> Vec<Signal> {
        let cores = self.allowed.count();
        let load = proc_files::load1(&read(&self.root, "proc/loadavg"));
        let own = self.seen().own.value(Moment::from_millis(last.at_ms));
        let pressure = match (base.pressure_us, last.pressure_us, last.at_ms.saturating_sub(base.at_ms)) {
            (Some(before), Some(after), ms) if ms > 0 => Some(after.saturating_sub(before) as f64 / (ms as f64 * 10.0)),
            _ => None,
        };
        let mut load1 = readiness::load1(load, own, cores);
        if self.narrowed.is_some() {
            // It is about CPUs this process may not use: recorded, and the direct sample decides.
            load1 = recorded(LOAD1_OF_HOST, load1.value, "cores");
        }
        let mut signals = vec![
            load1,
            readiness::load1_own(own),
            readiness::direct_sample(other_use(base, last), cores),
            recorded("cpu_pressure", pressure, "%"),
        ];
        if let Some(Narrowed::Quota { cores }) = self.narrowed {
            signals.push(recorded("quota", Some(cores), "cores"));
        }
        signals
    }
}

/// The load average's name where it is not the figure to go by.
const LOAD1_OF_HOST: &str = "load1_of_host";

/// Cores that other programs kept busy between two samples: all but the rig and what it ran.
fn other_use(base: &Sample, last: &Sample) -> Option<f64> {
    let busy = last.busy_ticks?.checked_sub(base.busy_ticks?)?;
    let own = last.own_ticks?.checked_sub(base.own_ticks?)?;
    let span_ms = last.at_ms.checked_sub(base.at_ms).filter(|ms| *ms > 0)?;
    Some(busy.saturating_sub(own) as f64 * TICK_MS / span_ms as f64)
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

fn facts(root: &Path, allowed: &CpuList, narrowed: Option<&Narrowed>) -> DeviceFacts {
    let kernel = read(root, "proc/sys/kernel/osrelease");
    let figure = match narrowed {
        None => "the host's load".to_owned(),
        Some(Narrowed::CpuSet) => format!("other programs' use of CPUs {allowed}, not the host's load"),
        Some(Narrowed::Quota { cores }) => {
            format!("other programs' use under a quota of {cores:.2} cores, not the host's load")
        }
    };
    DeviceFacts {
        target: Target::Cpu,
        uuid: machine_name(root),
        model: proc_files::cpu_model(&read(root, "proc/cpuinfo")).unwrap_or_else(|| "unknown CPU".to_owned()),
        driver: format!("cpu, Linux {}, by {figure}", kernel.trim()),
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
