//! Explaining one wait or decision: the facts that the actors and the records have, for core to put into words.

use thermite_core::device::DeviceView;
use thermite_core::job::StageKind;
use thermite_core::why::{Explanation, Now};

use crate::member::LookAtMember;
use crate::view::{DevRunStatus, JobStatus};

use super::*;

/// Explains what has that name: a run, a job, a development run, or a device.
#[derive(Message)]
#[rtype(result = "Result<Explanation, No>")]
pub(crate) struct Why(pub(crate) String);

impl Handler<Why> for Door {
    type Result = ResponseFuture<Result<Explanation, No>>;

    fn handle(&mut self, msg: Why, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { explain(&actors, msg.0).await })
    }
}

async fn explain(actors: &Actors, name: String) -> Result<Explanation, No> {
    if let Ok(id) = uuid::Uuid::parse_str(&name) {
        let (dev_run, job, run) = (DevRunId(id), JobId(id), RunId(id));
        let known = look::recall(actors, move |history| {
            let known_job = history.jobs.get(&job).cloned();
            let of_job = known_job.as_ref().and_then(|job| history.runs.get(&job.spec.run).cloned());
            let open = |of: RunId| {
                let jobs = history.jobs.values().filter(|job| job.spec.run == of && job.end.is_none()).count();
                let dev_runs = history.dev_runs.values().filter(|one| one.spec.run == of && one.end.is_none()).count();
                (jobs, dev_runs)
            };
            let known_run = history.runs.get(&run).cloned().map(|known| (known, open(run)));
            (history.dev_runs.get(&dev_run).cloned(), known_job.map(|job| (job, of_job)), known_run)
        });
        let (mut known_dev_run, mut known_job, mut known_run) = known.await?;
        if known_dev_run.is_none() && known_job.is_none() && known_run.is_none() {
            // What is over leaves the rig's memory after a while.
            known_dev_run = over::dev_run(actors, dev_run).await?;
            known_job = over::job(actors, job).await?.map(|job| (job, None));
            known_run = over::run(actors, run).await?.map(|run| (run, (0, 0)));
        }
        match (known_dev_run, known_job, known_run) {
            (Some(known), _, _) => {
                let now = if known.end.is_some() { None } else { dev_run_now(actors, dev_run).await? };
                return Ok(Explanation::of_dev_run(dev_run, &known, now));
            }
            (None, Some((mut known, run)), _) => {
                if known.end.is_none() && look::job(actors, job).await?.stage == StageKind::Screening {
                    // What was won on another model of card is won no more.
                    known.screened = None;
                }
                let now = if known.end.is_some() { None } else { job_now(actors, job).await? };
                return Ok(Explanation::of_job(job, &known, run.as_ref(), now));
            }
            (None, None, Some((known, (jobs, dev_runs)))) => {
                return Ok(Explanation::of_run(run, &known, jobs, dev_runs));
            }
            // A device may be named by a UUID too.
            (None, None, None) => {}
        }
    }
    if let Some(told) = runners::why(actors, &name).await? {
        return Ok(told);
    }
    device(actors, &name).await?.ok_or(No::Refusal(Refusal::UnknownId { id: name }))
}

async fn dev_run_now(actors: &Actors, id: DevRunId) -> Result<Option<Now>, No> {
    let row = look::dev_run(actors, id).await?;
    let now = actors.clock.now();
    Ok(match row.status {
        DevRunStatus::Recording { sentence, .. }
        | DevRunStatus::Waiting { sentence, .. }
        | DevRunStatus::Starting { sentence, .. }
        | DevRunStatus::Stopping { sentence, .. } => Some(Now::Waits(sentence)),
        DevRunStatus::Running { since, limit_at, .. } => {
            let limit = limit_at.map(|at| format!(", at most {} more", at.since(now))).unwrap_or_default();
            Some(Now::Does(format!("runs since {}{limit}", now.since(since))))
        }
        DevRunStatus::Ended { .. } => None,
    })
}

async fn job_now(actors: &Actors, id: JobId) -> Result<Option<Now>, No> {
    let row = look::job(actors, id).await?;
    Ok(match row.status {
        JobStatus::Recording { sentence, .. }
        | JobStatus::Waiting { sentence, .. }
        | JobStatus::Concluding { sentence, .. }
        | JobStatus::Measuring { sentence: Some(sentence), .. } => Some(Now::Waits(sentence)),
        JobStatus::Measuring { hold, sentence: None, .. } => {
            Some(Now::Does(format!("its {} has {}", row.stage, actors.roster.name(hold.member))))
        }
        JobStatus::Ended { .. } => None,
    })
}

/// The device of that number, or of that UUID.
async fn device(actors: &Actors, name: &str) -> Result<Option<Explanation>, No> {
    let asked: Option<MemberId> = name.parse().ok();
    for (member, doors) in actors.roster.devices() {
        let look = doors.look.send(LookAtMember).await.map_err(|_| No::ending())?;
        if asked != Some(member) && look.facts.uuid != name {
            continue;
        }
        let holder = match look.state {
            DeviceView::Held { hold, .. } | DeviceView::Stopping { hold, .. } => Some(hold),
            DeviceView::Sweeping | DeviceView::Ready | DeviceView::Out { .. } | DeviceView::Quarantined { .. } => None,
        };
        let mut told = Explanation::of_device(member, &look.state, actors.clock.now());
        if let Some(hold) = holder {
            let held = look::recall(actors, move |history| history.holding.get(&hold.member).copied()).await?;
            told.because.extend(held.map(|held| thermite_core::why::holder(&held, hold)));
        }
        told.because.push(format!("{}, {}", look.facts.model, look.facts.driver));
        return Ok(Some(told));
    }
    Ok(None)
}
