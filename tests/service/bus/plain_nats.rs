//! A nats-server of a test's own without TLS and rights: Debian's program on a free port of 127.0.0.1.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::PATIENCE;

/// A server; killed when it is let go of, whatever state it is in.
pub(crate) struct PlainNats {
    folder: tempfile::TempDir,
    server: Option<Child>,
    port: u16,
}

impl PlainNats {
    /// A server on a free port.
    pub(crate) fn start() -> PlainNats {
        let mut nats = PlainNats { folder: tempfile::tempdir().unwrap(), server: None, port: 0 };
        nats.run();
        nats.port = nats.port_it_took();
        nats
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it runs");
        // It was not waited for, so the pid is still its own.
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts it again where it was. Whoever took its port meanwhile is waited for.
    pub(crate) fn start_again(&mut self) {
        let began = Instant::now();
        loop {
            self.run();
            while self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none()) {
                if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    return;
                }
                assert!(began.elapsed() < PATIENCE, "it does not come up again: {}", self.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(began.elapsed() < PATIENCE, "it ends at its start: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has it stand still, its connections open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.server.as_ref().expect("it runs")), signal).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        // Where the test's own process dies, the kernel ends it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "nats-server", "--addr", "127.0.0.1", "--port", &port]);
        command.arg("--ports_file_dir").arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.server = Some(command.spawn().expect("tests/run.sh installs what the tests need"));
    }

    /// The port that it took by itself, once it listens.
    fn port_it_took(&mut self) -> u16 {
        let server = self.server.as_mut().expect("it runs");
        let file: PathBuf = self.folder.path().join(format!("nats-server_{}.ports", server.id()));
        let began = Instant::now();
        loop {
            let told = std::fs::read(&file).ok();
            let told: Option<serde_json::Value> = told.and_then(|json| serde_json::from_slice(&json).ok());
            if let Some(port) = told.and_then(|told| told["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()) {
                return port;
            }
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "nats-server (Debian's package) does not start: {ended:?} {}", self.log());
            assert!(began.elapsed() < PATIENCE, "nats-server does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PlainNats {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGKILL ends one that stands still, too.
            let _gone_meanwhile = server.kill();
            let _gone_meanwhile = server.wait();
        }
    }
}
