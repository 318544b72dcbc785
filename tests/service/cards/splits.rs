//! Who has which card: by default, as set, refused, changed under way (rules B1, B2, B8, B9).

use serde_json::{Value, json};

use crate::binary::until;

use super::house::{CardHouse, built};

#[test]
fn cards_are_split_by_default_and_one_alone_is_shared() {
    built();
    for (count, judge, agents) in [(1, 1, 1), (2, 1, 1), (3, 2, 1), (8, 4, 4)] {
        let Some(house) = CardHouse::of(count) else { return };
        house.start();

        let split = house.get("/v1/split");
        let said = house.say(&["split"]);

        assert_eq!(split["shared"], count == 1, "{split}");
        assert_eq!(members(&split["judge"]), (0..judge).collect::<Vec<u64>>(), "{count}: {split}");
        let lowest = if count == 1 { 0 } else { judge };
        assert_eq!(members(&split["agents"]), (lowest..lowest + agents).collect::<Vec<u64>>(), "{count}: {split}");
        let first =
            if count == 1 { "shared by judge and lanes, the judge first: device 0" } else { "the judge's: device 0" };
        assert!(said.out.starts_with(first), "{said:?}");
        house.end();
    }
}

#[test]
fn a_split_is_set_by_rest_and_command_line_and_outlives_the_rig() {
    let Some(house) = CardHouse::of(3) else { return };
    house.start();
    let etag = house.send("GET", "/v1/split", None, None).etag.unwrap();
    let new = json!({ "split": "cards", "judge": [house.uuid(2)], "agents": [house.uuid(0)] });

    let dry = house.send("PUT", "/v1/split?dry_run=true", Some(&etag), Some(&new));
    let unchanged = house.get("/v1/split");
    let set = house.send("PUT", "/v1/split", Some(&etag), Some(&new));
    let late = house.send("PUT", "/v1/split", Some(&etag), Some(&json!({ "split": "shared" })));
    house.end();
    house.start();
    let after = house.get("/v1/split");

    assert_eq!((dry.status, &dry.body["changes"], &dry.body["ends"]), (200, &json!(true), &json!([])), "{dry:?}");
    assert_eq!(members(&dry.body["judge"]), [2]);
    assert_eq!(members(&unchanged["judge"]), [0, 1]);
    assert_eq!(
        (set.status, members(&set.body["judge"]), members(&set.body["agents"])),
        (200, vec![2], vec![0]),
        "{set:?}"
    );
    assert_eq!(set.body["idle"][0]["member"], 1, "{set:?}");
    assert_eq!((late.status, &late.body["type"]), (412, &json!("urn:thermite:problem:split-moved")), "{late:?}");
    assert_eq!(members(&after["judge"]), [2], "{after}");
    let pools: Vec<String> = house.devices().iter().map(|row| row["pool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(pools, ["agents", "idle", "judge"]);
    let by_name = house.say(&["split", "--judge", "0", "--agents", &house.uuid(1), "--json"]);
    let shown: Value = serde_json::from_str(&by_name.out).unwrap();
    assert_eq!((members(&shown["judge"]), members(&shown["agents"])), (vec![0], vec![1]), "{by_name:?}");
    assert!(house.say(&["split", "--default"]).out.starts_with("the judge's: device 0"));
    house.end();
}

#[test]
fn a_split_that_cannot_be_is_refused_with_the_reason_and_changes_nothing() {
    let Some(house) = CardHouse::of(2) else { return };
    house.start();

    for (judge, agents, word) in [
        (vec![house.uuid(0)], vec![house.uuid(0)], "on both sides"),
        (vec![house.uuid(7)], vec![house.uuid(1)], house.uuid(7).as_str()),
        (vec![], vec![house.uuid(1)], "judge"),
    ] {
        let body = json!({ "split": "cards", "judge": judge, "agents": agents });
        for path in ["/v1/split", "/v1/split?dry_run=true"] {
            let answer = house.send("PUT", path, None, Some(&body));
            assert_eq!(
                (answer.status, &answer.body["type"]),
                (422, &json!("urn:thermite:problem:bad-split")),
                "{answer:?}"
            );
            assert!(answer.body["detail"].as_str().unwrap().contains(word), "{answer:?}");
        }
    }
    // What is said beside a split is not passed over.
    for body in [
        json!({ "split": "shared", "judge": [house.uuid(0)], "agents": [house.uuid(1)] }),
        json!({ "split": "default", "agents": [] }),
        json!({ "split": "default", "shared": true }),
        json!({ "split": "cards", "judge": [house.uuid(1)], "agents": [house.uuid(0)], "idle": [] }),
        json!({ "split": "cards", "judge": [house.uuid(1)] }),
        json!({ "judge": [house.uuid(1)], "agents": [house.uuid(0)] }),
    ] {
        let answer = house.send("PUT", "/v1/split", None, Some(&body));
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    let said = house.say(&["split", "--judge", "0", "--agents", "9"]);
    assert!(said.refused_with(69).starts_with("there is no device 9; the rig has 0 ("), "{said:?}");
    let half = house.say(&["split", "--judge", "0"]);
    assert_eq!(half.code, Some(64), "{half:?}");
    assert_eq!(house.get("/v1/split")["revision"], 0);
    house.end();
}

#[test]
fn cards_are_shared_where_the_owner_chose_so_until_somebody_sets_it() {
    let Some(house) = CardHouse::with(vec!["Stand-in A"; 2], &[("THERMITE_SPLIT", "shared")]) else { return };
    house.start();
    assert_eq!(house.get("/v1/split")["shared"], true);

    assert_eq!(house.say(&["split", "--default"]).code, Some(0));
    house.end();
    house.start();

    assert_eq!(house.get("/v1/split")["shared"], false, "what was set outlives the setting");
    house.end();
}

#[test]
fn of_several_models_the_first_judges_and_the_others_are_shown_idle() {
    let Some(house) = CardHouse::with(vec!["Stand-in A", "Stand-in B", "Stand-in A"], &[]) else { return };
    house.start();

    let split = house.get("/v1/split");
    let status = house.say(&["status"]);

    assert_eq!((members(&split["judge"]), members(&split["agents"])), (vec![0], vec![2]), "{split}");
    assert_eq!(split["idle"][0]["member"], 1, "{split}");
    assert!(split["note"].as_str().unwrap().contains("of several models"), "{split}");
    assert!(status.out.contains("idle: the judge's cards are of several models"), "{status:?}");
    house.end();
}

/// Nothing is lost: the judge's job starts over, the lane is told, and both are said before.
#[test]
fn a_split_that_is_changed_under_way_ends_what_runs_and_loses_nothing() {
    let Some(house) = CardHouse::served(2) else { return };
    house.faster("quick");
    let dev_run = house.ask(1, &["sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exec sleep 250"]);
    house.until_status(&dev_run, "running");
    let job = house.submit("quick");
    // Builds come before a card is asked for (rule B7).
    until("the job has a card", || house.get(&job)["status"]["hold"]["member"] == 0);
    assert_eq!(house.output(&dev_run), format!("on {}\n", house.uuid(1)));
    let swap = ["split", "--judge", "1", "--agents", "0"];

    let dry = house.say(&[&swap[..], &["--dry-run"]].concat());
    let unasked = house.say(&swap);
    let still = house.get(&dev_run);
    let set = house.say(&[&swap[..], &["--yes"]].concat());

    let id = job.rsplit('/').next().unwrap();
    let said = format!("ends: device 0: job {id} goes back to its place in the queue and starts over");
    assert!(dry.out.contains(&said), "{dry:?}");
    let told = "ends: device 1: lane 1's development run ends, and the lane is told to run its command again";
    assert!(dry.out.contains(told), "{dry:?}");
    assert_eq!(unasked.code, Some(69), "{unasked:?}");
    assert!(unasked.err.contains(told) && unasked.err.contains("say --yes"), "{unasked:?}");
    assert_eq!(still["status"]["status"], "running");
    assert_eq!(set.code, Some(0), "{set:?}");
    assert!(set.out.starts_with("the judge's: device 1"), "{set:?}");
    let ended = house.until_status(&dev_run, "ended");
    assert_eq!(ended["status"]["end"]["end"], "new_split", "{ended}");
    until("the job has the other card", || house.get(&job)["status"]["hold"]["member"] == 1);
    assert_eq!(house.get(&job)["failures"], serde_json::json!([]), "a new split is nobody's failure");
    let next = house.ask(1, &["sh", "-c", "echo on $CUDA_VISIBLE_DEVICES"]);
    house.until_status(&next, "ended");
    assert_eq!(house.output(&next), format!("on {}\n", house.uuid(0)));
    until("the job measures there", || {
        house.get(&job)["status"]["stage"]["accepted"].as_u64().is_some_and(|accepted| accepted > 0)
    });
    house.end();
}

fn members(cards: &Value) -> Vec<u64> {
    cards.as_array().unwrap().iter().map(|card| card["member"].as_u64().unwrap()).collect()
}
