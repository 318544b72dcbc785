//! The MCP door for agents, at `/mcp`: a lane's token opens it, and what is done there is that lane's.
//!
//! | tool | |
//! |---|---|
//! | `run_experiment` | a development run: waits its turn, tells how it goes, answers with its end and output |
//! | `submit` | the lane's change to the judge |
//! | `status` | the lane's own run and jobs, and who has the devices; may wait for a job's verdict |
//!
//! The protocol is `rmcp`'s; here are the mount, who asks, and how a caller that goes away is noticed. A caller is there
//! while the stream of its call is: a closed one takes the call's development run with it as rule A10 says.

mod experiment;
mod tools;
mod words;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BodyStream, MessageBody};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use futures_util::StreamExt;
use http_body_util::{BodyDataStream, Full};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use thermite_core::ids::{LaneId, RunId};
use thermite_core::limits;
use tokio::sync::watch;

use super::Door;
use super::problem::Problem;
use crate::tokens::{Access, TokenKind};

use tools::LaneTools;

/// The mounted door: one for all of the server's threads, since a session may be spoken to on any of them.
#[derive(Clone)]
pub(super) struct Mcp(StreamableHttpService<LaneTools, LocalSessionManager>);

/// Who asks, as a tool is told of it with each call.
#[derive(Clone)]
struct Caller {
    lane: LaneId,
    run: Option<RunId>,
    /// Ends, by its sender's drop, with the stream that the call is answered on.
    here: watch::Receiver<()>,
}

impl Mcp {
    pub(super) fn new(door: Data<Door>) -> Mcp {
        // A name that a browser was led to by a foreign page is refused by the token, which no page has.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .enforce_origin_validation()
            .with_sse_keep_alive(Some(limits::MCP_SIGN_OF_LIFE.to_std()))
            .with_max_request_body_bytes(limits::REST_BODY_BYTES_MAX);
        let tools = move || Ok(LaneTools::new(door.clone()));
        Mcp(StreamableHttpService::new(tools, Arc::new(LocalSessionManager::default()), config))
    }
}

/// One HTTP request of the protocol.
pub(super) async fn speak(request: HttpRequest, body: Bytes, mcp: Data<Mcp>) -> Result<HttpResponse, Problem> {
    let access = request.extensions().get::<Access>().cloned().ok_or_else(Problem::no_token)?;
    let TokenKind::Lane { lane, run } = access.kind else {
        let detail = format!(
            "token {}: it is an owner's; an agent speaks with its lane's (`thermite token new --kind lane --lane N`)",
            access.token
        );
        return Err(Problem::not_for_this_token(&detail));
    };
    let (stays, here) = watch::channel(());
    let mut asked = http::Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    for (name, value) in request.headers() {
        asked = asked.header(name.as_str(), value.as_bytes());
    }
    let mut asked = asked.body(Full::new(body)).map_err(|error| Problem::bad_request(error.to_string()))?;
    asked.extensions_mut().insert(Caller { lane, run, here });

    let (head, body) = mcp.0.handle(asked).await.into_parts();

    let status = actix_web::http::StatusCode::from_u16(head.status.as_u16())
        .expect("a status of one HTTP crate is one of the other's");
    let mut answer = HttpResponse::build(status);
    for (name, value) in &head.headers {
        answer.append_header((name.as_str(), value.as_bytes()));
    }
    let body = BodyStream::new(BodyDataStream::new(body).boxed_local());
    Ok(answer.body(WhileRead { body, _stays: stays }))
}

/// An answer's body; whoever watches learns when nobody reads it any more.
struct WhileRead<B> {
    body: B,
    _stays: watch::Sender<()>,
}

impl<B: MessageBody + Unpin> MessageBody for WhileRead<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
