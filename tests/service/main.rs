//! The shells: a real server, the real binary, real kill -9.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod binary;
mod bus;
mod cards;
mod cli;
mod command_line;
mod doctor;
mod fed;
mod folder;
mod input_log;
mod lasting;
mod life;
mod mcp;
mod metrics;
mod models;
mod noise;
mod openapi;
mod quota_group;
mod records;
mod report;
mod rest;
mod runners;
mod scripted;
mod settings;
mod support;
mod tokens;
mod try_out;
mod verify;
mod whole;
mod why;
