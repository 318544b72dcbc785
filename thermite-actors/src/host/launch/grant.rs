//! What of the machine's cards and CPUs a run is granted (rules B3, B4).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thermite_core::cpus::CpuList;

/// A card that a run may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardGrant {
    /// The card's UUID, by which its programs are told of it: indices differ between CUDA and NVML.
    pub uuid: String,
    /// Its device node, and those that are of no card but that its programs need.
    pub nodes: Vec<PathBuf>,
    /// The CPUs that measured runs on it are kept to; all that the rig has without them.
    pub cpus: Option<CpuList>,
}

/// What of the machine's cards and CPUs a run is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The card it may open; it can open none without.
    pub card: Option<CardGrant>,
    /// The CPUs it is kept to in place of the card's.
    pub cpus: Option<CpuList>,
}

impl Grant {
    /// The CPUs that the run is kept to.
    pub fn cpus(&self) -> Option<&CpuList> {
        self.cpus.as_ref().or_else(|| self.card.as_ref()?.cpus.as_ref())
    }

    /// The nodes that the run may open beyond the plain ones.
    pub fn nodes(&self) -> &[PathBuf] {
        self.card.as_ref().map_or(&[], |card| &card.nodes)
    }

    /// What its programs are told of its card, for those that look for cards themselves; none where it has none. A help
    /// to well-behaved programs, never what keeps others out.
    pub fn env(&self) -> Vec<(String, String)> {
        let Some(card) = &self.card else { return Vec::new() };
        [
            ("CUDA_VISIBLE_DEVICES", card.uuid.as_str()),
            ("NVIDIA_VISIBLE_DEVICES", &card.uuid),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}
