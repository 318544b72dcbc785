//! What development runs leave behind where the contract says `keep`: it lives on, is listed, and ends with the rig
//! (rule C3).

use serde_json::Value;

use super::escapes::{alive, tag};
use super::house::{House, Load, everyone};
use crate::binary::until;

/// A rig whose lane 1 has ended a run that left one process, which is listed.
fn with_leftovers(house: &House) -> (String, String) {
    let tag = tag(house, "kept");
    let case = house.shared("cases/02_leader_exits.sh");
    let dev_run = house.ask(1, &["sh", &case, &tag]);
    assert_eq!(house.ended(&dev_run)["exit"]["code"], 0);
    until("it lives on", || alive(house, &tag) == 1);
    (dev_run, tag)
}

fn listed(house: &House) -> Vec<Value> {
    house.get("/v1/rig")["leftovers"].as_array().unwrap().clone()
}

#[test]
fn leftovers_are_kept_and_listed_until_the_rig_ends() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        house.begin_run("keep.toml");
        let (dev_run, tag) = with_leftovers(&house);

        until("it is listed", || listed(&house).len() == 1);
        let row = listed(&house)[0].clone();
        // The device has passed on, and the next lane's run leaves it alone.
        let next = house.ask(2, &["true"]);
        assert_eq!(house.ended(&next)["exit"]["code"], 0);
        let status = house.say(&["status"]);

        assert_eq!(format!("/v1/dev-runs/{}", row["dev_run"].as_str().unwrap()), dev_run, "{row}");
        assert_eq!((&row["lane"], &row["command"]), (&Value::from(1), &Value::from("escape")), "{row}");
        assert_eq!(alive(&house, &tag), 1);
        let said = format!("pid {} (escape), of development run {}", row["pid"], row["dev_run"].as_str().unwrap());
        assert!(status.out.contains("lane 1: left behind since ") && status.out.contains(&said), "{status:?}");

        assert!(status.out.contains("  runs on it are contained by namespaces + "), "{status:?}");

        assert_eq!(house.terminate(), Some(0));
        assert_eq!(alive(&house, &tag), 0, "proved gone before the rig is");
        house.assert_traceless();
    }
}

#[test]
fn leftovers_end_with_a_rig_that_is_killed_and_the_next_lists_none() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        house.begin_run("keep.toml");
        let (_, tag) = with_leftovers(&house);

        house.kill();
        house.restart();
        house.swept();

        assert_eq!(alive(&house, &tag), 0);
        assert_eq!(listed(&house), [] as [Value; 0]);
        house.assert_traceless();
    }
}

#[test]
fn a_lane_whose_worktree_was_deleted_is_refused_when_it_asks() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        std::fs::remove_dir_all(house.path("lane-3")).unwrap();

        let said = house.say(&["run", "--lane", "3", "--", "true"]);
        let answer = house.send(
            "POST",
            &format!("{}/jobs", house.run()),
            None,
            Some(&serde_json::json!({ "change": "lane:3" })),
        );

        let gone = format!("lane 3's worktree {} is gone; make it again there", house.path("lane-3").display());
        assert!(said.refused_with(69).starts_with(&gone), "{said:?}");
        let answer = answer.unwrap();
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.body["detail"].as_str().unwrap().starts_with(&gone), "{answer:?}");
    }
}
