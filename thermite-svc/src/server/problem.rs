//! Every no of the REST door, as RFC 9457 has it: one match each from the two kinds of no to a status.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, ResponseError};
use serde::{Deserialize, Serialize};
use thermite_actors::ports::RecordsFault;
use thermite_actors::rig::No;
use thermite_core::refusal::{InfrastructureFailure, Refusal};

use crate::tokens::{TokenId, TokenNo};

/// An answer that is a no, `application/problem+json`.
///
/// `refusal` and `infrastructure` carry the rig's own words as types, for programs; `detail` is the sentence to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// Which kind, as `urn:thermite:problem:` and a name.
    #[schema(pattern = "^urn:thermite:problem:[a-z-]+$")]
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// The sentence to show.
    pub detail: String,
    /// What the rig refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<Box<Refusal>>,
    /// What the rig cannot do at the moment; nobody's fault.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub infrastructure: Option<Box<InfrastructureFailure>>,
    #[serde(skip)]
    header: Option<Header>,
}

/// What a problem says beside its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Allow(&'static str),
    WwwAuthenticate(&'static str),
}

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

impl Problem {
    pub(crate) fn new(status: StatusCode, name: &str, title: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:thermite:problem:{name}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            refusal: None,
            infrastructure: None,
            header: None,
        }
    }

    /// The request cannot be read.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad-request", "the request cannot be read", detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "the request is too large", detail)
    }

    pub(crate) fn not_json() -> Problem {
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "the request is not JSON",
            "the body must be JSON, with `Content-Type: application/json`",
        )
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", "there is no such thing", detail)
    }

    pub(crate) fn method_not_allowed(allowed: &'static str) -> Problem {
        let mut problem = Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "the method is not allowed here",
            format!("this path takes {allowed}"),
        );
        problem.header = Some(Header::Allow(allowed));
        problem
    }

    pub(crate) fn no_token() -> Problem {
        let detail = "a token is needed: `Authorization: Bearer`, with what the data folder's file owner-token holds";
        let mut problem = Problem::new(StatusCode::UNAUTHORIZED, "no-token", "a token is needed", detail);
        problem.header = Some(Header::WwwAuthenticate("Bearer realm=\"thermite\""));
        problem
    }

    pub(crate) fn wrong_token() -> Problem {
        Problem::token_opens_nothing("the token opens nothing here; take the one in the data folder's file owner-token")
    }

    pub(crate) fn token_opens_nothing(detail: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::UNAUTHORIZED, "wrong-token", "the token opens nothing here", detail);
        problem.header = Some(Header::WwwAuthenticate("Bearer realm=\"thermite\", error=\"invalid_token\""));
        problem
    }

    pub(crate) fn expired_token(token: &TokenId) -> Problem {
        Problem::token_expired(format!("token {token} has expired; ask the rig's owner for another"))
    }

    pub(crate) fn token_expired(detail: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::UNAUTHORIZED, "expired-token", "the token has expired", detail);
        problem.header = Some(Header::WwwAuthenticate("Bearer realm=\"thermite\", error=\"invalid_token\""));
        problem
    }

    pub(crate) fn not_for_this_token(detail: &str) -> Problem {
        let title = "the token does not open this";
        let mut problem = Problem::new(StatusCode::FORBIDDEN, "not-for-this-token", title, detail);
        problem.header = Some(Header::WwwAuthenticate("Bearer realm=\"thermite\", error=\"insufficient_scope\""));
        problem
    }

    pub(crate) fn impossible(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "impossible", "refused", detail)
    }

    pub(crate) fn key_reused(key: &str) -> Problem {
        Problem::new(
            StatusCode::CONFLICT,
            "key-reused",
            "the idempotency key stands for another request",
            format!("idempotency key {key} was used for another request; take a fresh one"),
        )
    }

    pub(crate) fn not_ready(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "the rig takes no work at the moment", detail)
    }

    pub(crate) fn too_many_readers(most: usize) -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too-many-readers",
            "too many readers of events",
            format!("{most} readers follow the events already; try again when one has left"),
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut answer = HttpResponse::build(self.status_code());
        answer.insert_header((header::CONTENT_TYPE, MEDIA_TYPE));
        match self.header {
            None => {}
            Some(Header::Allow(methods)) => {
                answer.insert_header((header::ALLOW, methods));
            }
            Some(Header::WwwAuthenticate(how)) => {
                answer.insert_header((header::WWW_AUTHENTICATE, how));
            }
        }
        answer.body(serde_json::to_string(self).expect("a problem has only text and numbers"))
    }
}

impl From<No> for Problem {
    fn from(no: No) -> Problem {
        match no {
            No::Refusal(refusal) => refusal.into(),
            No::Infrastructure(failure) => failure.into(),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let (status, name) = refused(&refusal);
        let problem = Problem::new(status, name, "refused", refusal.to_string());
        Problem { refusal: Some(Box::new(refusal)), ..problem }
    }
}

impl From<InfrastructureFailure> for Problem {
    fn from(failure: InfrastructureFailure) -> Problem {
        let (status, name) = failed(&failure);
        let problem = Problem::new(status, name, "not possible at the moment", failure.to_string());
        Problem { infrastructure: Some(Box::new(failure)), ..problem }
    }
}

impl From<TokenNo> for Problem {
    fn from(no: TokenNo) -> Problem {
        let (status, name, title) = match no {
            TokenNo::Unknown(_) => (StatusCode::NOT_FOUND, "unknown-token", "there is no such thing"),
            TokenNo::FromFile(_) => (StatusCode::CONFLICT, "token-of-the-file", "refused"),
            TokenNo::Full => (StatusCode::TOO_MANY_REQUESTS, "too-many-tokens", "refused"),
            TokenNo::Random(_) => (StatusCode::SERVICE_UNAVAILABLE, "no-luck", "not possible at the moment"),
            TokenNo::Records(fault) => return fault.into(),
        };
        Problem::new(status, name, title, no.to_string())
    }
}

impl From<RecordsFault> for Problem {
    fn from(fault: RecordsFault) -> Problem {
        InfrastructureFailure::Records { why: fault.0 }.into()
    }
}

/// 404: there is no such thing. 410: there was, perhaps. 409: not while something else is so. 422: never, as it was asked. 429: not so many.
fn refused(refusal: &Refusal) -> (StatusCode, &'static str) {
    match refusal {
        Refusal::LaneBusy { .. } => (StatusCode::CONFLICT, "lane-busy"),
        Refusal::UnknownLane { .. } => (StatusCode::NOT_FOUND, "unknown-lane"),
        Refusal::UnknownRun { .. } => (StatusCode::NOT_FOUND, "unknown-run"),
        Refusal::UnknownId { .. } => (StatusCode::NOT_FOUND, "unknown-id"),
        Refusal::UnknownJob { .. } => (StatusCode::NOT_FOUND, "unknown-job"),
        Refusal::UnknownDevRun { .. } => (StatusCode::NOT_FOUND, "unknown-dev-run"),
        Refusal::UnknownDevice { .. } => (StatusCode::NOT_FOUND, "unknown-device"),
        Refusal::NotQuarantined { .. } => (StatusCode::CONFLICT, "not-quarantined"),
        Refusal::NoNoiseYet { .. } => (StatusCode::CONFLICT, "no-noise-yet"),
        Refusal::AnotherRun { .. } => (StatusCode::CONFLICT, "another-run"),
        Refusal::RunPaused { .. } => (StatusCode::CONFLICT, "run-paused"),
        Refusal::RunEnded { .. } => (StatusCode::CONFLICT, "run-ended"),
        Refusal::EmptyCommand => (StatusCode::UNPROCESSABLE_ENTITY, "empty-command"),
        Refusal::CommandTooLong { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "command-too-long"),
        Refusal::NoSuchProgram { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "no-such-program"),
        Refusal::NotExecutable { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "not-executable"),
        Refusal::WorktreeGone { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "worktree-gone"),
        Refusal::Kit { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "kit"),
        Refusal::WrongTarget { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "wrong-target"),
        Refusal::Impossible { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "impossible"),
        Refusal::Repository { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "repository"),
        Refusal::OutsideEditable { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "outside-editable"),
        Refusal::NothingChanged { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "nothing-changed"),
        Refusal::SettingsMoved { .. } => (StatusCode::PRECONDITION_FAILED, "settings-moved"),
        Refusal::BadSplit { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "bad-split"),
        Refusal::BadRunners { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "bad-runners"),
        Refusal::RunnersMoved { .. } => (StatusCode::PRECONDITION_FAILED, "runners-moved"),
        Refusal::UnknownRunner { .. } => (StatusCode::NOT_FOUND, "unknown-runner"),
        Refusal::SplitMoved { .. } => (StatusCode::PRECONDITION_FAILED, "split-moved"),
        Refusal::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "queue-full"),
        Refusal::Pruned { .. } => (StatusCode::GONE, "pruned"),
        Refusal::NoIsolation { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "no-isolation"),
    }
}

/// 507: the disk. 503: everything else that passes.
fn failed(failure: &InfrastructureFailure) -> (StatusCode, &'static str) {
    match failure {
        InfrastructureFailure::StayedBusy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "stayed-busy"),
        InfrastructureFailure::TooManyThrown { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too-many-thrown"),
        InfrastructureFailure::ThrowsSteered { .. } => (StatusCode::SERVICE_UNAVAILABLE, "throws-steered"),
        InfrastructureFailure::ChangeKilled { .. } => (StatusCode::SERVICE_UNAVAILABLE, "change-killed"),
        InfrastructureFailure::TooNoisy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too-noisy"),
        InfrastructureFailure::Champion { .. } => (StatusCode::SERVICE_UNAVAILABLE, "champion"),
        InfrastructureFailure::Step { .. } => (StatusCode::SERVICE_UNAVAILABLE, "step"),
        InfrastructureFailure::OutOfService { .. } => (StatusCode::SERVICE_UNAVAILABLE, "out-of-service"),
        InfrastructureFailure::Records { .. } => (StatusCode::INSUFFICIENT_STORAGE, "records"),
        InfrastructureFailure::DiskFull { .. } => (StatusCode::INSUFFICIENT_STORAGE, "disk-full"),
        InfrastructureFailure::RigEnding => (StatusCode::SERVICE_UNAVAILABLE, "rig-ending"),
    }
}
