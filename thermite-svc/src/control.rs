//! `thermite control`: owns the bus's operator key, mints and revokes rights on the bus, keeps rigs' settings.

pub mod authority;
pub mod bus_config;
mod rig_name;
