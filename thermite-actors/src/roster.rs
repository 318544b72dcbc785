//! Who is a member, by what doors it is reached and what it is: the rig's devices, the bench, and runners, which come and
//! go while the rig runs (rule E8). Written at the start and by the runners' actor, read by all; nothing is decided here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use thermite_core::ids::MemberId;
use thermite_core::wire::RunnerName;

use crate::member::MemberDoors;
use crate::ports::DeviceFacts;

/// One member as others reach it.
struct Known {
    doors: MemberDoors,
    /// What it is; none for the bench, and for a runner that has never answered.
    facts: Option<DeviceFacts>,
    /// Its name, where it is a runner.
    runner: Option<RunnerName>,
}

/// All members of a rig; a handle of it, all of which see the same.
#[derive(Clone, Default)]
pub(crate) struct Roster(Rc<RefCell<BTreeMap<MemberId, Known>>>);

impl Roster {
    pub(crate) fn insert_device(&self, member: MemberId, doors: MemberDoors, facts: DeviceFacts) {
        self.0.borrow_mut().insert(member, Known { doors, facts: Some(facts), runner: None });
    }

    pub(crate) fn insert_bench(&self, doors: MemberDoors) {
        self.0.borrow_mut().insert(MemberId::BENCH, Known { doors, facts: None, runner: None });
    }

    pub(crate) fn insert_runner(
        &self,
        member: MemberId,
        name: RunnerName,
        doors: MemberDoors,
        facts: Option<DeviceFacts>,
    ) {
        self.0.borrow_mut().insert(member, Known { doors, facts, runner: Some(name) });
    }

    pub(crate) fn remove(&self, member: MemberId) {
        self.0.borrow_mut().remove(&member);
    }

    /// A runner told what its device is.
    pub(crate) fn found(&self, member: MemberId, facts: DeviceFacts) {
        if let Some(known) = self.0.borrow_mut().get_mut(&member) {
            known.facts = Some(facts);
        }
    }

    pub(crate) fn doors(&self, member: MemberId) -> Option<MemberDoors> {
        self.0.borrow().get(&member).map(|known| known.doors.clone())
    }

    pub(crate) fn facts(&self, member: MemberId) -> Option<DeviceFacts> {
        self.0.borrow().get(&member).and_then(|known| known.facts.clone())
    }

    /// The member whose device has that UUID.
    pub(crate) fn of_uuid(&self, uuid: &str) -> Option<MemberId> {
        let known = self.0.borrow();
        let is_it = |known: &Known| known.facts.as_ref().is_some_and(|facts| facts.uuid == uuid);
        known.iter().find(|(_, member)| is_it(member)).map(|(id, _)| *id)
    }

    /// A runner's name.
    pub(crate) fn runner(&self, member: MemberId) -> Option<RunnerName> {
        self.0.borrow().get(&member).and_then(|known| known.runner.clone())
    }

    /// How people call a member.
    pub(crate) fn name(&self, member: MemberId) -> String {
        self.runner(member).map_or_else(|| member.to_string(), |name| format!("runner {name}"))
    }

    /// All that can be held.
    pub(crate) fn all(&self) -> Vec<(MemberId, MemberDoors)> {
        self.0.borrow().iter().map(|(id, known)| (*id, known.doors.clone())).collect()
    }

    /// All that work is measured or tried on: devices and runners, without the bench.
    pub(crate) fn measuring(&self) -> Vec<(MemberId, MemberDoors)> {
        self.all().into_iter().filter(|(id, _)| *id != MemberId::BENCH).collect()
    }

    /// The core's own devices.
    pub(crate) fn devices(&self) -> Vec<(MemberId, MemberDoors)> {
        self.measuring().into_iter().filter(|(id, _)| !id.is_runner()).collect()
    }
}
