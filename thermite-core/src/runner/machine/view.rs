//! A runner as people and neighbours see it.

use super::*;
use crate::device::DeviceView;

impl Runner {
    /// Which member it is.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Its name.
    pub fn name(&self) -> &RunnerName {
        &self.name
    }

    /// How many things said under an old number were refused (rule A1).
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What its device is, as it last said.
    pub fn facts(&self) -> Option<&SlotFacts> {
        self.facts.as_ref()
    }

    /// How many runners its process serves, as it last said.
    pub fn serves(&self) -> Option<u16> {
        self.serves
    }

    /// When its last good answer came; none where it has given none since the core started, or is away.
    pub fn last_answer(&self) -> Option<Moment> {
        match self.contact {
            Contact::Here { answered } => Some(answered),
            Contact::Reconciling | Contact::Deaf { .. } => None,
        }
    }

    /// Whether it has missed the check before this moment: what the bus's own fault is told by.
    pub fn is_missing(&self) -> bool {
        self.missed > 0 || matches!(self.contact, Contact::Deaf { why: None })
    }

    /// Whether the judge may have a step done under this hold: only while it is live and the judge's.
    pub fn judge_may(&self, hold: HoldId) -> bool {
        matches!(self.work, Work::Accepted { number, by: Holder::Judge, .. }
            if hold.member == self.member && hold.number == number)
    }

    /// The step whose report is waited for, where one is.
    pub fn step_wanted(&self) -> Option<u32> {
        match self.work {
            Work::Accepted { step: StepAsked::Wanted { number, .. }, .. } => Some(number),
            Work::Accepted { step: StepAsked::None { .. }, .. }
            | Work::Idle
            | Work::Bringing { .. }
            | Work::Starting { .. }
            | Work::Stopping { .. }
            | Work::Fetching { .. } => None,
        }
    }

    /// The runner as its core sees it (rule E14).
    pub fn state(&self) -> RunnerState {
        let answered = match &self.contact {
            Contact::Reconciling => return RunnerState::Reconciling,
            Contact::Deaf { why: None } => return RunnerState::Away { hand_on: self.hand_on() },
            Contact::Deaf { why: Some(why) } => return RunnerState::Unfit { why: why.clone() },
            Contact::Here { answered } => *answered,
        };
        let busy = |number: u64, by: Holder, stop: Option<StopCause>| RunnerState::Busy { number, by, answered, stop };
        match &self.work {
            Work::Bringing { number, by, .. }
            | Work::Starting { number, by, .. }
            | Work::Accepted { number, by, .. }
            | Work::Fetching { number, by, .. } => busy(*number, *by, None),
            Work::Stopping { number, by, cause, .. } => busy(*number, *by, Some(cause.clone())),
            Work::Idle => match self.why_not() {
                Some(says) => RunnerState::Unfit { why: WhyNot::Unable { says } },
                None => RunnerState::Ready { answered },
            },
        }
    }

    /// The runner as a local device would be shown.
    pub fn view(&self) -> DeviceView {
        let hold = |number: u64| HoldId { member: self.member, number };
        match &self.work {
            Work::Bringing { number, by, .. }
            | Work::Starting { number, by, .. }
            | Work::Fetching { number, by, .. } => {
                DeviceView::Held { hold: hold(*number), by: *by, running_since: None, limit_at: None }
            }
            Work::Accepted { number, by, started, limit, .. } => {
                let running_since = started.filter(|_| *by != Holder::Judge);
                let limit_at = running_since.and_then(|since| limit.map(|limit| since + limit));
                DeviceView::Held { hold: hold(*number), by: *by, running_since, limit_at }
            }
            Work::Stopping { number, cause, since, .. } => {
                let until = match self.contact {
                    Contact::Here { .. } => *since + limits::PROOF_MAX,
                    Contact::Reconciling | Contact::Deaf { .. } => self.hand_on(),
                };
                DeviceView::Stopping { hold: hold(*number), cause: cause.clone(), since: *since, until }
            }
            Work::Idle => match (&self.quarantine, self.why_not()) {
                (Some(why), Some(_)) => DeviceView::Quarantined { why: why.clone() },
                (None, Some(why)) => DeviceView::Out { why, next_try: self.next_check() },
                (_, None) => DeviceView::Ready,
            },
        }
    }

    fn next_check(&self) -> Moment {
        match self.check {
            Check::Due { at } | Check::Again { at, .. } => at,
            Check::Asked { sent, .. } => sent + limits::RUNNER_ASK_MAX,
        }
    }

    /// Tells all times from `origin`, all numbers of grants from `lowest` and all asks from `first_id`, and forgets how
    /// often it refused: keeps exhaustive checking finite.
    pub fn rebase(&mut self, origin: Moment, lowest: u64, first_id: u64) {
        self.last -= lowest;
        self.past = self.past.saturating_sub(lowest);
        self.over = self.over.saturating_sub(lowest);
        self.refused = 0;
        self.next_id -= first_id;
        self.lease_from = self.lease_from.rebase(origin);
        self.tell_at = self.tell_at.rebase(origin);
        if let Contact::Here { answered } = &mut self.contact {
            *answered = answered.rebase(origin);
        }
        match &mut self.check {
            Check::Due { at } => *at = at.rebase(origin),
            Check::Asked { id, sent } => {
                *id -= first_id;
                *sent = sent.rebase(origin);
            }
            Check::Again { at, sent } => {
                *at = at.rebase(origin);
                *sent = sent.rebase(origin);
            }
        }
        match &mut self.talk {
            Talk::Quiet { from } => *from = from.rebase(origin),
            Talk::Asked { id, question, until, .. } => {
                *id -= first_id;
                *until = until.rebase(origin);
                question.rebase(lowest);
            }
        }
        match &mut self.work {
            Work::Idle => {}
            Work::Bringing { number, until, .. } => {
                *number -= lowest;
                *until = until.rebase(origin);
            }
            Work::Starting { number, .. } | Work::Fetching { number, .. } => *number -= lowest,
            Work::Accepted { number, started, .. } => {
                *number -= lowest;
                *started = started.map(|at| at.rebase(origin));
            }
            Work::Stopping { number, since, .. } => {
                *number -= lowest;
                *since = since.rebase(origin);
            }
        }
        self.others =
            std::mem::take(&mut self.others).into_iter().map(|(number, other)| (number - lowest, other)).collect();
        if let Some((_, until)) = &mut self.fault {
            *until = until.rebase(origin);
        }
    }
}

impl Question {
    /// Tells its number from `lowest`.
    fn rebase(&mut self, lowest: u64) {
        match self {
            Question::Check { .. } => {}
            Question::Start { number, .. }
            | Question::Step { number, .. }
            | Question::Stop { number, .. }
            | Question::Tell { number }
            | Question::Ack { number } => *number -= lowest,
        }
    }
}
