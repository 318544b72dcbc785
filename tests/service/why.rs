//! `why` through a real rig: the sentence that REST and `status` say, and what was decided (rules A9, D10).

use serde_json::Value;

use crate::binary::{KIT, Served, until};

#[test]
fn why_status_and_rest_say_the_same_sentence() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));
    let detach = |lane: &str| {
        let said = rig.say(&["run", "--lane", lane, "--detach", "--", "sleep", "600"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out.trim().to_owned()
    };
    let holder = detach("1");
    until("the first runs", || rig.say(&["why", &holder]).out.starts_with("runs since"));
    let waits = detach("2");

    let rest: Value = serde_json::from_str(&rig.say(&["status", "--json"]).out).unwrap();
    let status = rig.say(&["status"]).out;
    let why = rig.say(&["why", &waits]);
    let why_json: Value = serde_json::from_str(&rig.say(&["why", &waits, "--json"]).out).unwrap();
    let device = rig.say(&["why", "0"]);
    let unknown = rig.say(&["why", "no such thing"]);

    let row = rest["dev_runs"].as_array().unwrap().iter().find(|row| row["dev_run"] == waits.as_str()).unwrap();
    let sentence = timeless(row["status"]["sentence"].as_str().unwrap());
    assert_eq!(sentence, format!("waits for lane 1, which holds device 0 for development run {holder}, next in line"));
    assert_eq!(timeless(why.out.lines().next().unwrap()), sentence);
    assert_eq!(timeless(why_json["says"].as_str().unwrap()), sentence);
    assert!(status.contains(&sentence), "{status}");
    assert!(device.out.starts_with("held by lane 1, runs since"), "{device:?}");
    assert!(device.out.contains(&format!("is for development run {holder} of lane 1")), "{device:?}");
    let refused = unknown.refused_with(69);
    assert_eq!(refused, "no such thing is no run, job, development run or device of this rig");

    for dev_run in [&waits, &holder] {
        assert_eq!(rig.say(&["cancel", dev_run.as_str()]).code, Some(0));
    }
    let over = rig.say(&["why", &waits]).out;
    assert!(over.starts_with("cancelled\n"), "{over}");
    assert!(over.contains("it never had a device, and nothing of it ran"), "{over}");
}

/// The sentence without its times, which go on between two looks.
fn timeless(sentence: &str) -> String {
    sentence.split(", since").next().unwrap().to_owned()
}
