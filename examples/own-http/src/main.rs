//! Another harness' own HTTP service around a rig: the rig's actors and this machine's ports from `thermite-actors`,
//! and the doors, the log and the words of this program. It knows nothing of `thermite-svc`.
//!
//! ```text
//! cargo run -p thermite-example-own-http -- DATA REPO LANE...   # serves on 127.0.0.1:8088
//! cargo run -p thermite-example-own-http -- --demo              # serves a repository of its own, and asks itself
//! ```
//!
//! | | |
//! |---|---|
//! | `POST /commands` `{"lane": 1, "argv": ["make", "test"]}` | runs it when the device is free; answers with its end |
//! | `POST /changes` `{"revision": "faster"}` | 202 `{"id": ...}`: the judge will measure it |
//! | `GET /changes/{id}` | how it stands, in one sentence |
//! | `GET /` | who has the device |
//!
//! It has no tokens: whoever adds another address than loopback adds them too.

mod demo;
mod doors;
mod journal;
mod rig;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Every contained run is started by this same binary, started again: it is told apart before anything else.
    if let Some(code) = thermite_actors::host::launch::entry() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [demo] if demo == "--demo" => demo::demo(),
        [data, repo, lanes @ ..] if !lanes.is_empty() => {
            let place = rig::Place {
                data: PathBuf::from(data),
                repo: PathBuf::from(repo),
                lanes: lanes.iter().map(PathBuf::from).collect(),
                fed_load: None,
            };
            doors::serve(place, 8088)
        }
        _ => Err("give DATA REPO LANE... or --demo".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("own-http: {fault}");
            ExitCode::FAILURE
        }
    }
}
