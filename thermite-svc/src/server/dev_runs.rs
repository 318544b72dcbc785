//! Development runs: asking, looking, cancelling.

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_actors::rig::No;
use thermite_actors::view::{DevRunRow, DevRunStatus};
use thermite_core::ids::{DevRunId, LaneId, RunId};
use thermite_core::limits;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::Span;
use utoipa::IntoParams;

use super::access::Asker;
use super::bodies::{AskDevRun, Over, Queued};
use super::openapi::IdempotencyKey;
use super::problem::Problem;
use super::request::{Body, Query};
use super::{Door, request};

/// How long an answer may wait.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// How long the answer may wait for the end, in milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 30_000)]
    wait_ms: u64,
}

impl Wait {
    /// The wait, no longer than the longest.
    pub(super) fn bounded(ms: u64) -> Result<std::time::Duration, Problem> {
        Ok(Span::millis(request::within("wait_ms", ms, 0, limits::REST_WAIT_MAX.as_millis())?).to_std())
    }
}

/// Asks for a development run; answered once it is durable and in the line.
#[utoipa::path(post, path = "/v1/runs/{run}/lanes/{lane}/dev-runs", operation_id = "ask_dev_run", tag = "dev-runs",
    params(
        ("run" = RunId, Path, description = "the run"),
        ("lane" = LaneId, Path, description = "the lane's number"),
        IdempotencyKey,
    ),
    request_body = AskDevRun,
    responses(
        (status = 202, description = "its place in the line", body = Queued,
            headers(("Location" = String, description = "the development run's path"))),
        (status = 404, description = "no such run or lane"),
        (status = 409, description = "the lane has one under way, the run is paused or has ended, or the idempotency key \
            stands for another request"),
        (status = 422, description = "it can never run, and why"),
    )
)]
pub(super) async fn ask(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Body(body): Body<AskDevRun>,
) -> Result<HttpResponse, Problem> {
    let run = request::id(&request, "run")?;
    let lane = request::part(&request, "lane", "a lane's number")?;
    asker.may_ask(run, lane)?;
    let key = request::key(&request, &door, &body).await?;
    let attached = body.attached;
    let ask = body.checked(run, lane, key)?;
    // A task of its own: a caller that goes away before it is answered has asked all the same, and where its run is
    // attached the rig must hear that nobody is there.
    let asked = actix_web::rt::spawn(async move {
        let queued = door.rig.ask(ask).await?;
        if attached {
            // The caller has 10 s to begin following; one that never does is gone (rule A10).
            door.followers.expected(queued.dev_run);
        }
        Ok::<_, No>(queued)
    });
    let queued = asked.await.map_err(|_| InfrastructureFailure::RigEnding)??;
    let dev_run = queued.dev_run;
    Ok(HttpResponse::Accepted()
        .insert_header((header::LOCATION, format!("/v1/dev-runs/{dev_run}")))
        .json(Queued { dev_run, ahead: queued.ahead }))
}

/// Which development runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last one of the page before, as its `Link` says.
    after: Option<DevRunId>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Development runs of a run, over or not, in order of asking.
#[utoipa::path(get, path = "/v1/runs/{run}/dev-runs", operation_id = "dev_runs", tag = "dev-runs",
    params(("run" = RunId, Path, description = "the run"), Page),
    responses(
        (status = 200, description = "the development runs", body = Vec<DevRunRow>,
            headers(("Link" = String, description = "the next page (`rel=\"next\"`), where there may be one"))),
        (status = 404, description = "no such run"),
    )
)]
pub(super) async fn list(
    request: HttpRequest,
    door: Data<Door>,
    Query(page): Query<Page>,
) -> Result<HttpResponse, Problem> {
    let run: RunId = request::id(&request, "run")?;
    let limit = request::limit(page.limit)?;
    let dev_runs = door.rig.dev_runs(run, page.after, limit).await?;
    let last = dev_runs.last().map(|row| row.dev_run.to_string());
    Ok(request::page(&format!("/v1/runs/{run}/dev-runs"), &dev_runs, last, limit))
}

/// One development run, over or not; with `wait_ms` it waits for its end that long.
#[utoipa::path(get, path = "/v1/dev-runs/{dev_run}", operation_id = "dev_run", tag = "dev-runs",
    params(("dev_run" = DevRunId, Path, description = "the development run"), Wait),
    responses(
        (status = 200, description = "the development run", body = DevRunRow),
        (status = 404, description = "no such development run"),
    )
)]
pub(super) async fn one(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Query(wait): Query<Wait>,
) -> Result<Json<DevRunRow>, Problem> {
    let dev_run: DevRunId = request::id(&request, "dev_run")?;
    let most = Wait::bounded(wait.wait_ms)?;
    let row = door.rig.dev_run(dev_run).await?;
    asker.owns(&row)?;
    if wait.wait_ms == 0 || matches!(row.status, DevRunStatus::Ended { .. }) {
        return Ok(Json(row));
    }
    let mut over = door.over.clone();
    tokio::select! {
        _ = door.rig.dev_run_end(dev_run) => {}
        _ = tokio::time::sleep(most) => {}
        _ = over.wait_for(|over| *over) => {}
    }
    Ok(Json(door.rig.dev_run(dev_run).await?))
}

/// Cancels a development run, waiting or running; answered once nothing of it is left, or that it is not proved.
#[utoipa::path(delete, path = "/v1/dev-runs/{dev_run}", operation_id = "cancel_dev_run", tag = "dev-runs",
    params(("dev_run" = DevRunId, Path, description = "the development run")),
    responses(
        (status = 200, description = "how it ended; one that was over already ended as it had", body = Over),
        (status = 404, description = "no such development run"),
    )
)]
pub(super) async fn cancel(request: HttpRequest, door: Data<Door>, asker: Asker) -> Result<Json<Over>, Problem> {
    let dev_run: DevRunId = request::id(&request, "dev_run")?;
    asker.owns(&door.rig.dev_run(dev_run).await?)?;
    let end = door.rig.cancel(dev_run).await?;
    let note = door.rig.dev_run(dev_run).await?.note;
    Ok(Json(Over::new(dev_run, end, note)))
}
