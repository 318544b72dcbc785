//! Listings that may grow without end, page by page.

use std::ops::Bound;

use thermite_core::fold::{DevRunHistory, RunHistory};

use crate::view::{DevRunStatus, RunRow};

use super::*;

/// Looks at all runs: those that are not over first, then the newest.
#[derive(Message)]
#[rtype(result = "Result<Vec<RunRow>, No>")]
pub(crate) struct LookAtRuns {
    pub(crate) after: Option<RunId>,
    pub(crate) most: usize,
}

/// Looks at one run, however long it is over.
#[derive(Message)]
#[rtype(result = "Result<RunRow, No>")]
pub(crate) struct LookAtRun(pub(crate) RunId);

/// Looks at a run's development runs, over or not, in the order of their names.
#[derive(Message)]
#[rtype(result = "Result<Vec<DevRunRow>, No>")]
pub(crate) struct LookAtDevRuns {
    pub(crate) run: RunId,
    pub(crate) after: Option<DevRunId>,
    pub(crate) most: usize,
}

pub(super) fn run_row(run: RunId, known: RunHistory) -> RunRow {
    RunRow {
        run,
        state: known.state,
        repo: known.spec.repo,
        kit: known.spec.kit.name,
        champion: known.champion,
        lanes: u8::try_from(known.spec.lanes.len()).unwrap_or(u8::MAX),
    }
}

async fn runs(actors: Actors, after: Option<RunId>, most: usize) -> Result<Vec<RunRow>, No> {
    let (mut rows, is_among_open) = look::recall(&actors, move |history| {
        let open = |id: RunId| history.runs.get(&id).is_some_and(|run| run.state != RunState::Ended);
        let is_among_open = after.is_none_or(open);
        let newest_first = history.runs.iter().rev().filter(|(id, _)| open(**id));
        let rest = newest_first.filter(|(id, _)| is_among_open && after.is_none_or(|after| **id < after));
        let rows: Vec<RunRow> = rest.take(most).map(|(id, run)| run_row(*id, run.clone())).collect();
        (rows, is_among_open)
    })
    .await?;
    if rows.len() < most {
        let before = after.filter(|_| !is_among_open);
        rows.extend(
            over::runs(&actors, before, most - rows.len()).await?.into_iter().map(|(id, run)| run_row(id, run)),
        );
    }
    Ok(rows)
}

pub(super) async fn run(actors: &Actors, run: RunId) -> Result<RunRow, No> {
    let known = match look::recall(actors, move |history| history.runs.get(&run).cloned()).await? {
        None => over::run(actors, run).await?,
        known => known,
    };
    known.map(|known| run_row(run, known)).ok_or(No::Refusal(Refusal::UnknownRun { run }))
}

async fn dev_runs(actors: Actors, msg: LookAtDevRuns) -> Result<Vec<DevRunRow>, No> {
    let LookAtDevRuns { run: of, after, most } = msg;
    run(&actors, of).await?;
    // The records first: what ends meanwhile is in memory still.
    let over = over::dev_runs(&actors, of, after, most).await?;
    let mut known: BTreeMap<DevRunId, DevRunHistory> = over.into_iter().map(|run| (run.spec.dev_run, run)).collect();
    let in_memory = look::recall(&actors, move |history| {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = history.dev_runs.range((from, Bound::Unbounded)).filter(|(_, known)| known.spec.run == of);
        rest.take(most).map(|(id, known)| (*id, known.clone())).collect::<Vec<(DevRunId, DevRunHistory)>>()
    });
    known.extend(in_memory.await?);
    let live = look::dev_runs(&actors).await;
    Ok(known
        .into_values()
        .take(most)
        .map(|known| {
            let under_way = live.iter().find(|row| row.dev_run == known.spec.dev_run);
            under_way.cloned().unwrap_or_else(|| {
                let end = known.end.unwrap_or(DevRunEnd::RigEnded);
                look::row_of(&known.spec, DevRunStatus::Ended { end }, known.on_runner)
            })
        })
        .collect())
}

impl Handler<LookAtRuns> for Door {
    type Result = ResponseFuture<Result<Vec<RunRow>, No>>;

    fn handle(&mut self, msg: LookAtRuns, _: &mut Self::Context) -> Self::Result {
        Box::pin(runs(self.actors.clone(), msg.after, msg.most))
    }
}

impl Handler<LookAtRun> for Door {
    type Result = ResponseFuture<Result<RunRow, No>>;

    fn handle(&mut self, msg: LookAtRun, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { run(&actors, msg.0).await })
    }
}

impl Handler<LookAtDevRuns> for Door {
    type Result = ResponseFuture<Result<Vec<DevRunRow>, No>>;

    fn handle(&mut self, msg: LookAtDevRuns, _: &mut Self::Context) -> Self::Result {
        Box::pin(dev_runs(self.actors.clone(), msg))
    }
}
