//! Finds out what this machine can do, by doing it: throwaway runs, a look at each figure, a start of each tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::host::cards::{CardAt, CardPlaces};
use crate::host::clock;
use crate::host::cpu::{cgroups, proc_files};
use crate::host::launch::{
    CardWay, Cards, Containment, CpuHold, Identity, Isolation, Launcher, LauncherSettings, Layer, Wanted,
    toolchain_mounts,
};

use super::{Abilities, CardFacts, CgroupFacts, DiskFacts, LoadFacts, LockFacts, card_driver, has};

/// How long a tool may take to tell its version.
const TOOL_MAX: Duration = Duration::from_secs(10);
/// The compilers that are looked for.
const COMPILERS: [&str; 2] = ["rustc", "cc"];

/// What a look is told.
#[derive(Clone, Debug)]
pub struct Look {
    /// A folder for throwaway runs, which the caller makes and removes.
    pub scratch: PathBuf,
    /// The program that becomes a launcher (see [`LauncherSettings::program`]).
    pub program: PathBuf,
    /// What the rig's settings say of containment.
    pub wanted: Wanted,
    /// A uid that no run has, where runs have uids of their own.
    pub trial_uid: Option<u32>,
    /// Who a run would be.
    pub identity: Identity,
    /// What the shell found out about the data folder.
    pub disk: DiskFacts,
    /// What the shell found out about the device's lock.
    pub device_lock: LockFacts,
    /// The file of the cards' driver (NVML); none: as the system finds it.
    pub card_library: Option<PathBuf>,
    /// Where the machine's cards are.
    pub card_places: CardPlaces,
    /// The cards that a rig would have by its settings, in its order, or why it would not be served; none where its
    /// devices are no cards.
    pub rig_cards: Option<Result<Vec<CardAt>, String>>,
}

/// Looks at this machine. Waits for throwaway runs and tools, each with a limit.
pub async fn look(look: Look) -> Abilities {
    let containment = open(&look, look.wanted).await.unwrap_or_else(|why| nothing(look.wanted, why));
    let mut layers = Vec::new();
    for isolation in [Isolation::Namespaces, Isolation::OwnUid, Isolation::Children] {
        let tried = open(&look, Wanted { isolation: Some(isolation), cgroup: false }).await;
        layers.push((isolation, tried.and_then(|found| in_force(&found, isolation.into()))));
    }
    let with_cgroup = open(&look, Wanted { isolation: containment.isolation(), cgroup: true }).await;
    let cgroup = cgroup_facts(with_cgroup.and_then(|found| in_force(&found, Layer::Cgroup)));
    let (card_driver, places) = card_driver::look(look.card_library.clone()).await;
    let places = match &look.rig_cards {
        Some(Ok(cards)) => cards,
        Some(Err(_)) | None => &places,
    };
    let cards = card_facts(&look, places).await;
    let mut toolchain = Vec::new();
    for name in COMPILERS {
        toolchain.push((name.to_owned(), version(name).await));
    }
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let text = |path: &str| read(path).unwrap_or_default();
    let groups = cgroups::groups(Path::new("/"), &text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    Abilities {
        is_root: rustix::process::geteuid().is_root(),
        containment,
        layers,
        cgroup,
        clocks: clocks(),
        quota: groups.iter().map(cgroups::Group::throttle).collect(),
        load: LoadFacts {
            load1: read("/proc/loadavg")
                .and_then(|text| proc_files::load1(&text).ok_or("/proc/loadavg has no figure".to_owned())),
            has_pressure: proc_files::pressure_us(&text("/proc/pressure/cpu")).is_some(),
        },
        git: version("git").await,
        toolchain,
        closed_tools: toolchain_mounts(look.identity, |name| std::env::var(name).ok()).hidden,
        disk: look.disk,
        device_lock: look.device_lock,
        card_driver,
        rig_cards: look.rig_cards.map(|cards| cards.map(drop)),
        cards,
    }
}

/// What can be done for runs on cards, by a launcher as the rig's would be.
async fn card_facts(look: &Look, cards: &[CardAt]) -> CardFacts {
    let (ways, hold) = match launcher(look, look.wanted).await {
        Ok(launcher) => (launcher.card_ways().await.to_vec(), launcher.cpu_hold().clone()),
        Err(why) => (CardWay::ALL.map(|way| (way, Err(why.clone()))).into(), CpuHold::Affinity { why }),
    };
    CardFacts { nodes: look.card_places.all_nodes(), ways, hold, cut: look.card_places.cut(cards) }
}

async fn open(look: &Look, wanted: Wanted) -> Result<Containment, String> {
    Ok(launcher(look, wanted).await?.containment().clone())
}

async fn launcher(look: &Look, wanted: Wanted) -> Result<Launcher, String> {
    let settings = LauncherSettings {
        rig: format!("doctor-{}", std::process::id()),
        state: look.scratch.clone(),
        hidden: Vec::new(),
        program: look.program.clone(),
        wanted,
        trial_uid: look.trial_uid,
        cards: Cards::default(),
    };
    Launcher::open(settings).await.map_err(|fault| fault.to_string())
}

/// What there is where no launcher can be opened at all.
fn nothing(wanted: Wanted, why: String) -> Containment {
    let layer = wanted.isolation.unwrap_or(Isolation::Namespaces).into();
    let missing = crate::host::launch::Missing { layer, why, leaves_open: "nothing is launched here".to_owned() };
    Containment { layers: Vec::new(), missing: vec![missing], open: Vec::new() }
}

fn in_force(found: &Containment, layer: Layer) -> Result<(), String> {
    if has(found, layer) {
        return Ok(());
    }
    let why = found.missing.iter().find(|missing| missing.layer == layer).map(|missing| missing.why.clone());
    Err(why.unwrap_or_else(|| "nothing could be launched to try it with".to_owned()))
}

fn cgroup_facts(v2_writable: Result<(), String>) -> CgroupFacts {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut facts = CgroupFacts { v2: None, v1: Vec::new(), v2_writable };
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut kind = right.split(' ');
        match kind.next() {
            Some("cgroup2") => facts.v2 = facts.v2.or_else(|| left.split(' ').nth(4).map(PathBuf::from)),
            Some("cgroup") => {
                let options = kind.nth(1).unwrap_or_default().split(',');
                facts.v1.extend(options.filter(|option| *option != "rw" && *option != "ro").map(str::to_owned));
            }
            _ => {}
        }
    }
    facts.v1.retain(|controller| !controller.contains('='));
    facts
}

/// Reads the clocks and sees that the one that counts suspend goes on.
fn clocks() -> Result<String, String> {
    let first = clock::clocks();
    if first.boot_ms == 0 {
        return Err("CLOCK_BOOTTIME says 0".to_owned());
    }
    std::thread::sleep(Duration::from_millis(5));
    let second = clock::clocks();
    if second.boot_ms <= first.boot_ms {
        return Err(format!("CLOCK_BOOTTIME stood still at {} ms", first.boot_ms));
    }
    let asleep = second.boot_ms.saturating_sub(second.monotonic_ms) / 1_000;
    Ok(format!("CLOCK_BOOTTIME goes on; the machine slept {asleep} s since its start"))
}

/// The first line that a tool says of its version.
async fn version(tool: &str) -> Result<String, String> {
    let asked = tokio::process::Command::new(tool)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(TOOL_MAX, asked).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{tool} cannot be started: {error}")),
        Err(_) => return Err(format!("{tool} --version took longer than {} s", TOOL_MAX.as_secs())),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) if output.status.success() => Ok(line.to_owned()),
        _ => Err(format!("{tool} --version ended with {}", output.status)),
    }
}
