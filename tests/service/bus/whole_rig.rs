//! A rig of several machines at work: the judge's stages on different runners, lanes on their own, a shared one and the
//! core, runners given other pools and taken away meanwhile (rules E1 to E14).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermite_core::job::StageKind;
use thermite_core::texts::FRESH_COPY;

use super::fleet::{Fleet, Part};
use super::is_long;
use super::nats::RIG;
use crate::binary::{git, until};

#[test]
fn a_comparison_is_screened_on_one_runner_and_confirmed_on_another() {
    let Some(mut fleet) = Fleet::start(&[("box-1", "judge"), ("box-2", "judge")]) else { return };

    let job = fleet.house.submit(&fleet.house.faster("a"));
    let judged = fleet.house.judged(&job);

    let stages = fleet.stages(&job);
    assert_eq!(judged["outcome"]["outcome"], "win", "{judged} {}", fleet.told());
    let [(StageKind::Screening, first), (StageKind::Confirmation, second)] = stages.as_slice() else {
        panic!("{stages:?}");
    };
    assert_ne!(first, second, "{stages:?}");
    assert!(first.starts_with("box-") && second.starts_with("box-"), "{stages:?}");
    fleet.until_free(&["box-1/1".to_owned(), "box-2/1".to_owned()]);
    fleet.end();
}

#[test]
fn lanes_run_on_their_own_runner_on_a_shared_one_and_on_the_core() {
    let Some(mut fleet) = Fleet::start(&[("box-1", "lane-1"), ("box-2", "shared")]) else { return };
    // A change that nobody has staged, a new file, and one that git ignores.
    for lane in ["lane-1", "lane-2", "lane-3"] {
        let tree = fleet.house.path(lane);
        std::fs::write(tree.join("src/loops"), format!("7 {lane}\n")).unwrap();
        std::fs::write(tree.join("new"), "new\n").unwrap();
        std::fs::write(tree.join(".gitignore"), "ignored\n").unwrap();
        std::fs::write(tree.join("ignored"), "ignored\n").unwrap();
    }
    let index = |lane: &str| {
        let tree = fleet.house.path(lane);
        std::fs::read(git(&tree, &["rev-parse", "--path-format=absolute", "--git-path", "index"])).unwrap()
    };
    let before = ["lane-1", "lane-2", "lane-3"].map(index);
    let script = "cat src/loops new; ls; pwd";

    let own = fleet.house.ask(1, &["sh", "-c", script]);
    let shared = fleet.house.ask(2, &["sh", "-c", script]);
    for (dev_run, lane) in [(&own, "lane-1"), (&shared, "lane-2")] {
        assert_eq!(fleet.house.ended(dev_run)["exit"]["code"], 0, "{}", fleet.told());
        let output = fleet.house.output(dev_run);
        assert!(output.starts_with(&format!("7 {lane}\nnew\n")), "{output}");
        assert!(!output.contains("ignored"), "{output}");
        assert!(!output.contains(fleet.house.at(lane).as_str()), "it ran in the lane's own tree: {output}");
        let note = fleet.house.get(dev_run)["note"].clone();
        assert!(note.as_str().unwrap().contains(FRESH_COPY), "{note}");
    }
    assert_eq!((fleet.place_of(&own), fleet.place_of(&shared)), ("box-1/1".to_owned(), "box-2/1".to_owned()));

    // Pools are given anew while both work: who keeps its pool goes on, the other is told to run again.
    let going_on = fleet.house.ask(1, &["sh", "-c", "until test -e go; do sleep 0.05; done; echo went on"]);
    let moved = fleet.house.ask(2, &["sleep", "1000"]);
    fleet.until_busy("box-1/1");
    fleet.until_busy("box-2/1");
    fleet.house.running(&going_on);
    fleet.house.running(&moved);
    fleet.set_pools(&[("box-1", "lane-1"), ("box-2", "judge")]);
    let told = fleet.house.ended(&moved);
    let on_core = fleet.house.ask(3, &["sh", "-c", script]);
    assert_eq!(fleet.house.ended(&on_core)["exit"]["code"], 0, "{}", fleet.told());
    let job = fleet.house.submit(&fleet.house.faster("a"));
    fleet.house.judged(&job);
    let row = fleet.house.get(&going_on);

    assert_eq!(told, json!({ "end": "runner_lost", "how": "new_pool" }));
    let why = fleet.house.say(&["why", moved.rsplit('/').next().unwrap()]);
    assert!(why.out.starts_with("its runner was given another pool while it ran; run the command again\n"), "{why:?}");
    assert_eq!(fleet.place_of(&on_core), "device 0");
    let output = fleet.house.output(&on_core);
    assert!(output.starts_with("7 lane-3\nnew\n") && output.contains(fleet.house.at("lane-3").as_str()), "{output}");
    assert!(!fleet.house.get(&on_core)["note"].as_str().unwrap().contains(FRESH_COPY));
    assert!(fleet.stages(&job).iter().all(|(_, place)| place == "box-2/1"), "{:?}", fleet.stages(&job));
    assert_eq!(row["status"]["status"], "running", "the other runner's run goes on: {row}");
    assert_eq!(["lane-1", "lane-2", "lane-3"].map(index), before, "the lanes' indexes are as they were");
    fleet.house.send("DELETE", &going_on, None, None).unwrap().ok();
    assert_eq!(fleet.house.ended(&going_on)["end"], "cancelled");
    fleet.until_free(&["box-1/1".to_owned(), "box-2/1".to_owned()]);
    fleet.end();
}

#[test]
fn a_runner_that_is_removed_gives_its_job_back_and_ends() {
    let Some(mut fleet) = Fleet::start(&[("box-1", "judge"), ("box-2", "judge")]) else { return };
    let job = fleet.house.submit(&fleet.house.change("200000", "slow"));
    let first = loop {
        let stages = fleet.stages(&job);
        if let Some((_, place)) = stages.first() {
            break place.clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let process = first.strip_suffix("/1").unwrap();

    let asked = Instant::now();
    let removed = fleet.desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/{process}"), &Value::Null).good(200);
    let mut code = None;
    until("its supervisor ends", || {
        code = fleet.exit_code(process, Part::Supervisor);
        code.is_some()
    });
    println!("its supervisor ended {:?} after the removal was asked", asked.elapsed());
    let judged = fleet.house.judged(&job);

    assert_eq!(removed["rights_ended"], true, "{removed}");
    assert_ne!(code, Some(0), "{}", fleet.told());
    let stages = fleet.stages(&job);
    assert!(stages.len() >= 2 && stages[1..].iter().all(|(_, place)| *place != first), "{stages:?}");
    assert_eq!(judged["outcome"]["outcome"], "no_gain", "{judged}: nothing counts against the change");
    assert_eq!(fleet.house.get("/v1/rig/runners")["asked"].as_array().unwrap().len(), 1);
    fleet.forget(process);
    fleet.end();
}

#[test]
fn a_runner_that_is_not_heard_is_away_and_works_again_once_it_is() {
    let Some(mut fleet) = Fleet::start(&[("box-1", "lane-1"), ("box-2", "judge")]) else { return };
    let row = || fleet.row("box-1/1");

    fleet.wire("box-1").cut();
    let cut = Instant::now();
    until("it is away", || row()["takes_runs"] == false);
    let (away, why) = (cut.elapsed(), row()["why_not"].clone());
    // Its lane goes to no other place, and its wait says so.
    let dev_run = fleet.house.ask(1, &["true"]);
    let waits = fleet.house.get(&dev_run)["status"]["sentence"].clone();
    let before = row()["answered"].clone();
    fleet.wire("box-1").mend();
    until("it answers", || row()["answered"] != before);
    let answered = Instant::now();
    let end = fleet.house.ended(&dev_run);
    let worked = answered.elapsed();

    println!("away {away:.1?} after its last answer at most; its first run was over {worked:.1?} after it answered");
    assert!(why.as_str().unwrap().contains("away") && waits.as_str().unwrap().contains("box-1/1"), "{why} {waits}");
    assert_eq!(end["exit"]["code"], 0, "{end}");
    if is_long() {
        assert!(away <= Duration::from_secs(15) && worked <= Duration::from_secs(15), "{away:?} {worked:?}");
    }
    fleet.until_free(&["box-1/1".to_owned()]);
    fleet.end();
}

#[test]
fn runners_that_are_set_at_the_rig_itself_become_controls_and_the_latest_wins() {
    let Some(mut fleet) = Fleet::start(&[("box-1", "judge"), ("box-2", "judge")]) else { return };
    let settings = |fleet: &Fleet| fleet.desk.get(&format!("/v1/rigs/{RIG}/settings"));
    let before = settings(&fleet)["revision"].as_u64().unwrap();

    let set = fleet.house.say(&["runners", "set", "box-1=shared", "box-2=judge"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let list = json!([{ "name": "box-1", "pools": ["shared"] }, { "name": "box-2", "pools": ["judge"] }]);
    until("control has the list that the rig was given, and the rig is told so", || {
        let told = settings(&fleet);
        told["runners"] == list && told["taken"] == told["revision"]
    });
    let taken_over = settings(&fleet);
    let shown = fleet.desk.say(&["settings", RIG]);
    let steps = fleet.desk.get(&format!("/v1/rigs/{RIG}/history"));

    assert_eq!((taken_over["revision"].as_u64(), &taken_over["from_rig"]), (Some(before + 1), &json!(true)));
    assert!(shown.out.starts_with(&format!("revision {}, set at the rig itself; the rig has them\n", before + 1)));
    let set_by = |step: &&Value| step["step"] == "settings_set" && step["by"] == "rig";
    assert_eq!(steps.as_array().unwrap().iter().filter(set_by).count(), 1, "{steps}");
    assert_eq!(fleet.house.get("/v1/rig/runners")["asked"], list, "what came back changed nothing");
    // What is set at control later is in force there, and stays.
    fleet.set_pools(&[("box-1", "judge"), ("box-2", "lane-1")]);
    until("the rig says that it has them", || {
        let told = settings(&fleet);
        told["taken"] == before + 2 && told["from_rig"] == false
    });
    fleet.until_free(&["box-1/1".to_owned(), "box-2/1".to_owned()]);
    fleet.end();
}
