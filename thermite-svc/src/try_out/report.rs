//! What came of it: verdicts, what they cost, where their records are. Every record is verified before it is named.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use thermite_actors::view::{JobRow, JobStatus};
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{DevRunId, JobId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::record::{Bounds, NoiseSource, VerdictRecord};
use thermite_core::texts;
use thermite_core::time::Span;
use thermite_svc::report::{Comparison, page};

use crate::cli::ink::Ink;
use crate::cli::{show, verdict, verify};

use super::kit::{Campaign, LaneWork};
use super::lanes::LaneRun;
use super::own_rig::OwnRig;
use super::{TryFault, Worked, millis};

/// The page's name among the records.
const PAGE: &str = "report.html";

/// The whole report; `--json` prints it as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// Whether every step truly ran, every verdict is of the expected kind, and every record holds.
    pub(super) ok: bool,
    /// The machine's CPUs.
    pub(super) machine: Option<String>,
    /// The lanes, lane 1 first.
    pub(super) lanes: Vec<LaneReport>,
    /// How often the rig was killed and started again.
    pub(super) rig_restarts: u32,
    /// What it cost.
    pub(super) cost: Cost,
    /// Where the records are.
    pub(super) records: PathBuf,
    /// The page with all comparisons, which lies beside them.
    pub(super) page: PathBuf,
    /// What the page shows.
    #[serde(skip)]
    comparisons: Vec<Comparison>,
}

/// One lane's development run and verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LaneReport {
    lane: u32,
    change: String,
    expected: String,
    as_expected: bool,
    job: JobId,
    outcome: JobOutcome,
    /// As ln(speed-up); the lower bound is what is claimed.
    bounds: Option<Bounds>,
    blocks: usize,
    thrown: usize,
    records: Vec<RecordReport>,
    dev_run: DevRunReport,
    #[serde(skip)]
    comparison: Comparison,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RecordReport {
    stage: StageKind,
    file: PathBuf,
    sha256: String,
    /// Why it does not hold, where it does not.
    fault: Option<String>,
}

/// One development run.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DevRunReport {
    dev_run: DevRunId,
    asked: u32,
    waited_ms: u64,
    end: Option<DevRunEnd>,
    output: String,
    note: String,
}

/// What it cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Cost {
    /// From the beginning to the end, in milliseconds.
    pub(super) wall_ms: u64,
    /// How long the judge had the device, in milliseconds.
    pub(super) judge_ms: u64,
    /// How long development runs had it, in milliseconds.
    pub(super) dev_runs_ms: u64,
    /// Blocks that count, of all stages.
    pub(super) blocks: usize,
    /// Blocks that measured the device's noise.
    pub(super) noise_blocks: usize,
    /// Blocks that were thrown away.
    pub(super) thrown: usize,
}

impl Report {
    /// Reads, stores and verifies every record, and adds it all up.
    pub(super) fn gather(
        campaign: &Campaign,
        worked: Worked,
        rig: &OwnRig<'_>,
        records: &Path,
        began: Instant,
    ) -> Result<Report, TryFault> {
        let Worked { machine, lanes, jobs, mut cost } = worked;
        let mut reports = Vec::new();
        for ((work, run), job) in campaign.lanes.iter().zip(lanes.all()).zip(&jobs) {
            reports.push(LaneReport::gather(work, run, job, rig, records, &mut cost)?);
        }
        cost.wall_ms = millis(began.elapsed());
        let ok = reports.len() == campaign.lanes.len()
            && lanes.all().iter().all(LaneRun::ran_well)
            && reports.iter().all(LaneReport::is_ok);
        let comparisons = reports.iter().map(|lane| lane.comparison.clone()).collect();
        let page = records.join(PAGE);
        let rig_restarts = rig.restarts();
        let records = records.to_owned();
        Ok(Report { ok, machine, lanes: reports, rig_restarts, cost, records, page, comparisons })
    }

    /// Puts the report beside its records.
    pub(super) fn write(&self, records: &Path) -> Result<(), TryFault> {
        let text = serde_json::to_string_pretty(self).expect("a report has only text keys");
        store(&records.join("report.json"), &text)?;
        store(&self.page, &page("A trial on this machine", &self.comparisons))
    }

    /// The report for people.
    pub(super) fn lines(&self, ink: Ink) -> Vec<String> {
        let mut lines = vec![String::new(), ink.bold("Verdicts")];
        for lane in &self.lanes {
            lines.push(format!("  lane {} {}: {}", lane.lane, lane.change, lane.verdict(ink)));
            if let Some(effect) = &lane.effect() {
                lines.push(format!("    {effect}"));
            }
        }
        lines.push(ink.bold("Development runs"));
        for lane in &self.lanes {
            lines.push(format!("  lane {}: {}", lane.lane, lane.dev_run.words()));
        }
        lines.push(format!("  {}", texts::DIAGNOSTIC_ONLY));
        lines.push(ink.bold("Cost"));
        lines.push(format!("  {}", self.cost.words()));
        if self.rig_restarts > 0 {
            lines.push(format!("  the rig was killed and started again: {} times", self.rig_restarts));
        }
        lines.push(ink.bold("Records"));
        for record in self.lanes.iter().flat_map(|lane| &lane.records) {
            let holds = match &record.fault {
                None => ink.good("verified"),
                Some(fault) => ink.bad(&format!("does not hold: {fault}")),
            };
            lines.push(format!("  {} {holds}", record.file.display()));
        }
        match self.lanes.iter().flat_map(|lane| &lane.records).next() {
            Some(record) => lines.push(format!("  check one yourself: thermite verify {}", record.file.display())),
            None => lines.push("  none: no stage came to a verdict".to_owned()),
        }
        lines.push(format!("  all of it as a page: {}", self.page.display()));
        let no_verdict = |lane: &LaneReport| matches!(lane.outcome, JobOutcome::NoVerdict { .. });
        lines.push(if self.ok {
            ink.good("All steps ran, every verdict is of the expected kind, every record holds.")
        } else if self.lanes.iter().any(no_verdict) {
            ink.bad(
                "This machine was too busy or too noisy to tell; try again when other programs use it less, or plan for \
                 a larger speed-up (--plan 20).",
            )
        } else {
            ink.bad("Not everything is as expected; see above.")
        });
        lines
    }
}

impl LaneReport {
    fn gather(
        work: &LaneWork,
        run: &LaneRun,
        job: &JobRow,
        rig: &OwnRig<'_>,
        folder: &Path,
        cost: &mut Cost,
    ) -> Result<LaneReport, TryFault> {
        let JobStatus::Ended { outcome, record, screening } = &job.status else {
            unreachable!("only jobs that are over are reported")
        };
        let mut stages = Vec::new();
        if screening.is_some() {
            stages.push(rig.ask(|client| client.verdict(job.job, Some(StageKind::Screening)))?);
        }
        // A confirmation has a record of its own; a screening that decided is the only one.
        if record.is_some() && record != screening {
            stages.push(rig.ask(|client| client.verdict(job.job, None))?);
        }
        let mut records = Vec::new();
        let mut deciding = None;
        let mut shown = Vec::new();
        for text in &stages {
            shown.extend(verdict::stage(text).ok());
            let checked = verify::check(text);
            let parsed: Option<VerdictRecord> = serde_json::from_str(text).ok();
            let stage = parsed.as_ref().map_or(StageKind::Screening, |record| record.facts.stage);
            let file = folder.join(format!("lane-{}-{stage}.json", work.number));
            store(&file, text)?;
            let sha256 = checked.as_ref().map(|found| found.sha256.clone()).unwrap_or_default();
            records.push(RecordReport { stage, file, sha256, fault: checked.err().map(|fault| fault.to_string()) });
            if let Some(parsed) = parsed {
                cost.add(&parsed);
                deciding = Some(parsed);
            }
        }
        let blocks = deciding.as_ref().map_or(0, |record| record.after.len());
        Ok(LaneReport {
            lane: work.number,
            change: work.name.to_owned(),
            expected: work.expected.word().to_owned(),
            as_expected: work.expected.is_met_by(outcome),
            job: job.job,
            outcome: outcome.clone(),
            bounds: deciding.as_ref().map(|record| record.bounds),
            blocks,
            thrown: deciding.as_ref().map_or(0, |record| record.blocks.len() - blocks),
            records,
            dev_run: DevRunReport {
                dev_run: run.dev_run,
                asked: run.asked,
                waited_ms: millis(run.waited),
                end: run.end.clone(),
                output: run.output.clone(),
                note: texts::DIAGNOSTIC_ONLY.to_owned(),
            },
            comparison: Comparison {
                name: Some(format!("lane {}: {}", work.number, work.name)),
                ended: record.is_none().then(|| show::job_outcome(outcome)),
                stages: shown,
            },
        })
    }

    fn is_ok(&self) -> bool {
        self.as_expected && !self.records.is_empty() && self.records.iter().all(|record| record.fault.is_none())
    }

    fn verdict(&self, ink: Ink) -> String {
        let words = ink.bold(&show::job_outcome(&self.outcome));
        let said = show::job_outcome(&self.outcome);
        if !self.as_expected {
            return format!("{words} {}", ink.bad(&format!("(expected: {})", self.expected)));
        }
        if said == self.expected || matches!(self.outcome, JobOutcome::Win { .. }) {
            return format!("{words} (as expected)");
        }
        format!("{words} (expected: {}; no false claim)", self.expected)
    }

    fn effect(&self) -> Option<String> {
        Some(show::effect(self.bounds.as_ref()?, self.blocks, self.thrown))
    }
}

impl DevRunReport {
    fn words(&self) -> String {
        let end = self.end.as_ref().map_or("has not ended".to_owned(), show::dev_run_end);
        let printed = self.output.lines().next_back().map(|line| format!(", printed {line}")).unwrap_or_default();
        let asked = if self.asked > 1 { format!(", asked for {} times", self.asked) } else { String::new() };
        format!("waited {}, {end}{printed}{asked}", Span::millis(self.waited_ms))
    }
}

impl Cost {
    fn add(&mut self, record: &VerdictRecord) {
        self.blocks += record.after.len();
        self.thrown += record.blocks.len() - record.after.len();
        if let NoiseSource::Measured { blocks, .. } = &record.noise {
            let counted = blocks.iter().filter(|block| block.ratio().is_some()).count();
            self.noise_blocks += counted;
            self.thrown += blocks.len() - counted;
        }
    }

    fn words(&self) -> String {
        format!(
            "{} in all; the judge had the device for about {}, development runs for about {}; {} blocks counted, {} \
             thrown, {} measured the noise",
            Span::millis(self.wall_ms),
            Span::millis(self.judge_ms),
            Span::millis(self.dev_runs_ms),
            self.blocks,
            self.thrown,
            self.noise_blocks
        )
    }
}

fn store(file: &Path, text: &str) -> Result<(), TryFault> {
    std::fs::write(file, text)
        .map_err(|error| TryFault::Folder { folder: file.display().to_string(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_shown_with_its_lower_bound_first_and_its_record() {
        let lines = report(JobOutcome::Win { adopted: true }, true).lines(Ink::PLAIN).join("\n");

        assert_eq!(
            lines,
            "
Verdicts
  lane 1 fewer-divisors: win (as expected)
    lower bound +10.5 %, upper bound none, HL +22.1 % (early-stopped); 9 blocks, 1 thrown
Development runs
  lane 1: waited 1 min 5 s, ended at its limit of 1 min, printed 42, asked for 2 times
  diagnostic only: this number never counts
Cost
  1 min 33 s in all; the judge had the device for about 1 min 20 s, development runs for about 1.7 s; 9 blocks \
             counted, 1 thrown, 40 measured the noise
Records
  /r/lane-1-confirmation.json verified
  check one yourself: thermite verify /r/lane-1-confirmation.json
  all of it as a page: /r/report.html
All steps ran, every verdict is of the expected kind, every record holds."
        );
    }

    #[test]
    fn a_verdict_of_another_kind_and_one_that_is_missing_are_said() {
        let last = |report: &Report| report.lines(Ink::PLAIN).pop().unwrap();
        let other = report(JobOutcome::NoGain { slower: false }, false);
        let none = report(JobOutcome::NoVerdict { why: "busy".into() }, false);

        assert!(other.lines(Ink::PLAIN).contains(&"  lane 1 fewer-divisors: no gain (expected: win)".to_owned()));
        assert_eq!(last(&other), "Not everything is as expected; see above.");
        assert_eq!(
            last(&none),
            "This machine was too busy or too noisy to tell; try again when other programs use it less, or plan for a \
             larger speed-up (--plan 20)."
        );
    }

    fn report(outcome: JobOutcome, as_expected: bool) -> Report {
        let lane = LaneReport {
            lane: 1,
            change: "fewer-divisors".into(),
            expected: "win".into(),
            as_expected,
            job: JobId(uuid::Uuid::nil()),
            outcome,
            bounds: Some(Bounds { lower: Some(0.1), upper: None, estimate_early_stopped: Some(0.2) }),
            blocks: 9,
            thrown: 1,
            records: vec![RecordReport {
                stage: StageKind::Confirmation,
                file: "/r/lane-1-confirmation.json".into(),
                sha256: "00".into(),
                fault: None,
            }],
            dev_run: DevRunReport {
                dev_run: DevRunId(uuid::Uuid::nil()),
                asked: 2,
                waited_ms: 65_000,
                end: Some(DevRunEnd::LimitReached { limit: Span::minutes(1) }),
                output: "41\n42\n".into(),
                note: texts::DIAGNOSTIC_ONLY.into(),
            },
            comparison: Comparison { name: None, ended: None, stages: Vec::new() },
        };
        let cost =
            Cost { wall_ms: 93_000, judge_ms: 80_000, dev_runs_ms: 1_700, blocks: 9, noise_blocks: 40, thrown: 1 };
        let page = "/r/report.html".into();
        let comparisons = Vec::new();
        let lanes = vec![lane];
        Report { ok: as_expected, machine: None, lanes, rig_restarts: 0, cost, records: "/r".into(), page, comparisons }
    }
}
