//! The one door for embedders: a rig of devices, lanes and a judge, from ports to verdicts.
//!
//! [`Rig::start`] brings the actors to life on the current thread; the handle may be cloned and used from any thread.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::broadcast;

use thermite_core::dev_run::DevRunEnd;
use thermite_core::fold::RigHistory;
use thermite_core::ids::{DevRunId, JobId, MemberId, RunId};
use thermite_core::lane::Caller;
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use thermite_core::run::RunState;
use thermite_core::runners::ProcessAsk;
use thermite_core::settings::LiveSettings;
use thermite_core::split::SplitAsk;
use thermite_core::why::Explanation;

use crate::door::{self, Door};
use crate::noise::DeviceNoise;
use crate::ports::{Clock, Executor, Ids, InputLog, MemberPorts, Records, RigSettings, RunRequest, Workspaces};
use crate::runners::RunnerSetup;
use crate::view::{DevRunRow, JobRow, RigEvent, RigView, RunRow, RunnersView, SettingsView, SplitView};

/// Everything a rig is made of.
pub struct RigSetup {
    /// Its devices with the ports that work them.
    pub members: Vec<MemberPorts>,
    /// Where jobs are built on a rig whose cards are split (rule B7): an executor of its own, off the judge's CPUs.
    /// Without one each job is built under its hold.
    pub bench: Option<Rc<dyn Executor>>,
    /// Repositories and worktrees.
    pub workspaces: Rc<dyn Workspaces>,
    /// The log.
    pub records: Rc<dyn Records>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// Names and luck.
    pub ids: Rc<dyn Ids>,
    /// The log of what the policy's machines took and decided.
    pub inputs: Rc<dyn InputLog>,
    /// How it is set up.
    pub settings: RigSettings,
    /// Its runners on other machines, and whether its own devices judge beside them.
    pub runners: RunnerSetup,
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

impl No {
    /// The rig is ending, or has ended: nobody is left who could answer.
    pub(crate) fn ending() -> No {
        No::Infrastructure(InfrastructureFailure::RigEnding)
    }
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
    door: Addr<Door>,
    events: broadcast::Sender<Arc<RigEvent>>,
}

impl Rig {
    /// Starts a rig: loads the log, sweeps the devices, and opens.
    ///
    /// Must be called inside an actix system; all policy actors live on that thread.
    ///
    /// # Errors
    /// Where the log cannot be read or written.
    pub async fn start(setup: RigSetup) -> Result<Rig, InfrastructureFailure> {
        let (door, events) = door::open(setup).await?;
        Ok(Rig { door, events })
    }

    /// Starts a run; answers once it is durable.
    ///
    /// # Errors
    /// Refused where another is worked on, or where a part of it is not there.
    pub async fn start_run(&self, request: RunRequest, key: Option<String>) -> Result<RunId, No> {
        self.ask_door(door::AskRun { request, key }).await?
    }

    /// Pauses, resumes or ends a run; answers once it is so. Ending one stops its development run and its stage under way.
    ///
    /// # Errors
    /// Refused for an unknown or ended run.
    pub async fn change_run(&self, run: RunId, state: RunState) -> Result<RunState, No> {
        self.ask_door(door::AskRunState { run, state }).await?
    }

    /// Asks for a development run; answers once it is durable and in the line.
    ///
    /// # Errors
    /// Refused by rules A3, A4, A12.
    pub async fn ask(&self, ask: AskDevRun) -> Result<Queued, No> {
        self.ask_door(door::AskForDevRun(ask)).await?
    }

    /// Says that the caller's stream of an attached development run dropped, or is back (rule A10).
    pub async fn caller_present(&self, dev_run: DevRunId, present: bool) {
        // A rig that has ended has no caller to care for.
        let _ = self.door.send(door::CallerPresent { dev_run, present }).await;
    }

    /// Cancels a development run; answers with its end once nothing of it is left, or `not proved` (rule A10).
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn cancel(&self, dev_run: DevRunId) -> Result<DevRunEnd, No> {
        self.ask_door(door::AskEnd { dev_run, cancel: true }).await?
    }

    /// Submits a job; answers once it is durable and nobody passes it.
    ///
    /// # Errors
    /// Refused by rules A12 and the kit's editable paths.
    pub async fn submit(&self, submit: SubmitJob) -> Result<Submitted, No> {
        self.ask_door(door::AskJob(submit)).await?
    }

    /// The whole rig at this moment.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn view(&self) -> Result<RigView, No> {
        self.ask_door(door::Look).await
    }

    /// All runs, over or not: those that are not over first, then the newest; at most `most` of those after `after`.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn runs(&self, after: Option<RunId>, most: usize) -> Result<Vec<RunRow>, No> {
        self.ask_door(door::list::LookAtRuns { after, most }).await?
    }

    /// One run, over or not.
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn run(&self, run: RunId) -> Result<RunRow, No> {
        self.ask_door(door::list::LookAtRun(run)).await?
    }

    /// Development runs of a run, over or not, in order of asking: at most `most` of those after `after`.
    ///
    /// # Errors
    /// Refused for a run that is not there.
    pub async fn dev_runs(&self, run: RunId, after: Option<DevRunId>, most: usize) -> Result<Vec<DevRunRow>, No> {
        self.ask_door(door::list::LookAtDevRuns { run, after, most }).await?
    }

    /// The rig's settings.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn settings(&self) -> Result<SettingsView, No> {
        self.ask_door(door::settings::LookAtSettings).await?
    }

    /// Sets what may be set while the rig runs; answers once it is durable and in force. With `read`, only where their
    /// revision is still that one.
    ///
    /// # Errors
    /// Refused where they cannot be, or have been set meanwhile.
    pub async fn set(&self, settings: LiveSettings, read: Option<u64>) -> Result<SettingsView, No> {
        self.ask_door(door::settings::ChangeSettings { settings, read }).await?
    }

    /// Which cards are the judge's and which the agents'.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn split(&self) -> Result<SplitView, No> {
        self.ask_door(door::split::LookAtSplit).await?
    }

    /// Gives the cards out anew; answers once it is durable and in force (rule B9). What has a device is stopped: the
    /// judge's jobs go back to the queue and start over, development runs end and their lanes are told to run their
    /// commands again; who waits keeps place and end. With `read`, only where its revision is still that one. The
    /// latest asked one wins.
    ///
    /// # Errors
    /// Refused where it cannot be, with the reason, or has been set meanwhile.
    pub async fn set_split(&self, ask: SplitAsk, read: Option<u64>) -> Result<SplitView, No> {
        self.ask_door(door::split::ChangeSplit { ask, read }).await?
    }

    /// The rig's runners: each with its pool, whether it answers, what it runs, whether it takes runs and why not; then who
    /// waits for one (rule E14).
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn runners(&self) -> Result<RunnersView, No> {
        self.ask_door(door::runners::LookAtRunners).await?
    }

    /// Sets the rig's runners, as a whole list; answers once it is durable and in force (rule E8). What runs on a runner
    /// that is taken away or given another pool is stopped: a job goes back to its place, a lane is told to run its
    /// command again (rule E10); what the others run goes on. With `read`, only where its revision is still that one.
    /// The latest asked list wins.
    ///
    /// # Errors
    /// Refused where it cannot be, with the reason, or has been set meanwhile.
    pub async fn set_runners(&self, list: Vec<ProcessAsk>, read: Option<u64>) -> Result<RunnersView, No> {
        self.ask_door(door::runners::ChangeRunners { list, read }).await?
    }

    /// Has a device or runner finish what it has and take nothing more, also after a restart, until [`Rig::undrain`] (rule B10).
    /// Draining one that is drained changes nothing.
    ///
    /// # Errors
    /// Refused for a device that is not there.
    pub async fn drain(&self, device: MemberId) -> Result<(), No> {
        self.ask_door(door::split::AskDrain { device, drained: true }).await?
    }

    /// Lets a drained device take work again.
    ///
    /// # Errors
    /// Refused for a device that is not there.
    pub async fn undrain(&self, device: MemberId) -> Result<(), No> {
        self.ask_door(door::split::AskDrain { device, drained: false }).await?
    }

    /// One development run, over or not.
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn dev_run(&self, dev_run: DevRunId) -> Result<DevRunRow, No> {
        self.ask_door(door::LookAtDevRun(dev_run)).await?
    }

    /// Waits for a development run's end.
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn dev_run_end(&self, dev_run: DevRunId) -> Result<DevRunEnd, No> {
        self.ask_door(door::AskEnd { dev_run, cancel: false }).await?
    }

    /// One job, over or not.
    ///
    /// # Errors
    /// Refused for one that is not there.
    pub async fn job(&self, job: JobId) -> Result<JobRow, No> {
        self.ask_door(door::LookAtJob(job)).await?
    }

    /// Jobs of a run in order of asking, over or not: at most `most` of those after `after`.
    ///
    /// # Errors
    /// Refused for a run that is not there.
    pub async fn jobs(&self, run: RunId, after: Option<JobId>, most: usize) -> Result<Vec<JobRow>, No> {
        self.ask_door(door::LookAtJobs { run, after, most }).await?
    }

    /// Says why the disk has too little room for new work, or that it has enough: while it has not, nothing new is
    /// taken or granted, and who asks is told so. What runs goes on.
    pub async fn tell_disk_room(&self, no_room: Option<String>) {
        // A rig that has ended takes no work anyway.
        let _ = self.door.send(door::TellDiskRoom(no_room)).await;
    }

    /// All that the rig remembers: what is not over, and the last that is.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn history(&self) -> Result<RigHistory, No> {
        self.ask_door(door::Remember).await?
    }

    /// The noise of each device, and its lifelong alarm (rule D6).
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn noise(&self) -> Result<Vec<DeviceNoise>, No> {
        self.ask_door(door::LookAtNoise).await?
    }

    /// Has a device's noise measured anew, by the next stage of each kit; answers with how many measures are dropped.
    ///
    /// # Errors
    /// Refused for a device that is not there or has no measure.
    pub async fn measure_noise_again(&self, device: MemberId) -> Result<usize, No> {
        self.ask_door(door::AskNoiseAgain(device)).await?
    }

    /// Clears a device's alarm once somebody has looked: it comes back into service, and its alarm begins anew.
    ///
    /// # Errors
    /// Refused for a device that is not there or is not quarantined.
    pub async fn clear_alarm(&self, device: MemberId) -> Result<(), No> {
        self.ask_door(door::AskClear(device)).await?
    }

    /// Why something waits, or came out as it did: a run, a job, a development run, a device (`0`, `device-0`, its
    /// UUID), or a runner (`box-2/1`).
    ///
    /// # Errors
    /// Refused where nothing has that name.
    pub async fn why(&self, id: String) -> Result<Explanation, No> {
        self.ask_door(door::why::Why(id)).await?
    }

    /// How many entries the rig keeps of work in its memory, beside its machines' states and the records: none once all
    /// work is over.
    ///
    /// # Errors
    /// Where the rig has ended.
    pub async fn kept(&self) -> Result<usize, No> {
        self.ask_door(door::Kept).await
    }

    /// What happens from here on; a slow reader is told that it missed some.
    pub fn events(&self) -> broadcast::Receiver<Arc<RigEvent>> {
        self.events.subscribe()
    }

    /// Ends the rig by the rules: nothing is granted any more, what runs is stopped and proved gone, all is recorded.
    /// What could not be proved gone in time is left to the next start's sweep.
    pub async fn end(&self) {
        let _ = self.door.send(door::End).await;
    }

    async fn ask_door<M>(&self, message: M) -> Result<M::Result, No>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        Door: Handler<M>,
        <Door as Actor>::Context: actix::dev::ToEnvelope<Door, M>,
    {
        self.door.send(message).await.map_err(|_| No::ending())
    }
}
