//! Which of the machine's GPUs a rig takes: values in, values out.

use thermite_actors::host::gpu::{CardFacts, UnreadableCard};
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
