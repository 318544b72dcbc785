//! The `reported` timer on real programs: the example kit in C, its changes, and what its cheats get (docs/judging.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermite_actors::host::clock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_core::job::ChangeStep;
use thermite_core::record::VerdictRecord;
use thermite_core::stage::StageEnd;
use thermite_core::texts;
use thermite_core::verdict::Verdict;

use crate::executor::{Bench, local, quiet_machine};

#[test]
fn a_faster_product_wins_and_a_renamed_one_does_not() {
    for (kit, note) in [("kit.toml", texts::TIMER_SHARES_PROCESS), ("apart.toml", APART)] {
        let Some(faster) = judged(kit, "row-by-row") else { return };
        let Some(same) = judged(kit, "other-names") else { return };

        let (faster, same) = (decided(faster), decided(same));
        assert_eq!(faster.verdict, Verdict::Win, "{kit}");
        assert!(faster.bounds.lower > Some(0.1), "{kit}: {:?}", faster.bounds);
        assert!(matches!(same.verdict, Verdict::NoGain { .. }), "{kit}: {:?}", same.bounds);
        for record in [faster, same] {
            assert_eq!(record.facts.timer_note, note, "{kit}");
        }
    }
}

#[test]
fn what_is_written_twice_or_by_another_process_is_caught_where_the_timer_shares_the_process() {
    for (change, said) in [
        ("cheat-report", "its measured run wrote \"0.0001\\n0."),
        ("cheat-child", "its measured run let another process write on descriptor 3; "),
    ] {
        let Some(end) = judged("kit.toml", change) else { return };

        let why = failed(end);
        assert!(why.starts_with(said), "{change}: {why}");
    }
}

/// Nothing can tell these from the truth inside one process: the record warns of it, and no more.
#[test]
fn a_clock_or_a_report_that_the_candidate_reaches_is_not_caught_and_the_record_says_that_it_could() {
    for change in ["cheat-clock", "cheat-leave"] {
        let Some(end) = judged("kit.toml", change) else { return };

        let record = decided(end);
        assert_eq!((record.verdict, record.facts.timer_note.as_str()), (Verdict::Win, "timer shares the process"));
    }
}

#[test]
fn a_candidate_in_a_process_of_its_own_gains_nothing_by_cheating() {
    for change in ["cheat-report", "cheat-child", "cheat-clock"] {
        let Some(end) = judged("apart.toml", change) else { return };

        let record = decided(end);
        assert!(matches!(record.verdict, Verdict::NoGain { .. }), "{change}: {:?}", record.bounds);
    }
    let Some(end) = judged("apart.toml", "cheat-leave") else { return };
    assert_eq!(failed(end), "its measured run exited with 1; its output ends: the worker is gone");
}

const APART: &str = "reported by the kit's measuring program, apart from the candidate as the kit says";

/// A screening of the example's change, by the example's kit; none where this machine gives no isolation.
fn judged(kit: &str, change: &str) -> Option<StageEnd> {
    let mut end = None;
    local(async {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kits/c-matrix");
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let files: Vec<(String, String)> =
            ["apart.c", "build.sh", "check.c", "inside.c", "matrix.h", "multiply.c", "trust.h", "worker.c"]
                .map(|name| (name.to_owned(), read(folder.join(name))))
                .into();
        let champion: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let change = read(folder.join("changes").join(format!("{change}.c")));
        // The driver reads a quiet machine, and the kit takes the fastest of some runs: a busy one does not matter here.
        let quiet = quiet_machine();
        let driver = CpuDriver::below(quiet.path().to_owned(), Arc::new(clock::clocks));
        let changed = [("multiply.c", change.as_str())];
        // A wide gate: on a machine that others keep busy two equal programs may differ by a third for a while.
        let kit = read(folder.join(kit)).replace("plan_percent = 20", "plan_percent = 100");
        let kit = kit.replace("gate_percent = 10", "gate_percent = 60");
        let Some(bench) = Bench::open_with(driver.clone(), &kit, &champion, &changed).await else { return };
        end = Some(bench.whole_stage(&driver).await);
    });
    end
}

fn decided(end: StageEnd) -> VerdictRecord {
    let StageEnd::Decided { record, .. } = end else { panic!("{end:?}") };
    *record
}

fn failed(end: StageEnd) -> String {
    let StageEnd::ChangeFailed { step: ChangeStep::Measure, why, .. } = end else { panic!("{end:?}") };
    why
}
