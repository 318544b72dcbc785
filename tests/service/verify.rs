//! `thermite verify` on a true record: as a file, and by its hash or its job's id in a data folder that no rig serves.

#[path = "../rules/scripted.rs"]
#[expect(dead_code, reason = "shared with the tests of the rules, which use all of it")]
pub(crate) mod scripted;

use thermite_actors::ports::{Batch, Records};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;
use thermite_core::record::VerdictRecord;
use thermite_core::stage::StageEnd;
use thermite_svc::records::SqliteRecords;

use crate::binary::{Said, command};
use crate::support::block_on;

#[test]
fn a_record_holds_as_a_file_by_its_hash_and_by_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let record = record();
    let file = folder.path().join("record.json");
    std::fs::write(&file, record.to_json()).unwrap();
    let data = folder.path().join("data");
    store(&data, &record);

    for name in [file.to_str().unwrap(), &record.sha256, &record.facts.job.to_string()] {
        let said = Said::by(command(&["verify", name]).env("THERMITE_DATA", &data).output().unwrap());

        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        let (blocks, sha256) = (record.after.len(), &record.sha256);
        assert!(said.out.starts_with("the record holds: win; lower bound +"), "{name}: {said:?}");
        assert!(said.out.ends_with(&format!("; {blocks} blocks, 0 thrown; sha256 {sha256}\n")), "{name}: {said:?}");
    }
}

#[test]
fn what_never_ends_and_what_is_too_large_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.json");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();

    let device = Said::by(command(&["verify", "/dev/zero"]).output().unwrap());
    let large = Said::by(command(&["verify", large.to_str().unwrap()]).output().unwrap());

    let sentence = "record /dev/zero is not there: it is no file; give a record's file";
    assert!(device.refused_with(69).contains(sentence), "{device:?}");
    assert!(large.refused_with(69).contains("a record has at most 16777216"), "{large:?}");
}

#[test]
fn a_record_with_one_figure_changed_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let mut record = record();
    record.after[3].ln_w += 0.5;
    record.sha256 = record.hash();
    std::fs::write(&file, record.to_json()).unwrap();

    let said = Said::by(command(&["verify", file.to_str().unwrap()]).output().unwrap());
    let json = Said::by(command(&["verify", "--json", file.to_str().unwrap()]).output().unwrap());

    assert!(said.refused_with(1).contains(" does not hold: "), "{said:?}");
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &value["holds"]), (Some(1), &false.into()), "{json:?}");
}

/// A confirmation that a tenth less time wins.
fn record() -> VerdictRecord {
    let end = scripted::Rig::new(scripted::confirmation())
        .run(|now, step| scripted::well(now, step, 0.9, now.as_millis() % 90_000));
    match end {
        StageEnd::Decided { record, .. } => *record,
        end @ (StageEnd::Built { .. } | StageEnd::ChangeFailed { .. } | StageEnd::Infrastructure { .. }) => {
            panic!("{end:?}")
        }
    }
}

fn store(data: &std::path::Path, record: &VerdictRecord) {
    std::fs::create_dir(data).unwrap();
    let records = SqliteRecords::open(data).unwrap();
    let entry = LogEntry::JobEnded {
        job: record.facts.job,
        outcome: JobOutcome::Win { adopted: true },
        record: Some(record.sha256.clone()),
    };
    let batch = Batch { entries: vec![entry], records: vec![record.clone()], ..Batch::default() };
    block_on(async {
        records.append(batch).await.unwrap();
        records.close().await.unwrap();
    });
}
