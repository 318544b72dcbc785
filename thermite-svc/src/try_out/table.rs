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
                DevRunStatus::Recording { .. } => "recording".to_owned(),
                DevRunStatus::Starting { .. } => "starting".to_owned(),
                DevRunStatus::Running { .. } => "running".to_owned(),
                DevRunStatus::Stopping { .. } => "stopping".to_owned(),
                DevRunStatus::Ended { .. } => "ended".to_owned(),
            };
            let status = show::dev_run_status(&row.status, view.now);
            match run.gave_up {
                Some(why) => {
                    let text = format!("{why}: asked for again, {status}");
                    Row { about, text, key: format!("{} {key}", run.asked) }
                }
                None => Row { about, text: status, key },
            }
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
                JobStatus::Recording { .. }
                | JobStatus::Waiting { .. }
                | JobStatus::Measuring { .. }
                | JobStatus::Concluding { .. } => show::job_status(row),
            };
            Row { about, text, key: news_key(row) }
        }
        None => Row { about, text: "is concluded".to_owned(), key: "concluded".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use thermite_actors::ports::DeviceFacts;
    use thermite_actors::view::{DevRunRow, DevicePool, DeviceRow};
    use thermite_core::contract::Target;
    use thermite_core::dev_run::{DevRunEnd, Exit};
    use thermite_core::device::DeviceView;
    use thermite_core::ids::{DevRunId, HoldId, Holder, LaneId, MemberId, RunId};
    use thermite_core::job::{JobOutcome, StageKind};
    use thermite_core::stage::{StagePhase, StageView};
    use thermite_core::time::{Moment, Span};
    use thermite_core::wait::{Wait, WaitEnd, WaitReason};

    use super::super::kit::{Expected, LaneWork};

    #[test]
    fn the_table_shows_the_holder_every_wait_and_the_blocks() {
        let lanes = LaneRuns::of([(dev_run(1), Some(ended())), (dev_run(2), None)]);
        let over = [Some(job(1, JobStatus::Ended { outcome: win(), record: None, screening: None })), None];

        let rows = rows(&campaign(), &view(), &lanes, &[job_id(1), job_id(2)], &over);

        let lines: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.about, row.text)).collect();
        assert_eq!(
            lines,
            [
                "device: device 0 (A CPU): held by the judge",
                "lane 1 fast: development run: ended with exit code 0 after 0.7 s",
                "lane 1 fast: judge: win",
                "lane 2 same: development run: waits for the judge, which has 2 jobs, next in line, since 3.0 s, at most \
                 9 min 57 s more",
                "lane 2 same: judge: screening: block 7 of at most 200, ln W 1.50",
            ]
        );
    }

    #[test]
    fn time_that_runs_on_is_no_news_and_another_reason_is() {
        let lanes = LaneRuns::of([(dev_run(1), Some(ended())), (dev_run(2), None)]);
        let shown = |view: &RigView| rows(&campaign(), view, &lanes, &[], &[])[2].clone();
        let before = shown(&view());

        let mut later = view();
        later.now = later.now + Span::seconds(9);
        let mut other = view();
        other.dev_runs = vec![waiting(WaitReason::Records)];

        assert_eq!(shown(&later).key, before.key);
        assert_ne!(shown(&other).key, before.key);
    }

    fn campaign() -> Campaign {
        let lane = |number: u32, name: &'static str| LaneWork {
            number,
            name,
            expected: Expected::Win,
            commit: String::new(),
            worktree: PathBuf::new(),
            try_it: "true",
        };
        Campaign { repo: PathBuf::new(), champion: String::new(), lanes: vec![lane(1, "fast"), lane(2, "same")] }
    }

    fn view() -> RigView {
        let facts = DeviceFacts {
            target: Target::Cpu,
            uuid: "u".into(),
            model: "A CPU".into(),
            driver: "d".into(),
            clock_policy: "c".into(),
            cpus: "0-1".into(),
            cores: 2,
        };
        let state = DeviceView::Held { hold: hold(), by: Holder::Judge, running_since: None, limit_at: None };
        let stage = StageView {
            job: job_id(2),
            stage: StageKind::Screening,
            attempt: 1,
            phase: StagePhase::Comparing,
            accepted: 7,
            thrown: 0,
            blocks_most: 200,
            lower: None,
            ln_w: Some(1.5),
            ln_f: None,
            last_d: None,
            waiting: None,
        };
        RigView {
            now: Moment::from_millis(10_000),
            wall_ms: 0,
            devices: vec![DeviceRow {
                member: MemberId(0),
                facts,
                state,
                refused: 0,
                pool: DevicePool::default(),
                idle: None,
                drained: false,
                quarantine: None,
                noise: Vec::new(),
                warnings: Vec::new(),
                index: None,
                reading: None,
                disturbed: Vec::new(),
                containment: None,
            }],
            runs: Vec::new(),
            dev_runs: vec![waiting(WaitReason::JudgeHasWork { jobs: 2 })],
            jobs: vec![job(2, JobStatus::Measuring { hold: hold(), stage: Some(stage), sentence: None })],
            jobs_live: 1,
            records_fault: None,
            overlooked: 0,
            leftovers: Vec::new(),
            leftovers_more: false,
            runners: thermite_actors::view::RunnersView {
                core_judges: true,
                ..thermite_actors::view::RunnersView::default()
            },
        }
    }

    fn waiting(reason: WaitReason) -> DevRunRow {
        let since = Moment::from_millis(7_000);
        let wait = Wait { reason, place: 0, since, end: WaitEnd::Latest { at: since + Span::minutes(10) } };
        let sentence = wait.sentence(Moment::from_millis(10_000));
        DevRunRow {
            dev_run: dev_run(2),
            run: RunId(uuid::Uuid::nil()),
            lane: LaneId::new(2).unwrap(),
            argv: vec!["true".into()],
            status: DevRunStatus::Waiting { wait, sentence },
            note: String::new(),
        }
    }

    fn job(number: u128, status: JobStatus) -> JobRow {
        JobRow {
            job: job_id(number),
            run: RunId(uuid::Uuid::nil()),
            change: "c".into(),
            champion: "a".into(),
            candidate: "b".into(),
            stage: StageKind::Screening,
            attempt: 1,
            failures: Vec::new(),
            warning: None,
            reused_from: None,
            status,
        }
    }

    fn ended() -> DevRunEnd {
        DevRunEnd::Exited { exit: Exit::Code(0), ran: Span::millis(700) }
    }

    fn win() -> JobOutcome {
        JobOutcome::Win { adopted: true }
    }

    fn hold() -> HoldId {
        HoldId { member: MemberId(0), number: 4 }
    }

    fn dev_run(number: u128) -> DevRunId {
        DevRunId(uuid::Uuid::from_u128(number))
    }

    fn job_id(number: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(number))
    }
}
