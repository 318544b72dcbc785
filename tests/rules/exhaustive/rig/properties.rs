//! What must hold: in every state, and in every state in which nothing is on its way.

use thermite_core::device::DeviceState;
use thermite_core::ids::{DevRunId, LaneId};
use thermite_core::lane::LaneState;
use thermite_core::pool::{HolderView, PoolEffect};
use thermite_core::run::RunState;
use thermite_core::wait::WaitEnd;

use super::{RUN, Rig};

pub(in super::super) const EXCLUSIVE: &str = "one holder at a time (A1)";
pub(in super::super) const NUMBER_ONCE: &str = "a hold number is used once (A1)";
pub(in super::super) const POOL_KNOWS: &str = "nothing runs under a hold that the pool takes for over (A1, A7)";
pub(in super::super) const JUDGE_FIRST: &str = "no lane is granted the device while an accepted job may use it (A2)";
pub(in super::super) const CERTIFICATE: &str = "no wait passes the latest moment it was given (A6, A9)";
pub(in super::super) const OVERLOOKED: &str = "nobody eligible waits beside a free ready device (A9)";
pub(in super::super) const HELD_BY_NONE: &str = "a held device is held by someone (A9)";
pub(in super::super) const PAUSED_LEAVE: &str =
    "no development run of a run that is not running stays in the line (A3)";
pub(in super::super) const GHOST: &str = "everyone in the line waits (A9)";
pub(in super::super) const ONE_END: &str = "a job ends once, a development run ends once (D7)";
pub(in super::super) const RECORDED_FIRST: &str = "nothing leaves before its record (D7)";

impl Rig {
    /// Keeps account of the latest moments that the pool has promised.
    pub(super) fn told_by_pool(&mut self, effects: &[PoolEffect]) {
        for effect in effects {
            if let PoolEffect::GaveUp { dev_run, .. } = effect {
                self.promises.latest.remove(dev_run);
            }
        }
        let waits = self.pool.waits();
        let held = match &self.pool.members()[0].held {
            Some((_, HolderView::Lane { dev_run, .. })) => Some(*dev_run),
            _ => None,
        };
        self.promises.latest.retain(|known, _| Some(*known) == held || waits.iter().any(|(_, w, _)| w == known));
        for (_, dev_run, wait) in waits {
            let WaitEnd::Latest { at } = wait.end else {
                self.broken = Some(CERTIFICATE);
                continue;
            };
            let before = *self.promises.latest.entry(dev_run).or_insert(at);
            if at > before {
                self.broken = Some(CERTIFICATE);
            }
        }
    }

    /// Looks for what must hold in every state, and for what must hold when nothing is on its way.
    pub(super) fn look(&mut self) {
        let member = &self.pool.members()[0];
        let held = member.held.as_ref().map(|held| held.0.number);
        if member.gone.is_none() && self.executor.trees.keys().any(|number| Some(*number) != held) {
            self.broken = Some(POOL_KNOWS);
        }
        if !self.quiet() || self.broken.is_some() {
            return;
        }
        if self.pool.overlooked().is_some() {
            self.broken = Some(OVERLOOKED);
        }
        let waits = self.pool.waits();
        let running = self.judge.run_state(RUN) == Some(RunState::Running);
        if *self.device.state() == DeviceState::Ready {
            // The machines' own words, not the pool's: what the pool has not heard of is overlooked as well.
            let live = self.judge.live_count() > 0;
            let judge_could = live && running && self.judge.next_deadline().is_none();
            let lane_could = !live && self.lanes.iter().any(|lane| matches!(lane.state(), LaneState::Waiting { .. }));
            if held.is_some() {
                self.broken = Some(HELD_BY_NONE);
            } else if judge_could || lane_could {
                self.broken = Some(OVERLOOKED);
            }
        }
        if !waits.is_empty() && !running {
            self.broken = Some(PAUSED_LEAVE);
        }
        let waiting = |lane: &LaneId, dev_run: &DevRunId| {
            matches!(self.lanes[usize::from(lane.number() - 1)].state(),
                LaneState::Waiting { ask, .. } if ask.dev_run == *dev_run)
        };
        if !waits.iter().all(|(lane, dev_run, _)| waiting(lane, dev_run)) {
            self.broken = Some(GHOST);
        }
    }
}
