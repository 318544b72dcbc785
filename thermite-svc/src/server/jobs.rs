//! Jobs: submitting, looking, verdict records.

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_actors::view::{JobRow, JobStatus};
use thermite_core::ids::{JobId, RunId};
use thermite_core::job::StageKind;
use thermite_core::record::VerdictRecord;
use utoipa::IntoParams;

use super::access::Asker;
use super::bodies::{SubmitJob, Submitted};
use super::openapi::IdempotencyKey;
use super::problem::Problem;
use super::request::{Body, Query};
use super::{Door, etag, request};

/// Which jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last one of the page before, as its `Link` says.
    after: Option<JobId>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Which record.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The stage's record; without it that of the deciding stage.
    stage: Option<StageKind>,
}

/// Submits a job: a change to be measured against the champion. Answered once it is durable and nobody passes it.
#[utoipa::path(post, path = "/v1/runs/{run}/jobs", operation_id = "submit_job", tag = "jobs",
    params(("run" = RunId, Path, description = "the run"), IdempotencyKey),
    request_body = SubmitJob,
    responses(
        (status = 202, description = "its place in the queue", body = Submitted,
            headers(("Location" = String, description = "the job's path"))),
        (status = 404, description = "no such run"),
        (status = 409, description = "the run has ended, or the idempotency key stands for another request"),
        (status = 422, description = "revision or change cannot be measured, and why"),
        (status = 429, description = "too many jobs wait"),
    )
)]
pub(super) async fn submit(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Body(body): Body<SubmitJob>,
) -> Result<HttpResponse, Problem> {
    let run = request::id(&request, "run")?;
    asker.may_submit(run)?;
    let key = request::key(&request, &door, &body).await?;
    let submitted = door.rig.submit(body.checked(run, key)?).await?;
    let job = submitted.job;
    Ok(HttpResponse::Accepted().insert_header((header::LOCATION, format!("/v1/jobs/{job}"))).json(Submitted {
        job,
        ahead: submitted.ahead,
        same: submitted.same,
    }))
}

/// Jobs of a run, over or not, in order of asking.
#[utoipa::path(get, path = "/v1/runs/{run}/jobs", operation_id = "jobs", tag = "jobs",
    params(("run" = RunId, Path, description = "the run"), Page),
    responses(
        (status = 200, description = "the jobs", body = Vec<JobRow>,
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
    let jobs = door.rig.jobs(run, page.after, limit).await?;
    let last = jobs.last().map(|row| row.job.to_string());
    Ok(request::page(&format!("/v1/runs/{run}/jobs"), &jobs, last, limit))
}

/// One job, over or not.
#[utoipa::path(get, path = "/v1/jobs/{job}", operation_id = "job", tag = "jobs",
    params(("job" = JobId, Path, description = "the job")),
    responses(
        (status = 200, description = "the job", body = JobRow),
        (status = 404, description = "no such job"),
    )
)]
pub(super) async fn one(request: HttpRequest, door: Data<Door>, asker: Asker) -> Result<Json<JobRow>, Problem> {
    let row = door.rig.job(request::id(&request, "job")?).await?;
    asker.sees(&row)?;
    Ok(Json(row))
}

/// A job's verdict record, byte for byte as it was closed: its hash is over these bytes.
#[utoipa::path(get, path = "/v1/jobs/{job}/verdict", operation_id = "verdict", tag = "jobs",
    params(("job" = JobId, Path, description = "the job"), Which, etag::IfNoneMatch),
    responses(
        (status = 200, description = "the record", body = VerdictRecord,
            headers(("ETag" = String, description = "the record's SHA-256; a record never changes"))),
        (status = 304, description = "it is the record of the given `ETag`"),
        (status = 404, description = "no such job, or it has no such record (yet)"),
    )
)]
pub(super) async fn verdict(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Query(which): Query<Which>,
) -> Result<HttpResponse, Problem> {
    let job: JobId = request::id(&request, "job")?;
    let row = door.rig.job(job).await?;
    asker.sees(&row)?;
    let none = |what: &str| Problem::not_found(format!("job {job} has no {what} record"));
    let (hash, what) = match (&row.status, which.stage) {
        (JobStatus::Ended { record, .. }, None) => (record.clone(), "verdict"),
        // A screening that was not won is the deciding record itself.
        (JobStatus::Ended { record, screening: None, .. }, Some(StageKind::Screening)) => (record.clone(), "screening"),
        (JobStatus::Ended { screening, .. }, Some(StageKind::Screening)) => (screening.clone(), "screening"),
        (JobStatus::Ended { record, screening: Some(_), .. }, Some(StageKind::Confirmation)) => {
            (record.clone(), "confirmation")
        }
        (JobStatus::Ended { screening: None, .. }, Some(StageKind::Confirmation)) => (None, "confirmation"),
        (
            JobStatus::Recording { .. }
            | JobStatus::Waiting { .. }
            | JobStatus::Measuring { .. }
            | JobStatus::Concluding { .. },
            stage,
        ) => {
            let what = stage.map_or("verdict", |stage| match stage {
                StageKind::Screening => "screening",
                StageKind::Confirmation => "confirmation",
            });
            let detail = format!("job {job} is not over; it has no {what} record to give yet");
            return Err(Problem::not_found(detail));
        }
    };
    let hash = hash.ok_or_else(|| none(what))?;
    let etag = format!("\"{hash}\"");
    if let Some(unchanged) = etag::unchanged(&request, &etag) {
        return Ok(unchanged);
    }
    let text = door.verdicts.verdict(&hash).await?.ok_or_else(|| none(what))?;
    // Byte for byte as it was closed: its hash is over these bytes.
    Ok(HttpResponse::Ok().content_type("application/json").insert_header((header::ETAG, etag)).body(text))
}
