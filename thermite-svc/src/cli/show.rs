//! The rig in words: one line for each thing, the rig's own sentences inside.

use thermite_actors::view::{DevRunRow, DevRunStatus, DeviceRow, JobRow, JobStatus, LeftoverRow, RunRow};
use thermite_core::block::Side;
use thermite_core::device::DeviceView;
use thermite_core::record::Bounds;
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::time::Moment;

use thermite_core::why::{self, stop_cause};
pub(crate) use thermite_core::why::{dev_run_end, job_outcome, percent, short};

/// A device's state.
pub(crate) fn device(row: &DeviceRow, now: Moment) -> String {
    let state = why::device_state(&row.state, now);
    format!("{} ({}): {state}", row.member, row.facts.model)
}

/// A device's state in a word, without its times.
pub(crate) fn device_word(state: &DeviceView) -> String {
    match state {
        DeviceView::Sweeping => "sweeping".to_owned(),
        DeviceView::Ready => "free".to_owned(),
        DeviceView::Held { by, .. } => format!("held by {by}"),
        DeviceView::Stopping { .. } => "stopping".to_owned(),
        DeviceView::Out { why, .. } => format!("out of service: {why}"),
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
    let champion = short(&row.champion);
    format!("run {}: {state}, kit {}, {lanes}, champion {champion}, {}", row.run, row.kit, row.repo.display())
}

/// A development run with its command.
pub(crate) fn dev_run(row: &DevRunRow, now: Moment) -> String {
    format!("{}: {}: {}", row.lane, row.argv.join(" "), dev_run_status(&row.status, now))
}

/// What a development run does.
pub(crate) fn dev_run_status(status: &DevRunStatus, now: Moment) -> String {
    match status {
        DevRunStatus::Recording { sentence, .. }
        | DevRunStatus::Waiting { sentence, .. }
        | DevRunStatus::Starting { sentence, .. } => sentence.clone(),
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
    let (pid, command, since) = (row.pid, &row.command, now.since(row.since));
    format!("{}: left behind since {since}: pid {pid} ({command}), of development run {}", row.lane, row.dev_run)
}

/// A job.
pub(crate) fn job(row: &JobRow) -> String {
    format!("job {}: change {}: {}", row.job, short(&row.change), job_status(row))
}

/// What a job does.
pub(crate) fn job_status(row: &JobRow) -> String {
    // Counted by failures: a confirmation is an attempt of its own, and no second try at anything.
    let (attempt, last) = match row.failures.last() {
        None => (String::new(), String::new()),
        Some(why) => (format!(" (attempt {})", row.failures.len() + 1), format!("; infrastructure failed it: {why}")),
    };
    match &row.status {
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
        JobStatus::Ended { outcome, .. } => job_outcome(outcome),
    }
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
            let lower = stage.lower.map(|lower| format!(", lower bound {}", percent(lower))).unwrap_or_default();
            format!("block {} of at most {}{thrown}{evidence}{lower}", stage.accepted, stage.blocks_most)
        }
        StagePhase::Ended => "is over".to_owned(),
    }
}

/// What a stage's blocks say of the effect, the lower bound first.
pub(crate) fn effect(of: &Bounds, accepted: usize, thrown: usize) -> String {
    let blocks = if accepted == 1 { "1 block".to_owned() } else { format!("{accepted} blocks") };
    format!("{}; {blocks}, {thrown} thrown", bounds(of))
}

fn bounds(bounds: &Bounds) -> String {
    let shown = |bound: Option<f64>| bound.map_or("none".to_owned(), percent);
    format!(
        "lower bound {}, upper bound {}, HL {} (early-stopped)",
        shown(bounds.lower),
        shown(bounds.upper),
        shown(bounds.estimate_early_stopped)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_core::ids::JobId;
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
    fn a_win_that_came_too_late_is_said_in_the_rules_words() {
        assert_eq!(job_outcome(&JobOutcome::Win { adopted: false }), "win, not adopted: the champion moved");
    }
}
