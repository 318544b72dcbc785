//! The rules of thermite-core as tests: no runtime, in milliseconds.

mod blame;
mod block;
mod cards;
mod cpus;
mod device;
mod exhaustive;
mod fold;
mod gpu;
mod ids;
mod judge_queue;
mod lane;
mod limits;
mod noise;
mod pool;
mod readiness;
mod record;
mod runner;
mod runner_bus;
mod scenario;
mod scripted;
mod settled;
mod split;
mod stage;
mod time;
mod verdict;
mod wait;
