//! A member of a pool as its neighbours reach it: a local device or, over the bus, a runner. They cannot tell which.

use std::sync::Arc;

use actix::prelude::*;

use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{DeviceInput, DeviceView};
use thermite_core::ids::{DevRunId, HoldId};
use thermite_core::job::JobSpec;
use thermite_core::job::StageKind;
use thermite_core::readiness::Reading;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use crate::ports::{DeviceFacts, Leftovers, StopProof};

/// Says something to a member's machine.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ToMember(pub DeviceInput);

/// Starts a development run under a claimed hold.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StartDevRun {
    /// The hold.
    pub hold: HoldId,
    /// What to start.
    pub spec: Arc<DevRunSpec>,
    /// How long it may hold the member.
    pub limit: Option<Span>,
}

/// Has one step of a stage carried out under a live hold. No report where the hold is over, or being ended, by then: the
/// pool tells how it ended, and what a stopped step says counts against nobody (rules B9, D5).
#[derive(Message)]
#[rtype(result = "Option<StepReport>")]
pub struct RunStep {
    /// The hold.
    pub hold: HoldId,
    /// The job.
    pub job: Arc<JobSpec>,
    /// Which stage.
    pub stage: StageKind,
    /// Which attempt.
    pub attempt: u32,
    /// The step.
    pub step: StageStep,
}

/// What a member is and does.
#[derive(Message)]
#[rtype(result = "MemberLook")]
pub struct LookAtMember;

/// What development runs left behind there and keep (rule C3). Apart from [`LookAtMember`], which is asked at every stir:
/// this one reads `/proc`.
#[derive(Message)]
#[rtype(result = "Vec<Leftovers>")]
pub struct LookAtLeftovers;

/// Ends what development runs left behind and keep, and proves it gone (rule C3): at the rig's end.
#[derive(Message)]
#[rtype(result = "StopProof")]
pub struct EndLeftovers;

/// The end of a development run is in the log: a runner that keeps it may forget it (docs/bus.md).
#[derive(Message)]
#[rtype(result = "()")]
pub struct EndKept {
    /// The development run.
    pub dev_run: DevRunId,
}

/// What a member is and does.
#[derive(Clone, Debug, PartialEq, MessageResponse)]
pub struct MemberLook {
    /// What it is.
    pub facts: DeviceFacts,
    /// What it does.
    pub state: DeviceView,
    /// Things said under an old hold number, refused (rule A1).
    pub refused: u64,
    /// The containment in force there, where it tells.
    pub containment: Option<String>,
    /// Its place in its driver's own list, where it has one.
    pub index: Option<u32>,
    /// The newest reading of a driver that looks all the time.
    pub reading: Option<Reading>,
}

/// The doors of one member.
#[derive(Clone)]
pub struct MemberDoors {
    /// For its machine.
    pub input: Recipient<ToMember>,
    /// For development runs.
    pub start: Recipient<StartDevRun>,
    /// For the judge's steps.
    pub step: Recipient<RunStep>,
    /// For views.
    pub look: Recipient<LookAtMember>,
    /// For views of the whole rig.
    pub leftovers: Recipient<LookAtLeftovers>,
    /// For the rig's end.
    pub end_leftovers: Recipient<EndLeftovers>,
    /// For ends that are in the log; none where nobody waits for that.
    pub kept: Option<Recipient<EndKept>>,
}

impl MemberDoors {
    /// The doors of an actor that speaks a member's words.
    pub fn of<A>(member: &Addr<A>) -> MemberDoors
    where
        A: Actor<Context = Context<A>>
            + Handler<ToMember>
            + Handler<StartDevRun>
            + Handler<RunStep>
            + Handler<LookAtMember>
            + Handler<LookAtLeftovers>
            + Handler<EndLeftovers>,
    {
        MemberDoors {
            input: member.clone().recipient(),
            start: member.clone().recipient(),
            step: member.clone().recipient(),
            look: member.clone().recipient(),
            leftovers: member.clone().recipient(),
            end_leftovers: member.clone().recipient(),
            kept: None,
        }
    }
}
