//! The settings of a GPU rig: each that cannot be is one clear line that names it.

use std::path::PathBuf;

use thermite_core::contract::Target;
use thermite_svc::settings::{CardName, Cards, Devices, Given, GpuSettings, Settings, Sharing};

use super::house::CardHouse;

#[test]
fn a_rig_is_of_cpus_unless_gpus_are_asked_for() {
    let plain = read(&[]).unwrap();
    let gpus = read(&[("THERMITE_TARGET", "cuda-gpu")]).unwrap();
    let some = read(&[
        ("THERMITE_TARGET", "cuda-gpu"),
        ("THERMITE_GPUS", "2, GPU-5eed"),
        ("THERMITE_SPLIT", "shared"),
        ("THERMITE_NVML_LIB", "/proc/self/exe"),
    ]);

    assert_eq!(plain.devices, Devices::Cpu);
    assert_eq!(gpus.devices.target(), Target::CudaGpu);
    assert_eq!(gpus.devices, Devices::Gpus(GpuSettings { cards: Cards::All, library: None, sharing: Sharing::Split }));
    let cards = Cards::Named(vec![CardName::Index(2), CardName::Uuid("GPU-5eed".into())]);
    let library = Some(PathBuf::from("/proc/self/exe"));
    assert_eq!(some.unwrap().devices, Devices::Gpus(GpuSettings { cards, library, sharing: Sharing::Shared }));
}

#[test]
fn a_setting_of_cards_that_cannot_be_is_named() {
    const GPU: (&str, &str) = ("THERMITE_TARGET", "cuda-gpu");
    let said = |settings: &[(&str, &str)]| read(settings).unwrap_err().to_string();

    assert_eq!(said(&[("THERMITE_TARGET", "gpu")]), "THERMITE_TARGET is gpu; it must be cpu or cuda-gpu");
    for (name, value) in [("THERMITE_GPUS", "0"), ("THERMITE_SPLIT", "shared")] {
        let expected = format!("{name} is {value}; it must be left out unless THERMITE_TARGET is cuda-gpu");
        assert_eq!(said(&[(name, value)]), expected);
    }
    for wrong in ["0,0", "0,", "first", "-1", "gpu-5", "GPU-a b", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"] {
        let sentence = said(&[GPU, ("THERMITE_GPUS", wrong)]);
        let expected = format!("THERMITE_GPUS is {wrong}; it must be all, or at most 16 cards with commas between");
        assert!(sentence.starts_with(&expected), "{sentence}");
    }
    assert_eq!(said(&[GPU, ("THERMITE_SPLIT", "half")]), "THERMITE_SPLIT is half; it must be split or shared");
    assert!(
        said(&[GPU, ("THERMITE_NVML_LIB", "nvml.so")]).starts_with("THERMITE_NVML_LIB is nvml.so; it must be an abs")
    );
    assert!(said(&[("THERMITE_DEVICE_NODES", "dev")]).ends_with("an absolute path of a folder, such as /dev"));
}

#[test]
fn a_card_that_is_not_there_ends_the_process_with_one_line() {
    let Some(house) = CardHouse::with(vec!["Stand-in A"], &[("THERMITE_GPUS", "5")]) else { return };

    let said = house.say(&["serve", "--listen", "127.0.0.1:0"]);

    assert_eq!(said.code, Some(70), "{said:?}");
    let expected = format!("thermite: THERMITE_GPUS names card 5; this machine has 0 ({}, Stand-in A)", house.uuid(0));
    assert!(said.err.trim_end().ends_with(&expected), "{said:?}");
}

#[test]
fn a_card_without_a_device_node_is_no_card_of_a_rig() {
    let Some(house) = CardHouse::of(1) else { return };
    std::fs::remove_file(house.path("dev/nvidia0")).unwrap();

    let said = house.say(&["serve", "--listen", "127.0.0.1:0"]);

    assert_eq!(said.code, Some(70), "{said:?}");
    assert!(said.err.contains(&format!("card {} has no device node", house.uuid(0))), "{said:?}");
}

#[test]
fn two_rigs_never_have_one_card() {
    let Some(house) = CardHouse::of(1) else { return };
    house.start();

    let other = house.path("other").display().to_string();
    let said = house.say(&["serve", "--listen", "127.0.0.1:0", "--data", &other]);

    assert_eq!(said.code, Some(75), "{said:?}");
    assert!(said.err.contains(&format!("device Stand-in A ({}) is another rig's", house.uuid(0))), "{said:?}");
    house.end();
}

fn read(settings: &[(&str, &str)]) -> Result<Settings, thermite_svc::settings::SettingFault> {
    Settings::read(Given::default(), |asked| {
        let found = settings.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
        found.or_else(|| (asked == "HOME").then(|| "/home/ada".to_owned()))
    })
}
