//! Output: bounded in the rig's memory and on disk, never the end of a run, and there after the rig.

use std::fs;
use std::io::Write;

use serde_json::json;
use thermite_actors::host::launch::CaptureDir;
use thermite_actors::ports::{OutputSlice, Outputs};
use thermite_core::ids::DevRunId;
use thermite_core::limits::{OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES};

use crate::driver::{Place, alive, of, rigs, wait_until};
use crate::escape::{adversary, assert_traceless};

/// An output folder of the place, and a development run in it.
fn outputs(place: &Place) -> (CaptureDir, DevRunId) {
    (CaptureDir::open(place.path("out")).unwrap(), DevRunId(uuid::Uuid::now_v7()))
}

fn look(outputs: &CaptureDir, dev_run: DevRunId, offset: u64) -> OutputSlice {
    outputs.read(dev_run, offset, 4 * 1024 * 1024).unwrap()
}

#[test]
fn a_flood_of_a_gigabyte_is_counted_and_its_ends_are_kept_in_little_memory() {
    const GIGABYTE: u64 = 1 << 30;
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (outputs, dev_run) = outputs(&place);
        let mut spec = place.spec(&["sh", "/run/cases/17_flood.sh"]);
        spec.capture = Some(outputs.file(dev_run));

        assert_eq!(rig.run_to_end(&spec)["exit"], "code 0", "as {who:?}");

        let peak = rig.ok("peak", json!({})).as_u64().unwrap();
        println!("as {who:?} the rig's peak was {peak} KiB");
        assert!(peak < 64 * 1024, "the rig's peak was {peak} KiB");
        let head = look(&outputs, dev_run, 0);
        let tail = look(&outputs, dev_run, OUTPUT_HEAD_BYTES);
        let cut = GIGABYTE - OUTPUT_HEAD_BYTES - OUTPUT_TAIL_BYTES;
        assert_eq!((head.total, head.cut, head.complete), (GIGABYTE, cut, true));
        assert_eq!((head.offset, head.bytes.len() as u64), (0, OUTPUT_HEAD_BYTES));
        assert_eq!((tail.offset, tail.bytes.len() as u64), (GIGABYTE - OUTPUT_TAIL_BYTES, OUTPUT_TAIL_BYTES));
        assert!(head.bytes.iter().chain(&tail.bytes).all(|byte| *byte == b'x'));
        let on_disk = fs::metadata(outputs.file(dev_run)).unwrap().len();
        assert!(on_disk < 512 * 1024, "{on_disk} bytes on disk");
    }
}

#[test]
fn a_closed_output_is_not_the_end_of_a_run() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let spec = place.spec(&["sh", "/run/cases/18_stdout_closed.sh"]);

        let ended = rig.run_to_end(&spec);

        assert_eq!(ended["exit"], "code 7", "as {who:?}");
        assert!(ended["wall_ns"].as_u64().unwrap() >= 3_000_000_000, "{ended}");
        assert_eq!(place.output(&spec), "before\n");
    }
}

#[test]
fn a_held_pipe_does_not_hold_back_the_answer() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (spec, tag) = adversary(&place, "19_pipe_held.sh");

        // The writer would go on for 40 s: an answer that waited for it would be later than this.
        let ended = rig.run_to_end(&spec);

        assert_eq!(ended["exit"], "code 0", "as {who:?}");
        assert!(ended["wall_ns"].as_u64().unwrap() < 30_000_000_000, "{ended}");
        assert_eq!(alive(&tag), 0);
        assert!(place.output(&spec).contains("done\n"));
        assert_traceless(&place, &rig);
    }
}

#[test]
fn a_kept_writer_lives_on_and_its_output_is_over_all_the_same() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (outputs, dev_run) = outputs(&place);
        let (mut spec, tag) = adversary(&place, "19_pipe_held.sh");
        spec.capture = Some(outputs.file(dev_run));
        spec.keeps_leftovers = true;
        rig.run(&spec);
        assert_eq!(rig.ok("ended", of(&spec))["exit"], "code 0", "as {who:?}");

        wait_until("the output is over", || look(&outputs, dev_run, 0).complete);

        assert!(alive(&tag) >= 2, "the writer and the sleeper live on");
        assert_eq!(rig.ok("stop", of(&spec)), "empty");
        assert_eq!(alive(&tag), 0);
    }
}

#[test]
fn output_is_read_by_offset_while_the_run_goes_on_and_after_its_rig() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (outputs, dev_run) = outputs(&place);
        let go_on = place.path("work/go-on");
        let mut spec =
            place.spec(&["sh", "-c", "printf one; until [ -e go-on ]; do sleep 0.01; done; printf two; sleep 50"]);
        spec.capture = Some(outputs.file(dev_run));
        rig.run(&spec);
        wait_until("the first part is there", || look(&outputs, dev_run, 0).bytes == b"one");
        let before = look(&outputs, dev_run, 3);
        assert_eq!((before.bytes.len(), before.offset, before.total, before.complete), (0, 3, 3, false));
        fs::File::create(go_on).unwrap().write_all(b"").unwrap();
        wait_until("the second part is there", || look(&outputs, dev_run, 3).bytes == b"two");

        rig.kill();

        wait_until("the launcher says that it is over", || look(&outputs, dev_run, 0).complete);
        let after = look(&outputs, dev_run, 0);
        assert_eq!((after.bytes.as_slice(), after.total, after.cut), (b"onetwo".as_slice(), 6, 0), "as {who:?}");
        assert!(outputs.read(DevRunId(uuid::Uuid::now_v7()), 0, 10).is_none(), "another run has no output");
        // The launcher removes its traces last; the place is gone after this test.
        wait_until("the launcher is done", || fs::read_dir(place.path("state/runs")).unwrap().count() == 0);
    }
}

#[test]
fn the_output_of_a_launcher_that_was_killed_is_marked_by_the_rig() {
    for (place, mut rig) in rigs() {
        let who = place.who;
        let (outputs, dev_run) = outputs(&place);
        let mut spec = place.spec(&["sh", "-c", "printf some; sleep 50"]);
        spec.capture = Some(outputs.file(dev_run));
        let facts = rig.run(&spec);
        wait_until("it has written", || look(&outputs, dev_run, 0).bytes == b"some");

        crate::escape::send(&facts["launcher"], rustix::process::Signal::KILL);

        assert_eq!(rig.ok("stop", of(&spec)), "empty");
        rig.ok("finished", of(&spec));
        assert!(look(&outputs, dev_run, 0).complete, "as {who:?}");
        assert_traceless(&place, &rig);
    }
}
