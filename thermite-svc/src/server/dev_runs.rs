//! Development runs: asking, looking, cancelling.

use actix_web::http::header;
use actix_web::web::{Data, Json, Query};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_actors::rig::No;
use thermite_actors::view::{DevRunRow, DevRunStatus};
use thermite_core::ids::DevRunId;
use thermite_core::limits;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::Span;

use super::bodies::{AskDevRun, Over, Queued};
use super::problem::Problem;
use super::{Door, request};

/// How long an answer may wait.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    #[serde(default)]
    wait_ms: u64,
}

impl Wait {
    /// A longer wait than the longest is answered after the longest.
    pub(super) fn bounded(ms: u64) -> std::time::Duration {
        Span::millis(ms).min(limits::REST_WAIT_MAX).to_std()
    }
}

pub(super) async fn ask(
    request: HttpRequest,
    door: Data<Door>,
    body: Json<AskDevRun>,
) -> Result<HttpResponse, Problem> {
    let run = request::id(&request, "run")?;
    let lane = request::part(&request, "lane", "a lane's number")?;
    let key = request::key(&request, &door, &*body).await?;
    let attached = body.attached;
    let ask = body.into_inner().checked(run, lane, key)?;
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

pub(super) async fn one(request: HttpRequest, door: Data<Door>, wait: Query<Wait>) -> Result<Json<DevRunRow>, Problem> {
    let dev_run: DevRunId = request::id(&request, "dev_run")?;
    let row = door.rig.dev_run(dev_run).await?;
    if wait.wait_ms == 0 || matches!(row.status, DevRunStatus::Ended { .. }) {
        return Ok(Json(row));
    }
    let mut over = door.over.clone();
    tokio::select! {
        _ = door.rig.dev_run_end(dev_run) => {}
        _ = tokio::time::sleep(Wait::bounded(wait.wait_ms)) => {}
        _ = over.wait_for(|over| *over) => {}
    }
    Ok(Json(door.rig.dev_run(dev_run).await?))
}

pub(super) async fn cancel(request: HttpRequest, door: Data<Door>) -> Result<Json<Over>, Problem> {
    let dev_run: DevRunId = request::id(&request, "dev_run")?;
    Ok(Json(Over::new(dev_run, door.rig.cancel(dev_run).await?)))
}
