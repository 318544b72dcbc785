//! The input log and its replay (rule D10). That every simulated test's log replays is seen to by the scenario itself.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};
use serde_json::{Value, json};

use thermite_actors::testing::DevRunScript;
use thermite_core::input_log::{Replay, ReplayFault, Replayed};
use thermite_core::run::RunState;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use crate::scenario::Scenario;

#[test]
fn a_log_replays_to_the_same_decisions_and_says_how_many() {
    let lines = mixed();

    let done = replay(&lines).expect("it was written by the same library");

    assert!(done.inputs > 400, "{done:?}");
    // The pool, the judge queue, the device, three lanes, and each attempt at a stage.
    assert!(done.machines > 6, "{done:?}");
    assert!(done.segments > 2, "{done:?}");
    assert_eq!(
        done.to_string(),
        format!("{} inputs of {} machines replayed: the same decisions", done.inputs, done.machines)
    );
}

#[test]
fn each_segment_replays_alone() {
    let lines = mixed();
    let starts: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| line.contains("\"begins\"")).map(|(at, _)| at).collect();

    let mut inputs = 0;
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(lines.len());
        inputs += replay(&lines[*start..end]).expect("a segment stands alone").inputs;
    }

    assert_eq!(inputs, replay(&lines).expect("all of them together").inputs);
}

#[test]
fn any_changed_decision_is_found_and_told_by_its_machine_and_input() {
    let lines = mixed();
    let mut changed = 0;
    let mut input = 0;
    for (at, line) in lines.iter().enumerate() {
        let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else { panic!("{line}") };
        let Some(took) = fields.get_mut("took") else { continue };
        input += 1;
        let Some(gave) = took["step"].as_object_mut().and_then(|step| step.values_mut().next()?.get_mut("gave")) else {
            continue;
        };
        let Some(Value::Array(effects)) = gave.get_mut("effects") else { continue };
        if effects.pop().is_none() {
            continue;
        }
        changed += 1;
        if changed % 7 != 0 {
            continue; // Every seventh: each is a replay from the beginning.
        }
        let mut other = lines[..=at].to_vec();
        other[at] = Value::Object(fields).to_string();

        let Err(ReplayFault::Difference(found)) = replay(&other) else {
            panic!("line {at} was changed: {}", other[at])
        };

        assert_eq!(found.input, input);
        assert_ne!(found.decided, found.would);
    }
    assert!(changed > 100, "{changed}");
}

#[test]
fn a_state_that_the_segment_before_does_not_lead_to_is_found() {
    let mut lines = mixed();
    let second =
        lines.iter().enumerate().filter(|(_, line)| line.contains("\"begins\"")).nth(1).expect("two segments").0;
    let judge =
        (second..lines.len()).find(|at| lines[*at].starts_with("{\"state\":{\"judge\"")).expect("the judge's state");
    lines[judge] = lines[judge].replacen("\"version\":", "\"version\":1", 1);

    let fault = replay(&lines).expect_err("the state was changed");

    assert_eq!(
        fault.to_string(),
        format!("line {}: the state of the judge queue is not what the segment before leads to", judge + 1)
    );
}

#[test]
fn another_librarys_log_is_refused_by_its_version() {
    let mut lines = mixed();
    lines[0] = lines[0].replace(thermite_core::input_log::LIBRARY, "9.9.9");

    let fault = replay(&lines).expect_err("it is another library's");

    let ours = thermite_core::input_log::LIBRARY;
    assert_eq!(
        fault.to_string(),
        format!(
            "the log was written by library 9.9.9 (format 1), this is {ours} (format 1); replay it with that version"
        )
    );
}

#[test]
fn what_is_no_log_is_refused_by_its_line() {
    let first = mixed().swap_remove(0);
    for (second, why) in [
        ("", "EOF while parsing"),
        ("{", "EOF while parsing"),
        ("[]", "no line"),
        (
            "{\"took\":{\"at\":1,\"step\":{\"pool\":{\"takes\":\"time\",\"gave\":{\"effects\":[]}}}}}",
            "has no state of the pool",
        ),
        ("{\"took\":{\"at\":99999999999999999,\"step\":null}}", "99999999999999999 is beyond every number"),
    ] {
        let fault = replay(&[first.clone(), second.to_owned()]).expect_err("no rig has written it").to_string();
        assert!(fault.starts_with("line 2 is no line of an input log: "), "{fault}");
        assert!(fault.contains(why), "{fault}");
    }
}

/// A made-up log is refused, or replays, or differs; it never ends the program.
#[test]
fn no_log_makes_the_machines_panic() {
    let lines: Vec<Value> = mixed().iter().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let most = lines.len();
    let spoil = (0..most, 0..most, any::<u64>(), 0..6_u8);

    let outcome = runner.run(&proptest::collection::vec(spoil, 1..6), |spoils| {
        let mut spoilt = lines.clone();
        for (at, other, luck, how) in spoils {
            match how {
                0 => spoilt.swap(at, other),
                1 => spoilt[at] = lines[other].clone(),
                2..=4 => change_one(&mut spoilt[at], luck),
                _ => change_one(&mut spoilt[0], luck),
            }
        }
        let text: Vec<String> = spoilt.iter().map(Value::to_string).collect();
        let _any_answer = replay(&text);
        // And each segment alone: a fault hides what comes after it.
        for segment in text.chunk_by(|_, next| !next.contains("\"begins\"")) {
            let _any_answer = replay(segment);
        }
        Ok(())
    });

    outcome.expect("nothing panics");
}

/// Changes one value somewhere inside: another number, word or nothing, a field gone, a list longer or empty.
fn change_one(value: &mut Value, luck: u64) {
    let luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let drawn = (luck >> 33) as usize;
    let deeper = !drawn.is_multiple_of(5);
    let drawn = drawn / 5;
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = drawn % fields.len();
            if deeper {
                change_one(fields.values_mut().nth(at).expect("one of them"), luck);
            } else {
                let key = fields.keys().nth(at).cloned().expect("one of them");
                fields.remove(&key);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = drawn % items.len();
            match drawn % 3 {
                _ if deeper => change_one(&mut items[at], luck),
                0 => items.clear(),
                _ => items.push(items[at].clone()),
            }
        }
        other => {
            let numbers = [0_u64, 1, 2, 7, 4_294_967_295, 1 << 53];
            *other = match drawn % 4 {
                0 => Value::Null,
                1 => json!("device"),
                2 => json!(drawn % 1_000_000),
                _ => json!(numbers[drawn / 4 % numbers.len()]),
            };
        }
    }
}

fn replay(lines: &[String]) -> Result<Replayed, ReplayFault> {
    let mut replay = Replay::new();
    lines.iter().try_for_each(|line| replay.take(line))?;
    Ok(replay.replayed())
}

/// The log of some minutes with a bit of everything.
fn mixed() -> Vec<String> {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::seconds(20)));
    rig.device.script_steps(|stage, step| match step {
        StageStep::Build { .. } if stage.attempt == 1 && stage.job.pinned.change == "equal-lost" => {
            Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
        }
        StageStep::Block { order, .. } if stage.job.pinned.change == "faster-2" && stage.attempt == 1 => {
            Some(StepReport::Lost { side: order.sides()[1], why: "it was killed".to_owned() })
        }
        _ => None,
    });
    let first = rig.dev_run(1);
    let waits = rig.dev_run(2);
    assert!(rig.ask(1).is_err(), "a lane has one at a time");
    let jobs = ["faster-1", "broken-1", "equal-lost", "faster-2"].map(|change| rig.job(change));
    rig.advance(Span::seconds(5));
    rig.wait_for(rig.rig.cancel(waits)).expect("it waits");
    rig.device.be_busy(Some("load1"));
    rig.advance(Span::seconds(60));
    rig.device.be_busy(None);
    rig.change_run(RunState::Paused).expect("it runs");
    rig.advance(Span::seconds(30));
    rig.change_run(RunState::Running).expect("it is paused");
    rig.end_of(first);
    for job in jobs {
        rig.outcome_of(job);
    }
    rig.inputs.text()
}
