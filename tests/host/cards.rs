//! Cards (rules B3, B4, A7): nodes of the machine stand for them, and hostile scripts try to reach those that are not
//! granted, in every layer of containment and by every way that keeps a run to its card.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use thermite_actors::host::cards::{CardAt, CardPlaces};
use thermite_actors::host::launch::{CardGrant, Identity, LaunchSpec};
use thermite_actors::host::workspaces::Accounts;
use thermite_core::cpus::{CpuList, Nearness};
use thermite_core::ids::LaneId;

use crate::driver::{Place, Rig, Who, alive, cgroup_mount, everyone, is_root, of, unique, wait_until};
use crate::escape::assert_traceless;

/// Device nodes that stand for two cards; they open, and harm nobody. Removed when dropped.
pub(crate) struct FakeCards {
    /// One whose number the scripts look for: a second `/dev/full`.
    pub(crate) full: PathBuf,
    /// One that takes and gives: a second `/dev/urandom`. Not a second `/dev/null`, which every run has open.
    pub(crate) random: PathBuf,
}

impl FakeCards {
    pub(crate) fn make(folder: &Path) -> FakeCards {
        let cards =
            FakeCards { full: folder.join(unique("thermite-nvidia")), random: folder.join(unique("thermite-nvidia")) };
        for (node, minor) in [(&cards.full, "7"), (&cards.random, "9")] {
            let made = Command::new("mknod").args(["-m", "666"]).arg(node).args(["c", "1", minor]).status().unwrap();
            assert!(made.success());
        }
        cards
    }

    pub(crate) fn nodes(&self) -> [&PathBuf; 2] {
        [&self.full, &self.random]
    }

    /// Closes each to all but its own group.
    fn by_group(self, first: u32) -> FakeCards {
        for (node, gid) in self.nodes().into_iter().zip(first..) {
            std::os::unix::fs::chown(node, Some(0), Some(gid)).unwrap();
            fs::set_permissions(node, fs::Permissions::from_mode(0o660)).unwrap();
        }
        self
    }
}

impl Drop for FakeCards {
    fn drop(&mut self) {
        for node in self.nodes() {
            fs::remove_file(node).unwrap();
        }
    }
}

/// A card as a run is granted it.
pub(crate) fn grant(node: &Path) -> CardGrant {
    CardGrant { uuid: format!("GPU-{}", node.display()), nodes: vec![node.to_owned()], cpus: None }
}

/// Every layer that each can have, with the ways that are to keep a run to its card there.
fn ways() -> Vec<(Who, &'static str, &'static str)> {
    if !is_root() {
        println!("not root: no device node can be made, so nothing is tested with cards");
        return Vec::new();
    }
    let mut ways = Vec::new();
    for who in everyone() {
        ways.push((who, "best", "view"));
        ways.push((who, "best", "landlock"));
        ways.extend(match who {
            Who::Root => vec![
                (who, "uid,no-cgroup", "landlock"),
                (who, "uid", "landlock"),
                (who, "children,no-cgroup", "landlock"),
                (who, "uid,no-cgroup", "modes"),
                (who, "children,no-cgroup", "modes"),
            ],
            Who::Ordinary => vec![(who, "children,no-cgroup", "landlock")],
            Who::Delegated => vec![(who, "children", "landlock")],
        });
    }
    ways
}

/// A rig that knows of cards and relies on these ways alone; none where this machine has not the way, which is said.
fn rig_with(place: &Place, cards: &Value) -> Option<Rig> {
    let name = unique("t");
    let mut rig = Rig::spawn(place.command(), &name);
    let mut opening = place.opening(&name);
    opening["cards"] = cards.clone();
    rig.containment = rig.ok("open", opening);
    assert_ne!(rig.containment["layers"], json!([]), "{}: {}", place.wanted, rig.containment);
    let found = rig.ok("card_ways", json!({}));
    let asked: BTreeSet<&str> = cards["ways"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for way in found["ways"].as_array().unwrap().iter().filter(|way| asked.contains(way["way"].as_str().unwrap())) {
        if let Some(why) = way["why"].as_str() {
            println!("{} as {:?} is not tested: {why}", way["way"], place.who);
            return None;
        }
    }
    Some(rig)
}

/// How a development run is launched, and how a measured one.
fn shapes(spec: LaunchSpec) -> [(&'static str, LaunchSpec); 2] {
    let mut judge = spec.clone();
    judge.name = unique("judge");
    judge.capture = Some(spec.capture.as_ref().unwrap().with_file_name(&judge.name));
    (judge.workspace_read_only, judge.reports_times) = (true, true);
    [("development run", spec), ("judge's run", judge)]
}

/// Tries to reach `other` by all means, then uses `own`.
fn attempts(place: &Place, own: &Path, other: &Path) -> LaunchSpec {
    let minor = rustix::fs::minor(fs::metadata(other).unwrap().rdev()).to_string();
    let script = "sh \"$1\" 1 \"$2\"; echo \"attempts ended with $?\"; : <\"$3\" && : >>\"$3\" && echo usable";
    let mut spec =
        place.spec(&["sh", "-c", script, "sh", &place.case("20_open_card.sh"), &minor, own.to_str().unwrap()]);
    spec.env.push(("JUDGE_CARD".into(), other.display().to_string()));
    spec.grant.card = Some(grant(own));
    spec
}

#[test]
fn no_run_reaches_a_card_that_is_not_its_own_by_any_way_and_its_own_is_usable() {
    for (who, wanted, way) in ways() {
        for in_dev in [true, false] {
            let place = Place::with_layers(who, wanted);
            let folder = if in_dev { PathBuf::from("/dev") } else { place.path("open") };
            let mut cards = FakeCards::make(&folder);
            if way == "modes" {
                cards = cards.by_group(place.runs_uid + 100);
            }
            let known = json!({ "nodes": cards.nodes(), "ways": [way] });
            let Some(mut rig) = rig_with(&place, &known) else { continue };
            // Each of the two is the other's once.
            for (own, other) in [(&cards.random, &cards.full), (&cards.full, &cards.random)] {
                for (kind, spec) in shapes(attempts(&place, own, other)) {
                    let ended = rig.run_to_end(&spec);

                    let output = place.output(&spec);
                    let about = format!("{kind} by {way} in {wanted} as {who:?} in {folder:?}: {ended} {output}");
                    assert!(!output.contains("REACHED"), "{about}");
                    assert!(output.contains("all attempts refused\nattempts ended with 0\n"), "{about}");
                    assert!(output.ends_with("usable\n"), "{about}");
                }
            }
            assert_traceless(&place, &rig);
        }
    }
}

#[test]
fn the_same_attempts_reach_a_card_where_nothing_keeps_them_from_it() {
    for (who, wanted, way) in ways() {
        let mut place = Place::with_layers(who, wanted);
        let cards = FakeCards::make(Path::new("/dev"));
        let mut spec = attempts(&place, &cards.random, &cards.full);
        spec.grant.card = None;
        if way == "view" {
            place.wanted = "best";
            let mut command = Command::new("setpriv");
            let uid = if who == Who::Root { place.runs_uid } else { place.rigs_uid };
            command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into(), "sh".into()]);
            command.arg(crate::driver::cases().join("20_open_card.sh")).args(["1", "7"]);
            let output = command.env("JUDGE_CARD", &cards.full).current_dir("/tmp").output().unwrap();
            let output = String::from_utf8_lossy(&output.stdout);
            assert!(output.contains("REACHED: open\n"), "outside as {who:?}: {output}");
            continue;
        }
        if wanted == "best" {
            // A view of its own hides cards whether it is relied on or not.
            continue;
        }
        // A rig that knows of no card keeps runs from none.
        let Some(mut rig) = rig_with(&place, &json!({ "nodes": [], "ways": [] })) else { continue };

        rig.run_to_end(&spec);

        let output = place.output(&spec);
        assert!(output.contains("REACHED: open\n"), "{wanted} as {who:?}: {output}");
    }
}

#[test]
fn a_run_without_a_card_opens_none() {
    for (who, wanted, way) in ways() {
        let place = Place::with_layers(who, wanted);
        let mut cards = FakeCards::make(Path::new("/dev"));
        if way == "modes" {
            cards = cards.by_group(place.runs_uid + 100);
        }
        let Some(mut rig) = rig_with(&place, &json!({ "nodes": cards.nodes(), "ways": [way] })) else { continue };
        let script = "for n in \"$@\"; do (: <\"$n\") && echo opened; done; echo made >made && cat made; : </dev/zero && echo plain";
        let nodes = cards.nodes().map(|node| node.to_str().unwrap());
        let spec = place.spec(&[&["sh", "-c", script, "sh"], nodes.as_slice()].concat());

        rig.run_to_end(&spec);

        let output = place.output(&spec);
        assert!(!output.contains("opened"), "{way} in {wanted} as {who:?}: {output}");
        assert!(output.ends_with("made\nplain\n"), "{way} in {wanted} as {who:?}: {output}");
    }
}

#[test]
fn where_no_way_may_be_relied_on_every_run_is_refused() {
    for (who, wanted, _) in ways() {
        let place = Place::with_layers(who, wanted);
        let cards = FakeCards::make(Path::new("/dev"));
        let known = json!({ "nodes": cards.nodes(), "ways": [] });
        let Some(mut rig) = rig_with(&place, &known) else { continue };
        let with_card = attempts(&place, &cards.random, &cards.full);
        let mut without = with_card.clone();
        without.grant.card = None;

        for spec in [with_card, without] {
            let fault = rig.call("launch", json!({ "spec": spec })).unwrap_err();

            let why = "keep the run from cards that are not its own: own view (switched off); landlock (switched off); \
                       node modes (switched off)";
            assert_eq!(fault, why, "{wanted} as {who:?}");
        }
        assert_traceless(&place, &rig);
    }
}

#[test]
fn modes_that_open_a_card_to_a_run_are_no_way() {
    if !is_root() {
        println!("not root: no device node can be made, so this is not tested");
        return;
    }
    let place = Place::with_layers(Who::Root, "uid,no-cgroup");
    let cards = FakeCards::make(&place.path("open")).by_group(place.runs_uid + 100);
    let mut rig = rig_with(&place, &json!({ "nodes": cards.nodes(), "ways": ["modes"] })).unwrap();
    let spec = attempts(&place, &cards.random, &cards.full);

    // To everybody; to the run's own group; to its owner, who may change the mode.
    for (mode, uid, gid) in [(0o666, 0, 0), (0o604, 0, 0), (0o660, 0, place.runs_uid), (0o000, place.runs_uid, 0)] {
        std::os::unix::fs::chown(&cards.full, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&cards.full, fs::Permissions::from_mode(mode)).unwrap();

        let fault = rig.call("launch", json!({ "spec": spec })).unwrap_err();

        let why = format!("node modes ({} opens to uid {})", cards.full.display(), place.runs_uid);
        assert!(fault.ends_with(&why), "{mode:o} {uid} {gid}: {fault}");
    }
    // One group for both is no group of a card's.
    let gid = Some(fs::metadata(&cards.random).unwrap().gid());
    std::os::unix::fs::chown(&cards.full, Some(0), gid).unwrap();
    fs::set_permissions(&cards.full, fs::Permissions::from_mode(0o660)).unwrap();
    assert!(rig.call("launch", json!({ "spec": spec })).unwrap_err().contains("opens to uid"));
}

#[test]
fn nothing_that_has_the_card_open_outlives_its_run() {
    for (who, wanted, way) in ways() {
        let place = Place::with_layers(who, wanted);
        let mut cards = FakeCards::make(Path::new("/dev"));
        if way == "modes" {
            cards = cards.by_group(place.runs_uid + 100);
        }
        let Some(mut rig) = rig_with(&place, &json!({ "nodes": cards.nodes(), "ways": [way] })) else { continue };
        let tag = unique("tag");
        let script = "exec 9<\"$1\"; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' x \"$2\" & wait";
        let mut spec = place.spec(&["sh", "-c", script, "x", cards.random.to_str().unwrap(), &tag]);
        spec.grant.card = Some(grant(&cards.random));
        rig.run(&spec);
        wait_until("leader and daemon have the card open", || holders(&cards.random) >= 2 && alive(&tag) >= 2);

        assert_eq!(rig.ok("stop", of(&spec)), "empty", "{way} in {wanted} as {who:?}");

        assert_eq!((holders(&cards.random), alive(&tag)), (0, 0), "{way} in {wanted} as {who:?}");
        rig.ok("finished", of(&spec));
        assert_traceless(&place, &rig);
    }
}

/// How many processes have that node open.
fn holders(node: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = entry.ok()?.path();
        folder.file_name()?.to_str()?.parse::<u32>().ok()?;
        fs::read_dir(folder.join("fd")).ok()
    });
    let has_it = |fds: fs::ReadDir| fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == node));
    processes.filter_map(|fds| has_it(fds).then_some(())).count()
}

#[test]
fn a_run_is_kept_to_its_cpus_and_what_is_said_of_widening_them_is_so() {
    let online: CpuList = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().parse().unwrap();
    if online.count() < 2 {
        println!("one CPU: nothing can be narrowed, so this is not tested");
        return;
    }
    let one = CpuList([*online.0.last().unwrap()].into());
    for who in everyone() {
        let mut layers = vec!["best"];
        layers.push(match who {
            Who::Root => "uid,no-cgroup",
            Who::Ordinary => "children,no-cgroup",
            Who::Delegated => "children",
        });
        for wanted in layers {
            let place = Place::with_layers(who, wanted);
            let rest = online.without(&one);
            let cards = json!({ "nodes": [], "ways": [], "others": rest });
            let Some(mut rig) = rig_with(&place, &cards) else { continue };
            let hold = rig.ok("card_ways", json!({}))["cpus"].clone();
            let script = "grep Cpus_allowed_list /proc/self/status; sh \"$1\"; echo \"ended with $?\"; sleep 50";
            let mut spec = place.spec(&["sh", "-c", script, "sh", &place.case("21_widen_cpus.sh")]);
            spec.grant.cpus = Some(one.clone());

            let facts = rig.run(&spec);
            wait_until("the script ends", || place.output_now(&spec).contains("ended with"));

            let about = format!("{wanted} as {who:?}, {hold}: {}", place.output(&spec));
            assert!(place.output(&spec).contains(&format!("Cpus_allowed_list:\t{one}\n")), "{about}");
            let is_cpuset = hold == "cpuset_v2" || hold["cpuset_v1"].is_object();
            assert_eq!(place.output(&spec).contains("refused: still 1 CPUs\nended with 0\n"), is_cpuset, "{about}");
            assert_eq!(place.output(&spec).contains("REACHED: 1 -> "), !is_cpuset, "{about}");
            // Who reads the output does not do so on the run's CPUs.
            let status = fs::read_to_string(format!("/proc/{}/status", facts["launcher"])).unwrap();
            assert!(status.contains(&format!("Cpus_allowed_list:\t{rest}\n")), "{about}");
            assert_eq!(rig.ok("stop", of(&spec)), "empty");
            rig.ok("finished", of(&spec));
            assert_traceless(&place, &rig);
            assert_eq!(cpusets(&rig.name), Vec::<PathBuf>::new(), "{about}");
        }
    }
    if is_root() && cgroup_mount().is_some() {
        println!("as root here: {:?}", Rig::start(&Place::new(Who::Root)).ok("card_ways", json!({}))["cpus"]);
    }
}

/// The version 1 cpusets of a rig that are there.
fn cpusets(rig: &str) -> Vec<PathBuf> {
    let groups = fs::read_dir("/sys/fs/cgroup/cpuset").into_iter().flatten().flatten().map(|entry| entry.path());
    groups.filter(|path| path.to_string_lossy().contains(&format!("thermite-{rig}."))).collect()
}

#[test]
fn a_rig_killed_in_mid_run_leaves_no_cpuset() {
    if !is_root() {
        println!("not root: no cpuset can be made, so this is not tested");
        return;
    }
    let place = Place::new(Who::Root);
    let mut rig = Rig::start(&place);
    let tag = unique("tag");
    let mut spec = place.spec(&["sh", "-c", "while :; do sleep 1; done", "x", &tag]);
    spec.grant.cpus = CpuList::read("0");
    let facts = rig.run(&spec);
    wait_until("it runs", || alive(&tag) > 0);
    if cpusets(&rig.name).is_empty() {
        println!("no version 1 cpuset here, so this is not tested");
        return;
    }

    crate::escape::kill(&facts["launcher"]);
    rig.kill();
    crate::escape::sweep_as_a_new_rig(&place, &rig.name);

    assert_eq!((alive(&tag), cpusets(&rig.name)), (0, Vec::new()));
}

#[test]
fn a_sweep_of_one_card_spares_the_runs_of_others() {
    for (place, mut rig) in crate::driver::rigs() {
        let spec = |prefix: &str| {
            let tag = unique("tag");
            let mut spec = place.spec(&["sh", "-c", "while :; do sleep 1; done", "x", &tag]);
            spec.name = format!("{prefix}{}", spec.name);
            (spec, tag)
        };
        let ((one, first), (other, second)) = (spec("card-1-"), spec("card-10-"));
        rig.run(&one);
        rig.run(&other);
        wait_until("both run", || alive(&first) > 0 && alive(&second) > 0);

        let ask = json!({ "rig": rig.name, "state": place.path("state"), "uids": [], "only": "card-1-" });
        let swept = rig.ok("sweep", ask);

        assert_eq!(swept["proof"], "empty", "{swept}");
        assert!(alive(&first) == 0 && alive(&second) > 0, "as {:?}: {swept}", place.who);
    }
}

#[test]
fn no_uid_is_two_accounts() {
    let accounts = Accounts::dedicated(61_000);
    let uid = |identity| match identity {
        Identity::Dedicated { uid, gid } => {
            assert_eq!(uid, gid);
            uid
        }
        Identity::RigsUser => panic!("a root rig has accounts"),
    };
    let lanes = (1..=16).map(|lane| uid(accounts.lane(LaneId::new(lane).unwrap())));
    let timing: Vec<u32> = (0..16).map(|seat| uid(accounts.timing(seat))).collect();
    let all: Vec<u32> = [uid(accounts.judge())].into_iter().chain(lanes).chain(timing.iter().copied()).collect();

    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 33);
    assert!(!all.contains(&accounts.trial().unwrap()) && !all.contains(&0));
    assert_eq!(accounts.all_uids(), all);
    assert_eq!((uid(accounts.judge()), timing[0]), (61_000, 61_018));
}

/// A machine of two nodes with four cards, as files.
fn two_nodes() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| crate::repo::write(&folder.path().join(path), text);
    put("proc/self/status", "Name:\trig\nCpus_allowed_list:\t0-6,8-15\n");
    put("sys/devices/system/cpu/online", "0-15\n");
    put("sys/devices/system/node/online", "0-1\n");
    for cpu in 0..16 {
        let siblings = format!("{},{}\n", cpu % 8, cpu % 8 + 8);
        put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), &siblings);
    }
    for (bus, node, near) in [
        ("0000:3b:00.0", "0", "0-3,8-11"),
        ("0000:5e:00.0", "0", "0-3,8-11"),
        ("0001:af:00.0", "1", "4-7,12-15"),
        ("0001:d8:00.0", "-1", "0-15"),
    ] {
        put(&format!("sys/bus/pci/devices/{bus}/numa_node"), &format!("{node}\n"));
        put(&format!("sys/bus/pci/devices/{bus}/local_cpulist"), &format!("{near}\n"));
    }
    for node in [
        "nvidia0",
        "nvidia1",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-modeset",
        "nvidia-caps/nvidia-cap1",
        "null",
        "dri/renderD128",
        "dri/renderD129",
    ] {
        put(&format!("dev/{node}"), "");
    }
    put("sys/class/drm/renderD128/device/vendor", "0x10de\n");
    put("sys/class/drm/renderD129/device/vendor", "0x8086\n");
    folder
}

#[test]
fn cards_get_disjoint_cpus_near_them_as_the_machine_tells() {
    let machine = two_nodes();
    let places = CardPlaces::below(machine.path().to_owned());
    // As NVML writes them, and one that sysfs has no name for.
    let bus_ids = ["00000000:3B:00.0", "00000000:5E:00.0", "00000001:AF:00.0", "00000001:D8:00.0"];
    let cards = bus_ids.map(|bus_id| CardAt { bus_id: bus_id.to_owned(), near: None });

    let cut = places.cut(&cards);

    let told: Vec<String> =
        cut.cards.iter().map(|card| format!("{} {:?} {}", card.cpus, card.nearness, card.is_own)).collect();
    assert_eq!(told, ["0,8 Near true", "1,9 Near true", "4,12 Near true", "2,10 Unknown true"]);
    assert_eq!(cut.others.to_string(), "3,5-6,11,13-15");
    let unknown = CardAt { bus_id: "00000009:01:00.0".to_owned(), near: None };
    let by_nvml = CardAt { near: CpuList::read("6,14"), ..unknown.clone() };
    let cut = places.cut(&[unknown, by_nvml]);
    assert_eq!((cut.cards[0].nearness, cut.cards[1].cpus.to_string()), (Nearness::Unknown, "6,14".to_owned()));
}

#[test]
fn a_cards_nodes_are_its_own_and_its_companions_and_all_that_reach_cards_are_known() {
    let machine = two_nodes();
    let places = CardPlaces::below(machine.path().to_owned());
    let below = |nodes: Vec<PathBuf>| -> Vec<String> {
        let dev = machine.path().join("dev");
        nodes.iter().map(|node| node.strip_prefix(&dev).unwrap().display().to_string()).collect()
    };

    assert_eq!(below(places.nodes_of(1).unwrap()), ["nvidia1", "nvidiactl", "nvidia-uvm"]);
    assert!(places.nodes_of(2).unwrap_err().ends_with("dev/nvidia2 is not there; nvidia-modprobe -c 2 makes it"));
    let all = [
        "dri/renderD128",
        "nvidia-caps/nvidia-cap1",
        "nvidia-modeset",
        "nvidia-uvm",
        "nvidia0",
        "nvidia1",
        "nvidiactl",
    ];
    assert_eq!(below(places.all_nodes()), all);
    assert_eq!(places.near("00000000:3B:00.0"), CpuList::read("0-3,8-11"));
}
