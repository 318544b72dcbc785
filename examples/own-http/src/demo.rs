//! The service asked by itself: a repository, two lanes, one command, one change, a restart, the verdict.

use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::doors::serve_on;
use crate::rig::Place;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// How long the whole may take: a stuck demonstration is a failed one.
const MOST: Duration = Duration::from_secs(240);

const KIT: &str = r#"
name = "count"
target = "cpu"
measure = ["sh", "count.sh"]
editable = ["count.sh"]

[contract]
plan_percent = 50.0
gate_percent = 20.0
"#;

/// Plays it through; fails where an answer is not as it should be.
pub(crate) fn demo() -> Fallible<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    // Lanes' accounts have to reach their trees.
    std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let repo = repository(root)?;
    let lanes = ["lane-1", "lane-2"].map(|lane| root.join(lane));
    let began = Instant::now();

    let fed_load = Some(idle_machine(root)?);
    let place =
        || Place { data: root.join("data"), repo: repo.clone(), lanes: lanes.to_vec(), fed_load: fed_load.clone() };
    let id = served(place(), |at| {
        let told = post(at, "commands", &json!({"lane": 1, "argv": ["echo", "hello from lane 1"]}))?;
        println!("a command: {told}");
        ensure(told["output"] == "hello from lane 1\n", "the command's output")?;
        let refused = post(at, "commands", &json!({"lane": 9, "argv": ["true"]}));
        println!("a lane that is not there: {}", refused.as_ref().err().ok_or("it was not refused")?);
        let told = post(at, "changes", &json!({"revision": "lane-2"}))?;
        println!("a change: {told}");
        Ok(told["id"].as_str().ok_or("no id")?.to_owned())
    })?;

    // The service ended with the change in its queue; the next one goes on with it.
    served(place(), |at| {
        let mut said = String::new();
        loop {
            let told = get(at, &format!("changes/{id}"))?;
            let says = told["says"].as_str().unwrap_or_default();
            if said.split(',').next() != says.split(',').next() {
                println!("after a restart: {says}");
                says.clone_into(&mut said);
            }
            if told["over"] == true {
                return ensure(said == "faster, and the champion from here on", "the verdict");
            }
            ensure(began.elapsed() < MOST, "a verdict in time")?;
            std::thread::sleep(Duration::from_millis(200));
        }
    })
}

fn ensure(holds: bool, what: &str) -> Fallible<()> {
    if holds { Ok(()) } else { Err(format!("{what} is not as it should be").into()) }
}

/// The service on a thread of its own, as long as `ask` asks.
fn served<T>(place: Place, ask: impl FnOnce(&str) -> Fallible<T>) -> Fallible<T> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let at = format!("http://{}", listener.local_addr()?);
    let (end, ended) = oneshot::channel::<()>();
    let service = std::thread::spawn(move || {
        let told = serve_on(listener, place, async { drop(ended.await) });
        told.map_err(|fault| fault.to_string())
    });
    let asked = ask(&at);
    // A service that could not start has said why.
    let _ = end.send(());
    service.join().map_err(|_| "the service panicked")??;
    asked
}

fn post(at: &str, path: &str, body: &Value) -> Fallible<Value> {
    Ok(ureq::post(format!("{at}/{path}")).send_json(body)?.body_mut().read_json()?)
}

fn get(at: &str, path: &str) -> Fallible<Value> {
    Ok(ureq::get(format!("{at}/{path}")).call()?.body_mut().read_json()?)
}

/// The files of a machine on which nothing else runs.
fn idle_machine(root: &Path) -> Fallible<PathBuf> {
    let idle = root.join("idle");
    for (path, text) in [
        ("proc/loadavg", "0.00 0.00 0.00 1/100 1\n"),
        ("proc/stat", "cpu0 1 0 0 1 0 0 0 0 0 0\n"),
        ("proc/self/stat", "7 (rig) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0"),
        ("proc/self/status", "Name:\trig\nCpus_allowed_list:\t0\n"),
    ] {
        let path = idle.join(path);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, text)?;
    }
    Ok(idle)
}

/// A program that counts far, and on branch `lane-2` one that counts less far.
fn repository(root: &Path) -> Fallible<PathBuf> {
    let repo = root.join("repo");
    std::fs::create_dir(&repo)?;
    std::fs::write(repo.join("kit.toml"), KIT)?;
    let count = |to: u32| format!("i=0; while [ $i -lt {to} ]; do i=$((i + 1)); done\n");
    std::fs::write(repo.join("count.sh"), count(60_000))?;
    git(&repo, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repo, &["add", "."])?;
    git(&repo, &["commit", "--quiet", "--message=Count"])?;
    git(&repo, &["worktree", "add", "--quiet", "-b", "lane-1", "../lane-1"])?;
    git(&repo, &["worktree", "add", "--quiet", "-b", "lane-2", "../lane-2"])?;
    let lane = root.join("lane-2");
    std::fs::write(lane.join("count.sh"), count(20_000))?;
    git(&lane, &["commit", "--quiet", "--all", "--message=Count less far"])?;
    Ok(repo)
}

fn git(at: &Path, arguments: &[&str]) -> Fallible<()> {
    let who = ["-c", "user.name=demo", "-c", "user.email=demo@example.invalid"];
    let done = Command::new("git").args(who).arg("-C").arg(at).args(arguments).status()?;
    ensure(done.success(), &format!("git {}", arguments.join(" ")))
}
