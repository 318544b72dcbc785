//! What belongs to each hold, so that a stop reaches all of it: before, during and after a start or a step.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;

use thermite_core::ids::{DevRunId, HoldId, LaneId, RunId};
use thermite_core::limits;
use thermite_core::readiness::{Reading, Signal, SignalState, names};

use crate::host::launch::Run;
use crate::host::models::ModelsInUse;
use crate::ports::{BlockWatch, StopProof};

use super::own::HoldProcesses;

/// The holds this executor has heard of, apart from those long over.
#[derive(Default)]
pub(super) struct Holds(RefCell<BTreeMap<HoldId, Rc<Hold>>>);

/// One hold's processes.
pub(super) struct Hold {
    stopped: watch::Sender<bool>,
    /// How many starts and steps are under way.
    under_way: watch::Sender<usize>,
    runs: RefCell<Vec<Rc<Run>>>,
    dev_run: RefCell<Option<HeldDevRun>>,
    ended_by_itself: Cell<bool>,
    /// What of it a driver may see on its device.
    processes: Arc<HoldProcesses>,
    /// Whether what it measures was seen on its device.
    is_placed: Cell<bool>,
}

/// A hold's development run.
pub(super) struct HeldDevRun {
    pub(super) dev_run: DevRunId,
    /// The run it belongs to.
    pub(super) of_run: RunId,
    pub(super) lane: LaneId,
    pub(super) run: Rc<Run>,
    /// What its contract says of leftovers (rule C3).
    pub(super) keeps_leftovers: bool,
    /// The model files it may read: they stay while it is held, and with what it leaves.
    pub(super) _models: ModelsInUse,
}

/// A start or step under way; over when dropped.
pub(super) struct UnderWay(Rc<Hold>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl Holds {
    /// Begins a start or step under a hold.
    ///
    /// # Errors
    /// Where the hold was stopped already.
    pub(super) fn begin(&self, id: HoldId) -> Result<(Rc<Hold>, UnderWay), String> {
        let hold = self.find_or_make(id);
        if hold.is_stopped() {
            return Err(format!("{id} was stopped"));
        }
        hold.under_way.send_modify(|count| *count += 1);
        let under_way = UnderWay(Rc::clone(&hold));
        Ok((hold, under_way))
    }

    /// The hold, where anything was ever asked under it.
    pub(super) fn find(&self, id: HoldId) -> Option<Rc<Hold>> {
        self.0.borrow().get(&id).cloned()
    }

    /// The hold, barred from starting anything further.
    pub(super) fn find_or_bar(&self, id: HoldId) -> Rc<Hold> {
        let hold = self.find_or_make(id);
        hold.stopped.send_replace(true);
        hold
    }

    fn find_or_make(&self, id: HoldId) -> Rc<Hold> {
        let mut holds = self.0.borrow_mut();
        // A device's numbers only rise: older holds that are empty are never asked for again.
        holds.retain(|known, hold| known.member != id.member || known.number >= id.number || !hold.is_over());
        Rc::clone(holds.entry(id).or_insert_with(|| {
            Rc::new(Hold {
                stopped: watch::Sender::new(false),
                under_way: watch::Sender::new(0),
                runs: RefCell::default(),
                dev_run: RefCell::default(),
                ended_by_itself: Cell::new(false),
                processes: Arc::default(),
                is_placed: Cell::new(false),
            })
        }))
    }
}

impl Hold {
    pub(super) fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Answers once a stop was asked for.
    pub(super) async fn stopped(&self) {
        // The sender lives in `self`, so the wait ends only with what is waited for.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Takes a launched run in, so that a stop finds it.
    pub(super) fn add(&self, run: Rc<Run>) {
        self.processes.add(run.pid());
        self.runs.borrow_mut().push(run);
    }

    /// Lets go of a run that is proved gone.
    pub(super) fn remove(&self, run: &Rc<Run>) {
        self.processes.remove(run.pid());
        self.runs.borrow_mut().retain(|known| !Rc::ptr_eq(known, run));
    }

    /// What a driver is told of a block that begins.
    pub(super) fn block_watch(&self) -> BlockWatch {
        BlockWatch { own: self.processes.clone(), is_first: !self.is_placed.get() }
    }

    /// A block ran to its end: the first is the first until what is measured was seen where it belongs (rule B3).
    pub(super) fn note_placed(&self, after: &Reading) {
        let is_elsewhere = |signal: &Signal| signal.name == names::PLACEMENT && signal.state != SignalState::Ok;
        if !after.signals.iter().any(is_elsewhere) {
            self.is_placed.set(true);
        }
    }

    pub(super) fn set_dev_run(&self, held: HeldDevRun) {
        self.add(Rc::clone(&held.run));
        *self.dev_run.borrow_mut() = Some(held);
    }

    pub(super) fn dev_run(&self) -> Option<Rc<Run>> {
        self.dev_run.borrow().as_ref().map(|held| Rc::clone(&held.run))
    }

    /// Notes that the development run's first process has ended; by itself, unless a stop came first.
    pub(super) fn note_end(&self) {
        self.ended_by_itself.set(self.ended_by_itself.get() || !self.is_stopped());
    }

    pub(super) fn ended_by_itself(&self) -> bool {
        self.ended_by_itself.get()
    }

    /// Takes the development run out, where its leftovers are to live on.
    pub(super) fn take_kept(&self) -> Option<HeldDevRun> {
        let kept = self.dev_run.borrow_mut().take_if(|held| held.keeps_leftovers)?;
        self.remove(&kept.run);
        Some(kept)
    }

    fn is_over(&self) -> bool {
        *self.under_way.borrow() == 0 && self.runs.borrow().is_empty()
    }

    /// Ends all that runs under this hold and proves it; also what a launch under way still brings.
    pub(super) async fn stop(&self, gently: bool) -> StopProof {
        if let Some(why) = self.stop_runs(gently).await {
            return StopProof::NotProved { why };
        }
        let mut under_way = self.under_way.subscribe();
        let idle = under_way.wait_for(|count| *count == 0);
        if tokio::time::timeout(limits::PROOF_MAX.to_std(), idle).await.is_err() {
            let why = format!("a start or step is still under way {} after the stop", limits::PROOF_MAX);
            return StopProof::NotProved { why };
        }
        match self.stop_runs(false).await {
            None => StopProof::Empty,
            Some(why) => StopProof::NotProved { why },
        }
    }

    /// Stops the runs there are; says what is left where that is not proved.
    async fn stop_runs(&self, gently: bool) -> Option<String> {
        let runs = self.runs.borrow().clone();
        let proofs = join_all(runs.iter().map(|run| run.stop(gently))).await;
        let mut left = None;
        for (run, proof) in runs.into_iter().zip(proofs) {
            match proof {
                StopProof::Empty => {
                    self.remove(&run);
                    // Its output is drained and its traces are cleared away while the device passes on.
                    tokio::task::spawn_local(async move { run.finished().await });
                }
                StopProof::NotProved { why } => left = Some(why),
            }
        }
        left
    }
}
