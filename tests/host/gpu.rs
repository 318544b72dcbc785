//! The driver of cards over the real wrapper and the fake library: what it lists, reads, and makes of faults, with the
//! other cards unaffected and recovery by itself (rules A7, B10, D1).

use std::path::Path;
use std::time::Duration;

use thermite_actors::host::gpu::{Cards, CardsFault};
use thermite_actors::ports::{DeviceFault, StopProof, TargetDriver};
use thermite_actors::testing::fake_nvml::{FakeCard, FakeCards, FakeNvml};
use thermite_core::contract::Target;
use thermite_core::limits;
use thermite_core::readiness::{SignalState, names};

#[path = "gpu/fake.rs"]
pub(crate) mod fake;

use fake::{PATIENCE, Rack, block_on, built, fault, fresh, lacking, ready, threads_of};

/// How many cards a machine of these tests has.
const COUNTS: [u32; 4] = [1, 2, 3, 8];

#[test]
fn cards_are_listed_in_nvmls_order_with_all_that_they_say() {
    for count in COUNTS {
        let rack = Rack::of(count);

        let cards = rack.cards.list();

        assert_eq!(cards.len(), count as usize);
        for (card, number) in cards.iter().zip(0..) {
            assert_eq!((card.index, card.minor), (number, Some(number)));
            assert_eq!(card.uuid, rack.fake.cards().cards[number as usize].uuid);
            assert_eq!((card.model.as_str(), card.driver_version.as_str()), ("NVIDIA H200", "580.82.07"));
            assert_eq!(card.pci_bus_id.as_deref(), Some(format!("00000000:{:02X}:00.0", number + 0x10).as_str()));
            assert_eq!((card.cpus.as_deref(), card.is_mig), (Some("0"), Some(false)));
            assert_eq!(card.memory_total, Some(143_771 * 1024 * 1024));
        }
        let facts = rack.drivers()[0].facts();
        assert_eq!((facts.target, facts.uuid.as_str()), (Target::CudaGpu, cards[0].uuid.as_str()));
        assert_eq!((facts.driver.as_str(), facts.clock_policy.as_str()), ("nvidia 580.82.07", "up to 1980 MHz"));
        assert_eq!((facts.cpus.as_str(), facts.cores), ("0", 1));
    }
}

#[test]
fn idle_cards_are_ready_and_each_has_one_thread_that_ends_with_its_driver() {
    let mut names = Vec::new();
    for count in COUNTS {
        let rack = Rack::of(count);
        let drivers = rack.drivers();
        let again = rack.drivers();
        block_on(async {
            for driver in &drivers {
                let reading = ready(driver).await;
                assert!(reading.signals.iter().filter(|signal| signal.required).count() >= 5);
            }
        });
        let uuids = || rack.cards.list().into_iter().map(|card| card.uuid);
        for uuid in uuids() {
            assert_eq!(threads_of(&uuid), 1, "asked twice, one thread");
        }
        names.extend(uuids());
        drop(again);
    }
    let began = std::time::Instant::now();
    while names.iter().any(|uuid| threads_of(uuid) > 0) {
        assert!(began.elapsed() < PATIENCE, "threads are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What can be wrong with one card, and what is said of it.
struct Wrong {
    put: fn(&mut FakeCard),
    is_it: fn(&DeviceFault) -> bool,
    says: &'static str,
}

#[test]
fn a_card_at_fault_says_so_and_the_others_are_ready_until_it_comes_back_by_itself() {
    let wrongs = [
        Wrong {
            put: |card| card.fail("*", "GpuLost"),
            is_it: |fault| matches!(fault, DeviceFault::Lost(_)),
            says: "is lost (device fell off the bus or has otherwise become inacessible); reset it (`nvidia-smi \
                   --gpu-reset`) or restart the machine",
        },
        Wrong {
            put: |card| card.fail("nvmlDeviceGetTemperature", "ResetRequired"),
            is_it: |fault| matches!(fault, DeviceFault::Lost(_)),
            says: "is lost (device requires a reset before it can be used again); reset it",
        },
        Wrong {
            put: |card| card.fail("*", "LibRmVersionMismatch"),
            is_it: |fault| matches!(fault, DeviceFault::Mismatch(_)),
            says: "the NVIDIA driver in the kernel and its library differ (RM detects a driver/library version mismatch); \
                   load the driver anew or restart the machine, and in a container start the container anew",
        },
        Wrong {
            put: |card| card.fail("nvmlDeviceGetUtilizationRates", "NoPermission"),
            is_it: |fault| matches!(fault, DeviceFault::AccessLost(_)),
            says: "give its account access to /dev/nvidia*, and in a container start the container anew with the card",
        },
        Wrong {
            put: |card| card.fail("*", "OperatingSystem"),
            is_it: |fault| matches!(fault, DeviceFault::AccessLost(_)),
            says: "(device control has been blocked by the operating system/cgroups)",
        },
        Wrong {
            put: |card| card.mig = Some(true),
            is_it: |fault| matches!(fault, DeviceFault::Mig(_)),
            says: "is in MIG mode, in which nothing is measured; turn it off (`nvidia-smi -i ",
        },
        Wrong {
            put: |card| card.fail("*", "DriverNotLoaded"),
            is_it: |fault| matches!(fault, DeviceFault::Other(_)),
            says: "the NVIDIA driver does not answer (NVIDIA driver is not loaded); load it (`modprobe nvidia`)",
        },
        Wrong {
            put: |card| card.fail("nvmlDeviceGetPowerUsage", "Unknown"),
            is_it: |fault| matches!(fault, DeviceFault::Other(_)),
            says: "cannot be read: nvmlDeviceGetPowerUsage says `an internal driver error occurred`; in a container",
        },
        Wrong {
            put: |card| card.uuid.push_str("-gone"),
            is_it: |fault| matches!(fault, DeviceFault::Lost(_)),
            says: "is lost (a query to find an object was unsuccessful)",
        },
    ];
    for (count, wrong) in COUNTS.into_iter().cycle().zip(&wrongs) {
        let rack = Rack::of(count);
        let drivers = rack.drivers();
        let at = count as usize / 2;
        let uuid = rack.cards.list()[at].uuid.clone();
        block_on(async {
            for driver in &drivers {
                ready(driver).await;
            }

            rack.change(at, wrong.put);

            let said = fault(&drivers[at]).await;
            assert!((wrong.is_it)(&said), "{said:?}");
            assert!(said.to_string().contains(wrong.says), "{said}");
            let told = tokio::time::timeout(PATIENCE, drivers[at].at_fault()).await.unwrap();
            assert_eq!(told, said);
            let proof = drivers[at].released(limits::PROOF_MAX).await;
            assert_eq!(proof, StopProof::NotProved { why: said.to_string() }, "a card at fault proves nothing");
            for (_, other) in drivers.iter().enumerate().filter(|(place, _)| *place != at) {
                assert_eq!(other.read().await.unwrap().not_ready(), None);
                assert_eq!(other.released(limits::PROOF_MAX).await, StopProof::Empty);
            }

            rack.change(at, |card| card.uuid.clone_from(&uuid));
            rack.mend(at);

            ready(&drivers[at]).await;
            assert_eq!(drivers[at].released(limits::PROOF_MAX).await, StopProof::Empty);
        });
    }
}

#[test]
fn a_call_that_hangs_makes_its_card_unresponsive_and_no_other_and_takes_no_second_thread() {
    for count in COUNTS {
        let rack = Rack::of(count);
        let drivers = rack.drivers();
        let at = count as usize - 1;
        let uuid = rack.cards.list()[at].uuid.clone();
        block_on(async {
            for driver in &drivers {
                ready(driver).await;
            }

            rack.change(at, |card| card.hangs.push("nvmlDeviceGetTemperature".to_owned()));

            let said = fault(&drivers[at]).await;
            assert_eq!(
                said,
                DeviceFault::Hung(format!(
                    "card {uuid} is unresponsive: nvmlDeviceGetTemperature has not come back for 5.0 s; it returns by \
                     itself once the call does, else restart the machine"
                ))
            );
            for _ in 0..3 {
                assert_eq!(fault(&drivers[at]).await, said);
                assert_eq!(drivers[at].at_fault().await, said);
            }
            assert_eq!(threads_of(&uuid), 1, "the thread is not replaced");
            for other in &drivers[..at] {
                assert_eq!(other.read().await.unwrap().not_ready(), None);
            }

            rack.mend(at);

            ready(&drivers[at]).await;
            assert_eq!(threads_of(&uuid), 1);
        });
    }
}

#[test]
fn the_driver_may_go_and_be_loaded_anew() {
    let rack = Rack::of(2);
    let drivers = rack.drivers();
    block_on(async {
        ready(&drivers[0]).await;

        rack.fake.change(|cards| cards.fails.push(("*".to_owned(), "DriverNotLoaded".to_owned()))).unwrap();
        for driver in &drivers {
            assert!(fault(driver).await.to_string().contains("NVIDIA driver is not loaded"));
        }
        rack.fake.change(|cards| cards.fails.clear()).unwrap();

        for driver in &drivers {
            ready(driver).await;
        }
    });
}

#[test]
fn each_signal_of_a_card_is_read() {
    type Put = fn(&mut FakeCard);
    let signals: [(Put, &str); 6] = [
        (|card| card.usage = Some(64), "gpu_use 64.00 of at most 5.00 %"),
        (|card| card.memory = Some((143_771, 60_000)), "gpu_memory 60000.00 of at most 3475.42 MiB"),
        (|card| card.computes = vec![(4711, 100)], "other_programs 1.00 of at most 0.00 programs"),
        (|card| card.temperature = Some(78), "temperature 78.00 of at most 77.00 C"),
        (|card| card.reasons = Some(0x8), "slowed 8.00 (hardware slow-down)"),
        (|card| card.usage = None, "gpu_use is unknown"),
    ];
    let rack = Rack::of(2);
    let drivers = rack.drivers();
    block_on(async {
        for (put, says) in signals {
            ready(&drivers[1]).await;

            rack.change(1, put);

            let why = lacking(&drivers[1], says).await;
            assert!(why.contains(says), "{why}");
            assert_eq!(drivers[0].read().await.unwrap().not_ready(), None, "the other card is another card");
            rack.mend(1);
        }
        ready(&drivers[1]).await;
    });
}

#[test]
fn bits_that_nobody_has_named_are_told_and_judged_by_nobody() {
    let rack = Rack::of(1);
    rack.change(0, |card| card.reasons = Some(0x8201));
    let driver = &rack.drivers()[0];

    let reading = block_on(ready(driver));

    let told = |name: &str| reading.signals.iter().find(|signal| signal.name == name).unwrap().value;
    assert_eq!(told("clock_reasons"), Some(f64::from(0x8201)));
    assert_eq!(told("unnamed_clock_reasons"), Some(f64::from(0x8200)));
}

#[test]
fn a_gb10_without_memory_figures_is_ready_and_an_h200_without_them_is_not() {
    let mut cards = fresh(2);
    cards.cards[0].model = "NVIDIA GB10".to_owned();
    for card in &mut cards.cards {
        card.fail("nvmlDeviceGetMemoryInfo_v2", "NotSupported");
    }
    let rack = Rack::with(cards);
    let drivers = rack.drivers();

    block_on(async {
        let reading = ready(&drivers[0]).await;
        let memory = reading.signals.iter().find(|signal| signal.name == names::GPU_MEMORY).unwrap();
        assert_eq!((memory.value, memory.state, memory.required), (None, SignalState::Unknown, false));
        assert!(drivers[0].untold().await.unwrap().contains(&names::GPU_MEMORY.to_owned()));
        assert_eq!(drivers[0].released(limits::PROOF_MAX).await, StopProof::Empty);

        assert_eq!(lacking(&drivers[1], "gpu_memory is unknown").await, "gpu_memory is unknown");
    });
}

#[test]
fn a_board_that_tells_next_to_nothing_is_listed_and_never_ready() {
    let mut cards = fresh(1);
    let uuid = cards.cards[0].uuid.clone();
    cards.cards[0] = FakeCard { uuid, model: "Orin".to_owned(), ..FakeCard::default() };
    cards.cards[0].fail("nvmlDeviceGetComputeRunningProcesses_v3", "NotSupported");
    let rack = Rack::with(cards);
    let driver = &rack.drivers()[0];

    block_on(async {
        let why = lacking(driver, "unknown").await;
        for signal in [names::GPU_USE, names::GPU_MEMORY, names::OTHER_PROGRAMS, names::TEMPERATURE, names::SLOWED] {
            assert!(why.contains(&format!("{signal} is unknown")), "{why}");
        }
        let StopProof::NotProved { why } = driver.released(limits::PROOF_MAX).await else { panic!("it was proved") };
        assert_eq!(why, "nothing proves that the card is free: other_programs is unknown");
    });
}

#[test]
fn what_is_left_on_a_card_is_named_and_the_release_is_proved_once_it_is_gone() {
    for count in COUNTS {
        let rack = Rack::of(count);
        let drivers = rack.drivers();
        let own = std::process::id();
        block_on(async {
            for driver in &drivers {
                ready(driver).await;
            }

            rack.change(0, |card| {
                card.computes = vec![(own, 3_000), (4_194_300, 7)];
                card.memory = Some((143_771, 3_607));
            });

            let StopProof::NotProved { why } = drivers[0].released(limits::GPU_LOOK_EVERY).await else {
                panic!("it was proved");
            };
            assert!(why.starts_with(&format!("the card still lists pid {own} (")), "{why}");
            assert!(why.contains("3000 MiB), pid 4194300 (not to be seen from here, 7 MiB)"), "{why}");
            assert!(why.ends_with("with 3607 MiB of its memory in use"), "{why}");
            for other in &drivers[1..] {
                assert_eq!(other.released(limits::PROOF_MAX).await, StopProof::Empty);
            }

            // Its process is gone and its memory is not: a driver that lost count of it.
            rack.change(0, |card| card.computes.clear());
            let StopProof::NotProved { why } = drivers[0].released(limits::GPU_LOOK_EVERY).await else {
                panic!("it was proved");
            };
            assert!(why.starts_with("3607 MiB of the card's memory is in use and no program is listed"), "{why}");

            // It goes while the proof is waited for.
            let (proof, ()) = tokio::join!(drivers[0].released(PATIENCE_SPAN), async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                rack.mend(0);
            });
            assert_eq!(proof, StopProof::Empty);
            ready(&drivers[0]).await;
        });
    }
}

const PATIENCE_SPAN: thermite_core::time::Span = thermite_core::time::Span::seconds(PATIENCE.as_secs());

#[test]
fn a_card_is_known_by_its_uuid_however_nvml_orders_them() {
    let mut cards = fresh(3);
    for (card, degrees) in cards.cards.iter_mut().zip([31, 32, 33]) {
        card.temperature = Some(degrees);
    }
    let rack = Rack::with(cards);
    let drivers = rack.drivers();
    let heat = |reading: &thermite_core::readiness::Reading| {
        reading.signals.iter().find(|signal| signal.name == names::TEMPERATURE).unwrap().value
    };
    block_on(async {
        for (driver, degrees) in drivers.iter().zip([31.0, 32.0, 33.0]) {
            assert_eq!(heat(&ready(driver).await), Some(degrees));
        }

        rack.fake.change(|cards| cards.cards.reverse()).unwrap();

        for (driver, degrees) in drivers.iter().zip([31.0, 32.0, 33.0]) {
            assert_eq!(heat(&ready(driver).await), Some(degrees), "{}", driver.facts().uuid);
        }
        let listed_anew = Cards::open(Some(rack.fake.library())).unwrap();
        let places: Vec<u32> = drivers
            .iter()
            .map(|driver| listed_anew.list().iter().find(|card| card.uuid == driver.facts().uuid).unwrap().index)
            .collect();
        assert_eq!(places, [2, 1, 0]);
    });
}

#[test]
fn why_there_are_no_cards_is_said_with_the_way_out() {
    let open = |cards: FakeCards| {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeNvml::place(built(), folder.path(), cards).unwrap();
        Cards::open(Some(fake.library())).map(|cards| cards.list()).map_err(|fault| fault.to_string())
    };
    let failing = |error: &str| {
        let mut cards = fresh(1);
        cards.fails.push(("nvmlInit_v2".to_owned(), error.to_owned()));
        open(cards).unwrap_err()
    };

    assert_eq!(
        failing("DriverNotLoaded"),
        "the NVIDIA driver does not answer (NVIDIA driver is not loaded); load it (`modprobe nvidia`) or install it"
    );
    assert!(failing("LibRmVersionMismatch").contains("its library differ"));
    assert!(failing("NoPermission").starts_with("the rig may not open the machine's cards (the current user"));
    assert!(failing("NoPermission").contains("give its account access to /dev/nvidia*"));
    assert!(failing("Unknown").starts_with("the machine's cards cannot be listed: nvmlInit_v2 says `"));
    assert_eq!(open(fresh(0)), Ok(Vec::new()));

    let none = Cards::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).map(|_| ()).unwrap_err();
    assert!(matches!(none, CardsFault::NoLibrary { .. }), "{none:?}");
    assert!(none.to_string().starts_with("no NVIDIA management library is here ("), "{none}");
}

#[test]
fn a_library_that_hangs_while_it_lists_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut cards = fresh(1);
    cards.hangs.push("nvmlDeviceGetCount_v2".to_owned());
    let fake = FakeNvml::place(built(), folder.path(), cards).unwrap();

    let hung = Cards::open(Some(fake.library())).map(|_| ()).unwrap_err();
    // The call may come back: the library's file must not be gone by then.
    fake.change(|cards| cards.hangs.clear()).unwrap();

    assert_eq!(
        hung.to_string(),
        "the NVIDIA management library is unresponsive: nvmlDeviceGetCount_v2 has not come back for 10 s; restart the \
         machine"
    );
}

#[test]
fn a_card_that_cannot_be_described_does_not_hide_the_others() {
    type Put = fn(&mut FakeCard);
    let wrongs: [(Put, &str); 4] = [
        (|card| card.fail("*", "GpuLost"), "card number 1 is lost ("),
        // Gone between two questions, of which the first were answered.
        (|card| card.fail("nvmlDeviceGetMinorNumber", "GpuLost"), "card number 1 is lost ("),
        (
            |card| card.hangs.push("nvmlDeviceGetName".to_owned()),
            "card number 1 is unresponsive: nvmlDeviceGetName has not come back for 10 s; ",
        ),
        (
            |card| card.hangs.push("nvmlDeviceGetHandleByIndex_v2".to_owned()),
            "card number 1 is unresponsive: nvmlDeviceGetHandleByIndex_v2 has not come back for 10 s; ",
        ),
    ];
    for (put, says) in wrongs {
        let mut cards = fresh(3);
        put(&mut cards.cards[1]);
        let rack = Rack::with(cards);

        let places: Vec<u32> = rack.cards.list().iter().map(|card| card.index).collect();
        let unreadable = rack.cards.unreadable();
        // A call that hangs may come back: the library's file must not be gone by then.
        rack.mend(1);

        assert_eq!(places, [0, 2], "{says}");
        assert_eq!(unreadable.len(), 1, "{says}");
        assert_eq!(unreadable[0].index, 1);
        assert!(unreadable[0].fault.to_string().starts_with(says), "{:?}", unreadable[0].fault);
    }
}

#[test]
fn a_card_at_fault_has_no_newest_reading_and_one_that_is_back_has() {
    let wrongs: [fn(&mut FakeCard); 3] = [
        |card| card.fail("*", "GpuLost"),
        |card| card.hangs.push("nvmlDeviceGetTemperature".to_owned()),
        |card| card.mig = Some(true),
    ];
    for put in wrongs {
        let rack = Rack::of(2);
        let drivers = rack.drivers();
        block_on(async {
            ready(&drivers[0]).await;
            ready(&drivers[1]).await;

            rack.change(0, put);
            fault(&drivers[0]).await;

            assert_eq!(drivers[0].latest(), None);
            assert!(drivers[1].latest().is_some());
            rack.mend(0);
            ready(&drivers[0]).await;
            assert!(drivers[0].latest().is_some());
        });
    }
}

#[test]
fn a_card_that_is_not_there_is_refused_by_name() {
    let rack = Rack::of(1);
    let there = rack.cards.list()[0].uuid.clone();

    let refused = rack.cards.driver("GPU-none").map(|_| ()).unwrap_err();

    assert_eq!(refused.to_string(), format!("there is no card GPU-none; this machine has {there}"));
}
