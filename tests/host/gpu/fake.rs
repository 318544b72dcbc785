//! Cards without a machine that has any: the fake library, a copy for each test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use thermite_actors::host::gpu::{Cards, GpuDriver};
use thermite_actors::ports::{DeviceFault, OwnProcesses, TargetDriver};
use thermite_actors::testing::fake_nvml::{FakeCard, FakeCards, FakeNvml};
use thermite_core::readiness::Reading;

/// How long anything may take that is expected to come: far more than it needs, also under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The fake library, as it stands in the sources: cargo builds it where it is older.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/debug/deps/host-0123: the library lies two folders up.
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "thermite-fake-nvml"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--target-dir").arg(folder.parent().unwrap());
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        let built = build.status().unwrap();
        assert!(built.success(), "the fake library does not build: {built}");
        folder.join("libnvidia_ml.so")
    })
}

/// Some cards that no other test has.
pub(crate) struct Rack {
    pub(crate) fake: Arc<FakeNvml>,
    pub(crate) cards: Cards,
    // Last, so that the library outlives those who call it.
    _folder: tempfile::TempDir,
}

impl Rack {
    pub(crate) fn of(count: u32) -> Rack {
        Rack::with(fresh(count))
    }

    pub(crate) fn with(cards: FakeCards) -> Rack {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeNvml::place(built(), folder.path(), cards).unwrap();
        let cards = Cards::open(Some(fake.library())).unwrap();
        Rack { fake: Arc::new(fake), cards, _folder: folder }
    }

    /// A driver for each card, in NVML's order.
    pub(crate) fn drivers(&self) -> Vec<GpuDriver> {
        self.cards.list().iter().map(|card| self.cards.driver(&card.uuid).unwrap()).collect()
    }

    pub(crate) fn change(&self, at: usize, change: impl FnOnce(&mut FakeCard)) {
        self.fake.change_card(at, change).unwrap();
    }

    /// Lets that card be as it was in the beginning.
    pub(crate) fn mend(&self, at: usize) {
        self.change(at, |card| {
            let number = card.minor.unwrap();
            let uuid = card.uuid.clone();
            *card = FakeCard { uuid, ..FakeCard::idle(number) };
        });
    }
}

/// That many idle cards with names of their own: threads are counted by them.
pub(crate) fn fresh(count: u32) -> FakeCards {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    let mut cards = FakeCards::idle(count);
    for (card, number) in cards.cards.iter_mut().zip(first..) {
        card.uuid = FakeCard::idle(number).uuid;
    }
    cards
}

/// A loop of one thread, as a rig's.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) async fn ready(driver: &GpuDriver) -> Reading {
    until("a ready card", driver, |read| read.as_ref().is_ok_and(|of| of.not_ready().is_none())).await.unwrap()
}

/// The fault that the card is in once it is in one.
pub(crate) async fn fault(driver: &GpuDriver) -> DeviceFault {
    until("a fault", driver, Result::is_err).await.unwrap_err()
}

/// What keeps the card from being ready, once that is so.
pub(crate) async fn lacking(driver: &GpuDriver, what: &str) -> String {
    let lacks = |read: &Result<Reading, DeviceFault>| {
        read.as_ref().is_ok_and(|of| of.not_ready().is_some_and(|why| why.contains(what)))
    };
    until(what, driver, lacks).await.unwrap().not_ready().unwrap()
}

async fn until(
    what: &str,
    driver: &GpuDriver,
    is_it: impl Fn(&Result<Reading, DeviceFault>) -> bool,
) -> Result<Reading, DeviceFault> {
    let began = Instant::now();
    loop {
        let read = driver.read().await;
        if is_it(&read) {
            return read;
        }
        assert!(began.elapsed() < PATIENCE, "{what} was not seen; the last reading: {read:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many threads there are for that card.
pub(crate) fn threads_of(uuid: &str) -> usize {
    let name = format!("card-{}", &uuid[4..12]);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// The processes of a block: what each pid is, and how many live.
#[derive(Default)]
pub(crate) struct Pids {
    known: Mutex<BTreeMap<u32, bool>>,
    live: Mutex<usize>,
}

impl Pids {
    /// Pids that this machine shows: the block's own, and others'.
    pub(crate) fn told(own: &[u32], others: &[u32]) -> Arc<Pids> {
        let all = own.iter().map(|pid| (*pid, true)).chain(others.iter().map(|pid| (*pid, false)));
        Arc::new(Pids { known: Mutex::new(all.collect()), live: Mutex::new(own.len()) })
    }

    /// As in a container: no pid that a card lists means anything here.
    pub(crate) fn counted(live: usize) -> Arc<Pids> {
        let pids = Pids::default();
        *pids.live.lock().unwrap() = live;
        Arc::new(pids)
    }

    /// From here on so many live.
    pub(crate) fn live_now(&self, live: usize) {
        *self.live.lock().unwrap() = live;
    }
}

impl OwnProcesses for Pids {
    fn owns(&self, pid: u32) -> Option<bool> {
        self.known.lock().unwrap().get(&pid).copied()
    }

    fn live(&self) -> usize {
        *self.live.lock().unwrap()
    }
}
