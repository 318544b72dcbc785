//! Asking and answering over NATS, in frames: what the core's side and the runner's side share.

use std::future::Future;
use std::sync::Arc;

use actix_web::web::Bytes;
use async_nats::{Client, Message, RequestErrorKind, Subscriber};
use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use thermite_core::limits;
use thermite_core::time::Span;

use super::codec::{BUS, CodecFault};
use super::connection::{duration, is_up};

/// What came of one ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskFault {
    /// Nobody answered within the limit.
    #[error("no answer")]
    NoAnswer,
    /// This process's own connection is down: nothing was published.
    #[error("the bus is away")]
    Down,
    /// The question or its answer is not a frame that both can read.
    #[error(transparent)]
    Frame(#[from] CodecFault),
}

/// Asks once. Nothing is published while the connection is down, and where nobody listens, which may pass in a moment, the
/// question goes out again within the same limit.
///
/// # Errors
/// Says why there is no answer; whether the question arrived is unknown then, unless the connection was down.
pub async fn ask<Q: Serialize, A: DeserializeOwned>(
    client: Client,
    subject: String,
    question: &Q,
    within: Span,
) -> Result<A, AskFault> {
    let frame = Bytes::from(BUS.encode(question)?);
    let latest = Instant::now() + duration(within);
    loop {
        if !is_up(&client) {
            return Err(AskFault::Down);
        }
        let left = latest.saturating_duration_since(Instant::now());
        // The limit is kept here: the client's own would begin anew with each try.
        let asked = timeout(left, client.send_request(subject.clone(), whole_time(frame.clone()))).await;
        match asked {
            Err(_) => return Err(AskFault::NoAnswer),
            Ok(Ok(message)) => return Ok(BUS.decode(&message.payload)?),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::NoResponders => {
                    let retry = duration(limits::BUS_NOBODY_LISTENS_RETRY);
                    if latest.saturating_duration_since(Instant::now()) <= retry {
                        return Err(AskFault::NoAnswer);
                    }
                    sleep(retry).await;
                }
                RequestErrorKind::TimedOut => return Err(AskFault::NoAnswer),
                RequestErrorKind::MaxPayloadExceeded => {
                    let (bytes, most) = (frame.len(), client.max_payload());
                    return Err(AskFault::Frame(CodecFault::TooLong { bytes, most }));
                }
                RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                    debug!(%error, "an ask got lost");
                    return Err(AskFault::NoAnswer);
                }
            },
        }
    }
}

fn whole_time(frame: Bytes) -> async_nats::Request {
    async_nats::Request::new().payload(frame).timeout(None)
}

/// Answers what is asked on a subject, until the connection is let go of. Each question is answered by `answer`, several at
/// once; one of another version, or that cannot be read, by the version alone.
pub async fn answer_all<Q, A, F>(client: Client, subject: String, answer: impl Fn(Q) -> F)
where
    Q: DeserializeOwned,
    A: Serialize + Send + 'static,
    F: Future<Output = Option<A>> + Send + 'static,
{
    let mut questions: Subscriber = match client.subscribe(subject.clone()).await {
        Ok(questions) => questions,
        Err(error) => {
            warn!(%error, %subject, "nothing can be heard on the bus");
            return;
        }
    };
    let at_once = Arc::new(Semaphore::new(limits::BUS_ASKS_AT_ONCE));
    while let Some(Message { reply, payload, .. }) = questions.next().await {
        // Nobody waits for an answer to what names no place for it.
        let Some(reply) = reply else { continue };
        let question = match BUS.decode::<Q>(&payload) {
            Ok(question) => question,
            Err(fault) => {
                debug!(%fault, "a question that cannot be read");
                publish(&client, reply, BUS.could_not_read()).await;
                continue;
            }
        };
        let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
        let (answered, client) = (answer(question), client.clone());
        tokio::spawn(async move {
            let answered = answered.await;
            drop(turn);
            // It stays unanswered where whoever answers has ended: the asker asks again.
            let Some(answered) = answered else { return };
            let frame = match BUS.encode(&answered) {
                Ok(frame) => frame,
                Err(fault) => {
                    warn!(%fault, "an answer that does not fit the bus");
                    BUS.could_not_read()
                }
            };
            publish(&client, reply, frame).await;
        });
    }
}

async fn publish(client: &Client, to: async_nats::Subject, frame: Vec<u8>) {
    // An answer that is kept over a reconnect is one that nobody waits for any more.
    if is_up(client)
        && let Err(error) = client.publish(to, frame.into()).await
    {
        debug!(%error, "an answer got lost");
    }
}

/// Hints that there is something to fetch: published where the connection is up, else not at all.
pub async fn hint(client: &Client, subject: String) {
    if is_up(client) {
        let _may_be_lost = client.publish(subject, Vec::new().into()).await;
    }
}
