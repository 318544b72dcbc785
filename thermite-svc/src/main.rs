//! The one binary, `thermite`: the rig and everything that talks to it.

mod cli;
mod client;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
