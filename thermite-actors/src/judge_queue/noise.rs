//! What stages teach of their devices: noise, doubts about it, and the lifelong alarm (rule D6; docs/judging.md).

use thermite_core::noise::{ChampionTwice, NoiseDoubt};

use super::*;

/// Somebody asked for these measures to be taken anew, and it is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ForgetNoise(pub(crate) Vec<NoiseKey>);

/// Somebody looked at a device's alarm and cleared it, and it is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ForgetAlarm {
    /// The device's UUID.
    pub(crate) device: String,
}

impl JudgeQueueActor {
    /// What an attempt that is over teaches of its device.
    pub(super) fn learn(&mut self, hold: HoldId, stage: &Stage, end: &StageEnd) -> Vec<LogEntry> {
        let mut learnt = Vec::new();
        let noise = match end {
            StageEnd::Decided { noise, .. }
            | StageEnd::ChangeFailed { noise, .. }
            | StageEnd::Infrastructure { noise, .. } => noise.as_ref(),
            StageEnd::Built { .. } => None,
        };
        if let Some(noise) = noise {
            self.noise.insert(noise.key.clone(), noise.clone());
            learnt.push(LogEntry::NoiseMeasured { noise: noise.clone() });
        }
        if let StageEnd::Decided { record, .. } = end
            && record.noise_off
        {
            let key = record.noise.noise().key.clone();
            self.noise.remove(&key);
            learnt.push(LogEntry::NoiseDoubted { key, why: NoiseDoubt::JobsOwnScale });
        }
        if let Some(twice) = stage.champion_twice() {
            self.alarmed(hold.member, twice, &mut learnt);
        }
        learnt
    }

    /// A stage that was cut off is no attempt that ended; its champion-twice blocks count for the alarm all the same.
    pub(super) fn note_cut_off(&mut self, claimed: &Claimed, ctx: &mut Context<Self>) {
        let Some(twice) = claimed.steps.as_ref().and_then(|stage| stage.champion_twice()) else { return };
        let Some(member) = self.roster.of_uuid(&twice.device) else { return };
        let mut entries = Vec::new();
        self.alarmed(member, twice, &mut entries);
        let append = self.outbox.send(Append { batch: entries.into(), patient: true }).into_actor(self);
        ctx.spawn(append.map(|_, _, _| ()));
    }

    /// Lets the lifelong alarm take blocks; a device whose alarm they raise goes out of service until somebody looks.
    fn alarmed(&mut self, member: MemberId, twice: &ChampionTwice, learnt: &mut Vec<LogEntry>) {
        let alarm = self.alarms.entry(twice.device.clone()).or_default();
        let was_raised = alarm.raised().is_some();
        let raised = alarm.take(twice);
        learnt.push(LogEntry::ChampionTwice { blocks: twice.clone() });
        let Some(raised) = raised.filter(|_| !was_raised) else { return };
        let why = format!(
            "{raised}; find out why, and put it back with `thermite noise --clear {}` (docs/judging.md, the alarm)",
            member.0
        );
        warn!(%member, %why, "device is quarantined");
        learnt.push(LogEntry::DeviceQuarantined { device: twice.device.clone(), why: why.clone() });
        if let Some(doors) = self.doors(member) {
            doors.input.do_send(ToMember(DeviceInput::Quarantine { why }));
        }
    }
}

/// A card was at fault: what is known of its noise is not to be used any more (rule B10).
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Distrust {
    /// The card's UUID.
    pub(crate) uuid: String,
}

impl Handler<Distrust> for JudgeQueueActor {
    type Result = ();

    /// Champion against champion comes first on the card, once it is back, and nothing is compared before that passes.
    fn handle(&mut self, msg: Distrust, ctx: &mut Self::Context) {
        let keys: Vec<NoiseKey> = self.noise.keys().filter(|key| key.device == msg.uuid).cloned().collect();
        if keys.is_empty() {
            return;
        }
        self.noise.retain(|key, _| key.device != msg.uuid);
        let doubted = |key| LogEntry::NoiseDoubted { key, why: NoiseDoubt::Fault };
        let entries: Vec<LogEntry> = keys.into_iter().map(doubted).collect();
        let append = self.outbox.send(Append { batch: entries.into(), patient: true }).into_actor(self);
        ctx.spawn(append.map(|_, _, _| ()));
    }
}

impl Handler<ForgetNoise> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: ForgetNoise, _: &mut Self::Context) {
        self.noise.retain(|key, _| !msg.0.contains(key));
    }
}

impl Handler<ForgetAlarm> for JudgeQueueActor {
    type Result = ();

    fn handle(&mut self, msg: ForgetAlarm, _: &mut Self::Context) {
        self.alarms.remove(&msg.device);
    }
}
