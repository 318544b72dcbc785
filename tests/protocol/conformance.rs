//! The suite that every driver must pass: the scripted device passes it, and drivers that are wrong do not.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use thermite_actors::ports::{BlockWatch, DeviceFacts, DeviceFault, StopProof, TargetDriver};
use thermite_actors::testing::conformance::{self, Condition, Report, Trial, checks};
use thermite_actors::testing::{PausedClock, ScriptedDevice, VirtualTime};
use thermite_core::readiness::{Reading, SignalState};
use thermite_core::time::{Moment, Span};

#[test]
fn the_scripted_device_passes_every_check() {
    let time = VirtualTime::new();
    let device = device(&time);

    let report = time.block_on(conformance::driver(&device));

    assert_eq!((report.broken(), report.not_tried()), (vec![], vec![]), "{report}");
}

#[test]
fn a_driver_that_makes_zero_of_unknown_is_found() {
    let report = tried(Fault::ZeroForUnknown);

    assert!(report.broken().contains(&checks::UNTOLD), "{report}");
    assert!(report.to_string().contains("BROKEN: an untold signal was not seen"), "{report}");
}

#[test]
fn a_driver_that_puts_a_figure_on_unknown_is_found() {
    let report = tried(Fault::FigureForUnknown);

    assert_eq!(report.broken(), [checks::THREE_VALUED], "{report}");
}

#[test]
fn a_driver_that_hangs_with_its_device_is_found() {
    let report = tried(Fault::HangsWithTheDevice);

    assert_eq!(report.broken(), [checks::UNRESPONSIVE], "{report}");
}

#[test]
fn a_driver_whose_time_goes_back_is_found() {
    let report = tried(Fault::GoesBack);

    assert!(report.broken().contains(&checks::ORDERED), "{report}");
}

#[test]
fn a_driver_that_never_comes_back_from_a_fault_is_found() {
    let report = tried(Fault::StaysAtFault);

    assert!(report.broken().contains(&checks::FAULT), "{report}");
}

#[test]
fn a_driver_that_proves_every_release_is_found() {
    let report = tried(Fault::ProvesEverything);

    assert_eq!(report.broken(), [checks::HELD], "{report}");
}

#[test]
fn a_driver_that_sees_nothing_inside_blocks_is_found() {
    let report = tried(Fault::BlindInBlocks);

    assert_eq!(report.broken(), [checks::SHARED, checks::SLOWED], "{report}");
}

fn device(time: &VirtualTime) -> ScriptedDevice {
    let clock = time.block_on(async { PausedClock::new(Moment::from_millis(1_000), 1_790_000_000_000) });
    ScriptedDevice::card("GPU-1", Rc::new(clock), 1)
}

fn tried(fault: Fault) -> Report {
    let time = VirtualTime::new();
    let device = device(&time);
    let wrong = Rc::new(Wrong { device, fault, readings: Cell::default(), was_at_fault: Cell::default() });
    time.block_on(conformance::driver(&OnTrial(wrong)))
}

/// What is wrong with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    ZeroForUnknown,
    FigureForUnknown,
    HangsWithTheDevice,
    GoesBack,
    StaysAtFault,
    ProvesEverything,
    BlindInBlocks,
}

/// The scripted device's driver with a fault in it.
struct Wrong {
    device: ScriptedDevice,
    fault: Fault,
    readings: Cell<u64>,
    was_at_fault: Cell<bool>,
}

#[derive(Clone)]
struct OnTrial(Rc<Wrong>);

impl Wrong {
    fn spoil(&self, mut reading: Reading) -> Reading {
        let read = self.readings.get();
        self.readings.set(read + 1);
        for signal in &mut reading.signals {
            match (self.fault, signal.state) {
                (Fault::ZeroForUnknown, SignalState::Unknown) => {
                    signal.value = Some(0.0);
                    signal.state = SignalState::Ok;
                }
                (Fault::FigureForUnknown, SignalState::Unknown) => signal.value = Some(0.0),
                _ => {}
            }
        }
        if self.fault == Fault::GoesBack {
            reading.at = Moment::from_millis(1_000_000 - read);
        }
        reading
    }
}

impl TargetDriver for OnTrial {
    fn facts(&self) -> DeviceFacts {
        self.0.device.facts()
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let wrong = self.0.clone();
        Box::pin(async move {
            let read = wrong.device.read().await;
            match (&read, wrong.fault) {
                (Err(DeviceFault::Hung(_)), Fault::HangsWithTheDevice) => std::future::pending().await,
                (Err(_), Fault::StaysAtFault) => wrong.was_at_fault.set(true),
                _ => {}
            }
            if wrong.was_at_fault.get() {
                return Err(DeviceFault::Lost("once lost, lost for ever".to_owned()));
            }
            read.map(|reading| wrong.spoil(reading))
        })
    }

    fn block_begins(&self, watch: BlockWatch) {
        self.0.device.block_begins(watch);
    }

    fn block_ends(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let ended = self.0.device.block_ends();
        if self.0.fault == Fault::BlindInBlocks { self.read() } else { ended }
    }

    fn released(&self, within: Span) -> LocalBoxFuture<'static, StopProof> {
        if self.0.fault == Fault::ProvesEverything {
            return Box::pin(std::future::ready(StopProof::Empty));
        }
        self.0.device.released(within)
    }

    fn at_fault(&self) -> LocalBoxFuture<'static, DeviceFault> {
        self.0.device.at_fault()
    }
}

impl Trial for OnTrial {
    fn driver(&self) -> Rc<dyn TargetDriver> {
        Rc::new(self.clone())
    }

    fn put(&self, condition: Condition) -> bool {
        self.0.device.put(condition)
    }
}
