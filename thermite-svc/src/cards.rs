//! The machine's GPUs as a rig takes them: which of them, their device nodes, and the CPUs that go with each.
//!
//! Choosing and cutting are values in, values out; only [`nodes`] and [`cpus`] look at the machine.

use std::path::{Path, PathBuf};

use thermite_actors::host::gpu::{CardFacts, UnreadableCard};
use thermite_core::cpus::{self, CpuCut, CpuList};
use thermite_core::limits;

use crate::settings::gpus::GPUS;
use crate::settings::{CardName, Cards};

/// What the driver lists.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Cards that it describes.
    pub found: Vec<CardFacts>,
    /// Cards that it only counts.
    pub unreadable: Vec<UnreadableCard>,
}

/// The cards that a rig takes, in its order.
///
/// # Errors
/// Where there is none, or not the one that was named: the sentence says which there are.
pub fn pick(listed: &Listed, wanted: &Cards) -> Result<Vec<CardFacts>, String> {
    let picked = match wanted {
        Cards::All => listed.found.clone(),
        Cards::Named(names) => {
            let mut picked: Vec<CardFacts> = Vec::new();
            for name in names {
                let card = one(listed, name)?;
                if picked.iter().any(|known| known.uuid == card.uuid) {
                    return Err(format!("{GPUS} names card {} twice: by its index and by its UUID", card.uuid));
                }
                picked.push(card.clone());
            }
            picked
        }
    };
    let most = usize::from(limits::TIMING_USERS_MAX);
    match picked.len() {
        0 => Err(match listed.unreadable.first() {
            None => "no GPU is here: the driver lists none".to_owned(),
            Some(card) => format!("no GPU here can be used: {}", card.fault),
        }),
        count if count > most => {
            Err(format!("this machine has {count} GPUs and a rig takes at most {most}; name them by {GPUS}"))
        }
        _ => Ok(picked),
    }
}

fn one<'a>(listed: &'a Listed, name: &CardName) -> Result<&'a CardFacts, String> {
    let found = listed.found.iter().find(|card| match name {
        CardName::Index(index) => card.index == *index,
        CardName::Uuid(uuid) => card.uuid == *uuid,
    });
    if let Some(card) = found {
        return Ok(card);
    }
    if let CardName::Index(index) = name
        && let Some(card) = listed.unreadable.iter().find(|card| card.index == *index)
    {
        return Err(format!("{GPUS} names card {index}, which cannot be used: {}", card.fault));
    }
    let there: Vec<String> =
        listed.found.iter().map(|card| format!("{} ({}, {})", card.index, card.uuid, card.model)).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Err(format!("{GPUS} names card {name}; this machine has {there}"))
}

/// The device nodes of the machine's cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Those of one card each, with its number.
    pub cards: Vec<(u32, PathBuf)>,
    /// Those that programs of every card need.
    pub common: Vec<PathBuf>,
    /// Those that belong to parts of cards: granted to nobody.
    pub parts: Vec<PathBuf>,
}

/// What programs need beside a card's own node, where it is there.
const COMMON: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];
/// Where the nodes of parts of cards are (MIG).
const PARTS: &str = "nvidia-caps";

/// The nodes in `folder`, which is `/dev` but for tests.
pub fn nodes(folder: &Path) -> Nodes {
    let mut nodes = Nodes::default();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if COMMON.contains(&name.as_str()) {
            nodes.common.push(entry.path());
        } else if let Some(number) = name.strip_prefix("nvidia").and_then(|number| number.parse().ok()) {
            nodes.cards.push((number, entry.path()));
        }
    }
    let parts = std::fs::read_dir(folder.join(PARTS)).into_iter().flatten().flatten();
    nodes.parts.extend(parts.map(|entry| entry.path()));
    nodes.cards.sort();
    nodes.common.sort();
    nodes.parts.sort();
    nodes
}

impl Nodes {
    /// All of them: what a run may not open unless it is granted.
    pub fn all(&self) -> Vec<PathBuf> {
        let cards = self.cards.iter().map(|(_, node)| node);
        cards.chain(&self.common).chain(&self.parts).cloned().collect()
    }

    /// What a run on this card may open.
    ///
    /// # Errors
    /// Where the card has no node here: nothing could be kept from it, and nothing be granted.
    pub fn of_card(&self, card: &CardFacts, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let Some(minor) = card.minor else {
            return Err(format!("the driver does not say which device node card {} has", card.uuid));
        };
        let Some((_, own)) = self.cards.iter().find(|(number, _)| *number == minor) else {
            let node = folder.join(format!("nvidia{minor}"));
            return Err(format!("card {} has no device node {}", card.uuid, node.display()));
        };
        Ok(std::iter::once(own).chain(&self.common).cloned().collect())
    }
}

/// The CPUs for these cards, and the rest: of those that this process may use, as `root` describes the machine.
pub fn cpus(cards: &[CardFacts], root: &Path) -> CpuCut {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| CpuList::read(line.strip_prefix("Cpus_allowed_list:")?.trim()));
    let allowed = allowed.filter(|allowed| !allowed.is_empty()).unwrap_or_else(|| CpuList([0].into()));
    let list = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        CpuList::read(text.trim()).filter(|list| !list.is_empty())
    };
    let cores: Vec<CpuList> = allowed
        .0
        .iter()
        .filter_map(|cpu| list(root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))))
        .collect();
    let near: Vec<Option<CpuList>> = cards
        .iter()
        .map(|card| {
            let of_bus = card.pci_bus_id.as_deref().and_then(bus_folder);
            of_bus
                .and_then(|folder| list(root.join("sys/bus/pci/devices").join(folder).join("local_cpulist")))
                .or_else(|| CpuList::read(card.cpus.as_deref()?).filter(|list| !list.is_empty()))
        })
        .collect();
    cpus::cut(&allowed, &cores, &near)
}

/// A card's folder on the bus: the driver writes the domain in eight digits, the kernel in four.
fn bus_folder(id: &str) -> Option<String> {
    let (domain, rest) = id.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
    is_plain.then(|| format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_actors::ports::DeviceFault;

    #[test]
    fn cards_are_taken_in_the_order_they_are_named_in_by_index_or_uuid() {
        let listed = Listed { found: vec![card(0), card(1), card(2)], unreadable: Vec::new() };
        let named = Cards::Named(vec![CardName::Index(2), CardName::Uuid("GPU-0".into())]);

        let taken = pick(&listed, &named).unwrap();
        let all = pick(&listed, &Cards::All).unwrap();

        assert_eq!(indices(&taken), [2, 0]);
        assert_eq!(indices(&all), [0, 1, 2]);
    }

    #[test]
    fn a_card_that_is_not_there_is_named_with_those_that_are() {
        let lost = UnreadableCard { index: 1, fault: DeviceFault::Other("it fell off the bus".into()) };
        let listed = Listed { found: vec![card(0)], unreadable: vec![lost.clone()] };
        let said = |names: Vec<CardName>| pick(&listed, &Cards::Named(names)).unwrap_err();

        assert_eq!(said(vec![CardName::Index(7)]), "THERMITE_GPUS names card 7; this machine has 0 (GPU-0, A card)");
        assert_eq!(
            said(vec![CardName::Index(1)]),
            "THERMITE_GPUS names card 1, which cannot be used: it fell off the bus"
        );
        assert_eq!(
            said(vec![CardName::Index(0), CardName::Uuid("GPU-0".into())]),
            "THERMITE_GPUS names card GPU-0 twice: by its index and by its UUID"
        );
        let none = Listed { found: Vec::new(), unreadable: vec![lost] };
        assert_eq!(pick(&none, &Cards::All).unwrap_err(), "no GPU here can be used: it fell off the bus");
        assert_eq!(pick(&Listed::default(), &Cards::All).unwrap_err(), "no GPU is here: the driver lists none");
    }

    #[test]
    fn more_cards_than_a_rig_takes_must_be_named() {
        let listed = Listed { found: (0..17).map(card).collect(), unreadable: Vec::new() };

        let refused = pick(&listed, &Cards::All).unwrap_err();

        assert_eq!(refused, "this machine has 17 GPUs and a rig takes at most 16; name them by THERMITE_GPUS");
    }

    #[test]
    fn a_run_is_granted_its_cards_node_and_the_common_ones() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("nvidia-caps")).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "null"] {
            std::fs::write(at(name), "").unwrap();
        }

        let nodes = nodes(folder.path());

        let own = nodes.of_card(&card(10), folder.path()).unwrap();
        assert_eq!(own, [at("nvidia10"), at("nvidia-uvm"), at("nvidiactl")]);
        assert_eq!(nodes.all().len(), 6);
        let missing = nodes.of_card(&card(3), folder.path()).unwrap_err();
        assert_eq!(missing, format!("card GPU-3 has no device node {}", at("nvidia3").display()));
    }

    #[test]
    fn the_kernel_says_which_cpus_are_near_before_the_driver_does() {
        let root = tempfile::tempdir().unwrap();
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let allowed = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        let first = CpuList(CpuList::read(&allowed).unwrap().0.into_iter().take(1).collect());
        let folder = root.path().join("sys/bus/pci/devices/0001:6f:00.0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("local_cpulist"), format!("{first}\n")).unwrap();
        let one = CardFacts { pci_bus_id: Some("00000001:6F:00.0".into()), cpus: Some("4000".into()), ..card(0) };

        let cut = cpus(&[one], root.path());

        assert_eq!((cut.cards[0].cpus.clone(), cut.cards[0].nearness), (first, cpus::Nearness::Near));
    }

    fn card(index: u32) -> CardFacts {
        CardFacts {
            index,
            uuid: format!("GPU-{index}"),
            model: "A card".into(),
            driver_version: "999.0".into(),
            minor: Some(index),
            pci_bus_id: None,
            cpus: None,
            is_mig: Some(false),
            memory_total: None,
            sm_clock_max: None,
        }
    }

    fn indices(cards: &[CardFacts]) -> Vec<u32> {
        cards.iter().map(|card| card.index).collect()
    }
}
