//! The disk: full while work runs, below its floor, hung, failing; and the byte budget. Nothing acknowledged is lost,
//! and the rig goes on when there is room (rules D7, E16).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermite_core::job::JobOutcome;
use thermite_core::log::LogEntry;

use super::house::{House, LANES, Load, Who, is_root};
use crate::binary::until;

/// A small disk of a house's own, which goes with the value.
pub(super) struct Disk {
    at: PathBuf,
    device: Option<String>,
}

impl Disk {
    /// A file system in memory; none where this user may not mount one, which is said.
    pub(super) fn in_memory(at: &Path, mib: u32) -> Option<Disk> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={mib}m,mode=0700");
        let mounted = is_root() && ran("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at.to_str().unwrap()]);
        if !mounted {
            println!("skipped: mounting a small disk needs root with CAP_SYS_ADMIN");
        }
        mounted.then(|| Disk { at: at.to_owned(), device: None })
    }

    /// A file system over a loop device, which can hang and, where the disk of `image` is full, fail; none where there are
    /// no loop devices, which is said.
    fn on_loop(at: &Path, image: &Path, mib: u64) -> Option<Disk> {
        fs::create_dir_all(at).unwrap();
        fs::File::create(image).unwrap().set_len(mib << 20).unwrap();
        let image = image.to_str().unwrap();
        let made = is_root() && ran("mkfs.ext4", &["-q", "-F", image]);
        let device = if made { said("losetup", &["-f", "--show", image]) } else { None };
        let Some(device) = device else {
            println!("skipped: a loop device with ext4 needs root, losetup and mkfs.ext4");
            return None;
        };
        let disk = Disk { at: at.to_owned(), device: Some(device.clone()) };
        assert!(ran("mount", &[&device, at.to_str().unwrap()]), "{device} cannot be mounted");
        let _none = fs::remove_dir(at.join("lost+found"));
        Some(disk)
    }

    fn fill(&self, leave: u64) {
        let mut filler = fs::File::create(self.at.join("filler")).unwrap();
        let block = vec![0_u8; 64 * 1024];
        loop {
            let about = rustix::fs::statvfs(&self.at).unwrap();
            let free = about.f_bavail * about.f_frsize;
            if free <= leave || filler.write_all(&block[..block.len().min((free - leave) as usize)]).is_err() {
                return;
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.at.join("filler")).unwrap();
    }

    fn unmount(&self) {
        until("the disk is unmounted", || ran("umount", &[self.at.to_str().unwrap()]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let at = self.at.to_str().unwrap();
        let _not_frozen = ran("fsfreeze", &["-u", at]);
        let _gone = ran("umount", &["-l", at]);
        if let Some(device) = &self.device {
            let _gone = ran("losetup", &["-d", device]);
        }
    }
}

/// Whether a program of the machine's ended well.
fn ran(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|answer| answer.status.success())
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let answer = Command::new(program).args(args).output().ok()?;
    answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

fn jobs_path(house: &House) -> String {
    format!("{}/jobs", house.run())
}

/// That each acknowledged job is in the log once, ended once, and was failed by nothing that counts.
fn check_jobs(house: &House, jobs: &[String]) {
    let facts = house.facts();
    for job in jobs {
        let id = job.rsplit('/').next().unwrap();
        let submitted = facts
            .iter()
            .filter(|fact| matches!(fact, LogEntry::JobSubmitted { spec, .. } if spec.job.to_string() == id));
        assert_eq!(submitted.count(), 1, "{job}");
        let ends: Vec<_> = facts
            .iter()
            .filter_map(|fact| match fact {
                LogEntry::JobEnded { job, outcome, .. } if job.to_string() == id => Some(outcome.clone()),
                _ => None,
            })
            .collect();
        let [outcome] = ends.as_slice() else { panic!("{job} ended {ends:?}") };
        assert!(!matches!(outcome, JobOutcome::NoVerdict { .. }), "{job}: {outcome:?}");
        let row = house.get(job);
        assert_eq!(row["failures"], json!([]), "a full disk is no failure of a job: {row}");
    }
}

#[test]
fn a_full_disk_while_work_runs_loses_nothing_and_the_rig_goes_on_when_there_is_room() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    let Some(disk) = Disk::in_memory(&house.data(), 96) else { return };
    // The floor would keep the disk from filling: here it is to be full.
    house.set("THERMITE_DISK_FLOOR", "0");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    let mut jobs = vec![house.submit(&house.slower("first"))];
    house.judged(&jobs[0]);
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let hold = |lane: u32, ms: &str| house.ask(lane, &[&busy, "hold", &probe, ms, &house.tag]);
    let runs = hold(1, "2500");
    house.running(&runs);
    let waits = hold(2, "10");
    jobs.extend((0..3).map(|number| house.submit(&house.slower(&format!("kept-{number}")))));

    disk.fill(0);

    // While it is full: askers are told so, looking goes on, and what runs ends.
    let change = house.slower("late");
    let body = json!({ "change": change, "champion": "main" });
    let key = Some("late");
    let mut refused = 0;
    until("the rig says that its disk is full", || {
        let answer = house.send("POST", &jobs_path(&house), key, Some(&body)).unwrap();
        refused += u32::from(answer.status == 507);
        assert!(answer.status == 507 || answer.status == 202, "{answer:?}");
        refused >= 3
    });
    let rig = house.get("/v1/rig");
    println!("full: {}; {}", rig["records_fault"], house.get(&jobs[1])["status"]);
    std::thread::sleep(Duration::from_secs(4));
    assert_ne!(house.get(&jobs[3])["status"]["status"], "ended", "nothing is judged that cannot be recorded");

    disk.make_room();

    let began = Instant::now();
    let late = until_taken(&house, &body, key);
    println!("taken again {:?} after there was room", began.elapsed());
    jobs.push(late);
    for job in &jobs {
        house.judged(job);
    }
    assert_eq!(house.ended(&runs)["end"], "exited");
    assert_eq!(house.ended(&waits)["end"], "exited");
    check_jobs(&house, &jobs);
    assert_eq!(house.get("/v1/rig")["records_fault"], Value::Null);
    assert_eq!(house.terminate(), Some(0), "{}", house.log_text());
    house.assert_traceless();
}

/// Asks until it is taken, with one key: asking twice is asking once.
fn until_taken(house: &House, body: &Value, key: Option<&str>) -> String {
    let mut job = String::new();
    until("a job is taken again", || {
        let answer = house.send("POST", &jobs_path(house), key, Some(body)).unwrap();
        let taken = answer.status == 202;
        if taken {
            job = format!("/v1/jobs/{}", answer.body["job"].as_str().unwrap());
        }
        taken
    });
    job
}

#[test]
fn below_the_floor_no_new_work_is_taken_and_the_rig_says_so_and_goes_on_by_itself() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    let Some(disk) = Disk::in_memory(&house.data(), 96) else { return };
    house.set("THERMITE_DISK_FLOOR", "24MiB");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let runs = house.ask(1, &[&busy, "hold", &probe, "6000", &house.tag]);
    house.running(&runs);
    let waits = house.ask(2, &[&busy, "hold", &probe, "10", &house.tag]);
    let lane = format!("{}/lanes/3/dev-runs", house.run());
    let body = json!({ "argv": [busy, "hold", probe, "1", house.tag] });

    disk.fill(8 << 20);

    let mut detail = String::new();
    until("new work is refused", || {
        let answer = house.send("POST", &lane, None, Some(&body)).unwrap();
        detail = answer.body["detail"].to_string();
        if answer.status == 202 {
            let asked = format!("/v1/dev-runs/{}", answer.body["dev_run"].as_str().unwrap());
            house.send("DELETE", &asked, None, None).unwrap();
        }
        answer.status == 507
    });
    println!("{detail}");
    assert!(detail.contains("THERMITE_DISK_FLOOR") && detail.contains("24.0 MiB"), "{detail}");
    let fault = house.get("/v1/rig")["records_fault"].to_string();
    assert!(fault.contains("THERMITE_DISK_FLOOR"), "{fault}");
    assert_eq!(house.ended(&runs)["end"], "exited", "what runs goes on");
    let status = house.get(&waits)["status"].clone();
    assert_eq!(status["wait"]["reason"], "disk_full", "{status}");
    let sentence = status["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("waits for room on the data folder's disk"), "{sentence}");

    disk.make_room();

    assert_eq!(house.ended(&waits)["end"], "exited", "it goes on by itself");
    until("new work is taken", || house.send("POST", &lane, None, Some(&body)).unwrap().status == 202);
    assert_eq!(house.get("/v1/rig")["records_fault"], Value::Null);
}

#[test]
fn a_disk_that_hangs_or_fails_is_said_and_what_was_acknowledged_is_there_after_it() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    // The image has less room than it promises: with none left, writes to it come back as errors.
    let Some(below) = Disk::in_memory(&house.path("below"), 64) else { return };
    let Some(disk) = Disk::on_loop(&house.data(), &house.path("below/image"), 256) else { return };
    let at = house.data();
    let at = at.to_str().unwrap();
    house.set("THERMITE_DISK_FLOOR", "0");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    let mut jobs = vec![house.submit(&house.slower("first"))];
    house.judged(&jobs[0]);
    house.post(&format!("{}/pause", house.run()), &json!({}));

    // Slow beyond measure: no write comes back until it thaws.
    assert!(ran("fsfreeze", &["-f", at]), "fsfreeze of util-linux is needed");
    let change = house.slower("slow");
    let body = json!({ "change": change, "champion": "main" });
    let (answered, frozen_for) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| house.send("POST", &jobs_path(&house), None, Some(&body)).unwrap());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            assert_eq!(house.get("/healthz"), "ok");
            house.get("/v1/rig");
            house.get(&jobs[0]);
        }
        assert!(!asked.is_finished(), "it was answered before it was durable");
        assert!(ran("fsfreeze", &["-u", at]));
        (asked.join().unwrap(), began.elapsed())
    });
    assert_eq!(answered.status, 202, "{answered:?}");
    jobs.push(format!("/v1/jobs/{}", answered.body["job"].as_str().unwrap()));
    println!("a disk that hung for {frozen_for:?}: looked at all the while, then taken");

    // Failing: writes come back as errors, and the kernel makes the file system read-only.
    let device = disk.device.clone().unwrap();
    below.fill(0);
    let mut body = json!({ "change": "main", "champion": "main" });
    let mut number = 0;
    until("the failing disk is said", || {
        number += 1;
        body["change"] = json!(house.slower(&format!("lost-{number}")));
        let answer = house.send("POST", &jobs_path(&house), None, Some(&body)).unwrap();
        if answer.status == 202 {
            // Acknowledged: then it must be there.
            let job = format!("/v1/jobs/{}", answer.body["job"].as_str().unwrap());
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
        answer.status >= 500
    });
    let answer = house.send("POST", &jobs_path(&house), None, Some(&body)).unwrap();
    println!("failing: {} {}", answer.status, answer.body["detail"]);
    assert!(answer.status == 507 || answer.status == 503, "{answer:?}");
    assert_eq!(house.get("/healthz"), "ok", "it still answers");
    house.get(&jobs[0]);

    house.kill();
    until("the processes are gone", || house.tagged().is_empty());
    disk.unmount();
    below.make_room();
    // Other rigs' runs may have the mount in namespaces of their own, until they end; 1 says that it was mended.
    until("the file system is mended", || {
        let mended = Command::new("e2fsck").args(["-p", &device]).output().unwrap();
        mended.status.code().is_some_and(|code| code <= 1)
    });
    assert!(ran("mount", &[&device, at]));
    house.restart();
    house.post(&format!("{}/resume", house.run()), &json!({}));
    for job in &jobs {
        house.judged(job);
    }
    check_jobs(&house, &jobs);
    assert_eq!(house.terminate(), Some(0));
    // A disk that may not be written at all is refused at the start, by name.
    let bound = ran("mount", &["--bind", at, at]) && ran("mount", &["-o", "remount,bind,ro", at]);
    assert!(bound, "{at} cannot be made read-only");
    let refused = crate::binary::Said::by(house.command(&["serve", "--listen", "127.0.0.1:0"]).output().unwrap());
    println!("read-only: {}", refused.err.trim());
    assert!(ran("umount", &[at]));
    assert!(refused.err.contains("Read-only file system") && refused.err.contains(at), "{refused:?}");
}

#[test]
fn a_folder_is_held_to_its_byte_budget_and_says_what_it_pruned() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    house.set("THERMITE_KEEP", "3MiB");
    house.set("THERMITE_KEEP_EVERY", "1");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    let job = house.submit(&house.slower("kept"));
    house.judged(&job);
    let talk = "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789012345678901234567890; \
                i=$((i+1)); done";
    let say = |lane: u32| house.ask(lane, &["sh", "-c", talk]);

    let runs: Vec<String> = (0..24)
        .map(|n| say(1 + n % LANES))
        .inspect(|run| {
            house.ended(run);
        })
        .collect();

    let output = |run: &String| house.send("GET", &format!("{run}/output"), None, None).unwrap();
    until("old outputs are pruned", || output(&runs[0]).status == 410);
    let detail = output(&runs[0]).body["detail"].as_str().unwrap().to_owned();
    println!("{detail}");
    assert!(detail.contains("was pruned on 20") && detail.ends_with("by the byte budget (THERMITE_KEEP)"), "{detail}");
    assert_eq!(output(&runs[23]).status, 200, "the newest stays");
    assert_eq!(house.get(&runs[0])["status"]["status"], "ended", "what is known of the run stays");
    let bytes = || {
        let entries = fs::read_dir(house.data().join("outputs")).unwrap().flatten();
        entries.map(|entry| entry.metadata().map_or(0, |about| about.len())).sum::<u64>()
    };
    until("the outputs are within the budget", || bytes() < 3 << 20);
    let record = house.get(&job)["status"]["record"].as_str().unwrap().to_owned();
    assert_eq!(house.say(&["verify", &record]).code, Some(0), "verdict records are never pruned");
    assert_eq!(house.terminate(), Some(0));
}

#[test]
fn a_budget_that_is_no_size_is_refused_by_name() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    let mut serve = house.command(&["serve", "--listen", "127.0.0.1:0"]);

    let said = crate::binary::Said::by(serve.env("THERMITE_KEEP", "20 gigs").output().unwrap());

    let expected = "THERMITE_KEEP is 20 gigs; it must be a size, such as 20GiB, 500MB or 1048576";
    assert!(said.refused_with(64).contains(expected), "{said:?}");
}
