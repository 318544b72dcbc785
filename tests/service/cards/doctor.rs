//! What `thermite doctor` says of cards: their driver, and what each does not tell.

use crate::binary::{Said, command};

use super::house::{CardHouse, library};

#[test]
fn the_driver_and_every_card_are_told_with_what_they_do_not_tell() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("libnvidia-ml.so.1");
    std::fs::copy(library(), &own).unwrap();
    let idle = "memory 143771 600\nuse 0\ntemperature 41\nslow_down_at 87\nreasons 1\nclocks 345 2619\npower 75000\nmig 0\n\
                minor 0\ncpus 1\n";
    let state = format!(
        "driver 580.82.07\ncard\nuuid GPU-a\nname NVIDIA H200\n{idle}card\nuuid GPU-b\nname NVIDIA GB10\n{idle}\
         fails nvmlDeviceGetMemoryInfo_v2 NotSupported\ncard\nuuid GPU-c\nname NVIDIA H200\n{idle}fails * GpuLost\n"
    );
    std::fs::write(folder.path().join("libnvidia-ml.so.1.state"), state).unwrap();
    let mut doctor = command(&["doctor"]);
    doctor.env("THERMITE_DATA", folder.path().join("data")).env("THERMITE_DEVICE_LOCKS", folder.path());
    doctor.env("THERMITE_NVML_LIB", &own);

    let said = Said::by(doctor.output().unwrap());

    for line in [
        "driver 580.82.07; card 0: GPU-a (NVIDIA H200), tells everything; card 1: GPU-b (NVIDIA GB10), does not tell \
         gpu_memory; card 2: not described, cannot be read",
        "card number 2 is lost (device fell off the bus or has otherwise become inacessible); reset it",
    ] {
        assert!(said.out.contains(line), "{}", said.out);
    }
}

#[test]
fn a_rig_on_cards_is_looked_at_as_it_would_be_served() {
    let Some(house) = CardHouse::of(2) else { return };

    let free = house.say(&["doctor"]);
    house.start();
    let taken = house.say(&["doctor"]);
    house.end();
    std::fs::remove_file(house.path("dev/nvidia1")).unwrap();
    let unfit = house.say(&["doctor"]);

    assert_eq!(free.code, Some(0), "{free:?}");
    assert!(free.out.contains("device 0: ") && !free.out.contains("taken: "), "{}", free.out);
    for card in 0..2 {
        let told = format!("a rig has Stand-in A ({}): process ", house.uuid(card));
        assert!(taken.out.contains(&told), "{}", taken.out);
    }
    assert_eq!(unfit.code, Some(1), "{unfit:?}");
    let served = house.say(&["serve", "--listen", "127.0.0.1:0"]);
    let why = served.err.trim_end().lines().last().unwrap().trim_start_matches("thermite: ").to_owned();
    assert!(unfit.out.contains(&format!("missing: {why}")), "{} against {why}", unfit.out);
}
