//! The whole rig where runs have no namespaces: nothing outlives a run, the judge judges, and the rig says what is in
//! force.

use super::escapes::{End, alive, end_adversary, tag};
use super::house::{House, Who, everyone, is_root};
use crate::binary::until;

/// The layers below namespaces that each can have.
fn layers() -> Vec<(Who, &'static str)> {
    everyone()
        .into_iter()
        .flat_map(|who| match who {
            Who::Me if is_root() => vec![(who, "uid"), (who, "uid,no-cgroup"), (who, "children,no-cgroup")],
            Who::Me | Who::Ordinary => vec![(who, "children")],
        })
        .collect()
}

#[test]
fn no_adversary_outlives_its_run_or_its_rig_on_any_layer() {
    for (who, layer) in layers() {
        let house = House::served_on(who, layer, "10 min");
        for (script, least, end) in [
            ("01_daemon", 4, End::Cancel),
            ("12_clean_env", 4, End::Cancel),
            ("04_ignore_signals", 5, End::RigKilled),
            ("05_stopped", 5, End::RigKilled),
        ] {
            println!("{layer} as {who:?}: {script} by {end:?}");
            end_adversary(&house, script, least, end);
        }
        house.assert_traceless();
    }
}

#[test]
fn a_change_is_judged_on_any_layer_and_the_log_says_which_is_in_force() {
    for (who, layer) in layers() {
        let house = House::served_on(who, layer, "10 min");
        house.faster("faster");

        let status = house.judged(&house.submit("faster"));

        assert_eq!(status["outcome"]["outcome"], "win", "{layer} as {who:?}: {status}");
        let log = house.log_text();
        let in_force = if layer.starts_with("uid") { "own uid" } else { "children walk" };
        assert!(log.contains("runs have no view of their own") && log.contains(in_force), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn a_layer_that_is_not_to_be_had_is_said_and_nothing_is_served() {
    let layers: Vec<(Who, &str)> =
        everyone().into_iter().filter(|who| *who == Who::Ordinary || !is_root()).map(|who| (who, "uid")).collect();
    if layers.is_empty() {
        println!("nobody here is an ordinary user, so it is not tested");
    }
    for (who, layer) in layers {
        let house = House::build(who, super::house::Load::Quiet, "10 min");
        let mut serve = house.command(&["serve", "--listen", "127.0.0.1:0"]);

        let said = crate::binary::Said::by(serve.env("THERMITE_CONTAINMENT", layer).output().unwrap());

        assert_eq!(said.code, Some(70), "{said:?}");
        let why = "no containment for a run here: namespaces (not asked for: THERMITE_CONTAINMENT is uid); own uid (take another uid: \
                   the rig is not root; serve as root to have it)";
        assert!(said.err.contains(why), "{said:?}");
    }
}

#[test]
fn a_run_that_kills_all_its_guards_puts_the_device_out_of_service_until_its_leftovers_are_swept() {
    // Only where the run is its guards' own user can it.
    let who = if is_root() { Who::Ordinary } else { Who::Me };
    let house = House::served_on(who, "children,no-cgroup", "10 min");
    let tag = tag(&house, "guards");
    // Stopped first, so that neither ends the run when it sees the other's end.
    let script = "launcher=$(cut -d' ' -f4 /proc/$PPID/stat); kill -STOP $launcher $PPID; kill -KILL $launcher $PPID; \
                  exec \"$ESCAPE_BIN/escape\" sleep 300 $0";

    let first = house.ask(1, &["sh", "-c", script, &tag]);
    let end = house.ended(&first);

    assert_eq!(end["end"], "not_proved", "{end}");
    assert!(end["why"].as_str().unwrap().starts_with("all guards of the run were killed"), "{end}");
    let device = || house.get("/v1/rig")["devices"][0]["state"].clone();
    let state = device();
    assert_eq!(state["state"], "out", "{state}");
    until("what carries the run's mark is ended", || alive(&house, &tag) == 0);
    // It comes back by itself, and serves.
    let next = house.ask(2, &["true"]);
    assert_eq!(house.ended(&next)["exit"]["code"], 0, "{}", house.log_text());
    house.assert_traceless();
}
