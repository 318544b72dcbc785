//! The CPU driver, fed readings: load, own share, direct sample, quotas, CPU sets, control groups v1, v2 and hybrid.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::cpu::cgroups::{self, Version};
use thermite_actors::host::cpu::proc_files::{self, CpuList};
use thermite_actors::ports::TargetDriver;
use thermite_core::block::{ThrowCause, throw_causes};
use thermite_core::limits;
use thermite_core::readiness::{Clocks, Reading, Signal, SignalState, ThrottleCounter};
use thermite_core::time::Moment;

#[test]
fn the_gate_is_three_quarters_of_the_cores() {
    for (load, state) in [("2.99", SignalState::Ok), ("3.00", SignalState::Ok), ("3.01", SignalState::Busy)] {
        let machine = Machine::with_cores(4);
        machine.write("proc/loadavg", &format!("{load} 9.00 9.00 1/200 77\n"));

        let reading = machine.read_after(1_000);

        let load1 = signal(&reading, "load1");
        assert_eq!((load1.state, load1.limit, load1.required), (state, Some(3.0), true), "load {load}");
    }
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_zero() {
    let machine = Machine::with_cores(4);
    machine.remove("proc/loadavg");
    machine.remove("proc/stat");
    machine.remove("proc/pressure/cpu");

    let reading = machine.read_after(1_000);

    for name in ["load1", "direct_sample", "cpu_pressure"] {
        let signal = signal(&reading, name);
        assert_eq!((signal.value, signal.state), (None, SignalState::Unknown), "{name}");
    }
}

#[test]
fn a_broken_load_is_unknown() {
    for text in ["", "nan 0 0", "-1 0 0", "inf 0 0", "word"] {
        assert_eq!(proc_files::load1(text), None, "{text:?}");
    }
}

#[test]
fn other_programs_use_is_sampled_over_the_time_since_an_earlier_reading() {
    let machine = Machine::with_cores(4);
    machine.busy([100, 0, 0, 20]); // 1.2 CPU-seconds in one second.

    let reading = machine.read_after(1_000);

    let other = signal(&reading, "direct_sample");
    assert_eq!((other.value, other.limit, other.state), (Some(1.2), Some(1.0), SignalState::Busy));
}

#[test]
fn what_the_rig_and_all_it_ran_used_is_taken_off_the_direct_sample() {
    let machine = Machine::with_cores(4);
    machine.busy([100, 0, 0, 30]);
    // 0.1 s of its own, 0.2 s in the kernel, 0.5 s and 0.3 s of children it has reaped.
    machine.write("proc/self/stat", "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 10 20 50 30 20 0 1 0 0 0 0");

    let reading = machine.read_after(1_000);

    let other = signal(&reading, "direct_sample");
    assert!((other.value.unwrap() - 0.2).abs() < 1e-9 && other.state == SignalState::Ok, "{other:?}");
}

#[test]
fn the_judges_own_share_is_taken_off_the_load() {
    let machine = Machine::with_cores(2);
    machine.write("proc/loadavg", "1.70 0 0 1/1 1\n");
    machine.driver.note_own_use(11_000_000_000, Moment::from_millis(0), Moment::from_millis(11_000));

    let reading = machine.read_after(1_000);

    // One CPU busy for 11 s has added 1 - e^(-11/60) to the average.
    let load1 = signal(&reading, "load1");
    let expected = 1.70 - (1.0 - (-11.0f64 / 60.0).exp());
    assert!((load1.value.unwrap() - expected).abs() < 1e-9, "{load1:?}, not {expected}");
    assert_eq!((load1.limit, load1.state), (Some(1.5), SignalState::Busy));
    assert!((signal(&reading, "load1_own").value.unwrap() + load1.value.unwrap() - 1.70).abs() < 1e-9);
}

#[test]
fn a_cpu_set_smaller_than_the_machine_makes_the_direct_sample_decide() {
    let machine = Machine::build(4, |machine| machine.write("proc/self/status", "Cpus_allowed_list:\t1-2\n"));
    machine.write("proc/loadavg", "40.0 0 0 1/1 1\n");
    machine.busy([100, 10, 0, 100]);

    let reading = machine.read_after(1_000);

    let host = signal(&reading, "load1_of_host");
    assert!(!host.required && host.value == Some(40.0));
    assert!(reading.signals.iter().all(|signal| signal.name != "load1"));
    let other = signal(&reading, "direct_sample");
    assert_eq!((other.value, other.limit, other.state), (Some(0.1), Some(0.5), SignalState::Ok));
    assert_eq!(signal(&reading, "cpu_set").value, Some(2.0));
    let facts = machine.driver.facts();
    assert_eq!((facts.cores, facts.cpus.as_str()), (2, "1-2"));
}

#[test]
fn a_quota_smaller_than_the_machine_is_said() {
    let machine = Machine::build(4, |machine| {
        machine.write("proc/self/cgroup", "0::/box/rig\n");
        machine.write("proc/self/mountinfo", "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        machine.write("sys/fs/cgroup/box/rig/cpu.max", "max 100000\n");
        machine.write("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
    });

    let reading = machine.read_after(1_000);

    assert_eq!(signal(&reading, "quota").value, Some(1.5));
    assert!(!signal(&reading, "load1_of_host").required);
    assert!(signal(&reading, "direct_sample").required);
}

#[test]
fn which_figure_decides_is_looked_at_anew_for_each_reading() {
    let machine = Machine::build(4, |machine| {
        machine.write("proc/self/cgroup", "0::/box\n");
        machine.write("proc/self/mountinfo", "30 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.write("cg/box/cpu.max", "max 100000\n");
        machine.write("cg/box/cpu.stat", "nr_throttled 1\nthrottled_usec 5\n");
    });
    let decides = |reading: &Reading| -> Vec<String> {
        reading.signals.iter().filter(|signal| signal.required).map(|signal| signal.name.clone()).collect()
    };

    let free = machine.read_after(1_000);
    machine.write("cg/box/cpu.max", "50000 100000\n");
    let held = machine.read_after(1_000);
    machine.write("cg/box/cpu.max", "max 100000\n");
    machine.write("proc/self/cgroup", "0::/\n");
    let moved = machine.read_after(1_000);
    machine.write("proc/self/status", "Cpus_allowed_list:\t2\n");
    let pinned = machine.read_after(1_000);

    assert_eq!(decides(&free), ["load1", "direct_sample"]);
    assert_eq!((decides(&held), signal(&held, "quota").value), (vec!["direct_sample".to_owned()], Some(0.5)));
    assert_eq!(decides(&moved), ["load1", "direct_sample"]);
    let groups = |reading: &Reading| reading.throttle.iter().map(|counter| counter.group.clone()).collect::<Vec<_>>();
    assert_eq!((groups(&held), groups(&moved)), (vec!["/box".to_owned(), "/".to_owned()], vec!["/".to_owned()]));
    // No sample of other CPUs is taken for one of these: the reading waits for its own.
    assert_eq!((decides(&pinned), signal(&pinned, "cpu_set").value), (vec!["direct_sample".to_owned()], Some(1.0)));
}

#[test]
fn where_lxcfs_shows_the_load_the_kernel_is_asked_and_the_direct_sample_decides() {
    let build = |schedstat: Option<&str>| {
        Machine::build(2, |machine| {
            let lxcfs = |file: &str| format!("60 1 0:40 /proc/{file} /proc/{file} rw - fuse.lxcfs lxcfs rw\n");
            machine.write("proc/self/mountinfo", &["loadavg", "stat"].map(lxcfs).concat());
            if let Some(text) = schedstat {
                machine.write("proc/schedstat", text);
            }
        })
    };
    let running =
        |ns: [u64; 2]| format!("version 17\ncpu0 0 0 1 1 1 1 {} 7 1\ncpu1 0 0 1 1 1 1 {} 7 1\n", ns[0], ns[1]);

    let host = build(Some(&running([0, 0])));
    host.write("proc/schedstat", &running([400_000_000, 500_000_000]));
    let by_host = host.read_after(1_000);
    let container = build(None);
    container.busy([20, 0]);
    let by_container = container.read_after(1_000);

    let load = |name: &str| signal(&by_host, name).value;
    assert_eq!((load("load1_of_host"), load("load1_by_lxcfs")), (Some(9.5), Some(0.1)), "both figures are recorded");
    let decides = by_host.signals.iter().filter(|signal| signal.required).map(|signal| signal.name.as_str());
    assert_eq!(decides.collect::<Vec<_>>(), ["direct_sample"]);
    let other = signal(&by_host, "direct_sample");
    assert_eq!((other.value, other.state), (Some(0.9), SignalState::Busy), "the host's, past the container's file");
    assert_eq!(signal(&by_container, "direct_sample").value, Some(0.2), "a container's view is all there is");
}

#[test]
fn what_holds_back_from_above_what_is_visible_is_counted_where_the_kernel_tells() {
    let machine = Machine::build(2, |machine| {
        machine.write("proc/self/cgroup", "0::/box\n");
        machine.write("proc/self/mountinfo", "30 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.write("cg/box/cpu.stat", "nr_throttled 0\nthrottled_usec 0\n");
    });
    let without = machine.read_after(1_000);

    machine.write("cg/box/cpu.stat.local", "throttled_usec 17\n");
    let with = machine.read_after(1_000);
    machine.write("cg/box/cpu.stat.local", "throttled_usec 19\n");
    let later = machine.read_after(1_000);

    assert_eq!(without.throttle.len(), 2, "a file that is not there is no counter");
    let group = "/box (its own quota or one above it)".to_owned();
    let counter = |held_ns| ThrottleCounter { group: group.clone(), periods: None, held_ns: Some(held_ns) };
    assert_eq!((&with.throttle[2], &later.throttle[2]), (&counter(17_000), &counter(19_000)));
    assert_eq!(throw_causes(&with, &later), [ThrowCause::Throttled { group }]);
}

#[test]
fn a_rig_that_is_started_again_goes_on_taking_off_what_its_judge_did() {
    let machine = Machine::build(2, |machine| machine.write("proc/sys/kernel/random/boot_id", "boot-1\n"));
    let file = machine.folder.path().join("own-share.json");
    machine.driver.remember_own_use(&file);
    // Both CPUs for a minute, until 10 s before the kill.
    machine.driver.note_own_use(120_000_000_000, Moment::from_millis(0), Moment::from_millis(10_000));
    machine.write("proc/loadavg", "1.40 0 0 1/1 1\n");
    let gate = |machine: &Machine, driver: &CpuDriver| {
        machine.clock.fetch_add(10_000, Ordering::SeqCst);
        let reading = driver.read_here();
        let figure = |name: &str| signal(&reading, name).value.unwrap();
        (signal(&reading, "load1").state, figure("load1"), figure("load1_own"))
    };

    let again = machine.again();
    again.remember_own_use(&file);
    let forgetful = machine.again();
    machine.write("proc/loadavg", "1.60 0 0 1/1 1\n");
    let remembered = gate(&machine, &again);
    let forgot = gate(&machine, &forgetful);

    assert_eq!(remembered.0, SignalState::Ok, "{remembered:?}");
    assert!((remembered.1 + remembered.2 - 1.60).abs() < 1e-9 && remembered.2 > 0.5, "{remembered:?}");
    assert_eq!((forgot.0, forgot.2), (SignalState::Busy, 0.0), "it would wait for its own work to fade");
}

#[test]
fn a_share_of_another_boot_of_later_or_torn_is_none() {
    let machine = Machine::build(2, |machine| machine.write("proc/sys/kernel/random/boot_id", "boot-2\n"));
    let file = machine.folder.path().join("own-share.json");
    for (text, expected) in [
        (r#"{"boot":"boot-2","share":{"cores":1.5,"at":11000}}"#, 1.5),
        (r#"{"boot":"boot-1","share":{"cores":1.5,"at":11000}}"#, 0.0),
        (r#"{"boot":"boot-2","share":{"cores":1.5,"at":11001}}"#, 0.0),
        (r#"{"boot":"boot-2","share":{"cores":-1.5,"at":11000}}"#, 0.0),
        (r#"{"boot":"boot-2","share":{"cores":1.5,"#, 0.0),
        ("", 0.0),
    ] {
        std::fs::write(&file, text).unwrap();
        machine.clock.store(11_000, Ordering::SeqCst);
        let driver = machine.again();
        driver.remember_own_use(&file);
        let own = signal(&driver.read_here(), "load1_own").value.unwrap();

        assert!((own - expected).abs() < 1e-9, "{text}: {own}");
    }
}

#[test]
fn throttle_counters_tell_v1_nanoseconds_from_v2_microseconds_and_none_from_zero() {
    let cases = [
        (Version::V1, "nr_periods 9\nnr_throttled 3\nthrottled_time 574000000\n", (Some(3), Some(574_000_000))),
        (Version::V2, "usage_usec 1\nnr_periods 9\nnr_throttled 3\nthrottled_usec 574\n", (Some(3), Some(574_000))),
        (Version::V1, "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n", (Some(0), Some(0))),
        (Version::V2, "usage_usec 411843654\nuser_usec 1\nsystem_usec 2\n", (None, None)),
        (Version::V2, "", (None, None)),
        (Version::V2, "nr_throttled many\nthrottled_usec -1\n", (None, None)),
        (Version::V2, "xnr_throttled 3\nnr_throttled_more 4\n", (None, None)),
    ];
    for (version, text, expected) in cases {
        assert_eq!(cgroups::throttle_figures(version, text), expected, "{version:?} {text:?}");
    }
}

#[test]
fn every_visible_ancestor_is_read_own_group_first() {
    let root = Path::new("/r");
    let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                  32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                  33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                  41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let found = cgroups::groups(root, "3:cpuset:/x\n2:cpu,cpuacct:/a/b\n0::/c\n", hybrid);

    let shown: Vec<(&str, &str)> =
        found.iter().map(|group| (group.name.as_str(), group.folder.to_str().unwrap())).collect();
    assert_eq!(
        shown,
        [
            ("cpu:/a/b", "/r/sys/fs/cgroup/cpu,cpuacct/a/b"),
            ("cpu:/a", "/r/sys/fs/cgroup/cpu,cpuacct/a"),
            ("cpu:/", "/r/sys/fs/cgroup/cpu,cpuacct"),
            ("/c", "/r/sys/fs/cgroup/unified/c"),
            ("/", "/r/sys/fs/cgroup/unified"),
        ]
    );
}

#[test]
fn a_container_sees_its_own_group_at_the_mount_point() {
    let root = Path::new("/r");
    let mounted_from_group = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
    let own_namespace = "32 31 0:29 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    let spaced = "32 31 0:29 / /mnt/my\\040groups ro - cgroup2 cgroup rw\n";

    let v1 = cgroups::groups(root, "2:cpu:/docker/abc\n", mounted_from_group);
    let deeper = cgroups::groups(root, "2:cpu:/docker/abc/x\n", mounted_from_group);
    let like_but_not = cgroups::groups(root, "2:cpu:/docker/abcdef\n", mounted_from_group);
    let v2 = cgroups::groups(root, "0::/\n", own_namespace);
    let odd = cgroups::groups(root, "0::/../other\n", own_namespace);
    let blank = cgroups::groups(root, "0::/a\n", spaced);

    let folders = |groups: &[cgroups::Group]| -> Vec<(String, PathBuf)> {
        groups.iter().map(|group| (group.name.clone(), group.folder.clone())).collect()
    };
    let cpu = PathBuf::from("/r/sys/fs/cgroup/cpu");
    assert_eq!(folders(&v1), [("cpu:/docker/abc".into(), cpu.clone())]);
    assert_eq!(
        folders(&deeper),
        [("cpu:/docker/abc/x".into(), cpu.join("x")), ("cpu:/docker/abc".into(), cpu.clone())]
    );
    assert_eq!(folders(&like_but_not), [("cpu:/docker/abc".into(), cpu)]);
    assert_eq!(folders(&v2), [("/".into(), PathBuf::from("/r/sys/fs/cgroup"))]);
    assert_eq!(odd.last().map(|group| group.folder.clone()), Some(PathBuf::from("/r/sys/fs/cgroup")));
    assert_eq!(blank[0].folder, PathBuf::from("/r/mnt/my groups/a"));
}

#[test]
fn a_reading_carries_the_counters_of_all_groups() {
    let machine = Machine::build(2, |machine| {
        machine.write("proc/self/cgroup", "2:cpu:/box\n0::/box\n");
        machine.write(
            "proc/self/mountinfo",
            "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
        );
        machine.write("cg/cpu/box/cpu.stat", "nr_periods 31\nnr_throttled 28\nthrottled_time 574000000\n");
        machine.write("cg/cpu/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
        machine.write("cg/unified/box/cpu.stat", "usage_usec 5\n");
    });

    let reading = machine.read_after(1_000);

    let counters: Vec<(&str, Option<u64>, Option<u64>)> =
        reading.throttle.iter().map(|counter| (counter.group.as_str(), counter.periods, counter.held_ns)).collect();
    assert_eq!(
        counters,
        [
            ("cpu:/box", Some(28), Some(574_000_000)),
            ("cpu:/", Some(0), Some(0)),
            ("/box", None, None),
            ("/", None, None),
        ]
    );
}

#[test]
fn pressure_is_the_share_of_the_sample_and_only_recorded() {
    let machine = Machine::with_cores(2);
    machine.write("proc/pressure/cpu", "some avg10=9 avg60=9 avg300=9 total=500000\nfull avg10=0 total=0\n");

    let reading = machine.read_after(1_000);

    let pressure = signal(&reading, "cpu_pressure");
    assert_eq!((pressure.value, pressure.required, pressure.unit.as_str()), (Some(50.0), false, "%"));
}

#[test]
fn facts_name_machine_model_governor_and_cpus() {
    let machine = Machine::build(4, |machine| {
        machine.write("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n");
        machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A  Very Fast CPU\n");
        for cpu in 0..4 {
            machine.write(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
                if cpu == 0 { "powersave\n" } else { "performance\n" },
            );
        }
    });

    let facts = machine.driver.facts();

    assert_eq!(facts.model, "A Very Fast CPU");
    assert_eq!(facts.clock_policy, "governor performance and powersave");
    assert_eq!((facts.cpus.as_str(), facts.cores), ("0-3", 4));
    assert_eq!(facts.driver, "cpu, Linux 6.1.0");
    assert!(facts.uuid.starts_with("cpu-") && !facts.uuid.contains("3d1219c7"), "the id itself is not shown");
}

#[test]
fn a_machine_that_tells_nothing_still_has_facts() {
    let folder = tempfile::tempdir().unwrap();

    let facts = CpuDriver::below(folder.path().to_owned(), Arc::new(Clocks::default)).facts();

    assert_eq!((facts.model.as_str(), facts.clock_policy.as_str()), ("unknown CPU", "governor unknown"));
    assert_eq!((facts.cores, facts.uuid.as_str()), (1, "cpu-unknown"));
}

#[test]
fn cpu_lists_are_read_and_written_as_the_kernel_does() {
    for text in ["0", "0-3", "0-3,8", "1,3,5-7"] {
        assert_eq!(CpuList::read(text).unwrap().to_string(), text);
    }
    assert_eq!(CpuList::read("0,1,2\n").unwrap().to_string(), "0-2");
    for text in ["", "a", "3-1", "0-99999999", "-1"] {
        assert_eq!(CpuList::read(text), None, "{text:?}");
    }
}

#[test]
fn busy_time_counts_what_a_hypervisor_takes_and_not_what_waits_for_disks() {
    let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 4 1000 1000 8 16 32 64 64\ncpu1 100 0 0 0 0 0 0 0 0 0\nintr 5\n";

    assert_eq!(proc_files::busy_ticks(text, &CpuList::read("0").unwrap()), Some(63));
    assert_eq!(proc_files::busy_ticks(text, &CpuList::read("0-1").unwrap()), Some(163));
    assert_eq!(proc_files::busy_ticks(text, &CpuList::read("0-2").unwrap()), None, "CPU 2 has no line");
}

#[tokio::test]
async fn this_machine_gives_a_plausible_reading() {
    let driver = CpuDriver::of_this_machine();

    let reading = driver.read().await.unwrap();
    let again = driver.read().await.unwrap();

    let facts = driver.facts();
    assert!(facts.cores >= 1 && CpuList::read(&facts.cpus).unwrap().count() == facts.cores);
    assert!(!facts.model.is_empty() && facts.uuid.len() > 10);
    let other = signal(&reading, "direct_sample").value.expect("/proc/stat can be read");
    assert!(other >= 0.0 && other <= f64::from(facts.cores) * 1.1 + 0.1, "{other} of {} cores", facts.cores);
    let load = reading.signals.iter().find(|signal| signal.name.starts_with("load1")).and_then(|load| load.value);
    assert!(load.is_some_and(|load| (0.0..100_000.0).contains(&load)), "{load:?}");
    assert!(reading.clocks.wall_ms > 1_500_000_000_000 && reading.clocks.boot_ms >= reading.clocks.monotonic_ms);
    assert!(reading.at <= again.at && reading.throttle.len() == again.throttle.len());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let has_cpu = groups.lines().any(|line| line.starts_with("0::") || line.contains(":cpu"));
    assert_eq!(!reading.throttle.is_empty(), has_cpu, "own groups: {groups}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn no_text_brings_the_readers_down(
        text in "([a-z0-9:/,. ()\\\\-]{0,30}\n?){0,6}|(cpu[0-9]( [0-9]{1,25}){0,10}\n){0,4}|([0-9]:[a-z,]{0,6}:/[a-z/.]{0,9}\n){0,4}",
        other in "([0-9]{1,3} [0-9] 0:1 /[a-z/.]{0,6} /[a-z/\\\\0-9]{0,9} rw - cgroup2? x rw(,cpu)?\n){0,4}",
    ) {
        let cpus = CpuList::read("0-3").unwrap();
        let _ = (proc_files::load1(&text), proc_files::busy_ticks(&text, &cpus), proc_files::process_ticks(&text));
        let _ = (proc_files::pressure_us(&text), proc_files::cpu_model(&text), CpuList::read(&text));
        let _ = cgroups::throttle_figures(Version::V1, &text);
        for group in cgroups::groups(Path::new("/root-of-files"), &text, &other) {
            prop_assert!(group.folder.starts_with("/root-of-files"), "{:?}", group.folder);
            prop_assert!(!group.folder.components().any(|part| part.as_os_str() == ".."), "{:?}", group.folder);
        }
    }
}

fn signal<'a>(reading: &'a Reading, name: &str) -> &'a Signal {
    reading.signals.iter().find(|signal| signal.name == name).unwrap_or_else(|| panic!("no signal {name}: {reading:?}"))
}

/// A machine made of files, whose clock stands until it is moved; it starts at 10 s.
struct Machine {
    folder: tempfile::TempDir,
    clock: Arc<AtomicU64>,
    driver: CpuDriver,
}

struct Files<'a>(&'a Path);

impl Files<'_> {
    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Machine {
    fn with_cores(cores: usize) -> Machine {
        Machine::build(cores, |_| {})
    }

    fn build(cores: usize, more: impl FnOnce(&Files<'_>)) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let files = Files(folder.path());
        files.write("proc/loadavg", "0.10 0.10 0.10 1/200 77\n");
        files.write("proc/stat", &stat(&vec![0; cores]));
        files.write("proc/self/stat", "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0");
        files.write("proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t0-{}\n", cores - 1));
        files.write("proc/pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=0\n");
        files.write("proc/sys/kernel/osrelease", "6.1.0\n");
        files.write("sys/devices/system/cpu/online", &format!("0-{}\n", cores - 1));
        more(&files);
        let clock = Arc::new(AtomicU64::new(10_000));
        let read_clock = Arc::clone(&clock);
        let clocks = move || {
            let now = read_clock.load(Ordering::SeqCst);
            Clocks { boot_ms: now, monotonic_ms: now, wall_ms: now }
        };
        let driver = CpuDriver::with_load(folder.path().to_owned(), Arc::new(clocks), Arc::new(|| Some(9.5)));
        Machine { folder, clock, driver }
    }

    /// A driver of another life of the rig.
    fn again(&self) -> CpuDriver {
        let clock = Arc::clone(&self.clock);
        let clocks = move || {
            let now = clock.load(Ordering::SeqCst);
            Clocks { boot_ms: now, monotonic_ms: now, wall_ms: now }
        };
        CpuDriver::below(self.folder.path().to_owned(), Arc::new(clocks))
    }

    fn write(&self, path: &str, text: &str) {
        Files(self.folder.path()).write(path, text);
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.folder.path().join(path)).unwrap();
    }

    /// Sets the ticks that each CPU has been busy in all.
    fn busy<const N: usize>(&self, ticks: [u64; N]) {
        self.write("proc/stat", &stat(&ticks));
    }

    fn read_after(&self, ms: u64) -> Reading {
        assert!(ms >= limits::DIRECT_SAMPLE.as_millis(), "a shorter step would make the driver wait");
        self.clock.fetch_add(ms, Ordering::SeqCst);
        self.driver.read_here()
    }
}

fn stat(ticks: &[u64]) -> String {
    let mut text = format!("cpu  {} 0 0 0 0 0 0 0 0 0\n", ticks.iter().sum::<u64>());
    for (cpu, ticks) in ticks.iter().enumerate() {
        text.push_str(&format!("cpu{cpu} {ticks} 0 0 500 5 0 0 0 0 0\n"));
    }
    text
}
