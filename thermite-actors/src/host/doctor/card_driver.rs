//! What is said of the cards' driver: whether its library is there, which cards it tells of, what each cannot tell.

use std::path::PathBuf;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::host::cards::CardAt;
use crate::host::gpu::{Cards, CardsFault};

use super::{Abilities, Ability, Finding, Standing, ok};

/// What the cards' driver said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardDriverFacts {
    /// There is no library of it.
    NoLibrary {
        /// The sentence that says so.
        why: String,
    },
    /// It is there and does not answer.
    AtFault {
        /// The sentence that says why, with the way out.
        why: String,
    },
    /// It answers.
    Answers {
        /// The driver's version.
        version: String,
        /// The cards it tells of, in its order.
        cards: Vec<CardSaid>,
    },
}

/// What a card says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardSaid {
    /// Its place in NVML's order.
    pub index: u32,
    /// Its UUID and model; neither where it could not be described.
    pub name: String,
    /// The names of the signals that it does not tell, or why it cannot be read.
    pub untold: Result<Vec<String>, String>,
}

/// Asks the driver and every card, each call with a limit; gives what they said, and where the described ones are.
pub(super) async fn look(library: Option<PathBuf>) -> (CardDriverFacts, Vec<CardAt>) {
    let opened = tokio::task::spawn_blocking(move || Cards::open(library.as_deref())).await;
    let cards = match opened {
        Ok(Ok(cards)) => cards,
        Ok(Err(fault @ CardsFault::NoLibrary { .. })) => {
            return (CardDriverFacts::NoLibrary { why: fault.to_string() }, Vec::new());
        }
        Ok(Err(fault)) => return (CardDriverFacts::AtFault { why: fault.to_string() }, Vec::new()),
        Err(error) => return (CardDriverFacts::AtFault { why: error.to_string() }, Vec::new()),
    };
    let described = cards.list().into_iter().map(|card| {
        let driver = cards.driver(&card.uuid);
        async move {
            let untold = match driver {
                Ok(driver) => driver.untold().await.map_err(|fault| fault.to_string()),
                Err(fault) => Err(fault.to_string()),
            };
            CardSaid { index: card.index, name: format!("{} ({})", card.uuid, card.model), untold }
        }
    });
    let mut said = join_all(described).await;
    said.extend(cards.unreadable().into_iter().map(|card| CardSaid {
        index: card.index,
        name: "not described".to_owned(),
        untold: Err(card.fault.to_string()),
    }));
    said.sort_by_key(|card| card.index);
    let places = cards.list().iter().map(CardAt::from).collect();
    (CardDriverFacts::Answers { version: cards.driver_version().to_owned(), cards: said }, places)
}

/// Judges the driver (rules B10, D1), and whether a rig on cards would have them (rule B1).
pub(super) fn readings(found: &Abilities) -> Finding {
    let line = of_driver(found);
    match &found.rig_cards {
        None => line,
        Some(Ok(())) => Finding { is_needed: true, ..line },
        Some(Err(why)) => Finding { is_needed: true, leaves_open: Vec::new(), ..line }
            .but(Standing::Missing, why.clone())
            .open("no rig is served by these settings")
            .get_by("what the sentence says; THERMITE_GPUS names the cards, THERMITE_NVML_LIB a library that lies elsewhere"),
    }
}

fn of_driver(found: &Abilities) -> Finding {
    let has_nodes = !found.cards.nodes.is_empty();
    match &found.card_driver {
        CardDriverFacts::NoLibrary { .. } if !has_nodes => ok(Ability::CardReadings, "no card and no driver here"),
        CardDriverFacts::NoLibrary { why } | CardDriverFacts::AtFault { why } => ok(Ability::CardReadings, "none")
            .but(Standing::Missing, why.clone())
            .open("no rig is served on cards")
            .get_by("what the sentence says; THERMITE_NVML_LIB names a library that lies elsewhere"),
        CardDriverFacts::Answers { version, cards } => {
            let told: Vec<String> = cards.iter().map(CardSaid::in_words).collect();
            let told = if told.is_empty() { "no card".to_owned() } else { told.join("; ") };
            let line = ok(Ability::CardReadings, format!("driver {version}; {told}"));
            let faults: Vec<&str> =
                cards.iter().filter_map(|card| card.untold.as_ref().err().map(String::as_str)).collect();
            if faults.is_empty() {
                return line;
            }
            line.but(Standing::Degraded, faults.join("; "))
                .open("nothing is measured on those cards while it is so")
                .get_by("what the sentence of each says; a card of a rig is back by itself once it answers, one that could not be \
                         described when the rig started is the rig's from its next start on")
        }
    }
}

impl CardSaid {
    fn in_words(&self) -> String {
        let CardSaid { index, name, untold } = self;
        match untold {
            Ok(untold) if untold.is_empty() => format!("card {index}: {name}, tells everything"),
            Ok(untold) => format!("card {index}: {name}, does not tell {}", untold.join(", ")),
            Err(_) => format!("card {index}: {name}, cannot be read"),
        }
    }
}
