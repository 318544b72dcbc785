//! Every order of messages, deadlines and faults of one shared device's machines, within stated bounds.
//!
//! The machines are the product's own; around them everything else is an environment that does what it may in any
//! order (`rig`). `graph` walks all of it; stateright walks the smallest set-up and the mutants as a second opinion.
//! `docs/protocol.md` lists the set-ups with their numbers.

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
    let found = explore(&setup, STATES_MOST);

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

    let found = explore(&setup, STATES_MOST);

    let story = found.lost.expect("a job that is never answered has no end");
    println!("mutant: {}\n  the end cannot be reached after", setup.name);
    tell(&setup, &story);
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
    let found = explore(setup, STATES_MOST);

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
