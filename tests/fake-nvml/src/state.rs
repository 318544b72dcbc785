//! What the file says, line by line: `name value...`; `#` begins a comment.
//!
//! ```text
//! driver 580.82.07
//! fails nvmlInit_v2 DriverNotLoaded    # before the first card: of the library, or of every card
//! card                                 # begins the next card; what follows is its own
//! uuid GPU-0
//! name NVIDIA H200
//! minor 0
//! bus 00000000:3B:00.0
//! cpus f                               # the CPUs near it, as bits in hexadecimal
//! memory 143771 600                    # all and used, in MiB
//! use 0                                # percent
//! temperature 41
//! slow_down_at 87
//! reasons 1                            # clock-event bits in hexadecimal
//! clocks 345 2619                      # processor and memory, in MHz
//! clock_max 1980
//! power 75000                          # milliwatts
//! mig 0
//! computes 4711 3000                   # a pid and its MiB; once for each program
//! follows 500 97                       # lists each live process whose environment names this card by
//!                                      # CUDA_VISIBLE_DEVICES, with 500 MiB each; the card is then 97 % in use
//! draws 900 100
//! fails nvmlDeviceGetMemoryInfo_v2 NotSupported
//! fails * GpuLost
//! hangs nvmlDeviceGetTemperature       # until the line is gone
//! ```
//!
//! What a card has no line for it does not support. A line that cannot be read is none.

use std::os::raw::c_uint;

/// Everything the library says.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) driver: String,
    pub(crate) cards: Vec<Card>,
    calls: Calls,
}

/// One card.
#[derive(Default)]
pub(crate) struct Card {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) minor: Option<u32>,
    pub(crate) bus: Option<String>,
    pub(crate) cpus: Option<u64>,
    pub(crate) memory: Option<(u64, u64)>,
    pub(crate) usage: Option<u32>,
    pub(crate) temperature: Option<u32>,
    pub(crate) slow_down_at: Option<u32>,
    pub(crate) reasons: Option<u64>,
    pub(crate) clocks: Option<(u32, u32)>,
    pub(crate) clock_max: Option<u32>,
    pub(crate) power: Option<u32>,
    pub(crate) mig: Option<u32>,
    pub(crate) computes: Vec<(u32, u64)>,
    pub(crate) draws: Vec<(u32, u64)>,
    follows: Option<(u64, u32)>,
    calls: Calls,
}

/// Calls that fail or hang, by name or `*`.
#[derive(Default)]
struct Calls {
    fail: Vec<(String, c_uint)>,
    hang: Vec<String>,
}

impl Calls {
    fn fails(&self, call: &str) -> Option<c_uint> {
        self.fail.iter().find(|(name, _)| name == "*" || name == call).map(|(_, error)| *error)
    }

    fn hangs(&self, call: &str) -> bool {
        self.hang.iter().any(|name| name == "*" || name == call)
    }
}

impl State {
    pub(crate) fn read(text: &str) -> State {
        let mut state = State::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = value.trim();
            match name {
                "driver" => state.driver = value.to_owned(),
                "card" => state.cards.push(Card::default()),
                "fails" | "hangs" => {
                    let calls = state.cards.last_mut().map_or(&mut state.calls, |card| &mut card.calls);
                    calls.take(name, value);
                }
                _ => {
                    if let Some(card) = state.cards.last_mut() {
                        card.take(name, value);
                    }
                }
            }
        }
        state
    }

    /// The error of that call, to that card where it is to one.
    pub(crate) fn fails(&self, call: &str, card: Option<usize>) -> Option<c_uint> {
        let of_card = self.card(card).and_then(|card| card.calls.fails(call));
        of_card.or_else(|| self.calls.fails(call))
    }

    /// Whether it hangs.
    pub(crate) fn hangs(&self, call: &str, card: Option<usize>) -> bool {
        self.calls.hangs(call) || self.card(card).is_some_and(|card| card.calls.hangs(call))
    }

    /// Looks who really runs on the card, where that call tells of it: a look through all processes is much work.
    pub(crate) fn follow(&mut self, call: &str, card: Option<usize>) {
        const TELLING: [&str; 3] =
            ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"];
        if TELLING.contains(&call)
            && let Some(card) = card.and_then(|at| self.cards.get_mut(at))
        {
            card.follow();
        }
    }

    fn card(&self, card: Option<usize>) -> Option<&Card> {
        self.cards.get(card?)
    }
}

impl Calls {
    fn take(&mut self, name: &str, value: &str) {
        match (name, value.split_once(' ')) {
            ("fails", Some((call, error))) => self.fail.extend(code(error.trim()).map(|code| (call.to_owned(), code))),
            ("hangs", _) => self.hang.push(value.to_owned()),
            _ => {}
        }
    }
}

impl Card {
    /// Lists who really runs on the card, as a driver would: gone with the process.
    fn follow(&mut self) {
        let Some((each, busy)) = self.follows else { return };
        let named = format!("CUDA_VISIBLE_DEVICES={}", self.uuid).into_bytes();
        let pids: Vec<u32> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|variable| variable == named)
            })
            .collect();
        if pids.is_empty() {
            return;
        }
        self.usage = Some(busy);
        if let Some((_, used)) = &mut self.memory {
            *used += each * pids.len() as u64;
        }
        self.computes.extend(pids.into_iter().map(|pid| (pid, each)));
    }

    fn take(&mut self, name: &str, value: &str) {
        let number = || value.parse().ok();
        let bits = || u64::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        match name {
            "uuid" => self.uuid = value.to_owned(),
            "name" => self.name = value.to_owned(),
            "minor" => self.minor = number(),
            "bus" => self.bus = Some(value.to_owned()),
            "cpus" => self.cpus = bits(),
            "memory" => self.memory = two(value),
            "use" => self.usage = number(),
            "temperature" => self.temperature = number(),
            "slow_down_at" => self.slow_down_at = number(),
            "reasons" => self.reasons = bits(),
            "clocks" => self.clocks = two(value),
            "clock_max" => self.clock_max = number(),
            "power" => self.power = number(),
            "mig" => self.mig = number(),
            "follows" => self.follows = two(value),
            "computes" => self.computes.extend(two(value)),
            "draws" => self.draws.extend(two(value)),
            _ => {}
        }
    }
}

fn two<A: std::str::FromStr, B: std::str::FromStr>(value: &str) -> Option<(A, B)> {
    let (one, other) = value.split_once(' ')?;
    Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
}

/// NVML's number of an error by the name that the wrapper gives it.
fn code(name: &str) -> Option<c_uint> {
    const CODES: [(&str, c_uint); 14] = [
        ("Uninitialized", 1),
        ("InvalidArg", 2),
        ("NotSupported", 3),
        ("NoPermission", 4),
        ("NotFound", 6),
        ("DriverNotLoaded", 9),
        ("Timeout", 10),
        ("IrqIssue", 11),
        ("GpuLost", 15),
        ("ResetRequired", 16),
        ("OperatingSystem", 17),
        ("LibRmVersionMismatch", 18),
        ("NoData", 21),
        ("Unknown", 999),
    ];
    CODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}
