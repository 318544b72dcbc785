//! What a supervisor and its harness say to each other. Both come from one release; the version byte tells where not.
//!
//! What carries tags that a binary form cannot travels as [`Document`], the JSON that records keep it as.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use thermite_actors::ports::{DeviceFacts, DeviceFault, Launched, StopProof};
use thermite_core::contract::Target;
use thermite_core::dev_run::Exit;
use thermite_core::limits;
use thermite_core::time::Span;
use thermite_core::wire::Document;

use crate::bus::codec::Codec;

/// Raised with every change that the version before cannot read.
const HARNESS_VERSION: u8 = 1;

/// The frames between them.
pub(super) const FRAMES: Codec<{ limits::HARNESS_FRAME_BYTES_MAX }> = Codec::new(HARNESS_VERSION);

/// A supervisor's first words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The rig it works for.
    pub(super) rig: String,
}

/// A harness's first words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Welcome {
    /// Nothing runs here, proved; these are the devices.
    Devices(Vec<DeviceSaid>),
    /// Not now.
    NotNow {
        /// Why.
        why: String,
    },
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceSaid {
    pub(super) target: Target,
    pub(super) uuid: String,
    pub(super) model: String,
    pub(super) driver: String,
    pub(super) clock_policy: String,
    pub(super) cpus: String,
    pub(super) cores: u32,
    pub(super) containment: Option<String>,
    pub(super) index: Option<u32>,
}

impl DeviceSaid {
    pub(super) fn new(facts: DeviceFacts, containment: Option<String>, index: Option<u32>) -> DeviceSaid {
        let DeviceFacts { target, uuid, model, driver, clock_policy, cpus, cores } = facts;
        DeviceSaid { target, uuid, model, driver, clock_policy, cpus, cores, containment, index }
    }

    pub(super) fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            target: self.target,
            uuid: self.uuid.clone(),
            model: self.model.clone(),
            driver: self.driver.clone(),
            clock_policy: self.clock_policy.clone(),
            cpus: self.cpus.clone(),
            cores: self.cores,
        }
    }
}

/// What a supervisor asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Its number: the answer names it.
    pub(super) number: u64,
    /// Which device, from 0.
    pub(super) device: u16,
    /// What.
    pub(super) what: Ask,
}

/// What is asked of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Nothing: the supervisor is there, and wants to know the same.
    Alive,
    /// [`Executor::sweep`](thermite_actors::ports::Executor::sweep).
    Sweep,
    /// `Executor::start`, with its `DevRunSpec`.
    Start { hold: u64, spec: Document },
    /// `Executor::exited`.
    Exited { hold: u64 },
    /// `Executor::stop`.
    Stop { hold: u64, gently: bool },
    /// `Executor::step`, with its `JobSpec`, stage, attempt and step.
    Step { hold: u64, stage: Document, step: Document },
    /// `Executor::end_leftovers`.
    EndLeftovers,
    /// `TargetDriver::read`.
    Read,
    /// `TargetDriver::released`.
    Released { within: Span },
    /// `TargetDriver::at_fault`.
    AtFault,
}

/// A harness's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    /// The number of what was asked.
    pub(super) number: u64,
    /// What it says.
    pub(super) what: Answer,
}

/// What a device's executor or driver says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// To `Alive`.
    Alive,
    /// To `Sweep`, `Stop`, `EndLeftovers` and `Released`: why it is not proved, where it is not.
    Proof { not_proved: Option<String> },
    /// To `Start`.
    Started(Result<LaunchedSaid, String>),
    /// To `Exited`.
    Exited(Exit),
    /// To `Step`: the `StepReport`.
    Reported(Document),
    /// To `Read`: the `Reading`.
    Read(Result<Document, FaultSaid>),
    /// To `AtFault`.
    AtFault(FaultSaid),
    /// It could not be read, or there is no such device.
    NotUnderstood(String),
}

/// A run that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchedSaid {
    pub(super) pid: u32,
    pub(super) containment: String,
}

impl From<Launched> for LaunchedSaid {
    fn from(Launched { pid, containment }: Launched) -> LaunchedSaid {
        LaunchedSaid { pid, containment }
    }
}

impl From<LaunchedSaid> for Launched {
    fn from(LaunchedSaid { pid, containment }: LaunchedSaid) -> Launched {
        Launched { pid, containment }
    }
}

/// A device's fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FaultSaid {
    Lost(String),
    Hung(String),
    Mismatch(String),
    AccessLost(String),
    Mig(String),
    Other(String),
}

impl From<DeviceFault> for FaultSaid {
    fn from(fault: DeviceFault) -> FaultSaid {
        match fault {
            DeviceFault::Lost(why) => FaultSaid::Lost(why),
            DeviceFault::Hung(why) => FaultSaid::Hung(why),
            DeviceFault::Mismatch(why) => FaultSaid::Mismatch(why),
            DeviceFault::AccessLost(why) => FaultSaid::AccessLost(why),
            DeviceFault::Mig(why) => FaultSaid::Mig(why),
            DeviceFault::Other(why) => FaultSaid::Other(why),
        }
    }
}

impl From<FaultSaid> for DeviceFault {
    fn from(fault: FaultSaid) -> DeviceFault {
        match fault {
            FaultSaid::Lost(why) => DeviceFault::Lost(why),
            FaultSaid::Hung(why) => DeviceFault::Hung(why),
            FaultSaid::Mismatch(why) => DeviceFault::Mismatch(why),
            FaultSaid::AccessLost(why) => DeviceFault::AccessLost(why),
            FaultSaid::Mig(why) => DeviceFault::Mig(why),
            FaultSaid::Other(why) => DeviceFault::Other(why),
        }
    }
}

impl From<StopProof> for Answer {
    fn from(proof: StopProof) -> Answer {
        match proof {
            StopProof::Empty => Answer::Proof { not_proved: None },
            StopProof::NotProved { why } => Answer::Proof { not_proved: Some(why) },
        }
    }
}

/// As the records keep it.
pub(super) fn document<T: Serialize>(what: &T) -> Result<Document, String> {
    serde_json::to_string(what).map(Document).map_err(|error| error.to_string())
}

/// What a document says.
pub(super) fn read<T: DeserializeOwned>(document: &Document) -> Result<T, String> {
    serde_json::from_str(&document.0).map_err(|error| error.to_string())
}
