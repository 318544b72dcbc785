//! The verdict record: its form, its hash, and its recomputation to the last bit (rule D9).

use serde_json::Value;
use thermite_core::block::{Order, TriedBlock};
use thermite_core::contract::Timer;
use thermite_core::record::{NotDecided, RawStage, VerdictRecord, VerifyFault, verify, verify_json};
use thermite_core::stage::{StageEnd, StageStep, StepReport};
use thermite_core::verdict::Verdict;

use crate::scripted::{Rig, confirmation, plan, well};

#[test]
fn a_record_survives_json_to_the_last_bit() {
    let record = record();

    let read: VerdictRecord = serde_json::from_str(&record.to_json()).unwrap();

    assert_eq!(read, record);
    assert_eq!(read.hash(), record.sha256);
    let verified = verify_json(&record.to_json()).unwrap();
    assert_eq!((verified.verdict, verified.sha256), (Verdict::Win, record.sha256));
    assert_eq!((verified.accepted as usize, verified.thrown), (record.after.len(), 2));
}

#[test]
fn the_stored_form_has_sorted_keys_and_no_spaces() {
    let text = record().to_json();

    let value: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
    let mut sorted = keys.clone();
    sorted.sort();
    let places: Vec<usize> = sorted.iter().map(|key| text.find(&format!("\"{key}\":")).unwrap()).collect();
    assert!(text.starts_with("{\"after\":[{\"d\":"));
    assert!(places[0] < places[1]);
    assert!(!text.contains("\": ") && !text.contains(", \""));
}

#[test]
fn spacing_and_the_order_of_keys_do_not_matter() {
    let pretty = serde_json::to_string_pretty(&record()).unwrap();

    assert!(verify_json(&pretty).is_ok());
}

#[test]
fn large_numbers_are_text() {
    let value: Value = serde_json::from_str(&record().to_json()).unwrap();

    assert!(value["coins"]["seed"].is_string());
    assert!(value["facts"]["hold"].is_string());
    assert!(value["blocks"][0]["times"]["ns"][0].is_string());
}

/// Every digit of a real record, one after the other, is changed to the next: none goes unseen.
#[test]
fn a_record_with_any_one_digit_changed_is_refused() {
    let text = short_record().to_json();
    assert!(verify_json(&text).is_ok());
    let mut changed = text.clone().into_bytes();
    let mut digits = 0;

    for at in 0..changed.len() {
        let digit = changed[at];
        if digit.is_ascii_digit() {
            digits += 1;
            changed[at] = if digit == b'9' { b'0' } else { digit + 1 };
            let refused = verify_json(std::str::from_utf8(&changed).unwrap());
            assert!(refused.is_err(), "digit {at}: {}", String::from_utf8_lossy(&changed[at - 20..=at]));
            changed[at] = digit;
        }
    }

    assert!(digits > 1_000, "{digits}");
}

/// A forger who also renews the hash is found out by what does not follow from the raw figures.
#[test]
fn a_forged_figure_is_found_out_even_with_a_new_hash() {
    type Forgery = (&'static str, fn(&mut VerdictRecord));
    let forgeries: [Forgery; 19] = [
        ("a last bit of ln W", |record| nudge(&mut record.after[3].ln_w)),
        ("a last bit of ln F", |record| nudge(&mut record.after[0].ln_f)),
        ("a last bit of d", |record| nudge(&mut record.after[5].d)),
        ("a last bit of the lower bound", |record| nudge(record.bounds.lower.as_mut().unwrap())),
        ("a last bit of the upper bound", |record| nudge(record.bounds.upper.as_mut().unwrap())),
        ("the estimate", |record| nudge(record.bounds.estimate_early_stopped.as_mut().unwrap())),
        ("the scale", |record| nudge(&mut record.constants.scale)),
        ("the chance of a false win", |record| record.constants.alpha = 0.05),
        ("a run's time", |record| times_of(&mut record.blocks[0]).ns[0] += 1),
        ("a coin", |record| flip(&mut record.blocks[0])),
        ("the seed", |record| record.coins.seed ^= 1),
        ("a thrown block called accepted", |record| accept(&mut record.blocks[1])),
        ("an accepted block whose readings throw it", |record| {
            times_of(&mut record.blocks[0]).after.clocks.wall_ms += 9_000;
        }),
        ("a thrown block's cause", |record| {
            times_of(&mut record.blocks[1]).after.throttle[0].periods = Some(3);
        }),
        ("a block left out", |record| drop(record.blocks.remove(0))),
        ("the verdict", |record| record.verdict = Verdict::Undecided),
        ("the claim", |record| record.claim = "much faster".to_owned()),
        ("the noise's device", |record| record.facts.on.uuid = "GPU-0000".to_owned()),
        ("a confirmation without screening", |record| record.facts.screened = None),
    ];

    for (name, forge) in forgeries {
        let mut record = record();
        forge(&mut record);
        record.sha256 = record.hash();

        assert!(verify(&record).is_err(), "{name}");
        assert!(verify_json(&record.to_json()).is_err(), "{name}");
    }
}

#[test]
fn a_field_that_no_record_has_is_refused() {
    let mut value: Value = serde_json::from_str(&record().to_json()).unwrap();
    value["blocks"][0]["remark"] = Value::from("fine");

    let refused = verify_json(&value.to_string());

    assert!(matches!(refused, Err(VerifyFault::Hash { .. } | VerifyFault::NoRecord { .. })), "{refused:?}");
}

#[test]
fn faults_name_what_does_not_hold() {
    let mut other_layout = record();
    other_layout.schema = 3;
    let mut other_coin = record();
    flip(&mut other_coin.blocks[0]);

    let no_json = verify_json("[1, 2]");
    let form = verify_json(&record().to_json().replace("0.05,", "5e-2,"));

    assert_eq!(verify(&other_layout), Err(VerifyFault::Schema { found: 3 }));
    assert!(verify(&other_coin).unwrap_err().to_string().starts_with("comparison block 0: its order is "));
    assert!(matches!(no_json, Err(VerifyFault::NoRecord { .. })), "{no_json:?}");
    let expected = VerifyFault::NumberForm { number: "5e-2".to_owned(), expected: "0.05".to_owned() };
    assert_eq!(form, Err(expected));
}

#[test]
fn raw_figures_close_only_where_they_decide() {
    let record = record();
    let raw = |blocks: Vec<TriedBlock>| RawStage {
        facts: record.facts.clone(),
        noise: record.noise.clone(),
        seed: record.coins.seed,
        blocks,
    };
    let mut too_few = record.blocks.clone();
    too_few.pop();
    let mut too_many = record.blocks.clone();
    too_many.push(too_many[0].clone());

    let accepted = u32::try_from(record.after.len()).unwrap();
    assert_eq!(VerdictRecord::close(raw(record.blocks.clone())).as_ref(), Ok(&record));
    assert_eq!(VerdictRecord::close(raw(too_few)), Err(NotDecided::GoesOn { accepted: accepted - 1 }));
    let block = record.blocks.len();
    assert_eq!(VerdictRecord::close(raw(too_many)), Err(NotDecided::BlocksAfterwards { block }));
}

/// Records as earlier versions closed them: they hold for good, to the last bit, and say of their timer what they said.
#[test]
fn records_of_earlier_layouts_hold() {
    for (name, timer_shares_process) in [("schema-1-wall", false), ("schema-1-reported", true)] {
        let file = format!("{}/../cases/records/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();

        let verified = verify_json(&text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let mut forged: VerdictRecord = serde_json::from_str(&text).unwrap();
        forged.schema = 2;
        forged.sha256 = forged.hash();

        assert_eq!((verified.verdict, verified.timer_shares_process), (Verdict::Win, timer_shares_process));
        // What the new layout says of a reported time is another sentence; of the wall's it is the same.
        assert_eq!(verify(&forged).is_err(), timer_shares_process, "{name}");
    }
}

#[test]
fn a_record_says_whether_the_candidate_could_reach_the_timer() {
    for (timer, note, shares) in [
        (Timer::Wall, "the judge's monotonic clock around the process", false),
        (Timer::Reported, "timer shares the process", true),
        (
            Timer::ReportedApart,
            "reported by the kit's measuring program, apart from the candidate as the kit says",
            false,
        ),
    ] {
        let mut with_timer = plan();
        with_timer.spec.pinned.kit.timer = timer;
        let record = decided(with_timer, |now, step| well(now, step, 0.9, now.as_millis() % 90_000));

        assert_eq!((record.schema, record.facts.timer_note.as_str()), (2, note));
        assert_eq!(verify(&record).unwrap().timer_shares_process, shares);
        let mut as_old = record.clone();
        as_old.schema = 1;
        as_old.sha256 = as_old.hash();
        assert_eq!(verify(&as_old).is_err(), timer != Timer::Wall, "{timer:?} in the first layout");
    }
}

/// A confirmed win that measured its noise first, with one block thrown away and one lost.
fn record() -> VerdictRecord {
    let mut plan = confirmation();
    plan.noise = None;
    let mut block = 0_u64;
    decided(plan, move |now, step| {
        let mut report = well(now, step, 0.97, block * 1_237);
        if let StepReport::Timed { times } = &mut report {
            block += 1;
            times.ns[1] += block % 7 * 30_000;
            if block == 42 {
                times.after.throttle[0].periods = Some(4);
            }
            if block == 45 {
                let side = thermite_core::block::Side::Champion;
                return StepReport::Lost { side, why: "the machine ran out of memory".to_owned() };
            }
        }
        report
    })
}

/// A screening that a large gain wins at once, with its noise kept.
fn short_record() -> VerdictRecord {
    decided(plan(), |now, step| well(now, step, 0.9, now.as_millis() % 90_000))
}

fn decided(
    plan: thermite_core::stage::StagePlan,
    answer: impl FnMut(thermite_core::time::Moment, &StageStep) -> StepReport,
) -> VerdictRecord {
    match Rig::new(plan).run(answer) {
        StageEnd::Decided { record, .. } => *record,
        end @ (StageEnd::Built { .. } | StageEnd::ChangeFailed { .. } | StageEnd::Infrastructure { .. }) => {
            panic!("{end:?}")
        }
    }
}

fn nudge(figure: &mut f64) {
    *figure = f64::from_bits(figure.to_bits() ^ 1);
}

fn times_of(block: &mut TriedBlock) -> &mut thermite_core::block::BlockTimes {
    match block {
        TriedBlock::Accepted { times, .. } | TriedBlock::Thrown { times, .. } => times,
        TriedBlock::Lost { .. } => panic!("a lost block has no times"),
    }
}

fn flip(block: &mut TriedBlock) {
    let (TriedBlock::Accepted { order, .. } | TriedBlock::Thrown { order, .. } | TriedBlock::Lost { order, .. }) =
        block;
    *order = match order {
        Order::Abba => Order::Baab,
        Order::Baab => Order::Abba,
    };
}

fn accept(block: &mut TriedBlock) {
    let (order, times) = (block.order(), times_of(block).clone());
    *block = TriedBlock::Accepted { order, times };
}
