//! Whether the rig is there, whether it takes work, and its figures.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Data;
use thermite_core::limits;

use super::Door;
use super::problem::Problem;

/// Says that the rig answers: not only this process, but the thread that decides.
///
/// 503 means that it is ending or hangs: what watches over it should start it again. A rig that cannot write its
/// records is alive: it goes on by itself once it can, and `/readyz` says so.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "health", security(()), responses(
    (status = 200, description = "`ok`", content_type = "text/plain", body = String),
    (status = 503, description = "the rig is ending, or does not answer"),
))]
pub(super) async fn healthz(door: Data<Door>) -> Result<&'static str, Problem> {
    in_time(door.rig.settings()).await?;
    Ok("ok")
}

/// Says whether the rig takes work: it answers, and its records can be written.
///
/// Why they cannot is told to those with a token (`GET /v1/rig`). A device that is out of service does not make a rig
/// unready: it takes what is asked, which waits with that reason.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "health", security(()), responses(
    (status = 200, description = "`ready`", content_type = "text/plain", body = String),
    (status = 503, description = "it takes no work at the moment, and why"),
))]
pub(super) async fn readyz(door: Data<Door>) -> Result<&'static str, Problem> {
    match in_time(door.rig.view()).await?.records_fault {
        None => Ok("ready"),
        Some(_) => Err(Problem::not_ready("the records cannot be written; `thermite status` says why")),
    }
}

/// The rig's figures as OpenMetrics text, for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "health", responses(
    (status = 200, description = "the figures", content_type = "application/openmetrics-text", body = String),
))]
pub(super) async fn metrics(door: Data<Door>) -> Result<HttpResponse, Problem> {
    let view = door.rig.view().await?;
    let text = door.metrics.text(&view, door.events.readers());
    Ok(HttpResponse::Ok().content_type("application/openmetrics-text; version=1.0.0; charset=utf-8").body(text))
}

async fn in_time<T, N>(asked: impl Future<Output = Result<T, N>>) -> Result<T, Problem>
where
    Problem: From<N>,
{
    let most: Duration = limits::HEALTH_ANSWER_MAX.to_std();
    match tokio::time::timeout(most, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Problem::not_ready(format!("the rig did not answer within {}", limits::HEALTH_ANSWER_MAX))),
    }
}
