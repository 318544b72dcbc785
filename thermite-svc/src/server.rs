//! The REST door. A handler parses into core's types, sends one message to the rig, maps the answer.
//!
//! | | |
//! |---|---|
//! | `GET /healthz`, `GET /readyz` | whether the rig is there, whether it takes work; without a token |
//! | `GET /openapi.json` | this table with every shape, for programs; without a token |
//! | `GET /metrics` | figures for Prometheus, as OpenMetrics text; with a token, as all that follows |
//! | `GET /v1/rig` | the whole rig |
//! | `POST /v1/runs` | [`bodies::StartRun`]; 201, `Location` |
//! | `GET /v1/rig/settings` | what may be set while it runs, and the rest; `ETag`, `If-None-Match` (304) |
//! | `PUT /v1/rig/settings` | [`settings::Settings`]; `If-Match` (412) |
//! | `GET /v1/rig/runners` | its runners on other machines and who waits for one; `ETag` |
//! | `PUT /v1/rig/runners` | all of them: [`thermite_core::runners::ProcessAsk`], a list; `If-Match` (412) |
//! | `GET /v1/runs?after=&limit=`, `GET /v1/runs/{run}` | runs |
//! | `POST /v1/runs/{run}/pause`, `resume`, `end` | 200 once it is so |
//! | `POST /v1/runs/{run}/lanes/{n}/dev-runs` | [`bodies::AskDevRun`]; 202, `Location`, [`bodies::Queued`] |
//! | `GET /v1/runs/{run}/dev-runs?after=&limit=` | development runs, over or not, in order of asking |
//! | `GET /v1/dev-runs/{id}?wait_ms=` | one development run; waits for its end that long |
//! | `GET /v1/dev-runs/{id}/output?offset=&wait_ms=` | its output ([`output`] says how it is followed) |
//! | `DELETE /v1/dev-runs/{id}` | cancels it; 200 with its end once nothing of it is left |
//! | `POST /v1/runs/{run}/jobs` | [`bodies::SubmitJob`]; 202, `Location`, [`bodies::Submitted`] |
//! | `GET /v1/runs/{run}/jobs?after=&limit=` | jobs in order of asking; `Link: rel="next"` where there may be more |
//! | `GET /v1/jobs/{id}` | one job |
//! | `GET /v1/jobs/{id}/verdict?stage=` | the deciding record (or that of `screening`, `confirmation`), byte for byte |
//! | `GET /v1/noise` | each device's noise and its lifelong alarm |
//! | `POST /v1/noise/{device}/again` | has the device's noise measured anew; 409 where there is no measure |
//! | `POST /v1/noise/{device}/clear` | clears the device's alarm; 409 where there is none |
//! | `GET /v1/split` | which cards are the judge's and which the lanes'; `ETag`, `If-None-Match` (304) |
//! | `PUT /v1/split?dry_run=` | [`thermite_core::split::SplitAsk`]; `If-Match` (412); with `dry_run=true` [`split::SplitPreview`] |
//! | `POST /v1/devices/{device}/drain`, `undrain` | has the device take nothing more, or work again |
//! | `GET /v1/tokens?after=&limit=`, `GET /v1/tokens/{token}` | tokens by their public names |
//! | `POST /v1/tokens` | [`tokens::NewToken`]; 201, `Location`, [`tokens::TokenMade`] |
//! | `POST /v1/tokens/{token}/rotate` | [`tokens::Rotate`]; 201, `Location`, [`tokens::TokenMade`] |
//! | `DELETE /v1/tokens/{token}` | revokes it; 204 |
//! | `GET /v1/why/{id}` | why a run, job, development run or device stands as it does |
//! | `/mcp` | the door for agents (`mcp`); a lane's token |
//! | `GET /v1/events` | what happens, as server-sent events ([`events`]) |
//!
//! All but the first three want `Authorization: Bearer`; `access` says how far a token opens the door. Every no is `application/problem+json` ([`problem`]). A `POST` that
//! makes something takes an `Idempotency-Key`: the same key with the same request is asked once, with another request
//! it is refused (409).

pub(crate) mod access;
pub mod bodies;
mod dev_runs;
pub(crate) mod etag;
pub mod events;
mod followers;
mod health;
mod jobs;
mod mcp;
pub mod noise;
pub mod openapi;
pub mod output;
pub mod problem;
pub(crate) mod request;
pub mod runners;
mod runs;
pub mod settings;
pub mod split;
pub mod tokens;
mod why;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::{App, HttpResponse, HttpServer, guard, web};
use thermite_actors::ports::Outputs;
use thermite_actors::rig::Rig;
use thermite_core::limits;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::records::{Keys, VerdictReader};
use crate::tokens::Tokens;

use events::EventRing;
use followers::Followers;
use problem::Problem;

/// What the handlers reach through the door.
pub struct Door {
    rig: Rig,
    outputs: Arc<dyn Outputs>,
    verdicts: VerdictReader,
    keys: Keys,
    tokens: Arc<Tokens>,
    followers: Arc<Followers>,
    events: Arc<EventRing>,
    metrics: Arc<Metrics>,
    /// True once the rig has ended: waits are answered and streams close.
    over: watch::Receiver<bool>,
}

/// Tells a door that the rig has ended.
pub struct DoorClosing(watch::Sender<bool>);

impl DoorClosing {
    /// Waits are answered, streams of events end.
    pub fn over(&self) {
        self.0.send_replace(true);
    }
}

impl Door {
    /// A door to `rig`. Must be called on the rig's own thread, inside its actix system.
    pub fn new(
        rig: Rig,
        outputs: Arc<dyn Outputs>,
        verdicts: VerdictReader,
        keys: Keys,
        tokens: Tokens,
        metrics: Arc<Metrics>,
    ) -> (Door, DoorClosing) {
        let (closing, over) = watch::channel(false);
        let events = EventRing::follow(&rig);
        metrics.follow(rig.events());
        let followers = Followers::reporting_to(rig.clone());
        let tokens = Arc::new(tokens);
        (Door { rig, outputs, verdicts, keys, tokens, followers, events, metrics, over }, DoorClosing(closing))
    }
}

/// Serves `door` on `listener`; the server's threads are its own, the rig's thread only answers messages.
///
/// # Errors
/// Where the threads or the socket cannot be had.
pub fn start(door: Door, listener: TcpListener, workers: usize) -> io::Result<Server> {
    let door = web::Data::new(door);
    let mcp = web::Data::new(mcp::Mcp::new(door.clone()));
    let server = HttpServer::new(move || {
        App::new().app_data(door.clone()).app_data(mcp.clone()).wrap(from_fn(access::token_first)).configure(routes)
    })
    .workers(workers)
    .disable_signals()
    .keep_alive(limits::REST_KEEP_ALIVE.to_std())
    // A caller that closes its side is gone: its handler is dropped at once, and with it the stream that an attached
    // development run lives by (rule A10).
    .h1_allow_half_closed(false)
    .shutdown_timeout(shutdown_seconds())
    .listen(listener)?
    .run();
    Ok(server)
}

/// The rig's own end (grace and proof) comes before the last answers.
fn shutdown_seconds() -> u64 {
    let most = limits::STOP_GRACE + limits::PROOF_MAX + limits::REST_SHUTDOWN_MAX;
    most.as_millis().div_ceil(1_000)
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(request::json_config())
        .default_service(web::to(request::no_such_path))
        .service(read_only("/healthz", look().to(health::healthz)))
        .service(read_only("/readyz", look().to(health::readyz)))
        .service(read_only("/metrics", look().to(health::metrics)))
        .service(read_only("/openapi.json", look().to(openapi::openapi)))
        .service(read_only("/v1/rig", look().to(runs::rig)))
        .service(other("/v1/runs", "GET, HEAD, POST").route(look().to(runs::list)).route(web::post().to(runs::start)))
        .service(
            other("/v1/rig/settings", "GET, HEAD, PUT")
                .route(look().to(settings::read))
                .route(web::put().to(settings::set)),
        )
        .service(
            other("/v1/rig/runners", "GET, HEAD, PUT")
                .route(look().to(runners::read))
                .route(web::put().to(runners::set)),
        )
        .service(read_only("/v1/runs/{run}", look().to(runs::one)))
        .service(other("/v1/runs/{run}/pause", "POST").route(web::post().to(runs::pause)))
        .service(other("/v1/runs/{run}/resume", "POST").route(web::post().to(runs::resume)))
        .service(other("/v1/runs/{run}/end", "POST").route(web::post().to(runs::end)))
        .service(read_only("/v1/runs/{run}/dev-runs", look().to(dev_runs::list)))
        .service(other("/v1/runs/{run}/lanes/{lane}/dev-runs", "POST").route(web::post().to(dev_runs::ask)))
        .service(
            other("/v1/runs/{run}/jobs", "GET, HEAD, POST")
                .route(look().to(jobs::list))
                .route(web::post().to(jobs::submit)),
        )
        .service(
            other("/v1/dev-runs/{dev_run}", "GET, HEAD, DELETE")
                .route(look().to(dev_runs::one))
                .route(web::delete().to(dev_runs::cancel)),
        )
        .service(read_only("/v1/dev-runs/{dev_run}/output", look().to(output::read)))
        .service(read_only("/v1/jobs/{job}", look().to(jobs::one)))
        .service(read_only("/v1/jobs/{job}/verdict", look().to(jobs::verdict)))
        .service(read_only("/v1/noise", look().to(noise::all)))
        .service(other("/v1/noise/{device}/again", "POST").route(web::post().to(noise::again)))
        .service(other("/v1/noise/{device}/clear", "POST").route(web::post().to(noise::clear)))
        .service(other("/v1/split", "GET, HEAD, PUT").route(look().to(split::read)).route(web::put().to(split::set)))
        .service(other("/v1/devices/{device}/drain", "POST").route(web::post().to(split::drain)))
        .service(other("/v1/devices/{device}/undrain", "POST").route(web::post().to(split::undrain)))
        .service(
            other("/v1/tokens", "GET, HEAD, POST").route(look().to(tokens::list)).route(web::post().to(tokens::make)),
        )
        .service(
            other("/v1/tokens/{token}", "GET, HEAD, DELETE")
                .route(look().to(tokens::one))
                .route(web::delete().to(tokens::revoke)),
        )
        .service(other("/v1/tokens/{token}/rotate", "POST").route(web::post().to(tokens::rotate)))
        .service(
            other("/mcp", "GET, POST, DELETE")
                .route(web::get().to(mcp::speak))
                .route(web::post().to(mcp::speak))
                .route(web::delete().to(mcp::speak)),
        )
        .service(read_only("/v1/why/{id}", look().to(why::why)))
        .service(read_only("/v1/events", look().to(events::stream)));
}

/// GET, and HEAD as its answer without a body.
pub(crate) fn look() -> actix_web::Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

pub(crate) fn read_only(path: &'static str, route: actix_web::Route) -> actix_web::Resource {
    other(path, "GET, HEAD").route(route)
}

/// A path whose other methods are answered with what it allows.
pub(crate) fn other(path: &'static str, allowed: &'static str) -> actix_web::Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<HttpResponse, Problem>(Problem::method_not_allowed(allowed))
    }))
}
