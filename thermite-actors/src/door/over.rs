//! What is over and has left the rig's memory: the records know it.

use thermite_core::fold::{DevRunHistory, JobHistory, RunHistory};

use crate::ports::FromRecords;

use super::*;

/// A job that is over.
pub(super) async fn job(actors: &Actors, id: JobId) -> Result<Option<JobHistory>, No> {
    Ok(match one(actors, WhichEnded::Job(id), || format!("job {id}")).await? {
        Some(Ended::Job { history }) => Some(*history),
        Some(Ended::DevRun { .. } | Ended::Run { .. }) | None => None,
    })
}

/// A development run that is over.
pub(super) async fn dev_run(actors: &Actors, id: DevRunId) -> Result<Option<DevRunHistory>, No> {
    Ok(match one(actors, WhichEnded::DevRun(id), || format!("development run {id}")).await? {
        Some(Ended::DevRun { history }) => Some(*history),
        Some(Ended::Job { .. } | Ended::Run { .. }) | None => None,
    })
}

/// A run that is over.
pub(super) async fn run(actors: &Actors, id: RunId) -> Result<Option<RunHistory>, No> {
    Ok(match one(actors, WhichEnded::Run(id), || format!("run {id}")).await? {
        Some(Ended::Run { history, .. }) => Some(*history),
        Some(Ended::Job { .. } | Ended::DevRun { .. }) | None => None,
    })
}

/// Jobs of a run that are over, in order of asking.
pub(super) async fn jobs(
    actors: &Actors,
    run: RunId,
    after: Option<Arrival>,
    most: usize,
) -> Result<Vec<JobHistory>, No> {
    let ended = read(actors, WhichEnded::JobsOf { run, after, most }, || format!("jobs of run {run}")).await?;
    Ok(ended
        .into_iter()
        .filter_map(|ended| match ended {
            Ended::Job { history } => Some(*history),
            Ended::DevRun { .. } | Ended::Run { .. } => None,
        })
        .collect())
}

/// Development runs of a run that are over, in the order of their ids.
pub(super) async fn dev_runs(
    actors: &Actors,
    run: RunId,
    after: Option<DevRunId>,
    most: usize,
) -> Result<Vec<DevRunHistory>, No> {
    let which = WhichEnded::DevRunsOf { run, after, most };
    let ended = read(actors, which, || format!("development runs of run {run}")).await?;
    Ok(ended
        .into_iter()
        .filter_map(|ended| match ended {
            Ended::DevRun { history } => Some(*history),
            Ended::Job { .. } | Ended::Run { .. } => None,
        })
        .collect())
}

/// Runs that are over, the newest first.
pub(super) async fn runs(actors: &Actors, before: Option<RunId>, most: usize) -> Result<Vec<(RunId, RunHistory)>, No> {
    let ended = read(actors, WhichEnded::Runs { before, most }, || "runs".to_owned()).await?;
    Ok(ended
        .into_iter()
        .filter_map(|ended| match ended {
            Ended::Run { run, history } => Some((run, *history)),
            Ended::Job { .. } | Ended::DevRun { .. } => None,
        })
        .collect())
}

/// The job that this key stands for, where it is over (rule A13).
pub(super) async fn job_of_key(actors: &Actors, key: Option<&String>) -> Result<Option<Submitted>, No> {
    let ended = of_key(actors, key, WhichEnded::JobKey).await?;
    Ok(match ended {
        Some(Ended::Job { history }) => Some(Submitted { job: history.spec.job, ahead: 0, same: true }),
        Some(Ended::DevRun { .. } | Ended::Run { .. }) | None => None,
    })
}

/// The development run that this key stands for, where it is over (rule A13).
pub(super) async fn dev_run_of_key(actors: &Actors, key: Option<&String>) -> Result<Option<Queued>, No> {
    let ended = of_key(actors, key, WhichEnded::DevRunKey).await?;
    Ok(match ended {
        Some(Ended::DevRun { history }) => Some(Queued { dev_run: history.spec.dev_run, ahead: 0 }),
        Some(Ended::Job { .. } | Ended::Run { .. }) | None => None,
    })
}

/// The run that this key stands for, where it is over (rule A13).
pub(super) async fn run_of_key(actors: &Actors, key: Option<&String>) -> Result<Option<RunId>, No> {
    let ended = of_key(actors, key, WhichEnded::RunKey).await?;
    Ok(match ended {
        Some(Ended::Run { run, .. }) => Some(run),
        Some(Ended::Job { .. } | Ended::DevRun { .. }) | None => None,
    })
}

async fn of_key(
    actors: &Actors,
    key: Option<&String>,
    which: impl FnOnce(String) -> WhichEnded,
) -> Result<Option<Ended>, No> {
    match key {
        None => Ok(None),
        Some(key) => one(actors, which(key.clone()), || format!("what key {key} stands for")).await,
    }
}

async fn one(actors: &Actors, which: WhichEnded, what: impl FnOnce() -> String) -> Result<Option<Ended>, No> {
    Ok(read(actors, which, what).await?.into_iter().next())
}

async fn read(actors: &Actors, which: WhichEnded, what: impl FnOnce() -> String) -> Result<Vec<Ended>, No> {
    match actors.records.ended(which).await {
        Ok(FromRecords::Kept(ended)) => Ok(ended),
        Ok(FromRecords::Pruned { wall_ms }) => Err(No::Refusal(Refusal::Pruned { what: what(), wall_ms })),
        Err(fault) => Err(No::Infrastructure(InfrastructureFailure::Records { why: fault.0 })),
    }
}
