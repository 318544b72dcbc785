//! The judge on several cards: jobs side by side, builds one at a time before a card is asked for, screening and
//! confirmation on different cards (rules B4 to B7, D5).

use thermite_actors::testing::{Call, Happened};
use thermite_core::block::Side;
use thermite_core::contract::Argv;
use thermite_core::ids::{JobId, MemberId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::log::LogEntry;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario};

#[test]
fn jobs_run_side_by_side_each_on_a_card_of_its_own() {
    let rig = Scenario::cards(4);
    for card in &rig.cards {
        card.steps_take(Span::millis(500), Span::seconds(3));
    }
    let jobs: Vec<JobId> = (0..2).map(|at| rig.job(&format!("slower-{at}"))).collect();
    rig.advance(Span::seconds(30));

    let held: Vec<MemberId> = rig
        .view()
        .jobs
        .iter()
        .filter_map(|row| match &row.status {
            thermite_actors::view::JobStatus::Measuring { hold, .. } => Some(hold.member),
            _ => None,
        })
        .collect();

    assert_eq!(held, [MemberId(0), MemberId(1)]);
    for job in jobs {
        assert_eq!(rig.outcome_of(job), JobOutcome::NoGain { slower: true });
    }
    rig.assert_sound();
}

#[test]
fn a_won_screening_is_confirmed_on_another_card_and_the_record_says_so() {
    let rig = Scenario::cards(4);
    let job = rig.job("faster");

    let outcome = rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(stages(&rig, job), [(StageKind::Screening, MemberId(0)), (StageKind::Confirmation, MemberId(1))]);
    let record = rig.records.verdict_records().into_iter().last().expect("the confirmation has a record");
    assert!(record.facts.screened.is_some_and(|screened| !screened.same_device));
    rig.assert_sound();
}

#[test]
fn with_one_judges_card_it_is_confirmed_on_the_same_and_the_record_says_so() {
    let rig = Scenario::cards(2);
    let job = rig.job("faster");

    rig.outcome_of(job);

    assert_eq!(stages(&rig, job), [(StageKind::Screening, MemberId(0)), (StageKind::Confirmation, MemberId(0))]);
    let record = rig.records.verdict_records().into_iter().last().expect("the confirmation has a record");
    assert!(record.facts.screened.is_some_and(|screened| screened.same_device));
}

#[test]
fn a_confirmation_waits_for_the_other_card_while_that_is_busy_and_holds_none_meanwhile() {
    let rig = Scenario::cards(3);
    rig.cards[0].steps_take(Span::millis(100), Span::millis(600));
    rig.cards[1].steps_take(Span::millis(100), Span::minutes(2));
    let first = rig.job("faster-1");
    let long = rig.job("slower-2");
    let mut sentence = None;
    for _ in 0..4_000 {
        rig.advance(Span::millis(500));
        let row = rig.job_row(first);
        if row.stage == StageKind::Confirmation
            && let Some(said) = row.status.sentence()
            && said.contains("another card")
        {
            sentence = Some(said.to_owned());
            break;
        }
    }

    let sentence = sentence.expect("it waits for the other card at some time");
    let wanted = format!(
        "waits for another card than device 0, where its screening was won: the judge holds device 1 for job {long},"
    );
    assert!(sentence.starts_with(&wanted), "{sentence}");
    let free = rig.view().devices[0].state.clone();
    assert_eq!(free, thermite_core::device::DeviceView::Ready, "no card is held between stages");
    assert!(sentence.contains("at most"), "it has a latest moment: {sentence}");
}

#[test]
fn where_the_other_card_is_drained_it_is_confirmed_on_the_same() {
    let rig = Scenario::cards(4);
    rig.wait_for(rig.rig.drain(MemberId(1))).expect("the card is there");
    let job = rig.job("faster");

    rig.outcome_of(job);

    assert_eq!(stages(&rig, job), [(StageKind::Screening, MemberId(0)), (StageKind::Confirmation, MemberId(0))]);
}

#[test]
fn builds_run_one_at_a_time_on_the_bench_before_a_card_is_asked_for() {
    let rig = building(4, true);
    let bench = rig.bench.clone().expect("a split rig has a bench");
    bench.steps_take(Span::seconds(2), Span::ZERO);
    let jobs: Vec<JobId> = (0..3).map(|at| rig.job(&format!("slower-{at}"))).collect();
    for job in &jobs {
        rig.outcome_of(*job);
    }

    let checks = |diary: Vec<Happened>| {
        let is_check = |line: &&Happened| matches!(line.call, Call::Step { step: StageStep::Check { .. }, .. });
        diary.iter().filter(is_check).count()
    };
    let on_bench = builds(&bench.diary());
    let on_cards: Vec<Happened> = rig.cards.iter().flat_map(|card| builds(&card.diary())).collect();

    assert_eq!(on_bench.len(), 3 * 3, "each job is laid out and built twice there");
    assert!(on_cards.is_empty(), "no card is held while a job builds: {on_cards:?}");
    let by_job = on_bench.chunk_by(|a, b| a.hold == b.hold).count();
    assert_eq!(by_job, 3, "one job's builds are over before the next one's begin");
    let on_cards: usize = rig.cards.iter().map(|card| checks(card.diary())).sum();
    assert_eq!((checks(bench.diary()), on_cards), (0, 3 * 2), "a check runs what was built: it takes the card");
    rig.assert_sound();
}

#[test]
fn while_one_job_builds_the_next_says_that_it_waits_for_that() {
    let rig = building(2, true);
    rig.bench.clone().expect("a split rig has a bench").steps_take(Span::seconds(20), Span::ZERO);
    let first = rig.job("slower-1");
    let second = rig.job("slower-2");

    let sentence = rig.job_sentence(second);

    assert!(sentence.starts_with(&format!("waits for the build of job {first}, 1 ahead,")), "{sentence}");
    rig.outcome_of(second);
}

#[test]
fn a_change_that_does_not_build_fails_without_a_card() {
    let rig = building(2, true);
    let bench = rig.bench.clone().expect("a split rig has a bench");
    bench.script_steps(|_, step| match step {
        StageStep::Build { side: Side::Change } => {
            Some(StepReport::Failed { side: Side::Change, why: "exit status 2".to_owned() })
        }
        _ => None,
    });
    let job = rig.job("equal");

    let outcome = rig.outcome_of(job);

    let step = thermite_core::job::ChangeStep::Build;
    assert_eq!(outcome, JobOutcome::ChangeFailed { step, why: "exit status 2".to_owned() });
    assert_eq!(stages(&rig, job), []);
    rig.assert_sound();
}

#[test]
fn a_build_that_infrastructure_fails_is_tried_again() {
    let rig = building(2, true);
    let bench = rig.bench.clone().expect("a split rig has a bench");
    let left = std::cell::Cell::new(2);
    bench.script_steps(move |_, step| match step {
        StageStep::Prepare if left.get() > 0 => {
            left.set(left.get() - 1);
            Some(StepReport::NotCarriedOut { why: "git does not answer".to_owned() })
        }
        _ => None,
    });
    let job = rig.job("slower");

    assert_eq!(rig.outcome_of(job), JobOutcome::NoGain { slower: true });
    assert_eq!(rig.job_row(job).failures.len(), 2);
}

#[test]
fn without_a_bench_a_split_rig_builds_under_its_holds() {
    let rig = building(4, false);
    let jobs: Vec<JobId> = (0..3).map(|at| rig.job(&format!("slower-{at}"))).collect();

    for job in &jobs {
        assert_eq!(rig.outcome_of(*job), JobOutcome::NoGain { slower: true });
    }

    assert_eq!(rig.cards.iter().flat_map(|card| builds(&card.diary())).count(), 3 * 3);
    rig.assert_sound();
}

#[test]
fn a_job_that_fails_on_a_card_is_tried_on_another_and_the_fault_is_the_jobs_where_all_fail() {
    let rig = building(4, true);
    for card in &rig.cards {
        card.script_steps(|_, step| match step {
            StageStep::Check { .. } => Some(StepReport::NotCarriedOut { why: "no answer".to_owned() }),
            _ => None,
        });
    }
    let job = rig.job("equal");

    let outcome = rig.outcome_of(job);

    let why = "checking the champion could not be carried out: no answer; it failed on device 0 and device 1 alike, so \
               the fault is the job's and not a card's";
    assert_eq!(outcome, JobOutcome::NoVerdict { why: why.to_owned() });
    let on: Vec<u16> = stages(&rig, job).iter().map(|(_, member)| member.0).collect();
    assert_eq!(on[..2], [0, 1], "the second attempt is on the other card");
    assert!(rig.view().devices.iter().all(|row| row.quarantine.is_none()), "one job's failures are no card's");
}

#[test]
fn different_jobs_that_fail_on_one_card_take_it_out_and_noise_comes_first_when_it_is_back() {
    let rig = building(4, true);
    let bad = rig.cards[0].clone();
    let ill = std::rc::Rc::new(std::cell::Cell::new(false));
    let is_ill = ill.clone();
    bad.script_steps(move |_, step| match step {
        StageStep::Check { .. } if is_ill.get() => Some(StepReport::NotCarriedOut { why: "no answer".to_owned() }),
        _ => None,
    });
    rig.outcome_of(rig.job("slower-first"));
    ill.set(true);
    let jobs: Vec<JobId> = (0..4).map(|at| rig.job(&format!("slower-{at}"))).collect();
    let mut why = None;
    for _ in 0..600 {
        rig.advance(Span::seconds(1));
        why = why.or_else(|| rig.view().devices[0].quarantine.clone());
    }
    ill.set(false);

    for job in jobs {
        assert_eq!(rig.outcome_of(job), JobOutcome::NoGain { slower: true }, "the jobs went on elsewhere");
    }
    let why = why.expect("the card is taken out").why;
    assert!(why.starts_with("3 different jobs failed on it one after another"), "{why}");
    rig.advance(Span::hours(1));
    assert!(rig.view().devices[0].quarantine.is_none(), "it comes back by itself");
    let before = measured(&rig, "card-0");
    rig.outcome_of(rig.job("slower-last-0"));
    assert_eq!(measured(&rig, "card-0"), before + 1, "champion against champion comes first on it");
    rig.assert_sound();
}

/// So many cards and a kit that builds and checks.
fn building(cards: usize, bench: bool) -> Scenario {
    let command = |word: &str| Some(Argv(vec![word.to_owned()]));
    Scenario::begin(Beginning {
        cards: vec!["a"; cards],
        bench,
        set: Box::new(move |_, workspaces| {
            workspaces.change_kit(|kit| {
                kit.build = command("./build");
                kit.check = command("./check");
            });
        }),
        ..Beginning::default()
    })
}

/// The stages of a job that held a card, in order, with their cards.
fn stages(rig: &Scenario, job: JobId) -> Vec<(StageKind, MemberId)> {
    rig.entries()
        .into_iter()
        .filter_map(|entry| match entry {
            LogEntry::StageStarted { job: started, stage, hold, .. } if started == job => Some((stage, hold.member)),
            _ => None,
        })
        .collect()
}

/// How often a card's noise was measured.
fn measured(rig: &Scenario, uuid: &str) -> usize {
    let of_card = |entry: &&LogEntry| matches!(entry, LogEntry::NoiseMeasured { noise } if noise.key.device == uuid);
    rig.entries().iter().filter(of_card).count()
}

/// What of a diary is laying out and building.
fn builds(diary: &[Happened]) -> Vec<Happened> {
    let is_build =
        |line: &&Happened| matches!(line.call, Call::Step { step: StageStep::Prepare | StageStep::Build { .. }, .. });
    diary.iter().filter(is_build).cloned().collect()
}
