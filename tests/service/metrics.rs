//! Figures: strict OpenMetrics text, true to what happened, with labels from closed lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::scripted::Served;

#[test]
fn the_figures_say_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let (done, path) = rig.ask(&run, 1, false);
    rig.script.started(done);
    rig.script.exits(done, 0);
    rig.get(&format!("{path}?wait_ms=30000"));
    for change in ["faster", "even"] {
        let job = rig.post(&format!("{run}/jobs"), &json!({"change": change})).headers["location"].clone();
        while rig.get(&job).json()["status"]["status"] != "ended" {
            std::thread::yield_now();
        }
    }
    let (held, _) = rig.ask(&run, 1, false);
    rig.script.started(held);
    rig.ask(&run, 2, false);

    let figures = figures(&rig);

    assert_eq!(figures["thermite_dev_runs_ended_total{end=\"exited\"}"], 1.0);
    assert_eq!(figures["thermite_jobs_ended_total{outcome=\"win\"}"], 1.0);
    assert!(figures["thermite_blocks_total{result=\"accepted\"}"] >= 16.0, "{figures:?}");
    assert!(figures["thermite_holds_total{holder=\"judge\"}"] >= 3.0, "{figures:?}");
    assert_eq!(figures["thermite_holds_total{holder=\"lane\"}"], 2.0);
    assert!(figures["thermite_busy_seconds_total{by=\"lane-1\"}"] > 0.0);
    assert_eq!(figures["thermite_held_devices{holder=\"lane\"}"], 1.0);
    assert_eq!(figures["thermite_devices{state=\"held\"}"], 1.0);
    assert_eq!(figures["thermite_waiters{kind=\"dev_run\"}"], 1.0);
    assert_eq!(figures["thermite_waiters{kind=\"job\"}"], 0.0);
    assert_eq!(figures["thermite_alarms_total"], 0.0);
    assert_eq!(figures["thermite_records_fault"], 0.0);
    assert_eq!(figures["thermite_events_dropped_total"], 0.0);
    rig.end();
}

#[test]
fn time_held_rises_while_it_is_held_and_not_after() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let (held, path) = rig.ask(&run, 3, false);
    rig.script.started(held);
    let busy = "thermite_busy_seconds_total{by=\"lane-3\"}";

    let first = figures(&rig)[busy];
    std::thread::sleep(std::time::Duration::from_millis(20));
    let second = figures(&rig)[busy];
    rig.script.exits(held, 0);
    rig.get(&format!("{path}?wait_ms=30000"));
    // The end of the hold is told after the end of the development run.
    while figures(&rig)["thermite_devices{state=\"ready\"}"] < 1.0 {}
    let third = figures(&rig)[busy];
    std::thread::sleep(std::time::Duration::from_millis(20));
    let last = figures(&rig)[busy];

    assert!(first < second && second < third, "{first} {second} {third}");
    assert_eq!(third, last);
    rig.end();
}

#[test]
fn what_waits_longest_is_told_with_its_age() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let (held, _) = rig.ask(&run, 1, false);
    rig.script.started(held);
    rig.ask(&run, 2, false);
    let age = "thermite_oldest_waiter_age_seconds{kind=\"dev_run\"}";

    let first = figures(&rig)[age];
    std::thread::sleep(std::time::Duration::from_millis(20));
    let second = figures(&rig)[age];

    assert!(second >= first + 0.02, "{first} {second}");
    rig.end();
}

#[test]
fn the_text_is_strict_and_its_labels_are_few() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    for lane in 1..=3 {
        let (dev_run, path) = rig.ask(&run, lane, false);
        rig.script.started(dev_run);
        rig.script.exits(dev_run, 1);
        rig.get(&format!("{path}?wait_ms=30000"));
    }

    let answer = rig.get("/metrics");

    assert_eq!(answer.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let names: BTreeSet<String> = read(answer.text())
        .keys()
        .filter_map(|name| Some(name.split_once("{")?.1.split_once('=')?.0.to_owned()))
        .collect();
    let known = ["by", "cause", "device", "end", "holder", "kind", "outcome", "result", "state"];
    assert!(names.iter().all(|name| known.contains(&name.as_str())), "{names:?}");
    assert!(!answer.text().contains(run.trim_start_matches("/v1/runs/")), "a label names a run");
    rig.end();
}

fn figures(rig: &Served) -> BTreeMap<String, f64> {
    read(rig.get("/metrics").text())
}

/// Reads OpenMetrics text as strictly as it is written: each family is announced with type and help before its samples,
/// in one piece, no sample twice, numbers finite, and the end is marked.
fn read(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    let mut families = BTreeSet::new();
    let mut figures = BTreeMap::new();
    let mut family = (String::new(), String::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family.0, "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            family.1 = kind.to_owned();
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.') && help.len() > 5, "{line}");
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            family = (name.to_owned(), String::new());
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let bare = name.split('{').next().unwrap();
            let expected = if family.1 == "counter" { format!("{}_total", family.0) } else { family.0.clone() };
            assert_eq!(bare, expected, "{line}");
            assert!(bare.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(figures.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        }
    }
    assert!(families.len() >= 12, "{families:?}");
    figures
}
