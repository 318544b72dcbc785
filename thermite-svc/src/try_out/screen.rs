//! Draws the live table on standard error: over itself on a terminal, as lines of news elsewhere.

use std::io::Write;
use std::time::Instant;

use crate::cli::ink::Ink;
use crate::cli::say::{SAY_AGAIN_AFTER, Say, size_of_stderr};

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
            let lines = picture(rows, size_of_stderr(), self.say.side_ink);
            let mut frame = up(self.drawn);
            for line in &lines {
                frame.push_str(line);
                frame.push_str("\x1b[K\n");
            }
            frame.push_str("\x1b[J");
            // One write, so that no half of it is seen; a reader that went away is no failure.
            let _reader_gone = std::io::stderr().write_all(frame.as_bytes());
            self.drawn = lines.len();
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
}

/// The lines of a terminal of that size: a sentence goes on below itself, since its end says how the wait ends. What
/// is higher than the terminal cannot be drawn over, so each row is then cut to one line.
fn picture(rows: &[Row], (columns, lines): (usize, usize), ink: Ink) -> Vec<String> {
    let about_width = rows.iter().map(|row| row.about.chars().count()).max().unwrap_or(0);
    let room = columns.saturating_sub(about_width + 2).max(20);
    let wrapped: Vec<Vec<String>> = rows.iter().map(|row| wrap(&row.text, room)).collect();
    let is_too_high = wrapped.iter().map(Vec::len).sum::<usize>() >= lines;
    let mut picture = Vec::new();
    for (row, text) in rows.iter().zip(wrapped) {
        let shown = if is_too_high { 1 } else { text.len() };
        for (at, text) in text.iter().take(shown).enumerate() {
            let about = if at == 0 { row.about.as_str() } else { "" };
            picture.push(format!("{}  {text}", ink.bold(&format!("{about:<about_width$}"))));
        }
    }
    picture
}

/// Breaks between words; a word that is longer than a line is cut.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.extend(word.chars().take(room));
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.chars().take(room).collect());
        }
    }
    lines
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
    fn a_long_sentence_goes_on_below_itself_and_a_low_terminal_gets_one_line_a_row() {
        let row = |about: &str, text: &str| Row { about: about.into(), key: String::new(), text: text.into() };
        let rows = [row("device", "free"), row("lane 1: judge", "waits for the judge, next in line")];

        let whole = picture(&rows, (36, 24), Ink::PLAIN);
        let low = picture(&rows, (36, 3), Ink::PLAIN);

        assert_eq!(
            whole,
            ["device         free", "lane 1: judge  waits for the judge,", "               next in line"]
        );
        assert_eq!(low, ["device         free", "lane 1: judge  waits for the judge,"]);
    }

    #[test]
    fn drawing_begins_where_the_last_picture_began() {
        assert_eq!(up(0), "");
        assert_eq!(up(7), "\x1b[7A\r");
    }
}
