//! The devices' noise through the door: looking at it, having it measured anew, clearing an alarm (rule D6).

use thermite_core::device::DeviceInput;
use thermite_core::noise::NoiseDoubt;

use crate::judge_queue::{ForgetAlarm, ForgetNoise};
use crate::member::{LookAtMember, ToMember};
use crate::noise::{DeviceNoise, of_device};

use super::*;

/// Looks at the noise of all devices.
#[derive(Message)]
#[rtype(result = "Result<Vec<DeviceNoise>, No>")]
pub(crate) struct LookAtNoise;

/// Asks for a device's noise to be measured anew by the next stage of each kit.
#[derive(Message)]
#[rtype(result = "Result<usize, No>")]
pub(crate) struct AskNoiseAgain(pub(crate) MemberId);

/// Clears a device's alarm: somebody has looked.
#[derive(Message)]
#[rtype(result = "Result<(), No>")]
pub(crate) struct AskClear(pub(crate) MemberId);

pub(super) async fn facts_of(actors: &Actors, member: MemberId) -> Result<DeviceFacts, No> {
    let Some(doors) = actors.roster.doors(member).filter(|_| member != MemberId::BENCH) else {
        let have: Vec<String> = actors.roster.measuring().iter().map(|(id, _)| actors.roster.name(*id)).collect();
        let refusal = Refusal::UnknownDevice { device: member.0.to_string(), have: have.join(", ") };
        return Err(No::Refusal(refusal));
    };
    match actors.roster.facts(member) {
        Some(facts) if member.is_runner() => Ok(facts),
        Some(_) | None => Ok(doors.look.send(LookAtMember).await.map_err(|_| No::ending())?.facts),
    }
}

async fn look(actors: Actors) -> Result<Vec<DeviceNoise>, No> {
    let wall_ms = actors.clock.wall_ms();
    let mut devices = Vec::new();
    for (member, _) in actors.roster.measuring() {
        // A runner that never answered has no device to speak of.
        if member.is_runner() && actors.roster.facts(member).is_none() {
            continue;
        }
        let facts = facts_of(&actors, member).await?;
        devices.push(look::recall(&actors, move |history| of_device(history, member, &facts, wall_ms)).await?);
    }
    Ok(devices)
}

async fn again(actors: Actors, member: MemberId) -> Result<usize, No> {
    let facts = facts_of(&actors, member).await?;
    let keys = look::recall(&actors, move |history| {
        let of_device = history.usable_noise().filter(|(key, _)| key.device == facts.uuid);
        of_device.map(|(key, _)| key.clone()).collect::<Vec<_>>()
    });
    let keys = keys.await?;
    if keys.is_empty() {
        return Err(No::Refusal(Refusal::NoNoiseYet { member }));
    }
    let doubted = keys.iter().map(|key| LogEntry::NoiseDoubted { key: key.clone(), why: NoiseDoubt::Asked }).collect();
    append(&actors.outbox, doubted).await?;
    let measures = keys.len();
    actors.judge.send(ForgetNoise(keys)).await.map_err(|_| No::ending())?;
    Ok(measures)
}

async fn clear(actors: Actors, member: MemberId) -> Result<(), No> {
    let device = facts_of(&actors, member).await?.uuid;
    let asked = device.clone();
    if !look::recall(&actors, move |history| history.quarantined.contains_key(&asked)).await? {
        return Err(No::Refusal(Refusal::NotQuarantined { member }));
    }
    append(&actors.outbox, vec![LogEntry::QuarantineCleared { device: device.clone() }]).await?;
    // The alarm begins anew before the device can be granted again.
    actors.judge.send(ForgetAlarm { device }).await.map_err(|_| No::ending())?;
    if let Some(doors) = actors.roster.doors(member) {
        doors.input.send(ToMember(DeviceInput::Readmit)).await.map_err(|_| No::ending())?;
    }
    Ok(())
}

impl Handler<LookAtNoise> for Door {
    type Result = ResponseFuture<Result<Vec<DeviceNoise>, No>>;

    fn handle(&mut self, _: LookAtNoise, _: &mut Self::Context) -> Self::Result {
        Box::pin(look(self.actors.clone()))
    }
}

impl Handler<AskNoiseAgain> for Door {
    type Result = ResponseFuture<Result<usize, No>>;

    fn handle(&mut self, msg: AskNoiseAgain, _: &mut Self::Context) -> Self::Result {
        Box::pin(again(self.actors.clone(), msg.0))
    }
}

impl Handler<AskClear> for Door {
    type Result = ResponseFuture<Result<(), No>>;

    fn handle(&mut self, msg: AskClear, _: &mut Self::Context) -> Self::Result {
        Box::pin(clear(self.actors.clone(), msg.0))
    }
}
