//! The devices' noise: looking, having it measured anew, clearing an alarm (rule D6).

use actix_web::HttpRequest;
use actix_web::web::{Data, Json};
use serde::{Deserialize, Serialize};
use thermite_actors::noise::DeviceNoise;
use thermite_core::ids::MemberId;
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Door, request};

/// The answer to `POST /v1/noise/{device}/again`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredAgain {
    /// The device.
    pub device: MemberId,
    /// How many measures are not used any more: the next stage of each kit takes its own.
    pub dropped: usize,
}

/// The answer to `POST /v1/noise/{device}/clear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmCleared {
    /// The device: it comes back into service once nothing is left on it.
    pub device: MemberId,
}

/// Each device's noise, and its lifelong alarm.
#[utoipa::path(get, path = "/v1/noise", operation_id = "noise", tag = "noise", responses(
    (status = 200, description = "the devices in the order of the rig's list", body = Vec<DeviceNoise>),
))]
pub(super) async fn all(door: Data<Door>) -> Result<Json<Vec<DeviceNoise>>, Problem> {
    Ok(Json(door.rig.noise().await?))
}

/// Has a device's noise measured anew: by the next stage of each kit.
#[utoipa::path(post, path = "/v1/noise/{device}/again", operation_id = "measure_noise_again", tag = "noise",
    params(("device" = MemberId, Path, description = "the device's place in the rig's list")),
    responses(
        (status = 200, description = "its measures are not used any more", body = MeasuredAgain),
        (status = 404, description = "no such device"),
        (status = 409, description = "it has no measure yet"),
        (status = 507, description = "the records cannot be written"),
    )
)]
pub(super) async fn again(request: HttpRequest, door: Data<Door>) -> Result<Json<MeasuredAgain>, Problem> {
    let device = device(&request)?;
    Ok(Json(MeasuredAgain { device, dropped: door.rig.measure_noise_again(device).await? }))
}

/// Clears a device's alarm, once somebody has looked: it comes back into service.
#[utoipa::path(post, path = "/v1/noise/{device}/clear", operation_id = "clear_alarm", tag = "noise",
    params(("device" = MemberId, Path, description = "the device's place in the rig's list")),
    responses(
        (status = 200, description = "its alarm begins anew", body = AlarmCleared),
        (status = 404, description = "no such device"),
        (status = 409, description = "it is not quarantined"),
        (status = 507, description = "the records cannot be written"),
    )
)]
pub(super) async fn clear(request: HttpRequest, door: Data<Door>) -> Result<Json<AlarmCleared>, Problem> {
    let device = device(&request)?;
    door.rig.clear_alarm(device).await?;
    Ok(Json(AlarmCleared { device }))
}

fn device(request: &HttpRequest) -> Result<MemberId, Problem> {
    request::part(request, "device", "a device's number")
}
