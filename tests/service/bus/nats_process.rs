//! Debian's nats-server as a process of a test's own, on a free port of 127.0.0.1.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::PATIENCE;

/// Arguments of a server that listens on that port (-1: a free one) and has that folder.
type Arguments = fn(i32, &Path) -> Vec<OsString>;

/// A server. It is killed when it is let go of, whatever state it is in; where the test's own process dies, the kernel
/// kills it. The thread that starts it must outlive it.
pub(crate) struct NatsProcess {
    folder: tempfile::TempDir,
    arguments: Arguments,
    server: Option<Child>,
    port: u16,
}

impl NatsProcess {
    /// A server that listens, on a port that it took by itself.
    pub(crate) fn start(folder: tempfile::TempDir, arguments: Arguments) -> NatsProcess {
        let mut process = NatsProcess { folder, arguments, server: None, port: 0 };
        process.run();
        process.port = process.port_of("nats");
        process
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file of its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it runs");
        // It was not waited for, so the pid is still its own.
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts it again where it was, after [`NatsProcess::kill`]. Whoever took its port meanwhile is waited for.
    pub(crate) fn start_again(&mut self) {
        let began = Instant::now();
        loop {
            self.run();
            while self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none()) {
                if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    return;
                }
                assert!(began.elapsed() < PATIENCE, "it does not come up again: {}", self.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(began.elapsed() < PATIENCE, "it ends at its start: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has it stand still, as SIGSTOP does, its connections open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on after [`NatsProcess::pause`].
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.server.as_ref().expect("it runs")), signal).unwrap();
    }

    fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let port = if self.port == 0 { -1 } else { i32::from(self.port) };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "nats-server"]).args((self.arguments)(port, self.folder.path()));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let started = command.spawn();
        self.server = Some(started.expect("setpriv (util-linux) is there; tests/run.sh installs what the tests need"));
    }

    /// The port that it took by itself for that, in the words of its ports file, once it listens.
    pub(crate) fn port_of(&mut self, what: &str) -> u16 {
        let server = self.server.as_mut().expect("it runs");
        let file = self.folder.path().join(format!("nats-server_{}.ports", server.id()));
        let began = Instant::now();
        loop {
            let told: Option<Value> = fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
            if let Some(port) = told.and_then(|told| told[what][0].as_str()?.rsplit(':').next()?.parse().ok()) {
                return port;
            }
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "nats-server (Debian's package) does not start: {ended:?} {}", self.log());
            assert!(began.elapsed() < PATIENCE, "nats-server does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for NatsProcess {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGKILL ends one that stands still, too.
            let _gone_meanwhile = server.kill();
            let _gone_meanwhile = server.wait();
        }
        if std::thread::panicking() {
            println!("nats-server said:\n{}", self.log());
        }
    }
}
