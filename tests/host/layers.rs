//! Containment where namespaces cannot be had, or are not to be used: what each layer ends, proves, and says it cannot.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::driver::{
    Place, Rig, Who, alive, cgroup_mount, escape_bin, everyone, is_root, of, rig_program, unique, wait_until,
};
use crate::escape::{LASTING, LEAVING, adversary, all, assert_traceless, kill, see, send, sweep_as_a_new_rig, unfold};

/// Every layer below namespaces that each can have, with and without a cgroup.
fn layers() -> Vec<(Who, &'static str)> {
    let mut layers = Vec::new();
    for who in everyone() {
        layers.extend(match who {
            Who::Root => vec![(who, "uid,no-cgroup"), (who, "uid"), (who, "children,no-cgroup")],
            Who::Ordinary => vec![(who, "children,no-cgroup")],
            Who::Delegated => vec![(who, "children")],
        });
    }
    layers
}

/// A rig on exactly the layer that was asked for.
fn on_layer(who: Who, wanted: &'static str) -> (Place, Rig) {
    let place = Place::with_layers(who, wanted);
    let rig = Rig::start(&place);
    let expected = if wanted.starts_with("uid") { "own_uid" } else { "children" };
    assert!(rig.has(expected) && !rig.has("namespaces"), "{wanted} as {who:?}: {}", rig.containment);
    if wanted.ends_with("no-cgroup") || cgroup_mount().is_none() {
        assert!(!rig.has("cgroup"), "{wanted} as {who:?}: {}", rig.containment);
    } else {
        assert!(rig.has("cgroup"), "{wanted} as {who:?}: {}", rig.containment);
    }
    (place, rig)
}

fn home_is_gone(spec: &thermite_actors::host::launch::LaunchSpec) -> bool {
    !std::path::Path::new("/tmp").join(format!("thermite-home-{}", spec.name)).exists()
}

#[test]
fn a_command_runs_in_its_own_tree_with_a_home_of_its_own() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let script =
            "echo out; echo x >made; pwd; ls -A \"$HOME\" | wc -l; echo y >\"$HOME/z\"; echo t >\"$TMPDIR/t\"; exit 7";
        let spec = place.spec(&["sh", "-c", script]);

        let ended = rig.run_to_end(&spec);

        assert_eq!(ended["exit"], "code 7", "{wanted} as {who:?}: {}", place.output(&spec));
        let work = place.path("work").canonicalize().unwrap();
        assert_eq!(place.output(&spec), format!("out\n{}\n0\n", work.display()), "{wanted} as {who:?}");
        assert!(work.join("made").exists());
        assert!(home_is_gone(&spec), "{wanted} as {who:?}");
        assert_traceless(&place, &rig);
    }
}

#[test]
fn no_adversary_outlives_its_stop_on_any_layer() {
    println!("| who | layer | script | seen | left |");
    for (who, wanted) in layers() {
        for (script, count) in LASTING {
            let (place, rig) = on_layer(who, wanted);
            let (mut rig, spec, tag, _) = unfold(rig, &place, script, count, false);
            // At least what was seen at once before: a look at /proc may miss a process that is there.
            let seen = alive(&tag).max(count);

            assert_eq!(rig.ok("stop", of(&spec)), "empty", "{script}, {wanted} as {who:?}");

            let left = alive(&tag);
            println!("| {who:?} | {} | {script} | {seen} | {left} |", rig.containment["layers"]);
            assert_eq!(left, 0, "{script}, {wanted} as {who:?}");
            rig.ok("finished", of(&spec));
            assert!(home_is_gone(&spec));
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn what_an_ended_command_leaves_ends_with_it_on_any_layer() {
    for (who, wanted) in layers() {
        for (script, _) in LEAVING {
            let (place, mut rig) = on_layer(who, wanted);
            let (spec, tag) = adversary(&place, script);

            assert_eq!(rig.run_to_end(&spec)["exit"], "code 0", "{script}, {wanted} as {who:?}");

            assert_eq!(alive(&tag), 0, "{script}, {wanted} as {who:?}");
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_polite_command_ends_in_its_grace_on_any_layer() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let spec = place.spec(&["sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"]);
        rig.run(&spec);
        wait_until("the trap is set", || place.output_now(&spec) == "ready\n");

        assert_eq!(rig.ok("stop", json!({ "run": spec.name, "gently": true })), "empty");

        assert_eq!(rig.ok("ended", of(&spec))["exit"], "code 5", "{wanted} as {who:?}");
    }
}

/// A process that makes its successor and ends, over and over: a walk of the tree chases it.
#[test]
fn processes_that_keep_replacing_themselves_are_ended_by_their_uid() {
    if !is_root() {
        println!("not root: there are no uids to give, so this is not tested");
        return;
    }
    for wanted in ["uid,no-cgroup", "uid"] {
        let (place, mut rig) = on_layer(Who::Root, wanted);
        let (spec, tag) = (place.spec(&[]), unique("tag"));
        let script = format!("roll() {{ sh -c '. ./roll' roll {tag} & }}; roll; roll; roll; sleep 50");
        fs::write(place.path("work/roll"), format!("sh -c '. ./roll' roll {tag} & exit\n")).unwrap();
        let spec =
            thermite_actors::host::launch::LaunchSpec { argv: ["sh", "-c", &script].map(str::to_owned).into(), ..spec };
        rig.run(&spec);
        see("a roller", &tag, 1);

        assert_eq!(rig.ok("stop", of(&spec)), "empty", "{wanted}");

        let own = processes_of(place.runs_uid);
        assert_eq!(own, [] as [u32; 0], "{wanted}");
    }
}

/// The live processes of a uid.
fn processes_of(uid: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_zombie = status.contains("\nState:\tZ");
        !is_zombie && status.contains(&format!("\nUid:\t{uid}\t"))
    })
    .collect()
}

#[test]
fn a_rig_killed_in_mid_run_leaves_nothing_on_any_layer() {
    for (who, wanted) in layers() {
        for (script, count, keeps) in all() {
            let (place, rig) = on_layer(who, wanted);
            let (mut rig, spec, tag, _) = unfold(rig, &place, script, count, keeps);

            rig.kill();

            sweep_as_a_new_rig(&place, &rig.name);
            assert_eq!(alive(&tag), 0, "{script}, {wanted} as {who:?}");
            assert!(home_is_gone(&spec));
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_launcher_or_a_guard_killed_in_mid_run_leaves_the_proof_to_the_other() {
    for (who, wanted) in layers() {
        for (script, count) in LASTING {
            for guard in ["launcher", "pid"] {
                let (place, rig) = on_layer(who, wanted);
                let (mut rig, spec, tag, facts) = unfold(rig, &place, script, count, false);

                kill(&facts[guard]);

                assert_eq!(rig.ok("stop", of(&spec)), "empty", "{script}, {guard}, {wanted} as {who:?}");
                assert_eq!(alive(&tag), 0, "{script}, {guard}, {wanted} as {who:?}");
                rig.ok("finished", of(&spec));
                assert_traceless(&place, &rig);
            }
        }
    }
}

#[test]
fn a_run_whose_guards_were_all_killed_is_ended_and_never_said_to_be_proved_gone() {
    for (who, wanted) in layers() {
        for (script, count) in LASTING {
            let (place, rig) = on_layer(who, wanted);
            let (mut rig, spec, tag, facts) = unfold(rig, &place, script, count, false);
            // Stopped first: each would else end the run when it sees the other's end.
            for guard in ["launcher", "pid"] {
                send(&facts[guard], rustix::process::Signal::STOP);
            }
            kill(&facts["pid"]);
            kill(&facts["launcher"]);

            let said = rig.ok("stop", of(&spec));

            let said = said.as_str().unwrap();
            assert!(said.starts_with("all guards of the run were killed"), "{script}, {wanted} as {who:?}: {said}");
            wait_until("what carries its mark is ended", || alive(&tag) == 0);
            rig.kill();
            sweep_as_a_new_rig(&place, &rig.name);
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn what_lives_on_after_rig_and_guards_were_killed_is_found_by_its_mark() {
    for (who, wanted) in layers() {
        // A cleared environment and a new session do not take it off.
        for (script, count) in [("12_clean_env.sh", 4), ("01_daemon.sh", 4)] {
            let (place, rig) = on_layer(who, wanted);
            let (mut rig, spec, tag, facts) = unfold(rig, &place, script, count, false);
            for guard in ["launcher", "pid"] {
                send(&facts[guard], rustix::process::Signal::STOP);
            }
            rig.kill();
            kill(&facts["pid"]);
            kill(&facts["launcher"]);
            // A look at /proc may miss a process that is there.
            wait_until("all of it lives on", || alive(&tag) >= count);

            let mut new = Rig::spawn(place.command(), &rig.name);
            let swept = new.ok("sweep", json!({ "rig": rig.name, "state": place.path("state"), "uids": [] }));

            assert_eq!(swept["proof"], "empty", "{swept}");
            let found = swept["found"].to_string();
            assert!(found.contains(&spec.name) && found.contains("pid "), "{found}");
            assert_eq!(alive(&tag), 0, "{script}, {wanted} as {who:?}");
            assert!(home_is_gone(&spec));
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn a_run_that_kills_its_guard_is_ended_by_its_launcher() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let tag = unique("tag");
        let script = format!("kill -9 $PPID && echo killed; exec {}/escape sleep 50 {tag}", escape_bin());
        let spec = place.spec(&["sh", "-c", &script]);
        rig.run(&spec);
        if who == Who::Root {
            // Another user's guard is out of its reach.
            wait_until("it is refused", || place.output_now(&spec).contains("ermitted"));
        } else {
            wait_until("its guard is gone or being replaced", || rig.ok("over", of(&spec)) == true);
        }

        assert_eq!(rig.ok("stop", of(&spec)), "empty", "{wanted} as {who:?}");

        assert_eq!(alive(&tag), 0);
        assert_eq!(place.output(&spec).contains("killed"), who != Who::Root && place.output(&spec).contains("killed"));
        rig.ok("finished", of(&spec));
        assert_traceless(&place, &rig);
    }
}

#[test]
fn what_a_run_keeps_lives_on_when_the_next_of_the_same_user_is_ended() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let (mut kept, kept_tag) = adversary(&place, "11_nohup.sh");
        kept.keeps_leftovers = true;
        rig.run(&kept);
        assert_eq!(rig.ok("ended", of(&kept))["exit"], "code 0");
        see("11_nohup.sh", &kept_tag, 1);
        let (next, next_tag) = adversary(&place, "01_daemon.sh");
        rig.run(&next);
        see("01_daemon.sh", &next_tag, 4);

        assert_eq!(rig.ok("stop", of(&next)), "empty", "{wanted} as {who:?}");

        assert_eq!((alive(&next_tag), alive(&kept_tag)), (0, 1), "{wanted} as {who:?}");
        let listed = rig.ok("processes", of(&kept));
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(rig.ok("stop", of(&kept)), "empty");
        assert_eq!(alive(&kept_tag), 0);
    }
}

#[test]
fn a_fork_bomb_is_capped_on_any_layer() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let bomb = format!("{} forks 5000; exec sleep 50", rig_program().display());
        let spec = place.spec(&["sh", "-c", &bomb]);
        rig.run(&spec);
        wait_until("the bomb is refused", || place.output_now(&spec).contains("forks"));

        assert_eq!(rig.ok("stop", of(&spec)), "empty", "{wanted} as {who:?}");

        let told = place.output(&spec);
        let forks: u64 = told.split(' ').nth(1).unwrap().parse().unwrap();
        // An ordinary user's other processes come and go, and count.
        let slack = if who == Who::Root { 8 } else { 200 };
        let most = thermite_core::limits::RUN_PROCESSES_MAX;
        assert!((most.saturating_sub(slack)..=most + slack).contains(&forks), "{wanted} as {who:?}: {told}");
    }
}

#[test]
fn what_only_a_view_of_its_own_can_give_is_refused() {
    for (who, wanted) in layers() {
        let (place, mut rig) = on_layer(who, wanted);
        let mut elsewhere = place.spec(&["true"]);
        elsewhere.read_only = vec![("/usr".into(), "/run/usr".into())];

        let fault = rig.call("launch", json!({ "spec": elsewhere })).unwrap_err();

        assert!(fault.contains("/usr at /run/usr: without namespaces"), "{fault}");
        assert_traceless(&place, &rig);
    }
}

#[test]
fn a_layer_that_cannot_be_had_is_not_replaced_by_another() {
    let place = Place::with_layers(Who::Ordinary, "uid");
    let mut rig = Rig::start(&place);

    let fault = rig.call("launch", json!({ "spec": place.spec(&["true"]) })).unwrap_err();

    assert_eq!(rig.containment["layers"], json!([]));
    assert!(fault.contains("contain the run") && fault.contains("the rig is not root"), "{fault}");
}

/// Root without the right to make namespaces, as in a container that was not given CAP_SYS_ADMIN.
fn without_sys_admin() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]).arg(rig_program());
    command
}

/// An ordinary user where user namespaces are switched off: below one that allows none further.
fn without_user_namespaces(uid: u32) -> Command {
    let script =
        "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"";
    let mut command = Command::new(if is_root() { "setpriv" } else { "env" });
    if is_root() {
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]);
    }
    command.args(["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"]);
    command.arg(rig_program());
    command
}

#[test]
fn a_machine_that_gives_no_namespaces_falls_to_the_next_layer_and_says_so() {
    for (who, expected) in [(Who::Root, "own_uid"), (Who::Ordinary, "children")] {
        if who == Who::Root && !is_root() {
            println!("not root: a root without rights cannot be made, so it is not tested");
            continue;
        }
        let mut place = Place::with_layers(who, "best");
        let mut opening = place.opening("t");
        opening["rig"] = unique("t").into();
        opening["trial_uid"] = if who == Who::Root { json!(place.runs_uid + 1) } else { Value::Null };
        let machine = if who == Who::Root { without_sys_admin() } else { without_user_namespaces(place.rigs_uid) };
        let mut rig = Rig::spawn(machine, opening["rig"].as_str().unwrap());
        rig.containment = rig.ok("open", opening);

        assert!(rig.has(expected) && !rig.has("namespaces"), "as {who:?}: {}", rig.containment);
        let why = rig.containment["missing"].to_string();
        assert!(why.contains("namespaces") && why.contains("clone3"), "as {who:?}: {why}");

        // And what it says holds.
        place.wanted = "children";
        let (spec, tag) = adversary(&place, "01_daemon.sh");
        rig.run(&spec);
        see("01_daemon.sh", &tag, 4);
        assert_eq!(rig.ok("stop", of(&spec)), "empty", "as {who:?}");
        assert_eq!(alive(&tag), 0, "as {who:?}");
    }
}
