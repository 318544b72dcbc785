//! Explaining one wait or decision (rule D10): facts in, sentences out. Every text that says how something ended or why
//! it stands as it does is here, once, for all doors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block::{ThrowCause, TriedBlock};
use crate::dev_run::{DevRunEnd, Exit};
use crate::device::DeviceView;
use crate::fold::{Behind, DevRunHistory, JobHistory, RunHistory};
use crate::hold::{RunnerLoss, StopCause};
use crate::ids::{DevRunId, HoldId, JobId, MemberId, RunId};
use crate::job::{ChangeStep, JobOutcome};
use crate::limits;
use crate::record::{StopReason, VerdictRecord};
use crate::refusal::GaveUp;
use crate::run::RunState;
use crate::texts;
use crate::time::Moment;

/// What is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A development run.
    DevRun,
    /// A job.
    Job,
    /// A run.
    Run,
    /// A device.
    Device,
    /// A runner.
    Runner,
}

/// Why something waits, or came out as it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// What it is about.
    pub subject: Subject,
    /// Its name.
    pub id: String,
    /// The one sentence: of a waiter the same that every other door says (rule A9).
    pub says: String,
    /// What lies behind it, one sentence each.
    pub because: Vec<String>,
    /// Records that say more, by their hash.
    pub records: Vec<String>,
}

/// How something that is not over stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Now {
    /// It waits: the certificate's sentence.
    Waits(String),
    /// It goes on: what it does.
    Does(String),
}

impl Explanation {
    fn new(subject: Subject, id: impl ToString, says: String) -> Explanation {
        Explanation { subject, id: id.to_string(), says, because: Vec::new(), records: Vec::new() }
    }

    /// A development run, over or not.
    pub fn of_dev_run(id: DevRunId, known: &DevRunHistory, now: Option<Now>) -> Explanation {
        let says = match (&now, &known.end) {
            (Some(Now::Waits(sentence) | Now::Does(sentence)), _) => sentence.clone(),
            (None, Some(end)) => dev_run_end(end),
            (None, None) => "is being recorded".to_owned(),
        };
        let mut told = Explanation::new(Subject::DevRun, id, says);
        told.because.push(format!("asked for by {} of run {}", known.spec.lane, known.spec.run));
        if let (None, Some(end)) = (now, &known.end) {
            told.because.extend(why_dev_run_ended(end, known.behind.as_ref()));
            told.because.push(match known.started {
                true => "it had a device".to_owned(),
                false => "it never had a device, and nothing of it ran".to_owned(),
            });
        }
        told.because.push(texts::note_of_dev_run(known.on_runner));
        told
    }

    /// A job, over or not. What its stages found is in the records it names ([`of_record`]).
    pub fn of_job(id: JobId, known: &JobHistory, run: Option<&RunHistory>, now: Option<Now>) -> Explanation {
        let pinned = &known.spec.pinned;
        let (change, champion) = (short(&pinned.change), short(&pinned.champion));
        let says = match (&now, &known.end) {
            (Some(Now::Waits(sentence) | Now::Does(sentence)), _) => sentence.clone(),
            (None, Some((outcome, _))) => job_outcome(outcome),
            (None, None) => "is being concluded".to_owned(),
        };
        let mut told = Explanation::new(Subject::Job, id, says);
        told.because.push(format!("change {change} against champion {champion}, kit {}", pinned.kit.name));
        let most = limits::INFRASTRUCTURE_FAILURES_MAX;
        for (at, why) in known.failures.iter().enumerate() {
            told.because.push(format!("infrastructure failure {} of at most {most}: {why}", at + 1));
        }
        if let Some((outcome, record)) = &known.end {
            told.because.push(what_of_champion(outcome, known, run));
            told.records.extend(known.screened.iter().map(|screened| screened.1.clone()));
            told.records.extend(record.clone());
        } else if let Some((member, record)) = &known.screened {
            told.because.push(format!("its screening was won on {member}; the confirmation decides"));
            told.records.push(record.clone());
        }
        told
    }

    /// A run.
    pub fn of_run(id: RunId, known: &RunHistory, jobs_open: usize, dev_runs_open: usize) -> Explanation {
        let says = match known.state {
            RunState::Running => {
                format!("running, with {jobs_open} jobs and {dev_runs_open} development runs under way")
            }
            RunState::Paused => format!(
                "paused: its {jobs_open} jobs keep their place and are not started, and it takes no new development run \
                 until it is resumed"
            ),
            RunState::Ended => "ended: it takes nothing any more".to_owned(),
        };
        let mut told = Explanation::new(Subject::Run, id, says);
        told.because.push(match &known.moved_by {
            None => format!("its champion {} is the one it began with", short(&known.champion)),
            Some(job) => format!("its champion {} won by job {job}", short(&known.champion)),
        });
        if known.state == RunState::Paused && jobs_open > 0 {
            told.because
                .push("its jobs hold all development runs on the shared device back as well (rule A3)".to_owned());
        }
        told
    }

    /// A runner.
    pub fn of_runner(
        name: &str,
        why_not: Option<&str>,
        is_held: bool,
        because: impl IntoIterator<Item = String>,
    ) -> Explanation {
        let says = match (why_not, is_held) {
            (Some(why), _) => format!("takes no runs: {why}"),
            (None, true) => "busy; takes its next run once this one is over".to_owned(),
            (None, false) => "free".to_owned(),
        };
        Explanation { because: because.into_iter().collect(), ..Explanation::new(Subject::Runner, name, says) }
    }

    /// A device.
    pub fn of_device(member: MemberId, state: &DeviceView, now: Moment) -> Explanation {
        Explanation::new(Subject::Device, member, device_state(state, now))
    }
}

/// For what a device is held.
pub fn holder(held: &Behind, hold: HoldId) -> String {
    match held {
        Behind::Job { job, .. } => format!("{hold} is for job {job}"),
        Behind::DevRun { dev_run, lane, .. } => format!("{hold} is for development run {dev_run} of {lane}"),
    }
}

/// Which of the first causes ended it, and who had the device.
fn why_dev_run_ended(end: &DevRunEnd, behind: Option<&Behind>) -> Vec<String> {
    let held_by = || match behind {
        Some(Behind::Job { job, member }) => format!("at that moment the judge held {member} for job {job}"),
        Some(Behind::DevRun { dev_run, lane, member }) => {
            format!("at that moment {lane} held {member} for development run {dev_run}")
        }
        None => "at that moment nobody held the device".to_owned(),
    };
    let first = |who: &str| vec![format!("the first cause of its stop: {who}")];
    match end {
        DevRunEnd::GaveUp { why: why @ (GaveUp::JudgeKeptDevice | GaveUp::LaneHeldDevice | GaveUp::OutOfService) } => {
            let rule = match why {
                GaveUp::JudgeKeptDevice => "the judge goes first on a shared device (rule A2)",
                GaveUp::LaneHeldDevice => "lanes take turns in order of arrival (rule A4)",
                GaveUp::OutOfService => "no device was in service, or the records could not be written",
                GaveUp::RunPaused | GaveUp::RunEnded => "its run takes no work",
            };
            vec!["it had waited as long as a development run waits (rule A6)".to_owned(), held_by(), rule.to_owned()]
        }
        DevRunEnd::GaveUp { why: GaveUp::RunPaused } => first("somebody paused its run"),
        DevRunEnd::GaveUp { why: GaveUp::RunEnded } => first("somebody ended its run"),
        DevRunEnd::Cancelled => first("its lane cancelled it, or its caller was gone"),
        DevRunEnd::LimitReached { .. } => first("its limit (rule A5)"),
        DevRunEnd::NewSplit => first("the cards were given out anew (rule B9)"),
        DevRunEnd::RunnerLost { how: RunnerLoss::Away } => first("its runner missed its checks (rule E11)"),
        DevRunEnd::RunnerLost { how: RunnerLoss::Restarted } => first("its runner's process died"),
        DevRunEnd::RunnerLost { how: RunnerLoss::NewPool | RunnerLoss::TakenAway } => {
            first("somebody changed the rig's runners (rule E10)")
        }
        DevRunEnd::RigEnded => first("the rig itself ended or was killed"),
        DevRunEnd::Exited { .. } => first("its own end"),
        DevRunEnd::NotStarted { .. } => first("its start failed"),
        DevRunEnd::NotProved { .. } => {
            vec!["its device is out of service until it is proved empty (rule A7)".to_owned()]
        }
    }
}

fn what_of_champion(outcome: &JobOutcome, known: &JobHistory, run: Option<&RunHistory>) -> String {
    let candidate = short(&known.spec.pinned.candidate);
    match outcome {
        JobOutcome::Win { adopted: true } => format!("the champion moved to {candidate}"),
        JobOutcome::Win { adopted: false } => match run {
            Some(run) => {
                format!("the champion stayed: it had become {} before this was confirmed", short(&run.champion))
            }
            None => "the champion stayed: it had moved before this was confirmed".to_owned(),
        },
        JobOutcome::NoGain { .. } => "the champion stayed: the change is not as much faster as planned".to_owned(),
        JobOutcome::Undecided => "the champion stayed: the blocks ran out before there was enough evidence".to_owned(),
        JobOutcome::ChangeFailed { .. } => "the champion stayed: the change itself failed".to_owned(),
        JobOutcome::NoVerdict { .. } => {
            "the champion stayed: there is no verdict; it may be submitted again (rule D5)".to_owned()
        }
    }
}

/// Why a stage ended, with its figures, and which blocks were thrown away.
pub fn of_record(record: &VerdictRecord) -> Vec<String> {
    let after = record.after.last();
    let (ln_w, ln_f) = (after.map_or(0.0, |after| after.ln_w), after.map_or(0.0, |after| after.ln_f));
    let wanted = |chance: f64| libm::log(1.0 / chance);
    let constants = &record.constants;
    let accepted = record.after.len();
    let stage = record.facts.stage;
    let bound = record.bounds.lower.map_or("none".to_owned(), lower);
    let because = match record.stopped {
        StopReason::EvidenceAndGate => format!(
            "the evidence that it is faster crossed: ln W {ln_w:.2}, {:.2} wanted, and the estimate reached the gate of {}",
            wanted(constants.alpha),
            percent(constants.gate)
        ),
        StopReason::Futility => format!(
            "futility: the evidence against a gain of {} reached ln F {ln_f:.2}, {:.2} wanted",
            percent(constants.plan_effect),
            wanted(constants.beta)
        ),
        StopReason::MostBlocks => format!(
            "the most blocks, {}, were there: ln W {ln_w:.2} of {:.2}, ln F {ln_f:.2} of {:.2}",
            constants.blocks_most,
            wanted(constants.alpha),
            wanted(constants.beta)
        ),
    };
    let mut told =
        vec![format!("{stage} ended after {accepted} blocks with {}: {because}; lower bound {bound}", record.verdict)];
    let thrown = causes(&record.blocks);
    if thrown.is_empty() {
        told.push(format!("{stage}: no block was thrown away"));
    } else {
        let list: Vec<String> = thrown.iter().map(|(cause, times)| format!("{times} times {cause}")).collect();
        let away = record.blocks.len() - accepted;
        told.push(format!("{stage}: {away} of {} blocks were thrown away: {}", record.blocks.len(), list.join("; ")));
    }
    told
}

/// Thrown blocks' causes by count, the commonest first.
fn causes(blocks: &[TriedBlock]) -> Vec<(ThrowCause, u32)> {
    let mut causes: BTreeMap<ThrowCause, u32> = BTreeMap::new();
    for block in blocks {
        match block {
            TriedBlock::Accepted { .. } => {}
            TriedBlock::Thrown { causes: shown, .. } => {
                shown.iter().for_each(|cause| *causes.entry(cause.clone()).or_default() += 1);
            }
            TriedBlock::Lost { .. } => *causes.entry(ThrowCause::ProcessLost).or_default() += 1,
        }
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    causes
}

/// A device's state.
pub fn device_state(state: &DeviceView, now: Moment) -> String {
    match state {
        DeviceView::Sweeping => "what earlier runs left behind is being looked for".to_owned(),
        DeviceView::Ready => "free".to_owned(),
        DeviceView::Held { by, running_since, limit_at, .. } => {
            let since = running_since.map(|since| format!(", runs since {}", now.since(since))).unwrap_or_default();
            let limit = limit_at.map(|at| format!(", at most {} more", at.since(now))).unwrap_or_default();
            format!("held by {by}{since}{limit}")
        }
        DeviceView::Stopping { cause, until, .. } => format!(
            "what ran on it is being ended: {}; proved or out of service in at most {}",
            stop_cause(cause),
            until.since(now)
        ),
        DeviceView::Quarantined { why } => format!("quarantined: {why}"),
        DeviceView::Out { why, next_try } => format!("out of service: {why}; tried again in {}", next_try.since(now)),
    }
}

/// How a development run ended.
pub fn dev_run_end(end: &DevRunEnd) -> String {
    match end {
        DevRunEnd::Exited { exit: Exit::Code(code), ran } => format!("ended with exit code {code} after {ran}"),
        DevRunEnd::Exited { exit: Exit::Signal(signal), ran } => format!("ended by signal {signal} after {ran}"),
        DevRunEnd::LimitReached { limit } => format!("ended at its limit of {limit}"),
        DevRunEnd::Cancelled => "cancelled".to_owned(),
        DevRunEnd::GaveUp { why } => why.to_string(),
        DevRunEnd::NotStarted { why } => format!("not started: {why}"),
        DevRunEnd::NotProved { why } => format!("{}: {why}", texts::NOT_PROVED),
        DevRunEnd::NewSplit => texts::NEW_SPLIT.to_owned(),
        DevRunEnd::RunnerLost { how } => texts::runner_lost(*how).to_owned(),
        DevRunEnd::RigEnded => "the rig ended while it ran; run the command again".to_owned(),
    }
}

/// How a job ended.
pub fn job_outcome(outcome: &JobOutcome) -> String {
    match outcome {
        JobOutcome::Win { adopted: true } => "win".to_owned(),
        JobOutcome::Win { adopted: false } => texts::WIN_NOT_ADOPTED.to_owned(),
        JobOutcome::NoGain { slower: false } => "no gain".to_owned(),
        JobOutcome::NoGain { slower: true } => "no gain, slower".to_owned(),
        JobOutcome::Undecided => "undecided".to_owned(),
        JobOutcome::ChangeFailed { step, why } => {
            let step = match step {
                ChangeStep::Build => "build",
                ChangeStep::Check => "check",
                ChangeStep::Measure => "measure",
            };
            format!("the change failed to {step}: {why}")
        }
        JobOutcome::NoVerdict { why } => format!("no verdict: {why}"),
    }
}

/// Why work is stopped.
pub fn stop_cause(cause: &StopCause) -> String {
    match cause {
        StopCause::StageOver => "the stage is over".to_owned(),
        StopCause::Cancelled => "cancelled".to_owned(),
        StopCause::WaitedTooLong => "it had waited too long".to_owned(),
        StopCause::RunEnded => "its run ended".to_owned(),
        StopCause::RigEnding => "the rig is ending".to_owned(),
        StopCause::NewSplit => "the cards are being given out anew".to_owned(),
        StopCause::RunnerLost { how: RunnerLoss::Away } => "its runner was away".to_owned(),
        StopCause::RunnerLost { how: RunnerLoss::Restarted } => "its runner's process died".to_owned(),
        StopCause::RunnerLost { how: RunnerLoss::NewPool } => "its runner is given another pool".to_owned(),
        StopCause::RunnerLost { how: RunnerLoss::TakenAway } => "its runner is taken away".to_owned(),
        StopCause::LimitReached { limit } => format!("it reached its limit of {limit}"),
        StopCause::Exited { .. } => "it ended".to_owned(),
        StopCause::StartFailed { why } => format!("it could not be started: {why}"),
    }
}

/// A lower bound in percent, rounded down: what is said must not be more than what is so.
pub fn lower(ln: f64) -> String {
    in_percent((libm::expm1(ln) * 1_000.0 + ROUNDING).floor() / 10.0)
}

/// An upper bound in percent, rounded up.
pub fn upper(ln: f64) -> String {
    in_percent((libm::expm1(ln) * 1_000.0 - ROUNDING).ceil() / 10.0)
}

/// A bound that is exact to the digits shown must not move for its last bit.
const ROUNDING: f64 = 1e-9;

fn in_percent(percent: f64) -> String {
    // Adding zero makes a zero of one with a minus before it.
    format!("{:+.1} %", percent + 0.0)
}

/// A speed-up given as its logarithm, in percent: `+14.1 %`.
pub fn percent(ln: f64) -> String {
    format!("{:+.1} %", libm::expm1(ln) * 100.0)
}

/// A commit as people write it.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
