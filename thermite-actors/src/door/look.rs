//! Looking: views put together from what each actor knows, with every wait's one sentence (rule A9).

use std::collections::BTreeMap;

use thermite_core::blame::Blamed;
use thermite_core::dev_run::DevRunSpec;
use thermite_core::device::{DeviceInput, DeviceView};
use thermite_core::fold::{DevRunHistory, JobHistory, RigHistory};
use thermite_core::ids::{HoldId, Holder};
use thermite_core::job::JobOutcome;
use thermite_core::judge_queue::{LiveJob, Standing};
use thermite_core::lane::{Ask, LaneState};
use thermite_core::pool::Wants;
use thermite_core::texts;
use thermite_core::time::{Moment, Span};
use thermite_core::wait::Wait;

use crate::judge_queue::{JudgeLook, LookAtJudge, WhichJobs};
use crate::member::{LookAtLeftovers, LookAtMember, MemberLook, ToMember};
use crate::noise;
use crate::outbox::{Recall, RecordsState};
use crate::pool::{LookAtPool, PoolLook};
use crate::runners::{LookAtRunner, LookAtRunners, RunnerLook, RunnersLook};
use crate::view::{DevRunStatus, DevicePool, DeviceRow, JobStatus, LeftoverRow, Quarantine, RunnersView};

use super::*;

mod runners;

use runners::runners_block;

/// Live jobs that a view shows.
const JOBS_SHOWN: usize = 100;
/// Runs that are over, and still shown.
const RUNS_SHOWN: usize = 20;

/// What all actors know at about one moment.
struct Snapshot {
    now: Moment,
    members: BTreeMap<MemberId, MemberLook>,
    lanes: Vec<crate::lane::LaneLook>,
    pool: PoolLook,
    judge: JudgeLook,
    runners: RunnersLook,
    /// How each runner stands.
    standing: BTreeMap<MemberId, RunnerLook>,
    roster: Roster,
    /// How many lanes the rig has.
    lanes_most: usize,
}

impl Snapshot {
    /// A wait's one sentence, with runners called by their names.
    fn say(&self, wait: &Wait) -> String {
        wait.sentence_naming(self.now, &|member| self.roster.name(member))
    }

    fn devices(&self) -> Vec<(MemberId, DeviceFacts)> {
        self.members.iter().map(|(member, look)| (*member, look.facts.clone())).collect()
    }
}

/// What the noise of the rig's devices means for a job that is not over.
fn job_warning(history: &RigHistory, devices: &[(MemberId, DeviceFacts)], known: &JobHistory) -> Option<String> {
    let pinned = &known.spec.pinned;
    devices
        .iter()
        .find_map(|(member, facts)| noise::warning(history, *member, facts, &pinned.kit_hash, &pinned.kit.contract))
}

/// What a device's noise means for the kits of runs that are not over.
fn device_warnings(history: &RigHistory, member: MemberId, facts: &DeviceFacts) -> Vec<String> {
    let open = history.runs.values().filter(|run| run.state != RunState::Ended);
    let mut warnings: Vec<String> = open
        .filter_map(|run| noise::warning(history, member, facts, &run.spec.kit_hash, &run.spec.kit.contract))
        .collect();
    warnings.dedup();
    warnings
}

async fn snapshot(actors: &Actors, which: WhichJobs) -> Option<Snapshot> {
    let pool = actors.pool.send(LookAtPool).await.ok()?;
    let judge = actors.judge.send(LookAtJudge { which }).await.ok()?;
    let mut members = BTreeMap::new();
    for (id, doors) in actors.roster.measuring() {
        match doors.look.send(LookAtMember).await {
            Ok(look) => drop(members.insert(id, look)),
            // It has left since.
            Err(_) if id.is_runner() => {}
            Err(_) => return None,
        }
    }
    let runners = actors.runners.send(LookAtRunners).await.ok()?;
    let mut standing = BTreeMap::new();
    for (id, look) in &runners.looks {
        if let Ok(look) = look.send(LookAtRunner).await {
            standing.insert(*id, look);
        }
    }
    let mut lanes = Vec::new();
    for lane in actors.lanes.values() {
        lanes.extend(lane.send(LookAtLane).await.ok()?);
    }
    let (now, roster) = (actors.clock.now(), actors.roster.clone());
    let lanes_most = actors.lanes.len();
    Some(Snapshot { now, members, lanes, pool, judge, runners, standing, roster, lanes_most })
}

pub(super) async fn recall<T: Send + 'static>(
    actors: &Actors,
    read: impl FnOnce(&RigHistory) -> T + Send + 'static,
) -> Result<T, No> {
    actors.outbox.send(Recall(Box::new(read))).await.map_err(|_| No::ending())
}

pub(super) async fn whole(actors: &Actors) -> RigView {
    let wall_ms = actors.clock.wall_ms();
    let mut view = RigView {
        now: actors.clock.now(),
        wall_ms,
        devices: Vec::new(),
        runs: Vec::new(),
        dev_runs: Vec::new(),
        jobs: Vec::new(),
        jobs_live: 0,
        records_fault: actors.outbox.send(RecordsState).await.ok().flatten(),
        overlooked: 0,
        leftovers: Vec::new(),
        leftovers_more: false,
        runners: RunnersView::default(),
    };
    let Some(snapshot) = snapshot(actors, WhichJobs::First(JOBS_SHOWN)).await else { return view };
    view.now = snapshot.now;
    view.leftovers = leftovers(actors).await;
    view.leftovers_more = view.leftovers.len() > limits::LEFTOVERS_SHOWN_MAX;
    view.leftovers.truncate(limits::LEFTOVERS_SHOWN_MAX);
    view.jobs_live = snapshot.judge.live_count;
    view.overlooked = snapshot.pool.overlooked;
    let live: Vec<JobId> = snapshot.judge.live.iter().map(|job| job.job).collect();
    let devices = snapshot.devices();
    let recalled = recall(actors, move |history| {
        let noise: Vec<_> = history.noise.values().cloned().collect();
        let jobs: BTreeMap<JobId, (JobHistory, Option<String>)> = live
            .into_iter()
            .filter_map(|id| {
                let known = history.jobs.get(&id)?;
                Some((id, (known.clone(), job_warning(history, &devices, known))))
            })
            .collect();
        let warnings: BTreeMap<MemberId, Vec<String>> =
            devices.iter().map(|(member, facts)| (*member, device_warnings(history, *member, facts))).collect();
        let runs: Vec<_> = history
            .runs
            .iter()
            .rev()
            .filter(|(_, run)| run.state != RunState::Ended)
            .chain(history.runs.iter().rev().filter(|(_, run)| run.state == RunState::Ended).take(RUNS_SHOWN))
            .map(|(id, run)| (*id, run.clone()))
            .collect();
        let disturbed: Vec<Blamed> =
            history.disturbed.iter().map(|(blame, blocks)| Blamed { blame: blame.clone(), blocks: *blocks }).collect();
        (noise, jobs, runs, warnings, disturbed, history.runners_revision)
    });
    let Ok((noise, jobs, runs, mut warnings, disturbed, revision)) = recalled.await else { return view };
    view.devices = snapshot
        .members
        .iter()
        .filter(|(member, _)| !member.is_runner())
        .map(|(member, look)| DeviceRow {
            member: *member,
            facts: look.facts.clone(),
            state: look.state.clone(),
            refused: look.refused,
            pool: pool_of(&snapshot, *member),
            idle: actors.cards.why_idle(*member),
            drained: snapshot.pool.members.get(member).is_some_and(|known| known.drained),
            quarantine: quarantine_of(&look.state),
            containment: look.containment.clone(),
            noise: noise.iter().filter(|noise| noise.key.device == look.facts.uuid).cloned().collect(),
            warnings: warnings.remove(member).unwrap_or_default(),
            index: look.index,
            reading: look.reading.clone(),
            disturbed: disturbed.iter().filter(|row| row.blame.device == look.facts.uuid).cloned().collect(),
        })
        .collect();
    view.runs = runs.into_iter().map(|(run, known)| list::run_row(run, known)).collect();
    view.dev_runs = rows_in_line(&snapshot);
    view.jobs = snapshot
        .judge
        .live
        .iter()
        .filter_map(|live| {
            let (known, warning) = jobs.get(&live.job)?;
            Some(JobRow { warning: warning.clone(), ..live_job_row(&snapshot, live, known) })
        })
        .collect();
    view.runners = runners_block(&snapshot, revision, &view.dev_runs, &view.jobs);
    view
}

/// Whom a device serves.
fn pool_of(snapshot: &Snapshot, member: MemberId) -> DevicePool {
    match snapshot.pool.members.get(&member).map(|known| known.discipline) {
        Some(Discipline::JudgeFirst | Discipline::FirstCome) => DevicePool::Shared,
        Some(Discipline::JudgeOnly | Discipline::Builds) => DevicePool::Judge,
        Some(Discipline::LanesOnly | Discipline::OneLane(_)) => DevicePool::Agents,
        Some(Discipline::Idle) | None => DevicePool::Idle,
    }
}

fn quarantine_of(state: &DeviceView) -> Option<Quarantine> {
    match state {
        DeviceView::Out { why, next_try } => Some(Quarantine { why: why.clone(), next_try: Some(*next_try) }),
        DeviceView::Quarantined { why } => Some(Quarantine { why: why.clone(), next_try: None }),
        DeviceView::Sweeping | DeviceView::Ready | DeviceView::Held { .. } | DeviceView::Stopping { .. } => None,
    }
}

/// The processes that development runs left behind, the oldest first: one more than are shown at most, where there are.
async fn leftovers(actors: &Actors) -> Vec<LeftoverRow> {
    let mut rows = Vec::new();
    for (member, doors) in actors.roster.measuring() {
        let kept = doors.leftovers.send(LookAtLeftovers).await.unwrap_or_default();
        rows.extend(kept.into_iter().flat_map(|kept| {
            kept.processes.into_iter().map(move |process| LeftoverRow {
                dev_run: kept.dev_run,
                run: kept.run,
                lane: kept.lane,
                member,
                pid: process.pid,
                command: process.command,
                since: kept.since,
            })
        }));
    }
    rows.truncate(limits::LEFTOVERS_SHOWN_MAX + 1);
    rows
}

/// How many entries the actors keep of work, beside their machines and the records.
pub(super) async fn kept(actors: &Actors) -> usize {
    match snapshot(actors, WhichJobs::First(0)).await {
        Some(snapshot) => snapshot.judge.kept + snapshot.lanes.len() + snapshot.pool.waits.len(),
        None => 0,
    }
}

/// Development runs that are not over, in the order of the line.
pub(super) async fn dev_runs(actors: &Actors) -> Vec<DevRunRow> {
    match snapshot(actors, WhichJobs::First(0)).await {
        Some(snapshot) => rows_in_line(&snapshot),
        None => Vec::new(),
    }
}

fn rows_in_line(snapshot: &Snapshot) -> Vec<DevRunRow> {
    let place = |row: &DevRunRow| match &row.status {
        DevRunStatus::Waiting { wait, .. } => 1 + wait.place,
        DevRunStatus::Recording { .. } => u32::MAX,
        DevRunStatus::Starting { .. }
        | DevRunStatus::Running { .. }
        | DevRunStatus::Stopping { .. }
        | DevRunStatus::Ended { .. } => 0,
    };
    let rows = snapshot.lanes.iter().filter_map(|lane| dev_run_row(snapshot, &lane.spec, &lane.state));
    let mut rows: Vec<DevRunRow> = rows.collect();
    rows.sort_by_key(place);
    rows
}

pub(super) async fn dev_run(actors: &Actors, id: DevRunId) -> Result<DevRunRow, No> {
    if let Some(snapshot) = snapshot(actors, WhichJobs::First(0)).await
        && let Some(lane) = snapshot.lanes.iter().find(|lane| lane.spec.dev_run == id)
        && let Some(mut row) = dev_run_row(&snapshot, &lane.spec, &lane.state)
    {
        // The lane has let go of its hold; where that was is in the records.
        if matches!(row.status, DevRunStatus::Ended { .. }) {
            row.note = texts::note_of_dev_run(recorded_dev_run(actors, id).await?.on_runner);
        }
        return Ok(row);
    }
    let known = recorded_dev_run(actors, id).await?;
    let end = known.end.unwrap_or(DevRunEnd::RigEnded);
    Ok(row_of(&known.spec, DevRunStatus::Ended { end }, known.on_runner))
}

/// How a development run that is not under way ended.
pub(super) async fn ended(actors: &Actors, id: DevRunId) -> Result<Option<DevRunEnd>, No> {
    Ok(recorded_dev_run(actors, id).await?.end)
}

async fn recorded_dev_run(actors: &Actors, id: DevRunId) -> Result<DevRunHistory, No> {
    let known = match recall(actors, move |history| history.dev_runs.get(&id).cloned()).await? {
        None => over::dev_run(actors, id).await?,
        known => known,
    };
    known.ok_or(No::Refusal(Refusal::UnknownDevRun { dev_run: id }))
}

pub(super) async fn job(actors: &Actors, id: JobId) -> Result<JobRow, No> {
    let known = match recall(actors, move |history| history.jobs.get(&id).cloned()).await? {
        None => over::job(actors, id).await?,
        known => known,
    };
    let known = known.ok_or(No::Refusal(Refusal::UnknownJob { job: id }))?;
    if let Some(end) = &known.end {
        return Ok(job_row(&known, ended_status(&known, end)));
    }
    let snapshot = snapshot(actors, WhichJobs::These(vec![id])).await.ok_or_else(No::ending)?;
    let devices = snapshot.devices();
    let warning = recall(actors, move |history| job_warning(history, &devices, history.jobs.get(&id)?)).await?;
    let row = match snapshot.judge.live.iter().find(|live| live.job == id) {
        Some(live) => live_job_row(&snapshot, live, &known),
        None => job_row(&known, concluding(snapshot.now, snapshot.now)),
    };
    Ok(JobRow { warning, ..row })
}

/// Jobs of a run in order of asking: those in memory, and those that only the records have.
pub(super) async fn jobs(actors: &Actors, run: RunId, after: Option<JobId>, most: usize) -> Result<Vec<JobRow>, No> {
    let from = match after {
        None => None,
        Some(id) => Some(arrival_of(actors, id).await?),
    };
    // The records first: what ends meanwhile is in memory still.
    let over = over::jobs(actors, run, from, most).await?;
    let read = move |history: &RigHistory| {
        let is_asked = |job: &&JobHistory| job.spec.run == run && from.is_none_or(|from| job.spec.arrival > from);
        let mut jobs: Vec<&JobHistory> = history.jobs.values().filter(is_asked).collect();
        jobs.sort_by_key(|job| job.spec.arrival);
        // Only what is listed is copied: a run may have a hundred thousand.
        jobs.into_iter().take(most).cloned().collect::<Vec<JobHistory>>()
    };
    let mut known: BTreeMap<Arrival, JobHistory> = over.into_iter().map(|job| (job.spec.arrival, job)).collect();
    known.extend(recall(actors, read).await?.into_iter().map(|job| (job.spec.arrival, job)));
    let known: Vec<JobHistory> = known.into_values().take(most).collect();
    if known.is_empty() {
        list::run(actors, run).await?;
    }
    let open = known.iter().filter(|job| job.end.is_none()).map(|job| job.spec.job).collect();
    let snapshot = snapshot(actors, WhichJobs::These(open)).await.ok_or_else(No::ending)?;
    let live: BTreeMap<JobId, &LiveJob> = snapshot.judge.live.iter().map(|live| (live.job, live)).collect();
    Ok(known
        .iter()
        .map(|job| match (&job.end, live.get(&job.spec.job)) {
            (None, Some(live)) => live_job_row(&snapshot, live, job),
            (None, None) => job_row(job, concluding(snapshot.now, snapshot.now)),
            (Some(end), _) => job_row(job, ended_status(job, end)),
        })
        .collect())
}

/// A job's place in the order of all askings; before all others for one that is not there.
async fn arrival_of(actors: &Actors, id: JobId) -> Result<Arrival, No> {
    let known = recall(actors, move |history| history.jobs.get(&id).map(|job| job.spec.arrival)).await?;
    match known {
        Some(arrival) => Ok(arrival),
        None => Ok(over::job(actors, id).await?.map_or(Arrival(0), |job| job.spec.arrival)),
    }
}

pub(super) fn row_of(spec: &DevRunSpec, status: DevRunStatus, on_runner: bool) -> DevRunRow {
    DevRunRow {
        dev_run: spec.dev_run,
        run: spec.run,
        lane: spec.lane,
        argv: spec.argv.clone(),
        status,
        note: texts::note_of_dev_run(on_runner),
    }
}

fn dev_run_row(snapshot: &Snapshot, spec: &DevRunSpec, state: &LaneState) -> Option<DevRunRow> {
    let status = match state {
        // It has ended since: the records have it.
        LaneState::Idle => return None,
        LaneState::Recording { ask, .. } => recording(snapshot, ask),
        LaneState::Waiting { ask, .. } => {
            let wait = snapshot.pool.waits.iter().find(|(_, dev_run, _)| *dev_run == spec.dev_run);
            match wait {
                Some((_, _, wait)) => DevRunStatus::Waiting { sentence: snapshot.say(wait), wait: wait.clone() },
                // It is on its way into the line, or was granted this very moment.
                None => recording(snapshot, ask),
            }
        }
        LaneState::Granted { ask, hold, .. } => starting(snapshot, ask, *hold),
        LaneState::Holding { ask, hold, .. } => holding(snapshot, ask, *hold),
        LaneState::Ending { end, .. } => DevRunStatus::Ended { end: end.clone() },
    };
    let on_runner = match state {
        LaneState::Granted { hold, .. } | LaneState::Holding { hold, .. } => hold.member.is_runner(),
        LaneState::Idle | LaneState::Recording { .. } | LaneState::Waiting { .. } | LaneState::Ending { .. } => false,
    };
    Some(row_of(spec, status, on_runner))
}

fn recording(snapshot: &Snapshot, ask: &Ask) -> DevRunStatus {
    let wait = Wait::durable(ask.since, Some(ask.latest));
    DevRunStatus::Recording { sentence: snapshot.say(&wait), wait }
}

fn starting(snapshot: &Snapshot, ask: &Ask, hold: HoldId) -> DevRunStatus {
    let wait = Wait::starting(hold.member, ask.since, ask.latest);
    DevRunStatus::Starting { hold, sentence: snapshot.say(&wait), wait }
}

fn holding(snapshot: &Snapshot, ask: &Ask, hold: HoldId) -> DevRunStatus {
    match snapshot.members.get(&hold.member).map(|look| &look.state) {
        Some(DeviceView::Held { hold: held, running_since: Some(since), limit_at, .. }) if *held == hold => {
            DevRunStatus::Running { hold, since: *since, limit_at: *limit_at }
        }
        Some(DeviceView::Stopping { hold: held, cause, since, until }) if *held == hold => {
            let wait = Wait::stop(hold.member, *since, *until);
            DevRunStatus::Stopping { hold, cause: cause.clone(), sentence: snapshot.say(&wait), wait }
        }
        _ => starting(snapshot, ask, hold),
    }
}

fn ended_status(known: &JobHistory, end: &(JobOutcome, Option<String>)) -> JobStatus {
    let screening = known.screened.as_ref().map(|screened| screened.1.clone());
    let (outcome, record) = end.clone();
    JobStatus::Ended { outcome, record, screening }
}

fn concluding(now: Moment, since: Moment) -> JobStatus {
    let wait = Wait::durable(since, None);
    JobStatus::Concluding { sentence: wait.sentence(now), wait }
}

fn job_row(known: &JobHistory, status: JobStatus) -> JobRow {
    let pinned = &known.spec.pinned;
    JobRow {
        job: known.spec.job,
        run: known.spec.run,
        change: pinned.change.clone(),
        champion: pinned.champion.clone(),
        candidate: pinned.candidate.clone(),
        stage: known.stage,
        attempt: known.attempt,
        failures: known.failures.clone(),
        warning: None,
        reused_from: known.reused_from,
        status,
    }
}

fn live_job_row(snapshot: &Snapshot, live: &LiveJob, known: &JobHistory) -> JobRow {
    let now = snapshot.now;
    let since = snapshot.judge.since.get(&live.job).copied().unwrap_or(now);
    let status = match &live.standing {
        Standing::Recording => {
            let wait = Wait::durable(since, None);
            JobStatus::Recording { sentence: wait.sentence(now), wait }
        }
        Standing::Concluding => concluding(now, since),
        Standing::Holding { hold } => {
            let stage = snapshot.judge.stages.get(hold).cloned();
            let waits = stage.as_ref().and_then(|stage| stage.waiting.as_ref());
            let away = snapshot.runner_away(hold.member);
            let sentence = away.or_else(|| waits.map(Wait::quiet)).map(|wait| snapshot.say(&wait));
            JobStatus::Measuring { hold: *hold, stage, sentence }
        }
        Standing::Waiting(waits) => {
            let pool = &snapshot.pool;
            let device = match waits.wants {
                Wants::Bench => pool.bench.as_ref(),
                Wants::Device => pool
                    .failed
                    .get(&live.job)
                    .or_else(|| waits.screened_on.and_then(|member| pool.confirming.get(&member))),
            };
            let wait = Wait::of_job(now, since, waits, device.unwrap_or(&pool.device)).after_lanes(pool.lanes_first);
            JobStatus::Waiting { sentence: snapshot.say(&wait), wait }
        }
    };
    let mut row = job_row(known, status);
    row.stage = live.stage;
    row.attempt = live.attempt;
    row
}

/// Stops the stages of a run that has ended: what they would still find out has no use, and others wait.
pub(super) async fn stop_stages(actors: &Actors, run: RunId) {
    let Ok(judge) = actors.judge.send(LookAtJudge { which: WhichJobs::First(JOBS_SHOWN) }).await else { return };
    for live in judge.live.iter().filter(|live| live.run == run) {
        if let Standing::Holding { hold } = live.standing
            && let Some(doors) = actors.roster.doors(hold.member)
        {
            let input = DeviceInput::Stop { number: hold.number, cause: StopCause::RunEnded };
            doors.input.do_send(ToMember(input));
        }
    }
}

/// Stops the judge's stages: their jobs keep their place and start over.
pub(super) async fn stop_judge(actors: &Actors) {
    for (_, doors) in actors.roster.all() {
        if let Ok(look) = doors.look.send(LookAtMember).await
            && let DeviceView::Held { hold, by: Holder::Judge, .. } = look.state
        {
            let cause = StopCause::RigEnding;
            doors.input.do_send(ToMember(DeviceInput::Stop { number: hold.number, cause }));
        }
    }
}

/// Waits until no member is held any more, at most as long as a stop may take.
pub(super) async fn wait_until_free(actors: &Actors) {
    let until = actors.clock.now() + limits::PROOF_MAX;
    loop {
        let mut held = false;
        for (_, doors) in actors.roster.all() {
            if let Ok(look) = doors.look.send(LookAtMember).await {
                held |= matches!(look.state, DeviceView::Held { .. } | DeviceView::Stopping { .. });
            }
        }
        if !held || actors.clock.now() >= until {
            return;
        }
        tokio::time::sleep(Span::millis(5).to_std()).await;
    }
}
