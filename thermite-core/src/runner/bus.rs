//! The bus as the core sees it: one fault where many runners would be (rule E11).
//!
//! It only gives the fault its name: what is handed on, and when, is each runner's lease's matter alone.

use std::collections::BTreeMap;

use crate::ids::MemberId;

/// All runners' silence together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bus {
    link_down: bool,
    missing: BTreeMap<MemberId, bool>,
}

impl Bus {
    /// The core's own link is up, or not.
    pub fn link(&mut self, is_up: bool) {
        self.link_down = !is_up;
    }

    /// A runner has missed its last check, or not.
    pub fn runner(&mut self, member: MemberId, is_missing: bool) {
        self.missing.insert(member, is_missing);
    }

    /// A runner is none of the rig's any more.
    pub fn forget(&mut self, member: MemberId) {
        self.missing.remove(&member);
    }

    /// Whether the bus is away: the own link is down, or two and more runners are all missing at once.
    pub fn is_away(&self) -> bool {
        let all_missing = self.missing.len() >= 2 && self.missing.values().all(|is_missing| *is_missing);
        !self.missing.is_empty() && (self.link_down || all_missing)
    }
}
