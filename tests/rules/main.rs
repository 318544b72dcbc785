//! The rules of thermite-core as tests: no runtime, in milliseconds.

mod device;
mod exhaustive;
mod lane;
mod pool;
mod scenario;
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
