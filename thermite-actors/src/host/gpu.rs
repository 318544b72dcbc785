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

impl Cards {
    /// Lists this machine's cards, by NVIDIA's library or the one at `library`. Waits at most
    /// [`limits::GPU_LIST_MAX`] for how many there are, and once more for all that they say of themselves.
    ///
    /// # Errors
    /// Where there is no library, it does not answer, or a call that is to no card hangs.
    pub fn open(library: Option<&Path>) -> Result<Cards, CardsFault> {
        let library = library.map(Path::to_owned);
        // The listing thread has the library open for as long as the cards describe themselves: the driver may take
        // seconds to be opened anew.
        let (_hold, held) = mpsc::channel::<()>();
        let (whole, found) = {
            let library = library.clone();
            apart(move |mark, answer| {
                let library = Library::open(library.as_deref(), mark);
                let library = library.map_err(|error| not_opened(&error)).and_then(|library| {
                    let driver_version = library.driver_version(mark);
                    let driver_version = driver_version.unwrap_or_else(|_| "of unknown version".to_owned());
                    let count = library.count(mark).map_err(|error| whole("nvmlDeviceGetCount_v2", &error))?;
                    // Whoever asked may have given up.
                    let _gone = answer.send(Ok((driver_version, count)));
                    Ok(library)
                });
                match library {
                    // Its sender only ever goes.
                    Ok(_library) => drop(held.recv()),
                    Err(fault) => drop(answer.send(Err(fault))),
                }
            })?
        };
        let (driver_version, count) = found.recv_timeout(limits::GPU_LIST_MAX.to_std()).unwrap_or_else(|_| {
            let call = whole.under_way().unwrap_or("listing the cards").to_owned();
            Err(CardsFault::Hung { call, after: limits::GPU_LIST_MAX })
        })?;
        let (found, unreadable) = describe_each(library.as_deref(), count, &driver_version)?;
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
    /// The card as a device.
    pub fn device_facts(&self) -> DeviceFacts {
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

/// The call that a thread has under way.
#[derive(Clone, Default)]
struct UnderWay(Arc<Mutex<Option<&'static str>>>);

impl UnderWay {
    fn under_way(&self) -> Option<&'static str> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, call: Option<&'static str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }
}

/// Does what may hang on a thread of its own, which is left behind where it does.
fn apart<T: Send + 'static>(
    work: impl FnOnce(nvml::Mark<'_>, &mpsc::Sender<T>) + Send + 'static,
) -> Result<(UnderWay, mpsc::Receiver<T>), CardsFault> {
    let call = UnderWay::default();
    let marked = call.clone();
    let (answer, answered) = mpsc::channel();
    std::thread::Builder::new()
        .name("thermite-cards".to_owned())
        .spawn(move || work(&|call| marked.mark(call), &answer))
        .map_err(|error| CardsFault::NoThread { why: error.to_string() })?;
    Ok((call, answered))
}

/// Lets each card describe itself on a thread of its own: one that hangs is one that cannot be read, and hides no other
/// (rule B10).
fn describe_each(
    library: Option<&Path>,
    count: u32,
    driver_version: &str,
) -> Result<(Vec<CardFacts>, Vec<UnreadableCard>), CardsFault> {
    let asked = (0..count).map(|index| {
        let (library, version) = (library.map(Path::to_owned), driver_version.to_owned());
        apart(move |mark, answer| {
            let said = Library::open(library.as_deref(), mark)
                .map_err(|error| ("nvmlInit_v2", error))
                .and_then(|library| library.describe(index, &version, mark));
            let _gone = answer.send(said.map_err(|(call, error)| named(index, call, &error)));
        })
    });
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for (index, (call, answered)) in (0..).zip(asked) {
        let left = limits::GPU_LIST_MAX.to_std().saturating_sub(began.elapsed());
        let said = answered.recv_timeout(left).unwrap_or_else(|_| {
            let call = call.under_way().unwrap_or("describing it");
            Err(DeviceFault::Hung(texts::card_unresponsive(&numbered(index), call, limits::GPU_LIST_MAX)))
        });
        match said {
            Ok(card) => found.push(card),
            Err(fault) => unreadable.push(UnreadableCard { index, fault }),
        }
    }
    Ok((found, unreadable))
}

fn not_opened(error: &NvmlError) -> CardsFault {
    match error {
        NvmlError::LibloadingError(said) => CardsFault::NoLibrary { said: said.to_string() },
        NvmlError::LibraryNotFound => CardsFault::NoLibrary { said: error.to_string() },
        _ => whole("nvmlInit_v2", error),
    }
}

/// A fault of all cards together.
fn whole(call: &str, error: &NvmlError) -> CardsFault {
    let said = error.to_string();
    CardsFault::Driver(match error {
        NvmlError::NoPermission | NvmlError::OperatingSystem => {
            DeviceFault::AccessLost(texts::cards_access_lost(&said))
        }
        NvmlError::Unknown => DeviceFault::Other(texts::cards_fault(call, &said)),
        _ => nvml::fault("of this machine", call, error)
            .unwrap_or_else(|| DeviceFault::Other(texts::card_driver_not_loaded(&said))),
    })
}

/// A fault of a card that has no UUID to be named by.
fn named(index: u32, call: &str, error: &NvmlError) -> DeviceFault {
    let name = numbered(index);
    nvml::fault(&name, call, error)
        .unwrap_or_else(|| DeviceFault::Other(texts::card_fault(&name, call, &error.to_string())))
}

fn numbered(index: u32) -> String {
    format!("number {index}")
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
        // What a card said before it was at fault is no reading of it as it is.
        if self.watch.fault().is_some() {
            return None;
        }
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
