//! The runners block, put together from what the pool, the judge and each runner know (rule E14).

use thermite_core::pool::{HolderView, MemberView};
use thermite_core::runner::RunnerState;
use thermite_core::runners::{LocalJudge, RunnerPool, RunnerSet, by_process};
use thermite_core::texts;

use crate::view::{RunnerRow, RunnerRuns, RunnerWaitRow, WhoWaits};

use super::*;

impl Snapshot {
    /// The certificate of what a runner had that does not answer.
    pub(super) fn runner_away(&self, member: MemberId) -> Option<Wait> {
        let look = self.standing.get(&member)?;
        match look.state {
            RunnerState::Away { hand_on } => {
                Some(Wait::runner_away(member, look.answered.unwrap_or(self.now), hand_on))
            }
            RunnerState::Reconciling
            | RunnerState::Ready { .. }
            | RunnerState::Busy { .. }
            | RunnerState::Unfit { .. } => None,
        }
    }
}

/// The block at that moment.
pub(super) fn runners_block(
    snapshot: &Snapshot,
    revision: u64,
    dev_runs: &[DevRunRow],
    jobs: &[JobRow],
) -> RunnersView {
    let looked = &snapshot.runners;
    let listed = looked.set.iter().map(|set| row(snapshot, set.member, set.runner.to_string(), Some(set)));
    let leaving = snapshot.pool.members.keys().filter(|id| id.is_runner() && !is_listed(looked, **id));
    let leaving = leaving.map(|id| {
        let name = snapshot.roster.runner(*id).map_or_else(|| id.to_string(), |name| name.to_string());
        row(snapshot, *id, name, None)
    });
    let runners: Vec<RunnerRow> = listed.chain(leaving).collect();
    RunnersView {
        revision,
        asked: by_process(&looked.set),
        core_judges: looked.local_judge == LocalJudge::On,
        target: looked.target,
        bus_away: looked.away.clone().filter(|_| !runners.is_empty()).or_else(|| all_away(&runners)),
        without_pool: looked.without_pool.iter().map(ToString::to_string).collect(),
        waits: waits(snapshot, dev_runs, jobs),
        notes: notes(snapshot),
        runners,
    }
}

fn is_listed(looked: &RunnersLook, member: MemberId) -> bool {
    looked.set.iter().any(|set| set.member == member)
}

fn row(snapshot: &Snapshot, member: MemberId, name: String, set: Option<&RunnerSet>) -> RunnerRow {
    let known = snapshot.pool.members.get(&member);
    let look = snapshot.standing.get(&member);
    let state = look.map_or(RunnerState::Reconciling, |look| look.state.clone());
    let why_not = why_not(snapshot, member, known, &state, set.is_some());
    RunnerRow {
        name,
        member,
        pool: set.map(|set| set.pool),
        answered: look.and_then(|look| look.answered),
        device: snapshot.runners.known.get(&member).cloned(),
        runs: known.and_then(|known| known.held.as_ref()).map(|(hold, holder)| match holder {
            HolderView::Judge { job } => RunnerRuns::Judge { hold: *hold, job: *job },
            HolderView::Lane { lane, dev_run } => RunnerRuns::Lane { hold: *hold, lane: *lane, dev_run: *dev_run },
        }),
        takes_runs: why_not.is_none(),
        why_not,
        drained: known.is_some_and(|known| known.drained),
        state,
    }
}

/// Why a runner takes no runs, the most telling reason first.
fn why_not(
    snapshot: &Snapshot,
    member: MemberId,
    known: Option<&MemberView>,
    state: &RunnerState,
    listed: bool,
) -> Option<String> {
    if !listed {
        return Some("it is taken away once what it had is over".to_owned());
    }
    if let RunnerState::Unfit { why } = state {
        return Some(why.to_string());
    }
    if let Some(why) = snapshot.runners.unfit.get(&member) {
        return Some(why.to_string());
    }
    let Some(known) = known else { return Some(texts::RUNNER_NOT_MET.to_owned()) };
    if let Some(why) = &known.gone {
        return Some(why.clone());
    }
    if known.moves {
        return Some("it is given its new pool once what it had is over".to_owned());
    }
    if known.drained {
        return Some(thermite_core::runner::WhyNot::Drained.to_string());
    }
    match state {
        RunnerState::Away { hand_on } => {
            let left = hand_on.since(snapshot.now);
            Some(format!("it does not answer; what it ran may be handed on in {left}"))
        }
        RunnerState::Reconciling => Some(texts::RUNNER_NOT_MET.to_owned()),
        RunnerState::Ready { .. } | RunnerState::Busy { .. } | RunnerState::Unfit { .. } => None,
    }
}

/// Two and more runners that are all missing at once are one fault (rule E11).
fn all_away(runners: &[RunnerRow]) -> Option<String> {
    let is_away = |row: &RunnerRow| matches!(row.state, RunnerState::Away { .. });
    let all = runners.len() >= 2 && runners.iter().all(is_away);
    all.then(|| format!("all {} runners went missing at once: the bus is away", runners.len()))
}

fn waits(snapshot: &Snapshot, dev_runs: &[DevRunRow], jobs: &[JobRow]) -> Vec<RunnerWaitRow> {
    let lanes = dev_runs.iter().filter_map(|row| match &row.status {
        DevRunStatus::Waiting { sentence, .. } if snapshot.pool.runners_serve.contains(&row.lane) => {
            let who = WhoWaits::Lane { lane: row.lane, dev_run: row.dev_run };
            Some(RunnerWaitRow { who, sentence: sentence.clone() })
        }
        DevRunStatus::Waiting { .. }
        | DevRunStatus::Recording { .. }
        | DevRunStatus::Starting { .. }
        | DevRunStatus::Running { .. }
        | DevRunStatus::Stopping { .. }
        | DevRunStatus::Ended { .. } => None,
    });
    let judges =
        snapshot.runners.set.iter().any(|set| set.pool.judges()) || snapshot.runners.local_judge == LocalJudge::Off;
    let jobs = jobs.iter().filter_map(|row| match &row.status {
        JobStatus::Waiting { sentence, .. } if judges => {
            Some(RunnerWaitRow { who: WhoWaits::Job { job: row.job }, sentence: sentence.clone() })
        }
        JobStatus::Waiting { .. }
        | JobStatus::Recording { .. }
        | JobStatus::Measuring { .. }
        | JobStatus::Concluding { .. }
        | JobStatus::Ended { .. } => None,
    });
    lanes.chain(jobs).collect()
}

fn notes(snapshot: &Snapshot) -> Vec<String> {
    let looked = &snapshot.runners;
    let mut notes = Vec::new();
    if looked.local_judge == LocalJudge::Off && !looked.set.iter().any(|set| set.pool.judges()) {
        notes.push(texts::NO_JUDGES_RUNNER.to_owned());
    }
    let most = snapshot.lanes_most;
    notes.extend(looked.set.iter().filter_map(|set| match set.pool {
        RunnerPool::Lane(lane) if usize::from(lane.number()) > most => {
            Some(format!("{} serves {lane} alone, and this rig has {most} lanes: it stays idle", set.runner))
        }
        RunnerPool::Lane(_) | RunnerPool::Judge | RunnerPool::Shared => None,
    }));
    notes
}
