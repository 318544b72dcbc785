//! The bus within one process: the same interface, with nothing between a core and its runners (rule E15).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use tokio::sync::Notify;

use thermite_core::ids::RunId;
use thermite_core::limits;
use thermite_core::wire::{Answer, Ask, ProcessName};

use crate::ports::{BringFault, LinkFault, RunnerLink};
use crate::slot::Slots;

/// A link straight to runners of this process; a handle of it.
#[derive(Clone, Default)]
pub struct InProcessLink {
    processes: Rc<RefCell<BTreeMap<ProcessName, Process>>>,
}

#[derive(Default)]
struct Process {
    slots: Option<Slots>,
    hints: Rc<Notify>,
}

impl InProcessLink {
    /// Lets that process's runners be asked from here on.
    pub fn connect(&self, name: ProcessName, slots: Slots) {
        self.processes.borrow_mut().entry(name).or_default().slots = Some(slots);
    }

    /// Takes them off again.
    pub fn disconnect(&self, name: &ProcessName) {
        if let Some(process) = self.processes.borrow_mut().get_mut(name) {
            process.slots = None;
        }
    }

    /// What that process's runners hint by.
    pub fn hint(&self, name: &ProcessName) -> Rc<dyn Fn()> {
        let hints = self.hints(name);
        Rc::new(move || hints.notify_waiters())
    }

    fn hints(&self, name: &ProcessName) -> Rc<Notify> {
        Rc::clone(&self.processes.borrow_mut().entry(name.clone()).or_default().hints)
    }
}

impl RunnerLink for InProcessLink {
    fn ask(&self, to: &ProcessName, ask: Ask) -> LocalBoxFuture<'static, Result<Answer, LinkFault>> {
        let slots = self.processes.borrow().get(to).and_then(|process| process.slots.clone());
        Box::pin(async move {
            let Some(slots) = slots else { return Err(LinkFault::NoAnswer) };
            let answer = tokio::time::timeout(limits::RUNNER_ASK_MAX.to_std(), slots.answer(ask)).await;
            answer.map_err(|_| LinkFault::NoAnswer)
        })
    }

    fn is_up(&self) -> bool {
        true
    }

    fn hinted(&self, to: &ProcessName) -> LocalBoxFuture<'static, ()> {
        let hints = self.hints(to);
        Box::pin(async move { hints.notified().await })
    }

    fn bring(&self, _: &ProcessName, _: RunId, _: Vec<String>) -> LocalBoxFuture<'static, Result<(), BringFault>> {
        // Core and runner have one store.
        Box::pin(std::future::ready(Ok(())))
    }
}
