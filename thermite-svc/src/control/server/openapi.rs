//! The description of control's door, as OpenAPI 3.1: `GET /openapi.json`, and docs/openapi-control.json.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use utoipa::OpenApi;

use super::{rigs, tokens};
use crate::server::openapi::EveryPath;
use crate::server::problem::Problem;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Thermite control",
        description = "Rigs, their runners and their rights on the bus, and their settings. Every no is \
            `application/problem+json` (RFC 9457)."
    ),
    paths(
        rigs::healthz,
        openapi,
        rigs::list,
        rigs::make,
        rigs::one,
        rigs::remove,
        rigs::settings,
        rigs::set,
        rigs::set_by_post,
        rigs::runners,
        rigs::start_runner,
        rigs::remove_runner,
        rigs::remove_core,
        rigs::history,
        rigs::register,
        tokens::list,
        tokens::make,
        tokens::revoke,
    ),
    components(schemas(Problem)),
    modifiers(&EveryPath),
    tags(
        (name = "health", description = "whether control is there"),
        (name = "rigs", description = "rigs, their settings and their runners"),
        (name = "bus", description = "rights on the bus"),
        (name = "tokens", description = "who may ask for what"),
    )
)]
struct Api;

/// The description, as it is served and committed.
pub fn document() -> String {
    let mut text = Api::openapi().to_pretty_json().expect("a description has JSON");
    text.push('\n');
    text
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "health", security(()), responses(
    (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
))]
pub(super) async fn openapi() -> HttpResponse {
    static TEXT: LazyLock<String> = LazyLock::new(document);
    HttpResponse::Ok().content_type("application/json").body(TEXT.as_str())
}
