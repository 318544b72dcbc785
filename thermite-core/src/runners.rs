//! A rig's runners as one list: which process serves how many, and in which pool each is (rules E1, E8, E9, E13).
//!
//! Pure arithmetic over what was asked for, what was given out before and what runners told of themselves. What a new
//! list does to the work under way is the pool's ([`crate::pool`]); how one runner is spoken to is [`crate::runner`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::contract::Target;
use crate::ids::{LaneId, MemberId};
use crate::limits;
use crate::pool::Discipline;
use crate::refusal::Refusal;
use crate::runner::WhyNot;
use crate::wire::{ProcessName, RunnerName};

/// Whom a runner serves (rule E1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RunnerPool {
    /// The judge alone.
    Judge,
    /// The judge and every lane, in turn, in order of arrival.
    Shared,
    /// That lane alone; the judge never measures there.
    Lane(LaneId),
}

/// A text that names no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no pool {0:?}: it is `judge`, `shared`, or `lane-1` to `lane-16`")]
pub struct NoSuchPool(pub String);

impl RunnerPool {
    /// How the pool gives it out.
    pub fn discipline(self) -> Discipline {
        match self {
            RunnerPool::Judge => Discipline::JudgeOnly,
            RunnerPool::Shared => Discipline::FirstCome,
            RunnerPool::Lane(lane) => Discipline::OneLane(lane),
        }
    }

    /// Whether the judge measures there.
    pub fn judges(self) -> bool {
        match self {
            RunnerPool::Judge | RunnerPool::Shared => true,
            RunnerPool::Lane(_) => false,
        }
    }
}

impl fmt::Display for RunnerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunnerPool::Judge => f.write_str("judge"),
            RunnerPool::Shared => f.write_str("shared"),
            RunnerPool::Lane(lane) => write!(f, "lane-{}", lane.number()),
        }
    }
}

impl FromStr for RunnerPool {
    type Err = NoSuchPool;

    fn from_str(text: &str) -> Result<RunnerPool, NoSuchPool> {
        let no_such = || NoSuchPool(text.to_owned());
        match text {
            "judge" => Ok(RunnerPool::Judge),
            "shared" => Ok(RunnerPool::Shared),
            _ => {
                let number = text.strip_prefix("lane-").ok_or_else(no_such)?;
                let lane = number.parse().ok().and_then(|number| LaneId::new(number).ok()).ok_or_else(no_such)?;
                // One way to write each: `lane-07` and `lane-+7` are no names.
                if number == lane.number().to_string() { Ok(RunnerPool::Lane(lane)) } else { Err(no_such()) }
            }
        }
    }
}

impl TryFrom<String> for RunnerPool {
    type Error = NoSuchPool;

    fn try_from(text: String) -> Result<RunnerPool, NoSuchPool> {
        text.parse()
    }
}

impl From<RunnerPool> for String {
    fn from(pool: RunnerPool) -> String {
        pool.to_string()
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for RunnerPool {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("Whom a runner serves (rule E1)."))
            .pattern(Some("^(judge|shared|lane-([1-9]|1[0-6]))$"))
            .into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for RunnerPool {}

/// One process as it is asked for, not looked at yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessAsk {
    /// Its name: 2 to 40 of `a-z`, `0-9`, `-`.
    pub name: String,
    /// The pools of its runners, in order: `judge`, `shared`, `lane-1` to `lane-16`.
    pub pools: Vec<String>,
}

/// One process and the pools of its runners, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProcessPools {
    /// Its name.
    pub name: ProcessName,
    /// Its runners' pools.
    pub pools: Vec<RunnerPool>,
}

/// One runner of the list: its name, its pool, and the number it has in the pool for as long as the rig's log lasts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerSet {
    /// Its name.
    pub runner: RunnerName,
    /// Its pool.
    pub pool: RunnerPool,
    /// Its number.
    pub member: MemberId,
}

/// What a runner's device is, as far as the list must know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerDevice {
    /// Its kind.
    pub target: Target,
    /// A name that stays.
    pub uuid: String,
    /// Its model.
    pub model: String,
}

/// What becomes of a runner with a new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "becomes")]
pub enum RunnerChange {
    /// It was not there before.
    Added,
    /// It is taken away: its run is stopped (rule E10).
    Removed,
    /// It is given another pool: its run is stopped (rule E10).
    Moved {
        /// The pool it had.
        from: RunnerPool,
    },
    /// It stays as it is, with what it runs.
    Unchanged,
}

/// What was asked for, looked at.
///
/// # Errors
/// Refused with the reason: a name that is none, one named twice, a pool that is none, no pools, too many (rule E8).
pub fn parse(asked: &[ProcessAsk]) -> Result<Vec<ProcessPools>, Refusal> {
    if asked.len() > limits::RUNNER_PROCESSES_MAX {
        return Err(bad(format!(
            "{} runner processes are too many; at most {}",
            asked.len(),
            limits::RUNNER_PROCESSES_MAX
        )));
    }
    let mut names = BTreeSet::new();
    let mut list = Vec::with_capacity(asked.len());
    for ProcessAsk { name, pools } in asked {
        let name: ProcessName = name.parse().map_err(|none: crate::wire::BadName| bad(none.to_string()))?;
        if !names.insert(name.clone()) {
            return Err(bad(format!("{name} is named twice; give all its pools in one entry, in order")));
        }
        if pools.is_empty() {
            return Err(bad(format!("{name} has no pool; give one for each of its runners, or leave it out")));
        }
        if pools.len() > limits::RUNNERS_OF_PROCESS_MAX {
            let (has, most) = (pools.len(), limits::RUNNERS_OF_PROCESS_MAX);
            return Err(bad(format!("{name} has {has} pools; at most {most}")));
        }
        let pools = pools.iter().map(|pool| pool.parse()).collect::<Result<Vec<RunnerPool>, NoSuchPool>>();
        let pools = pools.map_err(|none| bad(format!("{name}: {none}")))?;
        list.push(ProcessPools { name, pools });
    }
    let runners: usize = list.iter().map(|process| process.pools.len()).sum();
    if runners > limits::RUNNERS_MAX {
        return Err(bad(format!("{runners} runners are too many; at most {}", limits::RUNNERS_MAX)));
    }
    Ok(list)
}

/// The list with a number for each runner: the one it has had, else the next that no runner has had.
///
/// # Errors
/// Refused where there are no numbers left.
pub fn number(
    list: &[ProcessPools],
    had: &BTreeMap<RunnerName, MemberId>,
    next: u16,
) -> Result<Vec<RunnerSet>, Refusal> {
    let mut next = next.max(MemberId::RUNNERS_FROM);
    let mut set = Vec::new();
    for ProcessPools { name, pools } in list {
        for (slot, pool) in (1..).zip(pools) {
            let runner = RunnerName { process: name.clone(), slot };
            let member = match had.get(&runner) {
                Some(member) => *member,
                None if next < MemberId::BENCH.0 => {
                    next += 1;
                    MemberId(next - 1)
                }
                None => return Err(bad("this rig's log has numbered as many runners as there are numbers".to_owned())),
            };
            set.push(RunnerSet { runner, pool: *pool, member });
        }
    }
    Ok(set)
}

/// What a new list changes: first every runner of the new one, in its order, then those that are taken away.
pub fn changes(old: &[RunnerSet], new: &[RunnerSet]) -> Vec<(RunnerSet, RunnerChange)> {
    let pool_in = |list: &[RunnerSet], runner: &RunnerName| {
        list.iter().find(|known| known.runner == *runner).map(|known| known.pool)
    };
    let kept = new.iter().map(|set| {
        let change = match pool_in(old, &set.runner) {
            None => RunnerChange::Added,
            Some(from) if from == set.pool => RunnerChange::Unchanged,
            Some(from) => RunnerChange::Moved { from },
        };
        (set.clone(), change)
    });
    let gone = old.iter().filter(|known| pool_in(new, &known.runner).is_none());
    kept.chain(gone.map(|known| (known.clone(), RunnerChange::Removed))).collect()
}

/// The list by process, as it is asked for.
pub fn by_process(set: &[RunnerSet]) -> Vec<ProcessPools> {
    let mut list: Vec<ProcessPools> = Vec::new();
    for RunnerSet { runner, pool, .. } in set {
        match list.last_mut() {
            Some(last) if last.name == runner.process => last.pools.push(*pool),
            _ => list.push(ProcessPools { name: runner.process.clone(), pools: vec![*pool] }),
        }
    }
    list
}

/// Whether the core's own devices judge (rule E13, `THERMITE_LOCAL_JUDGE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LocalJudge {
    /// They do: the rig's kind of target is theirs.
    #[default]
    On,
    /// They do not: the judge has its runners alone, and the rig's kind of target is theirs.
    Off,
}

impl LocalJudge {
    /// Whom a device of the core serves whose split says that.
    pub fn discipline(self, of_split: Discipline) -> Discipline {
        match (self, of_split) {
            (LocalJudge::Off, Discipline::JudgeFirst) => Discipline::LanesOnly,
            (LocalJudge::Off, Discipline::JudgeOnly) => Discipline::Idle,
            (LocalJudge::On | LocalJudge::Off, other) => other,
        }
    }
}

/// What sets a rig's kind of target: the first listed judge or shared runner that is known where the core judges
/// nothing, else the core's own device (rules E9, E13). None while nothing of it is known.
pub fn measures_on<'a>(
    set: &[RunnerSet],
    known: &'a BTreeMap<MemberId, RunnerDevice>,
    core: Option<&'a RunnerDevice>,
    local: LocalJudge,
) -> Option<&'a RunnerDevice> {
    match local {
        LocalJudge::On => core,
        LocalJudge::Off => {
            set.iter().filter(|runner| runner.pool.judges()).find_map(|runner| known.get(&runner.member))
        }
    }
}

/// Why a runner takes no runs although it answers, by what its process and its device are (rule E9).
///
/// `serves` is how many runners each process has told that it serves, `known` what each runner's device is.
pub fn unfit(
    set: &[RunnerSet],
    serves: &BTreeMap<ProcessName, u32>,
    known: &BTreeMap<MemberId, RunnerDevice>,
    measures_on: Option<&RunnerDevice>,
) -> BTreeMap<MemberId, WhyNot> {
    let mut pools: BTreeMap<&ProcessName, u32> = BTreeMap::new();
    for runner in set {
        *pools.entry(&runner.runner.process).or_default() += 1;
    }
    let why = |runner: &RunnerSet| {
        let process = &runner.runner.process;
        let pools = pools.get(process).copied().unwrap_or(0);
        if let Some(serves) = serves.get(process).copied().filter(|serves| *serves < pools) {
            return Some(WhyNot::TooManyPools { pools, serves });
        }
        let (has, wants) = (known.get(&runner.member)?, measures_on?);
        if has.target != wants.target {
            return Some(WhyNot::OtherTarget { has: has.target, wants: wants.target });
        }
        // Machines' CPUs are told apart by nobody: it is GPUs that are (rules B8, E9).
        let is_other = has.target == Target::CudaGpu && has.model != wants.model;
        is_other.then(|| WhyNot::OtherModel { has: has.model.clone(), wants: wants.model.clone() })
    };
    set.iter().filter_map(|runner| Some((runner.member, why(runner)?))).collect()
}

/// The runners that processes serve beyond the pools they are given: idle, and shown so (rule E9).
pub fn without_pool(set: &[RunnerSet], serves: &BTreeMap<ProcessName, u32>) -> Vec<RunnerName> {
    let mut idle = Vec::new();
    for process in by_process(set) {
        let given = u32::try_from(process.pools.len()).unwrap_or(u32::MAX);
        let serves = serves.get(&process.name).copied().unwrap_or(0).min(limits::RUNNERS_MAX as u32);
        let slots = (given + 1..=serves).filter_map(|slot| u16::try_from(slot).ok());
        idle.extend(slots.map(|slot| RunnerName { process: process.name.clone(), slot }));
    }
    idle
}

fn bad(why: String) -> Refusal {
    Refusal::BadRunners { why }
}
