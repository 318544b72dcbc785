//! `thermite completions`: what a shell needs to complete commands and options, made from the commands themselves.

use clap::{Args, Command};
use clap_complete::Shell;

use super::exit;
use super::say::Say;

/// What `completions` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const AFTER: &str = "\
Examples:
  thermite completions bash > ~/.local/share/bash-completion/completions/thermite
  thermite completions zsh > ~/.zfunc/_thermite
  thermite completions fish > ~/.config/fish/completions/thermite.fish
  thermite completions elvish >> ~/.config/elvish/rc.elv

The folder must be there. For zsh, ~/.zfunc must be in fpath before compinit.";

/// Prints the script.
pub(crate) fn completions(args: &CompletionsArgs, mut commands: Command, say: &Say) -> u8 {
    // Made in memory first: a reader that goes away is no failure.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut commands, "thermite", &mut script);
    say.output(&script);
    exit::OK
}
