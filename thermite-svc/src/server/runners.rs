//! The rig's runners on other machines (rules E1, E8, E14).

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use thermite_actors::view::RunnersView;
use thermite_core::runners::ProcessAsk;

use super::problem::Problem;
use super::request::Body;
use super::{Door, etag};

/// The runners: each with its pool, whether it answers, what it runs, whether it takes runs and why not; then who waits
/// for one, and why.
#[utoipa::path(get, path = "/v1/rig/runners", operation_id = "runners", tag = "rig",
    responses(
        (status = 200, description = "the runners", body = RunnersView,
            headers(("ETag" = String, description = "the revision of the list, for `If-Match`"))),
    )
)]
pub(super) async fn read(door: Data<Door>) -> Result<HttpResponse, Problem> {
    Ok(answer(&door.rig.runners().await?))
}

/// Sets the runners, as a whole list: one entry a process, one pool a runner in order. Answered once it is durable and in
/// force. What runs on a runner that is taken away or given another pool is stopped: a job goes back to its place, a lane
/// is told to run its command again; what the others run goes on.
///
/// With `If-Match` only where nobody has set them since: two that set at once do not undo each other unseen.
#[utoipa::path(put, path = "/v1/rig/runners", operation_id = "set_runners", tag = "rig",
    params(etag::IfMatch), request_body = Vec<ProcessAsk>,
    responses(
        (status = 200, description = "the runners", body = RunnersView,
            headers(("ETag" = String, description = "the revision of the list"))),
        (status = 412, description = "they have been set meanwhile"),
        (status = 422, description = "a list that cannot be, and why"),
    )
)]
pub(super) async fn set(
    request: HttpRequest,
    door: Data<Door>,
    Body(list): Body<Vec<ProcessAsk>>,
) -> Result<HttpResponse, Problem> {
    let read = etag::if_match(&request)?;
    Ok(answer(&door.rig.set_runners(list, read).await?))
}

/// Never 304: what the block says of runners changes without its revision.
fn answer(view: &RunnersView) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::ETAG, format!("\"{}\"", view.revision))).json(view)
}
