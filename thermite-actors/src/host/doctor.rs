//! What this machine can do for a rig, one ability after the other: found out by doing, judged here, shown by shells.
//!
//! [`Abilities`] are what was found, as plain values, so that tests can feed those of any machine; [`findings`] says of
//! each whether it is there, what is missing, what that leaves open, and how to get it. `look` finds them out.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use thermite_core::cpus::CpuCut;
use thermite_core::limits;
use thermite_core::readiness::ThrottleCounter;

use super::launch::{CardWay, Containment, CpuHold, Isolation, Layer};

mod card_driver;
mod cards;
mod look;

pub use card_driver::{CardDriverFacts, CardSaid};
pub use look::{Look, look};

/// What a rig needs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// What is in force under every run.
    Containment,
    /// Namespaces of a run's own.
    Namespaces,
    /// A cgroup for each run.
    Cgroup,
    /// Uids for runs that nothing else has.
    Uids,
    /// A clock that counts suspend too.
    Clocks,
    /// How often a CPU quota held the judge back.
    Quota,
    /// How busy the machine is.
    Load,
    /// Git, for changes and champions.
    Git,
    /// Compilers that kits need.
    Toolchain,
    /// Room for the records, and a disk that keeps what it was given.
    Disk,
    /// The lock that keeps two rigs from one device.
    DeviceLock,
    /// The cards' driver, and what each card tells of itself.
    CardReadings,
    /// What keeps a run to the card it is granted.
    Cards,
    /// CPUs near each card, and what keeps a run to them.
    CardCpus,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ability::Containment => "containment",
            Ability::Namespaces => "namespaces",
            Ability::Cgroup => "cgroup",
            Ability::Uids => "uids",
            Ability::Clocks => "clocks",
            Ability::Quota => "quota figures",
            Ability::Load => "load figure",
            Ability::Git => "git",
            Ability::Toolchain => "toolchain",
            Ability::Disk => "disk",
            Ability::DeviceLock => "device lock",
            Ability::CardReadings => "card readings",
            Ability::Cards => "card isolation",
            Ability::CardCpus => "card CPUs",
        })
    }
}

/// How an ability stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is there.
    Ok,
    /// It is there in part: a rig serves, and something stays open.
    Degraded,
    /// It is not there.
    Missing,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Standing::Ok => "ok",
            Standing::Degraded => "degraded",
            Standing::Missing => "missing",
        })
    }
}

/// One ability, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub ability: Ability,
    /// How it stands.
    pub standing: Standing,
    /// Whether a rig cannot serve without it.
    pub is_needed: bool,
    /// What was found.
    pub found: String,
    /// What is missing, where something is.
    pub missing: Option<String>,
    /// What that leaves open.
    pub leaves_open: Vec<String>,
    /// How to get it.
    pub to_get_it: Option<String>,
}

/// What was found on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Abilities {
    /// Whether whoever asked is root.
    pub is_root: bool,
    /// What a rig of this user would have, by its settings.
    pub containment: Containment,
    /// Each layer tried on its own: whether a throwaway run went from launch to proof, else why not.
    pub layers: Vec<(Isolation, Result<(), String>)>,
    /// The cgroup trees.
    pub cgroup: CgroupFacts,
    /// What the clocks said: why they are of no use, where they are not.
    pub clocks: Result<String, String>,
    /// The throttle counters of the own group and its ancestors, own first.
    pub quota: Vec<ThrottleCounter>,
    /// The load average, and whether there are pressure figures.
    pub load: LoadFacts,
    /// Git's version, or why it cannot be run.
    pub git: Result<String, String>,
    /// Compilers by name, with version or why they cannot be run.
    pub toolchain: Vec<(String, Result<String, String>)>,
    /// Folders with tools that a run of another user cannot enter.
    pub closed_tools: Vec<PathBuf>,
    /// The data folder's disk.
    pub disk: DiskFacts,
    /// The lock of this machine's device.
    pub device_lock: LockFacts,
    /// What the cards' driver said.
    pub card_driver: CardDriverFacts,
    /// Whether a rig would have its cards by its settings, else why not; none where its devices are no cards.
    pub rig_cards: Option<Result<(), String>>,
    /// The machine's cards, and what can be done for runs on them.
    pub cards: CardFacts,
}

/// The cgroup trees of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFacts {
    /// Where version 2 is mounted.
    pub v2: Option<PathBuf>,
    /// Controllers that are mounted as version 1.
    pub v1: Vec<String>,
    /// Whether a group could be made, entered and removed in version 2: why not, where it could not.
    pub v2_writable: Result<(), String>,
}

/// How busy a machine says it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// The one-minute load average, or why it cannot be read.
    pub load1: Result<f64, String>,
    /// Whether there is `/proc/pressure/cpu`.
    pub has_pressure: bool,
}

/// The disk that a data folder is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The data folder.
    pub folder: PathBuf,
    /// Bytes that the rig's user may still write there; why that is not known, where it is not.
    pub free: Result<u64, String>,
    /// Whether a database was written, synced and read back there, else why not.
    pub keeps: Result<(), String>,
}

/// What can be done for runs on cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFacts {
    /// The nodes by which cards can be reached; none on a machine without.
    pub nodes: Vec<PathBuf>,
    /// The ways to keep a run to its card, the best first, and why those that do not work do not.
    pub ways: Vec<(CardWay, Result<(), String>)>,
    /// What keeps a run to its CPUs.
    pub hold: CpuHold,
    /// The CPUs of each card: of the rig's, where its devices are cards, else of the machine's.
    pub cut: CpuCut,
}

/// The lock of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockFacts {
    /// Nobody has it.
    Free {
        /// The lock's file.
        file: PathBuf,
    },
    /// A rig has it.
    Held {
        /// The sentence that says who.
        by: String,
    },
    /// It cannot be had.
    Fault {
        /// The sentence that says why.
        why: String,
    },
}

/// Whether a rig can serve: nothing that is needed is missing.
pub fn is_fit(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.is_needed && finding.standing == Standing::Missing)
}

/// Judges what was found, one line for each ability, in a fixed order.
pub fn findings(found: &Abilities) -> Vec<Finding> {
    vec![
        containment(found),
        namespaces(found),
        cgroup(found),
        uids(found),
        clocks(found),
        quota(found),
        load(found),
        git(found),
        toolchain(found),
        disk(found),
        device_lock(found),
        card_driver::readings(found),
        cards::isolation(found),
        cards::cpus(found),
    ]
}

/// An ability that is there.
fn ok(ability: Ability, found: impl Into<String>) -> Finding {
    Finding {
        ability,
        standing: Standing::Ok,
        is_needed: !matches!(
            ability,
            Ability::Namespaces
                | Ability::Cgroup
                | Ability::Uids
                | Ability::Quota
                | Ability::Toolchain
                | Ability::CardReadings
                | Ability::Cards
                | Ability::CardCpus
        ),
        found: found.into(),
        missing: None,
        leaves_open: Vec::new(),
        to_get_it: None,
    }
}

impl Finding {
    fn but(self, standing: Standing, missing: impl Into<String>) -> Finding {
        Finding { standing, missing: Some(missing.into()), ..self }
    }

    fn open(mut self, what: impl Into<String>) -> Finding {
        self.leaves_open.push(what.into());
        self
    }

    fn get_by(self, how: impl Into<String>) -> Finding {
        Finding { to_get_it: Some(how.into()), ..self }
    }
}

impl Abilities {
    fn layer(&self, layer: Isolation) -> Result<(), &str> {
        let found = self.layers.iter().find(|(known, _)| *known == layer);
        found.map_or(Err("it was not tried"), |(_, result)| result.as_ref().copied().map_err(String::as_str))
    }
}

fn containment(found: &Abilities) -> Finding {
    let containment = &found.containment;
    let line = ok(Ability::Containment, containment.to_string());
    let mut line = match containment.isolation() {
        Some(Isolation::Namespaces) => line,
        Some(Isolation::OwnUid) => {
            line.but(Standing::Degraded, "a view of its own for each run").get_by("see namespaces")
        }
        Some(Isolation::Children) => line
            .but(Standing::Degraded, "a view of its own for each run, and an end that no run can hinder")
            .get_by("see namespaces; or serve as root"),
        None => line
            .but(Standing::Missing, containment.missing_in_words())
            .open("nothing is launched here, and no rig is served")
            .get_by("see namespaces and uids"),
    };
    line.leaves_open.extend(containment.open.iter().cloned());
    line
}

fn namespaces(found: &Abilities) -> Finding {
    match found.layer(Isolation::Namespaces) {
        Ok(()) => ok(Ability::Namespaces, "a throwaway run in its own pid, mount and ipc namespaces ended with them"),
        Err(why) => ok(Ability::Namespaces, "none for a run")
            .but(Standing::Degraded, why)
            .open(
                "a run sees the machine as its user does, and its end is the work of a guard, not of the kernel alone",
            )
            .get_by(if found.is_root {
                "give the rig CAP_SYS_ADMIN (docker: --cap-add SYS_ADMIN with a seccomp profile that allows clone3, \
                 unshare and mount)"
            } else {
                "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and \
                 kernel.apparmor_restrict_unprivileged_userns), or serve as root"
            }),
    }
}

fn cgroup(found: &Abilities) -> Finding {
    let facts = &found.cgroup;
    let v1 = facts.v1.join(", ");
    let kind = match (&facts.v2, facts.v1.is_empty()) {
        (Some(at), true) => format!("version 2 at {}", at.display()),
        (Some(at), false) => format!("hybrid: version 2 at {} beside version 1 ({v1})", at.display()),
        (None, false) => format!("version 1 ({v1})"),
        (None, true) => "no tree is mounted".to_owned(),
    };
    let open = "a run's init or guard alone proves its end, and CPU time counts only what was reaped";
    match &facts.v2_writable {
        Ok(()) => ok(Ability::Cgroup, format!("{kind}; a group was made for a throwaway run and removed")),
        Err(why) => {
            ok(Ability::Cgroup, kind).but(Standing::Degraded, why).open(open).get_by(match (&facts.v2, found.is_root) {
                (None, _) => "mount cgroup2 (a hybrid mount without controllers is enough)",
                (Some(_), true) => {
                    "mount the tree read-write for the rig (docker: --cgroupns=private and a writable /sys/fs/cgroup)"
                }
                (Some(_), false) => {
                    "start the rig in a delegated group (systemd-run --user --scope -p Delegate=yes thermite serve)"
                }
            })
        }
    }
}

fn uids(found: &Abilities) -> Finding {
    if !found.is_root {
        return ok(Ability::Uids, "the rig is not root, so runs are its own user's")
            .but(Standing::Degraded, "a uid for each lane and one for the judge")
            .open("runs of all lanes and of the judge are one user to the machine")
            .get_by("serve as root");
    }
    let tried = [Isolation::Namespaces, Isolation::OwnUid, Isolation::Children];
    if tried.into_iter().any(|layer| found.layer(layer).is_ok()) {
        return ok(Ability::Uids, "a throwaway run had a uid of its own");
    }
    let why = found.layer(Isolation::OwnUid).err().unwrap_or("it was not tried");
    ok(Ability::Uids, "no run can have a uid of its own")
        .but(Standing::Missing, why)
        .open("nothing is launched as root, so no rig is served")
        .get_by("give the rig CAP_SETUID, CAP_SETGID, CAP_KILL and CAP_SETPCAP and a range of uids, or serve as an ordinary user")
}

fn clocks(found: &Abilities) -> Finding {
    match &found.clocks {
        Ok(said) => ok(Ability::Clocks, said.clone()),
        Err(why) => ok(Ability::Clocks, "no clock counts suspend")
            .but(Standing::Missing, why.clone())
            .open("limits and waits cannot be kept")
            .get_by("a kernel with CLOCK_BOOTTIME (2.6.39)"),
    }
}

fn quota(found: &Abilities) -> Finding {
    let is_known = |counter: &&ThrottleCounter| counter.periods.is_some();
    let names = |counters: &[&ThrottleCounter]| {
        counters.iter().map(|counter| counter.group.clone()).collect::<Vec<_>>().join(", ")
    };
    let (known, unknown): (Vec<&ThrottleCounter>, Vec<&ThrottleCounter>) = found.quota.iter().partition(is_known);
    let line = ok(
        Ability::Quota,
        match known.len() {
            0 => "no counter can be read".to_owned(),
            _ => format!("counters of {}", names(&known)),
        },
    );
    let open = "whether a block was held back there is unknown, and its record says so";
    if known.is_empty() {
        let missing = "nr_throttled in cpu.stat of the own group and its ancestors";
        return line
            .but(Standing::Degraded, missing)
            .open(open)
            .get_by("mount the cpu controller (version 1 or 2) where the rig can read it; where there is no quota, nothing is lost");
    }
    if unknown.is_empty() {
        return line;
    }
    let no_figures = names(&unknown);
    // The root of a tree never has a quota; a hybrid's version 2 tree has no cpu controller: the version 1 tells.
    let is_told_by_v1 = known.iter().any(|counter| counter.group.starts_with("cpu:"));
    if is_told_by_v1 || unknown.iter().all(|counter| counter.group == "/") {
        return Finding { found: format!("{}; {no_figures} has no cpu controller", line.found), ..line };
    }
    line.but(Standing::Degraded, format!("nr_throttled of {no_figures}"))
        .open(open)
        .get_by("enable the cpu controller there")
}

fn load(found: &Abilities) -> Finding {
    match &found.load.load1 {
        Ok(load1) => {
            let pressure = if found.load.has_pressure {
                "pressure figures too"
            } else {
                "no pressure figures (psi=1), which are only recorded"
            };
            ok(Ability::Load, format!("load average {load1:.2}; {pressure}"))
        }
        Err(why) => ok(Ability::Load, "no load average")
            .but(Standing::Missing, why.clone())
            .open("the judge cannot tell a quiet machine from a busy one")
            .get_by("mount /proc where the rig can read it"),
    }
}

fn git(found: &Abilities) -> Finding {
    match &found.git {
        Ok(version) => ok(Ability::Git, version.clone()),
        Err(why) => ok(Ability::Git, "no git")
            .but(Standing::Missing, why.clone())
            .open("no run can be started: changes and champions are git's")
            .get_by("install git and have it in PATH"),
    }
}

fn toolchain(found: &Abilities) -> Finding {
    let there: Vec<&str> = found.toolchain.iter().filter_map(|(_, found)| found.as_deref().ok()).collect();
    let absent: Vec<&str> =
        found.toolchain.iter().filter(|(_, found)| found.is_err()).map(|(name, _)| name.as_str()).collect();
    let line = ok(Ability::Toolchain, if there.is_empty() { "none".to_owned() } else { there.join(", ") });
    let line = if absent.is_empty() {
        line
    } else {
        line.but(if there.is_empty() { Standing::Missing } else { Standing::Degraded }, absent.join(", "))
            .open("kits that are built by it cannot be measured here; `thermite try` needs rustc")
            .get_by("install it and have it in PATH")
    };
    if found.closed_tools.is_empty() || found.containment.has_own_view() || there.is_empty() {
        return line;
    }
    let closed: Vec<String> = found.closed_tools.iter().map(|place| place.display().to_string()).collect();
    let missing = [line.missing.clone(), Some(format!("a way for runs' users into {}", closed.join(", ")))];
    let missing = missing.into_iter().flatten().collect::<Vec<_>>().join("; ");
    line.but(Standing::Degraded, missing)
        .open("without a view of its own a run cannot be shown tools that only root can reach")
        .get_by("install the tools where all users can reach them, such as /usr/local")
}

fn disk(found: &Abilities) -> Finding {
    let (facts, folder) = (&found.disk, found.disk.folder.display());
    let free = match &facts.free {
        Ok(bytes) => format!("{} MiB free", bytes / (1024 * 1024)),
        Err(why) => format!("free space unknown ({why})"),
    };
    let line = ok(Ability::Disk, format!("{folder}: {free}"));
    if let Err(why) = &facts.keeps {
        return line
            .but(Standing::Missing, why.clone())
            .open("nothing could be made durable, so no rig is served")
            .get_by("name a folder on a writable local disk by --data or THERMITE_DATA");
    }
    let line = Finding { found: format!("{}; a database was written, synced and read back", line.found), ..line };
    if facts.free.as_ref().is_ok_and(|free| *free < limits::DISK_FREE_LEAST) {
        let least = limits::DISK_FREE_LEAST / (1024 * 1024);
        return line
            .but(Standing::Degraded, format!("{least} MiB of room"))
            .open("records and outputs may not fit; what cannot be recorded is not accepted")
            .get_by("make room there, or name another folder by --data or THERMITE_DATA");
    }
    line
}

fn device_lock(found: &Abilities) -> Finding {
    match &found.device_lock {
        LockFacts::Free { file } => ok(Ability::DeviceLock, format!("free ({})", file.display())),
        LockFacts::Held { by } => ok(Ability::DeviceLock, format!("taken: {by}")),
        LockFacts::Fault { why } => ok(Ability::DeviceLock, "cannot be had")
            .but(Standing::Missing, why.clone())
            .open("two rigs could measure on one device at once, so no rig is served")
            .get_by("name a folder that all rigs of the machine share by THERMITE_DEVICE_LOCKS"),
    }
}

/// Whether a launcher found a layer in force.
fn has(containment: &Containment, layer: Layer) -> bool {
    containment.layers.contains(&layer)
}
