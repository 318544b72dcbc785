//! What a hostile development run tries through REST: each is refused, and each thing exists (rules A7, B3).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::house::{House, Load, Who, everyone};
use crate::binary::until;

#[test]
fn a_development_run_reaches_nothing_of_the_rig_or_of_its_neighbours() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        let (secret, open) = (house.path("lane-2/secret"), house.path("open"));
        fs::write(&secret, "lane 2 alone\n").unwrap();
        fs::create_dir(&open).unwrap();
        let opened = Command::new("chmod").arg("777").arg(&open).status().unwrap();
        assert!(opened.success());
        // Lane 2 has run, so that its tree is its account's, as in a rig that has been at work.
        let own = house.ask(2, &["cat", &secret.display().to_string()]);
        assert_eq!(house.ended(&own)["exit"]["code"], 0);
        assert_eq!(house.output(&own), "lane 2 alone\n", "the control: lane 2 reads its own");
        // The run that tries waits for its list: only once it runs has it a launcher to be signalled.
        let script = "until [ -e go ]; do sleep 0.02; done; sh ./attempts; true";
        let tried = house.ask(1, &["sh", "-c", script]);
        house.running(&tried);
        let launcher = launcher_of(&house);

        let address = house.url();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        let rig = house.pid().to_string();
        let mut attempts: Vec<(Vec<String>, bool)> = Vec::new();
        let mut attempt = |words: &[&str], outside_reaches: bool| {
            attempts.push((words.iter().map(|word| (*word).to_owned()).collect(), outside_reaches));
        };
        for file in ["owner-token", "rig.db", "endpoint.json", "lock"] {
            attempt(&["read", &house.at(&format!("data/{file}"))], true);
        }
        attempt(&["write", &house.at("data/rig.db"), ""], true);
        attempt(&["write", &house.at("open/left"), "x"], true);
        attempt(&["write", &house.at("repo/src/loops"), ""], true);
        attempt(&["read", &secret.display().to_string()], true);
        attempt(&["signal", &rig], true);
        attempt(&["signal", &launcher.to_string()], true);
        attempt(&["get", &port, "/v1/rig"], false);
        attempt(&["get", &port, "/v1/runs"], false);
        for group in group_files() {
            // Whether the rig's user may leave by it depends on the machine: only root always may.
            attempt(&["write", &group.display().to_string(), "0"], false);
        }
        attempt(&["write", "/etc/thermite-hostile", "x"], false);

        let line = |words: &Vec<String>| {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            format!("'{}' try {}\n", house.shared("busy"), words.join(" "))
        };
        // The controls first, by the rig's own user outside: each thing is there to be reached, the launcher too.
        for (words, reaches) in &attempts {
            if *reaches {
                let words: Vec<&str> = ["try"].into_iter().chain(words.iter().map(String::as_str)).collect();
                let outside = house.by_rigs_user(&words);
                assert!(outside.contains("reached"), "the control of {words:?} as {who:?}: {outside}");
            }
        }
        fs::write(house.path("lane-1/attempts"), attempts.iter().map(|(words, _)| line(words)).collect::<String>())
            .unwrap();
        fs::write(house.path("lane-1/go"), "").unwrap();
        assert_eq!(house.ended(&tried)["exit"]["code"], 0);
        let said = house.output(&tried);

        let reached: Vec<&str> = said.lines().filter(|line| line.starts_with("reached")).collect();
        assert!(reached.is_empty(), "as {who:?}: {reached:?}");
        let refused = said.lines().filter(|line| line.starts_with("refused")).count();
        assert_eq!(refused, attempts.len(), "as {who:?}: {said}");
        assert_eq!(said.matches("answered HTTP/1.1 401").count(), 2, "the rig answers, with a no: {said}");
    }
}

#[test]
fn a_development_run_keeps_its_own_cgroup_whatever_it_writes() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let script = "cat /proc/self/cgroup; for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null); do \
                  echo $$ >$f; done 2>/dev/null; echo then; cat /proc/self/cgroup";

    let dev_run = house.ask(1, &["sh", "-c", script]);

    assert_eq!(house.ended(&dev_run)["exit"]["code"], 0);
    let said = house.output(&dev_run);
    let (before, after) = said.split_once("then\n").unwrap();
    assert!(!before.is_empty());
    assert_eq!(before, after);
}

/// The launcher of the one run there is: the rig's own child.
fn launcher_of(house: &House) -> u32 {
    let mut found = None;
    until("the launcher is there", || {
        let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent: u32 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
            // The rig's only other children are short commands of git's.
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            (parent == house.pid() && String::from_utf8_lossy(&words).contains("launcher")).then_some(pid)
        });
        found = children.max();
        found.is_some()
    });
    found.unwrap()
}

/// Files by which a process could leave its cgroups.
fn group_files() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    mounts.map(|mount| PathBuf::from(mount).join("cgroup.procs")).collect()
}
