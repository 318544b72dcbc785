//! The scripted device's driver, and the strings it is pulled by.

use super::*;

use crate::ports::{BlockWatch, OwnProcesses};
use crate::testing::conformance::{Condition, Trial};

/// What the driver says of its device.
#[derive(Default)]
pub(super) struct Said {
    /// What it is busy with.
    busy: RefCell<Option<String>>,
    /// What it does not tell, and must.
    untold: RefCell<Option<String>>,
    fault: RefCell<Option<DeviceFault>>,
    unresponsive: Cell<bool>,
    changed: Notify,
    release: RefCell<Option<StopScript>>,
    /// Signals that are busy while a block is under way, and what it has seen of them.
    disturbed: RefCell<Vec<String>>,
    in_block: Cell<bool>,
}

impl Said {
    pub(super) fn reading(&self, now: Moment, wall_ms: u64) -> Reading {
        let signal = |name: &str, state: SignalState| Signal {
            name: name.to_owned(),
            value: None,
            limit: None,
            unit: String::new(),
            state,
            required: true,
        };
        let busy = self.busy.borrow();
        let state = if busy.is_some() { SignalState::Busy } else { SignalState::Ok };
        let mut signals = vec![signal(busy.as_deref().unwrap_or(names::LOAD1), state)];
        signals.extend(self.untold.borrow().iter().map(|name| signal(name, SignalState::Unknown)));
        let ms = now.as_millis();
        let clocks = Clocks { boot_ms: ms, monotonic_ms: ms, wall_ms };
        Reading { at: now, signals, throttle: Vec::new(), clocks }
    }
}

impl ScriptedDevice {
    /// Makes the device say that it is busy with that, or is quiet.
    pub fn be_busy(&self, with: Option<&str>) {
        *self.inner.said.busy.borrow_mut() = with.map(str::to_owned);
    }

    /// Makes the device keep to itself that signal, which it must tell, or tell it again.
    pub fn keep_untold(&self, signal: Option<&str>) {
        *self.inner.said.untold.borrow_mut() = signal.map(str::to_owned);
    }

    /// Puts the device at fault, or mends it.
    pub fn be_at_fault(&self, fault: Option<DeviceFault>) {
        *self.inner.said.fault.borrow_mut() = fault;
        self.inner.said.changed.notify_waiters();
    }

    /// Lets the device not answer at all, or answer again.
    pub fn be_unresponsive(&self, unresponsive: bool) {
        self.inner.said.unresponsive.set(unresponsive);
        self.inner.said.changed.notify_waiters();
    }

    /// Says how the release of the device itself goes from here on (rule A7).
    pub fn script_release(&self, script: StopScript) {
        *self.inner.said.release.borrow_mut() = Some(script);
    }

    /// Disturbs blocks that are under way by signals of those names, such as
    /// [`names::OTHER_PROGRAMS`](thermite_core::readiness::names::OTHER_PROGRAMS).
    pub fn disturb_blocks(&self, by: &[&str]) {
        *self.inner.said.disturbed.borrow_mut() = by.iter().map(|name| (*name).to_owned()).collect();
    }
}

impl TargetDriver for ScriptedDevice {
    fn facts(&self) -> DeviceFacts {
        self.inner.facts.clone()
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            inner.answered().await?;
            Ok(inner.reading())
        })
    }

    fn block_begins(&self, _: BlockWatch) {
        self.inner.said.in_block.set(true);
    }

    fn block_ends(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let was_in_block = self.inner.said.in_block.replace(false);
        let disturbed = if was_in_block { self.inner.said.disturbed.borrow().clone() } else { Vec::new() };
        let inner = self.inner.clone();
        Box::pin(async move {
            inner.answered().await?;
            let mut reading = inner.reading();
            reading.signals.extend(disturbed.into_iter().map(|name| Signal {
                name,
                value: None,
                limit: None,
                unit: String::new(),
                state: SignalState::Busy,
                required: true,
            }));
            Ok(reading)
        })
    }

    fn released(&self, within: Span) -> LocalBoxFuture<'static, StopProof> {
        let inner = self.inner.clone();
        if inner.said.release.borrow().is_some() {
            inner.note(None, Call::Release);
        }
        Box::pin(async move {
            if let Err(fault) = inner.answered().await {
                return StopProof::NotProved { why: fault.to_string() };
            }
            let script = inner.said.release.borrow().clone();
            let Some(script) = script else { return StopProof::Empty };
            match tokio::time::timeout(within.to_std(), proof_of(script)).await {
                Ok(proof) => proof,
                Err(_) => StopProof::NotProved { why: format!("the script gave no proof within {within}") },
            }
        })
    }

    fn at_fault(&self) -> LocalBoxFuture<'static, DeviceFault> {
        let inner = self.inner.clone();
        Box::pin(async move {
            loop {
                let changed = inner.said.changed.notified();
                if let Some(fault) = inner.said.fault.borrow().clone() {
                    return fault;
                }
                changed.await;
            }
        })
    }
}

impl Inner {
    /// Waits as long as a driver does, and gives the fault there is.
    async fn answered(&self) -> Result<(), DeviceFault> {
        if self.said.unresponsive.get() {
            pause(limits::GPU_CALL_MAX).await;
            if self.said.unresponsive.get() {
                return Err(DeviceFault::Hung("the scripted device does not answer".to_owned()));
            }
        }
        match &*self.said.fault.borrow() {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}

impl Trial for ScriptedDevice {
    fn driver(&self) -> Rc<dyn TargetDriver> {
        Rc::new(self.clone())
    }

    fn put(&self, condition: Condition) -> bool {
        let is = |other: Condition| condition == other;
        // What another program does in a block stays told to the block's end, when the device is quiet again.
        match condition {
            Condition::Quiet if self.inner.said.in_block.get() => {}
            Condition::Shared => self.disturb_blocks(&[names::OTHER_PROGRAMS]),
            Condition::Slowed => self.disturb_blocks(&[names::SLOWED]),
            Condition::Quiet
            | Condition::Busy
            | Condition::Untold
            | Condition::AtFault
            | Condition::Unresponsive
            | Condition::Held
            | Condition::OwnUse => self.disturb_blocks(&[]),
        }
        self.be_busy(is(Condition::Busy).then_some("another program"));
        self.keep_untold(is(Condition::Untold).then_some(names::TEMPERATURE));
        self.be_unresponsive(is(Condition::Unresponsive));
        self.be_at_fault(is(Condition::AtFault).then(|| DeviceFault::Lost("the scripted device is lost".to_owned())));
        let held = StopScript::NotProvedAfter(Span::seconds(1), "the device lists pid 4711".to_owned());
        self.script_release(if is(Condition::Held) { held } else { StopScript::ProvedAfter(Span::ZERO) });
        true
    }

    fn own(&self) -> std::sync::Arc<dyn OwnProcesses> {
        std::sync::Arc::new(crate::testing::conformance::NoProcesses)
    }
}
