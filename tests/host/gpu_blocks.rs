//! What the driver of cards sees inside blocks, over the real wrapper and the fake library (rules B3, D1, D3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use thermite_actors::host::gpu::GpuDriver;
use thermite_actors::ports::{BlockWatch, OwnProcesses, StopProof, TargetDriver};
use thermite_actors::testing::fake_nvml::FakeCard;
use thermite_core::block::{ThrowCause, throw_causes};
use thermite_core::limits;
use thermite_core::readiness::{Reading, names};

use crate::gpu::fake::{PATIENCE, Pids, Rack, block_on, ready};

const OWN: u32 = 4_711;
const OTHER: u32 = 815;

#[test]
fn the_judges_own_program_is_no_other_program_and_its_use_is_not_held_against_the_next_block() {
    let rack = Rack::of(2);
    let drivers = rack.drivers();
    block_on(async {
        let own = Pids::told(&[OWN], &[]);
        for is_first in [true, false, false] {
            let (before, after) = block(&rack, &drivers[0], own.clone(), is_first, |card| {
                card.computes = vec![(OWN, 9_000)];
                card.usage = Some(100);
                card.memory = Some((143_771, 9_600));
            })
            .await;

            assert_eq!(throw_causes(&before, &after), []);
            assert_eq!(figure(&after, names::GPU_USE), Some(100.0), "recorded");
            assert!(after.signals.iter().all(|of| of.name != names::GPU_USE || !of.required));
        }
        ready(&drivers[0]).await;
    });
}

#[test]
fn a_foreign_program_inside_a_block_throws_it_and_no_block_of_another_card() {
    for count in [1, 2, 3, 8] {
        let rack = Rack::of(count);
        let drivers = rack.drivers();
        block_on(async {
            let own = Pids::told(&[OWN], &[OTHER]);
            let at_work = |card: &mut FakeCard| card.computes = vec![(OWN, 500)];

            let (before, after) = block(&rack, &drivers[0], own.clone(), true, |card| {
                card.computes = vec![(OWN, 500), (OTHER, 500)];
            })
            .await;

            assert_eq!(throw_causes(&before, &after), [ThrowCause::OtherProgram]);
            for (at, driver) in drivers.iter().enumerate().skip(1) {
                let (before, after) = block_at(&rack, at, driver, own.clone(), true, at_work).await;
                assert_eq!(throw_causes(&before, &after), []);
            }
            let (before, after) = block(&rack, &drivers[0], own, true, at_work).await;
            assert_eq!(throw_causes(&before, &after), [], "the next block is clean");
        });
    }
}

#[test]
fn heat_and_every_slow_down_bit_inside_a_block_throw_it() {
    let rack = Rack::of(1);
    let driver = &rack.drivers()[0];
    block_on(async {
        for bit in [0x4, 0x8, 0x20, 0x40, 0x80] {
            let own = Pids::told(&[OWN], &[]);
            let (before, after) = block(&rack, driver, own, true, |card| {
                card.computes = vec![(OWN, 500)];
                card.reasons = Some(bit);
            })
            .await;

            assert_eq!(throw_causes(&before, &after), [ThrowCause::Slowed], "bit {bit:#x}");
        }
    });
}

#[test]
fn a_card_that_is_slowed_right_after_a_block_throws_it_too() {
    let rack = Rack::of(1);
    let driver = &rack.drivers()[0];
    block_on(async {
        let before = ready(driver).await;
        let own = Pids::told(&[OWN], &[]);
        driver.block_begins(BlockWatch { own, is_first: true });
        rack.change(0, |card| card.computes = vec![(OWN, 500)]);
        placed().await;
        rack.mend(0);
        rack.change(0, |card| card.reasons = Some(0x20));

        let after = driver.block_ends().await.unwrap();

        assert_eq!(throw_causes(&before, &after), [ThrowCause::Slowed]);
        rack.mend(0);
        ready(driver).await;
    });
}

#[test]
fn what_is_measured_elsewhere_voids_the_first_block() {
    let rack = Rack::of(2);
    let drivers = rack.drivers();
    block_on(async {
        // CUDA's order is not NVML's: the program computes on the other card.
        let own = Pids::told(&[OWN], &[]);
        let before = ready(&drivers[0]).await;
        drivers[0].block_begins(BlockWatch { own: own.clone(), is_first: true });
        rack.change(1, |card| card.computes = vec![(OWN, 500)]);
        placed().await;
        rack.mend(1);
        let after = drivers[0].block_ends().await.unwrap();

        assert_eq!(throw_causes(&before, &after), [ThrowCause::Elsewhere]);

        // Once it was seen where it belongs, a block too short to be seen is none that is void.
        let (before, after) = block(&rack, &drivers[0], own, false, |_| {}).await;
        assert_eq!(throw_causes(&before, &after), []);
    });
}

#[test]
fn in_a_container_programs_are_counted_before_with_ours_and_back() {
    let rack = Rack::of(1);
    let driver = &rack.drivers()[0];
    block_on(async {
        // Pids of the host, which mean nothing here.
        let (before, after) = block(&rack, driver, Pids::counted(1), true, |card| card.computes = vec![(99, 1)]).await;
        assert_eq!(throw_causes(&before, &after), []);

        let two = |card: &mut FakeCard| card.computes = vec![(99, 1), (98, 1)];
        let (before, after) = block(&rack, driver, Pids::counted(1), true, two).await;
        assert_eq!(throw_causes(&before, &after), [ThrowCause::OtherProgram], "one more than ours");

        // Ours is over and one is still there.
        let own = Pids::counted(1);
        let before = ready(driver).await;
        driver.block_begins(BlockWatch { own: own.clone(), is_first: true });
        rack.change(0, |card| card.computes = vec![(99, 1)]);
        placed().await;
        own.live_now(0);
        let after = driver.block_ends().await.unwrap();
        assert_eq!(throw_causes(&before, &after), [ThrowCause::OtherProgram], "not back");
        let StopProof::NotProved { why } = driver.released(limits::GPU_LOOK_EVERY).await else { panic!("proved") };
        assert!(why.contains("pid 99 ("), "{why}");
        rack.mend(0);
        ready(driver).await;
    });
}

#[test]
fn a_fault_inside_a_block_is_the_answer_to_its_end() {
    let rack = Rack::of(2);
    let drivers = rack.drivers();
    block_on(async {
        ready(&drivers[0]).await;
        drivers[0].block_begins(BlockWatch { own: Pids::told(&[OWN], &[]), is_first: true });
        rack.change(0, |card| card.fail("*", "GpuLost"));

        let fault = drivers[0].block_ends().await.unwrap_err();

        assert!(fault.to_string().contains("is lost"), "{fault}");
        ready(&drivers[1]).await;
        rack.mend(0);
        let (before, after) =
            block(&rack, &drivers[0], Pids::told(&[OWN], &[]), true, |card| card.computes = vec![(OWN, 1)]).await;
        assert_eq!(throw_causes(&before, &after), []);
    });
}

/// A block during which the card is what `put` makes it.
async fn block(
    rack: &Rack,
    driver: &GpuDriver,
    own: Arc<dyn OwnProcesses>,
    is_first: bool,
    put: impl FnOnce(&mut FakeCard),
) -> (Reading, Reading) {
    block_at(rack, 0, driver, own, is_first, put).await
}

async fn block_at(
    rack: &Rack,
    at: usize,
    driver: &GpuDriver,
    own: Arc<dyn OwnProcesses>,
    is_first: bool,
    put: impl FnOnce(&mut FakeCard),
) -> (Reading, Reading) {
    let before = ready(driver).await;
    driver.block_begins(BlockWatch { own, is_first });
    rack.change(at, put);
    placed().await;
    rack.mend(at);
    (before, driver.block_ends().await.unwrap())
}

/// Long enough to be seen by the sampling inside a block, also on a machine that is slow.
async fn placed() {
    let began = Instant::now();
    tokio::time::sleep(3 * limits::GPU_SAMPLE_IN_BLOCK_EVERY.to_std()).await;
    assert!(began.elapsed() < PATIENCE + Duration::from_secs(2));
}

fn figure(reading: &Reading, name: &str) -> Option<f64> {
    reading.signals.iter().find(|signal| signal.name == name).unwrap().value
}
