//! Moments and spans.

use thermite_core::time::{Moment, Span};

#[test]
fn spans_are_written_as_people_say_them() {
    for (span, words) in [
        (Span::ZERO, "0.0 s"),
        (Span::millis(450), "0.4 s"),
        (Span::millis(9_999), "9.9 s"),
        (Span::seconds(45), "45 s"),
        (Span::minutes(2), "2 min"),
        (Span::seconds(200), "3 min 20 s"),
        (Span::hours(2), "2 h"),
        (Span::minutes(125), "2 h 5 min"),
        (Span::hours(74), "3 d 2 h"),
    ] {
        assert_eq!(span.to_string(), words);
    }
}

#[test]
fn time_does_not_wrap() {
    let last = Moment::from_millis(u64::MAX);

    assert_eq!(last + Span::hours(1), last);
    assert_eq!(Moment::START - Span::hours(1), Moment::START);
    assert_eq!(Moment::START.since(last), Span::ZERO);
}

#[test]
fn a_rebased_moment_keeps_its_distance_to_what_lies_ahead() {
    let now = Moment::from_millis(5_000);
    let later = now + Span::seconds(3);

    assert_eq!(later.rebase(now).since(now.rebase(now)), Span::seconds(3));
}
