//! This machine as the ports: real processes, real files, real git.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod capture;
mod cpu;
mod driver;
mod escape;
mod executor;
mod git;
mod kit;
mod launch;
mod repo;
mod reported;
mod sweep;
mod workspaces;
