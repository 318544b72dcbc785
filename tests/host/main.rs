//! This machine as the ports: real processes, real files, real git.

mod driver;
mod escape;
mod launch;
