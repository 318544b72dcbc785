//! The calls to NVML and what they say: a figure, nothing, or a fault.

use std::path::Path;

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{Bits, NvmlError};
use nvml_wrapper::{Device, Nvml};

use thermite_core::readiness::gpu::{Card, Sample};
use thermite_core::texts;

use super::CardFacts;
use crate::host::cpu::proc_files::CpuList;
use crate::ports::DeviceFault;

/// Told before each call by its name, and with none after it: whoever waits can then say which one hangs.
pub(super) type Mark<'a> = &'a dyn Fn(Option<&'static str>);

/// A call, and what it said instead of an answer.
pub(super) type Failed = (&'static str, NvmlError);

/// The library, loaded and initialised.
pub(super) struct Library {
    nvml: Nvml,
}

/// A program that a card lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) pid: u32,
    /// The card's memory it holds, in bytes.
    pub(super) memory: Option<u64>,
}

/// One look at a card: its figures, without who computes on it.
pub(super) struct Figures {
    pub(super) card: Card,
    pub(super) sample: Sample,
}

/// The calls about one card.
pub(super) struct CardCalls<'a> {
    uuid: &'a str,
    device: Device<'a>,
    mark: Mark<'a>,
}

impl Library {
    /// Loads and initialises the library, NVIDIA's own where no path is given.
    pub(super) fn open(path: Option<&Path>, mark: Mark<'_>) -> Result<Library, NvmlError> {
        // Loading runs the library's own code as well, and its first calls.
        mark(Some("opening the library"));
        let nvml = match path {
            Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
            None => Nvml::init(),
        };
        mark(None);
        Ok(Library { nvml: nvml? })
    }

    /// The driver's version.
    pub(super) fn driver_version(&self, mark: Mark<'_>) -> Result<String, NvmlError> {
        marked(mark, "nvmlSystemGetDriverVersion", || self.nvml.sys_driver_version())
    }

    /// How many cards there are.
    pub(super) fn count(&self, mark: Mark<'_>) -> Result<u32, NvmlError> {
        marked(mark, "nvmlDeviceGetCount_v2", || self.nvml.device_count())
    }

    /// What the card of that index is; `driver_version` is written into it.
    pub(super) fn describe(&self, index: u32, driver_version: &str, mark: Mark<'_>) -> Result<CardFacts, Failed> {
        let call = "nvmlDeviceGetHandleByIndex_v2";
        let device = marked(mark, call, || self.nvml.device_by_index(index)).map_err(|error| (call, error))?;
        let call = "nvmlDeviceGetUUID";
        let uuid = marked(mark, call, || device.uuid()).map_err(|error| (call, error))?;
        let calls = CardCalls { uuid: &uuid, device, mark };
        // What else it is may stay unsaid; a card without a name of its own, or one that is gone meanwhile, is none.
        let memory = calls.told("nvmlDeviceGetMemoryInfo_v2", |of| of.memory_info())?;
        let model = calls.told("nvmlDeviceGetName", |of| of.name())?;
        Ok(CardFacts {
            index,
            model: model.unwrap_or_else(|| "unknown card".to_owned()),
            driver_version: driver_version.to_owned(),
            minor: calls.told("nvmlDeviceGetMinorNumber", |of| of.minor_number())?,
            pci_bus_id: calls.told("nvmlDeviceGetPciInfo_v3", |of| of.pci_info())?.map(|pci| pci.bus_id),
            cpus: calls.cpus()?,
            is_mig: calls.told("nvmlDeviceGetMigMode", |of| of.mig_mode())?.map(|mig| mig.current != 0),
            memory_total: memory.map(|memory| memory.total).filter(|total| *total > 0),
            sm_clock_max: calls.told("nvmlDeviceGetMaxClockInfo", |of| of.max_clock_info(Clock::SM))?,
            uuid: uuid.clone(),
        })
    }

    /// The card of that UUID, whatever its index is by now.
    pub(super) fn card<'a>(&'a self, uuid: &'a str, mark: Mark<'a>) -> Result<CardCalls<'a>, DeviceFault> {
        let call = "nvmlDeviceGetHandleByUUID";
        match marked(mark, call, || self.nvml.device_by_uuid(uuid)) {
            Ok(device) => Ok(CardCalls { uuid, device, mark }),
            // The library knows no card of that name any more.
            Err(error @ (NvmlError::NotFound | NvmlError::InvalidArg)) => {
                Err(DeviceFault::Lost(texts::card_lost(uuid, &error.to_string())))
            }
            Err(error) => Err(fault(uuid, call, &error)
                .unwrap_or_else(|| DeviceFault::Other(texts::card_fault(uuid, call, &error.to_string())))),
        }
    }
}

impl CardCalls<'_> {
    /// One look at all figures. What the card does not tell is none.
    pub(super) fn figures(&self) -> Result<Figures, DeviceFault> {
        if self.ask("nvmlDeviceGetMigMode", |of| of.mig_mode())?.is_some_and(|mig| mig.current != 0) {
            return Err(DeviceFault::Mig(texts::card_in_mig_mode(self.uuid)));
        }
        let figure = |value: Option<u32>| value.map(f64::from);
        let usage = self.ask("nvmlDeviceGetUtilizationRates", |of| of.utilization_rates())?;
        // Some drivers answer where they know nothing: a card without any memory is one of those.
        let memory = self.ask("nvmlDeviceGetMemoryInfo_v2", |of| of.memory_info())?.filter(|memory| memory.total > 0);
        let temperature = self.ask("nvmlDeviceGetTemperature", |of| of.temperature(TemperatureSensor::Gpu))?;
        let slow_down_at = self
            .ask("nvmlDeviceGetTemperatureThreshold", |of| of.temperature_threshold(TemperatureThreshold::Slowdown))?;
        let graphics =
            self.ask("nvmlDeviceGetGraphicsRunningProcesses_v3", |of| of.running_graphics_processes_count())?;
        let model = self.ask("nvmlDeviceGetName", |of| of.name())?.unwrap_or_default();
        Ok(Figures {
            card: Card {
                model,
                memory_total: memory.as_ref().map(|memory| memory.total),
                slow_down_at: figure(slow_down_at).filter(|at| *at > 0.0),
            },
            sample: Sample {
                use_percent: usage.map(|usage| f64::from(usage.gpu)),
                memory_used: memory.map(|memory| memory.used),
                graphics,
                temperature: figure(temperature),
                clock_reasons: self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", clock_reasons)?,
                sm_clock: figure(self.ask("nvmlDeviceGetClockInfo", |of| of.clock_info(Clock::SM))?),
                memory_clock: figure(self.ask("nvmlDeviceGetClockInfo", |of| of.clock_info(Clock::Memory))?),
                power: self.ask("nvmlDeviceGetPowerUsage", |of| of.power_usage())?.map(|mw| f64::from(mw) / 1e3),
                ..Sample::default()
            },
        })
    }

    /// The programs that compute on it; none where it does not tell.
    pub(super) fn listed(&self) -> Result<Option<Vec<Listed>>, DeviceFault> {
        let listed = self.ask("nvmlDeviceGetComputeRunningProcesses_v3", |of| of.running_compute_processes())?;
        let of_program = |memory: UsedGpuMemory| match memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let programs = |all: Vec<nvml_wrapper::struct_wrappers::device::ProcessInfo>| {
            all.into_iter().map(|one| Listed { pid: one.pid, memory: of_program(one.used_gpu_memory) }).collect()
        };
        Ok(listed.map(programs))
    }

    /// The CPUs near it, as a kernel list.
    fn cpus(&self) -> Result<Option<String>, Failed> {
        let words = self.told("nvmlDeviceGetCpuAffinity", |of| of.cpu_affinity(cpu_words()))?.unwrap_or_default();
        let bits = words.iter().zip(0_u32..).flat_map(|(word, at)| {
            (0..u64::BITS).filter(move |bit| *word >> bit & 1 == 1).map(move |bit| at * u64::BITS + bit)
        });
        let list = CpuList(bits.collect());
        Ok((!list.0.is_empty()).then(|| list.to_string()))
    }

    /// What a call says of what the card is: none where it does not tell, which is no fault of the card yet.
    fn told<T>(
        &self,
        call: &'static str,
        ask: impl FnOnce(&Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, Failed> {
        match marked(self.mark, call, || ask(&self.device)) {
            Ok(said) => Ok(Some(said)),
            Err(error) => match fault(self.uuid, call, &error) {
                // An error without a name comes of a single figure too, such as the CPUs near a card in a container.
                None | Some(DeviceFault::Other(_)) => Ok(None),
                Some(_) => Err((call, error)),
            },
        }
    }

    /// What a call says, none where the card does not tell it, or the fault that the call shows.
    fn ask<T>(
        &self,
        call: &'static str,
        ask: impl FnOnce(&Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, DeviceFault> {
        match marked(self.mark, call, || ask(&self.device)) {
            Ok(said) => Ok(Some(said)),
            Err(error) => match fault(self.uuid, call, &error) {
                Some(fault) => Err(fault),
                None => Ok(None),
            },
        }
    }
}

/// The bits of why the clocks are what they are, also those that the wrapper has no name for.
fn clock_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    match device.current_throttle_reasons_strict() {
        Ok(reasons) => Ok(reasons.bits()),
        Err(NvmlError::IncorrectBits(Bits::U64(raw))) => Ok(raw),
        Err(NvmlError::IncorrectBits(Bits::U32(raw))) => Ok(u64::from(raw)),
        Err(error) => Err(error),
    }
}

/// What an error says of a card; none where it only does not tell what was asked.
pub(super) fn fault(uuid: &str, call: &str, error: &NvmlError) -> Option<DeviceFault> {
    use DeviceFault::{AccessLost, Lost, Mismatch, Other};
    let said = error.to_string();
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::IrqIssue | NvmlError::InsufficientPower => {
            Some(Lost(texts::card_lost(uuid, &said)))
        }
        NvmlError::LibRmVersionMismatch => Some(Mismatch(texts::card_driver_mismatch(&said))),
        NvmlError::NoPermission | NvmlError::OperatingSystem => Some(AccessLost(texts::card_access_lost(uuid, &said))),
        NvmlError::DriverNotLoaded
        | NvmlError::Uninitialized
        | NvmlError::LibraryNotFound
        | NvmlError::LibloadingError(_) => Some(Other(texts::card_driver_not_loaded(&said))),
        NvmlError::Unknown => Some(Other(texts::card_fault(uuid, call, &said))),
        // Not supported, not in this library, nothing measured yet, no answer in its own time: untold. The list is the
        // wrapper's and may grow.
        _ => None,
    }
}

fn marked<T>(mark: Mark<'_>, call: &'static str, ask: impl FnOnce() -> T) -> T {
    mark(Some(call));
    let said = ask();
    mark(None);
    said
}

/// How many words of CPU bits cover every CPU this machine can have.
fn cpu_words() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = CpuList::read(&possible).and_then(|list| list.0.last().copied()).unwrap_or(0);
    last as usize / 64 + 1
}
