//! The rights on the bus: what the bus's operator signs, as the NATS server reads it (JWTs signed with nkeys).
//!
//! The operator signs accounts, one a rig; an account's signing key signs its users: supervisors, the core, control
//! itself. A user is a key whose secret half never leaves its process. What is taken back is a list in the account: the
//! server refuses a key's rights that were given at or before the second listed there, and cuts who is connected by
//! them. Pure but for the luck in fresh keys; sending it to the bus is [`BusAuthority::revoke`].

use std::collections::BTreeMap;
use std::fmt;

use crate::bus::subjects::RigName;
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use futures_util::future::BoxFuture;
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha512_256};
use thermite_core::limits;
use thermite_core::wire::ProcessName;

pub mod memory;

/// A second of the wall clock, since 1970: what the bus reckons in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Second(pub u64);

impl Second {
    /// The one after.
    #[must_use]
    pub const fn next(self) -> Second {
        Second(self.0 + 1)
    }

    /// When rights given at this second end.
    #[must_use]
    pub const fn until(self) -> Second {
        Second(self.0 + limits::CREDENTIAL_VALID.as_millis() / 1_000)
    }
}

/// The public half of a user's key: `U` and 55 more of A-Z and 2-7.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^U[A-Z2-7]{55}$")]
#[serde(try_from = "String", into = "String")]
pub struct UserKey(String);

/// A text that is no user's public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no user's public key: U and 55 more of A-Z and 2-7, with their check sum")]
pub struct NoUserKey;

impl TryFrom<String> for UserKey {
    type Error = NoUserKey;

    fn try_from(text: String) -> Result<UserKey, NoUserKey> {
        let is_users = KeyPair::from_public_key(&text).is_ok_and(|key| key.key_pair_type() == KeyPairType::User);
        if is_users { Ok(UserKey(text)) } else { Err(NoUserKey) }
    }
}

impl std::str::FromStr for UserKey {
    type Err = NoUserKey;

    fn from_str(text: &str) -> Result<UserKey, NoUserKey> {
        UserKey::try_from(text.to_owned())
    }
}

impl From<UserKey> for String {
    fn from(key: UserKey) -> String {
        key.0
    }
}

impl fmt::Display for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a user may do on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// A supervisor's: its own subjects alone, and an answer to whoever asked there.
    Supervisor(ProcessName),
    /// The core's: all of its rig.
    Core,
    /// Control's in a rig's account: reports come in, settings go out.
    Control,
}

/// What an account no longer honours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    keys: BTreeMap<String, Second>,
}

impl Revocations {
    /// Takes back what `key` was given at or before `at`.
    pub fn add(&mut self, key: &UserKey, at: Second) {
        let last = self.keys.entry(key.0.clone()).or_insert(at);
        *last = (*last).max(at);
    }

    /// Takes back what all were given at or before `at`.
    pub fn add_all(&mut self, at: Second) {
        self.keys.insert("*".to_owned(), at);
    }

    /// From which second on it takes back what `key` was given; none where nothing is.
    pub fn of(&self, key: &UserKey) -> Option<Second> {
        self.keys.get(&key.0).max(self.keys.get("*")).copied()
    }
}

/// A rig's account: its name on the bus, the key that signs its users, what it takes back.
pub struct Account {
    /// What people call it.
    pub rig: RigName,
    /// Its own key.
    pub key: KeyPair,
    /// The key that signs its users.
    pub signing: KeyPair,
    /// What it no longer honours.
    pub revocations: Revocations,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("rig", &self.rig).field("key", &self.key.public_key()).finish_non_exhaustive()
    }
}

impl Account {
    /// A fresh one.
    pub fn new(rig: RigName) -> Account {
        let (key, signing) = (KeyPair::new_account(), KeyPair::new_account());
        Account { rig, key, signing, revocations: Revocations::default() }
    }

    /// The rights of `key` from `at` on, for [`limits::CREDENTIAL_VALID`] after `now`.
    ///
    /// `at` is a second after the newest one in which that key's rights were taken back.
    pub fn user(&self, key: &UserKey, rights: &Rights, at: Second, now: Second) -> Result<String, KeyFault> {
        let mut nats = rights.claims(&self.rig);
        nats["issuer_account"] = self.key.public_key().into();
        nats["type"] = "user".into();
        let claims = Claims { subject: &key.0, name: &self.rig.to_string(), at, until: Some(now.until()), nats };
        claims.signed_by(&self.signing)
    }
}

impl Rights {
    fn claims(&self, rig: &RigName) -> Value {
        let mut nats = json!({"subs": -1, "data": -1, "payload": -1, "version": 2});
        let (publish, subscribe) = match self {
            Rights::Supervisor(process) => {
                let answers = limits::BUS_ANSWER_MAX.as_millis() * 1_000_000;
                nats["resp"] = json!({"max": 1, "ttl": answers});
                (vec![rig.all_of(process)], vec![rig.all_of(process)])
            }
            Rights::Core => (vec![rig.all()], vec![rig.all(), "_INBOX.>".to_owned()]),
            Rights::Control => (vec![rig.settings()], vec![rig.report()]),
        };
        nats["pub"] = json!({"allow": publish});
        nats["sub"] = json!({"allow": subscribe});
        nats
    }
}

/// A key cannot be read or cannot sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of the bus cannot be used: {0}")]
pub struct KeyFault(pub String);

impl From<nkeys::error::Error> for KeyFault {
    fn from(cause: nkeys::error::Error) -> KeyFault {
        KeyFault(cause.to_string())
    }
}

/// The bus's operator: who signs accounts. Its seeds are control's best kept secret.
pub struct Operator {
    key: KeyPair,
    /// The account of the server's own subjects, through which accounts are sent to it.
    system: KeyPair,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("key", &self.key.public_key()).finish_non_exhaustive()
    }
}

impl Operator {
    /// A fresh one.
    pub fn new() -> Operator {
        Operator { key: KeyPair::new_operator(), system: KeyPair::new_account() }
    }

    /// The one of these seeds: the operator's, the system account's.
    ///
    /// # Errors
    /// Where one is none of its kind.
    pub fn of_seeds(operator: &str, system: &str) -> Result<Operator, KeyFault> {
        let of = |seed: &str, kind: KeyPairType, name: &str| {
            let key = KeyPair::from_seed(seed)?;
            if key.key_pair_type() == kind { Ok(key) } else { Err(KeyFault(format!("the seed is no {name}'s"))) }
        };
        Ok(Operator {
            key: of(operator, KeyPairType::Operator, "operator")?,
            system: of(system, KeyPairType::Account, "account")?,
        })
    }

    /// Its seeds: the operator's, the system account's.
    ///
    /// # Errors
    /// Never, for a key that can sign.
    pub fn seeds(&self) -> Result<(String, String), KeyFault> {
        Ok((self.key.seed()?, self.system.seed()?))
    }

    /// The system account's name.
    pub fn system_account(&self) -> String {
        self.system.public_key()
    }

    /// Itself, as the server's configuration has it.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn itself(&self, at: Second) -> Result<String, KeyFault> {
        let nats = json!({"type": "operator", "version": 2, "system_account": self.system.public_key()});
        let claims = Claims { subject: &self.key.public_key(), name: "thermite", at, until: None, nats };
        claims.signed_by(&self.key)
    }

    /// The system account, as the server's configuration has it.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn system(&self, at: Second) -> Result<String, KeyFault> {
        self.signed_account("SYS", &self.system, &[], &Revocations::default(), at)
    }

    /// A rig's account, with what it takes back.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn account(&self, account: &Account, at: Second) -> Result<String, KeyFault> {
        let signing = [account.signing.public_key()];
        self.signed_account(account.rig.as_str(), &account.key, &signing, &account.revocations, at)
    }

    /// The rights of control itself to send accounts to the server.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn system_user(&self, key: &UserKey, at: Second) -> Result<String, KeyFault> {
        let nats = json!({
            "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
            "pub": {"allow": ["$SYS.REQ.>"]}, "sub": {"allow": ["_INBOX.>"]},
        });
        Claims { subject: &key.0, name: "control", at, until: Some(at.until()), nats }.signed_by(&self.system)
    }

    fn signed_account(
        &self,
        name: &str,
        key: &KeyPair,
        signing: &[String],
        revocations: &Revocations,
        at: Second,
    ) -> Result<String, KeyFault> {
        let mut nats = json!({
            "limits": {
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
                "leaf": -1,
            },
            "type": "account", "version": 2,
        });
        if !signing.is_empty() {
            nats["signing_keys"] = json!(signing);
        }
        if !revocations.keys.is_empty() {
            nats["revocations"] = json!(revocations.keys);
        }
        Claims { subject: &key.public_key(), name, at, until: None, nats }.signed_by(&self.key)
    }
}

impl Default for Operator {
    fn default() -> Operator {
        Operator::new()
    }
}

/// What is signed.
struct Claims<'a> {
    subject: &'a str,
    name: &'a str,
    at: Second,
    until: Option<Second>,
    nats: Value,
}

impl Claims<'_> {
    fn signed_by(self, signer: &KeyPair) -> Result<String, KeyFault> {
        let mut claims = json!({
            "jti": "", "iat": self.at, "iss": signer.public_key(), "sub": self.subject, "name": self.name,
            "nats": self.nats,
        });
        if let Some(until) = self.until {
            claims["exp"] = json!(until);
        }
        // Its id is the hash of itself without one.
        claims["jti"] = BASE32_NOPAD.encode(&Sha512_256::digest(claims.to_string())).into();
        let header = json!({"typ": "JWT", "alg": "ed25519-nkey"}).to_string();
        let [header, claims] = [header, claims.to_string()].map(|part| BASE64URL_NOPAD.encode(part.as_bytes()));
        let signature = BASE64URL_NOPAD.encode(&signer.sign(format!("{header}.{claims}").as_bytes())?);
        Ok(format!("{header}.{claims}.{signature}"))
    }
}

/// The bus did not take what it was sent; nobody's fault, tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus does not take the account of its rig: {0}")]
pub struct BusFault(pub String);

/// Who gives and takes rights on the bus.
pub trait BusAuthority: Send + Sync {
    /// Admits `key` from `at` on: what it shows to the bus, good for [`limits::CREDENTIAL_VALID`] after `now`.
    ///
    /// # Errors
    /// Where the account's key cannot sign.
    fn admit(
        &self,
        account: &Account,
        key: &UserKey,
        rights: &Rights,
        at: Second,
        now: Second,
    ) -> Result<String, KeyFault>;

    /// Has the bus know `account` and hold to its revocations: whoever is connected by rights taken back is cut. Done
    /// again it is the same; what was sent later wins.
    fn revoke<'a>(&'a self, account: &'a Account, now: Second) -> BoxFuture<'a, Result<(), BusFault>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_may_use_its_own_subjects_and_no_others() {
        let account = Account::new("lab".parse().unwrap());
        let key = UserKey(KeyPair::new_user().public_key());
        let now = Second(1_800_000_000);

        let jwt = account.user(&key, &Rights::Supervisor("box-2".parse().unwrap()), now.next(), now).unwrap();

        let claims = claims_of(&jwt);
        assert_eq!(claims["sub"], key.to_string());
        assert_eq!(claims["iss"], account.signing.public_key());
        assert_eq!(claims["nats"]["issuer_account"], account.key.public_key());
        assert_eq!((claims["iat"].as_u64(), claims["exp"].as_u64()), (Some(1_800_000_001), Some(1_800_086_400)));
        for way in ["pub", "sub"] {
            assert_eq!(claims["nats"][way], json!({"allow": ["rig.lab.runner.box-2.>"]}), "{way}");
        }
        assert_eq!(claims["nats"]["resp"]["max"], 1);
    }

    #[test]
    fn what_is_signed_is_signed_by_whom_it_says() {
        let operator = Operator::new();
        let jwt = operator.account(&Account::new("lab".parse().unwrap()), Second(7)).unwrap();

        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        let issuer = KeyPair::from_public_key(claims_of(&jwt)["iss"].as_str().unwrap()).unwrap();

        issuer.verify(signed.as_bytes(), &signature).unwrap();
        assert_eq!(issuer.key_pair_type(), KeyPairType::Operator);
        assert!(issuer.verify(b"another", &signature).is_err());
    }

    #[test]
    fn a_revocation_never_goes_back_in_time_and_one_of_all_counts_for_each() {
        let [key, other] = [(); 2].map(|()| UserKey(KeyPair::new_user().public_key()));
        let mut revocations = Revocations::default();

        revocations.add(&key, Second(9));
        revocations.add(&key, Second(5));
        assert_eq!((revocations.of(&key), revocations.of(&other)), (Some(Second(9)), None));
        revocations.add_all(Second(7));

        assert_eq!((revocations.of(&key), revocations.of(&other)), (Some(Second(9)), Some(Second(7))));
    }

    #[test]
    fn only_a_users_public_key_is_one() {
        let user = KeyPair::new_user();
        let mut cut = user.public_key();
        cut.pop();
        for wrong in ["", "U", &user.seed().unwrap(), &KeyPair::new_account().public_key(), &cut, "../../etc"] {
            assert_eq!(wrong.parse::<UserKey>(), Err(NoUserKey), "{wrong}");
        }
        assert_eq!(user.public_key().parse::<UserKey>().unwrap().to_string(), user.public_key());
    }

    #[test]
    fn an_operators_seeds_are_its_own_again_and_no_others() {
        let operator = Operator::new();
        let (own, system) = operator.seeds().unwrap();

        assert_eq!(Operator::of_seeds(&own, &system).unwrap().system_account(), operator.system_account());
        assert!(Operator::of_seeds(&system, &own).is_err());
        assert!(Operator::of_seeds("", "").is_err());
    }

    fn claims_of(jwt: &str) -> Value {
        serde_json::from_slice(&BASE64URL_NOPAD.decode(jwt.split('.').nth(1).unwrap().as_bytes()).unwrap()).unwrap()
    }
}
