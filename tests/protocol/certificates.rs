//! Every certificate of a long mix is kept (rule A9): no wait ends later than any latest moment it was ever told.
//!
//! A listener looks at the whole rig at every event and keeps what each waiter was told. A job's certificate is void
//! once the device is out of service, the records cannot be written, its run is not running, the rig died, or another
//! is submitted while it rests (docs/protocol.md); a development run's is never void and never put off.
//!
//! `THERMITE_MIX_SEEDS=1000..1100 cargo test -p thermite-tests-protocol certificates` tries others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tokio::sync::broadcast::error::RecvError;

use thermite_actors::testing::{DevRunScript, Luck, MemoryRecords, StartScript, StopScript};
use thermite_actors::view::{DevRunStatus, JobStatus, RigView};
use thermite_core::contract::Contract;
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::device::DeviceView;
use thermite_core::ids::{DevRunId, JobId, MemberId, RunId};
use thermite_core::job::StageKind;
use thermite_core::lane::Caller;
use thermite_core::run::RunState;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};
use thermite_core::wait::{NoLatest, Wait, WaitEnd, WaitReason};

use crate::mix;
use crate::scenario::{Beginning, Scenario, SetPorts};

/// How long one mix lasts.
const LASTS: Span = Span::hours(8);
/// How many mixes: hours each, so few.
const SEEDS: std::ops::Range<u64> = 0..4;

#[test]
fn no_wait_of_a_long_mix_ends_later_than_it_was_told() {
    let mut all = Kept::default();
    for seed in mix::seeds(SEEDS) {
        println!("seed {seed}");
        let told = course(seed, |_, _, end| end);
        assert_eq!(told.broken, [] as [String; 0], "seed {seed}");
        all.add(&told.kept);
    }
    println!("{all:?}");
    assert!(all.lines > 100 && all.stops > 50 && all.jobs > 50 && all.quiet > 10 && all.void > 10, "{all:?}");
}

#[test]
fn a_development_runs_moment_that_is_put_off_is_found() {
    let told = course(1, |waiter, now, end| match waiter {
        Waiter::Line(_) => WaitEnd::Latest { at: now + Span::minutes(10) },
        Waiter::Stop(..) | Waiter::Job(..) | Waiter::Quiet(..) => end,
    });

    assert!(told.broken.iter().any(|line| line.contains("was put off")), "{:?}", told.broken);
}

#[test]
fn a_jobs_bound_that_forgets_who_is_ahead_is_found() {
    let told = course(1, |waiter, now, end| match (waiter, end) {
        (Waiter::Job(..), WaitEnd::Latest { at }) => WaitEnd::Latest { at: at.min(now + Span::minutes(6)) },
        (Waiter::Job(..) | Waiter::Line(_) | Waiter::Stop(..) | Waiter::Quiet(..), end) => end,
    });

    assert!(told.broken.iter().any(|line| line.starts_with("Job(")), "{:?}", told.broken);
}

#[test]
fn a_proof_that_is_promised_too_early_is_found() {
    let told = course(1, |waiter, _, end| match (waiter, end) {
        (Waiter::Stop(..), WaitEnd::Latest { at }) => WaitEnd::Latest { at: at - Span::seconds(9) },
        (Waiter::Stop(..) | Waiter::Job(..) | Waiter::Line(_) | Waiter::Quiet(..), end) => end,
    });

    assert!(told.broken.iter().any(|line| line.starts_with("Stop(")), "{:?}", told.broken);
}

/// Who waits, and which of its waits it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    /// A development run, from its asking to its start.
    Line(DevRunId),
    /// What ran under a hold, until it is proved gone.
    Stop(MemberId, u64),
    /// A job, for a stage's attempt.
    Job(JobId, StageKind, u32, usize),
    /// A stage, since a moment.
    Quiet(JobId, Moment),
}

/// Certificates that were held to, by kind.
#[derive(Debug, Default)]
struct Kept {
    lines: u64,
    stops: u64,
    jobs: u64,
    quiet: u64,
    void: u64,
}

impl Kept {
    fn add(&mut self, other: &Kept) {
        self.lines += other.lines;
        self.stops += other.stops;
        self.jobs += other.jobs;
        self.quiet += other.quiet;
        self.void += other.void;
    }
}

/// What a waiter was told: the earliest of all its latest moments, with its sentence.
#[derive(Clone, Debug)]
struct Told {
    earliest: Moment,
    sentence: String,
    run: Option<RunId>,
    /// Whether it is a resting job's: a job that is submitted meanwhile may pass it.
    rests: bool,
}

type Teller = fn(&Waiter, Moment, WaitEnd) -> WaitEnd;

/// Everything that was told, and how it was kept.
struct Certificates {
    teller: Teller,
    told: BTreeMap<Waiter, Told>,
    /// The jobs of the last look.
    live: BTreeSet<JobId>,
    kept: Kept,
    broken: Vec<String>,
}

impl Certificates {
    fn look(&mut self, view: &RigView) {
        let now = view.now;
        self.void_jobs(view);
        let waits = waits(view);
        let over: Vec<Waiter> = self.told.keys().filter(|waiter| !waits.contains_key(*waiter)).cloned().collect();
        for waiter in over {
            let told = self.told.remove(&waiter).expect("it was among them");
            self.hold_to(&waiter, &told, now, "ended");
            match waiter {
                Waiter::Line(_) => self.kept.lines += 1,
                Waiter::Stop(..) => self.kept.stops += 1,
                Waiter::Job(..) => self.kept.jobs += 1,
                Waiter::Quiet(..) => self.kept.quiet += 1,
            }
        }
        for (waiter, (wait, run)) in waits {
            let at = match (self.teller)(&waiter, now, wait.end) {
                WaitEnd::Latest { at } => at,
                WaitEnd::Unbounded { cause } => {
                    let fits = matches!(waiter, Waiter::Job(..))
                        && matches!(cause, NoLatest::PausedRun | NoLatest::NoReadyDevice | NoLatest::DiskFull);
                    if !fits {
                        self.broken.push(format!("{waiter:?} has no latest moment: {}", wait.sentence(now)));
                    }
                    continue;
                }
            };
            let rests = matches!(wait.reason, WaitReason::Retry { .. });
            let told = Told { earliest: at, sentence: wait.sentence(now), run, rests };
            let before = self.told.entry(waiter.clone()).or_insert_with(|| told.clone());
            if at > before.earliest && matches!(waiter, Waiter::Line(_) | Waiter::Stop(..)) {
                self.broken.push(format!("{waiter:?} was put off: {} ({})", told.sentence, before.sentence));
            }
            if at < before.earliest {
                *before = told;
            }
            let before = before.clone();
            self.hold_to(&waiter, &before, now, "still waits");
        }
    }

    fn hold_to(&mut self, waiter: &Waiter, told: &Told, now: Moment, how: &str) {
        if now > told.earliest {
            let late = now.since(told.earliest);
            self.broken.push(format!("{waiter:?} {how} {late} too late: {}", told.sentence));
        }
    }

    /// What is told of jobs covers no fault of the infrastructure, and no pause.
    fn void_jobs(&mut self, view: &RigView) {
        let in_service = view.devices.iter().all(|row| match row.state {
            DeviceView::Ready | DeviceView::Held { .. } | DeviceView::Stopping { .. } => true,
            DeviceView::Sweeping | DeviceView::Out { .. } | DeviceView::Quarantined { .. } => false,
        });
        let sound = in_service && view.records_fault.is_none();
        let runs: Vec<RunId> =
            view.runs.iter().filter(|row| row.state == RunState::Running).map(|row| row.run).collect();
        let live: BTreeSet<JobId> = view.jobs.iter().map(|row| row.job).collect();
        let is_new = !live.is_subset(&self.live);
        self.live = live;
        let before = self.told.len();
        self.told.retain(|_, told| told.run.is_none_or(|run| sound && runs.contains(&run)) && !(is_new && told.rests));
        self.kept.void += (before - self.told.len()) as u64;
    }
}

fn waits(view: &RigView) -> BTreeMap<Waiter, (Wait, Option<RunId>)> {
    let mut waits = BTreeMap::new();
    for row in &view.dev_runs {
        match &row.status {
            DevRunStatus::Recording { wait, .. }
            | DevRunStatus::Waiting { wait, .. }
            | DevRunStatus::Starting { wait, .. } => {
                waits.insert(Waiter::Line(row.dev_run), (wait.clone(), None));
            }
            DevRunStatus::Stopping { hold, wait, .. } => {
                waits.insert(Waiter::Stop(hold.member, hold.number), (wait.clone(), None));
            }
            DevRunStatus::Running { .. } | DevRunStatus::Ended { .. } => {}
        }
    }
    for row in &view.devices {
        if let DeviceView::Stopping { hold, since, until, .. } = row.state {
            waits.insert(Waiter::Stop(hold.member, hold.number), (Wait::stop(hold.member, since, until), None));
        }
    }
    for row in &view.jobs {
        match &row.status {
            JobStatus::Waiting { wait, .. } => {
                let waiter = Waiter::Job(row.job, row.stage, row.attempt, row.failures.len());
                waits.insert(waiter, (wait.clone(), Some(row.run)));
            }
            JobStatus::Measuring { stage: Some(stage), .. } => {
                if let Some(quiet) = &stage.waiting {
                    let waiter = Waiter::Quiet(row.job, quiet.since);
                    waits.insert(waiter, (Wait::quiet(quiet), None));
                }
            }
            // What is being made durable takes as long as the disk does.
            JobStatus::Measuring { stage: None, .. }
            | JobStatus::Recording { .. }
            | JobStatus::Concluding { .. }
            | JobStatus::Ended { .. } => {}
        }
    }
    waits
}

/// A mix of hours, with all its faults and deaths; gives what was told.
fn course(seed: u64, teller: Teller) -> Certificates {
    let told = Certificates {
        teller,
        told: BTreeMap::new(),
        live: BTreeSet::new(),
        kept: Kept::default(),
        broken: Vec::new(),
    };
    let told = Rc::new(RefCell::new(told));
    let mut luck = Luck::new(seed ^ 0xce27);
    let mut life = 0;
    let mut rig = Scenario::begin(Beginning { seed, lanes: 4, set: set(seed), ..Beginning::default() });
    watch(&rig, told.clone());
    let until = rig.now() + LASTS;
    let mut number = 0;
    while rig.now() < until {
        for _ in 0..=luck.below(2) {
            number += 1;
            do_something(&rig, &mut luck, number);
        }
        rig.advance(luck.span(Span::ZERO, Span::seconds(100)));
        if luck.once_in(60) {
            life += 1;
            rig = next_life(rig, seed ^ (life << 32), &told);
        }
    }
    rig.assert_sound();
    drop(rig);
    Rc::into_inner(told).expect("the rig's listener is gone with it").into_inner()
}

/// `kill -9`, and another life over what the records have: what was told is void.
fn next_life(rig: Scenario, seed: u64, told: &Rc<RefCell<Certificates>>) -> Scenario {
    rig.assert_sound();
    let now = rig.now();
    let records: Rc<MemoryRecords> = rig.records.clone();
    drop(rig);
    records.revive();
    let void = std::mem::take(&mut told.borrow_mut().told).len();
    told.borrow_mut().kept.void += void as u64;
    let rig = Scenario::start(Beginning { seed, lanes: 4, records, now, set: set(seed), ..Beginning::default() });
    watch(&rig, told.clone());
    rig
}

/// Looks at the whole rig at every event.
fn watch(rig: &Scenario, told: Rc<RefCell<Certificates>>) {
    let handle = rig.rig.clone();
    rig.begin_at_once(async move {
        let mut events = handle.events();
        loop {
            match events.recv().await {
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => panic!("the listener missed {missed} events"),
                Err(RecvError::Closed) => return,
            }
            let Ok(view) = handle.view().await else { return };
            told.borrow_mut().look(&view);
        }
    });
}

fn do_something(rig: &Scenario, luck: &mut Luck, number: u64) {
    let lane = 1 + u32::try_from(luck.below(4)).expect("a small number");
    let handle = rig.rig.clone();
    match luck.below(20) {
        0..8 => {
            let mut ask = rig.asking(lane);
            ask.caller = if luck.once_in(8) { Caller::Attached } else { Caller::Detached };
            drop(rig.begin_at_once(async move {
                let attached = ask.caller == Caller::Attached;
                if let Ok(queued) = handle.ask(ask).await
                    && attached
                {
                    handle.caller_present(queued.dev_run, false).await;
                }
            }));
        }
        8..12 => {
            let change = ["equal", "faster", "slower", "broken"][usize::try_from(luck.below(4)).expect("small")];
            let submit = rig.submitting(&format!("{change}-{number}"));
            drop(rig.begin_at_once(async move { handle.submit(submit).await }));
        }
        12 => {
            let rows = rig.view().dev_runs;
            if !rows.is_empty() {
                let at = usize::try_from(luck.below(rows.len() as u64)).expect("small");
                let dev_run = rows[at].dev_run;
                drop(rig.begin_at_once(async move { handle.cancel(dev_run).await }));
            }
        }
        13 => {
            let (run, paused) = (rig.run, luck.once_in(3));
            let state = if paused { RunState::Paused } else { RunState::Running };
            drop(rig.begin_at_once(async move { handle.change_run(run, state).await }));
        }
        14 => rig.records.take(luck.span(Span::ZERO, Span::seconds(1))),
        15 => match luck.once_in(3) {
            true => rig.records.refuse("disk full"),
            false => rig.records.mend(),
        },
        16 | 17 => rig.device.be_busy(luck.once_in(3).then_some("load1")),
        18 => rig.device.script_judge_stop(match luck.below(8) {
            0 => StopScript::Hangs,
            1 => StopScript::NotProvedAfter(Span::seconds(8), "pid 9 is left".to_owned()),
            _ => StopScript::ProvedAfter(luck.span(Span::ZERO, Span::seconds(9))),
        }),
        _ => rig.device.script_sweep(if luck.once_in(4) {
            StopScript::NotProvedAfter(Span::seconds(2), "pid 7 is left".to_owned())
        } else {
            StopScript::ProvedAfter(Span::millis(300))
        }),
    }
}

/// Slow steps under a contract that knows them, so that the bounds are not far away.
fn set(seed: u64) -> SetPorts {
    Box::new(move |device, workspaces| {
        workspaces.change_kit(|kit| {
            kit.contract = Contract {
                blocks_most: 12,
                blocks_least: 3,
                build_max: Span::seconds(8),
                check_max: Span::seconds(8),
                measure_max: Span::seconds(2),
                ..Contract::default()
            };
        });
        device.steps_take(Span::seconds(7), Span::seconds(4));
        device.script_dev_runs(move |spec| dev_run_script(spec, seed));
        let luck = Cell::new(seed);
        device.script_steps(move |stage, step| {
            let mut drawn = Luck::new(luck.get());
            luck.set(drawn.next());
            match step {
                StageStep::Prepare if drawn.once_in(5) => {
                    Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
                }
                StageStep::Block { order, .. } if drawn.once_in(40) => Some(StepReport::Lost {
                    side: order.sides()[0],
                    why: format!("attempt {} lost its process", stage.attempt),
                }),
                _ => None,
            }
        });
    })
}

fn dev_run_script(spec: &DevRunSpec, seed: u64) -> DevRunScript {
    let mut luck = Luck::new(seed ^ spec.dev_run.0.as_u64_pair().1);
    let prepare = luck.span(Span::ZERO, Span::seconds(20));
    let usual = DevRunScript {
        start: StartScript::After(if luck.once_in(2) { Span::ZERO } else { prepare }),
        runs: Some(luck.span(Span::ZERO, Span::minutes(4))),
        exit: Exit::Code(0),
        stop: StopScript::ProvedAfter(luck.span(Span::ZERO, Span::seconds(9))),
    };
    match luck.below(12) {
        0 => DevRunScript { runs: None, ..usual },
        1 => DevRunScript { start: StartScript::Fails(prepare, "no such program".to_owned()), ..usual },
        2 => DevRunScript { start: StartScript::Hangs, ..usual },
        3 => {
            let stop = StopScript::NotProvedAfter(Span::seconds(4), "pid 4711 does not end".to_owned());
            DevRunScript { stop, ..usual }
        }
        4 => DevRunScript { stop: StopScript::Hangs, ..usual },
        _ => usual,
    }
}
