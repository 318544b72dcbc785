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
    /// What it is; none for the bench, and for a runner, of which it is remembered.
    facts: Option<DeviceFacts>,
    /// Its name, where it is a runner.
    runner: Option<RunnerName>,
}

/// All members of a rig; a handle of it, all of which see the same.
#[derive(Clone, Default)]
pub(crate) struct Roster {
    members: Rc<RefCell<BTreeMap<MemberId, Known>>>,
    /// What the devices of runners were when they told last: for what was measured there, also once they are gone, and
    /// for what is asked before they are back.
    remembered: Rc<RefCell<BTreeMap<MemberId, DeviceFacts>>>,
}

impl Roster {
    pub(crate) fn insert_device(&self, member: MemberId, doors: MemberDoors, facts: DeviceFacts) {
        self.members.borrow_mut().insert(member, Known { doors, facts: Some(facts), runner: None });
    }

    pub(crate) fn insert_bench(&self, doors: MemberDoors) {
        self.members.borrow_mut().insert(MemberId::BENCH, Known { doors, facts: None, runner: None });
    }

    pub(crate) fn insert_runner(&self, member: MemberId, name: RunnerName, doors: MemberDoors) {
        self.members.borrow_mut().insert(member, Known { doors, facts: None, runner: Some(name) });
    }

    pub(crate) fn remove(&self, member: MemberId) {
        self.members.borrow_mut().remove(&member);
    }

    /// A runner told what its device is, or the records remember it.
    pub(crate) fn found(&self, member: MemberId, facts: DeviceFacts) {
        self.remembered.borrow_mut().insert(member, facts);
    }

    pub(crate) fn doors(&self, member: MemberId) -> Option<MemberDoors> {
        self.members.borrow().get(&member).map(|known| known.doors.clone())
    }

    pub(crate) fn facts(&self, member: MemberId) -> Option<DeviceFacts> {
        let own = self.members.borrow().get(&member).and_then(|known| known.facts.clone());
        own.or_else(|| self.remembered.borrow().get(&member).cloned())
    }

    /// The member whose device has that UUID.
    pub(crate) fn of_uuid(&self, uuid: &str) -> Option<MemberId> {
        let is_it = |member: &MemberId| self.facts(*member).is_some_and(|facts| facts.uuid == uuid);
        self.all().into_iter().map(|(member, _)| member).find(is_it)
    }

    /// A runner's name.
    pub(crate) fn runner(&self, member: MemberId) -> Option<RunnerName> {
        self.members.borrow().get(&member).and_then(|known| known.runner.clone())
    }

    /// How people call a member.
    pub(crate) fn name(&self, member: MemberId) -> String {
        self.runner(member).map_or_else(|| member.to_string(), |name| format!("runner {name}"))
    }

    /// All that can be held.
    pub(crate) fn all(&self) -> Vec<(MemberId, MemberDoors)> {
        self.members.borrow().iter().map(|(id, known)| (*id, known.doors.clone())).collect()
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
