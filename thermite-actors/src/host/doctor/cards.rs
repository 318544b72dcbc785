//! What is said of cards: each way to keep a run to one, what it lacks and how to get it; and the CPUs near them.

use thermite_core::cpus::Nearness;

use super::{Abilities, Ability, Finding, Standing, ok};
use crate::host::launch::{CardWay, CpuHold};

/// Judges the ways to keep a run to its card (rule B3).
pub(super) fn isolation(found: &Abilities) -> Finding {
    let facts = &found.cards;
    let works: Vec<&str> = facts.ways.iter().filter(|(_, works)| works.is_ok()).map(|(way, _)| way.name()).collect();
    let lacks = facts.ways.iter().filter_map(|(way, works)| Some((*way, works.as_ref().err()?)));
    let lacks: Vec<String> = lacks.map(|(way, why)| format!("{way} ({why})")).collect();
    if facts.nodes.is_empty() {
        let ways = if works.is_empty() { "none".to_owned() } else { works.join(", ") };
        return ok(Ability::Cards, format!("no card here; ways to keep a run to one: {ways}"));
    }
    let cards = facts.nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(", ");
    // The first is used; what the others lack is told where none works, or where what works depends on the nodes.
    let Some(first) = works.first() else {
        let line = ok(Ability::Cards, format!("none; {cards}"));
        return line
            .but(Standing::Missing, lacks.join("; "))
            .open("every run on a card is refused")
            .get_by(to_get_one(found));
    };
    let line = ok(Ability::Cards, format!("{}; {cards}", works.join(", ")));
    if *first != CardWay::Modes.name() {
        return line;
    }
    line.but(Standing::Degraded, lacks.join("; "))
        .open("a run on a card is refused unless the nodes' own modes close all other cards to it")
        .get_by(format!("{}; or {MODES}", to_get_one(found)))
}

/// How nodes are closed by their modes.
const MODES: &str = "give each /dev/nvidiaN a group of its own and mode 0660 (NVreg_DeviceFileGID, NVreg_DeviceFileMode \
                     or udev, so that nvidia-modprobe does not undo it)";

fn to_get_one(found: &Abilities) -> String {
    let view = if found.is_root { "own view: see namespaces" } else { "own view: see namespaces, or serve as root" };
    format!(
        "{view}; landlock: Linux 6.10 with CONFIG_SECURITY_LANDLOCK and landlock in its list of security modules (lsm=)"
    )
}

/// Judges the CPUs near cards (rule B4).
pub(super) fn cpus(found: &Abilities) -> Finding {
    let facts = &found.cards;
    if facts.nodes.is_empty() && facts.cut.cards.is_empty() {
        return ok(Ability::CardCpus, format!("no card here; runs would be kept to their CPUs by {}", facts.hold));
    }
    let told: Vec<String> = facts
        .cut
        .cards
        .iter()
        .enumerate()
        .map(|(card, part)| {
            let nearness = match part.nearness {
                Nearness::Near => "near",
                Nearness::Far => "far from it",
                Nearness::Unknown => "the machine does not say which are near",
            };
            let shared = if part.is_own { "" } else { ", shared with another" };
            // A rig counts its cards in its own order.
            let what = if found.rig_cards.is_some() { "device" } else { "card" };
            format!("{what} {card}: {} ({nearness}{shared})", part.cpus)
        })
        .collect();
    let told = if told.is_empty() { "no card was asked".to_owned() } else { told.join("; ") };
    let rest = if facts.cut.others.is_empty() { "nothing".to_owned() } else { facts.cut.others.to_string() };
    let line =
        ok(Ability::CardCpus, format!("{told}; {rest} left for the rest; runs are kept to them by {}", facts.hold));
    let mut missing = Vec::new();
    let mut open = Vec::new();
    if let CpuHold::Affinity { why } = &facts.hold {
        missing.push(format!("a cpuset ({why})"));
        open.push("a run can widen its CPUs to those of a card that is timed on; records say so");
    }
    if !facts.cut.cards.is_empty() && facts.cut.others.is_empty() {
        missing.push("a CPU beside the cards'".to_owned());
        open.push("builds and development runs work on the CPUs of cards that are timed on");
    }
    if facts.cut.cards.iter().any(|part| !part.is_own) {
        missing.push("a core for each card".to_owned());
        open.push("cards that are timed on at once share CPUs");
    }
    if missing.is_empty() {
        return line;
    }
    let line = line.but(Standing::Degraded, missing.join("; "));
    let line = open.into_iter().fold(line, Finding::open);
    line.get_by(
        "give the rig more CPUs, and a cgroup tree with the cpuset controller that it can write (version 1 or 2)",
    )
}
