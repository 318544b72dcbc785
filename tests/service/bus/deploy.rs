//! The units and the compose file of `examples/deploy`: what they set is a setting there is, what they start is a command
//! there is, and each process comes back by itself with no right that it does not need.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::binary::command;

fn examples() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/deploy");
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
