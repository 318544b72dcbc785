//! Thermite's protocol: Device, Pool, JudgeQueue, Lane and Runner as actix actors whose messages are the policy.
//!
//! The rules are `thermite-core`'s; an actor translates, calls its machine and hands out effects. What touches a
//! machine, a disk or a clock comes in by the traits of [`ports`]; `host` (behind the feature of that name) is this
//! machine as those ports. An embedder opens one door, `Rig`.

mod alarm;
mod bench;
mod device;
mod door;
mod events;
#[cfg(feature = "host")]
pub mod host;
pub mod in_process;
mod input_log;
mod judge_queue;
mod lane;
pub mod member;
pub mod noise;
mod outbox;
mod pool;
pub mod ports;
pub mod rig;
mod roster;
pub mod runner;
pub mod runners;
pub mod slot;
#[cfg(feature = "testing")]
pub mod testing;
pub mod view;
