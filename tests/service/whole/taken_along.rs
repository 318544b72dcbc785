//! A backup taken while the rig works, and a rig that goes on from it (rules A1, D7, D9).

use std::fs;

use serde_json::json;
use thermite_core::log::LogEntry;

use super::house::{House, Load, Who};
use crate::binary::until;

fn holds(house: &House) -> Vec<u64> {
    let holds = house.facts().into_iter().filter_map(|fact| match fact {
        LogEntry::StageStarted { hold, .. } | LogEntry::DevRunStarted { hold, .. } => Some(hold.number),
        _ => None,
    });
    holds.collect()
}

#[test]
fn a_backup_of_a_rig_at_work_is_restored_and_goes_on_with_numbers_that_were_never_given_out() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let judged = house.submit(&house.slower("judged"));
    let verdict = house.judged(&judged);
    // Waits in the backup, with a commit that only the rig's store will have.
    let body = json!({ "change": house.slower("waits"), "champion": "main" });
    house.post(&format!("{}/pause", house.run()), &json!({}));
    let jobs = format!("{}/jobs", house.run());
    let waits = house.send("POST", &jobs, Some("k"), Some(&body)).unwrap().ok();
    let waits = format!("/v1/jobs/{}", waits["job"].as_str().unwrap());

    let file = house.at("rig.backup");
    let taken = house.say(&["backup", &file]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    println!("{}", taken.out.trim());
    let twice = house.say(&["backup", &file]);
    assert!(twice.refused_with(69).contains("is there already"), "{twice:?}");
    let full = house.say(&["restore", &file, "--data", &house.at("data")]);
    assert!(full.refused_with(69).contains("name a new or empty folder"), "{full:?}");
    // What happens after the backup is forgotten by the restored rig, but for its numbers.
    house.post(&format!("{}/resume", house.run()), &json!({}));
    house.judged(&waits);
    for _ in 0..5 {
        house.ended(&house.ask(1, &[&busy, "hold", &probe, "1", &house.tag]));
    }
    let given_out = holds(&house).into_iter().max().unwrap();
    assert_eq!(house.terminate(), Some(0));
    fs::rename(house.data(), house.path("lost")).unwrap();
    for name in ["judged", "waits"] {
        crate::binary::git(&house.path("repo"), &["branch", "-D", name]);
    }

    let restored = house.say(&["restore", &file, "--data", &house.at("data")]);

    assert_eq!(restored.code, Some(0), "{restored:?}");
    println!("{}", restored.out.trim());
    house.restart();
    assert_eq!(house.get(&judged)["status"], verdict, "the verdict is there as it was");
    let record = verdict["record"].as_str().unwrap();
    assert_eq!(house.say(&["verify", record]).code, Some(0));
    assert_eq!(house.get(&waits)["status"]["status"], "waiting", "it waited when the backup was taken");
    let again = house.send("POST", &jobs, Some("k"), Some(&body)).unwrap().ok();
    assert!(waits.ends_with(again["job"].as_str().unwrap()), "the same key is the same job: {again}");
    house.post(&format!("{}/resume", house.run()), &json!({}));
    // Its commits come from the backup: the user's repository has let them go.
    assert_eq!(house.judged(&waits)["outcome"]["outcome"], verdict["outcome"]["outcome"]);
    house.ended(&house.ask(1, &[&busy, "hold", &probe, "1", &house.tag]));
    let restored_at = house.facts().iter().position(|fact| matches!(fact, LogEntry::RigRestored { .. })).unwrap();
    let before =
        house.facts()[..restored_at].iter().filter(|fact| matches!(fact, LogEntry::StageStarted { .. })).count();
    let after: Vec<u64> = holds(&house).into_iter().skip(before).collect();
    println!("numbers given out up to {given_out} in the lost life; the restored rig begins at {}", after[0]);
    assert!(after.len() >= 2 && after.iter().all(|number| *number > given_out), "{after:?}");
    assert_eq!(house.terminate(), Some(0));
    house.assert_traceless();
}

#[test]
fn a_backup_that_is_none_or_was_changed_is_refused() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let job = house.submit(&house.slower("judged"));
    house.judged(&job);
    let file = house.path("rig.backup");
    assert_eq!(house.say(&["backup", &house.at("rig.backup")]).code, Some(0));
    assert_eq!(house.terminate(), Some(0));
    let restore =
        |file: &str| house.say(&["restore", &house.at(file), "--data", &house.at("new")]).refused_with(69).to_owned();

    let missing = restore("nothing");
    let database = restore("data/rig.db");
    fs::write(house.path("letter"), "dear aunt").unwrap();
    let letter = restore("letter");
    fs::copy(&file, house.path("changed")).unwrap();
    let changed = rusqlite::Connection::open(house.path("changed")).unwrap();
    changed.execute_batch("UPDATE verdicts SET body = replace(body, '\"attempt\":1', '\"attempt\":2')").unwrap();
    drop(changed);
    let changed = restore("changed");
    let mut bytes = fs::read(&file).unwrap();
    let length = bytes.len();
    bytes[length / 2..length / 2 + 8_192].fill(0x5a);
    fs::write(house.path("garbled"), bytes).unwrap();
    let garbled = restore("garbled");
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = restore("rig.backup");

    assert!(missing.contains("there is no such file"), "{missing}");
    assert!(database.contains("take a backup with `thermite backup`"), "{database}");
    assert!(letter.contains("is no"), "{letter}");
    assert!(changed.contains("is damaged: verdict record"), "{changed}");
    assert!(garbled.contains("damaged"), "{garbled}");
    assert!(newer.contains("newer thermite (schema 99"), "{newer}");
    assert!(!house.path("new").exists() && !house.path("new.restoring").exists(), "nothing half made is left");
    until("nothing runs", || house.tagged().is_empty());
}
