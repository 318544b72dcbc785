//! `thermite backup` and `thermite restore`: a data folder taken along in one file, and brought back.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock;
use thermite_core::texts;
use thermite_svc::backup;
use thermite_svc::size::Size;

use super::exit;
use super::say::Say;

/// What `backup` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER_BACKUP)]
pub(crate) struct BackupArgs {
    /// A new file, or a folder in which one is made with the day in its name
    #[arg(value_name = "FILE|DIR")]
    to: PathBuf,
    /// The rig's data folder [default: $HOME/.local/share/thermite]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_BACKUP: &str = "\
Examples:
  thermite backup /backups
  thermite backup rig.backup --data ./rig

Works while the rig runs, and holds what it had at one moment: the log, verdict records, hashes of tokens, and the \
commits of champions and jobs. Not in it: outputs of development runs, and the owner's token itself.";

/// What `restore` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER_RESTORE)]
pub(crate) struct RestoreArgs {
    /// The backup's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data folder to make: new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_RESTORE: &str = "\
Examples:
  thermite restore /backups/thermite-2026-03-01-4242.backup --data ./rig

Recomputes every verdict record before it makes the folder. `thermite serve --data DIR` then goes on from the moment of \
the backup, with a new owner's token; numbers of holds jump ahead, so that none is given out twice.
Exit codes: 0 done; 69 refused: no backup, damaged, or the folder is not empty; 70 the disk or git failed.";

/// Takes a backup.
pub(crate) fn backup(args: &BackupArgs, folder: &Path, say: &Say) -> u8 {
    match backup::take(folder, &args.to, BootClock.wall_ms()) {
        Ok(taken) if args.json => {
            say.json(&json!({
                "file": taken.file,
                "bytes": taken.bytes,
                "entries": taken.entries,
                "verdicts": taken.verdicts,
                "commits": taken.commits,
            }));
            exit::OK
        }
        Ok(taken) => {
            say.line(&format!(
                "backup {}: {}; {} entries of the log, {} verdicts, {} commits",
                taken.file.display(),
                Size(taken.bytes),
                taken.entries,
                taken.verdicts,
                taken.commits
            ));
            exit::OK
        }
        Err(fault) => refuse(&fault, say),
    }
}

/// Makes a data folder of a backup.
pub(crate) fn restore(args: &RestoreArgs, say: &Say) -> u8 {
    match backup::restore(&args.file, &args.data, BootClock.wall_ms()) {
        Ok(restored) if args.json => {
            say.json(&json!({
                "folder": restored.folder,
                "made_ms": restored.made_ms,
                "verdicts": restored.verdicts,
                "numbers_skipped": restored.numbers_skipped,
            }));
            exit::OK
        }
        Ok(restored) => {
            say.line(&format!(
                "data folder {} is as it was on {}; {} verdicts hold",
                restored.folder.display(),
                texts::day(restored.made_ms),
                restored.verdicts
            ));
            exit::OK
        }
        Err(fault) => refuse(&fault, say),
    }
}

fn refuse(fault: &backup::BackupFault, say: &Say) -> u8 {
    say.error(&fault.to_string());
    match fault {
        backup::BackupFault::Failed { .. } => exit::INFRASTRUCTURE,
        backup::BackupFault::Records(_)
        | backup::BackupFault::There { .. }
        | backup::BackupFault::NoBackup { .. }
        | backup::BackupFault::Damaged { .. } => exit::REFUSED,
    }
}
