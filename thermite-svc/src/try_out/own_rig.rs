//! The rig's own server: this program again, on a folder of its own and a free port, ended on every path.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cli::stop::Stop;
use crate::client::{Client, Place as RigPlace};

use super::TryFault;

/// How long the server may take to answer.
const START_MAX: Duration = Duration::from_secs(60);
/// How long it may take to end by its rules before it is killed.
const END_MAX: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The server and the door to it.
pub(super) struct OwnRig {
    child: std::cell::RefCell<Child>,
    client: Client,
    log: PathBuf,
}

impl OwnRig {
    /// Starts it and waits until it answers.
    pub(super) fn start(data: &Path, log: &Path, stop: &Stop) -> Result<OwnRig, TryFault> {
        let cannot = |why: String| TryFault::Server { what: "cannot be started", why, log: log.display().to_string() };
        let program = std::env::current_exe().map_err(|error| cannot(error.to_string()))?;
        let out = File::create(log).map_err(|error| cannot(error.to_string()))?;
        let err = out.try_clone().map_err(|error| cannot(error.to_string()))?;
        let child = Command::new(program)
            .args(["serve", "--ends-with-parent", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env_remove("THERMITE_LISTEN_OPEN")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // Ctrl-C on the terminal is this process's to act on: it ends the server after what it asked of it.
            .process_group(0)
            .spawn()
            .map_err(|error| cannot(error.to_string()))?;
        let mut child = Ending { child: Some(child) };
        let place = RigPlace { url: None, token_file: None, folder: data.to_owned() };
        let began = Instant::now();
        loop {
            if stop.is_asked() {
                return Err(TryFault::Asked);
            }
            if let Some(status) = child.has_ended() {
                return Err(gone("ended at once", status, log));
            }
            if let Ok(client) = Client::open(&place)
                && client.rig().is_ok()
            {
                let child = child.child.take().expect("it is taken once");
                return Ok(OwnRig { child: child.into(), client, log: log.to_owned() });
            }
            if began.elapsed() > START_MAX {
                return Err(cannot(format!("it does not answer after {} s", START_MAX.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The door.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Says so where it is gone.
    pub(super) fn must_live(&self) -> Result<(), TryFault> {
        match self.child.borrow_mut().try_wait() {
            Ok(Some(status)) => Err(gone("ended by itself", status, &self.log)),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Ends it by its rules.
    pub(super) fn end(&mut self) -> Result<(), TryFault> {
        match end(self.child.get_mut()) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(gone("did not end well", status, &self.log)),
            None => Ok(()),
        }
    }
}

impl Drop for OwnRig {
    fn drop(&mut self) {
        end(self.child.get_mut());
    }
}

/// A child that is ended when it is let go of.
struct Ending {
    child: Option<Child>,
}

impl Ending {
    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

/// SIGTERM to this one process, which ends by its rules what it started; SIGKILL where it does not. Answers with the
/// status of an end that it brought about.
fn end(child: &mut Child) -> Option<ExitStatus> {
    if let Ok(Some(_)) = child.try_wait() {
        return None;
    }
    // The pid is still this child's, since it was not waited for.
    let pid = Pid::from_child(child);
    let _gone_meanwhile = kill_process(pid, Signal::TERM);
    let began = Instant::now();
    while began.elapsed() < END_MAX {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let _gone_meanwhile = child.kill();
    child.wait().ok()
}

fn gone(what: &'static str, status: ExitStatus, log: &Path) -> TryFault {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    TryFault::Server { what, why: format!("{status}: {}", last.trim()), log: log.display().to_string() }
}
