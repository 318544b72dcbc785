//! Jobs: submitting, looking, verdict records.

use actix_web::http::header;
use actix_web::web::{Data, Json, Query};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_actors::view::{JobRow, JobStatus};
use thermite_core::ids::{JobId, RunId};
use thermite_core::job::StageKind;
use thermite_core::limits;

use super::bodies::{SubmitJob, Submitted};
use super::problem::Problem;
use super::{Door, request, runs};

/// Which jobs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    after: Option<JobId>,
    limit: Option<usize>,
}

/// Which record.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    stage: Option<StageKind>,
}

pub(super) async fn submit(
    request: HttpRequest,
    door: Data<Door>,
    body: Json<SubmitJob>,
) -> Result<HttpResponse, Problem> {
    let run = request::id(&request, "run")?;
    let key = request::key(&request, &door, &*body).await?;
    let submitted = door.rig.submit(body.into_inner().checked(run, key)?).await?;
    let job = submitted.job;
    Ok(HttpResponse::Accepted().insert_header((header::LOCATION, format!("/v1/jobs/{job}"))).json(Submitted {
        job,
        ahead: submitted.ahead,
        same: submitted.same,
    }))
}

pub(super) async fn list(request: HttpRequest, door: Data<Door>, page: Query<Page>) -> Result<HttpResponse, Problem> {
    let run: RunId = request::id(&request, "run")?;
    let limit = page.limit.unwrap_or(limits::JOBS_LISTED_MAX);
    if limit == 0 {
        return Err(Problem::bad_request("limit is 0; it must be at least 1"));
    }
    let limit = limit.min(limits::JOBS_LISTED_MAX);
    let jobs = door.rig.jobs(run, page.after, limit).await?;
    if jobs.is_empty() {
        runs::known(&door, run).await?;
    }
    let mut answer = HttpResponse::Ok();
    if let Some(last) = jobs.last().filter(|_| jobs.len() == limit) {
        let next = format!("</v1/runs/{run}/jobs?after={}&limit={limit}>; rel=\"next\"", last.job);
        answer.insert_header((header::LINK, next));
    }
    Ok(answer.json(jobs))
}

pub(super) async fn one(request: HttpRequest, door: Data<Door>) -> Result<Json<JobRow>, Problem> {
    Ok(Json(door.rig.job(request::id(&request, "job")?).await?))
}

pub(super) async fn verdict(
    request: HttpRequest,
    door: Data<Door>,
    which: Query<Which>,
) -> Result<HttpResponse, Problem> {
    let job: JobId = request::id(&request, "job")?;
    let row = door.rig.job(job).await?;
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
    let text = door.verdicts.verdict(&hash).await?.ok_or_else(|| none(what))?;
    // Byte for byte as it was closed: its hash is over these bytes.
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::ETAG, format!("\"{hash}\"")))
        .body(text))
}
