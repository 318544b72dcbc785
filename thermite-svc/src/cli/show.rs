//! The rig in words: one line for each thing, the rig's own sentences inside.

use thermite_actors::view::{DevRunRow, DevRunStatus, DeviceRow, JobRow, JobStatus, LeftoverRow, RunRow};
use thermite_core::block::Side;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::device::DeviceView;
use thermite_core::hold::StopCause;
use thermite_core::ids::JobId;
use thermite_core::job::{ChangeStep, JobOutcome};
use thermite_core::record::Bounds;
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::texts;
use thermite_core::time::Moment;
use thermite_svc::plain::{plain, plain_lines};

/// A device's state.
pub(crate) fn device(row: &DeviceRow, now: Moment) -> String {
    let state = match &row.state {
        DeviceView::Sweeping => "what earlier runs left behind is being looked for".to_owned(),
        DeviceView::Ready => "free".to_owned(),
        DeviceView::Held { by, running_since, limit_at, .. } => {
            let since = running_since.map(|since| format!(", runs since {}", now.since(since))).unwrap_or_default();
            let limit = limit_at.map(|at| format!(", at most {} more", at.since(now))).unwrap_or_default();
            format!("held by {by}{since}{limit}")
        }
        DeviceView::Stopping { cause, .. } => format!("what ran on it is being ended: {}", stop_cause(cause)),
        DeviceView::Out { why, next_try } => {
            format!("out of service: {}; tried again in {}", plain(why), next_try.since(now))
        }
        DeviceView::Quarantined { why } => format!("quarantined: {}", plain(why)),
    };
    format!("{} ({}): {state}", row.member, plain(&row.facts.model))
}

/// A device's state in a word, without its times.
pub(crate) fn device_word(state: &DeviceView) -> String {
    match state {
        DeviceView::Sweeping => "sweeping".to_owned(),
        DeviceView::Ready => "free".to_owned(),
        DeviceView::Held { by, .. } => format!("held by {by}"),
        DeviceView::Stopping { .. } => "stopping".to_owned(),
        DeviceView::Out { why, .. } => format!("out of service: {}", plain(why)),
        DeviceView::Quarantined { why } => format!("quarantined: {}", plain(why)),
    }
}

/// A run.
pub(crate) fn run(row: &RunRow) -> String {
    let state = match row.state {
        RunState::Running => "running",
        RunState::Paused => "paused",
        RunState::Ended => "ended",
    };
    let lanes = if row.lanes == 1 { "1 lane".to_owned() } else { format!("{} lanes", row.lanes) };
    let (kit, champion) = (plain(&row.kit), plain(short(&row.champion)));
    let repo = plain(&row.repo.display().to_string());
    format!("run {}: {state}, kit {kit}, {lanes}, champion {champion}, {repo}", row.run)
}

/// A development run with its command.
pub(crate) fn dev_run(row: &DevRunRow, now: Moment) -> String {
    format!("{}: {}: {}", row.lane, command(&row.argv), dev_run_status(&row.status, now))
}

/// A command on one line, as a shell would take it where that is told easily.
pub(crate) fn command(argv: &[String]) -> String {
    let words: Vec<String> = argv
        .iter()
        .map(|word| {
            let shown = plain(word);
            let is_bare = !shown.is_empty() && !shown.contains(|letter: char| " \t'\"\\$`|&;<>()*?#~".contains(letter));
            if is_bare { shown } else { format!("'{}'", shown.replace('\'', "'\\''")) }
        })
        .collect();
    words.join(" ")
}

/// What a development run does.
pub(crate) fn dev_run_status(status: &DevRunStatus, now: Moment) -> String {
    match status {
        DevRunStatus::Recording => "is being recorded".to_owned(),
        DevRunStatus::Waiting { sentence, .. } => plain(sentence),
        DevRunStatus::Starting { .. } => "starts".to_owned(),
        DevRunStatus::Running { since, limit_at, .. } => {
            let limit = limit_at.map(|at| format!(", at most {} more", at.since(now))).unwrap_or_default();
            format!("runs since {}{limit}", now.since(*since))
        }
        DevRunStatus::Stopping { cause, .. } => format!("is being ended: {}", stop_cause(cause)),
        DevRunStatus::Ended { end } => dev_run_end(end),
    }
}

/// A process that a development run left behind.
pub(crate) fn leftover(row: &LeftoverRow, now: Moment) -> String {
    let (pid, command, since) = (row.pid, &plain(&row.command), now.since(row.since));
    format!("{}: left behind since {since}: pid {pid} ({command}), of development run {}", row.lane, row.dev_run)
}

/// How a development run ended.
pub(crate) fn dev_run_end(end: &DevRunEnd) -> String {
    match end {
        DevRunEnd::Exited { exit: Exit::Code(code), ran } => format!("ended with exit code {code} after {ran}"),
        DevRunEnd::Exited { exit: Exit::Signal(signal), ran } => format!("ended by signal {signal} after {ran}"),
        DevRunEnd::LimitReached { limit } => format!("ended at its limit of {limit}"),
        DevRunEnd::Cancelled => "cancelled".to_owned(),
        DevRunEnd::GaveUp { why } => why.to_string(),
        DevRunEnd::NotStarted { why } => format!("not started: {}", plain(why)),
        DevRunEnd::NotProved { why } => format!("{}: {}", texts::NOT_PROVED, plain(why)),
        DevRunEnd::RigEnded => "the rig ended while it ran; run the command again".to_owned(),
    }
}

/// A job.
pub(crate) fn job(row: &JobRow) -> String {
    format!("job {}: change {}: {}", row.job, plain(short(&row.change)), job_status(row))
}

/// What a job does.
pub(crate) fn job_status(row: &JobRow) -> String {
    // Counted by failures: a confirmation is an attempt of its own, and no second try at anything.
    let (attempt, last) = match row.failures.last() {
        None => (String::new(), String::new()),
        Some(why) => (format!(" (attempt {})", row.failures.len() + 1), format!("; infrastructure failed it: {why}")),
    };
    let said = match &row.status {
        JobStatus::Recording => "is being recorded".to_owned(),
        JobStatus::Waiting { sentence, .. } => format!("{}{attempt} {sentence}{last}", row.stage),
        JobStatus::Measuring { sentence: Some(sentence), stage: Some(stage), .. } => {
            format!("{}{attempt}: {}; {sentence}", row.stage, stage_progress(stage))
        }
        JobStatus::Measuring { sentence: Some(sentence), stage: None, .. } => {
            format!("{}{attempt} {sentence}", row.stage)
        }
        JobStatus::Measuring { sentence: None, stage: Some(stage), .. } => {
            format!("{}{attempt}: {}", row.stage, stage_progress(stage))
        }
        JobStatus::Measuring { sentence: None, stage: None, .. } => format!("{}{attempt} has the device", row.stage),
        JobStatus::Concluding => "is being concluded".to_owned(),
        JobStatus::Ended { outcome, .. } => match &row.reused_from {
            Some(from) => format!("{}, {}", job_outcome(outcome), reused_from(*from)),
            None => job_outcome(outcome),
        },
    };
    plain(&said)
}

/// That a job was given another's verdict.
pub(crate) fn reused_from(job: JobId) -> String {
    format!("reused from job {job}")
}

/// How far a stage is.
pub(crate) fn stage_progress(stage: &StageView) -> String {
    let side = |side: Side| match side {
        Side::Champion => "champion",
        Side::Change => "change",
    };
    let thrown = if stage.thrown > 0 { format!(", {} thrown", stage.thrown) } else { String::new() };
    match stage.phase {
        StagePhase::Preparing => "prepares".to_owned(),
        StagePhase::Building { side: of } => format!("builds the {}", side(of)),
        StagePhase::Checking { side: of } => format!("checks the {}", side(of)),
        StagePhase::MeasuringNoise => {
            format!("measures the device's noise, block {} of {}{thrown}", stage.accepted, stage.blocks_most)
        }
        StagePhase::Comparing => {
            let evidence = stage.ln_w.map(|ln_w| format!(", ln W {ln_w:.2}")).unwrap_or_default();
            let lower = stage.lower.map(|bound| format!(", lower bound {}", lower(bound))).unwrap_or_default();
            format!("block {} of at most {}{thrown}{evidence}{lower}", stage.accepted, stage.blocks_most)
        }
        StagePhase::Ended => "is over".to_owned(),
    }
}

/// How a job ended, in words that may hold several lines of what a failed command said.
pub(crate) fn job_outcome(outcome: &JobOutcome) -> String {
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
            format!("the change failed to {step}: {}", plain_lines(why))
        }
        JobOutcome::NoVerdict { why } => format!("no verdict: {}", plain_lines(why)),
    }
}

/// What a stage's blocks say of the effect, the lower bound first.
pub(crate) fn effect(of: &Bounds, accepted: usize, thrown: usize) -> String {
    let blocks = if accepted == 1 { "1 block".to_owned() } else { format!("{accepted} blocks") };
    format!("{}; {blocks}, {thrown} thrown", bounds(of))
}

fn bounds(bounds: &Bounds) -> String {
    let shown = |bound: Option<f64>, words: fn(f64) -> String| bound.map_or("none".to_owned(), words);
    format!(
        "lower bound {}, upper bound {}, HL {} (early-stopped)",
        shown(bounds.lower, lower),
        shown(bounds.upper, upper),
        shown(bounds.estimate_early_stopped, percent)
    )
}

/// A lower bound in percent, rounded down: what is said must not be more than what is so.
pub(crate) fn lower(ln: f64) -> String {
    in_percent((ln.exp_m1() * 1_000.0 + ROUNDING).floor() / 10.0)
}

/// An upper bound in percent, rounded up.
fn upper(ln: f64) -> String {
    in_percent((ln.exp_m1() * 1_000.0 - ROUNDING).ceil() / 10.0)
}

/// A bound that is exact to the digits shown must not move for its last bit.
const ROUNDING: f64 = 1e-9;

fn in_percent(percent: f64) -> String {
    // Adding zero makes a zero of one with a minus before it.
    format!("{:+.1} %", percent + 0.0)
}

/// A speed-up given as its logarithm, in percent: `+14.1 %`.
pub(crate) fn percent(ln: f64) -> String {
    format!("{:+.1} %", ln.exp_m1() * 100.0)
}

/// A commit as people write it.
pub(crate) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn stop_cause(cause: &StopCause) -> String {
    match cause {
        StopCause::StageOver => "the stage is over".to_owned(),
        StopCause::Cancelled => "cancelled".to_owned(),
        StopCause::WaitedTooLong => "it had waited too long".to_owned(),
        StopCause::RunEnded => "its run ended".to_owned(),
        StopCause::RigEnding => "the rig is ending".to_owned(),
        StopCause::LimitReached { limit } => format!("it reached its limit of {limit}"),
        StopCause::Exited { .. } => "it ended".to_owned(),
        StopCause::StartFailed { why } => format!("it could not be started: {}", plain(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_core::job::StageKind;
    use thermite_core::refusal::GaveUp;
    use thermite_core::time::Span;

    #[test]
    fn a_development_runs_end_is_said_in_the_rules_words() {
        let gave_up = DevRunEnd::GaveUp { why: GaveUp::JudgeKeptDevice };
        let exited = DevRunEnd::Exited { exit: Exit::Code(3), ran: Span::millis(1_400) };

        assert_eq!(dev_run_end(&gave_up), "the judge kept the device busy; try again later");
        assert_eq!(dev_run_end(&exited), "ended with exit code 3 after 1.4 s");
    }

    #[test]
    fn blocks_are_shown_with_the_evidence_so_far() {
        let stage = StageView {
            job: JobId(uuid::Uuid::nil()),
            stage: StageKind::Screening,
            attempt: 1,
            phase: StagePhase::Comparing,
            accepted: 7,
            thrown: 1,
            blocks_most: 200,
            lower: Some(0.05),
            ln_w: Some(2.345),
            ln_f: None,
            last_d: None,
            waiting: None,
        };

        assert_eq!(stage_progress(&stage), "block 7 of at most 200, 1 thrown, ln W 2.35, lower bound +5.1 %");
    }

    #[test]
    fn the_lower_bound_comes_first_and_the_estimate_says_how_it_was_stopped() {
        let of = Bounds { lower: Some(0.1), upper: None, estimate_early_stopped: Some(0.2) };

        assert_eq!(bounds(&of), "lower bound +10.5 %, upper bound none, HL +22.1 % (early-stopped)");
    }

    #[test]
    fn bounds_are_rounded_away_from_each_other() {
        assert_eq!((lower(0.0057), upper(0.0057)), ("+0.5 %".into(), "+0.6 %".into()));
        assert_eq!((lower(-0.0491), upper(-0.0491)), ("-4.8 %".into(), "-4.7 %".into()));
        assert_eq!((lower(0.05_f64.ln_1p()), upper(0.05_f64.ln_1p())), ("+5.0 %".into(), "+5.0 %".into()));
        assert_eq!(upper(-0.0002), "+0.0 %");
    }

    #[test]
    fn a_win_that_came_too_late_is_said_in_the_rules_words() {
        assert_eq!(job_outcome(&JobOutcome::Win { adopted: false }), "win, not adopted: the champion moved");
    }
}
