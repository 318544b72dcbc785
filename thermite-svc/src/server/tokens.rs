//! Tokens: making, listing, rotating, revoking. The owner's matter alone.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::web::{self, Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use thermite_core::ids::{LaneId, RunId};
use thermite_core::limits;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::Span;
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;
use super::request::{Body, Query};
use super::{Door, request};
use crate::tokens::{Made, TokenId, TokenKind, TokenNo, TokenRow, Tokens};

/// `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it opens.
    pub kind: NewTokenKind,
    /// A lane's token: the lane.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lane")]
    pub lane: Option<LaneId>,
    /// A lane's token: the run it is for; none: that lane of every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// A word beside it for listings.
    #[serde(default)]
    #[schema(max_length = 50)]
    pub note: String,
    /// How long it is valid, in seconds; none: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "request::whole")]
    #[schema(minimum = 1, maximum = 316_224_000)]
    pub valid_s: Option<u64>,
}

/// What a new token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewTokenKind {
    /// Everything.
    Owner,
    /// What a lane does itself.
    Lane,
}

/// `POST /v1/tokens/{token}/rotate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// How long the old one stays valid, in seconds; none: an hour.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "request::whole")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub overlap_s: Option<u64>,
}

/// A token that was made. This is the only time it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// The token itself.
    #[schema(pattern = "^th_(own|lane)_[0-9a-f]{64}$")]
    pub secret: String,
    /// What listings show of it.
    #[serde(flatten)]
    pub row: TokenRow,
}

/// Which tokens.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// The last one of the page before, as its `Link` says.
    #[param(value_type = Option<TokenId>)]
    after: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// All tokens, by name; never the tokens themselves.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "tokens", tag = "tokens", params(Page), responses(
    (status = 200, description = "the tokens", body = Vec<TokenRow>,
        headers(("Link" = String, description = "the next page (`rel=\"next\"`), where there may be one"))),
    (status = 403, description = "the token is a lane's"),
))]
pub(super) async fn list(door: Data<Door>, Query(page): Query<Page>) -> Result<HttpResponse, Problem> {
    let limit = request::limit(page.limit)?;
    let after = page.after.map(|text| named("after", &text)).transpose()?;
    let tokens = door.tokens.list(after.as_ref(), limit);
    let last = tokens.last().map(|row| row.token.to_string());
    Ok(request::page("/v1/tokens", &tokens, last, limit))
}

/// Makes a token. The answer shows it, this once; sent again, it makes another.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "make_token", tag = "tokens", request_body = NewToken, responses(
    (status = 201, description = "the token", body = TokenMade,
        headers(("Location" = String, description = "the token's path"))),
    (status = 403, description = "the token is a lane's"),
    (status = 422, description = "a lane's token without its lane, or an owner's with one"),
    (status = 429, description = "too many tokens are there"),
))]
pub(super) async fn make(door: Data<Door>, Body(new): Body<NewToken>) -> Result<HttpResponse, Problem> {
    let NewToken { kind, lane, run, note, valid_s } = new;
    let kind = match (kind, lane, run) {
        (NewTokenKind::Owner, None, None) => TokenKind::Owner,
        (NewTokenKind::Lane, Some(lane), run) => TokenKind::Lane { lane, run },
        (NewTokenKind::Owner, ..) => {
            return Err(Problem::impossible("an owner's token opens everything: it has no lane and no run"));
        }
        (NewTokenKind::Lane, None, _) => {
            return Err(Problem::impossible("a lane's token is for one lane: name it as `lane`"));
        }
    };
    let most = limits::TOKEN_NOTE_BYTES_MAX;
    if note.len() > most || note.chars().any(char::is_control) {
        return Err(Problem::impossible(format!(
            "the note has {} bytes; it must be at most {most}, on one line",
            note.len()
        )));
    }
    let valid =
        valid_s.map(|s| request::within("valid_s", s, 1, limits::TOKEN_VALID_MAX.as_millis() / 1_000)).transpose()?;
    made(change(&door, move |tokens| tokens.make(kind, note, valid.map(|s| Span::seconds(s).to_std()))).await?)
}

/// One token; never the token itself.
#[utoipa::path(get, path = "/v1/tokens/{token}", operation_id = "token", tag = "tokens",
    params(("token" = TokenId, Path, description = "the token's public name")),
    responses(
        (status = 200, description = "the token", body = TokenRow),
        (status = 403, description = "the token that asks is a lane's"),
        (status = 404, description = "no such token"),
    )
)]
pub(super) async fn one(request: HttpRequest, door: Data<Door>) -> Result<Json<TokenRow>, Problem> {
    Ok(Json(door.tokens.one(&id(&request)?)?))
}

/// Revokes a token at once: it opens nothing more, and streams that it has open end.
#[utoipa::path(delete, path = "/v1/tokens/{token}", operation_id = "revoke_token", tag = "tokens",
    params(("token" = TokenId, Path, description = "the token's public name")),
    responses(
        (status = 204, description = "it opens nothing"),
        (status = 403, description = "the token that asks is a lane's"),
        (status = 404, description = "no such token"),
        (status = 409, description = "it is the one in the data folder's file"),
    )
)]
pub(super) async fn revoke(request: HttpRequest, door: Data<Door>) -> Result<HttpResponse, Problem> {
    let id = id(&request)?;
    change(&door, move |tokens| tokens.revoke(&id)).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Makes another token in one's place, which stays valid for a while, so that nobody is locked out meanwhile.
#[utoipa::path(post, path = "/v1/tokens/{token}/rotate", operation_id = "rotate_token", tag = "tokens",
    params(("token" = TokenId, Path, description = "the token's public name")), request_body = Rotate,
    responses(
        (status = 201, description = "the new token", body = TokenMade,
            headers(("Location" = String, description = "the new token's path"))),
        (status = 403, description = "the token that asks is a lane's"),
        (status = 404, description = "no such token"),
        (status = 409, description = "it is the one in the data folder's file"),
        (status = 429, description = "too many tokens are there"),
    )
)]
pub(super) async fn rotate(
    request: HttpRequest,
    door: Data<Door>,
    Body(body): Body<Rotate>,
) -> Result<HttpResponse, Problem> {
    let id = id(&request)?;
    let usual = limits::TOKEN_OVERLAP.as_millis() / 1_000;
    let most = limits::TOKEN_OVERLAP_MAX.as_millis() / 1_000;
    let overlap = request::within("overlap_s", body.overlap_s.unwrap_or(usual), 0, most)?;
    made(change(&door, move |tokens| tokens.rotate(&id, Span::seconds(overlap).to_std())).await?)
}

fn lane<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<LaneId>, D::Error> {
    let number = request::whole(deserializer)?;
    let lane = |number| LaneId::new(u8::try_from(number).unwrap_or(u8::MAX)).map_err(serde::de::Error::custom);
    number.map(lane).transpose()
}

fn id(request: &HttpRequest) -> Result<TokenId, Problem> {
    named("token", request.match_info().get("token").unwrap_or_default())
}

fn named(name: &str, text: &str) -> Result<TokenId, Problem> {
    request::parsed(name, text, "a token's public name")
}

fn made(made: Made) -> Result<HttpResponse, Problem> {
    let Made { secret, row } = made;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/tokens/{}", row.token)))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(TokenMade { secret, row }))
}

/// Changes wait for the disk, off the thread that answers others.
async fn change<T: Send + 'static>(
    door: &Data<Door>,
    how: impl FnOnce(&Tokens) -> Result<T, TokenNo> + Send + 'static,
) -> Result<T, Problem> {
    let tokens = Arc::clone(&door.tokens);
    let changed = web::block(move || how(&tokens)).await.map_err(|_| InfrastructureFailure::RigEnding)?;
    Ok(changed?)
}
