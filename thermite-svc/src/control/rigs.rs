//! Control itself: rigs, who may register what, what was taken back, settings by revision. REST and the bus are doors to
//! this; every change is on the disk before it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nkeys::KeyPair;
use rusqlite::{Connection, Transaction};
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock as _;
use thermite_core::ids::LANE_MAX;
use thermite_core::limits;
use thermite_core::runners;
use thermite_core::wire::ProcessName;
use tokio::sync::{Mutex as Turn, watch};
use tracing::{info, warn};
use uuid::Uuid;

use super::authority::{self, Account, BusAuthority, BusFault, Revocations, Second, UserKey};
use super::no::ControlNo;
use super::store::{Cut, Store, all, one};
use super::tokens::{self, By, ControlToken, ControlTokenRow, TokenMake};
use super::words::{
    ControlTokenMade, HistoryRow, ProcessRow, Register, Removed, Report, RigMade, RigRow, RigSettingsAsk,
    RigSettingsView, Rights, Step, called,
};
use crate::bus::subjects::RigName;
use crate::tokens::TokenId;

/// What control tells of the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusTold {
    /// Its address, as runners reach it.
    pub url: String,
    /// The certificates that its own is checked against (PEM).
    pub ca: Option<String>,
}

/// Control. May be shared by threads; what it does waits for the disk.
pub struct Control {
    store: Mutex<Store>,
    authority: Arc<dyn BusAuthority>,
    told: BusTold,
    /// Rigs by number whose account the bus has not taken yet.
    unsent: Mutex<BTreeSet<i64>>,
    /// One account is sent at a time, so that what was signed earlier never comes later.
    sending: Turn<()>,
    heard: Mutex<BTreeMap<RigName, Heard>>,
    changes: watch::Sender<u64>,
}

/// What a core said last.
struct Heard {
    at_ms: u64,
    report: Report,
}

/// A rig's row.
struct Known {
    id: i64,
    settings: RigSettingsView,
    made_ms: u64,
}

/// A registered process's row.
struct Process {
    key: Option<String>,
    boot: Option<Uuid>,
    /// When its key was registered; none where that was not kept yet.
    since_ms: Option<u64>,
    given: Second,
    ends: Second,
    is_barred: bool,
}

type Done<T> = Result<T, Cut<ControlNo>>;

impl Control {
    /// Control over that store. All accounts are to be sent.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn new(store: Store, authority: Arc<dyn BusAuthority>, told: BusTold) -> Result<Control, ControlNo> {
        let ids = store.read(|connection| all(connection, "SELECT id FROM rigs", (), |row| row.get(0)))?;
        Ok(Control {
            store: Mutex::new(store),
            authority,
            told,
            unsent: Mutex::new(ids.into_iter().collect()),
            sending: Turn::new(()),
            heard: Mutex::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// Told with each change that the bus or a rig is to hear of.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Makes the secret the owner's token of the data folder's file.
    ///
    /// # Errors
    /// Where the store does not take it.
    pub fn keep_owner(&self, secret: &str) -> Result<TokenId, ControlNo> {
        self.change(|transaction, now| tokens::keep_files(transaction, secret, now))
    }

    /// Who asks with that token.
    ///
    /// # Errors
    /// Where it opens nothing.
    pub fn check(&self, given: &str) -> Result<By, ControlNo> {
        let now = BootClock.wall_ms();
        let mut checked = Err(ControlNo::WrongToken(TokenMake::Foreign));
        self.store().read(|connection| match tokens::check(connection, given, now) {
            Ok(by) => {
                checked = Ok(by);
                Ok(())
            }
            Err(Cut::No(no)) => {
                checked = Err(no);
                Ok(())
            }
            Err(Cut::Sqlite(cause)) => Err(cause),
        })?;
        checked
    }

    /// Makes a rig, its account and its token.
    ///
    /// # Errors
    /// Where there is one of that name, or too many.
    pub fn make_rig(&self, by: &By, rig: &RigName) -> Result<RigMade, ControlNo> {
        let account = Account::new(rig.clone());
        let seeds = [&account.key, &account.signing].map(KeyPair::seed);
        let [Ok(key), Ok(signing)] = seeds else { return Err(ControlNo::Failed("no key can be made".to_owned())) };
        let (id, secret, row) = self.change(|transaction, now| {
            let count: u32 = one(transaction, LIVE_RIGS, (), |row| row.get(0))?.unwrap_or(0);
            if count as usize >= limits::RIGS_MAX {
                return Err(Cut::No(ControlNo::TooMany { what: "rigs", most: limits::RIGS_MAX }));
            }
            if find(transaction, rig).is_ok() {
                return Err(Cut::No(ControlNo::RigExists(rig.clone())));
            }
            let settings = json(&RigSettingsAsk::default());
            transaction.execute(
                "INSERT INTO rigs (name, account, signing, signed_s, revision, settings, taken, made_ms) \
                 VALUES (?1, ?2, ?3, 0, 0, ?4, 0, ?5)",
                (rig.as_str(), key, signing, settings, now.cast_signed()),
            )?;
            let id = transaction.last_insert_rowid();
            let opens = ControlToken::Rig { rig: rig.clone() };
            let (secret, row) = tokens::make(transaction, opens, "made with the rig", None, now)?;
            keep(transaction, rig, by, now, &Step::RigMade)?;
            Ok((id, secret, row))
        })?;
        info!(%rig, token = %row.token, by = %by.token, "a rig was made");
        self.to_be_sent(id);
        let nats_url = self.told.url.clone();
        Ok(RigMade { rig: rig.clone(), secret, token: row.token, nats_url, on_the_bus: false })
    }

    /// All rigs by name.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn rigs(&self) -> Result<Vec<RigRow>, ControlNo> {
        let names: Vec<String> = self.store().read(|connection| {
            let query = "SELECT name FROM rigs WHERE removed_ms IS NULL ORDER BY name";
            all(connection, query, (), |row| row.get(0))
        })?;
        let names = names.into_iter().filter_map(|name| name.parse().ok());
        names.map(|rig| Ok(RigRow { report: None, ..self.rig(&rig)? })).collect()
    }

    /// One rig, with what its core said last.
    ///
    /// # Errors
    /// Where there is none.
    pub fn rig(&self, rig: &RigName) -> Result<RigRow, ControlNo> {
        let (known, processes) = self.look(rig)?;
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.get(rig);
        Ok(RigRow {
            rig: rig.clone(),
            revision: known.settings.revision,
            taken: known.settings.taken,
            made_ms: known.made_ms,
            reported_ago_ms: heard.map(|heard| BootClock.wall_ms().saturating_sub(heard.at_ms)),
            report: heard.map(|heard| heard.report.rig.clone()),
            core: processes.into_iter().find(|process| process.runner.is_none()),
        })
    }

    /// A rig's runners: those that are listed, in their order, then the others that are known.
    ///
    /// # Errors
    /// Where there is no such rig.
    pub fn runners(&self, rig: &RigName) -> Result<Vec<ProcessRow>, ControlNo> {
        let (known, processes) = self.look(rig)?;
        let mut processes: BTreeMap<String, ProcessRow> =
            processes.into_iter().filter_map(|process| Some((process.runner.as_ref()?.to_string(), process))).collect();
        let mut rows: Vec<ProcessRow> = Vec::new();
        for listed in known.settings.settings.runners {
            let nothing_known = || ProcessRow {
                runner: listed.name.parse().ok(),
                pools: Vec::new(),
                public_key: None,
                boot: None,
                heard_ms: None,
                rights_end_s: None,
                barred: false,
            };
            let process = processes.remove(&listed.name).unwrap_or_else(nothing_known);
            rows.push(ProcessRow { pools: listed.pools, ..process });
        }
        rows.extend(processes.into_values());
        Ok(rows)
    }

    /// A rig's settings.
    ///
    /// # Errors
    /// Where there is no such rig.
    pub fn settings(&self, rig: &RigName) -> Result<RigSettingsView, ControlNo> {
        Ok(self.look(rig)?.0.settings)
    }

    /// Sets a rig's settings, as a whole; with `read` only where nobody has set any since. Runners that were removed and
    /// are listed again may come back.
    ///
    /// # Errors
    /// Where they cannot be, or were set meanwhile.
    pub fn set(
        &self,
        by: &By,
        rig: &RigName,
        settings: &RigSettingsAsk,
        read: Option<u64>,
    ) -> Result<RigSettingsView, ControlNo> {
        let list = runners::parse(&settings.runners)?;
        if let Some(workers) = settings.workers.filter(|workers| !(1..=u64::from(LANE_MAX)).contains(workers)) {
            return Err(ControlNo::Impossible(format!("workers is {workers}; it must be 1 to {LANE_MAX}")));
        }
        let view = self.change(|transaction, now| {
            let known = find(transaction, rig)?;
            let revision = known.settings.revision;
            if let Some(read) = read.filter(|read| *read != revision) {
                return Err(Cut::No(ControlNo::SettingsMoved { rig: rig.clone(), revision, read }));
            }
            for process in &list {
                let of = "DELETE FROM runners WHERE rig = ?1 AND name = ?2 AND barred_ms IS NOT NULL";
                if transaction.execute(of, (known.id, process.name.as_str()))? > 0 {
                    let keys = "DELETE FROM barred_keys WHERE rig = ?1 AND name = ?2";
                    transaction.execute(keys, (known.id, process.name.as_str()))?;
                    let runner = process.name.clone();
                    keep(transaction, rig, by, now, &Step::RunnerListedAgain { runner })?;
                }
            }
            set_to(transaction, &known, rig, Setter::Control(by), now, settings.clone())
        })?;
        info!(%rig, revision = view.revision, by = %by.token, "settings were set");
        self.changed();
        Ok(view)
    }

    /// Gives rights on the bus to a process, for its key (rule E7).
    ///
    /// # Errors
    /// Where the token is not for that, the process was removed, or another has its name.
    pub fn register(&self, by: &By, rig: &RigName, ask: &Register) -> Result<Rights, ControlNo> {
        may_register(by, rig, ask.runner.as_ref())?;
        let (account, at, now, is_replaced) = self.change(|transaction, now_ms| {
            let known = find(transaction, rig)?;
            let now = Second(now_ms / 1_000);
            let (at, is_replaced) = give(transaction, known.id, rig, ask, by, now_ms)?;
            Ok((account_of(transaction, known.id)?, at, now, is_replaced.then_some(known.id)))
        })?;
        if let Some(id) = is_replaced {
            // The older start is cut; the new one's rights count from a later second.
            self.to_be_sent(id);
        }
        let rights = match &ask.runner {
            Some(process) => authority::Rights::Supervisor(process.clone()),
            None => authority::Rights::Core,
        };
        let jwt = self
            .authority
            .admit(&account, &ask.public_key, &rights, at, now)
            .map_err(|fault| ControlNo::Failed(fault.to_string()))?;
        let subjects = vec![ask.runner.as_ref().map_or_else(|| rig.all(), |process| rig.all_of(process))];
        let BusTold { url, ca } = self.told.clone();
        Ok(Rights { jwt, nats_url: url, ca, subjects, expires: now.until().0 })
    }

    /// Removes a runner: its own tokens end; its name and its key are barred until it is listed again; its rights are
    /// taken back; it is taken off the list, so that its core lets go of it. Done again it is the same.
    ///
    /// # Errors
    /// Where there is no such rig or runner.
    pub async fn remove_runner(
        self: &Arc<Self>,
        by: By,
        rig: RigName,
        runner: ProcessName,
    ) -> Result<Removed, ControlNo> {
        let (of, process) = (rig.clone(), runner.clone());
        let (id, tokens_ended) = self
            .block(move |control| {
                control.change(|transaction, now| {
                    let known = find(transaction, &of)?;
                    let row = process_of(transaction, known.id, process.as_str())?;
                    let tokens_ended = tokens::end_runners(transaction, &of, &process)?;
                    let mut settings = known.settings.settings.clone();
                    let listed = settings.runners.len();
                    settings.runners.retain(|listed| listed.name != process.as_str());
                    let was_listed = settings.runners.len() < listed;
                    if row.is_none() && tokens_ended == 0 && !was_listed {
                        return Err(Cut::No(ControlNo::UnknownRunner { rig: of.clone(), runner: process.clone() }));
                    }
                    if row.as_ref().is_none_or(|row| !row.is_barred) {
                        bar(transaction, known.id, &process, row.as_ref(), now)?;
                        keep(transaction, &of, &by, now, &Step::RunnerRemoved { runner: process.clone() })?;
                    }
                    if was_listed {
                        set_to(transaction, &known, &of, Setter::Control(&by), now, settings)?;
                    }
                    Ok((known.id, tokens_ended))
                })
            })
            .await?;
        info!(%rig, %runner, "a runner was removed");
        let rights_ended = self.send_now(id).await;
        Ok(Removed { rig, runner: Some(runner), tokens_ended, rights_ended })
    }

    /// Removes the core: its key is barred for good and its rights are taken back, so that another process may have its
    /// place, whether the one that had it still runs, was lost or is in other hands. Done again it is the same.
    ///
    /// # Errors
    /// Where there is no such rig.
    pub async fn remove_core(self: &Arc<Self>, by: By, rig: RigName) -> Result<Removed, ControlNo> {
        let of = rig.clone();
        let id = self
            .block(move |control| {
                control.change(|transaction, now| {
                    let known = find(transaction, &of)?;
                    if let Some(Process { key: Some(key), given, .. }) = process_of(transaction, known.id, CORE)? {
                        let barred = "INSERT OR REPLACE INTO barred_keys (rig, key, name) VALUES (?1, ?2, ?3)";
                        transaction.execute(barred, (known.id, &key, CORE))?;
                        revoke(transaction, known.id, &key, given.max(Second(now / 1_000)))?;
                        for table in ["runners", "starts"] {
                            let rows = format!("DELETE FROM {table} WHERE rig = ?1 AND name = ?2");
                            transaction.execute(&rows, (known.id, CORE))?;
                        }
                        keep(transaction, &of, &by, now, &Step::CoreRemoved)?;
                    }
                    Ok(known.id)
                })
            })
            .await?;
        let rights_ended = self.send_now(id).await;
        Ok(Removed { rig, runner: None, tokens_ended: 0, rights_ended })
    }

    /// Removes a rig with its runners: all its tokens and all rights in its account end.
    ///
    /// # Errors
    /// Where there is none.
    pub async fn remove_rig(self: &Arc<Self>, by: By, rig: RigName) -> Result<Removed, ControlNo> {
        let of = rig.clone();
        let (id, tokens_ended) = self
            .block(move |control| {
                control.change(|transaction, now| {
                    let id = find(transaction, &of)?.id;
                    let tokens_ended = tokens::end_rigs(transaction, &of)?;
                    let newest = "SELECT max(given_s) FROM runners WHERE rig = ?1";
                    let newest: Option<i64> = one(transaction, newest, [id], |row| row.get(0))?.flatten();
                    let at = (now / 1_000).max(newest.unwrap_or(0).cast_unsigned());
                    revoke(transaction, id, "*", Second(at))?;
                    for table in ["runners", "starts", "barred_keys"] {
                        transaction.execute(&format!("DELETE FROM {table} WHERE rig = ?1"), [id])?;
                    }
                    transaction.execute("UPDATE rigs SET removed_ms = ?2 WHERE id = ?1", (id, now.cast_signed()))?;
                    keep(transaction, &of, &by, now, &Step::RigRemoved)?;
                    Ok((id, tokens_ended))
                })
            })
            .await?;
        info!(%rig, "a rig was removed");
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).remove(&rig);
        let rights_ended = self.send_now(id).await;
        Ok(Removed { rig, runner: None, tokens_ended, rights_ended })
    }

    /// What was done with a rig, from the step after `after` on; one that was removed has a history, too.
    ///
    /// # Errors
    /// Where there never was such a rig.
    pub fn history(&self, rig: &RigName, after: u64, most: usize) -> Result<Vec<HistoryRow>, ControlNo> {
        let query = "SELECT seq, wall_ms, by, body FROM history WHERE rig = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let (rows, ever): (Vec<(i64, i64, String, String)>, bool) = self.store().read(|connection| {
            let rows = all(connection, query, (rig.as_str(), after, most as i64), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            let ever = one(connection, "SELECT 1 FROM history WHERE rig = ?1", [rig.as_str()], |_| Ok(()))?;
            Ok((rows, ever.is_some()))
        })?;
        if !ever {
            return Err(ControlNo::UnknownRig(rig.clone()));
        }
        let read = |(seq, wall_ms, by, body): (i64, i64, String, String)| {
            // A step of a newer program is left out rather than misread.
            let step = serde_json::from_str(&body).ok()?;
            Some(HistoryRow { seq: seq.cast_unsigned(), wall_ms: wall_ms.cast_unsigned(), by, step })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Makes a token.
    ///
    /// # Errors
    /// Where there are too many, or its rig does not exist.
    pub fn make_token(
        &self,
        by: &By,
        opens: ControlToken,
        note: &str,
        valid_s: Option<u64>,
    ) -> Result<ControlTokenMade, ControlNo> {
        let (secret, row) = self.change(|transaction, now| {
            let rig = rig_of(&opens).cloned();
            if let Some(rig) = &rig {
                find(transaction, rig)?;
            }
            let made = tokens::make(transaction, opens, note, valid_s.map(|s| s.saturating_mul(1_000)), now)?;
            if let Some(rig) = &rig {
                keep(transaction, rig, by, now, &Step::TokenMade { token: made.1.token.clone() })?;
            }
            Ok(made)
        })?;
        info!(token = %row.token, by = %by.token, "a token was made");
        Ok(ControlTokenMade { secret, row })
    }

    /// All tokens by name.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn tokens(&self) -> Result<Vec<ControlTokenRow>, ControlNo> {
        Ok(self.store().read(tokens::list)?)
    }

    /// Ends a token. What was registered with it keeps its rights until they end: to end those at once, remove the runner.
    ///
    /// # Errors
    /// Where there is none, or it is the file's.
    pub fn revoke_token(&self, by: &By, token: &TokenId) -> Result<(), ControlNo> {
        self.change(|transaction, now| {
            let row = tokens::revoke(transaction, token)?;
            match rig_of(&row.opens) {
                Some(rig) => keep(transaction, rig, by, now, &Step::TokenRevoked { token: token.clone() }),
                None => Ok(()),
            }
        })?;
        info!(%token, by = %by.token, "a token was revoked");
        Ok(())
    }

    /// Hears what a core says of its rig. Where it has control's newest settings and is set otherwise, somebody has set
    /// them at the rig itself: the latest wins (rule E8), and they become control's.
    ///
    /// # Errors
    /// Where there is no such rig, or the store does not take it.
    pub fn hear(&self, rig: &RigName, report: Report) -> Result<(), ControlNo> {
        let known = self.look(rig)?.0;
        let before = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Heard { at_ms: BootClock.wall_ms(), report: report.clone() };
            heard.insert(rig.clone(), now).map(|heard| heard.report.refused)
        };
        let is_news = report.refused.is_some() && before.flatten() != report.refused;
        if let Some(settings) = set_there(&known.settings, &report) {
            let view = self.change(|transaction, now| {
                let known = find(transaction, rig)?;
                // They may have been set here since.
                let is_set_there = set_there(&known.settings, &report).is_some();
                is_set_there.then(|| set_to(transaction, &known, rig, Setter::Rig, now, settings)).transpose()
            })?;
            if let Some(view) = view {
                info!(%rig, revision = view.revision, "settings that were set at the rig itself are taken over");
                self.changed();
            }
        }
        if report.taken == known.settings.taken && !is_news {
            return Ok(());
        }
        self.change(|transaction, now| {
            let update = "UPDATE rigs SET taken = ?2 WHERE id = ?1";
            transaction.execute(update, (known.id, report.taken.cast_signed()))?;
            let step = match report.refused.filter(|_| is_news) {
                Some((revision, why)) => Step::SettingsRefused { revision, why },
                None => Step::SettingsTaken { revision: report.taken },
            };
            note(transaction, rig, BY_RIG, now, &step)
        })
    }

    /// The accounts that the bus is to be sent, by number.
    pub fn unsent(&self) -> Vec<i64> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Has all accounts sent again: the bus may have lost what it was sent.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn all_to_be_sent(&self) -> Result<(), ControlNo> {
        let ids: Vec<i64> =
            self.store().read(|connection| all(connection, "SELECT id FROM rigs", (), |row| row.get(0)))?;
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        self.changed();
        Ok(())
    }

    /// Sends the bus an account, with what it takes back.
    ///
    /// # Errors
    /// Where the bus does not take it; it stays to be sent.
    pub async fn send(self: &Arc<Self>, id: i64) -> Result<(), BusFault> {
        let _one_at_a_time = self.sending.lock().await;
        let signed = self.block(move |control| control.change(|transaction, now| sign_next(transaction, id, now)));
        let signed = signed.await.map_err(|no| BusFault(no.to_string()))?;
        if let Some((account, at)) = signed {
            self.authority.revoke(&account, at).await?;
        }
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        Ok(())
    }

    /// A rig's number.
    pub(super) fn number(&self, rig: &RigName) -> Result<i64, ControlNo> {
        self.change(|transaction, _| Ok(find(transaction, rig)?.id))
    }

    /// The account of a rig, for control's own rights in it.
    ///
    /// # Errors
    /// Where there is no such rig.
    pub fn account(&self, rig: &RigName) -> Result<Account, ControlNo> {
        self.change(|transaction, _| account_of(transaction, find(transaction, rig)?.id))
    }

    /// Sends it at once, if the bus is there; it is tried again later where it is not.
    async fn send_now(self: &Arc<Self>, id: i64) -> bool {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        let sent = self.send(id).await;
        self.changed();
        sent.map_err(|fault| warn!(%fault, "it is tried again until the bus takes it")).is_ok()
    }

    fn to_be_sent(&self, id: i64) {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Work that waits for the disk, off the thread that answers others.
    pub(super) async fn block<T: Send + 'static>(
        self: &Arc<Self>,
        how: impl FnOnce(&Control) -> Result<T, ControlNo> + Send + 'static,
    ) -> Result<T, ControlNo> {
        let control = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || how(&control)).await;
        done.unwrap_or_else(|_| Err(ControlNo::Failed("control is ending".to_owned())))
    }

    fn look(&self, rig: &RigName) -> Result<(Known, Vec<ProcessRow>), ControlNo> {
        self.change(|transaction, _| {
            let known = find(transaction, rig)?;
            let query = "SELECT name, key, boot, heard_ms, ends_s, barred_ms FROM runners WHERE rig = ?1 ORDER BY name";
            let processes = all(transaction, query, [known.id], |row| {
                let time = |at: usize| row.get::<_, Option<i64>>(at).map(|ms| ms.map(i64::cast_unsigned));
                let public_key: Option<String> = row.get(1)?;
                Ok(ProcessRow {
                    runner: row.get::<_, String>(0)?.parse().ok(),
                    pools: Vec::new(),
                    boot: row.get::<_, Option<String>>(2)?.and_then(|boot| boot.parse().ok()),
                    heard_ms: time(3)?,
                    rights_end_s: time(4)?.filter(|_| public_key.is_some()),
                    barred: time(5)?.is_some(),
                    public_key,
                })
            })?;
            Ok((known, processes))
        })
    }

    fn change<T>(&self, how: impl FnOnce(&Transaction<'_>, u64) -> Done<T>) -> Result<T, ControlNo> {
        self.store().change(|transaction| how(transaction, BootClock.wall_ms()))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A transaction that was not committed is rolled back.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name under which the core's key is kept: no runner's.
const CORE: &str = "";
/// Who took a step that a rig's core told of.
const BY_RIG: &str = "rig";
const LIVE_RIGS: &str = "SELECT count(*) FROM rigs WHERE removed_ms IS NULL";

fn rig_of(opens: &ControlToken) -> Option<&RigName> {
    match opens {
        ControlToken::Owner => None,
        ControlToken::Rig { rig } | ControlToken::Runner { rig, .. } => Some(rig),
    }
}

fn may_register(by: &By, rig: &RigName, runner: Option<&ProcessName>) -> Result<(), ControlNo> {
    let no = |why: String| Err(ControlNo::NotForThisToken { token: by.token.clone(), why });
    match &by.opens {
        ControlToken::Owner => Ok(()),
        ControlToken::Rig { rig: own } | ControlToken::Runner { rig: own, .. } if own != rig => {
            no(format!("it is rig {own}'s, and registers nothing of rig {rig}"))
        }
        ControlToken::Rig { .. } => Ok(()),
        ControlToken::Runner { runner: own, .. } if runner != Some(own) => {
            no(format!("it is runner {own}'s, and registers nothing else"))
        }
        ControlToken::Runner { .. } => Ok(()),
    }
}

fn find(connection: &Connection, rig: &RigName) -> Done<Known> {
    let query =
        "SELECT id, revision, taken, settings, made_ms, from_rig FROM rigs WHERE name = ?1 AND removed_ms IS NULL";
    let found = one(connection, query, [rig.as_str()], |row| {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        Ok((row.get(0)?, number(1)?, number(2)?, row.get::<_, String>(3)?, number(4)?, row.get(5)?))
    })?;
    let (id, revision, taken, settings, made_ms, from_rig) =
        found.ok_or_else(|| Cut::No(ControlNo::UnknownRig(rig.clone())))?;
    let settings = serde_json::from_str(&settings)
        .map_err(|cause| Cut::No(ControlNo::Failed(format!("the settings of rig {rig} cannot be read: {cause}"))))?;
    Ok(Known { id, settings: RigSettingsView { revision, taken, from_rig, settings }, made_ms })
}

fn process_of(connection: &Connection, rig: i64, name: &str) -> Done<Option<Process>> {
    let query = "SELECT key, boot, given_s, ends_s, barred_ms, since_ms FROM runners WHERE rig = ?1 AND name = ?2";
    Ok(one(connection, query, (rig, name), |row| {
        let second = |at: usize| row.get::<_, i64>(at).map(|at| Second(at.cast_unsigned()));
        Ok(Process {
            key: row.get(0)?,
            boot: row.get::<_, Option<String>>(1)?.and_then(|boot| boot.parse().ok()),
            since_ms: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
            given: second(2)?,
            ends: second(3)?,
            is_barred: row.get::<_, Option<i64>>(4)?.is_some(),
        })
    })?)
}

/// Gives rights to a process, where nothing speaks against it: from which second they count, and whether an older start is
/// to be cut.
fn give(
    transaction: &Transaction<'_>,
    id: i64,
    rig: &RigName,
    ask: &Register,
    by: &By,
    now_ms: u64,
) -> Done<(Second, bool)> {
    let (runner, key, now) = (ask.runner.as_ref(), ask.public_key.to_string(), Second(now_ms / 1_000));
    let name = runner.map_or(CORE, ProcessName::as_str);
    let no = |no: ControlNo| Err(Cut::No(no));
    let known = process_of(transaction, id, name)?;
    let barred = "SELECT name FROM barred_keys WHERE rig = ?1 AND key = ?2";
    let barred_key: Option<String> = one(transaction, barred, (id, &key), |row| row.get(0))?;
    if known.as_ref().is_some_and(|known| known.is_barred) {
        return no(ControlNo::Barred { rig: rig.clone(), who: called(runner) });
    }
    if barred_key.as_deref() == Some(CORE) {
        return no(ControlNo::CoreBarred { rig: rig.clone() });
    }
    if let Some(name) = barred_key {
        return no(ControlNo::Barred { rig: rig.clone(), who: format!("runner {name}, whose key this is,") });
    }
    let elsewhere = "SELECT name FROM runners WHERE rig = ?1 AND key = ?2 AND name <> ?3";
    if let Some(other) = one(transaction, elsewhere, (id, &key, name), |row| row.get::<_, String>(0))? {
        return no(ControlNo::KeyTaken { rig: rig.clone(), who: called(other.parse().ok().as_ref()) });
    }
    let mut is_replaced = false;
    match &known {
        Some(Process { key: Some(other), ends, since_ms, given, .. }) if *other != key => {
            if *ends > now {
                return no(ControlNo::NameTaken {
                    rig: rig.clone(),
                    runner: runner.cloned(),
                    key: other.clone(),
                    since_ms: since_ms.unwrap_or(given.0 * 1_000),
                    ends_in_s: ends.0 - now.0,
                });
            }
        }
        Some(Process { key: Some(_), boot: Some(boot), given, .. }) if *boot != ask.boot => {
            let earlier = "SELECT 1 FROM starts WHERE rig = ?1 AND name = ?2 AND boot = ?3";
            if one(transaction, earlier, (id, name, ask.boot.to_string()), |_| Ok(()))?.is_some() {
                return no(ControlNo::Replaced { rig: rig.clone(), who: called(runner) });
            }
            let replaced = "INSERT OR IGNORE INTO starts (rig, name, boot, wall_ms) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(replaced, (id, name, boot.to_string(), now_ms.cast_signed()))?;
            let long_ago = "DELETE FROM starts WHERE rig = ?1 AND name = ?2 AND boot NOT IN \
                 (SELECT boot FROM starts WHERE rig = ?1 AND name = ?2 ORDER BY wall_ms DESC LIMIT ?3)";
            transaction.execute(long_ago, (id, name, limits::STARTS_KEPT as i64))?;
            revoke(transaction, id, &key, *given)?;
            is_replaced = true;
        }
        Some(_) => {}
        None => {
            // Those that were removed are as many as the owner has removed.
            let count = "SELECT count(*) FROM runners WHERE rig = ?1 AND barred_ms IS NULL";
            let count: u32 = one(transaction, count, [id], |row| row.get(0))?.unwrap_or(0);
            if count as usize >= limits::RIG_PROCESSES_MAX {
                let most = limits::RIG_PROCESSES_MAX;
                return no(ControlNo::TooMany { what: "processes of this rig", most });
            }
        }
    }
    let revoked = "SELECT at_s FROM revocations WHERE rig = ?1 AND key = ?2";
    let revoked: Option<i64> = one(transaction, revoked, (id, &key), |row| row.get(0))?;
    let at = revoked.map_or(now, |revoked| Second(revoked.cast_unsigned()).next().max(now));
    let has_key_since = known.as_ref().filter(|known| known.key.as_ref() == Some(&key)).map(|known| known.since_ms);
    let since_ms = has_key_since.unwrap_or(Some(now_ms)).map(u64::cast_signed);
    let (boot, ends) = (ask.boot.to_string(), now.until().0.cast_signed());
    transaction.execute(
        "INSERT INTO runners (rig, name, key, boot, given_s, ends_s, heard_ms, since_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (rig, name) \
         DO UPDATE SET key = ?3, boot = ?4, given_s = ?5, ends_s = ?6, heard_ms = ?7, since_ms = ?8",
        (id, name, &key, boot, at.0.cast_signed(), ends, now_ms.cast_signed(), since_ms),
    )?;
    let is_renewal = known.is_some_and(|known| known.key.as_ref() == Some(&key) && known.boot == Some(ask.boot));
    if !is_renewal {
        let step = Step::Registered { runner: runner.cloned(), public_key: key, boot: ask.boot };
        keep(transaction, rig, by, now_ms, &step)?;
    }
    Ok((at, is_replaced))
}

/// Bars a runner's name, and its key where it has one, whose rights are taken back.
fn bar(transaction: &Transaction<'_>, id: i64, runner: &ProcessName, row: Option<&Process>, now_ms: u64) -> Done<()> {
    let now = Second(now_ms / 1_000);
    if let Some(Process { key: Some(key), given, .. }) = row {
        let barred = "INSERT OR REPLACE INTO barred_keys (rig, key, name) VALUES (?1, ?2, ?3)";
        transaction.execute(barred, (id, key, runner.as_str()))?;
        revoke(transaction, id, key, now.max(*given))?;
    }
    let seconds = now.0.cast_signed();
    transaction.execute(
        "INSERT INTO runners (rig, name, given_s, ends_s, barred_ms) VALUES (?1, ?2, ?3, ?3, ?4) \
         ON CONFLICT (rig, name) DO UPDATE SET ends_s = ?3, barred_ms = ?4",
        (id, runner.as_str(), seconds, now_ms.cast_signed()),
    )?;
    transaction.execute("DELETE FROM starts WHERE rig = ?1 AND name = ?2", (id, runner.as_str()))?;
    Ok(())
}

fn revoke(transaction: &Transaction<'_>, id: i64, key: &str, at: Second) -> Done<()> {
    transaction.execute(
        "INSERT INTO revocations (rig, key, at_s) VALUES (?1, ?2, ?3) \
         ON CONFLICT (rig, key) DO UPDATE SET at_s = max(at_s, ?3)",
        (id, key, at.0.cast_signed()),
    )?;
    Ok(())
}

/// The account as it is to be sent next, in a second after the last; none where the rig is long gone.
fn sign_next(transaction: &Transaction<'_>, id: i64, now_ms: u64) -> Done<Option<(Account, Second)>> {
    let now = now_ms / 1_000;
    // Rights from before it are over by themselves.
    let over = now.saturating_sub(
        limits::CREDENTIAL_VALID.as_millis() / 1_000 + limits::REVOKED_KEPT_FURTHER.as_millis() / 1_000,
    );
    transaction.execute("DELETE FROM revocations WHERE rig = ?1 AND at_s < ?2", (id, over.cast_signed()))?;
    let gone = "DELETE FROM rigs WHERE id = ?1 AND removed_ms < ?2";
    if transaction.execute(gone, (id, (over * 1_000).cast_signed()))? > 0 {
        return Ok(None);
    }
    let signed = "SELECT signed_s FROM rigs WHERE id = ?1";
    let Some(signed) = one(transaction, signed, [id], |row| row.get::<_, i64>(0))? else { return Ok(None) };
    let at = Second(signed.cast_unsigned()).next().max(Second(now));
    transaction.execute("UPDATE rigs SET signed_s = ?2 WHERE id = ?1", (id, at.0.cast_signed()))?;
    Ok(Some((account_of(transaction, id)?, at)))
}

fn account_of(connection: &Connection, id: i64) -> Done<Account> {
    let broken = |cause: String| Cut::No(ControlNo::Failed(format!("the account of a rig cannot be read: {cause}")));
    let query = "SELECT name, account, signing FROM rigs WHERE id = ?1";
    let row = one(connection, query, [id], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    let (name, key, signing) = row.ok_or_else(|| broken("it is gone".to_owned()))?;
    let rig = name.parse().map_err(|_| broken("its name".to_owned()))?;
    let [key, signing] = [key, signing].map(|seed| KeyPair::from_seed(&seed));
    let (key, signing) = (key.map_err(|e| broken(e.to_string()))?, signing.map_err(|e| broken(e.to_string()))?);
    let mut revocations = Revocations::default();
    let list = "SELECT key, at_s FROM revocations WHERE rig = ?1";
    for (key, at) in all(connection, list, [id], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))? {
        let at = Second(at.cast_unsigned());
        match key.parse::<UserKey>() {
            Ok(key) => revocations.add(&key, at),
            Err(_) => revocations.add_all(at),
        }
    }
    Ok(Account { rig, key, signing, revocations })
}

/// Who sets a rig's settings.
#[derive(Clone, Copy)]
enum Setter<'a> {
    /// Somebody at control.
    Control(&'a By),
    /// Somebody at the rig itself.
    Rig,
}

fn set_to(
    transaction: &Transaction<'_>,
    known: &Known,
    rig: &RigName,
    setter: Setter<'_>,
    now_ms: u64,
    settings: RigSettingsAsk,
) -> Done<RigSettingsView> {
    let revision = known.settings.revision + 1;
    let (by, from_rig) = match setter {
        Setter::Control(by) => (by.token.to_string(), false),
        Setter::Rig => (BY_RIG.to_owned(), true),
    };
    let update = "UPDATE rigs SET revision = ?2, settings = ?3, from_rig = ?4 WHERE id = ?1";
    transaction.execute(update, (known.id, revision.cast_signed(), json(&settings), from_rig))?;
    note(transaction, rig, &by, now_ms, &Step::SettingsSet { revision, settings: settings.clone() })?;
    Ok(RigSettingsView { revision, taken: known.settings.taken, from_rig, settings })
}

/// What a rig that has control's newest settings is set to, where that is something else.
fn set_there(known: &RigSettingsView, report: &Report) -> Option<RigSettingsAsk> {
    let has = report.has.as_ref().filter(|_| report.taken == known.revision)?;
    // Read as lists: what can be written in two ways is one.
    let list = runners::parse(&has.runners).ok()?;
    let gpus = known.settings.gpus.as_ref().map(|gpus| has.gpus.as_ref().unwrap_or(gpus).clone());
    if runners::parse(&known.settings.runners).is_ok_and(|set| set == list) && gpus == known.settings.gpus {
        return None;
    }
    Some(RigSettingsAsk { runners: has.runners.clone(), gpus, workers: known.settings.workers })
}

fn keep(transaction: &Transaction<'_>, rig: &RigName, by: &By, now_ms: u64, step: &Step) -> Done<()> {
    note(transaction, rig, &by.token.to_string(), now_ms, step)
}

fn note(transaction: &Transaction<'_>, rig: &RigName, by: &str, now_ms: u64, step: &Step) -> Done<()> {
    let insert = "INSERT INTO history (wall_ms, rig, by, body) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(insert, (now_ms.cast_signed(), rig.as_str(), by, json(step)))?;
    Ok(())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain values have JSON")
}
