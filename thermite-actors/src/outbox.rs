//! The outbox: what leaves the rig waits here until the records have it (rule D7).
//!
//! One append is under way at a time, and everything that came meanwhile goes into the next: group commit. While the
//! records cannot be written the pool grants nothing, the patient appends are kept and tried again, and the others are
//! told so.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, error, info};

use thermite_core::fold::RigHistory;
use thermite_core::limits;
use thermite_core::pool::PoolInput;

use crate::events::Events;
use crate::pool::{PoolActor, ToPool};
use crate::ports::{Batch, Records, RecordsFault};
use crate::view::RigHappening;

/// Makes a batch durable and answers then.
#[derive(Message)]
#[rtype(result = "Result<(), RecordsFault>")]
pub(crate) struct Append {
    /// What.
    pub(crate) batch: Batch,
    /// Whether it is kept and tried again for as long as it takes; the others are answered with the fault.
    pub(crate) patient: bool,
}

/// Reads the history.
#[derive(Message)]
#[rtype(result = "T")]
pub(crate) struct Recall<T: Send + 'static>(pub(crate) Box<dyn FnOnce(&RigHistory) -> T + Send>);

/// Why the records cannot be written, where they cannot.
#[derive(Message)]
#[rtype(result = "Option<String>")]
pub(crate) struct RecordsState;

struct Pending {
    batch: Batch,
    patient: bool,
    done: oneshot::Sender<Result<(), RecordsFault>>,
}

/// The outbox of a rig.
pub(crate) struct Outbox {
    records: Rc<dyn Records>,
    history: RigHistory,
    events: Rc<Events>,
    pool: Addr<PoolActor>,
    waiting: VecDeque<Pending>,
    under_way: bool,
    fault: Option<String>,
}

impl Outbox {
    pub(crate) fn new(
        records: Rc<dyn Records>,
        history: RigHistory,
        events: Rc<Events>,
        pool: Addr<PoolActor>,
    ) -> Outbox {
        Outbox { records, history, events, pool, waiting: VecDeque::new(), under_way: false, fault: None }
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        if self.under_way || self.waiting.is_empty() {
            return;
        }
        self.under_way = true;
        let batches: Vec<Pending> = self.waiting.drain(..).collect();
        let mut whole = Batch::default();
        for pending in &batches {
            whole.entries.extend(pending.batch.entries.iter().cloned());
            whole.records.extend(pending.batch.records.iter().cloned());
            whole.audits.extend(pending.batch.audits.iter().cloned());
        }
        let append = self.records.append(whole).into_actor(self);
        ctx.spawn(append.map(move |answer, outbox, ctx| {
            outbox.under_way = false;
            match answer {
                Ok(()) => outbox.appended(batches),
                Err(fault) => outbox.failed(batches, &fault, ctx),
            }
            if outbox.fault.is_none() {
                outbox.pump(ctx);
            }
        }));
    }

    fn appended(&mut self, batches: Vec<Pending>) {
        if self.fault.take().is_some() {
            info!("the records can be written again");
            self.pool.do_send(ToPool(PoolInput::Recording(true)));
        }
        for pending in batches {
            for entry in pending.batch.entries {
                debug!(?entry, "recorded");
                self.history.apply(entry.clone());
                self.events.tell(RigHappening::Recorded { fact: Arc::new(entry) });
            }
            // An asker that went away has no use for the answer.
            drop(pending.done.send(Ok(())));
        }
    }

    fn failed(&mut self, batches: Vec<Pending>, fault: &RecordsFault, ctx: &mut Context<Self>) {
        if self.fault.is_none() {
            error!(%fault, "the records cannot be written; nothing is granted until they can");
            self.pool.do_send(ToPool(PoolInput::Recording(false)));
        }
        self.fault = Some(fault.0.clone());
        let (patient, impatient): (Vec<_>, Vec<_>) = batches.into_iter().partition(|pending| pending.patient);
        for pending in impatient {
            drop(pending.done.send(Err(fault.clone())));
        }
        for pending in patient.into_iter().rev() {
            self.waiting.push_front(pending);
        }
        ctx.run_later(limits::RECORDS_RETRY_EVERY.to_std(), |outbox, ctx| outbox.probe(ctx));
    }

    /// Tries again; an empty batch finds out whether there is room where nothing waits.
    fn probe(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_empty() {
            let (done, _) = oneshot::channel();
            self.waiting.push_back(Pending { batch: Batch::default(), patient: false, done });
        }
        self.pump(ctx);
    }
}

impl Actor for Outbox {
    type Context = Context<Self>;
}

impl Handler<Append> for Outbox {
    type Result = ResponseFuture<Result<(), RecordsFault>>;

    fn handle(&mut self, msg: Append, ctx: &mut Self::Context) -> Self::Result {
        let (done, answer) = oneshot::channel();
        self.waiting.push_back(Pending { batch: msg.batch, patient: msg.patient, done });
        if self.fault.is_none() {
            self.pump(ctx);
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(RecordsFault("the rig is ending".to_owned()))) })
    }
}

impl<T: Send + 'static> Handler<Recall<T>> for Outbox {
    type Result = MessageResult<Recall<T>>;

    fn handle(&mut self, msg: Recall<T>, _: &mut Self::Context) -> Self::Result {
        MessageResult((msg.0)(&self.history))
    }
}

impl Handler<RecordsState> for Outbox {
    type Result = Option<String>;

    fn handle(&mut self, _: RecordsState, _: &mut Self::Context) -> Self::Result {
        self.fault.clone()
    }
}
