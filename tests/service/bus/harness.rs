//! The real `thermite harness` with the test as its supervisor: what it runs ends with either of them, proved.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermite_actors::host::launch::CaptureDir;
use thermite_actors::ports::{Executor, Outputs, StopProof, TargetDriver};
use thermite_core::contract::{Contract, Target};
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::{DevRunId, HoldId, LaneId, MemberId, RunId};
use thermite_svc::harness::link::{HarnessDevice, HarnessLink, keep};
use uuid::Uuid;

use super::{is_long, on_one_thread, processes_with};
use crate::binary::{NO_CONTAINMENT, Own, PATIENCE, apart, command};
use crate::fed;

#[test]
fn a_run_is_started_and_its_exit_and_output_are_told() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let device = house.supervisor().await;
        let (spec, _) = house.run("echo hello; exit 3");

        let launched = device.start(hold(1), spec.clone()).await.unwrap();
        let exit = device.exited(hold(1)).await;
        let proof = device.stop(hold(1), false).await;

        assert!(launched.pid > 0);
        assert_eq!(exit, Exit::Code(3));
        assert_eq!(proof, StopProof::Empty);
        let outputs = CaptureDir::open(house.place.path().join("data/harness/outputs")).unwrap();
        let output = outputs.read(spec.dev_run, 0, 100).unwrap();
        assert_eq!((output.bytes.as_slice(), output.complete), (&b"hello\n"[..], true));
        assert_eq!(device.facts().target, Target::Cpu);
        assert!(device.read().await.is_ok());
        assert!(device.containment().is_some());
    });
    house.end();
}

#[test]
fn what_runs_is_stopped_and_proved_gone() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let device = house.supervisor().await;
        let (spec, mark) = house.run("trap '' TERM; setsid sleep 1000.MARK & sleep 2000.MARK");
        device.start(hold(1), spec).await.unwrap();
        until_some(&mark).await;

        let proof = device.stop(hold(1), true).await;

        assert_eq!(proof, StopProof::Empty);
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        assert_eq!(device.stop(hold(7), false).await, StopProof::Empty, "a hold that never was");
    });
    house.end();
}

#[test]
fn a_harness_that_is_killed_takes_its_runs_along_and_the_next_one_proves_it() {
    let Some(mut house) = House::start() else { return };
    let times = if is_long() { 20 } else { 2 };
    on_one_thread(async {
        let device = house.supervisor().await;
        for number in 1..=times {
            let (spec, mark) = house.run("setsid sleep 1000.MARK & sleep 2000.MARK");
            device.start(hold(number), spec).await.unwrap();
            until_some(&mark).await;

            let killed = Instant::now();
            house.kill();
            let exit = device.exited(hold(number)).await;
            house.launch();
            let proof = device.stop(hold(number), true).await;

            assert_eq!(exit, Exit::Signal(9));
            assert_eq!(proof, StopProof::Empty, "after {:?}", killed.elapsed());
            assert_eq!(processes_with(&mark), Vec::<String>::new());
            println!("kill -9 of the harness, {number}: proved gone after {:?}", killed.elapsed());
        }
        let (spec, _) = house.run("true");
        device.start(hold(times + 1), spec).await.unwrap();
        assert_eq!(device.exited(hold(times + 1)).await, Exit::Code(0));
    });
    house.end();
}

#[test]
fn when_its_supervisor_is_gone_everything_is_ended_before_the_next_is_let_in() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let (spec, mark) = house.run("setsid sleep 1000.MARK & sleep 2000.MARK");
        let first = tokio::task::LocalSet::new();
        let house_of_first = &house;
        first
            .run_until(async {
                let device = house_of_first.supervisor().await;
                device.start(hold(1), spec).await.unwrap();
                until_some(&mark).await;
                // A second one meanwhile is not let in.
                let second = HarnessLink::new(&house_of_first.socket(), "lab");
                keep(&second, |_| ());
                tokio::time::sleep(Duration::from_millis(600)).await;
                assert!(!second.is_here());
            })
            .await;
        drop(first);

        let device = house.supervisor().await;

        assert_eq!(processes_with(&mark), Vec::<String>::new());
        let (spec, _) = house.run("true");
        device.start(hold(2), spec).await.unwrap();
        assert_eq!(device.exited(hold(2)).await, Exit::Code(0));
    });
    house.end();
}

#[test]
fn its_socket_is_its_own_users_and_who_speaks_otherwise_is_not_heard() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(house.socket()), 0o600);
        assert_eq!(mode(house.socket().parent().unwrap().to_owned()), 0o700);
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[1, 0, 0, 0, 9], &[]] {
            let mut stranger = std::os::unix::net::UnixStream::connect(house.socket()).unwrap();
            std::io::Write::write_all(&mut stranger, said).unwrap();
        }
        let other_rig = HarnessLink::new(&house.socket(), "other");
        keep(&other_rig, |_| ());

        let device = house.supervisor().await;

        assert!(device.is_here());
        assert!(!other_rig.is_here());
    });
    house.end();
}

fn hold(number: u64) -> HoldId {
    HoldId { member: MemberId(1), number }
}

async fn until_some(mark: &str) {
    let began = Instant::now();
    while processes_with(mark).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{mark} does not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A harness on a folder of its own.
struct House {
    place: tempfile::TempDir,
    apart: [(&'static str, String); 2],
    harness: Option<Own>,
}

impl House {
    /// None where this machine gives no containment, which is said.
    fn start() -> Option<House> {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        fed::idle(place.path());
        let apart = apart(&place.path().join("locks"));
        let mut house = House { place, apart, harness: None };
        house.launch();
        let began = Instant::now();
        while !house.socket().exists() {
            if let Some(status) = house.harness.as_mut().and_then(|harness| harness.0.try_wait().unwrap()) {
                let log = house.log();
                if log.contains(NO_CONTAINMENT) {
                    println!("skipped: {}", log.trim());
                    return None;
                }
                panic!("the harness ended with {status}: {log}");
            }
            assert!(began.elapsed() < PATIENCE, "the harness does not come up: {}", house.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(house)
    }

    fn launch(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.place.path().join("log")).unwrap();
        let mut harness = command(&["harness"]);
        harness.arg("--data").arg(self.place.path().join("data")).envs(self.apart.clone());
        harness.envs([("THERMITE_ROLE", "runner"), ("THERMITE_RIG_ID", "lab"), ("THERMITE_TARGET", "cpu")]);
        harness.env("THERMITE_PROC_ROOT", self.place.path());
        harness.stdout(log.try_clone().unwrap()).stderr(log);
        self.harness = Some(Own(harness.spawn().unwrap()));
    }

    fn kill(&mut self) {
        drop(self.harness.take());
    }

    fn end(&mut self) {
        let harness = self.harness.take().unwrap();
        harness.signal(rustix::process::Signal::TERM);
        let said = harness.end();
        assert_eq!(said.code, Some(0), "{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("data/harness/door/harness.sock")
    }

    /// This test as its supervisor.
    async fn supervisor(&self) -> HarnessDevice {
        let link = HarnessLink::new(&self.socket(), "lab");
        keep(&link, |other| panic!("{other}"));
        let came = tokio::time::timeout(PATIENCE, link.came()).await;
        assert_eq!(came.unwrap_or_else(|_| panic!("no harness: {}", self.log())), 1);
        link.device(0)
    }

    /// A development run of that script, and the mark by which its processes are told: it stands for `MARK` there.
    fn run(&self, script: &str) -> (DevRunSpec, String) {
        let dev_run = DevRunId(Uuid::now_v7());
        let mark = format!("{:09}", dev_run.0.as_u128() % 1_000_000_000);
        let worktree = self.place.path().join(format!("tree-{mark}"));
        std::fs::create_dir(&worktree).unwrap();
        let spec = DevRunSpec {
            dev_run,
            run: RunId(Uuid::now_v7()),
            lane: LaneId::new(1).unwrap(),
            worktree,
            argv: vec!["sh".into(), "-c".into(), script.replace("MARK", &mark)],
            env: Vec::new(),
            models: Vec::new(),
            contract: Contract::default(),
        };
        (spec, mark)
    }
}
