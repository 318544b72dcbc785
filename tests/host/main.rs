//! This machine as the ports: real processes, real files, real git.

mod capture;
mod driver;
mod escape;
mod launch;
mod sweep;
