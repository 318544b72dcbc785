//! What control keeps of rigs and their processes, row by row: what is found, given, barred, taken back, set and noted
//! within one transaction.

use nkeys::KeyPair;
use rusqlite::{Connection, Transaction};
use thermite_core::limits;
use thermite_core::runners;
use thermite_core::wire::ProcessName;
use uuid::Uuid;

use super::super::authority::{Account, Revocations, Second, UserKey};
use super::super::no::ControlNo;
use super::super::store::{Cut, all, one};
use super::super::tokens::{By, ControlToken};
use super::super::words::{Register, Report, RigSettingsAsk, RigSettingsView, Step, called};
use crate::bus::subjects::RigName;

/// A rig's row.
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) settings: RigSettingsView,
    pub(super) made_ms: u64,
}

/// A registered process's row.
pub(super) struct Process {
    pub(super) key: Option<String>,
    pub(super) boot: Option<Uuid>,
    /// When its key was registered; none where that was not kept yet.
    pub(super) since_ms: Option<u64>,
    pub(super) given: Second,
    pub(super) ends: Second,
    pub(super) is_barred: bool,
}

pub(super) type Done<T> = Result<T, Cut<ControlNo>>;

/// The name under which the core's key is kept: no runner's.
pub(super) const CORE: &str = "";
/// Who took a step that a rig's core told of.
pub(super) const BY_RIG: &str = "rig";
pub(super) const LIVE_RIGS: &str = "SELECT count(*) FROM rigs WHERE removed_ms IS NULL";

pub(super) fn rig_of(opens: &ControlToken) -> Option<&RigName> {
    match opens {
        ControlToken::Owner => None,
        ControlToken::Rig { rig } | ControlToken::Runner { rig, .. } => Some(rig),
    }
}

pub(super) fn may_register(by: &By, rig: &RigName, runner: Option<&ProcessName>) -> Result<(), ControlNo> {
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

pub(super) fn find(connection: &Connection, rig: &RigName) -> Done<Known> {
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

pub(super) fn process_of(connection: &Connection, rig: i64, name: &str) -> Done<Option<Process>> {
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
pub(super) fn give(
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
pub(super) fn bar(
    transaction: &Transaction<'_>,
    id: i64,
    runner: &ProcessName,
    row: Option<&Process>,
    now_ms: u64,
) -> Done<()> {
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

pub(super) fn revoke(transaction: &Transaction<'_>, id: i64, key: &str, at: Second) -> Done<()> {
    transaction.execute(
        "INSERT INTO revocations (rig, key, at_s) VALUES (?1, ?2, ?3) \
         ON CONFLICT (rig, key) DO UPDATE SET at_s = max(at_s, ?3)",
        (id, key, at.0.cast_signed()),
    )?;
    Ok(())
}

/// The account as it is to be sent next, in a second after the last; none where the rig is long gone.
pub(super) fn sign_next(transaction: &Transaction<'_>, id: i64, now_ms: u64) -> Done<Option<(Account, Second)>> {
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

pub(super) fn account_of(connection: &Connection, id: i64) -> Done<Account> {
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
pub(super) enum Setter<'a> {
    /// Somebody at control.
    Control(&'a By),
    /// Somebody at the rig itself.
    Rig,
}

pub(super) fn set_to(
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
pub(super) fn set_there(known: &RigSettingsView, report: &Report) -> Option<RigSettingsAsk> {
    let has = report.has.as_ref().filter(|_| report.taken == known.revision)?;
    // Read as lists: what can be written in two ways is one.
    let list = runners::parse(&has.runners).ok()?;
    let gpus = known.settings.gpus.as_ref().map(|gpus| has.gpus.as_ref().unwrap_or(gpus).clone());
    if runners::parse(&known.settings.runners).is_ok_and(|set| set == list) && gpus == known.settings.gpus {
        return None;
    }
    Some(RigSettingsAsk { runners: has.runners.clone(), gpus, workers: known.settings.workers })
}

pub(super) fn keep(transaction: &Transaction<'_>, rig: &RigName, by: &By, now_ms: u64, step: &Step) -> Done<()> {
    note(transaction, rig, &by.token.to_string(), now_ms, step)
}

pub(super) fn note(transaction: &Transaction<'_>, rig: &RigName, by: &str, now_ms: u64, step: &Step) -> Done<()> {
    let insert = "INSERT INTO history (wall_ms, rig, by, body) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(insert, (now_ms.cast_signed(), rig.as_str(), by, json(step)))?;
    Ok(())
}

pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain values have JSON")
}
