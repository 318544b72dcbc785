//! Which CPUs each judge's card is measured on, and which are left for everything else (rule B4).
//!
//! A pure cut of what the process may use: near the card where that is known, disjoint between cards, and never two
//! threads of one core in two hands. What is deliberately absent: how a run is kept to its part.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of CPUs, written as the kernel writes it: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuList(pub BTreeSet<u32>);

/// More CPUs than any Linux kernel is built for; a list beyond it is not believed.
const CPUS_MAX: u32 = 65_536;

impl CpuList {
    /// Reads a list as the kernel writes it: `0-3,8`. None where it is not one, or names no CPU.
    pub fn read(text: &str) -> Option<CpuList> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if last < first || last >= CPUS_MAX {
                return None;
            }
            cpus.extend(first..=last);
        }
        (!cpus.is_empty()).then_some(CpuList(cpus))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).expect("a list holds fewer CPUs than a u32 counts")
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are in both.
    pub fn both(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.difference(&other.0).copied().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuList, String> {
        CpuList::read(text).ok_or_else(|| format!("{text:?} is no list of CPUs such as 0-3,8"))
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<CpuList, String> {
        if text.is_empty() { Ok(CpuList::default()) } else { text.parse() }
    }
}

impl From<CpuList> for String {
    fn from(cpus: CpuList) -> String {
        cpus.to_string()
    }
}

/// How a card's CPUs lie to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nearness {
    /// The machine says that they are close to it.
    Near,
    /// None that are close to it may be used, or none was free.
    Far,
    /// The machine does not say which are close to it.
    Unknown,
}

/// The CPUs of one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardCpus {
    /// Which; never none.
    pub cpus: CpuList,
    /// How they lie to the card.
    pub nearness: Nearness,
    /// Whether no other card has any of them: not so only where there are fewer cores than cards.
    pub is_own: bool,
}

/// A machine's CPUs, cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCut {
    /// The part of each card, in the order given.
    pub cards: Vec<CardCpus>,
    /// What is left for builds, development runs and the rig itself; none where the cards need all.
    pub others: CpuList,
}

/// Cuts the CPUs that may be used into parts for cards, and the rest.
///
/// `cores` says which CPUs are threads of one core: a core is never cut. A CPU that is in none is a core of its own.
/// `near` are each card's close CPUs, where the machine tells. Cards take at most half of the cores, rounded up, unless
/// there are more cards than that; one core is left for the rest wherever each card can still have one. Equal inputs
/// give equal cuts.
///
/// # Panics
/// Where no CPU may be used.
pub fn cut(allowed: &CpuList, cores: &[CpuList], near: &[Option<CpuList>]) -> CpuCut {
    assert!(!allowed.is_empty(), "a process runs on some CPU");
    let mut free = whole_cores(allowed, cores);
    let all = free.clone();
    let most =
        all.len().div_ceil(2).max(near.len()).min(if all.len() > near.len() { all.len() - 1 } else { all.len() });
    let is_near = |card: usize, core: &CpuList| match &near[card] {
        Some(near) => !core.both(near).is_empty(),
        None => true,
    };
    // Who has the fewest close cores chooses first: who has more can do with what is left.
    let choices = |card: usize, of: &[CpuList]| of.iter().filter(|core| is_near(card, core)).count();
    let mut order: Vec<usize> = (0..near.len()).collect();
    order.sort_by_key(|card| match choices(*card, &all) {
        // It has to take what is left of others' anyway.
        0 => usize::MAX,
        some => some,
    });
    let mut parts: Vec<Vec<CpuList>> = vec![Vec::new(); near.len()];
    let mut taken = 0;
    let mut is_first = true;
    loop {
        let before = taken;
        for &card in &order {
            if taken == most {
                break;
            }
            let at = free.iter().position(|core| is_near(card, core));
            // A far core is taken rather than none, never to have more of them.
            let at = at.or((is_first && !free.is_empty()).then_some(0));
            if let Some(at) = at {
                parts[card].push(free.remove(at));
                taken += 1;
            }
        }
        is_first = false;
        if taken == before || taken == most {
            break;
        }
    }
    // More cards than cores: those that got none use the core of another, the least shared first.
    let mut users: Vec<usize> = vec![1; all.len()];
    let mut shared = BTreeSet::new();
    for &card in &order {
        if parts[card].is_empty() {
            let candidates: Vec<usize> = match choices(card, &all) {
                0 => (0..all.len()).collect(),
                _ => (0..all.len()).filter(|at| is_near(card, &all[*at])).collect(),
            };
            let at = candidates.into_iter().min_by_key(|at| users[*at]).expect("some CPU may be used");
            users[at] += 1;
            shared.extend(all[at].0.iter().copied());
            parts[card].push(all[at].clone());
        }
    }
    let shared = CpuList(shared);
    let cards = parts.into_iter().enumerate().map(|(card, part)| {
        let nearness = match &near[card] {
            None => Nearness::Unknown,
            Some(_) if part.iter().all(|core| is_near(card, core)) => Nearness::Near,
            Some(_) => Nearness::Far,
        };
        let cpus = CpuList(part.into_iter().flat_map(|core| core.0).collect());
        let is_own = cpus.both(&shared).is_empty();
        CardCpus { cpus, nearness, is_own }
    });
    CpuCut { cards: cards.collect(), others: CpuList(free.into_iter().flat_map(|core| core.0).collect()) }
}

/// The cores of what may be used, each once, by their lowest CPU.
fn whole_cores(allowed: &CpuList, cores: &[CpuList]) -> Vec<CpuList> {
    let mut left = allowed.clone();
    let mut whole = Vec::new();
    while let Some(first) = left.0.first().copied() {
        let core =
            cores.iter().find(|core| core.0.contains(&first)).map_or_else(CpuList::default, |core| core.both(&left));
        let core = if core.is_empty() { CpuList(BTreeSet::from([first])) } else { core };
        left = left.without(&core);
        whole.push(core);
    }
    whole
}
