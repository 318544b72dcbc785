//! Every order of messages, deadlines and faults of one shared device's machines, within stated bounds.
//!
//! The machines are the product's own; `docs/protocol.md` lists the set-ups and what they found.

mod graph;
mod known;
mod mutants;
mod rig;

use graph::{Found, explore};
use mutants::Mutant;
use rig::{Budgets, Rig, Setup, Step};

fn setup(name: &'static str, lanes: u8, jobs: u8) -> Setup {
    Setup {
        name,
        lanes,
        jobs,
        asks: 1,
        budgets: Budgets::default(),
        slow_records: true,
        all_results: false,
        mutant: Mutant::None,
    }
}

fn check(setup: &Setup) {
    let begun = std::time::Instant::now();
    let found = explore(setup, 6_000_000);
    println!(
        "{}: {} states, {} steps, depth {}, {:.1} s",
        setup.name,
        found.states,
        found.edges,
        found.depth,
        begun.elapsed().as_secs_f64()
    );
    for (property, story) in &found.broken {
        println!("  broken: {property}");
        tell(setup, story);
    }
    if let Some(story) = &found.stuck {
        println!("  stuck");
        tell(setup, story);
    }
    if let Some(story) = &found.lost {
        println!("  the end cannot be reached");
        tell(setup, story);
    }
    assert!(found.complete && found.broken.is_empty() && found.stuck.is_none() && found.lost.is_none());
}

fn tell(setup: &Setup, story: &[Step]) {
    let mut rig = Rig::fresh(setup);
    for step in story {
        println!("    {}", rig.tell(*step));
        rig = rig.after(setup, *step);
    }
    if std::env::var("SHOW").is_ok() {
        println!("{rig:?}");
    }
}

#[test]
fn smallest() {
    check(&setup("1 job, 1 lane", 1, 1));
}
#[test]
fn smallest2() {
    check(&setup("1 job, 2 lanes", 2, 1));
}
#[test]
fn smallest3() {
    check(&Setup { budgets: Budgets { cancels: 1, ..Budgets::default() }, ..setup("1 job, 1 lane, cancel", 1, 1) });
}
