//! The runners' side of a world: their slots, and what those have begun and stopped.

use super::*;

impl World {
    pub(super) fn runner_starts(&mut self, runner: usize) {
        let boot = Uuid::from_u128(self.next_boot);
        self.next_boot += 1;
        let now = self.runner_now(runner);
        let journal = self.sides[runner].journal.clone();
        self.note(format!("runner {runner} starts, boot {boot}"));
        let (mut slot, mut effects) = Slot::new(now, boot, 1, 1, Target::Cpu, &journal);
        effects.extend(slot.handle(now, SlotInput::Facts { facts: Some(facts()) }));
        let side = &mut self.sides[runner];
        side.boot = boot;
        side.slot = Some(slot);
        side.asked.clear();
        self.slot_did(runner, effects);
    }

    pub(super) fn slot_did(&mut self, runner: usize, effects: Vec<SlotEffect>) {
        let boot = self.sides[runner].boot;
        for effect in effects {
            match effect {
                SlotEffect::Answer { id, answer } => self.answer(runner, id, answer),
                SlotEffect::AnswerOutput { .. } => unreachable!("no output is asked for here"),
                SlotEffect::Write { lines } => {
                    self.after_up_to(60, Event::Durable { runner, boot, lines, anew: false });
                }
                SlotEffect::WriteAnew { lines } => {
                    self.after_up_to(60, Event::Durable { runner, boot, lines, anew: true });
                }
                SlotEffect::Prepare { grant } => {
                    let input = SlotInput::Prepared { grant };
                    self.after_up_to(6_000, Event::ToSlot { runner, boot, input });
                }
                SlotEffect::Step { grant, number } => {
                    if !self.begun_steps.insert((runner, grant, number)) {
                        self.broken.get_or_insert(format!("step {number} of grant {grant} of {runner} begins twice"));
                    }
                    self.begins(runner, grant, Some(number));
                }
                SlotEffect::Device(DeviceEffect::Sweep) => {
                    let say = Some(SlotInput::Device(DeviceInput::Swept));
                    self.after_up_to(3_000, Event::Gone { runner, grant: None, boot, say });
                }
                SlotEffect::Device(DeviceEffect::StartDevRun { number }) => {
                    self.after_up_to(1_000, Event::Exec { runner, boot, grant: number });
                }
                SlotEffect::Device(DeviceEffect::StopProcesses { number, .. }) => self.stop(runner, boot, number),
                SlotEffect::Device(
                    DeviceEffect::Look
                    | DeviceEffect::StageOpen { .. }
                    | DeviceEffect::Distrust
                    | DeviceEffect::Tell(_),
                )
                | SlotEffect::Over { .. }
                | SlotEffect::Forget { .. } => {}
                SlotEffect::Hint => {
                    let core = self.epoch;
                    self.over_bus(runner, false, Event::HintArrives { runner, core });
                }
            }
        }
    }

    pub(super) fn stop(&mut self, runner: usize, boot: Uuid, grant: u64) {
        let say = SlotInput::Device(DeviceInput::Emptied { number: grant });
        match self.mutant {
            Mutant::StopWithoutProof => {
                self.after_up_to(10, Event::ToSlot { runner, boot, input: say });
                self.at(self.now + Span::seconds(5), Event::Gone { runner, grant: Some(grant), boot, say: None });
            }
            Mutant::None | Mutant::SlowClock | Mutant::HandOnAtAway => {
                // SIGTERM, grace, and the proof: within what the device's rules allow.
                self.after_up_to(9_000, Event::Gone { runner, grant: Some(grant), boot, say: Some(say) });
            }
        }
    }

    /// A process of a grant begins to run.
    pub(super) fn begins(&mut self, runner: usize, grant: u64, step: Option<u32>) {
        self.note(format!("{runner} begins grant {grant}, step {step:?}"));
        self.ended.begun += 1;
        if step.is_none() && !self.begun.insert((runner, grant)) {
            self.broken.get_or_insert(format!("grant {grant} of {runner} begins twice"));
        }
        let life = self.next_life;
        self.next_life += 1;
        self.sides[runner].processes.insert(grant, life);
        if self.sides[runner].processes.len() > 1 {
            self.broken.get_or_insert(format!("two grants at once on {runner}"));
        }
        // Whoever waits or has ended is worked on nowhere, and whoever is held is worked on there alone.
        match self.held_by(runner, grant) {
            Some(_) => {}
            None => drop(self.broken.get_or_insert(format!("grant {grant} of {runner} begins, and its hold is over"))),
        }
        let boot = self.sides[runner].boot;
        let longest = if self.one_in(4) { 120_000 } else { 8_000 };
        self.after_up_to(longest, Event::Ends { runner, boot, grant, step, life });
    }

    pub(super) fn answer(&mut self, runner: usize, id: u64, what: SlotAnswer) {
        let Some(ask) = self.sides[runner].asked.remove(&id) else {
            self.broken.get_or_insert(format!("ask {id} of {runner} is answered twice"));
            return;
        };
        self.note(format!("{runner} answers {what:?}"));
        let answer = Answer { boot: self.sides[runner].boot, what };
        self.over_bus(runner, false, Event::AnswerArrives { runner, ask, answer });
    }
}
