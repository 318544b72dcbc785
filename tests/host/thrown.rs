//! Blocks that are thrown away, by the real executor and driver: held back by a quota, slept through, with a stepped
//! wall clock (rules A11, D3).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use thermite_actors::host::clock::{self, BootClock};
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::ports::{Clock, TargetDriver};
use thermite_core::block::{Order, Pair, ThrowCause, TriedBlock};
use thermite_core::readiness::Clocks;
use thermite_core::record::VerdictRecord;
use thermite_core::stage::{Directive, Stage, StageEnd, StageStep, StepReport};

use crate::executor::{Bench, kit, local, quiet_machine, until};
use crate::quota_group::{QuotaGroup, Which};
use crate::repo::write;

/// Programs of fixed times, so that a stage is decided whatever the machine does.
const KIT: &str = "measure = [\"sh\", \"-c\", \"exec cat src/time >&3\"]\ntimer = \"reported\"";

#[test]
fn a_block_that_a_quota_held_back_is_thrown_run_again_and_recorded() {
    for which in [Which::Own, Which::Ancestor] {
        let Some(group) = QuotaGroup::make() else { return };
        // A thread alone goes in, with all that it starts: the other tests of this process are left as they are.
        let tasks = group.inner().join("tasks");
        if !tasks.exists() {
            println!("skipped, cgroup v2 takes in whole processes only: the whole-rig test of the same name does it");
            return;
        }
        let name = group.name(which);
        std::thread::scope(|scope| {
            let (group, name) = (&group, name.clone());
            scope.spawn(move || {
                std::fs::write(tasks, rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
                local(held_back(group, which, name));
            });
        });
    }
}

async fn held_back(group: &QuotaGroup, which: Which, name: String) {
    let machine = quiet_machine();
    let own = std::fs::read_to_string("/proc/thread-self/cgroup").unwrap();
    write(&machine.path().join("proc/self/cgroup"), &own);
    std::os::unix::fs::symlink("/proc/self/mountinfo", machine.path().join("proc/self/mountinfo")).unwrap();
    std::os::unix::fs::symlink("/sys/fs", machine.path().join("sys/fs")).unwrap();
    let driver = CpuDriver::below(machine.path().to_owned(), Arc::new(clock::clocks));
    let Some(bench) =
        Bench::open_with(driver.clone(), &kit(KIT), &[("src/time", "0.010")], &[("src/time", "0.005")]).await
    else {
        return;
    };
    bench.prepared().await;

    let mut tried = 0;
    let record = decided(&bench, &driver, |step| {
        if matches!(step, StageStep::Block { .. }) {
            tried += 1;
            match tried {
                2 => group.hold(which, 1_000, 5_000),
                _ => group.lift(which),
            }
        }
    })
    .await;

    println!("{which:?}: {} blocks, {} count", record.blocks.len(), record.after.len());
    let TriedBlock::Thrown { causes, times, .. } = &record.blocks[1] else { panic!("{:?}", record.blocks[1]) };
    assert_eq!(*causes, [ThrowCause::Throttled { group: name.clone() }]);
    let figure = |side: &thermite_core::readiness::Reading| {
        side.throttle.iter().find(|counter| counter.group == name).unwrap().clone()
    };
    assert!(figure(&times.after).periods > figure(&times.before).periods, "{times:?}");
    assert!(figure(&times.after).held_ns > figure(&times.before).held_ns, "{times:?}");
    let others = record.blocks.iter().enumerate().filter(|(at, _)| *at != 1);
    assert!(others.clone().count() >= 3 && others.clone().all(|(_, block)| block.ratio().is_some()), "{record:?}");
}

#[test]
fn a_suspend_or_a_step_of_the_wall_clock_inside_a_block_voids_it_and_outside_changes_nothing() {
    // A machine's own clocks are never set by a test: what is added to them is.
    static SLEPT_MS: AtomicI64 = AtomicI64::new(0);
    static STEPPED_MS: AtomicI64 = AtomicI64::new(0);
    let read = || {
        let (now, slept) = (clock::clocks(), SLEPT_MS.load(Ordering::SeqCst));
        let wall_ms = now.wall_ms.saturating_add_signed(slept + STEPPED_MS.load(Ordering::SeqCst));
        Clocks { boot_ms: now.boot_ms.saturating_add_signed(slept), wall_ms, ..now }
    };
    local(async move {
        let machine = quiet_machine();
        let driver = CpuDriver::below(machine.path().to_owned(), Arc::new(read));
        let kit = kit("measure = [\"sh\", \"src/run.sh\"]");
        let sides = ([("src/run.sh", "sleep 0.1\n")], [("src/run.sh", "sleep 0.1 # again\n")]);
        let Some(bench) = Bench::open_with(driver, &kit, &sides.0, &sides.1).await else { return };
        bench.prepared().await;
        let under_way = || std::fs::read_dir(bench.repo.data().join("judge-outputs")).unwrap().count() > 0;

        for (slept_ms, stepped_ms, cause) in [
            (30_000, 0, ThrowCause::Slept),
            (0, 5_000, ThrowCause::ClockStepped),
            (0, -3_600_000, ThrowCause::ClockStepped),
        ] {
            let change = || {
                SLEPT_MS.fetch_add(slept_ms, Ordering::SeqCst);
                STEPPED_MS.fetch_add(stepped_ms, Ordering::SeqCst);
            };
            change();
            let outside = bench.timed(Pair::ChampionAndChange, Order::Abba).await;
            let inside = async {
                until("a run of the block is under way", under_way).await;
                change();
            };
            let (inside, ()) = tokio::join!(bench.timed(Pair::ChampionAndChange, Order::Baab), inside);
            let after = bench.timed(Pair::ChampionAndChange, Order::Abba).await;

            let is_accepted = |order, times| matches!(TriedBlock::judged(order, times), TriedBlock::Accepted { .. });
            assert!(is_accepted(Order::Abba, outside), "{cause}: outside a block");
            let thrown = TriedBlock::judged(Order::Baab, inside);
            let TriedBlock::Thrown { causes, .. } = &thrown else { panic!("{cause}: {thrown:?}") };
            assert_eq!(causes, std::slice::from_ref(&cause));
            assert!(is_accepted(Order::Abba, after), "{cause}: the next block");
        }
    });
}

/// Drives a stage to its verdict; `about_to` is told each step just before.
async fn decided(bench: &Bench, driver: &CpuDriver, mut about_to: impl FnMut(&StageStep)) -> VerdictRecord {
    let mut stage = Stage::new(BootClock.now(), bench.plan(driver));
    loop {
        stage.advance(BootClock.now());
        let report = match stage.directive() {
            Directive::Do(StageStep::Look) => StepReport::Looked { reading: driver.read().await.unwrap() },
            Directive::Do(step) => {
                about_to(&step);
                bench.step(step).await
            }
            Directive::Wait { why, .. } => panic!("a quiet machine is ready: {why}"),
            Directive::End(end) => match *end {
                StageEnd::Decided { record, .. } => return *record,
                end => panic!("{end:?}"),
            },
        };
        stage.report(BootClock.now(), report);
    }
}
