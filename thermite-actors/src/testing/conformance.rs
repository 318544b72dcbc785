//! What every driver must do, tried on one: answers in time, unknown told from zero, faults that pass, releases that
//! are proved, blocks that say what disturbed them.
//!
//! A driver that brings [`Trial`] is tried by [`driver`]; what its device cannot be put into is said to be not tried.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use thermite_core::block::{ThrowCause, throw_causes};
use thermite_core::limits;
use thermite_core::readiness::{Reading, SignalState};
use thermite_core::time::Span;

use crate::ports::{BlockWatch, DeviceFault, OwnProcesses, StopProof, TargetDriver};

/// How long an answer may take, whatever the device does; far more than a driver's own limit, also on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(2 * limits::CPU_READING_MAX.as_millis() / 1_000);
/// How long the device may take to be seen as what it was put into.
const SEEN_MAX: Duration = Duration::from_secs(30);
/// Between two looks at what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a block of these trials lasts: longer than a driver may be between two samples in a block.
const BLOCK: Duration = Duration::from_millis(2 * limits::GPU_SAMPLE_IN_BLOCK_EVERY.as_millis() + 500);
/// How long a driver is given to prove a release that cannot be proved.
const RELEASE_WITHIN: Span = Span::seconds(2);

/// What a device can be put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nobody uses it and nothing is wrong.
    Quiet,
    /// Another program uses it.
    Busy,
    /// It does not tell something that it must tell to be ready.
    Untold,
    /// It is at fault, and says so.
    AtFault,
    /// It does not answer at all.
    Unresponsive,
    /// Something of a hold that is over is left on it.
    Held,
    /// The processes of [`Trial::own`] use it, and nobody else.
    OwnUse,
    /// They do, and another program beside them.
    Shared,
    /// They do, and it is slowed for heat or power.
    Slowed,
}

/// A driver on trial and the strings of its device.
pub trait Trial {
    /// The driver.
    fn driver(&self) -> Rc<dyn TargetDriver>;
    /// Puts the device into that condition, and out of the one before; false where it cannot be.
    fn put(&self, condition: Condition) -> bool;
    /// The processes of a block.
    fn own(&self) -> Arc<dyn OwnProcesses> {
        Arc::new(NoProcesses)
    }
}

/// A block without processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProcesses;

impl OwnProcesses for NoProcesses {
    fn owns(&self, _: u32) -> Option<bool> {
        Some(false)
    }

    fn live(&self) -> usize {
        0
    }
}

/// How one check came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The driver does it.
    Kept,
    /// The device cannot be put into what it takes.
    NotTried(Condition),
    /// It does not.
    Broken(String),
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What a driver must do.
    pub check: &'static str,
    /// How it came out.
    pub came: Came,
}

/// All checks, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One for each check.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The checks that did not hold.
    pub fn broken(&self) -> Vec<&'static str> {
        self.of(|came| matches!(came, Came::Broken(_)))
    }

    /// The checks that the device could not be put to.
    pub fn not_tried(&self) -> Vec<&'static str> {
        self.of(|came| matches!(came, Came::NotTried(_)))
    }

    fn of(&self, which: impl Fn(&Came) -> bool) -> Vec<&'static str> {
        self.findings.iter().filter(|finding| which(&finding.came)).map(|finding| finding.check).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { check, came } in &self.findings {
            match came {
                Came::Kept => writeln!(f, "a driver {check}: kept")?,
                Came::NotTried(condition) => writeln!(f, "a driver {check}: not tried, no {condition:?} here")?,
                Came::Broken(why) => writeln!(f, "a driver {check}: BROKEN: {why}")?,
            }
        }
        Ok(())
    }
}

/// The checks' words.
pub mod checks {
    /// Facts are complete and stay.
    pub const FACTS: &str = "says what its device is, and the same again";
    /// A quiet device is ready.
    pub const READY: &str = "finds a quiet device ready";
    /// Signals are three-valued.
    pub const THREE_VALUED: &str = "tells ok, busy and unknown apart, and unknown from zero";
    /// Readings are in order.
    pub const ORDERED: &str = "gives readings in the order of time";
    /// A busy device is not ready.
    pub const BUSY: &str = "finds a busy device not ready, with figures";
    /// Required unknown is not ready.
    pub const UNTOLD: &str = "finds a device not ready that does not tell what it must";
    /// A fault is said.
    pub const FAULT: &str = "says that its device is at fault, in words and in time";
    /// A fault is told unasked.
    pub const FAULT_TOLD: &str = "tells of a fault to whoever listens, and is silent without one";
    /// An unresponsive device does not hold it up.
    pub const UNRESPONSIVE: &str = "answers in time while its device does not";
    /// A released device is proved so.
    pub const RELEASED: &str = "proves that nothing is left on a quiet device";
    /// A held one is not.
    pub const HELD: &str = "does not prove a release while something is left, and says what";
    /// The judge's own use is no fault of a block.
    pub const OWN_USE: &str = "finds nothing wrong with a block that is alone on the device";
    /// Another program inside a block shows.
    pub const SHARED: &str = "shows that another program used the device during a block";
    /// Slowing inside a block shows.
    pub const SLOWED: &str = "shows that the device was slowed during a block";
    /// A block that was given up leaves nothing.
    pub const GIVEN_UP: &str = "forgets a block that was begun and given up";
}

enum Trouble {
    Broken(String),
    Cannot(Condition),
}

type Tried = Result<(), Trouble>;

fn broken<T>(why: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Broken(why.into()))
}

/// Tries a driver. Takes as long as its device takes to be seen as what it is; on paused time that is nothing.
pub async fn driver(trial: &dyn Trial) -> Report {
    let on = On { trial, driver: trial.driver() };
    let mut findings = Vec::new();
    let mut note = |check: &'static str, tried: Tried| {
        let came = match tried {
            Ok(()) => Came::Kept,
            Err(Trouble::Cannot(condition)) => Came::NotTried(condition),
            Err(Trouble::Broken(why)) => Came::Broken(why),
        };
        findings.push(Finding { check, came });
    };
    note(checks::FACTS, on.facts());
    note(checks::READY, on.is_ready().await);
    note(checks::THREE_VALUED, on.is_three_valued().await);
    note(checks::ORDERED, on.is_ordered().await);
    note(checks::BUSY, on.is_busy().await);
    note(checks::UNTOLD, on.is_untold().await);
    note(checks::FAULT, on.says_faults(Condition::AtFault).await);
    note(checks::FAULT_TOLD, on.tells_faults().await);
    note(checks::UNRESPONSIVE, on.says_faults(Condition::Unresponsive).await);
    note(checks::RELEASED, on.is_released().await);
    note(checks::HELD, on.is_held().await);
    note(checks::OWN_USE, on.block(Condition::OwnUse, None).await);
    note(checks::SHARED, on.block(Condition::Shared, Some(ThrowCause::OtherProgram)).await);
    note(checks::SLOWED, on.block(Condition::Slowed, Some(ThrowCause::Slowed)).await);
    note(checks::GIVEN_UP, on.gives_up().await);
    on.trial.put(Condition::Quiet);
    Report { findings }
}

/// A driver being tried.
struct On<'a> {
    trial: &'a dyn Trial,
    driver: Rc<dyn TargetDriver>,
}

impl On<'_> {
    fn put(&self, condition: Condition) -> Tried {
        if self.trial.put(condition) { Ok(()) } else { Err(Trouble::Cannot(condition)) }
    }

    async fn read(&self) -> Result<Result<Reading, DeviceFault>, Trouble> {
        match timeout(ANSWER_MAX, self.driver.read()).await {
            Ok(read) => Ok(read),
            Err(_) => broken(format!("a reading was not answered within {} s", ANSWER_MAX.as_secs())),
        }
    }

    /// Reads until the reading is what is waited for.
    async fn read_until(&self, what: &str, is_it: impl Fn(&Result<Reading, DeviceFault>) -> bool) -> Tried {
        let looks = SEEN_MAX.as_millis() / LOOK_AGAIN.as_millis();
        let mut last = None;
        for _ in 0..looks {
            let read = self.read().await?;
            if is_it(&read) {
                return Ok(());
            }
            last = Some(read);
            sleep(LOOK_AGAIN).await;
        }
        let last = match last {
            Some(Ok(reading)) => reading.not_ready().unwrap_or_else(|| "it was ready".to_owned()),
            Some(Err(fault)) => fault.to_string(),
            None => "nothing".to_owned(),
        };
        broken(format!("{what} was not seen within {} s; the last reading: {last}", SEEN_MAX.as_secs()))
    }

    async fn quiet(&self) -> Tried {
        self.put(Condition::Quiet)?;
        self.read_until("a quiet device", |read| read.as_ref().is_ok_and(|of| of.not_ready().is_none())).await
    }

    fn facts(&self) -> Tried {
        let facts = self.driver.facts();
        for (name, value) in [("uuid", &facts.uuid), ("model", &facts.model), ("driver", &facts.driver)] {
            if value.trim().is_empty() {
                return broken(format!("its {name} is empty"));
            }
        }
        if self.driver.facts() != facts {
            return broken("asked twice it says two things");
        }
        Ok(())
    }

    async fn is_ready(&self) -> Tried {
        self.quiet().await?;
        let reading = self.quiet_reading().await?;
        if !reading.signals.iter().any(|signal| signal.required) {
            return broken("no signal is required: it would be ready whatever happens");
        }
        Ok(())
    }

    async fn quiet_reading(&self) -> Result<Reading, Trouble> {
        match self.read().await? {
            Ok(reading) => Ok(reading),
            Err(fault) => broken(format!("a quiet device is at fault: {fault}")),
        }
    }

    async fn is_three_valued(&self) -> Tried {
        self.quiet().await?;
        let mut readings = vec![self.quiet_reading().await?];
        for condition in [Condition::Busy, Condition::Untold] {
            if self.trial.put(condition)
                && let Ok(reading) = self.read().await?
            {
                readings.push(reading);
            }
        }
        self.trial.put(Condition::Quiet);
        for signal in readings.iter().flat_map(|reading| &reading.signals) {
            let name = &signal.name;
            if signal.value.is_some_and(|value| !value.is_finite()) {
                return broken(format!("{name} is no figure"));
            }
            let is_over = signal.value.zip(signal.limit).map(|(value, limit)| value > limit);
            match (signal.state, is_over) {
                (SignalState::Unknown, _) if signal.value.is_some() => {
                    return broken(format!("{name} is unknown and has a figure"));
                }
                (SignalState::Ok, Some(true)) => return broken(format!("{name} is over its limit and ok")),
                (SignalState::Busy, Some(false)) => return broken(format!("{name} is within its limit and busy")),
                (SignalState::Ok | SignalState::Busy | SignalState::Unknown, _) => {}
            }
        }
        for reading in &readings {
            let mut names: Vec<&str> = reading.signals.iter().map(|signal| signal.name.as_str()).collect();
            names.sort_unstable();
            if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return broken(format!("{} is there twice", twice[0]));
            }
        }
        Ok(())
    }

    async fn is_ordered(&self) -> Tried {
        self.quiet().await?;
        let mut last = self.quiet_reading().await?;
        for _ in 0..3 {
            let next = self.quiet_reading().await?;
            let before = |reading: &Reading| (reading.at, reading.clocks.boot_ms, reading.clocks.monotonic_ms);
            let (was, is) = (before(&last), before(&next));
            if is.0 < was.0 || is.1 < was.1 || is.2 < was.2 {
                return broken(format!("a reading at {was:?} was followed by one at {is:?}"));
            }
            last = next;
        }
        Ok(())
    }

    async fn is_busy(&self) -> Tried {
        self.put(Condition::Busy)?;
        let seen = self
            .read_until("a busy device", |read| {
                let is_busy = |reading: &Reading| {
                    reading.signals.iter().any(|signal| signal.required && signal.state == SignalState::Busy)
                };
                read.as_ref().is_ok_and(|of| is_busy(of) && of.not_ready().is_some_and(|why| !why.is_empty()))
            })
            .await;
        self.quiet().await.and(seen)
    }

    async fn is_untold(&self) -> Tried {
        self.put(Condition::Untold)?;
        let seen = self
            .read_until("an untold signal", |read| {
                let is_untold = |reading: &Reading| {
                    reading.signals.iter().any(|signal| signal.required && signal.state == SignalState::Unknown)
                };
                read.as_ref().is_ok_and(|of| is_untold(of) && of.not_ready().is_some())
            })
            .await;
        self.quiet().await.and(seen)
    }

    async fn says_faults(&self, condition: Condition) -> Tried {
        self.put(condition)?;
        let said = self
            .read_until("the fault", |read| read.as_ref().is_err_and(|fault| !fault.to_string().trim().is_empty()))
            .await;
        // It passes by itself, whatever came of saying it.
        self.quiet().await.and(said)
    }

    async fn tells_faults(&self) -> Tried {
        self.quiet().await?;
        if timeout(BLOCK, self.driver.at_fault()).await.is_ok() {
            return broken("a fault was told of a device that is well");
        }
        let heard = self.driver.at_fault();
        self.put(Condition::AtFault)?;
        let told = match timeout(SEEN_MAX, heard).await {
            Ok(fault) if fault.to_string().trim().is_empty() => broken("a fault was told without words"),
            Ok(_) => Ok(()),
            Err(_) => broken(format!("a fault was not told within {} s", SEEN_MAX.as_secs())),
        };
        self.quiet().await.and(told)
    }

    async fn released(&self, within: Span) -> Result<StopProof, Trouble> {
        match timeout(within.to_std() + ANSWER_MAX, self.driver.released(within)).await {
            Ok(proof) => Ok(proof),
            Err(_) => broken(format!("a release to be proved within {within} was never answered")),
        }
    }

    async fn is_released(&self) -> Tried {
        self.quiet().await?;
        match self.released(limits::PROOF_MAX).await? {
            StopProof::Empty => Ok(()),
            StopProof::NotProved { why } => broken(format!("a quiet device is not released: {why}")),
        }
    }

    async fn is_held(&self) -> Tried {
        self.quiet().await?;
        self.put(Condition::Held)?;
        let proof = self.released(RELEASE_WITHIN).await;
        let back = self.quiet().await;
        match proof? {
            StopProof::Empty => return broken("it was proved"),
            StopProof::NotProved { why } if why.trim().is_empty() => return broken("nothing was said"),
            StopProof::NotProved { .. } => back?,
        }
        // What is gone is seen to be gone.
        self.is_released().await
    }

    /// A block in that condition: thrown for that, or for nothing.
    async fn block(&self, condition: Condition, thrown_for: Option<ThrowCause>) -> Tried {
        self.quiet().await?;
        let before = self.quiet_reading().await?;
        self.driver.block_begins(BlockWatch { own: self.trial.own(), is_first: true });
        if !self.trial.put(condition) {
            drop(self.driver.block_ends());
            return Err(Trouble::Cannot(condition));
        }
        sleep(BLOCK).await;
        self.trial.put(Condition::Quiet);
        let after = match timeout(ANSWER_MAX, self.driver.block_ends()).await {
            Ok(Ok(after)) => after,
            Ok(Err(fault)) => return broken(format!("the end of a block was answered with {fault}")),
            Err(_) => return broken("the end of a block was not answered in time"),
        };
        let causes = throw_causes(&before, &after);
        match thrown_for {
            None if causes.is_empty() => {}
            None => return broken(format!("it would be thrown for {causes:?}")),
            Some(cause) if causes.contains(&cause) => {}
            Some(cause) => return broken(format!("it would be thrown for {causes:?}, not for {cause:?}")),
        }
        // What was is over: the next block finds the device ready.
        self.quiet().await
    }

    async fn gives_up(&self) -> Tried {
        self.quiet().await?;
        let watch = || BlockWatch { own: self.trial.own(), is_first: false };
        self.driver.block_begins(watch());
        self.driver.block_begins(watch());
        // The answer to its end is for nobody.
        drop(self.driver.block_ends());
        self.quiet().await?;
        match timeout(ANSWER_MAX, self.driver.block_ends()).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => return broken(format!("an end without a beginning was answered with {fault}")),
            Err(_) => return broken("an end without a beginning was not answered"),
        }
        self.is_released().await
    }
}
