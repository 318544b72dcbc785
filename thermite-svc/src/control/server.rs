//! Control's REST door. A handler parses, calls control once, maps the answer.
//!
//! | | |
//! |---|---|
//! | `GET /healthz` | whether control answers and reads its store; without a token |
//! | `GET /openapi.json` | this table with every shape, for programs; without a token |
//! | `GET /v1/rigs`, `POST /v1/rigs` | rigs; makes one: [`super::words::NewRig`], 201, [`super::words::RigMade`] |
//! | `GET /v1/rigs/{rig}`, `DELETE /v1/rigs/{rig}` | one rig with its core's last report; removes it with its runners |
//! | `GET /v1/rigs/{rig}/settings` | [`super::words::RigSettingsView`]; `ETag`, `If-None-Match` (304) |
//! | `PUT` or `POST /v1/rigs/{rig}/settings` | [`super::words::RigSettingsAsk`], the whole; `If-Match` (412) |
//! | `GET /v1/rigs/{rig}/runners` | its runners, listed or registered |
//! | `POST /v1/rigs/{rig}/runners` | [`super::words::NewRunner`], started on a cluster; 409 where control knows none |
//! | `DELETE /v1/rigs/{rig}/runners/{runner}` | removes a runner: token, key, name, rights on the bus |
//! | `DELETE /v1/rigs/{rig}/core` | removes the core: key, rights on the bus; another may have its place |
//! | `GET /v1/rigs/{rig}/history?after=&limit=` | every step of setting it up |
//! | `POST /v1/rigs/{rig}/bus/register` | [`super::words::Register`]: rights on the bus, [`super::words::Rights`]; 409, 410 |
//! | `GET /v1/tokens`, `POST /v1/tokens`, `DELETE /v1/tokens/{token}` | tokens by their public names |
//!
//! All but the first two want `Authorization: Bearer`. A rig's and a runner's token open registering; a rig's also looking at
//! its rig. Every no is `application/problem+json`.

mod answers;
pub mod openapi;
mod rigs;
mod tokens;

use std::future::{Ready, ready};
use std::net::TcpListener;
use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, Server, ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::Data;
use actix_web::{App, FromRequest, HttpMessage as _, HttpRequest, HttpServer, web};
use thermite_core::limits;
use tracing::debug;

use super::no::ControlNo;
use super::rigs::Control;
use super::tokens::{By, ControlToken};
use crate::bus::subjects::RigName;
use crate::server::access::bearer;
use crate::server::problem::Problem;
use crate::server::request::{self, part};
use crate::server::{look, other, read_only};

/// What is answered without a token.
const OPEN: [&str; 2] = ["/healthz", "/openapi.json"];
/// Where processes register.
const REGISTER: &str = "/v1/rigs/{rig}/bus/register";
/// What a rig's token lets look at, of its own rig.
const RIG_SEES: [&str; 3] = ["/v1/rigs/{rig}", "/v1/rigs/{rig}/settings", "/v1/rigs/{rig}/runners"];

/// Serves `control` on `listener`.
///
/// # Errors
/// Where the threads or the socket cannot be had.
pub fn start(control: Arc<Control>, listener: TcpListener, workers: usize) -> std::io::Result<Server> {
    let control = Data::from(control);
    let server =
        HttpServer::new(move || App::new().app_data(control.clone()).wrap(from_fn(token_first)).configure(routes));
    Ok(server
        .workers(workers)
        .disable_signals()
        .keep_alive(limits::REST_KEEP_ALIVE.to_std())
        .shutdown_timeout(limits::REST_SHUTDOWN_MAX.as_millis().div_ceil(1_000))
        .listen(listener)?
        .run())
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(request::json_config())
        .default_service(web::to(request::no_such_path))
        .service(read_only("/healthz", look().to(rigs::healthz)))
        .service(read_only("/openapi.json", look().to(openapi::openapi)))
        .service(other("/v1/rigs", "GET, HEAD, POST").route(look().to(rigs::list)).route(web::post().to(rigs::make)))
        .service(
            other("/v1/rigs/{rig}", "GET, HEAD, DELETE")
                .route(look().to(rigs::one))
                .route(web::delete().to(rigs::remove)),
        )
        .service(
            other("/v1/rigs/{rig}/settings", "GET, HEAD, PUT, POST")
                .route(look().to(rigs::settings))
                .route(web::put().to(rigs::set))
                .route(web::post().to(rigs::set_by_post)),
        )
        .service(
            other("/v1/rigs/{rig}/runners", "GET, HEAD, POST")
                .route(look().to(rigs::runners))
                .route(web::post().to(rigs::start_runner)),
        )
        .service(other("/v1/rigs/{rig}/runners/{runner}", "DELETE").route(web::delete().to(rigs::remove_runner)))
        .service(other("/v1/rigs/{rig}/core", "DELETE").route(web::delete().to(rigs::remove_core)))
        .service(read_only("/v1/rigs/{rig}/history", look().to(rigs::history)))
        .service(other("/v1/rigs/{rig}/bus/register", "POST").route(web::post().to(rigs::register)))
        .service(
            other("/v1/tokens", "GET, HEAD, POST").route(look().to(tokens::list)).route(web::post().to(tokens::make)),
        )
        .service(other("/v1/tokens/{token}", "DELETE").route(web::delete().to(tokens::revoke)));
}

impl FromRequest for By {
    type Error = Problem;
    type Future = Ready<Result<By, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(request.extensions().get::<By>().cloned().ok_or_else(Problem::no_token))
    }
}

/// All but [`OPEN`] want a token, unknown paths too.
async fn token_first(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    if OPEN.contains(&request.path()) {
        return next.call(request).await;
    }
    let control = Data::clone(request.app_data::<Data<Control>>().expect("every app has control"));
    let given = request.headers().get(header::AUTHORIZATION).ok_or_else(Problem::no_token)?;
    let given = given.to_str().ok().and_then(bearer).ok_or_else(Problem::wrong_token)?.to_owned();
    let by = control.into_inner().block(move |control| control.check(&given)).await.map_err(Problem::from)?;
    debug!(token = %by.token, method = %request.method(), path = request.path(), "asked");
    may(&request, &by).map_err(Problem::from)?;
    request.extensions_mut().insert(by);
    next.call(request).await
}

/// What a token opens; whose runner it is, registering asks itself.
fn may(request: &ServiceRequest, by: &By) -> Result<(), ControlNo> {
    let own = match &by.opens {
        ControlToken::Owner => return Ok(()),
        ControlToken::Rig { rig } | ControlToken::Runner { rig, .. } => rig,
    };
    let pattern = request.match_pattern().unwrap_or_default();
    let looks = matches!(*request.method(), Method::GET | Method::HEAD) && RIG_SEES.contains(&pattern.as_str());
    let registers = *request.method() == Method::POST && pattern == REGISTER;
    // The parts of the path have names only once its handler is found.
    let is_its_own = request.path().split('/').nth(3) == Some(own.as_str());
    let is_rigs = matches!(by.opens, ControlToken::Rig { .. });
    if registers || (looks && is_its_own && is_rigs) {
        return Ok(());
    }
    let why = format!("it is for rig {own}; {} {} wants an owner's", request.method(), request.path());
    Err(ControlNo::NotForThisToken { token: by.token.clone(), why })
}

/// The rig that the path names.
fn rig_in(request: &HttpRequest) -> Result<RigName, Problem> {
    part(request, "rig", "a rig's name")
}
