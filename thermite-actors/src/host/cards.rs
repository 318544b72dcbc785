//! Where this machine's cards are: their device nodes, and the CPUs near them (rules B3, B4).
//!
//! Read from `/dev`, `/proc` and `/sys` below a root that tests can set. What a card is and does is its driver's to
//! tell; how runs are kept to nodes and CPUs is `launch`'s.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thermite_core::cpus::{CpuCut, CpuList, cut};

use super::cpu;
use super::gpu::CardFacts;

/// The nodes that are of no card and that programs of cards need: control, unified memory, and its tools.
const COMPANIONS: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
/// NVIDIA's number as a PCI vendor.
const VENDOR: &str = "0x10de";

/// A card as far as CPUs near it are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardAt {
    /// Its place on the PCI bus, as NVML or sysfs write it.
    pub bus_id: String,
    /// The CPUs near it, where its driver told; sysfs is asked else.
    pub near: Option<CpuList>,
}

impl From<&CardFacts> for CardAt {
    fn from(card: &CardFacts) -> CardAt {
        CardAt {
            bus_id: card.pci_bus_id.clone().unwrap_or_default(),
            near: card.cpus.as_deref().and_then(CpuList::read).filter(|near| !near.is_empty()),
        }
    }
}

/// The part of the machine that cards are found in.
#[derive(Clone, Debug)]
pub struct CardPlaces {
    root: PathBuf,
    dev: PathBuf,
}

impl CardPlaces {
    /// This machine's.
    pub fn of_this_machine() -> CardPlaces {
        CardPlaces::below(PathBuf::from("/"))
    }

    /// Those of files below `root`, as tests lay them out.
    pub fn below(root: PathBuf) -> CardPlaces {
        let dev = root.join("dev");
        CardPlaces { root, dev }
    }

    /// The same with the device nodes in another folder.
    #[must_use]
    pub fn with_nodes_in(self, dev: PathBuf) -> CardPlaces {
        CardPlaces { dev, ..self }
    }

    /// The nodes that a run on the card with this minor number needs: its own, and the companions that there are.
    ///
    /// # Errors
    /// The card's own node, where it is not there.
    pub fn nodes_of(&self, minor: u32) -> Result<Vec<PathBuf>, String> {
        let own = self.dev.join(format!("nvidia{minor}"));
        if !own.exists() {
            return Err(format!("{} is not there; nvidia-modprobe -c {minor} makes it", own.display()));
        }
        let companions = COMPANIONS.iter().map(|name| self.dev.join(name)).filter(|node| node.exists());
        Ok([own].into_iter().chain(companions).collect())
    }

    /// Every node by which some card can be reached: cards, companions, parts of cards, and what draws on them. What a
    /// launcher keeps runs from.
    pub fn all_nodes(&self) -> Vec<PathBuf> {
        let mut nodes = BTreeSet::new();
        let mut folders = vec![self.dev.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let is_nvidia = entry.file_name().to_string_lossy().starts_with("nvidia");
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && is_nvidia => folders.push(entry.path()),
                    Ok(kind) if !kind.is_dir() && (is_nvidia || folder.ends_with("nvidia-caps")) => {
                        nodes.insert(entry.path());
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
        for entry in fs::read_dir(self.root.join("sys/class/drm")).into_iter().flatten().flatten() {
            let vendor = fs::read_to_string(entry.path().join("device/vendor")).unwrap_or_default();
            let node = self.dev.join("dri").join(entry.file_name());
            if vendor.trim() == VENDOR && node.exists() {
                nodes.insert(node);
            }
        }
        nodes.into_iter().collect()
    }

    /// The CPUs that sysfs says are near a card; none where it does not say: on a machine of several nodes, a card of
    /// none.
    pub fn near(&self, bus_id: &str) -> Option<CpuList> {
        let device = self.root.join("sys/bus/pci/devices").join(sysfs_name(bus_id)?);
        let nodes = self.list("sys/devices/system/node/online").map_or(1, |nodes| nodes.count());
        let node: i64 = read(&device.join("numa_node"))?.trim().parse().ok()?;
        if node < 0 && nodes > 1 {
            return None;
        }
        CpuList::read(&read(&device.join("local_cpulist"))?)
    }

    /// The CPUs that this process may use.
    pub fn allowed(&self) -> CpuList {
        let allowed = cpu::allowed(&self.root);
        // Files that contradict each other; some CPU runs this.
        if allowed.is_empty() { CpuList([0].into()) } else { allowed }
    }

    /// Cuts the CPUs that this process may use into a part for each of the judge's cards and the rest (rule B4).
    pub fn cut(&self, judge: &[CardAt]) -> CpuCut {
        let near: Vec<Option<CpuList>> =
            judge.iter().map(|card| card.near.clone().or_else(|| self.near(&card.bus_id))).collect();
        let allowed = self.allowed();
        cut(&allowed, &self.cores(&allowed), &near)
    }

    /// Which of these CPUs are threads of one core.
    fn cores(&self, cpus: &CpuList) -> Vec<CpuList> {
        let siblings = |cpu: &u32| self.list(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        cpus.0.iter().filter_map(siblings).collect::<BTreeSet<CpuList>>().into_iter().collect()
    }

    fn list(&self, path: &str) -> Option<CpuList> {
        CpuList::read(&read(&self.root.join(path))?)
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A bus id as sysfs writes it: NVML has eight digits for the domain and capitals (`00000000:3B:00.0`).
fn sysfs_name(bus_id: &str) -> Option<String> {
    let (domain, rest) = bus_id.trim().split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}
