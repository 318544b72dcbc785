//! The herald: tells each change of a development run's status, with its sentence where it waits (rule A9).
//!
//! Lane, pool and device each know a part of a status, so that none of them can tell it. The herald hears what
//! happened, looks, and tells what is new: a status that is over within the instant may go untold. While nobody
//! listens it does nothing.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::view::{DevRunStatus, RigHappening};

use super::*;

/// Tells until the rig's system ends.
pub(super) async fn tell(actors: Actors, events: Rc<Events>, mut heard: Receiver<Arc<RigEvent>>) {
    let mut told: BTreeMap<DevRunId, DevRunStatus> = BTreeMap::new();
    loop {
        events.stirred().await;
        let ended = ended(&mut heard);
        if !events.heard_by_others() {
            continue;
        }
        for row in look::dev_runs(&actors).await {
            if told.get(&row.dev_run).is_none_or(|before| is_news(before, &row.status)) {
                told.insert(row.dev_run, row.status.clone());
                events.tell(RigHappening::DevRun { row });
            }
        }
        for id in ended {
            if let Ok(row) = look::dev_run(&actors, id).await
                && told.remove(&id).is_none_or(|before| is_news(&before, &row.status))
            {
                events.tell(RigHappening::DevRun { row });
            }
        }
    }
}

/// The development runs whose recorded ends were heard; they are nowhere but in the records.
fn ended(heard: &mut Receiver<Arc<RigEvent>>) -> Vec<DevRunId> {
    let mut ended = Vec::new();
    loop {
        match heard.try_recv() {
            Ok(event) => {
                if let RigHappening::Recorded { fact } = &event.what
                    && let LogEntry::DevRunEnded { dev_run, .. } = &**fact
                {
                    ended.push(*dev_run);
                }
            }
            // Whoever reads as slowly as that has missed the same events.
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return ended,
        }
    }
}

/// Whether a status says something else than before; that a wait has lasted longer is no news.
fn is_news(before: &DevRunStatus, status: &DevRunStatus) -> bool {
    match (before, status) {
        (DevRunStatus::Waiting { wait: before, .. }, DevRunStatus::Waiting { wait, .. }) => before != wait,
        _ => before != status,
    }
}
