//! A core's side of the bus over NATS.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use async_nats::Client;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use thermite_actors::host::bulk::Bringer;
use thermite_actors::ports::{BringFault, BulkLink, LinkFault, RunnerLink};
use thermite_core::ids::RunId;
use thermite_core::limits;
use thermite_core::time::Span;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk};
use thermite_core::wire::{Answer, Ask, ProcessName};

use super::asking::{self, AskFault};
use super::codec::CodecFault;
use super::connection::{Access, BusThread, Happening, is_up, open};
use super::subjects::RigName;

/// Who brings commits to runners, over the second connection.
pub trait Bringing {
    /// As [`RunnerLink::bring`].
    fn bring(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: Vec<String>,
    ) -> LocalBoxFuture<'static, Result<(), BringFault>>;
}

/// Hints of each process, counted.
type Hints = Arc<Mutex<BTreeMap<ProcessName, watch::Sender<u64>>>>;

/// A core's link to its runners.
pub struct NatsLink {
    thread: Rc<BusThread>,
    rig: RigName,
    small: Client,
    hints: Hints,
    bringing: Rc<dyn Bringing>,
}

/// The core's connection for bulk: large bodies slow small ones on the same one.
#[derive(Clone)]
pub struct BulkConnection {
    thread: Rc<BusThread>,
    rig: RigName,
    client: Client,
}

/// Opens a core's two connections. Both come up by themselves, and come back by themselves.
///
/// # Errors
/// Where an address or a file with certificates cannot be used.
pub async fn open_core(
    thread: Rc<BusThread>,
    rig: RigName,
    access: Access,
    told: mpsc::UnboundedSender<Happening>,
) -> Result<(CoreConnection, BulkConnection), String> {
    let for_bulk = Access { name: format!("{} bulk", access.name), ..access.clone() };
    let (unheard, _) = mpsc::unbounded_channel();
    let opened =
        thread.run(async move { Ok::<_, String>((open(&access, told).await?, open(&for_bulk, unheard).await?)) });
    let (small, client) = opened.await.ok_or("the bus's thread has ended")??;
    let bulk = BulkConnection { thread: Rc::clone(&thread), rig: rig.clone(), client };
    Ok((CoreConnection { thread, rig, small }, bulk))
}

/// A core's connection for small asks, before it is known who brings commits.
pub struct CoreConnection {
    thread: Rc<BusThread>,
    rig: RigName,
    small: Client,
}

impl CoreConnection {
    /// The link.
    pub fn link(self, bringing: Rc<dyn Bringing>) -> NatsLink {
        let hints = Hints::default();
        self.thread.keep_running(hear_hints(self.small.clone(), self.rig.clone(), Arc::clone(&hints)));
        NatsLink { thread: self.thread, rig: self.rig, small: self.small, hints, bringing }
    }
}

async fn hear_hints(client: Client, rig: RigName, hints: Hints) {
    let mut heard = match client.subscribe(rig.all_more()).await {
        Ok(heard) => heard,
        Err(error) => {
            warn!(%error, "no hint will be heard: results come with the checks");
            return;
        }
    };
    while let Some(message) = heard.next().await {
        let Some(process) = rig.process_of(&message.subject) else { continue };
        // Only processes that somebody has waited for: others may hint what they like.
        if let Some(count) = hints.lock().expect("no thread panics while it has the hints").get(&process) {
            count.send_modify(|count| *count += 1);
        }
    }
    info!("no more hints are heard");
}

impl RunnerLink for NatsLink {
    fn ask(&self, to: &ProcessName, ask: Ask) -> LocalBoxFuture<'static, Result<Answer, LinkFault>> {
        asked(&self.thread, self.small.clone(), self.rig.ask(to), ask, limits::RUNNER_ASK_MAX)
    }

    fn is_up(&self) -> bool {
        is_up(&self.small)
    }

    fn hinted(&self, to: &ProcessName) -> LocalBoxFuture<'static, ()> {
        let mut hints = self.hints.lock().expect("no thread panics while it has the hints");
        let mut next = hints.entry(to.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe();
        Box::pin(async move {
            if next.changed().await.is_err() {
                std::future::pending().await
            }
        })
    }

    fn bring(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: Vec<String>,
    ) -> LocalBoxFuture<'static, Result<(), BringFault>> {
        self.bringing.bring(to, run, commits)
    }
}

impl BulkLink for BulkConnection {
    fn ask(&self, to: &ProcessName, ask: BulkAsk) -> LocalBoxFuture<'static, Result<BulkAnswer, LinkFault>> {
        self.ask_anything(to, ask)
    }
}

impl Bringing for Bringer {
    fn bring(
        &self,
        to: &ProcessName,
        run: RunId,
        commits: Vec<String>,
    ) -> LocalBoxFuture<'static, Result<(), BringFault>> {
        let (bringer, to) = (self.clone(), to.clone());
        Box::pin(async move {
            let brought = bringer.bring(&to, run, &commits).await?;
            debug!(%to, ?brought, "commits were brought");
            Ok(())
        })
    }
}

impl BulkConnection {
    /// Asks a process for bulk, once.
    pub fn ask_anything<Q, A>(&self, to: &ProcessName, question: Q) -> LocalBoxFuture<'static, Result<A, LinkFault>>
    where
        Q: Serialize + Send + Sync + 'static,
        A: DeserializeOwned + Send + 'static,
    {
        asked(&self.thread, self.client.clone(), self.rig.bulk(to), question, limits::BULK_ASK_MAX)
    }
}

fn asked<Q, A>(
    thread: &BusThread,
    client: Client,
    subject: String,
    question: Q,
    within: Span,
) -> LocalBoxFuture<'static, Result<A, LinkFault>>
where
    Q: Serialize + Send + Sync + 'static,
    A: DeserializeOwned + Send + 'static,
{
    let answer: BoxFuture<'static, Option<Result<A, AskFault>>> =
        thread.run(async move { asking::ask(client, subject, &question, within).await });
    Box::pin(async move {
        match answer.await {
            Some(answer) => answer.map_err(link_fault),
            None => Err(LinkFault::Down),
        }
    })
}

fn link_fault(fault: AskFault) -> LinkFault {
    match fault {
        AskFault::NoAnswer => LinkFault::NoAnswer,
        AskFault::Down => LinkFault::Down,
        AskFault::Frame(CodecFault::OtherWire { has, .. }) => LinkFault::OtherWire { version: u32::from(has) },
        AskFault::Frame(fault @ (CodecFault::TooLong { .. } | CodecFault::Garbled(_))) => {
            LinkFault::Garbled(fault.to_string())
        }
    }
}
