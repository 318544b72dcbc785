//! One timer for one actor, at its machine's next deadline.
//!
//! `run_later` starves while a mailbox is busy, so every handler first lets due deadlines pass; the alarm only wakes an
//! actor that nobody else does.

use actix::prelude::*;

use thermite_core::time::Moment;

/// The timer of an actor.
#[derive(Default)]
pub(crate) struct Alarm {
    set: Option<(Moment, SpawnHandle)>,
}

impl Alarm {
    /// Makes the alarm ring at `deadline`, and only then.
    pub(crate) fn set<A>(
        &mut self,
        ctx: &mut Context<A>,
        now: Moment,
        deadline: Option<Moment>,
        ring: fn(&mut A, &mut Context<A>),
    ) where
        A: Actor<Context = Context<A>>,
    {
        if self.set.map(|set| set.0) == deadline {
            return;
        }
        if let Some((_, handle)) = self.set.take() {
            ctx.cancel_future(handle);
        }
        self.set = deadline.map(|at| (at, ctx.run_later(at.since(now).to_std(), ring)));
    }

    /// Says that the alarm has rung, so that it may be set for the same moment again.
    pub(crate) fn rung(&mut self) {
        self.set = None;
    }
}
