//! What an earlier rig left is found and ended; what is not its own is left alone.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use thermite_actors::host::launch::{LaunchSpec, sweep};
use thermite_actors::ports::StopProof;

use crate::driver::{Place, RUNS_UID, Rig, Who, alive, everyone, is_root, of, unique, wait_until};
use crate::escape::{adversary, assert_traceless, see, send};

/// A rig that was killed while its run's own guards were stopped, so that nothing ends the run but a sweep.
fn left_behind(place: &Place) -> Option<(Rig, LaunchSpec, String, Value)> {
    let mut rig = Rig::start(place);
    if !rig.isolates() {
        return None;
    }
    let (spec, tag) = adversary(place, "04_ignore_signals.sh");
    let facts = rig.run(&spec);
    see("04_ignore_signals.sh", &tag, 5);
    for guard in ["launcher", "pid"] {
        send(&facts[guard], Signal::STOP);
        let state = |pid: &Value| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        wait_until("the guard stands still", || state(&facts[guard]).contains(") T "));
    }
    rig.kill();
    wait_until("all are seen that nothing but a sweep ends", || alive(&tag) == 5);
    Some((rig, spec, tag, facts))
}

fn swept(place: &Place, rig: &str, uids: &[u32]) -> Value {
    let mut new = Rig::spawn(place.command(), rig);
    let swept = new.ok("sweep", json!({ "rig": rig, "state": place.path("state"), "uids": uids }));
    assert_eq!(swept["proof"], "empty", "{swept}");
    swept["found"].clone()
}

#[test]
fn a_live_leftover_is_found_by_its_run_file() {
    for who in everyone() {
        let place = Place::new(who);
        let Some((rig, spec, tag, _)) = left_behind(&place) else { continue };

        let found = swept(&place, &rig.name, &[]);

        assert_eq!(alive(&tag), 0, "as {who:?}");
        assert!(found.as_array().unwrap().contains(&json!(format!("run {}", spec.name))), "{found}");
        assert_traceless(&place, &rig);
    }
}

#[test]
fn a_live_leftover_without_a_run_file_is_found_by_its_cgroup() {
    for who in everyone() {
        let place = Place::new(who);
        let Some((rig, spec, tag, facts)) = left_behind(&place) else { continue };
        if !rig.has("cgroup") {
            println!("as {who:?} there is no cgroup to find it by: {}", rig.containment["missing"]);
            swept(&place, &rig.name, &[]);
            continue;
        }
        fs::remove_file(place.path("state/runs").join(format!("{}.json", spec.name))).unwrap();

        let found = swept(&place, &rig.name, &[]);

        assert_eq!(alive(&tag), 0, "as {who:?}");
        assert!(found.to_string().contains("cgroup "), "{found}");
        // Without its run file nobody knows of the launcher; it ends by itself once it may run.
        send(&facts["launcher"], Signal::CONT);
        let launcher = format!("/proc/{}", facts["launcher"]);
        wait_until("the launcher ends", || !Path::new(&launcher).exists());
        assert_traceless(&place, &rig);
    }
}

#[test]
fn a_process_of_the_rigs_own_uid_is_found_by_it() {
    if !is_root() {
        println!("not root: there are no uids to give, so this is not tested");
        return;
    }
    const OWN: u32 = 71_931;
    let place = Place::new(Who::Root);
    let mut left = Command::new("sleep").arg("50").uid(OWN).gid(OWN).spawn().unwrap();
    let name = unique("t");

    let found = swept(&place, &name, &[OWN]);

    assert!(found.to_string().contains(&format!("pid {} (sleep", left.id())), "{found}");
    assert!(!left.wait().unwrap().success());
}

#[test]
fn a_live_neighbour_is_untouched() {
    for who in everyone() {
        let (place, beside) = (Place::new(who), Place::new(who));
        let name = unique("t");
        let mut rig = Rig::start_named(&place, &name);
        // A name that begins with the other's, and runs of the same uid.
        let mut neighbour = Rig::start_named(&beside, &format!("{name}-b"));
        if !rig.isolates() || !neighbour.isolates() {
            continue;
        }
        let (spec, tag) = adversary(&place, "01_daemon.sh");
        let (their_spec, their_tag) = adversary(&beside, "01_daemon.sh");
        rig.run(&spec);
        neighbour.run(&their_spec);
        see("01_daemon.sh", &tag, 4);
        see("01_daemon.sh", &their_tag, 4);
        rig.kill();

        // Only a cgroup tells the neighbour's runs apart from leftovers of one uid.
        let uids: &[u32] = if who == Who::Root && rig.has("cgroup") { &[RUNS_UID] } else { &[] };
        swept(&place, &name, uids);

        assert_eq!(alive(&tag), 0, "as {who:?}");
        // A look at /proc may miss a process that is there; one that was ended never comes back.
        wait_until("all of the neighbour's are seen", || alive(&their_tag) == 4);
        assert_eq!(neighbour.ok("stop", of(&their_spec)), "empty");
        assert_eq!(alive(&their_tag), 0);
    }
}

#[test]
fn a_pid_that_another_process_has_got_since_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    fs::create_dir(state.path().join("runs")).unwrap();
    let mut other = Command::new("sleep").arg("50").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let start: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let capture = state.path().join("out");
    for (name, boot, start) in
        [("earlier-start", boot.trim(), start - 1), ("another-boot", "no boot of this kind", start)]
    {
        let process = json!({ "pid": other.id(), "start": start });
        let file = json!({
            "version": 1, "rig": "t", "name": name, "boot": boot, "init": process, "launcher": process,
            "cgroup": null, "uid": 0, "capture": capture,
        });
        fs::write(state.path().join(format!("runs/{name}.json")), file.to_string()).unwrap();
    }
    fs::write(state.path().join("runs/half.json"), "{\"version\": 1, \"na").unwrap();

    let swept = sweep("t", state.path(), &[], None).unwrap();

    assert_eq!(swept.proof, StopProof::Empty);
    assert_eq!(swept.found.len(), 3, "{:?}", swept.found);
    assert_eq!(fs::read_dir(state.path().join("runs")).unwrap().count(), 0);
    assert!(other.try_wait().unwrap().is_none(), "a process that was never a run's was ended");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn nothing_is_found_where_nothing_was() {
    let swept = sweep("nobody-s-rig", Path::new("/nonexistent/state"), &[], None).unwrap();

    assert_eq!((swept.proof, swept.found), (StopProof::Empty, Vec::new()));
}
