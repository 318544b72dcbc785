//! Several cards' machines, composed as in the rig, with splits, drains and faults of cards (rules B1, B2, B6, B9, B10).
//!
//! Appends are durable in the step that asks, and lanes and judge open their letters at once: what is tried in every
//! order here is what the pool and the devices say to each other, people, cards and the clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thermite_core::dev_run::Exit;
use thermite_core::device::{Device, DeviceEffect, DeviceInput, MemberEvent};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::job::StageKind;
use thermite_core::judge_queue::{
    Builds, JudgeEffect, JudgeInput, JudgeQueue, StageResult, Submission, Submit, Ticket,
};
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput, LaneState};
use thermite_core::pool::{Discipline, Pool, PoolEffect, PoolInput};
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::time::{Moment, Span};
use uuid::Uuid;

use super::graph::World;

pub(super) const EXCLUSIVE: &str = "one holder of a card at a time (A1)";
pub(super) const NUMBER_ONCE: &str = "a hold number is used once on each card (A1)";
pub(super) const POOL_KNOWS: &str = "nothing runs under a hold that the pool takes for over (A1, A7)";
pub(super) const SIDES: &str = "each side keeps to its own cards (B2)";
pub(super) const ELSEWHERE: &str = "a confirmation is on another card where one is in service (B6)";
pub(super) const IN_FORCE: &str = "a new split is answered once it is in force, the latest one (B9)";
pub(super) const OVERLOOKED: &str = "nobody eligible waits beside a free ready card (A9)";
pub(super) const DRAINED: &str = "a drained card is granted to nobody (B10)";
pub(super) const ONE_END: &str = "a job ends once (D7)";

const RUN: RunId = RunId(Uuid::from_u128(1));
const NOW: Moment = Moment::from_millis(100_000_000);
const WAIT_MAX: Span = Span::seconds(10);

/// A fault put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// Members move while their holds go on.
    MovesEarly,
    /// A new split is answered when it is asked for.
    AnsweredEarly,
    /// That a card takes work again is never told.
    UndrainIsLost,
    /// A confirmation does not look where its screening was won.
    ForgetsScreening,
}

/// What is checked.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// Whom each card serves at the start.
    pub(super) cards: Vec<Discipline>,
    pub(super) bench: bool,
    pub(super) lanes: u8,
    pub(super) jobs: u8,
    /// The splits that are set, in order.
    pub(super) splits: Vec<Vec<Discipline>>,
    pub(super) drains: u8,
    pub(super) faults: u8,
    /// Stages that infrastructure fails.
    pub(super) failures: u8,
    /// What people, cards and stages do while letters are on their way.
    pub(super) hasty: u8,
    /// Deadlines that pass while something else could happen.
    pub(super) late: u8,
    pub(super) mutant: Mutant,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Deliver { from: Party, to: Party },
    Ask { lane: u8 },
    Submit,
    SetSplit,
    Drain { member: MemberId },
    Undrain { member: MemberId },
    Fault { member: MemberId },
    Heals { member: MemberId },
    Started { hold: HoldId },
    Exits { hold: HoldId },
    Emptied { hold: HoldId },
    Swept { member: MemberId },
    Looked { member: MemberId },
    StageEnds { hold: HoldId, came: Came },
    NextDeadline,
}

/// How a stage may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Came {
    Built,
    Win,
    NoGain,
    Infrastructure,
}

/// Who writes and gets letters; judge and lanes open theirs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Party {
    Pool,
    Member(MemberId),
    Judge,
    Lane(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Letter {
    Pool(PoolInput),
    Member(DeviceInput),
}

/// How far the processes under a hold really are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tree {
    Starting(Holder),
    Running(Holder),
    Exited(Holder),
    Judging,
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cards {
    pool: Arc<Pool>,
    members: BTreeMap<MemberId, Arc<Device>>,
    judge: Arc<JudgeQueue>,
    lanes: Vec<Arc<Lane>>,
    mail: BTreeMap<(Party, Party), VecDeque<Letter>>,
    trees: BTreeMap<HoldId, Tree>,
    /// Holds whose processes are being ended.
    stopping: BTreeSet<HoldId>,
    /// Stages that work.
    stages: BTreeMap<HoldId, (JobId, StageKind)>,
    sweeping: BTreeSet<MemberId>,
    looking: BTreeSet<MemberId>,
    ill: BTreeSet<MemberId>,
    drained: BTreeSet<MemberId>,
    /// The highest number anything was started under.
    used: BTreeMap<MemberId, u64>,
    screened_on: BTreeMap<JobId, MemberId>,
    asked: Vec<bool>,
    submitted: u8,
    ended: BTreeSet<JobId>,
    arrivals: u64,
    split: u64,
    answered: u64,
    drains: u8,
    faults: u8,
    failures: u8,
    hasty: u8,
    late: u8,
    broken: Option<&'static str>,
}

fn lane_id(lane: u8) -> LaneId {
    LaneId::new(lane + 1).expect("set-ups have few lanes")
}

fn serves_judge(discipline: Discipline) -> bool {
    matches!(discipline, Discipline::JudgeFirst | Discipline::JudgeOnly | Discipline::Builds)
}

fn serves_lanes(discipline: Discipline) -> bool {
    matches!(discipline, Discipline::JudgeFirst | Discipline::LanesOnly)
}

impl World for Cards {
    type Setup = Setup;
    type Step = Step;

    fn fresh(setup: &Setup) -> Cards {
        let of = |split: &[Discipline]| disciplines(split, setup.bench);
        let known = of(&setup.cards);
        let members =
            known.keys().map(|member| (*member, Arc::new(Device::new(NOW, *member, 0).0.as_card()))).collect();
        let mut cards = Cards {
            pool: Arc::new(Pool::new(known.clone())),
            members,
            judge: Arc::new(judge_of(&setup.cards, setup.bench)),
            lanes: (0..setup.lanes).map(|lane| Arc::new(Lane::new(lane_id(lane)))).collect(),
            mail: BTreeMap::new(),
            trees: BTreeMap::new(),
            stopping: BTreeSet::new(),
            stages: BTreeMap::new(),
            sweeping: known.keys().copied().collect(),
            looking: BTreeSet::new(),
            ill: BTreeSet::new(),
            drained: BTreeSet::new(),
            used: BTreeMap::new(),
            screened_on: BTreeMap::new(),
            asked: vec![false; usize::from(setup.lanes)],
            submitted: 0,
            ended: BTreeSet::new(),
            arrivals: 0,
            split: 0,
            answered: 0,
            drains: setup.drains,
            faults: setup.faults,
            failures: setup.failures,
            hasty: setup.hasty,
            late: setup.late,
            broken: None,
        };
        let started = Arc::make_mut(&mut cards.judge).start_run(RUN, String::new()).expect("it is the first run");
        cards.judge_wants(setup, started);
        let opening = Arc::make_mut(&mut cards.judge).open();
        cards.judge_wants(setup, opening);
        for member in known.keys() {
            cards.sweeping.remove(member);
            cards.member_gets(setup, *member, DeviceInput::Swept);
            cards.looking.remove(member);
            cards.member_gets(setup, *member, DeviceInput::Looked { fault: None, busy: None });
        }
        while let Some((from, to)) = cards.mail.keys().next().copied() {
            cards.deliver(setup, from, to);
        }
        cards.settle();
        cards
    }

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        steps.extend(self.mail.keys().map(|(from, to)| Step::Deliver { from: *from, to: *to }));
        if !self.mail.is_empty() && self.hasty == 0 {
            return;
        }
        for lane in 0..setup.lanes {
            let its_turn = lane == 0 || self.asked[usize::from(lane) - 1];
            if !self.asked[usize::from(lane)] && its_turn {
                steps.push(Step::Ask { lane });
            }
        }
        if self.submitted < setup.jobs {
            steps.push(Step::Submit);
        }
        if usize::try_from(self.split).is_ok_and(|set| set < setup.splits.len()) {
            steps.push(Step::SetSplit);
        }
        for member in self.members.keys().copied().filter(|member| *member != MemberId::BENCH) {
            if self.drained.contains(&member) {
                steps.push(Step::Undrain { member });
            } else if self.drains > 0 {
                steps.push(Step::Drain { member });
            }
            if self.ill.contains(&member) {
                steps.push(Step::Heals { member });
            } else if self.faults > 0 {
                steps.push(Step::Fault { member });
            }
        }
        for (hold, tree) in &self.trees {
            let hold = *hold;
            match tree {
                _ if self.stopping.contains(&hold) => steps.push(Step::Emptied { hold }),
                Tree::Starting(_) => steps.push(Step::Started { hold }),
                Tree::Running(_) => steps.push(Step::Exits { hold }),
                Tree::Exited(_) | Tree::Judging => {}
            }
        }
        for hold in self.stages.keys().copied() {
            let mut came = vec![Came::Win, Came::NoGain];
            if hold.member == MemberId::BENCH {
                came = vec![Came::Built];
            }
            if self.failures > 0 {
                came.push(Came::Infrastructure);
            }
            steps.extend(came.into_iter().map(|came| Step::StageEnds { hold, came }));
        }
        steps.extend(self.sweeping.iter().map(|member| Step::Swept { member: *member }));
        steps.extend(self.looking.iter().map(|member| Step::Looked { member: *member }));
        // The clock goes on once nothing else can happen, but for a budget.
        if self.mail.is_empty() && (self.late > 0 || steps.is_empty()) && self.next_deadline().is_some() {
            steps.push(Step::NextDeadline);
        }
    }

    fn after(&self, setup: &Setup, step: Step) -> Cards {
        let mut next = self.clone();
        if step == Step::NextDeadline {
            next.late = next.late.saturating_sub(1);
        }
        if !next.mail.is_empty() && !matches!(step, Step::Deliver { .. }) {
            next.hasty -= 1;
        }
        next.take(setup, step);
        next.look();
        next.settle();
        next
    }

    fn ended(&self, setup: &Setup) -> bool {
        self.mail.is_empty()
            && self.submitted == setup.jobs
            && self.asked.iter().all(|asked| *asked)
            && self.lanes.iter().all(|lane| lane.under_way().is_none())
            && self.judge.live_count() == 0
            && self.trees.is_empty()
            && self.pool.waits().is_empty()
            && self.answered == self.split
            && self.pool.members().iter().all(|member| member.held.is_none())
    }

    fn broken(&self) -> Option<&'static str> {
        self.broken
    }
}

/// Whom each card serves, and the bench where there is one.
fn disciplines(split: &[Discipline], bench: bool) -> BTreeMap<MemberId, Discipline> {
    let cards = (0..).map(MemberId).zip(split.iter().copied());
    cards.chain(bench.then_some((MemberId::BENCH, Discipline::Builds))).collect()
}

/// What the judge queue is told of a split.
fn for_judge(split: &[Discipline], bench: bool) -> (usize, Builds) {
    let judging = split.iter().filter(|discipline| serves_judge(**discipline)).count();
    let shared = split.contains(&Discipline::JudgeFirst);
    (judging, if bench && !shared { Builds::OnBench } else { Builds::UnderHold })
}

fn judge_of(split: &[Discipline], bench: bool) -> JudgeQueue {
    let (judging, builds) = for_judge(split, bench);
    JudgeQueue::new(judging).building(builds)
}

impl Cards {
    fn take(&mut self, setup: &Setup, step: Step) {
        match step {
            Step::Deliver { from, to } => self.deliver(setup, from, to),
            Step::Ask { lane } => {
                self.asked[usize::from(lane)] = true;
                self.arrivals += 1;
                let ask = Ask {
                    dev_run: DevRunId(Uuid::from_u128(u128::from(lane) + 1)),
                    run: RUN,
                    arrival: Arrival(self.arrivals),
                    limit: None,
                    caller: Caller::Detached,
                    since: NOW,
                    latest: NOW + WAIT_MAX,
                };
                let effects = Arc::make_mut(&mut self.lanes[usize::from(lane)]).ask(ask).expect("it asks once");
                self.lane_wants(setup, lane, effects);
            }
            Step::Submit => self.submit(setup),
            Step::SetSplit => {
                let split = &setup.splits[usize::try_from(self.split).expect("set-ups set few splits")];
                self.split += 1;
                let (judging, builds) = for_judge(split, setup.bench);
                self.judge_gets(setup, JudgeInput::NewSplit { judging, builds, other_model: None });
                let disciplines = disciplines(split, setup.bench);
                let set = PoolInput::SetSplit { version: self.split, disciplines };
                self.send(Party::Judge, Party::Pool, Letter::Pool(set));
                if setup.mutant == Mutant::AnsweredEarly {
                    self.is_in_force(setup, self.split);
                }
            }
            Step::Drain { member } => {
                self.drains -= 1;
                self.drained.insert(member);
                self.pool_gets(setup, PoolInput::Drain { member, drained: true });
            }
            Step::Undrain { member } => {
                self.drained.remove(&member);
                if setup.mutant != Mutant::UndrainIsLost {
                    self.pool_gets(setup, PoolInput::Drain { member, drained: false });
                }
            }
            Step::Fault { member } => {
                self.faults -= 1;
                self.ill.insert(member);
                self.member_gets(setup, member, DeviceInput::AtFault { why: String::new() });
            }
            Step::Heals { member } => {
                self.ill.remove(&member);
            }
            Step::Started { hold } => {
                let Some(Tree::Starting(by)) = self.trees.get(&hold).copied() else { unreachable!("it was offered") };
                self.trees.insert(hold, Tree::Running(by));
                self.member_gets(setup, hold.member, DeviceInput::Started { number: hold.number });
            }
            Step::Exits { hold } => {
                let Some(Tree::Running(by)) = self.trees.get(&hold).copied() else { unreachable!("it was offered") };
                self.trees.insert(hold, Tree::Exited(by));
                let number = hold.number;
                self.member_gets(setup, hold.member, DeviceInput::Exited { number, exit: Exit::Code(0) });
            }
            Step::Emptied { hold } => {
                self.trees.remove(&hold);
                self.stopping.remove(&hold);
                self.stages.remove(&hold);
                self.member_gets(setup, hold.member, DeviceInput::Emptied { number: hold.number });
            }
            Step::Swept { member } => {
                self.sweeping.remove(&member);
                // What could not be proved gone before is gone by now.
                self.trees.retain(|hold, _| hold.member != member);
                self.stopping.retain(|hold| hold.member != member);
                self.stages.retain(|hold, _| hold.member != member);
                self.member_gets(setup, member, DeviceInput::Swept);
            }
            Step::Looked { member } => {
                self.looking.remove(&member);
                let fault = self.ill.contains(&member).then(String::new);
                self.member_gets(setup, member, DeviceInput::Looked { fault, busy: None });
            }
            Step::StageEnds { hold, came } => {
                let (job, stage) = self.stages.remove(&hold).expect("it was offered");
                let result = match came {
                    Came::Built => StageResult::Built,
                    Came::Win => StageResult::Win,
                    Came::NoGain => StageResult::NoGain { slower: false },
                    Came::Infrastructure => {
                        self.failures -= 1;
                        StageResult::Infrastructure(InfrastructureFailure::RigEnding)
                    }
                };
                if came == Came::Win && stage == StageKind::Screening {
                    self.screened_on.insert(job, hold.member);
                }
                self.judge_gets(setup, JudgeInput::StageEnded { hold, result });
            }
            Step::NextDeadline => self.jump(setup),
        }
    }

    fn submit(&mut self, setup: &Setup) {
        self.submitted += 1;
        self.arrivals += 1;
        let submit = Submit {
            job: JobId(Uuid::from_u128(u128::from(self.submitted))),
            run: RUN,
            arrival: Arrival(self.arrivals),
            champion: String::new(),
            candidate: self.submitted.to_string(),
            same: self.submitted.to_string(),
            key: None,
            stage_worst: Span::ZERO,
        };
        match Arc::make_mut(&mut self.judge).submit(submit).expect("the run takes jobs") {
            Submission::New(effects) => self.judge_wants(setup, effects),
            Submission::Same { .. } => unreachable!("each job is another change"),
        }
    }

    fn send(&mut self, from: Party, to: Party, letter: Letter) {
        self.mail.entry((from, to)).or_default().push_back(letter);
    }

    fn deliver(&mut self, setup: &Setup, from: Party, to: Party) {
        let letters = self.mail.get_mut(&(from, to)).expect("the step was offered");
        let letter = letters.pop_front().expect("a channel without letters is none");
        if letters.is_empty() {
            self.mail.remove(&(from, to));
        }
        match (to, letter) {
            (Party::Pool, Letter::Pool(input)) => self.pool_gets(setup, input),
            (Party::Member(member), Letter::Member(input)) => self.member_gets(setup, member, input),
            (to, letter) => unreachable!("{letter:?} does not go to {to:?}"),
        }
    }

    fn pool_gets(&mut self, setup: &Setup, input: PoolInput) {
        if setup.mutant == Mutant::MovesEarly && matches!(input, PoolInput::SetSplit { .. }) {
            let held: Vec<HoldId> = self.pool.members().into_iter().filter_map(|known| Some(known.held?.0)).collect();
            for hold in held {
                let event = MemberEvent::Freed { number: hold.number, how: HoldEnd::Stopped(StopCause::NewSplit) };
                let effects =
                    Arc::make_mut(&mut self.pool).handle(NOW, PoolInput::Member { member: hold.member, event });
                self.pool_wants(setup, effects);
            }
        }
        let effects = Arc::make_mut(&mut self.pool).handle(NOW, input);
        self.pool_wants(setup, effects);
    }

    fn pool_wants(&mut self, setup: &Setup, effects: Vec<PoolEffect>) {
        for effect in effects {
            match effect {
                PoolEffect::InLine { lane, dev_run, ahead } => {
                    self.lane_gets(setup, lane, LaneInput::InLine { dev_run, ahead });
                }
                PoolEffect::GrantLane { lane, dev_run, hold, limit } => {
                    self.is_granted(hold);
                    self.lane_gets(setup, lane, LaneInput::Granted { dev_run, hold, limit });
                }
                PoolEffect::GrantJudge { hold, serves } => {
                    self.is_granted(hold);
                    self.is_elsewhere(hold, &serves);
                    self.judge_gets(setup, JudgeInput::Granted { hold, serves });
                }
                PoolEffect::GaveUp { lane, dev_run, why } => {
                    self.lane_gets(setup, lane, LaneInput::GaveUp { dev_run, why });
                }
                PoolEffect::WaitCancelled { lane, dev_run } => {
                    self.lane_gets(setup, lane, LaneInput::WaitCancelled { dev_run });
                }
                PoolEffect::Requeued { lane, hold } => self.lane_gets(setup, lane, LaneInput::Requeued { hold }),
                PoolEffect::HoldEnded { to: Holder::Lane(lane), hold, how } => {
                    self.lane_gets(setup, lane, LaneInput::HoldEnded { hold, how });
                }
                PoolEffect::HoldEnded { to: Holder::Judge, hold, how } => {
                    self.stages.remove(&hold);
                    self.judge_gets(setup, JudgeInput::HoldEnded { hold, how });
                }
                PoolEffect::WorkTaken { version } => self.judge_gets(setup, JudgeInput::WorkTaken { version }),
                PoolEffect::RunnerLeft { .. } => unreachable!("no runner is set here"),
                PoolEffect::SplitSet { version } => self.is_in_force(setup, version),
                PoolEffect::Void { hold } => self.tell(Party::Pool, hold, DeviceInput::Void { number: hold.number }),
                PoolEffect::Stop { hold, cause } => {
                    self.tell(Party::Pool, hold, DeviceInput::Stop { number: hold.number, cause });
                }
            }
        }
    }

    fn tell(&mut self, from: Party, hold: HoldId, input: DeviceInput) {
        self.send(from, Party::Member(hold.member), Letter::Member(input));
    }

    fn is_granted(&mut self, hold: HoldId) {
        if self.drained.contains(&hold.member) {
            self.broken = Some(DRAINED);
        }
    }

    /// A stage may be a confirmation where its screening was won only if no other judge's card is in service.
    fn is_elsewhere(&mut self, hold: HoldId, serves: &[(JobId, StageKind)]) {
        let same = serves
            .iter()
            .any(|(job, stage)| *stage == StageKind::Confirmation && self.screened_on.get(job) == Some(&hold.member));
        let other = self.pool.members().iter().any(|other| {
            other.member != hold.member
                && matches!(other.discipline, Discipline::JudgeOnly | Discipline::JudgeFirst)
                && other.gone.is_none()
                && !other.drained
        });
        if same && other {
            self.broken = Some(ELSEWHERE);
        }
    }

    /// Whoever set a split is answered.
    fn is_in_force(&mut self, setup: &Setup, version: u64) {
        self.answered = self.answered.max(version);
        let split = &setup.splits[usize::try_from(version).expect("set-ups set few splits") - 1];
        let wanted = disciplines(split, setup.bench);
        let is_so = self.pool.members().iter().all(|known| wanted.get(&known.member) == Some(&known.discipline));
        if !is_so {
            self.broken = Some(IN_FORCE);
        }
    }

    fn member_gets(&mut self, _: &Setup, member: MemberId, input: DeviceInput) {
        let device = self.members.get_mut(&member).expect("letters go to members");
        let effects = Arc::make_mut(device).handle(NOW, input);
        self.member_wants(member, effects);
    }

    fn member_wants(&mut self, member: MemberId, effects: Vec<DeviceEffect>) {
        let hold = |number| HoldId { member, number };
        for effect in effects {
            match effect {
                DeviceEffect::Sweep => {
                    self.sweeping.insert(member);
                }
                DeviceEffect::Look => {
                    self.looking.insert(member);
                }
                DeviceEffect::Distrust => {}
                DeviceEffect::StartDevRun { number } => {
                    let by = Holder::Lane(lane_id(0));
                    self.really_start(hold(number), Tree::Starting(by));
                }
                DeviceEffect::StageOpen { number } => self.really_start(hold(number), Tree::Judging),
                DeviceEffect::StopProcesses { number, .. } => {
                    self.stopping.insert(hold(number));
                }
                DeviceEffect::Tell(event) => {
                    let letter = Letter::Pool(PoolInput::Member { member, event });
                    self.send(Party::Member(member), Party::Pool, letter);
                }
            }
        }
    }

    fn really_start(&mut self, hold: HoldId, tree: Tree) {
        if self.trees.keys().any(|other| other.member == hold.member) {
            self.broken = Some(EXCLUSIVE);
        }
        if self.used.get(&hold.member).is_some_and(|used| *used >= hold.number) {
            self.broken = Some(NUMBER_ONCE);
        }
        self.used.insert(hold.member, hold.number);
        self.trees.insert(hold, tree);
    }

    fn judge_gets(&mut self, setup: &Setup, input: JudgeInput) {
        let effects = Arc::make_mut(&mut self.judge).handle(NOW, input);
        self.judge_wants(setup, effects);
    }

    fn judge_wants(&mut self, setup: &Setup, effects: Vec<JudgeEffect>) {
        for effect in effects {
            match effect {
                JudgeEffect::Record { ticket, .. } => self.judge_gets(setup, JudgeInput::Recorded(ticket)),
                JudgeEffect::RecordRun { run, .. } => self.judge_gets(setup, JudgeInput::Recorded(Ticket::Run(run))),
                JudgeEffect::Tell(mut work) => {
                    if setup.mutant == Mutant::ForgetsScreening {
                        work.entries.iter_mut().for_each(|entry| entry.screened_on = None);
                    }
                    self.send(Party::Judge, Party::Pool, Letter::Pool(PoolInput::JudgeWork(work)));
                }
                JudgeEffect::StopWaiters { run, why } => {
                    self.send(Party::Judge, Party::Pool, Letter::Pool(PoolInput::RunStopped { run, why }));
                }
                JudgeEffect::Claim { hold } => {
                    self.send(Party::Judge, Party::Pool, Letter::Pool(PoolInput::Claim { by: Holder::Judge, hold }));
                }
                JudgeEffect::ReleaseUnused { hold } => {
                    let release = PoolInput::ReleaseUnused { by: Holder::Judge, hold };
                    self.send(Party::Judge, Party::Pool, Letter::Pool(release));
                }
                JudgeEffect::StartStage { hold, job, stage, .. } | JudgeEffect::StartBuild { hold, job, stage, .. } => {
                    self.stages.insert(hold, (job, stage));
                    let start = DeviceInput::Start { number: hold.number, by: Holder::Judge, limit: None };
                    self.send(Party::Judge, Party::Member(hold.member), Letter::Member(start));
                }
                JudgeEffect::EndHold { hold } => {
                    let stop = DeviceInput::Stop { number: hold.number, cause: StopCause::StageOver };
                    self.tell(Party::Judge, hold, stop);
                }
                JudgeEffect::CardDoubted { hold } => {
                    self.tell(Party::Judge, hold, DeviceInput::Doubted { number: hold.number });
                }
                JudgeEffect::CardFault { member, why } => {
                    self.send(Party::Judge, Party::Member(member), Letter::Member(DeviceInput::AtFault { why }));
                }
                JudgeEffect::JobEnded { job, .. } => {
                    if !self.ended.insert(job) {
                        self.broken = Some(ONE_END);
                    }
                }
                JudgeEffect::AnswerSubmitted { .. }
                | JudgeEffect::AnswerNotRecorded { .. }
                | JudgeEffect::AnswerRun { .. } => {}
            }
        }
    }

    fn lane_gets(&mut self, setup: &Setup, lane: LaneId, input: LaneInput) {
        let at = lane.number() - 1;
        let effects = Arc::make_mut(&mut self.lanes[usize::from(at)]).handle(NOW, input);
        self.lane_wants(setup, at, effects);
    }

    fn lane_wants(&mut self, setup: &Setup, lane: u8, effects: Vec<LaneEffect>) {
        let (id, from) = (lane_id(lane), Party::Lane(lane));
        let by = Holder::Lane(id);
        for effect in effects {
            match effect {
                LaneEffect::RecordAsk => self.lane_gets(setup, id, LaneInput::AskRecorded),
                LaneEffect::RecordHold { hold, .. } => self.lane_gets(setup, id, LaneInput::HoldRecorded { hold }),
                LaneEffect::RecordEnd { .. } => self.lane_gets(setup, id, LaneInput::EndRecorded),
                LaneEffect::AskPool => {
                    let LaneState::Waiting { ask, .. } = *self.lanes[usize::from(lane)].state() else {
                        unreachable!("a lane that asks waits");
                    };
                    let ask = PoolInput::Ask {
                        lane: id,
                        dev_run: ask.dev_run,
                        run: ask.run,
                        arrival: ask.arrival,
                        acceptable: self.pool.acceptable(id),
                        limit: ask.limit,
                        since: Moment::START,
                        latest: ask.latest,
                    };
                    // The pool's actor says which members will do as it takes the asking.
                    self.pool_gets(setup, ask);
                }
                LaneEffect::CancelWait { dev_run } => {
                    self.send(from, Party::Pool, Letter::Pool(PoolInput::CancelWait { lane: id, dev_run }));
                }
                LaneEffect::Claim { hold } => {
                    self.send(from, Party::Pool, Letter::Pool(PoolInput::Claim { by, hold }));
                }
                LaneEffect::ReleaseUnused { hold } => {
                    self.send(from, Party::Pool, Letter::Pool(PoolInput::ReleaseUnused { by, hold }));
                }
                LaneEffect::Start { hold, limit } => {
                    self.tell(from, hold, DeviceInput::Start { number: hold.number, by, limit });
                }
                LaneEffect::StopHold { hold, cause } => {
                    self.tell(from, hold, DeviceInput::Stop { number: hold.number, cause });
                }
                LaneEffect::AnswerQueued { .. }
                | LaneEffect::AnswerNotRecorded { .. }
                | LaneEffect::AnswerTooLate { .. }
                | LaneEffect::AnswerEnd { .. } => {}
            }
        }
    }

    /// Looks for what must hold in every state, and for what must hold when nothing is on its way.
    fn look(&mut self) {
        let members = self.pool.members();
        let known = |member: MemberId| members.iter().find(|known| known.member == member).expect("it is a member");
        for (hold, tree) in &self.trees {
            let member = known(hold.member);
            let held = member.held.as_ref().is_some_and(|held| held.0 == *hold);
            if !held && member.gone.is_none() {
                self.broken = Some(POOL_KNOWS);
            }
            let is_own = match tree {
                Tree::Judging => serves_judge(member.discipline),
                Tree::Starting(_) | Tree::Running(_) | Tree::Exited(_) => serves_lanes(member.discipline),
            };
            if !is_own && held {
                self.broken = Some(SIDES);
            }
        }
        for known in members.iter().filter(|known| known.gone.is_none()) {
            let Some((_, holder)) = &known.held else { continue };
            let by_lane = matches!(holder, thermite_core::pool::HolderView::Lane { .. });
            let serves = if by_lane { serves_lanes(known.discipline) } else { serves_judge(known.discipline) };
            if !serves {
                self.broken = Some(SIDES);
            }
        }
        if self.mail.is_empty() && self.pool.overlooked().is_some() {
            self.broken = Some(OVERLOOKED);
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        let machines = [self.pool.next_deadline(), self.judge.next_deadline()];
        let lanes = self.lanes.iter().filter_map(|lane| lane.next_deadline());
        let members = self.members.values().filter_map(|member| member.next_deadline());
        machines.into_iter().flatten().chain(lanes).chain(members).map(|(at, _)| at).min()
    }

    /// The clock goes on to the next deadline, for all at once.
    fn jump(&mut self, setup: &Setup) {
        let at = self.next_deadline().expect("there is a deadline");
        let pool = Arc::make_mut(&mut self.pool).advance(at);
        let judge = Arc::make_mut(&mut self.judge).advance(at);
        let lanes: Vec<_> = self.lanes.iter_mut().map(|lane| Arc::make_mut(lane).advance(at)).collect();
        let members: Vec<_> =
            self.members.iter_mut().map(|(id, member)| (*id, Arc::make_mut(member).advance(at))).collect();
        self.rebase(Moment::from_millis(at.since(NOW).as_millis()), 0, &BTreeMap::new());
        self.pool_wants(setup, pool);
        self.judge_wants(setup, judge);
        for (lane, effects) in (0..).zip(lanes) {
            self.lane_wants(setup, lane, effects);
        }
        for (member, effects) in members {
            self.member_wants(member, effects);
        }
    }

    fn rebase(&mut self, origin: Moment, version: u64, lowest: &BTreeMap<MemberId, u64>) {
        let of = |member: MemberId| lowest.get(&member).copied().unwrap_or(0);
        Arc::make_mut(&mut self.pool).rebase(origin, version, of);
        Arc::make_mut(&mut self.judge).rebase(origin, version, of);
        self.lanes.iter_mut().for_each(|lane| Arc::make_mut(lane).rebase(origin, of));
        self.members.iter_mut().for_each(|(id, member)| Arc::make_mut(member).rebase(origin, of(*id)));
    }

    /// Tells numbers and versions from the lowest that is still spoken of, once nothing is on its way.
    fn settle(&mut self) {
        if !self.mail.is_empty() || self.broken.is_some() {
            return;
        }
        let mut lowest = BTreeMap::new();
        for (id, member) in &self.members {
            let running = self.trees.keys().filter(|hold| hold.member == *id).map(|hold| hold.number - 1);
            let used = self.used.get(id).copied().unwrap_or(0);
            lowest.insert(*id, running.chain([member.last().min(used)]).min().unwrap_or(0));
        }
        self.rebase(Moment::START, self.judge.lowest_version(), &lowest);
        let told = |hold: HoldId| HoldId { number: hold.number - lowest[&hold.member], ..hold };
        self.trees = std::mem::take(&mut self.trees).into_iter().map(|(hold, tree)| (told(hold), tree)).collect();
        self.stopping = std::mem::take(&mut self.stopping).into_iter().map(told).collect();
        self.stages = std::mem::take(&mut self.stages).into_iter().map(|(hold, stage)| (told(hold), stage)).collect();
        for (member, used) in &mut self.used {
            *used -= lowest[member];
        }
    }
}
