//! The split: which of a rig's cards are the judge's and which the agents' (rules B1, B8).
//!
//! Pure arithmetic over what cards there are and what was asked for. What a new split does to the work under way is
//! the pool's ([`crate::pool`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::MemberId;
use crate::limits;
use crate::pool::Discipline;
use crate::refusal::Refusal;

/// One card, as far as the split must know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CardFact {
    /// Its place in the rig's list: the order given, or the driver's own.
    pub member: MemberId,
    /// Its UUID: what people name it by, since places can shift.
    pub uuid: String,
    /// Its model.
    pub model: String,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "split")]
pub enum SplitAsk {
    /// The judge gets half, rounded up, the lowest-numbered; the agents the others. One card is shared.
    #[default]
    Default,
    /// Every card is shared, the judge first.
    Shared,
    /// These; a card in neither list is left idle.
    Cards {
        /// The judge's, by UUID; of several models the first one's judges.
        judge: Vec<String>,
        /// The agents', by UUID.
        agents: Vec<String>,
    },
}

/// Who has which card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Split {
    /// The judge's cards.
    pub judge: Vec<MemberId>,
    /// The agents' cards; the same ones where they are shared.
    pub agents: Vec<MemberId>,
    /// Cards that nobody uses, and why.
    pub idle: Vec<IdleCard>,
    /// Whether judge and agents share the cards, the judge first.
    pub shared: bool,
}

/// A card that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdleCard {
    /// The card.
    pub member: MemberId,
    /// Why.
    pub why: IdleWhy,
}

/// Why a card is idle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum IdleWhy {
    /// The judge's cards are of several models: only the first judges (rule B8).
    OtherModels {
        /// The card that judges, by UUID.
        judges: String,
        /// Its model.
        model: String,
    },
    /// The split names it on neither side.
    LeftOut,
    /// Each side has as many as it may have (rule B1).
    BeyondMost,
}

impl fmt::Display for IdleWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleWhy::OtherModels { judges, model } => {
                write!(f, "the judge's cards are of several models: only the first, {judges} ({model}), judges")
            }
            IdleWhy::LeftOut => f.write_str("the split names it on neither side"),
            IdleWhy::BeyondMost => write!(f, "each side has {} cards already", limits::CARDS_OF_SIDE_MAX),
        }
    }
}

/// The split of these cards, in the order they are numbered.
///
/// # Errors
/// Refused with the reason where the asked one cannot be (rule B1).
pub fn plan(cards: &[CardFact], ask: &SplitAsk) -> Result<Split, Refusal> {
    let mut numbered: Vec<&CardFact> = cards.iter().collect();
    numbered.sort_by_key(|card| card.member);
    let all: Vec<MemberId> = numbered.iter().map(|card| card.member).collect();
    let (judge, agents, shared) = match ask {
        SplitAsk::Default if all.len() < 2 => (all.clone(), all, true),
        SplitAsk::Default => {
            let half = all.len().div_ceil(2);
            let (judge, agents) = all.split_at(half.min(limits::CARDS_OF_SIDE_MAX));
            (judge.to_vec(), agents.iter().copied().take(limits::CARDS_OF_SIDE_MAX).collect(), false)
        }
        SplitAsk::Shared => (all.clone(), all, true),
        SplitAsk::Cards { judge, agents } => {
            let judge = side(&numbered, "judge", judge)?;
            let agents = side(&numbered, "agents", agents)?;
            if let Some(both) = judge.iter().find(|member| agents.contains(member)) {
                return Err(bad(format!("card {} is on both sides", uuid_of(cards, *both))));
            }
            (judge, agents, false)
        }
    };
    let mut split = Split { judge, agents, idle: Vec::new(), shared };
    split.keep_one_model(cards);
    let unnamed = match ask {
        SplitAsk::Default | SplitAsk::Shared => IdleWhy::BeyondMost,
        SplitAsk::Cards { .. } => IdleWhy::LeftOut,
    };
    let used: BTreeSet<MemberId> = split.used().collect();
    let left = numbered.iter().map(|card| card.member).filter(|member| !used.contains(member));
    split.idle.extend(left.map(|member| IdleCard { member, why: unnamed.clone() }));
    split.idle.sort_by_key(|idle| idle.member);
    Ok(split)
}

/// The split that a rig starts with: what was asked for last, over the cards there are at this start. Where it can no
/// longer be, the default one, with the sentence that says why.
pub fn at_start(cards: &[CardFact], ask: &SplitAsk) -> (Split, Option<String>) {
    match plan(cards, ask) {
        Ok(split) => (split, None),
        Err(refusal) => {
            let why = match refusal {
                Refusal::BadSplit { why } => why,
                other => other.to_string(),
            };
            let split = plan(cards, &SplitAsk::Default).unwrap_or_default();
            (split, Some(format!("the split that was set cannot be: {why}; the default one is in force")))
        }
    }
}

impl Split {
    /// Whom a card serves.
    pub fn discipline(&self, member: MemberId) -> Discipline {
        match (self.judge.contains(&member), self.agents.contains(&member)) {
            (true, _) if self.shared => Discipline::JudgeFirst,
            (true, _) => Discipline::JudgeOnly,
            (false, true) => Discipline::LanesOnly,
            (false, false) => Discipline::Idle,
        }
    }

    /// Whom each of these cards serves.
    pub fn disciplines(&self, cards: &[CardFact]) -> BTreeMap<MemberId, Discipline> {
        cards.iter().map(|card| (card.member, self.discipline(card.member))).collect()
    }

    fn used(&self) -> impl Iterator<Item = MemberId> {
        self.judge.iter().chain(&self.agents).copied().chain(self.idle.iter().map(|idle| idle.member))
    }

    /// Verdicts compare on one model only: of several the first one's card judges, alone, and the others are idle.
    fn keep_one_model(&mut self, cards: &[CardFact]) {
        let card = |member: MemberId| cards.iter().find(|card| card.member == member);
        let Some(first) = self.judge.first().and_then(|member| card(*member)) else { return };
        if self.judge.iter().filter_map(|member| card(*member)).all(|card| card.model == first.model) {
            return;
        }
        let why = IdleWhy::OtherModels { judges: first.uuid.clone(), model: first.model.clone() };
        let others = self.judge.split_off(1);
        if self.shared {
            self.agents.clone_from(&self.judge);
        }
        self.idle.extend(others.into_iter().map(|member| IdleCard { member, why: why.clone() }));
    }
}

/// One side's cards, in the order given.
fn side(cards: &[&CardFact], name: &str, uuids: &[String]) -> Result<Vec<MemberId>, Refusal> {
    if uuids.is_empty() {
        return Err(bad(format!("the side `{name}` has no card")));
    }
    let most = limits::CARDS_OF_SIDE_MAX;
    if uuids.len() > most {
        return Err(bad(format!("the side `{name}` has {} cards; at most {most}", uuids.len())));
    }
    let mut members = Vec::new();
    for uuid in uuids {
        let Some(card) = cards.iter().find(|card| card.uuid == *uuid) else {
            let have: Vec<&str> = cards.iter().map(|card| card.uuid.as_str()).collect();
            return Err(bad(format!("card {uuid} is not there: this rig has {}", have.join(", "))));
        };
        if members.contains(&card.member) {
            return Err(bad(format!("card {uuid} is named twice for the side `{name}`")));
        }
        members.push(card.member);
    }
    Ok(members)
}

fn uuid_of(cards: &[CardFact], member: MemberId) -> &str {
    cards.iter().find(|card| card.member == member).map_or("", |card| card.uuid.as_str())
}

fn bad(why: String) -> Refusal {
    Refusal::BadSplit { why }
}
