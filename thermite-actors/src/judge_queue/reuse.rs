//! Verdicts that are given again (rule D5): what is written of them, with the records they come from.

use super::*;

impl JudgeQueueActor {
    /// Writes a job's end; a verdict is settled with it.
    pub(super) fn write_end(
        &mut self,
        job: JobId,
        outcome: JobOutcome,
        hold: Option<HoldId>,
        record: Option<VerdictRecord>,
        audit: Option<AttemptAudit>,
        batch: &mut Batch,
    ) {
        let hash = record.as_ref().map(|record| record.sha256.clone());
        batch.entries.push(LogEntry::JobEnded { job, outcome: outcome.clone(), record: hash.clone() });
        let device = hold.and_then(|hold| self.measured_on(hold.member));
        if let (Some(_), Some(spec), true) = (&record, self.specs.get(&job), settled::is_verdict(&outcome)) {
            let key = same_change(spec, device.as_ref());
            batch.entries.push(LogEntry::VerdictSettled { job, key: key.clone() });
            let screened = self.screened.get(&job).cloned();
            self.settling.insert(job, (key, SettledVerdict { from: job, outcome, record: hash, screened }));
        }
        batch.records.extend(record);
        batch.audits.extend(audit);
    }

    /// Writes that a job ends with another's verdict.
    pub(super) fn write_reuse(&mut self, job: JobId, from: JobId, outcome: JobOutcome, batch: &mut Batch) {
        let device = judging_device(&self.judging, &self.roster);
        let verdict = self.specs.get(&job).and_then(|spec| self.settled.get(&same_change(spec, device.as_ref())));
        let (record, screened) =
            verdict.map_or((None, None), |verdict| (verdict.record.clone(), verdict.screened.clone()));
        batch.entries.push(LogEntry::VerdictReused { job, from, screened });
        batch.entries.push(LogEntry::JobEnded { job, outcome, record });
    }
}
