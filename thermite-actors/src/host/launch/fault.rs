//! Why a launch did not come to exec.

use serde::{Deserialize, Serialize};

/// A launch that did not come to exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {why}")]
pub struct LaunchFault {
    /// The call that failed, with what it was about.
    pub step: String,
    /// The error, in words.
    pub why: String,
}

impl LaunchFault {
    pub(super) fn new(step: impl Into<String>, why: impl std::fmt::Display) -> LaunchFault {
        LaunchFault { step: step.into(), why: why.to_string() }
    }
}

/// Says at which step an error came.
pub(super) trait At<T> {
    /// The value, or a fault that names the step.
    fn at(self, step: &str) -> Result<T, LaunchFault>;
    /// The value, or a fault whose step is written only when it is needed.
    fn at_path(self, step: &str, path: &std::path::Path) -> Result<T, LaunchFault>;
}

impl<T, E: std::fmt::Display> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, LaunchFault> {
        self.map_err(|error| LaunchFault::new(step, error))
    }

    fn at_path(self, step: &str, path: &std::path::Path) -> Result<T, LaunchFault> {
        self.map_err(|error| LaunchFault::new(format!("{step} {}", path.display()), error))
    }
}
