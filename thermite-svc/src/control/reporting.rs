//! A core's side of control: it says what its rig looks like, and takes the settings that control gives, once each.
//!
//! Which revision it took last is kept in its data folder: what was set at the rig itself since then stays, also after a
//! restart, and control hears of it and takes it over (rule E8: the latest wins). While control is away nothing is missed: it gives what was not taken as soon as the rig reports.

use std::collections::VecDeque;
use std::rc::Rc;

use async_nats::Client;
use async_nats::connection::State;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use thermite_actors::rig::{No, Rig};
use thermite_core::limits;
use thermite_core::runners::{ProcessAsk, ProcessPools};
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tracing::{info, warn};

use super::words::{DOCUMENT_VERSION, Given, Report, RigSettingsAsk};
use crate::bus::connection::{Access, BusThread, open};
use crate::bus::subjects::RigName;
use crate::folder::DataFolder;

/// The file of the revision taken last.
const TAKEN: &str = "control-revision";

/// How many different settings that were set at the rig are on their way to control and back at most: more in the seconds
/// that this takes are a program's, and its newest are as good.
const SAID_KEPT: usize = 16;

/// Reports, and takes settings, until it is dropped. Must be spawned on the rig's own thread.
pub async fn report(thread: Rc<BusThread>, access: Access, name: RigName, rig: Rig, folder: Rc<DataFolder>) {
    let access = Access { name: format!("{} reports", access.name), ..access };
    let (unheard, _) = mpsc::unbounded_channel();
    let subject = name.settings();
    let opened = thread.run(async move {
        let client = open(&access, unheard).await?;
        let settings = client.subscribe(subject).await.map_err(|cause| cause.to_string())?;
        Ok::<_, String>((client, settings))
    });
    let (client, mut given) = match opened.await {
        Some(Ok(opened)) => opened,
        Some(Err(why)) => return warn!(why, "control hears nothing of this rig"),
        None => return,
    };
    let mut events = rig.events();
    let taken = taken_in(&folder);
    let mut reporter = Reporter { taken, refused: None, said: VecDeque::new(), client, name, rig, folder };
    let mut every = tokio::time::interval(limits::REPORT_EVERY.to_std());
    let mut last = Instant::now();
    let mut is_changed = false;
    loop {
        let rest = last + limits::REPORT_REST.to_std();
        tokio::select! {
            _ = every.tick() => {}
            () = tokio::time::sleep_until(rest), if is_changed => {}
            event = events.recv(), if !is_changed => match event {
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => { is_changed = true; continue }
                Err(broadcast::error::RecvError::Closed) => return,
            },
            message = given.next() => match message {
                Some(message) => reporter.hear(&message.payload).await,
                None => return,
            },
        }
        (is_changed, last) = (false, Instant::now());
        reporter.say().await;
    }
}

struct Reporter {
    taken: u64,
    refused: Option<(u64, String)>,
    /// What it said that the rig is set to since it took settings last, the newest last: at most [`SAID_KEPT`].
    said: VecDeque<RigSettingsAsk>,
    client: Client,
    name: RigName,
    rig: Rig,
    folder: Rc<DataFolder>,
}

impl Reporter {
    /// Takes settings that are newer than those it has. What the rig refuses is reported and not tried again; what it
    /// cannot take at the moment is, as control gives it again.
    async fn hear(&mut self, bytes: &[u8]) {
        let given: Given = match serde_json::from_slice(bytes) {
            Ok(given) => given,
            Err(cause) => return warn!(%cause, "what control gives cannot be read"),
        };
        let Given { version, revision, from_rig, settings } = given;
        if version != DOCUMENT_VERSION || revision <= self.taken {
            return;
        }
        if self.refused.as_ref().is_some_and(|(refused, _)| *refused == revision) {
            return;
        }
        // Its own, come back: it has them, or newer ones that control is yet to take over.
        let is_known = from_rig && self.said.iter().any(|said| is_part_of(&settings, said));
        let taken = if is_known { Ok(()) } else { take(&self.rig, settings).await };
        match taken {
            Ok(()) => {
                if let Err(fault) = self.folder.write_private(TAKEN, revision.to_string().as_bytes()) {
                    warn!(%fault, "the settings are taken again at the next start");
                }
                info!(revision, "control's settings are in force");
                (self.taken, self.refused) = (revision, None);
                self.said.clear();
            }
            Err(No::Refusal(refusal)) => {
                warn!(revision, %refusal, "control's settings are refused");
                self.refused = Some((revision, refusal.to_string()));
            }
            Err(No::Infrastructure(failure)) => {
                warn!(revision, %failure, "control's settings cannot be taken at the moment")
            }
        }
    }

    async fn say(&mut self) {
        // What is published while it is not connected would come late.
        if self.client.connection_state() != State::Connected {
            return;
        }
        let Ok(view) = self.rig.view().await else { return };
        let has = self.set_to().await;
        let whole = serde_json::to_value(&view).expect("a view has JSON");
        let (taken, refused) = (self.taken, self.refused.clone());
        let report = |rig| Report { version: DOCUMENT_VERSION, taken, has: has.clone(), refused: refused.clone(), rig };
        let bytes = |rig: Value| serde_json::to_vec(&report(rig)).expect("a report has JSON");
        let mut document = bytes(whole.clone());
        if document.len() > limits::REPORT_BYTES_MAX {
            let kept = ["now", "wall_ms", "devices", "runners", "jobs_live", "records_fault", "overlooked"];
            let kept = kept.into_iter().map(|name| (name.to_owned(), whole[name].clone()));
            document = bytes(kept.chain([("shortened".to_owned(), json!(true))]).collect());
        }
        if document.len() > limits::REPORT_BYTES_MAX {
            document = bytes(json!({"shortened": true}));
        }
        if let Err(cause) = self.client.publish(self.name.report(), document.into()).await {
            return warn!(%cause, "a report is lost; the next one comes");
        }
        if let Some(has) = has.filter(|has| self.said.back() != Some(has)) {
            self.said.push_back(has);
            if self.said.len() > SAID_KEPT {
                self.said.pop_front();
            }
        }
    }

    /// What the rig is set to.
    async fn set_to(&self) -> Option<RigSettingsAsk> {
        let list = self.rig.runners().await.ok()?.asked;
        let written = |process: ProcessPools| ProcessAsk {
            name: process.name.to_string(),
            pools: process.pools.iter().map(ToString::to_string).collect(),
        };
        // Not every rig has cards to split.
        let gpus = self.rig.split().await.ok().map(|split| split.asked);
        Some(RigSettingsAsk { runners: list.into_iter().map(written).collect(), gpus, workers: None })
    }
}

/// Whether a rig that is set to `has` has what is given.
fn is_part_of(given: &RigSettingsAsk, has: &RigSettingsAsk) -> bool {
    given.runners == has.runners && (given.gpus.is_none() || given.gpus == has.gpus)
}

/// Sets what differs. A split that is in force is not set again: it would end what runs.
async fn take(rig: &Rig, settings: RigSettingsAsk) -> Result<(), No> {
    let RigSettingsAsk { runners, gpus, workers: _ } = settings;
    rig.set_runners(runners, None).await?;
    if let Some(gpus) = gpus {
        let split = rig.split().await?;
        if split.asked != gpus {
            rig.set_split(gpus, None).await?;
        }
    }
    Ok(())
}

fn taken_in(folder: &DataFolder) -> u64 {
    let text = std::fs::read_to_string(folder.path().join(TAKEN)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}
