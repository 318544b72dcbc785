//! What a runner is asked, when, and what its answers mean.

use super::*;

impl Runner {
    /// Asks what is to be asked: the check when it is due, and beside it one thing at a time.
    pub(super) fn ask(&mut self, now: Moment, effects: &mut Vec<RunnerEffect>) {
        let sent = match self.check {
            Check::Due { at } if at <= now => Some(now),
            Check::Again { at, sent } if at <= now => Some(sent),
            Check::Due { .. } | Check::Again { .. } | Check::Asked { .. } => None,
        };
        if let Some(sent) = sent {
            let id = self.id();
            self.check = Check::Asked { id, sent };
            effects.push(RunnerEffect::Ask { id, what: Question::Check { ticket: self.ticket } });
        }
        if let Talk::Quiet { from } = self.talk
            && from <= now
            && let Some((question, at)) = self.question()
            && at <= now
        {
            let id = self.id();
            let until = now + limits::RUNNER_ASK_MAX;
            self.talk = Talk::Asked { id, question: question.clone(), until, hinted: false };
            effects.push(RunnerEffect::Ask { id, what: question });
        }
    }

    /// What is to be asked beside the check, and from when on.
    pub(super) fn question(&self) -> Option<(Question, Moment)> {
        let Contact::Here { answered } = self.contact else { return None };
        let live = self.others.iter().find(|(_, other)| **other == Other::Live);
        if let Some((number, _)) = live {
            let cause = StopCause::RunnerLost { how: RunnerLoss::Away };
            return Some((Question::Stop { number: *number, cause }, self.tell_at));
        }
        let work = match &self.work {
            Work::Idle | Work::Bringing { .. } | Work::Fetching { .. } => None,
            Work::Starting { number, by, limit } => self
                .ticket
                .map(|ticket| (Question::Start { ticket, number: *number, by: *by, limit: *limit }, answered)),
            Work::Accepted { number, boot, step: StepAsked::Wanted { number: step, taken: false }, .. } => {
                Some((Question::Step { boot: *boot, number: *number, step: *step }, answered))
            }
            Work::Accepted { number, .. } => Some((Question::Tell { number: *number }, self.tell_at)),
            Work::Stopping { number, cause, .. } => {
                Some((Question::Stop { number: *number, cause: cause.clone() }, self.tell_at))
            }
        };
        let ack = self.others.iter().find_map(|(number, other)| match other {
            Other::Over { fetch: Fetch::Done, kept: true, .. } => Some((Question::Ack { number: *number }, answered)),
            Other::Over { .. } | Other::Live => None,
        });
        // What is due first goes first: a poll that waits for its turn holds no acknowledgement up.
        match (work, ack) {
            (Some(work), Some(ack)) if ack.1 < work.1 => Some(ack),
            (Some(work), _) => Some(work),
            (None, ack) => ack,
        }
    }

    pub(super) fn answered(&mut self, now: Moment, id: u64, answer: Answer, out: &mut Out) {
        if let Check::Asked { id: asked, sent } = self.check
            && asked == id
        {
            self.check = Check::Due { at: sent + limits::RUNNER_CHECK_EVERY };
            self.check_answered(now, answer, out);
            return;
        }
        let Talk::Asked { id: asked, question, hinted, .. } = &self.talk else { return };
        if *asked != id {
            return;
        }
        let (question, hinted) = (question.clone(), *hinted);
        self.talk = Talk::Quiet { from: now };
        self.tell_at = if hinted { now } else { now + limits::RUNNER_TELL_EVERY };
        if self.boot != Some(answer.boot) {
            // Only a check's answer makes another start of the process known, with all that it has.
            self.talk = Talk::Quiet { from: now + limits::RUNNER_RETRY_EVERY };
            if let Check::Due { at } = &mut self.check {
                *at = now;
            }
            return;
        }
        match answer.what {
            SlotAnswer::Stands(standing) => self.stands(now, *standing, out),
            SlotAnswer::Forgotten => {
                if let Question::Ack { number } = question {
                    self.others.remove(&number);
                }
            }
            SlotAnswer::No(no) => self.no(now, &question, &no, out),
            // No answers to what is asked here.
            SlotAnswer::Checked(_) | SlotAnswer::Output { .. } => {
                self.talk = Talk::Quiet { from: now + limits::RUNNER_RETRY_EVERY };
            }
        }
    }

    /// The runner does not do what was asked.
    fn no(&mut self, now: Moment, question: &Question, no: &SlotNo, out: &mut Out) {
        match question {
            Question::Start { number, .. } if self.work.number() == Some(*number) => {
                // The number is burnt there. `Ready` comes with the next good check.
                self.declined = Some(no.to_string());
                self.ended(None, HoldEnd::NotStarted, out);
            }
            // It does not know what it had: what is left of it is stopped, which burns the number there.
            Question::Step { number, .. } | Question::Tell { number } if self.work.number() == Some(*number) => {
                self.end_work(now, StopCause::RunnerLost { how: RunnerLoss::Restarted }, out);
            }
            Question::Start { .. }
            | Question::Step { .. }
            | Question::Tell { .. }
            | Question::Stop { .. }
            | Question::Ack { .. }
            | Question::Check { .. } => self.talk = Talk::Quiet { from: now + limits::RUNNER_RETRY_EVERY },
        }
    }

    fn check_answered(&mut self, now: Moment, answer: Answer, out: &mut Out) {
        self.missed = 0;
        match answer.what {
            SlotAnswer::Checked(checked) => self.checked(now, answer.boot, *checked, out),
            SlotAnswer::No(no) => {
                if let SlotNo::NoSuchSlot { serves } = no {
                    self.serves = Some(serves);
                }
                self.go_deaf(now, Some(WhyNot::Unable { says: no.to_string() }), out);
            }
            SlotAnswer::Stands(_) | SlotAnswer::Output { .. } | SlotAnswer::Forgotten => {
                self.go_deaf(now, Some(WhyNot::Unable { says: "it answers something else".to_owned() }), out);
            }
        }
    }

    fn checked(&mut self, now: Moment, boot: Uuid, checked: Checked, out: &mut Out) {
        let Checked { ticket, serves, facts, unable, faults, grants, highest: _ } = checked;
        match self.contact {
            Contact::Here { .. } => {}
            Contact::Reconciling | Contact::Deaf { .. } => self.tell_at = now,
        }
        if self.boot != Some(boot) {
            self.boot = Some(boot);
            self.faults = 0;
            match self.work {
                // What it had is lost with it, and its own journal says how far it was.
                Work::Starting { .. } | Work::Accepted { .. } => {
                    self.end_work(now, StopCause::RunnerLost { how: RunnerLoss::Restarted }, out);
                }
                Work::Idle | Work::Bringing { .. } | Work::Stopping { .. } | Work::Fetching { .. } => {}
            }
        }
        if faults > self.faults {
            out.effects.push(RunnerEffect::Distrust);
        }
        self.faults = faults;
        self.contact = Contact::Here { answered: now };
        self.ticket = Some(ticket);
        self.lease_from = now;
        self.serves = Some(serves);
        if facts.is_some() {
            self.facts = facts;
        }
        self.unable = unable;
        self.declined = None;
        let listed: Vec<u64> = grants.iter().map(|standing| standing.grant).collect();
        // What another start of the process does not know any more is gone with its sweep.
        self.others.retain(|number, other| *other != Other::Live || listed.contains(number));
        // Only what is said counts: an answer under way since before a start says nothing of it (rule 11 of the design).
        for standing in grants {
            self.stands(now, standing, out);
        }
    }

    pub(super) fn failed(&mut self, now: Moment, id: u64, fault: &AskFault, out: &mut Out) {
        if let Check::Asked { id: asked, sent } = self.check
            && asked == id
        {
            match fault {
                // It answers, and cannot be understood: what it works on ends with its lease.
                AskFault::OtherWire { version } => {
                    self.missed = 0;
                    self.check = Check::Due { at: sent + limits::RUNNER_CHECK_EVERY };
                    let why = WhyNot::OtherWire { has: *version, wants: u32::from(WIRE_VERSION) };
                    self.go_deaf(now, Some(why), out);
                }
                AskFault::Down | AskFault::NoAnswer => {
                    self.check = Check::Again { at: now + limits::RUNNER_RETRY_EVERY, sent };
                }
            }
            return;
        }
        if let Talk::Asked { id: asked, .. } = self.talk
            && asked == id
        {
            self.talk = Talk::Quiet { from: now + limits::RUNNER_RETRY_EVERY };
        }
    }

    /// When the check that is not answered yet was sent first.
    pub(super) fn check_sent(&self) -> Option<Moment> {
        match self.check {
            Check::Due { .. } => None,
            Check::Asked { sent, .. } | Check::Again { sent, .. } => Some(sent),
        }
    }

    pub(super) fn check_missed(&mut self, sent: Moment, out: &mut Out, now: Moment) {
        self.missed = self.missed.saturating_add(1);
        // Counted from now where the machine slept: two checks are missed by two asks.
        self.check = Check::Due { at: (sent + limits::RUNNER_CHECK_EVERY).max(now) };
        let is_deaf = matches!(self.contact, Contact::Deaf { why: None });
        if self.missed >= limits::RUNNER_CHECKS_MISSED && !is_deaf {
            self.go_deaf(now, None, out);
        }
    }

    fn id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}
