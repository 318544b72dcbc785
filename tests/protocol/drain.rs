//! Draining a device, and a card's fault: it alone is out, and comes back by itself (rules B10, A9).

use thermite_actors::ports::DeviceFault;
use thermite_actors::rig::No;
use thermite_actors::testing::{DevRunScript, StopScript};
use thermite_actors::view::DevicePool;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::MemberId;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::refusal::{GaveUp, Refusal};
use thermite_core::time::Span;

use crate::scenario::{DEVICE, Scenario};

#[test]
fn a_drained_device_finishes_what_it_has_and_takes_nothing_more() {
    let rig = Scenario::one_shared_device();
    rig.device.script_dev_runs(|_| DevRunScript::lasting(Span::minutes(2)));
    let runs = rig.dev_run(1);
    let waits = rig.dev_run(2);

    drain(&rig, DEVICE).expect("it is there");
    let row = rig.view().devices[0].clone();
    let end = rig.end_of(runs);
    let sentence = rig.sentence(waits);

    assert!(row.drained);
    assert!(matches!(end, DevRunEnd::Exited { .. }), "{end:?}");
    assert!(sentence.starts_with("waits for device 0, which is drained, to be undrained, next in line,"), "{sentence}");
    assert_eq!(rig.end_of(waits), DevRunEnd::GaveUp { why: GaveUp::OutOfService });
    rig.assert_sound();
}

#[test]
fn a_drained_device_takes_work_again_once_that_is_undone() {
    let rig = Scenario::one_shared_device();
    drain(&rig, DEVICE).expect("it is there");
    let job = rig.job("faster");
    rig.advance(Span::minutes(1));
    let sentence = rig.job_sentence(job);

    undrain(&rig, DEVICE).expect("it is there");

    assert!(sentence.ends_with("no latest moment: the device is drained"), "{sentence}");
    assert_eq!(rig.outcome_of(job), JobOutcome::Win { adopted: true });
    assert!(!rig.view().devices[0].drained);
}

#[test]
fn draining_twice_is_draining_once_and_an_unknown_device_is_refused() {
    let rig = Scenario::cards(2);
    drain(&rig, MemberId(1)).expect("it is there");
    let entries = rig.entries().len();

    drain(&rig, MemberId(1)).expect("it is drained already");
    undrain(&rig, MemberId(0)).expect("it is not drained");
    let unknown = drain(&rig, MemberId(7));

    assert_eq!(rig.entries().len(), entries);
    assert!(matches!(unknown, Err(No::Refusal(Refusal::UnknownDevice { .. }))), "{unknown:?}");
}

#[test]
fn a_drained_device_stays_drained_over_the_death_of_the_rig() {
    let rig = Scenario::cards(3);
    drain(&rig, MemberId(2)).expect("it is there");

    let rig = rig.kill_and_start_again(|_, _| {});
    let waits = rig.dev_run(1);
    let sentence = rig.sentence(waits);
    undrain(&rig, MemberId(2)).expect("it is there");
    rig.time.settle();

    assert!(sentence.contains("device 2, which is drained"), "{sentence}");
    assert!(rig.exec_on(2, waits).is_some());
}

#[test]
fn a_stage_under_way_goes_on_to_its_end_on_a_drained_card() {
    let rig = Scenario::cards(2);
    let job = rig.job("slower");
    rig.advance(Span::seconds(10));

    drain(&rig, MemberId(0)).expect("it is there");

    assert_eq!(rig.outcome_of(job), JobOutcome::NoGain { slower: true });
}

#[test]
fn one_cards_fault_is_that_cards_alone_and_it_comes_back_by_itself() {
    for fault in [
        DeviceFault::Lost("the card fell off its bus".to_owned()),
        DeviceFault::Hung("a call has not come back for 10 s".to_owned()),
        DeviceFault::Mig("the card is in MIG mode".to_owned()),
    ] {
        let rig = Scenario::cards(4);
        rig.outcome_of(rig.job("slower-before"));

        rig.cards[0].be_at_fault(Some(fault.clone()));
        rig.advance(Span::seconds(1));
        let rows = rig.view().devices;
        let judged = rig.outcome_of(rig.job("slower-meanwhile"));
        let run = rig.dev_run(1);
        let ran = rig.end_of(run);
        rig.advance(Span::hours(1));
        let still = rig.view().devices[0].quarantine.clone();
        rig.cards[0].be_at_fault(None);
        rig.advance(limits::REQUALIFY_MOST + Span::minutes(1));
        let back = rig.view().devices[0].quarantine.clone();

        let out: Vec<bool> = rows.iter().map(|row| row.quarantine.is_some()).collect();
        assert_eq!(out, [true, false, false, false], "{fault}");
        assert_eq!(rows[0].quarantine.as_ref().map(|found| found.why.clone()), Some(fault.to_string()));
        assert!(rows[0].quarantine.as_ref().is_some_and(|found| found.next_try.is_some()), "by itself");
        assert_eq!(judged, JobOutcome::NoGain { slower: true });
        assert!(matches!(ran, DevRunEnd::Exited { .. }));
        assert!(still.is_some() && back.is_none());
        rig.assert_sound();
    }
}

#[test]
fn a_fault_while_a_stage_reads_the_card_sends_the_job_elsewhere() {
    let rig = Scenario::cards(4);
    let job = rig.job("slower");
    rig.advance(Span::seconds(10));

    rig.cards[0].be_at_fault(Some(DeviceFault::Lost("the card fell off its bus".to_owned())));
    let outcome = rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::NoGain { slower: true });
    let on = rig.stages_on();
    assert_eq!(on.last(), Some(&MemberId(1)), "{on:?}");
    let found = rig.view().devices[0].quarantine.clone().expect("the card is out");
    assert!(found.why.contains("fell off its bus"), "{}", found.why);
    rig.assert_sound();
}

#[test]
fn a_card_that_goes_out_again_and_again_rests_longer_each_time() {
    let rig = Scenario::cards(2);
    rig.cards[1].be_at_fault(Some(DeviceFault::Other("no answer".to_owned())));
    let mut rests = Vec::new();
    let mut last = None;
    for _ in 0..7_200 {
        rig.advance(Span::seconds(1));
        let next = rig.view().devices[1].quarantine.as_ref().and_then(|found| found.next_try);
        if let Some(at) = next.filter(|_| next != last) {
            rests.push(at.since(rig.now()).as_millis() / 1_000);
            last = next;
        }
    }

    assert!(rests.windows(2).all(|pair| pair[1] >= pair[0]), "{rests:?}");
    assert!(rests[0] <= 30 && rests.last().is_some_and(|rest| (890..=900).contains(rest)), "{rests:?}");
}

#[test]
fn an_agents_card_whose_leftovers_cannot_be_proved_gone_is_out_alone() {
    let rig = Scenario::cards(4);
    rig.cards[2].script_dev_runs(|_| DevRunScript {
        stop: StopScript::NotProvedAfter(Span::seconds(1), "pid 7 is left".to_owned()),
        ..DevRunScript::endless()
    });
    let first = rig.dev_run(1);
    rig.wait_for(rig.rig.cancel(first)).expect("it is under way");
    rig.time.settle();

    let second = rig.dev_run(2);
    let end = rig.end_of(second);

    assert!(matches!(end, DevRunEnd::Exited { .. }), "{end:?}");
    assert!(rig.exec_on(3, second).is_some());
    assert_eq!(rig.view().devices[2].pool, DevicePool::Agents);
    rig.advance(Span::minutes(2));
    assert!(rig.view().devices[2].quarantine.is_none(), "it is swept and back");
    rig.assert_sound();
}

fn drain(rig: &Scenario, device: MemberId) -> Result<(), No> {
    let answer = rig.wait_for(rig.rig.drain(device));
    rig.time.settle();
    answer
}

fn undrain(rig: &Scenario, device: MemberId) -> Result<(), No> {
    let answer = rig.wait_for(rig.rig.undrain(device));
    rig.time.settle();
    answer
}
