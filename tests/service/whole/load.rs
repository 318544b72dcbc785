//! The machine's own load over the gate: the judge waits, says why with figures, and goes on by itself (rule C2).

use std::time::{Duration, Instant};

use super::house::{House, Load, Who, spin};
use super::is_long;
use crate::binary::until;

/// What the kernel's average still holds of a killed rig's judge is taken off by the next (the figures: tests/host cpu).
#[test]
fn a_rig_that_is_started_again_takes_over_what_its_judge_did() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    house.judged(&house.submit(&house.slower("before")));
    let taken_over = "the judge's own share of the load is taken over";
    assert!(!house.log_text().contains(taken_over), "a first life has nothing to take over");

    house.kill();
    house.restart();

    let log = house.log_text();
    let line = log.lines().find(|line| line.contains(taken_over)).unwrap_or_else(|| panic!("{log}"));
    println!("{line}");
    let cores: f64 = line.rsplit_once("cores=").unwrap().1.trim().parse().unwrap();
    assert!(cores > 0.0, "{line}");
}

#[test]
fn the_judge_waits_while_the_machine_is_loaded_and_goes_on_by_itself() {
    let Some(house) = House::served(Who::Me, Load::Linked, "10 min") else { return };
    let cores = std::thread::available_parallelism().unwrap().get();
    let spinners: Vec<_> = (0..=cores).map(|_| spin()).collect();

    let job = house.submit(&house.slower("late"));

    let mut sentence = String::new();
    until("the judge says that the machine is busy", || {
        let status = house.get(&job)["status"].clone();
        assert_ne!(status["status"], "ended", "{status}");
        sentence = status["sentence"].as_str().unwrap_or_default().to_owned();
        sentence.contains("a quiet device: ") && sentence.contains("direct_sample ")
    });
    println!("{sentence}");
    let most = format!(" of at most {:.2} cores", 0.25 * cores as f64);
    assert!(sentence.contains(&most), "{sentence}");
    let figure = sentence.split_once("direct_sample ").unwrap().1.split(' ').next().unwrap();
    assert!(figure.parse::<f64>().unwrap() > 0.25 * cores as f64, "{sentence}");

    drop(spinners);
    // On a machine that others keep busy the gate stays shut, which is right: then quiet readings are fed instead.
    let patience = Duration::from_secs(if is_long() { 120 } else { 30 });
    let began = Instant::now();
    let mut last = serde_json::Value::Null;
    let mut is_fed = false;
    until("the job ends", || {
        last = house.get(&job)["status"].clone();
        let waits = last["sentence"].as_str().is_some_and(|sentence| sentence.contains("a quiet device: "));
        if !is_fed && waits && began.elapsed() > patience {
            println!("still shut {patience:?} after the load ended, by others' load: {}", last["sentence"]);
            house.feed(Load::Quiet);
            is_fed = true;
        }
        last["status"] == "ended"
    });
    println!("judged {:?} after the load ended: {}", began.elapsed(), last["outcome"]);
    assert_ne!(last["outcome"]["outcome"], "no_verdict", "{last}");
    // That its load was read below a folder of the test's is in the log, and in the record for good.
    assert!(house.log_text().contains("THERMITE_PROC_ROOT is set"), "{}", house.log_text());
    let record = house.get(&format!("{job}/verdict"));
    let driver = record["facts"]["on"]["driver"].as_str().unwrap_or_default();
    assert!(driver.ends_with(&format!("fed from {}", house.at("fed"))), "{}", record["facts"]["on"]);
}
