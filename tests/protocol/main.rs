//! Orders of messages between the actors, on virtual time.

mod dev_runs;
mod scenario;
