//! One card's thread: it alone calls the card, samples it all the time, and may hang without holding anybody up.
//!
//! There is one such thread for a card as long as anybody has its driver, whatever the card does: a call that hangs is
//! noticed by those who wait and is not replaced by a second one, and the card recovers when the call comes back.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use thermite_core::limits;
use thermite_core::readiness::gpu::{Card, Programs, Resting, Sample, Seen};
use thermite_core::texts;
use thermite_core::time::{Moment, Span};

use super::nvml::{CardCalls, Library, Listed, fault};
use crate::host::clock;
use crate::ports::{BlockWatch, DeviceFault};

/// How often those who wait look whether a call hangs: nothing tells them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A card's thread, ended when this is dropped; a call that hangs then ends it once it is back.
pub(super) struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    library: Option<PathBuf>,
    uuid: String,
    state: Mutex<State>,
    /// Wakes the thread for a look.
    wake: Condvar,
    /// The number of the last look that came back.
    told: watch::Sender<u64>,
}

/// What is known of a card.
struct State {
    card: Card,
    /// The call that is under way.
    call: Option<(&'static str, Instant)>,
    /// What the last look found wrong.
    fault: Option<DeviceFault>,
    /// Looks that were begun and that came back, counted.
    begun: u64,
    /// A look is waited for.
    wanted: bool,
    /// Samples apart from the judge's own use, in order.
    apart: VecDeque<Sample>,
    resting: Resting,
    /// The last look of all.
    last: Option<(Sample, Vec<Listed>)>,
    block: Option<Block>,
    /// A block that is over with what was seen in it, until it is asked for.
    ended: Option<Block>,
    /// Counts beginnings and ends of blocks: a look that one fell into belongs to neither side.
    era: u64,
    /// From when on what the card is used for is no longer the judge's.
    settled_at: Moment,
    closed: bool,
}

/// A block and what was seen of it.
#[derive(Clone)]
struct Block {
    watch: BlockWatch,
    seen: Seen,
    /// Pids that were the block's once: one that has just ended can no longer be asked about.
    own: BTreeSet<u32>,
    /// Set at its end: the look that is its last.
    last_look: Option<u64>,
}

/// What a look is to do.
struct Ask {
    number: u64,
    era: u64,
    at: Moment,
    block: Option<(BlockWatch, BTreeSet<u32>)>,
}

/// What a look found.
struct Looked {
    card: Card,
    sample: Sample,
    listed: Vec<Listed>,
    own: BTreeSet<u32>,
}

/// What is to be judged before a block, or after a hold.
pub(super) struct Known {
    pub(super) card: Card,
    pub(super) resting: Resting,
    /// Apart from the judge's own use and young enough to count.
    pub(super) apart: Vec<Sample>,
    /// The last sample and the programs it lists.
    pub(super) last: Option<(Sample, Vec<Listed>)>,
}

impl Watch {
    /// Begins to watch a card.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(super) fn begin(library: Option<PathBuf>, uuid: String, card: Card) -> std::io::Result<Watch> {
        let state = State {
            card,
            call: None,
            fault: None,
            begun: 0,
            wanted: false,
            apart: VecDeque::new(),
            resting: Resting::default(),
            last: None,
            block: None,
            ended: None,
            era: 0,
            settled_at: Moment::START,
            closed: false,
        };
        let told = watch::Sender::new(0);
        let shared = Arc::new(Shared { library, uuid, state: Mutex::new(state), wake: Condvar::new(), told });
        let of_thread = Arc::clone(&shared);
        let name = thread_name(&of_thread.uuid);
        std::thread::Builder::new().name(name).spawn(move || of_thread.run())?;
        Ok(Watch { shared })
    }

    /// What is wrong with the card right now.
    pub(super) fn fault(&self) -> Option<DeviceFault> {
        self.shared.lock().fault(&self.shared.uuid)
    }

    /// Waits for a look that begins after this call, and for what it found wrong.
    pub(super) async fn look(&self) -> Result<(), DeviceFault> {
        let number = {
            let mut state = self.shared.lock();
            state.wanted = true;
            state.begun + 1
        };
        self.shared.wake.notify_all();
        self.come_back(number).await
    }

    async fn come_back(&self, number: u64) -> Result<(), DeviceFault> {
        let mut told = self.shared.told.subscribe();
        let began = Instant::now();
        // One call may take its whole time, and others before it.
        let most = 2 * limits::GPU_CALL_MAX.to_std();
        loop {
            let is_back = *told.borrow_and_update() >= number;
            if let Some(fault) = self.fault().filter(|fault| is_back || matches!(fault, DeviceFault::Hung(_))) {
                return Err(fault);
            }
            if is_back {
                return Ok(());
            }
            if began.elapsed() >= most {
                let after = Span::millis(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
                return Err(DeviceFault::Hung(texts::card_silent(&self.shared.uuid, after)));
            }
            // Only the sender's end ends the wait early, and it lives as long as this.
            let _either = tokio::time::timeout(LOOK_AGAIN, told.changed()).await;
        }
    }

    /// What is known by now.
    pub(super) fn known(&self) -> Known {
        let now = now();
        let state = self.shared.lock();
        let is_young = |sample: &&Sample| now.since(sample.at) <= limits::GPU_SAMPLE_AGE_MAX;
        Known {
            card: state.card.clone(),
            resting: state.resting,
            apart: state.apart.iter().filter(is_young).cloned().collect(),
            last: state.last.clone(),
        }
    }

    /// A block begins.
    pub(super) fn begin_block(&self, watch: BlockWatch) {
        let mut state = self.shared.lock();
        state.era += 1;
        state.ended = None;
        state.block = Some(Block { watch, seen: Seen::default(), own: BTreeSet::new(), last_look: None });
        // What was known before it says nothing of the time after it.
        state.apart.clear();
        state.wanted = true;
        drop(state);
        self.shared.wake.notify_all();
    }

    /// The block is over; gives the number of the look that is its last. None where no block was begun.
    pub(super) fn end_block(&self) -> Option<u64> {
        let mut state = self.shared.lock();
        state.era += 1;
        state.settled_at = now() + limits::GPU_SETTLES_WITHIN;
        state.wanted = true;
        let last = state.begun + 1;
        let block = state.block.as_mut()?;
        block.last_look = Some(last);
        drop(state);
        self.shared.wake.notify_all();
        Some(last)
    }

    /// What was seen in the block whose last look that is, and whether it was a first one.
    pub(super) async fn seen(&self, last_look: u64) -> Result<Option<(Seen, bool)>, DeviceFault> {
        self.come_back(last_look).await?;
        let mut state = self.shared.lock();
        let is_it = state.ended.as_ref().is_some_and(|block| block.last_look == Some(last_look));
        let ended = if is_it { state.ended.take() } else { None };
        Ok(ended.map(|block| (block.seen, block.watch.is_first)))
    }

    /// No block is under way, whatever was said before: its hold is over.
    pub(super) fn forget_block(&self) {
        let mut state = self.shared.lock();
        if state.block.take().is_some() {
            state.era += 1;
            state.settled_at = now() + limits::GPU_SETTLES_WITHIN;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What is guarded is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: look, tell, rest, until nobody has the driver any more.
    fn run(&self) {
        let mut library = None;
        while let Some(ask) = self.begin_look() {
            let looked = self.look(&mut library, &ask);
            if looked.is_err() {
                // A driver that was loaded anew, or a card that was reset, needs a library that starts over.
                self.mark(Some("nvmlShutdown"));
                library = None;
                self.mark(None);
            }
            let rest = self.end_look(ask, looked);
            let state = self.lock();
            let undisturbed = |state: &mut State| !state.wanted && !state.closed;
            drop(self.wake.wait_timeout_while(state, rest.to_std(), undisturbed));
        }
        self.mark(Some("nvmlShutdown"));
        drop(library);
        self.mark(None);
    }

    fn mark(&self, call: Option<&'static str>) {
        self.lock().call = call.map(|call| (call, Instant::now()));
    }

    fn begin_look(&self) -> Option<Ask> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.wanted = false;
        state.begun += 1;
        let block = state.block.as_ref().map(|block| (block.watch.clone(), block.own.clone()));
        Some(Ask { number: state.begun, era: state.era, at: now(), block })
    }

    fn look(&self, library: &mut Option<Library>, ask: &Ask) -> Result<Looked, DeviceFault> {
        let mark = |call: Option<&'static str>| self.mark(call);
        let library = match library {
            Some(library) => library,
            None => library.insert(Library::open(self.library.as_deref(), &mark).map_err(|error| {
                let call = "nvmlInit_v2";
                fault(&self.uuid, call, &error)
                    .unwrap_or_else(|| DeviceFault::Other(texts::card_driver_not_loaded(&error.to_string())))
            })?),
        };
        let calls = library.card(&self.uuid, &mark)?;
        let figures = calls.figures()?;
        let mut sample = figures.sample;
        sample.at = ask.at;
        let (programs, listed, own) = programs(&calls, ask)?;
        sample.programs = programs;
        Ok(Looked { card: figures.card, sample, listed, own })
    }

    /// Takes what a look found; says how long the next may wait.
    fn end_look(&self, ask: Ask, looked: Result<Looked, DeviceFault>) -> Span {
        let mut state = self.lock();
        let rest = match looked {
            Ok(looked) => {
                state.fault = None;
                state.take(&ask, looked)
            }
            Err(fault) => {
                if state.fault.as_ref() != Some(&fault) {
                    tracing::info!(card = self.uuid, %fault, "the card is at fault");
                }
                state.fault = Some(fault);
                state.apart.clear();
                limits::GPU_RETRY_EVERY
            }
        };
        if state.block.as_ref().is_some_and(|block| block.last_look.is_some_and(|last| last <= ask.number)) {
            state.ended = state.block.take();
        }
        drop(state);
        self.told.send_replace(ask.number);
        rest
    }
}

impl State {
    /// What is wrong: a call that hangs is, whatever was found before it.
    fn fault(&self, uuid: &str) -> Option<DeviceFault> {
        match self.call {
            Some((call, since)) if since.elapsed() >= limits::GPU_CALL_MAX.to_std() => {
                Some(DeviceFault::Hung(texts::card_unresponsive(uuid, call, limits::GPU_CALL_MAX)))
            }
            Some(_) | None => self.fault.clone(),
        }
    }

    fn take(&mut self, ask: &Ask, looked: Looked) -> Span {
        // A figure that was told once holds where one look lacks it: memory and slow-down point do not change.
        self.card.memory_total = looked.card.memory_total.or(self.card.memory_total);
        self.card.slow_down_at = looked.card.slow_down_at.or(self.card.slow_down_at);
        self.last = Some((looked.sample.clone(), looked.listed));
        if ask.block.is_some() {
            // It began inside the block, which may have ended meanwhile: what it saw is the block's.
            if let Some(block) = &mut self.block {
                block.seen.take(&looked.sample);
                block.own.extend(looked.own);
            }
        } else if self.era == ask.era && ask.at >= self.settled_at {
            self.resting.learn(&looked.sample);
            if self.apart.len() == limits::GPU_SAMPLES_KEPT {
                self.apart.pop_front();
            }
            self.apart.push_back(looked.sample);
        }
        match &self.block {
            None => limits::GPU_SAMPLE_EVERY,
            Some(block) if block.watch.is_first && !block.seen.is_placed() => limits::GPU_PLACEMENT_LOOK_EVERY,
            Some(_) => limits::GPU_SAMPLE_IN_BLOCK_EVERY,
        }
    }
}

/// Who computes on the card, told apart; what it lists; and which pids were found to be the block's.
#[expect(clippy::type_complexity, reason = "three parts of one answer, taken apart at the only call")]
fn programs(calls: &CardCalls<'_>, ask: &Ask) -> Result<(Option<Programs>, Vec<Listed>, BTreeSet<u32>), DeviceFault> {
    let live = || ask.block.as_ref().map_or(0, |(watch, _)| watch.own.live());
    let live_before = live();
    let Some(mut listed) = calls.listed()? else { return Ok((None, Vec::new(), BTreeSet::new())) };
    let Some((watch, known)) = &ask.block else {
        let owned: Vec<Option<bool>> = listed.iter().map(|_| Some(false)).collect();
        return Ok((Some(Programs::tell_apart(&owned, 0)), listed, BTreeSet::new()));
    };
    let owns = |pid: u32| if known.contains(&pid) { Some(true) } else { watch.own.owns(pid) };
    let mut owned: Vec<(u32, Option<bool>)> = listed.iter().map(|one| (one.pid, owns(one.pid))).collect();
    if owned.iter().any(|(_, owned)| owned.is_none()) {
        // One that ended between the list and the question is on no second list.
        let again: BTreeSet<u32> = calls.listed()?.into_iter().flatten().map(|one| one.pid).collect();
        owned.retain(|(pid, owned)| owned.is_some() || again.contains(pid));
        listed.retain(|one| owned.iter().any(|(pid, _)| *pid == one.pid));
    }
    let answers: Vec<Option<bool>> = owned.iter().map(|(_, owned)| *owned).collect();
    let own = owned.iter().filter(|(_, owned)| *owned == Some(true)).map(|(pid, _)| *pid).collect();
    Ok((Some(Programs::tell_apart(&answers, live_before.max(live()))), listed, own))
}

/// The name of a card's thread, which the kernel cuts at 15 bytes.
fn thread_name(uuid: &str) -> String {
    let short: String = uuid.trim_start_matches("GPU-").chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("card-{short}")
}

fn now() -> Moment {
    Moment::from_millis(clock::clocks().boot_ms)
}
