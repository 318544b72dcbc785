//! One card's fault changes that card only, and it comes back by itself; drained cards stay drained (rule B10).

use serde_json::{Value, json};

use crate::binary::until;

use super::house::CardHouse;

#[test]
fn a_drained_card_takes_nothing_more_also_after_a_restart_until_it_is_undrained() {
    let Some(house) = CardHouse::served(3) else { return };
    house.end();
    house.start();
    let running = house.ask(1, &["sh", "-c", "read go < go && echo went"]);
    let fifo = std::process::Command::new("mkfifo").args(["-m", "666"]).arg(house.path("lane-1/go")).status().unwrap();
    assert!(fifo.success());
    house.until_status(&running, "running");

    let said = house.say(&["drain", "device-2"]);
    let again = house.ok("POST", "/v1/devices/device-2/drain", Some(&json!({})));
    let waiting = house.ask(2, &["true"]);
    let waits = house.until_status(&waiting, "waiting");
    std::fs::write(house.path("lane-1/go"), "go\n").unwrap();
    let went = house.until_status(&running, "ended");
    house.end();
    house.start();
    let after = house.devices()[2].clone();
    let back = house.say(&["undrain", "2", "--json"]);
    let next = house.ask(2, &["true"]);
    let next = house.until_status(&next, "ended");

    assert!(said.out.starts_with("device 2: finishes what it has and takes nothing more"), "{said:?}");
    assert_eq!(again, json!({ "device": 2, "drained": true }));
    assert!(waits["status"]["sentence"].as_str().unwrap().contains("drained"), "{waits}");
    assert_eq!(went["status"]["end"]["end"], "exited", "what it had goes on to its end: {went}");
    assert_eq!((&after["drained"], &after["pool"]), (&json!(true), &json!("agents")), "{after}");
    assert!(house.say(&["status"]).out.contains("the lanes'"));
    assert_eq!(back.out.trim(), "{\"device\":2,\"drained\":false}");
    assert_eq!(next["status"]["end"]["end"], "exited", "{next}");
    let unknown = house.send("POST", "/v1/devices/9/drain", None, Some(&json!({})));
    assert_eq!((unknown.status, &unknown.body["type"]), (404, &json!("urn:thermite:problem:unknown-device")));
    house.end();
}

#[test]
fn a_cards_fault_is_that_cards_alone_and_passes_unattended() {
    for (name, lines, word) in [
        ("lost", &["fails * GpuLost"][..], "lost"),
        ("hung", &["hangs nvmlDeviceGetTemperature"], "unresponsive"),
        ("in MIG mode", &["mig 1"], "MIG"),
    ] {
        // The judge's 0 and 1, the lanes' 2 and 3.
        let Some(house) = CardHouse::served(4) else { return };

        house.change(3, lines);
        let out = house.until_card(3, &format!("the card is out: {name}"), is_out);
        let dev_run = house.ask(1, &["true"]);
        let worked = house.until_status(&dev_run, "ended");
        let others: Vec<Value> = house.devices();
        house.change(3, &[]);
        house.until_card(3, &format!("the card is back: {name}"), |row| row["state"]["state"] == "ready");

        assert!(out.to_string().contains(word), "{name}: {out}");
        assert_eq!(worked["status"]["end"]["end"], "exited", "{name}: {worked}");
        assert!(others[..3].iter().all(|row| !is_out(row)), "{name}: {others:?}");
        house.end();
    }
}

#[test]
fn memory_that_a_foreign_program_holds_keeps_a_judges_card_waiting_and_no_other() {
    let Some(house) = CardHouse::served(4) else { return };
    house.faster("quick");
    house.change(0, &["memory 80000 30000", "computes 1 29000"]);
    house.change(1, &["memory 80000 30000", "computes 1 29000"]);
    let job = house.submit("quick");
    let held = house.until_status(&job, "measuring");
    let mut sentence = held["status"]["sentence"].clone();
    until("it says what it waits for", || {
        sentence = house.get(&job)["status"]["sentence"].clone();
        sentence.as_str().is_some_and(|said| said.contains("other_programs"))
    });
    let dev_run = house.ask(1, &["true"]);

    let worked = house.until_status(&dev_run, "ended");
    house.change(0, &[]);
    house.change(1, &[]);
    until("it measures", || {
        house.get(&job)["status"]["stage"]["accepted"].as_u64().is_some_and(|accepted| accepted > 0)
    });

    assert!(sentence.as_str().unwrap().contains("gpu_memory"), "{sentence}");
    assert_eq!(worked["status"]["end"]["end"], "exited", "{worked}");
    house.end();
}

fn is_out(row: &Value) -> bool {
    ["out", "quarantined"].contains(&row["state"]["state"].as_str().unwrap())
}
