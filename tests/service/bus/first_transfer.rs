//! What the first commit of a large repository costs on its way to a runner over the real bus, against a clone.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nkeys::KeyPair;
use tokio::sync::mpsc;
use uuid::Uuid;

use thermite_actors::host::bulk::{Bringer, BulkServer};
use thermite_actors::host::git::Git;
use thermite_actors::testing::Luck;
use thermite_core::ids::RunId;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk};
use thermite_svc::bus::connection::{Access, BusThread, Pass, Rights};
use thermite_svc::bus::nats::open_core;
use thermite_svc::bus::runner_side::{Question, RunnerSide};
use thermite_svc::control::authority::Rights as Admitted;

use super::is_long;
use super::link::{box_2, lab, median};
use super::nats::{Credentials, Nats};
use super::on_one_thread as block_on;
use crate::binary::{git, until};

/// How often each is measured.
const TIMES: usize = 5;

/// A figure, and a bound on it (issue 5): of the long set, since it takes half a minute and a repository of 45 MB.
#[test]
fn the_first_transfer_of_a_large_repository_takes_at_most_twice_a_clone_over_loopback() {
    if !is_long() {
        println!("left out: a figure, and a repository of 45 MB; THERMITE_LONG=1 runs it (tests/long.sh)");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let repo = root.join("repo");
    std::fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    for at in 0..2_040_u64 {
        let path = repo.join(format!("src/{}/{at}", at % 40));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, noise(27_000, at + 1)).unwrap();
    }
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "-m", "first"]);
    git(&repo, &["repack", "-a", "-d", "--quiet"]);
    let core_data = root.join("data");
    let store = Git::open(&core_data).unwrap();
    let found = store.repository(&repo).unwrap();
    let head = store.resolve(&found, "HEAD").unwrap();
    store.keep(&found, &head).unwrap();
    let daemon = Daemon::over(&root);
    let nats = Nats::start();
    let (mut clones, mut brings) = (Vec::new(), Vec::new());

    for time in 0..TIMES {
        let begun = Instant::now();
        git(&root, &["clone", "--quiet", "--bare", &daemon.url("repo/.git"), &format!("clone-{time}.git")]);
        clones.push(begun.elapsed());
        let runner = root.join(format!("runner-{time}"));
        std::fs::create_dir(&runner).unwrap();
        brings.push(block_on(brought(&nats, &core_data, &runner, &head)));
        println!("clone {:?}, bring {:?}", clones[time], brings[time]);
    }

    let (clone, bring) = (median(clones), median(brings));
    println!("medians: clone {clone:?}, bring {bring:?}");
    assert!(bring <= 2 * clone, "bring {bring:?} against clone {clone:?}");
}

/// How long a commit takes from a core's store into a runner's that has nothing, over TLS and with rights, both ends as in
/// their processes.
async fn brought(nats: &Nats, core: &Path, runner: &Path, head: &str) -> Duration {
    let thread = Rc::new(BusThread::start().unwrap());
    let (told, _) = mpsc::unbounded_channel();
    let by = nats.admit(&Admitted::Supervisor(box_2()));
    let side = RunnerSide::open(Rc::clone(&thread), lab(), box_2(), access(nats, &by), told).await.unwrap();
    let server = BulkServer::open(runner).unwrap();
    let mut asks = side.bulk_asks::<BulkAsk, BulkAnswer>();
    tokio::task::spawn_local(async move {
        while let Some(Question { what, answer }) = asks.recv().await {
            let said = server.answer(what);
            tokio::task::spawn_local(async move { drop(answer.send(said.await)) });
        }
    });
    let (told, _) = mpsc::unbounded_channel();
    let by = nats.admit(&Admitted::Core);
    let (_small, bulk) = open_core(thread, lab(), access(nats, &by), told).await.unwrap();
    let run = RunId(Uuid::from_u128(7));
    // Ready is who answers.
    let nothing = BulkAsk::Tips { run, wanted: Vec::new() };
    while bulk.ask_anything::<_, BulkAnswer>(&box_2(), nothing.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bringer = Bringer::open(core, Rc::new(bulk)).unwrap();

    let begun = Instant::now();
    let brought = bringer.bring(&box_2(), run, &[head.to_owned()]).await.unwrap();
    let took = begun.elapsed();

    assert!(brought.bytes > 40_000_000, "{brought:?}");
    took
}

fn access(nats: &Nats, by: &Credentials) -> Access {
    let key = KeyPair::from_seed(&by.key.seed().unwrap()).unwrap();
    let rights = Rights::Key(Pass::new(key, by.jwt.clone()));
    Access { url: nats.url(), ca: Some(nats.ca()), rights, name: "first transfer".to_owned() }
}

/// Text that does not pack, by a seed.
fn noise(bytes: usize, seed: u64) -> String {
    let mut luck = Luck::new(seed);
    (0..bytes).map(|at| if at % 80 == 79 { '\n' } else { char::from(b'!' + luck.below(90) as u8) }).collect()
}

/// `git daemon` over a folder, on a free port of loopback, ended with the value.
struct Daemon {
    process: Child,
    port: u16,
}

impl Daemon {
    fn over(folder: &Path) -> Daemon {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("git")
            .args(["daemon", "--export-all", "--listen=127.0.0.1", &format!("--port={port}")])
            .arg(format!("--base-path={}", folder.display()))
            .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("git daemon answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Daemon { process, port }
    }

    fn url(&self, path: &str) -> String {
        format!("git://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // `git` itself has replaced nothing: its child is the daemon, and both are of this test.
        for pid in std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.process.id()))
            .unwrap_or_default()
            .split_whitespace()
        {
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
