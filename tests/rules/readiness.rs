//! Readiness of a device, and the CPU rule's figures (rules C2, D1).

use thermite_core::limits;
use thermite_core::readiness::{OwnShare, SignalState, direct_sample, load1, load1_own};
use thermite_core::time::{Moment, Span};

use crate::scripted::{busy, quiet, signal};

#[test]
fn a_device_is_ready_when_every_required_signal_is_ok() {
    assert_eq!(quiet(Moment::START).not_ready(), None);
    assert_eq!(busy(Moment::START).not_ready().as_deref(), Some("gpu_use 64.00 of at most 5.00 %"));
}

#[test]
fn unknown_is_not_ready() {
    let mut reading = busy(Moment::START);
    reading.signals.push(signal("temperature", None, 83.0, "C"));

    let why = reading.not_ready();

    assert_eq!(why.as_deref(), Some("gpu_use 64.00 of at most 5.00 %, temperature is unknown"));
}

#[test]
fn an_optional_signal_is_recorded_only() {
    let mut reading = quiet(Moment::START);
    let mut memory = signal("memory", None, 256.0, "MiB");
    memory.required = false;
    reading.signals.push(memory);

    assert_eq!(reading.not_ready(), None);
}

#[test]
fn the_load_is_held_against_three_quarters_of_the_cores() {
    let over = load1(Some(2.31), 0.0, 2);
    let at = load1(Some(1.5), 0.0, 2);

    assert_eq!(over.to_string(), "load1 2.31 of at most 1.50 cores");
    assert_eq!((over.state, at.state), (SignalState::Busy, SignalState::Ok));
    assert!(over.required);
}

#[test]
fn the_judges_own_share_is_taken_off_and_recorded() {
    let load = load1(Some(2.31), 1.5, 2);
    let more_than_there_is = load1(Some(0.4), 0.5, 2);

    assert_eq!(load.state, SignalState::Ok);
    assert!((load.value.unwrap() + load1_own(1.5).value.unwrap() - 2.31).abs() < 1e-12);
    assert!(!load1_own(1.5).required);
    assert_eq!(more_than_there_is.value, Some(0.0));
}

#[test]
fn what_keeps_a_device_busy_is_said_with_figure_limit_and_what_was_taken_off() {
    let reading = |own: f64| {
        let mut reading = quiet(Moment::START);
        reading.signals = vec![load1(Some(2.61), own, 2), load1_own(own), direct_sample(Some(0.75), 2)];
        reading.not_ready().unwrap()
    };

    assert_eq!(
        reading(0.30),
        "load1 2.31 of at most 1.50 cores (2.61 less the judge's own 0.30), direct_sample 0.75 of at most 0.50 cores"
    );
    assert_eq!(reading(0.0), "load1 2.61 of at most 1.50 cores, direct_sample 0.75 of at most 0.50 cores");
}

#[test]
fn a_load_that_cannot_be_read_is_unknown() {
    assert_eq!(load1(None, 0.0, 2).state, SignalState::Unknown);
    assert_eq!(load1(Some(f64::NAN), 0.0, 2).state, SignalState::Unknown);
    assert_eq!(direct_sample(None, 2).state, SignalState::Unknown);
}

#[test]
fn other_programs_may_use_a_quarter_of_the_cores() {
    assert_eq!(direct_sample(Some(1.0), 4).state, SignalState::Ok);
    assert_eq!(direct_sample(Some(1.01), 4).to_string(), "direct_sample 1.01 of at most 1.00 cores");
    assert_eq!(direct_sample(Some(1.01), 4).state, SignalState::Busy);
}

/// The figures of a real machine: 17 s after full load on all cores, 59 s after twice that.
#[test]
fn after_full_load_it_takes_17_s_to_fall_under_the_gate_and_59_from_twice_that() {
    for (load, seconds) in [(1.0, 17), (2.0, 58)] {
        let cores = 4.0;
        let mut share = OwnShare::default();
        let hour = Span::hours(1);
        share.add(Moment::START + hour, Span::millis((load * cores) as u64 * hour.as_millis()), hour);

        let after = |s: u64| share.value(Moment::START + hour + Span::seconds(s));

        assert!((after(0) - load * cores).abs() < 1e-9);
        assert!(after(seconds) > limits::LOAD_SHARE_MAX * cores, "{load}");
        assert!(after(seconds + 1) <= limits::LOAD_SHARE_MAX * cores, "{load}");
    }
}

#[test]
fn one_minute_on_one_core_adds_what_the_kernels_decay_says() {
    let mut share = OwnShare::default();

    share.add(Moment::from_millis(60_000), Span::seconds(60), Span::seconds(60));

    let expected = 1.0 - (-1.0_f64).exp();
    assert!((share.value(Moment::from_millis(60_000)) - expected).abs() < 1e-12);
    assert!((share.value(Moment::from_millis(120_000)) - expected * (-1.0_f64).exp()).abs() < 1e-12);
}

#[test]
fn the_share_does_not_depend_on_how_a_span_is_cut_or_told() {
    let at = Moment::from_millis;
    let mut whole = OwnShare::default();
    whole.add(at(40_000), Span::seconds(80), Span::seconds(40));
    let mut halves = OwnShare::default();
    halves.add(at(20_000), Span::seconds(40), Span::seconds(20));
    halves.add(at(40_000), Span::seconds(40), Span::seconds(20));
    let mut late_and_side_by_side = OwnShare::default();
    late_and_side_by_side.add(at(40_000), Span::seconds(40), Span::seconds(40));
    late_and_side_by_side.add(at(20_000), Span::seconds(20), Span::seconds(20));
    late_and_side_by_side.add(at(40_000), Span::seconds(20), Span::seconds(20));

    let value = whole.value(at(45_000));

    assert!((halves.value(at(45_000)) - value).abs() < 1e-12);
    assert!((late_and_side_by_side.value(at(45_000)) - value).abs() < 1e-12);
}

#[test]
fn a_span_of_no_length_adds_nothing() {
    let mut share = OwnShare::default();

    share.add(Moment::from_millis(5), Span::seconds(1), Span::ZERO);

    assert_eq!(share, OwnShare::default());
}
