//! What the live table shows: the device, then each lane's development run and job.

use thermite_actors::view::{DevRunStatus, JobRow, JobStatus, RigView};
use thermite_core::ids::JobId;

use crate::cli::judge::news_key;
use crate::cli::show;

use super::kit::Campaign;
use super::lanes::{LaneRun, LaneRuns};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// What it is about.
    pub(super) about: String,
    /// What is to be said.
    pub(super) text: String,
    /// What makes it news: times run on without being any.
    pub(super) key: String,
}

/// All lines at this moment.
pub(super) fn rows(
    campaign: &Campaign,
    view: &RigView,
    lanes: &LaneRuns,
    jobs: &[JobId],
    over: &[Option<JobRow>],
) -> Vec<Row> {
    let mut rows: Vec<Row> = view
        .devices
        .iter()
        .map(|device| Row {
            about: "device".to_owned(),
            text: show::device(device, view.now),
            key: show::device_word(&device.state),
        })
        .collect();
    for (at, lane) in campaign.lanes.iter().enumerate() {
        let about = format!("lane {} {}", lane.number, lane.name);
        if let Some(run) = lanes.all().get(at) {
            rows.push(dev_run(&about, run, view));
        }
        if let Some(job) = jobs.get(at) {
            let live = view.jobs.iter().find(|row| row.job == *job);
            rows.push(judge(&about, live.or(over.get(at).and_then(Option::as_ref))));
        }
    }
    if let Some(fault) = &view.records_fault {
        let text = format!("cannot be written: {fault}");
        rows.push(Row { about: "records".to_owned(), key: text.clone(), text });
    }
    rows
}

fn dev_run(about: &str, run: &LaneRun, view: &RigView) -> Row {
    let about = format!("{about}: development run");
    if let Some(end) = &run.end {
        let text = show::dev_run_end(end);
        return Row { about, key: text.clone(), text };
    }
    match view.dev_runs.iter().find(|row| row.dev_run == run.dev_run) {
        Some(row) => {
            let key = match &row.status {
                DevRunStatus::Waiting { wait, .. } => format!("{:?} {}", wait.reason, wait.place),
                DevRunStatus::Recording => "recording".to_owned(),
                DevRunStatus::Starting { .. } => "starting".to_owned(),
                DevRunStatus::Running { .. } => "running".to_owned(),
                DevRunStatus::Stopping { .. } => "stopping".to_owned(),
                DevRunStatus::Ended { .. } => "ended".to_owned(),
            };
            Row { about, text: show::dev_run_status(&row.status, view.now), key }
        }
        None => Row { about, text: "is over".to_owned(), key: "over".to_owned() },
    }
}

fn judge(about: &str, job: Option<&JobRow>) -> Row {
    let about = format!("{about}: judge");
    match job {
        Some(row) => {
            let text = match &row.status {
                JobStatus::Ended { outcome, .. } => show::job_outcome(outcome),
                JobStatus::Recording
                | JobStatus::Waiting { .. }
                | JobStatus::Measuring { .. }
                | JobStatus::Concluding => show::job_status(row),
            };
            Row { about, text, key: news_key(row) }
        }
        None => Row { about, text: "is concluded".to_owned(), key: "concluded".to_owned() },
    }
}
