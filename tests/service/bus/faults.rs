//! What networks and processes do to a rig of several machines, at random moments of a running job: nothing is lost, runs
//! twice, counts against a change or is left running, and the rig works again by itself (docs/faults.md).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thermite_core::ids::JobId;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::log::LogEntry;

use super::fleet::{Fleet, Part};
use super::is_long;
use crate::binary::until;
use crate::support::Luck;

/// By when a rig works again once the fault is over, or the lease where that ends later.
const BACK_WITHIN: Duration = Duration::from_secs(15);

const RUNNERS: [&str; 3] = ["box-1/1", "box-2/1", "box-3/1"];

/// What befalls the rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillCore,
    KillSupervisor,
    KillHarness,
    KillBus,
    KillControl,
    StopBus(Duration),
    Partition(Duration),
}

#[test]
fn kill_of_the_core() {
    befall(Fault::KillCore, times(), 0x5eed_0001);
}

#[test]
fn kill_of_a_supervisor() {
    befall(Fault::KillSupervisor, times(), 0x5eed_0002);
}

#[test]
fn kill_of_a_harness() {
    befall(Fault::KillHarness, times(), 0x5eed_0003);
}

#[test]
fn kill_of_the_bus() {
    befall(Fault::KillBus, times(), 0x5eed_0004);
}

#[test]
fn kill_of_control() {
    befall(Fault::KillControl, times(), 0x5eed_0005);
}

#[test]
fn a_bus_that_stands_still_for_70_s() {
    befall_if_long(Fault::StopBus(Duration::from_secs(70)), 0x5eed_0006);
}

#[test]
fn a_partition_of_30_s() {
    befall_if_long(Fault::Partition(Duration::from_secs(30)), 0x5eed_0007);
}

#[test]
fn a_partition_of_90_s() {
    befall_if_long(Fault::Partition(Duration::from_secs(90)), 0x5eed_0008);
}

fn times() -> u32 {
    if is_long() { 20 } else { 2 }
}

fn befall_if_long(fault: Fault, seed: u64) {
    if is_long() {
        befall(fault, 3, seed);
    } else {
        println!("left out: minutes of standing still; THERMITE_LONG=1 runs it");
    }
}

fn befall(fault: Fault, times: u32, seed: u64) {
    let runners = [("box-1", "judge"), ("box-2", "judge"), ("box-3", "lane-1")];
    let Some(mut fleet) = Fleet::start(&runners) else { return };
    let mut luck = Luck::seeded(seed);
    let mut asked = BTreeMap::new();
    let mut table = Vec::new();
    // The devices' noise is measured once: the faults are to fall into what comes every day.
    for name in ["first", "second"] {
        let job = fleet.house.submit(&fleet.house.faster(name));
        fleet.house.judged(&job);
    }
    for round in 0..times {
        let tag = fleet.house.tag.clone();
        let dev_run = fleet.house.ask(1, &["sh", "-c", "setsid sleep 1000 & exec sleep 2000", &tag]);
        fleet.house.running(&dev_run);
        let name = format!("round-{round}");
        let is_faster = luck.below(2) == 0;
        let change = if is_faster { fleet.house.faster(&name) } else { fleet.house.slower(&name) };
        let job = fleet.house.submit(&change);
        let measuring = until_measuring(&fleet);
        std::thread::sleep(Duration::from_millis(luck.below(600)));

        let began = Instant::now();
        strike(&mut fleet, fault, &measuring);
        let over = Instant::now();
        // What they answered before the fault says nothing: each is to answer once more.
        let before = RUNNERS.map(|runner| fleet.row(runner)["answered"].clone());
        until("all runners answer and take runs again", || {
            RUNNERS.iter().zip(&before).all(|(runner, before)| {
                let row = fleet.row(runner);
                row["takes_runs"] == true && row["answered"] != *before
            })
        });
        let works = over.elapsed();
        let judged = fleet.house.judged(&job);
        let verdict = over.elapsed();
        if fleet.house.get(&dev_run)["status"]["status"] != "ended" {
            fleet.house.send("DELETE", &dev_run, None, None).unwrap().ok();
        }
        let end = fleet.house.ended(&dev_run)["end"].as_str().unwrap().to_owned();
        until("nothing is left running", || fleet.house.tagged().is_empty());

        asked.insert(job, is_faster);
        table.push((round, over - began, works, verdict, end, judged["outcome"]["outcome"].to_string()));
        if is_long() {
            let lease = limits::HAND_ON_AFTER.to_std().saturating_sub(over - began);
            let most = BACK_WITHIN + if matches!(fault, Fault::KillCore) { Duration::ZERO } else { lease };
            assert!(works <= most, "it takes {works:?} until the rig works again: {}", fleet.told());
        }
    }
    println!("{fault:?}");
    println!("round  the fault took  works again after  verdict after  the lane's run  the job");
    for (round, took, works, verdict, end, outcome) in table {
        println!("{round:>5}  {took:>14.2?}  {works:>17.2?}  {verdict:>13.2?}  {end:>14}  {outcome}");
    }
    assert_right(&fleet, &asked);
    fleet.end();
}

/// Waits until a judge's runner measures, and gives its process' name.
fn until_measuring(fleet: &Fleet) -> String {
    let mut measuring = String::new();
    until("a judge's runner measures", || {
        let found = RUNNERS[..2].iter().find(|runner| fleet.row(runner)["runs"]["for"] == "judge");
        measuring = found.map(|runner| runner.trim_end_matches("/1").to_owned()).unwrap_or_default();
        found.is_some()
    });
    measuring
}

/// Has the fault begin and end: what was killed is started again.
fn strike(fleet: &mut Fleet, fault: Fault, measuring: &str) {
    match fault {
        Fault::KillCore => {
            fleet.house.kill();
            fleet.house.restart();
        }
        Fault::KillSupervisor => fleet.kill_and_launch(measuring, Part::Supervisor),
        Fault::KillHarness => fleet.kill_and_launch(measuring, Part::Harness),
        Fault::KillBus => {
            fleet.desk.nats.kill();
            fleet.desk.nats.start_again();
        }
        Fault::KillControl => {
            fleet.desk.kill();
            fleet.desk.start_again();
        }
        Fault::StopBus(long) => {
            fleet.desk.nats.pause();
            std::thread::sleep(long);
            fleet.desk.nats.go_on();
        }
        Fault::Partition(long) => {
            fleet.wire(measuring).cut();
            std::thread::sleep(long);
            fleet.wire(measuring).mend();
        }
    }
}

/// What the log says after all of it: each job ended once and as it should, and no change was blamed.
fn assert_right(fleet: &Fleet, asked: &BTreeMap<String, bool>) {
    let mut ends: BTreeMap<JobId, Vec<JobOutcome>> = BTreeMap::new();
    for fact in fleet.house.facts() {
        match fact {
            LogEntry::JobEnded { job, outcome, .. } => ends.entry(job).or_default().push(outcome),
            LogEntry::AttemptFailed { job, why, .. } => {
                assert!(!why.to_string().contains("OVERLAP"), "job {job} ran twice at once: {why}");
                println!("an attempt of job {job} failed: {why}");
            }
            _ => {}
        }
    }
    for (path, is_faster) in asked {
        let job: JobId = path.strip_prefix("/v1/jobs/").unwrap().parse().unwrap();
        let [outcome] = ends[&job].as_slice() else { panic!("job {job} ended {:?}", ends[&job]) };
        let fits = match outcome {
            JobOutcome::Win { .. } => *is_faster,
            JobOutcome::NoGain { .. } => !is_faster,
            // A busy machine's noise may leave it undecided.
            JobOutcome::Undecided => true,
            _ => false,
        };
        assert!(fits, "job {job}, faster: {is_faster}, ended as {outcome:?}");
    }
}
