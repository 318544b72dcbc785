//! What may be set while a rig runs, and the one record of it.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::refusal::Refusal;
use crate::time::Span;

/// What may be set while a rig runs. What is none is as the rig was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiveSettings {
    /// How long a development run waits before it gives up (rule A6). Those that wait already keep their latest moment.
    pub dev_run_wait: Option<Span>,
}

impl LiveSettings {
    /// Checks that they can be.
    ///
    /// # Errors
    /// Names the first that cannot (rule A12).
    pub fn check(&self) -> Result<(), Refusal> {
        let (least, most) = (limits::DEV_RUN_WAIT_LEAST, limits::DEV_RUN_WAIT_MOST);
        match self.dev_run_wait {
            Some(wait) if wait < least || wait > most => Err(Refusal::Impossible {
                thing: "dev_run_wait".to_owned(),
                value: wait.to_string(),
                expected: format!("{least} to {most}"),
            }),
            _ => Ok(()),
        }
    }
}
