//! What happened, to whoever listens.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::broadcast;

use thermite_core::limits;

use crate::ports::Clock;
use crate::view::{RigEvent, RigHappening};

/// Numbers events and hands them to all listeners; one a rig.
pub(crate) struct Events {
    clock: Rc<dyn Clock>,
    next: Cell<u64>,
    sender: broadcast::Sender<Arc<RigEvent>>,
}

impl Events {
    pub(crate) fn new(clock: Rc<dyn Clock>) -> Rc<Events> {
        let (sender, _) = broadcast::channel(limits::EVENTS_KEPT);
        Rc::new(Events { clock, next: Cell::new(1), sender })
    }

    pub(crate) fn sender(&self) -> broadcast::Sender<Arc<RigEvent>> {
        self.sender.clone()
    }

    pub(crate) fn tell(&self, what: RigHappening) {
        let id = self.next.get();
        self.next.set(id + 1);
        // Nobody listening is no fault.
        drop(self.sender.send(Arc::new(RigEvent { id, wall_ms: self.clock.wall_ms(), what })));
    }
}
