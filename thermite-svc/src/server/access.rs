//! How far a token opens the door.
//!
//! An owner's opens everything. A lane's opens what that lane does itself, and nothing that is not listed here: a path
//! that is added is the owner's until it is put on the list.
//!
//! | a lane's token | |
//! |---|---|
//! | its own development runs | ask, look, follow, cancel |
//! | jobs of its run | submit, look, verdict record |
//! | the rig, its runs, why something waits | look |
//! | the MCP door | its tools, in the lane's name |
//! | events | all but what other lanes asked to run |

use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::Next;
use actix_web::web::{Bytes, Data};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use futures_util::future::LocalBoxFuture;
use thermite_actors::view::{DevRunRow, JobRow};
use thermite_core::ids::{LaneId, RunId};
use tracing::debug;

use super::Door;
use super::problem::Problem;
use crate::tokens::{Access, NoAccess, TokenKind};

/// What is answered without a token.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// What a lane's token opens at all; whose thing it is, the handlers ask.
const LANE_MAY: [(Method, &str); 16] = [
    (Method::GET, "/v1/rig"),
    (Method::GET, "/v1/rig/runners"),
    (Method::GET, "/v1/runs"),
    (Method::GET, "/v1/runs/{run}"),
    (Method::POST, "/v1/runs/{run}/lanes/{lane}/dev-runs"),
    (Method::POST, "/v1/runs/{run}/jobs"),
    (Method::GET, "/v1/dev-runs/{dev_run}"),
    (Method::DELETE, "/v1/dev-runs/{dev_run}"),
    (Method::GET, "/v1/dev-runs/{dev_run}/output"),
    (Method::GET, "/v1/jobs/{job}"),
    (Method::GET, "/v1/jobs/{job}/verdict"),
    (Method::GET, "/v1/events"),
    (Method::GET, "/v1/why/{id}"),
    (Method::GET, "/mcp"),
    (Method::POST, "/mcp"),
    (Method::DELETE, "/mcp"),
];

/// Who asks, for handlers of what a lane's token may open.
#[derive(Clone, Debug)]
pub(super) struct Asker(Access);

impl FromRequest for Asker {
    type Error = Problem;
    type Future = Ready<Result<Asker, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // Only what is answered without a token has none.
        ready(request.extensions().get::<Access>().cloned().map(Asker).ok_or_else(Problem::no_token))
    }
}

impl Asker {
    /// Whose lane it is, where it is one: none for an owner.
    pub(super) fn lane(&self) -> Option<(LaneId, Option<RunId>)> {
        match self.0.kind {
            TokenKind::Owner => None,
            TokenKind::Lane { lane, run } => Some((lane, run)),
        }
    }

    /// Whether it may ask in that lane's name.
    pub(super) fn may_ask(&self, run: RunId, lane: u32) -> Result<(), Problem> {
        match self.lane() {
            Some((own, _)) if u32::from(own.number()) != lane => {
                Err(self.no(&format!("it is {own}'s, and asks for no other lane")))
            }
            _ => self.may_submit(run),
        }
    }

    /// Whether it may submit to that run.
    pub(super) fn may_submit(&self, run: RunId) -> Result<(), Problem> {
        match self.lane() {
            Some((_, Some(own))) if own != run => Err(self.no(&format!("it is for run {own} alone"))),
            _ => Ok(()),
        }
    }

    /// Whether the development run is its own, where it is a lane's.
    pub(super) fn owns(&self, row: &DevRunRow) -> Result<(), Problem> {
        self.may_ask(row.run, u32::from(row.lane.number()))
    }

    /// Whether it may see the job.
    pub(super) fn sees(&self, job: &JobRow) -> Result<(), Problem> {
        self.may_submit(job.run)
    }

    fn no(&self, why: &str) -> Problem {
        Problem::not_for_this_token(&format!("token {}: {why}", self.0.token))
    }
}

/// All but [`OPEN`] want a token, unknown paths too. What a token holds open ends with the token.
pub(super) async fn token_first(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    if OPEN.contains(&request.path()) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let access = access(&request)?;
    debug!(token = %access.token, method = %request.method(), path = request.path(), "asked");
    may(&request, &access)?;
    request.extensions_mut().insert(access.clone());
    // What changes something is carried out once it was let in; what only waits ends with the token.
    let answered = if matches!(*request.method(), Method::GET | Method::HEAD) {
        tokio::select! {
            answered = next.call(request) => answered?,
            () = access.clone().gone() => return Err(Problem::wrong_token().into()),
        }
    } else {
        next.call(request).await?
    };
    let answered = answered.map_into_boxed_body();
    Ok(match answered.response().body().size() {
        BodySize::Stream => {
            answered.map_body(|_, body| BoxBody::new(WhileOpen { body, gone: Box::pin(access.gone()) }))
        }
        BodySize::None | BodySize::Sized(_) => answered,
    })
}

fn access(request: &ServiceRequest) -> Result<Access, Problem> {
    let door = request.app_data::<Data<Door>>().expect("every app has a door");
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(Problem::no_token)?;
    let bearer = given.to_str().ok().and_then(bearer).ok_or_else(Problem::wrong_token)?;
    door.tokens.check(bearer).map_err(|no| match no {
        NoAccess::Unknown => Problem::wrong_token(),
        NoAccess::Expired(token) => Problem::expired_token(&token),
    })
}

pub(crate) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn may(request: &ServiceRequest, access: &Access) -> Result<(), Problem> {
    let TokenKind::Lane { lane, .. } = access.kind else { return Ok(()) };
    let pattern = request.match_pattern();
    let method = if *request.method() == Method::HEAD { &Method::GET } else { request.method() };
    if LANE_MAY.iter().any(|(may, path)| may == method && pattern.as_deref() == Some(*path)) {
        return Ok(());
    }
    let detail = format!("token {}: it is {lane}'s; {method} {} wants an owner's", access.token, request.path());
    Err(Problem::not_for_this_token(&detail))
}

/// A stream that ends with the token it is sent for.
struct WhileOpen {
    body: BoxBody,
    gone: LocalBoxFuture<'static, ()>,
}

impl MessageBody for WhileOpen {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_next(cx)
    }
}
