//! `thermite doctor`: what this machine can do for a rig. The abilities are looked at and judged in `host::doctor`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use thermite_actors::host;
use thermite_actors::host::cards::CardAt;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::doctor::{DiskFacts, Finding, LockFacts, Look, Standing, findings, is_fit, look};
use thermite_actors::host::gpu::CardFacts;
use thermite_actors::host::launch::LauncherSettings;
use thermite_actors::host::workspaces::Accounts;
use thermite_actors::ports::{DeviceFacts, TargetDriver};
use thermite_svc::device_lock::{DeviceLock, DeviceLockFault, LockState};
use thermite_svc::records::SqliteRecords;
use thermite_svc::settings::{Given, Settings};

use super::assemble::{card_places, rig_cards};
use super::exit;
use super::say::Say;

/// What `doctor` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The rig's data folder [default: $HOME/.local/share/thermite]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  thermite doctor
  thermite doctor --json

Tries each ability out by throwaway runs and files; works with and without a rig beside it, and tells of the user who \
asks. THERMITE_CONTAINMENT and, with THERMITE_TARGET=cuda-gpu, the cards are looked at as `thermite serve` would.

Exit codes: 0 a rig can serve, degraded or not; 1 something that it needs is missing; 64 a setting is wrong.";

/// Looks at this machine and says what was found.
pub(crate) fn doctor(args: &DoctorArgs, say: &Say) -> anyhow::Result<u8> {
    let given = Given { folder: args.data.clone(), ..Given::default() };
    let settings = Settings::read(given, |name| std::env::var(name).ok())?;
    let scratch = tempfile::tempdir().context("failed to make a folder for throwaway runs")?;
    let accounts = Accounts::of_this_user(settings.lane_uid_base);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("failed to start a runtime")?;
    let cards = runtime.block_on(rig_cards(&settings));
    let wishes = Look {
        scratch: scratch.path().to_owned(),
        program: LauncherSettings::THIS_PROGRAM.into(),
        wanted: settings.containment,
        trial_uid: accounts.trial(),
        identity: accounts.judge(),
        disk: disk(&settings.folder),
        device_lock: lock(&settings.device_locks, &devices(cards.as_ref())),
        card_library: thermite_svc::settings::gpus::library(&|name| {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        })?,
        card_places: card_places(&settings),
        rig_cards: cards.map(|cards| cards.map(|cards| cards.iter().map(CardAt::from).collect())),
    };
    let findings = findings(&runtime.block_on(look(wishes)));
    let fit = is_fit(&findings);
    if args.json {
        say.json(&json!({ "fit": fit, "findings": findings }));
    } else {
        findings.iter().flat_map(lines).for_each(|line| say.line(&line));
        say.line(verdict(&findings, fit));
    }
    Ok(if fit { exit::OK } else { exit::UNFIT })
}

fn verdict(findings: &[Finding], fit: bool) -> &'static str {
    match fit {
        false => "a rig cannot serve here: something that it needs is missing",
        true if findings.iter().all(|finding| finding.standing == Standing::Ok) => "a rig can serve here",
        true => "a rig can serve here; what is degraded or missing leaves open what is said above",
    }
}

/// A finding as people read it: one line, and what follows from it below.
fn lines(finding: &Finding) -> Vec<String> {
    let mut lines = vec![format!("{:<9} {:<14} {}", finding.standing, finding.ability, finding.found)];
    let mut more = |what: &str, said: &str| lines.push(format!("{:<25}{what}: {said}", ""));
    if let Some(missing) = &finding.missing {
        more("missing", missing);
    }
    for open in &finding.leaves_open {
        more("leaves open", open);
    }
    if let Some(how) = &finding.to_get_it {
        more("to get it", how);
    }
    lines
}

/// The devices that a rig would have. Where it would have none the CPUs stand in, so that the locks' folder is tried.
fn devices(cards: Option<&Result<Vec<CardFacts>, String>>) -> Vec<DeviceFacts> {
    match cards {
        Some(Ok(cards)) => cards.iter().map(CardFacts::device_facts).collect(),
        Some(Err(_)) | None => vec![CpuDriver::of_this_machine().facts()],
    }
}

/// How the locks of these devices stand: one that is held or cannot be had is told before those that are free.
fn lock(locks: &Path, devices: &[DeviceFacts]) -> LockFacts {
    let (mut free, mut held) = (Vec::new(), Vec::new());
    for facts in devices {
        match DeviceLock::look(locks, facts) {
            LockState::Free(file) => free.push(file),
            LockState::Not(DeviceLockFault::InUse { model, uuid, file, by }) => {
                let what = if devices.len() == 1 { "it".to_owned() } else { format!("{model} ({uuid})") };
                held.push(format!("a rig has {what}: {by} ({})", file.display()));
            }
            LockState::Not(fault @ DeviceLockFault::File { .. }) => return LockFacts::Fault { why: fault.to_string() },
        }
    }
    match <[PathBuf; 1]>::try_from(free) {
        _ if !held.is_empty() => LockFacts::Held { by: held.join("; ") },
        Ok([file]) => LockFacts::Free { file },
        Err(_) => LockFacts::Free { file: locks.to_owned() },
    }
}

/// Tries a database out in the data folder, or in the nearest folder there is to make it in.
fn disk(folder: &Path) -> DiskFacts {
    let there = folder.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("/"));
    let free = host::disk::free(there).map_err(|error| format!("{}: {error}", there.display()));
    let keeps = tempfile::Builder::new()
        .prefix(".doctor-")
        .tempdir_in(there)
        .map_err(|error| format!("{} cannot be written in: {error}", there.display()))
        .and_then(|place| SqliteRecords::try_out(place.path()).map_err(|fault| fault.to_string()));
    DiskFacts { folder: folder.to_owned(), free, keeps }
}
