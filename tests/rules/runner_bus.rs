//! Core and runners over a bus that drops, delays up to 61 s, doubles and reorders, while both sides die and come back:
//! what holds whatever comes, and that all ends once faults stop.
//!
//! The machines are the real ones; bus, disks, processes and clocks are played here, in virtual time.
//! `THERMITE_BUS_SEEDS=0..10000 cargo test -p thermite-tests-rules runner_bus` tries others.

use std::ops::Range;

use thermite_core::time::Span;

mod world;

use world::{Ended, Mutant, World};

/// Seeds that are tried every time, those of former failures among them.
const SEEDS: Range<u64> = 0..300;
/// Seeds within which each mutant is caught.
const MUTANT_SEEDS: Range<u64> = 0..300;
/// For how long faults happen.
const FAULTS: Span = Span::minutes(6);
/// Within this all ends once faults have stopped, whatever was under way then.
const ENDS_WITHIN: Span = Span::minutes(20);

#[test]
fn whatever_the_bus_does_nothing_runs_twice_and_all_ends_once_faults_stop() {
    let seeds = seeds(SEEDS);
    let mut all = Ended::default();
    for seed in seeds.clone() {
        let ended = World::new(seed, Mutant::None).run(FAULTS, ENDS_WITHIN);
        match ended {
            Ok(ended) => all.add(&ended),
            Err(story) => panic!("seed {seed}: {story}"),
        }
    }
    println!("seeds {seeds:?}: {all:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(all.begun > 0 && all.verdicts > 0 && all.exits > 0, "{all:?}");
    assert!(all.lost > 0 && all.handed_on > 0 && all.core_deaths > 0 && all.runner_deaths > 0, "{all:?}");
}

#[test]
fn one_seed_gives_one_course_of_events() {
    for seed in 0..20 {
        let first = World::new(seed, Mutant::None).run(FAULTS, ENDS_WITHIN);
        let second = World::new(seed, Mutant::None).run(FAULTS, ENDS_WITHIN);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn a_runner_that_does_not_honour_its_lease_is_caught() {
    assert_caught(Mutant::SlowClock);
}

#[test]
fn work_that_is_handed_on_when_its_runner_goes_away_is_caught() {
    assert_caught(Mutant::HandOnAtAway);
}

#[test]
fn an_end_told_before_its_proof_is_caught() {
    assert_caught(Mutant::StopWithoutProof);
}

fn assert_caught(mutant: Mutant) {
    let caught = MUTANT_SEEDS.clone().find_map(|seed| match World::new(seed, mutant).run(FAULTS, ENDS_WITHIN) {
        Ok(_) => None,
        Err(story) => Some((seed, story)),
    });
    let (seed, story) = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught in {MUTANT_SEEDS:?}"));
    println!("{mutant:?}, seed {seed}: {story}");
    assert!(story.contains("while it runs") || story.contains("at once"), "{story}");
}

fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var("THERMITE_BUS_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").expect("a range of seeds is written as 10..20");
            from.parse().expect("the first seed is a number")..to.parse().expect("the last seed is a number")
        }
        Err(_) => usual,
    }
}
