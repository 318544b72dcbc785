//! What is to be written down, in order, one write at a time.

use crate::limits;
use crate::runner::JournalLine;

/// The lines on their way to the journal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pen {
    /// In order; the first `under_way` of them are being written.
    lines: Vec<JournalLine>,
    under_way: usize,
    /// Lines that nothing waits for, and that could not be written: tried again with each check.
    unwritten: Vec<JournalLine>,
    /// Why the last write failed, where it did.
    fault: Option<String>,
    /// Whether all that is written down is being replaced.
    is_anew: bool,
    /// Lines written down since the journal was last written anew.
    count: usize,
}

impl Pen {
    pub(super) fn new(count: usize) -> Pen {
        Pen { lines: Vec::new(), under_way: 0, unwritten: Vec::new(), fault: None, is_anew: false, count }
    }

    pub(super) fn add(&mut self, line: JournalLine) {
        self.lines.push(line);
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.fault.as_ref().map(|why| format!("its journal cannot be written: {why}"))
    }

    /// What could not be written is tried once more.
    pub(super) fn try_again(&mut self) {
        self.lines.append(&mut self.unwritten);
    }

    /// What is to be written next.
    pub(super) fn next(&mut self) -> Option<Vec<JournalLine>> {
        if self.under_way > 0 || self.is_anew || self.lines.is_empty() {
            return None;
        }
        self.under_way = self.lines.len();
        Some(self.lines.clone())
    }

    /// Whether so much is written down that it is to be written anew.
    pub(super) fn is_long(&self) -> bool {
        self.under_way == 0 && !self.is_anew && self.lines.is_empty() && self.count >= limits::JOURNAL_LINES_MAX
    }

    /// Takes `lines` as all that counts.
    pub(super) fn anew(&mut self, lines: Vec<JournalLine>) -> Vec<JournalLine> {
        self.is_anew = true;
        self.count = lines.len();
        lines
    }

    /// The write is durable: these lines of it are.
    pub(super) fn written(&mut self) -> Vec<JournalLine> {
        self.is_anew = false;
        self.fault = None;
        self.count += self.under_way;
        self.lines.drain(..std::mem::take(&mut self.under_way)).collect()
    }

    /// The write failed.
    pub(super) fn not_written(&mut self, why: String) -> Vec<JournalLine> {
        self.is_anew = false;
        self.fault = Some(why);
        let lines: Vec<JournalLine> = self.lines.drain(..std::mem::take(&mut self.under_way)).collect();
        // An acceptance that is not durable is none; all else stays true, and is written down when there is room.
        let kept = lines.iter().map(|line| match line {
            JournalLine::Accepted { grant, .. } => JournalLine::Burnt { grant: *grant },
            JournalLine::Ended { .. } | JournalLine::Burnt { .. } | JournalLine::Forgotten { .. } => line.clone(),
        });
        self.unwritten.extend(kept);
        lines
    }

    pub(super) fn rebase(&mut self, lowest: u64) {
        for line in self.lines.iter_mut().chain(&mut self.unwritten) {
            match line {
                JournalLine::Accepted { grant, .. }
                | JournalLine::Ended { grant, .. }
                | JournalLine::Burnt { grant }
                | JournalLine::Forgotten { grant } => *grant -= lowest,
            }
        }
        self.count = 0;
    }
}
