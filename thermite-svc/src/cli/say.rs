//! Words for the one who called: results on standard output, everything about them on standard error.
//!
//! A reader that went away is no failure of the command, so writing never ends it; what must be known of it is asked
//! by [`Say::output`].

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use thermite_svc::plain::plain;

use super::ink::Ink;

/// The two streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Say {
    /// Colours on standard output.
    pub(crate) ink: Ink,
    /// Colours on standard error.
    pub(crate) side_ink: Ink,
    redraws: bool,
}

impl Say {
    /// The process's own streams.
    pub(crate) fn new() -> Say {
        let stderr = std::io::stderr();
        // A terminal without a name, or a dumb one, cannot draw over a line.
        let moves = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        Say { ink: Ink::on(&std::io::stdout()), side_ink: Ink::on(&stderr), redraws: stderr.is_terminal() && moves }
    }

    /// A line of the result.
    pub(crate) fn line(&self, text: &str) {
        let _reader_gone = writeln!(std::io::stdout(), "{text}");
    }

    /// The result as one line of JSON.
    pub(crate) fn json(&self, value: &impl Serialize) {
        let text = serde_json::to_string(value).expect("what is shown has text keys only");
        self.line(&text);
    }

    /// Bytes of a command's output, at once. False where nobody reads them any more.
    pub(crate) fn output(&self, bytes: &[u8]) -> bool {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).is_ok()
    }

    /// A line about the result.
    pub(crate) fn aside(&self, text: &str) {
        let _reader_gone = writeln!(std::io::stderr(), "{text}");
    }

    /// The one line that says why it did not work.
    pub(crate) fn error(&self, text: &str) {
        let one_line = text.lines().map(|line| plain(line.trim())).collect::<Vec<_>>().join(" ");
        self.aside(&format!("{} {one_line}", self.side_ink.bad("thermite:")));
    }

    /// Whether lines about the result may be drawn over.
    pub(crate) fn redraws(&self) -> bool {
        self.redraws
    }
}

/// How long nothing is said while nothing is new; then the figures are said again, so that a wait is seen to go on.
pub(crate) const SAY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// One line that changes: drawn over on a terminal, said again elsewhere when what it is about changes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    key: String,
    drawn: bool,
    said: Option<Instant>,
}

impl Progress {
    /// Shows `text`; elsewhere than on a terminal only when `key` is another than last time.
    pub(crate) fn show(&mut self, say: &Say, key: String, text: &str) {
        let is_new = key != self.key;
        self.key = key;
        if say.redraws() {
            self.show_live(say, text);
        } else if is_new || self.said.is_none_or(|said| said.elapsed() >= SAY_AGAIN_AFTER) {
            say.aside(text);
            self.said = Some(Instant::now());
        }
    }

    /// Shows `text` on a terminal, and nothing elsewhere.
    pub(crate) fn show_live(&mut self, say: &Say, text: &str) {
        if say.redraws() {
            let (width, _) = size_of_stderr();
            let cut = cut_to(text, width.saturating_sub(1));
            let _reader_gone = write!(std::io::stderr(), "\r\x1b[K{}", say.side_ink.dim(&cut));
            self.drawn = true;
        }
    }

    /// Takes the line away, so that others can be written.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _reader_gone = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// What of a text fits into that many columns; what is cut is shown to be.
pub(crate) fn cut_to(text: &str, columns: usize) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut taken = 1;
    for letter in text.chars() {
        taken += letter.width().unwrap_or(0);
        if taken > columns {
            break;
        }
        cut.push(letter);
    }
    cut.push('…');
    cut
}

/// How many letters fit on a line of the terminal, and how many lines on it.
pub(crate) fn size_of_stderr() -> (usize, usize) {
    const USUAL: (usize, usize) = (100, 24);
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        Ok(_) | Err(_) => USUAL,
    }
}
