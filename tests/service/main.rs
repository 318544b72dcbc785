//! The shells: a real server, the real binary, real kill -9.

mod folder;
mod records;
mod rest;
mod scripted;
mod support;
