//! Thermite's rules as pure state machines.
//!
//! No async, clock, randomness, IO or logs: a rule takes `now` and an input and gives back effects. What is
//! deliberately absent lives one floor up (`thermite-actors`) or two (`thermite-svc`). Rule numbers in the comments
//! are those of `docs/rules.md`.

pub mod blame;
pub mod block;
pub mod coin;
pub mod contract;
pub mod cpus;
pub mod dev_run;
pub mod device;
pub mod ended;
pub mod fold;
pub mod hold;
pub mod ids;
pub mod input_log;
pub mod job;
pub mod judge_queue;
pub mod lane;
pub mod limits;
pub mod log;
pub mod noise;
mod pairs;
pub mod pool;
pub mod readiness;
pub mod record;
pub mod refusal;
pub mod run;
pub mod runner;
pub mod runners;
pub mod settings;
pub mod settled;
pub mod split;
pub mod stage;
pub mod texts;
pub mod time;
pub mod verdict;
pub mod wait;
pub mod why;
pub mod wire;
