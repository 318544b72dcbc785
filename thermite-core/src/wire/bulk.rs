//! What a core and its runners say about commits, on a connection of its own: small asks never wait behind these.
//!
//! A transfer is a git bundle named by the SHA-256 of its bytes. The runner holds its first `length` bytes and takes
//! nothing beyond them, so that whatever is lost, doubled, late or out of order is only a chunk to be sent again, and
//! either end may start anew in between. Nothing of a transfer is used before all of it has that hash and git itself has
//! checked what is in it. How many bytes and commits are said at once is bounded in [`crate::limits`].

use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::{ContentHash, RunId};
use crate::limits;

/// What the core asks of a runner process about commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkAsk {
    /// Which of these commits are missing there? Those that are there are kept for the run from here on.
    Tips {
        /// The run that needs them.
        run: RunId,
        /// The commits, in full; at most [`limits::BULK_COMMITS_MAX`].
        wanted: Vec<String>,
    },
    /// Bytes of a transfer; none at all only ask how far it is.
    Put {
        /// The SHA-256 of all its bytes.
        transfer: ContentHash,
        /// How many bytes it has in all.
        total: u64,
        /// Where these begin.
        from: u64,
        /// At most [`limits::BULK_CHUNK_BYTES_MAX`].
        bytes: Chunk,
    },
    /// All of it is there: check it, bring what is in it into the store, and keep its commits for the run.
    Take {
        /// The SHA-256 of all its bytes.
        transfer: ContentHash,
        /// How many bytes it has in all.
        total: u64,
        /// The run that needs it.
        run: RunId,
        /// The commits it brings.
        commits: Vec<String>,
        /// Those of them whose history ends there: stores of commits are shallow.
        cut: Vec<String>,
    },
    /// The runs that are not over: what is kept for others may go.
    Runs {
        /// Those.
        live: Vec<RunId>,
    },
}

/// What a runner process answers about commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkAnswer {
    /// To [`BulkAsk::Tips`].
    Tips {
        /// Those that are not there.
        missing: Vec<String>,
        /// Commits that are, the newest first, for a bundle to build on; at most [`limits::BULK_TIPS_MAX`].
        tips: Vec<String>,
    },
    /// To [`BulkAsk::Put`]: the transfer's first bytes that are there.
    Stored {
        /// How many.
        length: u64,
    },
    /// To [`BulkAsk::Take`]: it is still at it; ask again.
    Taking,
    /// To [`BulkAsk::Take`]: the commits are in the store.
    Taken,
    /// To [`BulkAsk::Runs`].
    Noted,
    /// It is not done, and why.
    No(BulkNo),
}

/// Why a runner does not take commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BulkNo {
    /// The bundle builds on commits that are not there: send all of it.
    #[error("the bundle builds on what is not there: {said}")]
    MissingBase {
        /// What git said.
        said: String,
    },
    /// The bytes are not those that the transfer is named by; they are thrown away.
    #[error("the bytes of transfer {expected} have the hash {found}")]
    WrongHash {
        /// The transfer's name.
        expected: ContentHash,
        /// What the bytes have.
        found: ContentHash,
    },
    /// It is not all there yet.
    #[error("{length} of {total} bytes are there")]
    NotWhole {
        /// How many are.
        length: u64,
        /// How many there should be.
        total: u64,
    },
    /// More than a runner takes: of one chunk, of one transfer, or of commits at once.
    #[error("{what} of {size}, at most {most}")]
    TooMuch {
        /// Of what.
        what: String,
        /// How much was said.
        size: u64,
        /// How much may be.
        most: u64,
    },
    /// The bytes go beyond the end that was said, or two ends were said of one transfer.
    #[error("bytes up to {end} of a transfer of {total}")]
    BeyondEnd {
        /// Where the bytes end.
        end: u64,
        /// The end that holds.
        total: u64,
    },
    /// What was sent is no bundle of sound commits; it is thrown away.
    #[error("the bundle is not sound: {said}")]
    Unsound {
        /// What git said.
        said: String,
    },
    /// The disk has no room.
    #[error("no room: {said}")]
    NoRoom {
        /// What could not be written.
        said: String,
    },
    /// The disk fails, or git cannot be run there.
    #[error("{said}")]
    NotAble {
        /// Why.
        said: String,
    },
}

/// Bytes of a transfer, carried as they are.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Chunk(pub Vec<u8>);

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.0.len())
    }
}

impl Serialize for Chunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Chunk, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }
}

/// Reads a chunk however a format carries it, and no more than one may hold.
struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Chunk;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} bytes", limits::BULK_CHUNK_BYTES_MAX)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Chunk, E> {
        self.visit_byte_buf(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Chunk, E> {
        if bytes.len() > limits::BULK_CHUNK_BYTES_MAX {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(Chunk(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Chunk, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = items.next_element()? {
            if bytes.len() == limits::BULK_CHUNK_BYTES_MAX {
                return Err(A::Error::invalid_length(bytes.len() + 1, &self));
            }
            bytes.push(byte);
        }
        Ok(Chunk(bytes))
    }
}
