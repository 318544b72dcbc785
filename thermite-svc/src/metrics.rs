//! Figures for Prometheus, as OpenMetrics text.
//!
//! What ended, failed or was thrown away is counted where it becomes durable ([`Counted`]); who had a device and for how
//! long by the devices' own events; what waits now is looked up when it is asked for. Every label has a closed list of
//! values: no id, path or command is one.

mod devices;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use thermite_actors::ports::{Batch, Checkpoint, FromRecords, Past, Records, RecordsFault, WhichEnded};
use thermite_actors::view::{DevRunStatus, JobStatus, RigEvent, RigHappening, RigView, RunnerRow};
use thermite_core::blame::Disturbance;
use thermite_core::block::TriedBlock;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::ids::{HoldId, Holder, MemberId};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::runner::RunnerState;
use thermite_core::time::Moment;
use tokio::sync::broadcast;

use devices::DeviceFigures;

const OUTCOMES: [&str; 5] = ["win", "no_gain", "undecided", "change_failed", "no_verdict"];
const ENDS: [&str; 9] = [
    "exited",
    "limit_reached",
    "cancelled",
    "gave_up",
    "not_started",
    "not_proved",
    "rig_ended",
    "new_split",
    "runner_lost",
];
const FAILURES: [&str; 11] = [
    "stayed_busy",
    "too_many_thrown",
    "throws_steered",
    "change_killed",
    "too_noisy",
    "champion",
    "step",
    "out_of_service",
    "records",
    "disk_full",
    "rig_ending",
];

/// One label and its value.
type Label = [(&'static str, String); 1];
type Counts = Family<Label, Counter>;
type Seconds = Family<Label, Counter<f64, AtomicU64>>;
type Levels = Family<Label, Gauge>;
type Ages = Family<Label, Gauge<f64, AtomicU64>>;

/// The figures of one rig. May be shared by threads.
pub struct Metrics {
    registry: Registry,
    jobs: Counts,
    dev_runs: Counts,
    failures: Counts,
    blocks: Counts,
    thrown: Counts,
    holds: Counts,
    busy: Seconds,
    held: Levels,
    devices: Levels,
    runners: Levels,
    waiters: Levels,
    oldest: Ages,
    refused: Counter,
    alarms: Counter,
    overlooked: Counter,
    records_fault: Gauge,
    events_dropped: Counter,
    event_readers: Gauge,
    each_device: DeviceFigures,
    busy_now: Mutex<BTreeMap<MemberId, Busy>>,
    /// One reader at a time: what is looked up is set and written out together.
    reading: Mutex<()>,
}

/// Who has a device, and since when that is counted.
struct Busy {
    hold: HoldId,
    by: String,
    since: Instant,
}

impl Metrics {
    /// Figures that are all nought.
    pub fn new() -> Arc<Metrics> {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("thermite"),
            jobs: Family::default(),
            dev_runs: Family::default(),
            failures: Family::default(),
            blocks: Family::default(),
            thrown: Family::default(),
            holds: Family::default(),
            busy: Family::default(),
            held: Family::default(),
            devices: Family::default(),
            runners: Family::default(),
            waiters: Family::default(),
            oldest: Family::default(),
            refused: Counter::default(),
            alarms: Counter::default(),
            overlooked: Counter::default(),
            records_fault: Gauge::default(),
            events_dropped: Counter::default(),
            event_readers: Gauge::default(),
            each_device: DeviceFigures::default(),
            busy_now: Mutex::default(),
            reading: Mutex::default(),
        };
        metrics.register();
        metrics.begin();
        Arc::new(metrics)
    }

    /// Every value of every label is there from the beginning, at nought: a rate needs a first figure.
    fn begin(&self) {
        let counts: [(&Counts, &'static str, &[&str]); 6] = [
            (&self.jobs, "outcome", &OUTCOMES),
            (&self.dev_runs, "end", &ENDS),
            (&self.failures, "cause", &FAILURES),
            (&self.blocks, "result", &["accepted", "thrown"]),
            (&self.thrown, "cause", &Disturbance::ALL.map(Disturbance::name)),
            (&self.holds, "holder", &["judge", "lane"]),
        ];
        for (counts, name, values) in counts {
            for value in values {
                drop(counts.get_or_create(&[(name, (*value).to_owned())]));
            }
        }
        drop(self.busy.get_or_create(&[("by", name_of(Holder::Judge))]));
    }

    fn register(&mut self) {
        let Metrics { registry, .. } = self;
        registry.register("jobs_ended", "Jobs that ended, by outcome", self.jobs.clone());
        registry.register("dev_runs_ended", "Development runs that ended, by how", self.dev_runs.clone());
        registry.register(
            "infrastructure_failures",
            "Attempts of the judge that infrastructure failed, by cause",
            self.failures.clone(),
        );
        registry.register("blocks", "Blocks of attempts that are over, by whether they count", self.blocks.clone());
        registry.register("blocks_thrown", "Blocks thrown away, by cause", self.thrown.clone());
        registry.register("holds", "Holds of a device that began, by holder", self.holds.clone());
        registry.register_with_unit("busy", "How long devices were held, by holder", Unit::Seconds, self.busy.clone());
        registry.register("held_devices", "Devices held now, by holder", self.held.clone());
        registry.register("devices", "Devices now, by state", self.devices.clone());
        registry.register("runners", "Runners on other machines now, by state", self.runners.clone());
        registry.register("waiters", "What waits now, by kind", self.waiters.clone());
        registry.register_with_unit(
            "oldest_waiter_age",
            "How long the one that waits longest has waited, by kind; 0 where none waits",
            Unit::Seconds,
            self.oldest.clone(),
        );
        registry.register(
            "old_numbers_refused",
            "Things said under an old hold number (rule A1)",
            self.refused.clone(),
        );
        registry.register(
            "waiters_overlooked",
            "How often someone waited beside a free ready device (rule A9): a fault of the rig",
            self.overlooked.clone(),
        );
        registry.register("alarms", "Things that must never be: faults of the rig itself", self.alarms.clone());
        registry.register("records_fault", "1 while the records cannot be written", self.records_fault.clone());
        registry.register(
            "events_dropped",
            "Events that came faster than the door took them",
            self.events_dropped.clone(),
        );
        self.each_device.register(registry);
        registry.register("event_readers", "Readers of events now", self.event_readers.clone());
    }

    /// Counts from the rig's events on. Must be called inside an actix system.
    pub(crate) fn follow(self: &Arc<Self>, mut events: broadcast::Receiver<Arc<RigEvent>>) {
        let metrics = Arc::clone(self);
        actix_web::rt::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(event) => metrics.heard(&event.what),
                    Err(broadcast::error::RecvError::Lagged(lost)) => {
                        metrics.events_dropped.inc_by(lost);
                    }
                    Err(broadcast::error::RecvError::Closed) => break,
                }
            }
        });
    }

    fn heard(&self, what: &RigHappening) {
        if let RigHappening::Alarm { .. } = what {
            self.alarms.inc();
        }
        if let RigHappening::Device { member, state } = what {
            let mut busy = self.busy_now.lock().unwrap_or_else(PoisonError::into_inner);
            match state {
                DeviceView::Held { hold, by, .. } => match busy.get(member) {
                    Some(known) if known.hold == *hold => {}
                    Some(_) | None => {
                        self.settle(&mut busy, Some(*member));
                        self.holds.get_or_create(&[("holder", holder(*by).to_owned())]).inc();
                        busy.insert(*member, Busy { hold: *hold, by: name_of(*by), since: Instant::now() });
                    }
                },
                // Its holder's until the proof.
                DeviceView::Stopping { .. } => {}
                DeviceView::Sweeping | DeviceView::Ready | DeviceView::Out { .. } | DeviceView::Quarantined { .. } => {
                    self.settle(&mut busy, Some(*member));
                    busy.remove(member);
                }
            }
        }
    }

    /// Adds up to now.
    fn settle(&self, busy: &mut BTreeMap<MemberId, Busy>, of: Option<MemberId>) {
        let now = Instant::now();
        for (_, busy) in busy.iter_mut().filter(|(member, _)| of.is_none_or(|of| of == **member)) {
            let seconds = now.duration_since(std::mem::replace(&mut busy.since, now)).as_secs_f64();
            self.busy.get_or_create(&[("by", busy.by.clone())]).inc_by(seconds);
        }
    }

    /// All figures as text, with what `view` says of this moment.
    pub(crate) fn text(&self, view: &RigView, event_readers: usize) -> String {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut self.busy_now.lock().unwrap_or_else(PoisonError::into_inner), None);
        self.look(view);
        self.event_readers.set(i64::try_from(event_readers).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn look(&self, view: &RigView) {
        let set = |levels: &Levels, name: &'static str, value: &str, level: usize| {
            levels.get_or_create(&[(name, value.to_owned())]).set(i64::try_from(level).unwrap_or(i64::MAX));
        };
        let states = view.devices.iter().map(|device| state_of(&device.state));
        for state in ["sweeping", "ready", "held", "stopping", "out", "quarantined"] {
            set(&self.devices, "state", state, states.clone().filter(|is| *is == state).count());
        }
        let states = view.runners.runners.iter().map(runner_state);
        for state in ["free", "busy", "away", "not_taking"] {
            set(&self.runners, "state", state, states.clone().filter(|is| *is == state).count());
        }
        let holders = view.devices.iter().filter_map(|device| match &device.state {
            DeviceView::Held { by, .. } => Some(holder(*by)),
            DeviceView::Sweeping
            | DeviceView::Ready
            | DeviceView::Stopping { .. }
            | DeviceView::Out { .. }
            | DeviceView::Quarantined { .. } => None,
        });
        for by in ["judge", "lane"] {
            set(&self.held, "holder", by, holders.clone().filter(|is| *is == by).count());
        }
        let dev_runs: Vec<Moment> = view
            .dev_runs
            .iter()
            .filter_map(|row| match &row.status {
                DevRunStatus::Waiting { wait, .. } => Some(wait.since),
                DevRunStatus::Recording { .. }
                | DevRunStatus::Starting { .. }
                | DevRunStatus::Running { .. }
                | DevRunStatus::Stopping { .. }
                | DevRunStatus::Ended { .. } => None,
            })
            .collect();
        let jobs: Vec<Moment> = view
            .jobs
            .iter()
            .filter_map(|row| match &row.status {
                JobStatus::Waiting { wait, .. } => Some(wait.since),
                JobStatus::Recording { .. }
                | JobStatus::Measuring { .. }
                | JobStatus::Concluding { .. }
                | JobStatus::Ended { .. } => None,
            })
            .collect();
        // A view shows a hundred jobs, those that do not wait first.
        let jobs_waiting = view.jobs_live.saturating_sub(view.jobs.len() - jobs.len());
        for (kind, waiting, since) in [("dev_run", dev_runs.len(), &dev_runs), ("job", jobs_waiting, &jobs)] {
            set(&self.waiters, "kind", kind, waiting);
            let oldest = since.iter().min().map_or(0.0, |since| view.now.since(*since).as_secs_f64());
            self.oldest.get_or_create(&[("kind", kind.to_owned())]).set(oldest);
        }
        let refused: u64 = view.devices.iter().map(|device| device.refused).sum();
        self.refused.inc_by(refused.saturating_sub(self.refused.get()));
        self.each_device.look(view);
        self.overlooked.inc_by(view.overlooked.saturating_sub(self.overlooked.get()));
        self.records_fault.set(i64::from(view.records_fault.is_some()));
    }
}

fn runner_state(row: &RunnerRow) -> &'static str {
    match (&row.state, row.runs.is_some(), row.takes_runs) {
        (RunnerState::Away { .. }, ..) => "away",
        (
            RunnerState::Reconciling | RunnerState::Ready { .. } | RunnerState::Busy { .. } | RunnerState::Unfit { .. },
            is_held,
            takes_runs,
        ) => match (is_held, takes_runs) {
            (true, _) => "busy",
            (false, true) => "free",
            (false, false) => "not_taking",
        },
    }
}

/// Records that count what they have made durable.
pub struct Counted {
    records: Rc<dyn Records>,
    metrics: Arc<Metrics>,
}

impl Counted {
    /// `records`, counted in `metrics`.
    pub fn new(records: Rc<dyn Records>, metrics: Arc<Metrics>) -> Counted {
        Counted { records, metrics }
    }
}

impl Records for Counted {
    fn append(&self, batch: Batch) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        let counted = counted(&self.metrics, &batch);
        let answer = self.records.append(batch);
        Box::pin(async move {
            answer.await?;
            for counter in counted {
                counter.inc();
            }
            Ok(())
        })
    }

    fn load(&self) -> LocalBoxFuture<'static, Result<Past, RecordsFault>> {
        self.records.load()
    }

    fn ended(&self, which: WhichEnded) -> LocalBoxFuture<'static, Result<FromRecords, RecordsFault>> {
        self.records.ended(which)
    }

    fn checkpoint(&self, checkpoint: Checkpoint) -> LocalBoxFuture<'static, Result<(), RecordsFault>> {
        self.records.checkpoint(checkpoint)
    }
}

/// What rises by one each once the batch is durable.
fn counted(metrics: &Metrics, batch: &Batch) -> Vec<Counter> {
    let mut counted = Vec::new();
    let mut rise = |counts: &Counts, name: &'static str, value: &str| {
        counted.push(counts.get_or_create(&[(name, value.to_owned())]).clone());
    };
    for entry in &batch.entries {
        if let LogEntry::JobEnded { outcome, .. } = entry {
            rise(&metrics.jobs, "outcome", outcome_of(outcome));
        } else if let LogEntry::AttemptFailed { why, .. } = entry {
            rise(&metrics.failures, "cause", cause_of(why));
        } else if let LogEntry::DevRunEnded { end, .. } = entry {
            rise(&metrics.dev_runs, "end", end_of(end));
        }
    }
    let of_records = batch.records.iter().flat_map(|record| &record.blocks);
    let of_audits = batch.audits.iter().flat_map(|audit| audit.blocks.iter().chain(&audit.noise_blocks));
    for block in of_records.chain(of_audits) {
        match block {
            TriedBlock::Accepted { .. } => rise(&metrics.blocks, "result", "accepted"),
            TriedBlock::Thrown { causes, .. } => {
                rise(&metrics.blocks, "result", "thrown");
                // A block has one place in the figures: its first cause.
                causes.iter().take(1).for_each(|cause| rise(&metrics.thrown, "cause", Disturbance::from(cause).name()));
            }
            TriedBlock::Lost { .. } => {
                rise(&metrics.blocks, "result", "thrown");
                rise(&metrics.thrown, "cause", Disturbance::ProcessLost.name());
            }
        }
    }
    counted
}

fn holder(by: Holder) -> &'static str {
    match by {
        Holder::Judge => "judge",
        Holder::Lane(_) => "lane",
    }
}

/// At most 17: the judge and 16 lanes.
fn name_of(by: Holder) -> String {
    match by {
        Holder::Judge => "judge".to_owned(),
        Holder::Lane(lane) => format!("lane-{}", lane.number()),
    }
}

fn state_of(state: &DeviceView) -> &'static str {
    match state {
        DeviceView::Sweeping => "sweeping",
        DeviceView::Ready => "ready",
        DeviceView::Held { .. } => "held",
        DeviceView::Stopping { .. } => "stopping",
        DeviceView::Out { .. } => "out",
        DeviceView::Quarantined { .. } => "quarantined",
    }
}

fn outcome_of(outcome: &JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Win { .. } => "win",
        JobOutcome::NoGain { .. } => "no_gain",
        JobOutcome::Undecided => "undecided",
        JobOutcome::ChangeFailed { .. } => "change_failed",
        JobOutcome::NoVerdict { .. } => "no_verdict",
    }
}

fn end_of(end: &DevRunEnd) -> &'static str {
    match end {
        DevRunEnd::Exited { .. } => "exited",
        DevRunEnd::LimitReached { .. } => "limit_reached",
        DevRunEnd::Cancelled => "cancelled",
        DevRunEnd::GaveUp { .. } => "gave_up",
        DevRunEnd::NotStarted { .. } => "not_started",
        DevRunEnd::NotProved { .. } => "not_proved",
        DevRunEnd::RigEnded => "rig_ended",
        DevRunEnd::NewSplit => "new_split",
        DevRunEnd::RunnerLost { .. } => "runner_lost",
    }
}

fn cause_of(why: &InfrastructureFailure) -> &'static str {
    match why {
        InfrastructureFailure::StayedBusy { .. } => "stayed_busy",
        InfrastructureFailure::TooManyThrown { .. } => "too_many_thrown",
        InfrastructureFailure::ThrowsSteered { .. } => "throws_steered",
        InfrastructureFailure::ChangeKilled { .. } => "change_killed",
        InfrastructureFailure::TooNoisy { .. } => "too_noisy",
        InfrastructureFailure::Champion { .. } => "champion",
        InfrastructureFailure::Step { .. } => "step",
        InfrastructureFailure::OutOfService { .. } => "out_of_service",
        InfrastructureFailure::Records { .. } => "records",
        InfrastructureFailure::DiskFull { .. } => "disk_full",
        InfrastructureFailure::RigEnding => "rig_ending",
    }
}
