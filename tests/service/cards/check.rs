//! `tests/gpu-check.sh`: what it says where there is no GPU, and its whole way over the fake library.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use thermite_actors::host::gpu::CardFacts;
use thermite_svc::device_lock::{self, DeviceLock, LockState};

use crate::binary::{Said, thermite};

use super::house::CardHouse;

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../gpu-check.sh")
}

/// The script with the stand-in for nvcc before all else on `PATH`, and nothing of this machine's own settings.
fn check() -> Command {
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/cuda");
    let mut check = Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THERMITE_")) {
        check.env_remove(name);
    }
    check.arg(script()).arg(thermite()).env("PATH", format!("{stand_in}:{}", std::env::var("PATH").unwrap()));
    check.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    check
}

#[test]
fn where_there_is_no_gpu_it_says_what_is_missing_by_a_code_of_its_own() {
    let empty = tempfile::tempdir().unwrap();
    let no_library = empty.path().join("libnvidia-ml.so.1");
    std::fs::write(&no_library, "no library").unwrap();

    let said = Said::by(check().env("THERMITE_NVML_LIB", &no_library).output().unwrap());
    let no_binary = Command::new("sh").arg(script()).arg("/bin/false").output().unwrap();

    assert_eq!((said.code, said.out.as_str()), (Some(77), ""), "{said:?}");
    assert!(said.err.starts_with("gpu-check: nothing to check here: "), "{said:?}");
    assert!(said.err.contains("NVIDIA management library"), "{said:?}");
    assert_eq!(no_binary.status.code(), Some(64));
}

#[test]
fn a_card_that_a_rig_of_the_machine_has_is_left_alone() {
    let Some(house) = CardHouse::of(1) else { return };
    let locks = device_lock::default_folder();
    let card = CardFacts {
        index: 0,
        uuid: house.uuid(0),
        model: "Stand-in A".into(),
        driver_version: String::new(),
        minor: None,
        pci_bus_id: None,
        cpus: None,
        is_mig: None,
        memory_total: None,
        sm_clock_max: None,
    };
    let held = DeviceLock::take(&locks, &card.device_facts(), &house.path("data")).unwrap();

    let said = Said::by(house.surround(check()).env_remove("THERMITE_DEVICE_LOCKS").output().unwrap());
    drop(held);
    let LockState::Free(file) = DeviceLock::look(&locks, &card.device_facts()) else { panic!("nobody has it") };
    std::fs::remove_file(file).unwrap();

    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains(&format!("device Stand-in A ({}) is another rig's", card.uuid)), "{said:?}");
}

#[test]
fn its_whole_way_ends_well_over_a_card_that_is_a_stand_in() {
    if std::env::var_os("THERMITE_LONG").is_none_or(|value| value != "1") {
        println!("left out: minutes of blocks; THERMITE_LONG=1 runs it");
        return;
    }
    // Another card is there, so that there is something to be kept from.
    let Some(house) = CardHouse::of(2) else { return };

    // Another rig's address in the environment is nobody that it asks.
    let said = Said::by(house.surround(check()).env("THERMITE_URL", "http://127.0.0.1:1").output().unwrap());

    println!("{}{}", said.out, said.err);
    assert_eq!(said.code, Some(0), "{said:?}");
    for row in ["card", "idle", "isolation", "busy", "containment", "comparison", "noise", "end"] {
        let line = said.out.lines().find(|line| line.split_whitespace().next() == Some(row));
        assert_eq!(line.and_then(|line| line.split_whitespace().nth(1)), Some("pass"), "{row}: {}", said.out);
    }
}
