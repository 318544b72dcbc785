//! The same world as stateright sees it.

use stateright::{Model, Property};

use super::rig::properties::{
    CERTIFICATE, EXCLUSIVE, GHOST, HELD_BY_NONE, JUDGE_FIRST, NUMBER_ONCE, ONE_END, OVERLOOKED, PAUSED_LEAVE,
    POOL_KNOWS, RECORDED_FIRST,
};
use super::rig::{Rig, Setup, Step};

/// A set-up as a model.
#[derive(Clone, Debug)]
pub(super) struct World(pub(super) Setup);

impl Model for World {
    type State = Rig;
    type Action = Step;

    fn init_states(&self) -> Vec<Rig> {
        vec![Rig::fresh(&self.0)]
    }

    fn actions(&self, rig: &Rig, steps: &mut Vec<Step>) {
        rig.steps(&self.0, steps);
    }

    fn next_state(&self, rig: &Rig, step: Step) -> Option<Rig> {
        Some(rig.after(&self.0, step))
    }

    fn properties(&self) -> Vec<Property<World>> {
        macro_rules! never_broken {
            ($($name:ident),*) => {
                vec![$(Property::always($name, |_, rig: &Rig| rig.broken != Some($name))),*]
            };
        }
        never_broken!(
            EXCLUSIVE,
            NUMBER_ONCE,
            POOL_KNOWS,
            JUDGE_FIRST,
            CERTIFICATE,
            OVERLOOKED,
            HELD_BY_NONE,
            PAUSED_LEAVE,
            GHOST,
            ONE_END,
            RECORDED_FIRST
        )
    }
}
