//! One command in containment: started behind a gate, timed, ended, proved.

use std::fs;

use crate::driver::{Place, Rig, everyone, of};

#[test]
fn a_command_runs_and_its_end_is_told_and_proved() {
    for who in everyone() {
        let place = Place::new(who);
        let mut rig = Rig::start(&place);
        if !rig.isolates() {
            continue;
        }
        let spec = place.spec(&["sh", "-c", "echo out; echo err >&2; echo made >made; pwd; exit 7"]);

        let ended = rig.run_to_end(&spec);

        assert_eq!(ended["exit"], "code 7", "{who:?}");
        assert_eq!(place.output(&spec), "out\nerr\n/run/thermite/work\n");
        assert_eq!(fs::read_to_string(place.path("work/made")).unwrap(), "made\n");
        assert!(ended["wall_ns"].as_u64().unwrap() > 0);
        assert_eq!(fs::read_dir(place.path("state/runs")).unwrap().count(), 0, "no run file is left");
    }
}

#[test]
fn nothing_runs_before_the_gate_is_opened() {
    for who in everyone() {
        let place = Place::new(who);
        let mut rig = Rig::start(&place);
        if !rig.isolates() {
            continue;
        }
        let spec = place.spec(&["sh", "-c", "echo ran >ran"]);
        rig.launch(&spec);
        assert_eq!(fs::read_dir(place.path("state/runs")).unwrap().count(), 1, "the run file is there before the exec");

        assert_eq!(rig.ok("stop", of(&spec)), "empty");

        assert!(rig.call("go", of(&spec)).unwrap_err().contains("stopped at its gate"));
        assert_eq!(rig.ok("ended", of(&spec))["exit"], "signal 9");
        assert!(!place.path("work/ran").exists());
    }
}
