//! What may be set while a rig runs: by revision, durable, in force at once.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::scripted::{Answer, Served, Serving};

#[test]
fn settings_are_read_by_revision() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());

    let first = rig.get("/v1/rig/settings");
    let etag = first.headers["etag"].clone();
    let same = rig.send("GET", "/v1/rig/settings", &[("if-none-match", &etag)], b"");
    let of_a_list = rig.send("GET", "/v1/rig/settings", &[("if-none-match", &format!("\"x\", W/{etag}"))], b"");
    let other = rig.send("GET", "/v1/rig/settings", &[("if-none-match", "\"77\"")], b"");

    assert_eq!(first.json()["dev_run_wait"], 600_000);
    assert_eq!(first.json()["set"], json!({"dev_run_wait": null}));
    assert_eq!((same.status, same.body.len(), same.headers["etag"].as_str()), (304, 0, etag.as_str()));
    assert_eq!(of_a_list.status, 304);
    assert_eq!(other.status, 200);
    rig.end();
}

#[test]
fn who_did_not_read_the_newest_settings_sets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let etag = rig.get("/v1/rig/settings").headers["etag"].clone();

    let first = put(&rig, &json!({"dev_run_wait": 5_000}), &[("if-match", &etag)]);
    let second = put(&rig, &json!({"dev_run_wait": 6_000}), &[("if-match", &etag)]);
    let whatever_it_is = put(&rig, &json!({"dev_run_wait": 7_000}), &[("if-match", "*")]);
    let no_etag = put(&rig, &json!({"dev_run_wait": 7_000}), &[("if-match", "seven")]);

    assert_eq!((first.status, first.json()["dev_run_wait"].as_u64()), (200, Some(5_000)), "{first:?}");
    assert_ne!(first.headers["etag"], etag);
    assert!(second.problem(412, "settings-moved").contains("revision 1"), "{second:?}");
    assert_eq!(whatever_it_is.json()["dev_run_wait"], 7_000);
    assert!(no_etag.problem(400, "bad-request").contains("If-Match is \"seven\""), "{no_etag:?}");
    rig.end();
}

#[test]
fn of_many_that_set_at_once_one_wins_each_revision() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let etag = rig.get("/v1/rig/settings").headers["etag"].clone();

    let answers: Vec<u16> = std::thread::scope(|scope| {
        let set = |n: u64| {
            let (rig, etag) = (&rig, &etag);
            move || put(rig, &json!({"dev_run_wait": 1_000 + n}), &[("if-match", etag)]).status
        };
        let setting: Vec<_> = (0..8).map(|n| scope.spawn(set(n))).collect();
        setting.into_iter().map(|setting| setting.join().unwrap()).collect()
    });

    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|status| **status == 412).count(), 7, "{answers:?}");
    rig.end();
}

#[test]
fn a_wait_that_was_set_is_in_force_at_once_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let (held, _) = rig.ask(&run, 1, false);
    rig.script.started(held);
    assert_eq!(put(&rig, &json!({"dev_run_wait": 1_000}), &[]).status, 200);

    gives_up_within_a_minute(&rig, &run);
    rig.end();
    let rig = Served::start(folder.path());
    assert_eq!(rig.get("/v1/rig/settings").json()["dev_run_wait"], 1_000);
    let (held, _) = rig.ask(&run, 1, false);
    rig.script.started(held);
    gives_up_within_a_minute(&rig, &run);
    // Null: as it was started with.
    assert_eq!(put(&rig, &json!({"dev_run_wait": null}), &[]).json()["dev_run_wait"], 600_000);
    rig.end();
}

#[test]
fn setting_is_told_as_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let events = rig.open("GET", "/v1/events?for_ms=1000", &[("authorization", &format!("Bearer {}", rig.token))], b"");

    put(&rig, &json!({"dev_run_wait": 2_000}), &[]);

    let mut events = events;
    let told = String::from_utf8(crate::scripted::all_of(&mut events)).unwrap();
    assert!(told.contains("\"entry\":\"settings_changed\",\"settings\":{\"dev_run_wait\":2000}"), "{told}");
    rig.end();
}

#[test]
fn a_setting_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());

    for (body, status, kind, word) in [
        (json!({"dev_run_wait": 999}), 422, "impossible", "dev_run_wait is 0.9 s; it must be 1.0 s to 24 h"),
        (json!({"dev_run_wait": 86_400_001}), 422, "impossible", "dev_run_wait"),
        (json!({"dev_run_wait": "long"}), 400, "bad-request", "dev_run_wait: invalid type"),
        (json!({"dev_run_wait": -1}), 400, "bad-request", "dev_run_wait"),
        (json!({"lanes_most": 3}), 400, "bad-request", "lanes_most"),
    ] {
        let answer = put(&rig, &body, &[]);
        assert!(answer.problem(status, kind).contains(word), "{answer:?}");
    }
    assert_eq!(rig.get("/v1/rig/settings").json()["revision"], 0);
    rig.end();
}

fn put(rig: &Serving, body: &serde_json::Value, headers: &[(&str, &str)]) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    rig.send("PUT", "/v1/rig/settings", &all, body.to_string().as_bytes())
}

fn gives_up_within_a_minute(rig: &Served, run: &str) {
    let asked = Instant::now();
    let (_, waiting) = rig.ask(run, 2, false);
    let row = rig.get(&format!("{waiting}?wait_ms=30000")).json();
    assert_eq!(row["status"]["end"], json!({"end": "gave_up", "why": "lane_held_device"}), "{row}");
    assert!(asked.elapsed() < Duration::from_secs(60));
}
