//! A core, two runners, and everything between and under them.

mod core_side;
mod runner_side;

use std::collections::{BTreeMap, BTreeSet};

use thermite_core::contract::Target;
use thermite_core::dev_run::Exit;
use thermite_core::device::{DeviceEffect, DeviceInput, DeviceState, MemberEvent};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{DevRunId, Holder, LaneId, MemberId};
use thermite_core::limits;
use thermite_core::runner::{
    AskFault, Heard, JournalLine, Question, Runner, RunnerEffect, RunnerInput, RunnerState, Slot, SlotEffect, SlotInput,
};
use thermite_core::time::{Moment, Span};
use thermite_core::wire::{Answer, Document, RunnerName, SlotAnswer, SlotFacts};
use uuid::Uuid;

/// A rule broken on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// The runner's clock runs at a third of its speed: its lease ends late.
    SlowClock,
    /// The core hands work on as soon as its runner is away.
    HandOnAtAway,
    /// The runner's executor says that all is gone before it is.
    StopWithoutProof,
}

/// What came of one world, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) begun: u64,
    pub(super) verdicts: u64,
    pub(super) exits: u64,
    pub(super) cancelled: u64,
    pub(super) lost: u64,
    pub(super) not_started: u64,
    pub(super) handed_on: u64,
    pub(super) core_deaths: u64,
    pub(super) runner_deaths: u64,
    pub(super) dropped: u64,
    pub(super) late: u64,
    pub(super) doubled: u64,
}

impl Ended {
    pub(super) fn add(&mut self, other: &Ended) {
        let Ended {
            begun,
            verdicts,
            exits,
            cancelled,
            lost,
            not_started,
            handed_on,
            core_deaths,
            runner_deaths,
            dropped,
            late,
            doubled,
        } = other;
        self.begun += begun;
        self.verdicts += verdicts;
        self.exits += exits;
        self.cancelled += cancelled;
        self.lost += lost;
        self.not_started += not_started;
        self.handed_on += handed_on;
        self.core_deaths += core_deaths;
        self.runner_deaths += runner_deaths;
        self.dropped += dropped;
        self.late += late;
        self.doubled += doubled;
    }
}

const RUNNERS: usize = 2;
const ITEMS: usize = 6;
/// Steps of one judged item.
const STEPS: u32 = 3;

/// A thing to be worked on once, as the core's log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    by: Holder,
    at: At,
    /// Whether its verdict is durable.
    has_verdict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Waiting,
    Held { runner: usize, number: u64 },
    Done,
}

/// What happens at a moment.
#[derive(Clone, Debug)]
enum Event {
    /// An ask arrives at a runner's process.
    AskArrives {
        runner: usize,
        ask: AskId,
        epoch: u64,
        what: Heard,
    },
    /// An answer arrives at the core.
    AnswerArrives {
        runner: usize,
        ask: AskId,
        answer: Answer,
    },
    /// The core's time for an ask is over.
    AskOver {
        runner: usize,
        ask: AskId,
    },
    HintArrives {
        runner: usize,
        core: u64,
    },
    ToCore {
        runner: usize,
        core: u64,
        input: RunnerInput,
    },
    ToSlot {
        runner: usize,
        boot: Uuid,
        input: SlotInput,
    },
    /// A write of a runner's is durable, as long as its process lives.
    Durable {
        runner: usize,
        boot: Uuid,
        lines: Vec<JournalLine>,
        anew: bool,
    },
    /// Processes of a runner are gone; the input says so, where somebody waits for it.
    Gone {
        runner: usize,
        grant: Option<u64>,
        boot: Uuid,
        say: Option<SlotInput>,
    },
    /// A development run's process starts.
    Exec {
        runner: usize,
        boot: Uuid,
        grant: u64,
    },
    /// A process ends by itself.
    Ends {
        runner: usize,
        boot: Uuid,
        grant: u64,
        step: Option<u32>,
        life: u64,
    },
    CoreStarts,
    RunnerStarts {
        runner: usize,
    },
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskId {
    core: u64,
    id: u64,
}

struct RunnerSide {
    slot: Option<Slot>,
    boot: Uuid,
    journal: Vec<JournalLine>,
    /// Its clock is not the core's.
    clock_ahead: Span,
    /// What really runs there: grant, and which life of a process.
    processes: BTreeMap<u64, u64>,
    asked: BTreeMap<u64, AskId>,
    next_ask: u64,
    cut_until: Moment,
    /// Whether only answers are lost while it is cut off.
    one_way: bool,
}

struct CoreSide {
    epoch: u64,
    runners: Vec<Runner>,
    asked: BTreeMap<(usize, u64), Moment>,
    free: BTreeSet<usize>,
    steps: BTreeMap<(usize, u64), u32>,
}

pub(super) struct World {
    seed: u64,
    luck: u64,
    mutant: Mutant,
    now: Moment,
    events: BTreeMap<(Moment, u64), Event>,
    next_event: u64,
    core: Option<CoreSide>,
    epoch: u64,
    /// Durable: the last number of each runner, and where each item is.
    last: Vec<u64>,
    items: Vec<Item>,
    sides: Vec<RunnerSide>,
    next_boot: u128,
    next_life: u64,
    /// Grants whose development run was begun, ever.
    begun: BTreeSet<(usize, u64)>,
    /// Steps that were begun, ever.
    begun_steps: BTreeSet<(usize, u64, u32)>,
    faults_until: Moment,
    ended: Ended,
    broken: Option<String>,
    trace: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, mutant: Mutant) -> World {
        let mut world = World {
            seed,
            luck: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66,
            mutant,
            now: Moment::from_millis(1_000_000),
            events: BTreeMap::new(),
            next_event: 0,
            core: None,
            epoch: 0,
            last: vec![0; RUNNERS],
            items: Vec::new(),
            sides: Vec::new(),
            next_boot: 1,
            next_life: 1,
            begun: BTreeSet::new(),
            begun_steps: BTreeSet::new(),
            faults_until: Moment::START,
            ended: Ended::default(),
            broken: None,
            trace: Vec::new(),
        };
        for at in 0..ITEMS {
            let lane = LaneId::new(u8::try_from(at + 1).expect("there are few items")).expect("and no more than lanes");
            let by = if at % 2 == 0 { Holder::Judge } else { Holder::Lane(lane) };
            world.items.push(Item { by, at: At::Waiting, has_verdict: false });
        }
        for _ in 0..RUNNERS {
            let clock_ahead = Span::millis(world.below(500_000));
            world.sides.push(RunnerSide {
                slot: None,
                boot: Uuid::nil(),
                journal: Vec::new(),
                clock_ahead,
                processes: BTreeMap::new(),
                asked: BTreeMap::new(),
                next_ask: 1,
                cut_until: Moment::START,
                one_way: false,
            });
        }
        world
    }

    /// Lets faults happen for a while, and then everything end. The error is how a rule was broken.
    pub(super) fn run(mut self, faults: Span, ends_within: Span) -> Result<Ended, String> {
        self.faults_until = self.now + faults;
        let latest = self.faults_until + ends_within;
        self.at(self.now, Event::CoreStarts);
        for runner in 0..RUNNERS {
            self.after_up_to(2_000, Event::RunnerStarts { runner });
        }
        self.after_up_to(10_000, Event::Fault);
        let mut at_this_moment = 0;
        while self.now < latest {
            if let Some(broken) = self.broken.take() {
                return Err(self.story(&broken));
            }
            if self.now > self.faults_until && self.items.iter().all(|item| item.at == At::Done) && self.is_quiet() {
                return Ok(self.ended);
            }
            let Some(next) = self.next_moment() else { return Err(self.story("nothing more happens")) };
            at_this_moment = if next > self.now { 0 } else { at_this_moment + 1 };
            if at_this_moment > 10_000 {
                return Err(self.story("time stands still"));
            }
            self.now = self.now.max(next);
            self.step();
        }
        let left = format!("not all has ended: {:?}; {:?}", self.items, self.core.as_ref().map(|core| &core.runners));
        Err(self.story(&left))
    }

    /// Nothing runs, and no runner keeps an end that nobody fetched.
    fn is_quiet(&self) -> bool {
        let forgot = |side: &RunnerSide| side.slot.as_ref().is_some_and(Slot::has_nothing);
        self.sides.iter().all(|side| side.processes.is_empty() && forgot(side))
    }

    fn story(&self, broken: &str) -> String {
        let from = self.trace.len().saturating_sub(60);
        format!("{broken}\n  seed {} at {} ms:\n  {}", self.seed, self.now.as_millis(), self.trace[from..].join("\n  "))
    }

    fn next_moment(&self) -> Option<Moment> {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let core = self.core.iter().flat_map(|core| &core.runners).filter_map(|runner| runner.next_deadline());
        let slots = self.sides.iter().filter_map(|side| {
            let (at, _) = side.slot.as_ref()?.next_deadline()?;
            Some(self.on_core_clock(side, at))
        });
        event.into_iter().chain(core.map(|next| next.0)).chain(slots).min()
    }

    /// A runner's moment by the core's clock, rounded up.
    fn on_core_clock(&self, side: &RunnerSide, at: Moment) -> Moment {
        let own = at.as_millis().saturating_sub(side.clock_ahead.as_millis());
        match self.mutant {
            Mutant::SlowClock => Moment::from_millis(own * 3),
            Mutant::None | Mutant::HandOnAtAway | Mutant::StopWithoutProof => Moment::from_millis(own),
        }
    }

    fn runner_now(&self, runner: usize) -> Moment {
        let now = match self.mutant {
            Mutant::SlowClock => self.now.as_millis() / 3,
            Mutant::None | Mutant::HandOnAtAway | Mutant::StopWithoutProof => self.now.as_millis(),
        };
        Moment::from_millis(now) + self.sides[runner].clock_ahead
    }

    fn step(&mut self) {
        if let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.happen(event);
            return;
        }
        for runner in 0..RUNNERS {
            let now = self.runner_now(runner);
            if let Some(slot) = &mut self.sides[runner].slot {
                let effects = slot.advance(now);
                self.slot_did(runner, effects);
            }
            if let Some(core) = &mut self.core {
                let effects = core.runners[runner].advance(self.now);
                self.core_did(runner, effects);
            }
        }
        self.hand_out();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::CoreStarts => self.core_starts(),
            Event::RunnerStarts { runner } => self.runner_starts(runner),
            Event::Fault => self.fault(),
            Event::AskArrives { runner, ask, epoch, what } => {
                let side = &mut self.sides[runner];
                if side.slot.is_some() {
                    let id = side.next_ask;
                    side.next_ask += 1;
                    side.asked.insert(id, ask);
                    self.tell_slot(runner, SlotInput::Asked { id, epoch, what });
                }
            }
            Event::AnswerArrives { runner, ask, answer } => {
                if self.is_asked(runner, ask) {
                    self.tell_core(runner, RunnerInput::Answered { id: ask.id, answer: Box::new(answer) });
                } else {
                    self.ended.late += 1;
                }
            }
            Event::AskOver { runner, ask } => {
                if self.is_asked(runner, ask) {
                    self.tell_core(runner, RunnerInput::Failed { id: ask.id, fault: AskFault::NoAnswer });
                }
            }
            Event::HintArrives { runner, core } => {
                if self.epoch == core && self.core.is_some() {
                    self.tell_core(runner, RunnerInput::Hinted);
                }
            }
            Event::ToCore { runner, core, input } => {
                if self.epoch == core && self.core.is_some() {
                    self.tell_core(runner, input);
                }
            }
            Event::ToSlot { runner, boot, input } => {
                if self.lives(runner, boot) {
                    self.tell_slot(runner, input);
                }
            }
            Event::Durable { runner, boot, lines, anew } => {
                if self.lives(runner, boot) {
                    let journal = &mut self.sides[runner].journal;
                    if anew {
                        journal.clear();
                    }
                    journal.extend(lines);
                    self.tell_slot(runner, SlotInput::Written);
                }
            }
            Event::Gone { runner, grant, boot, say } => {
                match grant {
                    Some(grant) => drop(self.sides[runner].processes.remove(&grant)),
                    None => self.sides[runner].processes.clear(),
                }
                if let Some(say) = say
                    && self.lives(runner, boot)
                {
                    self.tell_slot(runner, say);
                }
            }
            Event::Exec { runner, boot, grant } => {
                // Its stop, where it has begun, was waited for by whoever launches.
                let holds =
                    |slot: &Slot| matches!(slot.device().state(), DeviceState::Held { number, .. } if *number == grant);
                if self.lives(runner, boot) && self.sides[runner].slot.as_ref().is_some_and(holds) {
                    self.begins(runner, grant, None);
                    self.tell_slot(runner, SlotInput::Device(DeviceInput::Started { number: grant }));
                }
            }
            Event::Ends { runner, boot, grant, step, life } => {
                if self.sides[runner].processes.get(&grant) != Some(&life) || !self.lives(runner, boot) {
                    return;
                }
                match step {
                    Some(number) => {
                        self.sides[runner].processes.remove(&grant);
                        let report = Document(format!("step {number}"));
                        self.tell_slot(runner, SlotInput::Reported { grant, number, report });
                    }
                    // Its first process has ended; what it started runs on until it is stopped.
                    None => self.tell_slot(runner, SlotInput::Exited { grant, exit: Exit::Code(0) }),
                }
            }
        }
    }

    fn lives(&self, runner: usize, boot: Uuid) -> bool {
        self.sides[runner].slot.is_some() && self.sides[runner].boot == boot
    }

    /// Whether the core waits for that ask still; it waits once.
    fn is_asked(&mut self, runner: usize, ask: AskId) -> bool {
        let now = self.now;
        let Some(core) = self.core.as_mut().filter(|core| core.epoch == ask.core) else { return false };
        core.asked.remove(&(runner, ask.id)).is_some_and(|until| now <= until)
    }

    fn tell_core(&mut self, runner: usize, input: RunnerInput) {
        let now = self.now;
        let Some(core) = &mut self.core else { return };
        let machine = &mut core.runners[runner];
        let mut effects = machine.advance(now);
        effects.extend(machine.handle(now, input));
        self.core_did(runner, effects);
        self.hand_out();
    }

    fn tell_slot(&mut self, runner: usize, input: SlotInput) {
        let now = self.runner_now(runner);
        let Some(slot) = &mut self.sides[runner].slot else { return };
        let mut effects = slot.advance(now);
        effects.extend(slot.handle(now, input));
        self.slot_did(runner, effects);
    }

    // Faults and luck.

    fn fault(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let runner = self.pick_runner();
        match self.below(5) {
            0 if self.core.is_some() => {
                self.note("core dies".to_owned());
                self.ended.core_deaths += 1;
                self.core = None;
                self.after_up_to(20_000, Event::CoreStarts);
            }
            1 if self.sides[runner].slot.is_some() => {
                self.note(format!("runner {runner} dies"));
                self.ended.runner_deaths += 1;
                let boot = self.sides[runner].boot;
                self.sides[runner].slot = None;
                // What it launched dies with it: each has a lifeline to it.
                self.after_up_to(2_000, Event::Gone { runner, grant: None, boot, say: None });
                self.at(self.now + Span::millis(2_100), Event::RunnerStarts { runner });
            }
            2 | 3 => {
                let length = self.below(100_000);
                self.sides[runner].cut_until = self.now + Span::millis(length);
                self.sides[runner].one_way = self.one_in(2);
                self.note(format!("runner {runner} is cut off for {length} ms"));
            }
            _ => {
                let length = self.below(90_000);
                for side in &mut self.sides {
                    side.cut_until = self.now + Span::millis(length);
                    side.one_way = false;
                }
                self.note(format!("the bus is away for {length} ms"));
            }
        }
        self.after_up_to(45_000, Event::Fault);
    }

    /// Lets something be delivered: at once, late, twice or never.
    fn over_bus(&mut self, runner: usize, is_ask: bool, event: Event) {
        let side = &self.sides[runner];
        let is_cut = self.now < side.cut_until && !(side.one_way && is_ask);
        if !self.is_faulty() && !is_cut {
            self.after_up_to(5, event);
            return;
        }
        // What is under way while the bus is away comes later, or never.
        if (is_cut && !self.one_in(3)) || self.one_in(20) {
            self.ended.dropped += 1;
            return;
        }
        if self.one_in(10) {
            self.ended.doubled += 1;
            self.after_up_to(61_000, event.clone());
        }
        let longest = match self.below(10) {
            _ if is_cut => 61_000,
            0 => 61_000,
            1 | 2 => 6_000,
            _ => 200,
        };
        self.after_up_to(longest, event);
    }

    fn is_faulty(&self) -> bool {
        self.now < self.faults_until
    }

    fn pick_runner(&mut self) -> usize {
        usize::try_from(self.below(RUNNERS as u64)).expect("it fits")
    }

    fn later_in_core(&mut self, runner: usize, within_ms: u64, input: RunnerInput) {
        let core = self.epoch;
        self.after_up_to(within_ms, Event::ToCore { runner, core, input });
    }

    fn after_up_to(&mut self, ms: u64, event: Event) {
        let at = self.now + Span::millis(1 + self.below(ms));
        self.at(at, event);
    }

    fn at(&mut self, at: Moment, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    /// A number below `most`, by splitmix64.
    fn below(&mut self, most: u64) -> u64 {
        self.luck = self.luck.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.luck;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % most.max(1)
    }

    fn note(&mut self, what: String) {
        self.trace.push(format!("{} {what}", self.now.as_millis()));
        if self.trace.len() > 400 {
            self.trace.drain(..200);
        }
    }
}

impl Item {
    fn runner(&self) -> Option<usize> {
        match self.at {
            At::Held { runner, .. } => Some(runner),
            At::Waiting | At::Done => None,
        }
    }
}

fn facts() -> SlotFacts {
    let text = |text: &str| text.to_owned();
    SlotFacts {
        target: Target::Cpu,
        uuid: text("u"),
        model: text("m"),
        driver: text("d"),
        clock_policy: text("c"),
        cpus: text("0"),
        cores: 1,
        containment: None,
    }
}
