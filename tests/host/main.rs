//! This machine as the ports: real processes, real files, real git.

mod cpu;
mod git;
mod kit;
mod repo;
mod workspaces;
