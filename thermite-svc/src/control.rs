//! `thermite control`: owns the bus's operator key, mints and revokes rights on the bus, keeps rigs' settings.
//!
//! Deliberately absent: anything a rig needs to go on. While control is away cores and runners keep the rights they have,
//! and the settings they took.

pub mod authority;
pub mod bus;
pub mod bus_config;
pub mod no;
pub mod reporting;
mod rig_name;
pub mod rigs;
pub mod serve;
pub mod server;
pub mod settings;
pub mod store;
pub mod tokens;
pub mod trust;
pub mod words;
