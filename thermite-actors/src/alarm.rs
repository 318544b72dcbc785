//! One timer for one actor, at its machine's next deadline.
//!
//! `run_later` starves while a mailbox is busy, so every handler first lets due deadlines pass; the alarm only wakes an
//! actor that nobody else does. The runtime's timers stand still while the machine sleeps and the rig's clock does not
//! (rule A11): a long wait is cut into pieces, and the clock is looked at after each.

use std::rc::Rc;

use actix::prelude::*;

use thermite_core::limits;
use thermite_core::time::{Moment, Span};

use crate::ports::Clock;

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
        clock: &Rc<dyn Clock>,
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
        self.set = deadline.map(|at| {
            let clock = Rc::clone(clock);
            let come = fut::wrap_future::<_, A>(async move { come(&*clock, at).await });
            (at, ctx.spawn(come.map(move |(), actor, ctx| ring(actor, ctx))))
        });
    }

    /// Says that the alarm has rung, so that it may be set for the same moment again.
    pub(crate) fn rung(&mut self) {
        self.set = None;
    }
}

/// Answers once that moment has come on the clock, within [`limits::CLOCK_LOOK_EVERY`] also where it came in suspend: a
/// runtime's own timers stand still then.
pub(crate) async fn come(clock: &(impl Clock + ?Sized), at: Moment) {
    loop {
        let left = at.since(clock.now());
        if left == Span::ZERO {
            return;
        }
        tokio::time::sleep(left.min(limits::CLOCK_LOOK_EVERY).to_std()).await;
    }
}
