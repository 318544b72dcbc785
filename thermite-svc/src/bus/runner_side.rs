//! A supervisor's side of the bus over NATS: its own subjects, and nothing else.

use std::future::Future;
use std::rc::Rc;

use async_nats::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use thermite_core::wire::ProcessName;

use super::asking;
use super::connection::{Access, BusThread, Happening, open};
use super::subjects::RigName;

/// A question with the place for its answer.
pub struct Question<Q, A> {
    /// What is asked.
    pub what: Q,
    /// Where the answer goes; let go of, the asker hears nothing and asks again.
    pub answer: oneshot::Sender<A>,
}

/// A supervisor's two connections.
pub struct RunnerSide {
    thread: Rc<BusThread>,
    rig: RigName,
    process: ProcessName,
    small: Client,
    bulk: Client,
}

impl RunnerSide {
    /// Opens them. Both come up by themselves, and come back by themselves.
    ///
    /// # Errors
    /// Where an address or a file with certificates cannot be used.
    pub async fn open(
        thread: Rc<BusThread>,
        rig: RigName,
        process: ProcessName,
        access: Access,
        told: mpsc::UnboundedSender<Happening>,
    ) -> Result<RunnerSide, String> {
        let for_bulk = Access { name: format!("{} bulk", access.name), ..access.clone() };
        let (unheard, _) = mpsc::unbounded_channel();
        let opened =
            thread.run(async move { Ok::<_, String>((open(&access, told).await?, open(&for_bulk, unheard).await?)) });
        let (small, bulk) = opened.await.ok_or("the bus's thread has ended")??;
        Ok(RunnerSide { thread, rig, process, small, bulk })
    }

    /// What is asked of the process, as it comes.
    pub fn asks<Q, A>(&self) -> mpsc::UnboundedReceiver<Question<Q, A>>
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        self.heard(self.small.clone(), self.rig.ask(&self.process))
    }

    /// What is asked of it for bulk.
    pub fn bulk_asks<Q, A>(&self) -> mpsc::UnboundedReceiver<Question<Q, A>>
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        self.heard(self.bulk.clone(), self.rig.bulk(&self.process))
    }

    /// Never more than [`thermite_core::limits::BUS_ASKS_AT_ONCE`] wait in it: who answers has that many turns.
    fn heard<Q, A>(&self, client: Client, subject: String) -> mpsc::UnboundedReceiver<Question<Q, A>>
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.thread.keep_running(asking::answer_all(client, subject, move |what: Q| passed_on(&sender, what)));
        receiver
    }

    /// Hints that there is something to fetch.
    pub fn hint(&self) {
        let (client, subject) = (self.small.clone(), self.rig.more(&self.process));
        self.thread.keep_running(async move { asking::hint(&client, subject).await });
    }
}

fn passed_on<Q, A>(
    sender: &mpsc::UnboundedSender<Question<Q, A>>,
    what: Q,
) -> impl Future<Output = Option<A>> + Send + use<Q, A>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let sent = sender.send(Question { what, answer });
    async move {
        sent.ok()?;
        answered.await.ok()
    }
}
