//! Rule B4: each judge's card has CPUs near it that no other card has, and something is left for everything else.

use std::collections::BTreeSet;

use proptest::prelude::*;
use thermite_core::cpus::{CpuCut, CpuList, Nearness, cut};

fn list(text: &str) -> CpuList {
    text.parse().expect("the tests write lists")
}

fn near(texts: &[&str]) -> Vec<Option<CpuList>> {
    texts.iter().map(|text| (*text != "?").then(|| CpuList::read(text).unwrap_or_default())).collect()
}

/// `CPUS nearness own|shared` of each card, and the rest.
fn told(cut: &CpuCut) -> Vec<String> {
    let cards = cut.cards.iter().map(|card| {
        let nearness = match card.nearness {
            Nearness::Near => "near",
            Nearness::Far => "far",
            Nearness::Unknown => "unknown",
        };
        format!("{} {nearness} {}", card.cpus, if card.is_own { "own" } else { "shared" })
    });
    cards.chain([format!("others {}", cut.others)]).collect()
}

#[test]
fn cards_of_two_nodes_get_cpus_of_their_own_node_and_half_is_left() {
    let found = cut(&list("0-15"), &[], &near(&["0-7", "0-7", "8-15", "8-15"]));

    assert_eq!(told(&found), ["0,2 near own", "1,3 near own", "8,10 near own", "9,11 near own", "others 4-7,12-15"]);
}

#[test]
fn one_card_leaves_half_rounded_down_to_the_rest() {
    for (allowed, card, others) in [("0-7", "0-3", "4-7"), ("0-2", "0-1", "2"), ("0-1", "0", "1"), ("5", "5", "")] {
        let found = cut(&list(allowed), &[], &near(&["?"]));

        assert_eq!(told(&found), [format!("{card} unknown own"), format!("others {others}")]);
    }
}

#[test]
fn who_has_few_close_cpus_chooses_first() {
    let found = cut(&list("0-3"), &[], &near(&["?", "0-2", "0"]));

    assert_eq!(told(&found), ["2 unknown own", "1 near own", "0 near own", "others 3"]);
}

#[test]
fn fewer_cpus_than_cards_are_shared_and_said_to_be() {
    let found = cut(&list("0-1"), &[], &near(&["0-1", "0-1", "0-1"]));

    assert_eq!(told(&found), ["0 near shared", "1 near own", "0 near shared", "others "]);
}

#[test]
fn cards_whose_node_is_full_or_may_not_be_used_get_far_cpus_and_say_so() {
    let full = cut(&list("0-3"), &[], &near(&["0", "0"]));
    let barred = cut(&list("0-3"), &[], &near(&["8-15", "0-3"]));
    let no_node = cut(&list("0-3"), &[], &[Some(CpuList::default())]);

    assert_eq!(told(&full), ["0 near own", "1 far own", "others 2-3"]);
    assert_eq!(told(&barred), ["1 far own", "0 near own", "others 2-3"]);
    assert_eq!(told(&no_node), ["0 far own", "others 1-3"]);
}

#[test]
fn two_threads_of_one_core_never_go_into_two_hands() {
    let threads = ["0,4", "1,5", "2,6", "3,7"].map(list);

    let found = cut(&list("0-7"), &threads, &near(&["?", "?"]));
    let narrowed = cut(&list("0-3,7"), &threads, &near(&["?"]));

    assert_eq!(told(&found), ["0,4 unknown own", "1,5 unknown own", "others 2-3,6-7"]);
    assert_eq!(told(&narrowed), ["0-1 unknown own", "others 2-3,7"]);
}

#[test]
fn without_cards_all_is_left() {
    assert_eq!(told(&cut(&list("0-3"), &[], &[])), ["others 0-3"]);
}

#[test]
fn a_list_is_read_as_it_is_written() {
    let json = serde_json::to_string(&list("0-3,8")).unwrap();
    assert_eq!(json, "\"0-3,8\"");
    assert_eq!(serde_json::from_str::<CpuList>(&json).unwrap(), list("0-3,8"));
    assert_eq!(serde_json::from_str::<CpuList>("\"\"").unwrap(), CpuList::default());
    assert!(serde_json::from_str::<CpuList>("\"3-1\"").is_err());
}

proptest! {
    #[test]
    fn a_cut_gives_every_card_allowed_cpus_that_are_its_own_where_there_are_enough(
        allowed in proptest::collection::btree_set(0u32..24, 1..24),
        threads in prop_oneof![Just(1u32), Just(12)],
        cards in proptest::collection::vec(proptest::option::of((0u32..24, 1u32..24)), 0..9),
    ) {
        let allowed = CpuList(allowed);
        let cores: Vec<CpuList> = match threads {
            1 => Vec::new(),
            apart => (0..apart).map(|cpu| CpuList(BTreeSet::from([cpu, cpu + apart]))).collect(),
        };
        let near: Vec<Option<CpuList>> =
            cards.iter().map(|card| card.map(|(from, many)| CpuList((from..from + many).collect()))).collect();

        let found = cut(&allowed, &cores, &near);

        prop_assert_eq!(&found, &cut(&allowed, &cores, &near));
        let core_of = |cpu: u32| if threads == 1 { cpu } else { cpu % threads };
        let cores_of = |cpus: &CpuList| cpus.0.iter().map(|cpu| core_of(*cpu)).collect::<BTreeSet<u32>>();
        let enough = cores_of(&allowed).len() >= near.len();
        prop_assert_eq!(found.cards.len(), near.len());
        let mut seen = cores_of(&found.others);
        prop_assert!(found.others.without(&allowed).is_empty());
        prop_assert!(!found.others.is_empty() || cores_of(&allowed).len() <= near.len());
        for (card, near) in found.cards.iter().zip(&near) {
            prop_assert!(!card.cpus.is_empty() && card.cpus.without(&allowed).is_empty());
            prop_assert!(card.is_own || !enough);
            if card.is_own {
                for core in cores_of(&card.cpus) {
                    prop_assert!(seen.insert(core), "core {} twice", core);
                }
            }
            let close = near.as_ref().map(|near| cores_of(&near.both(&allowed)));
            let expected = match &close {
                None => Nearness::Unknown,
                Some(close) if cores_of(&card.cpus).is_subset(close) => Nearness::Near,
                Some(_) => Nearness::Far,
            };
            prop_assert_eq!(card.nearness, expected);
        }
    }
}
