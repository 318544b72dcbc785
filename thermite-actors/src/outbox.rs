//! The outbox: what leaves the rig waits here until the records have it (rule D7).
//!
//! One append is under way at a time, and everything that came meanwhile goes into the next: group commit. While the
//! records cannot be written the pool grants nothing, the patient appends are kept and tried again, and the others are
//! told so. Every so many entries it hands the records a checkpoint of the fold, so that the next start is short.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, error, info, warn};

use thermite_core::blame::blame;
use thermite_core::block::TriedBlock;
use thermite_core::fold::RigHistory;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::pool::PoolInput;
use thermite_core::record::NoiseSource;

use crate::events::Events;
use crate::pool::{PoolActor, ToPool};
use crate::ports::{Batch, Checkpoint, Records, RecordsFault};
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

/// Says why the disk has too little room for new work, or that it has enough.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct DiskRoom(pub(crate) Option<String>);

struct Pending {
    batch: Batch,
    patient: bool,
    done: oneshot::Sender<Result<(), RecordsFault>>,
}

/// The outbox of a rig.
pub(crate) struct Outbox {
    records: Rc<dyn Records>,
    history: RigHistory,
    /// How many entries the log has.
    position: u64,
    /// How many of them the newest checkpoint holds, or the one that is being written.
    checked: u64,
    checkpointing: bool,
    events: Rc<Events>,
    pool: Addr<PoolActor>,
    waiting: VecDeque<Pending>,
    under_way: bool,
    fault: Option<String>,
    /// Why the disk has too little room for new work, where it has.
    no_room: Option<String>,
}

impl Outbox {
    pub(crate) fn new(
        records: Rc<dyn Records>,
        checked: u64,
        past: Checkpoint,
        events: Rc<Events>,
        pool: Addr<PoolActor>,
    ) -> Outbox {
        let Checkpoint { position, history } = past;
        Outbox {
            records,
            history,
            position,
            checked,
            checkpointing: false,
            events,
            pool,
            waiting: VecDeque::new(),
            under_way: false,
            fault: None,
            no_room: None,
        }
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
        whole.ended = self.history.ended_by(&whole.entries);
        let append = self.records.append(whole).into_actor(self);
        ctx.spawn(append.map(move |answer, outbox, ctx| {
            outbox.under_way = false;
            match answer {
                Ok(()) => outbox.appended(batches, ctx),
                Err(fault) => outbox.failed(batches, &fault, ctx),
            }
            if outbox.fault.is_none() {
                outbox.pump(ctx);
            }
        }));
    }

    fn appended(&mut self, batches: Vec<Pending>, ctx: &mut Context<Self>) {
        if self.fault.take().is_some() {
            info!("the records can be written again");
            self.tell_pool();
        }
        for pending in batches {
            for entry in pending.batch.entries {
                debug!(?entry, "recorded");
                self.history.apply(entry.clone());
                self.position += 1;
                self.events.tell(RigHappening::Recorded { fact: Arc::new(entry) });
            }
            // An asker that went away has no use for the answer.
            drop(pending.done.send(Ok(())));
        }
        self.check_in(ctx);
    }

    /// Hands the records a checkpoint where one is due. With much open work a checkpoint is large, and comes the rarer.
    fn check_in(&mut self, ctx: &mut Context<Self>) {
        let every = limits::CHECKPOINT_EVERY.max(self.history.open() as u64);
        if self.checkpointing || self.position - self.checked < every {
            return;
        }
        self.checkpointing = true;
        self.checked = self.position;
        let checkpoint = Checkpoint { position: self.position, history: self.history.clone() };
        let kept = self.records.checkpoint(checkpoint).into_actor(self);
        ctx.spawn(kept.map(|kept, outbox, _| {
            outbox.checkpointing = false;
            if let Err(fault) = kept {
                // The log has it all: the next start is longer, and the next checkpoint is due as ever.
                warn!(%fault, "no checkpoint of the log was written");
            }
        }));
    }

    /// What disturbed the attempts that a batch ends is a fact as they are, in the same batch.
    fn with_blame(&self, mut batch: Batch) -> Batch {
        let records = batch.records.iter().map(|record| {
            let noise_blocks: &[TriedBlock] = match &record.noise {
                NoiseSource::Measured { blocks, .. } => blocks,
                NoiseSource::Kept { .. } => &[],
            };
            (&record.facts, noise_blocks.iter().chain(&record.blocks))
        });
        let audits = batch.audits.iter().map(|audit| (&audit.facts, audit.noise_blocks.iter().chain(&audit.blocks)));
        let attempts = records.chain(audits);
        let beside = self.events.beside();
        let blamed: Vec<_> = attempts.flat_map(|(facts, blocks)| blame(&facts.on.uuid, blocks, &beside)).collect();
        drop(beside);
        if !blamed.is_empty() {
            batch.entries.push(LogEntry::BlocksDisturbed { blamed });
        }
        batch
    }

    fn tell_pool(&self) {
        self.pool.do_send(ToPool(PoolInput::Recording(self.fault.is_none())));
    }

    fn failed(&mut self, batches: Vec<Pending>, fault: &RecordsFault, ctx: &mut Context<Self>) {
        let is_news = self.fault.is_none();
        self.fault = Some(fault.0.clone());
        if is_news {
            error!(%fault, "the records cannot be written; nothing is granted until they can");
            self.tell_pool();
        }
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
        let batch = self.with_blame(msg.batch);
        self.waiting.push_back(Pending { batch, patient: msg.patient, done });
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
        self.fault.clone().or_else(|| self.no_room.clone())
    }
}

impl Handler<DiskRoom> for Outbox {
    type Result = ();

    fn handle(&mut self, msg: DiskRoom, _: &mut Self::Context) {
        match (&self.no_room, &msg.0) {
            (None, Some(why)) => error!(%why, "no new work is taken until there is room"),
            (Some(_), None) => info!("the disk has room again: new work is taken"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let is_news = self.no_room.is_none() != msg.0.is_none();
        self.no_room = msg.0;
        if is_news {
            self.pool.do_send(ToPool(PoolInput::Room(self.no_room.is_none())));
        }
    }
}
