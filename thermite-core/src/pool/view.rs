//! What the pool tells people: who holds what, and each waiter's certificate (rules A6, A9).

use crate::ids::{DevRunId, HoldId, JobId, LaneId, MemberId};
use crate::limits;
use crate::refusal::GaveUp;
use crate::texts;
use crate::time::Moment;
use crate::wait::{Wait, WaitEnd, WaitReason};

use super::matching::Avoided;
use super::{Discipline, Grant, HeldFor, Member, MemberState, Pool, Waiter};

/// Who has a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderView {
    /// The judge.
    Judge {
        /// The job under way, once the judge has told it.
        job: Option<JobId>,
    },
    /// A lane.
    Lane {
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
    },
}

/// A member as the pool knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member.
    pub member: MemberId,
    /// Whom it serves.
    pub discipline: Discipline,
    /// The hold and its holder, where it is held.
    pub held: Option<(HoldId, HolderView)>,
    /// Why it cannot take work, where it cannot.
    pub gone: Option<String>,
    /// Whether it takes nothing more, by somebody's wish.
    pub drained: bool,
    /// Why it takes no runs although it answers (rule E9).
    pub unfit: Option<String>,
    /// Whether it is about to leave or to serve others.
    pub moves: bool,
}

/// How a judge's device stands, for the certificates of waiting jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JudgesDevice {
    /// One is free.
    Free {
        /// Which.
        member: MemberId,
    },
    /// The judge itself has it.
    Judges {
        /// Which.
        member: MemberId,
        /// The job under way, once the judge has told it.
        job: Option<JobId>,
    },
    /// A lane has it.
    Lanes {
        /// Which.
        member: MemberId,
        /// The lane.
        lane: LaneId,
        /// Its development run.
        dev_run: DevRunId,
        /// When it is free at the latest; none without a limit.
        free_by: Option<Moment>,
    },
    /// None is in service.
    Out {
        /// What is known of the first of them.
        why: String,
    },
    /// The judge has runners alone, and none of them takes runs (rules E12, E13).
    NoRunner {
        /// The first of them, where there is one.
        member: Option<MemberId>,
        /// What is known of it.
        why: String,
    },
    /// All that are in service take nothing more, by somebody's wish (rule B10).
    Drained {
        /// The first of them.
        member: MemberId,
    },
    /// The cards are being given out anew (rule B9).
    NewSplit {
        /// When that is done at the latest.
        until: Moment,
    },
    /// Nothing is granted while the records cannot be written.
    NoRecords,
    /// Nothing is granted while the data folder's disk has too little room.
    NoRoom,
}

impl Pool {
    /// All members.
    pub fn members(&self) -> Vec<MemberView> {
        self.members
            .iter()
            .map(|(id, member)| MemberView {
                member: *id,
                discipline: member.discipline,
                held: self.holder(*id, member),
                gone: match member.state {
                    MemberState::Unknown => Some(SWEEPING.to_owned()),
                    MemberState::Free { .. } | MemberState::Held { .. } | MemberState::Out { .. } => {
                        member.gone.clone()
                    }
                },
                drained: member.drained,
                unfit: member.unfit.clone(),
                moves: member.next.is_some(),
            })
            .collect()
    }

    /// All waiters in order, with their certificates.
    pub fn waits(&self) -> Vec<(LaneId, DevRunId, Wait)> {
        self.waiters
            .iter()
            .enumerate()
            .map(|(ahead, waiter)| {
                let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
                let wait = Wait {
                    reason: self.lane_reason(waiter, ahead),
                    place: ahead,
                    since: waiter.since,
                    end: WaitEnd::Latest { at: waiter.latest },
                };
                (waiter.lane, waiter.dev_run, wait)
            })
            .collect()
    }

    /// Every judge's member on which a screening can be won, with how the device stands that its confirmation would get
    /// (rule B6).
    pub fn confirming(&self) -> Vec<(MemberId, JudgesDevice)> {
        self.judges_members()
            .map(|(id, _)| (id, self.device_of(&Avoided { screened_on: Some(id), ..Avoided::default() })))
            .collect()
    }

    /// How the device stands that each listed job would get that infrastructure has failed somewhere (rule D5).
    pub fn devices_of_failed(&self) -> Vec<(JobId, JudgesDevice)> {
        let failed = self.work.entries.iter().filter(|entry| !entry.failed_on.is_empty());
        failed.map(|entry| (entry.job, self.device_of(&Avoided::of(entry)))).collect()
    }

    /// How the bench stands, for jobs that are to build; none where the rig has none.
    pub fn bench(&self) -> Option<JudgesDevice> {
        let member = self.members.get(&MemberId::BENCH)?;
        if let Some(why) = self.held_back() {
            return Some(why);
        }
        Some(match &member.state {
            MemberState::Free { .. } => JudgesDevice::Free { member: MemberId::BENCH },
            MemberState::Held { number, grant, held_for } => {
                self.held_device(HoldId { member: MemberId::BENCH, number: *number }, grant, held_for)
            }
            MemberState::Unknown => JudgesDevice::Out { why: SWEEPING.to_owned() },
            MemberState::Out { .. } => JudgesDevice::Out { why: member.gone.clone().unwrap_or_default() },
        })
    }

    /// Until when the cards are being given out anew, where they are.
    pub fn new_split(&self) -> Option<Moment> {
        self.change.as_ref().map(|change| change.until)
    }

    /// What keeps the pool from granting anything, whichever member is free.
    fn held_back(&self) -> Option<JudgesDevice> {
        if !self.recording {
            return Some(JudgesDevice::NoRecords);
        }
        if !self.room {
            return Some(JudgesDevice::NoRoom);
        }
        self.new_split().map(|until| JudgesDevice::NewSplit { until })
    }

    /// How the device stands that the judge's earliest startable stage would get.
    pub fn judges_device(&self) -> JudgesDevice {
        self.device_of(&Avoided::default())
    }

    /// The same for a stage that avoids members, while others are in service: the test of the matching.
    fn device_of(&self, avoided: &Avoided<'_>) -> JudgesDevice {
        if let Some(why) = self.held_back() {
            return why;
        }
        let mut held = None;
        let mut gone = None;
        let mut drained = None;
        for (id, member) in self.judges_members().filter(|(id, _)| !self.avoids_of(avoided, *id)) {
            match &member.state {
                MemberState::Free { .. } | MemberState::Held { .. } if member.drained => {
                    drained = drained.or(Some(id));
                }
                MemberState::Free { .. } if member.unfit.is_some() => gone = gone.or_else(|| member.unfit.clone()),
                MemberState::Free { .. } => return JudgesDevice::Free { member: id },
                MemberState::Held { number, grant, held_for } => {
                    held = held
                        .or_else(|| Some(self.held_device(HoldId { member: id, number: *number }, grant, held_for)));
                }
                MemberState::Unknown => gone = gone.or_else(|| member.gone.clone()).or(Some(SWEEPING.to_owned())),
                MemberState::Out { .. } => gone = gone.or_else(|| member.gone.clone()),
            }
        }
        match (held, drained) {
            (Some(held), _) => held,
            (None, Some(member)) => JudgesDevice::Drained { member },
            (None, None) if self.judge_has_runners_alone() => {
                let first = self.judges_members().map(|(id, _)| id).next();
                let why = if first.is_some() { gone } else { None };
                JudgesDevice::NoRunner { member: first, why: why.unwrap_or_else(|| texts::NO_JUDGES_RUNNER.to_owned()) }
            }
            (None, None) => JudgesDevice::Out { why: gone.unwrap_or_else(|| "the rig has none".to_owned()) },
        }
    }

    fn judge_has_runners_alone(&self) -> bool {
        self.judges_members().all(|(id, _)| id.is_runner())
    }

    fn held_device(&self, hold: HoldId, grant: &Grant, held_for: &HeldFor) -> JudgesDevice {
        match held_for {
            HeldFor::Judge { .. } => JudgesDevice::Judges { member: hold.member, job: self.job_on(hold) },
            HeldFor::Lane { waiter, .. } => {
                let began = match grant {
                    Grant::Started { at } => *at,
                    Grant::Offered { .. } | Grant::Voided | Grant::Claimed => waiter.latest,
                };
                JudgesDevice::Lanes {
                    member: hold.member,
                    lane: waiter.lane,
                    dev_run: waiter.dev_run,
                    // Its limit, and then the proof of its stop.
                    free_by: self.limit_on(hold.member, waiter).map(|limit| began + limit + limits::PROOF_MAX),
                }
            }
        }
    }

    /// Which of the rule's sentences a waiter gives up with: the holder of that moment decides (rule A6).
    pub(super) fn why_gave_up(&self, waiter: &Waiter) -> GaveUp {
        let mut by_lane = false;
        for member in waiter.acceptable.iter().filter_map(|id| self.members.get(id)) {
            match &member.state {
                MemberState::Held { held_for: HeldFor::Judge { .. }, .. } => return GaveUp::JudgeKeptDevice,
                MemberState::Held { held_for: HeldFor::Lane { waiter: holder, .. }, .. } => {
                    by_lane |= holder.dev_run != waiter.dev_run;
                }
                MemberState::Unknown | MemberState::Free { .. } | MemberState::Out { .. } => {}
            }
        }
        if by_lane {
            return GaveUp::LaneHeldDevice;
        }
        let judges_first =
            |id: &&MemberId| self.members.get(id).is_some_and(|member| member.discipline == Discipline::JudgeFirst);
        if waiter.acceptable.iter().filter(judges_first).any(|id| self.judge_work_keeps(*id)) {
            return GaveUp::JudgeKeptDevice;
        }
        GaveUp::OutOfService
    }

    fn lane_reason(&self, waiter: &Waiter, ahead: u32) -> WaitReason {
        if !self.recording {
            return WaitReason::Records;
        }
        if !self.room {
            return WaitReason::DiskFull;
        }
        if self.change.is_some() {
            return WaitReason::NewSplit;
        }
        let mut gone = None;
        let mut kept = None;
        let mut drained = None;
        for id in &waiter.acceptable {
            let Some(member) = self.members.get(id) else { continue };
            match &member.state {
                MemberState::Free { .. } | MemberState::Held { .. } if member.drained => {
                    drained = drained.or(Some(WaitReason::Drained { member: *id }));
                }
                MemberState::Held { .. } => {
                    if let Some((_, holder)) = self.holder(*id, member) {
                        return match holder {
                            HolderView::Judge { job } => WaitReason::JudgeHolds { member: *id, job },
                            HolderView::Lane { lane, dev_run } => WaitReason::LaneHolds { member: *id, lane, dev_run },
                        };
                    }
                }
                MemberState::Unknown => gone = gone.or_else(|| member.gone.clone()).or(Some(SWEEPING.to_owned())),
                MemberState::Out { .. } => gone = gone.or_else(|| member.gone.clone()),
                MemberState::Free { .. } if member.unfit.is_some() => gone = gone.or_else(|| member.unfit.clone()),
                MemberState::Free { .. } => {
                    if !self.lane_may(waiter, *id, member) {
                        kept = kept.or_else(|| Some(self.judge_work_reason()));
                    }
                }
            }
        }
        match (kept.or(drained), gone) {
            (Some(reason), _) => reason,
            (None, Some(why)) if waiter.acceptable.iter().all(|id| id.is_runner()) => {
                WaitReason::NoRunner { member: waiter.acceptable.first().copied(), why }
            }
            (None, Some(why)) => WaitReason::NoReadyDevice { why },
            (None, None) => WaitReason::Earlier { ahead },
        }
    }

    fn judge_work_reason(&self) -> WaitReason {
        let listed = u32::try_from(self.work.entries.len()).unwrap_or(u32::MAX);
        let jobs = listed.saturating_add(self.work.unlisted);
        match self.work.entries.first() {
            Some(first) if self.work.unlisted == 0 && self.work.entries.iter().all(|entry| entry.paused) => {
                WaitReason::PausedRunsJobs { run: first.run }
            }
            _ => WaitReason::JudgeHasWork { jobs },
        }
    }

    fn holder(&self, id: MemberId, member: &Member) -> Option<(HoldId, HolderView)> {
        let MemberState::Held { number, held_for, .. } = &member.state else { return None };
        let hold = HoldId { member: id, number: *number };
        let view = match held_for {
            HeldFor::Judge { .. } => HolderView::Judge { job: self.job_on(hold) },
            HeldFor::Lane { waiter, .. } => HolderView::Lane { lane: waiter.lane, dev_run: waiter.dev_run },
        };
        Some((hold, view))
    }

    fn job_on(&self, hold: HoldId) -> Option<JobId> {
        self.work.entries.iter().find(|entry| entry.running_on == Some(hold)).map(|entry| entry.job)
    }
}

const SWEEPING: &str = "what earlier runs left behind is being looked for";
