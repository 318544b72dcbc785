//! One process of a run, as people look for it.

use super::super::run_file;

/// A live process of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProcess {
    /// Its pid as the machine sees it.
    pub pid: u32,
    /// The name of what it executes, as the kernel shows it.
    pub command: String,
}

impl RunProcess {
    /// What is known of a live process; none for one that has ended.
    pub(super) fn look(pid: u32) -> Option<RunProcess> {
        run_file::start_time(pid)?;
        let command = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(RunProcess { pid, command: String::from_utf8_lossy(&command).trim_end().to_owned() })
    }
}

/// A process as a person looks for it.
pub(in super::super) fn describe(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
    format!("pid {pid} ({}, state {})", field("Name:"), field("State:"))
}
