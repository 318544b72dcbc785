//! A `libnvidia-ml.so` without a card: each call reads a text file anew and says what stands there.
//!
//! The file lies beside the library and has its name with `.state` behind it, so that several copies of the library
//! in one process each have a state of their own; the variable `THERMITE_FAKE_NVML` names another, for a process that
//! loads NVIDIA's library by its usual name. What the file may say is in `state`.

#![expect(unsafe_code, reason = "NVML is a C library: its functions are exported and write where pointers say")]

use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_uint, c_ulong, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

mod state;

use state::{Card, State};

/// Success, and the errors that this library itself finds.
const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const DRIVER_NOT_LOADED: c_uint = 9;

/// How often a call that hangs looks whether it may come back.
const HANG_LOOK: Duration = Duration::from_millis(5);
/// A process that is in no part of a card.
const NO_INSTANCE: c_uint = u32::MAX;
const MIB: c_ulonglong = 1024 * 1024;

/// A card as the caller holds it: its place in the file, counted from 1.
type Handle = *mut c_void;

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used_gpu_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_sub_system_id: c_uint,
    bus_id: [c_char; 32],
}

/// Where the state is: by the variable, else beside this very library.
fn state_file() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("THERMITE_FAKE_NVML") {
        return Some(named.into());
    }
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let own = state_file as *const c_void;
    // SAFETY: `own` is an address in this library and `info` is a place for the answer.
    if unsafe { libc::dladdr(own, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr has set it to the path that the library was loaded by, which lives as long as the library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    let mut file = OsStr::from_bytes(path.to_bytes()).to_owned();
    file.push(".state");
    Some(file.into())
}

fn read_state() -> Option<State> {
    Some(State::read(&std::fs::read_to_string(state_file()?).ok()?))
}

/// The state once that call, to that card where it is to one, need not hang; or the error that it is to give.
fn called(call: &str, card: Option<usize>) -> Result<State, c_uint> {
    loop {
        // A file that is not there is a driver that is not loaded.
        let mut state = read_state().ok_or(DRIVER_NOT_LOADED)?;
        if !state.hangs(call, card) {
            return match state.fails(call, card) {
                Some(error) => Err(error),
                None => {
                    state.follow(call, card);
                    Ok(state)
                }
            };
        }
        std::thread::sleep(HANG_LOOK);
    }
}

/// A call to a card: what `say` makes of it, or the error it gives.
fn to_card(call: &str, handle: Handle, say: impl FnOnce(&Card) -> c_uint) -> c_uint {
    let Some(at) = (handle as usize).checked_sub(1) else { return INVALID_ARGUMENT };
    match called(call, Some(at)) {
        Ok(state) => state.cards.get(at).map_or(INVALID_ARGUMENT, say),
        Err(error) => error,
    }
}

/// Writes a figure where the caller wants it, or says that the card has none.
fn write<T>(place: *mut T, figure: Option<T>) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    match figure {
        Some(figure) => {
            // SAFETY: the caller gives a place for one `T`, as NVML's header says.
            unsafe { place.write(figure) };
            SUCCESS
        }
        None => NOT_SUPPORTED,
    }
}

fn write_text(place: *mut c_char, length: c_uint, text: &str) -> c_uint {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    let bytes = text.as_bytes();
    if bytes.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller gives a place for `length` bytes; text and its end fit.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), place, bytes.len());
        place.add(bytes.len()).write(0);
    }
    SUCCESS
}

fn write_programs(count: *mut c_uint, infos: *mut ProcessInfo, programs: &[(u32, u64)]) -> c_uint {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    let there = c_uint::try_from(programs.len()).unwrap_or(c_uint::MAX);
    // SAFETY: the caller gives a place for a count, set to how many there is room for.
    let room = unsafe { count.replace(there) };
    if programs.is_empty() {
        return SUCCESS;
    }
    if infos.is_null() || room < there {
        return INSUFFICIENT_SIZE;
    }
    for (at, (pid, mib)) in programs.iter().enumerate() {
        let info = ProcessInfo {
            pid: *pid,
            used_gpu_memory: mib * MIB,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        };
        // SAFETY: there is room for `room` of them, which is not less than `there`.
        unsafe { infos.add(at).write(info) };
    }
    SUCCESS
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    called("nvmlInit_v2", None).err().unwrap_or(SUCCESS)
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    called("nvmlInitWithFlags", None).err().unwrap_or(SUCCESS)
}

/// NVML's function of that name. It always works: the wrapper calls it when it is dropped.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_code: c_uint) -> *const c_char {
    c"an error of the fake library".as_ptr()
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> c_uint {
    match called("nvmlSystemGetDriverVersion", None) {
        Ok(state) => write_text(version, length, &state.driver),
        Err(error) => error,
    }
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    match called("nvmlDeviceGetCount_v2", None) {
        Ok(state) => write(count, c_uint::try_from(state.cards.len()).ok()),
        Err(error) => error,
    }
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_uint {
    match called("nvmlDeviceGetHandleByIndex_v2", Some(index as usize)) {
        Ok(state) if (index as usize) < state.cards.len() => write(device, Some((index as usize + 1) as Handle)),
        Ok(_) => INVALID_ARGUMENT,
        Err(error) => error,
    }
}

/// NVML's function of that name.
///
/// # Safety
/// `uuid` points to a C text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> c_uint {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller gives a C text.
    let uuid = unsafe { CStr::from_ptr(uuid) };
    let Some(state) = read_state() else { return DRIVER_NOT_LOADED };
    let found = state.cards.iter().position(|card| card.uuid.as_bytes() == uuid.to_bytes());
    match (called("nvmlDeviceGetHandleByUUID", found), found) {
        (Err(error), _) => error,
        (Ok(_), Some(at)) => write(device, Some((at + 1) as Handle)),
        (Ok(_), None) => NOT_FOUND,
    }
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: c_uint) -> c_uint {
    to_card("nvmlDeviceGetUUID", device, |card| write_text(uuid, length, &card.uuid))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) -> c_uint {
    to_card("nvmlDeviceGetName", device, |card| write_text(name, length, &card.name))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, minor: *mut c_uint) -> c_uint {
    to_card("nvmlDeviceGetMinorNumber", device, |card| write(minor, card.minor))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: *mut PciInfo) -> c_uint {
    to_card("nvmlDeviceGetPciInfo_v3", device, |card| {
        let Some(bus) = card.bus.as_ref().filter(|bus| bus.len() < 32) else { return NOT_SUPPORTED };
        let mut info = PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pci_device_id: 0,
            pci_sub_system_id: 0,
            bus_id: [0; 32],
        };
        for (place, byte) in info.bus_id.iter_mut().zip(bus.bytes()) {
            *place = byte.cast_signed() as c_char;
        }
        write(pci, Some(info))
    })
}

/// NVML's function of that name.
///
/// # Safety
/// `words` points to room for `count` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCpuAffinity(device: Handle, count: c_uint, words: *mut c_ulong) -> c_uint {
    to_card("nvmlDeviceGetCpuAffinity", device, |card| {
        if words.is_null() || count == 0 {
            return INVALID_ARGUMENT;
        }
        let Some(mask) = card.cpus else { return NOT_SUPPORTED };
        for at in 0..count as usize {
            // SAFETY: the caller gives room for `count` words.
            unsafe { words.add(at).write(if at == 0 { mask } else { 0 }) };
        }
        SUCCESS
    })
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, rates: *mut Utilization) -> c_uint {
    to_card("nvmlDeviceGetUtilizationRates", device, |card| {
        write(rates, card.usage.map(|gpu| Utilization { gpu, memory: 0 }))
    })
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut MemoryV2) -> c_uint {
    to_card("nvmlDeviceGetMemoryInfo_v2", device, |card| {
        let info = card.memory.map(|(total, used)| MemoryV2 {
            version: 0,
            total: total * MIB,
            reserved: 0,
            free: total.saturating_sub(used) * MIB,
            used: used * MIB,
        });
        write(memory, info)
    })
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_uint {
    to_card("nvmlDeviceGetComputeRunningProcesses_v3", device, |card| write_programs(count, infos, &card.computes))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_uint {
    to_card("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |card| write_programs(count, infos, &card.draws))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> c_uint {
    to_card("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, |_| write_programs(count, infos, &[]))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, degrees: *mut c_uint) -> c_uint {
    to_card("nvmlDeviceGetTemperature", device, |card| write(degrees, card.temperature))
}

/// NVML's function of that name; of its thresholds only the slow-down point (1).
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperatureThreshold(device: Handle, which: c_uint, degrees: *mut c_uint) -> c_uint {
    const SLOW_DOWN: c_uint = 1;
    to_card("nvmlDeviceGetTemperatureThreshold", device, |card| {
        write(degrees, card.slow_down_at.filter(|_| which == SLOW_DOWN))
    })
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, bits: *mut c_ulonglong) -> c_uint {
    to_card("nvmlDeviceGetCurrentClocksThrottleReasons", device, |card| write(bits, card.reasons))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetClockInfo(device: Handle, which: c_uint, mhz: *mut c_uint) -> c_uint {
    const MEMORY: c_uint = 2;
    to_card("nvmlDeviceGetClockInfo", device, |card| {
        write(mhz, card.clocks.map(|(sm, memory)| if which == MEMORY { memory } else { sm }))
    })
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, _which: c_uint, mhz: *mut c_uint) -> c_uint {
    to_card("nvmlDeviceGetMaxClockInfo", device, |card| write(mhz, card.clock_max))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, milliwatts: *mut c_uint) -> c_uint {
    to_card("nvmlDeviceGetPowerUsage", device, |card| write(milliwatts, card.power))
}

/// NVML's function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    to_card("nvmlDeviceGetMigMode", device, |card| match write(current, card.mig) {
        SUCCESS => write(pending, card.mig),
        error => error,
    })
}
