//! Cards that are a text file: the state of the fake NVML library of `tests/fake-nvml`, for drivers of cards to be
//! tried without one.
//!
//! Each place has a copy of the library of its own, and with it cards of its own, also within one process.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A fake library with its cards.
pub struct FakeNvml {
    library: PathBuf,
    cards: Mutex<FakeCards>,
}

/// Everything the library says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FakeCards {
    /// The driver's version.
    pub driver: String,
    /// Calls of the library that fail: by NVML's name of the call, or `*`, and the wrapper's name of the error.
    pub fails: Vec<(String, String)>,
    /// Calls of the library that hang.
    pub hangs: Vec<String>,
    /// The cards, in NVML's order.
    pub cards: Vec<FakeCard>,
}

/// One card. What is none is not supported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FakeCard {
    /// Its UUID.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// The number in `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Its place on the PCI bus.
    pub bus: Option<String>,
    /// The CPUs near it, as bits.
    pub cpus: Option<u64>,
    /// Its memory, and what of it is in use, in MiB.
    pub memory: Option<(u64, u64)>,
    /// How busy it is, in percent.
    pub usage: Option<u32>,
    /// Its temperature.
    pub temperature: Option<u32>,
    /// Where it slows down.
    pub slow_down_at: Option<u32>,
    /// Its clock-event bits.
    pub reasons: Option<u64>,
    /// Its clocks in MHz: processor, memory.
    pub clocks: Option<(u32, u32)>,
    /// Its highest processor clock in MHz.
    pub clock_max: Option<u32>,
    /// What it draws, in milliwatts.
    pub power: Option<u32>,
    /// Whether it is in MIG mode.
    pub mig: Option<bool>,
    /// Programs that compute on it: pid and MiB.
    pub computes: Vec<(u32, u64)>,
    /// Programs that draw on it.
    pub draws: Vec<(u32, u64)>,
    /// Calls to it that fail.
    pub fails: Vec<(String, String)>,
    /// Calls to it that hang until they no longer stand here.
    pub hangs: Vec<String>,
}

impl FakeCard {
    /// A card at rest, that supports everything.
    pub fn idle(number: u32) -> FakeCard {
        FakeCard {
            uuid: format!("GPU-{number:08x}-0000-4000-8000-000000000000"),
            model: "NVIDIA H200".to_owned(),
            minor: Some(number),
            bus: Some(format!("00000000:{:02X}:00.0", number + 0x10)),
            cpus: Some(1),
            memory: Some((143_771, 600)),
            usage: Some(0),
            temperature: Some(41),
            slow_down_at: Some(87),
            reasons: Some(1),
            clocks: Some((345, 2_619)),
            clock_max: Some(1_980),
            power: Some(75_000),
            mig: Some(false),
            ..FakeCard::default()
        }
    }

    /// Lets a call to it fail with that error, such as `("*", "GpuLost")`.
    pub fn fail(&mut self, call: &str, error: &str) {
        self.fails.push((call.to_owned(), error.to_owned()));
    }

    fn write(&self, text: &mut String) {
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                writeln!(text, "{name} {value}").expect("writing to a String cannot fail");
            }
        };
        line("card", Some(String::new()));
        line("uuid", Some(self.uuid.clone()));
        line("name", Some(self.model.clone()));
        line("minor", self.minor.map(|of| of.to_string()));
        line("bus", self.bus.clone());
        line("cpus", self.cpus.map(|of| format!("{of:x}")));
        line("memory", self.memory.map(|(all, used)| format!("{all} {used}")));
        line("use", self.usage.map(|of| of.to_string()));
        line("temperature", self.temperature.map(|of| of.to_string()));
        line("slow_down_at", self.slow_down_at.map(|of| of.to_string()));
        line("reasons", self.reasons.map(|of| format!("{of:x}")));
        line("clocks", self.clocks.map(|(sm, memory)| format!("{sm} {memory}")));
        line("clock_max", self.clock_max.map(|of| of.to_string()));
        line("power", self.power.map(|of| of.to_string()));
        line("mig", self.mig.map(|of| u32::from(of).to_string()));
        for (pid, mib) in &self.computes {
            line("computes", Some(format!("{pid} {mib}")));
        }
        for (pid, mib) in &self.draws {
            line("draws", Some(format!("{pid} {mib}")));
        }
        for (call, error) in &self.fails {
            line("fails", Some(format!("{call} {error}")));
        }
        for call in &self.hangs {
            line("hangs", Some(call.clone()));
        }
    }
}

impl FakeCards {
    /// That many idle cards of one model.
    pub fn idle(count: u32) -> FakeCards {
        FakeCards {
            driver: "580.82.07".to_owned(),
            cards: (0..count).map(FakeCard::idle).collect(),
            ..FakeCards::default()
        }
    }

    /// The text of the state file.
    pub fn text(&self) -> String {
        let mut text = format!("driver {}\n", self.driver);
        for (call, error) in &self.fails {
            writeln!(text, "fails {call} {error}").expect("writing to a String cannot fail");
        }
        for call in &self.hangs {
            writeln!(text, "hangs {call}").expect("writing to a String cannot fail");
        }
        self.cards.iter().for_each(|card| card.write(&mut text));
        text
    }
}

impl FakeNvml {
    /// Puts a copy of the library that was built at `built` into `folder`, with those cards.
    ///
    /// # Errors
    /// Where the library cannot be copied or its state not written.
    pub fn place(built: &Path, folder: &Path, cards: FakeCards) -> io::Result<FakeNvml> {
        let library = folder.join("libnvidia-ml.so.1");
        std::fs::copy(built, &library)?;
        let fake = FakeNvml { library, cards: Mutex::new(cards) };
        fake.change(|_| {})?;
        Ok(fake)
    }

    /// The library to load.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// What the library says.
    pub fn cards(&self) -> FakeCards {
        self.cards.lock().expect("no thread panics while it holds this lock").clone()
    }

    /// Changes what it says, from the next call on.
    ///
    /// # Errors
    /// Where the state cannot be written.
    pub fn change(&self, change: impl FnOnce(&mut FakeCards)) -> io::Result<()> {
        let mut cards = self.cards.lock().expect("no thread panics while it holds this lock");
        change(&mut cards);
        // A reader finds the old state or the new one, never a half.
        let (file, aside) = (self.beside(".state"), self.beside(".state-to-be"));
        std::fs::write(&aside, cards.text())?;
        std::fs::rename(aside, file)
    }

    /// Changes what it says of one card.
    ///
    /// # Errors
    /// Where the state cannot be written.
    pub fn change_card(&self, at: usize, change: impl FnOnce(&mut FakeCard)) -> io::Result<()> {
        self.change(|cards| change(&mut cards.cards[at]))
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.library.clone().into_os_string();
        name.push(end);
        name.into()
    }
}
