//! The rig in words: one line for each thing, the rig's own sentences inside.

use thermite_actors::view::{DevRunRow, DevRunStatus, DevicePool, DeviceRow, JobRow, JobStatus, LeftoverRow, RunRow};
use thermite_core::blame::Blame;
use thermite_core::block::Side;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::hold::StopCause;
use thermite_core::ids::JobId;
use thermite_core::job::JobOutcome;
use thermite_core::readiness::{Reading, Signal};
use thermite_core::record::Bounds;
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::time::Moment;
use thermite_svc::plain::{plain, plain_lines};

use thermite_core::why::{self, upper};
pub(crate) use thermite_core::why::{lower, percent, short};

/// A device's state.
pub(crate) fn device(row: &DeviceRow, now: Moment) -> String {
    let state = plain(&why::device_state(&row.state, now));
    format!("{} ({}): {state}", row.member, plain(&row.facts.model))
}

/// Whom a card serves.
pub(crate) fn pool(row: &DeviceRow) -> String {
    let pool = match row.pool {
        DevicePool::Shared => "shared, the judge first",
        DevicePool::Judge => "the judge's",
        DevicePool::Agents => "the lanes'",
        DevicePool::Idle => "idle",
    };
    let idle = row.idle.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
    let drained = if row.drained { ", drained: it takes nothing more until `thermite undrain`" } else { "" };
    format!("{pool}{idle}{drained}")
}

/// What disturbed some of the judge's blocks, and beside whom.
pub(crate) fn blamed(blame: &Blame, blocks: u64) -> String {
    let blocks = if blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
    match blame.lane {
        Some(lane) => format!("{blocks}: {}, while {lane} alone ran", blame.cause),
        None => format!("{blocks}: {}", blame.cause),
    }
}

/// A reading, signal by signal.
pub(crate) fn reading(reading: &Reading) -> String {
    let signals: Vec<String> = reading.signals.iter().map(Signal::to_string).collect();
    signals.join(", ")
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
        DevRunStatus::Recording { sentence, .. }
        | DevRunStatus::Waiting { sentence, .. }
        | DevRunStatus::Starting { sentence, .. } => plain(sentence),
        DevRunStatus::Running { since, limit_at, .. } => {
            let limit = limit_at.map(|at| format!(", at most {} more", at.since(now))).unwrap_or_default();
            format!("runs since {}{limit}", now.since(*since))
        }
        DevRunStatus::Stopping { cause, sentence, .. } => {
            format!("is being ended: {}; {sentence}", stop_cause(cause))
        }
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
    plain(&why::dev_run_end(end))
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
        JobStatus::Recording { sentence, .. } | JobStatus::Concluding { sentence, .. } => sentence.clone(),
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
    plain_lines(&why::job_outcome(outcome))
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

fn stop_cause(cause: &StopCause) -> String {
    plain(&why::stop_cause(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_core::dev_run::Exit;
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
