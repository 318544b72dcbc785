//! The ends of a rig and its refusals to begin: SIGTERM, a folder that is taken, another version, a full disk.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use thermite_core::dev_run::DevRunEnd;
use thermite_core::limits;
use thermite_core::log::LogEntry;
use thermite_svc::records::FILE;

use super::house::{House, Load, Who, is_root};
use crate::binary::{Said, until};

#[test]
fn sigterm_ends_what_runs_and_what_waits_and_keeps_the_queue() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let runs = house.ask(1, &[&busy, "hold", &probe, "200000", &house.tag]);
    house.running(&runs);
    let waits = house.ask(2, &[&busy, "hold", &probe, "1", &house.tag]);
    let job = house.submit(&house.slower("kept"));

    end_in_time(&house);

    house.assert_traceless();
    house.restart();
    for run in [&runs, &waits] {
        assert_eq!(house.ended(run)["end"], "rig_ended");
    }
    assert_eq!(house.judged(&job)["outcome"]["outcome"], "no_gain", "the job is judged by the next life");
    let (recorded, started) = ends_by_life(&house);
    assert_eq!(recorded, 2, "both ends were recorded by the life that ended");
    assert_eq!(started, 2);
}

#[test]
fn sigterm_in_a_stage_leaves_the_job_queued() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let job = house.submit(&house.slower("kept"));
    until("a block is under way", || !house.tagged().is_empty());
    let waits = house.ask(2, &[&house.shared("busy"), "hold", &house.at("probe"), "1", &house.tag]);

    end_in_time(&house);

    house.assert_traceless();
    assert!(!house.facts().iter().any(|fact| matches!(fact, LogEntry::JobEnded { .. })), "it was not judged");
    house.restart();
    assert_eq!(house.ended(&waits)["end"], "rig_ended");
    assert_eq!(house.judged(&job)["outcome"]["outcome"], "no_gain");
    let ends = house.facts().iter().filter(|fact| matches!(fact, LogEntry::JobEnded { .. })).count();
    assert_eq!(ends, 1);
}

fn end_in_time(house: &House) {
    let began = Instant::now();
    assert_eq!(house.terminate(), Some(0), "{}", house.log_text());
    let most = limits::RIG_END_MAX + limits::REST_SHUTDOWN_MAX;
    println!("ended in {:?}; at most {most}", began.elapsed());
    assert!(began.elapsed() <= most.to_std(), "{:?}", began.elapsed());
}

/// Development runs whose end as the rig's was recorded before the second start, and how many starts there are.
fn ends_by_life(house: &House) -> (usize, usize) {
    let (mut ends, mut starts) = (0, 0);
    for fact in house.facts() {
        match fact {
            LogEntry::RigStarted => starts += 1,
            LogEntry::DevRunEnded { end: DevRunEnd::RigEnded, .. } if starts == 1 => ends += 1,
            _ => {}
        }
    }
    (ends, starts)
}

#[test]
fn what_is_taken_is_refused_and_the_rig_that_has_it_goes_on() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let runs = house.ask(1, &[&busy, "hold", &probe, "200000", &house.tag]);
    house.running(&runs);
    let refusal = |mut serve: Command| Said::by(serve.output().unwrap());

    let folder = refusal(house.command(&["serve", "--listen", "127.0.0.1:0"]));
    let elsewhere = house.at("elsewhere");
    let mut serve = house.serve_command();
    serve.args(["--data", &elsewhere]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let device = refusal(serve);
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let other = house.at("other");
    let port = refusal(house.command(&["serve", "--data", &other, "--listen", &address]));

    let sentence = folder.refused_with(75);
    assert!(sentence.contains(&format!("is in use by process {}", house.pid())), "{sentence}");
    assert_eq!(device.code, Some(75), "{device:?}");
    assert!(device.err.contains("is another rig's (lock "), "the device has one rig, whatever its folder: {device:?}");
    assert!(port.refused_with(75).starts_with(&format!("{address} is in use by another program")), "{port:?}");
    assert!(!Path::new(&other).join(FILE).exists(), "no records were begun");
    assert_eq!(house.get(&runs)["status"]["status"], "running", "the rig's own run goes on");
}

#[test]
fn a_folder_of_a_newer_version_is_refused_and_left_as_it_is() {
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    assert_eq!(house.terminate(), Some(0));
    let file = house.data().join(FILE);
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let before = fs::read(&file).unwrap();

    let said = Said::by(house.command(&["serve", "--listen", "127.0.0.1:0"]).output().unwrap());

    assert!(said.refused_with(78).contains("was written by a newer thermite (schema 7;"), "{said:?}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// A small file system of its own, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> SmallDisk {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=24m,mode=700", "thermite-test"]).arg(&at);
        assert!(mount.status().unwrap().success());
        SmallDisk(at)
    }

    /// Takes all room there is.
    fn fill(&self) {
        let fill = Command::new("sh").args(["-c", "cat /dev/zero >\"$0\" 2>/dev/null"]).arg(self.filler()).status();
        assert!(!fill.unwrap().success(), "a disk that does not fill");
    }

    fn give_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _said = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_answered_507_and_nothing_that_was_acknowledged_is_lost() {
    if !is_root() {
        println!("not root: no small disk can be mounted, so this is not tested");
        return;
    }
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    let disk = SmallDisk::mount(house.data());
    // Without a floor the records are what the full disk hits.
    house.set("THERMITE_DISK_FLOOR", "0");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    let mut jobs: Vec<String> = (0..2).map(|n| house.submit(&house.slower(&format!("kept{n}")))).collect();

    disk.fill();
    // What the log has room left for is still taken and kept; then it is full.
    let mut refused = None;
    until("a submit is refused", || {
        let change = house.slower(&format!("more{}", jobs.len()));
        let body = serde_json::json!({ "change": change, "champion": "main" });
        let answer = house.send("POST", &format!("{}/jobs", house.run()), None, Some(&body)).unwrap();
        if answer.status == 202 {
            jobs.push(format!("/v1/jobs/{}", answer.body["job"].as_str().unwrap()));
        } else {
            refused = Some(answer);
        }
        refused.is_some()
    });
    let refused = refused.unwrap();
    println!("with {} jobs taken: {}", jobs.len(), refused.body);
    assert_eq!(refused.status, 507, "{refused:?}");
    until("the rig says that its records cannot be written", || house.get("/v1/rig")["records_fault"].is_string());

    // It goes on by itself when there is room, and so does a life that begins after a kill on the full disk.
    disk.give_room();
    let late = house.change("7000", "late");
    until("a submit is taken again", || {
        let body = serde_json::json!({ "change": late, "champion": "main" });
        let answer = house.send("POST", &format!("{}/jobs", house.run()), None, Some(&body)).unwrap();
        if answer.status == 202 {
            jobs.push(format!("/v1/jobs/{}", answer.body["job"].as_str().unwrap()));
        }
        answer.status == 202
    });
    disk.fill();
    house.kill();
    disk.give_room();
    house.restart();
    for job in &jobs {
        let ended = house.judged(job);
        assert_eq!(ended["outcome"]["outcome"], "no_gain", "{ended}");
    }
    let ends = house.facts().iter().filter(|fact| matches!(fact, LogEntry::JobEnded { .. })).count();
    assert_eq!(ends, jobs.len(), "one verdict each");
    assert_eq!(house.terminate(), Some(0));
}
