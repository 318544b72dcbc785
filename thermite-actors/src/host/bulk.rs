//! How commits get to runners: [`Bringer`] is the core's end, [`BulkServer`] a runner process's.
//!
//! ```text
//! core                          runner
//! Tips(commits)          ->     what is missing, what to build on
//! Put(offset, bytes) ... ->     how far it is                        a file `HASH-TOTAL.part`
//! Take                   ->     hash, then git's own checks, then kept for the run
//! ```
//! Neither end remembers anything but files: the core its bundle, so that a bringing goes on with the same bytes after a
//! restart, the runner the first bytes of it. Both are bounded, the longest untouched go first. What is deliberately
//! absent: the bus, which is behind [`BulkLink`](crate::ports::BulkLink).

mod bring;
mod leftovers;
mod server;

pub use bring::{BUNDLES, Bringer, Brought, BulkFault};
pub use server::{BulkServer, TRANSFERS};
