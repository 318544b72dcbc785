//! A log in memory that can be slow, full, or cut off by a death.

use std::cell::{Cell, RefCell};

use futures_util::future::LocalBoxFuture;

use thermite_core::ended::Ended;
use thermite_core::log::LogEntry;
use thermite_core::record::{AttemptAudit, VerdictRecord};
use thermite_core::time::Span;

use crate::ports::{Batch, Checkpoint, FromRecords, Past, Records, RecordsFault, WhichEnded};

/// The log of one or more lives of a rig. It outlives the system it is used in, so that a rig that was killed can be
/// started again over what it left.
#[derive(Default)]
pub struct MemoryRecords {
    entries: RefCell<Vec<LogEntry>>,
    records: RefCell<Vec<VerdictRecord>>,
    audits: RefCell<Vec<AttemptAudit>>,
    ended: RefCell<Vec<Ended>>,
    checkpoint: RefCell<Option<Checkpoint>>,
    latency: Cell<Span>,
    fault: RefCell<Option<String>>,
    appends: Cell<u64>,
    dies_at: Cell<Option<Death>>,
    dead: Cell<bool>,
}

/// At which append the machine dies, and on which side of it.
#[derive(Clone, Copy)]
struct Death {
    append: u64,
    durable: bool,
}

impl MemoryRecords {
    /// An empty log that takes everything at once.
    pub fn new() -> MemoryRecords {
        MemoryRecords::default()
    }

    /// A log with this past.
    pub fn with(entries: Vec<LogEntry>) -> MemoryRecords {
        let mut history = thermite_core::fold::RigHistory::default();
        let mut ended = Vec::new();
        for entry in &entries {
            ended.extend(history.ended_by(std::slice::from_ref(entry)));
            history.apply(entry.clone());
        }
        MemoryRecords { entries: RefCell::new(entries), ended: RefCell::new(ended), ..MemoryRecords::default() }
    }

    /// Where in the log the newest checkpoint is.
    pub fn checkpoint_at(&self) -> Option<u64> {
        self.checkpoint.borrow().as_ref().map(|checkpoint| checkpoint.position)
    }

    /// All entries in order.
    pub fn entries(&self) -> Vec<LogEntry> {
        self.entries.borrow().clone()
    }

    /// All closed verdict records in order.
    pub fn verdict_records(&self) -> Vec<VerdictRecord> {
        self.records.borrow().clone()
    }

    /// The raw figures of all void attempts in order.
    pub fn audits(&self) -> Vec<AttemptAudit> {
        self.audits.borrow().clone()
    }

    /// How many appends were asked for in this life, probes of a full disk included.
    pub fn appends(&self) -> u64 {
        self.appends.get()
    }

    /// Makes each append take that long from here on.
    pub fn take(&self, latency: Span) {
        self.latency.set(latency);
    }

    /// Refuses every append with that sentence, until [`MemoryRecords::mend`].
    pub fn refuse(&self, why: &str) {
        *self.fault.borrow_mut() = Some(why.to_owned());
    }

    /// Takes appends again.
    pub fn mend(&self) {
        *self.fault.borrow_mut() = None;
    }

    /// Has the machine die at the append of that number, from 1, of this life: nothing is answered from then on. The
    /// append itself is kept where it is to be `durable`.
    pub fn die_at(&self, append: u64, durable: bool) {
        self.dies_at.set(Some(Death { append, durable }));
    }

    /// Whether the death has come.
    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Begins another life over the same entries.
    pub fn revive(&self) {
        self.appends.set(0);
        self.dies_at.set(None);
        self.dead.set(false);
        self.mend();
    }

    fn keep(&self, batch: Batch) {
        self.entries.borrow_mut().extend(batch.entries);
        self.records.borrow_mut().extend(batch.records);
        self.audits.borrow_mut().extend(batch.audits);
        self.ended.borrow_mut().extend(batch.ended);
    }
}

impl Records for MemoryRecords {
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.appends.set(self.appends.get() + 1);
        if let Some(death) = self.dies_at.get()
            && death.append == self.appends.get()
        {
            self.dead.set(true);
            if death.durable {
                self.keep(batch);
            }
            return Box::pin(std::future::pending());
        }
        if self.dead.get() {
            return Box::pin(std::future::pending());
        }
        let latency = self.latency.get();
        let answer = match &*self.fault.borrow() {
            Some(why) => Err(RecordsFault(why.clone())),
            None => Ok(()),
        };
        if answer.is_ok() {
            self.keep(batch);
        }
        Box::pin(async move {
            if latency > Span::ZERO {
                tokio::time::sleep(latency.to_std()).await;
            }
            answer
        })
    }

    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>> {
        let checkpoint = self.checkpoint.borrow().clone();
        let from = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.position as usize);
        let entries = self.entries.borrow()[from..].to_vec();
        Box::pin(std::future::ready(Ok(Past { checkpoint, entries })))
    }

    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>> {
        Box::pin(std::future::ready(Ok(FromRecords::Kept(which.among(&self.ended.borrow())))))
    }

    fn checkpoint(&self, checkpoint: Checkpoint) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        *self.checkpoint.borrow_mut() = Some(checkpoint);
        Box::pin(std::future::ready(Ok(())))
    }
}
