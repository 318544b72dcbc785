//! A scripted device for stages and records: fixed facts, readings, and run times that follow from a factor.

use thermite_core::block::{BlockTimes, Order, Pair, Side};
use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::ids::{Arrival, HoldId, JobId, MemberId, RunId};
use thermite_core::job::{JobSpec, PinnedChange, StageKind};
use thermite_core::noise::{HarnessAlarm, Noise};
use thermite_core::readiness::{Clocks, Reading, Signal, SignalState, ThrottleCounter, names};
use thermite_core::record::{MeasuredOn, Screened};
use thermite_core::stage::{Directive, Stage, StageEnd, StagePart, StagePlan, StageStep, StepReport};
use thermite_core::time::{Moment, Span};

/// When scripted stages begin, by the wall clock.
pub(crate) const WALL_MS: u64 = 1_790_000_000_000;

/// A plan for a screening with a kept noise of 0.4 %.
pub(crate) fn plan() -> StagePlan {
    let on = MeasuredOn {
        uuid: "GPU-6f2c".to_owned(),
        model: "NVIDIA GB10".to_owned(),
        driver: "580.95".to_owned(),
        clock_policy: "locked 2418 MHz".to_owned(),
        runner: "box-2/1".to_owned(),
        cpus: "0-3".to_owned(),
    };
    let spec = spec();
    let noise = Noise { key: on.noise_key(&spec.pinned.kit_hash), scale: 0.004, blocks: 40, wall_ms: WALL_MS - 60_000 };
    StagePlan {
        spec,
        stage: StageKind::Screening,
        attempt: 1,
        hold: HoldId { member: MemberId(2), number: 17 },
        on,
        noise: Some(noise),
        alarm: HarnessAlarm::default(),
        seed: 0x9e37_79b9_7f4a_7c15,
        screened: None,
        look_every: Span::seconds(5),
        ready_wait_max: Span::seconds(180),
        wall_ms: WALL_MS,
        part: StagePart::Whole,
    }
}

/// The same as a confirmation.
pub(crate) fn confirmation() -> StagePlan {
    let screened = Screened { record: "5c".repeat(32), same_device: true };
    StagePlan { stage: StageKind::Confirmation, screened: Some(screened), ..plan() }
}

fn spec() -> JobSpec {
    JobSpec {
        job: JobId(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)),
        run: RunId(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002)),
        arrival: Arrival(3),
        pinned: PinnedChange {
            champion: "c0".repeat(20),
            change: "b1".repeat(20),
            candidate: "ca".repeat(20),
            candidate_tree: "7e".repeat(20),
            paths: vec!["src/kernel.cu".to_owned()],
            kit: Kit {
                name: "matmul".to_owned(),
                target: Target::CudaGpu,
                build: Some(Argv(vec!["make".to_owned()])),
                check: Some(Argv(vec!["make".to_owned(), "check".to_owned()])),
                measure: Argv(vec!["./bench".to_owned()]),
                timer: Timer::Wall,
                editable: vec!["src/**".to_owned()],
                artefacts: vec!["bench".to_owned()],
                models: Vec::new(),
                contract: Contract::default(),
            },
            kit_hash: "d4".repeat(32),
        },
    }
}

/// A signal that must be ok, with a figure against a limit.
pub(crate) fn signal(name: &str, value: Option<f64>, limit: f64, unit: &str) -> Signal {
    let state = match value {
        None => SignalState::Unknown,
        Some(value) if value <= limit => SignalState::Ok,
        Some(_) => SignalState::Busy,
    };
    Signal { name: name.to_owned(), value, limit: Some(limit), unit: unit.to_owned(), state, required: true }
}

/// A reading of a quiet device.
pub(crate) fn quiet(at: Moment) -> Reading {
    let ms = at.as_millis();
    Reading {
        at,
        signals: vec![signal("gpu_use", Some(1.0), 5.0, "%"), signal(names::SLOWED, Some(0.0), 0.0, "bits")],
        throttle: vec![ThrottleCounter { group: "/rig".to_owned(), periods: Some(3), held_ns: None }],
        clocks: Clocks { boot_ms: ms + 500_000, monotonic_ms: ms + 400_000, wall_ms: WALL_MS + ms },
    }
}

/// A reading of a device that another program uses.
pub(crate) fn busy(at: Moment) -> Reading {
    let mut reading = quiet(at);
    reading.signals[0] = signal("gpu_use", Some(64.0), 5.0, "%");
    reading
}

/// The figures of a block in which the change takes `factor` of the champion's time.
pub(crate) fn times(now: Moment, order: Order, factor: f64, jitter: u64) -> BlockTimes {
    let champion = 25_000_000 + jitter;
    let change = (champion as f64 * factor) as u64;
    let ns = order.sides().map(|side| match side {
        Side::Champion => champion,
        Side::Change => change + jitter / 3,
    });
    BlockTimes { ns, started: now, before: quiet(now), after: quiet(now + Span::millis(150)) }
}

/// A stage with its clock, driven by what a test says of each step.
pub(crate) struct Rig {
    pub(crate) stage: Stage,
    pub(crate) now: Moment,
    /// Every step asked for, in order.
    pub(crate) asked: Vec<StageStep>,
}

impl Rig {
    pub(crate) fn new(plan: StagePlan) -> Rig {
        let now = Moment::from_millis(1_000);
        Rig { stage: Stage::new(now, plan), now, asked: Vec::new() }
    }

    /// Reports `report` 10 ms on, whatever is asked for.
    pub(crate) fn report(&mut self, report: StepReport) {
        if let Directive::Do(step) = self.stage.directive() {
            self.asked.push(step);
        }
        self.now = self.now + Span::millis(10);
        self.stage.report(self.now, report);
    }

    /// Goes on to the end, answering each step by `answer`; waits pass by the stage's own deadline.
    pub(crate) fn run(&mut self, mut answer: impl FnMut(Moment, &StageStep) -> StepReport) -> StageEnd {
        for _ in 0..10_000 {
            match self.stage.directive() {
                Directive::Do(step) => {
                    let report = answer(self.now, &step);
                    self.report(report);
                }
                Directive::Wait { until, .. } => {
                    assert_eq!(self.stage.next_deadline().map(|(at, _)| at), Some(until));
                    self.now = until;
                    self.stage.advance(self.now);
                }
                Directive::End(end) => return *end,
            }
        }
        panic!("the stage does not end: {:?}", self.stage.directive());
    }

    /// Goes through the set-up, up to the first look.
    pub(crate) fn set_up(&mut self) {
        while let Directive::Do(step) = self.stage.directive() {
            if step == StageStep::Look {
                return;
            }
            let report = well(self.now, &step, 1.0, 0);
            self.report(report);
        }
    }
}

/// The report of a step that goes well.
pub(crate) fn well(now: Moment, step: &StageStep, factor: f64, jitter: u64) -> StepReport {
    match step {
        StageStep::Prepare => StepReport::Prepared,
        StageStep::Build { side: Side::Champion } => {
            StepReport::Built { side: Side::Champion, artefact: "a1".repeat(32) }
        }
        StageStep::Build { side: Side::Change } => StepReport::Built { side: Side::Change, artefact: "a2".repeat(32) },
        StageStep::Check { side } => StepReport::Checked { side: *side },
        StageStep::Look => StepReport::Looked { reading: quiet(now) },
        StageStep::Block { pair: Pair::ChampionAndChange, order } => {
            StepReport::Timed { times: times(now, *order, factor, jitter) }
        }
        StageStep::Block { pair: Pair::ChampionTwice, order } => {
            StepReport::Timed { times: times(now, *order, 1.0, jitter) }
        }
    }
}
