//! The bus between a core and its runners: frames and the NATS link. What is said is `thermite_core::wire`'s, what it
//! means `thermite_core::runner`'s.
//!
//! Deliberately absent: any memory of what was asked. An ask is tried once; who asked decides what its silence means.

pub mod asking;
pub mod codec;
pub mod connection;
pub mod nats;
pub mod runner_side;
pub mod subjects;
