//! `thermite try`: the main job on this machine, on a GPU where there is one with nvcc, else on its CPUs, through the
//! same doors that everyone uses.
//!
//! A real server is started on a folder of its own, a small repository with three lanes is laid out, every lane asks
//! for a development run and has its change judged, all at once. What is started is ended and what is laid out is
//! removed on every path; the records stay and are named. What is deliberately absent: any way around the server.

mod kit;
mod kits;
mod lanes;
mod own_rig;
mod place;
mod report;
mod screen;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thermite_actors::view::{JobRow, JobStatus, RigView};
use thermite_core::contract::Target;
use thermite_core::device::DeviceView;
use thermite_core::ids::{Holder, JobId, RunId};
use thermite_core::run::RunState;
use thermite_svc::server::bodies::{StartRun, SubmitJob};
use thermite_svc::settings::{SettingFault, gpus};

use crate::cli::exit;
use crate::cli::say::Say;
use crate::cli::stop::Stop;
use crate::client::{Client, Fault, RunChange, fresh_key};

use kit::Campaign;
use kits::{Ground, TrialKit};
use lanes::LaneRuns;
use own_rig::OwnRig;
use place::Place;
use report::{Cost, Report};
use screen::Screen;

/// How often the rig is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What the caller wants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// One JSON object at the end, and nothing else on standard output.
    pub(crate) json: bool,
    /// Where everything stays; else only the records do, in a folder under the temporary one.
    pub(crate) keep: Option<PathBuf>,
    /// The speed-up that the kit's contract plans for, in percent; none: as the kit says.
    pub(crate) plan_percent: Option<u8>,
    /// The kind of device; none: a GPU where there is one with nvcc, else the CPUs.
    pub(crate) target: Option<Target>,
}

/// Why it did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TryFault {
    /// A program that the kit or the lay-out needs is not there.
    #[error("{program} cannot be run: {why}; `thermite try` needs {program} on PATH")]
    Program {
        /// The program.
        program: &'static str,
        /// The cause.
        why: String,
    },
    /// The kind of device that was asked for cannot be had.
    #[error("no GPU can be tried: {why}; try --target cpu")]
    Target {
        /// Why.
        why: String,
    },
    /// A setting cannot be.
    #[error(transparent)]
    Setting(#[from] SettingFault),
    /// The folder cannot be used.
    #[error("folder {folder} cannot be used: {why}; name another with --keep")]
    Folder {
        /// The folder.
        folder: String,
        /// The cause.
        why: String,
    },
    /// Git did not do what was asked.
    #[error("git {what} failed in {folder}: {why}")]
    Git {
        /// What was asked.
        what: String,
        /// Where.
        folder: String,
        /// What it said.
        why: String,
    },
    /// The server did not come up, or went away.
    #[error("the rig's server {what}: {why}; its log is {log}")]
    Server {
        /// What happened.
        what: &'static str,
        /// The cause.
        why: String,
        /// Where its log is.
        log: String,
    },
    /// The rig said no, or nothing.
    #[error(transparent)]
    Rig(#[from] Fault),
    /// The caller wants an end.
    #[error("ended on request; what it started is ended")]
    Asked,
}

impl TryFault {
    /// What the exit code says.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            TryFault::Program { .. } | TryFault::Target { .. } | TryFault::Folder { .. } => exit::REFUSED,
            TryFault::Setting(_) => exit::USAGE,
            TryFault::Git { .. } | TryFault::Server { .. } => exit::INFRASTRUCTURE,
            TryFault::Rig(fault) => exit::of_fault(fault),
            TryFault::Asked => exit::CANCELLED,
        }
    }
}

/// Does it all, and says how it went.
pub(crate) fn try_out(wishes: &Wishes, stop: &Stop, say: &Say) -> Result<u8, TryFault> {
    let began = Instant::now();
    let library = gpus::library(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
    let choice = kits::choose(wishes.target, || Ground::of_this_machine(cards(library.as_deref())))?;
    choice.kit.needs_are_here()?;
    let mut place = Place::make(wishes.keep.as_deref())?;
    say.aside(&format!("thermite: tries {}", choice.why));
    match in_place(&mut place, choice.kit, wishes, began, stop, say) {
        Ok(report) => {
            place.keep_records();
            if wishes.json {
                say.json(&report);
            } else {
                report.lines(say.ink).iter().for_each(|line| say.line(line));
            }
            Ok(if report.ok { exit::OK } else { exit::DIFFERS })
        }
        Err(TryFault::Asked) => Err(TryFault::Asked),
        Err(fault) => {
            place.keep_log();
            Err(fault)
        }
    }
}

fn in_place(
    place: &mut Place,
    kit: &TrialKit,
    wishes: &Wishes,
    began: Instant,
    stop: &Stop,
    say: &Say,
) -> Result<Report, TryFault> {
    let campaign = Campaign::lay_out(place.base(), kit, wishes.plan_percent.unwrap_or(kit.plan_percent))?;
    let mut rig = OwnRig::start(&place.data(), &place.log(), kit.target, stop, say)?;
    let (base, kind) = (place.base().display(), kind(kit.target));
    say.aside(&format!("thermite: this machine as a {kind} rig at {} in {base}; Ctrl-C ends it", rig.client().base()));
    let worked = work(&campaign, &rig, stop, say);
    // The records are read while the rig still answers; it is ended whatever came of it.
    let report = worked.and_then(|worked| Report::gather(&campaign, worked, &rig, place.records(), began));
    let ended = rig.end();
    let mut report = report?;
    ended?;
    report.cost.wall_ms = millis(began.elapsed());
    report.write(place.records())?;
    Ok(report)
}

/// The models of the GPUs that the driver lists.
fn cards(library: Option<&Path>) -> Result<Vec<String>, String> {
    let cards = thermite_actors::host::gpu::Cards::open(library).map_err(|fault| fault.to_string())?;
    Ok(cards.list().into_iter().map(|card| card.model).collect())
}

const fn kind(target: Target) -> &'static str {
    match target {
        Target::Cpu => "CPU",
        Target::CudaGpu => "GPU",
    }
}

/// What came of the campaign.
struct Worked {
    machine: Option<String>,
    lanes: LaneRuns,
    jobs: Vec<JobRow>,
    cost: Cost,
}

fn work(campaign: &Campaign, rig: &OwnRig<'_>, stop: &Stop, say: &Say) -> Result<Worked, TryFault> {
    let start = StartRun {
        repo: campaign.repo.display().to_string(),
        kit: "kit.toml".to_owned(),
        champion: campaign.champion.clone(),
        lanes: campaign.lanes.iter().map(|lane| lane.worktree.display().to_string()).collect(),
    };
    // One key for each thing that is asked for: a rig that was killed before its answer may have heard it (rule A13).
    let key = fresh_key();
    let run = rig.ask(|client| client.start_run(&start, Some(key.clone())))?;
    // Development runs are asked for first, so that each side is seen to wait for the other.
    let mut lanes = LaneRuns::ask(rig, run, campaign)?;
    let mut jobs = Vec::new();
    for lane in &campaign.lanes {
        let submit = SubmitJob { change: lane.commit.clone(), champion: None };
        let key = fresh_key();
        jobs.push(rig.ask(|client| client.submit(run, &submit, Some(key.clone())))?.job);
    }
    let watched = watch(rig, campaign, run, &mut lanes, &jobs, stop, say)?;
    rig.ask(|client| end_run(client, run))?;
    Ok(Worked { machine: watched.machine, lanes, jobs: watched.jobs, cost: watched.cost })
}

/// Ends the run; one that has ended is as good.
fn end_run(client: &Client, run: RunId) -> Result<(), Fault> {
    let refused = match client.change_run(run, RunChange::End) {
        Err(fault @ Fault::Refused { .. }) => fault,
        answer => return answer,
    };
    let has_ended = client.runs()?.iter().any(|row| row.run == run && row.state == RunState::Ended);
    if has_ended { Ok(()) } else { Err(refused) }
}

struct Watched {
    machine: Option<String>,
    jobs: Vec<JobRow>,
    cost: Cost,
}

fn watch(
    rig: &OwnRig<'_>,
    campaign: &Campaign,
    run: RunId,
    lanes: &mut LaneRuns,
    jobs: &[JobId],
    stop: &Stop,
    say: &Say,
) -> Result<Watched, TryFault> {
    let mut screen = Screen::new(say);
    let mut over: Vec<Option<JobRow>> = vec![None; jobs.len()];
    let mut cost = Cost::default();
    let mut looked = Instant::now();
    loop {
        if stop.is_asked() {
            screen.leave();
            return Err(TryFault::Asked);
        }
        rig.must_live()?;
        let view = rig.ask(Client::rig)?;
        let since = std::mem::replace(&mut looked, Instant::now()).elapsed();
        count_time(&mut cost, &view, since);
        for (job, over) in jobs.iter().zip(&mut over) {
            if over.is_none() && !view.jobs.iter().any(|row| row.job == *job) {
                let row = rig.ask(|client| client.job(*job))?;
                *over = matches!(row.status, JobStatus::Ended { .. }).then_some(row);
            }
        }
        let jobs_over = over.iter().all(Option::is_some);
        lanes.collect(rig, run, campaign, !jobs_over)?;
        screen.show(&table::rows(campaign, &view, lanes, jobs, &over));
        if jobs_over && lanes.are_over() {
            screen.leave();
            let machine = view.devices.first().map(|device| device.facts.model.clone());
            return Ok(Watched { machine, jobs: over.into_iter().flatten().collect(), cost });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Adds the time since the last look to the one who has the device: exact to a look, which is enough for a report.
fn count_time(cost: &mut Cost, view: &RigView, since: Duration) {
    for device in &view.devices {
        match &device.state {
            DeviceView::Held { by: Holder::Judge, .. } => cost.judge_ms += millis(since),
            DeviceView::Held { by: Holder::Lane(_), .. } => cost.dev_runs_ms += millis(since),
            DeviceView::Sweeping
            | DeviceView::Ready
            | DeviceView::Stopping { .. }
            | DeviceView::Out { .. }
            | DeviceView::Quarantined { .. } => {}
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
