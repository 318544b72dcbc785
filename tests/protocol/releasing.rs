//! The device's own proof that a hold is over, after the executor's (rule A7), and faults of a device that nobody has
//! (rule B10).

use thermite_actors::ports::DeviceFault;
use thermite_actors::testing::{Call, StopScript};
use thermite_core::device::DeviceView;
use thermite_core::limits;
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario};

#[test]
fn the_device_passes_on_only_after_its_own_proof_too() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|device, _| device.script_release(StopScript::ProvedAfter(Span::seconds(4)))),
        ..Beginning::default()
    });
    rig.advance(Span::seconds(4));
    let first = rig.dev_run(1);
    let second = rig.dev_run(2);

    // A second of work, and then the card.
    rig.advance(Span::millis(4_999));
    let before = (rig.exec_of(first).is_some(), rig.exec_of(second));
    rig.advance(Span::millis(1));

    assert_eq!(before, (true, None));
    assert!(rig.exec_of(second).is_some());
    let calls: Vec<Call> = rig.diary().into_iter().map(|line| line.call).collect();
    let emptied = calls.iter().position(|call| *call == Call::Emptied).expect("the tree was emptied");
    assert_eq!(calls[emptied + 1], Call::Release, "the card is asked after the tree is empty");
    rig.assert_sound();
}

/// The first sweep is given up after 10 s, the device rests for 30 s and is swept again; then the first one answers.
#[test]
fn a_sweep_that_was_given_up_lets_the_device_back_in_no_more() {
    let rig = Scenario::begin(Beginning {
        set: Box::new(|device, _| device.script_sweep(StopScript::ProvedAfter(Span::seconds(45)))),
        ..Beginning::default()
    });
    rig.device.script_sweep(StopScript::Hangs);
    rig.advance(limits::PROOF_MAX);
    let given_up = rig.view().devices[0].state.clone();

    rig.advance(Span::seconds(36));

    assert!(matches!(given_up, DeviceView::Out { .. }), "{given_up:?}");
    assert_eq!(rig.view().devices[0].state, DeviceView::Sweeping, "the second sweep is not over");
}

#[test]
fn memory_that_stays_takes_the_device_out_with_the_reason_and_it_comes_back_by_itself() {
    let rig = Scenario::one_shared_device();
    let why = "the card still lists pid 4711 (python3, state D), with 3000 MiB of its memory in use";
    rig.device.script_release(StopScript::NotProvedAfter(Span::seconds(9), why.to_owned()));
    let dev_run = rig.dev_run(1);

    rig.advance(Span::seconds(1) + Span::seconds(9));
    let out = rig.view().devices[0].state.clone();
    rig.device.script_release(StopScript::ProvedAfter(Span::ZERO));
    rig.advance(limits::REQUALIFY_AFTER);

    assert!(matches!(&out, DeviceView::Out { why: said, .. } if said == why), "{out:?}");
    let end = format!("{:?}", rig.end_of(dev_run));
    assert!(end.contains("pid 4711"), "{end}");
    assert_eq!(rig.view().devices[0].state, DeviceView::Ready);
    rig.assert_sound();
}

#[test]
fn a_release_that_is_never_proved_is_given_up_in_time_to_say_why() {
    let rig = Scenario::one_shared_device();
    rig.device.script_release(StopScript::Hangs);
    rig.dev_run(1);

    rig.advance(Span::seconds(1));
    rig.advance(Span::millis(limits::PROOF_MAX.as_millis() - limits::RELEASE_TOLD_BEFORE.as_millis()));

    let DeviceView::Out { why, .. } = rig.view().devices[0].state.clone() else {
        panic!("{:?}", rig.view().devices[0].state);
    };
    assert_eq!(why, "the script gave no proof within 9.7 s", "the driver's own reason is heard");
    rig.assert_sound();
}

#[test]
fn a_fault_while_nobody_has_the_device_takes_it_out_at_once_and_it_comes_back_by_itself() {
    let rig = Scenario::one_shared_device();
    let lost = DeviceFault::Lost("card GPU-1 is lost".to_owned());

    rig.device.be_at_fault(Some(lost));
    rig.advance(Span::millis(1));
    let out = rig.view().devices[0].state.clone();
    rig.advance(limits::REQUALIFY_AFTER);
    let still = rig.view().devices[0].state.clone();
    rig.device.be_at_fault(None);
    rig.advance(Span::minutes(10));

    assert!(matches!(&out, DeviceView::Out { why, .. } if why == "card GPU-1 is lost"), "{out:?}");
    assert!(matches!(&still, DeviceView::Out { why, .. } if why == "card GPU-1 is lost"), "{still:?}");
    assert_eq!(rig.view().devices[0].state, DeviceView::Ready);
    let dev_run = rig.dev_run(1);
    rig.advance(Span::seconds(2));
    assert!(rig.exec_of(dev_run).is_some());
    rig.assert_sound();
}
