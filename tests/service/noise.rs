//! Noise, its alarm, and verdicts given again, through REST and the commands (rules D5, D6).

use std::path::Path;

use serde_json::{Value, json};
use thermite_core::record::verify_json;

use crate::binary::{Said, command, until};
use crate::scripted::{Served, Serving};

#[test]
fn noise_is_listed_measured_anew_and_an_alarm_is_cleared_by_rest() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();

    let none_yet = rig.get("/v1/noise").json();
    let nothing_to_drop = rig.post("/v1/noise/0/again", &json!({}));
    let nothing_to_clear = rig.post("/v1/noise/0/clear", &json!({}));
    let nobody = rig.post("/v1/noise/7/clear", &json!({}));
    let no_number = rig.post("/v1/noise/first/again", &json!({}));
    ended(&rig, &submit(&rig, &run, "same-1"));
    let measured = rig.get("/v1/noise").json();
    let dropped = rig.post("/v1/noise/0/again", &json!({}));
    let doubted = rig.get("/v1/noise").json();

    assert_eq!((&none_yet[0]["kits"], &none_yet[0]["alarm"]["blocks"]), (&json!([]), &json!(0)));
    assert!(nothing_to_drop.problem(409, "no-noise-yet").contains("device 0"));
    assert!(nothing_to_clear.problem(409, "not-quarantined").contains("device 0 has no alarm to clear"));
    let detail = nobody.problem(404, "unknown-device");
    assert_eq!(detail, "device 7 does not exist: this rig has device 0");
    no_number.problem(400, "bad-request");
    let kit = &measured[0]["kits"][0];
    assert_eq!((&kit["kit"], &kit["is_good"], &kit["noise"]["blocks"]), (&json!("scripted"), &json!(true), &json!(40)));
    assert!(kit["plan"]["blocks_to_confirm"].as_f64() > kit["plan"]["blocks_to_screen"].as_f64());
    assert_eq!(dropped.json(), json!({"device": 0, "dropped": 1}));
    assert_eq!(doubted[0]["kits"][0]["is_good"], false);
}

#[test]
fn a_quarantined_device_says_so_everywhere_through_a_restart_until_it_is_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let job = submit(&rig, &run, "biased-1");
    until("the alarm is raised", || rig.get("/v1/rig").json()["devices"][0]["state"]["state"] == "quarantined");
    rig.end();

    let rig = Served::start(folder.path());
    until("the device is swept", || rig.get("/v1/rig").json()["devices"][0]["state"]["state"] == "quarantined");
    let status = say(folder.path(), &["status"]);
    let noise = say(folder.path(), &["noise"]);
    let sentence = rig.get(&job).json()["status"]["sentence"].clone();
    let cleared = say(folder.path(), &["noise", "--clear", "0"]);

    let why = "champion against champion favours the place of the change: evidence ";
    assert!(status.out.contains(&format!("device 0 (scripted): quarantined: {why}")), "{status:?}");
    assert!(noise.out.contains(&format!("  alarm: quarantined: {why}")), "{noise:?}");
    assert!(sentence.as_str().unwrap().contains(why), "{sentence}");
    assert_eq!(
        (cleared.code, cleared.out.as_str()),
        (Some(0), "device 0: alarm cleared; it comes back into service, and its alarm begins anew\n")
    );
    // Nothing was mended, so the alarm comes again: the device was truly in service.
    until("the alarm is raised again", || rig.get("/v1/rig").json()["devices"][0]["state"]["state"] == "quarantined");
}

#[test]
fn the_command_shows_what_a_measure_costs() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let none = say(folder.path(), &["noise"]);
    let nothing = say(folder.path(), &["noise", "--clear", "0"]);
    let run = rig.run();
    ended(&rig, &submit(&rig, &run, "same-1"));

    let shown = say(folder.path(), &["noise"]);
    let json: Value = serde_json::from_str(&say(folder.path(), &["noise", "--json"]).out).unwrap();
    let dropped = say(folder.path(), &["noise", "--again", "0"]);
    let after = say(folder.path(), &["noise"]);

    assert_eq!(nothing.refused_with(69), "device 0 has no alarm to clear: it is not quarantined");
    assert!(none.out.contains("  not measured yet: the first stage does it\n"), "{none:?}");
    assert!(shown.out.starts_with("device 0 (scripted)\n  kit scripted (kit): noise 0."), "{shown:?}");
    assert!(shown.out.contains(" blocks to screen, "), "{shown:?}");
    assert!(shown.out.contains("  alarm: quiet after 40 blocks of the champion twice "), "{shown:?}");
    assert_eq!(json[0]["kits"][0]["noise"]["blocks"], 40);
    assert_eq!(dropped.out, "device 0: 1 measure dropped; the next stage of each kit takes its own\n");
    assert!(after.out.contains("; the next stage measures it anew"), "{after:?}");
}

#[test]
fn an_old_win_is_given_to_another_run_with_the_old_records_byte_for_byte_and_says_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());
    let run = rig.run();
    let first = submit(&rig, &run, "faster-1");
    ended(&rig, &first);
    let old = ["", "?stage=screening", "?stage=confirmation"].map(|which| rig.get(&format!("{first}/verdict{which}")));
    rig.post(&format!("{run}/end"), &json!({}));
    rig.end();

    // Also by another life of the rig.
    let rig = Served::start(folder.path());
    rig.run();
    let said = say(folder.path(), &["judge", "--change", "faster-1"]);
    let jobs = rig.get(&format!("{}/jobs", running(&rig))).json();
    let job = format!("/v1/jobs/{}", jobs[0]["job"].as_str().unwrap());
    let row = rig.get(&job).json();
    let new = ["", "?stage=screening", "?stage=confirmation"].map(|which| rig.get(&format!("{job}/verdict{which}")));

    let from = first.rsplit_once('/').unwrap().1;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("win: change faster-1 against champion\n"), "{said:?}");
    assert!(said.out.contains(&format!("  reused from job {from}: nothing was measured again\n")), "{said:?}");
    assert_ne!(job, first);
    assert_eq!((row["reused_from"].as_str(), &row["status"]["outcome"]["adopted"]), (Some(from), &json!(true)));
    for (old, new) in old.iter().zip(&new) {
        assert_eq!((old.status, new.status), (200, 200));
        assert_eq!(old.body, new.body);
        verify_json(new.text()).unwrap();
    }
    assert_eq!(rig.get("/v1/rig").json()["runs"][0]["champion"], "candidate-faster-1");
    // Verified by the new job's id, in the records alone.
    let verified = say(folder.path(), &["verify", job.rsplit_once('/').unwrap().1]);
    assert!(verified.out.starts_with("the record holds: win; "), "{verified:?}");

    // With the old champion named once more: it has moved.
    let late = say(folder.path(), &["judge", "--json", "--change", "faster-1", "--champion", "champion"]);
    let late: Value = serde_json::from_str(&late.out).unwrap();
    assert_eq!(late["job"], job.rsplit_once('/').unwrap().1, "the same asking in the same run is the same job");
}

fn submit(rig: &Serving, run: &str, change: &str) -> String {
    let answer = rig.post(&format!("{run}/jobs"), &json!({"change": change}));
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.headers["location"].clone()
}

fn ended(rig: &Serving, job: &str) {
    until("the job ends", || rig.get(job).json()["status"]["status"] == "ended");
}

fn running(rig: &Serving) -> String {
    let runs = rig.get("/v1/runs").json();
    let run = runs.as_array().unwrap().iter().find(|run| run["state"] == "running").unwrap();
    format!("/v1/runs/{}", run["run"].as_str().unwrap())
}

fn say(folder: &Path, args: &[&str]) -> Said {
    Said::by(command(args).env("THERMITE_DATA", folder).output().unwrap())
}
