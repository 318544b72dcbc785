//! Control on the bus: accounts are sent to its server, cores' reports come in, settings go out. All of it on threads of
//! its own; whatever the bus does not take is tried again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, OnceLock};

use async_nats::Client;
use async_nats::connection::State;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use nkeys::KeyPair;
use serde_json::Value;
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock as _;
use thermite_core::limits;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::authority::{Account, BusAuthority, BusFault, KeyFault, Operator, Rights, Second, UserKey};
use super::rigs::Control;
use super::words::{DOCUMENT_VERSION, Given, Report};
use crate::bus::connection::{self, Access, BusThread, Happening, Pass};
use crate::bus::subjects::RigName;

/// How control itself reaches the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPlace {
    /// Its address.
    pub url: String,
    /// The file with the certificates that its own is checked against.
    pub ca: std::path::PathBuf,
}

/// The authority over a real bus: signs as its operator, and sends accounts through the system account.
pub struct NatsAuthority {
    operator: Operator,
    link: OnceLock<Client>,
}

impl NatsAuthority {
    /// An authority that is not connected yet.
    pub fn new(operator: Operator) -> NatsAuthority {
        NatsAuthority { operator, link: OnceLock::new() }
    }
}

impl BusAuthority for NatsAuthority {
    fn admit(
        &self,
        account: &Account,
        key: &UserKey,
        rights: &Rights,
        at: Second,
        now: Second,
    ) -> Result<String, KeyFault> {
        account.user(key, rights, at, now)
    }

    fn revoke<'a>(&'a self, account: &'a Account, now: Second) -> BoxFuture<'a, Result<(), BusFault>> {
        Box::pin(async move {
            let fault = |why: String| BusFault(format!("{}: {why}", account.rig));
            let jwt = self.operator.account(account, now).map_err(|cause| fault(cause.to_string()))?;
            // Nothing is published while it is not connected: it would come late, after what was sent since.
            let link = self.link.get().filter(|link| link.connection_state() == State::Connected);
            let link = link.ok_or_else(|| fault("the bus is away".to_owned()))?;
            let subject = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", account.key.public_key());
            let answer = tokio::time::timeout(limits::ACCOUNT_SENT_MAX.to_std(), link.request(subject, jwt.into()));
            let answer = answer.await.map_err(|_| fault("it does not answer".to_owned()))?;
            let answer = answer.map_err(|cause| fault(cause.to_string()))?;
            let said: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            if said["data"]["code"] == 200 {
                return Ok(());
            }
            let why = said["error"]["description"].as_str().unwrap_or("it says no");
            Err(fault(crate::plain::plain(why)))
        })
    }
}

/// Keeps control on the bus until it is dropped with its runtime. Must be spawned on the bus's thread.
pub async fn keep(control: Arc<Control>, authority: Arc<NatsAuthority>, place: BusPlace) {
    let key = KeyPair::new_user();
    let user: UserKey = key.public_key().parse().expect("a user's key is one");
    let system = |at| authority.operator.system_user(&user, at).expect("a fresh key signs");
    let pass = Pass::new(key, system(now()));
    let (told, mut happenings) = mpsc::unbounded_channel();
    let access = Access {
        url: place.url.clone(),
        ca: Some(place.ca.clone()),
        rights: connection::Rights::Key(Arc::clone(&pass)),
        name: "thermite control".to_owned(),
    };
    let client = match connection::open(&access, told).await {
        Ok(client) => client,
        Err(why) => {
            warn!(why, "control has no bus");
            return;
        }
    };
    let _only_one = authority.link.set(client);
    let mut changes = control.changes();
    let mut links: BTreeMap<RigName, Link> = BTreeMap::new();
    let mut look = tokio::time::interval(limits::ACCOUNT_SENT_AGAIN.to_std());
    loop {
        tokio::select! {
            happening = happenings.recv() => match happening {
                Some(Happening::Up) => {
                    info!(url = %place.url, "the bus is up; all accounts are sent");
                    if let Err(no) = control.block(|control| control.all_to_be_sent()).await {
                        warn!(%no, "the accounts cannot be read");
                    }
                }
                Some(Happening::Lost) => warn!("the bus is lost; it is tried again"),
                Some(Happening::NotLetIn { why }) => {
                    warn!(why, "the bus does not let control in; does its server have the operator of `thermite control bus-config`?");
                }
                None => return,
            },
            changed = changes.changed() => if changed.is_err() { return },
            _ = look.tick() => {}
        }
        pass.renew(system(now()));
        for id in control.unsent() {
            if let Err(fault) = control.send(id).await {
                debug!(%fault, "tried again");
                break;
            }
        }
        hold_links(&control, &place, &mut links).await;
    }
}

/// Control's connection in a rig's account.
///
/// INVARIANT: it ends whole when this is let go of. A client of NATS has tasks of its own, and one that is being
/// connected again goes on trying without end, whoever has dropped it: they live on a thread of the link's own, which
/// takes them along.
struct Link {
    task: JoinHandle<()>,
    _thread: BusThread,
}

impl Link {
    fn begin(control: Arc<Control>, place: BusPlace, rig: RigName) -> std::io::Result<Link> {
        let thread = BusThread::start()?;
        let task = thread.keep_running(link(control, place, rig));
        Ok(Link { task, _thread: thread })
    }
}

/// One connection a rig, in its own account.
async fn hold_links(control: &Arc<Control>, place: &BusPlace, links: &mut BTreeMap<RigName, Link>) {
    let rigs = match control.block(|control| control.rigs()).await {
        Ok(rigs) => rigs,
        Err(no) => return warn!(%no, "the rigs cannot be read"),
    };
    links.retain(|name, link| rigs.iter().any(|row| row.rig == *name) && !link.task.is_finished());
    for row in rigs {
        let Entry::Vacant(none) = links.entry(row.rig) else { continue };
        match Link::begin(Arc::clone(control), place.clone(), none.key().clone()) {
            Ok(link) => {
                none.insert(link);
            }
            Err(cause) => warn!(rig = %none.key(), %cause, "no thread for this rig's connection; it is tried again"),
        }
    }
}

/// Hears one rig's reports and gives it its settings. Whoever reports an older revision is given the newest again.
async fn link(control: Arc<Control>, place: BusPlace, rig: RigName) {
    let key = KeyPair::new_user();
    let user: UserKey = key.public_key().parse().expect("a user's key is one");
    let of = rig.clone();
    let Ok(account) = control.block(move |control| control.account(&of)).await else { return };
    let rights = |at| account.user(&user, &Rights::Control, at, at).expect("the account's key signs");
    let pass = Pass::new(key, rights(now()));
    let (told, mut happenings) = mpsc::unbounded_channel();
    let access = Access {
        url: place.url,
        ca: Some(place.ca),
        rights: connection::Rights::Key(Arc::clone(&pass)),
        name: format!("thermite control for {rig}"),
    };
    let client = match connection::open(&access, told).await {
        Ok(client) => client,
        Err(why) => return warn!(%rig, why, "no connection for this rig"),
    };
    let Ok(mut reports) = client.subscribe(rig.report()).await else { return };
    let mut changes = control.changes();
    let mut given = 0;
    loop {
        let is_report = tokio::select! {
            happening = happenings.recv() => match happening {
                // The rights are of a day: each new connection shows fresh ones.
                Some(Happening::Up | Happening::Lost) => { pass.renew(rights(now())); continue }
                Some(Happening::NotLetIn { why }) => {
                    debug!(%rig, why, "the bus does not know this rig yet");
                    pass.renew(rights(now()));
                    continue;
                }
                None => return,
            },
            changed = changes.changed() => match changed {
                Ok(()) => false,
                Err(_) => return,
            },
            report = reports.next() => match report {
                Some(message) => { hear(&control, &rig, &message.payload).await; true }
                None => return,
            },
        };
        let of = rig.clone();
        let Ok(newest) = control.block(move |control| control.settings(&of)).await else { continue };
        let is_news = newest.revision > given;
        if newest.revision > newest.taken && (is_news || is_report) && client.connection_state() == State::Connected {
            let revision = newest.revision;
            let from_rig = newest.from_rig;
            let document = Given { version: DOCUMENT_VERSION, revision, from_rig, settings: newest.settings };
            let bytes = serde_json::to_vec(&document).expect("settings have JSON");
            match client.publish(rig.settings(), bytes.into()).await {
                Ok(()) => given = revision,
                Err(cause) => warn!(%rig, %cause, "the settings are given again"),
            }
        }
    }
}

async fn hear(control: &Arc<Control>, rig: &RigName, bytes: &[u8]) {
    if bytes.len() > limits::REPORT_BYTES_MAX {
        return warn!(%rig, bytes = bytes.len(), "a report is too large and is not read");
    }
    let report: Report = match serde_json::from_slice(bytes) {
        Ok(report) => report,
        Err(cause) => return warn!(%rig, %cause, "a report cannot be read"),
    };
    if report.version != DOCUMENT_VERSION {
        return warn!(%rig, version = report.version, "a report is of another version and is not read");
    }
    let of = rig.clone();
    if let Err(no) = control.block(move |control| control.hear(&of, report)).await {
        warn!(%rig, %no, "a report is not kept");
    }
}

fn now() -> Second {
    Second(BootClock.wall_ms() / 1_000)
}
