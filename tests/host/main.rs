//! This machine as the ports: real processes, real files, real git.

mod cpu;
mod driver;
mod git;
mod kit;
mod launch;
mod repo;
mod workspaces;
