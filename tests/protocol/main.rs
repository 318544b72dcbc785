//! Orders of messages between the actors, on virtual time.

mod certificates;
mod crash;
mod determinism;
mod dev_runs;
mod ending;
mod flat;
mod giving_up;
mod harness;
mod heard;
mod input_log;
mod jobs;
mod judge_first;
mod lasting;
mod mix;
mod noise;
mod once;
mod records;
mod reuse;
mod runs;
mod scenario;
mod sentences;
mod sleeping;
mod stopping;
mod why;
