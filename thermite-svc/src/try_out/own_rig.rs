//! The rig's own server: this program again, on a folder of its own and a free port, ended on every path.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use thermite_core::contract::Target;
use thermite_svc::folder::Endpoint;

use crate::cli::say::Say;
use crate::cli::stop::Stop;
use crate::client::{Client, Fault, Place as RigPlace};

use super::TryFault;

/// How long the server may take to answer.
const START_MAX: Duration = Duration::from_secs(60);
/// How long it may take to end by its rules before it is killed.
const END_MAX: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often a server that was killed is started again; one that is killed more often has a cause that stays.
const RESTARTS_MAX: u32 = 5;
/// How long after a broken connection the server's end may take to show.
const END_SHOWS_MAX: Duration = Duration::from_secs(5);

/// The server and the door to it. One that is killed is started again over the same folder: what it acknowledged is in
/// its records, so the work goes on (rule D7).
pub(super) struct OwnRig<'a> {
    data: PathBuf,
    log: PathBuf,
    target: Target,
    stop: &'a Stop,
    say: &'a Say,
    child: RefCell<Child>,
    client: RefCell<Client>,
    restarts: Cell<u32>,
}

impl<'a> OwnRig<'a> {
    /// Starts it and waits until it answers.
    pub(super) fn start(
        data: &Path,
        log: &Path,
        target: Target,
        stop: &'a Stop,
        say: &'a Say,
    ) -> Result<OwnRig<'a>, TryFault> {
        let (child, client) = begin(data, log, target, stop)?;
        Ok(OwnRig {
            data: data.to_owned(),
            log: log.to_owned(),
            target,
            stop,
            say,
            child: child.into(),
            client: client.into(),
            restarts: Cell::new(0),
        })
    }

    /// The door as it is: another one after a restart.
    pub(super) fn client(&self) -> Client {
        self.client.borrow().clone()
    }

    /// How often it was killed and started again.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.get()
    }

    /// Asks it; where it was killed meanwhile it is started again and asked again, so `what` must be safe to say twice.
    pub(super) fn ask<T>(&self, what: impl Fn(&Client) -> Result<T, Fault>) -> Result<T, TryFault> {
        loop {
            let client = self.client();
            let fault = match what(&client) {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let broke = matches!(fault, Fault::Unreachable { .. });
            // Whoever answered for a rig that is dead has only its port.
            if !self.is_killed(if broke { END_SHOWS_MAX } else { Duration::ZERO })? {
                return Err(fault.into());
            }
            self.start_again()?;
        }
    }

    /// Starts it again where it was killed; says so where it ended by itself.
    pub(super) fn must_live(&self) -> Result<(), TryFault> {
        if self.is_killed(Duration::ZERO)? { self.start_again() } else { Ok(()) }
    }

    /// Whether a signal ended it, shown within `wait`; an end of its own is a fault.
    fn is_killed(&self, wait: Duration) -> Result<bool, TryFault> {
        let began = Instant::now();
        loop {
            let status = self.child.borrow_mut().try_wait().ok().flatten();
            match status {
                Some(status) if status.signal().is_some() => return Ok(true),
                Some(status) => return Err(gone("ended by itself", status, &self.log)),
                None if began.elapsed() >= wait => return Ok(false),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn start_again(&self) -> Result<(), TryFault> {
        let status = self.child.borrow_mut().wait();
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        if self.restarts.get() == RESTARTS_MAX {
            let why = format!("{how}; it was started again {RESTARTS_MAX} times already");
            return Err(TryFault::Server { what: "was killed", why, log: self.log.display().to_string() });
        }
        self.restarts.set(self.restarts.get() + 1);
        self.say.aside(&format!("thermite: the rig was killed ({how}); it is started again on the same records"));
        let (child, client) = begin(&self.data, &self.log, self.target, self.stop)?;
        self.say.aside(&format!("thermite: the rig answers again at {}; the work goes on", client.base()));
        *self.child.borrow_mut() = child;
        self.client.replace(client);
        Ok(())
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

impl Drop for OwnRig<'_> {
    fn drop(&mut self) {
        end(self.child.get_mut());
    }
}

fn begin(data: &Path, log: &Path, target: Target, stop: &Stop) -> Result<(Child, Client), TryFault> {
    let cannot = |why: String| TryFault::Server { what: "cannot be started", why, log: log.display().to_string() };
    let program = std::env::current_exe().map_err(|error| cannot(error.to_string()))?;
    let out = File::options().create(true).append(true).open(log).map_err(|error| cannot(error.to_string()))?;
    let err = out.try_clone().map_err(|error| cannot(error.to_string()))?;
    let mut serve = Command::new(program);
    if target == Target::Cpu {
        // They speak of cards, which this rig has none of.
        serve.env_remove("THERMITE_GPUS").env_remove("THERMITE_SPLIT");
    }
    let child = serve
        .env("THERMITE_TARGET", target.name())
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
    let pid = child.id();
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
        // A killed one has left its address behind, which may be another program's by now.
        let is_its_own = Endpoint::read(data).ok().flatten().is_some_and(|endpoint| endpoint.pid == pid);
        if is_its_own
            && let Ok(client) = Client::open(&place)
            && client.rig().is_ok()
        {
            let child = child.child.take().expect("it is taken once");
            return Ok((child, client));
        }
        if began.elapsed() > START_MAX {
            return Err(cannot(format!("it does not answer after {} s", START_MAX.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
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
