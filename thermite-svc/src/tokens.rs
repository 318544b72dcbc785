//! The owner's token: what opens the REST door.
//!
//! 32 random bytes behind the prefix `th_own_`. The token is in one file that only the owner may read, made once; the
//! database has its SHA-256 and a public id, which is all that logs ever show. The file is the truth: remove it (or
//! write another token of the same shape into it) and start the rig again, and the old token opens nothing.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::folder::{DataFolder, FolderFault, OWNER_TOKEN};
use crate::records::{self, OpenFault};

/// What an owner's token begins with.
pub const OWNER_PREFIX: &str = "th_own_";
const RANDOM_BYTES: usize = 32;
const KIND: &str = "owner";

/// Names a token in logs; says nothing of the token itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenId(String);

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

/// The tokens that open a rig's door.
pub struct Tokens {
    owner: Known,
    made: bool,
}

struct Known {
    id: TokenId,
    sha256: [u8; 32],
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
    /// The database did not take it.
    #[error(transparent)]
    Records(#[from] OpenFault),
    /// No random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(getrandom::Error),
}

impl Tokens {
    /// Reads the owner's token from its file, or makes it; the records of `folder` are there already.
    ///
    /// # Errors
    /// Where the file holds something else, or file or database cannot be had.
    pub fn open(folder: &DataFolder) -> Result<Tokens, TokenFault> {
        let file = folder.path().join(OWNER_TOKEN);
        let (token, made) = match fs::read_to_string(&file) {
            Ok(text) => (text.trim().to_owned(), false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (fresh()?, true),
            Err(source) => return Err(TokenFault::File { file, source }),
        };
        if !has_shape(&token) {
            return Err(TokenFault::Malformed { file });
        }
        if made {
            // Before the database knows it: a start that is cut off here goes on with the same token.
            folder.write_private(OWNER_TOKEN, format!("{token}\n").as_bytes())?;
        }
        let sha256 = digest(&token);
        // The id follows from the hash: the same token has the same name in all logs.
        let id = TokenId(format!("own-{}", hex(&sha256[..4])));
        let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let wall_ms = i64::try_from(wall_ms).unwrap_or(0);
        records::keep_only_token(folder.path(), KIND, &id.0, &sha256, wall_ms)?;
        Ok(Tokens { owner: Known { id, sha256 }, made })
    }

    /// Whether the token was made by this start, so that people are told where it is.
    pub fn made(&self) -> bool {
        self.made
    }

    /// The owner token's public name.
    pub fn owner(&self) -> &TokenId {
        &self.owner.id
    }

    /// The public name of the token that `given` is, where it is one.
    pub fn check(&self, given: &str) -> Option<&TokenId> {
        same(&digest(given), &self.owner.sha256).then_some(&self.owner.id)
    }
}

/// Compares without telling by its time where two hashes part.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differing = a.iter().zip(b).fold(0u8, |differing, (a, b)| std::hint::black_box(differing | (a ^ b)));
    std::hint::black_box(differing) == 0
}

fn fresh() -> Result<String, TokenFault> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(TokenFault::Random)?;
    Ok(format!("{OWNER_PREFIX}{}", hex(&bytes)))
}

fn has_shape(token: &str) -> bool {
    token
        .strip_prefix(OWNER_PREFIX)
        .is_some_and(|rest| rest.len() == 2 * RANDOM_BYTES && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
