//! The settings of a runner's processes and of a core's bus (rule E6): each that is missing or wrong ends the process with
//! one line that names it, what it is and what it must be.

use std::collections::BTreeMap;
use std::path::Path;

use thermite_core::contract::Target;
use thermite_svc::settings::bus::{BusWay, CoreBus, HarnessSettings, SupervisorSettings};

use crate::binary::{Said, command};

/// An environment in which all is well, for a supervisor with control.
fn supervisor(place: &Path) -> BTreeMap<&'static str, String> {
    std::fs::write(place.join("token"), "thermite_abc\n").unwrap();
    std::fs::write(place.join("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    BTreeMap::from([
        ("THERMITE_ROLE", "runner".to_owned()),
        ("THERMITE_RIG_ID", "lab".to_owned()),
        ("THERMITE_RUNNER", "box-2".to_owned()),
        ("CONTROL_URL", "https://control.example:7078".to_owned()),
        ("THERMITE_CONTROL_TOKEN_FILE", place.join("token").display().to_string()),
        ("THERMITE_NATS_URL", "tls://bus.example:4222".to_owned()),
        ("THERMITE_NATS_CA_FILE", place.join("ca.pem").display().to_string()),
        ("THERMITE_DATA", place.join("data").display().to_string()),
    ])
}

fn harness(place: &Path) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("THERMITE_ROLE", "runner".to_owned()),
        ("THERMITE_RIG_ID", "lab".to_owned()),
        ("THERMITE_TARGET", "cpu".to_owned()),
        ("THERMITE_DATA", place.join("data").display().to_string()),
    ])
}

/// What is wrong in each row, and the line that says so; `PLACE` stands for the test's folder.
const WRONG_OF_SUPERVISOR: &[(&str, Option<&str>, &str)] = &[
    ("THERMITE_ROLE", None, "THERMITE_ROLE is not set; it must be runner: a core's process is `thermite serve`"),
    ("THERMITE_ROLE", Some("core"), "THERMITE_ROLE is core; it must be runner: a core's process is `thermite serve`"),
    ("THERMITE_RIG_ID", None, "THERMITE_RIG_ID is not set; it must be the rig's name: 2 to 64 of a-z, 0-9 and -"),
    (
        "THERMITE_RIG_ID",
        Some("lab.1"),
        "THERMITE_RIG_ID is lab.1; it must be the rig's name: 2 to 64 of a-z, 0-9 and -",
    ),
    (
        "THERMITE_RUNNER",
        None,
        "THERMITE_RUNNER is not set; it must be the runner's name: 2 to 40 of a-z, 0-9 and -, such as box-2",
    ),
    (
        "THERMITE_RUNNER",
        Some("b"),
        "THERMITE_RUNNER is b; it must be the runner's name: 2 to 40 of a-z, 0-9 and -, such as box-2",
    ),
    (
        "THERMITE_RUNNER",
        Some("Box_2"),
        "THERMITE_RUNNER is Box_2; it must be the runner's name: 2 to 40 of a-z, 0-9 and -, such as box-2",
    ),
    (
        "CONTROL_URL",
        None,
        "CONTROL_URL is not set; it must be control's address, such as https://control.example:7078; without it only a bus \
         on this machine is used (THERMITE_NATS_URL such as nats://127.0.0.1:4222), without token and certificates",
    ),
    (
        "CONTROL_URL",
        Some("control.example"),
        "CONTROL_URL is control.example; it must be control's address, such as https://control.example:7078 (http only on \
         this machine: a token goes there)",
    ),
    (
        "CONTROL_URL",
        Some("http://control.example"),
        "CONTROL_URL is http://control.example; it must be control's address, such as https://control.example:7078 (http \
         only on this machine: a token goes there)",
    ),
    (
        "THERMITE_CONTROL_TOKEN_FILE",
        None,
        "THERMITE_CONTROL_TOKEN_FILE is not set; it must be the file with the token for control",
    ),
    (
        "THERMITE_CONTROL_TOKEN_FILE",
        Some("PLACE/none"),
        "THERMITE_CONTROL_TOKEN_FILE is PLACE/none, which cannot be read (No such file or directory (os error 2)); it must \
         be a file with the token for control on its one line",
    ),
    (
        "THERMITE_CONTROL_TOKEN_FILE",
        Some("/dev/null"),
        "THERMITE_CONTROL_TOKEN_FILE is /dev/null, which holds no token; it must be a file with the token for control on \
         its one line",
    ),
    (
        "THERMITE_CONTROL_CA_FILE",
        Some("PLACE/none"),
        "THERMITE_CONTROL_CA_FILE is PLACE/none, which cannot be read (No such file or directory (os error 2)); it must be \
         a file with the certificates (PEM) that control's own is checked against",
    ),
    (
        "THERMITE_CONTROL_CA_FILE",
        Some("PLACE/token"),
        "THERMITE_CONTROL_CA_FILE is PLACE/token, which holds no certificate; it must be a file with the certificates \
         (PEM) that control's own is checked against",
    ),
    (
        "THERMITE_NATS_URL",
        Some("bus.example:4222"),
        "THERMITE_NATS_URL is bus.example:4222; it must be the bus's address, such as tls://bus.example:4222",
    ),
    (
        "THERMITE_NATS_URL",
        Some("https://bus.example"),
        "THERMITE_NATS_URL is https://bus.example; it must be the bus's address, such as tls://bus.example:4222",
    ),
    (
        "THERMITE_NATS_URL",
        Some("nats://me:secret@bus.example"),
        "THERMITE_NATS_URL is an address with a name or password; it must be the bus's address, such as \
         tls://bus.example:4222",
    ),
    (
        "THERMITE_NATS_CA_FILE",
        Some("PLACE/none"),
        "THERMITE_NATS_CA_FILE is PLACE/none, which cannot be read (No such file or directory (os error 2)); it must be a \
         file with certificates (PEM)",
    ),
    (
        "THERMITE_NATS_CA_FILE",
        Some("PLACE/token"),
        "THERMITE_NATS_CA_FILE is PLACE/token, which holds no certificate; it must be a file with certificates (PEM)",
    ),
    (
        "THERMITE_HARNESS_DIR",
        Some("here"),
        "THERMITE_HARNESS_DIR is here; it must be an absolute path of at most 94 bytes, such as /run/thermite, for the \
         harness's socket",
    ),
];

const WRONG_OF_HARNESS: &[(&str, Option<&str>, &str)] = &[
    ("THERMITE_ROLE", None, "THERMITE_ROLE is not set; it must be runner: a core's process is `thermite serve`"),
    ("THERMITE_RIG_ID", Some("X"), "THERMITE_RIG_ID is X; it must be the rig's name: 2 to 64 of a-z, 0-9 and -"),
    ("THERMITE_TARGET", None, "THERMITE_TARGET is not set; it must be cpu or cuda-gpu"),
    ("THERMITE_TARGET", Some("tpu"), "THERMITE_TARGET is tpu; it must be cpu or cuda-gpu"),
    ("THERMITE_GPUS", Some("0"), "THERMITE_GPUS is 0; it must be left out unless THERMITE_TARGET is cuda-gpu"),
    (
        "THERMITE_LOCAL_JUDGE",
        Some("0"),
        "THERMITE_LOCAL_JUDGE is 0; it must be left out: it is a core's setting, and this is a runner's process",
    ),
    ("THERMITE_UID_BASE", Some("0"), "THERMITE_UID_BASE is 0; it must be a whole number from 1 to 4000000000"),
];

#[test]
fn a_supervisor_names_each_setting_that_is_missing_or_wrong() {
    let place = tempfile::tempdir().unwrap();
    assert!(SupervisorSettings::read(None, of(&supervisor(place.path()))).is_ok());

    for (setting, value, expected) in WRONG_OF_SUPERVISOR {
        let mut environment = supervisor(place.path());
        set(&mut environment, setting, *value, place.path());

        let fault = SupervisorSettings::read(None, of(&environment)).unwrap_err();

        assert_eq!(fault.to_string(), expected.replace("PLACE", &place.path().display().to_string()), "{setting}");
    }
}

#[test]
fn a_harness_names_each_setting_that_is_missing_or_wrong() {
    let place = tempfile::tempdir().unwrap();
    let well = HarnessSettings::read(None, of(&harness(place.path()))).unwrap();
    assert_eq!(well.machine.devices.target(), Target::Cpu);

    for (setting, value, expected) in WRONG_OF_HARNESS {
        let mut environment = harness(place.path());
        set(&mut environment, setting, *value, place.path());

        let fault = HarnessSettings::read(None, of(&environment)).unwrap_err();

        assert_eq!(fault.to_string(), *expected, "{setting}");
    }
}

#[test]
fn without_control_only_a_bus_on_this_machine_is_used() {
    let place = tempfile::tempdir().unwrap();
    let mut environment = supervisor(place.path());
    for setting in ["CONTROL_URL", "THERMITE_CONTROL_TOKEN_FILE", "THERMITE_NATS_CA_FILE"] {
        environment.remove(setting);
    }
    let read = |url: &str| {
        let mut environment = environment.clone();
        environment.insert("THERMITE_NATS_URL", url.to_owned());
        SupervisorSettings::read(None, of(&environment)).map(|settings| settings.way)
    };

    for url in ["nats://127.0.0.1:4222", "nats://localhost:4222", "nats://[::1]:4222"] {
        assert_eq!(read(url), Ok(BusWay::Open { nats: url.to_owned() }));
    }
    for url in ["nats://10.0.0.1:4222", "tls://bus.example:4222", "nats://127.0.0.1.example:4222"] {
        assert!(read(url).unwrap_err().to_string().starts_with("CONTROL_URL is not set;"), "{url}");
    }
    environment.remove("THERMITE_NATS_URL");
    let fault = SupervisorSettings::read(None, of(&environment)).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "CONTROL_URL is not set; it must be control's address, such as https://control.example:7078"
    );
}

#[test]
fn a_core_has_a_bus_only_where_one_is_set() {
    let place = tempfile::tempdir().unwrap();
    let mut environment = supervisor(place.path());
    environment.insert("THERMITE_ROLE", "core".to_owned());
    let bare = BTreeMap::from([("THERMITE_RIG_ID", "lab".to_owned())]);
    let runners = BTreeMap::from([("THERMITE_ROLE", "runner".to_owned())]);

    let with_bus = CoreBus::read(of(&environment)).unwrap().unwrap();
    environment.remove("THERMITE_RIG_ID");
    let nameless = CoreBus::read(of(&environment)).unwrap_err();

    assert!(matches!(with_bus.way, BusWay::Control { .. }));
    assert_eq!(CoreBus::read(of(&bare)), Ok(None));
    assert_eq!(
        nameless.to_string(),
        "THERMITE_RIG_ID is not set; it must be the rig's name: 2 to 64 of a-z, 0-9 and -"
    );
    assert_eq!(
        CoreBus::read(of(&runners)).unwrap_err().to_string(),
        "THERMITE_ROLE is runner; it must be core: a runner's processes are `thermite supervisor` and `thermite harness`"
    );
}

#[test]
fn the_processes_end_with_that_one_line() {
    let place = tempfile::tempdir().unwrap();
    let said = |program: &str, environment: &BTreeMap<&str, String>| {
        Said::by(command(&[program]).envs(environment).output().unwrap())
    };
    let mut without_target = harness(place.path());
    without_target.remove("THERMITE_TARGET");

    let refused = said("harness", &without_target);

    assert_eq!(refused.refused_with(64), "THERMITE_TARGET is not set; it must be cpu or cuda-gpu");
}

fn of<'a>(environment: &'a BTreeMap<&'static str, String>) -> impl Fn(&str) -> Option<String> + 'a {
    |name| environment.get(name).cloned()
}

fn set(environment: &mut BTreeMap<&'static str, String>, name: &'static str, value: Option<&str>, place: &Path) {
    match value {
        Some(value) => environment.insert(name, value.replace("PLACE", &place.display().to_string())),
        None => environment.remove(name),
    };
}
