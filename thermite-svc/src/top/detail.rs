//! The chosen row in full, and what happened, in words.

use thermite_actors::view::{DeviceRow, RigView};
use thermite_core::contract::Target;
use thermite_core::log::LogEntry;
use thermite_core::noise::NoiseDoubt;
use thermite_core::run::RunState;
use thermite_core::time::Span;
use thermite_svc::plain::plain;
use thermite_svc::runner_lines;

use crate::cli::show;

use super::rows::{held_for, with_short_ids};
use super::screen::{Event, Rig, RowId, Told};

/// How an event is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

/// What there is to say of the chosen row: a title and its lines.
pub(super) fn detail(rig: &Rig, row: Option<RowId>) -> (String, Vec<String>) {
    let nothing = || ("nothing chosen".to_owned(), Vec::new());
    let (Some((_, view)), Some(row)) = (&rig.view, row) else { return nothing() };
    of_row(rig, view, row).unwrap_or_else(nothing)
}

fn of_row(rig: &Rig, view: &RigView, row: RowId) -> Option<(String, Vec<String>)> {
    Some(match row {
        RowId::Device(member) => {
            let row = view.devices.iter().find(|row| row.member == member)?;
            (format!("{member}, {}", plain(&row.facts.model)), device(rig, row))
        }
        RowId::Runner(member) => {
            let row = view.runners.runners.iter().find(|row| row.member == member)?;
            let mut lines = vec![runner_lines::doing(row, rig.moment())];
            lines
                .extend(row.device.as_ref().map(|device| format!("{}, {}", device.target.name(), plain(&device.uuid))));
            lines.extend(
                row.drained.then(|| format!("drained: `thermite undrain {}` gives it runs again", plain(&row.name))),
            );
            lines.extend(view.runners.bus_away.as_ref().map(|why| plain(why)));
            (runner_lines::called(row), lines)
        }
        RowId::Job(job) => {
            let row = view.jobs.iter().find(|row| row.job == job)?;
            let mut lines = vec![show::job_status(row)];
            let long = |commit: &str| plain(commit.get(..16).unwrap_or(commit));
            lines.push(format!("change {}, champion {}", long(&row.change), long(&row.champion)));
            if row.failures.len() > 1 {
                lines.push(format!("infrastructure failed it {} times; the last cause is above", row.failures.len()));
            }
            (format!("job {job}"), lines)
        }
        RowId::DevRun(dev_run) => {
            let row = view.dev_runs.iter().find(|row| row.dev_run == dev_run)?;
            let lines = vec![
                show::dev_run_status(&row.status, rig.moment()),
                format!("{}: {}", row.lane, show::command(&row.argv)),
                plain(&row.note),
            ];
            (format!("development run {dev_run}"), lines)
        }
        RowId::Run(run) => {
            let row = view.runs.iter().find(|row| row.run == run)?;
            let state = match row.state {
                RunState::Running => "running",
                RunState::Paused => "paused: its jobs keep their place until `thermite resume`",
                RunState::Ended => "ended",
            };
            let lines = vec![
                state.to_owned(),
                format!("champion {}", plain(&row.champion)),
                format!("repository {}", plain(&row.repo.display().to_string())),
                "more agents at once mean more load, and a judge that waits longer for quiet".to_owned(),
            ];
            (format!("run {run}"), lines)
        }
    })
}

fn device(rig: &Rig, row: &DeviceRow) -> Vec<String> {
    let facts = &row.facts;
    let mut lines = vec![format!("{}{}", show::device_word(&row.state), held_for(rig, row))];
    lines.push(format!("{}, {}, CPUs {}", plain(&facts.driver), plain(&facts.clock_policy), plain(&facts.cpus)));
    lines.extend(row.containment.as_ref().map(|layers| format!("contained by {}", plain(layers))));
    for noise in &row.noise {
        let age = Span::millis(rig.wall_ms().saturating_sub(noise.wall_ms));
        let kit: String = noise.key.kit.chars().take(12).collect();
        lines.push(format!(
            "noise {:.1} % a block with kit {}, over {} blocks, {age} old",
            noise.scale.exp_m1() * 100.0,
            plain(&kit),
            noise.blocks
        ));
    }
    if facts.target == Target::CudaGpu || row.drained {
        lines.push(show::pool(row));
    }
    lines.extend(row.reading.as_ref().map(|reading| format!("newest reading: {}", plain(&show::reading(reading)))));
    lines.extend(row.disturbed.iter().map(|row| format!("thrown away, {}", show::blamed(&row.blame, row.blocks))));
    if row.refused > 0 {
        lines.push(format!("{} things said under an old hold number were refused", row.refused));
    }
    let index = row.index.map(|index| format!(", index {index}")).unwrap_or_default();
    lines.push(format!("name {}{index}", plain(&facts.uuid)));
    lines
}

/// What happened, in a line.
pub(super) fn event(event: &Event) -> (String, Tone) {
    match &event.what {
        Told::Fact(fact) => fact_words(fact),
        Told::Alarm(what) => (format!("alarm: {}", plain(what)), Tone::Bad),
        Told::Out { member, why } => (format!("{member} is out of service: {}", plain(why)), Tone::Bad),
        Told::Missed(Some(missed)) => (format!("{missed} events were missed"), Tone::Bad),
        Told::Missed(None) => {
            ("the rig was started anew; what happened meanwhile is not known here".to_owned(), Tone::Bad)
        }
    }
}

fn fact_words(fact: &LogEntry) -> (String, Tone) {
    let plainly = |text: String| (text, Tone::Plain);
    match fact {
        LogEntry::RigStarted => plainly("the rig started".to_owned()),
        LogEntry::RigRestored { .. } => plainly("the rig was restored from a backup".to_owned()),
        LogEntry::BuildStarted { .. } => plainly("its sides are being built".to_owned()),
        LogEntry::RunnersSet { runners } => plainly(match runners.len() {
            0 => "the rig has no runners any more".to_owned(),
            1 => "the rig's runners were set: 1 of them".to_owned(),
            many => format!("the rig's runners were set: {many} of them"),
        }),
        LogEntry::RunnerMet { member, device } => {
            plainly(format!("{member} told what it is: {}, {}", device.target.name(), plain(&device.model)))
        }
        LogEntry::SplitSet { .. } => plainly("the cards were given out anew".to_owned()),
        LogEntry::DeviceDrained { device } => plainly(format!("{} takes nothing more: it is drained", plain(device))),
        LogEntry::DeviceUndrained { device } => plainly(format!("{} takes work again", plain(device))),
        LogEntry::SettingsChanged { .. } => plainly("the rig's settings were changed".to_owned()),
        LogEntry::RunStarted { spec, .. } => plainly(format!("a run of kit {} started", plain(&spec.kit.name))),
        LogEntry::RunChanged { state, .. } => plainly(match state {
            RunState::Running => "the run goes on".to_owned(),
            RunState::Paused => "the run was paused".to_owned(),
            RunState::Ended => "the run ended".to_owned(),
        }),
        LogEntry::JobSubmitted { spec, .. } => {
            plainly(format!("change {} was submitted", plain(show::short(&spec.pinned.change))))
        }
        LogEntry::StageStarted { job, stage, .. } => plainly(format!("{stage} of job {} began", tail(job))),
        LogEntry::ScreeningWon { job, .. } => (format!("job {} won its screening", tail(job)), Tone::Good),
        LogEntry::AttemptFailed { job, why, .. } => {
            (format!("infrastructure failed job {}: {}", tail(job), plain(&why.to_string())), Tone::Bad)
        }
        LogEntry::SentBack { job } => plainly(format!("job {} went back to its place", tail(job))),
        LogEntry::JobEnded { job, outcome, .. } => {
            use thermite_core::job::JobOutcome;
            let tone = match outcome {
                JobOutcome::Win { .. } => Tone::Good,
                JobOutcome::NoGain { .. } | JobOutcome::Undecided => Tone::Plain,
                JobOutcome::ChangeFailed { .. } | JobOutcome::NoVerdict { .. } => Tone::Bad,
            };
            (format!("job {}: {}", tail(job), plain(&show::job_outcome(outcome))), tone)
        }
        LogEntry::ChampionMoved { to, .. } => (format!("{} is the champion", plain(show::short(to))), Tone::Good),
        LogEntry::VerdictSettled { job, .. } => {
            plainly(format!("the verdict of job {} stands for the same asking", tail(job)))
        }
        LogEntry::VerdictReused { job, from, .. } => {
            plainly(format!("job {} gets the verdict of job {}", tail(job), tail(from)))
        }
        LogEntry::NoiseMeasured { noise } => {
            plainly(format!("noise measured: {:.1} % a block", noise.scale.exp_m1() * 100.0))
        }
        LogEntry::NoiseDoubted { why, .. } => plainly(match why {
            NoiseDoubt::JobsOwnScale => "noise is to be measured anew: a job's own blocks varied otherwise".to_owned(),
            NoiseDoubt::Fault => "noise is to be measured anew: the device was out of service by a fault".to_owned(),
            NoiseDoubt::Asked => "noise is to be measured anew, as was asked".to_owned(),
        }),
        LogEntry::ChampionTwice { .. } => plainly("the champion was measured against itself".to_owned()),
        LogEntry::BlocksDisturbed { blamed } => {
            let said: Vec<String> = blamed.iter().map(|row| show::blamed(&row.blame, row.blocks)).collect();
            plainly(format!("thrown away: {}", said.join("; ")))
        }
        LogEntry::DeviceQuarantined { why, .. } => (format!("quarantined: {}", plain(why)), Tone::Bad),
        LogEntry::QuarantineCleared { .. } => ("the alarm was cleared; the device comes back".to_owned(), Tone::Good),
        LogEntry::DevRunAsked { spec, .. } => plainly(format!("{} asked for {}", spec.lane, show::command(&spec.argv))),
        LogEntry::DevRunStarted { dev_run, hold } => {
            plainly(format!("development run {} started on {}", tail(dev_run), hold.member))
        }
        LogEntry::DevRunEnded { dev_run, end } => {
            plainly(format!("development run {}: {}", tail(dev_run), show::dev_run_end(end)))
        }
    }
}

fn tail(id: &impl ToString) -> String {
    with_short_ids(&id.to_string())
}
