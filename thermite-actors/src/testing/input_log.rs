//! An input log in memory, which is replayed at the end of every simulated test.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde_json::Value;

use thermite_core::input_log::{Because, Beginning, Line, Replay, ReplayFault, Replayed, State};

use crate::ports::InputLog;

/// Lines after which a segment is full: few, so that a short test has more than one.
const SEGMENT_LINES: usize = 150;
/// Lines kept before they are replayed: a simulated day must not fill the memory.
const LINES_KEPT: usize = 20_000;

/// The log of one or more lives of a rig.
pub struct MemoryInputLog {
    lines: RefCell<Vec<Line>>,
    replay: RefCell<Replay>,
    fault: RefCell<Option<ReplayFault>>,
    /// How many values each machine's state had when it was last told; stages are gone with their attempts.
    states: RefCell<BTreeMap<String, usize>>,
    epoch: Cell<u64>,
    in_segment: Cell<usize>,
}

impl MemoryInputLog {
    /// The log of a rig that starts.
    pub fn new() -> MemoryInputLog {
        let log = MemoryInputLog {
            lines: RefCell::default(),
            replay: RefCell::default(),
            fault: RefCell::default(),
            states: RefCell::default(),
            epoch: Cell::new(0),
            in_segment: Cell::new(0),
        };
        log.begin(Because::Started);
        log
    }

    /// The lines since the last replay as text, the segments one after another.
    pub fn text(&self) -> Vec<String> {
        self.lines.borrow().iter().map(Line::to_text).collect()
    }

    /// Replays what there is, by way of its text, and forgets it.
    ///
    /// # Errors
    /// Where a decision is another.
    pub fn replay(&self) -> Result<Replayed, ReplayFault> {
        let mut replay = self.replay.borrow_mut();
        if let Some(fault) = &*self.fault.borrow() {
            return Err(fault.clone());
        }
        for line in self.lines.take() {
            replay.take(&line.to_text()).inspect_err(|fault| *self.fault.borrow_mut() = Some(fault.clone()))?;
        }
        Ok(replay.replayed())
    }

    /// How many values each machine's state had when it was last told. What a judge queue remembers of
    /// verdicts that were given (rules A13, D5) grows with them and is counted apart, as `verdicts`.
    pub fn state_sizes(&self) -> BTreeMap<String, usize> {
        self.states.borrow().clone()
    }

    /// Begins another segment: each machine tells its state before its next step.
    pub fn begin_segment(&self) {
        self.in_segment.set(SEGMENT_LINES);
    }

    fn measure(&self, state: &State) {
        let mut value = serde_json::to_value(state).expect("a state has JSON");
        let mut states = self.states.borrow_mut();
        let name = match state {
            State::Device(device) => device.member().to_string(),
            State::Runner(runner) => runner.member().to_string(),
            State::Pool(_) => "pool".to_owned(),
            State::Lane(lane) => lane.id().to_string(),
            State::Stage(_) => return,
            State::Judge(_) => {
                let fields = value["judge"].as_object_mut().expect("a judge queue's state has fields");
                let given =
                    ["same", "keys", "over", "settled"].map(|name| fields.remove(name).map_or(0, |map| values(&map)));
                states.insert("verdicts".to_owned(), given.iter().sum());
                "judge".to_owned()
            }
        };
        states.insert(name, values(&value));
    }

    fn begin(&self, because: Because) {
        self.epoch.set(self.epoch.get() + 1);
        self.in_segment.set(0);
        self.lines.borrow_mut().push(Line::Begins(Beginning::now(0, because)));
    }
}

/// How many values a JSON value is made of.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

impl Default for MemoryInputLog {
    fn default() -> MemoryInputLog {
        MemoryInputLog::new()
    }
}

impl InputLog for MemoryInputLog {
    fn epoch(&self) -> Option<u64> {
        if self.in_segment.get() >= SEGMENT_LINES {
            if self.lines.borrow().len() >= LINES_KEPT {
                // A fault is kept, and told at the end.
                let _kept = self.replay();
            }
            self.begin(Because::Full);
        }
        Some(self.epoch.get())
    }

    fn write(&self, line: Line) {
        self.in_segment.set(self.in_segment.get() + 1);
        if let Line::State(state) = &line {
            self.measure(state);
        }
        self.lines.borrow_mut().push(line);
    }
}
