//! What the doctor says of machines that are fed to it: one line for each ability, what is missing, and the way out.

use thermite_actors::host::doctor::{
    Abilities, Ability, CardDriverFacts, CardFacts, CardSaid, CgroupFacts, DiskFacts, Finding, LoadFacts, LockFacts,
    Standing, findings, is_fit,
};
use thermite_actors::host::launch::{CardWay, Containment, CpuHold, Isolation, Layer, Missing};
use thermite_core::cpus::cut;
use thermite_core::readiness::ThrottleCounter;

/// A root rig on a machine that gives everything.
fn whole() -> Abilities {
    Abilities {
        is_root: true,
        containment: Containment {
            layers: vec![Layer::Namespaces, Layer::UserNamespace, Layer::Cgroup],
            missing: Vec::new(),
            open: vec!["the network can be reached".into()],
        },
        layers: vec![(Isolation::Namespaces, Ok(())), (Isolation::OwnUid, Ok(())), (Isolation::Children, Ok(()))],
        cgroup: CgroupFacts { v2: Some("/sys/fs/cgroup".into()), v1: Vec::new(), v2_writable: Ok(()) },
        clocks: Ok("CLOCK_BOOTTIME goes on; the machine slept 0 s since its start".into()),
        quota: vec![counter("/system.slice/rig", Some(0)), counter("/", None)],
        load: LoadFacts { load1: Ok(0.5), has_pressure: true },
        git: Ok("git version 2.47.3".into()),
        toolchain: vec![("rustc".into(), Ok("rustc 1.95.0".into())), ("cc".into(), Ok("cc 12.2.0".into()))],
        closed_tools: Vec::new(),
        disk: DiskFacts { folder: "/var/lib/thermite".into(), free: Ok(40 << 30), keeps: Ok(()) },
        device_lock: LockFacts::Free { file: "/run/lock/device.lock".into() },
        card_driver: CardDriverFacts::NoLibrary { why: "no library".into() },
        rig_cards: None,
        cards: CardFacts {
            nodes: Vec::new(),
            ways: CardWay::ALL.map(|way| (way, Ok(()))).into(),
            hold: CpuHold::CpusetV2,
            cut: cut(&"0-7".parse().unwrap(), &[], &[]),
        },
    }
}

/// A root rig in a container without CAP_SYS_ADMIN and with a read-only cgroup tree of version 1.
fn container() -> Abilities {
    let refused = "namespaces (clone3): Operation not permitted (os error 1)";
    Abilities {
        containment: Containment {
            layers: vec![Layer::OwnUid],
            missing: vec![Missing {
                layer: Layer::Namespaces,
                why: refused.into(),
                leaves_open: "a run sees the machine".into(),
            }],
            open: vec!["runs of one uid share its process cap".into()],
        },
        layers: vec![
            (Isolation::Namespaces, Err(refused.into())),
            (Isolation::OwnUid, Ok(())),
            (Isolation::Children, Ok(())),
        ],
        cgroup: CgroupFacts {
            v2: None,
            v1: vec!["cpu".into(), "pids".into()],
            v2_writable: Err("this process is in no cgroup v2".into()),
        },
        quota: vec![counter("cpu:/docker/x", None)],
        closed_tools: vec!["/root".into()],
        ..whole()
    }
}

/// An ordinary user where user namespaces are switched off, on a full disk, without git and compilers.
fn poor() -> Abilities {
    let refused = "namespaces (clone3): No space left on device (os error 28)";
    Abilities {
        is_root: false,
        containment: Containment { layers: vec![Layer::Children], missing: Vec::new(), open: Vec::new() },
        layers: vec![
            (Isolation::Namespaces, Err(refused.into())),
            (Isolation::OwnUid, Err("take another uid: the rig is not root; serve as root to have it".into())),
            (Isolation::Children, Ok(())),
        ],
        cgroup: CgroupFacts {
            v2: Some("/sys/fs/cgroup".into()),
            v1: Vec::new(),
            v2_writable: Err("make cgroup /sys/fs/cgroup/x: Permission denied (os error 13)".into()),
        },
        load: LoadFacts { load1: Ok(0.25), has_pressure: false },
        git: Err("git cannot be started: No such file or directory (os error 2)".into()),
        toolchain: vec![("rustc".into(), Err("no".into())), ("cc".into(), Err("no".into()))],
        disk: DiskFacts { folder: "/home/ada/thermite".into(), free: Ok(5 << 20), keeps: Ok(()) },
        device_lock: LockFacts::Held { by: "a rig has it: process 7".into() },
        ..whole()
    }
}

fn counter(group: &str, periods: Option<u64>) -> ThrottleCounter {
    ThrottleCounter { group: group.into(), periods, held_ns: periods }
}

/// All that is said of a machine, as text.
fn told(abilities: &Abilities) -> String {
    let mut told = String::new();
    for finding in findings(abilities) {
        let Finding { ability, standing, found, missing, leaves_open, to_get_it, .. } = finding;
        told += &format!("{standing} {ability}: {found}\n");
        let more = missing.map(|missing| format!("  missing: {missing}\n"));
        let more = more.into_iter().chain(leaves_open.into_iter().map(|open| format!("  open: {open}\n")));
        told.extend(more.chain(to_get_it.map(|how| format!("  get: {how}\n"))));
    }
    told
}

fn of(abilities: &Abilities, ability: Ability) -> Finding {
    findings(abilities).into_iter().find(|finding| finding.ability == ability).unwrap()
}

#[test]
fn a_machine_that_gives_everything_is_ok_line_by_line() {
    assert_eq!(
        told(&whole()),
        "\
ok containment: namespaces + user namespace + cgroup
  open: the network can be reached
ok namespaces: a throwaway run in its own pid, mount and ipc namespaces ended with them
ok cgroup: version 2 at /sys/fs/cgroup; a group was made for a throwaway run and removed
ok uids: a throwaway run had a uid of its own
ok clocks: CLOCK_BOOTTIME goes on; the machine slept 0 s since its start
ok quota figures: counters of /system.slice/rig; / has no cpu controller
ok load figure: load average 0.50; pressure figures too
ok git: git version 2.47.3
ok toolchain: rustc 1.95.0, cc 12.2.0
ok disk: /var/lib/thermite: 40960 MiB free; a database was written, synced and read back
ok device lock: free (/run/lock/device.lock)
ok card readings: no card and no driver here
ok card isolation: no card here; ways to keep a run to one: own view, landlock, node modes
ok card CPUs: no card here; runs would be kept to their CPUs by cpuset
"
    );
    assert!(is_fit(&findings(&whole())));
}

#[test]
fn a_container_without_rights_is_told_what_it_lacks_and_can_serve() {
    assert_eq!(
        told(&container()),
        "\
degraded containment: own uid
  missing: a view of its own for each run
  open: runs of one uid share its process cap
  get: see namespaces
degraded namespaces: none for a run
  missing: namespaces (clone3): Operation not permitted (os error 1)
  open: a run sees the machine as its user does, and its end is the work of a guard, not of the kernel alone
  get: give the rig CAP_SYS_ADMIN (docker: --cap-add SYS_ADMIN with a seccomp profile that allows clone3, unshare and mount)
degraded cgroup: version 1 (cpu, pids)
  missing: this process is in no cgroup v2
  open: a run's init or guard alone proves its end, and CPU time counts only what was reaped
  get: mount cgroup2 (a hybrid mount without controllers is enough)
ok uids: a throwaway run had a uid of its own
ok clocks: CLOCK_BOOTTIME goes on; the machine slept 0 s since its start
degraded quota figures: no counter can be read
  missing: nr_throttled in cpu.stat of the own group and its ancestors
  open: whether a block was held back there is unknown, and its record says so
  get: mount the cpu controller (version 1 or 2) where the rig can read it; where there is no quota, nothing is lost
ok load figure: load average 0.50; pressure figures too
ok git: git version 2.47.3
degraded toolchain: rustc 1.95.0, cc 12.2.0
  missing: a way for runs' users into /root
  open: without a view of its own a run cannot be shown tools that only root can reach
  get: install the tools where all users can reach them, such as /usr/local
ok disk: /var/lib/thermite: 40960 MiB free; a database was written, synced and read back
ok device lock: free (/run/lock/device.lock)
ok card readings: no card and no driver here
ok card isolation: no card here; ways to keep a run to one: own view, landlock, node modes
ok card CPUs: no card here; runs would be kept to their CPUs by cpuset
"
    );
    assert!(is_fit(&findings(&container())));
}

#[test]
fn a_poor_machine_is_told_all_of_it_and_cannot_serve_for_want_of_git() {
    assert_eq!(
        told(&poor()),
        "\
degraded containment: children walk (degraded: best effort)
  missing: a view of its own for each run, and an end that no run can hinder
  get: see namespaces; or serve as root
degraded namespaces: none for a run
  missing: namespaces (clone3): No space left on device (os error 28)
  open: a run sees the machine as its user does, and its end is the work of a guard, not of the kernel alone
  get: allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns), or serve as root
degraded cgroup: version 2 at /sys/fs/cgroup
  missing: make cgroup /sys/fs/cgroup/x: Permission denied (os error 13)
  open: a run's init or guard alone proves its end, and CPU time counts only what was reaped
  get: start the rig in a delegated group (systemd-run --user --scope -p Delegate=yes thermite serve)
degraded uids: the rig is not root, so runs are its own user's
  missing: a uid for each lane and one for the judge
  open: runs of all lanes and of the judge are one user to the machine
  get: serve as root
ok clocks: CLOCK_BOOTTIME goes on; the machine slept 0 s since its start
ok quota figures: counters of /system.slice/rig; / has no cpu controller
ok load figure: load average 0.25; no pressure figures (psi=1), which are only recorded
missing git: no git
  missing: git cannot be started: No such file or directory (os error 2)
  open: no run can be started: changes and champions are git's
  get: install git and have it in PATH
missing toolchain: none
  missing: rustc, cc
  open: kits that are built by it cannot be measured here; `thermite try` needs rustc
  get: install it and have it in PATH
degraded disk: /home/ada/thermite: 5 MiB free; a database was written, synced and read back
  missing: 1024 MiB of room
  open: records and outputs may not fit; what cannot be recorded is not accepted
  get: make room there, or name another folder by --data or THERMITE_DATA
ok device lock: taken: a rig has it: process 7
ok card readings: no card and no driver here
ok card isolation: no card here; ways to keep a run to one: own view, landlock, node modes
ok card CPUs: no card here; runs would be kept to their CPUs by cpuset
"
    );
    assert!(!is_fit(&findings(&poor())));
    let with_git = Abilities { git: whole().git, ..poor() };
    assert!(is_fit(&findings(&with_git)), "a missing compiler keeps no rig from serving");
}

#[test]
fn each_need_that_is_missing_makes_a_machine_unfit() {
    let none = Containment { layers: Vec::new(), missing: Vec::new(), open: Vec::new() };
    let layers = whole().layers.into_iter().map(|(layer, _)| (layer, Err("setresuid: no".to_owned()))).collect();
    let fault = || Err("no".to_owned());
    let disk = DiskFacts { folder: "/data".into(), free: fault().map(|()| 0), keeps: fault() };
    let unfit = [
        (Ability::Containment, Abilities { containment: none, layers, ..whole() }),
        (Ability::Clocks, Abilities { clocks: Err("CLOCK_BOOTTIME says 0".into()), ..whole() }),
        (
            Ability::Load,
            Abilities { load: LoadFacts { load1: Err("/proc/loadavg".into()), has_pressure: true }, ..whole() },
        ),
        (Ability::Disk, Abilities { disk, ..whole() }),
        (Ability::DeviceLock, Abilities { device_lock: LockFacts::Fault { why: "no".into() }, ..whole() }),
        (Ability::CardReadings, Abilities { rig_cards: Some(Err("no GPU is here".into())), ..whole() }),
    ];
    for (ability, abilities) in unfit {
        let finding = of(&abilities, ability);
        assert_eq!((finding.standing, finding.is_needed), (Standing::Missing, true), "{finding:?}");
        assert!(
            finding.missing.is_some() && finding.to_get_it.is_some() && !finding.leaves_open.is_empty(),
            "{finding:?}"
        );
        assert!(!is_fit(&findings(&abilities)), "{ability}");
    }
}

#[test]
fn cards_are_needed_by_a_rig_on_cards_alone_and_counted_as_it_counts_them() {
    let mut cards = whole();
    cards.cards.cut = cut(&"0-7".parse().unwrap(), &[], &[None]);
    let on_cards = Abilities { rig_cards: Some(Ok(())), ..cards.clone() };

    assert!(!of(&cards, Ability::CardReadings).is_needed);
    assert!(of(&on_cards, Ability::CardReadings).is_needed);
    assert!(of(&cards, Ability::CardCpus).found.starts_with("card 0: "));
    assert!(of(&on_cards, Ability::CardCpus).found.starts_with("device 0: "));
}

#[test]
fn an_ancestor_whose_counter_is_hidden_is_told_and_a_hybrids_empty_tree_is_not() {
    let hybrid = Abilities { quota: vec![counter("cpu:/a", Some(3)), counter("/a", None)], ..whole() };
    let hidden = Abilities { quota: vec![counter("/a/b", Some(3)), counter("/a", None)], ..whole() };

    assert_eq!(of(&hybrid, Ability::Quota).standing, Standing::Ok);
    let finding = of(&hidden, Ability::Quota);
    assert_eq!((finding.standing, finding.missing.as_deref()), (Standing::Degraded, Some("nr_throttled of /a")));
}

/// A root rig with two cards of one node, one free CPU, no namespaces, and whatever ways are given.
fn with_cards(works: &[CardWay]) -> Abilities {
    let why = |way: CardWay| match way {
        CardWay::View => "namespaces (clone3): Operation not permitted (os error 1)",
        CardWay::Landlock => "landlock (ABI 5, Linux 6.10): not supported",
        CardWay::Modes => "the rig is not root, so its runs may open what it may",
    };
    let way = |way| (way, if works.contains(&way) { Ok(()) } else { Err(why(way).to_owned()) });
    let near = ["0-1", "0-1"].map(|near| near.parse().ok());
    Abilities {
        card_driver: CardDriverFacts::Answers {
            version: "580.82.07".into(),
            cards: vec![
                CardSaid { index: 0, name: "GPU-0 (NVIDIA H200)".into(), untold: Ok(Vec::new()) },
                CardSaid { index: 1, name: "GPU-1 (NVIDIA GB10)".into(), untold: Ok(vec!["gpu_memory".into()]) },
            ],
        },
        cards: CardFacts {
            nodes: vec!["/dev/nvidia0".into(), "/dev/nvidia1".into()],
            ways: CardWay::ALL.map(way).into(),
            hold: CpuHold::Affinity { why: "version 2: runs have no cgroup; version 1: no cpuset tree".into() },
            cut: cut(&"0-2".parse().unwrap(), &[], &near),
        },
        ..whole()
    }
}

/// What is said of cards.
fn of_cards(abilities: &Abilities) -> String {
    told(abilities).split_once("ok device lock: free (/run/lock/device.lock)\n").unwrap().1.to_owned()
}

#[test]
fn a_machine_without_a_way_to_keep_runs_to_their_cards_is_told_of_each_what_is_missing() {
    let none = with_cards(&[]);
    assert_eq!(
        of_cards(&none),
        "\
ok card readings: driver 580.82.07; card 0: GPU-0 (NVIDIA H200), tells everything; card 1: GPU-1 (NVIDIA GB10), does not tell gpu_memory
missing card isolation: none; /dev/nvidia0, /dev/nvidia1
  missing: own view (namespaces (clone3): Operation not permitted (os error 1)); landlock (landlock (ABI 5, Linux 6.10): not supported); node modes (the rig is not root, so its runs may open what it may)
  open: every run on a card is refused
  get: own view: see namespaces; landlock: Linux 6.10 with CONFIG_SECURITY_LANDLOCK and landlock in its list of security modules (lsm=)
degraded card CPUs: card 0: 0 (near); card 1: 1 (near); 2 left for the rest; runs are kept to them by affinity, which a run can widen
  missing: a cpuset (version 2: runs have no cgroup; version 1: no cpuset tree)
  open: a run can widen its CPUs to those of a card that is timed on; records say so
  get: give the rig more CPUs, and a cgroup tree with the cpuset controller that it can write (version 1 or 2)
"
    );
    // A CPU rig can be served there all the same.
    assert!(is_fit(&findings(&none)));
}

#[test]
fn one_way_to_keep_runs_to_their_cards_is_enough_and_node_modes_alone_depend_on_the_nodes() {
    let by_landlock = of(&with_cards(&[CardWay::Landlock]), Ability::Cards);
    let by_modes = of(&with_cards(&[CardWay::Modes]), Ability::Cards);

    assert_eq!((by_landlock.standing, by_landlock.missing), (Standing::Ok, None));
    assert_eq!(by_landlock.found, "landlock; /dev/nvidia0, /dev/nvidia1");
    assert_eq!(by_modes.standing, Standing::Degraded);
    let open = "a run on a card is refused unless the nodes' own modes close all other cards to it";
    assert_eq!(by_modes.leaves_open, [open]);
    assert!(by_modes.to_get_it.unwrap().contains("give each /dev/nvidiaN a group of its own and mode 0660"));
}

#[test]
fn too_few_cpus_for_the_cards_are_told() {
    let mut abilities = with_cards(&[CardWay::View]);
    abilities.cards.hold = CpuHold::CpusetV2;
    abilities.cards.cut = cut(&"0".parse().unwrap(), &[], &[None, None]);

    let said = of(&abilities, Ability::CardCpus);

    let unknown = "the machine does not say which are near, shared with another";
    let found = format!(
        "card 0: 0 ({unknown}); card 1: 0 ({unknown}); nothing left for the rest; runs are kept to them by cpuset"
    );
    assert_eq!((said.standing, said.found), (Standing::Degraded, found));
    assert_eq!(said.missing.unwrap(), "a CPU beside the cards'; a core for each card");
}

#[test]
fn a_driver_that_is_missing_or_silent_beside_cards_is_told_with_the_way_out() {
    let said = |card_driver: CardDriverFacts| {
        let finding = of(&Abilities { card_driver, ..with_cards(&[CardWay::View]) }, Ability::CardReadings);
        (finding.standing, finding.missing.unwrap_or_default())
    };
    let why = || "the NVIDIA driver does not answer".to_owned();
    let lost = CardSaid { index: 0, name: "not described".into(), untold: Err("card number 0 is lost".into()) };

    assert_eq!(said(CardDriverFacts::NoLibrary { why: why() }), (Standing::Missing, why()));
    assert_eq!(said(CardDriverFacts::AtFault { why: why() }), (Standing::Missing, why()));
    let answers = CardDriverFacts::Answers { version: "580".into(), cards: vec![lost] };
    assert_eq!(said(answers), (Standing::Degraded, "card number 0 is lost".to_owned()));
}
