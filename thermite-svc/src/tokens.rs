//! Tokens: what opens the REST door, and how far.
//!
//! A token is 32 random bytes in hexadecimal digits behind the prefix of its kind. It is shown once, when it is made; the
//! database has its SHA-256 and a public id, which is all that logs and listings ever show. An owner's token opens
//! everything; a lane's what that lane does itself (`server::access`).
//!
//! The first owner's token is in one file that only the owner may read, made once. That file is the truth: remove it (or
//! write another token of the same shape into it) and start the rig again, and the old token opens nothing. All others
//! are made, listed, rotated and revoked through the door of the running rig.
//!
//! A given token is looked up by its hash. What such a look-up tells by its time are bits of the hash of what was given,
//! from which nobody gets nearer to a token.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thermite_actors::host::clock::BootClock;
use thermite_actors::host::hex;
use thermite_actors::ports::Clock;
use thermite_actors::ports::RecordsFault;
use thermite_core::ids::{LaneId, RunId};
use thermite_core::limits;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::folder::{DataFolder, FolderFault, OWNER_TOKEN};
use crate::records::{OpenFault, TokenRecord, TokenTable};

/// What an owner's token begins with.
pub const OWNER_PREFIX: &str = "th_own_";
/// What a lane's token begins with.
pub const LANE_PREFIX: &str = "th_lane_";
const RANDOM_BYTES: usize = 32;

/// Names a token in logs and listings; says nothing of the token itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^(own|lane|rig|run)-[0-9a-f]{8,16}$", example = "lane-0123456789abcdef")]
#[serde(transparent)]
pub struct TokenId(String);

impl TokenId {
    /// The name of the token of that hash: the same token has the same name everywhere.
    pub(crate) fn of(kind: &str, sha256: &[u8; 32]) -> TokenId {
        TokenId(format!("{kind}-{}", hex(&sha256[..8])))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for TokenId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<TokenId, Self::Err> {
        let kinds = ["own-", "lane-", "rig-", "run-"];
        let hash = kinds.into_iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or_default();
        let fits = (8..=16).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if fits {
            Ok(TokenId(text.to_owned()))
        } else {
            Err("it is spelt as the list of tokens shows it, such as own-0123456789abcdef")
        }
    }
}

/// How far a token opens the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TokenKind {
    /// Everything.
    Owner,
    /// What a lane does itself.
    Lane {
        /// The lane.
        lane: LaneId,
        /// The run; none: that lane of every run.
        run: Option<RunId>,
    },
}

/// A token as listings show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenRow {
    /// Its public name.
    pub token: TokenId,
    /// How far it opens the door.
    #[serde(flatten)]
    pub kind: TokenKind,
    /// What its maker wrote beside it.
    pub note: String,
    /// Whether it is the one in the data folder's file, which ends with that file.
    pub from_file: bool,
    /// When it was made: milliseconds since 1970.
    pub made_ms: u64,
    /// When it ends: milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// When it was last used: milliseconds since 1970, up to a minute late.
    pub used_ms: Option<u64>,
}

/// Who asks, by the token that was given.
#[derive(Clone, Debug)]
pub struct Access {
    /// The token.
    pub token: TokenId,
    /// How far it opens the door.
    pub kind: TokenKind,
    life: watch::Receiver<Life>,
}

/// Why a given token opens nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAccess {
    /// It is none of this rig's, or was revoked.
    Unknown,
    /// It has ended.
    Expired(TokenId),
}

/// Something cannot be done with a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenNo {
    /// There is none of that name.
    #[error("token {0} does not exist")]
    Unknown(TokenId),
    /// It is the data folder's file's.
    #[error(
        "token {0} is the one in the data folder's file {OWNER_TOKEN}; remove that file and start the rig again, and it \
         opens nothing"
    )]
    FromFile(TokenId),
    /// Too many.
    #[error("{most} tokens are there already; revoke one first", most = limits::TOKENS_MAX)]
    Full,
    /// Infrastructure.
    #[error("the operating system gave no random bytes: {0}")]
    Random(String),
    /// The database did not take it.
    #[error(transparent)]
    Records(#[from] RecordsFault),
}

/// A token that was made: the only time it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Made {
    /// The token.
    pub secret: String,
    /// What listings show of it.
    pub row: TokenRow,
}

/// The tokens that open a rig's door. May be shared by threads.
pub struct Tokens {
    known: RwLock<BTreeMap<[u8; 32], Arc<Known>>>,
    table: Arc<Mutex<TokenTable>>,
    owner: TokenId,
    made: bool,
}

struct Known {
    id: TokenId,
    kind: TokenKind,
    note: String,
    from_file: bool,
    made_ms: u64,
    /// 0 where it was not used yet.
    used_ms: AtomicU64,
    life: watch::Sender<Life>,
}

#[derive(Clone, Copy, Debug)]
enum Life {
    Revoked,
    Until(Option<u64>),
}

/// The token cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// The file holds something else.
    #[error(
        "{} does not hold an owner's token ({OWNER_PREFIX} and 64 hexadecimal digits); remove it, and the next start \
         makes a new one",
        file.display()
    )]
    Malformed {
        /// The file.
        file: PathBuf,
    },
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderFault),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenFault),
    /// The database did not take it.
    #[error("{}", .0.0)]
    Records(RecordsFault),
    /// No random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(getrandom::Error),
}

impl Tokens {
    /// Reads the owner's token from its file, or makes it, and all others from the records of `folder`, which are there
    /// already.
    ///
    /// # Errors
    /// Where the file holds something else, or file or database cannot be had.
    pub fn open(folder: &DataFolder) -> Result<Tokens, TokenFault> {
        let file = folder.path().join(OWNER_TOKEN);
        let (token, made) = match fs::read_to_string(&file) {
            Ok(text) => (text.trim().to_owned(), false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (fresh(OWNER_PREFIX).map_err(TokenFault::Random)?, true)
            }
            Err(source) => return Err(TokenFault::File { file, source }),
        };
        if !has_shape(&token, OWNER_PREFIX) {
            return Err(TokenFault::Malformed { file });
        }
        if made {
            // Before the database knows it: a start that is cut off here goes on with the same token.
            folder.write_private(OWNER_TOKEN, format!("{token}\n").as_bytes())?;
        }
        let sha256 = digest(&token);
        // The id follows from the hash: the same token has the same name in all logs.
        let owner = TokenId(format!("own-{}", hex(&sha256[..4])));
        let mut table = TokenTable::open(folder.path())?;
        let owners = Known::new(owner.clone(), TokenKind::Owner, String::new(), None);
        table
            .keep_files(&Known { from_file: true, ..owners }.record(&sha256), BootClock.wall_ms())
            .map_err(TokenFault::Records)?;
        let known = table.all().map_err(TokenFault::Records)?.into_iter().filter_map(Known::of).collect();
        Ok(Tokens { known: RwLock::new(known), table: Arc::new(Mutex::new(table)), owner, made })
    }

    /// Whether the owner's first token was made by this start, so that people are told where it is.
    pub fn made(&self) -> bool {
        self.made
    }

    /// The public name of the token in the data folder's file.
    pub fn owner(&self) -> &TokenId {
        &self.owner
    }

    /// Who asks with the token `given`. When it was used is kept where a runtime is there to write it.
    ///
    /// # Errors
    /// Where it opens nothing.
    pub fn check(&self, given: &str) -> Result<Access, NoAccess> {
        if !has_shape(given, OWNER_PREFIX) && !has_shape(given, LANE_PREFIX) {
            return Err(NoAccess::Unknown);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&digest(given)).cloned();
        let known = known.ok_or(NoAccess::Unknown)?;
        let now = BootClock.wall_ms();
        match *known.life.borrow() {
            Life::Revoked => return Err(NoAccess::Unknown),
            Life::Until(Some(end)) if end <= now => return Err(NoAccess::Expired(known.id.clone())),
            Life::Until(_) => {}
        }
        self.note_use(&known, now);
        Ok(Access { token: known.id.clone(), kind: known.kind, life: known.life.subscribe() })
    }

    /// All tokens by name, those after `after`, at most `most`.
    pub fn list(&self, after: Option<&TokenId>, most: usize) -> Vec<TokenRow> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<_> = known.values().filter(|known| after.is_none_or(|after| known.id > *after)).collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows.into_iter().take(most).map(|known| known.row()).collect()
    }

    /// One token.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn one(&self, id: &TokenId) -> Result<TokenRow, TokenNo> {
        self.find(id).map(|(_, known)| known.row())
    }

    /// Makes a token, valid for `valid` where that is given. Waits for the disk.
    ///
    /// # Errors
    /// Where there are too many, or the database does not take it.
    pub fn make(&self, kind: TokenKind, note: String, valid: Option<Duration>) -> Result<Made, TokenNo> {
        let table = self.table();
        let (secret, sha256, known) = self.fresh(kind, note, valid)?;
        table.add(&known.record(&sha256))?;
        info!(token = %known.id, kind = ?known.kind, "a token was made");
        Ok(self.insert(secret, sha256, known))
    }

    /// Makes another token in `id`'s place, which is valid for `overlap` more. Waits for the disk.
    ///
    /// # Errors
    /// Where there is none of that name, or it is the file's.
    pub fn rotate(&self, id: &TokenId, overlap: Duration) -> Result<Made, TokenNo> {
        let mut table = self.table();
        let (_, old) = self.find(id)?;
        if old.from_file {
            return Err(TokenNo::FromFile(id.clone()));
        }
        let valid = old.expires_ms().map(|end| Duration::from_millis(end.saturating_sub(old.made_ms)));
        let (secret, sha256, known) = self.fresh(old.kind, old.note.clone(), valid)?;
        let end = BootClock.wall_ms() + u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX / 2);
        let end = old.expires_ms().map_or(end, |before| before.min(end));
        table.replace(&id.0, end, &known.record(&sha256))?;
        old.life.send_replace(Life::Until(Some(end)));
        info!(token = %known.id, old = %id, "a token was rotated");
        Ok(self.insert(secret, sha256, known))
    }

    /// Ends a token: nothing more is opened by it, and what it has open is closed. Waits for the disk.
    ///
    /// # Errors
    /// Where there is none of that name, or it is the file's.
    pub fn revoke(&self, id: &TokenId) -> Result<(), TokenNo> {
        let table = self.table();
        let (sha256, known) = self.find(id)?;
        if known.from_file {
            return Err(TokenNo::FromFile(id.clone()));
        }
        table.remove(&id.0)?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&sha256);
        known.life.send_replace(Life::Revoked);
        info!(token = %id, "a token was revoked");
        Ok(())
    }

    fn fresh(
        &self,
        kind: TokenKind,
        note: String,
        valid: Option<Duration>,
    ) -> Result<(String, [u8; 32], Known), TokenNo> {
        if self.known.read().unwrap_or_else(PoisonError::into_inner).len() >= limits::TOKENS_MAX {
            return Err(TokenNo::Full);
        }
        let (prefix, name) = match kind {
            TokenKind::Owner => (OWNER_PREFIX, "own"),
            TokenKind::Lane { .. } => (LANE_PREFIX, "lane"),
        };
        let secret = fresh(prefix).map_err(|cause| TokenNo::Random(cause.to_string()))?;
        let sha256 = digest(&secret);
        let end = valid.map(|valid| BootClock.wall_ms() + u64::try_from(valid.as_millis()).unwrap_or(u64::MAX / 2));
        let known = Known::new(TokenId(format!("{name}-{}", hex(&sha256[..8]))), kind, note, end);
        Ok((secret, sha256, known))
    }

    fn insert(&self, secret: String, sha256: [u8; 32], known: Known) -> Made {
        let row = known.row();
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(sha256, Arc::new(known));
        Made { secret, row }
    }

    fn find(&self, id: &TokenId) -> Result<([u8; 32], Arc<Known>), TokenNo> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(_, known)| known.id == *id);
        found.map(|(sha256, known)| (*sha256, Arc::clone(known))).ok_or_else(|| TokenNo::Unknown(id.clone()))
    }

    fn table(&self) -> MutexGuard<'_, TokenTable> {
        // A transaction that was not committed is rolled back.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kept to the minute, so that a busy token costs the disk next to nothing; written by whoever comes first, beside
    /// the answer and not before it.
    fn note_use(&self, known: &Known, now: u64) {
        let used = known.used_ms.load(Ordering::Relaxed);
        let is_noted = now.saturating_sub(used) < limits::TOKEN_USE_NOTED_EVERY.as_millis();
        if is_noted || known.used_ms.compare_exchange(used, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (table, id) = (Arc::clone(&self.table), known.id.clone());
        runtime.spawn_blocking(move || {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(fault) = table.used(&id.0, now) {
                warn!(token = %id, %fault, "when the token was used cannot be kept");
            }
        });
    }
}

impl Known {
    fn new(id: TokenId, kind: TokenKind, note: String, expires_ms: Option<u64>) -> Known {
        let life = watch::Sender::new(Life::Until(expires_ms));
        Known { id, kind, note, from_file: false, made_ms: BootClock.wall_ms(), used_ms: AtomicU64::new(0), life }
    }

    /// What the table has of a token; none where it is of a kind that this program does not know.
    fn of(record: TokenRecord) -> Option<([u8; 32], Arc<Known>)> {
        let kind = match (record.kind.as_str(), record.lane) {
            ("owner", _) => TokenKind::Owner,
            ("lane", Some(lane)) => {
                let run = record.run.map(|run| run.parse()).transpose().ok()?;
                TokenKind::Lane { lane: LaneId::new(lane).ok()?, run }
            }
            _ => return None,
        };
        let sha256 = record.sha256.try_into().ok()?;
        let life = watch::Sender::new(Life::Until(record.expires_ms));
        let known = Known {
            id: TokenId(record.id),
            kind,
            note: record.note,
            from_file: record.from_file,
            made_ms: record.made_ms,
            used_ms: AtomicU64::new(record.used_ms.unwrap_or(0)),
            life,
        };
        Some((sha256, Arc::new(known)))
    }

    fn record(&self, sha256: &[u8; 32]) -> TokenRecord {
        let (kind, lane, run) = match self.kind {
            TokenKind::Owner => ("owner", None, None),
            TokenKind::Lane { lane, run } => ("lane", Some(lane.number()), run.map(|run| run.to_string())),
        };
        TokenRecord {
            id: self.id.0.clone(),
            kind: kind.to_owned(),
            sha256: sha256.to_vec(),
            made_ms: self.made_ms,
            from_file: self.from_file,
            lane,
            run,
            note: self.note.clone(),
            expires_ms: self.expires_ms(),
            used_ms: None,
        }
    }

    fn expires_ms(&self) -> Option<u64> {
        match *self.life.borrow() {
            Life::Revoked => Some(0),
            Life::Until(end) => end,
        }
    }

    fn row(&self) -> TokenRow {
        TokenRow {
            token: self.id.clone(),
            kind: self.kind,
            note: self.note.clone(),
            from_file: self.from_file,
            made_ms: self.made_ms,
            expires_ms: self.expires_ms(),
            used_ms: Some(self.used_ms.load(Ordering::Relaxed)).filter(|used| *used > 0),
        }
    }
}

impl Access {
    /// Waits until the token opens nothing any more; for what stays open.
    pub async fn gone(mut self) {
        loop {
            let left = match *self.life.borrow_and_update() {
                Life::Revoked => return,
                Life::Until(None) => None,
                Life::Until(Some(end)) => match end.saturating_sub(BootClock.wall_ms()) {
                    0 => return,
                    left => Some(Duration::from_millis(left)),
                },
            };
            // The wall clock may be set meanwhile: looked at again before long.
            let look_again = left.map_or(limits::TOKEN_USE_NOTED_EVERY.to_std(), |left| {
                left.min(limits::TOKEN_USE_NOTED_EVERY.to_std())
            });
            tokio::select! {
                changed = self.life.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(look_again) => {}
            }
        }
    }
}

pub(crate) fn fresh(prefix: &str) -> Result<String, getrandom::Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{prefix}{}", hex(&bytes)))
}

pub(crate) fn has_shape(token: &str, prefix: &str) -> bool {
    token
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 2 * RANDOM_BYTES && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(crate) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
