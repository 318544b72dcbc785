//! `thermite try`: what it refuses, and that nothing of it is left however it ends.
//!
//! Its whole way to the verdicts needs a machine that gets quiet, so the gate does not take it; CI runs the command
//! itself (`thermite try --json`), which exits 0 only where every step was as it should be.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::binary::{Own, Said, apart, command, until};
use crate::fed;
use crate::quota_group::{QuotaGroup, Which};

/// Far more than a whole trial takes.
const TRIAL_MAX: Duration = Duration::from_secs(900);

#[test]
fn a_program_that_is_missing_is_named_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let git = Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
    let git = PathBuf::from(String::from_utf8(git.stdout).unwrap().trim());
    std::os::unix::fs::symlink(git, bin.join("git")).unwrap();
    let tmp = folder.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();

    let said = Said::by(command(&["try"]).env("PATH", &bin).env("TMPDIR", &tmp).output().unwrap());

    let sentence = said.refused_with(69);
    assert!(sentence.starts_with("rustc cannot be run: "), "{sentence}");
    assert!(sentence.ends_with("`thermite try` needs rustc on PATH"), "{sentence}");
    assert_eq!(entries(&tmp), 0);
}

#[test]
fn a_folder_that_holds_something_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "mine").unwrap();

    let said = Said::by(command(&["try", "--keep", folder.path().to_str().unwrap()]).output().unwrap());

    assert!(said.refused_with(69).contains("it is not empty"), "{said:?}");
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn ctrl_c_a_termination_and_a_hangup_end_the_server_and_remove_what_was_made() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        if signal == Signal::HUP && hangup_is_ignored() {
            println!("the tests are run by nohup: a trial goes on after a hangup then, which is right");
            continue;
        }
        let Some(trial) = Trial::under_way() else { return };

        trial.process.signal(signal);
        let said = trial.process.end();

        assert_eq!(said.code, Some(130), "{signal:?}: {said:?}");
        assert_eq!(said.out, "", "{signal:?}: {said:?}");
        assert!(said.err.contains("thermite: ended on request"), "{signal:?}: {said:?}");
        assert!(is_gone(trial.server), "{signal:?}: the server lives on");
        assert_eq!(entries(trial.tmp.path()), 0, "{signal:?}");
    }
}

#[test]
fn a_trial_that_is_killed_takes_its_server_with_it() {
    let Some(trial) = Trial::under_way() else { return };

    trial.process.signal(Signal::KILL);
    trial.process.end();

    until("the server is gone", || is_gone(trial.server));
}

/// The issue's own line: a rig that is held back for a while and killed in its middle ends with verdicts that verify.
#[test]
fn a_trial_whose_rig_is_held_back_and_killed_in_its_middle_ends_with_verdicts_that_verify() {
    let group = QuotaGroup::make(); // Where there is none the kill alone is tested, which is said.
    let machine = tempfile::tempdir().unwrap();
    fed::idle(machine.path());
    fed::with_real_groups(machine.path());
    let Some(mut trial) = Trial::begun_as(|trial| {
        // Times are the machine's own here, and others use it: what is planned for is far above their noise.
        trial.args(["--plan", "100"]).env("THERMITE_PROC_ROOT", machine.path());
        if let Some(group) = &group {
            *trial = group.begin_in(trial);
            trial.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
    }) else {
        return;
    };
    let held_back = |trial: &mut Trial| {
        let Some(group) = &group else { return };
        trial.until_blocks("accepted", 1);
        group.hold(Which::Ancestor, 5_000, 50_000);
        trial.until_blocks("thrown", 1);
        group.lift(Which::Ancestor);
    };

    held_back(&mut trial);
    trial.until_blocks("accepted", 1);
    kill_process(trial.server, Signal::KILL).unwrap();
    until("another rig serves on the same records", || {
        server_below(trial.tmp.path()).is_some_and(|server| server != trial.server)
    });
    held_back(&mut trial);
    let (said, tmp) = trial.end();

    println!("{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    println!("{}", report["lanes"].as_array().unwrap().iter().map(in_short).collect::<Vec<_>>().join("\n"));
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    assert_eq!(report["rig_restarts"], 1);
    let killed = "the rig was killed (signal: 9 (SIGKILL)); it is started again on the same records";
    assert!(said.err.contains(killed), "{}", said.err);
    let (mut thrown_by_quota, mut untold) = (0, 0);
    for lane in report["lanes"].as_array().unwrap() {
        assert_eq!(lane["dev_run"]["end"]["end"], "exited", "{lane}");
        let records = lane["records"].as_array().unwrap();
        // Noise of more than twice the program's time ends without a verdict, and nothing else does.
        let too_noisy = lane["outcome"]["why"].as_str().is_some_and(|why| why.contains("too noisy"));
        assert!(!records.is_empty() || too_noisy, "{lane}");
        untold += u32::from(too_noisy);
        for record in records {
            assert_eq!(record["fault"], Value::Null, "{record}");
            let file = record["file"].as_str().unwrap();
            assert_eq!(Said::by(command(&["verify", file]).output().unwrap()).code, Some(0), "{file}");
            let text = std::fs::read_to_string(file).unwrap();
            thrown_by_quota += text.matches("\"cause\":\"throttled\"").count();
        }
    }
    if let Some(group) = &group {
        println!("{thrown_by_quota} blocks of the records were held back by {}", group.name(Which::Ancestor));
        assert!(thrown_by_quota > 0 || untold > 0, "the records say nothing of the quota");
    }
    drop(tmp);
}

fn in_short(lane: &Value) -> String {
    format!("lane {}: {}, {} records", lane["lane"], lane["outcome"], lane["records"].as_array().map_or(0, Vec::len))
}

/// A trial whose rig serves.
struct Trial {
    process: Own,
    tmp: tempfile::TempDir,
    _locks: tempfile::TempDir,
    server: Pid,
}

impl Trial {
    /// None where this machine gives no isolation, which is said.
    fn under_way() -> Option<Trial> {
        Trial::begun_as(|_| {})
    }

    fn begun_as(set: impl FnOnce(&mut Command)) -> Option<Trial> {
        let tmp = tempfile::tempdir().unwrap();
        let locks = tempfile::tempdir().unwrap();
        let mut trial = command(&["try", "--json"]);
        trial.env("TMPDIR", tmp.path()).envs(apart(locks.path()));
        set(&mut trial);
        let mut process = Own(trial.spawn().unwrap());
        let mut server = None;
        let mut over = false;
        until("the trial's rig serves", || {
            server = server_below(tmp.path());
            over = process.0.try_wait().unwrap().is_some();
            server.is_some() || over
        });
        match server {
            Some(server) => Some(Trial { process, tmp, _locks: locks, server }),
            None => {
                let said = process.end();
                assert!(said.err.contains(crate::binary::NO_CONTAINMENT), "{said:?}");
                println!("skipped: {}", said.err.trim());
                None
            }
        }
    }
}

impl Trial {
    fn data(&self) -> PathBuf {
        std::fs::read_dir(self.tmp.path()).unwrap().flatten().next().unwrap().path().join("data")
    }

    /// The stage under way, where the rig answers and there is one.
    fn stage(&self) -> Option<Value> {
        let said = Said::by(command(&["status", "--json"]).env("THERMITE_DATA", self.data()).output().unwrap());
        let view: Value = serde_json::from_str(&said.out).ok()?;
        let stages = view["jobs"].as_array()?.iter().map(|job| job["status"]["stage"].clone());
        stages.into_iter().find(|stage| !stage.is_null())
    }

    /// Waits until blocks of a stage have come to such a number, of those that count or those that were thrown.
    fn until_blocks(&mut self, what: &str, least: u64) {
        until(what, || {
            assert_eq!(self.process.0.try_wait().unwrap(), None, "the trial is over before its time");
            self.stage().is_some_and(|stage| stage[what].as_u64().is_some_and(|blocks| blocks >= least))
        });
    }

    /// Its end, however long that takes: a machine that others use may make the judge wait.
    fn end(mut self) -> (Said, tempfile::TempDir) {
        let out = self.process.0.stdout.take().map(read_aside).unwrap();
        let err = self.process.0.stderr.take().map(read_aside).unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < TRIAL_MAX, "the trial does not end");
            std::thread::sleep(Duration::from_millis(50));
        };
        let text = |thread: JoinHandle<String>| thread.join().unwrap();
        (Said { code: status.code(), out: text(out), err: text(err) }, self.tmp)
    }
}

fn read_aside(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

fn server_below(tmp: &Path) -> Option<Pid> {
    let base = std::fs::read_dir(tmp).ok()?.flatten().next()?.path();
    let text = std::fs::read(base.join("data/endpoint.json")).ok()?;
    let endpoint: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Pid::from_raw(i32::try_from(endpoint["pid"].as_i64()?).ok()?)
}

/// What this process ignores, a trial that it starts does.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0
}

/// A process that is dead and not yet waited for by whoever took it over is gone as well.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    test_kill_process(pid).is_err() || state.is_none_or(|state| state == "Z")
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}
