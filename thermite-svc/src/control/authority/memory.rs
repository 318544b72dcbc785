//! An authority without a bus, for tests: it says who may still speak.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::{Account, BusAuthority, BusFault, KeyFault, Revocations, Rights, Second, UserKey};

/// Who was given which rights, and what each account took back, as a bus would know it.
#[derive(Debug, Default)]
pub struct MemoryAuthority {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    given: Vec<(String, UserKey, Rights, Second)>,
    accounts: BTreeMap<String, Revocations>,
    times: usize,
    is_away: bool,
}

impl MemoryAuthority {
    /// The rights by which `key` may speak in the account of `rig`.
    pub fn rights(&self, rig: &str, key: &UserKey) -> Vec<Rights> {
        let told = self.told();
        let revoked = told.accounts.get(rig).and_then(|revocations| revocations.of(key));
        let own = told.given.iter().filter(|(of, given, ..)| of == rig && given == key);
        own.filter(|(.., at)| revoked.is_none_or(|revoked| *at > revoked))
            .map(|(_, _, rights, _)| rights.clone())
            .collect()
    }

    /// How often an account was sent to the bus.
    pub fn times(&self) -> usize {
        self.told().times
    }

    /// Whether the bus is away: it takes nothing then.
    pub fn set_away(&self, is_away: bool) {
        self.told().is_away = is_away;
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BusAuthority for MemoryAuthority {
    fn admit(
        &self,
        account: &Account,
        key: &UserKey,
        rights: &Rights,
        at: Second,
        now: Second,
    ) -> Result<String, KeyFault> {
        self.told().given.push((account.rig.to_string(), key.clone(), rights.clone(), at));
        account.user(key, rights, at, now)
    }

    fn revoke<'a>(&'a self, account: &'a Account, _now: Second) -> BoxFuture<'a, Result<(), BusFault>> {
        let mut told = self.told();
        let sent = if told.is_away {
            Err(BusFault("it is away".to_owned()))
        } else {
            told.times += 1;
            told.accounts.insert(account.rig.to_string(), account.revocations.clone());
            Ok(())
        };
        Box::pin(std::future::ready(sent))
    }
}
