//! The split of the cards between judge and lanes, and draining them (rules B1, B9, B10).

use actix_web::http::header;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use thermite_actors::view::{CardRow, DevicePool, IdleRow, JobStatus, RigView, SplitView};
use thermite_core::device::DeviceView;
use thermite_core::ids::{Holder, MemberId};
use thermite_core::refusal::Refusal;
use thermite_core::split::{self, CardFact, SplitAsk};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;
use super::request::{Body, Query};
use super::{Door, etag, request};
use crate::new_split::NewSplit;

/// What a new split would change, where it is only asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SplitPreview {
    /// The revision that this was worked out over.
    pub revision: u64,
    /// Whether any card would change hands.
    pub changes: bool,
    /// Whether judge and lanes would share the cards.
    pub shared: bool,
    /// The judge's cards.
    pub judge: Vec<CardRow>,
    /// The lanes' cards; the same ones where they are shared.
    pub agents: Vec<CardRow>,
    /// Cards that nobody would use.
    pub idle: Vec<IdleRow>,
    /// What would end and start over.
    pub ends: Vec<WouldEnd>,
}

/// Something that a new split would end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WouldEnd {
    /// The card that it has; the bench's number where it is being built.
    pub device: MemberId,
    /// What becomes of it, as a sentence.
    pub sentence: String,
}

/// The answer to `POST /v1/devices/{device}/drain` and `undrain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// The device.
    pub device: MemberId,
    /// Whether it takes nothing more; what it has goes on to its end.
    pub drained: bool,
}

/// How a split is set.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Only say what it would change and end ([`SplitPreview`]); nothing is set.
    dry_run: Option<bool>,
}

/// Which cards are the judge's and which the lanes'.
#[utoipa::path(get, path = "/v1/split", operation_id = "split", tag = "devices",
    params(etag::IfNoneMatch),
    responses(
        (status = 200, description = "the split", body = SplitView,
            headers(("ETag" = String, description = "its revision, for `If-Match` and `If-None-Match`"))),
        (status = 304, description = "it is that of the given `ETag`"),
    )
)]
pub(super) async fn read(request: HttpRequest, door: Data<Door>) -> Result<HttpResponse, Problem> {
    let split = door.rig.split().await?;
    Ok(etag::answer(&request, &etag_of(split.revision), &split))
}

/// Gives the cards out anew; answered once it is durable and in force. What has a card is stopped: the judge's jobs go
/// back to their place in the queue, lanes are told to run their commands again, who waits keeps place and end.
///
/// With `dry_run=true` it is only said what would change and end. With `If-Match` only where nobody has set it since.
#[utoipa::path(put, path = "/v1/split", operation_id = "set_split", tag = "devices",
    params(etag::IfMatch, How), request_body = NewSplit,
    responses(
        (status = 200, description = "the split; with `dry_run=true` what would change", body = SplitAnswer,
            headers(("ETag" = String, description = "its revision"))),
        (status = 412, description = "it has been set meanwhile"),
        (status = 422, description = "a split that cannot be, and why"),
    )
)]
pub(super) async fn set(
    request: HttpRequest,
    door: Data<Door>,
    Query(how): Query<How>,
    Body(NewSplit(ask)): Body<NewSplit>,
) -> Result<HttpResponse, Problem> {
    let read = etag::if_match(&request)?;
    if how.dry_run != Some(true) {
        let split = door.rig.set_split(ask, read).await?;
        return Ok(HttpResponse::Ok().insert_header((header::ETAG, etag_of(split.revision))).json(split));
    }
    let revision = door.rig.split().await?.revision;
    if read.is_some_and(|read| read != revision) {
        return Err(Refusal::SplitMoved { revision }.into());
    }
    let preview = preview(&door.rig.view().await?, &ask, revision)?;
    Ok(HttpResponse::Ok().insert_header((header::ETAG, etag_of(revision))).json(preview))
}

/// What `PUT /v1/split` answers.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the description of two answers that are sent as what they are")]
pub(super) enum SplitAnswer {
    /// It is set.
    Set(SplitView),
    /// It was only asked about.
    DryRun(SplitPreview),
}

/// Has a device finish what it has and take nothing more, also after a restart. Asked again it changes nothing.
#[utoipa::path(post, path = "/v1/devices/{device}/drain", operation_id = "drain", tag = "devices",
    params(("device" = MemberId, Path, description = "the device's place in the rig's list")),
    responses(
        (status = 200, description = "it takes nothing more", body = Drained),
        (status = 404, description = "no such device"),
        (status = 507, description = "the records cannot be written"),
    )
)]
pub(super) async fn drain(request: HttpRequest, door: Data<Door>) -> Result<Json<Drained>, Problem> {
    let device = device(&request)?;
    door.rig.drain(device).await?;
    Ok(Json(Drained { device, drained: true }))
}

/// Lets a drained device take work again.
#[utoipa::path(post, path = "/v1/devices/{device}/undrain", operation_id = "undrain", tag = "devices",
    params(("device" = MemberId, Path, description = "the device's place in the rig's list")),
    responses(
        (status = 200, description = "it takes work", body = Drained),
        (status = 404, description = "no such device"),
        (status = 507, description = "the records cannot be written"),
    )
)]
pub(super) async fn undrain(request: HttpRequest, door: Data<Door>) -> Result<Json<Drained>, Problem> {
    let device = device(&request)?;
    door.rig.undrain(device).await?;
    Ok(Json(Drained { device, drained: false }))
}

/// What a split would change of the rig as it stands.
///
/// # Errors
/// Refused where it cannot be.
fn preview(view: &RigView, ask: &SplitAsk, revision: u64) -> Result<SplitPreview, Refusal> {
    let facts: Vec<CardFact> = view
        .devices
        .iter()
        .map(|row| CardFact { member: row.member, uuid: row.facts.uuid.clone(), model: row.facts.model.clone() })
        .collect();
    let planned = split::plan(&facts, ask)?;
    let pool = |member: MemberId| match (planned.judge.contains(&member), planned.agents.contains(&member)) {
        (true, true) => DevicePool::Shared,
        (true, false) => DevicePool::Judge,
        (false, true) => DevicePool::Agents,
        (false, false) => DevicePool::Idle,
    };
    let changes = view.devices.iter().any(|row| row.pool != pool(row.member));
    let row = |member: MemberId| {
        let card = facts.iter().find(|card| card.member == member)?;
        Some(CardRow { member, uuid: card.uuid.clone(), model: card.model.clone() })
    };
    let rows = |members: &[MemberId]| members.iter().filter_map(|member| row(*member)).collect();
    let idle =
        planned.idle.iter().filter_map(|idle| Some(IdleRow { card: row(idle.member)?, why: idle.why.to_string() }));
    Ok(SplitPreview {
        revision,
        changes,
        shared: planned.shared,
        judge: rows(&planned.judge),
        agents: rows(&planned.agents),
        idle: idle.collect(),
        ends: if changes { would_end(view) } else { Vec::new() },
    })
}

/// What has a device, or is being built: a new split ends all of it (rule B9).
fn would_end(view: &RigView) -> Vec<WouldEnd> {
    let lanes = view.devices.iter().filter_map(|row| {
        let DeviceView::Held { by: Holder::Lane(lane), .. } = &row.state else { return None };
        let sentence = format!("{lane}'s development run ends, and the lane is told to run its command again");
        Some(WouldEnd { device: row.member, sentence })
    });
    let jobs = view.jobs.iter().filter_map(|job| {
        let JobStatus::Measuring { hold, .. } = &job.status else { return None };
        let sentence = format!("job {} goes back to its place in the queue and starts over", job.job);
        Some(WouldEnd { device: hold.member, sentence })
    });
    let mut ends: Vec<WouldEnd> = jobs.chain(lanes).collect();
    ends.sort_by_key(|end| end.device);
    ends
}

fn device(request: &HttpRequest) -> Result<MemberId, Problem> {
    request::part(request, "device", "a device's number")
}

fn etag_of(revision: u64) -> String {
    format!("\"{revision}\"")
}
