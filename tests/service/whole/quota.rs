//! A CPU quota on the rig's group or on one around it: blocks are thrown and run again, or it is said (rule D3).

use serde_json::Value;
use thermite_core::limits;

use super::house::{House, Load, Who};
use crate::binary::until;
use crate::fed;
use crate::quota_group::{QuotaGroup, Which};

#[test]
fn blocks_under_a_quota_are_thrown_recorded_and_run_again_once_it_is_lifted() {
    let Some((group, house)) = in_groups() else { return };
    let mut taken = Vec::new();
    // The first job measures the noise, the second compares: both are series of blocks. A kind each for both groups.
    for (which, phase, change) in
        [(Which::Own, "measuring_noise", house.slower("s1")), (Which::Ancestor, "comparing", house.faster("f1"))]
    {
        let job = house.submit(&change);
        // Five thrown blocks are borne. A block takes seconds under this quota, so it is lifted well before the sixth;
        // should the test be held up itself, the next attempt is met in the same way.
        let mut lifted = 0;
        let mut ended = Value::Null;
        until("the job ends", || {
            ended = house.get(&job)["status"].clone();
            let stage = &ended["stage"];
            let is_in_phase = stage["phase"]["phase"] == phase;
            let thrown = stage["thrown"].as_u64().unwrap_or(0);
            if is_in_phase && thrown == 0 && lifted == 0 {
                group.hold(which, 5_000, 50_000);
            } else if thrown > 0 || lifted > 0 {
                lifted += 1;
                group.lift(which);
            }
            ended["status"] == "ended"
        });

        assert_ne!(ended["outcome"]["outcome"], "no_verdict", "{ended}");
        taken.push((which, job));
    }

    for (which, job) in taken {
        let thrown = thrown_of(&house, &job);
        println!("{which:?} of {}: {} blocks thrown: {}", group.name(which), thrown.len(), thrown[0]["causes"]);
        let cause = serde_json::json!({ "cause": "throttled", "group": group.name(which) });
        for block in &thrown {
            let causes = block["causes"].as_array().unwrap();
            assert!(causes.contains(&cause), "{block}");
            let counters = |side: &str| {
                let counters = block["times"][side]["throttle"].as_array().unwrap();
                counters.iter().find(|counter| counter["group"] == group.name(which).as_str()).unwrap().clone()
            };
            assert_ne!(counters("before")["held_ns"], counters("after")["held_ns"], "{block}");
        }
        let file = house.at("record.json");
        std::fs::write(&file, house.get_text(&format!("{job}/verdict"))).unwrap();
        let said = house.say(&["verify", &file]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[test]
fn a_quota_that_stays_ends_the_job_as_infrastructure_with_how_many_blocks_it_took() {
    let Some((group, house)) = in_groups() else { return };
    group.hold(Which::Ancestor, 1_000, 5_000);

    let job = house.submit(&house.slower("held"));
    let ended = house.judged(&job);

    // Four were tried again, and the fifth is the end.
    let mut failures: Vec<Value> = house.get(&job)["failures"].as_array().unwrap().clone();
    failures.push(ended["outcome"]["why"].clone());
    println!("{failures:#?}");
    assert_eq!(ended["outcome"]["outcome"], "no_verdict", "{ended}");
    assert_eq!(failures.len(), limits::INFRASTRUCTURE_FAILURES_MAX as usize, "{failures:?}");
    let quota = format!(" blocks: a CPU quota held back group {}", group.name(Which::Ancestor));
    for failure in &failures {
        let text = failure.as_str().unwrap_or_default();
        let figures = text.strip_prefix("throttled ").and_then(|rest| rest.strip_suffix(&quota));
        let (thrown, of) = figures.and_then(|figures| figures.split_once(" of ")).unwrap_or_else(|| panic!("{text}"));
        let (thrown, of): (u32, u32) = (thrown.parse().unwrap(), of.parse().unwrap());
        assert!(thrown == 6 && of >= 6, "{text}");
    }
}

/// A house whose rig is in the inner of two groups; none where there are no groups, or no isolation, which is said.
fn in_groups() -> Option<(QuotaGroup, House)> {
    let group = QuotaGroup::make()?;
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    fed::with_real_groups(&house.path("fed"));
    if !house.start() {
        return None;
    }
    house.begin_run("kit.toml");
    group.take_in(house.pid());
    Some((group, house))
}

/// The thrown blocks of a job's first record, the noise's among them.
fn thrown_of(house: &House, job: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for stage in ["screening", "confirmation"] {
        let Some(answer) = house.send("GET", &format!("{job}/verdict?stage={stage}"), None, None) else { continue };
        if answer.status != 200 {
            continue;
        }
        let record = answer.body;
        let noise = record["noise"]["blocks"].as_array().into_iter().flatten();
        let blocks = record["blocks"].as_array().unwrap().iter();
        found.extend(noise.chain(blocks).filter(|block| block["block"] == "thrown").cloned());
    }
    assert!(!found.is_empty(), "no thrown block is in the records of {job}");
    found
}
