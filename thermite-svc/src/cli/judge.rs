//! `thermite judge`: a change against the champion, followed to the verdict.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use thermite_actors::view::{JobRow, JobStatus};
use thermite_core::contract::Timer;
use thermite_core::ids::{JobId, MemberId, RunId};
use thermite_core::job::JobOutcome;
use thermite_core::record::VerdictRecord;
use thermite_svc::plain::plain;
use thermite_svc::server::bodies::{SubmitJob, Submitted};

use crate::client::{Client, Fault};

use super::runs::run_worked_on;
use super::say::{Progress, Say};
use super::stop::Stop;
use super::{exit, show};

/// How often the job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// What `judge` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct JudgeArgs {
    /// The change: a branch, tag or commit, or lane:N for lane N's tree as it stands
    #[arg(long, value_name = "REV")]
    change: String,
    /// What it is measured against [default: the run's champion]
    #[arg(long, value_name = "REV")]
    champion: Option<String>,
    /// The run [default: the one being worked on]
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Leave once the job is accepted, and print its id
    #[arg(long)]
    no_follow: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Submitting twice with the same key is submitting once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

const AFTER: &str = "\
Examples:
  thermite judge --change my-branch
  thermite judge --change lane:2
  thermite judge --change 3f2a91c --champion v1.2 --no-follow

The job goes on when you leave with Ctrl-C; `thermite verdict` shows its verdict once it is there.

Exit codes: 0 win; 1 no gain; 2 undecided; 3 the change failed to build, check or measure; 4 no verdict, or \
infrastructure; 69 refused; 130 left before the verdict.";

/// Submits a change and follows the job.
pub(crate) fn judge(
    args: &JudgeArgs,
    client: impl FnOnce() -> anyhow::Result<Client>,
    say: &Say,
) -> anyhow::Result<u8> {
    match judged(args, client, say) {
        // Here 70 would be one more word for the same: there is no verdict.
        Err(error) if exit::of_error(&error) == exit::INFRASTRUCTURE => {
            say.error(&format!("{error:#}"));
            Ok(exit::NO_VERDICT)
        }
        answer => answer,
    }
}

fn judged(args: &JudgeArgs, client: impl FnOnce() -> anyhow::Result<Client>, say: &Say) -> anyhow::Result<u8> {
    let client = client()?;
    let run = run_worked_on(&client, args.run)?;
    let submit = SubmitJob { change: args.change.clone(), champion: args.champion.clone() };
    // Git reads the change and lays it on the champion, and the disk has the job, before the rig answers.
    let mut progress = Progress::default();
    progress.show_live(say, &format!("thermite: submits {}", plain(&args.change)));
    let submitted = client.submit(run, &submit, args.key.clone());
    progress.clear();
    let Submitted { job, ahead, same } = submitted?;
    if args.no_follow {
        if args.json {
            say.json(&json!({ "job": job, "ahead": ahead, "same": same }));
        } else {
            say.line(&job.to_string());
        }
        return Ok(exit::OK);
    }
    let how = if same { "is there already" } else { "is accepted" };
    say.aside(&say.side_ink.dim(&format!("thermite: job {job} {how}, {ahead} ahead")));

    let stop = Stop::listen_twice()?;
    let goes_on = format!("job {job} goes on; see it with `thermite verdict {job}`");
    stop.leaves_behind(goes_on.clone());
    let Some((row, outcome)) = follow(&client, job, &stop, say)? else {
        say.aside(&format!("thermite: left before the verdict; {goes_on}"));
        return Ok(exit::CANCELLED);
    };
    let record = deciding_record(&client, &row)?;
    if args.json {
        say.json(&json!({
            "job": job,
            "outcome": outcome,
            "reused_from": row.reused_from,
            "bounds": record.as_ref().map(|record| record.bounds),
            "blocks": record.as_ref().map(|record| record.after.len()),
            "thrown": record.as_ref().map(|record| record.blocks.len() - record.after.len()),
            "timer_note": record.as_ref().map(|record| &record.facts.timer_note),
            "record": record.as_ref().map(|record| &record.sha256),
        }));
    } else {
        say_verdict(say, &row, &outcome, record.as_ref());
    }
    Ok(exit::of_job(&outcome))
}

fn follow(client: &Client, job: JobId, stop: &Stop, say: &Say) -> Result<Option<(JobRow, JobOutcome)>, Fault> {
    let mut progress = Progress::default();
    let mut warned = false;
    loop {
        let row = client.job(job)?;
        if let Some(warning) = row.warning.as_ref().filter(|_| !warned) {
            warned = true;
            progress.clear();
            say.aside(&format!("thermite: warning: {warning}"));
        }
        if let JobStatus::Ended { outcome, .. } = &row.status {
            progress.clear();
            let outcome = outcome.clone();
            return Ok(Some((row, outcome)));
        }
        progress.show(say, news_key(&row), &format!("thermite: {}", show::job_status(&row)));
        if stop.is_asked() {
            progress.clear();
            return Ok(None);
        }
        stop.sleep(LOOK_EVERY);
    }
}

/// What makes two looks at a job the same to a reader of a log: every tenth block is news, times are not.
pub(crate) fn news_key(row: &JobRow) -> String {
    match &row.status {
        JobStatus::Recording { .. } => "recording".to_owned(),
        JobStatus::Waiting { wait, .. } => format!("{} waits {:?} {}", row.stage, wait.reason, wait.place),
        JobStatus::Measuring { stage: Some(stage), sentence, .. } => {
            let tens = stage.accepted / 10;
            let busy = sentence.is_some();
            format!("{} {} {:?} {tens} {busy} {}", row.stage, row.attempt, stage.phase, stage.thrown)
        }
        JobStatus::Measuring { stage: None, .. } => format!("{} {}", row.stage, row.attempt),
        JobStatus::Concluding { .. } => format!("{} concluding", row.stage),
        JobStatus::Ended { .. } => "ended".to_owned(),
    }
}

/// The record that decided, where the outcome has one.
pub(crate) fn deciding_record(client: &Client, row: &JobRow) -> anyhow::Result<Option<VerdictRecord>> {
    let JobStatus::Ended { record: Some(_), .. } = &row.status else { return Ok(None) };
    let text = client.verdict(row.job, None)?;
    Ok(Some(serde_json::from_str(&text).map_err(|error| anyhow::anyhow!("the record cannot be read: {error}"))?))
}

fn say_verdict(say: &Say, row: &JobRow, outcome: &JobOutcome, record: Option<&VerdictRecord>) {
    let words = show::job_outcome(outcome);
    let words = match outcome {
        JobOutcome::Win { .. } => say.ink.good(&words),
        JobOutcome::NoGain { .. } | JobOutcome::Undecided => say.ink.bold(&words),
        JobOutcome::ChangeFailed { .. } | JobOutcome::NoVerdict { .. } => say.ink.bad(&words),
    };
    let (change, champion) = (plain(show::short(&row.change)), plain(show::short(&row.champion)));
    say.line(&format!("{words}: change {change} against {champion}"));
    if let Some(from) = row.reused_from {
        say.line(&format!("  {}: nothing was measured again", show::reused_from(from)));
    }
    let Some(record) = record else { return };
    let stage = record.facts.stage;
    say.line(&format!(
        "  {stage}: {}",
        show::effect(&record.bounds, record.after.len(), record.blocks.len() - record.after.len())
    ));
    let (noise, member) = (record.noise.noise(), MemberId(record.facts.member));
    if let Some(warning) = noise.warning(member, record.constants.plan_effect) {
        say.line(&format!("  warning: {warning}"));
    }
    if record.facts.timer == Timer::Reported {
        say.line(&format!("  {}: the change could have reached the clock; read it", record.facts.timer_note));
    }
    say.line(&format!("  record {}; check it with `thermite verify {}`", record.sha256, row.job));
    say.line(&format!("  block by block: `thermite verdict {}`, as a page with --html FILE", row.job));
}
