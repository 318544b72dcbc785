//! The rules of thermite-core as tests: no runtime, in milliseconds.

mod block;
mod exhaustive;
mod limits;
mod noise;
mod readiness;
mod record;
mod runner;
mod scripted;
mod stage;
mod verdict;
