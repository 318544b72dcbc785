//! The rig and its runs.

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use thermite_actors::view::{RigView, RunRow};
use thermite_core::ids::RunId;
use thermite_core::run::RunState;

use serde::Deserialize;
use utoipa::IntoParams;

use super::bodies::{RunChanged, RunStarted, StartRun};
use super::openapi::IdempotencyKey;
use super::problem::Problem;
use super::request::{Body, Query};
use super::{Door, request};

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last one of the page before, as its `Link` says.
    after: Option<RunId>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// The whole rig at this moment.
#[utoipa::path(get, path = "/v1/rig", operation_id = "rig", tag = "rig", responses(
    (status = 200, description = "devices, runs, and what waits, holds and is measured", body = RigView),
))]
pub(super) async fn rig(door: Data<Door>) -> Result<Json<RigView>, Problem> {
    Ok(Json(door.rig.view().await?))
}

/// All runs: those that are not over, then the others, the newest first.
#[utoipa::path(get, path = "/v1/runs", operation_id = "runs", tag = "runs", params(Page), responses(
    (status = 200, description = "the runs", body = Vec<RunRow>,
        headers(("Link" = String, description = "the next page (`rel=\"next\"`), where there may be one"))),
))]
pub(super) async fn list(door: Data<Door>, Query(page): Query<Page>) -> Result<HttpResponse, Problem> {
    let limit = request::limit(page.limit)?;
    let runs = door.rig.runs(page.after, limit).await?;
    let last = runs.last().map(|row| row.run.to_string());
    Ok(request::page("/v1/runs", &runs, last, limit))
}

/// One run.
#[utoipa::path(get, path = "/v1/runs/{run}", operation_id = "run", tag = "runs",
    params(("run" = RunId, Path, description = "the run")),
    responses(
        (status = 200, description = "the run", body = RunRow),
        (status = 404, description = "no such run"),
    )
)]
pub(super) async fn one(request: HttpRequest, door: Data<Door>) -> Result<Json<RunRow>, Problem> {
    Ok(Json(door.rig.run(request::id(&request, "run")?).await?))
}

/// Starts a run; answered once it is durable.
#[utoipa::path(post, path = "/v1/runs", operation_id = "start_run", tag = "runs",
    params(IdempotencyKey), request_body = StartRun,
    responses(
        (status = 201, description = "the run", body = RunStarted,
            headers(("Location" = String, description = "the run's path"))),
        (status = 409, description = "another run is worked on, or the idempotency key stands for another request"),
        (status = 422, description = "repository, kit, revision or worktree cannot be used, and why"),
    )
)]
pub(super) async fn start(
    request: HttpRequest,
    door: Data<Door>,
    Body(body): Body<StartRun>,
) -> Result<HttpResponse, Problem> {
    let key = request::key(&request, &door, &body).await?;
    let run = door.rig.start_run(body.checked()?, key).await?;
    Ok(HttpResponse::Created().insert_header((header::LOCATION, format!("/v1/runs/{run}"))).json(RunStarted { run }))
}

/// Pauses a run: its jobs keep their place, its waiting development runs leave the line.
#[utoipa::path(post, path = "/v1/runs/{run}/pause", operation_id = "pause_run", tag = "runs",
    params(("run" = RunId, Path, description = "the run")),
    responses(
        (status = 200, description = "it is so", body = RunChanged),
        (status = 404, description = "no such run"),
        (status = 409, description = "the run has ended"),
    )
)]
pub(super) async fn pause(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Paused).await
}

/// Resumes a paused run.
#[utoipa::path(post, path = "/v1/runs/{run}/resume", operation_id = "resume_run", tag = "runs",
    params(("run" = RunId, Path, description = "the run")),
    responses(
        (status = 200, description = "it is so", body = RunChanged),
        (status = 404, description = "no such run"),
        (status = 409, description = "the run has ended"),
    )
)]
pub(super) async fn resume(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Running).await
}

/// Ends a run: its development run and its stage under way are stopped, its jobs are not judged.
#[utoipa::path(post, path = "/v1/runs/{run}/end", operation_id = "end_run", tag = "runs",
    params(("run" = RunId, Path, description = "the run")),
    responses(
        (status = 200, description = "it is so", body = RunChanged),
        (status = 404, description = "no such run"),
        (status = 409, description = "the run has ended"),
    )
)]
pub(super) async fn end(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Ended).await
}

async fn change(request: &HttpRequest, door: &Door, state: RunState) -> Result<Json<RunChanged>, Problem> {
    let run = request::id(request, "run")?;
    let state = door.rig.change_run(run, state).await?;
    Ok(Json(RunChanged { run, state }))
}
