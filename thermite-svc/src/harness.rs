//! The harness: a process that launches and measures for one supervisor, and the supervisor's way to it.
//!
//! They speak over a Unix socket that only their own user reaches; when either is gone, all that runs is ended by the
//! other or by the launchers' lifelines. Deliberately absent: any decision. What may run, and how long, is the supervisor's.

pub mod door;
mod frames;
pub mod link;
mod words;
