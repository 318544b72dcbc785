//! What is known of the devices' noise, as people and programs see it (rule D6; docs/judging.md).

use serde::{Deserialize, Serialize};

use thermite_core::contract::Contract;
use thermite_core::fold::RigHistory;
use thermite_core::ids::MemberId;
use thermite_core::job::StageKind;
use thermite_core::limits;
use thermite_core::noise::{HarnessAlarm, Noise, NoiseKey, Suits};

use crate::ports::DeviceFacts;

/// One device's noise and its lifelong alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceNoise {
    /// Its place in the rig's list.
    pub member: MemberId,
    /// Its UUID.
    pub device: String,
    /// Its model.
    pub model: String,
    /// Its alarm.
    pub alarm: AlarmView,
    /// Its measures, the newest first.
    pub kits: Vec<KitNoise>,
}

/// A device's lifelong alarm over its champion-twice blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlarmView {
    /// How many blocks it has seen.
    pub blocks: u32,
    /// The evidence so far that the harness favours a label, as its natural logarithm.
    pub ln_evidence: f64,
    /// Where it is raised, as the same logarithm.
    pub ln_raised_at: f64,
    /// Why the device is out of service, where the alarm was raised.
    pub quarantined: Option<String>,
}

/// One measure of noise, and what it means for its kit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KitNoise {
    /// The kit's name, where a run or job of it is known.
    pub kit: Option<String>,
    /// The measure, with what it is good for.
    pub noise: Noise,
    /// Whether the next stage uses it; else it is measured anew.
    pub is_good: bool,
    /// What it means for the kit's contract, where that is known.
    pub plan: Option<PlanView>,
}

/// What a measure of noise means for a contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanView {
    /// The plan effect, as ln(speed-up).
    pub plan_effect: f64,
    /// How the device suits it.
    pub suits: Suits,
    /// About how many blocks a screening takes.
    pub blocks_to_screen: f64,
    /// About how many blocks a confirmation takes.
    pub blocks_to_confirm: f64,
    /// The warning or the refusal, with its figures; none where the device suits well.
    pub warning: Option<String>,
}

/// What the log tells of the noise of one device at `wall_ms`.
pub(crate) fn of_device(history: &RigHistory, member: MemberId, facts: &DeviceFacts, wall_ms: u64) -> DeviceNoise {
    let alarm = history.alarms.get(&facts.uuid).cloned().unwrap_or_default();
    let mut kits: Vec<KitNoise> = history
        .noise
        .values()
        .filter(|noise| noise.key.device == facts.uuid)
        .map(|noise| of_kit(history, member, facts, noise, wall_ms))
        .collect();
    kits.sort_by_key(|kit| std::cmp::Reverse(kit.noise.wall_ms));
    DeviceNoise {
        member,
        device: facts.uuid.clone(),
        model: facts.model.clone(),
        alarm: AlarmView::of(&alarm, history.quarantined.get(&facts.uuid)),
        kits,
    }
}

impl AlarmView {
    fn of(alarm: &HarnessAlarm, quarantined: Option<&String>) -> AlarmView {
        AlarmView {
            blocks: alarm.blocks(),
            ln_evidence: alarm.ln_evidence(),
            ln_raised_at: limits::HARNESS_ALARM.ln(),
            quarantined: quarantined.cloned(),
        }
    }
}

fn of_kit(history: &RigHistory, member: MemberId, facts: &DeviceFacts, noise: &Noise, wall_ms: u64) -> KitNoise {
    let now = key_now(facts, &noise.key.kit);
    let known = known_kit(history, &noise.key.kit);
    KitNoise {
        kit: known.map(|(name, _)| name.to_owned()),
        noise: noise.clone(),
        is_good: noise.is_good(&now, wall_ms) && !history.doubted.contains(&noise.key),
        plan: known.map(|(_, contract)| PlanView::of(noise, member, contract)),
    }
}

impl PlanView {
    fn of(noise: &Noise, member: MemberId, contract: &Contract) -> PlanView {
        let plan_effect = contract.plan_effect;
        let refusal = noise.check(member, plan_effect).err().map(|why| why.to_string());
        PlanView {
            plan_effect,
            suits: noise.suits(plan_effect),
            blocks_to_screen: noise.expected_blocks(StageKind::Screening, plan_effect),
            blocks_to_confirm: noise.expected_blocks(StageKind::Confirmation, plan_effect),
            warning: refusal.or_else(|| noise.warning(member, plan_effect)),
        }
    }
}

/// What a measure for that kit must be good for on this device as it is.
fn key_now(facts: &DeviceFacts, kit: &str) -> NoiseKey {
    NoiseKey {
        device: facts.uuid.clone(),
        kit: kit.to_owned(),
        driver: facts.driver.clone(),
        clock_policy: facts.clock_policy.clone(),
    }
}

/// A kit by its hash: that of a run, else of a job, whose champion may have had another.
fn known_kit<'a>(history: &'a RigHistory, hash: &str) -> Option<(&'a str, &'a Contract)> {
    let of_runs = history.runs.values().rev().map(|run| (&run.spec.kit_hash, &run.spec.kit));
    let of_jobs = history.jobs.values().rev().map(|job| (&job.spec.pinned.kit_hash, &job.spec.pinned.kit));
    of_runs.chain(of_jobs).find(|(known, _)| *known == hash).map(|(_, kit)| (kit.name.as_str(), &kit.contract))
}

/// The warning or refusal that a device's usable noise gives for a contract of a kit; none where there is none.
pub(crate) fn warning(
    history: &RigHistory,
    member: MemberId,
    facts: &DeviceFacts,
    kit: &str,
    contract: &Contract,
) -> Option<String> {
    let key = key_now(facts, kit);
    let noise = history.noise.get(&key).filter(|_| !history.doubted.contains(&key))?;
    PlanView::of(noise, member, contract).warning
}
