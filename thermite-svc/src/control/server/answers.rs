//! Control's noes as problems (RFC 9457), in one match.

use actix_web::http::StatusCode;

use super::super::no::ControlNo;
use crate::server::problem::Problem;

impl From<ControlNo> for Problem {
    fn from(no: ControlNo) -> Problem {
        let refused = "refused";
        let unknown = "there is no such thing";
        let (status, name, title) = match &no {
            ControlNo::WrongToken(_) => return Problem::token_opens_nothing(no.to_string()),
            ControlNo::ExpiredToken(_) => return Problem::token_expired(no.to_string()),
            ControlNo::NotForThisToken { .. } => return Problem::not_for_this_token(&no.to_string()),
            ControlNo::Rules(refusal) => return refusal.clone().into(),
            ControlNo::Records(fault) => return fault.clone().into(),
            ControlNo::UnknownToken(_) => (StatusCode::NOT_FOUND, "unknown-token", unknown),
            ControlNo::UnknownRig(_) => (StatusCode::NOT_FOUND, "unknown-rig", unknown),
            ControlNo::UnknownRunner { .. } => (StatusCode::NOT_FOUND, "unknown-runner", unknown),
            ControlNo::TokenOfTheFile(_) => (StatusCode::CONFLICT, "token-of-the-file", refused),
            ControlNo::RigExists(_) => (StatusCode::CONFLICT, "rig-exists", refused),
            ControlNo::NameTaken { .. } => (StatusCode::CONFLICT, "name-taken", refused),
            ControlNo::KeyTaken { .. } => (StatusCode::CONFLICT, "key-taken", refused),
            ControlNo::Replaced { .. } => (StatusCode::CONFLICT, "replaced", refused),
            ControlNo::NoCluster => (StatusCode::CONFLICT, "no-cluster", refused),
            ControlNo::Barred { .. } | ControlNo::CoreBarred { .. } => (StatusCode::GONE, "removed", "it was removed"),
            ControlNo::SettingsMoved { .. } => (StatusCode::PRECONDITION_FAILED, "settings-moved", refused),
            ControlNo::Impossible(_) => (StatusCode::UNPROCESSABLE_ENTITY, "impossible", refused),
            ControlNo::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "too-many", refused),
            ControlNo::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "failed", "not possible at the moment"),
        };
        Problem::new(status, name, title, no.to_string())
    }
}
