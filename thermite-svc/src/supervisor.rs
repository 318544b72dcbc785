//! The supervisor: a runner's process on the bus. It keeps journals and leases and has the work done by its harness.

pub mod control;
pub mod journal;
pub mod key;
pub mod line_file;
pub mod rights;
pub mod run;
