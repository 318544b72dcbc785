//! Faults put in on purpose: a check that does not find them proves nothing.

use thermite_core::device::MemberEvent;
use thermite_core::pool::{JudgeWork, PoolInput};

/// A fault in how the machines are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// The device is told that it is empty when the stop has only been sent.
    FreedWhenStopIsSent,
    /// A stage's hold ends before the pool knows the work that is left.
    HoldEndsBeforeWork,
    /// The judge does not tell the pool of its running stages.
    RunningStagesUntold,
    /// Both of these.
    HoldEndsBeforeWorkUntold,
    /// The pool takes a start of the rig for one without judge work.
    GrantsBeforeFirstWork,
    /// A lane does not give back a hold that it has no use for.
    LaneForgetsRelease,
    /// The device says twice that a hold is over, and the pool does not look at the number.
    StaleFreedFreesNext,
    /// What the pool answers to the judge's work is lost.
    WorkTakenIsLost,
    /// The records answer before the disk has it.
    AcksBeforeDurable,
}

impl Mutant {
    /// Whether a stage's hold ends with the stage.
    pub(super) fn ends_holds_early(self) -> bool {
        matches!(self, Mutant::HoldEndsBeforeWork | Mutant::HoldEndsBeforeWorkUntold)
    }

    /// What the pool hears of what it was told.
    pub(super) fn pool_hears(self, input: PoolInput, held: Option<u64>) -> PoolInput {
        match (self, input, held) {
            (
                Mutant::StaleFreedFreesNext,
                PoolInput::Member { member, event: MemberEvent::Freed { how, .. } },
                Some(number),
            ) => PoolInput::Member { member, event: MemberEvent::Freed { number, how } },
            (_, input, _) => input,
        }
    }

    /// What the judge tells of its work.
    pub(super) fn judge_tells(self, mut work: JudgeWork) -> JudgeWork {
        if matches!(self, Mutant::RunningStagesUntold | Mutant::HoldEndsBeforeWorkUntold) {
            work.entries.retain(|entry| entry.running_on.is_none());
        }
        work
    }
}
