//! What a launcher decides of a run's card and CPUs (rules B3, B4).

use std::path::PathBuf;

use super::{Launcher, Layers, Shared};
use crate::host::launch::cards::{self, CardWay};
use crate::host::launch::cpuset::{self, CpuHold};
use crate::host::launch::grant::Grant;
use crate::host::launch::order::Devices;
use crate::host::launch::{Identity, LaunchSpec, probe};

/// What is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host::launch) enum Purpose {
    /// The spec's command, kept from cards in this way.
    Command(Option<CardWay>),
    /// A throwaway run.
    Trial,
    /// A throwaway run that tries a Landlock domain from inside.
    FenceTrial,
}

impl Purpose {
    /// Whether it is a throwaway run.
    pub(in crate::host::launch) fn is_trial(self) -> bool {
        match self {
            Purpose::Command(_) => false,
            Purpose::Trial | Purpose::FenceTrial => true,
        }
    }
}

/// The node that a throwaway run is kept from: one that every machine has.
const STAND_IN: &str = "/dev/full";

impl Launcher {
    /// Which way a run of this account would be kept to what it is granted (rule B3); none where there are no cards to
    /// keep it from.
    ///
    /// # Errors
    /// What is missing, way by way: such a run is refused.
    pub async fn way_to_cards(&self, identity: Identity, grant: &Grant) -> Result<Option<CardWay>, String> {
        if !self.shared.settings.cards.nodes.is_empty() || grant.card.is_some() {
            self.card_ways().await;
        }
        self.known_way_to_cards(identity, grant)
    }

    /// As [`Launcher::way_to_cards`], by what is known of the ways already.
    ///
    /// # Errors
    /// What is missing, way by way; that nothing was tried yet, where nothing was.
    pub fn known_way_to_cards(&self, identity: Identity, grant: &Grant) -> Result<Option<CardWay>, String> {
        let cards = &self.shared.settings.cards;
        if cards.nodes.is_empty() && grant.card.is_none() {
            return Ok(None);
        }
        let tried = self.shared.card_ways.get().ok_or("it was not tried yet")?;
        cards::choose(cards, tried, identity, grant).map(Some)
    }

    /// The ways to keep runs to their cards, the best first, and why those that do not work here do not. Tried out by a
    /// throwaway run when first asked.
    pub async fn card_ways(&self) -> &[(CardWay, Result<(), String>)] {
        let shared = &self.shared;
        shared.card_ways.get_or_init(|| probe::card_ways(shared, self.layers.as_ref(), &self.containment)).await
    }

    /// What keeps runs to their CPUs (rule B4). Tried out when first asked.
    pub fn cpu_hold(&self) -> &CpuHold {
        let parent = self.layers.as_ref().and_then(|layers| layers.cgroup_parent.as_deref());
        self.shared.cpu_hold(parent)
    }
}

impl Shared {
    /// What of this launch concerns cards and CPUs.
    pub(super) fn devices(&self, layers: &Layers, spec: &LaunchSpec, purpose: Purpose) -> Devices {
        let granted = spec.grant.nodes();
        let (way, kept_nodes) = match purpose {
            Purpose::Command(way) => {
                let kept = self.settings.cards.nodes.iter().filter(|node| !granted.contains(node));
                (way, kept.cloned().collect())
            }
            Purpose::Trial => (None, Vec::new()),
            Purpose::FenceTrial => (Some(CardWay::Landlock), vec![PathBuf::from(STAND_IN)]),
        };
        let (cpuset, cpuset_v2) = match spec.grant.cpus() {
            None => (None, false),
            Some(_) => {
                let hold = self.cpu_hold(layers.cgroup_parent.as_deref());
                (cpuset::v1_group(hold, &self.settings.rig, &spec.name), matches!(hold, CpuHold::CpusetV2))
            }
        };
        let launcher_cpus = self.settings.cards.others.clone();
        Devices { way, kept_nodes, launcher_cpus, cpuset, cpuset_v2 }
    }

    fn cpu_hold(&self, parent: Option<&std::path::Path>) -> &CpuHold {
        self.cpu_hold.get_or_init(|| cpuset::probe(&self.settings.rig, parent))
    }
}
