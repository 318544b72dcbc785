//! A development run's output, read by offset and followed by long polls.
//!
//! The answer's body is the bytes from `Thermite-Offset` on, at most 256 KiB; `Thermite-Total` is how many the run
//! wrote in all so far, `Thermite-Cut` how many between head and tail were not kept. The next read asks from
//! `Thermite-Offset` plus the body's length. `Thermite-Complete: true` says that nothing comes after this body.
//! With `wait_ms` (at most 30,000) the answer waits until there is something to say.
//!
//! Reading is following (rule A10): while a read of an attached run waits its caller is there, and 10 s after the last
//! one was answered or broke off without another the caller is gone and the run is ended.

use std::time::Instant;

use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use thermite_actors::ports::OutputSlice;
use thermite_actors::view::{DevRunRow, DevRunStatus};
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::DevRunId;
use thermite_core::limits;
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use utoipa::IntoParams;

use super::access::Asker;
use super::dev_runs::Wait;
use super::problem::Problem;
use super::request::Query;
use super::{Door, request};

/// The largest offset that every JSON reader tells apart from its neighbours.
const OFFSET_MAX: u64 = 9_007_199_254_740_991;
/// How often a waiting read asks the rig whether the run is over, in looks at the output.
const LOOKS_PER_ASK: u32 = 25;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// From which byte on.
    #[serde(default)]
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    offset: u64,
    /// How long the answer may wait until there is something to say, in milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 30_000)]
    wait_ms: u64,
}

/// What a development run wrote, from a byte on, at most 256 KiB of it.
///
/// Reading is following: a development run that was asked for with `attached` ends 10 s after the last read of it.
#[utoipa::path(get, path = "/v1/dev-runs/{dev_run}/output", operation_id = "output", tag = "dev-runs",
    params(("dev_run" = DevRunId, Path, description = "the development run"), Part),
    responses(
        (status = 200, description = "the bytes", content_type = "application/octet-stream", body = String, headers(
            ("Thermite-Offset" = u64, description = "the first byte's place"),
            ("Thermite-Total" = u64, description = "how many bytes it wrote so far"),
            ("Thermite-Cut" = u64, description = "how many between head and tail were not kept"),
            ("Thermite-Complete" = bool, description = "true where nothing comes after this body"),
        )),
        (status = 404, description = "no such development run"),
    )
)]
pub(super) async fn read(
    request: HttpRequest,
    door: Data<Door>,
    asker: Asker,
    Query(part): Query<Part>,
) -> Result<HttpResponse, Problem> {
    let dev_run: DevRunId = request::id(&request, "dev_run")?;
    request::within("offset", part.offset, 0, OFFSET_MAX)?;
    let until = Instant::now() + Wait::bounded(part.wait_ms)?;
    let row = door.rig.dev_run(dev_run).await?;
    asker.owns(&row)?;
    let mut over = door.over.clone();
    let mut looks = 0u32;
    let mut is_over = has_ended(&row);
    let _following = (!is_over).then(|| door.followers.follow(dev_run));
    loop {
        // Asked before it is read: what an ended run wrote is all there.
        let slice = look(&door, dev_run, part.offset, limits::OUTPUT_READ_BYTES_MAX).await?;
        let never_started = slice.is_none();
        if never_started && is_over {
            refuse_pruned(&door, dev_run).await?;
        }
        let slice =
            slice.unwrap_or(OutputSlice { bytes: Vec::new(), offset: part.offset, total: 0, cut: 0, complete: false });
        let read_up_to = slice.offset.saturating_add(slice.bytes.len() as u64);
        let complete = (slice.complete || is_over) && read_up_to >= slice.total;
        if !slice.bytes.is_empty() || complete || Instant::now() >= until || *over.borrow() {
            return Ok(answer(slice, complete));
        }
        tokio::select! {
            _ = tokio::time::sleep(limits::OUTPUT_LOOK_EVERY.to_std()) => {}
            _ = over.wait_for(|over| *over) => {}
        }
        looks += 1;
        if never_started || looks.is_multiple_of(LOOKS_PER_ASK) {
            is_over = has_ended(&door.rig.dev_run(dev_run).await?);
        }
    }
}

fn has_ended(row: &DevRunRow) -> bool {
    matches!(row.status, DevRunStatus::Ended { .. })
}

/// Refuses what was there and was pruned; an output that never was is an empty one.
async fn refuse_pruned(door: &Door, dev_run: DevRunId) -> Result<(), Problem> {
    let row = door.rig.dev_run(dev_run).await?;
    if let DevRunStatus::Ended { end: DevRunEnd::GaveUp { .. } | DevRunEnd::NotStarted { .. } } = row.status {
        return Ok(());
    }
    match door.verdicts.output_pruned(dev_run).await? {
        None => Ok(()),
        Some(wall_ms) => {
            Err(Refusal::Pruned { what: format!("the output of development run {dev_run}"), wall_ms }.into())
        }
    }
}

/// Reads off the worker's thread: a slow disk must not stop other answers.
pub(super) async fn look(
    door: &Door,
    dev_run: DevRunId,
    offset: u64,
    most: usize,
) -> Result<Option<OutputSlice>, InfrastructureFailure> {
    let outputs = door.outputs.clone();
    web::block(move || outputs.read(dev_run, offset, most)).await.map_err(|_| InfrastructureFailure::RigEnding)
}

fn answer(slice: OutputSlice, complete: bool) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(("thermite-offset", slice.offset.to_string()))
        .insert_header(("thermite-total", slice.total.to_string()))
        .insert_header(("thermite-cut", slice.cut.to_string()))
        .insert_header(("thermite-complete", complete.to_string()))
        .insert_header(("cache-control", "no-store"))
        .content_type("application/octet-stream")
        .body(slice.bytes)
}
