//! What happened, to whoever listens.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Notify, broadcast};

use thermite_core::blame::Beside;
use thermite_core::limits;
use thermite_core::time::Moment;

use crate::ports::Clock;
use crate::view::{RigEvent, RigHappening};

/// Numbers events and hands them to all listeners; one a rig.
pub(crate) struct Events {
    clock: Rc<dyn Clock>,
    next: Cell<u64>,
    /// Whose development runs ran beside blocks, as the devices tell.
    beside: RefCell<Beside>,
    stir: Notify,
    sender: broadcast::Sender<Arc<RigEvent>>,
}

impl Events {
    pub(crate) fn new(clock: Rc<dyn Clock>) -> Rc<Events> {
        let (sender, _) = broadcast::channel(limits::EVENTS_KEPT);
        Rc::new(Events { clock, next: Cell::new(1), beside: RefCell::default(), stir: Notify::new(), sender })
    }

    pub(crate) fn sender(&self) -> broadcast::Sender<Arc<RigEvent>> {
        self.sender.clone()
    }

    /// Whether anyone listens beside the herald.
    pub(crate) fn heard_by_others(&self) -> bool {
        self.sender.receiver_count() > 1
    }

    /// The moment it is, on the rig's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Says that some development run may stand differently, so that the herald looks.
    pub(crate) fn stir(&self) {
        self.stir.notify_one();
    }

    /// Waits until somebody stirs; stirs that come meanwhile are one.
    pub(crate) async fn stirred(&self) {
        self.stir.notified().await;
    }

    /// Whose development runs ran when.
    pub(crate) fn beside(&self) -> Ref<'_, Beside> {
        self.beside.borrow()
    }

    pub(crate) fn tell(&self, what: RigHappening) {
        if let RigHappening::Device { member, state } = &what {
            self.beside.borrow_mut().stands(*member, state, self.now());
        }
        match &what {
            RigHappening::Recorded { .. } | RigHappening::Device { .. } => self.stir(),
            // Blocks change nobody's wait, and the herald's own words are no news to it.
            RigHappening::Stage { .. } | RigHappening::DevRun { .. } | RigHappening::Alarm { .. } => {}
        }
        let id = self.next.get();
        self.next.set(id + 1);
        // Nobody listening is no fault.
        drop(self.sender.send(Arc::new(RigEvent { id, wall_ms: self.clock.wall_ms(), what })));
    }
}
