//! What `thermite doctor` says of cards: their driver, and what each does not tell.

use crate::binary::{Said, command};

use super::house::library;

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
