//! The drivers of this machine pass the suite that every driver must pass: the CPUs', fed, and the cards', over the fake
//! library.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::ports::{OwnProcesses, TargetDriver};
use thermite_actors::testing::conformance::{self, Condition, Trial, checks};

use crate::gpu::fake::{Pids, Rack, block_on};

const OWN: u32 = 4_711;

#[test]
fn the_driver_of_cards_passes_every_check() {
    let rack = Rack::of(2);
    let card = Card { driver: Rc::new(rack.drivers().remove(1)), rack };

    let report = block_on(conformance::driver(&card));

    assert_eq!((report.broken(), report.not_tried()), (vec![], vec![]), "{report}");
}

#[test]
fn the_driver_of_cpus_passes_every_check_that_cpus_can_be_put_to() {
    let machine = Machine::new();

    let report = block_on(conformance::driver(&machine));

    assert_eq!(report.broken(), Vec::<&str>::new(), "{report}");
    // CPUs are never lost, hold no memory after a tree's end, and their heat is not read.
    let not_tried = [checks::FAULT, checks::FAULT_TOLD, checks::UNRESPONSIVE, checks::HELD, checks::SLOWED];
    assert_eq!(report.not_tried(), not_tried, "{report}");
}

/// The second card of two.
struct Card {
    driver: Rc<dyn TargetDriver>,
    rack: Rack,
}

impl Trial for Card {
    fn driver(&self) -> Rc<dyn TargetDriver> {
        self.driver.clone()
    }

    fn put(&self, condition: Condition) -> bool {
        self.rack
            .fake
            .change_card(1, |card| {
                let uuid = card.uuid.clone();
                *card = thermite_actors::testing::fake_nvml::FakeCard {
                    uuid,
                    ..thermite_actors::testing::fake_nvml::FakeCard::idle(1)
                };
                match condition {
                    Condition::Quiet => {}
                    Condition::Busy => card.usage = Some(64),
                    Condition::Untold => card.fail("nvmlDeviceGetTemperature", "NotSupported"),
                    Condition::AtFault => card.fail("*", "GpuLost"),
                    Condition::Unresponsive => card.hangs.push("nvmlDeviceGetPowerUsage".to_owned()),
                    Condition::Held => card.memory = Some((143_771, 90_000)),
                    Condition::OwnUse => {
                        card.computes = vec![(OWN, 9_000)];
                        card.usage = Some(100);
                    }
                    Condition::Shared => card.computes = vec![(OWN, 9_000), (815, 1)],
                    Condition::Slowed => {
                        card.computes = vec![(OWN, 9_000)];
                        card.reasons = Some(0x40);
                    }
                }
            })
            .unwrap();
        true
    }

    fn own(&self) -> Arc<dyn OwnProcesses> {
        Pids::told(&[OWN], &[815])
    }
}

/// A machine of four cores whose figures are files.
struct Machine {
    folder: tempfile::TempDir,
    driver: CpuDriver,
    /// CPU time so far in ticks: all of it, and the rig's own.
    ticks: Cell<(u64, u64)>,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(folder.path(), path, text);
        write("sys/devices/system/cpu/online", "0-3\n");
        write("proc/self/status", "Cpus_allowed_list:\t0-3\n");
        write("proc/cpuinfo", "model name\t: Fed CPU\n");
        write("etc/machine-id", "0123456789abcdef\n");
        write("proc/loadavg", "0.10 0 0 1/1 1\n");
        write("proc/stat", &stat(0));
        write("proc/self/stat", &own_stat(0));
        let driver = CpuDriver::fed_from(folder.path());
        Machine { folder, driver, ticks: Cell::new((0, 0)) }
    }

    fn write(&self, path: &str, text: &str) {
        write(self.folder.path(), path, text);
    }
}

impl Trial for Machine {
    fn driver(&self) -> Rc<dyn TargetDriver> {
        Rc::new(self.driver.clone())
    }

    fn put(&self, condition: Condition) -> bool {
        // An hour of one core, however long the block is.
        const MUCH: u64 = 360_000;
        let (all, own) = self.ticks.get();
        let mut load = Some("0.10 0 0 1/1 1\n");
        match condition {
            Condition::Quiet => {}
            Condition::Busy => load = Some("9.99 0 0 1/1 1\n"),
            Condition::Untold => load = None,
            Condition::OwnUse => self.ticks.set((all + MUCH, own + MUCH)),
            Condition::Shared => self.ticks.set((all + MUCH, own)),
            Condition::AtFault | Condition::Unresponsive | Condition::Held | Condition::Slowed => return false,
        }
        match load {
            Some(load) => self.write("proc/loadavg", load),
            None => std::fs::remove_file(self.folder.path().join("proc/loadavg")).unwrap(),
        }
        // Its own first: what is seen between the two is more of it, not of others.
        let (all, own) = self.ticks.get();
        self.write("proc/self/stat", &own_stat(own));
        self.write("proc/stat", &stat(all));
        true
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let (file, aside) = (root.join(path), root.join(format!("{path}.to-be")));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&aside, text).unwrap();
    std::fs::rename(aside, file).unwrap();
}

/// `/proc/stat` of four cores, the first of which did all there was.
fn stat(ticks: u64) -> String {
    let line = |name: &str, ticks: u64| format!("{name} {ticks} 0 0 500 5 0 0 0 0 0\n");
    let cpus = [("cpu", ticks), ("cpu0", ticks), ("cpu1", 0), ("cpu2", 0), ("cpu3", 0)];
    cpus.into_iter().map(|(name, ticks)| line(name, ticks)).collect()
}

/// `/proc/self/stat` of a rig whose reaped children did all it did.
fn own_stat(ticks: u64) -> String {
    format!("7 (rig) S 1 1 1 0 -1 0 0 0 0 0 0 0 {ticks} 0 20 0 1 0 0 0 0")
}
