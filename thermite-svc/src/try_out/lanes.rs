//! The lanes' development runs, each followed by a thread of its own, as an agent would.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use thermite_actors::view::DevRunStatus;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::ids::{DevRunId, RunId};
use thermite_core::refusal::GaveUp;
use thermite_svc::server::bodies::AskDevRun;

use crate::cli::follow::{News, Wish, follow};
use crate::client::{Client, Fault, fresh_key};

use super::TryFault;
use super::kit::{Campaign, LaneWork};
use super::own_rig::OwnRig;

/// All lanes' runs, lane 1 first.
pub(super) struct LaneRuns {
    lanes: Vec<LaneRun>,
}

/// One lane's run.
pub(super) struct LaneRun {
    /// The development run; the last, where an earlier one gave up.
    pub(super) dev_run: DevRunId,
    /// How often it was asked for.
    pub(super) asked: u32,
    /// Why the asking before this one gave up, where there was one.
    pub(super) gave_up: Option<GaveUp>,
    /// How long it waited, in all askings.
    pub(super) waited: Duration,
    /// How it ended, once it has.
    pub(super) end: Option<DevRunEnd>,
    /// What it printed.
    pub(super) output: String,
    under_way: Option<Receiver<Followed>>,
}

type Followed = Result<Outcome, Fault>;

struct Outcome {
    end: DevRunEnd,
    waited: Duration,
    output: Vec<u8>,
}

impl LaneRun {
    /// Whether it ran and ended with exit code 0.
    pub(super) fn ran_well(&self) -> bool {
        matches!(self.end, Some(DevRunEnd::Exited { exit: Exit::Code(0), .. }))
    }
}

impl LaneRuns {
    /// Lanes as a test wants them, followed by nobody.
    #[cfg(test)]
    pub(super) fn of(lanes: impl IntoIterator<Item = (DevRunId, Option<DevRunEnd>)>) -> LaneRuns {
        let lane = |(dev_run, end)| LaneRun {
            dev_run,
            asked: 1,
            gave_up: None,
            waited: Duration::ZERO,
            end,
            output: String::new(),
            under_way: None,
        };
        LaneRuns { lanes: lanes.into_iter().map(lane).collect() }
    }

    /// Asks for one in every lane, in order.
    pub(super) fn ask(rig: &OwnRig<'_>, run: RunId, campaign: &Campaign) -> Result<LaneRuns, TryFault> {
        let lanes = campaign.lanes.iter().map(|lane| LaneRun::ask(rig, run, lane)).collect::<Result<_, _>>()?;
        Ok(LaneRuns { lanes })
    }

    /// All of them.
    pub(super) fn all(&self) -> &[LaneRun] {
        &self.lanes
    }

    /// Takes in what has ended. One that gave up is asked for again while there is judge work to wait for: the
    /// trial goes on, and the agent can try again (rule A6). So is one that ended with a rig that was killed.
    pub(super) fn collect(
        &mut self,
        rig: &OwnRig<'_>,
        run: RunId,
        campaign: &Campaign,
        judge_works: bool,
    ) -> Result<(), TryFault> {
        for (lane, work) in self.lanes.iter_mut().zip(&campaign.lanes) {
            let Some(under_way) = &lane.under_way else { continue };
            let followed = match under_way.try_recv() {
                Ok(Ok(followed)) => followed,
                Ok(Err(Fault::Unreachable { .. })) => {
                    // Answered once the rig is there, started again where it was killed.
                    rig.ask(|client| client.dev_run(lane.dev_run))?;
                    lane.under_way = Some(follow_aside(rig.client(), lane.dev_run));
                    continue;
                }
                Ok(Err(fault)) => return Err(fault.into()),
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => unreachable!("a follower always answers before it ends"),
            };
            lane.under_way = None;
            lane.waited += followed.waited;
            let again = match followed.end {
                DevRunEnd::GaveUp { why } if judge_works => Some(Some(why)),
                DevRunEnd::RigEnded | DevRunEnd::NewSplit | DevRunEnd::RunnerLost { .. } => Some(None),
                DevRunEnd::GaveUp { .. }
                | DevRunEnd::Exited { .. }
                | DevRunEnd::LimitReached { .. }
                | DevRunEnd::Cancelled
                | DevRunEnd::NotStarted { .. }
                | DevRunEnd::NotProved { .. } => None,
            };
            if let Some(gave_up) = again {
                let again = LaneRun::ask(rig, run, work)?;
                *lane = LaneRun { asked: lane.asked + 1, gave_up, waited: lane.waited, ..again };
                continue;
            }
            lane.output = String::from_utf8_lossy(&followed.output).into_owned();
            lane.end = Some(followed.end);
        }
        Ok(())
    }

    /// Whether none is under way.
    pub(super) fn are_over(&self) -> bool {
        self.lanes.iter().all(|lane| lane.end.is_some())
    }
}

impl LaneRun {
    fn ask(rig: &OwnRig<'_>, run: RunId, lane: &LaneWork) -> Result<LaneRun, TryFault> {
        let ask = AskDevRun { argv: lane.command(), env: Vec::new(), attached: false };
        let key = fresh_key();
        let dev_run = rig.ask(|client| client.ask(run, lane.number, &ask, Some(key.clone())))?.dev_run;
        Ok(LaneRun {
            dev_run,
            asked: 1,
            gave_up: None,
            waited: Duration::ZERO,
            end: None,
            output: String::new(),
            under_way: Some(follow_aside(rig.client(), dev_run)),
        })
    }
}

fn follow_aside(client: Client, dev_run: DevRunId) -> Receiver<Followed> {
    let (tell, under_way) = channel();
    std::thread::spawn(move || {
        // The receiver is gone where the whole is being ended; then nobody wants to know.
        let _nobody_asks = tell.send(followed(&client, dev_run));
    });
    under_way
}

fn followed(client: &Client, dev_run: DevRunId) -> Followed {
    let asked = Instant::now();
    let mut began = None;
    let mut output = Vec::new();
    let end = follow(client, dev_run, |news| {
        match news {
            News::Status { status, is_new: _ } => match status {
                DevRunStatus::Recording { .. } | DevRunStatus::Waiting { .. } => {}
                DevRunStatus::Starting { .. }
                | DevRunStatus::Running { .. }
                | DevRunStatus::Stopping { .. }
                | DevRunStatus::Ended { .. } => {
                    began.get_or_insert_with(|| asked.elapsed());
                }
            },
            News::Output { bytes, .. } => output.extend_from_slice(bytes),
        }
        Wish::GoOn
    })?;
    let waited = began.unwrap_or_else(|| asked.elapsed());
    Ok(Outcome { end, waited, output })
}
