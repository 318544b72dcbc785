//! Control's tokens: an owner's opens everything, a rig's and a runner's the registration of what they are for.
//!
//! Of the same make as a rig's own ([`crate::tokens`]): shown once, kept as a hash, named in logs by a public id, ended
//! at once. They are looked up in the store: they are asked a few times a day.

use std::str::FromStr as _;

use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use thermite_core::limits;
use thermite_core::wire::ProcessName;
use utoipa::ToSchema;

use super::no::ControlNo;
use super::store::{Cut, all, one};
use crate::bus::subjects::RigName;
use crate::tokens::{OWNER_PREFIX, TokenId, digest, fresh, has_shape};

/// What a rig's token begins with.
pub const RIG_PREFIX: &str = "th_rig_";
/// What a runner's token begins with.
pub const RUNNER_PREFIX: &str = "th_run_";

/// How far a token of control's opens its door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ControlToken {
    /// Everything.
    Owner,
    /// Registering that rig's core and its self-started runners; looking at the rig.
    Rig {
        /// The rig.
        rig: RigName,
    },
    /// Registering that runner.
    Runner {
        /// The rig.
        rig: RigName,
        /// The runner.
        runner: ProcessName,
    },
}

/// A token of control's as listings show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControlTokenRow {
    /// Its public name.
    pub token: TokenId,
    /// What it opens.
    #[serde(flatten)]
    pub opens: ControlToken,
    /// What its maker wrote beside it.
    pub note: String,
    /// Whether it is the one in the data folder's file.
    pub from_file: bool,
    /// When it was made: milliseconds since 1970.
    pub made_ms: u64,
    /// When it ends: milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// When it was last used: milliseconds since 1970, up to a minute late.
    pub used_ms: Option<u64>,
}

/// What a token is by its looks: what it opens, if anything, the store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenMake {
    /// An owner's.
    Owner,
    /// A rig's.
    Rig,
    /// A runner's.
    Runner,
    /// None of control's.
    Foreign,
}

impl TokenMake {
    fn of(given: &str) -> TokenMake {
        let makes =
            [(OWNER_PREFIX, TokenMake::Owner), (RIG_PREFIX, TokenMake::Rig), (RUNNER_PREFIX, TokenMake::Runner)];
        let found = makes.into_iter().find(|(prefix, _)| has_shape(given, prefix));
        found.map_or(TokenMake::Foreign, |(_, make)| make)
    }
}

/// Who asks control, by the token given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The token's public name.
    pub token: TokenId,
    /// What it opens.
    pub opens: ControlToken,
}

const COLUMNS: &str = "id, kind, rig, runner, note, from_file, made_ms, expires_ms, used_ms";

/// Who asks with the token `given`.
pub(super) fn check(connection: &Connection, given: &str, now_ms: u64) -> Result<By, Cut<ControlNo>> {
    let make = TokenMake::of(given);
    if make == TokenMake::Foreign {
        return Err(Cut::No(ControlNo::WrongToken(make)));
    }
    let query = format!("SELECT {COLUMNS} FROM tokens WHERE sha256 = ?1");
    let row = one(connection, &query, [digest(given).as_slice()], row)?.flatten();
    let ControlTokenRow { token, opens, expires_ms, used_ms, .. } = row.ok_or(Cut::No(ControlNo::WrongToken(make)))?;
    if expires_ms.is_some_and(|end| end <= now_ms) {
        return Err(Cut::No(ControlNo::ExpiredToken(token)));
    }
    let is_noted = now_ms.saturating_sub(used_ms.unwrap_or(0)) < limits::TOKEN_USE_NOTED_EVERY.as_millis();
    if !is_noted {
        // Coarse, and no reason to refuse: a disk that is full still lets look.
        let noted = connection
            .execute("UPDATE tokens SET used_ms = ?2 WHERE id = ?1", (token.to_string(), now_ms.cast_signed()));
        if let Err(cause) = noted {
            tracing::warn!(%token, %cause, "when the token was used cannot be kept");
        }
    }
    Ok(By { token, opens })
}

/// Makes a token; the secret is given out here and never again.
pub(super) fn make(
    connection: &Connection,
    opens: ControlToken,
    note: &str,
    valid_ms: Option<u64>,
    now_ms: u64,
) -> Result<(String, ControlTokenRow), Cut<ControlNo>> {
    let count: u32 = one(connection, "SELECT count(*) FROM tokens", (), |row| row.get(0))?.unwrap_or(0);
    if count as usize >= limits::TOKENS_MAX {
        return Err(Cut::No(ControlNo::TooMany { what: "tokens", most: limits::TOKENS_MAX }));
    }
    let prefix = match &opens {
        ControlToken::Owner => OWNER_PREFIX,
        ControlToken::Rig { .. } => RIG_PREFIX,
        ControlToken::Runner { .. } => RUNNER_PREFIX,
    };
    let secret = fresh(prefix).map_err(|cause| Cut::No(ControlNo::Failed(format!("no random bytes: {cause}"))))?;
    let expires_ms = valid_ms.map(|valid| now_ms + valid);
    let row = add(connection, &secret, opens, note, false, expires_ms, now_ms)?;
    Ok((secret, row))
}

/// Makes `secret` the owner's token of the data folder's file, and no other.
pub(super) fn keep_files(connection: &Connection, secret: &str, now_ms: u64) -> Result<TokenId, Cut<ControlNo>> {
    let sha256 = digest(secret);
    connection.execute("DELETE FROM tokens WHERE from_file = 1 AND sha256 <> ?1", [sha256.as_slice()])?;
    let query = format!("SELECT {COLUMNS} FROM tokens WHERE sha256 = ?1");
    if let Some(known) = one(connection, &query, [sha256.as_slice()], row)?.flatten() {
        return Ok(known.token);
    }
    Ok(add(connection, secret, ControlToken::Owner, "", true, None, now_ms)?.token)
}

fn add(
    connection: &Connection,
    secret: &str,
    opens: ControlToken,
    note: &str,
    from_file: bool,
    expires_ms: Option<u64>,
    now_ms: u64,
) -> rusqlite::Result<ControlTokenRow> {
    let sha256 = digest(secret);
    let (kind, rig, runner) = match &opens {
        ControlToken::Owner => ("own", None, None),
        ControlToken::Rig { rig } => ("rig", Some(rig.to_string()), None),
        ControlToken::Runner { rig, runner } => ("run", Some(rig.to_string()), Some(runner.to_string())),
    };
    let token = TokenId::of(kind, &sha256);
    connection.execute(
        "INSERT INTO tokens (id, kind, sha256, rig, runner, note, from_file, made_ms, expires_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        (
            token.to_string(),
            kind,
            sha256.as_slice(),
            rig,
            runner,
            note,
            from_file,
            now_ms.cast_signed(),
            expires_ms.map(u64::cast_signed),
        ),
    )?;
    let note = note.to_owned();
    Ok(ControlTokenRow { token, opens, note, from_file, made_ms: now_ms, expires_ms, used_ms: None })
}

/// All tokens by name.
pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<ControlTokenRow>> {
    let rows = all(connection, &format!("SELECT {COLUMNS} FROM tokens ORDER BY id"), (), row)?;
    Ok(rows.into_iter().flatten().collect())
}

/// Ends a token at once.
pub(super) fn revoke(connection: &Connection, token: &TokenId) -> Result<ControlTokenRow, Cut<ControlNo>> {
    let query = format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
    let known = one(connection, &query, [token.to_string()], row)?.flatten();
    let known = known.ok_or_else(|| Cut::No(ControlNo::UnknownToken(token.clone())))?;
    if known.from_file {
        return Err(Cut::No(ControlNo::TokenOfTheFile(token.clone())));
    }
    connection.execute("DELETE FROM tokens WHERE id = ?1", [token.to_string()])?;
    Ok(known)
}

/// Ends a runner's own tokens; how many there were.
pub(super) fn end_runners(connection: &Connection, rig: &RigName, runner: &ProcessName) -> rusqlite::Result<usize> {
    let of = "DELETE FROM tokens WHERE kind = 'run' AND rig = ?1 AND runner = ?2";
    connection.execute(of, (rig.as_str(), runner.as_str()))
}

/// Ends all tokens of a rig and its runners.
pub(super) fn end_rigs(connection: &Connection, rig: &RigName) -> rusqlite::Result<usize> {
    connection.execute("DELETE FROM tokens WHERE rig = ?1", [rig.as_str()])
}

/// A row; none where it is of a kind that this program does not know.
fn row(row: &Row<'_>) -> rusqlite::Result<Option<ControlTokenRow>> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|ms| ms.map(i64::cast_unsigned));
    let (kind, rig, runner) = (row.get::<_, String>(1)?, text(2)?, text(3)?);
    let rig = rig.and_then(|rig| RigName::from_str(&rig).ok());
    let runner = runner.and_then(|runner| ProcessName::from_str(&runner).ok());
    let opens = match (kind.as_str(), rig, runner) {
        ("own", ..) => ControlToken::Owner,
        ("rig", Some(rig), _) => ControlToken::Rig { rig },
        ("run", Some(rig), Some(runner)) => ControlToken::Runner { rig, runner },
        _ => return Ok(None),
    };
    let Ok(token) = row.get::<_, String>(0)?.parse() else { return Ok(None) };
    Ok(Some(ControlTokenRow {
        token,
        opens,
        note: row.get(4)?,
        from_file: row.get(5)?,
        made_ms: time(6)?.unwrap_or(0),
        expires_ms: time(7)?,
        used_ms: time(8)?,
    }))
}
