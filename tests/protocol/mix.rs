//! Random mixes of askings, cancels, pauses and faults: what holds whatever comes, and that all ends once faults stop.
//!
//! `THERMITE_MIX_SEEDS=1000..2000 cargo test -p thermite-tests-protocol mix` tries others.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use thermite_actors::rig::{No, Queued, Submitted};
use thermite_actors::testing::{Call, DevRunScript, Luck, ScriptedDevice, StartScript, StopScript};
use thermite_actors::view::{DevRunStatus, RigView};
use thermite_core::dev_run::{DevRunEnd, DevRunSpec, Exit};
use thermite_core::ids::{DevRunId, JobId};
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::{Moment, Span};
use thermite_core::wait::WaitEnd;

use crate::scenario::{Beginning, Pending, Scenario};

/// Seeds that are tried every time, those of former failures among them.
const SEEDS: Range<u64> = 0..24;
/// Bursts of askings in one mix.
const BURSTS: u64 = 60;
/// Within this everything ends that was asked, once faults have stopped.
const ENDS_WITHIN: Span = Span::hours(12);

#[test]
fn whatever_comes_rules_hold_and_all_ends_once_faults_stop() {
    each_seed(SEEDS, 1, mix);
}

/// Runs the mix of each seed, and of every so many the second time too: it must take the same course.
pub(crate) fn each_seed(usual: Range<u64>, twice_in: u64, mix: impl Fn(u64) -> (u64, u64)) {
    let seeds = seeds(usual);
    let mut decisions = 0;
    for seed in seeds.clone() {
        println!("seed {seed}");
        let first = mix(seed);
        if seed.is_multiple_of(twice_in) {
            assert_eq!(first, mix(seed), "seed {seed} gave two courses of events");
        }
        decisions += first.1;
    }
    println!("seeds {seeds:?}: {decisions} decisions");
}

/// Lets time pass until nothing lives that was asked; each minute what must always hold is looked at.
pub(crate) fn until_all_ends(rig: &Scenario, check: impl Fn(&RigView)) {
    let until = rig.now() + ENDS_WITHIN;
    loop {
        rig.advance(Span::minutes(1));
        let view = rig.view();
        check(&view);
        if view.jobs_live == 0 && view.dev_runs.is_empty() {
            return;
        }
        assert!(rig.now() < until, "something does not end: {view:#?}");
    }
}

/// The seeds that the environment names, else those.
pub(crate) fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var("THERMITE_MIX_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").expect("a range of seeds is written as 10..20");
            from.parse().expect("the first seed is a number")..to.parse().expect("the last seed is a number")
        }
        Err(_) => usual,
    }
}

/// One mix, and what has come of it.
struct Mix {
    rig: Scenario,
    luck: Luck,
    faulty: Rc<Cell<bool>>,
    /// Whether this mix lets the records fail; then ends are recorded late, whatever the rig does.
    records_fail: bool,
    jobs: Vec<JobId>,
    dev_runs: Vec<DevRunId>,
    submits: Vec<Pending<Result<Submitted, No>>>,
    asks: Vec<Pending<Result<Queued, No>>>,
    cancels: Vec<Pending<Result<DevRunEnd, No>>>,
    changes: Vec<Pending<Result<RunState, No>>>,
    /// Development runs that waited when a job's submission was answered.
    behind: Vec<(JobId, DevRunId)>,
    /// The latest moment that each waiter was promised first.
    promised: BTreeMap<DevRunId, Moment>,
}

/// Runs a mix to its end, checks it, and gives its trace.
fn mix(seed: u64) -> (u64, u64) {
    let faulty = Rc::new(Cell::new(true));
    let seen = faulty.clone();
    let rig = Scenario::begin(Beginning {
        seed,
        lanes: 4,
        set: Box::new(move |device, _| script(device, seed, seen)),
        ..Beginning::default()
    });
    let mut mix = Mix {
        rig,
        luck: Luck::new(seed),
        faulty,
        records_fail: seed % 2 == 1,
        jobs: Vec::new(),
        dev_runs: Vec::new(),
        submits: Vec::new(),
        asks: Vec::new(),
        cancels: Vec::new(),
        changes: Vec::new(),
        behind: Vec::new(),
        promised: BTreeMap::new(),
    };
    for burst in 0..BURSTS {
        for _ in 0..=mix.luck.below(3) {
            mix.ask_something(burst);
        }
        let span = mix.luck.span(Span::ZERO, Span::seconds(40));
        mix.rig.advance(span);
        mix.gather();
        mix.check_promises();
    }
    mix.stop_faults();
    mix.wait_for_all();
    mix.check();
    mix.rig.trace()
}

impl Mix {
    fn ask_something(&mut self, burst: u64) {
        let lane = 1 + u32::try_from(self.luck.below(4)).expect("a small number");
        let handle = self.rig.rig.clone();
        match self.luck.below(16) {
            0..6 => {
                let mut ask = self.rig.asking(lane);
                let gone = self.luck.once_in(6);
                ask.caller = if gone { Caller::Attached } else { Caller::Detached };
                ask.key = self.luck.once_in(4).then(|| format!("try {burst}"));
                self.asks.push(self.rig.begin_at_once(async move {
                    let answer = handle.ask(ask).await;
                    if let (true, Ok(queued)) = (gone, &answer) {
                        handle.caller_present(queued.dev_run, false).await;
                    }
                    answer
                }));
            }
            6..8 => {
                let change =
                    ["equal", "faster", "slower", "broken"][usize::try_from(self.luck.below(4)).expect("small")];
                let submit = self.rig.submitting(&format!("{change}-{burst}"));
                self.submits.push(self.rig.begin_at_once(async move { handle.submit(submit).await }));
            }
            8 => self.submit_and_see_who_waits(burst),
            9..11 => {
                let all = self.dev_runs.len() as u64;
                if all > 0 {
                    let back = usize::try_from(self.luck.below(all.min(4))).expect("small");
                    let dev_run = self.dev_runs[self.dev_runs.len() - 1 - back];
                    self.cancels.push(self.rig.begin_at_once(async move { handle.cancel(dev_run).await }));
                }
            }
            11 => {
                let (run, paused) = (self.rig.run, self.luck.once_in(3));
                let state = if paused { RunState::Paused } else { RunState::Running };
                self.changes.push(self.rig.begin_at_once(async move { handle.change_run(run, state).await }));
            }
            12 => self.rig.records.take(self.luck.span(Span::ZERO, Span::millis(300))),
            13 if self.records_fail => {
                if self.luck.once_in(2) {
                    self.rig.records.refuse("disk full")
                } else {
                    self.rig.records.mend()
                }
            }
            14 => self.rig.device.be_busy(self.luck.once_in(3).then_some("load1")),
            _ => self.rig.device.script_sweep(if self.luck.once_in(3) {
                StopScript::NotProvedAfter(Span::seconds(2), "pid 7 is left".to_owned())
            } else {
                StopScript::ProvedAfter(Span::millis(300))
            }),
        }
    }

    fn submit_and_see_who_waits(&mut self, burst: u64) {
        let submit = self.rig.submitting(&format!("equal-{burst}-seen"));
        let Ok(Submitted { job, same: false, .. }) = self.rig.wait_for(self.rig.rig.submit(submit)) else { return };
        self.jobs.push(job);
        let waiting = self.rig.view().dev_runs.into_iter();
        let waiting = waiting.filter(|row| matches!(row.status, DevRunStatus::Waiting { .. }));
        self.behind.extend(waiting.map(|row| (job, row.dev_run)));
    }

    /// Takes the answers that have come.
    fn gather(&mut self) {
        self.submits.retain(|submit| match submit.now() {
            Some(answer) => {
                self.jobs.extend(answer.ok().filter(|submitted| !submitted.same).map(|submitted| submitted.job));
                false
            }
            None => true,
        });
        self.asks.retain(|ask| match ask.now() {
            Some(answer) => {
                self.dev_runs.extend(answer.ok().map(|queued| queued.dev_run));
                false
            }
            None => true,
        });
        self.cancels.retain(|cancel| cancel.now().is_none());
        self.changes.retain(|change| change.now().is_none());
    }

    /// No wait passes the latest moment it was promised (rule A9).
    fn check_promises(&mut self) {
        let view = self.rig.view();
        for row in view.dev_runs {
            if let DevRunStatus::Waiting { wait, sentence } = row.status {
                let WaitEnd::Latest { at } = wait.end else {
                    panic!("a development run has a latest moment: {sentence}")
                };
                let first = *self.promised.entry(row.dev_run).or_insert(at);
                assert!(at <= first, "a promise was put off: {sentence}");
                assert!(view.now <= at, "a wait passed its latest moment: {sentence}");
            }
        }
    }

    fn stop_faults(&mut self) {
        self.faulty.set(false);
        self.rig.records.mend();
        self.rig.device.be_busy(None);
        self.rig.device.script_sweep(StopScript::ProvedAfter(Span::ZERO));
        self.rig.advance(Span::seconds(2));
        self.rig.change_run(RunState::Running).expect("a run that has not ended can be resumed");
    }

    /// Everything that was asked ends.
    fn wait_for_all(&mut self) {
        let until = self.rig.now() + ENDS_WITHIN;
        loop {
            self.rig.advance(Span::minutes(1));
            self.gather();
            self.check_promises();
            let view = self.rig.view();
            let asked = self.submits.len() + self.asks.len() + self.cancels.len() + self.changes.len();
            if view.jobs_live == 0 && view.dev_runs.is_empty() && asked == 0 {
                return;
            }
            assert!(self.rig.now() < until, "{asked} answers are missing, or something does not end: {view:#?}");
        }
    }

    fn check(&self) {
        self.rig.assert_sound();
        let facts = self.rig.facts();
        let mut asked: BTreeMap<DevRunId, Moment> = BTreeMap::new();
        let mut ended: BTreeMap<DevRunId, Moment> = BTreeMap::new();
        let mut judged: BTreeMap<JobId, Moment> = BTreeMap::new();
        for (at, fact) in &facts {
            match &**fact {
                LogEntry::DevRunAsked { spec, .. } => {
                    asked.insert(spec.dev_run, *at);
                }
                LogEntry::DevRunEnded { dev_run, .. } => {
                    assert_eq!(ended.insert(*dev_run, *at), None, "{dev_run} ended twice");
                }
                LogEntry::JobEnded { job, .. } => assert_eq!(judged.insert(*job, *at), None, "{job} was judged twice"),
                _ => {}
            }
        }
        for job in &self.jobs {
            assert!(judged.contains_key(job), "accepted job {job} has no end");
        }
        for dev_run in &self.dev_runs {
            assert!(ended.contains_key(dev_run), "accepted development run {dev_run} has no end");
        }
        self.check_turns(&asked, &ended, &judged);
        self.check_device();
    }

    /// Judge first, and nobody waits longer than ten minutes (rules A2, A6).
    fn check_turns(
        &self,
        asked: &BTreeMap<DevRunId, Moment>,
        ended: &BTreeMap<DevRunId, Moment>,
        judged: &BTreeMap<JobId, Moment>,
    ) {
        for (job, dev_run) in &self.behind {
            if let Some(began) = self.rig.exec_of(*dev_run) {
                assert!(began >= judged[job], "{dev_run} waited when {job} was accepted, and passed it");
            }
        }
        for (dev_run, asked) in asked {
            let latest = *asked + limits::DEV_RUN_WAIT_MAX;
            match self.rig.exec_of(*dev_run) {
                Some(began) => assert!(began <= latest, "{dev_run} began after its latest moment"),
                None if self.records_fail => {}
                // Giving up after the grant, it is told once nothing of its start is left.
                None => {
                    let told = latest + limits::PROOF_MAX + Span::seconds(1);
                    assert!(ended[dev_run] <= told, "{dev_run} waited beyond its latest moment");
                }
            }
        }
        for (dev_run, promised) in &self.promised {
            if let Some(began) = self.rig.exec_of(*dev_run) {
                assert!(began <= *promised, "{dev_run} began after the moment it was promised");
            }
        }
    }

    /// The device saw rising numbers and no run beyond its limit (rules A1, A5).
    fn check_device(&self) {
        let mut last = 0;
        let mut began: BTreeMap<u64, Moment> = BTreeMap::new();
        for line in self.rig.diary() {
            let Some(hold) = line.hold else { continue };
            match line.call {
                Call::Start(_) => {
                    assert!(hold.number > last, "{hold} came after {last}");
                    last = hold.number;
                }
                Call::Step { .. } => {
                    assert!(hold.number >= last, "{hold} came after {last}");
                    last = hold.number;
                }
                Call::Exec(_) => {
                    began.insert(hold.number, line.at);
                }
                Call::Stop { .. } => {
                    let ran = began.remove(&hold.number).map(|began| line.at.since(began));
                    assert!(ran.is_none_or(|ran| ran <= limits::SHARED_DEV_RUN_MAX), "{hold} ran for {ran:?}");
                }
                Call::Sweep | Call::Exited(_) | Call::Emptied | Call::Release => {}
            }
        }
        assert_eq!(began, BTreeMap::new(), "every start has its stop");
    }
}

/// How development runs, steps and stops go: by luck that the seed and the thing itself give.
fn script(device: &ScriptedDevice, seed: u64, faulty: Rc<Cell<bool>>) {
    let seen = faulty.clone();
    device.script_dev_runs(move |spec| dev_run_script(spec, seed, seen.get()));
    let luck = Cell::new(seed);
    device.script_steps(move |stage, step| {
        let mut drawn = Luck::new(luck.get());
        luck.set(drawn.next());
        if !faulty.get() {
            return None;
        }
        match step {
            StageStep::Prepare if drawn.once_in(6) => {
                Some(StepReport::NotCarriedOut { why: "the disk is full".to_owned() })
            }
            StageStep::Block { order, .. } if drawn.once_in(60) => Some(StepReport::Lost {
                side: order.sides()[0],
                why: format!("attempt {} lost its process", stage.attempt),
            }),
            _ => None,
        }
    });
}

fn dev_run_script(spec: &DevRunSpec, seed: u64, faulty: bool) -> DevRunScript {
    let mut luck = Luck::new(seed ^ spec.dev_run.0.as_u64_pair().1);
    let prepare = luck.span(Span::ZERO, Span::seconds(3));
    let usual = DevRunScript {
        start: StartScript::After(if luck.once_in(2) { Span::ZERO } else { prepare }),
        runs: Some(luck.span(Span::ZERO, Span::seconds(90))),
        exit: Exit::Code(0),
        stop: StopScript::ProvedAfter(luck.span(Span::ZERO, Span::seconds(2))),
    };
    match luck.below(12) {
        0 => DevRunScript { runs: None, ..usual },
        1 if faulty => DevRunScript { start: StartScript::Fails(prepare, "no such program".to_owned()), ..usual },
        2 if faulty => DevRunScript { start: StartScript::Hangs, ..usual },
        3 if faulty => {
            let stop = StopScript::NotProvedAfter(Span::seconds(4), "pid 4711 does not end".to_owned());
            DevRunScript { stop, ..usual }
        }
        4 if faulty => DevRunScript { stop: StopScript::Hangs, ..usual },
        _ => usual,
    }
}
