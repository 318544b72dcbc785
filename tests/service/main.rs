//! The shells: a real server, the real binary, real kill -9.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod binary;
mod cli;
mod doctor;
mod fed;
mod folder;
mod input_log;
mod life;
mod openapi;
mod quota_group;
mod records;
mod rest;
mod scripted;
mod support;
mod try_out;
mod verify;
mod whole;
mod why;
