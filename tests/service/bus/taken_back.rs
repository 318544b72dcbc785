//! What is taken back at control reaches whoever has it, whatever state they are in (rules E7, F1): control's own links, a
//! runner whose harness never came.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermite_core::limits;

use super::desk::Desk;
use super::nats::RIG;
use crate::binary::{Own, PATIENCE, command, until};

#[test]
fn control_leaves_the_bus_in_peace_once_a_rig_is_removed() {
    let desk = Desk::start();
    desk.make_rig();
    let link = format!("thermite control for {RIG}");
    until("control is on the bus for the rig", || desk.nats.connections().contains(&link));

    desk.ask("DELETE", &format!("/v1/rigs/{RIG}"), &Value::Null).good(200);

    // Whoever tries without end tries at least once in each of these windows.
    let window = limits::BUS_RECONNECT_MOST.to_std() + limits::BUS_CONNECT_MAX.to_std();
    let began = Instant::now();
    loop {
        let before = desk.nats.connections_so_far();
        std::thread::sleep(window);
        let tries = desk.nats.connections_so_far() - before;
        if tries == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE / 2, "{tries} tries in the last {window:?}: {}", desk.nats.log());
    }
    assert!(!desk.nats.connections().contains(&link));
    // Another rig of that name has a link of its own.
    desk.make_rig();
    until("control is on the bus for the new rig", || desk.nats.connections().contains(&link));
}

#[test]
fn a_runner_that_is_removed_before_its_harness_came_ends() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    std::fs::write(&token, rig).unwrap();
    let settings = json!({"runners": [{"name": "box-2", "pools": ["judge"]}]});
    desk.ask("PUT", &format!("/v1/rigs/{RIG}/settings"), &settings).good(200);
    let mut supervisor = command(&["supervisor"]);
    supervisor.arg("--data").arg(place.path().join("data")).env("THERMITE_CONTROL_TOKEN_FILE", &token);
    supervisor.envs([("THERMITE_ROLE", "runner"), ("THERMITE_RIG_ID", RIG), ("THERMITE_RUNNER", "box-2")]);
    let mut supervisor = Own(supervisor.env("CONTROL_URL", desk.url()).spawn().unwrap());
    until("it is on the bus", || desk.nats.connections().iter().any(|name| name.starts_with("runner box-2")));

    desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-2"), &Value::Null).good(200);

    let began = Instant::now();
    while supervisor.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "it goes on without rights: {}", desk.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = supervisor.end();
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.err.contains("runner box-2 was removed from rig lab"), "{said:?}");
}
