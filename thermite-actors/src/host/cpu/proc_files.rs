//! What the CPU driver reads from `/proc` and `/sys`, as texts in and figures out.
//!
//! Sources: `proc_stat(5)`, `proc_loadavg(5)`, `proc_pid_stat(5)`, the kernel's `Documentation/accounting/psi.rst`.

pub use thermite_core::cpus::CpuList;

/// The one-minute load average, from the text of `/proc/loadavg`.
pub fn load1(text: &str) -> Option<f64> {
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// Ticks that these CPUs were busy, from the text of `/proc/stat`; none where one of them has no line.
///
/// Busy is everything but idle and waiting for disks. Time taken by a hypervisor counts: it is lost to a measurement
/// as well. Guest time is part of user time already.
pub fn busy_ticks(text: &str, cpus: &CpuList) -> Option<u64> {
    let mut busy: u64 = 0;
    let mut seen = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let mut fields = rest.split_ascii_whitespace();
        let Some(Ok(cpu)) = fields.next().map(str::parse::<u32>) else { continue };
        if rest.starts_with(' ') || !cpus.0.contains(&cpu) {
            continue;
        }
        let ticks: Vec<u64> = fields.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let [user, nice, system, _idle, _disk, interrupts, soft_interrupts, stolen] = *ticks.as_slice() else {
            return None;
        };
        for ticks in [user, nice, system, interrupts, soft_interrupts, stolen] {
            busy = busy.checked_add(ticks)?;
        }
        seen += 1;
    }
    (seen == cpus.count()).then_some(busy)
}

/// Nanoseconds that tasks ran on these CPUs, from the text of `/proc/schedstat`; none where one of them has no line.
///
/// Source: the kernel's `Documentation/scheduler/sched-stats.rst` (the seventh figure of a `cpuN` line). It is the
/// host's also where `/proc/stat` is a container's.
pub fn running_ns(text: &str, cpus: &CpuList) -> Option<u64> {
    let mut running: u64 = 0;
    let mut seen = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let mut fields = rest.split_ascii_whitespace();
        let Some(Ok(cpu)) = fields.next().map(str::parse::<u32>) else { continue };
        if cpus.0.contains(&cpu) {
            running = running.checked_add(fields.nth(6)?.parse().ok()?)?;
            seen += 1;
        }
    }
    (seen == cpus.count()).then_some(running)
}

/// Whether lxcfs stands in front of that file, from the text of `/proc/self/mountinfo`: it then shows a container's
/// figures, or the host's, and does not say which.
pub fn is_by_lxcfs(mountinfo: &str, file: &str) -> bool {
    mountinfo.lines().any(|line| {
        let mut parts = line.split(" - ");
        let at = parts.next().and_then(|front| front.split(' ').nth(4));
        at == Some(file) && parts.next().is_some_and(|back| back.starts_with("fuse.lxcfs "))
    })
}

/// Ticks that a process and all children it has reaped used, and theirs, from the text of `/proc/PID/stat`.
pub fn process_ticks(text: &str) -> Option<u64> {
    // The name may hold blanks and brackets: count from the last bracket on.
    let (_, rest) = text.rsplit_once(')')?;
    let four: Vec<u64> =
        rest.split_ascii_whitespace().skip(11).take(4).map(str::parse).collect::<Result<_, _>>().ok()?;
    if four.len() < 4 {
        return None;
    }
    four.into_iter().try_fold(0, u64::checked_add)
}

/// Microseconds in which some task waited for a CPU, from the text of `/proc/pressure/cpu`.
pub fn pressure_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// The CPU's model as a person knows it, from the text of `/proc/cpuinfo`.
pub fn cpu_model(text: &str) -> Option<String> {
    const NAMES: [&str; 4] = ["model name", "cpu model", "uarch", "Model"];
    NAMES.into_iter().find_map(|wanted| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            (name.trim() == wanted && !value.is_empty()).then_some(value)
        })
    })
}
