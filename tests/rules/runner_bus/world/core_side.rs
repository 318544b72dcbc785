//! The core's side of a world: its machines of runners, what they have asked for, and whose each item is.

use super::*;

impl World {
    pub(super) fn core_starts(&mut self) {
        self.epoch += 1;
        self.note(format!("core starts, epoch {}", self.epoch));
        let mut runners = Vec::new();
        let mut first = Vec::new();
        for runner in 0..RUNNERS {
            let open = self.items.iter().find_map(|item| match item.at {
                At::Held { runner: on, number } if on == runner => Some((number, item.by)),
                At::Held { .. } | At::Waiting | At::Done => None,
            });
            let process = format!("box-{}", runner + 1).parse().expect("it is a name");
            let name = RunnerName { process, slot: 1 };
            let member = MemberId(u16::try_from(runner).expect("there are few runners"));
            let (machine, effects) = Runner::new(self.now, member, name, self.last[runner], open);
            runners.push(machine);
            first.push(effects);
        }
        let (asked, free, steps) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        self.core = Some(CoreSide { epoch: self.epoch, runners, asked, free, steps });
        for (runner, effects) in first.into_iter().enumerate() {
            self.core_did(runner, effects);
        }
    }

    pub(super) fn core_did(&mut self, runner: usize, effects: Vec<RunnerEffect>) {
        for effect in effects {
            match effect {
                RunnerEffect::Ask { id, what } => self.send(runner, id, &what),
                RunnerEffect::Bring { number } => self.later_in_core(runner, 8_000, RunnerInput::Brought { number }),
                RunnerEffect::StageOpen { number } => {
                    if let Some(core) = &mut self.core {
                        core.steps.insert((runner, number), 0);
                    }
                    self.later_in_core(runner, 50, RunnerInput::WantsStep { number });
                }
                RunnerEffect::StepDone { number, report } => self.step_done(runner, number, report),
                RunnerEffect::Fetch { number, .. } => {
                    self.later_in_core(runner, 1_500, RunnerInput::Fetched { number });
                }
                RunnerEffect::Pull { .. } | RunnerEffect::Distrust => {}
                RunnerEffect::Tell(event) => self.told(runner, event),
            }
        }
        if self.mutant == Mutant::HandOnAtAway {
            self.hand_on_at_away(runner);
        }
    }

    pub(super) fn send(&mut self, runner: usize, id: u64, what: &Question) {
        let ask = AskId { core: self.epoch, id };
        let until = self.now + limits::RUNNER_ASK_MAX;
        if let Some(core) = &mut self.core {
            core.asked.insert((runner, id), until);
        }
        self.at(until, Event::AskOver { runner, ask });
        let what = self.heard(runner, what);
        self.note(format!("core asks {runner}: {what:?}"));
        let event = Event::AskArrives { runner, ask, epoch: self.epoch, what };
        self.over_bus(runner, true, event);
    }

    pub(super) fn heard(&self, runner: usize, what: &Question) -> Heard {
        match what.clone() {
            Question::Check { ticket } => Heard::Check { ticket },
            Question::Start { ticket, number, by, limit } => {
                let dev_run = match by {
                    Holder::Lane(_) => Some(DevRunId(Uuid::from_u128(u128::from(number) * 10 + runner as u128))),
                    Holder::Judge => None,
                };
                Heard::Start { ticket, grant: number, by, dev_run, limit }
            }
            Question::Step { boot, number, step } => Heard::Step { boot, grant: number, number: step },
            Question::Stop { number, cause } => Heard::Stop { grant: number, cause },
            Question::Tell { number } => Heard::Tell { grant: number },
            Question::Ack { number } => Heard::Ack { grant: number },
        }
    }

    pub(super) fn step_done(&mut self, runner: usize, number: u64, report: Option<Document>) {
        let Some(core) = &mut self.core else { return };
        let (Some(done), Some(Document(text))) = (core.steps.get_mut(&(runner, number)), report) else { return };
        *done += 1;
        let done = *done;
        if text != format!("step {done}") {
            self.broken.get_or_insert(format!("step {done} of hold {number} of {runner} was answered with {text}"));
        }
        if done < STEPS {
            self.later_in_core(runner, 50, RunnerInput::WantsStep { number });
            return;
        }
        let Some(item) = self.held_by(runner, number) else {
            self.broken.get_or_insert(format!("a report under hold {number} of {runner}, which is over"));
            return;
        };
        // The verdict is durable; the hold is given back.
        self.ended.verdicts += 1;
        if std::mem::replace(&mut self.items[item].has_verdict, true) {
            self.broken.get_or_insert(format!("a second verdict of item {item}"));
        }
        self.note(format!("item {item} has its verdict"));
        let stop = DeviceInput::Stop { number, cause: StopCause::StageOver };
        self.later_in_core(runner, 50, RunnerInput::Member(stop));
    }

    /// What the pool hears.
    pub(super) fn told(&mut self, runner: usize, event: MemberEvent) {
        self.note(format!("{runner} tells {event:?}"));
        let Some(core) = &mut self.core else { return };
        match event {
            MemberEvent::Ready { last } => {
                core.free.insert(runner);
                self.last[runner] = self.last[runner].max(last);
            }
            MemberEvent::Gone { .. } => drop(core.free.remove(&runner)),
            MemberEvent::Started { .. } => {}
            MemberEvent::Freed { number, how } => self.freed(runner, number, &how),
        }
    }

    pub(super) fn freed(&mut self, runner: usize, number: u64, how: &HoldEnd) {
        let Some(item) = self.held_by(runner, number) else {
            self.broken.get_or_insert(format!("hold {number} of {runner} is freed twice, or was never held"));
            return;
        };
        if self.sides[runner].processes.contains_key(&number) {
            self.broken.get_or_insert(format!("hold {number} of {runner} is over while it runs: {how:?}"));
        }
        if let Some(core) = &mut self.core
            && core.runners[runner].last_answer().is_none()
        {
            self.ended.handed_on += 1;
        }
        let is_over = match how {
            HoldEnd::Stopped(StopCause::Exited { .. }) => {
                self.ended.exits += 1;
                true
            }
            HoldEnd::Stopped(StopCause::Cancelled) => {
                self.ended.cancelled += 1;
                true
            }
            HoldEnd::Stopped(StopCause::RunnerLost { .. } | StopCause::RigEnding) => {
                self.ended.lost += 1;
                false
            }
            HoldEnd::NotStarted => {
                self.ended.not_started += 1;
                false
            }
            HoldEnd::Stopped(_) => false,
            HoldEnd::NotProved { why } => {
                self.broken.get_or_insert(format!("not proved: {why}"));
                false
            }
        };
        let known = &mut self.items[item];
        known.at = if is_over || known.has_verdict { At::Done } else { At::Waiting };
        if let Holder::Lane(_) = known.by {
            self.later_in_core(runner, 500, RunnerInput::Kept { number });
        }
    }

    pub(super) fn held_by(&self, runner: usize, number: u64) -> Option<usize> {
        self.items.iter().position(|item| item.at == At::Held { runner, number })
    }

    /// Gives free runners to whoever waits, as a pool does: one hold a runner, the start durable before it is asked.
    pub(super) fn hand_out(&mut self) {
        loop {
            let held: BTreeSet<usize> = self.items.iter().filter_map(Item::runner).collect();
            let Some(core) = &mut self.core else { return };
            let Some(runner) = core.free.iter().copied().find(|runner| !held.contains(runner)) else { return };
            let Some(item) = self.items.iter().position(|item| item.at == At::Waiting) else { return };
            self.last[runner] += 1;
            let number = self.last[runner];
            self.items[item].at = At::Held { runner, number };
            let by = self.items[item].by;
            self.note(format!("item {item} goes to {runner} under {number}"));
            self.later_in_core(runner, 30, RunnerInput::Member(DeviceInput::Start { number, by, limit: None }));
            if self.is_faulty() && self.one_in(8) {
                let stop = DeviceInput::Stop { number, cause: StopCause::Cancelled };
                if let Holder::Lane(_) = by {
                    self.later_in_core(runner, 40_000, RunnerInput::Member(stop));
                }
            }
        }
    }

    pub(super) fn hand_on_at_away(&mut self, runner: usize) {
        let Some(core) = &self.core else { return };
        if !matches!(core.runners[runner].state(), RunnerState::Away { .. }) {
            return;
        }
        let held = self.items.iter().find_map(|item| match item.at {
            At::Held { runner: on, number } if on == runner => Some(number),
            At::Held { .. } | At::Waiting | At::Done => None,
        });
        if let Some(number) = held {
            let how = HoldEnd::Stopped(StopCause::RunnerLost { how: thermite_core::hold::RunnerLoss::Away });
            self.freed(runner, number, &how);
        }
    }
}
