//! Why something waits, or came out as it did (rule D10).

use actix_web::HttpRequest;
use actix_web::web::{Data, Json};
use thermite_core::limits;
use thermite_core::record::VerdictRecord;
use thermite_core::why::{self, Explanation};

use super::problem::Problem;
use super::{Door, request};

/// Why a run, a job, a development run, a device or a runner stands as it does: of a waiter the same sentence as everywhere.
#[utoipa::path(get, path = "/v1/why/{id}", operation_id = "why", tag = "rig",
    params(("id" = String, Path, description = "the id of a run, a job or a development run, or a device: `0`, its UUID, or a runner: `box-2/1`, escaped")),
    responses(
        (status = 200, description = "the explanation", body = Explanation),
        (status = 404, description = "nothing of this rig has that name"),
    )
)]
pub(super) async fn why(request: HttpRequest, door: Data<Door>) -> Result<Json<Explanation>, Problem> {
    let id: String = request::part(&request, "id", "an id")?;
    if id.len() > limits::REST_TEXT_BYTES_MAX {
        return Err(Problem::not_found("nothing has a name as long as that".to_owned()));
    }
    // A runner's name has a slash, which stays escaped in a part of a path.
    let id = id.replace("%2F", "/").replace("%2f", "/");
    let mut told = door.rig.why(id).await?;
    for hash in told.records.clone() {
        // One that was pruned says nothing more; the rest still holds.
        let Some(text) = door.verdicts.verdict(&hash).await? else { continue };
        if let Ok(record) = serde_json::from_str::<VerdictRecord>(&text) {
            told.because.extend(why::of_record(&record));
        }
    }
    Ok(Json(told))
}
