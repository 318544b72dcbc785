//! Colours: only on a terminal, and never where `NO_COLOR` is set (no-color.org).

use std::io::IsTerminal;

/// Writes with colours, or plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    colours: bool,
}

impl Ink {
    /// For something written to `stream`.
    pub(crate) fn on(stream: &impl IsTerminal) -> Ink {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ink { colours: stream.is_terminal() && !unwanted }
    }

    /// No colours at all.
    #[cfg(test)]
    pub(crate) const PLAIN: Ink = Ink { colours: false };

    /// Whether it writes with colours.
    pub(crate) fn is_coloured(self) -> bool {
        self.colours
    }

    /// What stands out.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// What is good.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// What is bad.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// What can be passed over.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_no_colours() {
        let file = tempfile::tempfile().unwrap();

        let ink = Ink::on(&file);

        assert_eq!(ink.bold("win"), "win");
    }
}
