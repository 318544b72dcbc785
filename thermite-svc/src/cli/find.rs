//! Finds records: a file; else what the data folder knows by that name, whether or not a rig serves it; else what the
//! rig says.

use std::io::Read;
use std::path::Path;

use thermite_actors::ports::{FromRecords, WhichEnded};
use thermite_actors::view::JobStatus;
use thermite_core::ended::Ended;
use thermite_core::ids::JobId;
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_svc::records::RecordsReader;
use thermite_svc::report::Comparison;

use crate::client::{Client, Fault};

use super::{show, verdict};

/// A whole file, where it is one that a record can be: a device or a pipe would never end.
pub(crate) fn file(file: &Path) -> Result<String, String> {
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

/// One record's text: of a job the deciding one.
pub(crate) fn record(
    name: &str,
    folder: &Path,
    client: impl FnOnce() -> anyhow::Result<Client>,
) -> anyhow::Result<String> {
    match named(name)? {
        Named::File => Ok(file(Path::new(name)).map_err(|why| no_such(name, &why))?),
        Named::Hash => by_hash(name, folder),
        Named::Job(job) => {
            let found = of_job(job, folder, client)?;
            let last = found.texts.into_iter().next_back();
            last.ok_or_else(|| no_such(name, "that job has no verdict, or is not known there").into())
        }
    }
}

/// What records are shown as: of each job its stages; files and hashes of one job belong together.
pub(crate) fn comparisons(
    names: &[String],
    folder: &Path,
    client: impl Fn() -> anyhow::Result<Client>,
) -> anyhow::Result<Vec<Comparison>> {
    let mut all: Vec<Comparison> = Vec::new();
    for name in names {
        let (texts, ended) = match named(name)? {
            Named::File => (vec![file(Path::new(name)).map_err(|why| no_such(name, &why))?], None),
            Named::Hash => (vec![by_hash(name, folder)?], None),
            Named::Job(job) => {
                let found = of_job(job, folder, &client)?;
                (found.texts, found.ended)
            }
        };
        if texts.is_empty() {
            all.push(Comparison { name: Some(format!("job {name}")), ended, stages: Vec::new() });
            continue;
        }
        for text in texts {
            let stage = verdict::stage(&text).map_err(|why| no_such(name, &why))?;
            let job = stage.record.facts.job;
            match all.iter_mut().find(|known| known.stages.iter().any(|stage| stage.record.facts.job == job)) {
                Some(known) => {
                    if !known.stages.contains(&stage) {
                        known.stages.push(stage);
                        known.stages.sort_by_key(|stage| stage.record.facts.stage);
                    }
                }
                None => all.push(Comparison { name: None, ended: ended.clone(), stages: vec![stage] }),
            }
        }
    }
    Ok(all)
}

enum Named {
    File,
    Hash,
    Job(JobId),
}

/// What is known of a job that is over.
struct Found {
    /// Its stages' records, in order.
    texts: Vec<String>,
    /// How it ended, where no record of a stage says it.
    ended: Option<String>,
}

fn named(name: &str) -> Result<Named, Fault> {
    if Path::new(name).exists() {
        return Ok(Named::File);
    }
    if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Named::Hash);
    }
    let neither = "no such file, and it is neither a record's SHA-256 nor a job's id";
    name.parse().map(Named::Job).map_err(|_| no_such(name, neither))
}

fn no_such(name: &str, why: &str) -> Fault {
    Fault::Refused { sentence: format!("record {name} is not there: {why}") }
}

fn by_hash(name: &str, folder: &Path) -> anyhow::Result<String> {
    let reader = RecordsReader::open(folder).map_err(|fault| no_such(name, &fault.to_string()))?;
    let found = reader.verdict(&name.to_ascii_lowercase())?;
    Ok(found.ok_or_else(|| no_such(name, &format!("the records in {} have none of that hash", folder.display())))?)
}

fn of_job(job: JobId, folder: &Path, client: impl FnOnce() -> anyhow::Result<Client>) -> anyhow::Result<Found> {
    match RecordsReader::open(folder) {
        Ok(reader) => of_job_in(&reader, job),
        Err(_) => of_job_told(&client()?, job),
    }
}

fn of_job_in(reader: &RecordsReader, job: JobId) -> anyhow::Result<Found> {
    let name = job.to_string();
    let (mut screening, mut end) = (None, None);
    for row in reader.about(&job.0)? {
        match row.entry {
            LogEntry::ScreeningWon { job: of, record, .. } if of == job => screening = Some(record),
            LogEntry::JobEnded { job: of, outcome, record } if of == job => end = Some((outcome, record)),
            _ => {}
        }
    }
    // What is over is known also where the log's beginning was pruned.
    if end.is_none()
        && let FromRecords::Kept(kept) = reader.ended(&WhichEnded::Job(job))?
    {
        for ended in kept {
            if let Ended::Job { history } = ended {
                screening = screening.or(history.screened.map(|screened| screened.1));
                end = history.end;
            }
        }
    }
    let Some((outcome, record)) = end else {
        return Err(no_such(&name, "that job has no verdict, or is not known there").into());
    };
    let mut hashes: Vec<String> = screening.into_iter().chain(record.clone()).collect();
    hashes.dedup();
    let lost = || no_such(&name, "the log names it, the records do not have it");
    let texts = hashes.iter().map(|hash| Ok(reader.verdict(hash)?.ok_or_else(lost)?));
    Ok(Found { texts: texts.collect::<anyhow::Result<_>>()?, ended: said(&outcome, record.is_some()) })
}

fn of_job_told(client: &Client, job: JobId) -> anyhow::Result<Found> {
    let row = client.job(job)?;
    let JobStatus::Ended { outcome, record, screening } = &row.status else {
        let sentence = format!("job {job} has no verdict yet: {}", show::job_status(&row));
        return Err(Fault::Refused { sentence }.into());
    };
    let mut texts = Vec::new();
    if screening.is_some() {
        texts.push(client.verdict(job, Some(StageKind::Screening))?);
    }
    if record.is_some() && record != screening {
        texts.push(client.verdict(job, None)?);
    }
    Ok(Found { texts, ended: said(outcome, record.is_some()) })
}

/// A verdict speaks for itself; what kept a job from one does not stand in any record.
fn said(outcome: &JobOutcome, has_record: bool) -> Option<String> {
    match outcome {
        JobOutcome::Win { adopted: true } | JobOutcome::NoGain { .. } | JobOutcome::Undecided if has_record => None,
        outcome => Some(show::job_outcome(outcome)),
    }
}
