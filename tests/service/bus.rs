//! The bus on a real nats-server: rights by JWT, TLS, and what its faults do.

use std::future::Future;

mod codec;
mod control;
mod deploy;
mod desk;
mod faults;
mod first_transfer;
mod fleet;
mod harness;
mod link;
pub(crate) mod nats;
mod nats_process;
mod plain_nats;
mod private_ca;
mod processes;
mod rights;
mod settings;
mod taken_back;
mod whole_rig;
mod wire;

/// Whether the long repetitions run.
fn is_long() -> bool {
    std::env::var_os("THERMITE_LONG").is_some_and(|value| value == "1")
}

/// Waits for a future on this thread, with all that it starts there.
fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    crate::support::block_on(tokio::task::LocalSet::new().run_until(future))
}

/// The processes of this machine whose command line has that mark in it.
fn processes_with(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // It may be gone meanwhile.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(mark) {
            found.push(format!("{pid} {line}"));
        }
    }
    found
}
