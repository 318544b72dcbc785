//! Who disturbed which blocks (rule D3): the thrown blocks of an attempt by cause, and whose command ran beside them.
//!
//! A lane is named only where its development run alone ran during the block, and only for causes that a program can
//! bring about. That is as far as it can be told from outside: what ran beside a block need not have disturbed it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::block::{ThrowCause, TriedBlock};
use crate::device::DeviceView;
use crate::ids::{HoldId, Holder, LaneId, MemberId};
use crate::time::Moment;

/// Why a block was thrown away, without its particulars: a closed list that can be counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// A CPU quota held the judge back.
    Throttled,
    /// The device was slowed for heat or power.
    Slowed,
    /// Another program used the device.
    OtherProgram,
    /// What was measured did not run on the granted device.
    Elsewhere,
    /// The wall clock stepped.
    ClockStepped,
    /// The machine slept.
    Slept,
    /// The measured process died of infrastructure.
    ProcessLost,
}

impl Disturbance {
    /// All of them, in the order they are shown in.
    pub const ALL: [Disturbance; 7] = [
        Disturbance::Throttled,
        Disturbance::Slowed,
        Disturbance::OtherProgram,
        Disturbance::Elsewhere,
        Disturbance::ClockStepped,
        Disturbance::Slept,
        Disturbance::ProcessLost,
    ];

    /// The name that records and figures use.
    pub const fn name(self) -> &'static str {
        match self {
            Disturbance::Throttled => "throttled",
            Disturbance::Slowed => "slowed",
            Disturbance::OtherProgram => "other_program",
            Disturbance::Elsewhere => "elsewhere",
            Disturbance::ClockStepped => "clock_stepped",
            Disturbance::Slept => "slept",
            Disturbance::ProcessLost => "process_lost",
        }
    }

    /// Whether a program beside the block can have brought it about.
    pub const fn is_by_a_program(self) -> bool {
        match self {
            Disturbance::Throttled | Disturbance::Slowed | Disturbance::OtherProgram => true,
            Disturbance::Elsewhere | Disturbance::ClockStepped | Disturbance::Slept | Disturbance::ProcessLost => false,
        }
    }
}

impl From<&ThrowCause> for Disturbance {
    fn from(cause: &ThrowCause) -> Disturbance {
        match cause {
            ThrowCause::Throttled { .. } => Disturbance::Throttled,
            ThrowCause::Slowed => Disturbance::Slowed,
            ThrowCause::OtherProgram => Disturbance::OtherProgram,
            ThrowCause::Elsewhere => Disturbance::Elsewhere,
            ThrowCause::ClockStepped => Disturbance::ClockStepped,
            ThrowCause::Slept => Disturbance::Slept,
            ThrowCause::ProcessLost => Disturbance::ProcessLost,
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Disturbance::Throttled => "a CPU quota held the judge back",
            Disturbance::Slowed => "the device was slowed for heat or power",
            Disturbance::OtherProgram => "another program used the device",
            Disturbance::Elsewhere => "what was measured was not seen on the granted device",
            Disturbance::ClockStepped => "the wall clock stepped",
            Disturbance::Slept => "the machine slept",
            Disturbance::ProcessLost => "a measured process died of infrastructure",
        })
    }
}

/// What disturbed, where, and beside whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Blame {
    /// The device's UUID.
    pub device: String,
    /// The cause.
    pub cause: Disturbance,
    /// The lane whose development run alone ran beside the blocks; none where none did, or several.
    pub lane: Option<LaneId>,
}

/// How many blocks were thrown away for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Blamed {
    /// What, where, beside whom.
    #[serde(flatten)]
    pub blame: Blame,
    /// In how many blocks; one that was thrown away for several causes counts for each.
    pub blocks: u64,
}

/// Whose development runs ran when, as far back as an attempt may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Beside {
    running: BTreeMap<MemberId, (HoldId, LaneId, Moment)>,
    over: Vec<(LaneId, Moment, Moment)>,
}

/// Development runs that are over and may still have run beside a block of an attempt under way. An attempt of hours
/// beside thousands of short runs loses the oldest: its blocks from then have nobody beside them.
const OVER_KEPT: usize = 4_096;

impl Beside {
    /// A device stands so from here on. A run is beside blocks from its start (exec) until nothing is left of it: one
    /// whose hold was burnt, or that is still being prepared, is beside nothing.
    pub fn stands(&mut self, device: MemberId, view: &DeviceView, now: Moment) {
        let has = match view {
            DeviceView::Held { hold, by: Holder::Lane(lane), running_since: Some(since), .. } => {
                Some((*hold, *lane, *since))
            }
            // What began is beside blocks until it is proved gone.
            DeviceView::Stopping { hold, .. } => self.running.get(&device).copied().filter(|held| held.0 == *hold),
            DeviceView::Held { .. }
            | DeviceView::Sweeping
            | DeviceView::Ready
            | DeviceView::Out { .. }
            | DeviceView::Quarantined { .. } => None,
        };
        if let Some((hold, ..)) = self.running.get(&device)
            && has.is_none_or(|now_has| now_has.0 != *hold)
        {
            self.is_over(device, now);
        }
        if let Some(has) = has {
            self.running.insert(device, has);
        }
    }

    fn is_over(&mut self, device: MemberId, now: Moment) {
        let Some((_, lane, from)) = self.running.remove(&device) else { return };
        if self.over.len() == OVER_KEPT {
            self.over.remove(0);
        }
        self.over.push((lane, from, now));
    }

    /// The one lane that ran between two moments; none where none did, or several.
    fn alone(&self, from: Moment, until: Moment) -> Option<LaneId> {
        let over = self.over.iter().filter(|(_, began, ended)| *began < until && *ended > from).map(|(lane, ..)| *lane);
        let running = self.running.values().filter(|(.., began)| *began < until).map(|(_, lane, _)| *lane);
        let lanes: BTreeSet<LaneId> = over.chain(running).collect();
        let mut lanes = lanes.into_iter();
        lanes.next().filter(|_| lanes.next().is_none())
    }
}

/// What disturbed the blocks of one attempt on `device`, in the order of [`Blame`].
pub fn blame<'a>(device: &str, blocks: impl IntoIterator<Item = &'a TriedBlock>, beside: &Beside) -> Vec<Blamed> {
    let mut found: BTreeMap<Blame, u64> = BTreeMap::new();
    for block in blocks {
        let (causes, lane): (BTreeSet<Disturbance>, _) = match block {
            TriedBlock::Accepted { .. } => continue,
            TriedBlock::Thrown { times, causes, .. } => {
                (causes.iter().map(Disturbance::from).collect(), beside.alone(times.started, times.after.at))
            }
            TriedBlock::Lost { .. } => ([Disturbance::ProcessLost].into(), None),
        };
        for cause in causes {
            let lane = lane.filter(|_| cause.is_by_a_program());
            *found.entry(Blame { device: device.to_owned(), cause, lane }).or_default() += 1;
        }
    }
    found.into_iter().map(|(blame, blocks)| Blamed { blame, blocks }).collect()
}
