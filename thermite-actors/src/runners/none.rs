//! A rig that was started without a bus: its log may list runners, and none of them is reached.

use actix::prelude::*;

use thermite_core::contract::Target;
use thermite_core::device::{DeviceInput, DeviceView, MemberEvent};
use thermite_core::hold::HoldEnd;
use thermite_core::runner::RunnerState;
use thermite_core::stage::StepReport;

use crate::member::{
    EndLeftovers, LookAtLeftovers, LookAtMember, MemberDoors, MemberLook, RunStep, StartDevRun, ToMember,
};
use crate::ports::{DeviceFacts, Leftovers, StopProof};

use super::{LookAtRunner, Retire, RunnerBirth, RunnerDoors, RunnerEars, RunnerLook, Runners};

/// No way to any runner.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRunners;

const NO_BUS: &str = "this rig was started without a bus, so it reaches no runner; start it with THERMITE_NATS_URL";

impl Runners for NoRunners {
    fn bring(&self, birth: RunnerBirth) -> RunnerDoors {
        let silent = Silent { ears: birth.ears }.start();
        RunnerDoors { member: MemberDoors::of(&silent), look: silent.clone().recipient(), retire: silent.recipient() }
    }

    fn away(&self) -> Option<String> {
        Some(NO_BUS.to_owned())
    }

    fn reaches(&self) -> Result<(), String> {
        Err(NO_BUS.to_owned())
    }
}

/// A runner that never answers: it is never ready, so that nothing is granted on it.
struct Silent {
    ears: RunnerEars,
}

impl Actor for Silent {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.ears.says(MemberEvent::Gone { why: NO_BUS.to_owned() });
    }
}

impl Handler<ToMember> for Silent {
    type Result = ();

    fn handle(&mut self, msg: ToMember, _: &mut Self::Context) {
        // A number that it is asked about was never begun here.
        if let DeviceInput::Void { number } | DeviceInput::Stop { number, .. } = msg.0 {
            self.ears.says(MemberEvent::Freed { number, how: HoldEnd::NotStarted });
        }
    }
}

impl Handler<StartDevRun> for Silent {
    type Result = ();

    fn handle(&mut self, msg: StartDevRun, _: &mut Self::Context) {
        self.ears.says(MemberEvent::Freed { number: msg.hold.number, how: HoldEnd::NotStarted });
    }
}

impl Handler<RunStep> for Silent {
    type Result = ResponseFuture<Option<StepReport>>;

    fn handle(&mut self, _: RunStep, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::ready(None))
    }
}

impl Handler<LookAtMember> for Silent {
    type Result = MemberLook;

    fn handle(&mut self, _: LookAtMember, _: &mut Self::Context) -> MemberLook {
        let unknown = String::new;
        MemberLook {
            facts: DeviceFacts {
                target: Target::Cpu,
                uuid: unknown(),
                model: unknown(),
                driver: unknown(),
                clock_policy: unknown(),
                cpus: unknown(),
                cores: 0,
            },
            state: DeviceView::Sweeping,
            refused: 0,
            containment: None,
            index: None,
            reading: None,
        }
    }
}

impl Handler<LookAtLeftovers> for Silent {
    type Result = Vec<Leftovers>;

    fn handle(&mut self, _: LookAtLeftovers, _: &mut Self::Context) -> Self::Result {
        Vec::new()
    }
}

impl Handler<EndLeftovers> for Silent {
    type Result = ResponseFuture<StopProof>;

    fn handle(&mut self, _: EndLeftovers, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::ready(StopProof::Empty))
    }
}

impl Handler<LookAtRunner> for Silent {
    type Result = RunnerLook;

    fn handle(&mut self, _: LookAtRunner, _: &mut Self::Context) -> RunnerLook {
        RunnerLook { state: RunnerState::Reconciling, answered: None }
    }
}

impl Handler<Retire> for Silent {
    type Result = ();

    fn handle(&mut self, _: Retire, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
