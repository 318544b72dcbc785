//! Thermite's shells: records on disk, the data folder, settings, REST. Doors only: no rule lives here.
//!
//! The command line is the binary's own (`main.rs`, `cli`).

pub mod backup;
pub mod budget;
pub mod bus;
pub mod cards;
pub mod control;
pub mod core_bus;
pub mod device_lock;
pub mod folder;
pub mod harness;
pub mod input_log;
pub mod metrics;
pub mod models;
pub mod new_split;
pub mod plain;
pub mod records;
pub mod report;
pub mod runner_lines;
pub mod serve;
pub mod server;
pub mod settings;
pub mod size;
pub mod supervisor;
pub mod tokens;
