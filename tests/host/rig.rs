//! A rig for the tests: does what it is told line by line, as whatever user it was started as, and can be killed.
//!
//! A request is a JSON object `{"id": n, "do": "...", ...}`; its answer is `{"id": n, "ok": ...}` or
//! `{"id": n, "fault": "..."}`. Requests run side by side.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod hostile;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use serde_json::{Value, json};
use thermite_actors::host::launch::{self, Cards, LaunchSpec, Launcher, LauncherSettings, Run};
use thermite_actors::ports::StopProof;
use thermite_core::dev_run::Exit;

fn main() -> ExitCode {
    if let Some(code) = launch::entry() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["hostile", secret, open, rig] => {
            hostile::attempt_all(secret.as_ref(), open.as_ref(), rig.parse().expect("a pid"));
            return ExitCode::SUCCESS;
        }
        ["forks", most] => {
            hostile::fork_until_refused(most.parse().expect("a number"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime with IO and time can be made");
    tokio::task::LocalSet::new().block_on(&runtime, serve());
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Rig {
    launcher: RefCell<Option<Launcher>>,
    runs: RefCell<BTreeMap<String, Rc<Run>>>,
}

async fn serve() {
    let (send, mut requests) = tokio::sync::mpsc::unbounded_channel::<Value>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let request = serde_json::from_str(&line).expect("the tests write JSON");
            if send.send(request).is_err() {
                break;
            }
        }
    });
    let rig = Rc::new(Rig::default());
    while let Some(request) = requests.recv().await {
        let rig = rig.clone();
        tokio::task::spawn_local(async move {
            let id = request["id"].clone();
            let answer = match rig.answer(&request).await {
                Ok(value) => json!({ "id": id, "ok": value }),
                Err(fault) => json!({ "id": id, "fault": fault }),
            };
            let mut out = std::io::stdout().lock();
            // The test may be gone; then nobody reads.
            let _ = writeln!(out, "{answer}");
            let _ = out.flush();
        });
    }
}

impl Rig {
    fn run(&self, request: &Value) -> Result<Rc<Run>, String> {
        let name = request["run"].as_str().unwrap_or_default();
        self.runs.borrow().get(name).cloned().ok_or_else(|| format!("no run {name}"))
    }

    async fn answer(&self, request: &Value) -> Result<Value, String> {
        match request["do"].as_str().unwrap_or_default() {
            "open" => {
                let settings = LauncherSettings {
                    rig: request["rig"].as_str().unwrap_or_default().to_owned(),
                    state: path(&request["state"]),
                    hidden: request["hidden"].as_array().into_iter().flatten().map(path).collect(),
                    program: LauncherSettings::THIS_PROGRAM.into(),
                    wanted: request["wanted"].as_str().unwrap_or("best").parse()?,
                    trial_uid: serde_json::from_value(request["trial_uid"].clone()).map_err(|e| e.to_string())?,
                    cards: match &request["cards"] {
                        Value::Null => Cards::default(),
                        cards => serde_json::from_value(cards.clone()).map_err(|e| e.to_string())?,
                    },
                };
                let launcher = Launcher::open(settings).await.map_err(|fault| fault.to_string())?;
                let containment = serde_json::to_value(launcher.containment()).expect("plain data has a JSON form");
                *self.launcher.borrow_mut() = Some(launcher);
                Ok(containment)
            }
            "launch" => {
                let spec: LaunchSpec = serde_json::from_value(request["spec"].clone()).map_err(|e| e.to_string())?;
                let launcher = self.launcher.borrow().clone().ok_or("no launcher was opened")?;
                let run = launcher.launch(spec).await.map_err(|fault| fault.to_string())?;
                let facts = json!({ "pid": run.pid(), "launcher": run.launcher_pid() });
                self.runs.borrow_mut().insert(run.name().to_owned(), Rc::new(run));
                Ok(facts)
            }
            // Asked for and let go of before it is at its gate.
            "launch-and-forget" => {
                let spec: LaunchSpec = serde_json::from_value(request["spec"].clone()).map_err(|e| e.to_string())?;
                let launcher = self.launcher.borrow().clone().ok_or("no launcher was opened")?;
                let launch = tokio::time::timeout(std::time::Duration::ZERO, launcher.launch(spec)).await;
                Ok(launch.is_err().into())
            }
            "go" => self.run(request)?.go().await.map(|()| Value::Null).map_err(|fault| fault.to_string()),
            "ended" => {
                let ended = self.run(request)?.ended().await;
                let exit = match ended.exit {
                    Exit::Code(code) => format!("code {code}"),
                    Exit::Signal(signal) => format!("signal {signal}"),
                };
                let reported = String::from_utf8_lossy(&ended.reported).into_owned();
                Ok(json!({
                    "exit": exit, "wall_ns": ended.wall_ns, "cpu_ns": ended.cpu_ns, "reported": reported,
                    "reported_by_others": ended.reported_by_others
                }))
            }
            "stop" => {
                let proof = self.run(request)?.stop(request["gently"] == true).await;
                Ok(proof_value(proof))
            }
            "over" => Ok(self.run(request)?.is_over().into()),
            "processes" => {
                let found = self.run(request)?.processes(100);
                Ok(found.into_iter().map(|process| json!({ "pid": process.pid, "command": process.command })).collect())
            }
            "finished" => {
                self.run(request)?.finished().await;
                Ok(Value::Null)
            }
            "drop" => {
                self.runs.borrow_mut().remove(request["run"].as_str().unwrap_or_default());
                Ok(Value::Null)
            }
            "sweep" => {
                let name = request["rig"].as_str().unwrap_or_default().to_owned();
                let state = path(&request["state"]);
                let uids: Vec<u32> = serde_json::from_value(request["uids"].clone()).map_err(|e| e.to_string())?;
                let only = request["only"].as_str().map(str::to_owned);
                let swept =
                    tokio::task::spawn_blocking(move || launch::sweep(&name, &state, &uids, only.as_deref())).await;
                let swept = swept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
                Ok(json!({ "proof": proof_value(swept.proof), "found": swept.found }))
            }
            "card_ways" => {
                let launcher = self.launcher.borrow().clone().ok_or("no launcher was opened")?;
                let ways = launcher.card_ways().await.iter();
                let ways = ways.map(|(way, works)| json!({ "way": way, "why": works.as_ref().err() }));
                Ok(json!({ "ways": ways.collect::<Value>(), "cpus": launcher.cpu_hold() }))
            }
            "peak" => Ok(peak_kib().into()),
            other => Err(format!("{other:?} is not known here")),
        }
    }
}

fn path(value: &Value) -> PathBuf {
    value.as_str().unwrap_or_default().into()
}

fn proof_value(proof: StopProof) -> Value {
    match proof {
        StopProof::Empty => "empty".into(),
        StopProof::NotProved { why } => why.into(),
    }
}

/// The most memory this process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().expect("the kernel gives VmHWM in kB")
}
