//! What containment costs on this machine: a contained run from the order to its proof, and the hand-over from one run
//! to the next. Real processes; medians and 99th percentiles, next to a plain spawn in the same run.
//!
//! `cargo bench -p thermite-benches --bench launch`

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use thermite_actors::host::launch::{
    Cards, Grant, Identity, LaunchSpec, Launcher, LauncherSettings, Run, Wanted, entry,
};
use thermite_actors::ports::StopProof;

/// Runs of each kind.
const ROUNDS: usize = 200;
/// The uid of contained runs where the bench runs as root.
const UID: u32 = 70_600;

fn main() -> ExitCode {
    if let Some(code) = entry() {
        return code;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime is had");
    runtime.block_on(tokio::task::LocalSet::new().run_until(measure()))
}

async fn measure() -> ExitCode {
    let place = tempfile::tempdir().expect("a temporary folder is had");
    let workspace = place.path().join("work");
    std::fs::create_dir(&workspace).expect("a workspace is made");
    let settings = LauncherSettings {
        rig: "bench".to_owned(),
        state: place.path().join("state"),
        hidden: Vec::new(),
        program: LauncherSettings::THIS_PROGRAM.into(),
        wanted: Wanted::BEST,
        trial_uid: None,
        cards: Cards::default(),
    };
    let launcher = Launcher::open(settings).await.expect("the launcher opens");
    if !launcher.containment().has_own_view() {
        println!("skipped: this machine gives no isolation: {:?}", launcher.containment());
        return ExitCode::SUCCESS;
    }
    println!("containment: {}", launcher.containment());

    let mut plain = Vec::new();
    let mut start = Vec::new();
    let mut proof = Vec::new();
    let mut cold = Vec::new();
    let mut prepared = Vec::new();
    // The kinds take turns, so that a machine that slows down slows all of them.
    for round in 0..ROUNDS {
        plain.push(spawn_plainly());

        let began = Instant::now();
        let run = order(&launcher, &workspace, round, "a").await;
        run.go().await.expect("the command is executed");
        start.push(began.elapsed());
        run.ended().await;
        let ended = Instant::now();
        prove(&run).await;
        proof.push(ended.elapsed());
        let next = order(&launcher, &workspace, round, "b").await;
        next.go().await.expect("the command is executed");
        cold.push(ended.elapsed());
        next.ended().await;
        prove(&next).await;

        let run = order(&launcher, &workspace, round, "c").await;
        run.go().await.expect("the command is executed");
        let next = order(&launcher, &workspace, round, "d").await;
        run.ended().await;
        let ended = Instant::now();
        prove(&run).await;
        next.go().await.expect("the command is executed");
        prepared.push(ended.elapsed());
        next.ended().await;
        prove(&next).await;
    }

    println!("{ROUNDS} rounds; milliseconds");
    println!("{:<58} {:>8} {:>8}", "", "median", "p99");
    row("plain spawn of `true`, start to exit", &mut plain);
    row("contained: order to exec", &mut start);
    row("contained: exit to proof", &mut proof);
    row("hand-over: exit to the next run's exec", &mut cold);
    row("hand-over, the next run prepared behind the gate", &mut prepared);
    ExitCode::SUCCESS
}

async fn order(launcher: &Launcher, workspace: &Path, round: usize, which: &str) -> Run {
    let identity = if rustix::process::getuid().is_root() {
        Identity::Dedicated { uid: UID, gid: UID }
    } else {
        Identity::RigsUser
    };
    let spec = LaunchSpec {
        name: format!("bench-{}-{round}-{which}", std::process::id()),
        argv: vec!["true".to_owned()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        workspace: workspace.to_owned(),
        workspace_at: Path::new("/run/thermite/work").to_owned(),
        workspace_read_only: false,
        read_only: Vec::new(),
        hidden: Vec::new(),
        grant: Grant::default(),
        identity,
        capture: None,
        reports_times: false,
        keeps_leftovers: false,
    };
    launcher.launch(spec).await.expect("the run is prepared")
}

async fn prove(run: &Run) {
    assert_eq!(run.stop(false).await, StopProof::Empty, "nothing is left of `true`");
}

fn spawn_plainly() -> Duration {
    let began = Instant::now();
    let status = Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("`true` is there").success(), "`true` succeeds");
    began.elapsed()
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    println!("{what:<58} {:>8.2} {:>8.2}", at(0.5), at(0.99));
}
