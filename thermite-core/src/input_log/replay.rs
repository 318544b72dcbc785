//! Replaying a log: the same machines take the same inputs and must decide the same.
//!
//! A log may be any file: what no machine could have written is refused by its line, and nothing here panics on it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::Device;
use crate::ids::{HoldId, LaneId, MemberId};
use crate::judge_queue::JudgeQueue;
use crate::lane::Lane;
use crate::limits;
use crate::pool::Pool;
use crate::runner::Runner;
use crate::stage::Stage;
use crate::time::Moment;

use super::{Because, Beginning, FORMAT, LIBRARY, Line, Machine, MachineId, StageTakes, State, Step};

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Inputs.
    pub inputs: u64,
    /// Machines that took them; an attempt at a stage is one of its own.
    pub machines: u64,
    /// Segments.
    pub segments: u64,
    /// Entries that the log says are missing.
    pub missed: u64,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} inputs of {} machines replayed: the same decisions", self.inputs, self.machines)?;
        if self.missed > 0 {
            write!(f, "; {} entries are missing in the log, which says so", self.missed)?;
        }
        Ok(())
    }
}

/// The first decision that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{machine}, input {input} at {} ms: decided {decided}; would decide {would}", at.as_millis())]
pub struct Difference {
    /// The machine's name.
    pub machine: String,
    /// Which input of all, from 1.
    pub input: u64,
    /// When it was taken, on the rig's clock.
    pub at: Moment,
    /// What the log says.
    pub decided: String,
    /// What this library decides.
    pub would: String,
}

/// A log that does not replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayFault {
    /// A decision is another.
    #[error(transparent)]
    Difference(Box<Difference>),
    /// A machine's state at the beginning of a segment is not what the segment before leads to.
    #[error("line {line}: the state of {machine} is not what the segment before leads to")]
    OtherState {
        /// The line, from 1, over all segments.
        line: u64,
        /// The machine's name.
        machine: String,
    },
    /// Another library wrote it.
    #[error(
        "the log was written by library {theirs} (format {their_format}), this is {ours} (format {our_format}); replay it with that version"
    )]
    OtherLibrary {
        /// Theirs.
        theirs: String,
        /// Their layout.
        their_format: u32,
        /// Ours.
        ours: String,
        /// Our layout.
        our_format: u32,
    },
    /// A line that no rig has written.
    #[error("line {line} is no line of an input log: {why}")]
    Malformed {
        /// The line, from 1, over all segments.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// The machines of a log, as far as it has been read.
#[derive(Default)]
pub struct Replay {
    devices: BTreeMap<MemberId, Device>,
    runners: BTreeMap<MemberId, Runner>,
    pool: Option<Pool>,
    judge: Option<JudgeQueue>,
    lanes: BTreeMap<LaneId, Lane>,
    stages: BTreeMap<HoldId, Stage>,
    /// Stages that are over, so that each counts once.
    stages_over: u64,
    begun: bool,
    lines: u64,
    done: Replayed,
}

impl Replay {
    /// Before the first line.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Takes the next line. What ends a segment without an end of line was cut off by a death: hand it to nobody.
    ///
    /// # Errors
    /// Where a decision differs, another library wrote it, or no rig has written such a line.
    pub fn take(&mut self, text: &str) -> Result<(), ReplayFault> {
        self.lines += 1;
        match self.read(text)? {
            Line::Begins(beginning) => self.begin(&beginning),
            _ if !self.begun => Err(self.malformed("a segment begins with its version")),
            Line::State(state) => self.know(*state),
            Line::Took { at, step } => self.step(at, *step),
        }
    }

    /// What was replayed so far.
    pub fn replayed(&self) -> Replayed {
        let machines = self.devices.len() + self.runners.len() + self.lanes.len() + self.stages.len();
        let single = u64::from(self.pool.is_some()) + u64::from(self.judge.is_some());
        Replayed { machines: machines as u64 + single + self.stages_over + self.done.machines, ..self.done }
    }

    fn read(&self, text: &str) -> Result<Line, ReplayFault> {
        if text.len() > limits::INPUT_LINE_BYTES_MAX {
            let why = format!("it is {} bytes long, at most {}", text.len(), limits::INPUT_LINE_BYTES_MAX);
            return Err(self.malformed(&why));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| self.malformed(&error.to_string()))?;
        if let Some(number) = beyond(&value) {
            return Err(self.malformed(&format!("{number} is beyond every number of a rig")));
        }
        serde_json::from_value(value).map_err(|error| self.malformed(&error.to_string()))
    }

    fn begin(&mut self, beginning: &Beginning) -> Result<(), ReplayFault> {
        if beginning.library != LIBRARY || beginning.format != FORMAT {
            return Err(ReplayFault::OtherLibrary {
                theirs: beginning.library.clone(),
                their_format: beginning.format,
                ours: LIBRARY.to_owned(),
                our_format: FORMAT,
            });
        }
        self.begun = true;
        self.done.segments += 1;
        match beginning.because {
            Because::Full => {}
            Because::Started => self.forget(),
            Because::Missed { entries } => {
                self.done.missed = self.done.missed.saturating_add(entries);
                self.forget();
            }
        }
        Ok(())
    }

    /// What follows does not follow from what was.
    fn forget(&mut self) {
        let known = self.replayed();
        *self = Replay { begun: self.begun, lines: self.lines, done: known, ..Replay::default() };
    }

    fn know(&mut self, state: State) -> Result<(), ReplayFault> {
        let id = match &state {
            State::Device(device) => MachineId::Device(device.member()),
            State::Runner(runner) => MachineId::Runner(runner.member()),
            State::Pool(_) => MachineId::Pool,
            State::Judge(_) => MachineId::Judge,
            State::Lane(lane) => MachineId::Lane(lane.id()),
            State::Stage(stage) => MachineId::Stage(stage.hold()),
        };
        if let State::Stage(stage) = &state
            && let Some(why) = stage.unsound()
        {
            return Err(self.malformed(why));
        }
        let same = match state {
            // A runner that is listed again begins another life, in which it knows nothing of the one before.
            State::Device(device) if device.member().is_runner() => {
                self.devices.insert(device.member(), device);
                true
            }
            State::Device(device) => told(&mut self.devices, device.member(), device),
            State::Runner(runner) => told(&mut self.runners, runner.member(), *runner),
            State::Lane(lane) => told(&mut self.lanes, lane.id(), lane),
            State::Stage(stage) => told(&mut self.stages, stage.hold(), *stage),
            State::Pool(pool) => self.pool.replace(pool.clone()).is_none_or(|known| known == pool),
            State::Judge(judge) => self.judge.replace(judge.clone()).is_none_or(|known| known == judge),
        };
        if same { Ok(()) } else { Err(ReplayFault::OtherState { line: self.lines, machine: id.to_string() }) }
    }

    fn step(&mut self, at: Moment, step: Step) -> Result<(), ReplayFault> {
        self.done.inputs += 1;
        let id = step.machine();
        let unknown = self.malformed(&format!("the log has no state of {id} before it"));
        let place = (id, at, self.done.inputs);
        match step {
            Step::Device { of, takes, gave } => compare(self.devices.get_mut(&of).ok_or(unknown)?, takes, gave, place),
            Step::Runner { of, takes, gave } => compare(self.runners.get_mut(&of).ok_or(unknown)?, takes, gave, place),
            Step::Lane { of, takes, gave } => compare(self.lanes.get_mut(&of).ok_or(unknown)?, takes, gave, place),
            Step::Pool { takes, gave } => compare(self.pool.as_mut().ok_or(unknown)?, takes, gave, place),
            Step::Judge { takes, gave } => compare(self.judge.as_mut().ok_or(unknown)?, takes, gave, place),
            Step::Stage { of, takes, gave } => {
                if let StageTakes::Begin(plan) = &takes {
                    let begun = Stage::new(at, (**plan).clone());
                    if let Some(why) = begun.unsound().or((begun.hold() != of).then_some("it begins another stage")) {
                        return Err(self.malformed(why));
                    }
                    self.stages_over += u64::from(self.stages.insert(of, begun).is_some());
                }
                let over = gave.is_over();
                compare(self.stages.get_mut(&of).ok_or(unknown)?, takes, gave, place)?;
                if over {
                    self.stages.remove(&of);
                    self.stages_over += 1;
                }
                Ok(())
            }
        }
    }

    fn malformed(&self, why: &str) -> ReplayFault {
        ReplayFault::Malformed { line: self.lines, why: why.to_owned() }
    }
}

/// Takes over a machine's state; whether it is the one that was expected, where one was.
fn told<K: Ord, M: PartialEq + Clone>(known: &mut BTreeMap<K, M>, id: K, machine: M) -> bool {
    known.insert(id, machine.clone()).is_none_or(|before| before == machine)
}

fn compare<M: Machine>(
    machine: &mut M,
    takes: M::Takes,
    gave: M::Gives,
    (id, at, input): (MachineId, Moment, u64),
) -> Result<(), ReplayFault> {
    let would = machine.take(at, takes);
    if would == gave {
        return Ok(());
    }
    Err(ReplayFault::Difference(Box::new(Difference {
        machine: id.to_string(),
        input,
        at,
        decided: short(&gave),
        would: short(&would),
    })))
}

/// A decision as text that a person can take in.
fn short(decision: &impl fmt::Debug) -> String {
    let text = format!("{decision:?}");
    match text.char_indices().nth(DIFFERENCE_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// What is shown of a decision.
const DIFFERENCE_CHARS: usize = 2_000;
/// Beyond this a JSON number is rounded by half of all readers; a rig's own numbers stay far below.
const NUMBER_MOST: u64 = 1 << 53;

/// The first whole number that no rig can have written.
fn beyond(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let fits = number.is_f64()
                || number.as_u64().is_some_and(|number| number <= NUMBER_MOST)
                || number.as_i64().is_some_and(|number| number >= i64::from(i32::MIN) && number < 0);
            (!fits).then(|| number.to_string())
        }
        Value::Array(items) => items.iter().find_map(beyond),
        Value::Object(fields) => fields.values().find_map(beyond),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}
