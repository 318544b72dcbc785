//! The door's description, as OpenAPI 3.1: `GET /openapi.json`, and docs/openapi.json for those who have no rig.
//!
//! Each handler says what is its own; what every path has (the token, the problems of reading a request, of a rig that
//! is ending) is added here once, and so is the form of every no.

use actix_web::HttpResponse;
use std::sync::LazyLock;

use thermite_actors::view::RigEvent;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoParams, Modify, OpenApi};

use super::problem::{MEDIA_TYPE, Problem};
use super::{dev_runs, events, health, jobs, noise, output, runners, runs, settings, split, tokens, why};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Thermite rig",
        description = "One rig: a device that development runs and the judge take turns on, and verdicts that can be \
            verified. Every no is `application/problem+json` (RFC 9457); moments are milliseconds on the rig's clock."
    ),
    paths(
        health::healthz,
        health::readyz,
        health::metrics,
        openapi,
        runs::rig,
        settings::read,
        settings::set,
        runners::read,
        runners::set,
        runs::list,
        runs::start,
        runs::one,
        runs::pause,
        runs::resume,
        runs::end,
        dev_runs::ask,
        dev_runs::list,
        dev_runs::one,
        dev_runs::cancel,
        output::read,
        jobs::list,
        jobs::submit,
        jobs::one,
        jobs::verdict,
        noise::all,
        noise::again,
        noise::clear,
        split::read,
        split::set,
        split::drain,
        split::undrain,
        events::stream,
        why::why,
        tokens::list,
        tokens::make,
        tokens::one,
        tokens::revoke,
        tokens::rotate,
    ),
    components(schemas(Problem, RigEvent)),
    modifiers(&EveryPath),
    tags(
        (name = "health", description = "whether the rig is there, and its figures"),
        (name = "rig", description = "the rig as a whole"),
        (name = "runs", description = "campaigns being worked on"),
        (name = "dev-runs", description = "commands that lanes try on a device; their numbers never count"),
        (name = "tokens", description = "who may ask for what"),
        (name = "jobs", description = "changes measured against the champion"),
        (name = "devices", description = "who has which card, and which cards take no work"),
        (name = "noise", description = "how much the devices vary by themselves, and the alarm on the harness"),
    )
)]
struct Api;

/// The header of a request that asks for something once, however often it is sent.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "the description of a header that `request::key` reads")]
pub(super) struct IdempotencyKey {
    /// Names this asking: the same key with the same request is asked once, with another request it is refused.
    #[param(rename = "Idempotency-Key", required = false, min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    idempotency_key: String,
}

/// The description, as it is served and committed.
pub fn document() -> String {
    let mut text = Api::openapi().to_pretty_json().expect("a description has JSON");
    text.push('\n');
    text
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "rig", security(()), responses(
    (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
))]
pub(super) async fn openapi() -> HttpResponse {
    static TEXT: LazyLock<String> = LazyLock::new(document);
    HttpResponse::Ok().content_type("application/json").body(TEXT.as_str())
}

/// What every path has.
pub(crate) struct EveryPath;

const TOKEN: &str = "token";

impl Modify for EveryPath {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let bearer =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("a token that this door gave")).build();
        api.components.get_or_insert_default().add_security_scheme(TOKEN, SecurityScheme::Http(bearer));
        for path in api.paths.paths.values_mut() {
            let operations =
                [&mut path.get, &mut path.put, &mut path.post, &mut path.delete].into_iter().filter_map(Option::as_mut);
            operations.for_each(every_operation);
        }
    }
}

fn every_operation(operation: &mut Operation) {
    if operation.security.is_none() {
        operation.security = Some(vec![utoipa::openapi::SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
        common(operation, "401", "no token, or one that opens nothing here");
        common(operation, "403", "the token does not open this");
        common(operation, "503", "the rig is ending, or cannot at the moment");
    }
    common(operation, "400", "the request cannot be read");
    if operation.request_body.is_some() {
        common(operation, "413", "the body is too large");
        common(operation, "415", "the body is not JSON");
        common(operation, "507", "the records cannot be written, or the disk is full");
    }
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if status.starts_with(['4', '5']) && response.content.is_empty() {
            problem(response);
        }
    }
}

fn common(operation: &mut Operation, status: &str, description: &str) {
    let response = ResponseBuilder::new().description(description).build();
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
}

fn problem(response: &mut Response) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    response.content.insert(MEDIA_TYPE.to_owned(), RefOr::T(content));
}
