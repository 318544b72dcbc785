//! Reading requests: paths, queries, bodies and keys, each with a problem that names what is wrong.

use std::fmt::Display;
use std::str::FromStr;

use actix_web::error::{JsonPayloadError, PayloadError, QueryPayloadError};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use sha2::{Digest, Sha256};
use thermite_core::limits;

use super::Door;
use super::problem::Problem;
use crate::records::KeyUse;

const KEY_HEADER: &str = "idempotency-key";

pub(super) async fn no_such_path(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Err(Problem::not_found(format!("there is nothing at {}", request.path())))
}

/// The part of the path that stands for `name`.
pub(super) fn part<T>(request: &HttpRequest, name: &str, expected: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
{
    let text = request.match_info().get(name).unwrap_or_default();
    text.parse().map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        Problem::bad_request(format!("{name} {shown} is not {expected}: {error}"))
    })
}

/// The part of the path that names a run, job or development run.
pub(super) fn id<T>(request: &HttpRequest, name: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
{
    part(request, name, "a UUID")
}

pub(super) fn json_config() -> web::JsonConfig {
    web::JsonConfig::default().limit(limits::REST_BODY_BYTES_MAX).error_handler(|error, _| json_problem(&error).into())
}

pub(super) fn query_config() -> web::QueryConfig {
    web::QueryConfig::default().error_handler(|error, _| {
        let detail = match &error {
            QueryPayloadError::Deserialize(cause) => format!("the query cannot be read: {cause}"),
            other => format!("the query cannot be read: {other}"),
        };
        Problem::bad_request(detail).into()
    })
}

fn json_problem(error: &JsonPayloadError) -> Problem {
    let most = limits::REST_BODY_BYTES_MAX;
    match error {
        JsonPayloadError::OverflowKnownLength { length, .. } => {
            Problem::too_large(format!("the body has {length} bytes, at most {most}"))
        }
        JsonPayloadError::Overflow { .. } | JsonPayloadError::Payload(PayloadError::Overflow) => {
            Problem::too_large(format!("the body has more than {most} bytes"))
        }
        JsonPayloadError::ContentType => Problem::not_json(),
        JsonPayloadError::Deserialize(cause) => {
            Problem::bad_request(format!("the body is not what this path takes: {cause}"))
        }
        other => Problem::bad_request(format!("the body cannot be read: {other}")),
    }
}

/// The request's idempotency key, taken for this request (rule A13).
///
/// What a key stands for is method, path and the body's content, however it was spelt.
pub(super) async fn key(request: &HttpRequest, door: &Door, body: &impl Serialize) -> Result<Option<String>, Problem> {
    let Some(value) = request.headers().get(KEY_HEADER) else { return Ok(None) };
    let most = limits::IDEMPOTENCY_KEY_BYTES_MAX;
    let fits = |key: &&str| (1..=most).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(key) = value.to_str().ok().filter(fits) else {
        let expected = format!("1 to {most} visible ASCII characters");
        return Err(Problem::bad_request(format!("the Idempotency-Key must be {expected}")));
    };
    let mut hash = Sha256::new();
    hash.update(format!("{} {}\n", request.method(), request.path()));
    hash.update(serde_json::to_vec(body).expect("what was JSON has JSON"));
    let hash: [u8; 32] = hash.finalize().into();
    match door.keys.take(key, hash).await? {
        // The rig knows a key with what it stands for: once its day is over, it may stand for another request, and must
        // not be answered with what the first one made.
        KeyUse::ThisRequest => {
            Ok(Some(hash.iter().take(4).fold(format!("{key} "), |name, byte| format!("{name}{byte:02x}"))))
        }
        KeyUse::AnotherRequest => Err(Problem::key_reused(key)),
    }
}
