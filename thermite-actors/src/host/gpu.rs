//! The driver `cuda-gpu`: NVIDIA's cards as devices, over NVML (rules A7, B3, B10, D1-D3).
//!
//! Cards are known by their UUID: NVML's order of cards is not CUDA's. Each has a thread of its own that samples it all
//! the time (`watch`); what the figures mean is `thermite_core::readiness::gpu`'s. What is deliberately absent:
//! anything that changes a card, such as its clocks, its modes or a reset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use nvml_wrapper::error::NvmlError;

use thermite_core::contract::Target;
use thermite_core::limits;
use thermite_core::readiness::gpu::{self, Card, Sample};
use thermite_core::readiness::{Clocks, Reading, Signal, SignalState, names};
use thermite_core::texts;
use thermite_core::time::{Moment, Span};

use crate::host::clock;
use crate::host::cpu;
use crate::host::cpu::proc_files::CpuList;
use crate::ports::{BlockWatch, DeviceFacts, DeviceFault, StopProof, TargetDriver};

mod nvml;
mod watch;

use nvml::{Library, Listed};
use watch::Watch;

/// How often a reading that lacks samples, and a proof that something is gone, look again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often a fault is looked for by whoever wants to hear of it.
const FAULT_LOOK: Duration = Duration::from_millis(500);

/// What a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// Its place in NVML's order, which is not CUDA's.
    pub index: u32,
    /// Its name that stays, such as `GPU-1b2c...`: what `CUDA_VISIBLE_DEVICES` takes.
    pub uuid: String,
    /// Its model, such as `NVIDIA H200`.
    pub model: String,
    /// The driver's version.
    pub driver_version: String,
    /// The number in `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Its place on the PCI bus.
    pub pci_bus_id: Option<String>,
    /// The CPUs close to it, as a kernel list.
    pub cpus: Option<String>,
    /// Whether it is in MIG mode, in which nobody measures.
    pub is_mig: Option<bool>,
    /// Its memory in bytes.
    pub memory_total: Option<u64>,
    /// Its highest processor clock in MHz.
    pub sm_clock_max: Option<u32>,
}

/// A card that NVML counts and does not describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableCard {
    /// Its place in NVML's order.
    pub index: u32,
    /// Why.
    pub fault: DeviceFault,
}

/// Why this machine's cards cannot be listed; each with the sentence to show, which names the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardsFault {
    /// There is no NVML here: a machine without NVIDIA's driver.
    #[error("no NVIDIA management library is here ({said}); install NVIDIA's driver where the machine has a card")]
    NoLibrary {
        /// What loading it said.
        said: String,
    },
    /// NVML is there and does not answer.
    #[error("{0}")]
    Driver(DeviceFault),
    /// A call did not come back.
    #[error("the NVIDIA management library is unresponsive: {call} has not come back for {after}; restart the machine")]
    Hung {
        /// The call.
        call: String,
        /// For how long.
        after: Span,
    },
    /// There is no such card among those that were listed.
    #[error("there is no card {uuid}; this machine has {has}")]
    NoSuchCard {
        /// The name that was asked for.
        uuid: String,
        /// Those there are.
        has: String,
    },
    /// No thread could be started for a card.
    #[error("no thread can be started for a card: {why}")]
    NoThread {
        /// What the system said.
        why: String,
    },
}

/// The cards of this machine. Clones share the cards' threads.
#[derive(Clone)]
pub struct Cards {
    shared: Arc<SharedCards>,
}

struct SharedCards {
    library: Option<PathBuf>,
    driver_version: String,
    found: Vec<CardFacts>,
    unreadable: Vec<UnreadableCard>,
    /// One driver, and with it one thread, for each card that was asked for.
    drivers: Mutex<BTreeMap<String, GpuDriver>>,
}

/// One card as a device. Clones share its thread.
#[derive(Clone)]
pub struct GpuDriver {
    index: u32,
    facts: Arc<DeviceFacts>,
    watch: Arc<Watch>,
}

type Found = Result<(String, Vec<CardFacts>, Vec<UnreadableCard>), CardsFault>;

impl Cards {
    /// Lists this machine's cards, by NVIDIA's library or the one at `library`. Waits at most
    /// [`limits::GPU_LIST_MAX`].
    ///
    /// # Errors
    /// Where there is no library, it does not answer, or a call hangs.
    pub fn open(library: Option<&Path>) -> Result<Cards, CardsFault> {
        let library = library.map(Path::to_owned);
        let of_thread = library.clone();
        let call = Arc::new(Mutex::new(None));
        let marked = Arc::clone(&call);
        let (answer, answered) = mpsc::channel();
        std::thread::Builder::new()
            .name("thermite-cards".to_owned())
            .spawn(move || {
                let mark = |call: Option<&'static str>| *marked.lock().unwrap_or_else(PoisonError::into_inner) = call;
                // Whoever asked may have given up.
                let _gone = answer.send(list(of_thread.as_deref(), &mark));
            })
            .map_err(|error| CardsFault::NoThread { why: error.to_string() })?;
        let (driver_version, found, unreadable) =
            answered.recv_timeout(limits::GPU_LIST_MAX.to_std()).unwrap_or_else(|_| {
                let call = *call.lock().unwrap_or_else(PoisonError::into_inner);
                let call = call.unwrap_or("listing the cards").to_owned();
                Err(CardsFault::Hung { call, after: limits::GPU_LIST_MAX })
            })?;
        let shared = SharedCards { library, driver_version, found, unreadable, drivers: Mutex::default() };
        Ok(Cards { shared: Arc::new(shared) })
    }

    /// The cards by NVML's order.
    pub fn list(&self) -> Vec<CardFacts> {
        self.shared.found.clone()
    }

    /// The cards that NVML counts and does not describe.
    pub fn unreadable(&self) -> Vec<UnreadableCard> {
        self.shared.unreadable.clone()
    }

    /// The driver's version.
    pub fn driver_version(&self) -> &str {
        &self.shared.driver_version
    }

    /// The driver of the card of that UUID. Asked again it is the same one.
    ///
    /// # Errors
    /// Where there is no such card, or no thread for it.
    pub fn driver(&self, uuid: &str) -> Result<GpuDriver, CardsFault> {
        let mut drivers = self.shared.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = drivers.get(uuid) {
            return Ok(driver.clone());
        }
        let Some(card) = self.shared.found.iter().find(|card| card.uuid == uuid) else {
            let names: Vec<&str> = self.shared.found.iter().map(|card| card.uuid.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(CardsFault::NoSuchCard { uuid: uuid.to_owned(), has });
        };
        let known = Card { model: card.model.clone(), memory_total: card.memory_total, slow_down_at: None };
        let watch = Watch::begin(self.shared.library.clone(), uuid.to_owned(), known)
            .map_err(|error| CardsFault::NoThread { why: error.to_string() })?;
        let driver = GpuDriver { index: card.index, facts: Arc::new(card.device_facts()), watch: Arc::new(watch) };
        drivers.insert(uuid.to_owned(), driver.clone());
        Ok(driver)
    }
}

impl CardFacts {
    fn device_facts(&self) -> DeviceFacts {
        let cpus = self.cpus.clone().unwrap_or_default();
        let clocks = self.sm_clock_max.map_or_else(|| "unknown".to_owned(), |most| format!("up to {most} MHz"));
        DeviceFacts {
            target: Target::CudaGpu,
            uuid: self.uuid.clone(),
            model: self.model.clone(),
            driver: format!("nvidia {}", self.driver_version),
            clock_policy: clocks,
            cores: CpuList::read(&cpus).map_or(0, |list| list.count()),
            cpus,
        }
    }
}

fn list(library: Option<&Path>, mark: nvml::Mark<'_>) -> Found {
    let library = Library::open(library, mark).map_err(|error| match &error {
        NvmlError::LibloadingError(said) => CardsFault::NoLibrary { said: said.to_string() },
        NvmlError::LibraryNotFound => CardsFault::NoLibrary { said: error.to_string() },
        _ => whole("nvmlInit_v2", &error),
    })?;
    let driver_version = library.driver_version(mark).unwrap_or_else(|_| "of unknown version".to_owned());
    let count = library.count(mark).map_err(|error| whole("nvmlDeviceGetCount_v2", &error))?;
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for index in 0..count {
        match library.describe(index, &driver_version, mark) {
            Ok(card) => found.push(card),
            Err((call, error)) => unreadable.push(UnreadableCard { index, fault: named(index, call, &error) }),
        }
    }
    Ok((driver_version, found, unreadable))
}

/// A fault of all cards together.
fn whole(call: &str, error: &NvmlError) -> CardsFault {
    CardsFault::Driver(
        nvml::fault("of this machine", call, error)
            .unwrap_or_else(|| DeviceFault::Other(texts::card_driver_not_loaded(&error.to_string()))),
    )
}

/// A fault of a card that has no UUID to be named by.
fn named(index: u32, call: &str, error: &NvmlError) -> DeviceFault {
    let name = format!("number {index}");
    nvml::fault(&name, call, error)
        .unwrap_or_else(|| DeviceFault::Other(texts::card_fault(&name, call, &error.to_string())))
}

impl GpuDriver {
    /// What the card does not tell, by the names of its signals; looks at it once.
    ///
    /// # Errors
    /// Where the card is at fault.
    pub async fn untold(&self) -> Result<Vec<String>, DeviceFault> {
        let reading = self.reading_before().await?;
        Ok(gpu::untold(&reading.signals).into_iter().collect())
    }

    /// A reading with enough samples, as far as they come in time.
    async fn reading_before(&self) -> Result<Reading, DeviceFault> {
        let began = Instant::now();
        self.watch.look().await?;
        loop {
            let known = self.watch.known();
            let is_enough = known.apart.len() >= limits::GPU_USE_SAMPLES_LEAST;
            if is_enough || began.elapsed() >= limits::GPU_READING_WAIT_MAX.to_std() {
                let signals = gpu::before_block(&known.card, &known.resting, &known.apart);
                return Ok(reading(signals));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            if let Some(fault) = self.watch.fault() {
                return Err(fault);
            }
        }
    }

    async fn reading_after(&self, last_look: u64) -> Result<Reading, DeviceFault> {
        match self.watch.seen(last_look).await? {
            Some((seen, is_first)) => Ok(reading(gpu::after_block(&self.watch.known().card, &seen, is_first))),
            None => Err(DeviceFault::Other("the block was ended by somebody else".to_owned())),
        }
    }

    async fn prove_released(&self, within: Span) -> StopProof {
        self.watch.forget_block();
        let began = Instant::now();
        let most = within.to_std();
        let mut why = texts::card_silent(&self.facts.uuid, within);
        loop {
            let left = most.saturating_sub(began.elapsed());
            match tokio::time::timeout(left, self.watch.look()).await {
                // Nothing can be proved of a card at fault, and no wait mends it.
                Ok(Err(fault)) => return StopProof::NotProved { why: fault.to_string() },
                Ok(Ok(())) => match self.left_over() {
                    None => return StopProof::Empty,
                    Some(left) => why = left,
                },
                Err(_) => return StopProof::NotProved { why },
            }
            tokio::time::sleep(LOOK_AGAIN.min(most.saturating_sub(began.elapsed()))).await;
        }
    }

    fn left_over(&self) -> Option<String> {
        let known = self.watch.known();
        let Some((sample, listed)) = known.last else {
            return Some(texts::card_does_not_tell(names::OTHER_PROGRAMS));
        };
        let listed: Vec<String> = listed.iter().map(describe).collect();
        gpu::left_over(&known.card, &known.resting, &sample, &listed)
    }
}

impl TargetDriver for GpuDriver {
    fn facts(&self) -> DeviceFacts {
        self.facts.as_ref().clone()
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let driver = self.clone();
        Box::pin(async move { driver.reading_before().await })
    }

    fn index(&self) -> Option<u32> {
        Some(self.index)
    }

    fn latest(&self) -> Option<Reading> {
        let known = self.watch.known();
        // In a block nothing is apart from the judge's own use.
        let last = known.last.map(|(sample, _)| sample).into_iter().collect();
        let samples: Vec<Sample> = if known.apart.is_empty() { last } else { known.apart };
        let at = samples.last()?.at;
        let signals = gpu::before_block(&known.card, &known.resting, &samples);
        // Only what the card says: the machine's quotas and clocks are read for a block.
        Some(Reading { at, signals, throttle: Vec::new(), clocks: Clocks::default() })
    }

    fn block_begins(&self, watch: BlockWatch) {
        self.watch.begin_block(watch);
    }

    fn block_ends(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let driver = self.clone();
        let last_look = self.watch.end_block();
        Box::pin(async move {
            match last_look {
                Some(last_look) => driver.reading_after(last_look).await,
                None => driver.reading_before().await,
            }
        })
    }

    fn released(&self, within: Span) -> LocalBoxFuture<'static, StopProof> {
        let driver = self.clone();
        Box::pin(async move { driver.prove_released(within).await })
    }

    fn at_fault(&self) -> LocalBoxFuture<'static, DeviceFault> {
        let watch = Arc::clone(&self.watch);
        Box::pin(async move {
            loop {
                if let Some(fault) = watch.fault() {
                    return fault;
                }
                tokio::time::sleep(FAULT_LOOK).await;
            }
        })
    }
}

/// A reading of this moment: the card's signals, and the machine's quotas and clocks (rule D3).
fn reading(signals: Vec<Signal>) -> Reading {
    debug_assert!(signals.iter().all(|signal| signal.state != SignalState::Unknown || signal.value.is_none()));
    let clocks = clock::clocks();
    Reading { at: Moment::from_millis(clocks.boot_ms), signals, throttle: cpu::quota_counters(Path::new("/")), clocks }
}

/// A program that a card lists, as a person looks for it.
fn describe(listed: &Listed) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", listed.pid)).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let who = match (field("Name:"), field("State:")) {
        (Some(name), Some(state)) => format!("pid {} ({name}, state {state}", listed.pid),
        // Dead, or of another pid namespace.
        _ => format!("pid {} (not to be seen from here", listed.pid),
    };
    match listed.memory {
        Some(bytes) => format!("{who}, {} MiB)", bytes / (1024 * 1024)),
        None => format!("{who})"),
    }
}
