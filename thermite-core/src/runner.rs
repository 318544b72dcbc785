//! The shape of a runner: one remote device as its core sees it (rules E8 to E14).
//!
//! A runner says the same words to the pool as a local device ([`crate::device::MemberEvent`]), so that pool, judge
//! queue and lanes do not know the difference. Its machine (checks, tickets, leases) comes with the bus; here are its
//! states and the closed list of reasons why one takes no runs, which views and settings share already.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::contract::Target;
use crate::hold::StopCause;
use crate::ids::Holder;
use crate::time::Moment;

mod bus;
mod journal;
mod machine;
mod slot;
mod words;

pub use bus::Bus;
pub use journal::JournalLine;
pub use machine::Runner;
pub use slot::{Heard, Slot, SlotEffect, SlotInput};
pub use words::{AskFault, Question, RunnerEffect, RunnerInput};

/// A runner as its core sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum RunnerState {
    /// Nothing is known of it since the core started: what runs there is stopped before it gets anything (rule E17).
    Reconciling,
    /// It answers and is free.
    Ready {
        /// When its last answer came.
        answered: Moment,
    },
    /// It works under a hold.
    Busy {
        /// The hold's number.
        number: u64,
        /// For whom.
        by: Holder,
        /// When its last answer came.
        answered: Moment,
        /// Why it is being stopped, where it is.
        stop: Option<StopCause>,
    },
    /// It answers and cannot take runs.
    Unfit {
        /// Why.
        why: WhyNot,
    },
    /// It missed two checks in a row (rule E11).
    Away {
        /// When what it ran may be handed on: its lease is over by then, whatever it does.
        hand_on: Moment,
    },
}

/// Why a runner that answers takes no runs: a closed list (rules E9, B10).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum WhyNot {
    /// It measures on another kind of target than the rig.
    OtherTarget {
        /// What it has.
        has: Target,
        /// What the rig measures on.
        wants: Target,
    },
    /// Its device is another model than the first judging one's.
    OtherModel {
        /// What it has.
        has: String,
        /// What the rig measures on.
        wants: String,
    },
    /// Its process serves fewer runners than it is given pools: all of it waits.
    TooManyPools {
        /// How many it is given.
        pools: u32,
        /// How many it serves.
        serves: u32,
    },
    /// Its process serves more runners than it is given pools: this one stays idle.
    NoPool,
    /// It speaks another version of the wire.
    OtherWire {
        /// Its version.
        has: u32,
        /// The core's.
        wants: u32,
    },
    /// It finishes what it has and takes nothing more.
    Drained,
    /// Its disk is below the floor.
    DiskFull,
    /// It says itself that it cannot.
    Unable {
        /// Its words.
        says: String,
    },
}

impl RunnerState {
    /// Whether the pool may grant it.
    pub fn takes_runs(&self) -> bool {
        matches!(self, RunnerState::Ready { .. })
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::OtherTarget { has, wants } => write!(f, "it measures on {has}; this rig on {wants}"),
            WhyNot::OtherModel { has, wants } => write!(f, "its device is {has}; this rig measures on {wants}"),
            WhyNot::TooManyPools { pools, serves } => {
                write!(f, "it is given {pools} pools and serves {serves} runners; give it as many as it serves")
            }
            WhyNot::NoPool => f.write_str("it is given no pool"),
            WhyNot::OtherWire { has, wants } => write!(f, "it speaks wire version {has}; the core speaks {wants}"),
            WhyNot::Drained => f.write_str("it is drained; undrain it to give it runs again"),
            WhyNot::Unable { says } => f.write_str(says),
            WhyNot::DiskFull => f.write_str("its disk is full; it takes runs again when there is room"),
        }
    }
}
