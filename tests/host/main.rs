//! This machine as the ports: real processes, real files, real git.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod bulk;
mod bulk_bad;
mod capture;
mod card_executors;
mod cards;
mod conformance;
mod cpu;
mod doctor;
mod driver;
mod escape;
mod executor;
mod git;
mod gpu;
mod gpu_blocks;
mod kit;
mod launch;
mod layers;
mod models;
#[expect(dead_code, reason = "the whole-rig tests use the rest")]
#[path = "../service/quota_group.rs"]
mod quota_group;
mod repo;
mod reported;
mod runner;
mod sweep;
mod thrown;
mod workspaces;
