//! The split of the cards, and draining them: durable before it is told, in force when it is (rules B1, B9, B10).

use std::cell::RefCell;

use thermite_core::ids::MemberId;
use thermite_core::judge_queue::Builds;
use thermite_core::runners::{LocalJudge, RunnerDevice};
use thermite_core::split::{self, CardFact, Split, SplitAsk};

use crate::judge_queue::NewSplit;
use crate::outbox::Recall;
use crate::pool::{LookAtPool, SetSplit};
use crate::runners::{JudgeAnew, RunnerJudges};
use crate::view::{CardRow, IdleRow, SplitView};

use super::*;

/// Looks at the split.
#[derive(Message)]
#[rtype(result = "Result<SplitView, No>")]
pub(crate) struct LookAtSplit;

/// Sets it, where its revision is still the one that was read.
#[derive(Message)]
#[rtype(result = "Result<SplitView, No>")]
pub(crate) struct ChangeSplit {
    pub(crate) ask: SplitAsk,
    pub(crate) read: Option<u64>,
}

/// Drains a device, or undoes that.
#[derive(Message)]
#[rtype(result = "Result<(), No>")]
pub(crate) struct AskDrain {
    pub(crate) device: MemberId,
    pub(crate) drained: bool,
}

/// The rig's cards, and who has which.
#[derive(Clone)]
pub(crate) struct Cards {
    pub(super) all: Rc<Vec<CardFact>>,
    /// Whether there is a bench to build on.
    pub(super) has_bench: bool,
    /// The runners that judge beside the cards, or in their place.
    pub(crate) runners: RunnerJudges,
    local: LocalJudge,
    in_force: Rc<RefCell<InForce>>,
    /// One change at a time becomes durable, each checked against the one before it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Rule E13: why a card of the judge's side serves nobody.
const NOT_JUDGING: &str = "the core judges nothing (THERMITE_LOCAL_JUDGE=0): its runners do";

struct InForce {
    split: Split,
    note: Option<String>,
}

impl Cards {
    /// The cards as a rig starts with them, over the split that was asked for last.
    pub(super) fn at_start(all: Vec<CardFact>, ask: &SplitAsk, has_bench: bool, local: LocalJudge) -> Cards {
        let (split, note) = split::at_start(&all, ask);
        if let Some(note) = &note {
            tracing::warn!(note, "the split is another than the one that was set");
        }
        Cards {
            all: Rc::new(all),
            has_bench,
            runners: RunnerJudges::default(),
            local,
            in_force: Rc::new(RefCell::new(InForce { split, note })),
            turn: Arc::default(),
        }
    }

    /// Whom each member serves, the bench included.
    pub(super) fn disciplines(&self) -> BTreeMap<MemberId, Discipline> {
        let of_split = self.in_force.borrow().split.disciplines(&self.all);
        let mut disciplines: BTreeMap<MemberId, Discipline> =
            of_split.into_iter().map(|(member, of_split)| (member, self.local.discipline(of_split))).collect();
        if self.has_bench {
            disciplines.insert(MemberId::BENCH, Discipline::Builds);
        }
        disciplines
    }

    /// What the judge queue must know of it: the core's cards where they judge, then the runners that do.
    pub(crate) fn for_judge(&self) -> NewSplit {
        let in_force = self.in_force.borrow();
        let (cards, on_bench) = match self.local {
            LocalJudge::On => (in_force.split.judge.clone(), self.has_bench && !in_force.split.shared),
            LocalJudge::Off => (Vec::new(), false),
        };
        let builds = if on_bench { Builds::OnBench } else { Builds::UnderHold };
        NewSplit { judging: cards.into_iter().chain(self.runners.members()).collect(), builds }
    }

    /// The card that sets what the rig measures on: the first that judges.
    pub(crate) fn first(&self, target: Target) -> Option<RunnerDevice> {
        let in_force = self.in_force.borrow();
        let first = in_force.split.judge.first().copied();
        let card = self.all.iter().find(|card| Some(card.member) == first).or_else(|| self.all.first())?;
        Some(RunnerDevice { target, uuid: card.uuid.clone(), model: card.model.clone() })
    }

    /// Why a card serves nobody, where it does.
    pub(super) fn why_idle(&self, member: MemberId) -> Option<String> {
        let in_force = self.in_force.borrow();
        let of_split = in_force.split.idle.iter().find(|idle| idle.member == member).map(|idle| idle.why.to_string());
        let judges_only = in_force.split.judge.contains(&member) && !in_force.split.shared;
        of_split.or_else(|| (self.local == LocalJudge::Off && judges_only).then(|| NOT_JUDGING.to_owned()))
    }

    fn row(&self, member: MemberId) -> Option<CardRow> {
        let card = self.all.iter().find(|card| card.member == member)?;
        Some(CardRow { member, uuid: card.uuid.clone(), model: card.model.clone() })
    }

    fn view(&self, asked: SplitAsk, revision: u64, in_force_by: Option<thermite_core::time::Moment>) -> SplitView {
        let in_force = self.in_force.borrow();
        let rows = |members: &[MemberId]| members.iter().filter_map(|member| self.row(*member)).collect();
        let idle: Vec<IdleRow> = in_force
            .split
            .idle
            .iter()
            .filter_map(|idle| Some(IdleRow { card: self.row(idle.member)?, why: idle.why.to_string() }))
            .collect();
        let of_models = in_force.split.idle.iter().find(|idle| matches!(idle.why, split::IdleWhy::OtherModels { .. }));
        SplitView {
            revision,
            asked,
            shared: in_force.split.shared,
            judge: rows(&in_force.split.judge),
            agents: rows(&in_force.split.agents),
            idle,
            note: in_force.note.clone().or_else(|| of_models.map(|idle| idle.why.to_string())),
            in_force_by,
        }
    }
}

async fn look(actors: &Actors) -> Result<SplitView, No> {
    let read = Recall(Box::new(|history: &RigHistory| (history.split.clone(), history.split_revision)));
    let (asked, revision) = actors.outbox.send(read).await.map_err(|_| No::ending())?;
    let pool = actors.pool.send(LookAtPool).await.map_err(|_| No::ending())?;
    Ok(actors.cards.view(asked, revision, pool.new_split))
}

async fn change(actors: Actors, msg: ChangeSplit) -> Result<SplitView, No> {
    let split = split::plan(&actors.cards.all, &msg.ask)?;
    let in_force = {
        let _turn = actors.cards.turn.lock().await;
        let before = look(&actors).await?;
        if msg.read.is_some_and(|read| read != before.revision) {
            return Err(Refusal::SplitMoved { revision: before.revision }.into());
        }
        append(&actors.outbox, vec![LogEntry::SplitSet { ask: msg.ask }]).await?;
        actors.cards.in_force.replace(InForce { split, note: None });
        // The judge first: its work of the new kind is with the pool before the pool gives out by the new split.
        actors.judge.send(actors.cards.for_judge()).await.map_err(|_| No::ending())?;
        actors.runners.do_send(JudgeAnew);
        let set = SetSplit { version: before.revision + 1, disciplines: actors.cards.disciplines() };
        actors.pool.send(set).await.map_err(|_| No::ending())?
    };
    in_force.await.map_err(|_| No::ending())?;
    look(&actors).await
}

async fn drain(actors: Actors, device: MemberId, drained: bool) -> Result<(), No> {
    let uuid = match actors.roster.runner(device) {
        // A runner is drained by name: what its device is, it tells only when it answers.
        Some(name) => name.to_string(),
        None => noise::facts_of(&actors, device).await?.uuid,
    };
    let _turn = actors.cards.turn.lock().await;
    let asked = uuid.clone();
    if look::recall(&actors, move |history| history.drained.contains(&asked)).await? == drained {
        return Ok(());
    }
    let device_drained = LogEntry::DeviceDrained { device: uuid.clone() };
    let entry = if drained { device_drained } else { LogEntry::DeviceUndrained { device: uuid } };
    append(&actors.outbox, vec![entry]).await?;
    actors.pool.send(ToPool(PoolInput::Drain { member: device, drained })).await.map_err(|_| No::ending())
}

impl Handler<LookAtSplit> for Door {
    type Result = ResponseFuture<Result<SplitView, No>>;

    fn handle(&mut self, _: LookAtSplit, _: &mut Self::Context) -> Self::Result {
        let actors = self.actors.clone();
        Box::pin(async move { look(&actors).await })
    }
}

impl Handler<ChangeSplit> for Door {
    type Result = ResponseFuture<Result<SplitView, No>>;

    fn handle(&mut self, msg: ChangeSplit, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        Box::pin(change(self.actors.clone(), msg))
    }
}

impl Handler<AskDrain> for Door {
    type Result = ResponseFuture<Result<(), No>>;

    fn handle(&mut self, msg: AskDrain, _: &mut Self::Context) -> Self::Result {
        if let Err(no) = self.open_for_work() {
            return Box::pin(std::future::ready(Err(no)));
        }
        Box::pin(drain(self.actors.clone(), msg.device, msg.drained))
    }
}
