//! What development runs left behind and keep until the rig ends (rule C3): held, listed, and proved gone at the end.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::join_all;

use thermite_core::limits;
use thermite_core::time::Moment;

use super::holds::HeldDevRun;
use crate::host::clock::BootClock;
use crate::host::launch::Run;
use crate::ports::{Clock, LeftoverProcess, Leftovers, StopProof};

/// Runs that ended by themselves and whose leftovers live on, the oldest first. They end with it at the latest.
#[derive(Default)]
pub(super) struct Kept(RefCell<Vec<KeptRun>>);

struct KeptRun {
    held: HeldDevRun,
    since: Moment,
}

impl Kept {
    /// Whether a further one can be kept.
    pub(super) fn has_room(&self) -> bool {
        self.forget_ended();
        let has_room = self.0.borrow().len() < limits::LEFTOVERS_KEPT_MAX;
        if !has_room {
            let most = limits::LEFTOVERS_KEPT_MAX;
            tracing::warn!(
                "{most} development runs have leftovers that live on, so what a further one left is stopped"
            );
        }
        has_room
    }

    /// Takes in what a development run left.
    pub(super) fn extend(&self, kept: Option<HeldDevRun>) {
        self.0.borrow_mut().extend(kept.map(|held| KeptRun { held, since: BootClock.now() }));
    }

    /// What lives on; the processes of all together are cut at one more than a view shows.
    pub(super) fn leftovers(&self) -> Vec<Leftovers> {
        self.forget_ended();
        let mut room = limits::LEFTOVERS_SHOWN_MAX + 1;
        let mut all = Vec::new();
        for KeptRun { held, since } in self.0.borrow().iter() {
            let found = held.run.processes(room);
            room -= found.len();
            let processes =
                found.into_iter().map(|process| LeftoverProcess { pid: process.pid, command: process.command });
            let (dev_run, run, lane) = (held.dev_run, held.of_run, held.lane);
            all.push(Leftovers { dev_run, run, lane, since: *since, processes: processes.collect() });
            if room == 0 {
                break;
            }
        }
        all
    }

    /// Lets go of what has ended by itself.
    fn forget_ended(&self) {
        let mut kept = self.0.borrow_mut();
        let (over, live): (Vec<_>, Vec<_>) = kept.drain(..).partition(|kept| kept.held.run.is_over());
        *kept = live;
        for run in over.into_iter().map(|kept| kept.held.run) {
            tokio::task::spawn_local(async move { run.finished().await });
        }
    }

    /// Ends all of it and proves it gone; what is not proved gone stays listed.
    pub(super) async fn end(&self) -> StopProof {
        let runs: Vec<Rc<Run>> = self.0.borrow().iter().map(|kept| Rc::clone(&kept.held.run)).collect();
        let proofs = join_all(runs.iter().map(|run| run.stop(false))).await;
        let mut left = Vec::new();
        for (run, proof) in runs.iter().zip(proofs) {
            match proof {
                StopProof::Empty => self.0.borrow_mut().retain(|kept| !Rc::ptr_eq(&kept.held.run, run)),
                StopProof::NotProved { why } => left.push(why),
            }
        }
        join_all(runs.iter().map(|run| run.finished())).await;
        if left.is_empty() { StopProof::Empty } else { StopProof::NotProved { why: left.join("; ") } }
    }
}
