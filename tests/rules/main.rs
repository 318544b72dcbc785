//! The rules of thermite-core as tests: no runtime, in milliseconds.

mod device;
mod exhaustive;
mod lane;
mod pool;
mod scenario;
