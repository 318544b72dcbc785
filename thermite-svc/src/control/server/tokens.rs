//! Control's tokens: making, listing, revoking. The owner's matter alone.

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use thermite_core::limits;

use super::super::rigs::Control;
use super::super::tokens::{By, ControlToken, ControlTokenRow};
use super::super::words::{ControlTokenKind, ControlTokenMade, NewControlToken};
use crate::server::problem::Problem;
use crate::server::request::{self, Body};
use crate::tokens::TokenId;

/// All tokens, by name; never the tokens themselves.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "tokens", tag = "tokens", responses(
    (status = 200, description = "the tokens", body = Vec<ControlTokenRow>),
))]
pub(super) async fn list(control: Data<Control>) -> Result<Json<Vec<ControlTokenRow>>, Problem> {
    Ok(Json(control.into_inner().block(|control| control.tokens()).await?))
}

/// Makes a token. The answer shows it, this once.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "make_token", tag = "tokens", request_body = NewControlToken,
    responses(
        (status = 201, description = "the token", body = ControlTokenMade,
            headers(("Location" = String, description = "the token's path"))),
        (status = 404, description = "no such rig"),
        (status = 422, description = "a value that cannot be"),
        (status = 429, description = "too many tokens are there"),
    )
)]
pub(super) async fn make(
    control: Data<Control>,
    by: By,
    Body(new): Body<NewControlToken>,
) -> Result<HttpResponse, Problem> {
    let NewControlToken { kind, rig, runner, note, valid_s } = new;
    let opens = match (kind, rig, runner) {
        (ControlTokenKind::Owner, None, None) => ControlToken::Owner,
        (ControlTokenKind::Rig, Some(rig), None) => ControlToken::Rig { rig },
        (ControlTokenKind::Runner, Some(rig), Some(runner)) => ControlToken::Runner { rig, runner },
        (ControlTokenKind::Owner, ..) => {
            return Err(Problem::impossible("an owner's token opens everything: it has no rig and no runner"));
        }
        (ControlTokenKind::Rig, ..) => {
            return Err(Problem::impossible("a rig's token is for one rig: name it as `rig`, and no runner"));
        }
        (ControlTokenKind::Runner, ..) => {
            return Err(Problem::impossible("a runner's token is for one runner: name it as `runner`, and its `rig`"));
        }
    };
    let most = limits::TOKEN_NOTE_BYTES_MAX;
    if note.len() > most || note.chars().any(char::is_control) {
        let bytes = note.len();
        return Err(Problem::impossible(format!("the note has {bytes} bytes; it must be at most {most}, on one line")));
    }
    let longest = limits::TOKEN_VALID_MAX.as_millis() / 1_000;
    let valid_s = valid_s.map(|s| request::within("valid_s", s, 1, longest)).transpose()?;
    let made = control.into_inner().block(move |control| control.make_token(&by, opens, &note, valid_s)).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/tokens/{}", made.row.token)))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(made))
}

/// Revokes a token at once: nothing more is opened by it. What was registered with it keeps its rights on the bus until they
/// end or are removed.
#[utoipa::path(delete, path = "/v1/tokens/{token}", operation_id = "revoke_token", tag = "tokens",
    params(("token" = TokenId, Path, description = "the token's public name")),
    responses(
        (status = 204, description = "it opens nothing"),
        (status = 404, description = "no such token"),
        (status = 409, description = "it is the one in the data folder's file"),
    )
)]
pub(super) async fn revoke(request: HttpRequest, control: Data<Control>, by: By) -> Result<HttpResponse, Problem> {
    let token: TokenId = request::part(&request, "token", "a token's public name")?;
    control.into_inner().block(move |control| control.revoke_token(&by, &token)).await?;
    Ok(HttpResponse::NoContent().finish())
}
