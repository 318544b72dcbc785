//! Adversaries: each is seen alive before its run is stopped, and none is left when the proof is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use thermite_actors::host::launch::LaunchSpec;

use crate::driver::{Place, Rig, Who, alive, everyone, is_root, of, rig_program, rigs, unique, wait_until};

/// A script, and how many of its processes are seen at once when it has unfolded.
pub(crate) const LASTING: [(&str, usize); 8] = [
    ("01_daemon.sh", 4),
    ("03_many.sh", 201),
    ("04_ignore_signals.sh", 5),
    ("05_stopped.sh", 5),
    ("08_vfork.sh", 17),
    ("09_traced.sh", 7),
    ("12_clean_env.sh", 4),
    ("14_leave_cgroup.sh", 2),
];

/// Scripts whose command ends at once and leaves this many.
pub(crate) const LEAVING: [(&str, usize); 2] = [("02_leader_exits.sh", 1), ("11_nohup.sh", 1)];

pub(crate) fn adversary(place: &Place, script: &str) -> (LaunchSpec, String) {
    let tag = unique("tag");
    (place.spec(&["sh", &place.case(script), &tag]), tag)
}

pub(crate) fn see(script: &str, tag: &str, at_least: usize) {
    wait_until(&format!("{script} with {at_least} processes"), || alive(tag) >= at_least);
}

/// A rig with one adversary unfolded.
fn unfolded(place: &Place, script: &str, at_least: usize, keeps: bool) -> Option<(Rig, LaunchSpec, String, Value)> {
    let rig = Rig::start(place);
    rig.isolates().then(|| unfold(rig, place, script, at_least, keeps))
}

/// Starts an adversary in a rig and sees it unfold.
pub(crate) fn unfold(
    mut rig: Rig,
    place: &Place,
    script: &str,
    at_least: usize,
    keeps: bool,
) -> (Rig, LaunchSpec, String, Value) {
    let (mut spec, tag) = adversary(place, script);
    spec.keeps_leftovers = keeps;
    let facts = rig.run(&spec);
    see(script, &tag, at_least);
    (rig, spec, tag, facts)
}

#[test]
fn no_adversary_outlives_its_stop() {
    for who in everyone() {
        for (script, count) in LASTING {
            let place = Place::new(who);
            let Some((mut rig, spec, tag, _)) = unfolded(&place, script, count, false) else { continue };

            assert_eq!(rig.ok("stop", of(&spec)), "empty", "{script} as {who:?}");

            assert_eq!(alive(&tag), 0, "{script} as {who:?}");
            rig.ok("finished", of(&spec));
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn what_an_ended_command_leaves_ends_with_it() {
    for who in everyone() {
        for (script, _) in LEAVING {
            let place = Place::new(who);
            let mut rig = Rig::start(&place);
            if !rig.isolates() {
                continue;
            }
            // Whether it is seen alive here is luck: its command and it end together. The test below sees it.
            let (spec, tag) = adversary(&place, script);

            assert_eq!(rig.run_to_end(&spec)["exit"], "code 0", "{script} as {who:?}");

            assert_eq!(alive(&tag), 0, "{script} as {who:?}");
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn kept_leftovers_live_on_until_they_are_stopped() {
    for who in everyone() {
        for (script, count) in LEAVING {
            let place = Place::new(who);
            let Some((mut rig, spec, tag, _)) = unfolded(&place, script, count, true) else { continue };
            assert_eq!(rig.ok("ended", of(&spec))["exit"], "code 0", "{script} as {who:?}");
            see(script, &tag, count);

            // Gently: what has no leader any more is not given a grace.
            let stop = rig.ok("stop", json!({ "run": spec.name, "gently": true }));

            assert_eq!((stop, alive(&tag)), (json!("empty"), 0), "{script} as {who:?}");
        }
    }
}

#[test]
fn a_rig_killed_in_mid_run_leaves_nothing() {
    for who in everyone() {
        for (script, count, keeps) in all() {
            let place = Place::new(who);
            let Some((mut rig, _, tag, _)) = unfolded(&place, script, count, keeps) else { continue };

            rig.kill();

            sweep_as_a_new_rig(&place, &rig.name);
            assert_eq!(alive(&tag), 0, "{script} as {who:?}");
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_launcher_killed_in_mid_run_leaves_nothing() {
    for who in everyone() {
        for (script, count, keeps) in all() {
            let place = Place::new(who);
            let Some((mut rig, spec, tag, facts)) = unfolded(&place, script, count, keeps) else { continue };

            kill(&facts["launcher"]);

            if !keeps {
                assert_eq!(rig.ok("ended", of(&spec))["exit"], "signal 9", "{script} as {who:?}");
            }
            assert_eq!(rig.ok("stop", of(&spec)), "empty", "{script} as {who:?}");
            assert_eq!(alive(&tag), 0, "{script} as {who:?}");
            rig.ok("finished", of(&spec));
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_rig_and_its_launcher_killed_together_leave_nothing() {
    for who in everyone() {
        for (script, count, keeps) in all() {
            let place = Place::new(who);
            let Some((mut rig, _, tag, facts)) = unfolded(&place, script, count, keeps) else { continue };

            kill(&facts["launcher"]);
            rig.kill();

            sweep_as_a_new_rig(&place, &rig.name);
            assert_eq!(alive(&tag), 0, "{script} as {who:?}");
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_run_reaches_nothing_outside_its_containment() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (secret, open) = (place.path("data/secret"), place.path("open"));
        let pid = rig.pid().to_string();
        let mut spec = place.spec(&["/run/host-rig", "hostile", secret.to_str().unwrap(), "/run/thermite/open", &pid]);
        spec.read_only.push((open.clone(), "/run/thermite/open".into()));

        rig.run_to_end(&spec);

        let inside = place.output(&spec);
        let reached: Vec<&str> = inside.lines().filter(|line| line.starts_with("reached")).collect();
        assert!(reached.is_empty(), "as {who:?}: {reached:?}");
        assert!(inside.lines().filter(|line| line.starts_with("refused")).count() >= 20, "{inside}");
        assert!(inside.contains("cmdline-of-init \"thermite: launcher\\0\""), "{inside}");
        assert!(inside.contains("descriptors 3\n"), "{inside}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(inside.contains(&format!("{set}: 0000000000000000")), "{inside}");
        }
        assert!(inside.contains("NoNewPrivs: 1"), "{inside}");

        let outside = control(&place, &secret, &open, &pid);
        // What an ordinary user may do without containment; root may do all of it.
        let mut expected = vec!["read-data", "write-outside", "signal-rig", "new-user-namespace"];
        if who == Who::Root {
            expected.extend(["write-in-/etc", "leave-cgroup", "ptrace-rig", "mount", "mknod", "mknod-here"]);
        }
        for name in expected {
            assert!(outside.contains(&format!("reached {name}\n")), "{name} outside as {who:?}: {outside}");
        }
    }
}

/// The same attempts without containment, but for a mount namespace where it is root that tries.
fn control(place: &Place, secret: &std::path::Path, open: &std::path::Path, rig: &str) -> String {
    let mut command = if is_root() && place.who == Who::Root {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).arg(rig_program());
        command
    } else {
        place.command()
    };
    command.arg("hostile").args([secret, open]).arg(rig).current_dir(place.path("open"));
    let output = command.output().unwrap();
    for written in [
        "/etc/thermite-hostile",
        "/usr/thermite-hostile",
        "/run/thermite-hostile",
        "/dev/thermite-hostile",
        "/thermite-hostile",
    ] {
        let _ = fs::remove_file(written);
    }
    String::from_utf8(output.stdout).unwrap()
}

/// A user namespace that knows no root, no_new_privs and nosuid mounts each stand in the way; here one is enough.
#[test]
fn a_setuid_program_gives_a_run_nothing() {
    if !is_root() {
        println!("not root: no setuid program can be made, so this is not tested");
        return;
    }
    for (place, mut rig) in rigs() {
        let who = place.who;
        let program = place.path("open/id");
        fs::copy("/usr/bin/id", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let mut spec = place.spec(&["/run/thermite/open/id", "-u"]);
        spec.read_only.push((place.path("open"), "/run/thermite/open".into()));

        rig.run_to_end(&spec);

        let uid: u32 = place.output(&spec).trim().parse().unwrap();
        assert_ne!(uid, 0, "as {who:?}");
    }
}

#[test]
fn a_fork_bomb_is_capped_and_its_neighbour_of_the_same_uid_is_not() {
    const MOST: u64 = thermite_core::limits::RUN_PROCESSES_MAX;
    for (place, mut rig) in rigs() {
        let who = place.who;
        let mut bomb = place.spec(&["sh", "-c", "/run/host-rig forks 5000; exec sleep 50"]);
        bomb.keeps_leftovers = true;
        rig.run(&bomb);
        wait_until("the bomb is refused", || place.output_now(&bomb).contains("forks"));
        let neighbour = place.spec(&["/run/host-rig", "forks", "50"]);

        rig.run_to_end(&neighbour);

        assert!(place.output(&neighbour).contains("forks 50 then the limit of this test"));
        assert_eq!(rig.ok("stop", of(&bomb)), "empty");
        let told = place.output(&bomb);
        let forks: u64 = told.split(' ').nth(1).unwrap().parse().unwrap();
        assert!((MOST - 8..=MOST).contains(&forks), "as {who:?}: {told}");
    }
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, usize, bool)> {
    let lasting = LASTING.into_iter().map(|(script, count)| (script, count, false));
    lasting.chain(LEAVING.into_iter().map(|(script, count)| (script, count, true)))
}

pub(crate) fn kill(pid: &Value) {
    send(pid, rustix::process::Signal::KILL);
}

/// Signals a process that this test's rig started.
pub(crate) fn send(pid: &Value, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.as_i64().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A new rig of the same name sweeps; the proof comes before the answer.
pub(crate) fn sweep_as_a_new_rig(place: &Place, name: &str) {
    let mut new = Rig::spawn(place.command(), name);
    let swept = new.ok("sweep", json!({ "rig": name, "state": place.path("state"), "uids": [] }));
    assert_eq!(swept["proof"], "empty", "{swept}");
}

/// No run file and no cgroup of the rig is left.
pub(crate) fn assert_traceless(place: &Place, rig: &Rig) {
    assert_eq!(fs::read_dir(place.path("state/runs")).unwrap().count(), 0, "run files");
    assert_eq!(place.groups(&rig.name), [] as [std::path::PathBuf; 0], "cgroups");
}
