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
        prompt_lanes: false,
        all_results: false,
        mutant: Mutant::None,
    }
}

fn check_most(setup: &Setup, most: usize) {
    let begun = std::time::Instant::now();
    let found = explore(setup, most);
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
fn tries() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for part in only.split(';') {
        let mut s = setup("x", 1, 1);
        s.name = Box::leak(part.to_owned().into_boxed_str());
        let mut most = 3_000_000;
        for word in part.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            let n: u8 = value.parse().unwrap();
            let b = &mut s.budgets;
            match key {
                "lanes" => s.lanes = n,
                "jobs" => s.jobs = n,
                "asks" => s.asks = n,
                "fast" => s.slow_records = false,
                "prompt" => s.prompt_lanes = true,
                "all" => s.all_results = true,
                "cancel" => b.cancels = n,
                "drop" => b.drops = n,
                "pause" => b.pauses = n,
                "end" => b.ends = n,
                "noproof" => b.not_proved = n,
                "nosweep" => b.not_swept = n,
                "nostart" => b.not_started = n,
                "infra" => b.infrastructure = n,
                "norec" => b.not_recorded = n,
                "late" => b.late = n,
                "kill" => b.kills = n,
                "max" => most = usize::from(n) * 1_000_000,
                "mut" => {
                    s.mutant = [
                        Mutant::None,
                        Mutant::FreedWhenStopIsSent,
                        Mutant::HoldEndsBeforeWork,
                        Mutant::GrantsBeforeFirstWork,
                        Mutant::LaneForgetsRelease,
                        Mutant::StaleFreedFreesNext,
                        Mutant::AcksBeforeDurable,
                    ][usize::from(n)]
                }
                other => panic!("{other}"),
            }
        }
        let _ = most;
        let s2 = s.clone();
        std::panic::set_hook(Box::new(|_| {}));
        let _ = std::panic::catch_unwind(move || check_most(&s2, most)).is_err();
    }
}
