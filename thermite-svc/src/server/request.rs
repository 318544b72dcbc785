//! Reading requests: paths, queries, bodies and keys, each with a problem that names what is wrong.

use std::fmt::{self, Display};
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::error::{JsonPayloadError, PayloadError};
use actix_web::http::header;
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use futures_util::future::{LocalBoxFuture, Ready, ready};
use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use thermite_actors::host::hex;
use thermite_core::limits;

use super::Door;
use super::problem::Problem;
use crate::records::KeyUse;

const KEY_HEADER: &str = "idempotency-key";
/// How much of a refused value its sentence repeats, in characters.
const SHOWN_MAX: usize = 80;

/// The query as `T`. One that cannot be is refused with the parameter's name and value.
pub(crate) struct Query<T>(pub(crate) T);

/// The JSON body as `T`. One that cannot be is refused with the place in it.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read_query(request.query_string()).map(Query))
    }
}

impl<T: DeserializeOwned> FromRequest for Body<T> {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let json = web::Json::<Box<RawValue>>::from_request(request, payload);
        Box::pin(async move {
            let json = json.await?.into_inner();
            let mut json = serde_json::Deserializer::from_str(json.get());
            Ok(Body(serde_path_to_error::deserialize(&mut json).map_err(|error| misshapen(&error))?))
        })
    }
}

pub(crate) async fn no_such_path(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Err(Problem::not_found(format!("there is nothing at {}", request.path())))
}

/// The part of the path that stands for `name`.
pub(crate) fn part<T>(request: &HttpRequest, name: &str, expected: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
{
    parsed(name, request.match_info().get(name).unwrap_or_default(), expected)
}

/// `text` as what `name` stands for.
pub(crate) fn parsed<T>(name: &str, text: &str, expected: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
{
    text.parse().map_err(|error| Problem::bad_request(format!("{name} {} is not {expected}: {error}", shown(text))))
}

/// The part of the path that names a run, job or development run.
pub(crate) fn id<T>(request: &HttpRequest, name: &str) -> Result<T, Problem>
where
    T: FromStr<Err: Display>,
{
    part(request, name, "a UUID")
}

pub(crate) fn json_config() -> web::JsonConfig {
    web::JsonConfig::default().limit(limits::REST_BODY_BYTES_MAX).error_handler(|error, _| json_problem(&error).into())
}

/// `value`, where it is within `least` and `most`; the parameter is named where it is not.
pub(crate) fn within<T: PartialOrd + Display>(name: &str, value: T, least: T, most: T) -> Result<T, Problem> {
    if least <= value && value <= most {
        return Ok(value);
    }
    Err(Problem::bad_request(format!("{name} is {value}; it must be {least} to {most}")))
}

/// A whole number, which JSON may spell with a fraction of nought: `60.0`.
pub(crate) fn whole<'de, D>(deserializer: D) -> Result<Option<u64>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|whole| whole.0))
}

struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_u64(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not negative")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
        // What every double tells apart from its neighbours.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && (0.0..EXACT).contains(&number) {
            return Ok(Whole(number as u64));
        }
        Err(de::Error::invalid_value(de::Unexpected::Float(number), &self))
    }
}

/// How many rows a page has.
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, Problem> {
    within("limit", asked.unwrap_or(limits::ROWS_LISTED_MAX), 1, limits::ROWS_LISTED_MAX)
}

/// A page of a listing at `path`, with the way to the next where there may be one.
pub(crate) fn page(path: &str, rows: &[impl Serialize], last: Option<String>, limit: usize) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    if let Some(last) = last.filter(|_| rows.len() == limit) {
        answer.insert_header((header::LINK, format!("<{path}?after={last}&limit={limit}>; rel=\"next\"")));
    }
    answer.json(rows)
}

fn read_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = || form_urlencoded::parse(query.as_bytes());
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs())).map_err(|error| {
        let name = error.path().to_string();
        let cause = error.inner();
        // What is not of one parameter, such as an unknown one, the cause names.
        Problem::bad_request(match pairs().find(|(known, _)| *known == name) {
            Some((_, value)) => format!("{name} is {}: {cause}", shown(&value)),
            None => format!("the query cannot be read: {cause}"),
        })
    })
}

fn misshapen(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let cause = error.inner();
    Problem::bad_request(match error.path().to_string().as_str() {
        "." => format!("the body is not what this path takes: {cause}"),
        place => format!("the body is not what this path takes: {place}: {cause}"),
    })
}

/// A refused value as its sentence repeats it.
pub(crate) fn shown(value: &str) -> String {
    value.chars().take(SHOWN_MAX).flat_map(char::escape_default).collect()
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
pub(crate) async fn key(request: &HttpRequest, door: &Door, body: &impl Serialize) -> Result<Option<String>, Problem> {
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
        KeyUse::ThisRequest => Ok(Some(format!("{key} {}", hex(&hash[..4])))),
        KeyUse::AnotherRequest => Err(Problem::key_reused(key)),
    }
}
