//! The executor on real processes: the judge's steps from a real repository to a timed block, and development runs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermite_actors::host::clock::{self, BootClock};
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{ExecutorSettings, HostExecutor};
use thermite_actors::host::launch::{Cards, Launcher, LauncherSettings, Wanted};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{Clock, Executor, Outputs, RunRequest, StageRef, StopProof, TargetDriver, Workspaces};
use thermite_core::block::{BlockTimes, Order, Pair, Side};
use thermite_core::contract::{Contract, Leftovers};
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::{Arrival, DevRunId, HoldId, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{JobSpec, StageKind};
use thermite_core::limits;
use thermite_core::noise::{HarnessAlarm, Noise};
use thermite_core::readiness::{Reading, names};
use thermite_core::record::MeasuredOn;
use thermite_core::stage::{Directive, Stage, StageEnd, StagePart, StagePlan, StageStep, StepReport};
use thermite_core::time::Span;
use thermite_core::verdict::Verdict;

use crate::driver::{PATIENCE, unique, wait_until};
use crate::repo::{Repo, commit, git, write};

/// Times its own CPU use in doing WORK rounds, and reports it.
const WORK_C: &str = r#"
#include <stdio.h>
#include <time.h>
int main(int argc, char **argv) {
    if (argc > 1) return 0;
    volatile unsigned long x = 1;
    for (unsigned long i = 0; i < WORK; i++) x = x * 6364136223846793005ul + 1442695040888963407ul;
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    dprintf(3, "%.9f\n", t.tv_sec + t.tv_nsec / 1e9);
    return 0;
}
"#;

#[test]
fn a_change_that_does_twice_the_work_is_built_checked_and_timed_as_slower() {
    local(async {
        let kit = kit(r#"build = ["cc", "-O1", "-o", "bench", "src/work.c"]
               check = ["./bench", "check"]
               measure = ["./bench"]
               timer = "reported""#);
        let source = |work: &str| WORK_C.replace("WORK", work);
        let (slow, fast) = (source("40000000ul"), source("20000000ul"));
        let Some(bench) = Bench::open(&kit, &[("src/work.c", &fast)], &[("src/work.c", &slow)]).await else { return };

        bench.prepared().await;
        let [champion, again, change] =
            [bench.built(Side::Champion).await, bench.built(Side::Champion).await, bench.built(Side::Change).await];
        for side in [Side::Champion, Side::Change] {
            assert_eq!(bench.step(StageStep::Check { side }).await, StepReport::Checked { side });
        }
        let times = bench.timed(Pair::ChampionAndChange, Order::Abba).await;
        let twice = bench.timed(Pair::ChampionTwice, Order::Baab).await;

        assert_eq!((champion.len(), &champion), (64, &again), "the same source is the same artefact");
        assert_ne!(champion, change);
        // CPU time, so a busy machine does not matter.
        let d = Order::Abba.ratio(&times.ns);
        assert!((-1.2..-0.35).contains(&d), "ln 1/2 is -0.69, found {d} from {:?}", times.ns);
        assert!(Order::Baab.ratio(&twice.ns).abs() < 0.3, "champion against itself: {:?}", twice.ns);
        assert!(times.before.at <= times.started && times.started <= times.after.at);
        let own = |reading: &Reading| {
            reading.signals.iter().find(|signal| signal.name == names::LOAD1_OWN).and_then(|signal| signal.value)
        };
        assert!(own(&times.after) > own(&times.before), "the judge's own use is known to the driver");
    });
}

#[test]
fn the_wall_timer_times_each_run_in_the_order_of_the_coin() {
    local(async {
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]");
        let Some(bench) = Bench::open(&kit, &[("src/run.sh", "sleep 0.02\n")], &[("src/run.sh", "sleep 0.15\n")]).await
        else {
            return;
        };
        bench.prepared().await;

        let abba = bench.timed(Pair::ChampionAndChange, Order::Abba).await.ns;
        let baab = bench.timed(Pair::ChampionAndChange, Order::Baab).await.ns;
        let twice = bench.timed(Pair::ChampionTwice, Order::Baab).await.ns;

        // A sleep is never shorter than asked for, however busy the machine.
        let at_least = |ns: [u64; 4], ms: [u64; 4]| ns.iter().zip(ms).all(|(ns, ms)| *ns >= ms * 1_000_000);
        assert!(at_least(abba, [20, 150, 150, 20]), "{abba:?}");
        assert!(at_least(baab, [150, 20, 20, 150]), "{baab:?}");
        assert!(at_least(twice, [20; 4]), "{twice:?}");
    });
}

#[test]
fn reported_times_are_the_blocks_times_whatever_the_clock_says() {
    local(async {
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]\ntimer = \"reported\"");
        let Some(bench) =
            Bench::open(&kit, &[("src/run.sh", "echo 0.010 >&3\n")], &[("src/run.sh", "echo 2e-2 >&3\n")]).await
        else {
            return;
        };
        bench.prepared().await;

        let abba = bench.timed(Pair::ChampionAndChange, Order::Abba).await.ns;
        let baab = bench.timed(Pair::ChampionAndChange, Order::Baab).await.ns;
        let twice = bench.timed(Pair::ChampionTwice, Order::Abba).await.ns;

        let (a, b) = (10_000_000, 20_000_000);
        assert_eq!((abba, baab, twice), ([a, b, b, a], [b, a, a, b], [a; 4]));
    });
}

#[test]
fn a_whole_stage_goes_from_the_workspaces_to_its_verdict() {
    local(async {
        let kit = kit(r#"build = ["sh", "-c", "cp src/time built"]
               check = ["test", "-s", "built"]
               measure = ["sh", "-c", "exec cat built >&3"]
               timer = "reported"
               artefacts = ["built"]"#);
        for (change, verdict) in [("0.008", Verdict::Win), ("0.015", Verdict::NoGain { slower: true })] {
            // The driver reads a quiet machine, so that a busy one does not matter here.
            let quiet = quiet_machine();
            let driver = CpuDriver::below(quiet.path().to_owned(), Arc::new(clock::clocks));
            let files = ([("src/time", "0.010")], [("src/time", change)]);
            let Some(bench) = Bench::open_with(driver.clone(), &kit, &files.0, &files.1).await else { return };
            let end = bench.whole_stage(&driver).await;

            let StageEnd::Decided { verdict: found, .. } = end else { panic!("{end:?}") };
            assert_eq!(found, verdict, "{change} s instead of 0.010 s");
        }
    });
}

#[test]
fn both_sides_see_the_same_place_arguments_and_environment_and_no_label() {
    local(async {
        let kit = kit(r#"build = ["sh", "see.sh", "build"]
               measure = ["sh", "see.sh", "measure"]"#);
        let see = "{ env | sort; pwd; id -u; echo \"$0 $@\"; ls -A / /run /tmp; ls -A; } > seen 2>&1\n\
                   cat /proc/self/mountinfo /proc/self/cgroup /proc/1/cmdline > labels 2>/dev/null\nsleep 0.002\n";
        let champion = [("src/a", "1\n"), ("see.sh", see)];
        let Some(bench) = Bench::open(&kit, &champion, &[("src/a", "2\n")]).await else { return };
        bench.prepared().await;

        let built = [bench.built(Side::Champion).await, bench.built(Side::Change).await];
        let at_build = bench.both("seen");
        let labels = bench.both("labels");
        bench.timed(Pair::ChampionAndChange, Order::Abba).await;
        let at_measure = bench.both("seen");

        assert_ne!(built[0], built[1], "no artefact is listed, so the commit names what is measured");
        assert_eq!(at_build[0], at_build[1]);
        assert_eq!(at_measure[0], at_measure[1]);
        assert!(at_build[0].contains("/run/judge\n"), "{}", at_build[0]);
        for words in labels.iter().chain(&at_build) {
            let told = ["champion", "change", "candidate", "Champion", "Change"].map(|word| words.contains(word));
            assert_eq!(told, [false; 5], "{words}");
        }
    });
}

#[test]
fn a_side_that_fails_says_how_with_the_end_of_its_output() {
    local(async {
        let kit = kit(r#"build = ["sh", "src/build.sh"]
               check = ["sh", "src/check.sh"]
               measure = ["./src/run.sh"]"#);
        let champion = [("src/build.sh", ""), ("src/check.sh", ""), ("src/run.sh", "")];
        let change = [
            ("src/build.sh", "yes early output | head -n 500; echo late output >&2; exit 3\n"),
            ("src/check.sh", "kill -SEGV $$\n"),
        ];
        let Some(bench) = Bench::open(&kit, &champion, &change).await else { return };
        bench.prepared().await;

        let build = bench.failed(StageStep::Build { side: Side::Change }).await;
        let check = bench.failed(StageStep::Check { side: Side::Change }).await;
        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Baab };
        let measure = bench.failed(block).await;

        assert_eq!(build.0, Side::Change);
        assert!(build.1.starts_with("its build exited with 3; its output ends: ..."), "{}", build.1);
        assert!(build.1.ends_with("early output\nlate output") && build.1.len() < 2_200, "{}", build.1);
        assert_eq!(check, (Side::Change, "its check was ended by signal 11, and wrote nothing".into()));
        let why = "program ./src/run.sh could not be executed: Permission denied (os error 13)";
        assert_eq!(measure, (Side::Change, why.into()), "BAAB begins with the change");
    });
}

#[test]
fn a_measured_run_leaves_nothing_in_the_workspace_for_the_next() {
    local(async {
        let kit = kit(r#"check = ["sh", "src/keep.sh"]
               measure = ["sh", "src/keep.sh"]"#);
        let champion = [("src/keep.sh", "sleep 0.01\n")];
        let change = [("src/keep.sh", "sleep 0.01; echo answer >answer\n")];
        let Some(bench) = Bench::open(&kit, &champion, &change).await else { return };
        bench.prepared().await;

        let check = bench.step(StageStep::Check { side: Side::Change }).await;
        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Abba };
        let measure = bench.failed(block).await;

        assert_eq!(check, StepReport::Checked { side: Side::Change }, "a check may write");
        assert_eq!(measure.0, Side::Change);
        assert!(measure.1.contains("answer: Read-only file system"), "{}", measure.1);
    });
}

#[test]
fn a_program_that_is_not_there_after_the_build_is_the_sides_fault() {
    local(async {
        let kit = kit("build = [\"true\"]\nmeasure = [\"./bench\"]");
        let Some(bench) = Bench::open(&kit, &[("src/a", "1\n")], &[("src/a", "2\n")]).await else { return };
        bench.prepared().await;

        let build = bench.failed(StageStep::Build { side: Side::Champion }).await;
        let block = StageStep::Block { pair: Pair::ChampionTwice, order: Order::Baab };
        let measure = bench.failed(block).await;

        let missing = "No such file or directory (os error 2)";
        let why = format!("artefact ./bench cannot be read after the build: {missing}");
        assert_eq!(build, (Side::Champion, why));
        let why = format!("program ./bench could not be executed: {missing}");
        assert_eq!(measure, (Side::Champion, why), "the champion is under both labels");
    });
}

#[test]
fn an_artefact_that_leads_out_of_the_workspace_or_never_ends_is_refused() {
    for (place, said) in [
        ("ln -s /etc/hostname out", "Invalid cross-device link (os error 18)"),
        ("ln -s ../../../../../etc/hostname out", "Invalid cross-device link (os error 18)"),
        ("mkfifo out", "it is not a file"),
        ("mkdir out", "it is not a file"),
    ] {
        local(async move {
            let kit = kit("build = [\"sh\", \"src/b.sh\"]\nmeasure = [\"true\"]\nartefacts = [\"out\"]");
            let Some(bench) = Bench::open(&kit, &[("src/b.sh", "true\n")], &[("src/b.sh", place)]).await else {
                return;
            };
            bench.prepared().await;

            let failed = bench.failed(StageStep::Build { side: Side::Change }).await;

            let why = format!("artefact out cannot be read after the build: {said}");
            assert_eq!(failed, (Side::Change, why), "{place}");
        });
    }
}

#[test]
fn a_run_that_hangs_is_ended_at_the_contracts_limit_and_leaves_nothing() {
    local(async {
        let tag = unique("hang");
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]\n[contract]\nmeasure_max = \"400 ms\"");
        let hang = format!("echo begun\nsetsid sh -c 'while :; do sleep 1; done' x {tag} &\nsleep 1000\n");
        let Some(bench) = Bench::open(&kit, &[("src/run.sh", "true\n")], &[("src/run.sh", &hang)]).await else {
            return;
        };
        bench.prepared().await;

        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Baab };
        let (side, why) = bench.failed(block).await;

        assert_eq!(side, Side::Change);
        assert_eq!(
            why,
            "its measured run took longer than 0.4 s (measure_max in the kit's contract) and was ended; its output \
             ends: begun"
        );
        assert_eq!(crate::driver::alive(&tag), 0);
    });
}

#[test]
fn a_run_that_reports_nonsense_is_the_sides_fault() {
    local(async {
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]\ntimer = \"reported\"");
        let Some(bench) =
            Bench::open(&kit, &[("src/run.sh", "echo 0.1 >&3\n")], &[("src/run.sh", "echo fast >&3\n")]).await
        else {
            return;
        };
        bench.prepared().await;

        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Abba };
        let failed = bench.failed(block).await;

        let why = "its measured run wrote \"fast\" on descriptor 3; expected its time in seconds, once, such as 0.125";
        assert_eq!(failed, (Side::Change, why.into()));
    });
}

#[test]
fn a_measured_process_killed_from_outside_is_lost_and_not_failed() {
    local(async {
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]");
        let Some(bench) =
            Bench::open(&kit, &[("src/run.sh", "sleep 0.002\n")], &[("src/run.sh", "kill -KILL $$\n")]).await
        else {
            return;
        };
        bench.prepared().await;

        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Abba };
        let memory_kills = || {
            let text = std::fs::read_to_string("/proc/vmstat").unwrap();
            text.lines().find(|line| line.starts_with("oom_kill ")).map(str::to_owned)
        };
        let before = memory_kills();
        let report = bench.step(block).await;
        let after = memory_kills();

        let (side, why) = (Side::Change, "its measured run was killed, and wrote nothing".into());
        if before.is_some() && before == after {
            assert_eq!(report, StepReport::Killed { side, why });
        } else {
            println!("the kernel killed for memory meanwhile, or does not count it: {before:?}, {after:?}");
            assert!(matches!(report, StepReport::Lost { .. } | StepReport::Killed { .. }), "{report:?}");
        }
    });
}

#[test]
fn a_stop_reaches_a_step_under_way_and_bars_the_next() {
    local(async {
        let tag = unique("stopped");
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]");
        let hang = format!("sh -c 'while :; do sleep 1; done' x {tag}\n");
        let Some(bench) = Bench::open(&kit, &[("src/run.sh", &hang)], &[("src/run.sh", "true\n")]).await else {
            return;
        };
        bench.prepared().await;
        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Abba };
        let step = tokio::task::spawn_local(bench.executor.step(bench.hold, bench.stage(), block));
        until("the run is there", || crate::driver::alive(&tag) > 0).await;

        let proof = bench.executor.stop(bench.hold, false).await;
        let alive = crate::driver::alive(&tag);
        let report = step.await.unwrap();
        let next = bench.step(StageStep::Prepare).await;
        let again = bench.executor.stop(bench.hold, true).await;

        assert_eq!((proof, alive, again), (StopProof::Empty, 0, StopProof::Empty));
        assert_eq!(report, StepReport::NotCarriedOut { why: "it was stopped".into() });
        assert_eq!(next, StepReport::NotCarriedOut { why: "hold 1 of device 0 was stopped".into() });
    });
}

#[test]
fn a_step_without_laid_out_workspaces_and_a_look_are_not_carried_out() {
    local(async {
        let kit = kit("measure = [\"true\"]");
        let Some(bench) = Bench::open(&kit, &[("src/a", "1\n")], &[("src/a", "2\n")]).await else { return };

        let build = bench.step(StageStep::Build { side: Side::Champion }).await;
        let look = bench.step(StageStep::Look).await;

        let why = "the workspaces of this attempt are not laid out".into();
        assert_eq!(build, StepReport::NotCarriedOut { why });
        assert_eq!(look, StepReport::NotCarriedOut { why: "a look is the driver's, not the executor's".into() });
    });
}

#[test]
fn a_development_run_works_in_its_lanes_own_tree_and_sees_no_other() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };
        let (own, other) = (bench.lane(1), bench.lane(2));
        write(&other.join("secret"), "of lane 2\n");
        let script = format!(
            "pwd; echo lane $THERMITE_LANE term $TERM extra $EXTRA; cat {other}/secret {data}/trees; \
             echo made > made; mkdir -p src/new && echo deeper > src/new/file; exit 7",
            other = other.display(),
            data = bench.repo.data().display(),
        );
        let mut spec = bench.dev_run(&["sh", "-c", &script]);
        spec.env.push(("EXTRA".into(), "given".into()));
        let dev_run = spec.dev_run;

        let launched = bench.executor.start(bench.hold, spec).await.unwrap();
        let exit = bench.executor.exited(bench.hold).await;
        let proof = bench.executor.stop(bench.hold, true).await;

        assert!(launched.containment.starts_with("namespaces") && launched.pid > 1);
        assert_eq!((exit, proof), (Exit::Code(7), StopProof::Empty));
        let output = bench.output(dev_run).await;
        assert!(output.contains(&format!("{}\n", own.display())), "{output}");
        assert!(output.contains("lane 1 term dumb extra given\n"), "{output}");
        assert_eq!(output.matches("No such file").count(), 2, "neither the other lane's nor the rig's: {output}");
        assert_eq!(std::fs::read_to_string(own.join("made")).unwrap(), "made\n");
        assert_eq!(std::fs::read_to_string(own.join("src/new/file")).unwrap(), "deeper\n");
        // The user's own git goes on working in the lane's tree.
        assert!(git(&own, &["status", "--porcelain"]).contains("?? made"));
    });
}

#[test]
fn a_development_run_that_cannot_be_executed_says_so() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };

        let missing = bench.executor.start(bench.hold, bench.dev_run(&["./no-such"])).await;
        let proof = bench.executor.stop(bench.hold, false).await;

        let why = "program ./no-such could not be executed: No such file or directory (os error 2)";
        assert_eq!(missing, Err(why.into()));
        assert_eq!(proof, StopProof::Empty);
    });
}

#[test]
fn a_hold_stopped_before_its_start_never_starts() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };

        let proof = bench.executor.stop(bench.hold, true).await;
        let late = bench.executor.start(bench.hold, bench.dev_run(&["true"])).await;
        let exit = bench.executor.exited(bench.hold).await;
        let next = HoldId { number: 2, ..bench.hold };
        let started = bench.executor.start(next, bench.dev_run(&["true"])).await;

        assert_eq!((proof, late), (StopProof::Empty, Err("hold 1 of device 0 was stopped".into())));
        assert_eq!(exit, Exit::Signal(9), "what never ran has ended");
        assert!(started.is_ok(), "{started:?}");
        assert_eq!(bench.executor.exited(next).await, Exit::Code(0));
    });
}

#[test]
fn a_stop_while_a_run_is_being_started_leaves_nothing() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };
        for number in 1..=20 {
            let tag = unique("early");
            let hold = HoldId { number, ..bench.hold };
            let spec = bench.dev_run(&["sh", "-c", "while :; do sleep 1; done", "x", &tag]);
            let start = tokio::task::spawn_local(bench.executor.start(hold, spec));
            // A little further into the start each time.
            tokio::time::sleep(std::time::Duration::from_micros(number * 400)).await;

            let proof = bench.executor.stop(hold, false).await;
            let alive = crate::driver::alive(&tag);
            start.await.unwrap().ok();

            assert_eq!((proof, alive), (StopProof::Empty, 0), "try {number}");
            assert_eq!(crate::driver::alive(&tag), 0, "try {number}");
        }
    });
}

#[test]
fn what_a_development_run_leaves_behind_ends_with_it_unless_the_contract_says_keep() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };
        let leave =
            |tag: &str| ["sh", "-c", "setsid sh -c 'while :; do sleep 1; done' x $0 & exit 0", tag].map(str::to_owned);
        let (ended, kept, cut) = (unique("ended"), unique("kept"), unique("cut"));
        let keep = |mut spec: DevRunSpec| {
            spec.contract.leftovers = Leftovers::Keep;
            spec
        };
        let run = |tag: &str| {
            let argv = leave(tag);
            bench.dev_run(&argv.each_ref().map(String::as_str))
        };
        let hold = |number| HoldId { number, ..bench.hold };

        bench.executor.start(hold(1), run(&ended)).await.unwrap();
        bench.executor.exited(hold(1)).await;
        let first = bench.executor.stop(hold(1), false).await;
        let kept_spec = keep(run(&kept));
        let (kept_id, kept_lane) = (kept_spec.dev_run, kept_spec.lane);
        bench.executor.start(hold(2), kept_spec).await.unwrap();
        bench.executor.exited(hold(2)).await;
        let second = bench.executor.stop(hold(2), false).await;
        // One that is stopped has not ended by itself, whatever the contract says.
        let spec = keep(bench.dev_run(&["sh", "-c", "while :; do sleep 1; done", "x", &cut]));
        bench.executor.start(hold(3), spec).await.unwrap();
        let third = bench.executor.stop(hold(3), false).await;

        assert_eq!([first, second, third], [StopProof::Empty, StopProof::Empty, StopProof::Empty]);
        assert_eq!((crate::driver::alive(&ended), crate::driver::alive(&cut)), (0, 0));
        assert!(crate::driver::alive(&kept) > 0, "leftovers live on");
        wait_until("all that is kept is listed", || {
            let listed = bench.executor.leftovers();
            listed.len() == 1 && listed[0].processes.len() == crate::driver::alive(&kept)
        });
        let listed = bench.executor.leftovers();
        assert_eq!((listed[0].dev_run, listed[0].lane), (kept_id, kept_lane));
        assert!(listed[0].processes.iter().any(|process| process.command == "sh"), "{listed:?}");
        assert!(listed[0].since <= BootClock.now());

        assert_eq!(bench.executor.end_leftovers().await, StopProof::Empty, "the rig ends");

        assert_eq!(crate::driver::alive(&kept), 0);
        assert_eq!(bench.executor.leftovers(), []);
    });
}

#[test]
fn leftovers_that_end_by_themselves_are_no_longer_listed() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };
        let go_on = bench.lane(1).join("go-on");
        let script = "setsid sh -c 'until [ -e go-on ]; do sleep 0.05; done' & exit 0";
        let mut spec = bench.dev_run(&["sh", "-c", script]);
        spec.contract.leftovers = Leftovers::Keep;
        let hold = HoldId { number: 1, ..bench.hold };
        bench.executor.start(hold, spec).await.unwrap();
        bench.executor.exited(hold).await;
        assert_eq!(bench.executor.stop(hold, false).await, StopProof::Empty);
        assert_eq!(bench.executor.leftovers().len(), 1);

        std::fs::write(go_on, "").unwrap();

        wait_until("it is not listed any more", || bench.executor.leftovers().is_empty());
    });
}

#[test]
fn a_sweep_over_a_clean_machine_proves_it_empty() {
    local(async {
        let Some(bench) = Bench::plain().await else { return };

        assert_eq!(bench.executor.sweep().await, StopProof::Empty);
    });
}

/// A repository with a champion and a change, a rig's executor over it, and the first hold.
pub(crate) struct Bench {
    pub(crate) repo: Repo,
    pub(crate) executor: HostExecutor,
    pub(crate) workspaces: HostWorkspaces,
    pub(crate) job: Arc<JobSpec>,
    pub(crate) hold: HoldId,
    // Dropped last: the launcher's run files are in it.
    _state: tempfile::TempDir,
}

impl Bench {
    /// None where this machine gives no isolation; the launcher's tests say so too.
    pub(crate) async fn open(kit: &str, champion: &[(&str, &str)], change: &[(&str, &str)]) -> Option<Bench> {
        Bench::open_with(CpuDriver::of_this_machine(), kit, champion, change).await
    }

    pub(crate) async fn open_with(
        driver: CpuDriver,
        kit: &str,
        champion: &[(&str, &str)],
        change: &[(&str, &str)],
    ) -> Option<Bench> {
        let files: Vec<(&str, &str)> = [("kit.toml", kit)].into_iter().chain(champion.iter().copied()).collect();
        let repo = Repo::with(&files);
        let lanes = [repo.lane("lane-1"), repo.lane("lane-2")];
        for (path, text) in change {
            write(&lanes[0].join(path), text);
        }
        commit(&lanes[0], "the change");

        let state = tempfile::tempdir().unwrap();
        let rig = unique("x");
        let launcher = launcher(&rig, state.path()).await?;
        let accounts = accounts();
        let path = std::env::var("PATH").unwrap();
        let workspaces = HostWorkspaces::open(&repo.data(), accounts, path).unwrap();
        let request =
            RunRequest { repo: repo.path(), kit: "kit.toml".into(), champion: "main".into(), lanes: lanes.into() };
        let run = workspaces.open(request).await.unwrap();
        let pinned = workspaces.pin(run.clone(), run.champion.clone(), "lane-1".into()).await.unwrap();
        let (job, run) = (JobId(uuid::Uuid::now_v7()), RunId(uuid::Uuid::now_v7()));
        let job = Arc::new(JobSpec { job, run, arrival: Arrival(1), pinned });
        let settings = ExecutorSettings { rig, data: repo.data(), accounts };
        let executor = HostExecutor::open(launcher, workspaces.clone(), driver, settings).unwrap();
        let hold = HoldId { member: MemberId(0), number: 1 };
        Some(Bench { repo, executor, workspaces, job, hold, _state: state })
    }

    async fn plain() -> Option<Bench> {
        Bench::open(&kit("measure = [\"true\"]"), &[("src/a", "1\n")], &[("src/a", "2\n")]).await
    }

    pub(crate) fn lane(&self, number: u8) -> PathBuf {
        self.repo.folder.path().canonicalize().unwrap().join(format!("lane-{number}"))
    }

    fn stage(&self) -> StageRef {
        StageRef { job: Arc::clone(&self.job), stage: StageKind::Screening, attempt: 1 }
    }

    /// A screening on a device whose noise is known.
    pub(crate) fn plan(&self, driver: &CpuDriver) -> StagePlan {
        let facts = driver.facts();
        let on = MeasuredOn {
            uuid: facts.uuid,
            model: facts.model,
            driver: facts.driver,
            clock_policy: facts.clock_policy,
            runner: "this machine".into(),
            cpus: facts.cpus,
        };
        let (key, wall_ms) = (on.noise_key(&self.job.pinned.kit_hash), clock::clocks().wall_ms);
        StagePlan {
            spec: (*self.job).clone(),
            stage: StageKind::Screening,
            attempt: 1,
            hold: self.hold,
            on,
            noise: Some(Noise { key, scale: 0.01, blocks: 40, wall_ms }),
            alarm: HarnessAlarm::default(),
            seed: 7,
            screened: None,
            look_every: limits::CPU_LOOK_EVERY,
            ready_wait_max: limits::READY_WAIT_MAX,
            wall_ms,
            part: StagePart::Whole,
        }
    }

    /// A whole screening, from the workspaces to its end.
    pub(crate) async fn whole_stage(&self, driver: &CpuDriver) -> StageEnd {
        let mut stage = Stage::new(BootClock.now(), self.plan(driver));
        loop {
            stage.advance(BootClock.now());
            match stage.directive() {
                Directive::Do(StageStep::Look) => {
                    let reading = driver.read().await.unwrap();
                    stage.report(BootClock.now(), StepReport::Looked { reading });
                }
                Directive::Do(step) => {
                    let report = self.step(step).await;
                    stage.report(BootClock.now(), report);
                }
                Directive::Wait { why, .. } => panic!("a quiet machine is ready: {why}"),
                Directive::End(end) => return *end,
            }
        }
    }

    pub(crate) async fn step(&self, step: StageStep) -> StepReport {
        self.executor.step(self.hold, self.stage(), step).await
    }

    pub(crate) async fn prepared(&self) {
        assert_eq!(self.step(StageStep::Prepare).await, StepReport::Prepared);
    }

    async fn built(&self, side: Side) -> String {
        let report = self.step(StageStep::Build { side }).await;
        let StepReport::Built { side: built, artefact } = report else { panic!("{report:?}") };
        assert_eq!(built, side);
        artefact
    }

    pub(crate) async fn timed(&self, pair: Pair, order: Order) -> BlockTimes {
        let report = self.step(StageStep::Block { pair, order }).await;
        let StepReport::Timed { times } = report else { panic!("{report:?}") };
        times
    }

    async fn failed(&self, step: StageStep) -> (Side, String) {
        let report = self.step(step).await;
        let StepReport::Failed { side, why } = report else { panic!("{report:?}") };
        (side, why)
    }

    /// A file of both sides' workspaces.
    fn both(&self, file: &str) -> [String; 2] {
        [Side::Champion, Side::Change].map(|side| {
            let workspace = self.workspaces.side(self.job.job, StageKind::Screening, 1, side).unwrap();
            String::from_utf8_lossy(&std::fs::read(workspace.join(file)).unwrap()).into_owned()
        })
    }

    pub(crate) fn dev_run(&self, argv: &[&str]) -> DevRunSpec {
        DevRunSpec {
            dev_run: DevRunId(uuid::Uuid::now_v7()),
            run: self.job.run,
            lane: LaneId::new(1).unwrap(),
            worktree: self.lane(1),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            env: Vec::new(),
            contract: Contract { dev_run_max: Some(Span::seconds(60)), ..Contract::default() },
            models: Vec::new(),
        }
    }

    /// All that a development run wrote, once nothing more will come.
    async fn output(&self, dev_run: DevRunId) -> String {
        let outputs = self.executor.outputs();
        let read = || outputs.read(dev_run, 0, 1 << 20).unwrap();
        until("the output is complete", || read().complete).await;
        String::from_utf8_lossy(&read().bytes).into_owned()
    }
}

/// A launcher for a rig of that name; none where this machine gives no isolation.
pub(crate) async fn launcher(rig: &str, state: &Path) -> Option<Launcher> {
    let settings = LauncherSettings {
        rig: rig.to_owned(),
        state: state.to_owned(),
        hidden: Vec::new(),
        program: env!("CARGO_BIN_EXE_host-rig").into(),
        wanted: Wanted::BEST,
        trial_uid: None,
        cards: Cards::default(),
    };
    let launcher = Launcher::open(settings).await.unwrap();
    if !launcher.containment().has_own_view() {
        println!("nothing can be launched here: {}", launcher.containment().missing_in_words());
        return None;
    }
    Some(launcher)
}

/// The files of a machine with two idle CPUs.
pub(crate) fn quiet_machine() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/loadavg", "0.00 0.00 0.00 1/100 1\n"),
        ("proc/stat", "cpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\n"),
        ("proc/self/stat", "7 (rig) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0"),
        ("sys/devices/system/cpu/online", "0-1\n"),
    ] {
        write(&folder.path().join(path), text);
    }
    folder
}

/// A kit with these lines.
pub(crate) fn kit(lines: &str) -> String {
    format!("name = \"k\"\ntarget = \"cpu\"\neditable = [\"src/**\"]\n{lines}\n")
}

/// Uids of this test's own, where it is root.
pub(crate) fn accounts() -> Accounts {
    use std::sync::atomic::{AtomicU32, Ordering};

    static NEXT: AtomicU32 = AtomicU32::new(71_000);
    if !rustix::process::geteuid().is_root() {
        return Accounts::rigs_user();
    }
    Accounts::dedicated(NEXT.fetch_add(40, Ordering::Relaxed))
}

pub(crate) fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Waits until something is so, letting other tasks go on.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let by = std::time::Instant::now() + PATIENCE;
    while !so() {
        assert!(std::time::Instant::now() < by, "not within {} s: {what}", PATIENCE.as_secs());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
