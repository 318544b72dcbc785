//! Colours: only on a terminal that knows them. `NO_COLOR` turns them off (no-color.org), `CLICOLOR_FORCE` on, and
//! `TERM=dumb` knows none unless `CI` is set, whose pages show them: anstream's rules, which the help texts follow too.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

/// Writes with colours, or plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    colours: bool,
}

impl Ink {
    /// For something written to `stream`.
    pub(crate) fn on(stream: &impl RawStream) -> Ink {
        let colours = match AutoStream::choice(stream) {
            ColorChoice::Always | ColorChoice::AlwaysAnsi => true,
            ColorChoice::Auto | ColorChoice::Never => false,
        };
        Ink { colours }
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

    /// What deserves a look.
    pub(crate) fn warn(self, text: &str) -> String {
        self.wrap("33", text)
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
