//! `thermite doctor` on this machine, on one that was made poorer, and beside a rig.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::getuid;
use serde_json::Value;

use crate::binary::{Said, Served, command, thermite};

/// The findings by ability, and the exit code.
fn findings(mut doctor: Command) -> (Option<i32>, Value) {
    let said = Said::by(doctor.output().unwrap());
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(said.err, "");
    assert_eq!(json["fit"], said.code == Some(0), "{json}");
    (said.code, json["findings"].clone())
}

#[track_caller]
fn of<'a>(findings: &'a Value, ability: &str) -> &'a Value {
    let found = findings.as_array().unwrap().iter().find(|finding| finding["ability"] == ability);
    found.unwrap_or_else(|| panic!("no {ability}: {findings}"))
}

const ABILITIES: [&str; 14] = [
    "containment",
    "namespaces",
    "cgroup",
    "uids",
    "clocks",
    "quota",
    "load",
    "git",
    "toolchain",
    "disk",
    "device_lock",
    "card_readings",
    "cards",
    "card_cpus",
];

#[test]
fn this_machine_is_told_line_by_line_in_words_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |json: bool| {
        let mut doctor = command(if json { &["doctor", "--json"] } else { &["doctor"] });
        doctor.env("THERMITE_DATA", folder.path().join("data")).env("THERMITE_DEVICE_LOCKS", folder.path());
        doctor
    };

    let words = Said::by(doctor(false).output().unwrap());
    let (code, found) = findings(doctor(true));

    println!("{}", words.out);
    assert_eq!(words.code, code);
    let abilities: Vec<&str> = found.as_array().unwrap().iter().map(|one| one["ability"].as_str().unwrap()).collect();
    assert_eq!(abilities, ABILITIES);
    let lines = words.out.lines().filter(|line| !line.starts_with(' ')).count();
    assert_eq!(lines, ABILITIES.len() + 1, "a line for each ability and one for all: {}", words.out);
    for finding in found.as_array().unwrap().iter().filter(|finding| finding["standing"] != "ok") {
        assert!(finding["missing"].is_string() && finding["to_get_it"].is_string(), "{finding}");
    }
    // What the tests themselves stand on.
    for ability in ["clocks", "load", "git", "disk", "device_lock"] {
        assert_eq!(of(&found, ability)["standing"], "ok", "{found}");
    }
    assert!(!folder.path().join("data").exists(), "looking makes no data folder");
}

#[test]
fn beside_a_rig_the_device_is_said_to_be_taken_and_the_rig_goes_on() {
    let Some(rig) = Served::start() else { return };

    let mut doctor = rig.command(&["doctor", "--json"]);
    let said = Said::by(doctor.env("THERMITE_DEVICE_LOCKS", rig.path("locks")).output().unwrap());

    let json: Value = serde_json::from_str(&said.out).unwrap();
    let lock = of(&json["findings"], "device_lock");
    assert_eq!(lock["standing"], "ok", "{lock}");
    assert!(lock["found"].as_str().unwrap().starts_with("taken: a rig has it: process "), "{lock}");
    assert_eq!(of(&json["findings"], "disk")["standing"], "ok", "{json}");
    assert_eq!(rig.say(&["status"]).code, Some(0));
}

#[test]
fn a_wrong_setting_is_named_before_anything_is_looked_at() {
    let said = Said::by(command(&["doctor"]).env("THERMITE_CONTAINMENT", "docker").output().unwrap());

    assert!(said.refused_with(64).starts_with("THERMITE_CONTAINMENT is docker; it must be best, "), "{said:?}");
}

#[test]
fn a_root_without_the_right_to_make_namespaces_falls_to_its_uids_and_says_so() {
    if !getuid().is_root() {
        println!("not root: a root without rights cannot be made, so it is not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut doctor = Command::new("setpriv");
    doctor.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]).arg(thermite()).args(["doctor", "--json"]);
    doctor.env("THERMITE_DATA", folder.path().join("data")).env("THERMITE_DEVICE_LOCKS", folder.path());

    let (code, found) = findings(doctor);

    assert_eq!(code, Some(0), "{found}");
    let containment = of(&found, "containment");
    assert_eq!(containment["standing"], "degraded");
    assert!(containment["found"].as_str().unwrap().starts_with("own uid"), "{containment}");
    let namespaces = of(&found, "namespaces");
    assert!(namespaces["missing"].as_str().unwrap().contains("clone3"), "{namespaces}");
    assert!(namespaces["to_get_it"].as_str().unwrap().contains("CAP_SYS_ADMIN"), "{namespaces}");
    assert_eq!(of(&found, "uids")["standing"], "ok", "{found}");
}

#[test]
fn a_user_without_user_namespaces_falls_to_the_walk_and_says_so() {
    const ORDINARY: &str = "70713";
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("thermite");
    std::fs::copy(thermite(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script =
        "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"";
    let mut doctor = Command::new(if getuid().is_root() { "setpriv" } else { "env" });
    if getuid().is_root() {
        doctor.args(["--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups"]);
    }
    doctor.args(["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"]);
    doctor.arg(&program).args(["doctor", "--json"]).current_dir(folder.path());
    doctor.env("THERMITE_DATA", folder.path().join("data")).env("THERMITE_DEVICE_LOCKS", folder.path());
    doctor.env("TMPDIR", folder.path());

    let (code, found) = findings(doctor);

    assert_eq!(code, Some(0), "{found}");
    let containment = of(&found, "containment");
    assert_eq!(containment["standing"], "degraded");
    let said = containment["found"].as_str().unwrap();
    assert!(said.starts_with("children walk") && said.ends_with("(degraded: best effort)"), "{containment}");
    let open = containment["leaves_open"].to_string();
    assert!(open.contains("the device is then out of service"), "{open}");
    assert!(of(&found, "namespaces")["missing"].as_str().unwrap().contains("clone3"), "{found}");
    assert_eq!(of(&found, "uids")["standing"], "degraded", "{found}");
}
