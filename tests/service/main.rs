//! The shells: a real server, the real binary, real kill -9.

mod records;
mod support;
