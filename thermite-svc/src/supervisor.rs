//! The supervisor: a runner's process on the bus. It keeps journals and leases and has the work done by its harness.

pub mod line_file;
