//! The split: which cards are the judge's and which the agents' (rules B1, B8).

use thermite_core::ids::MemberId;
use thermite_core::pool::Discipline;
use thermite_core::refusal::Refusal;
use thermite_core::split::{CardFact, IdleWhy, Split, SplitAsk, at_start, plan};

#[test]
fn one_card_is_shared_and_so_is_none() {
    let one = plan(&cards(&["a"]), &SplitAsk::Default).unwrap();

    assert_eq!((one.shared, places(&one.judge), places(&one.agents)), (true, vec![0], vec![0]));
    assert_eq!(one.discipline(MemberId(0)), Discipline::JudgeFirst);
    assert_eq!(plan(&[], &SplitAsk::Default).unwrap(), Split { shared: true, ..Split::default() });
}

#[test]
fn the_judge_gets_half_rounded_up_and_the_lowest_numbered() {
    let of = |count: usize| {
        let split = plan(&cards(&vec!["a"; count]), &SplitAsk::Default).unwrap();
        assert!(!split.shared);
        (split.judge.len(), split.agents.len(), split.idle.len(), split.judge.last().map(|last| last.0))
    };

    assert_eq!(of(2), (1, 1, 0, Some(0)));
    assert_eq!(of(3), (2, 1, 0, Some(1)));
    assert_eq!(of(8), (4, 4, 0, Some(3)));
    assert_eq!(of(15), (8, 7, 0, Some(7)));
    assert_eq!(of(16), (8, 8, 0, Some(7)));
}

#[test]
fn more_cards_than_both_sides_may_have_stay_idle() {
    let split = plan(&cards(&["a"; 19]), &SplitAsk::Default).unwrap();

    assert_eq!((split.judge.len(), split.agents.len()), (8, 8));
    assert_eq!(split.idle.iter().map(|idle| idle.member.0).collect::<Vec<_>>(), [16, 17, 18]);
    assert!(split.idle.iter().all(|idle| idle.why == IdleWhy::BeyondMost));
    assert_eq!(split.discipline(MemberId(16)), Discipline::Idle);
}

#[test]
fn a_split_in_any_order_of_the_list_goes_by_the_numbers() {
    let mut shuffled = cards(&["a"; 4]);
    shuffled.reverse();

    let split = plan(&shuffled, &SplitAsk::Default).unwrap();

    assert_eq!((places(&split.judge), places(&split.agents)), (vec![0, 1], vec![2, 3]));
}

#[test]
fn a_set_split_is_as_it_is_set_and_leaves_the_others_idle() {
    let split = plan(&cards(&["a"; 4]), &set(&["card-3", "card-0"], &["card-1"])).unwrap();

    assert_eq!((places(&split.judge), places(&split.agents)), (vec![3, 0], vec![1]));
    assert_eq!(
        split.idle.iter().map(|idle| (idle.member.0, idle.why.clone())).collect::<Vec<_>>(),
        [(2, IdleWhy::LeftOut)]
    );
    assert_eq!(split.discipline(MemberId(3)), Discipline::JudgeOnly);
    assert_eq!(split.discipline(MemberId(1)), Discipline::LanesOnly);
    assert_eq!(split.discipline(MemberId(2)), Discipline::Idle);
}

#[test]
fn all_cards_may_be_shared_by_choice() {
    let split = plan(&cards(&["a"; 3]), &SplitAsk::Shared).unwrap();

    assert!(split.shared);
    assert_eq!((places(&split.judge), places(&split.agents)), (vec![0, 1, 2], vec![0, 1, 2]));
    assert!((0..3).all(|at| split.discipline(MemberId(at)) == Discipline::JudgeFirst));
}

#[test]
fn a_split_that_cannot_be_is_refused_with_the_reason() {
    let nine: Vec<String> = (0..9).map(|at| format!("card-{at}")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    for (ask, why) in [
        (set(&[], &["card-1"]), "the side `judge` has no card"),
        (set(&["card-1"], &[]), "the side `agents` has no card"),
        (set(&["card-1"], &["card-1"]), "card card-1 is on both sides"),
        (set(&["card-1", "card-1"], &["card-2"]), "card card-1 is named twice for the side `judge`"),
        (set(&nine, &["card-9"]), "the side `judge` has 9 cards; at most 8"),
        (set(&["card-9"], &nine), "the side `agents` has 9 cards; at most 8"),
    ] {
        let refused = plan(&cards(&["a"; 10]), &ask);

        assert_eq!(refused, Err(Refusal::BadSplit { why: why.to_owned() }));
    }
    let unknown = plan(&cards(&["a"; 2]), &set(&["GPU-7"], &["card-1"])).unwrap_err();
    assert_eq!(unknown.to_string(), "the split cannot be: card GPU-7 is not there: this rig has card-0, card-1");
}

#[test]
fn of_the_judges_cards_of_several_models_only_the_first_judges() {
    let mixed = cards(&["a", "b", "a", "c"]);
    let set_last_first = set(&["card-3", "card-0"], &["card-1"]);

    let split = plan(&mixed, &SplitAsk::Default).unwrap();
    let set = plan(&mixed, &set_last_first).unwrap();
    let shared = plan(&mixed, &SplitAsk::Shared).unwrap();

    let idle = |split: &Split| split.idle.iter().map(|idle| idle.member.0).collect::<Vec<_>>();
    assert_eq!((places(&split.judge), places(&split.agents), idle(&split)), (vec![0], vec![2, 3], vec![1]));
    assert_eq!(
        split.idle[0].why.to_string(),
        "the judge's cards are of several models: only the first, card-0 (a), judges"
    );
    assert_eq!((places(&set.judge), idle(&set)), (vec![3], vec![0, 2]));
    assert_eq!((places(&shared.judge), places(&shared.agents), idle(&shared)), (vec![0], vec![0], vec![1, 2, 3]));
}

#[test]
fn the_agents_cards_may_be_of_any_model() {
    let split = plan(&cards(&["a", "a", "b", "c"]), &SplitAsk::Default).unwrap();

    assert_eq!((split.judge.len(), split.agents.len(), split.idle.len()), (2, 2, 0));
}

#[test]
fn a_set_split_whose_cards_are_gone_at_a_start_gives_way_to_the_default_and_says_so() {
    let there = cards(&["a"; 3]);

    let (kept, nothing) = at_start(&there, &set(&["card-2"], &["card-0"]));
    let (other, note) = at_start(&there, &set(&["card-7"], &["card-0"]));

    assert_eq!((places(&kept.judge), nothing), (vec![2], None));
    assert_eq!((places(&other.judge), places(&other.agents)), (vec![0, 1], vec![2]));
    assert_eq!(
        note.unwrap(),
        "the split that was set cannot be: card card-7 is not there: this rig has card-0, card-1, \
         card-2; the default one is in force"
    );
}

#[test]
fn every_card_is_somewhere_once_whatever_is_asked() {
    for count in 0..20 {
        for ask in [SplitAsk::Default, SplitAsk::Shared] {
            let all = cards(&vec!["a"; count]);
            let split = plan(&all, &ask).unwrap();

            let mut seen: Vec<MemberId> = split.judge.clone();
            if !split.shared {
                seen.extend(&split.agents);
            }
            seen.extend(split.idle.iter().map(|idle| idle.member));
            seen.sort_unstable();
            assert_eq!(seen, all.iter().map(|card| card.member).collect::<Vec<_>>(), "{count} cards, {ask:?}");
        }
    }
}

fn cards(models: &[&str]) -> Vec<CardFact> {
    (0..)
        .zip(models)
        .map(|(at, model)| CardFact { member: MemberId(at), uuid: format!("card-{at}"), model: (*model).to_owned() })
        .collect()
}

fn set(judge: &[&str], agents: &[&str]) -> SplitAsk {
    let all = |side: &[&str]| side.iter().map(|uuid| (*uuid).to_owned()).collect();
    SplitAsk::Cards { judge: all(judge), agents: all(agents) }
}

fn places(members: &[MemberId]) -> Vec<u16> {
    members.iter().map(|member| member.0).collect()
}
