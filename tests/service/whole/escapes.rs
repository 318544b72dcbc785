//! Escape scripts as development runs through REST: seen alive, then none is left before the device passes on (rule A7).

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use thermite_core::limits::{OUTPUT_DRAIN_MAX, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES};

use super::house::{House, Load, everyone};
use super::is_long;
use crate::binary::until;

/// A script, and how many of its processes are seen at once when it has unfolded.
const LASTING: [(&str, usize); 8] = [
    ("01_daemon", 4),
    ("03_many", 201),
    ("04_ignore_signals", 5),
    ("05_stopped", 5),
    ("08_vfork", 17),
    ("09_traced", 7),
    ("12_clean_env", 4),
    ("14_leave_cgroup", 2),
];

/// Scripts whose command ends at once and leaves a daemon.
const LEAVING: [&str; 2] = ["02_leader_exits", "11_nohup"];

/// How an adversary's time ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Cancel,
    Limit,
    RigKilled,
}

#[test]
fn no_adversary_outlives_its_cancel_and_the_next_lane_starts_after_it() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        for (script, least) in LASTING {
            end_adversary(&house, script, least, End::Cancel);
        }
        house.assert_traceless();
    }
}

#[test]
fn no_adversary_outlives_its_limit() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "5 s") else { return };
        let few = if is_long() { LASTING.len() } else { 3 };
        for (script, least) in LASTING.into_iter().take(few) {
            end_adversary(&house, script, least, End::Limit);
        }
        house.assert_traceless();
    }
}

#[test]
fn no_adversary_outlives_its_rig() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        let every = if is_long() { 1 } else { 3 };
        for (script, least) in LASTING.into_iter().step_by(every) {
            end_adversary(&house, script, least, End::RigKilled);
        }
        house.assert_traceless();
    }
}

#[test]
fn what_an_ended_command_leaves_ends_before_its_end_is_told() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };
        for script in LEAVING {
            let tag = tag(&house, script);
            let first = ask_script(&house, 1, script, &tag);
            let next = ask_next(&house, 2);

            assert_eq!(house.ended(&first)["exit"]["code"], 0, "{script} as {who:?}: {}", house.output(&first));

            assert_eq!(alive(&house, &tag), 0, "{script} as {who:?}");
            assert_alone(&house, &next);
        }
        // Where nothing ends them they live: the scripts do leave something behind.
        let tag = tag(&house, "control");
        let script = house.shared("cases/02_leader_exits.sh");
        let left = Command::new("sh").arg(script).arg(&tag).env("ESCAPE_BIN", house.shared("bin")).status().unwrap();
        assert!(left.success());
        until("the control lives", || alive(&house, &tag) == 1);
        for process in super::house::processes(|word| word == tag) {
            let pid = rustix::process::Pid::from_raw(process.pid.try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// Lets an adversary unfold while the next lane waits, ends its time, and looks for what is left.
pub(super) fn end_adversary(house: &House, script: &str, least: usize, end: End) {
    let about = format!("{script} as {:?} by {end:?}", house.who);
    let tag = tag(house, script);
    let first = ask_script(house, 1, script, &tag);
    until(&format!("{about}: {least} processes"), || alive(house, &tag) >= least);
    let next = ask_next(house, 2);
    match end {
        End::Cancel => {
            let answer = house.send("DELETE", &first, None, None).unwrap();
            // The answer is the proof: nothing is left once it is there.
            assert_eq!(alive(house, &tag), 0, "{about}");
            assert_eq!(answer.ok()["end"], "cancelled", "{about}");
        }
        End::Limit => {
            assert_eq!(house.ended(&first)["end"], "limit_reached", "{about}");
            assert_eq!(alive(house, &tag), 0, "{about}");
        }
        End::RigKilled => {
            house.kill();
            house.restart();
            house.swept();
            assert_eq!(alive(house, &tag), 0, "{about}");
            for run in [&first, &next] {
                assert_eq!(house.ended(run)["end"], "rig_ended", "{about}");
            }
            // Whoever follows its output is not left waiting.
            assert!(house.output_from(&first, 0).complete, "{about}");
            assert_alone(house, &ask_next(house, 3));
            return;
        }
    }
    assert_alone(house, &next);
}

/// The script with the lock that tells a second holder: all that it leaves behind holds it too.
fn ask_script(house: &House, lane: u32, script: &str, tag: &str) -> String {
    let (busy, case) = (house.shared("busy"), house.shared(&format!("cases/{script}.sh")));
    house.ask(lane, &[&busy, "under", &house.at("probe"), "sh", &case, tag])
}

fn ask_next(house: &House, lane: u32) -> String {
    house.ask(lane, &[&house.shared("busy"), "hold", &house.at("probe"), "1", &house.tag])
}

/// That a run found nobody else alive on the device.
fn assert_alone(house: &House, dev_run: &str) {
    let end = house.ended(dev_run);
    assert_eq!(end["exit"]["code"], 0, "{end}: {}", house.output(dev_run));
}

/// A word that is this script's alone.
pub(super) fn tag(house: &House, script: &str) -> String {
    format!("{}-{script}", house.tag)
}

/// Live processes of a tag, as `count.sh` counts them.
pub(super) fn alive(house: &House, tag: &str) -> usize {
    let counted = Command::new("sh").arg(house.shared("cases/count.sh")).arg(tag).output().unwrap();
    String::from_utf8(counted.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_gigabyte_of_output_takes_the_rig_little_memory() {
    const GIGABYTE: u64 = 1 << 30;
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };

        let dev_run = house.ask(1, &["sh", &house.shared("cases/17_flood.sh")]);

        assert_eq!(house.ended(&dev_run)["exit"]["code"], 0, "as {who:?}");
        let peak = peak_kib(house.pid());
        println!("as {who:?} the rig's peak was {peak} KiB");
        assert!(peak < 64 * 1024, "the rig's peak was {peak} KiB");
        let head = house.output_from(&dev_run, 0);
        let tail = house.output_from(&dev_run, OUTPUT_HEAD_BYTES);
        let cut = GIGABYTE - OUTPUT_HEAD_BYTES - OUTPUT_TAIL_BYTES;
        assert_eq!((head.offset, head.bytes, head.total, head.cut), (0, OUTPUT_HEAD_BYTES, GIGABYTE, cut));
        assert_eq!((tail.offset, tail.bytes), (GIGABYTE - OUTPUT_TAIL_BYTES, OUTPUT_TAIL_BYTES));
    }
}

#[test]
fn a_closed_output_is_not_the_end_and_a_held_pipe_does_not_hold_the_answer_back() {
    for who in everyone() {
        let Some(house) = House::served(who, Load::Quiet, "10 min") else { return };

        let closed = house.ask(1, &["sh", &house.shared("cases/18_stdout_closed.sh")]);
        let end = house.ended(&closed);
        let tag = tag(&house, "held");
        // It may be over before it is ever seen to run.
        let began = Instant::now();
        let held = ask_script(&house, 2, "19_pipe_held", &tag);
        let held_end = house.ended(&held);

        assert_eq!(end["exit"]["code"], 7, "{end}");
        // Its 3 s less what a busy rig is late to hear of its start; ended with its output it would be next to nothing.
        assert!(end["ran"].as_u64().unwrap() >= 1_500, "{end}");
        assert_eq!(house.output(&closed), "before\n");
        assert_eq!(held_end["exit"]["code"], 0, "{held_end}");
        // The writer would go on for 40 s; a busy machine is given far more than the drain limit.
        let took = began.elapsed();
        println!("as {who:?} the answer came {took:?} after the asking; the drain limit is {OUTPUT_DRAIN_MAX}");
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert!(house.output(&held).contains("done\n"));
        assert_eq!(alive(&house, &tag), 0);
    }
}

/// The most memory a process ever had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
