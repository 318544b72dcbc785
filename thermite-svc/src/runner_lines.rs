//! The runners block in words (rule E14), the same on the command line, on the live screen and to agents.

use thermite_actors::view::{RunnerRow, RunnerRuns, RunnersView, WhoWaits};
use thermite_core::time::Moment;

use crate::plain::plain;

/// The block, one line a runner; then who waits for one.
pub fn lines(view: &RunnersView, now: Moment) -> Vec<String> {
    let mut lines = Vec::new();
    if !view.core_judges {
        let target = view.target.map_or("not known before a judge's or shared one answers", |target| target.name());
        lines.push(format!("the core judges nothing: its runners do; kind of target: {target}"));
    }
    lines.extend(view.bus_away.iter().map(|why| format!("runners cannot be reached: {}", plain(why))));
    lines.extend(view.runners.iter().map(|row| runner(row, now)));
    lines.extend(view.without_pool.iter().map(|name| format!("runner {}: idle, it is given no pool", plain(name))));
    lines.extend(view.waits.iter().map(|row| {
        let who = match row.who {
            WhoWaits::Job { job } => format!("job {job}"),
            WhoWaits::Lane { lane, dev_run } => format!("{lane} (development run {dev_run})"),
        };
        format!("  {who} {}", plain(&row.sentence))
    }));
    lines.extend(view.notes.iter().map(|note| format!("note: {}", plain(note))));
    lines
}

/// One runner.
fn runner(row: &RunnerRow, now: Moment) -> String {
    format!("{}: {}", called(row), doing(row, now))
}

/// A runner's name, with its pool.
pub fn called(row: &RunnerRow) -> String {
    let pool = row.pool.map_or_else(|| "off the list".to_owned(), |pool| format!("pool {pool}"));
    format!("runner {} ({pool})", plain(&row.name))
}

/// What a runner does, whether it takes runs, and how long ago it answered.
pub fn doing(row: &RunnerRow, now: Moment) -> String {
    let runs = row.runs.map(|runs| match runs {
        RunnerRuns::Judge { job: Some(job), .. } => format!("measures for job {job}"),
        RunnerRuns::Judge { job: None, .. } => "held by the judge".to_owned(),
        RunnerRuns::Lane { lane, dev_run, .. } => format!("has development run {dev_run} of {lane}"),
    });
    let takes = row.why_not.as_ref().map(|why| format!("takes no runs: {}", plain(why)));
    let does: Vec<String> = runs.into_iter().chain(takes).collect();
    let does = if does.is_empty() { "free".to_owned() } else { does.join("; ") };
    let model = row.device.as_ref().map(|device| format!(", {}", plain(&device.model))).unwrap_or_default();
    let answered = row.answered.map_or_else(
        || "has not answered since the rig started".to_owned(),
        |at| format!("answered {} ago", now.since(at)),
    );
    format!("{does}{model}, {answered}")
}
