//! The one binary, `thermite`: the rig and everything that talks to it.

mod cli;
mod client;
mod top;
mod try_out;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Each run's launcher is this same binary, started again: it is told apart before anything else is done.
    if let Some(code) = thermite_actors::host::launch::entry() {
        return code;
    }
    cli::main()
}
