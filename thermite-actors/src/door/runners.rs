//! The rig's runners through the door: the list, durable before it is in force and in force before it is answered (rules
//! E8, E10, E13, E14).

use thermite_core::runners::{self, ProcessAsk, ProcessPools, RunnerSet};
use thermite_core::why::Explanation;

use crate::outbox::Recall;
use crate::pool::LookAtPool;
use crate::runners::PutInForce;
use crate::view::{RunnerRow, RunnerRuns, RunnersView};

use super::*;

/// Looks at the runners.
#[derive(Message)]
#[rtype(result = "Result<RunnersView, No>")]
pub(crate) struct LookAtRunners;

/// Sets them, where their revision is still the one that was read.
#[derive(Message)]
#[rtype(result = "Result<RunnersView, No>")]
pub(crate) struct ChangeRunners {
    pub(crate) list: Vec<ProcessAsk>,
    pub(crate) read: Option<u64>,
}

async fn change(actors: Actors, msg: ChangeRunners) -> Result<RunnersView, No> {
    let list: Vec<ProcessPools> = runners::parse(&msg.list)?;
    if !list.is_empty() {
        actors.reaches_runners.clone().map_err(|why| Refusal::BadRunners { why })?;
    }
    {
        let _turn = actors.runners_turn.lock().await;
        let read = Recall(Box::new(|history: &RigHistory| {
            (history.runners_revision, history.runner_numbers.clone(), history.runner_next)
        }));
        let (revision, numbers, next) = actors.outbox.send(read).await.map_err(|_| No::ending())?;
        if msg.read.is_some_and(|read| read != revision) {
            return Err(Refusal::RunnersMoved { revision }.into());
        }
        let set: Vec<RunnerSet> = runners::number(&list, &numbers, next)?;
        append(&actors.outbox, vec![LogEntry::RunnersSet { runners: set.clone() }]).await?;
        actors.runners.send(PutInForce(set)).await.map_err(|_| No::ending())?;
        // The pool takes what it is told in order: with this answer the list is in force.
        actors.pool.send(LookAtPool).await.map_err(|_| No::ending())?;
    }
    Ok(look::whole(&actors).await.runners)
}

/// The rig's kind of target: the core's own, or its runners' where the core judges nothing (rule E13).
pub(super) async fn target(actors: &Actors) -> Result<Target, No> {
    let looked = actors.runners.send(crate::runners::LookAtRunners).await.map_err(|_| No::ending())?;
    looked.target.ok_or_else(|| {
        No::Infrastructure(InfrastructureFailure::Step {
            step: "learning the runners' kind of target".to_owned(),
            why: "no judge's or shared runner has answered yet; ask again once one has".to_owned(),
        })
    })
}

/// Explains a runner by its name, as in `box-2/1` or `runner box-2/1`; of a process with one runner its own name will do.
pub(super) async fn why(actors: &Actors, name: &str) -> Result<Option<Explanation>, No> {
    let name = name.strip_prefix("runner ").unwrap_or(name);
    let view = look::whole(actors).await;
    let is_it = |row: &&RunnerRow| row.name == name || row.name.strip_suffix("/1") == Some(name);
    let Some(row) = view.runners.runners.iter().find(is_it) else { return Ok(None) };
    let answers = row.answered.map_or_else(
        || "it has not answered since the rig started".to_owned(),
        |at| format!("its last answer came {} ago", view.now.since(at)),
    );
    let runs = row.runs.map(|runs| match runs {
        RunnerRuns::Judge { hold, job: Some(job) } => format!("hold {} is for job {job}", hold.number),
        RunnerRuns::Judge { hold, job: None } => format!("hold {} is the judge's", hold.number),
        RunnerRuns::Lane { hold, lane, dev_run } => {
            format!("hold {} is for development run {dev_run} of {lane}", hold.number)
        }
    });
    let pool = row.pool.map_or_else(|| "it is off the list".to_owned(), |pool| format!("its pool is {pool}"));
    let device =
        row.device.as_ref().map(|device| format!("{}, {} ({})", device.target.name(), device.model, device.uuid));
    let because = [Some(pool), Some(answers), runs, device, view.runners.bus_away.clone()];
    Ok(Some(Explanation::of_runner(
        &row.name,
        row.why_not.as_deref(),
        row.runs.is_some(),
        because.into_iter().flatten(),
    )))
}

impl Handler<LookAtRunners> for Door {
    type Result = ResponseFuture<Result<RunnersView, No>>;

    fn handle(&mut self, _: LookAtRunners, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { Ok(look::whole(&actors).await.runners) })
    }
}

impl Handler<ChangeRunners> for Door {
    type Result = ResponseFuture<Result<RunnersView, No>>;

    fn handle(&mut self, msg: ChangeRunners, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        Box::pin(change(self.actors.clone(), msg))
    }
}
