//! Reads `kit.toml`: what to build, check and measure, which paths a change may touch, and the contract.
//!
//! ```toml
//! name = "matrix"                      # letters, digits, '.', '_', '-'
//! target = "cpu"                       # or "cuda-gpu"
//! build = ["make", "-j2"]              # optional; lists of program and arguments, never a shell line
//! check = ["./check"]                  # optional; correct where it exits with 0
//! measure = ["./bench"]                # runs once what is measured
//! timer = "wall"                       # or "reported": `measure` writes seconds to descriptor 3
//! editable = ["src/**"]                # globs of what a change may touch, from the repository's root
//! artefacts = ["bench"]                # optional; files whose hash names what was measured
//!
//! [[model]]                            # optional, several; a file that runs find in the folder $THERMITE_MODELS
//! name = "weights.bin"
//! url = "https://host/weights.bin"     # or s3://bucket/weights.bin, file:///folder/weights.bin
//! sha256 = "9f86...0a08"
//! bytes = 4096
//!
//! [contract]                           # all optional
//! plan_percent = 1                     # speed-up the plan is made for, in percent
//! gate_percent = 0.5                   # least speed-up that wins
//! null_margin_percent = 0              # speed-up that counts as none
//! blocks_least = 8
//! blocks_most = 200
//! dev_run_max = "5 min"                # whole numbers with a unit: h, min, s, ms; also "1 min 30 s"
//! build_max = "10 min"
//! check_max = "5 min"
//! measure_max = "2 min"
//! leftovers = "stop"                   # or "keep" (rule C3)
//! ```
//!
//! The file comes from a repository, so it may be anything: it is bounded in size, every key must be known, and every
//! fault names the file, the line, the key, what stood there and what was expected. Nothing here runs a command.

mod model;

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use thermite_core::contract::{Argv, Contract, Kit, Leftovers, Target, Timer};
use thermite_core::limits;
use thermite_core::time::Span;

/// The longest name of a kit, in characters.
const NAME_MAX: usize = 64;
/// The most globs or artefacts a kit may list.
const LIST_MAX: usize = 256;
/// The longest glob or path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// How much of a wrong value a fault repeats, in characters.
const SHOWN_MAX: usize = 80;

/// A kit file that cannot be used, as one sentence: `kit.toml:7: timer is "walll"; expected "wall" or "reported"`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct KitFault {
    /// The file's name as it was given.
    pub file: String,
    /// The line, from 1; none where something is missing or the whole file is at fault.
    pub line: Option<usize>,
    /// The rest of the sentence.
    pub what: String,
}

impl fmt::Display for KitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Reads a kit from a file, and the SHA-256 of its bytes.
///
/// # Errors
/// Where the file cannot be read, is too large, or is no kit.
pub fn read_file(path: &Path) -> Result<(Kit, String), KitFault> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(limits::KIT_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| KitFault { file: name.clone(), line: None, what: format!("cannot be read: {error}") })?;
    Ok((parse(&name, &bytes)?, hash(&bytes)))
}

/// The name of a kit's content: SHA-256 of its file, in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    super::hex(&Sha256::digest(bytes))
}

/// Reads a kit from the bytes of its file; `file` is the name that faults show.
///
/// # Errors
/// Names the first thing that is wrong.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Kit, KitFault> {
    let whole = |what: String| KitFault { file: file.to_owned(), line: None, what };
    if bytes.len() as u64 > limits::KIT_BYTES_MAX {
        return Err(whole(format!("is too large; expected at most {} bytes", limits::KIT_BYTES_MAX)));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            return Err(KitFault { file: file.to_owned(), line: Some(line), what: "is not UTF-8 text".to_owned() });
        }
    };
    let source = Source { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        let first = error.message().lines().next().unwrap_or("not readable").to_owned();
        source.fault(error.span().map(|span| span.start), format!("is not TOML: {first}"))
    })?;
    read_kit(source, table.get_ref())
}

/// The text with its name, to say where a fault is.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn fault(&self, at: Option<usize>, what: String) -> KitFault {
        let line = at.map(|at| {
            let at = at.min(self.text.len());
            self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
        });
        KitFault { file: self.file.to_owned(), line, what }
    }

    /// What stands in the file at a span, on one line and cut to a length.
    fn shown(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or("?");
        let mut shown = String::new();
        for (count, letter) in text.chars().enumerate() {
            if count == SHOWN_MAX {
                shown.push_str("...");
                break;
            }
            shown.push(if letter.is_control() { ' ' } else { letter });
        }
        shown
    }

    /// The fault of a key whose value is not what it must be.
    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> KitFault {
        let shown = self.shown(value.span());
        self.fault(Some(value.span().start), format!("{key} is {shown}; expected {expected}"))
    }
}

const KIT_KEYS: [&str; 11] = [
    "name",
    "target",
    "build",
    "check",
    "measure",
    "timer",
    "timer_isolated",
    "editable",
    "artefacts",
    "model",
    "contract",
];
const CONTRACT_KEYS: [&str; 10] = [
    "plan_percent",
    "gate_percent",
    "null_margin_percent",
    "blocks_least",
    "blocks_most",
    "dev_run_max",
    "build_max",
    "check_max",
    "measure_max",
    "leftovers",
];

const NAME_EXPECTED: &str = "1 to 64 letters, digits, '.', '_' or '-'";
const TARGET_EXPECTED: &str = "\"cpu\" or \"cuda-gpu\"";
const ARGV_EXPECTED: &str = "a list of the program and its arguments, such as [\"./bench\", \"--once\"]";
const TIMER_EXPECTED: &str = "\"wall\" or \"reported\"";
const ISOLATED_WALL_EXPECTED: &str = "false, or timer = \"reported\" with it: the wall timer is the judge's own";
const EDITABLE_EXPECTED: &str = "a list of globs from the repository's root, such as [\"src/**\"]";
const ARTEFACTS_EXPECTED: &str = "a list of files from the repository's root, such as [\"build/bench\"]";
const LEFTOVERS_EXPECTED: &str = "\"stop\" or \"keep\"";
const SPAN_EXPECTED: &str =
    "a text of whole numbers with units, such as \"5 min\", \"30 s\" or \"1 min 30 s\", longer than 0 and at most 24 h";

fn read_kit(source: Source<'_>, table: &DeTable<'_>) -> Result<Kit, KitFault> {
    let fields = Fields { source, table, prefix: "" };
    fields.only(&KIT_KEYS, "a kit")?;
    let contract = match fields.get("contract") {
        None => Contract::default(),
        Some(value) => match value.get_ref().as_table() {
            Some(table) => read_contract(source, table)?,
            None => return Err(source.wrong("contract", value, "a table, [contract]")),
        },
    };
    Ok(Kit {
        name: fields.required("name", NAME_EXPECTED, |value| {
            let name = value.as_str()?;
            let fits = !name.is_empty()
                && name.len() <= NAME_MAX
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            fits.then(|| name.to_owned())
        })?,
        target: fields.required("target", TARGET_EXPECTED, |value| match value.as_str()? {
            "cpu" => Some(Target::Cpu),
            "cuda-gpu" => Some(Target::CudaGpu),
            _ => None,
        })?,
        build: fields.optional("build", ARGV_EXPECTED, argv)?,
        check: fields.optional("check", ARGV_EXPECTED, argv)?,
        measure: fields.required("measure", ARGV_EXPECTED, argv)?,
        timer: read_timer(&fields)?,
        editable: {
            fields.each("editable", |text| match stays_inside(text) {
                Ok(()) => Editable::new(&[text.to_owned()])
                    .map(drop)
                    .map_err(|fault| format!("which is no glob: {}; write a glob such as \"src/**\"", fault.why)),
                Err(why) => Err(why.to_owned()),
            })?;
            fields.required("editable", EDITABLE_EXPECTED, |value| {
                let globs = paths(value)?;
                (!globs.is_empty() && Editable::new(&globs).is_ok()).then_some(globs)
            })?
        },
        artefacts: {
            fields.each("artefacts", |text| stays_inside(text).map_err(str::to_owned))?;
            fields.optional("artefacts", ARTEFACTS_EXPECTED, paths)?.unwrap_or_default()
        },
        models: match fields.get("model") {
            None => Vec::new(),
            Some(value) => model::read(source, value)?,
        },
        contract,
    })
}

/// The timer, and whether the kit's author says that the candidate cannot reach it.
fn read_timer(fields: &Fields<'_>) -> Result<Timer, KitFault> {
    let timer = fields.optional("timer", TIMER_EXPECTED, |value| match value.as_str()? {
        "wall" => Some(Timer::Wall),
        "reported" => Some(Timer::Reported),
        _ => None,
    })?;
    let is_wall = timer != Some(Timer::Reported);
    let expected = if is_wall { ISOLATED_WALL_EXPECTED } else { "true or false" };
    let isolated =
        fields.optional("timer_isolated", expected, |value| value.as_bool().filter(|set| !(*set && is_wall)))?;
    Ok(match (timer, isolated) {
        (Some(Timer::Reported), Some(true)) => Timer::ReportedApart,
        (timer, _) => timer.unwrap_or(Timer::Wall),
    })
}

fn read_contract(source: Source<'_>, table: &DeTable<'_>) -> Result<Contract, KitFault> {
    let fields = Fields { source, table, prefix: "contract." };
    fields.only(&CONTRACT_KEYS, "a contract")?;
    let plain = Contract::default();
    let given_span = |key: &'static str| {
        fields.optional(key, SPAN_EXPECTED, |value| {
            let span = parse_span(value.as_str()?)?;
            (span > Span::ZERO && span <= Span::hours(24)).then_some(span)
        })
    };
    let span = |key: &'static str, plain: Span| -> Result<Span, KitFault> { Ok(given_span(key)?.unwrap_or(plain)) };
    let effect = |key: &'static str, least: f64, expected: &str, plain: f64| -> Result<f64, KitFault> {
        let read = fields.optional(key, expected, |value| {
            let percent = number(value)?;
            (percent >= least && percent <= 100.0).then(|| libm::log(1.0 + percent / 100.0))
        })?;
        Ok(read.unwrap_or(plain))
    };
    let blocks = |key: &'static str, least: u32, expected: &str, plain: u32| -> Result<u32, KitFault> {
        let read = fields.optional(key, expected, |value| {
            let count = u32::try_from(whole(value)?).ok()?;
            (count >= least && count <= 10_000).then_some(count)
        })?;
        Ok(read.unwrap_or(plain))
    };
    let blocks_least = blocks("blocks_least", 1, "a whole number from 1 to 10000", plain.blocks_least)?;
    let contract = Contract {
        plan_effect: effect("plan_percent", 1e-3, "a number of percent from 0.001 to 100", plain.plan_effect)?,
        gate: effect("gate_percent", 0.0, "a number of percent from 0 to 100", plain.gate)?,
        null_margin: effect("null_margin_percent", 0.0, "a number of percent from 0 to 100", plain.null_margin)?,
        blocks_least,
        blocks_most: blocks(
            "blocks_most",
            blocks_least,
            &format!("a whole number from blocks_least ({blocks_least}) to 10000"),
            plain.blocks_most.max(blocks_least),
        )?,
        dev_run_max: given_span("dev_run_max")?,
        build_max: span("build_max", plain.build_max)?,
        check_max: span("check_max", plain.check_max)?,
        measure_max: span("measure_max", plain.measure_max)?,
        leftovers: fields
            .optional("leftovers", LEFTOVERS_EXPECTED, |value| match value.as_str()? {
                "stop" => Some(Leftovers::Stop),
                "keep" => Some(Leftovers::Keep),
                _ => None,
            })?
            .unwrap_or_default(),
    };
    // What core asks of a contract stands above line by line; asked again, so that the two cannot drift apart.
    contract.check().map_err(|fault| source.fault(None, fault.to_string()))?;
    Ok(contract)
}

/// One table of the file, read key by key.
struct Fields<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    prefix: &'static str,
}

impl Fields<'_> {
    fn get(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Refuses a key that is not known, in the order of the file.
    fn only(&self, known: &[&str], of: &str) -> Result<(), KitFault> {
        let unknown = self
            .table
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !known.contains(&name.get_ref().as_ref()))
            .min_by_key(|name| name.span().start);
        let Some(name) = unknown else { return Ok(()) };
        let shown = self.source.shown(name.span());
        let what = format!("{}{shown} is not a key of {of}; expected one of {}", self.prefix, known.join(", "));
        Err(self.source.fault(Some(name.span().start), what))
    }

    fn optional<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Result<Option<T>, KitFault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value.get_ref()) {
            Some(read) => Ok(Some(read)),
            None => Err(self.source.wrong(&format!("{}{key}", self.prefix), value, expected)),
        }
    }

    /// Refuses the first item of a list that is wrong, and it alone: a list may be long. What is no list of texts at all is
    /// left to who reads it as a whole.
    fn each(&self, key: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<(), KitFault> {
        let items = self.get(key).and_then(|value| value.get_ref().as_array());
        for item in items.into_iter().flat_map(|items| items.iter()) {
            let Some(text) = item.get_ref().as_str() else { continue };
            if let Err(why) = check(text) {
                let shown = self.source.shown(item.span());
                let what = format!("{}{key} has {shown}, {why}", self.prefix);
                return Err(self.source.fault(Some(item.span().start), what));
            }
        }
        Ok(())
    }

    fn required<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Result<T, KitFault> {
        self.optional(key, expected, read)?
            .ok_or_else(|| self.source.fault(None, format!("{}{key} is missing; expected {expected}", self.prefix)))
    }
}

/// A list of texts, each without NUL.
fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let list = value.as_array()?;
    list.iter()
        .map(|item| item.get_ref().as_str().filter(|text| !text.contains('\0')).map(str::to_owned))
        .collect::<Option<Vec<String>>>()
}

fn argv(value: &DeValue<'_>) -> Option<Argv> {
    let argv = texts(value)?;
    let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
    let fits = argv.first().is_some_and(|program| !program.is_empty())
        && argv.len() <= limits::COMMAND_ARGS_MAX
        && bytes <= limits::COMMAND_BYTES_MAX;
    fits.then_some(Argv(argv))
}

/// A list of paths or globs that stay inside the repository.
fn paths(value: &DeValue<'_>) -> Option<Vec<String>> {
    let paths = texts(value)?;
    (paths.len() <= LIST_MAX && paths.iter().all(|path| stays_inside(path).is_ok())).then_some(paths)
}

/// Whether a path or glob stays inside the repository; else why not.
fn stays_inside(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("which is empty; name a path from the repository's root");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("which is longer than 1024 bytes; shorten it");
    }
    if path.starts_with('/') {
        return Err("which begins with a slash; begin at the repository's root, such as \"src/**\"");
    }
    if path.split('/').any(|part| part == ".." || part == ".git" || part == ".") {
        return Err("which has a part `.`, `..` or `.git`; name what is inside the repository");
    }
    Ok(())
}

fn whole(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    if let Some(whole) = whole(value) {
        return Some(whole as f64);
    }
    value.as_float()?.as_str().parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Reads a span as a person writes it: whole numbers with a unit each, larger units first (`1 h 30 min`).
fn parse_span(text: &str) -> Option<Span> {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let mut words = text.split_ascii_whitespace();
    let mut smallest_yet = u64::MAX;
    let mut total = None;
    while let Some(word) = words.next() {
        // `u64::from_str` would take "+5".
        let count: u64 = word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()?;
        let unit = words.next()?;
        let (_, ms) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        if ms >= smallest_yet {
            return None;
        }
        smallest_yet = ms;
        total = Some(u64::checked_add(total.unwrap_or(0), count.checked_mul(ms)?)?);
    }
    total.map(Span::millis)
}

/// The paths a change may touch: a kit's globs, ready to be asked.
///
/// `*` and `?` stay inside one directory, `**` crosses them, letters must match in case.
#[derive(Clone, Debug)]
pub struct Editable(GlobSet);

/// A glob that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{glob:?} is no glob: {why}")]
pub struct GlobFault {
    /// The glob.
    pub glob: String,
    /// What is wrong with it.
    pub why: String,
}

impl Editable {
    /// Makes the globs of a kit ready.
    ///
    /// # Errors
    /// Names the first glob that cannot be used, or that all of them together are too large.
    pub fn new(globs: &[String]) -> Result<Editable, GlobFault> {
        let mut set = GlobSetBuilder::new();
        for text in globs {
            let glob = GlobBuilder::new(text)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| GlobFault { glob: text.clone(), why: error.kind().to_string() })?;
            set.add(glob);
        }
        let set = set.build().map_err(|error| GlobFault { glob: globs.join(", "), why: error.kind().to_string() })?;
        Ok(Editable(set))
    }

    /// Whether a change may touch this path, given from the repository's root.
    pub fn covers(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }
}
