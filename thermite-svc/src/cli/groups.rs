//! The list of commands as `thermite help` shows it: in groups, by what one wants to do.

use clap::Command;
use clap::builder::Styles;

/// Headings and their commands; a command of no group stands under the last heading.
const GROUPS: &[(&str, &[&str])] = &[
    ("See it work", &["try"]),
    ("Work on a rig", &["run", "judge", "verdict", "verify", "cancel"]),
    ("Look at a rig", &["status", "top", "why"]),
    ("Runs", &["start", "pause", "resume", "end"]),
    (
        "Keep a rig",
        &[
            "serve", "doctor", "noise", "split", "runners", "drain", "undrain", "backup", "restore", "token", "tokens",
            "replay",
        ],
    ),
    ("Keep rigs and their runners on several machines", &["control"]),
    ("Be a runner of a rig on another machine", &["supervisor", "harness"]),
    ("More", &["completions", "man", "exit-codes", "help"]),
];

/// The same commands with that list in their help.
pub(crate) fn grouped(commands: Command) -> Command {
    let styles = Styles::styled();
    let header = styles.get_header();
    let literal = styles.get_literal();
    let name_width = commands.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0).max(4);
    let line = |name: &str, about: &str| format!("  {literal}{name:<name_width$}{literal:#}  {about}\n");
    let mut list = String::new();
    for (at, (heading, names)) in GROUPS.iter().enumerate() {
        let mut lines = String::new();
        for name in *names {
            if let Some(command) = commands.find_subcommand(name).filter(|command| !command.is_hide_set()) {
                lines.push_str(&line(name, &about(command)));
            }
        }
        if at + 1 == GROUPS.len() {
            let in_no_group = |command: &&Command| !GROUPS.iter().any(|(_, names)| names.contains(&command.get_name()));
            for command in commands.get_subcommands().filter(in_no_group).filter(|command| !command.is_hide_set()) {
                lines.push_str(&line(command.get_name(), &about(command)));
            }
            lines.push_str(&line("help", "Show this list, or the help of one command"));
        }
        if !lines.is_empty() {
            list.push_str(&format!("{header}{heading}:{header:#}\n{lines}\n"));
        }
    }
    commands.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}
