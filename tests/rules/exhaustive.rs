//! Every order of messages, deadlines and faults of one shared device's machines, within stated bounds.
//!
//! The machines are the product's own; around them everything else is an environment that does what it may in any
//! order (`rig`). `graph` walks all of it; stateright walks the smallest set-up and the mutants as a second opinion.
//! `docs/protocol.md` lists the set-ups with their numbers.

mod cards;
mod graph;
mod known;
mod model;
mod mutants;
mod rig;

use stateright::{Checker, Model};

use graph::explore;
use model::World;
use mutants::Mutant;
use rig::properties::{EXCLUSIVE, HELD_BY_NONE, JUDGE_FIRST, POOL_KNOWS, RECORDED_FIRST};
use rig::{Budgets, Rig, Setup, Step};

/// More states than any set-up has: one that grows beyond is to be thought over, not waited for.
const STATES_MOST: usize = 2_000_000;

#[test]
fn one_job_and_one_lane_with_every_result() {
    let budgets = Budgets { infrastructure: 1, ..Budgets::default() };
    holds(&Setup { all_results: true, budgets, ..asynchronous("1 job, 1 lane, every result", 1, 1) });
}

#[test]
fn a_cancel_and_a_stop_that_is_not_proved() {
    let budgets = Budgets { cancels: 1, not_proved: 1, ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("1 job, 1 lane, cancel, not proved", 1, 1) });
}

#[test]
fn a_caller_that_drops_and_leftovers_that_are_not_swept() {
    let budgets = Budgets { drops: 1, not_proved: 1, not_swept: 1, ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("1 job, 1 lane, caller drops, not proved, not swept", 1, 1) });
}

#[test]
fn a_deadline_that_passes_while_letters_are_on_their_way() {
    let budgets = Budgets { late: 1, ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("1 job, 1 lane, late deadline", 1, 1) });
}

#[test]
fn a_rig_that_is_killed() {
    let budgets = Budgets { kills: 1, ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("1 job, 1 lane, kill", 1, 1) });
}

#[test]
fn records_that_refuse() {
    let budgets = Budgets { not_recorded: 1, pauses: 1, hasty: Some(1), ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("1 job, 1 lane, pause, records refuse once", 1, 1) });
}

#[test]
fn a_run_that_is_paused_and_resumed() {
    let budgets = Budgets { pauses: 1, ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("1 job, 1 lane, pause", 1, 1) });
}

#[test]
fn a_run_that_ends() {
    let budgets = Budgets { ends: 1, cancels: 1, hasty: Some(3), ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("1 job, 1 lane, end of the run, cancel", 1, 1) });
}

#[test]
fn a_kill_among_pauses_cancels_and_failures() {
    let budgets = Budgets { kills: 1, pauses: 1, cancels: 1, infrastructure: 1, hasty: Some(0), ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("1 job, 1 lane, kill, pause, cancel, infrastructure", 1, 1) });
}

#[test]
fn two_lanes_that_cancel_late_and_cannot_be_proved_gone() {
    let budgets = Budgets { cancels: 1, late: 1, not_proved: 1, not_started: 1, hasty: Some(2), ..Budgets::default() };
    holds(&Setup { budgets, ..asynchronous("2 lanes, cancel, late deadline, not proved, not started", 2, 0) });
}

#[test]
fn a_lane_that_asks_again_and_again() {
    let budgets = Budgets { cancels: 1, late: 1, hasty: Some(1), ..Budgets::default() };
    holds(&Setup { asks: 3, budgets, ..prompt_records("1 job, 1 lane asking 3 times, cancel, late deadline", 1, 1) });
}

#[test]
fn one_job_and_three_lanes_with_a_cancel() {
    let budgets = Budgets { cancels: 1, hasty: Some(2), ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("1 job, 3 lanes, cancel", 3, 1) });
}

#[test]
fn one_job_and_three_lanes_with_a_kill() {
    let budgets = Budgets { kills: 1, hasty: Some(0), ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("1 job, 3 lanes, kill", 3, 1) });
}

#[test]
fn two_jobs_and_three_lanes() {
    let budgets = Budgets { hasty: Some(1), ..Budgets::default() };
    holds(&Setup { budgets, ..prompt_records("2 jobs, 3 lanes", 3, 2) });
}

#[test]
fn two_jobs_and_three_lanes_with_a_pause_and_a_failure() {
    let budgets = Budgets { pauses: 1, infrastructure: 1, hasty: Some(0), ..Budgets::default() };
    holds(&Setup { prompt: true, budgets, ..prompt_records("2 jobs, 3 lanes, pause, infrastructure", 3, 2) });
}

#[test]
fn stateright_counts_the_same_states() {
    let setup = asynchronous("1 job, 1 lane", 1, 1);
    let found = explore::<Rig>(&setup, STATES_MOST);

    let checker = World(setup).checker().threads(1).spawn_bfs().join();

    assert!(checker.discoveries().is_empty());
    assert_eq!(checker.unique_state_count(), found.states);
    println!("1 job, 1 lane: {} states, {} steps, by stateright and by our own pass", found.states, found.edges);
}

#[test]
fn mutant_freed_when_the_stop_is_sent_is_found() {
    let setup = asynchronous("a device freed when the stop is sent", 2, 0);
    breaks(Mutant::FreedWhenStopIsSent, setup, &[EXCLUSIVE, POOL_KNOWS]);
}

#[test]
fn mutant_hold_ended_before_the_pool_took_the_work_is_found() {
    let setup = asynchronous("a stage's hold ended before the pool took the work, running stages untold", 1, 1);
    breaks(Mutant::HoldEndsBeforeWorkUntold, setup, &[JUDGE_FIRST]);
}

#[test]
fn either_half_of_that_mutant_alone_does_no_harm() {
    for mutant in [Mutant::HoldEndsBeforeWork, Mutant::RunningStagesUntold] {
        holds(&Setup { mutant, ..asynchronous("1 job, 1 lane, half a mutant", 1, 1) });
    }
}

#[test]
fn mutant_grant_before_the_first_work_is_found() {
    let budgets = Budgets { kills: 1, ..Budgets::default() };
    let setup = Setup { budgets, ..asynchronous("a grant before the judge's first work", 1, 1) };
    breaks(Mutant::GrantsBeforeFirstWork, setup, &[JUDGE_FIRST]);
}

#[test]
fn mutant_lane_that_forgets_to_release_is_found() {
    let budgets = Budgets { cancels: 1, ..Budgets::default() };
    let setup = Setup { budgets, ..asynchronous("a lane that forgets to release", 1, 0) };
    breaks(Mutant::LaneForgetsRelease, setup, &[HELD_BY_NONE]);
}

#[test]
fn mutant_stale_freed_is_found() {
    let setup = asynchronous("a stale `Freed` that frees the next holder", 2, 0);
    breaks(Mutant::StaleFreedFreesNext, setup, &[POOL_KNOWS]);
}

#[test]
fn mutant_records_that_answer_too_early_are_found() {
    let setup = asynchronous("records that answer before the disk has it", 1, 1);
    breaks(Mutant::AcksBeforeDurable, setup, &[RECORDED_FIRST]);
}

#[test]
fn mutant_lost_answer_of_the_pool_is_found_by_the_way_to_the_end() {
    let setup = Setup {
        mutant: Mutant::WorkTakenIsLost,
        ..asynchronous("what the pool took is never told to the judge", 0, 1)
    };

    let found = explore::<Rig>(&setup, STATES_MOST);

    let story = found.lost.expect("a job that is never answered has no end");
    println!("mutant: {}\n  the end cannot be reached after", setup.name);
    tell(&setup, &story);
}

mod several_cards {
    use thermite_core::pool::Discipline;

    use super::STATES_MOST;
    use super::cards::{Cards, ELSEWHERE, IN_FORCE, Mutant, POOL_KNOWS, SIDES, Setup};
    use super::graph::{World, explore};

    const JUDGE: Discipline = Discipline::JudgeOnly;
    const AGENTS: Discipline = Discipline::LanesOnly;
    const SHARED: Discipline = Discipline::JudgeFirst;
    const IDLE: Discipline = Discipline::Idle;

    #[test]
    fn two_cards_that_are_split() {
        holds(&Setup { jobs: 2, lanes: 2, hasty: 2, ..of("2 cards, 2 jobs, 2 lanes", &[JUDGE, AGENTS]) });
    }

    #[test]
    fn a_split_that_changes_sides_under_way() {
        let splits = vec![vec![AGENTS, JUDGE]];
        holds(&Setup { splits, hasty: 2, ..of("2 cards change sides, 1 job, 1 lane", &[JUDGE, AGENTS]) });
    }

    #[test]
    fn a_split_that_changes_sides_under_two_lanes() {
        let splits = vec![vec![AGENTS, JUDGE]];
        holds(&Setup { splits, lanes: 2, hasty: 2, ..of("2 cards change sides, 1 job, 2 lanes", &[JUDGE, AGENTS]) });
    }

    #[test]
    fn cards_that_are_shared_and_split_again() {
        let splits = vec![vec![SHARED, SHARED], vec![AGENTS, JUDGE]];
        holds(&Setup { splits, hasty: 2, ..of("2 cards shared, then split, 1 job, 1 lane", &[JUDGE, AGENTS]) });
    }

    #[test]
    fn two_splits_of_which_the_latest_wins_with_a_bench() {
        let splits = vec![vec![AGENTS, JUDGE], vec![JUDGE, AGENTS]];
        let name = "2 cards and a bench, 2 new splits, 1 job, 1 lane";
        holds(&Setup { splits, bench: true, hasty: 1, ..of(name, &[JUDGE, AGENTS]) });
    }

    #[test]
    fn a_card_that_is_drained_while_the_split_changes() {
        let splits = vec![vec![AGENTS, JUDGE]];
        holds(&Setup {
            splits,
            drains: 1,
            hasty: 1,
            ..of("2 cards change sides, drain, 1 job, 1 lane", &[JUDGE, AGENTS])
        });
    }

    #[test]
    fn a_card_at_fault_beside_one_that_is_well() {
        holds(&Setup { faults: 1, hasty: 1, ..of("2 cards, a fault, 1 job, 1 lane", &[JUDGE, AGENTS]) });
    }

    #[test]
    fn a_split_that_changes_sides_with_a_late_deadline() {
        let splits = vec![vec![AGENTS, JUDGE]];
        let name = "2 cards change sides, late deadline, 1 job, 1 lane";
        holds(&Setup { splits, late: 1, hasty: 1, ..of(name, &[JUDGE, AGENTS]) });
    }

    #[test]
    fn a_card_at_fault_while_the_split_changes() {
        let splits = vec![vec![AGENTS, JUDGE]];
        holds(&Setup {
            splits,
            faults: 1,
            hasty: 1,
            ..of("2 cards change sides, a fault, 1 job, 1 lane", &[JUDGE, AGENTS])
        });
    }

    #[test]
    fn two_jobs_on_two_judges_cards_with_a_bench() {
        let name = "3 cards and a bench, 2 jobs, infrastructure";
        holds(&Setup { bench: true, jobs: 2, lanes: 0, failures: 1, hasty: 1, ..of(name, &[JUDGE, JUDGE, AGENTS]) });
    }

    #[test]
    fn two_judges_cards_of_which_one_is_drained_or_at_fault() {
        let name = "2 judge's cards, drain, a fault, 2 jobs";
        holds(&Setup { jobs: 2, lanes: 0, drains: 1, faults: 1, hasty: 1, ..of(name, &[JUDGE, JUDGE]) });
    }

    #[test]
    fn cards_that_are_left_idle() {
        let splits = vec![vec![JUDGE, IDLE, AGENTS]];
        holds(&Setup { splits, hasty: 1, ..of("3 cards, one left idle, 1 job, 1 lane", &[JUDGE, AGENTS, AGENTS]) });
    }

    #[test]
    fn mutant_members_that_move_before_their_holds_are_over_are_found() {
        let splits = vec![vec![AGENTS, JUDGE]];
        let setup = Setup { splits, mutant: Mutant::MovesEarly, ..of("members move early", &[JUDGE, AGENTS]) };
        breaks(&setup, &[POOL_KNOWS, SIDES]);
    }

    #[test]
    fn mutant_split_that_is_answered_when_asked_for_is_found() {
        let splits = vec![vec![AGENTS, JUDGE]];
        let setup =
            Setup { splits, mutant: Mutant::AnsweredEarly, ..of("a split is answered early", &[JUDGE, AGENTS]) };
        breaks(&setup, &[IN_FORCE]);
    }

    #[test]
    fn mutant_confirmation_that_forgets_its_screening_is_found() {
        let mutant = Mutant::ForgetsScreening;
        let setup = Setup { lanes: 0, jobs: 2, mutant, ..of("a confirmation forgets its screening", &[JUDGE, JUDGE]) };
        breaks(&setup, &[ELSEWHERE]);
    }

    #[test]
    fn mutant_undrain_that_is_lost_is_found_by_the_way_to_the_end() {
        let mutant = Mutant::UndrainIsLost;
        let setup = Setup { lanes: 0, drains: 1, mutant, ..of("an undrain is lost", &[JUDGE, AGENTS]) };

        let found = explore::<Cards>(&setup, STATES_MOST);

        assert!(found.stuck.is_some() || found.lost.is_some(), "a job beside a card that stays drained has no end");
    }

    /// These cards with one job and one lane, and nothing that need not be.
    fn of(name: &'static str, cards: &[Discipline]) -> Setup {
        Setup {
            name,
            cards: cards.to_vec(),
            bench: false,
            lanes: 1,
            jobs: 1,
            splits: Vec::new(),
            drains: 0,
            faults: 0,
            failures: 0,
            hasty: 0,
            late: 0,
            mutant: Mutant::None,
        }
    }

    fn holds(setup: &Setup) {
        let found = explore::<Cards>(setup, STATES_MOST);

        println!("{}: {} states, {} steps, depth {}", setup.name, found.states, found.edges, found.depth);
        for (property, story) in &found.broken {
            println!("broken: {property}\n  {story:?}");
        }
        for (what, story) in [("stuck", &found.stuck), ("the end cannot be reached", &found.lost)] {
            if let Some(story) = story {
                println!("{what}:\n  {story:?}");
                tell(setup, story);
            }
        }
        assert!(found.broken.is_empty(), "a property is broken");
        assert!(found.complete, "the set-up has more than {STATES_MOST} states");
        assert_eq!(found.stuck, None, "nothing can happen although not all has ended");
        assert_eq!(found.lost, None, "the end cannot be reached from everywhere");
    }

    fn breaks(setup: &Setup, by: &[&str]) {
        let found = explore::<Cards>(setup, STATES_MOST);

        let (property, story) =
            found.broken.iter().find(|(property, _)| by.contains(property)).expect("the mutant is found");
        println!("mutant: {}\n  breaks: {property}\n  {story:?}", setup.name);
    }

    /// Where a story leads to.
    fn tell(setup: &Setup, story: &[<Cards as World>::Step]) {
        let mut cards = Cards::fresh(setup);
        for step in story {
            cards = cards.after(setup, *step);
        }
        println!("  {cards:?}");
    }
}

/// Letters and appends take as long as they like.
fn asynchronous(name: &'static str, lanes: u8, jobs: u8) -> Setup {
    Setup {
        name,
        lanes,
        jobs,
        asks: 1,
        budgets: Budgets::default(),
        slow_records: true,
        prompt: false,
        all_results: false,
        mutant: Mutant::None,
    }
}

/// Letters take as long as they like, appends no time.
fn prompt_records(name: &'static str, lanes: u8, jobs: u8) -> Setup {
    Setup { slow_records: false, ..asynchronous(name, lanes, jobs) }
}

fn holds(setup: &Setup) {
    let found = explore::<Rig>(setup, STATES_MOST);

    println!("{}: {} states, {} steps, depth {}", setup.name, found.states, found.edges, found.depth);
    for (property, story) in &found.broken {
        println!("broken: {property}");
        tell(setup, story);
    }
    for (what, story) in [("stuck", &found.stuck), ("the end cannot be reached", &found.lost)] {
        if let Some(story) = story {
            println!("{what}:");
            tell(setup, story);
        }
    }
    assert!(found.broken.is_empty(), "a property is broken");
    assert!(found.complete, "the set-up has more than {STATES_MOST} states");
    assert_eq!(found.stuck, None, "nothing can happen although not all has ended");
    assert_eq!(found.lost, None, "the end cannot be reached from everywhere");
}

/// Asserts that stateright finds the mutant by one of these properties, and tells its shortest story.
fn breaks(mutant: Mutant, setup: Setup, by: &[&str]) {
    let setup = Setup { mutant, ..setup };

    let checker = World(setup.clone())
        .checker()
        .threads(1)
        .finish_when(stateright::HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();

    let discoveries = checker.discoveries();
    let (property, path) = discoveries.into_iter().find(|(name, _)| by.contains(name)).expect("the mutant is found");
    println!("mutant: {}\n  breaks: {property}", setup.name);
    tell(&setup, &path.into_actions());
}

fn tell(setup: &Setup, story: &[Step]) {
    let mut rig = Rig::fresh(setup);
    for step in story {
        println!("  {}", rig.tell(*step));
        rig = rig.after(setup, *step);
    }
}
