//! A runner's own rules: grants begun at most once, tickets, the lease, ends kept (rules E11, E14; docs/bus.md).

use thermite_core::contract::Target;
use thermite_core::dev_run::Exit;
use thermite_core::device::{DeviceEffect, DeviceInput};
use thermite_core::hold::{HoldEnd, RunnerLoss, StopCause};
use thermite_core::ids::{DevRunId, Holder, LaneId};
use thermite_core::limits;
use thermite_core::runner::{Heard, JournalLine, Slot, SlotEffect, SlotInput};
use thermite_core::time::{Moment, Span};
use thermite_core::wire::{Checked, Document, Progress, SlotAnswer, SlotFacts, SlotNo, Standing, Ticket};
use uuid::Uuid;

const AWAY: StopCause = StopCause::RunnerLost { how: RunnerLoss::Away };

#[test]
fn what_is_accepted_is_written_down_before_it_is_answered_and_begun() {
    let mut runner = Played::ready();
    let ticket = runner.check(None).ticket;

    let asked = runner.hear(Heard::Start { ticket, grant: 1, by: Holder::Judge, dev_run: None, limit: None });
    let written = runner.take(SlotInput::Written);

    assert_eq!(asked, [SlotEffect::Write { lines: vec![JournalLine::Accepted { grant: 1, dev_run: None }] }]);
    assert!(matches!(stands(&written).at, Progress::Running { .. }), "{written:?}");
}

#[test]
fn a_start_asked_twice_begins_once_and_both_are_told_how_it_stands() {
    let mut runner = Played::ready();
    let start = runner.start(1, lane());

    let again = runner.hear(start.clone());
    runner.take(SlotInput::Prepared { grant: 1 });
    let third = runner.hear(start);

    assert_eq!(stands(&again).at, Progress::Accepted);
    assert_eq!(stands(&third).at, Progress::Accepted);
    assert_eq!(runner.launched, [1]);
}

#[test]
fn a_start_that_was_long_under_way_is_late_and_its_number_is_burnt() {
    let mut runner = Played::ready();
    let ticket = runner.check(None).ticket;
    runner.advance(limits::TICKET_GOOD + Span::millis(1));
    let fresh = runner.check(None).ticket;
    let start = |ticket| Heard::Start { ticket, grant: 1, by: Holder::Judge, dev_run: None, limit: None };

    let late = runner.hear(start(ticket));
    let again = runner.hear(start(fresh));

    assert_eq!(no(&late), &SlotNo::Late);
    assert_eq!(stands(&again).at, Progress::Over { end: HoldEnd::NotStarted });
}

#[test]
fn a_start_of_another_boot_of_an_old_core_or_beside_another_is_refused() {
    let mut runner = Played::ready();
    let ticket = runner.check(None).ticket;
    runner.start(1, Holder::Judge);
    let start = |ticket, grant| Heard::Start { ticket, grant, by: Holder::Judge, dev_run: None, limit: None };

    let busy = runner.hear(start(ticket, 2));
    let rebooted = runner.hear(start(Ticket { boot: Uuid::from_u128(99), ..ticket }, 3));
    runner.epoch = 7;
    runner.check(None);
    runner.epoch = 6;
    let stale = runner.hear(start(ticket, 4));

    assert_eq!(no(&busy), &SlotNo::Busy { grant: 1 });
    assert_eq!(no(&rebooted), &SlotNo::Rebooted);
    assert_eq!(no(&stale), &SlotNo::Stale { epoch: 7, grant: 3 });
}

#[test]
fn a_stop_that_overtakes_its_start_burns_the_number() {
    let mut runner = Played::ready();
    let ticket = runner.check(None).ticket;

    let stopped = runner.hear(Heard::Stop { grant: 1, cause: StopCause::Cancelled });
    runner.take(SlotInput::Written);
    let start = runner.hear(Heard::Start { ticket, grant: 1, by: Holder::Judge, dev_run: None, limit: None });

    assert_eq!(stands(&stopped).at, Progress::Over { end: HoldEnd::NotStarted });
    assert_eq!(stands(&start).at, Progress::Over { end: HoldEnd::NotStarted });
}

#[test]
fn unheard_it_begins_its_own_stop_at_forty_seven_seconds_of_its_lease() {
    let mut runner = Played::ready();
    runner.start(1, Holder::Judge);

    let before = runner.advance(Span::millis(limits::LEASE_STOP_AT.as_millis() - 1));
    let after = runner.advance(Span::millis(1));
    let over = runner.emptied(1);

    assert_eq!(before, []);
    assert!(after.contains(&SlotEffect::Device(DeviceEffect::StopProcesses { number: 1, gently: true })), "{after:?}");
    assert!(over.contains(&SlotEffect::Over { grant: 1, dev_run: None }), "{over:?}");
    assert_eq!(stands(&runner.hear(Heard::Tell { grant: 1 })).at, Progress::Over { end: HoldEnd::Stopped(AWAY) });
}

#[test]
fn a_check_renews_the_lease_to_its_tickets_issue_and_one_that_was_long_under_way_renews_nothing() {
    let mut runner = Played::ready();
    runner.start(1, Holder::Judge);
    runner.advance(Span::seconds(20));
    let old = runner.check(None).ticket;
    runner.advance(Span::seconds(20));
    let newer = runner.check(Some(old)).ticket;
    runner.check(Some(newer));

    // Heard again at the last moment: it counts from its issue.
    runner.advance(Span::seconds(46));
    runner.check(Some(old));
    let stopped = runner.advance(Span::seconds(1));

    assert!(matches!(stopped[..], [SlotEffect::Device(DeviceEffect::StopProcesses { number: 1, .. })]), "{stopped:?}");
}

#[test]
fn a_tickets_number_from_another_boot_renews_nothing() {
    let mut runner = Played::ready();
    runner.start(1, Holder::Judge);
    runner.advance(Span::seconds(40));
    let ticket = runner.check(None).ticket;

    runner.check(Some(Ticket { boot: Uuid::from_u128(99), ..ticket }));
    let stopped = runner.advance(Span::seconds(7));

    assert!(!stopped.is_empty(), "the lease counts from the start's ticket still");
}

#[test]
fn what_was_accepted_before_a_restart_is_lost_and_told_so_once_its_leftovers_are_gone() {
    let lines = [JournalLine::Accepted { grant: 4, dev_run: None }];
    let mut runner = Played::over(&lines);

    let before = runner.check(None);
    runner.take(SlotInput::Device(DeviceInput::Swept));
    runner.take(SlotInput::Written);
    let after = runner.check(None);

    assert_eq!(before.grants[0].at, Progress::Stopping);
    assert!(before.unable.is_some(), "nothing is begun before that");
    let lost = StopCause::RunnerLost { how: RunnerLoss::Restarted };
    assert_eq!(after.grants[0].at, Progress::Over { end: HoldEnd::Stopped(lost) });
    assert_eq!((after.unable, after.highest), (None, 4));
}

#[test]
fn an_end_is_kept_until_it_is_acknowledged_or_a_day_has_passed() {
    let lines = |grant| {
        let end = HoldEnd::Stopped(StopCause::StageOver);
        [JournalLine::Accepted { grant, dev_run: None }, JournalLine::Ended { grant, end }]
    };
    let mut runner = Played::over(&[lines(1), lines(2)].concat());
    runner.take(SlotInput::Device(DeviceInput::Swept));

    let listed = runner.check(None).grants.len();
    let forgotten = runner.hear(Heard::Ack { grant: 1 });
    let again = runner.hear(Heard::Ack { grant: 1 });
    let left = runner.check(None).grants.len();
    runner.advance(limits::RUNNER_ENDED_KEPT);

    assert_eq!((listed, left), (2, 1));
    assert_eq!((answer(&forgotten), answer(&again)), (&SlotAnswer::Forgotten, &SlotAnswer::Forgotten));
    assert!(runner.check(None).grants.is_empty());
}

#[test]
fn a_journal_that_cannot_be_written_refuses_starts_and_still_lets_work_end() {
    let mut runner = Played::ready();
    runner.start(1, Holder::Judge);
    runner.hear(Heard::Stop { grant: 1, cause: StopCause::StageOver });
    runner.take(SlotInput::Device(DeviceInput::Emptied { number: 1 }));
    runner.take(SlotInput::NotWritten { why: "no space left on device".to_owned() });

    let checked = runner.check(None);
    let start = Heard::Start { ticket: checked.ticket, grant: 2, by: Holder::Judge, dev_run: None, limit: None };
    let refused = runner.hear(start);

    assert_eq!(checked.grants[0].at, Progress::Over { end: HoldEnd::Stopped(StopCause::StageOver) });
    let why = "its journal cannot be written: no space left on device".to_owned();
    assert_eq!(no(&refused), &SlotNo::NotAble { why });
    runner.take(SlotInput::Written);
    assert_eq!(runner.check(None).unable, None, "it takes starts again once it can be written");
}

#[test]
fn a_step_is_carried_out_once_whatever_is_asked_again() {
    let mut runner = Played::ready();
    runner.start(1, Holder::Judge);
    let step = |number| Heard::Step { boot: BOOT, grant: 1, number };

    let first = runner.hear(step(1));
    let again = runner.hear(step(1));
    let too_early = runner.hear(step(2));
    runner.take(SlotInput::Reported { grant: 1, number: 1, report: Document("done".to_owned()) });
    let old = runner.hear(step(1));
    let second = runner.hear(step(2));

    let begins = |effects: &[SlotEffect]| effects.iter().any(|effect| matches!(effect, SlotEffect::Step { .. }));
    assert_eq!(
        [&first, &again, &too_early, &old, &second].map(|effects| begins(effects)),
        [true, false, false, false, true]
    );
    assert_eq!(stands(&old).step.unwrap().report, Some(Document("done".to_owned())));
}

#[test]
fn a_lanes_own_end_and_its_limit_are_told_as_a_local_devices_are() {
    let mut runner = Played::ready();
    runner.start(1, lane());
    runner.take(SlotInput::Prepared { grant: 1 });
    runner.take(SlotInput::Device(DeviceInput::Started { number: 1 }));
    runner.advance(Span::seconds(3));
    runner.take(SlotInput::Exited { grant: 1, exit: Exit::Code(3) });
    runner.emptied(1);

    let end = HoldEnd::Stopped(StopCause::Exited { exit: Exit::Code(3), ran: Span::seconds(3) });
    assert_eq!(stands(&runner.hear(Heard::Tell { grant: 1 })).at, Progress::Over { end });
}

const BOOT: Uuid = Uuid::from_u128(1);

/// A runner whose device does at once what it is told.
struct Played {
    slot: Slot,
    now: Moment,
    epoch: u64,
    launched: Vec<u64>,
}

impl Played {
    fn over(lines: &[JournalLine]) -> Played {
        let now = Moment::from_millis(5_000);
        let (slot, _) = Slot::new(now, BOOT, 1, 1, Target::Cpu, lines);
        let mut played = Played { slot, now, epoch: 1, launched: Vec::new() };
        let text = |text: &str| text.to_owned();
        let facts = SlotFacts {
            target: Target::Cpu,
            uuid: text("u"),
            model: text("m"),
            driver: text("d"),
            clock_policy: text("c"),
            cpus: text("0"),
            cores: 1,
            containment: None,
        };
        played.take(SlotInput::Facts { facts: Some(facts) });
        played
    }

    fn ready() -> Played {
        let mut played = Played::over(&[]);
        played.take(SlotInput::Device(DeviceInput::Swept));
        played
    }

    fn take(&mut self, input: SlotInput) -> Vec<SlotEffect> {
        let effects = self.slot.handle(self.now, input);
        self.note(&effects);
        effects
    }

    fn note(&mut self, effects: &[SlotEffect]) {
        self.launched.extend(effects.iter().filter_map(|effect| match effect {
            SlotEffect::Device(DeviceEffect::StartDevRun { number }) => Some(*number),
            _ => None,
        }));
    }

    fn advance(&mut self, span: Span) -> Vec<SlotEffect> {
        self.now = self.now + span;
        let effects = self.slot.advance(self.now);
        self.note(&effects);
        effects
    }

    fn hear(&mut self, what: Heard) -> Vec<SlotEffect> {
        self.take(SlotInput::Asked { id: 9, epoch: self.epoch, what })
    }

    fn check(&mut self, ticket: Option<Ticket>) -> Checked {
        match answer(&self.hear(Heard::Check { ticket })) {
            SlotAnswer::Checked(checked) => checked.as_ref().clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a grant with a fresh ticket; what was asked.
    fn start(&mut self, grant: u64, by: Holder) -> Heard {
        let ticket = self.check(None).ticket;
        let dev_run = (by != Holder::Judge).then(|| DevRunId(Uuid::from_u128(7)));
        let start = Heard::Start { ticket, grant, by, dev_run, limit: None };
        self.hear(start.clone());
        self.take(SlotInput::Written);
        start
    }

    fn emptied(&mut self, number: u64) -> Vec<SlotEffect> {
        self.take(SlotInput::Device(DeviceInput::Emptied { number }));
        self.take(SlotInput::Written)
    }
}

fn lane() -> Holder {
    Holder::Lane(LaneId::new(1).expect("there is a lane 1"))
}

fn answer(effects: &[SlotEffect]) -> &SlotAnswer {
    let found = effects.iter().find_map(|effect| match effect {
        SlotEffect::Answer { answer, .. } => Some(answer),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no answer: {effects:?}"))
}

fn stands(effects: &[SlotEffect]) -> Standing {
    match answer(effects) {
        SlotAnswer::Stands(standing) => standing.as_ref().clone(),
        other => panic!("{other:?}"),
    }
}

fn no(effects: &[SlotEffect]) -> &SlotNo {
    match answer(effects) {
        SlotAnswer::No(no) => no,
        other => panic!("{other:?}"),
    }
}
