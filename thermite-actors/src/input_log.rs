//! The seam between an actor and its machine: whatever a machine takes goes through here, and is logged (rule D10).

use std::ops::Deref;
use std::rc::Rc;

use thermite_core::input_log::{Line, Machine, StageTakes, StageWants};
use thermite_core::stage::{Stage, StagePlan};
use thermite_core::time::Moment;

use crate::ports::InputLog;

/// A machine whose every input and decision is logged. It can be looked at, and changed only by [`Traced::take`].
pub(crate) struct Traced<M> {
    machine: M,
    log: Rc<dyn InputLog>,
    /// The epoch of the log in which the machine's state was told.
    told: Option<u64>,
}

impl<M: Machine> Traced<M> {
    pub(crate) fn new(machine: M, log: Rc<dyn InputLog>) -> Traced<M> {
        Traced { machine, log, told: None }
    }

    /// Lets deadlines pass, takes the input and decides.
    pub(crate) fn take(&mut self, now: Moment, takes: M::Takes) -> M::Gives {
        let Some(epoch) = self.log.epoch() else { return self.machine.take(now, takes) };
        if self.told != Some(epoch) {
            self.log.write(Line::State(Box::new(self.machine.clone().told())));
            self.told = Some(epoch);
        }
        let gave = self.machine.take(now, takes.clone());
        let step = Box::new(self.machine.step(takes, gave.clone()));
        self.log.write(Line::Took { at: now, step });
        gave
    }
}

impl Traced<Stage> {
    /// An attempt that begins: what it is told at its birth is its first input.
    pub(crate) fn begin(now: Moment, plan: StagePlan, log: Rc<dyn InputLog>) -> Traced<Stage> {
        let Some(epoch) = log.epoch() else { return Traced::new(Stage::new(now, plan), log) };
        let machine = Stage::new(now, plan.clone());
        let step = machine.step(StageTakes::Begin(Box::new(plan)), StageWants::of(&machine));
        log.write(Line::Took { at: now, step: Box::new(step) });
        Traced { machine, log, told: Some(epoch) }
    }
}

impl<M> Deref for Traced<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}
