//! A runner as its core sees it: ready, away, back, handed on, reconciled (rules E8, E9, E11, E17).

use thermite_core::device::{DeviceInput, MemberEvent};
use thermite_core::hold::{HoldEnd, RunnerLoss, StopCause};
use thermite_core::ids::{Holder, MemberId};
use thermite_core::limits;
use thermite_core::runner::{AskFault, Bus, Question, Runner, RunnerEffect, RunnerInput, RunnerState};
use thermite_core::time::{Moment, Span};
use thermite_core::wire::{Answer, Checked, Progress, RunnerName, SlotAnswer, SlotNo, Standing, Ticket};
use uuid::Uuid;

#[test]
fn it_is_ready_with_its_first_good_answer_and_gone_before() {
    let mut core = Played::new(None);

    let first = core.said();
    core.answer_check(&[]);

    assert!(matches!(first[..], [MemberEvent::Gone { .. }]), "{first:?}");
    assert_eq!(core.said(), [MemberEvent::Ready { last: 5 }]);
}

#[test]
fn two_missed_checks_make_it_away_within_fifteen_seconds_and_one_good_answer_brings_it_back() {
    let mut core = Played::ready();
    let silent_since = core.now;

    core.let_pass_until(|core| matches!(core.runner.state(), RunnerState::Away { .. }));
    let noticed = core.now.since(silent_since);
    let gone = core.said();
    core.answer_check(&[]);

    assert!(noticed <= Span::seconds(15), "{noticed}");
    assert!(matches!(gone[..], [MemberEvent::Gone { .. }]), "{gone:?}");
    assert_eq!(core.said(), [MemberEvent::Ready { last: 5 }]);
}

#[test]
fn one_missed_check_changes_nothing() {
    let mut core = Played::ready();

    core.advance(Span::seconds(9));
    core.answer_check(&[]);

    assert_eq!(core.said(), []);
    assert!(matches!(core.runner.state(), RunnerState::Ready { .. }));
}

#[test]
fn a_start_is_asked_with_the_same_number_until_it_is_answered() {
    let mut core = Played::ready();
    core.take(RunnerInput::Member(DeviceInput::Start { number: 6, by: Holder::Judge, limit: None }));
    let asked = core.asked_start();

    core.take(RunnerInput::Failed { id: asked.unwrap().0, fault: AskFault::NoAnswer });
    core.advance(limits::RUNNER_RETRY_EVERY);
    let again = core.asked_start();
    let before = core.said();
    core.answer(again.unwrap().0, stands(6, running()));

    assert_eq!((asked.unwrap().1, again.unwrap().1), (6, 6));
    assert_eq!(before, []);
    assert_eq!(core.said(), [MemberEvent::Started { number: 6 }]);
    assert!(core.effects.contains(&RunnerEffect::StageOpen { number: 6 }));
}

#[test]
fn a_start_that_is_declined_gives_its_place_back_and_no_run_before_the_next_good_check() {
    let mut core = Played::ready();
    core.take(RunnerInput::Member(DeviceInput::Start { number: 6, by: Holder::Judge, limit: None }));
    let (id, _) = core.asked_start().unwrap();

    core.answer(id, SlotAnswer::No(SlotNo::NotAble { why: "its disk is full".to_owned() }));
    let said = core.said();
    core.advance(limits::RUNNER_CHECK_EVERY);
    core.answer_check(&[]);

    let why = "its disk is full".to_owned();
    let freed = MemberEvent::Freed { number: 6, how: HoldEnd::NotStarted };
    assert_eq!(said, [MemberEvent::Gone { why }, freed]);
    assert_eq!(core.said(), [MemberEvent::Ready { last: 6 }]);
}

#[test]
fn work_of_a_runner_that_is_away_is_handed_on_by_its_lease_alone() {
    let mut core = Played::running(Holder::Judge);
    let ticket_came = core.now;

    core.let_pass_until(|core| matches!(core.runner.state(), RunnerState::Away { .. }));
    let at_away = core.said();
    core.now = ticket_came + limits::HAND_ON_AFTER - Span::millis(1);
    core.advance(Span::ZERO);
    let just_before = core.said();
    core.advance(Span::millis(1));

    assert!(matches!(at_away[..], [MemberEvent::Gone { .. }]), "{at_away:?}");
    assert_eq!(just_before, []);
    let how = HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::Away });
    assert_eq!(core.said(), [MemberEvent::Freed { number: 6, how }]);
}

#[test]
fn back_before_its_lease_is_over_it_gets_nothing_until_its_stop_is_confirmed() {
    let mut core = Played::running(Holder::Judge);
    core.let_pass_until(|core| matches!(core.runner.state(), RunnerState::Away { .. }));
    core.said();

    core.answer_check(&[standing(6, running())]);
    // An ask that was under way before is waited for first.
    core.advance(limits::RUNNER_ASK_MAX);
    let stop = core.asked_stop();
    core.answer(stop.unwrap(), stands(6, Progress::Stopping));
    let before = core.freed();
    core.advance(limits::RUNNER_TELL_EVERY);
    let again = core.asked_stop();
    let end = HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::Away });
    core.answer(again.unwrap(), stands(6, Progress::Over { end: end.clone() }));

    assert_eq!(before, []);
    assert_eq!(core.freed(), [(6, end)]);
}

#[test]
fn after_a_restart_of_the_core_it_gets_nothing_until_what_runs_there_is_stopped_and_what_ended_is_acknowledged() {
    let mut core = Played::new(Some((5, Holder::Judge)));
    core.said();

    core.answer_check(&[standing(4, Progress::Over { end: HoldEnd::NotStarted }), standing(5, running())]);
    let before = core.said();
    let stop = core.asked_stop().unwrap();
    core.answer(stop, stands(5, Progress::Over { end: HoldEnd::Stopped(StopCause::RigEnding) }));

    assert!(!before.iter().any(|event| matches!(event, MemberEvent::Ready { .. })), "{before:?}");
    let freed = MemberEvent::Freed { number: 5, how: HoldEnd::Stopped(StopCause::RigEnding) };
    assert_eq!(core.said(), [freed, MemberEvent::Ready { last: 5 }]);
    let acknowledged =
        core.effects.iter().any(|effect| matches!(effect, RunnerEffect::Ask { what: Question::Ack { number: 4 }, .. }));
    assert!(acknowledged, "{:?}", core.effects);
}

#[test]
fn after_a_restart_of_the_core_silence_is_waited_out_from_its_start() {
    let mut core = Played::new(Some((5, Holder::Judge)));
    let start = core.now;

    core.let_pass_until(|core| !core.freed().is_empty());

    assert_eq!(core.now.since(start), limits::HAND_ON_AFTER);
}

#[test]
fn another_start_of_its_process_loses_the_work_and_its_own_journal_says_how_far_it_was() {
    let mut core = Played::running(Holder::Judge);
    core.boot = Uuid::from_u128(2);
    core.advance(limits::RUNNER_CHECK_EVERY);

    core.answer_check(&[standing(6, Progress::Stopping)]);
    // An ask that was under way to the one that died is waited for first.
    core.advance(limits::RUNNER_ASK_MAX);
    let stop = core.asked_stop().unwrap();
    let end = HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::Restarted });
    core.answer(stop, stands(6, Progress::Over { end: end.clone() }));

    assert_eq!(core.freed(), [(6, end)]);
}

#[test]
fn a_check_that_lists_nothing_ends_no_run() {
    let mut core = Played::running(Holder::Judge);

    core.advance(limits::RUNNER_CHECK_EVERY);
    core.answer_check(&[]);

    assert_eq!(core.freed(), []);
    assert!(matches!(core.runner.state(), RunnerState::Busy { number: 6, .. }));
}

#[test]
fn a_stop_above_the_last_number_burns_it_and_the_start_that_follows_is_refused() {
    let mut core = Played::ready();

    core.take(RunnerInput::Member(DeviceInput::Stop { number: 6, cause: StopCause::Cancelled }));
    let said = core.said();
    core.take(RunnerInput::Member(DeviceInput::Start { number: 6, by: Holder::Judge, limit: None }));

    assert_eq!(said, [MemberEvent::Freed { number: 6, how: HoldEnd::Stopped(StopCause::Cancelled) }]);
    assert_eq!((core.said(), core.runner.refused()), (vec![], 1));
}

#[test]
fn one_of_another_wire_answers_and_takes_no_runs() {
    let mut core = Played::new(None);
    let (id, _) = core.asked_check().unwrap();

    core.take(RunnerInput::Failed { id, fault: AskFault::OtherWire { version: 9 } });

    let state = core.runner.state();
    let RunnerState::Unfit { why } = state else { panic!("{state:?}") };
    assert_eq!(why.to_string(), "it speaks wire version 9; the core speaks 1");
}

#[test]
fn the_bus_is_away_with_the_own_link_or_with_two_runners_all_missing_at_once() {
    let (one, two) = (MemberId(1), MemberId(2));
    let mut bus = Bus::default();
    bus.runner(one, true);
    let alone = bus.is_away();
    bus.runner(two, false);
    let one_of_two = bus.is_away();
    bus.runner(two, true);
    let all = bus.is_away();
    bus.runner(one, false);
    bus.link(false);

    assert_eq!((alone, one_of_two, all, bus.is_away()), (false, false, true, true));
}

/// A core's machine whose asks are answered by hand.
struct Played {
    runner: Runner,
    now: Moment,
    boot: Uuid,
    tickets: u64,
    effects: Vec<RunnerEffect>,
}

impl Played {
    fn new(open: Option<(u64, Holder)>) -> Played {
        let now = Moment::from_millis(50_000);
        let name = RunnerName { process: "box-1".parse().expect("it is a name"), slot: 1 };
        let (runner, effects) = Runner::new(now, MemberId(9), name, 5, open);
        Played { runner, now, boot: Uuid::from_u128(1), tickets: 0, effects }
    }

    fn ready() -> Played {
        let mut played = Played::new(None);
        played.answer_check(&[]);
        played.said();
        played
    }

    fn running(by: Holder) -> Played {
        let mut played = Played::ready();
        played.take(RunnerInput::Member(DeviceInput::Start { number: 6, by, limit: None }));
        let (id, _) = played.asked_start().expect("a start was asked");
        played.answer(id, stands(6, running()));
        played.said();
        played
    }

    fn take(&mut self, input: RunnerInput) {
        let mut effects = self.runner.advance(self.now);
        effects.extend(self.runner.handle(self.now, input));
        self.effects.extend(effects);
    }

    fn advance(&mut self, span: Span) {
        let until = self.now + span;
        while let Some((due, _)) = self.runner.next_deadline().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            let effects = self.runner.advance(self.now);
            self.effects.extend(effects);
        }
        self.now = until;
    }

    fn let_pass_until(&mut self, is_so: impl Fn(&Played) -> bool) {
        for _ in 0..10_000 {
            if is_so(self) {
                return;
            }
            let (due, _) = self.runner.next_deadline().expect("something is always due");
            self.now = self.now.max(due);
            let effects = self.runner.advance(self.now);
            self.effects.extend(effects);
        }
        panic!("it never became so: {:?}", self.runner);
    }

    fn answer(&mut self, id: u64, what: SlotAnswer) {
        let answer = Box::new(Answer { boot: self.boot, what });
        self.take(RunnerInput::Answered { id, answer });
    }

    /// Answers the check that is under way, or the next one.
    fn answer_check(&mut self, grants: &[Standing]) {
        for _ in 0..20 {
            self.answer_newest_check(grants);
            if self.runner.last_answer() == Some(self.now) {
                return;
            }
            let (due, _) = self.runner.next_deadline().expect("something is always due");
            self.now = self.now.max(due);
            let effects = self.runner.advance(self.now);
            self.effects.extend(effects);
        }
        panic!("no check is asked: {:?}", self.runner);
    }

    fn answer_newest_check(&mut self, grants: &[Standing]) {
        let (id, _) = self.asked_check().expect("a check was asked");
        self.tickets += 1;
        let checked = Checked {
            ticket: Ticket { boot: self.boot, number: self.tickets },
            serves: 1,
            highest: 5,
            facts: None,
            unable: None,
            faults: 0,
            grants: grants.to_vec(),
        };
        self.answer(id, SlotAnswer::Checked(Box::new(checked)));
    }

    /// What the pool heard since this was last asked.
    fn said(&mut self) -> Vec<MemberEvent> {
        let mut said = Vec::new();
        self.effects.retain(|effect| match effect {
            RunnerEffect::Tell(event) => {
                said.push(event.clone());
                false
            }
            _ => true,
        });
        said
    }

    fn freed(&self) -> Vec<(u64, HoldEnd)> {
        let freed = self.effects.iter().filter_map(|effect| match effect {
            RunnerEffect::Tell(MemberEvent::Freed { number, how }) => Some((*number, how.clone())),
            _ => None,
        });
        freed.collect()
    }

    fn newest<T>(&self, which: impl Fn(&Question) -> Option<T>) -> Option<(u64, T)> {
        self.effects.iter().rev().find_map(|effect| match effect {
            RunnerEffect::Ask { id, what } => which(what).map(|found| (*id, found)),
            _ => None,
        })
    }

    fn asked_check(&self) -> Option<(u64, ())> {
        self.newest(|what| matches!(what, Question::Check { .. }).then_some(()))
    }

    fn asked_start(&self) -> Option<(u64, u64)> {
        self.newest(|what| match what {
            Question::Start { number, .. } => Some(*number),
            _ => None,
        })
    }

    fn asked_stop(&self) -> Option<u64> {
        self.newest(|what| matches!(what, Question::Stop { .. }).then_some(())).map(|(id, ())| id)
    }
}

fn running() -> Progress {
    Progress::Running { since_start: Span::ZERO }
}

fn standing(grant: u64, at: Progress) -> Standing {
    Standing { grant, dev_run: None, at, step: None }
}

fn stands(grant: u64, at: Progress) -> SlotAnswer {
    SlotAnswer::Stands(Box::new(standing(grant, at)))
}
