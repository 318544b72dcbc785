//! What agents are told, as text. What programs wrote is made safe to show.

use thermite_actors::rig;
use thermite_actors::view::{DevRunStatus, JobRow, JobStatus, RigView, RunRow};
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::LaneId;
use thermite_core::why;

use crate::plain::{plain, plain_lines};
use crate::runner_lines;

/// How a development run goes.
pub(super) fn going(status: &DevRunStatus) -> String {
    match status {
        DevRunStatus::Running { .. } => "it runs".to_owned(),
        DevRunStatus::Ended { end } => why::dev_run_end(end),
        DevRunStatus::Recording { sentence, .. }
        | DevRunStatus::Waiting { sentence, .. }
        | DevRunStatus::Starting { sentence, .. }
        | DevRunStatus::Stopping { sentence, .. } => sentence.clone(),
    }
}

/// A piece of output.
pub(super) fn output(bytes: &[u8]) -> String {
    plain_lines(&String::from_utf8_lossy(bytes))
}

/// An experiment's end.
pub(super) fn experiment(end: &DevRunEnd, note: &str, head: &[u8], left_out: u64, tail: &[u8]) -> String {
    let mut words = format!("{}\n{note}\n", why::dev_run_end(end));
    if head.is_empty() && tail.is_empty() {
        return words + "It wrote nothing.";
    }
    words.push_str("Output:\n");
    if left_out == 0 {
        words.push_str(&output(&[head, tail].concat()));
        return words;
    }
    words.push_str(&output(head));
    words.push_str(&format!("\n[{left_out} bytes are left out here]\n"));
    words.push_str(&output(tail));
    words
}

/// A job's acceptance.
pub(super) fn submitted(submitted: &rig::Submitted, row: &JobRow) -> String {
    let place = match (submitted.same, submitted.ahead) {
        (true, _) => "it was submitted before".to_owned(),
        (false, 0) => "no job is before it".to_owned(),
        (false, 1) => "1 job is before it".to_owned(),
        (false, ahead) => format!("{ahead} jobs are before it"),
    };
    format!("job {}: {place}\n{}", submitted.job, job(row))
}

/// A job.
pub(super) fn job(row: &JobRow) -> String {
    let about = match &row.status {
        JobStatus::Ended { outcome, .. } => why::job_outcome(outcome),
        JobStatus::Measuring { stage, sentence, .. } => {
            let at = stage.as_ref().map(|stage| {
                format!(
                    ": {} blocks counted, {} thrown away, of at most {}",
                    stage.accepted, stage.thrown, stage.blocks_most
                )
            });
            let waits = sentence.as_ref().map(|sentence| format!("; {sentence}"));
            format!("its {} is under way{}{}", row.stage, at.unwrap_or_default(), waits.unwrap_or_default())
        }
        JobStatus::Recording { sentence, .. }
        | JobStatus::Waiting { sentence, .. }
        | JobStatus::Concluding { sentence, .. } => sentence.clone(),
    };
    format!("job {} ({}): {about}", row.job, plain(&row.change))
}

/// The rig as a lane sees it.
pub(super) fn rig(view: &RigView, lane: LaneId, run: &RunRow) -> String {
    let mut words =
        format!("run {}: {:?}; the champion is {}\n", run.run, run.state, why::short(&run.champion)).to_lowercase();
    for row in &view.devices {
        words.push_str(&format!("{}: {}\n", row.member, why::device_state(&row.state, view.now)));
    }
    if !view.runners.is_empty() {
        runner_lines::lines(&view.runners, view.now).iter().for_each(|line| words.extend([line.as_str(), "\n"]));
    }
    let own: Vec<_> = view.dev_runs.iter().filter(|row| row.lane == lane && row.run == run.run).collect();
    if own.is_empty() {
        words.push_str("You have no development run under way.\n");
    }
    for row in own {
        words.push_str(&format!("Your development run {}: {}\n", row.dev_run, going(&row.status)));
    }
    for row in view.jobs.iter().filter(|row| row.run == run.run) {
        words.push_str(&job(row));
        words.push('\n');
    }
    words
}
