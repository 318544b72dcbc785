//! What control and its askers say to each other, as JSON: over REST, and over the bus to a rig's core.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thermite_core::runners::ProcessAsk;
use thermite_core::split::SplitAsk;
use thermite_core::wire::ProcessName;
use utoipa::ToSchema;
use uuid::Uuid;

use super::authority::UserKey;
use crate::bus::subjects::RigName;
use crate::new_split::{self, NewSplit};
use crate::server::request;
use crate::tokens::TokenId;

/// The version of what goes over the bus between control and a core. Raised with what the version before cannot read.
pub const DOCUMENT_VERSION: u32 = 1;

/// What a rig is set to, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RigSettingsAsk {
    /// Its runners, one entry a process, one pool a runner in order.
    #[serde(default)]
    pub runners: Vec<ProcessAsk>,
    /// Which of the core's own GPUs are the judge's and which the agents'; none: as the rig has it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "new_split::if_any")]
    #[schema(value_type = Option<NewSplit>)]
    pub gpus: Option<SplitAsk>,
    /// How many workers (lanes) are at work at a time; none: as many as there are. Kept for whoever starts them: a core
    /// starts none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "request::whole")]
    #[schema(minimum = 1, maximum = 16)]
    pub workers: Option<u64>,
}

/// A rig's settings, and how far they have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RigSettingsView {
    /// How often they were set.
    pub revision: u64,
    /// The revision that the rig said last that it has; 0 where none.
    pub taken: u64,
    /// Whether they were set at the rig itself, and control took them over.
    #[serde(default)]
    pub from_rig: bool,
    /// What is set.
    #[serde(flatten)]
    pub settings: RigSettingsAsk,
}

/// `POST /v1/rigs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRig {
    /// Its name: 2 to 64 of a-z, 0-9 and -.
    pub name: RigName,
}

/// A rig that was made: its token is shown this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RigMade {
    /// Its name: a core's and a runner's `THERMITE_RIG_ID`.
    pub rig: RigName,
    /// The token that its core and its self-started runners register with.
    pub secret: String,
    /// The token's public name.
    pub token: TokenId,
    /// The bus's address.
    pub nats_url: String,
    /// Whether the bus knows the rig already; it is told as soon as it can be.
    pub on_the_bus: bool,
}

/// A rig as control knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RigRow {
    /// Its name.
    pub rig: RigName,
    /// Its settings' revision.
    pub revision: u64,
    /// The revision that the rig said last that it has.
    pub taken: u64,
    /// When it was made: milliseconds since 1970.
    pub made_ms: u64,
    /// How long ago its core reported, in milliseconds; none where it has not since control started.
    pub reported_ago_ms: Option<u64>,
    /// What its core said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub report: Option<Value>,
    /// Its core, where one has registered.
    pub core: Option<ProcessRow>,
}

/// A process that registered, or a runner that is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessRow {
    /// The runner's name; none for the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<ProcessName>,
    /// Its pools, where it is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Its public key; none where it has not registered.
    pub public_key: Option<String>,
    /// Its newest start.
    pub boot: Option<Uuid>,
    /// When it asked for rights last: milliseconds since 1970.
    pub heard_ms: Option<u64>,
    /// When its rights on the bus end unless they are renewed: seconds since 1970.
    pub rights_end_s: Option<u64>,
    /// Whether it was removed: it and its key come back only once it is listed again.
    pub barred: bool,
}

/// `POST /v1/rigs/{rig}/bus/register`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The runner's name; none for the core.
    #[serde(default)]
    pub runner: Option<ProcessName>,
    /// The public half of the process's key.
    pub public_key: UserKey,
    /// This start of the process.
    pub boot: Uuid,
}

/// Rights on the bus.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rights {
    /// What the process shows to the bus, with its key.
    pub jwt: String,
    /// The bus's address.
    pub nats_url: String,
    /// The certificates that the bus's is checked against (PEM), where control was given some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The subjects that it may use.
    pub subjects: Vec<String>,
    /// When they end: seconds since 1970. Ask again at half of that.
    pub expires: u64,
}

/// `POST /v1/rigs/{rig}/runners`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRunner {
    /// Its name.
    pub name: ProcessName,
    /// Its pools.
    pub pools: Vec<String>,
}

/// A rig, runner or core that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// The rig.
    pub rig: RigName,
    /// The runner, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<ProcessName>,
    /// Tokens that ended with it.
    pub tokens_ended: usize,
    /// Whether the bus has ended its rights. It is told again and again until it has; no new ones are given meanwhile.
    pub rights_ended: bool,
}

/// `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewControlToken {
    /// What it opens.
    pub kind: ControlTokenKind,
    /// A rig's or a runner's token: the rig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rig: Option<RigName>,
    /// A runner's token: the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<ProcessName>,
    /// A word beside it for listings.
    #[serde(default)]
    #[schema(max_length = 50)]
    pub note: String,
    /// How long it is valid, in seconds; none: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "request::whole")]
    #[schema(minimum = 1, maximum = 316_224_000)]
    pub valid_s: Option<u64>,
}

/// What a new token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlTokenKind {
    /// Everything.
    Owner,
    /// Registering a rig's core and its self-started runners; looking at the rig.
    Rig,
    /// Registering one runner.
    Runner,
}

/// A token that was made. This is the only time it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControlTokenMade {
    /// The token itself.
    #[schema(pattern = "^th_(own|rig|run)_[0-9a-f]{64}$")]
    pub secret: String,
    /// What listings show of it.
    #[serde(flatten)]
    pub row: super::tokens::ControlTokenRow,
}

/// One step of setting up, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRow {
    /// Its place.
    pub seq: u64,
    /// When: milliseconds since 1970.
    pub wall_ms: u64,
    /// By which token, by its public name; `rig` where the rig's core said so.
    pub by: String,
    /// What.
    #[serde(flatten)]
    pub step: Step,
}

/// A step of setting up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// The rig was made.
    RigMade,
    /// The rig was removed, with its runners.
    RigRemoved,
    /// A token for it was made.
    TokenMade {
        /// Its public name.
        token: TokenId,
    },
    /// A token for it was revoked.
    TokenRevoked {
        /// Its public name.
        token: TokenId,
    },
    /// Its settings were set.
    SettingsSet {
        /// To this revision.
        revision: u64,
        /// To this.
        settings: RigSettingsAsk,
    },
    /// The rig has settings.
    SettingsTaken {
        /// Of this revision.
        revision: u64,
    },
    /// The rig refuses settings.
    SettingsRefused {
        /// Of this revision.
        revision: u64,
        /// Its own sentence.
        why: String,
    },
    /// A process registered its key, or a newer start of it.
    Registered {
        /// The runner; none for the core.
        runner: Option<ProcessName>,
        /// Its public key.
        public_key: String,
        /// Its start.
        boot: Uuid,
    },
    /// A runner was removed: it and its key are barred until it is listed again.
    RunnerRemoved {
        /// The runner.
        runner: ProcessName,
    },
    /// A runner that was removed was listed again.
    RunnerListedAgain {
        /// The runner.
        runner: ProcessName,
    },
    /// The core was removed: its key is barred, and its place is free for another.
    CoreRemoved,
}

/// A process as sentences name it: `runner box-2`, `the core`.
pub(super) fn called(runner: Option<&ProcessName>) -> String {
    runner.map_or_else(|| "the core".to_owned(), |runner| format!("runner {runner}"))
}

/// What a core says over the bus, every few seconds and at changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`DOCUMENT_VERSION`].
    pub version: u32,
    /// The revision of control's settings that it has; 0 where none.
    pub taken: u64,
    /// What it is set to, wherever it was set last; none where it cannot be said at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<RigSettingsAsk>,
    /// Newer settings that it refuses: their revision, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<(u64, String)>,
    /// What it looks like; without what would make the document too large.
    pub rig: Value,
}

/// What control gives over the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// [`DOCUMENT_VERSION`].
    pub version: u32,
    /// The settings' revision.
    pub revision: u64,
    /// Whether they are the rig's own, as it reported them: one that did has them already, or newer ones.
    #[serde(default)]
    pub from_rig: bool,
    /// The settings.
    pub settings: RigSettingsAsk,
}
