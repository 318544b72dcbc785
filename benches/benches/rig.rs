//! What a whole rig costs on this machine: real containment, real git, real records. Development runs from the asking
//! to the recorded end, how many a second go through one device, and a durable submission.
//!
//! `cargo bench -p thermite-benches --bench rig`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};

use thermite_actors::host::clock::BootClock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{ExecutorSettings, HostExecutor};
use thermite_actors::host::ids::OsIds;
use thermite_actors::host::launch::{Cards, Launcher, LauncherSettings, Wanted, entry};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{MemberPorts, NoInputLog, RigSettings, RunRequest};
use thermite_actors::rig::{AskDevRun, Rig, RigSetup, SubmitJob};
use thermite_core::ids::{MemberId, RunId};
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::run::RunState;
use thermite_svc::records::SqliteRecords;

/// Lanes that ask at once.
const LANES: u32 = 8;
/// Development runs of each kind, and submissions.
const ROUNDS: usize = 200;
/// The judge's uid where the bench runs as root; lanes have the ones after it.
const UID_BASE: u32 = 61_200;

fn main() -> ExitCode {
    if let Some(code) = entry() {
        return code;
    }
    actix::System::new().block_on(measure())
}

async fn measure() -> ExitCode {
    let place = tempfile::tempdir().expect("a temporary folder is had");
    let data = place.path().join("data");
    std::fs::create_dir(&data).expect("a data folder is made");
    let (repo, lanes) = repository(place.path());
    let launcher = Launcher::open(LauncherSettings {
        rig: "bench-rig".to_owned(),
        state: data.join("runs"),
        hidden: vec![data.clone()],
        program: LauncherSettings::THIS_PROGRAM.into(),
        wanted: Wanted::BEST,
        trial_uid: None,
        cards: Cards::default(),
    });
    let launcher = launcher.await.expect("the launcher opens");
    if !launcher.containment().has_own_view() {
        println!("skipped: this machine gives no isolation: {}", launcher.containment().missing_in_words());
        return ExitCode::SUCCESS;
    }
    println!("containment: {}", launcher.containment());
    let is_root = rustix::process::geteuid().is_root();
    let accounts = if is_root { Accounts::dedicated(UID_BASE) } else { Accounts::rigs_user() };
    let path = std::env::var("PATH").unwrap_or_default();
    let workspaces = HostWorkspaces::open(&data, accounts, path).expect("the workspaces open");
    let driver = CpuDriver::of_this_machine();
    let settings = ExecutorSettings { rig: "bench-rig".to_owned(), data: data.clone(), accounts };
    let executor = HostExecutor::open(launcher, workspaces.clone(), driver.clone(), settings);
    let records = Rc::new(SqliteRecords::open(&data).expect("the records open"));
    let rig = Rig::start(RigSetup {
        members: vec![MemberPorts {
            member: MemberId(0),
            driver: Rc::new(driver),
            executor: Rc::new(executor.expect("the executor opens")),
        }],
        bench: None,
        workspaces: Rc::new(workspaces),
        records,
        clock: Rc::new(BootClock),
        ids: Rc::new(OsIds),
        inputs: Rc::new(NoInputLog),
        settings: RigSettings { dev_run_wait: limits::DEV_RUN_WAIT_MAX, lanes_most: 16 },
        runners: thermite_actors::runners::RunnerSetup::default(),
    });
    let rig = rig.await.expect("the rig starts");
    let request = RunRequest { repo: repo.clone(), kit: PathBuf::from("kit.toml"), champion: "main".to_owned(), lanes };
    let run = rig.start_run(request, None).await.expect("the run starts");

    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        dev_run(&rig, run, 1).await;
        alone.push(began.elapsed());
    }
    println!("{ROUNDS} rounds; milliseconds");
    println!("{:<62} {:>8} {:>8}", "", "median", "p99");
    row("development run of `true`: asked to ended, both durable", &mut alone);

    let began = Instant::now();
    let all = (1..=LANES).map(|lane| {
        let rig = rig.clone();
        async move {
            for _ in 0..ROUNDS / 4 {
                dev_run(&rig, run, lane).await;
            }
        }
    });
    futures_util::future::join_all(all).await;
    let runs = LANES as usize * (ROUNDS / 4);
    let each = began.elapsed() / u32::try_from(runs).expect("a small number");
    println!("{:<62} {:>8.2}", format!("the same, {LANES} lanes at once, time for each"), millis(each));
    println!("{:<62} {:>8.0}", "development runs a second through one device", 1.0 / each.as_secs_f64());

    // A paused run's jobs are accepted and keep their place, so that the judge does not run meanwhile.
    rig.change_run(run, RunState::Paused).await.expect("the run is paused");
    let changes = changes(&repo);
    let mut submit = Vec::new();
    for change in changes {
        let began = Instant::now();
        rig.submit(SubmitJob { run, champion: None, change, key: None }).await.expect("the job is accepted");
        submit.push(began.elapsed());
    }
    row("submit: a change pinned by git, the job durable", &mut submit);
    rig.end().await;
    ExitCode::SUCCESS
}

async fn dev_run(rig: &Rig, run: RunId, lane: u32) {
    let argv = vec!["true".to_owned()];
    let ask = AskDevRun { run, lane, argv, env: Vec::new(), caller: Caller::Detached, key: None };
    let queued = rig.ask(ask).await.expect("the lane is idle");
    rig.dev_run_end(queued.dev_run).await.expect("it ends");
}

/// A repository with a kit that measures nothing, and a worktree for each lane.
fn repository(place: &Path) -> (PathBuf, Vec<PathBuf>) {
    let repo = place.join("repo");
    std::fs::create_dir(&repo).expect("a folder is made");
    let kit = "name = \"bench\"\ntarget = \"cpu\"\nmeasure = [\"true\"]\neditable = [\"work.txt\"]\n";
    std::fs::write(repo.join("kit.toml"), kit).expect("the kit is written");
    std::fs::write(repo.join("work.txt"), "0\n").expect("a file is written");
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "--quiet", "-m", "start"]);
    let lanes = (1..=LANES).map(|lane| {
        let lane = place.join(format!("lane-{lane}"));
        git(&repo, &["worktree", "add", "--quiet", "--detach", lane.to_str().expect("a plain path"), "main"]);
        lane
    });
    let lanes = lanes.collect();
    (repo, lanes)
}

/// As many commits as there are rounds, each a change of its own on the champion.
fn changes(repo: &Path) -> Vec<String> {
    let change = |round: usize| {
        git(repo, &["checkout", "--quiet", "--detach", "main"]);
        std::fs::write(repo.join("work.txt"), format!("{}\n", round + 1)).expect("a file is written");
        git(repo, &["commit", "--quiet", "--all", "-m", "a change"]);
        git(repo, &["rev-parse", "HEAD"])
    };
    (0..ROUNDS).map(change).collect()
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    let output = Command::new("git").args(who).arg("-C").arg(folder).args(arguments).output().expect("git is there");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| millis(times[((times.len() - 1) as f64 * share).round() as usize]);
    println!("{what:<62} {:>8.2} {:>8.2}", at(0.5), at(0.99));
}
