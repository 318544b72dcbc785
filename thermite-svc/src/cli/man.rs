//! `thermite man`: manual pages, made from the commands themselves.
//!
//! The examples, exit codes and notes of a command's help become sections of their own, as `man` readers expect.

use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::exit;
use super::say::Say;

/// What `man` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this folder [default: print the page of `thermite` itself]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The date on every page: when the commands were last gone over as a whole. Readers miss it where there is none, and
/// one of the build's own would make equal sources differ.
const DATE: &str = "2026-11-30";

const AFTER: &str = "\
Examples:
  thermite man | man -l -
  thermite man ~/.local/share/man/man1

In a folder called man1 below one that `manpath` names, the pages are found as `man thermite-run` and so on.";

/// Prints the page of the whole program, or writes all.
pub(crate) fn man(args: &ManArgs, commands: Command, say: &Say) -> anyhow::Result<u8> {
    let mut commands = commands.disable_help_subcommand(true);
    commands.build();
    let Some(folder) = &args.folder else {
        say.output(&page(&commands).context("failed to make the page")?);
        return Ok(exit::OK);
    };
    let cannot = || format!("failed to write pages into {}; name a folder that you may write in", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
    let mut pages = 0;
    for command in std::iter::once(&commands).chain(shown) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        std::fs::write(folder.join(format!("{name}.1")), page(command).with_context(cannot)?).with_context(cannot)?;
        pages += 1;
    }
    say.line(&format!("{pages} pages are in {}", folder.display()));
    Ok(exit::OK)
}

/// One command's page.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let version = format!("thermite {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(version).manual("Thermite").date(DATE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    sections(&after).to_writer(&mut page)?;
    // The list of an option's values comes with an empty line between two breaks, which strict readers count as too many.
    Ok(String::from_utf8_lossy(&page).replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes())
}

/// The paragraphs after a command's options, each under the heading that its first words say.
fn sections(after: &str) -> Roff {
    let mut roff = Roff::new();
    let mut heading = "";
    for paragraph in after.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let first = paragraph.lines().next().unwrap_or_default();
        let (next, is_list) = if first.starts_with("Example") {
            ("EXAMPLES", true)
        } else if first.starts_with("Exit codes") {
            ("EXIT STATUS", paragraph.lines().count() > 1)
        } else {
            ("NOTES", false)
        };
        if next == heading {
            roff.control("PP", []);
        } else {
            roff.control("SH", [next]);
            heading = next;
        }
        if !is_list {
            roff.text([roman(paragraph)]);
            continue;
        }
        roff.control("nf", []);
        // The heading says what the first line said, unless there is more on it.
        for line in
            paragraph.lines().filter(|line| !matches!(line.trim_end(), "Example:" | "Examples:" | "Exit codes:"))
        {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_exit_codes_get_sections_of_their_own() {
        let page = sections("Examples:\n  thermite run\n  .hidden\n\nA note.\n\nExit codes: 0 done.").to_roff();

        let lines: Vec<&str> = page.lines().collect();
        let at = |line: &str| lines.iter().position(|other| *other == line).unwrap_or_else(|| panic!("{line}: {page}"));
        assert!(at(".SH EXAMPLES") < at(".nf") && at(".fi") < at(".SH NOTES"), "{page}");
        assert!(page.contains("A note."), "{page}");
        assert!(at(".SH NOTES") < at(".SH \"EXIT STATUS\""), "{page}");
        assert!(!page.contains("\n.hidden"), "a line that begins with a dot is no request: {page}");
    }
}
