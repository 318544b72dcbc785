//! The units and the compose file of `examples/deploy`: what they set is a setting there is, what they start is a command
//! there is, and each process comes back by itself with no right that it does not need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thermite_svc::settings::bus::{BusWay, CoreBus, HarnessSettings, SupervisorSettings};
use thermite_svc::settings::{Given, Settings};

use crate::binary::{command, thermite};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/deploy")
}

fn examples() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for folder in ["systemd", "compose"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            found.push((name, std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
    found
}

#[test]
fn every_setting_of_the_examples_is_one_that_is_read() {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../thermite-svc/src");
    let known = ["settings.rs", "settings/bus.rs", "settings/gpus.rs"]
        .map(|file| std::fs::read_to_string(sources.join(file)).unwrap())
        .concat();
    let mut named = BTreeSet::new();
    for (_, text) in examples() {
        let words = text.split(|letter: char| !(letter.is_ascii_uppercase() || letter == '_'));
        named.extend(words.filter(|word| word.starts_with("THERMITE_") || *word == "CONTROL_URL").map(str::to_owned));
    }

    assert!(named.len() >= 10, "{named:?}");
    for setting in named {
        assert!(known.contains(&format!("\"{setting}\"")), "no setting is called {setting}");
    }
}

#[test]
fn every_unit_starts_a_command_there_is_and_comes_back_by_itself() {
    let mut started = BTreeSet::new();
    for (name, text) in examples().into_iter().filter(|(name, _)| name.ends_with(".service")) {
        let line = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.next_back().unwrap_or_else(|| panic!("{name} does not set {key}")).to_owned()
        };
        let program = line("ExecStart").rsplit(' ').next().unwrap().to_owned();
        let help = command(&[&program, "--help"]).output().unwrap();
        assert!(help.status.success(), "{name} starts {program}, which there is not");
        assert_eq!(line("Restart"), "always", "{name}");
        assert_eq!(line("NoNewPrivileges"), "yes", "{name}");
        assert!(line("CapabilityBoundingSet").split(' ').all(|right| right.starts_with("CAP_")), "{name}");
        assert_eq!(line("StateDirectoryMode"), "0700", "{name}");
        started.insert(program);
    }

    assert_eq!(started, BTreeSet::from(["harness", "serve", "supervisor"].map(str::to_owned)));
}

#[test]
fn a_supervisor_has_no_right_over_devices_and_namespaces() {
    for (name, text) in examples().into_iter().filter(|(name, _)| name == "thermite-supervisor.service") {
        for wanted in ["PrivateDevices=yes", "RestrictNamespaces=yes", "ProtectSystem=strict"] {
            assert!(text.lines().any(|line| line == wanted), "{name} does not say {wanted}");
        }
        assert!(!text.contains("CAP_SYS_ADMIN"), "{name}");
    }
}

#[test]
fn a_core_starts_by_its_files_as_they_stand_and_with_the_lines_of_the_bus() {
    let place = tempfile::tempdir().unwrap();
    let unit = set_by(place.path(), &["thermite-core.service"]);
    let with_bus = set_by(place.path(), &["thermite-core.service", "thermite-core.bus.conf"]);
    let as_it_stands = env_file("core.env", false);
    let edited = env_file("core.env", true);

    let alone = read_core(&[&unit, &as_it_stands]);
    let on_bus = read_core(&[&with_bus, &edited]);

    assert_eq!(alone, None);
    let on_bus = on_bus.expect("it is on a bus");
    let BusWay::Control { control, .. } = &on_bus.way else { panic!("{on_bus:?}") };
    assert_eq!((on_bus.rig.as_str(), control.as_str()), ("lab", "https://control.example:7443"));
}

#[test]
fn a_runners_processes_start_by_their_files_as_they_stand() {
    let place = tempfile::tempdir().unwrap();
    let file = env_file("runner.env", false);
    let supervisor = together(&[&set_by(place.path(), &["thermite-supervisor.service"]), &file]);
    let harness = together(&[&set_by(place.path(), &["thermite-harness.service"]), &file]);

    let supervisor = SupervisorSettings::read(None, |name| supervisor.get(name).cloned()).unwrap();
    let harness = HarnessSettings::read(None, |name| harness.get(name).cloned()).unwrap();

    assert_eq!((supervisor.rig.as_str(), supervisor.process.as_str()), ("lab", "box-2"));
    assert_eq!(supervisor.harness, harness.socket, "both meet at one socket");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return println!("skipped: systemd-analyze is not there");
    }
    let place = tempfile::tempdir().unwrap();
    let drop_ins = place.path().join("thermite-core.service.d");
    fs::create_dir(&drop_ins).unwrap();
    let mut units = Vec::new();
    for (name, text) in examples() {
        // Where the program is, is the one thing that is not so here.
        let text = text.replace("/usr/local/bin/thermite", thermite().to_str().unwrap());
        match name.as_str() {
            "thermite-core.bus.conf" => fs::write(drop_ins.join("bus.conf"), text).unwrap(),
            unit if unit.ends_with(".service") => {
                fs::write(place.path().join(unit), text).unwrap();
                units.push(place.path().join(unit));
            }
            _ => {}
        }
    }

    let checked = Command::new("systemd-analyze").arg("verify").args(&units).output().unwrap();

    assert_eq!(units.len(), 3);
    let said = String::from_utf8_lossy(&checked.stderr);
    // What it finds in the machine's own units is not ours.
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("thermite")).collect();
    assert_eq!(of_ours, Vec::<&str>::new(), "{said}");
}

fn read_core(parts: &[&BTreeMap<String, String>]) -> Option<CoreBus> {
    let environment = together(parts);
    let environment = |name: &str| environment.get(name).cloned();
    Settings::read(Given::default(), environment).unwrap();
    CoreBus::read(environment).unwrap()
}

fn together(parts: &[&BTreeMap<String, String>]) -> BTreeMap<String, String> {
    parts.iter().flat_map(|part| (*part).clone()).collect()
}

/// What units set by themselves; the credentials that they load are in `place`.
fn set_by(place: &Path, files: &[&str]) -> BTreeMap<String, String> {
    let mut set = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(root().join("systemd").join(file)).unwrap();
        for line in text.lines() {
            if let Some(loaded) = line.strip_prefix("LoadCredential=") {
                let name = loaded.split(':').next().unwrap();
                fs::write(place.join(name), "th_rig_0\n").unwrap();
            }
            if let Some((name, value)) = line.strip_prefix("Environment=").and_then(|set| set.split_once('=')) {
                set.insert(name.to_owned(), value.replace("%d", place.to_str().unwrap()));
            }
        }
    }
    set
}

/// A file of settings; `edited`, with the lines in it that are there to be taken in, but for files that only a real set-up
/// has.
fn env_file(name: &str, edited: bool) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("systemd").join(name)).unwrap();
    let lines = text.lines().map(|line| if edited { line.trim_start_matches('#') } else { line });
    let set = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    let set = set.filter(|(name, _)| !name.contains(' ') && !name.ends_with("_CA_FILE"));
    set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
