//! The rig's runners over REST and on the command line: set as a whole list by revision, shown, refused (rules E8, E10,
//! E14).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary;
use crate::scripted::{Answer, Served, Serving};

#[test]
fn runners_are_set_by_revision_and_shown_with_pool_and_answer() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let none = rig.get("/v1/rig/runners");
    let etag = none.headers["etag"].clone();
    let list = json!([{ "name": "box-1", "pools": ["judge"] }, { "name": "box-2", "pools": ["shared", "lane-1"] }]);

    let set = put(&rig, &list, &[("if-match", &etag)]);
    let late = put(&rig, &json!([]), &[("if-match", &etag)]);
    let shown = until(&rig, |view| {
        view["runners"]
            .as_array()
            .is_some_and(|rows| rows.len() == 3 && rows.iter().all(|row| row["takes_runs"] == true))
    });
    let whole = rig.get("/v1/rig").json();

    assert_eq!((none.json()["revision"].as_u64(), none.json()["runners"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert_eq!((set.status, &set.json()["asked"], set.json()["revision"].as_u64()), (200, &list, Some(1)), "{set:?}");
    assert_ne!(set.headers["etag"], etag);
    assert!(late.problem(412, "runners-moved").contains("revision 1"), "{late:?}");
    let names: Vec<&str> = shown["runners"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["box-1/1", "box-2/1", "box-2/2"]);
    let first = &shown["runners"][0];
    assert_eq!((&first["pool"], &first["member"]), (&json!("judge"), &json!(1_000)), "{first}");
    assert!(first["answered"].is_u64() && first["state"]["state"] == "ready", "{first}");
    assert_eq!(shown["core_judges"], true);
    assert_eq!(whole["runners"]["asked"], list, "the rig's own view has the block");
    assert_eq!(whole["devices"].as_array().unwrap().len(), 1, "and runners are none of its devices");
    for name in ["box-1", "box-1%2F1"] {
        let why = rig.get(&format!("/v1/why/{name}")).json();
        assert_eq!((&why["subject"], &why["id"], &why["says"]), (&json!("runner"), &json!("box-1/1"), &json!("free")));
    }
    rig.end();
}

#[test]
fn a_list_that_cannot_be_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());

    for (list, why) in [
        (json!([{ "name": "B", "pools": ["judge"] }]), "no runner's name"),
        (json!([{ "name": "box-1", "pools": [] }]), "has no pool"),
        (json!([{ "name": "box-1", "pools": ["agents"] }]), "there is no pool \"agents\""),
        (
            json!([{ "name": "box-1", "pools": ["judge"] }, { "name": "box-1", "pools": ["judge"] }]),
            "box-1 is named twice",
        ),
    ] {
        let answer = put(&rig, &list, &[]);
        assert!(answer.problem(422, "bad-runners").contains(why), "{answer:?}");
    }
    let no_list = put(&rig, &json!({ "name": "box-1", "pools": ["judge"] }), &[]);

    assert_eq!(no_list.status, 400, "{no_list:?}");
    assert_eq!(rig.get("/v1/rig/runners").json()["revision"], 0);
    rig.end();
}

#[test]
fn a_runner_is_drained_by_its_number_and_figures_count_it() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    put(&rig, &json!([{ "name": "box-1", "pools": ["judge"] }]), &[]);
    until(&rig, |view| view["runners"][0]["takes_runs"] == true);
    let free = metrics(&rig);

    let drained = rig.send("POST", "/v1/devices/1000/drain", &[], b"");
    let shown = rig.get("/v1/rig/runners").json();
    let undrained = rig.send("POST", "/v1/devices/1000/undrain", &[], b"");

    assert!(free.contains("thermite_runners{state=\"free\"} 1"), "{free}");
    assert_eq!((drained.status, undrained.status), (200, 200), "{drained:?} {undrained:?}");
    let row = &shown["runners"][0];
    assert_eq!((&row["drained"], &row["takes_runs"]), (&json!(true), &json!(false)), "{row}");
    assert_eq!(row["why_not"], "it is drained; undrain it to give it runs again");
    rig.end();
}

#[test]
fn a_rig_without_a_bus_says_so_on_the_command_line() {
    let Some(rig) = binary::Served::start() else { return };

    let shown = rig.say(&["runners"]);
    let refused = rig.say(&["runners", "set", "box-1=judge"]);
    let wrong = rig.say(&["runners", "set", "box-1"]);
    let dry = rig.say(&["runners", "set", "--dry-run", "box-1=judge,lane-2"]);
    let none = rig.say(&["runners", "set", "--none"]);
    let drain = rig.say(&["drain", "box-1/1"]);

    assert_eq!(shown.out, "this rig has no runners on other machines: set them with `thermite runners set`\n");
    assert_eq!(
        refused.refused_with(69),
        "the runners cannot be: this rig was started without a bus, so it reaches no runner; start it with \
         THERMITE_NATS_URL"
    );
    assert_eq!(wrong.code, Some(64), "{wrong:?}");
    assert_eq!(dry.out, "box-1/1: would be added to pool judge\nbox-1/2: would be added to pool lane-2\n");
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
    assert!(drain.refused_with(69).starts_with("there is no device box-1/1"), "{drain:?}");
}

fn put(rig: &Serving, list: &Value, headers: &[(&str, &str)]) -> Answer {
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    rig.send("PUT", "/v1/rig/runners", &headers, list.to_string().as_bytes())
}

fn metrics(rig: &Serving) -> String {
    String::from_utf8(rig.get("/metrics").body).unwrap()
}

/// Waits until the runners are so; they answer by themselves.
fn until(rig: &Serving, is_so: impl Fn(&Value) -> bool) -> Value {
    let latest = Instant::now() + Duration::from_secs(60);
    loop {
        let view = rig.get("/v1/rig/runners").json();
        if is_so(&view) {
            return view;
        }
        assert!(Instant::now() < latest, "the runners are not so within a minute: {view}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
