//! A run: one campaign being worked on.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contract::Kit;

/// Whether a run takes work (rule A3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It takes work.
    Running,
    /// Its jobs keep their place and are not started; new development runs are refused.
    Paused,
    /// It is over.
    Ended,
}

/// A run whose parts have been found and pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunSpec {
    /// The repository, as an absolute path.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub repo: PathBuf,
    /// The kit's file in it, relative to its root.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub kit_path: PathBuf,
    /// The kit as the champion has it.
    pub kit: Kit,
    /// SHA-256 of the kit's file.
    pub kit_hash: String,
    /// The champion's commit at the start.
    pub champion: String,
    /// The lanes' worktrees, lane 1 first.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub lanes: Vec<PathBuf>,
}
