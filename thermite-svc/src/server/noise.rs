//! The devices' noise: looking, having it measured anew, clearing an alarm (rule D6).

use actix_web::HttpRequest;
use actix_web::web::{Data, Json};
use serde::{Deserialize, Serialize};
use thermite_actors::noise::DeviceNoise;
use thermite_core::ids::MemberId;

use super::problem::Problem;
use super::{Door, request};

/// The answer to `POST /v1/noise/{device}/again`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredAgain {
    /// The device.
    pub device: MemberId,
    /// How many measures are not used any more: the next stage of each kit takes its own.
    pub dropped: usize,
}

/// The answer to `POST /v1/noise/{device}/clear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmCleared {
    /// The device: it comes back into service once nothing is left on it.
    pub device: MemberId,
}

pub(super) async fn all(door: Data<Door>) -> Result<Json<Vec<DeviceNoise>>, Problem> {
    Ok(Json(door.rig.noise().await?))
}

pub(super) async fn again(request: HttpRequest, door: Data<Door>) -> Result<Json<MeasuredAgain>, Problem> {
    let device = device(&request)?;
    Ok(Json(MeasuredAgain { device, dropped: door.rig.measure_noise_again(device).await? }))
}

pub(super) async fn clear(request: HttpRequest, door: Data<Door>) -> Result<Json<AlarmCleared>, Problem> {
    let device = device(&request)?;
    door.rig.clear_alarm(device).await?;
    Ok(Json(AlarmCleared { device }))
}

fn device(request: &HttpRequest) -> Result<MemberId, Problem> {
    Ok(MemberId(request::part(request, "device", "a device's number")?))
}
