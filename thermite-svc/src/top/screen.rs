//! What the screen knows, and how news and keys change it. Pure: the time comes with the news.

use std::collections::{BTreeMap, VecDeque};

use thermite_actors::view::{JobStatus, RigEvent, RigHappening, RigView};
use thermite_core::device::DeviceView;
use thermite_core::ids::{DevRunId, HoldId, JobId, MemberId, RunId};
use thermite_core::job::StageKind;
use thermite_core::log::LogEntry;
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::time::{Moment, Span};

/// Blocks of one stage that are kept to be drawn.
const RATIOS_KEPT: usize = 400;
/// Events that are kept to be shown.
const EVENTS_KEPT: usize = 200;

/// Something that the screen is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// Where it listens: another life of it may listen elsewhere.
    At(String),
    /// The rig as it is.
    View(Box<RigView>),
    /// Something happened at it.
    Happened(Box<RigEvent>),
    /// Events were lost; how many, where that is known.
    Missed(Option<u64>),
    /// It does not answer.
    Away(String),
    /// Time went by.
    Nothing,
}

/// A key, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    First,
    Last,
    Freeze,
    Leave,
}

/// What a row of the list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowId {
    Device(MemberId),
    Runner(MemberId),
    Job(JobId),
    DevRun(DevRunId),
    Run(RunId),
}

/// The rig as far as it is known here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rig {
    /// Its address.
    pub(super) url: String,
    /// This machine's time in milliseconds, from some start.
    pub(super) now: u64,
    /// Its last view and when that came.
    pub(super) view: Option<(u64, RigView)>,
    /// Since when it is away, and why; none while it answers.
    pub(super) away: Option<(u64, String)>,
    /// Since when each device has its holder.
    pub(super) holders: BTreeMap<MemberId, Held>,
    /// The blocks of stages under way, as they came.
    pub(super) blocks: BTreeMap<JobId, Blocks>,
    /// What happened, the last first.
    pub(super) events: VecDeque<Event>,
}

/// A hold as it was seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) hold: HoldId,
    /// On this machine's time.
    pub(super) since: u64,
    /// Whether it was seen to begin; else it may be older.
    pub(super) seen: bool,
}

/// The blocks of one stage that were seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blocks {
    pub(super) stage: StageKind,
    pub(super) attempt: u32,
    pub(super) comparing: bool,
    pub(super) ratios: VecDeque<f64>,
    /// How many were accepted when the last was seen.
    pub(super) accepted: u32,
}

/// One line of what happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// On the rig's wall clock; none where it did not say.
    pub(super) wall_ms: Option<u64>,
    pub(super) what: Told,
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Fact(std::sync::Arc<LogEntry>),
    Out { member: MemberId, why: String },
    Missed(Option<u64>),
    Alarm(String),
}

/// The whole screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Screen {
    live: Rig,
    frozen: Option<Box<Rig>>,
    pub(super) selected: Option<RowId>,
}

impl Screen {
    pub(super) fn new(url: String) -> Screen {
        let live = Rig {
            url,
            now: 0,
            view: None,
            away: None,
            holders: BTreeMap::new(),
            blocks: BTreeMap::new(),
            events: VecDeque::new(),
        };
        Screen { live, frozen: None, selected: None }
    }

    /// What is shown: the rig as it is, or as it was when the picture was frozen.
    pub(super) fn shown(&self) -> &Rig {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// How long the picture has been frozen.
    pub(super) fn frozen_for(&self) -> Option<Span> {
        self.frozen.as_ref().map(|frozen| Span::millis(self.live.now.saturating_sub(frozen.now)))
    }

    /// Takes news that came at `now`.
    pub(super) fn hear(&mut self, now: u64, news: News) {
        self.live.now = now;
        match news {
            News::At(url) => self.live.url = url,
            News::View(view) => self.live.see(*view),
            News::Happened(event) => self.live.happen(*event),
            News::Missed(missed) => self.live.tell(Event { wall_ms: None, what: Told::Missed(missed) }),
            News::Away(why) => {
                let since = self.live.away.take().map_or(now, |(since, _)| since);
                self.live.away = Some((since, why));
            }
            News::Nothing => {}
        }
    }

    /// Takes a key. [`Key::Leave`] is the caller's.
    pub(super) fn press(&mut self, key: Key) {
        match key {
            Key::Up => self.select(|at, _| at.saturating_sub(1)),
            Key::Down => self.select(|at, last| (at + 1).min(last)),
            Key::First => self.select(|_, _| 0),
            Key::Last => self.select(|_, last| last),
            Key::Freeze => {
                self.frozen = if self.frozen.is_some() { None } else { Some(Box::new(self.live.clone())) };
            }
            Key::Leave => {}
        }
    }

    fn select(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let rows = self.shown().rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        self.selected = rows.get(to(self.selected_at(&rows), last)).copied();
    }

    /// The row whose detail is shown: the chosen one, else the one that most wants to be looked at.
    pub(super) fn chosen(&self) -> Option<RowId> {
        let rows = self.shown().rows();
        rows.get(self.selected_at(&rows)).copied()
    }

    fn selected_at(&self, rows: &[RowId]) -> usize {
        let chosen = self.selected.and_then(|row| rows.iter().position(|other| *other == row));
        let first_job = || rows.iter().position(|row| matches!(row, RowId::Job(_)));
        chosen.or_else(first_job).unwrap_or(0)
    }
}

impl Rig {
    /// The rig's own moment, as it has run on since its last view.
    pub(super) fn moment(&self) -> Moment {
        match &self.view {
            Some((came, view)) => view.now + Span::millis(self.now.saturating_sub(*came)),
            None => Moment::START,
        }
    }

    /// Its wall clock, likewise.
    pub(super) fn wall_ms(&self) -> u64 {
        self.view.as_ref().map_or(0, |(came, view)| view.wall_ms + self.now.saturating_sub(*came))
    }

    /// What can be chosen, in the order in which it is listed.
    pub(super) fn rows(&self) -> Vec<RowId> {
        let Some((_, view)) = &self.view else { return Vec::new() };
        let devices = view.devices.iter().map(|row| RowId::Device(row.member));
        let jobs = view.jobs.iter().map(|row| RowId::Job(row.job));
        let dev_runs = view.dev_runs.iter().map(|row| RowId::DevRun(row.dev_run));
        let runs = view.runs.iter().filter(|run| run.state != RunState::Ended).map(|row| RowId::Run(row.run));
        let runners = view.runners.runners.iter().map(|row| RowId::Runner(row.member));
        devices.chain(runners).chain(jobs).chain(dev_runs).chain(runs).collect()
    }

    fn see(&mut self, view: RigView) {
        self.away = None;
        for device in &view.devices {
            let seen = self.view.is_some();
            self.hold(device.member, &device.state, self.now, seen);
        }
        for job in &view.jobs {
            if let JobStatus::Measuring { stage: Some(stage), .. } = &job.status {
                self.stage(stage);
            }
        }
        self.blocks.retain(|job, _| view.jobs.iter().any(|row| row.job == *job));
        self.view = Some((self.now, view));
    }

    fn happen(&mut self, event: RigEvent) {
        // What is told late began earlier.
        let late = self.wall_ms().saturating_sub(event.wall_ms);
        match event.what {
            RigHappening::Recorded { fact } => {
                self.tell(Event { wall_ms: Some(event.wall_ms), what: Told::Fact(fact) });
            }
            RigHappening::Stage { stage, .. } => {
                self.stage(&stage);
                if let Some((_, view)) = &mut self.view {
                    for job in view.jobs.iter_mut().filter(|row| row.job == stage.job) {
                        if let JobStatus::Measuring { stage: shown, .. } = &mut job.status {
                            *shown = Some(stage.clone());
                        }
                    }
                }
            }
            RigHappening::Device { member, state } => {
                self.hold(member, &state, self.now.saturating_sub(late), true);
                if let DeviceView::Out { why, .. } = &state {
                    let what = Told::Out { member, why: why.clone() };
                    self.tell(Event { wall_ms: Some(event.wall_ms), what });
                }
                if let Some((_, view)) = &mut self.view {
                    for device in view.devices.iter_mut().filter(|row| row.member == member) {
                        device.state = state.clone();
                    }
                }
            }
            RigHappening::Alarm { what } => {
                self.tell(Event { wall_ms: Some(event.wall_ms), what: Told::Alarm(what) });
            }
            // The view that this asks for has its sentence.
            RigHappening::DevRun { .. } => {}
        }
    }

    fn tell(&mut self, event: Event) {
        self.events.push_front(event);
        self.events.truncate(EVENTS_KEPT);
    }

    fn hold(&mut self, member: MemberId, state: &DeviceView, since: u64, seen: bool) {
        match state {
            DeviceView::Held { hold, .. } | DeviceView::Stopping { hold, .. } => {
                if self.holders.get(&member).is_none_or(|held| held.hold != *hold) {
                    self.holders.insert(member, Held { hold: *hold, since, seen });
                }
            }
            DeviceView::Sweeping | DeviceView::Ready | DeviceView::Out { .. } | DeviceView::Quarantined { .. } => {
                self.holders.remove(&member);
            }
        }
    }

    /// Keeps a stage's last block, where it is one that was not seen.
    fn stage(&mut self, stage: &StageView) {
        let comparing = stage.phase == StagePhase::Comparing;
        let fresh =
            Blocks { stage: stage.stage, attempt: stage.attempt, comparing, ratios: VecDeque::new(), accepted: 0 };
        let blocks = self.blocks.entry(stage.job).or_insert_with(|| fresh.clone());
        if (blocks.stage, blocks.attempt, blocks.comparing) != (fresh.stage, fresh.attempt, fresh.comparing) {
            *blocks = fresh;
        }
        if stage.accepted > blocks.accepted {
            blocks.accepted = stage.accepted;
            if let Some(d) = stage.last_d.filter(|_| comparing) {
                blocks.ratios.push_back(d);
                if blocks.ratios.len() > RATIOS_KEPT {
                    blocks.ratios.pop_front();
                }
            }
        }
    }
}
