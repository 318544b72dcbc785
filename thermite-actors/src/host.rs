//! This machine as the ports: launching and containment, capture, the drivers of CPUs and cards, git workspaces.

pub mod bulk;
pub mod cards;
pub mod clock;
pub mod cpu;
pub mod disk;
pub mod doctor;
pub mod executor;
pub mod git;
pub mod gpu;
pub mod ids;
pub mod kit;
pub mod launch;
pub mod models;
pub mod workspaces;

/// Bytes in hexadecimal, as hashes are shown.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}
