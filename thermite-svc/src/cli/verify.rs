//! `thermite verify`: a verdict recomputed from its record (rule D9).

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use thermite_actors::ports::{FromRecords, WhichEnded};
use thermite_core::ended::Ended;
use thermite_core::ids::JobId;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_core::record::{self, Verified, VerifyFault};
use thermite_core::texts;
use thermite_svc::records::RecordsReader;

use crate::client::{Client, Fault};

use super::say::Say;
use super::{exit, show};

/// What `verify` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct VerifyArgs {
    /// A record's file, a record's SHA-256, or the id of a job; the latter two are looked up in the data folder
    #[arg(value_name = "RECORD")]
    record: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite verify record.json
  thermite verify 01890a5d-ac96-774b-bcce-b302099a8057

Everything the record says is made again from its raw figures and compared to the last bit.
Exit codes: 0 it holds; 1 it does not; 69 no such record.";

/// Verifies a record.
pub(crate) fn verify(
    args: &VerifyArgs,
    folder: PathBuf,
    client: impl FnOnce() -> anyhow::Result<Client>,
    say: &Say,
) -> anyhow::Result<u8> {
    let text = read(&args.record, &folder, client)?;
    let answer = check(&text);
    if args.json {
        say.json(&match &answer {
            Ok(found) => json!({
                "holds": true,
                "verdict": found.verdict,
                "blocks": found.accepted,
                "thrown": found.thrown,
                "lower": found.lower,
                "timer_shares_process": found.timer_shares_process,
                "sha256": found.sha256,
            }),
            Err(why) => json!({ "holds": false, "why": why.to_string() }),
        });
    }
    match answer {
        Ok(found) => {
            if !args.json {
                say.line(&holds(&found));
            }
            Ok(exit::OK)
        }
        Err(why) => {
            if !args.json {
                say.error(&format!("record {} does not hold: {why}", args.record));
            }
            Ok(exit::DOES_NOT_HOLD)
        }
    }
}

/// The one place where a record is verified.
pub(crate) fn check(text: &str) -> Result<Verified, VerifyFault> {
    record::verify_json(text)
}

fn holds(found: &Verified) -> String {
    let lower = found.lower.map_or("none".to_owned(), show::percent);
    let note = if found.timer_shares_process { format!("; {}", texts::TIMER_SHARES_PROCESS) } else { String::new() };
    format!(
        "the record holds: {}; lower bound {lower}; {} blocks, {} thrown{note}; sha256 {}",
        found.verdict, found.accepted, found.thrown, found.sha256
    )
}

/// A whole file, where it is one that a record can be: a device or a pipe would never end.
fn read_file(file: &Path) -> Result<String, String> {
    let about = std::fs::metadata(file).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no file; give a record's file".to_owned());
    }
    let most = limits::RECORD_BYTES_MAX as u64;
    if about.len() > most {
        return Err(format!("it is {} bytes long, and a record has at most {most}", about.len()));
    }
    let mut text = String::new();
    let mut reader = std::fs::File::open(file).map_err(|error| error.to_string())?.take(most);
    reader.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn record_of(reader: &RecordsReader, job: JobId) -> anyhow::Result<Option<Option<String>>> {
    let FromRecords::Kept(kept) = reader.ended(&WhichEnded::Job(job))? else { return Ok(None) };
    Ok(kept.into_iter().find_map(|ended| match ended {
        Ended::Job { history } => history.end.map(|(_, record)| record),
        Ended::DevRun { .. } | Ended::Run { .. } => None,
    }))
}

/// A file; else what the data folder knows by that name, whether or not a rig serves it; else what the rig says.
fn read(name: &str, folder: &Path, client: impl FnOnce() -> anyhow::Result<Client>) -> anyhow::Result<String> {
    let no_such = |why: &str| Fault::Refused { sentence: format!("record {name} is not there: {why}") };
    if Path::new(name).exists() {
        return read_file(Path::new(name)).map_err(|why| no_such(&why).into());
    }
    let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let job = name.parse::<JobId>().ok();
    if !is_hash && job.is_none() {
        return Err(no_such("no such file, and it is neither a record's SHA-256 nor a job's id").into());
    }
    match (RecordsReader::open(folder), job) {
        (Ok(reader), None) => reader
            .verdict(&name.to_ascii_lowercase())?
            .ok_or_else(|| no_such(&format!("the records in {} have none of that hash", folder.display())).into()),
        (Ok(reader), Some(job)) => {
            let log = reader.about(&job.0)?;
            let ended = log.iter().rev().find_map(|row| {
                let LogEntry::JobEnded { job: of, record, .. } = &row.entry else { return None };
                (*of == job).then(|| record.clone())
            });
            // What is over is known also where the log's beginning was pruned.
            let ended = match ended {
                None => record_of(&reader, job)?,
                told => told,
            };
            let Some(Some(hash)) = ended else {
                return Err(no_such("that job has no verdict, or is not known there").into());
            };
            reader.verdict(&hash)?.ok_or_else(|| no_such("the log names it, the records do not have it").into())
        }
        (Err(_), Some(job)) => Ok(client()?.verdict(job, None)?),
        (Err(fault), None) => Err(no_such(&fault.to_string()).into()),
    }
}
