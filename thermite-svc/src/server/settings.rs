//! The rig's settings: read by revision, set by whoever read the newest.

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use thermite_actors::view::SettingsView;
use thermite_core::settings::LiveSettings;
use thermite_core::time::Span;
use utoipa::ToSchema;

use super::problem::Problem;
use super::request::Body;
use super::{Door, etag, request};

/// `PUT /v1/rig/settings`: all that may be set while the rig runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How long a development run waits before it gives up, in milliseconds; null: as the rig was started with. Those
    /// that wait already keep their latest moment.
    #[serde(default, deserialize_with = "request::whole")]
    #[schema(minimum = 1_000, maximum = 86_400_000)]
    pub dev_run_wait: Option<u64>,
}

/// The settings: what may be set while the rig runs, what was set, and what only its start sets.
#[utoipa::path(get, path = "/v1/rig/settings", operation_id = "settings", tag = "rig",
    params(etag::IfNoneMatch),
    responses(
        (status = 200, description = "the settings", body = SettingsView,
            headers(("ETag" = String, description = "their revision, for `If-Match` and `If-None-Match`"))),
        (status = 304, description = "they are those of the given `ETag`"),
    )
)]
pub(super) async fn read(request: HttpRequest, door: Data<Door>) -> Result<HttpResponse, Problem> {
    let settings = door.rig.settings().await?;
    Ok(etag::answer(&request, &etag_of(&settings), &settings))
}

/// Sets what may be set while the rig runs; answered once it is durable and in force.
///
/// With `If-Match` only where nobody has set anything since: two that set at once do not undo each other unseen.
#[utoipa::path(put, path = "/v1/rig/settings", operation_id = "set_settings", tag = "rig",
    params(etag::IfMatch), request_body = Settings,
    responses(
        (status = 200, description = "the settings", body = SettingsView,
            headers(("ETag" = String, description = "their revision"))),
        (status = 412, description = "they have been set meanwhile"),
        (status = 422, description = "a value that cannot be, and what it must be"),
    )
)]
pub(super) async fn set(
    request: HttpRequest,
    door: Data<Door>,
    Body(settings): Body<Settings>,
) -> Result<HttpResponse, Problem> {
    let read = etag::if_match(&request)?;
    let settings = LiveSettings { dev_run_wait: settings.dev_run_wait.map(Span::millis) };
    let settings = door.rig.set(settings, read).await?;
    Ok(HttpResponse::Ok().insert_header((header::ETAG, etag_of(&settings))).json(settings))
}

fn etag_of(settings: &SettingsView) -> String {
    format!("\"{}\"", settings.revision)
}
