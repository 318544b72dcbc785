//! The input log on disk, and `thermite replay` (rule D10). That every service test's log replays is seen to where its
//! rig is let go of.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use thermite_actors::ports::{InputLog, RigSettings};
use thermite_actors::rig::{AskDevRun, Rig, RigSetup, SubmitJob};
use thermite_actors::testing::{
    DevRunScript, MemoryRecords, PausedClock, ScriptedDevice, ScriptedWorkspaces, SeededIds, VirtualTime,
};
use thermite_core::contract::Target;
use thermite_core::ids::MemberId;
use thermite_core::input_log::{Because, Line};
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::time::{Moment, Span};
use thermite_svc::input_log::{FileInputLog, INPUTS, Segment, Sizes, keep_within, replay, segments};

use crate::binary::{PATIENCE, Said, command};

/// Segments of a few hundred lines.
const SMALL: Sizes = Sizes { segment: 100_000, all: u64::MAX, waiting: 100_000 };

#[test]
fn a_log_is_cut_into_segments_and_each_replays_alone() {
    let place = tempfile::tempdir().unwrap();
    logged(place.path(), SMALL, 200);

    let all = replay(place.path()).unwrap();
    let found = segments(&place.path().join(INPUTS)).unwrap();
    let each: u64 = found.iter().map(|segment| replay(&segment.path).unwrap().inputs).sum();

    assert!(found.len() > 3, "{found:?}");
    assert_eq!(
        found.iter().map(|segment| segment.number).collect::<Vec<_>>(),
        (1..=found.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(all.inputs, each);
    assert_eq!(all.missed, 0);
}

#[test]
fn the_oldest_segments_go_and_the_newest_stays() {
    let place = tempfile::tempdir().unwrap();
    let bound = Sizes { all: 400_000, ..SMALL };
    logged(place.path(), bound, 400);
    let folder = place.path().join(INPUTS);

    let kept = segments(&folder).unwrap();
    // A machine's state and one batch of lines may come on top.
    assert!(bytes(&kept) <= 500_000, "{kept:?}");
    assert!(kept[0].number > 1, "{kept:?}");
    replay(&folder).unwrap();
    let freed = keep_within(&folder, 0).unwrap();

    let left = segments(&folder).unwrap();
    assert_eq!(left, kept[kept.len() - 1..]);
    assert_eq!(freed, bytes(&kept) - bytes(&left));
    replay(&folder).unwrap();
}

#[test]
fn a_start_begins_a_segment_and_a_line_that_was_cut_off_is_left_out() {
    let place = tempfile::tempdir().unwrap();
    logged(place.path(), Sizes::default(), 20);
    let first = segments(&place.path().join(INPUTS)).unwrap().remove(0);
    let whole = replay(place.path()).unwrap();
    let text = std::fs::read(&first.path).unwrap();
    // In the middle of the last line, as `kill -9` leaves it.
    std::fs::write(&first.path, &text[..text.len() - 20]).unwrap();
    let torn = replay(place.path()).unwrap();

    logged(place.path(), Sizes::default(), 20);

    let found = segments(&place.path().join(INPUTS)).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(torn.inputs, whole.inputs - 1);
    assert_eq!(replay(place.path()).unwrap().inputs, torn.inputs + whole.inputs);
}

#[test]
fn entries_that_cannot_be_taken_in_time_are_counted_and_a_new_segment_says_so() {
    let place = tempfile::tempdir().unwrap();
    let narrow = Sizes { waiting: 4, ..SMALL };
    let began = Instant::now();
    let mut done = Default::default();
    // One thread decides faster than the other writes: sooner or later there is no room.
    while began.elapsed() < PATIENCE {
        logged(place.path(), narrow, 100);
        done = replay(place.path()).unwrap();
        if done.missed > 0 {
            break;
        }
    }

    assert!(done.missed > 0, "{done:?}");
    assert!(done.to_string().ends_with("entries are missing in the log, which says so"), "{done}");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_and_the_log_goes_on_when_it_can() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join(INPUTS), "in the way").unwrap();
    let log = FileInputLog::open(place.path(), SMALL).unwrap();
    let began = Instant::now();
    // It asks for another segment once it has failed and rested.
    while log.epoch() == Some(1) {
        assert!(began.elapsed() < PATIENCE, "it does not try again");
        write(&log);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_file(place.path().join(INPUTS)).unwrap();

    while segments(&place.path().join(INPUTS)).unwrap().is_empty() {
        assert!(began.elapsed() < PATIENCE, "it does not go on");
        write(&log);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    log.close();

    let first = segments(&place.path().join(INPUTS)).unwrap().remove(0);
    let text = std::fs::read_to_string(first.path).unwrap();
    let Line::Begins(beginning) = serde_json::from_str(text.lines().next().unwrap()).unwrap() else { panic!("{text}") };
    let Because::Missed { entries } = beginning.because else { panic!("{beginning:?}") };
    assert!(entries >= 1);
}

#[test]
fn the_command_says_that_all_is_the_same_or_the_first_that_is_not() {
    let place = tempfile::tempdir().unwrap();
    logged(place.path(), Sizes::default(), 20);
    let whole = replay(place.path()).unwrap();
    let segment = segments(&place.path().join(INPUTS)).unwrap().remove(0).path;
    let text = std::fs::read_to_string(&segment).unwrap();
    let say = |args: &[&str]| Said::by(command(args).output().unwrap());
    let data = place.path().to_str().unwrap();
    let as_file = |name: &str, text: &str| {
        let file = place.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };

    let same = say(&["replay", data]);
    let json = say(&["replay", "--json", segment.to_str().unwrap()]);
    let changed = as_file("changed", &text.replacen("\"ahead\":0", "\"ahead\":5", 1));
    let differs = say(&["replay", &changed]);
    let differs_json = say(&["replay", "--json", &changed]);
    let other = say(&["replay", &as_file("other", &text.replacen(thermite_core::input_log::LIBRARY, "9.9.9", 1))]);
    let nonsense = say(&["replay", &as_file("nonsense", "nonsense\n")]);
    let device = say(&["replay", "/dev/zero"]);
    let nothing = say(&["replay", "/no/such/log"]);

    assert_eq!(same.code, Some(0), "{same:?}");
    assert_eq!(
        same.out,
        format!("{} inputs of {} machines replayed: the same decisions\n", whole.inputs, whole.machines)
    );
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json["same"].as_bool(), json["inputs"].as_u64()), (Some(true), Some(whole.inputs)));
    let sentence = differs.refused_with(1);
    assert!(
        sentence.contains("input ") && sentence.contains(" decided ") && sentence.contains("would decide"),
        "{sentence}"
    );
    assert_eq!(differs_json.code, Some(1), "{differs_json:?}");
    let first: serde_json::Value = serde_json::from_str(&differs_json.out).unwrap();
    assert_eq!(first["same"], false);
    assert!(first["first"]["input"].as_u64().is_some(), "{first}");
    assert!(other.refused_with(69).contains("was written by library 9.9.9"), "{other:?}");
    assert!(nonsense.refused_with(69).contains("line 1 is no line of an input log"), "{nonsense:?}");
    assert!(device.refused_with(69).contains("it is neither a file nor a folder"), "{device:?}");
    assert!(nothing.refused_with(69).contains("/no/such/log"), "{nothing:?}");
}

/// One line, as a machine's would be.
fn write(log: &FileInputLog) {
    if log.epoch().is_some() {
        let lane = thermite_core::lane::Lane::new(thermite_core::ids::LaneId::new(1).unwrap());
        log.write(Line::State(Box::new(thermite_core::input_log::State::Lane(lane))));
    }
}

fn bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.bytes).sum()
}

/// Writes the log of a rig whose lane tries `rounds` commands and submits a change every tenth.
fn logged(data: &Path, sizes: Sizes, rounds: u64) -> PathBuf {
    let log = Rc::new(FileInputLog::open(data, sizes).unwrap());
    let inputs: Rc<dyn InputLog> = log.clone();
    VirtualTime::new().block_on(async move {
        let clock = Rc::new(PausedClock::new(Moment::from_millis(1_000), 1_750_000_000_000));
        let device = ScriptedDevice::new(Target::Cpu, clock.clone(), 1);
        device.script_dev_runs(|_| DevRunScript::lasting(Span::ZERO));
        let setup = RigSetup {
            members: vec![device.ports(MemberId(0))],
            bench: None,
            workspaces: Rc::new(ScriptedWorkspaces::new(Target::Cpu)),
            records: Rc::new(MemoryRecords::new()),
            clock,
            ids: Rc::new(SeededIds::new(1)),
            inputs,
            settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: 3 },
            runners: thermite_actors::runners::RunnerSetup::default(),
        };
        let rig = Rig::start(setup).await.unwrap();
        let run = rig.start_run(ScriptedWorkspaces::request(3), None).await.unwrap();
        for round in 0..rounds {
            let ask = AskDevRun {
                run,
                lane: 1,
                argv: vec!["true".into()],
                env: Vec::new(),
                caller: Caller::Detached,
                key: None,
            };
            let queued = rig.ask(ask).await.unwrap();
            if round % 10 == 9 {
                let submit = SubmitJob { run, champion: None, change: format!("broken-{round}"), key: None };
                rig.submit(submit).await.unwrap();
            }
            rig.dev_run_end(queued.dev_run).await.unwrap();
        }
        rig.end().await;
    });
    log.close();
    data.join(INPUTS)
}
