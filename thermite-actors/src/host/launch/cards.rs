//! Which way a run is kept to the card it is granted (rule B3): found out by doing, chosen for each launch, or refused.
//!
//! What is deliberately absent: a run that is kept to its card by its environment alone.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thermite_core::cpus::CpuList;

use super::Identity;
use super::grant::Grant;

/// A way to keep a run from cards that it is not granted. The first that works is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardWay {
    /// A `/dev` of its own that holds the granted nodes alone, no capabilities, and no node elsewhere that opens.
    View,
    /// A Landlock domain in which nothing below `/dev` opens but the plain and the granted nodes.
    Landlock,
    /// The nodes' own modes: what is not granted is closed to the run's account, and each card's group goes with its
    /// grant.
    Modes,
}

impl CardWay {
    /// Its name, as doctor and views say it.
    pub const fn name(self) -> &'static str {
        match self {
            CardWay::View => "own view",
            CardWay::Landlock => "landlock",
            CardWay::Modes => "node modes",
        }
    }

    /// All ways, the best first.
    pub const ALL: [CardWay; 3] = [CardWay::View, CardWay::Landlock, CardWay::Modes];
}

impl fmt::Display for CardWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The machine's cards, as far as runs are kept from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cards {
    /// The device nodes of all cards, and those that only programs of cards need. A run opens none that it is not
    /// granted; where there are none, nothing is kept from anybody.
    pub nodes: Vec<PathBuf>,
    /// Ways that may be relied on.
    pub ways: BTreeSet<CardWay>,
    /// The CPUs that launchers keep to, apart from those of the judge's cards; all that the rig has without them.
    pub others: Option<CpuList>,
}

impl Default for Cards {
    fn default() -> Cards {
        Cards { nodes: Vec::new(), ways: CardWay::ALL.into(), others: None }
    }
}

/// What the machine said to each way, the best first; a way that works for some nodes and accounts only counts as one
/// that works.
pub(super) type Tried = Vec<(CardWay, Result<(), String>)>;

/// Chooses the way that keeps this run to what it is granted.
///
/// # Errors
/// What is missing, way by way, where none does.
pub(super) fn choose(
    cards: &Cards,
    tried: &[(CardWay, Result<(), String>)],
    identity: Identity,
    grant: &Grant,
) -> Result<CardWay, String> {
    let mut missing = Vec::new();
    for (way, works) in tried {
        let works = match (way, works) {
            (_, Err(why)) => Err(why.clone()),
            (CardWay::View | CardWay::Landlock, Ok(())) => Ok(()),
            (CardWay::Modes, Ok(())) => modes_keep(cards, identity, grant),
        };
        match works {
            Ok(()) => return Ok(*way),
            Err(why) => missing.push(format!("{way} ({why})")),
        }
    }
    Err(missing.join("; "))
}

/// The groups that a run gets with its card, where the nodes' modes keep others out. Root's is never among them.
pub(super) fn groups_of(grant: &Grant) -> BTreeSet<u32> {
    let gids = grant.nodes().iter().filter_map(|node| Some(std::fs::metadata(node).ok()?.gid()));
    gids.filter(|gid| *gid != 0).collect()
}

/// Whether the nodes' modes open what is granted, and nothing else.
fn modes_keep(cards: &Cards, identity: Identity, grant: &Grant) -> Result<(), String> {
    let Identity::Dedicated { uid, gid } = identity else {
        return Err("a run of the rig's own user may open what the rig may".to_owned());
    };
    let mut groups = groups_of(grant);
    groups.insert(gid);
    for node in grant.nodes() {
        if !opens(node, uid, &groups, Opening::Both)? {
            return Err(format!("{} does not open to uid {uid} with its groups", node.display()));
        }
    }
    for node in cards.nodes.iter().filter(|node| !grant.nodes().contains(node)) {
        if opens(node, uid, &groups, Opening::Any)? {
            return Err(format!("{} opens to uid {uid}", node.display()));
        }
    }
    Ok(())
}

/// How a node has to open.
#[derive(Clone, Copy)]
enum Opening {
    /// For reading and writing.
    Both,
    /// In whatever way.
    Any,
}

fn opens(node: &Path, uid: u32, groups: &BTreeSet<u32>, how: Opening) -> Result<bool, String> {
    let about = std::fs::metadata(node).map_err(|error| format!("{}: {error}", node.display()))?;
    // The first class that fits decides, also where a later one would be more generous (path_resolution(7)).
    let bits = match () {
        () if about.uid() == uid => about.mode() >> 6,
        () if groups.contains(&about.gid()) => about.mode() >> 3,
        () => about.mode(),
    } & 0o6;
    let opens = match how {
        Opening::Both => bits == 0o6,
        Opening::Any => bits != 0,
    };
    // An owner can change the mode.
    Ok(opens || (matches!(how, Opening::Any) && about.uid() == uid))
}
