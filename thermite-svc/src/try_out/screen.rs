//! Draws the live table on standard error: over itself on a terminal, as lines of news elsewhere.

use std::io::Write;
use std::time::Instant;

use crate::cli::say::{SAY_AGAIN_AFTER, Say, width_of_stderr};

use super::table::Row;

/// The table as it was last shown.
pub(super) struct Screen {
    say: Say,
    shown: Vec<Row>,
    drawn: usize,
    said: Instant,
}

impl Screen {
    /// An empty one.
    pub(super) fn new(say: &Say) -> Screen {
        Screen { say: *say, shown: Vec::new(), drawn: 0, said: Instant::now() }
    }

    /// Shows the rows.
    pub(super) fn show(&mut self, rows: &[Row]) {
        if self.say.redraws() {
            let width = width_of_stderr();
            let mut frame = up(self.drawn);
            for row in rows {
                frame.push_str(&self.line(row, width));
                frame.push_str("\x1b[K\n");
            }
            frame.push_str("\x1b[J");
            // One write, so that no half of it is seen; a reader that went away is no failure.
            let _reader_gone = std::io::stderr().write_all(frame.as_bytes());
            self.drawn = rows.len();
        } else {
            let mut lines = news(&self.shown, rows);
            if lines.is_empty() && self.said.elapsed() >= SAY_AGAIN_AFTER {
                lines = news(&[], rows);
            }
            if !lines.is_empty() {
                self.said = Instant::now();
            }
            lines.iter().for_each(|line| self.say.aside(line));
        }
        self.shown = rows.to_vec();
    }

    /// Leaves the last picture where it is.
    pub(super) fn leave(&mut self) {
        self.drawn = 0;
    }

    fn line(&self, row: &Row, width: usize) -> String {
        let about = format!("{:<40}", row.about);
        let room = width.saturating_sub(about.chars().count() + 1);
        let text: String = row.text.chars().take(room).collect();
        format!("{} {text}", self.say.side_ink.bold(&about))
    }
}

fn up(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r") }
}

/// The lines that are news beside what was shown before.
fn news(before: &[Row], rows: &[Row]) -> Vec<String> {
    let is_news = |row: &&Row| !before.iter().any(|old| old.about == row.about && old.key == row.key);
    rows.iter().filter(is_news).map(|row| format!("{}: {}", row.about, row.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_news_and_time_is_not() {
        let row = |about: &str, key: &str, text: &str| Row { about: about.into(), key: key.into(), text: text.into() };
        let before = [row("lane 1", "waits", "waits since 1.0 s"), row("lane 2", "waits", "waits since 1.0 s")];
        let rows = [row("lane 1", "waits", "waits since 2.0 s"), row("lane 2", "runs", "runs since 0.1 s")];

        assert_eq!(news(&before, &rows), ["lane 2: runs since 0.1 s"]);
        assert_eq!(news(&[], &rows).len(), 2);
    }

    #[test]
    fn drawing_begins_where_the_last_picture_began() {
        assert_eq!(up(0), "");
        assert_eq!(up(7), "\x1b[7A\r");
    }
}
