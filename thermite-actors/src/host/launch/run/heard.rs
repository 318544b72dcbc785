//! What a run's guards have told.

use crate::host::launch::wire::{LeaderEnd, Packet};

/// What was heard of a run's end so far; kept apart from the wait, which may be dropped.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) reported: Vec<u8>,
    pub(super) end: Option<LeaderEnd>,
    /// Whether a guard said that the kernel knows of nothing more; only where there are no namespaces.
    pub(super) empty: bool,
}

impl Heard {
    pub(super) fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Reported(bytes) => self.reported.extend(bytes),
            Packet::Ended(end) => self.end = Some(end),
            Packet::Empty => self.empty = true,
            Packet::Fault(_) | Packet::AtGate | Packet::Init(_) | Packet::Order => {}
        }
    }
}
