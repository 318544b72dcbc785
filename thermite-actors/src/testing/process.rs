//! A runner process without a machine: its runners over scripted devices, on a link within this process. It can die with
//! all that it runs and come back, and be cut off.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use uuid::Uuid;

use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{DevRunId, LaneId, MemberId};
use thermite_core::runner::JournalLine;
use thermite_core::wire::ProcessName;

use crate::in_process::InProcessLink;
use crate::ports::{Clock, FreshCopies, Journal, LaneChanges, OutputSlice, Outputs, RecordsFault, RemoteOutputs};
use crate::slot::{EndSlot, SlotActor, SlotPorts, Slots};

use super::ScriptedDevice;

/// A journal in memory, which outlives its runner's process.
#[derive(Default)]
pub struct MemoryJournal {
    lines: RefCell<Vec<JournalLine>>,
    refuses: RefCell<Option<String>>,
}

impl MemoryJournal {
    /// All that is written down.
    pub fn lines(&self) -> Vec<JournalLine> {
        self.lines.borrow().clone()
    }

    /// Refuses whatever is to be written, or takes it again.
    pub fn refuse(&self, why: Option<&str>) {
        *self.refuses.borrow_mut() = why.map(str::to_owned);
    }

    fn write(&self, lines: Vec<JournalLine>, anew: bool) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let refused = self.refuses.borrow().clone();
        if refused.is_none() {
            let mut known = self.lines.borrow_mut();
            if anew {
                known.clear();
            }
            known.extend(lines);
        }
        Box::pin(std::future::ready(refused.map_or(Ok(()), |why| Err(RecordsFault(why)))))
    }
}

impl Journal for MemoryJournal {
    fn load(&self) -> LocalBoxFuture<'static, Result<Vec<JournalLine>, RecordsFault>> {
        Box::pin(std::future::ready(Ok(self.lines())))
    }

    fn append(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.write(lines, false)
    }

    fn replace(&self, lines: Vec<JournalLine>) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.write(lines, true)
    }
}

/// Outputs in memory: on a runner, what its runs wrote; on a core, what was pulled of it.
#[derive(Default)]
pub struct MemoryOutputs {
    kept: RefCell<BTreeMap<DevRunId, (Vec<u8>, bool)>>,
}

impl MemoryOutputs {
    /// What is there of a run's output, and whether nothing more will come.
    pub fn of(&self, dev_run: DevRunId) -> Option<(Vec<u8>, bool)> {
        self.kept.borrow().get(&dev_run).cloned()
    }
}

impl RemoteOutputs for MemoryOutputs {
    fn taken(&self, dev_run: DevRunId) -> u64 {
        self.kept.borrow().get(&dev_run).map_or(0, |(bytes, _)| bytes.len() as u64)
    }

    fn take(&self, dev_run: DevRunId, slice: OutputSlice) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let mut kept = self.kept.borrow_mut();
        let (bytes, complete) = kept.entry(dev_run).or_default();
        if slice.offset == bytes.len() as u64 {
            bytes.extend(slice.bytes);
        }
        *complete |= slice.complete && bytes.len() as u64 == slice.total;
        Box::pin(std::future::ready(Ok(())))
    }

    fn end(&self, dev_run: DevRunId) {
        self.kept.borrow_mut().entry(dev_run).or_default().1 = true;
    }
}

/// Every run of a scripted device writes its own id, and nothing more.
struct OwnIds;

impl Outputs for OwnIds {
    fn read(&self, dev_run: DevRunId, offset: u64, most: usize) -> Option<OutputSlice> {
        let all = dev_run.to_string().into_bytes();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let to = from.saturating_add(most).min(all.len());
        Some(OutputSlice {
            bytes: all[from..to].to_vec(),
            offset: from as u64,
            total: all.len() as u64,
            cut: 0,
            complete: true,
        })
    }
}

/// Commits that are words: a lane's tree is one, and laid out in a folder of its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordsForCommits;

impl LaneChanges for WordsForCommits {
    fn commit_of(&self, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<String, String>> {
        Box::pin(std::future::ready(Ok(format!("tree-of-{}", spec.lane.number()))))
    }
}

impl FreshCopies for WordsForCommits {
    fn lay_out(
        &self,
        dev_run: DevRunId,
        _: LaneId,
        commit: String,
    ) -> LocalBoxFuture<'static, Result<PathBuf, String>> {
        Box::pin(std::future::ready(Ok(PathBuf::from(format!("/copies/{dev_run}/{commit}")))))
    }

    fn discard(&self, _: DevRunId) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A runner process, one runner a scripted device.
pub struct ScriptedProcess {
    name: ProcessName,
    link: InProcessLink,
    clock: Rc<dyn Clock>,
    runners: Vec<(ScriptedDevice, Rc<MemoryJournal>)>,
    boots: Cell<u128>,
    lives: RefCell<Option<Slots>>,
    slots: RefCell<Vec<Addr<SlotActor>>>,
}

impl ScriptedProcess {
    /// A process that is not started yet.
    pub fn new(
        name: ProcessName,
        link: InProcessLink,
        clock: Rc<dyn Clock>,
        devices: Vec<ScriptedDevice>,
    ) -> ScriptedProcess {
        let runners = devices.into_iter().map(|device| (device, Rc::default())).collect();
        let (lives, slots) = (RefCell::default(), RefCell::default());
        ScriptedProcess { name, link, clock, runners, boots: Cell::new(1), lives, slots }
    }

    /// The journal of a runner, from slot 1 on.
    pub fn journal(&self, slot: usize) -> Rc<MemoryJournal> {
        Rc::clone(&self.runners[slot - 1].1)
    }

    /// Starts it: another boot, over the journals there are.
    pub async fn start(&self) {
        let boot = Uuid::from_u128(self.boots.get());
        self.boots.set(self.boots.get() + 1);
        let serves = u16::try_from(self.runners.len()).expect("a process serves few runners");
        let mut slots = Vec::new();
        for (number, (device, journal)) in (1..).zip(&self.runners) {
            let ports = device.ports(MemberId(number));
            let ports = SlotPorts {
                number,
                serves,
                boot,
                clock: Rc::clone(&self.clock),
                driver: ports.driver,
                executor: ports.executor,
                outputs: Rc::new(OwnIds),
                journal: Rc::clone(journal) as Rc<dyn Journal>,
                copies: Rc::new(WordsForCommits),
                hint: self.link.hint(&self.name),
            };
            slots.push(SlotActor::load(ports).await.expect("a journal in memory is read").start());
        }
        self.slots.replace(slots.clone());
        let slots = Slots::new(boot, slots);
        self.lives.replace(Some(slots.clone()));
        self.link.connect(self.name.clone(), slots);
    }

    /// Its process dies: nothing is answered or done any more.
    pub fn die(&self) {
        self.link.disconnect(&self.name);
        self.lives.replace(None);
        for slot in self.slots.take() {
            slot.do_send(EndSlot);
        }
    }

    /// Nothing comes through to it, or comes through again; it goes on as its lease says.
    pub fn cut_off(&self, is_cut: bool) {
        match (is_cut, self.lives.borrow().clone()) {
            (false, Some(slots)) => self.link.connect(self.name.clone(), slots),
            (true, _) | (false, None) => self.link.disconnect(&self.name),
        }
    }
}
