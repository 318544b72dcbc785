//! What names a thing: runs, lanes, jobs, development runs, devices, holds.
//!
//! UUIDs are made by a port (`Ids`), never here.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map($name)
            }
        }
    };
}

uuid_id! {
    /// One campaign being worked on.
    RunId
}
uuid_id! {
    /// One change to be measured against the champion.
    JobId
}
uuid_id! {
    /// One command that a lane tries on a device.
    DevRunId
}

/// What names bytes by what they are: their SHA-256, 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct ContentHash(String);

/// A text that is no SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no SHA-256: 64 of 0-9 and a-f")]
pub struct NoHash(pub String);

impl ContentHash {
    /// The name of bytes with that SHA-256.
    pub fn new(digest: [u8; 32]) -> ContentHash {
        use fmt::Write;

        ContentHash(digest.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
            text
        }))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ContentHash {
    type Error = NoHash;

    fn try_from(text: String) -> Result<ContentHash, NoHash> {
        let fits = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if fits { Ok(ContentHash(text)) } else { Err(NoHash(text)) }
    }
}

impl std::str::FromStr for ContentHash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<ContentHash, NoHash> {
        ContentHash::try_from(text.to_owned())
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The highest number a lane may have.
pub const LANE_MAX: u8 = 16;

/// One agent's worker, `1..=16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "u8", into = "u8")]
#[cfg_attr(feature = "schema", schema(value_type = u8, minimum = 1, maximum = 16))]
pub struct LaneId(u8);

/// A number that is no lane's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lane {0} does not exist: lanes are numbered 1 to {LANE_MAX}")]
pub struct NoSuchLane(pub u8);

impl LaneId {
    /// The lane of that number.
    ///
    /// # Errors
    /// When the number is outside `1..=16`.
    pub const fn new(number: u8) -> Result<LaneId, NoSuchLane> {
        if number >= 1 && number <= LANE_MAX { Ok(LaneId(number)) } else { Err(NoSuchLane(number)) }
    }

    /// The lane's number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for LaneId {
    type Error = NoSuchLane;

    fn try_from(number: u8) -> Result<LaneId, NoSuchLane> {
        LaneId::new(number)
    }
}

impl From<LaneId> for u8 {
    fn from(lane: LaneId) -> u8 {
        lane.0
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

/// A device or runner in a pool, by its place in the rig's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
#[cfg_attr(feature = "schema", schema(value_type = u16, maximum = 65_535))]
pub struct MemberId(pub u16);

impl MemberId {
    /// Where jobs are built that take no card yet (rule B7): a member like any other, held by one job at a time, which
    /// is how builds of the whole rig take turns. The last number, so that it is none of a device's.
    pub const BENCH: MemberId = MemberId(u16::MAX);
    /// From this number on they are runners', given out by the log and never to another one; below are the core's own
    /// devices.
    pub const RUNNERS_FROM: u16 = 1_000;

    /// Whether it is a runner's number.
    pub const fn is_runner(self) -> bool {
        self.0 >= MemberId::RUNNERS_FROM && self.0 != MemberId::BENCH.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == MemberId::BENCH {
            return f.write_str("the bench");
        }
        if self.is_runner() {
            return write!(f, "runner {}", self.0);
        }
        write!(f, "device {}", self.0)
    }
}

impl std::str::FromStr for MemberId {
    type Err = NotAMember;

    /// As people write it: the number, or as it is printed, with a space or a hyphen (`2`, `device 2`, `device-2`,
    /// `runner 1000`).
    fn from_str(text: &str) -> Result<MemberId, NotAMember> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let named = |word: &str| text.strip_prefix(word)?.strip_prefix([' ', '-']);
        let found = match (named("device"), named("runner")) {
            (Some(rest), _) => number(rest).map(MemberId).filter(|member| !member.is_runner()),
            (None, Some(rest)) => number(rest).map(MemberId).filter(|member| member.is_runner()),
            (None, None) => number(text).map(MemberId),
        };
        found.ok_or(NotAMember)
    }
}

/// Not the number of a device or runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMember;

impl fmt::Display for NotAMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is written like `2` or `device-2`, a runner's like `1000`")
    }
}

impl std::error::Error for NotAMember {}

/// The right to a device until released: the device and a number that only rises for it (rule A1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HoldId {
    /// The device held.
    pub member: MemberId,
    /// The hold's number on that device; a number is used once.
    pub number: u64,
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold {} of {}", self.number, self.member)
    }
}

/// When something was asked for, as its place in the order of all askings of the rig.
///
/// A number, not a time: two askings in one millisecond still have an order, and it survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Arrival(pub u64);

/// Who has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The judge, for one stage of a job.
    Judge,
    /// A lane, for one development run.
    Lane(LaneId),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Judge => f.write_str("the judge"),
            Holder::Lane(lane) => lane.fmt(f),
        }
    }
}
