//! One command in containment: started behind a gate, timed, ended, proved.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use serde_json::json;
use thermite_actors::host::launch::{CardGrant, Identity, REPORT_BYTES_MAX, hand_over, toolchain_mounts};
use thermite_core::limits;

use crate::driver::{
    Place, RUNS_UID, Rig, Who, alive, cgroup_mount, everyone, is_root, of, rig_program, rigs, unique, wait_until,
};
use crate::escape::{adversary, assert_traceless, see};

/// What a stop may take beyond its grace, in nanoseconds (rule A5).
const BEYOND_GRACE_NS: u64 = 2_000_000_000;

#[test]
fn a_command_runs_and_its_end_is_told_and_proved() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let spec = place.spec(&["sh", "-c", "echo out; echo err >&2; echo made >made; pwd; exit 7"]);

        let ended = rig.run_to_end(&spec);

        assert_eq!(ended["exit"], "code 7", "{who:?}");
        assert_eq!(place.output(&spec), "out\nerr\n/run/thermite/work\n");
        assert_eq!(fs::read_to_string(place.path("work/made")).unwrap(), "made\n");
        assert_traceless(&place, &rig);
    }
}

#[test]
fn every_layer_this_machine_can_give_is_in_force() {
    for who in everyone() {
        let place = Place::new(who);
        let rig = Rig::start(&place);
        if !rig.isolates() {
            continue;
        }
        assert!(rig.has("user_namespace"), "as {who:?}: {}", rig.containment);
        if is_root() {
            // A user has no group of its own unless one was given; root and that user have, where there are any.
            let expected = who != Who::Ordinary && cgroup_mount().is_some();
            assert_eq!(rig.has("cgroup"), expected, "as {who:?}: {}", rig.containment);
        } else {
            println!("whether this user may make cgroups is the machine's: {}", rig.containment);
        }
        assert_traceless(&place, &rig);
    }
}

#[test]
fn nothing_runs_before_the_gate_is_opened() {
    for (place, mut rig) in rigs() {
        let spec = place.spec(&["sh", "-c", "echo ran >ran"]);
        rig.launch(&spec);
        let file = fs::read_to_string(place.path("state/runs").join(format!("{}.json", spec.name))).unwrap();
        assert!(file.contains(&spec.name), "the run file is there before the exec: {file}");

        assert_eq!(rig.ok("stop", of(&spec)), "empty");

        assert!(rig.call("go", of(&spec)).unwrap_err().contains("stopped at its gate"));
        assert_eq!(rig.ok("ended", of(&spec))["exit"], "signal 9");
        assert!(!place.path("work/ran").exists());
    }
}

#[test]
fn the_next_run_is_prepared_while_the_last_one_runs() {
    for (place, mut rig) in rigs() {
        let (first, tag) = adversary(&place, "01_daemon.sh");
        let second = place.spec(&["true"]);
        rig.run(&first);
        see("01_daemon.sh", &tag, 4);
        rig.launch(&second);

        assert_eq!(rig.ok("stop", of(&first)), "empty");

        rig.ok("go", of(&second));
        assert_eq!(rig.ok("ended", of(&second))["exit"], "code 0");
    }
}

#[test]
fn a_polite_command_ends_in_its_grace_and_a_deaf_one_at_its_end() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let polite =
            place.spec(&["sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"]);
        rig.run(&polite);
        wait_until("the trap is set", || place.output_now(&polite) == "ready\n");
        assert_eq!(rig.ok("stop", json!({ "run": polite.name, "gently": true })), "empty");
        assert_eq!(rig.ok("ended", of(&polite))["exit"], "code 5", "as {who:?}");
        rig.ok("finished", of(&polite));
        assert!(place.output(&polite).ends_with("bye\n"), "as {who:?}: {}", place.output(&polite));

        let (deaf, tag) = adversary(&place, "04_ignore_signals.sh");
        rig.run(&deaf);
        see("04_ignore_signals.sh", &tag, 5);
        let asked = now_ns();
        assert_eq!(rig.ok("stop", json!({ "run": deaf.name, "gently": true })), "empty");
        let took = now_ns() - asked;
        assert_eq!(alive(&tag), 0);
        let grace = limits::STOP_GRACE.as_millis() * 1_000_000;
        assert!((grace..=grace + BEYOND_GRACE_NS).contains(&took), "as {who:?} it took {took} ns");
        assert_eq!(rig.ok("ended", of(&deaf))["exit"], "signal 9");
    }
}

#[test]
fn a_second_stop_joins_the_first_or_cuts_its_grace_short() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (spec, tag) = adversary(&place, "04_ignore_signals.sh");
        rig.run(&spec);
        see("04_ignore_signals.sh", &tag, 5);
        let ended = rig.ask("ended", of(&spec));
        let asked = now_ns();
        let gently = rig.ask("stop", json!({ "run": spec.name, "gently": true }));
        let joined = rig.ask("stop", json!({ "run": spec.name, "gently": true }));

        assert_eq!(rig.ok("stop", of(&spec)), "empty");

        let took = now_ns() - asked;
        assert!(took < limits::STOP_GRACE.as_millis() * 1_000_000, "as {who:?} it took {took} ns");
        assert_eq!((rig.answer(gently), rig.answer(joined)), (Ok(json!("empty")), Ok(json!("empty"))));
        assert_eq!(rig.answer(ended).unwrap()["exit"], "signal 9");
        assert_eq!(rig.ok("ended", of(&spec))["exit"], "signal 9", "asking again gives the same answer");
    }
}

#[test]
fn a_run_that_is_let_go_of_is_ended() {
    for (place, mut rig) in rigs() {
        let (spec, tag) = adversary(&place, "01_daemon.sh");
        rig.run(&spec);
        see("01_daemon.sh", &tag, 4);

        rig.ok("drop", of(&spec));

        wait_until("it is ended", || alive(&tag) == 0);
        wait_until("its traces are gone", || fs::read_dir(place.path("state/runs")).unwrap().count() == 0);
    }
}

#[test]
fn a_launch_that_is_forgotten_half_way_leaves_nothing() {
    for (place, mut rig) in rigs() {
        for _ in 0..10 {
            let forgotten = rig.ok("launch-and-forget", json!({ "spec": place.spec(&["true"]) }));
            assert_eq!(forgotten, true, "it was at its gate within one look");
        }
        wait_until("its run files are gone", || fs::read_dir(place.path("state/runs")).unwrap().count() == 0);
        wait_until("its groups are gone", || place.groups(&rig.name).is_empty());
        wait_until("its launchers have ended", || living_children(rig.pid()) == 0);

        rig.run_to_end(&place.spec(&["true"]));

        assert_eq!(children(rig.pid()), 0, "the next launch reaps what ended");
    }
}

/// The children of a process, ended ones that are not reaped included.
fn children(parent: u32) -> usize {
    states_of_children(parent).len()
}

fn living_children(parent: u32) -> usize {
    states_of_children(parent).iter().filter(|state| *state != "Z").count()
}

fn states_of_children(parent: u32) -> Vec<String> {
    let stats =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let fields = stats.filter_map(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()));
    let parent = parent.to_string();
    fields
        .filter(|rest| rest.split(' ').nth(1) == Some(&parent))
        .map(|rest| rest.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_rig_that_keeps_its_files_to_itself_does_not_close_a_run_s_places() {
    for who in everyone() {
        let place = Place::new(who);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        if who != Who::Root {
            // Only a root rig's runs are another user's.
            continue;
        }
        shell.arg(rig_program());
        let name = unique("t");
        let mut rig = Rig::spawn(shell, &name);
        rig.containment = rig.ok("open", json!({ "rig": name, "state": place.path("state"), "hidden": [] }));
        if !rig.isolates() {
            continue;
        }
        let spec = place.spec(&["sh", "-c", "ls /run/cases >/dev/null && echo x >made && umask"]);

        assert_eq!(rig.run_to_end(&spec)["exit"], "code 0", "{}", place.output(&spec));

        assert_eq!(place.output(&spec), "0022\n");
    }
}

#[test]
fn a_command_is_timed_from_exec_to_exit_and_not_by_its_preparation() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let spec = place.spec(&["sh", "-c", "sleep 0.3"]);
        rig.launch(&spec);
        // The gate stays closed for longer than the command takes.
        let held = place.spec(&["sh", "-c", "sleep 0.6"]);
        rig.run_to_end(&held);
        let asked = now_ns();
        rig.ok("go", of(&spec));

        let ended = rig.ok("ended", of(&spec));

        let seen = now_ns() - asked;
        let wall = ended["wall_ns"].as_u64().unwrap();
        assert!((300_000_000..=seen).contains(&wall), "as {who:?} {wall} ns of {seen} ns");
    }
}

#[test]
fn the_cpu_time_of_the_whole_tree_is_told() {
    // A child of a child computes; nobody waits for the last one but the init.
    let script = "(sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done' ; true) & wait";
    for (place, mut rig) in rigs() {
        let who = place.who;
        let busy = rig.run_to_end(&place.spec(&["sh", "-c", script]));
        let idle = rig.run_to_end(&place.spec(&["sleep", "0.1"]));

        let cpu = |ended: &serde_json::Value| ended["cpu_ns"].as_u64().unwrap();
        assert!(cpu(&busy) > 5_000_000, "as {who:?} {busy}");
        assert!(cpu(&busy) > 2 * cpu(&idle), "as {who:?} {busy} {idle}");
    }
}

#[test]
fn descriptor_3_is_read_to_the_end_and_kept_to_its_limit() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let mut short = place.spec(&["sh", "-c", "for i in 1 2 3; do echo $i >&3; done; echo out"]);
        short.reports_times = true;
        assert_eq!(rig.run_to_end(&short)["reported"], "1\n2\n3\n", "as {who:?}");
        assert_eq!(place.output(&short), "out\n");

        let mut long = place.spec(&["sh", "-c", "exec head -c 3000000 /dev/zero >&3"]);
        long.reports_times = true;
        let ended = rig.run_to_end(&long);
        assert_eq!(ended["exit"], "code 0", "a report beyond its limit does not stop the run");
        assert_eq!(ended["reported"].as_str().unwrap().len(), REPORT_BYTES_MAX);
        assert_eq!(ended["reported_by_others"], false);

        // What a child writes is read, so that it does not hang, and told apart, also where it never stops.
        let mut child =
            place.spec(&["sh", "-c", "echo 0.5 >&3; (echo 0.1 >&3); (yes 0.2 >&3) & sleep 0.05; echo end >&3"]);
        child.reports_times = true;
        let ended = rig.run_to_end(&child);
        assert_eq!((ended["reported"].as_str(), ended["exit"].as_str()), (Some("0.5\nend\n"), Some("code 0")));
        assert_eq!(ended["reported_by_others"], true);

        let none = place.spec(&["sh", "-c", "echo x >&3"]);
        assert_eq!(rig.run_to_end(&none)["reported"], "");
        assert!(place.output(&none).contains("3"), "without it descriptor 3 is closed");
    }
}

#[test]
fn a_run_has_private_places_and_the_environment_it_was_given() {
    let script = "for d in /tmp /var/tmp /dev/shm \"$HOME\" .; do echo x >$d/mine && echo wrote $d; done; \
                  ls /tmp /dev/shm; env | sort; id -u; cat /proc/sys/kernel/pid_max >/dev/null && ls /proc | grep -c '^[0-9]*$'; \
                  echo x >/dev/null && head -c 1 /dev/urandom >/dev/null && echo nodes; tty; exec 2>/dev/null; ls /run";
    for (place, mut rig) in rigs() {
        let who = place.who;
        let mut spec = place.spec(&["sh", "-c", script]);
        spec.env.push(("GREETING".into(), "good day = fine".into()));

        rig.run_to_end(&spec);

        let output = place.output(&spec);
        for written in ["/tmp", "/var/tmp", "/dev/shm", "/run/home", "."] {
            assert!(output.contains(&format!("wrote {written}\n")), "as {who:?}: {output}");
        }
        assert!(output.contains("/tmp:\nmine\n"), "nothing of the machine's /tmp is there: {output}");
        assert!(output.contains("GREETING=good day = fine\n"), "{output}");
        assert!(!output.contains("CARGO"), "nothing of the rig's own environment is there: {output}");
        assert!(output.contains("nodes\n"), "{output}");
        assert!(output.contains("not a tty\n"), "{output}");
        let uid = if who == Who::Root { RUNS_UID } else { fs::metadata(place.path("work")).unwrap().uid() };
        assert!(output.contains(&format!("\n{uid}\n")), "{output}");
        assert_eq!(fs::metadata(place.path("work/mine")).unwrap().uid(), uid, "files belong to who wrote them");
    }
}

#[test]
fn a_workspace_is_seen_where_it_was_asked_for_also_inside_a_hidden_tree() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        // A tree at its own path, whose folder is hidden with all else in it.
        let root = place.root.path().to_owned();
        let mut spec = place.spec(&["sh", "-c", "pwd; ls ..; echo x >here"]);
        spec.workspace_at = spec.workspace.clone();
        spec.hidden = vec![root.clone()];

        assert_eq!(rig.run_to_end(&spec)["exit"], "code 0", "as {who:?}: {}", place.output(&spec));

        assert_eq!(place.output(&spec), format!("{}\nwork\n", root.join("work").display()));
        assert!(place.path("work/here").exists());

        let mut nowhere = place.spec(&["true"]);
        nowhere.workspace_at = "/usr/thermite-no-such-place".into();
        let fault = rig.call("launch", json!({ "spec": nowhere })).unwrap_err();
        assert!(fault.contains("choose a place under /run"), "{fault}");
        assert!(!std::path::Path::new("/usr/thermite-no-such-place").exists());
    }
}

#[test]
fn what_is_hidden_is_not_seen_in_a_given_tree_either_and_what_is_given_is_seen_in_a_hidden_one() {
    let script = "cat inner/secret key shared/secret /run/thermite/data/secret; cat \"$0\"/secret; echo x >wrote; echo x >inner/x; ls -A inner; \
                  cat inner/model/weights";
    for (place, mut rig) in rigs() {
        let who = place.who;
        for folder in ["work/inner", "work/inner/model", "work/shared"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        for secret in ["work/inner/secret", "work/key"] {
            fs::write(place.path(secret), "SECRET\n").unwrap();
        }
        fs::write(place.path("work/inner/model/weights"), "WEIGHTS\n").unwrap();
        let data = place.path("data");
        std::os::unix::fs::symlink(&data, place.path("link-to-data")).unwrap();
        let mut spec = place.spec(&["sh", "-c", script, data.to_str().unwrap()]);
        let model = (place.path("work/inner/model"), spec.workspace_at.join("inner/model"));
        spec.read_only.extend([model, (data.clone(), "/run/thermite/data".into())]);
        // By a link, a file, a folder inside the workspace, and the workspace itself, which is given all the same.
        spec.hidden =
            vec![place.path("link-to-data"), place.path("work/key"), place.path("work/inner"), place.path("work")];

        rig.run_to_end(&spec);

        let output = place.output(&spec);
        assert!(!output.contains("SECRET"), "as {who:?}: {output}");
        assert!(output.contains("WEIGHTS\n"), "as {who:?}: {output}");
        assert!(output.contains("inner/x: Read-only file system"), "as {who:?}: {output}");
        assert!(output.contains("\nmodel\n"), "as {who:?}: {output}");
        // Granted by name and hidden by its folder's: what is given is given.
        assert_eq!(output.matches("not for runs").count(), 1, "as {who:?}: {output}");
        assert!(place.path("work/wrote").exists(), "as {who:?}: {output}");
    }
}

#[test]
fn what_cannot_be_launched_is_refused_with_the_thing_named_and_leaves_nothing() {
    for (place, mut rig) in rigs() {
        for (program, says) in [("no-such-program", "No such file"), ("/etc/passwd", "Permission denied")] {
            let spec = place.spec(&[program]);
            rig.launch(&spec);
            let fault = rig.call("go", of(&spec)).unwrap_err();
            assert!(fault.contains(&format!("execute {program}")) && fault.contains(says), "{fault}");
            assert_eq!(rig.ok("stop", of(&spec)), "empty");
            rig.ok("finished", of(&spec));
        }
        let mut missing = place.spec(&["true"]);
        missing.workspace = place.path("no-such-folder");
        let fault = rig.call("launch", json!({ "spec": missing })).unwrap_err();
        assert!(fault.contains("no-such-folder"), "{fault}");

        let mut badly_named = place.spec(&["true"]);
        badly_named.name = "../up".into();
        assert!(rig.call("launch", json!({ "spec": badly_named })).unwrap_err().contains("../up"));

        let twice = place.spec(&["sleep", "50"]);
        rig.launch(&twice);
        assert!(rig.call("launch", json!({ "spec": twice })).unwrap_err().contains("a run of that name exists"));
        assert_eq!(rig.ok("stop", of(&twice)), "empty");
        rig.ok("finished", of(&twice));
        wait_until("all launchers are done", || fs::read_dir(place.path("state/runs")).unwrap().count() == 0);
        wait_until("all groups are gone", || place.groups(&rig.name).is_empty());
    }
}

#[test]
fn where_nothing_but_namespaces_is_wanted_all_is_refused_without_them_and_the_reason_is_told() {
    let place = Place::new(Who::Ordinary);
    // A user namespace in which no further one can be made, and in which this user is not root.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\"";
    let mut shell = Command::new("unshare");
    shell
        .args(["--user", "--map-user=65534", "--map-group=65534", "--keep-caps", "sh", "-c", script])
        .arg(rig_program());
    let made = Command::new("unshare").args(["--user", "--map-user=65534", "--keep-caps", "true"]).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("no user namespace can be made here to forbid them in, so this is not tested");
        return;
    }
    fs::set_permissions(place.path("state"), fs::Permissions::from_mode(0o777)).unwrap();
    let state = place.path("state/own");
    let name = unique("t");
    let mut rig = Rig::spawn(shell, &name);

    rig.containment = rig.ok("open", json!({ "rig": name, "state": state, "hidden": [], "wanted": "namespaces" }));

    assert!(!rig.has("namespaces"), "{}", rig.containment);
    assert!(rig.containment["missing"].to_string().contains("clone3"), "{}", rig.containment);
    let fault = rig.call("launch", json!({ "spec": place.spec(&["true"]) })).unwrap_err();
    assert!(fault.contains("contain the run") && fault.contains("clone3"), "{fault}");
}

#[test]
fn a_granted_device_node_opens_and_no_other_is_there() {
    if !is_root() {
        println!("not root: no device node can be made, so this is not tested");
        return;
    }
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (granted, other) = (unique("/dev/thermite-test"), unique("/dev/thermite-test"));
        for node in [&granted, &other] {
            // A second /dev/full: it opens, and harms nobody.
            let made = Command::new("mknod").args(["-m", "666", node, "c", "1", "7"]).status().unwrap();
            assert!(made.success());
        }
        let mut spec =
            place.spec(&["sh", "-c", "for n in \"$@\"; do (: <$n) && echo opened $n; done", "sh", &granted, &other]);
        spec.grant.card = Some(CardGrant { uuid: "GPU-test".into(), nodes: vec![granted.clone().into()], cpus: None });

        rig.run_to_end(&spec);

        let output = place.output(&spec);
        for node in [&granted, &other] {
            fs::remove_file(node).unwrap();
        }
        assert!(output.contains(&format!("opened {granted}\n")), "as {who:?}: {output}");
        assert!(!output.contains(&format!("opened {other}\n")), "as {who:?}: {output}");
    }
}

#[test]
fn a_card_that_is_not_granted_is_out_of_reach() {
    if !is_root() {
        println!("not root: no device node can be made, so this is not tested");
        return;
    }
    for (place, mut rig) in rigs() {
        let who = place.who;
        let card = unique("/dev/thermite-card");
        assert!(Command::new("mknod").args(["-m", "666", &card, "c", "1", "7"]).status().unwrap().success());
        let mut spec = place.spec(&["sh", "/run/cases/20_open_card.sh", "1", "7"]);
        spec.env.push(("JUDGE_CARD".into(), card.clone()));

        let ended = rig.run_to_end(&spec);

        let outside = Command::new("sh").arg("-c").arg(format!(": <{card}")).status().unwrap();
        fs::remove_file(&card).unwrap();
        assert!(outside.success(), "without containment it opens");
        assert_eq!(ended["exit"], "code 0", "as {who:?}: {}", place.output(&spec));
        assert!(place.output(&spec).contains("all attempts refused"), "as {who:?}: {}", place.output(&spec));
    }
}

#[test]
fn the_rigs_own_toolchains_work_in_a_run() {
    let script = "set -e; rustc --version; cargo build --offline --quiet; ./target/debug/tiny; \
                  git init --quiet . && git -c user.name=n -c user.email=e commit --quiet --allow-empty -m m && git log --oneline | wc -l; \
                  echo 'int main(void){return 0;}' >c.c && cc -o c c.c && ./c && echo compiled; \
                  ls \"$CARGO_HOME\" | grep credentials || echo no credentials";
    for who in everyone() {
        let place = Place::new(who);
        let mut cargo = Command::new(if who == Who::Root || !is_root() { "cargo" } else { "setpriv" });
        if who != Who::Root && is_root() {
            cargo.args(["--reuid=70413", "--clear-groups", "cargo"]);
        }
        if !cargo.arg("--version").output().is_ok_and(|output| output.status.success()) {
            println!("as {who:?} the rig itself has no cargo it can use, so this is not tested");
            continue;
        }
        let mut rig = Rig::start(&place);
        if !rig.isolates() {
            continue;
        }
        fs::create_dir(place.path("work/src")).unwrap();
        fs::write(place.path("work/src/main.rs"), "fn main() { println!(\"built\"); }").unwrap();
        let manifest = "[package]\nname = \"tiny\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(place.path("work/Cargo.toml"), manifest).unwrap();
        let mut spec = place.spec(&["sh", "-c", script]);
        if let Identity::Dedicated { uid, gid } = spec.identity {
            assert!(hand_over(&place.path("work"), uid, gid).unwrap() >= 3);
        }
        let tools = toolchain_mounts(spec.identity, |name| std::env::var(name).ok());
        println!("as {who:?} {tools:?}");
        spec.read_only.extend(tools.read_only);
        spec.hidden.extend(tools.hidden);
        spec.env.retain(|(name, _)| name != "PATH");
        spec.env.extend(tools.env);

        let ended = rig.run_to_end(&spec);

        let output = place.output(&spec);
        assert_eq!(ended["exit"], "code 0", "as {who:?}: {output}");
        for said in ["rustc 1", "built\n", "1\n", "compiled\n", "no credentials\n"] {
            assert!(output.contains(said), "as {who:?}: {output}");
        }
    }
}

#[test]
fn a_tree_is_handed_over_and_back_without_following_anything() {
    if !is_root() {
        println!("not root: owners cannot be changed, so this is not tested");
        return;
    }
    let place = Place::new(Who::Root);
    let (tree, outside) = (place.path("work"), place.path("data/secret"));
    fs::create_dir(tree.join("below")).unwrap();
    fs::write(tree.join("below/file"), "x").unwrap();
    fs::hard_link(tree.join("below/file"), tree.join("twice")).unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
    std::os::unix::fs::symlink(place.path("data"), tree.join("folder-link")).unwrap();
    let owner = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().uid();

    hand_over(&tree, RUNS_UID, RUNS_UID).unwrap();

    for path in ["", "below", "below/file", "twice", "link", "folder-link"] {
        assert_eq!(owner(&tree.join(path)), RUNS_UID, "{path}");
    }
    assert_eq!((owner(&outside), owner(&place.path("data"))), (0, 0), "what links lead to keeps its owner");

    // What a lane could leave for root to execute comes back without its marks.
    fs::set_permissions(tree.join("below/file"), fs::Permissions::from_mode(0o6755)).unwrap();
    hand_over(&tree, 0, 0).unwrap();
    assert_eq!(owner(&tree.join("below/file")), 0);
    assert_eq!(fs::metadata(tree.join("below/file")).unwrap().permissions().mode() & 0o7777, 0o755);

    fs::hard_link(&outside, tree.join("shared")).unwrap();
    let fault = hand_over(&tree, RUNS_UID, RUNS_UID).unwrap_err().to_string();
    assert!(fault.contains("shared") && fault.contains("hard link"), "{fault}");
    assert_eq!((owner(&outside), owner(&tree.join("twice"))), (0, 0), "nothing was changed");
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
