//! Revisions in headers (RFC 9110): `ETag`, `If-None-Match`, `If-Match`.

use actix_web::http::header::{self, HeaderName};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::IntoParams;

use super::problem::Problem;

/// The header of a request that wants an answer only where it is another than the one it has.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "the description of a header that `answer` reads")]
pub(crate) struct IfNoneMatch {
    /// The `ETag` of the answer that the reader has.
    #[param(rename = "If-None-Match", required = false)]
    if_none_match: String,
}

/// The header of a request that changes only what is still as it was read.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "the description of a header that `if_match` reads")]
pub(crate) struct IfMatch {
    /// The `ETag` of what was read, or `*`.
    #[param(rename = "If-Match", required = false, pattern = "^(\\*|\"[0-9]{1,18}\"|[0-9]{1,18})$")]
    if_match: String,
}

/// The answer `body`, or 304 where the asker has it.
pub(crate) fn answer(request: &HttpRequest, etag: &str, body: &impl Serialize) -> HttpResponse {
    if let Some(unchanged) = unchanged(request, etag) {
        return unchanged;
    }
    HttpResponse::Ok().insert_header((header::ETAG, etag)).json(body)
}

/// 304, where the asker has what `etag` stands for.
pub(crate) fn unchanged(request: &HttpRequest, etag: &str) -> Option<HttpResponse> {
    is_known(request, etag).then(|| HttpResponse::NotModified().insert_header((header::ETAG, etag)).finish())
}

/// Whether the asker has what `etag` stands for.
fn is_known(request: &HttpRequest, etag: &str) -> bool {
    let Some(given) = text(request, &header::IF_NONE_MATCH) else { return false };
    // Weak and strong compare alike here.
    given.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| one == etag || one == "*")
}

/// The revision that the asker read, where it says so.
///
/// # Errors
/// Where it is none that the rig gives.
pub(crate) fn if_match(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let Some(value) = request.headers().get(header::IF_MATCH) else { return Ok(None) };
    let given = value.to_str().unwrap_or_default().trim();
    if given == "*" {
        return Ok(None);
    }
    // Some clients lose the quotes.
    let bare = given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(given);
    let revision = bare.parse().ok().filter(|_| bare.bytes().all(|byte| byte.is_ascii_digit()));
    revision.map(Some).ok_or_else(|| {
        Problem::bad_request(format!("If-Match is {given:?}; it must be one ETag as this path gives it, such as \"3\""))
    })
}

fn text<'a>(request: &'a HttpRequest, name: &HeaderName) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}
