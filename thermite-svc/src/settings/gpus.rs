//! The settings of a GPU rig: which kind of device, which cards, whose library tells of them, and how they are shared.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use thermite_core::contract::Target;

use super::SettingFault;

/// What a rig's devices are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The machine's CPUs are its one device.
    Cpu,
    /// GPUs, each a device.
    Gpus(GpuSettings),
}

impl Devices {
    /// The kind of device.
    pub const fn target(&self) -> Target {
        match self {
            Devices::Cpu => Target::Cpu,
            Devices::Gpus(_) => Target::CudaGpu,
        }
    }
}

/// How a rig has its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSettings {
    /// Which cards, in which order.
    pub cards: Cards,
    /// The file of the driver's library (NVML); none: as the system finds it.
    pub library: Option<PathBuf>,
    /// How several cards are shared until somebody sets it (rule B1).
    pub sharing: Sharing,
}

/// Which cards of the machine a rig has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cards {
    /// All that the driver knows, in the driver's order.
    All,
    /// These, in this order.
    Named(Vec<CardName>),
}

/// A card as people name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CardName {
    /// Its place in the driver's order, which is the order of `nvidia-smi`.
    Index(u32),
    /// Its UUID, which stays.
    Uuid(String),
}

/// How several cards are shared at a rig's first start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Split between the judge and the lanes.
    Split,
    /// Every card is the judge's and the lanes', in turn.
    Shared,
}

impl fmt::Display for CardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CardName::Index(index) => write!(f, "{index}"),
            CardName::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

pub(super) const TARGET: &str = "THERMITE_TARGET";
/// The cards.
pub const GPUS: &str = "THERMITE_GPUS";
/// The driver's library.
pub const LIBRARY: &str = "THERMITE_NVML_LIB";
const SHARING: &str = "THERMITE_SPLIT";
/// The most cards that one rig has: eight of each side (rule B1).
const CARDS_MOST: usize = 16;

pub(super) fn devices(environment: &impl Fn(&str) -> Option<String>) -> Result<Devices, SettingFault> {
    let fault = |setting, value: String, expected: &str| SettingFault { setting, value, expected: expected.to_owned() };
    match environment(TARGET).as_deref() {
        None | Some("cpu") => {
            // Said rather than passed over: whoever names cards means a GPU rig.
            for setting in [GPUS, SHARING] {
                if let Some(value) = environment(setting) {
                    return Err(fault(setting, value, "left out unless THERMITE_TARGET is cuda-gpu"));
                }
            }
            Ok(Devices::Cpu)
        }
        Some("cuda-gpu") => Ok(Devices::Gpus(GpuSettings {
            cards: cards(environment(GPUS))?,
            library: library(environment)?,
            sharing: match environment(SHARING).as_deref() {
                None | Some("split") => Sharing::Split,
                Some("shared") => Sharing::Shared,
                Some(other) => return Err(fault(SHARING, other.to_owned(), "split or shared")),
            },
        })),
        Some(other) => Err(fault(TARGET, other.to_owned(), "cpu or cuda-gpu")),
    }
}

/// The driver's library where the environment names one, for commands that only look.
///
/// # Errors
/// Where it names what cannot be one.
pub fn library(environment: &impl Fn(&str) -> Option<String>) -> Result<Option<PathBuf>, SettingFault> {
    let Some(value) = environment(LIBRARY) else { return Ok(None) };
    let path = PathBuf::from(&value);
    if path.is_absolute() && path.is_file() {
        return Ok(Some(path));
    }
    let expected = "an absolute path of the driver's library, such as /usr/lib/libnvidia-ml.so.1".to_owned();
    Err(SettingFault { setting: LIBRARY, value, expected })
}

/// The folder of the cards' device nodes.
pub(super) fn device_nodes(environment: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, SettingFault> {
    const NODES: &str = "THERMITE_DEVICE_NODES";
    let Some(value) = environment(NODES) else { return Ok(PathBuf::from("/dev")) };
    let folder = PathBuf::from(&value);
    if folder.is_absolute() && folder.is_dir() {
        return Ok(folder);
    }
    Err(SettingFault { setting: NODES, value, expected: "an absolute path of a folder, such as /dev".to_owned() })
}

fn cards(value: Option<String>) -> Result<Cards, SettingFault> {
    let Some(value) = value.filter(|value| value != "all") else { return Ok(Cards::All) };
    let names: Option<Vec<CardName>> = value.split(',').map(|name| card(name.trim())).collect();
    let is_each_once = |names: &Vec<CardName>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    match names.filter(|names| is_each_once(names) && names.len() <= CARDS_MOST) {
        Some(names) => Ok(Cards::Named(names)),
        None => Err(SettingFault {
            setting: GPUS,
            value,
            expected: format!(
                "all, or at most {CARDS_MOST} cards with commas between, each once, by index or UUID, such as 0,2 or GPU-..."
            ),
        }),
    }
}

fn card(name: &str) -> Option<CardName> {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().ok().map(CardName::Index);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    // The driver's own form; what is cut short would name another card one day.
    let is_uuid = name.starts_with("GPU-") && name.len() <= 80 && name.bytes().all(is_plain);
    is_uuid.then(|| CardName::Uuid(name.to_owned()))
}
