//! Control itself: rigs, who may register what, what was taken back, settings by revision. REST and the bus are doors to
//! this; every change is on the disk before it is answered.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nkeys::KeyPair;
use rusqlite::Transaction;
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock as _;
use thermite_core::ids::LANE_MAX;
use thermite_core::limits;
use thermite_core::runners;
use thermite_core::wire::ProcessName;
use tokio::sync::{Mutex as Turn, watch};
use tracing::{info, warn};

use super::authority::{self, Account, BusAuthority, BusFault, Second};
use super::no::ControlNo;
use super::store::{Cut, Store, all, one};
use super::tokens::{self, By, ControlToken, ControlTokenRow, TokenMake};
use super::words::{
    ControlTokenMade, HistoryRow, ProcessRow, Register, Removed, Report, RigMade, RigRow, RigSettingsAsk,
    RigSettingsView, Rights, Step,
};
use crate::bus::subjects::RigName;
use crate::tokens::TokenId;

use rows::{
    BY_RIG, CORE, Done, Known, LIVE_RIGS, Process, Setter, account_of, bar, find, give, json, keep, may_register, note,
    process_of, revoke, rig_of, set_there, set_to, sign_next,
};

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
