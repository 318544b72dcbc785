//! The rig and its runs.

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use thermite_actors::view::{RigView, RunRow};
use thermite_core::ids::RunId;
use thermite_core::run::RunState;

use super::bodies::{RunChanged, RunStarted, StartRun};
use super::problem::Problem;
use super::{Door, request};

pub(super) async fn rig(door: Data<Door>) -> Result<Json<RigView>, Problem> {
    Ok(Json(door.rig.view().await?))
}

pub(super) async fn list(door: Data<Door>) -> Result<Json<Vec<RunRow>>, Problem> {
    Ok(Json(door.rig.view().await?.runs))
}

pub(super) async fn one(request: HttpRequest, door: Data<Door>) -> Result<Json<RunRow>, Problem> {
    Ok(Json(known(&door, request::id(&request, "run")?).await?))
}

/// The run's row, or that there is none.
pub(super) async fn known(door: &Door, run: RunId) -> Result<RunRow, Problem> {
    Ok(door.rig.run(run).await?)
}

pub(super) async fn start(
    request: HttpRequest,
    door: Data<Door>,
    body: Json<StartRun>,
) -> Result<HttpResponse, Problem> {
    let key = request::key(&request, &door, &*body).await?;
    let run = door.rig.start_run(body.into_inner().checked()?, key).await?;
    Ok(HttpResponse::Created().insert_header((header::LOCATION, format!("/v1/runs/{run}"))).json(RunStarted { run }))
}

pub(super) async fn pause(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Paused).await
}

pub(super) async fn resume(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Running).await
}

pub(super) async fn end(request: HttpRequest, door: Data<Door>) -> Result<Json<RunChanged>, Problem> {
    change(&request, &door, RunState::Ended).await
}

async fn change(request: &HttpRequest, door: &Door, state: RunState) -> Result<Json<RunChanged>, Problem> {
    let run = request::id(request, "run")?;
    let state = door.rig.change_run(run, state).await?;
    Ok(Json(RunChanged { run, state }))
}
