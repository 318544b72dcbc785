//! What a rig is told from outside, read once: flags first, then `THERMITE_*` in the environment, then the defaults.
//!
//! | setting | environment | default |
//! |---|---|---|
//! | data folder | `THERMITE_DATA` | `$XDG_DATA_HOME/thermite`, else `$HOME/.local/share/thermite` |
//! | listen address | `THERMITE_LISTEN` | `127.0.0.1:7077`, a port that stays, so that a URL survives a restart; port 0 takes any free one |
//! | listening beyond loopback | `THERMITE_LISTEN_OPEN` | `no` |
//! | HTTP workers | `THERMITE_HTTP_WORKERS` | 2 threads |
//! | lanes a run may have | `THERMITE_LANES` | 16 |
//! | how long a development run waits | `THERMITE_DEV_RUN_WAIT` | 10 minutes (rule A6), in seconds |
//! | uids of runs | `THERMITE_UID_BASE` | 61000: where the rig is root, the judge's runs have this uid, lane n's 61000 + n |
//! | containment of runs | `THERMITE_CONTAINMENT` | `best`; `namespaces`, `uid` or `children` take that layer or do not serve, each also with `,no-cgroup` |
//! | what is logged | `THERMITE_LOG` | `info`; a level, or `TARGET=LEVEL` with commas between |
//! | folder of the devices' locks | `THERMITE_DEVICE_LOCKS` | `/run/lock`, else `/tmp`: one that all rigs of the machine share |
//! | what the data folder may hold of what can be pruned | `THERMITE_KEEP` | `20GiB` ([`crate::budget`]) |
//! | room below which its disk takes no new work | `THERMITE_DISK_FLOOR` | `256MiB` |
//! | what model files may be kept | `THERMITE_MODELS_KEEP` | `200GiB` ([`crate::models`]) |
//! | how often the folder is held against that | `THERMITE_KEEP_EVERY` | 60, in seconds |
//! | what its devices are | `THERMITE_TARGET` | `cpu`, the machine's CPUs; `cuda-gpu`, its GPUs |
//! | its GPUs, in order | `THERMITE_GPUS` | `all`; else indices of `nvidia-smi` or UUIDs, such as `0,2` |
//! | how several GPUs are shared at first | `THERMITE_SPLIT` | `split`: between judge and lanes; `shared`: each is both's, in turn. What `thermite split` sets outlives it |
//! | the GPU driver's library (NVML) | `THERMITE_NVML_LIB` | as the system finds `libnvidia-ml.so.1` |
//! | where the GPUs' device nodes are | `THERMITE_DEVICE_NODES` | `/dev`; another folder for tests |
//! | where load and CPUs are read | `THERMITE_PROC_ROOT` | `/`; for tests and embedders: a folder with `proc`, `sys` and `etc` in it that is read instead of this machine's, which the log and every record then say |
//!
//! The uids lie in a range that Debian and systemd leave unused (61000 to 61183).

use std::net::SocketAddr;
use std::path::PathBuf;

use thermite_actors::host::launch::Wanted;
use thermite_actors::ports::RigSettings;
use thermite_core::ids::LANE_MAX;
use thermite_core::limits;
use thermite_core::time::Span;

use crate::device_lock;
use crate::size::Size;

pub mod bus;
pub mod gpus;

pub use gpus::{CardName, Cards, Devices, GpuSettings, Sharing};

/// How a rig is set up on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data folder.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Threads that serve HTTP.
    pub http_workers: usize,
    /// Where the rig is root, the judge's builds, checks and blocks run as this uid, lane n's commands as this + n.
    pub lane_uid_base: u32,
    /// Which layers of containment runs may have.
    pub containment: Wanted,
    /// What is logged: a level, or directives of targets and levels.
    pub log: String,
    /// Where the locks of the machine's devices are (rule A1).
    pub device_locks: PathBuf,
    /// A folder with `proc`, `sys` and `etc` in it whose load is read instead of this machine's; none is the rule.
    pub proc_root: Option<PathBuf>,
    /// What the data folder may hold of what can be pruned, in bytes.
    pub keep: u64,
    /// Room below which its disk takes no new work, in bytes.
    pub disk_floor: u64,
    /// What model files may be kept on this machine, in bytes (rule E4).
    pub models_keep: u64,
    /// How often the folder is held against its byte budget.
    pub keep_every: Span,
    /// What its devices are.
    pub devices: Devices,
    /// The folder of the cards' device nodes.
    pub device_nodes: PathBuf,
    /// What the rig itself is told.
    pub rig: RigSettings,
    /// The bus that its runners are on; none for a rig of one machine ([`bus::CoreBus::read`]).
    pub bus: Option<bus::CoreBus>,
}

/// What flags gave, as text; the environment stands in for what they did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The data folder.
    pub folder: Option<PathBuf>,
    /// Where it listens.
    pub listen: Option<String>,
    /// Whether others than this machine may be listened to.
    pub listen_open: bool,
}

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}; it must be {expected}")]
pub struct SettingFault {
    /// The setting, as it is spelt in the environment, with its flag where it has one.
    pub setting: &'static str,
    /// What was given.
    pub value: String,
    /// What it must be.
    pub expected: String,
}

const FOLDER: &str = "THERMITE_DATA (--data)";
const LISTEN: &str = "THERMITE_LISTEN (--listen)";
const LISTEN_OPEN: &str = "THERMITE_LISTEN_OPEN (--listen-open)";
const DEFAULT_LISTEN: &str = "127.0.0.1:7077";
const DEFAULT_LOG: &str = "info,actix_server=warn";
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Settings {
    /// Reads all settings; `environment` gives a variable's value.
    ///
    /// # Errors
    /// Names the first setting that cannot be, what it is and what it must be.
    pub fn read(given: Given, environment: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingFault> {
        // An empty variable is one that is not set: the shells of service units leave such behind.
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        let wait_most = limits::DEV_RUN_WAIT_MAX.as_millis() / 1_000;
        let wait = number(&environment, "THERMITE_DEV_RUN_WAIT", wait_most, 1, 86_400)?;
        let lanes = number(&environment, "THERMITE_LANES", u64::from(LANE_MAX), 1, u64::from(LANE_MAX))?;
        Ok(Settings {
            folder: data_folder(given.folder, &environment)?,
            listen: listen(given.listen, given.listen_open, &environment)?,
            http_workers: number(&environment, "THERMITE_HTTP_WORKERS", 2, 1, 64)? as usize,
            lane_uid_base: uid_base(&environment)?,
            containment: containment(&environment)?,
            log: log(&environment)?,
            device_locks: device_locks(&environment)?,
            proc_root: proc_root(&environment)?,
            keep: size(&environment, "THERMITE_KEEP", limits::KEEP_BYTES, 1 << 20)?,
            disk_floor: size(&environment, "THERMITE_DISK_FLOOR", limits::DISK_FLOOR_BYTES, 0)?,
            models_keep: size(&environment, "THERMITE_MODELS_KEEP", limits::MODELS_KEEP_BYTES, 0)?,
            keep_every: Span::seconds(number(
                &environment,
                "THERMITE_KEEP_EVERY",
                limits::BUDGET_LOOK_EVERY.as_millis() / 1_000,
                1,
                86_400,
            )?),
            devices: gpus::devices(&environment)?,
            device_nodes: gpus::device_nodes(&environment)?,
            rig: RigSettings { dev_run_wait: Span::seconds(wait), lanes_most: lanes as u8 },
            bus: None,
        })
    }
}

/// The data folder alone, for commands that only look for a rig.
///
/// # Errors
/// Where none is given and there is no home to have one in.
pub fn data_folder(
    given: Option<PathBuf>,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, SettingFault> {
    if let Some(folder) = given.or_else(|| environment("THERMITE_DATA").map(PathBuf::from)) {
        let absolute = std::path::absolute(&folder);
        return absolute.map_err(|_| SettingFault {
            setting: FOLDER,
            value: folder.display().to_string(),
            expected: "a folder, such as /var/lib/thermite".to_owned(),
        });
    }
    let absolute = |value: Option<String>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = absolute(environment("XDG_DATA_HOME")) {
        return Ok(folder.join("thermite"));
    }
    match absolute(environment("HOME")) {
        Some(home) => Ok(home.join(".local/share/thermite")),
        None => Err(SettingFault {
            setting: FOLDER,
            value: "not set, nor is HOME".to_owned(),
            expected: "a folder, such as /var/lib/thermite".to_owned(),
        }),
    }
}

fn uid_base(environment: &impl Fn(&str) -> Option<String>) -> Result<u32, SettingFault> {
    Ok(number(environment, "THERMITE_UID_BASE", 61_000, 1, 4_000_000_000)? as u32)
}

fn containment(environment: &impl Fn(&str) -> Option<String>) -> Result<Wanted, SettingFault> {
    let Some(value) = environment("THERMITE_CONTAINMENT") else { return Ok(Wanted::BEST) };
    value.parse().map_err(|expected: &str| SettingFault {
        setting: "THERMITE_CONTAINMENT",
        value,
        expected: expected.to_owned(),
    })
}

/// A level, or `TARGET=LEVEL` with commas between. The log's own reader takes any word for a target, and would then log
/// nothing of what was meant.
pub(crate) fn log(environment: &impl Fn(&str) -> Option<String>) -> Result<String, SettingFault> {
    let Some(value) = environment("THERMITE_LOG") else { return Ok(DEFAULT_LOG.to_owned()) };
    let is_level = |word: &str| LOG_LEVELS.contains(&word.to_ascii_lowercase().as_str());
    let is_directive = |part: &str| match part.split_once('=') {
        None => is_level(part),
        Some((target, level)) => {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
            !target.is_empty() && target.chars().all(plain) && is_level(level)
        }
    };
    if value.split(',').map(str::trim).all(is_directive) {
        return Ok(value);
    }
    let levels = LOG_LEVELS.join(", ");
    let expected = format!("one of {levels}, or TARGET=LEVEL with commas between, such as warn,thermite_actors=debug");
    Err(SettingFault { setting: "THERMITE_LOG", value, expected })
}

/// A rig's address as a command is told it.
///
/// # Errors
/// Where it cannot be one.
pub fn rig_url(url: String) -> Result<String, SettingFault> {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if host.is_some_and(|host| host.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')) {
        return Ok(url);
    }
    let expected = format!("the rig's address, such as http://{DEFAULT_LISTEN}");
    Err(SettingFault { setting: "THERMITE_URL (--url)", value: url, expected })
}

fn device_locks(environment: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, SettingFault> {
    const LOCKS: &str = "THERMITE_DEVICE_LOCKS";
    let Some(text) = environment(LOCKS) else { return Ok(device_lock::default_folder()) };
    let path = PathBuf::from(&text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(SettingFault { setting: LOCKS, value: text, expected: "an absolute path, such as /run/lock".to_owned() })
}

fn proc_root(environment: &impl Fn(&str) -> Option<String>) -> Result<Option<PathBuf>, SettingFault> {
    let Some(value) = environment("THERMITE_PROC_ROOT") else { return Ok(None) };
    let root = PathBuf::from(&value);
    if root.is_absolute() && root.join("proc").is_dir() {
        return Ok(Some(root));
    }
    let expected = "an absolute path of a folder with a folder `proc` in it".to_owned();
    Err(SettingFault { setting: "THERMITE_PROC_ROOT", value, expected })
}

fn listen(
    given: Option<String>,
    open: bool,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<SocketAddr, SettingFault> {
    let text = given.or_else(|| environment("THERMITE_LISTEN")).unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let address: SocketAddr = text.parse().map_err(|_| SettingFault {
        setting: LISTEN,
        value: text.clone(),
        expected: format!("an address and a port, such as {DEFAULT_LISTEN}"),
    })?;
    let open = match environment("THERMITE_LISTEN_OPEN").as_deref() {
        _ if open => true,
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => {
            return Err(SettingFault {
                setting: LISTEN_OPEN,
                value: other.to_owned(),
                expected: "yes or no".to_owned(),
            });
        }
    };
    if !address.ip().is_loopback() && !open {
        return Err(SettingFault {
            setting: LISTEN,
            value: text,
            expected: format!(
                "a loopback address, such as {DEFAULT_LISTEN}, unless {LISTEN_OPEN} says yes to others: REST has tokens \
                 and no TLS of its own"
            ),
        });
    }
    Ok(address)
}

fn size(
    environment: &impl Fn(&str) -> Option<String>,
    setting: &'static str,
    default: u64,
    least: u64,
) -> Result<u64, SettingFault> {
    let Some(text) = environment(setting) else { return Ok(default) };
    match text.parse::<Size>() {
        Ok(Size(bytes)) if bytes >= least => Ok(bytes),
        Ok(_) => Err(SettingFault { setting, value: text, expected: format!("at least {}", Size(least)) }),
        Err(expected) => Err(SettingFault { setting, value: text, expected: expected.to_string() }),
    }
}

fn number(
    environment: &impl Fn(&str) -> Option<String>,
    setting: &'static str,
    default: u64,
    least: u64,
    most: u64,
) -> Result<u64, SettingFault> {
    let Some(text) = environment(setting) else { return Ok(default) };
    text.parse().ok().filter(|value| (least..=most).contains(value)).ok_or_else(|| SettingFault {
        setting,
        value: text,
        expected: format!("a whole number from {least} to {most}"),
    })
}
