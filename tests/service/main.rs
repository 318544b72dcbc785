//! The shells: a real server, the real binary, real kill -9.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod binary;
mod cli;
mod folder;
mod records;
mod rest;
mod scripted;
mod support;
mod try_out;
mod whole;
