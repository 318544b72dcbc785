//! Rigs: making, settings, runners, registering, history.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_core::wire::ProcessName;
use utoipa::IntoParams;

use super::super::no::ControlNo;
use super::super::rigs::Control;
use super::super::tokens::By;
use super::super::words::{
    HistoryRow, NewRig, NewRunner, ProcessRow, Register, Removed, RigMade, RigRow, RigSettingsAsk, RigSettingsView,
    Rights,
};
use super::rig_in;
use crate::bus::subjects::RigName;
use crate::server::etag;
use crate::server::problem::Problem;
use crate::server::request::{self, Body, Query, part};

/// Says that control answers and reads its store.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "health", security(()), responses(
    (status = 200, description = "`ok`", content_type = "text/plain", body = String),
    (status = 503, description = "control does not answer"),
    (status = 507, description = "the store cannot be read"),
))]
pub(super) async fn healthz(control: Data<Control>) -> Result<&'static str, Problem> {
    block(&control, |control| control.rigs().map(drop)).await?;
    Ok("ok")
}

/// All rigs by name.
#[utoipa::path(get, path = "/v1/rigs", operation_id = "rigs", tag = "rigs", responses(
    (status = 200, description = "the rigs", body = Vec<RigRow>),
))]
pub(super) async fn list(control: Data<Control>) -> Result<Json<Vec<RigRow>>, Problem> {
    Ok(Json(block(&control, Control::rigs).await?))
}

/// Makes a rig. The answer shows its token, this once: its core and its self-started runners register with it.
#[utoipa::path(post, path = "/v1/rigs", operation_id = "make_rig", tag = "rigs", request_body = NewRig, responses(
    (status = 201, description = "the rig", body = RigMade,
        headers(("Location" = String, description = "the rig's path"))),
    (status = 409, description = "there is a rig of that name"),
    (status = 429, description = "too many rigs or tokens are there"),
))]
pub(super) async fn make(control: Data<Control>, by: By, Body(new): Body<NewRig>) -> Result<HttpResponse, Problem> {
    let name = new.name.clone();
    let mut made = block(&control, move |control| control.make_rig(&by, &name)).await?;
    made.on_the_bus = is_sent(&control, &new.name).await;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/rigs/{}", made.rig)))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(made))
}

/// One rig, with what its core said last.
#[utoipa::path(get, path = "/v1/rigs/{rig}", operation_id = "rig", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig")),
    responses((status = 200, description = "the rig", body = RigRow), (status = 404, description = "no such rig")),
)]
pub(super) async fn one(request: HttpRequest, control: Data<Control>) -> Result<Json<RigRow>, Problem> {
    let rig = rig_in(&request)?;
    Ok(Json(block(&control, move |control| control.rig(&rig)).await?))
}

/// Removes a rig with its runners: all its tokens end, and all rights in its account on the bus, at once.
#[utoipa::path(delete, path = "/v1/rigs/{rig}", operation_id = "remove_rig", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig")),
    responses((status = 200, description = "it is removed", body = Removed), (status = 404, description = "no such rig")),
)]
pub(super) async fn remove(request: HttpRequest, control: Data<Control>, by: By) -> Result<Json<Removed>, Problem> {
    let rig = rig_in(&request)?;
    Ok(Json(control.into_inner().remove_rig(by, rig).await?))
}

/// A rig's settings, and how far they have come.
#[utoipa::path(get, path = "/v1/rigs/{rig}/settings", operation_id = "rig_settings", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig"), etag::IfNoneMatch),
    responses(
        (status = 200, description = "the settings", body = RigSettingsView,
            headers(("ETag" = String, description = "their revision, for `If-Match`; and the one that the rig has"))),
        (status = 304, description = "they are those of the given `ETag`"),
        (status = 404, description = "no such rig"),
    ),
)]
pub(super) async fn settings(request: HttpRequest, control: Data<Control>) -> Result<HttpResponse, Problem> {
    let rig = rig_in(&request)?;
    let view = block(&control, move |control| control.settings(&rig)).await?;
    Ok(etag::answer(&request, &etag_of(&view), &view))
}

/// Sets a rig's settings, as a whole; answered once they are kept. The rig takes them at once where it is there, else as
/// soon as it reports.
///
/// With `If-Match` only where nobody has set anything since. A runner that was removed and is listed again may come back.
#[utoipa::path(put, path = "/v1/rigs/{rig}/settings", operation_id = "set_rig_settings", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig"), etag::IfMatch), request_body = RigSettingsAsk,
    responses(
        (status = 200, description = "the settings", body = RigSettingsView,
            headers(("ETag" = String, description = "their revision"))),
        (status = 404, description = "no such rig"),
        (status = 412, description = "they have been set meanwhile"),
        (status = 422, description = "a value that cannot be, and what it must be"),
    ),
)]
pub(super) async fn set(
    request: HttpRequest,
    control: Data<Control>,
    by: By,
    Body(settings): Body<RigSettingsAsk>,
) -> Result<HttpResponse, Problem> {
    let rig = rig_in(&request)?;
    let read = etag::if_match(&request)?;
    let view = block(&control, move |control| control.set(&by, &rig, &settings, read)).await?;
    Ok(HttpResponse::Ok().insert_header((header::ETAG, etag_of(&view))).json(view))
}

/// Sets a rig's settings, as `PUT` does.
#[utoipa::path(post, path = "/v1/rigs/{rig}/settings", operation_id = "post_rig_settings", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig"), etag::IfMatch), request_body = RigSettingsAsk,
    responses(
        (status = 200, description = "the settings", body = RigSettingsView),
        (status = 404, description = "no such rig"),
        (status = 412, description = "they have been set meanwhile"),
        (status = 422, description = "a value that cannot be, and what it must be"),
    ),
)]
pub(super) async fn set_by_post(
    request: HttpRequest,
    control: Data<Control>,
    by: By,
    body: Body<RigSettingsAsk>,
) -> Result<HttpResponse, Problem> {
    set(request, control, by, body).await
}

/// A rig's runners: those that are listed, in their order, then others that registered or were removed.
#[utoipa::path(get, path = "/v1/rigs/{rig}/runners", operation_id = "rig_runners", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig")),
    responses(
        (status = 200, description = "the runners", body = Vec<ProcessRow>),
        (status = 404, description = "no such rig"),
    ),
)]
pub(super) async fn runners(request: HttpRequest, control: Data<Control>) -> Result<Json<Vec<ProcessRow>>, Problem> {
    let rig = rig_in(&request)?;
    Ok(Json(block(&control, move |control| control.runners(&rig)).await?))
}

/// Starts a runner on a cluster. Control knows no cluster: self-started runners go through the rig's settings.
#[utoipa::path(post, path = "/v1/rigs/{rig}/runners", operation_id = "start_runner", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig")), request_body = NewRunner,
    responses(
        (status = 404, description = "no such rig"),
        (status = 409, description = "control knows no cluster"),
    ),
)]
pub(super) async fn start_runner(
    request: HttpRequest,
    control: Data<Control>,
    new: Body<NewRunner>,
) -> Result<HttpResponse, Problem> {
    let rig = rig_in(&request)?;
    // It is read all the same: what cannot be is told first.
    drop(new);
    block(&control, move |control| control.settings(&rig).map(drop)).await?;
    Err(ControlNo::NoCluster.into())
}

/// Removes a runner: its own token ends, its key and name are barred until it is listed again, its rights on the bus end at
/// once, and the core lets go of it.
#[utoipa::path(delete, path = "/v1/rigs/{rig}/runners/{runner}", operation_id = "remove_runner", tag = "rigs",
    params(
        ("rig" = RigName, Path, description = "the rig"),
        ("runner" = ProcessName, Path, description = "the runner"),
    ),
    responses(
        (status = 200, description = "it is removed", body = Removed),
        (status = 404, description = "no such rig or runner"),
    ),
)]
pub(super) async fn remove_runner(
    request: HttpRequest,
    control: Data<Control>,
    by: By,
) -> Result<Json<Removed>, Problem> {
    let rig = rig_in(&request)?;
    let runner = part(&request, "runner", "a runner's name")?;
    Ok(Json(control.into_inner().remove_runner(by, rig, runner).await?))
}

/// Removes the core: its key is barred and its rights on the bus end at once, so that another process may have its place.
#[utoipa::path(delete, path = "/v1/rigs/{rig}/core", operation_id = "remove_core", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig")),
    responses((status = 200, description = "it is removed", body = Removed), (status = 404, description = "no such rig")),
)]
pub(super) async fn remove_core(
    request: HttpRequest,
    control: Data<Control>,
    by: By,
) -> Result<Json<Removed>, Problem> {
    let rig = rig_in(&request)?;
    Ok(Json(control.into_inner().remove_core(by, rig).await?))
}

/// Which steps.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last one of the page before, as its `Link` says.
    after: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Every step of setting a rig up, the earliest first; also of one that was removed.
#[utoipa::path(get, path = "/v1/rigs/{rig}/history", operation_id = "rig_history", tag = "rigs",
    params(("rig" = RigName, Path, description = "the rig"), Page),
    responses(
        (status = 200, description = "the steps", body = Vec<HistoryRow>,
            headers(("Link" = String, description = "the next page (`rel=\"next\"`), where there may be one"))),
        (status = 404, description = "there never was such a rig"),
    ),
)]
pub(super) async fn history(
    request: HttpRequest,
    control: Data<Control>,
    Query(page): Query<Page>,
) -> Result<HttpResponse, Problem> {
    let rig = rig_in(&request)?;
    let limit = request::limit(page.limit)?;
    let after = page.after.unwrap_or(0);
    let rows = block(&control, move |control| control.history(&rig, after, limit)).await?;
    let last = rows.last().map(|row| row.seq.to_string());
    Ok(request::page(request.path(), &rows, last, limit))
}

/// Gives rights on the bus to a process for its key, or renews them. Asked again at half of what they are valid.
///
/// The same key with a newer start replaces the older one; another key under a name whose rights are not over is refused.
#[utoipa::path(post, path = "/v1/rigs/{rig}/bus/register", operation_id = "register", tag = "bus",
    params(("rig" = RigName, Path, description = "the rig")), request_body = Register,
    responses(
        (status = 200, description = "the rights", body = Rights),
        (status = 404, description = "no such rig"),
        (status = 409, description = "the name is another process's, or a newer start has taken it"),
        (status = 410, description = "the runner was removed, and is not listed again; or the key is a removed core's"),
        (status = 429, description = "too many processes are known"),
    ),
)]
pub(super) async fn register(
    request: HttpRequest,
    control: Data<Control>,
    by: By,
    Body(ask): Body<Register>,
) -> Result<HttpResponse, Problem> {
    let rig = rig_in(&request)?;
    let rights = block(&control, move |control| control.register(&by, &rig, &ask)).await?;
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(rights))
}

fn etag_of(view: &RigSettingsView) -> String {
    format!("\"{}\"", view.revision)
}

/// Whether the bus has the rig's account; it is sent once here, and by control's own care after that.
async fn is_sent(control: &Data<Control>, rig: &RigName) -> bool {
    let (control, rig) = (Arc::clone(&Data::clone(control).into_inner()), rig.clone());
    match control.block(move |control| control.number(&rig)).await {
        Ok(id) => control.send(id).await.is_ok(),
        Err(_) => false,
    }
}

async fn block<T: Send + 'static>(
    control: &Data<Control>,
    how: impl FnOnce(&Control) -> Result<T, ControlNo> + Send + 'static,
) -> Result<T, Problem> {
    Ok(Data::clone(control).into_inner().block(how).await?)
}
