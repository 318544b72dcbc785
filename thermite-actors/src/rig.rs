//! The one door for embedders: a rig of devices, lanes and a judge, from ports to verdicts.
//!
//! [`Rig::start`] brings the actors to life on the current thread; the handle may be cloned and used from any thread.

use std::rc::Rc;
use std::sync::Arc;

use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{DevRunId, JobId, RunId};
use thermite_core::lane::Caller;
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use thermite_core::run::RunState;

use crate::ports::{Clock, Ids, MemberPorts, Records, RigSettings, RunRequest, Workspaces};
use crate::view::{DevRunRow, JobRow, RigEvent, RigView};

/// Everything a rig is made of.
pub struct RigSetup {
    /// Its devices with the ports that work them.
    pub members: Vec<MemberPorts>,
    /// Repositories and worktrees.
    pub workspaces: Rc<dyn Workspaces>,
    /// The log.
    pub records: Rc<dyn Records>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// Names and luck.
    pub ids: Rc<dyn Ids>,
    /// How it is set up.
    pub settings: RigSettings,
}

/// The two kinds of no, at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum No {
    /// The asker may not.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// Nobody's fault; ask again.
    #[error(transparent)]
    Infrastructure(#[from] InfrastructureFailure),
}

/// A development run as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskDevRun {
    /// The run.
    pub run: RunId,
    /// The lane's number.
    pub lane: u32,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment beyond the plain one of every run.
    pub env: Vec<(String, String)>,
    /// Whether the caller's stream must stay (rule A10).
    pub caller: Caller,
    /// The asker's idempotency key (rule A13).
    pub key: Option<String>,
}

/// A development run's place in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The development run.
    pub dev_run: DevRunId,
    /// How many are served before it.
    pub ahead: u32,
}

/// A job as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitJob {
    /// The run.
    pub run: RunId,
    /// The champion's revision; the run's champion where none is given.
    pub champion: Option<String>,
    /// The change's revision.
    pub change: String,
    /// The asker's idempotency key (rule A13).
    pub key: Option<String>,
}

/// A durable job, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job.
    pub job: JobId,
    /// How many jobs are before it.
    pub ahead: u32,
    /// Whether it was there before: asked with the same key, or the same change against the same champion.
    pub same: bool,
}

/// The handle of a rig.
#[derive(Clone)]
pub struct Rig {
    _events: Arc<()>,
}

impl Rig {
    /// Starts a rig: loads the log, sweeps the devices, and opens.
    ///
    /// Must be called inside an actix system; all policy actors live on that thread.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub async fn start(_setup: RigSetup) -> Result<Rig, InfrastructureFailure> {
        unreachable!("FIXME: written next")
    }

    /// Starts a run; answers once it is durable.
    ///
    /// # Errors
    /// Refused where another is worked on, or where a part of it is not there.
    pub async fn start_run(&self, _request: RunRequest, _key: Option<String>) -> Result<RunId, No> {
        unreachable!("FIXME: written next")
    }

    /// Pauses, resumes or ends a run; answers once it is so.
    ///
    /// # Errors
    /// Refused for an unknown or ended run.
    pub async fn change_run(&self, _run: RunId, _state: RunState) -> Result<RunState, No> {
        unreachable!("FIXME: written next")
    }

    /// Asks for a development run; answers once it is durable and in the line.
    ///
    /// # Errors
    /// Refused by rules A3, A4, A12.
    pub async fn ask(&self, _ask: AskDevRun) -> Result<Queued, No> {
        unreachable!("FIXME: written next")
    }

    /// Says that the caller's stream of an attached development run dropped, or is back (rule A10).
    pub async fn caller_present(&self, _dev_run: DevRunId, _present: bool) {
        unreachable!("FIXME: written next")
    }

    /// Cancels a development run; answers with its end once nothing of it is left, or `not proved` (rule A10).
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn cancel(&self, _dev_run: DevRunId) -> Result<DevRunEnd, No> {
        unreachable!("FIXME: written next")
    }

    /// Submits a job; answers once it is durable and nobody passes it.
    ///
    /// # Errors
    /// Refused by rules A12 and the kit's editable paths.
    pub async fn submit(&self, _submit: SubmitJob) -> Result<Submitted, No> {
        unreachable!("FIXME: written next")
    }

    /// The whole rig at this moment.
    pub async fn view(&self) -> RigView {
        unreachable!("FIXME: written next")
    }

    /// One development run, over or not.
    pub async fn dev_run(&self, _dev_run: DevRunId) -> Option<DevRunRow> {
        unreachable!("FIXME: written next")
    }

    /// Waits for a development run's end.
    pub async fn dev_run_end(&self, _dev_run: DevRunId) -> Option<DevRunEnd> {
        unreachable!("FIXME: written next")
    }

    /// One job, over or not.
    pub async fn job(&self, _job: JobId) -> Option<JobRow> {
        unreachable!("FIXME: written next")
    }

    /// Jobs in order of asking, newest last, over or not: at most `most` of those after `after`.
    pub async fn jobs(&self, _run: RunId, _after: Option<JobId>, _most: usize) -> Vec<JobRow> {
        unreachable!("FIXME: written next")
    }

    /// What happens from here on; a slow reader is told that it missed some.
    pub fn events(&self) -> tokio::sync::broadcast::Receiver<Arc<RigEvent>> {
        unreachable!("FIXME: written next")
    }

    /// Ends the rig by the rules: nothing is granted any more, what runs is stopped and proved gone, all is recorded.
    pub async fn end(&self) {
        unreachable!("FIXME: written next")
    }
}
