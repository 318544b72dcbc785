//! A rig that serves, in this process, over ports that follow the test's script.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, ready};
use serde_json::Value;
use thermite_actors::host::clock::BootClock;
use thermite_actors::host::ids::OsIds;
use thermite_actors::ports::{
    DeviceFacts, DeviceFault, Executor, Launched, MemberPorts, OutputSlice, Outputs, RunRequest, StageRef, StopProof,
    TargetDriver, Workspaces,
};
use thermite_actors::rig::{No, RigSetup};
use thermite_actors::runners::RunnerSetup;
use thermite_actors::testing::ScriptedRunners;
use thermite_core::block::{BlockTimes, Pair, Side};
use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::{DevRunId, HoldId, JobId, MemberId};
use thermite_core::job::PinnedChange;
use thermite_core::readiness::{Clocks, Reading};
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Moment;
use thermite_svc::folder::{Endpoint, OWNER_TOKEN};
use thermite_svc::serve::{Ground, Parts, ServeFault, Service};
use thermite_svc::settings::{Given, Settings};
use tokio::sync::{oneshot, watch};

/// How long a test waits for what must come: far beyond what a loaded machine takes.
const MUST_COME: Duration = Duration::from_secs(60);

/// What the scripted machine does and has done.
#[derive(Clone)]
pub(crate) struct Script(Arc<Inner>);

struct Inner {
    runs: Mutex<BTreeMap<DevRunId, Run>>,
    changed: watch::Sender<()>,
}

struct Run {
    hold: HoldId,
    stubborn: bool,
    output: Vec<u8>,
    exit: Option<Exit>,
}

/// The door of a rig that serves, here or in another process.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// A rig that serves in this process, with its script; ended by the rules when dropped.
pub(crate) struct Served {
    door: Serving,
    pub(crate) script: Script,
    folder: PathBuf,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the door answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Served {
    /// Serves a rig of one scripted CPU in `folder` on any free port.
    pub(crate) fn start(folder: &Path) -> Served {
        Served::start_with(settings_of(folder))
    }

    pub(crate) fn start_with(settings: Settings) -> Served {
        let script = Script::new();
        let (end, ended) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let ports = script.clone();
        let folder = settings.folder.clone();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let assemble = |ground| ready(Ok(assemble_with(ground, ports)));
                let service = Service::start(settings, assemble).await.unwrap();
                tell.send(()).unwrap();
                let _ = ended.await;
                service.end().await;
            });
        });
        told.recv_timeout(MUST_COME).unwrap();
        Served { door: Serving::of(&folder), script, folder, end: Some(end), thread: Some(thread) }
    }

    /// Why such a rig does not start.
    pub(crate) fn fails(settings: Settings) -> ServeFault {
        let script = Script::new();
        actix_web::rt::System::new()
            .block_on(Service::start(settings, |ground| ready(Ok(assemble_with(ground, script)))))
            .err()
            .expect("the rig does not start")
    }

    /// Ends it by the rules and waits.
    pub(crate) fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
            crate::support::assert_replays(&self.folder);
        }
    }
}

impl std::ops::Deref for Served {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.door
    }
}

impl Serving {
    /// The door of the rig that serves in `folder`.
    pub(crate) fn of(folder: &Path) -> Serving {
        let token = std::fs::read_to_string(folder.join(OWNER_TOKEN)).unwrap().trim().to_owned();
        Serving { address: Endpoint::read(folder).unwrap().unwrap().address, token }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &[], &body.to_string())
    }

    pub(crate) fn post_text(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.send("POST", path, &all, body.as_bytes())
    }

    /// One request on a connection of its own, with the owner's token.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        self.send_bare(method, path, &all, body)
    }

    /// One request without a token of its own.
    pub(crate) fn send_bare(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.open(method, path, headers, body);
        Answer::read(&all_of(&mut stream))
    }

    /// A connection on which a request was sent and no answer read.
    pub(crate) fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(MUST_COME)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: rig\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body by its length may close before all of it is sent.
        let _ = stream.write_all(body);
        stream
    }

    /// Starts a run of three lanes; its path.
    pub(crate) fn run(&self) -> String {
        let answer = self.post("/v1/runs", &run_request());
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.headers["location"].clone()
    }

    /// Asks for a development run of a lane; its id and its path.
    pub(crate) fn ask(&self, run: &str, lane: u32, attached: bool) -> (DevRunId, String) {
        let body = serde_json::json!({"argv": ["try", "it"], "attached": attached});
        let answer = self.post(&format!("{run}/lanes/{lane}/dev-runs"), &body);
        assert_eq!(answer.status, 202, "{answer:?}");
        let id = answer.json()["dev_run"].as_str().unwrap().parse().unwrap();
        (id, answer.headers["location"].clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.finish();
    }
}

/// Everything up to the connection's end. A server that refused a body unread resets the connection after its answer.
pub(crate) fn all_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset || bytes.is_empty() => panic!("{error}"),
        Ok(_) | Err(_) => bytes,
    }
}

/// The settings of a rig in `folder` on any free port, with a folder of its own for device locks.
pub(crate) fn settings_of(folder: &Path) -> Settings {
    let given = Given { folder: Some(folder.to_owned()), listen: Some("127.0.0.1:0".into()), listen_open: false };
    let locks = folder.join("device-locks").display().to_string();
    Settings::read(given, |name| (name == "THERMITE_DEVICE_LOCKS").then(|| locks.clone())).unwrap()
}

/// What starts a run of three lanes.
pub(crate) fn run_request() -> Value {
    serde_json::json!({
        "repo": "/scripted", "kit": "kit.toml", "champion": "champion", "lanes": ["/lane-1", "/lane-2", "/lane-3"]
    })
}

impl Answer {
    /// Reads one answer that ends with the connection.
    pub(crate) fn read(bytes: &[u8]) -> Answer {
        let split = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = std::str::from_utf8(&bytes[..split]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Answer { status, headers, body: bytes[split + 4..].to_vec() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Asserts that this is a problem as RFC 9457 has it, and gives its detail.
    pub(crate) fn problem(&self, status: u16, name: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:thermite:problem:{name}"));
        assert_eq!(problem["status"], status);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Script {
    fn new() -> Script {
        Script(Arc::new(Inner { runs: Mutex::default(), changed: watch::Sender::new(()) }))
    }

    /// Waits until the development run has been started.
    pub(crate) fn started(&self, dev_run: DevRunId) {
        crate::support::block_on(async {
            let mut changed = self.0.changed.subscribe();
            let started = async {
                while !self.0.runs.lock().unwrap().contains_key(&dev_run) {
                    changed.changed().await.unwrap();
                }
            };
            tokio::time::timeout(MUST_COME, started).await.expect("the development run starts");
        });
    }

    /// The program writes.
    pub(crate) fn prints(&self, dev_run: DevRunId, text: &str) {
        self.change(dev_run, |run| run.output.extend_from_slice(text.as_bytes()));
    }

    /// The program exits.
    pub(crate) fn exits(&self, dev_run: DevRunId, code: i32) {
        self.change(dev_run, |run| run.exit = Some(Exit::Code(code)));
    }

    fn change(&self, dev_run: DevRunId, how: impl FnOnce(&mut Run)) {
        how(self.0.runs.lock().unwrap().get_mut(&dev_run).expect("it has been started"));
        self.0.changed.send_replace(());
    }
}

/// A rig of one scripted CPU, with a script of its own.
pub(crate) fn assemble(ground: Ground) -> Parts {
    assemble_with(ground, Script::new())
}

fn assemble_with(ground: Ground, script: Script) -> Parts {
    let executor = Rc::new(ScriptedExecutor { script: script.clone() });
    let setup = RigSetup {
        members: vec![MemberPorts { member: MemberId(0), driver: Rc::new(QuietDriver), executor }],
        bench: None,
        workspaces: Rc::new(ScriptedWorkspaces),
        records: ground.records,
        clock: Rc::new(BootClock),
        ids: Rc::new(OsIds),
        inputs: ground.inputs,
        settings: ground.settings.rig,
        runners: RunnerSetup {
            port: Rc::new(ScriptedRunners::new(Rc::new(BootClock), Target::Cpu, 1)),
            ..RunnerSetup::default()
        },
    };
    Parts { setup, outputs: Arc::new(script), stores: None, bus: None }
}

impl Outputs for Script {
    fn read(&self, dev_run: DevRunId, offset: u64, most: usize) -> Option<OutputSlice> {
        let runs = self.0.runs.lock().unwrap();
        let run = runs.get(&dev_run)?;
        let total = run.output.len() as u64;
        let from = offset.min(total) as usize;
        let bytes = run.output[from..].iter().copied().take(most).collect();
        Some(OutputSlice { bytes, offset: from as u64, total, cut: 0, complete: run.exit.is_some() })
    }
}

struct QuietDriver;

impl TargetDriver for QuietDriver {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            target: Target::Cpu,
            uuid: "scripted".into(),
            model: "scripted".into(),
            driver: "scripted 1".into(),
            clock_policy: "none".into(),
            cpus: "0".into(),
            cores: 1,
        }
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        Box::pin(ready(Ok(quiet())))
    }
}

fn quiet() -> Reading {
    Reading { at: Moment::START, signals: Vec::new(), throttle: Vec::new(), clocks: Clocks::default() }
}

struct ScriptedExecutor {
    script: Script,
}

impl Executor for ScriptedExecutor {
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof> {
        Box::pin(ready(StopProof::Empty))
    }

    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>> {
        let run = Run { hold, stubborn: spec.argv[0] == "cannot-be-stopped", output: Vec::new(), exit: None };
        self.script.0.runs.lock().unwrap().insert(spec.dev_run, run);
        self.script.0.changed.send_replace(());
        Box::pin(ready(Ok(Launched { pid: 1, containment: "scripted".into() })))
    }

    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit> {
        let script = self.script.clone();
        Box::pin(async move {
            let mut changed = script.0.changed.subscribe();
            loop {
                let exit = script.0.runs.lock().unwrap().values().find(|run| run.hold == hold).and_then(|run| run.exit);
                if let Some(exit) = exit {
                    return exit;
                }
                changed.changed().await.expect("the script outlives its rig");
            }
        })
    }

    fn stop(&self, hold: HoldId, _gently: bool) -> LocalBoxFuture<'static, StopProof> {
        for run in self.script.0.runs.lock().unwrap().values_mut().filter(|run| run.hold == hold) {
            if run.stubborn {
                return Box::pin(std::future::pending());
            }
            run.exit.get_or_insert(Exit::Signal(15));
        }
        self.script.0.changed.send_replace(());
        Box::pin(ready(StopProof::Empty))
    }

    fn step(&self, _hold: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport> {
        let report = match step {
            StageStep::Prepare => StepReport::Prepared,
            StageStep::Build { side } => StepReport::Built { side, artefact: "artefact".into() },
            StageStep::Check { side } => StepReport::Checked { side },
            StageStep::Look => StepReport::Looked { reading: quiet() },
            StageStep::Block { pair, order } => {
                let change = &stage.job.pinned.change;
                // A harness that favours a label does so whatever runs under it.
                let gains =
                    change.starts_with("faster") && pair == Pair::ChampionAndChange || change.starts_with("biased");
                let times = order.sides().map(|side| timed(side, gains));
                let times = BlockTimes { ns: times, started: Moment::START, before: quiet(), after: quiet() };
                StepReport::Timed { times }
            }
        };
        Box::pin(ready(report))
    }
}

/// A run takes 100 ms with a noise of its own that comes round after 7 runs; a change that gains takes 90 ms.
fn timed(side: Side, gains: bool) -> u64 {
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let noise = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 7 * 100_000;
    let base = if gains && side == Side::Change { 90_000_000 } else { 100_000_000 };
    base + noise
}

struct ScriptedWorkspaces;

impl Workspaces for ScriptedWorkspaces {
    fn open(&self, request: RunRequest) -> LocalBoxFuture<'static, Result<RunSpec, No>> {
        if request.champion == "missing" {
            let why = "revision missing was not found in /scripted".to_owned();
            return Box::pin(ready(Err(Refusal::Repository { why }.into())));
        }
        Box::pin(ready(Ok(RunSpec {
            repo: request.repo,
            kit_path: request.kit,
            kit: kit(),
            kit_hash: "kit".into(),
            champion: request.champion,
            lanes: request.lanes,
        })))
    }

    fn pin(&self, run: RunSpec, champion: String, change: String) -> LocalBoxFuture<'static, Result<PinnedChange, No>> {
        Box::pin(ready(Ok(PinnedChange {
            champion,
            candidate: format!("candidate-{change}"),
            candidate_tree: format!("tree-{change}"),
            change,
            paths: vec!["src/lib.rs".into()],
            kit: run.kit,
            kit_hash: run.kit_hash,
        })))
    }

    fn check_command(&self, spec: &DevRunSpec) -> Result<(), Refusal> {
        if spec.argv[0] == "missing" {
            return Err(Refusal::NoSuchProgram { program: "missing".into(), looked_in: "/bin".into() });
        }
        Ok(())
    }

    fn forget(&self, _job: JobId) -> LocalBoxFuture<'static, ()> {
        Box::pin(ready(()))
    }
}

fn kit() -> Kit {
    Kit {
        name: "scripted".into(),
        target: Target::Cpu,
        build: None,
        check: None,
        measure: Argv(vec!["measure".into()]),
        timer: Timer::Wall,
        editable: vec!["src/**".into()],
        artefacts: Vec::new(),
        models: Vec::new(),
        contract: Contract::default(),
    }
}
