//! `thermite try`: what it refuses, and that nothing of it is left however it ends.
//!
//! Its whole way to the verdicts needs a machine that gets quiet, so the gate does not take it; CI runs the command
//! itself (`thermite try --json`), which exits 0 only where every step was as it should be.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, test_kill_process};

use crate::binary::{Own, Said, apart, command, until};

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
        let tmp = tempfile::tempdir().unwrap();
        let locks = tempfile::tempdir().unwrap();
        let mut trial = command(&["try", "--json"]);
        trial.env("TMPDIR", tmp.path()).envs(apart(locks.path()));
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
                assert!(said.err.contains("no isolation for a run here"), "{said:?}");
                println!("skipped: {}", said.err.trim());
                None
            }
        }
    }
}

fn server_below(tmp: &Path) -> Option<Pid> {
    let base = std::fs::read_dir(tmp).ok()?.flatten().next()?.path();
    let text = std::fs::read(base.join("data/endpoint.json")).ok()?;
    let endpoint: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Pid::from_raw(i32::try_from(endpoint["pid"].as_i64()?).ok()?)
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
