//! Who follows which development run, told to the rig as it changes (rule A10).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use thermite_actors::rig::Rig;
use thermite_core::ids::DevRunId;
use tokio::sync::mpsc;

/// The followers of all development runs.
pub(super) struct Followers {
    counts: Mutex<BTreeMap<DevRunId, u32>>,
    changed: mpsc::UnboundedSender<DevRunId>,
}

/// One follower, for as long as it is there.
pub(super) struct Following {
    dev_run: DevRunId,
    followers: Arc<Followers>,
}

impl Followers {
    /// Followers whose coming and going `rig` is told. Must be called inside an actix system.
    pub(super) fn reporting_to(rig: Rig) -> Arc<Followers> {
        let (changed, mut changes) = mpsc::unbounded_channel();
        let followers = Arc::new(Followers { counts: Mutex::default(), changed });
        let counting = Arc::downgrade(&followers);
        // One teller, which says how it is when it speaks: a follower that leaves and one that comes on two threads
        // cannot be told the wrong way round.
        actix_web::rt::spawn(async move {
            while let Some(dev_run) = changes.recv().await {
                let Some(followers) = counting.upgrade() else { break };
                let present = followers.counts().contains_key(&dev_run);
                rig.caller_present(dev_run, present).await;
            }
        });
        followers
    }

    /// A follower is here until what this gives is dropped.
    pub(super) fn follow(self: &Arc<Self>, dev_run: DevRunId) -> Following {
        *self.counts().entry(dev_run).or_default() += 1;
        self.tell(dev_run);
        Following { dev_run, followers: Arc::clone(self) }
    }

    /// A follower should come.
    pub(super) fn expected(&self, dev_run: DevRunId) {
        self.tell(dev_run);
    }

    fn tell(&self, dev_run: DevRunId) {
        // Nobody listens once the rig's thread has ended, and then no run lives by its caller.
        let _ = self.changed.send(dev_run);
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<DevRunId, u32>> {
        // Counting cannot panic half-way.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut counts = self.followers.counts();
        if let Some(count) = counts.get_mut(&self.dev_run) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.dev_run);
            }
        }
        drop(counts);
        self.followers.tell(self.dev_run);
    }
}
