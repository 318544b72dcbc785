//! The real supervisor and harness on a real nats-server, with the test as their core: a development run from its start to
//! its acknowledgement, and kill -9 of each of them while one runs.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use thermite_actors::host::bulk::Bringer;
use thermite_actors::host::git::Git;
use thermite_core::dev_run::Exit;
use thermite_core::hold::{HoldEnd, RunnerLoss, StopCause};
use thermite_core::ids::{DevRunId, LaneId, RunId};
use thermite_core::limits;
use thermite_core::wire::{Checked, Progress, SlotAnswer, SlotAsk, SlotNo, Standing, Ticket, Work};

use super::link::{Core, box_2};
use super::plain_nats::PlainNats;
use super::{is_long, on_one_thread, processes_with};
use crate::binary::{NO_CONTAINMENT, Own, PATIENCE, apart, command, git};
use crate::fed;
use crate::support::Luck;

#[test]
fn a_development_run_goes_from_its_start_to_its_acknowledgement() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let core = house.core().await;
        let (_, checked) = core.until_able().await;
        let (work, _) = core.work("cat file; sleep 0.2; echo done; exit 3").await;

        let accepted = core.begin(checked.highest + 1, work).await;
        let over = core.until_over(accepted.grant).await;
        let output = core.output(accepted.grant).await;
        let tells_of_it = core.check().await.1.grants.iter().any(|standing| standing.grant == accepted.grant);
        let forgotten = core.asked(SlotAsk::Ack { grant: accepted.grant }).await;
        let again = core.asked(SlotAsk::Ack { grant: accepted.grant }).await;
        let left = core.check().await.1.grants;

        assert!(
            matches!(over, HoldEnd::Stopped(StopCause::Exited { exit: Exit::Code(3), .. })),
            "{over:?} {}",
            house.log()
        );
        assert_eq!(output, "the champion's\ndone\n");
        assert!(tells_of_it);
        assert_eq!((forgotten, again), (SlotAnswer::Forgotten, SlotAnswer::Forgotten));
        assert_eq!(left, []);
        let facts = checked.facts.unwrap();
        assert_eq!((checked.serves, facts.target.name()), (1, "cpu"));
    });
    house.end();
}

#[test]
fn what_is_stopped_is_proved_gone_and_a_start_is_never_begun_twice() {
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let core = house.core().await;
        let (_, checked) = core.until_able().await;
        let (work, mark) = core.work("setsid sleep 1000.MARK & sleep 2000.MARK").await;
        let grant = checked.highest + 1;
        core.begin(grant, work.clone()).await;
        core.until_some(&mark).await;

        let again = core.start(grant, work.clone()).await;
        let other = core.start(grant + 1, work.clone()).await;
        let stopping = core.asked(SlotAsk::Stop { grant, cause: StopCause::Cancelled }).await;
        let over = core.until_over(grant).await;
        let processes = processes_with(&mark);
        core.asked(SlotAsk::Ack { grant }).await;
        let late = core.start(grant, work.clone()).await;
        let burnt = core.start(grant + 1, work).await;

        assert!(matches!(again, SlotAnswer::Stands(_)), "{again:?}");
        assert_eq!(other, SlotAnswer::No(SlotNo::Busy { grant }));
        assert!(matches!(stopping, SlotAnswer::Stands(_)), "{stopping:?}");
        assert_eq!(over, HoldEnd::Stopped(StopCause::Cancelled));
        assert_eq!(processes, Vec::<String>::new());
        // Both numbers are used: neither begins anything any more.
        for late in [late, burnt] {
            let SlotAnswer::Stands(stands) = late else { panic!("{late:?}") };
            assert!(matches!(stands.at, Progress::Over { .. }), "{stands:?}");
        }
    });
    house.end();
}

#[test]
fn no_kill_leaves_anything_running_and_the_runner_works_again() {
    let Some(mut house) = House::start() else { return };
    let times = if is_long() { 20 } else { 2 };
    let mut luck = Luck::seeded(1_604);
    let mut table = Vec::new();
    on_one_thread(async {
        let core = house.core().await;
        for round in 0..times {
            for victim in [Victim::Supervisor, Victim::Harness, Victim::Nats] {
                let (_, checked) = core.until_able().await;
                let (work, mark) = core.work("setsid sleep 1000.MARK & sleep 2000.MARK").await;
                let grant = checked.highest + 1;
                core.begin(grant, work).await;
                core.until_some(&mark).await;
                // At a random moment of what goes on.
                tokio::time::sleep(Duration::from_millis(luck.below(400))).await;

                let killed = Instant::now();
                house.kill(victim);
                house.start_again(victim);
                let over = match victim {
                    // A bus that is away for a moment ends nothing: the run is as it was.
                    Victim::Nats => {
                        let stands = core.until_stands(grant).await;
                        assert!(matches!(stands.at, Progress::Running { .. }), "{stands:?}");
                        core.asked(SlotAsk::Stop { grant, cause: StopCause::Cancelled }).await;
                        core.until_over(grant).await
                    }
                    Victim::Supervisor | Victim::Harness => core.until_over(grant).await,
                };
                let left = processes_with(&mark);
                let gone = killed.elapsed();
                assert_eq!(left, Vec::<String>::new(), "after {victim:?}: {}", house.log());
                match victim {
                    Victim::Supervisor => {
                        let restarted = StopCause::RunnerLost { how: RunnerLoss::Restarted };
                        assert_eq!(over, HoldEnd::Stopped(restarted));
                    }
                    Victim::Harness => {
                        let killed = matches!(over, HoldEnd::Stopped(StopCause::Exited { exit: Exit::Signal(9), .. }));
                        assert!(killed, "{over:?}");
                    }
                    Victim::Nats => assert_eq!(over, HoldEnd::Stopped(StopCause::Cancelled)),
                }
                core.asked(SlotAsk::Ack { grant }).await;
                let (_, able) = core.until_able().await;
                let (work, _) = core.work("true").await;
                core.begin(able.highest + 1, work).await;
                core.until_over(able.highest + 1).await;
                core.asked(SlotAsk::Ack { grant: able.highest + 1 }).await;
                table.push((round, victim, gone, killed.elapsed()));
            }
        }
    });
    println!("round  kill -9 of    all gone after  works again after");
    for (round, victim, gone, works) in &table {
        println!("{round:>5}  {:<12}  {gone:>14.2?}  {works:>17.2?}", format!("{victim:?}"));
    }
    assert_eq!(table.len(), times * 3);
    house.end();
}

#[test]
fn a_bus_that_stands_still_for_longer_than_the_lease_ends_the_run_on_its_runner() {
    if !is_long() {
        println!("left out: over a minute of standing still; THERMITE_LONG=1 runs it");
        return;
    }
    let Some(mut house) = House::start() else { return };
    on_one_thread(async {
        let core = house.core().await;
        let (_, checked) = core.until_able().await;
        let (work, mark) = core.work("setsid sleep 1000.MARK & sleep 2000.MARK").await;
        let grant = checked.highest + 1;
        core.begin(grant, work).await;
        core.until_some(&mark).await;
        let last_heard = Instant::now();

        house.nats.pause();
        while !processes_with(&mark).is_empty() {
            assert!(last_heard.elapsed() < limits::LEASE.to_std(), "it runs on after its lease");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("the runner ended its run {:?} after it was last heard", last_heard.elapsed());
        tokio::time::sleep(Duration::from_secs(70).saturating_sub(last_heard.elapsed())).await;
        house.nats.go_on();
        let over = core.until_over(grant).await;

        assert_eq!(over, HoldEnd::Stopped(StopCause::RunnerLost { how: RunnerLoss::Away }));
    });
    house.end();
}

/// Whom a test kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Supervisor,
    Harness,
    Nats,
}

/// A runner's two processes on a folder of their own, a bus, and a core's data folder with a commit to work on.
struct House {
    place: tempfile::TempDir,
    nats: PlainNats,
    apart: [(&'static str, String); 2],
    harness: Option<Own>,
    supervisor: Option<Own>,
    commit: String,
}

impl House {
    /// None where this machine gives no containment, which is said.
    fn start() -> Option<House> {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        fed::idle(place.path());
        let apart = apart(&place.path().join("locks"));
        let commit = commit_in(place.path());
        let nats = PlainNats::start();
        let mut house = House { place, nats, apart, harness: None, supervisor: None, commit };
        house.start_again(Victim::Harness);
        let began = Instant::now();
        while !house.place.path().join("data/harness/door/harness.sock").exists() {
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
        house.start_again(Victim::Supervisor);
        Some(house)
    }

    fn start_again(&mut self, victim: Victim) {
        let program = match victim {
            Victim::Supervisor => "supervisor",
            Victim::Harness => "harness",
            Victim::Nats => return self.nats.start_again(),
        };
        let log = File::options().create(true).append(true).open(self.place.path().join("log")).unwrap();
        let mut process = command(&[program]);
        process.arg("--data").arg(self.place.path().join("data")).envs(self.apart.clone());
        process.envs([("THERMITE_ROLE", "runner"), ("THERMITE_RIG_ID", "lab")]);
        match victim {
            Victim::Harness => {
                process.env("THERMITE_TARGET", "cpu").env("THERMITE_PROC_ROOT", self.place.path());
            }
            Victim::Supervisor => {
                process.env("THERMITE_RUNNER", "box-2").env("THERMITE_NATS_URL", self.nats.url());
            }
            Victim::Nats => {}
        }
        process.stdout(log.try_clone().unwrap()).stderr(log);
        let process = Some(Own(process.spawn().unwrap()));
        match victim {
            Victim::Supervisor => self.supervisor = process,
            Victim::Harness => self.harness = process,
            Victim::Nats => {}
        }
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Supervisor => drop(self.supervisor.take()),
            Victim::Harness => drop(self.harness.take()),
            Victim::Nats => self.nats.kill(),
        }
    }

    fn end(&mut self) {
        for process in [&mut self.supervisor, &mut self.harness] {
            let process = process.take().unwrap();
            process.signal(rustix::process::Signal::TERM);
            let said = process.end();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    /// The test as the runner's core.
    async fn core(&self) -> TestCore {
        let core = Core::open(&self.nats).await;
        core.until_up().await;
        let bringer = Bringer::open(&self.place.path().join("core"), Rc::new(core.bulk.clone())).unwrap();
        let (commit, log) = (self.commit.clone(), self.place.path().join("log"));
        TestCore { core, bringer, commit, log, newest: Cell::default() }
    }
}

/// A core's store with one commit in it.
fn commit_in(place: &Path) -> String {
    let repo = place.join("repo");
    std::fs::create_dir(&repo).unwrap();
    std::fs::write(repo.join("file"), "the champion's\n").unwrap();
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "--message=Begin"]);
    let data = place.join("core");
    std::fs::create_dir(&data).unwrap();
    let store = Git::open(&data).unwrap();
    let commit = git(&repo, &["rev-parse", "HEAD"]);
    store.keep(&store.repository(&repo).unwrap(), &commit).unwrap();
    commit
}

struct TestCore {
    core: Core,
    bringer: Bringer,
    commit: String,
    log: PathBuf,
    newest: Cell<Option<Ticket>>,
}

impl TestCore {
    async fn asked(&self, what: SlotAsk) -> SlotAnswer {
        self.core.until_answered(what).await.what
    }

    /// A check with the newest ticket there is, which keeps the lease.
    async fn check(&self) -> (Uuid, Checked) {
        let answer = self.core.until_answered(SlotAsk::Check { ticket: self.newest.get() }).await;
        match answer.what {
            SlotAnswer::Checked(checked) => {
                self.newest.set(Some(checked.ticket));
                (answer.boot, *checked)
            }
            // Its harness has not come up yet.
            SlotAnswer::No(SlotNo::NotAble { why }) => {
                let unable = Checked {
                    ticket: Ticket { boot: answer.boot, number: 0 },
                    serves: 0,
                    highest: 0,
                    facts: None,
                    unable: Some(why),
                    faults: 0,
                    grants: Vec::new(),
                };
                (answer.boot, unable)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn until_able(&self) -> (Uuid, Checked) {
        let began = Instant::now();
        loop {
            let (boot, checked) = self.check().await;
            if checked.unable.is_none() {
                return (boot, checked);
            }
            assert!(began.elapsed() < PATIENCE, "not able: {checked:?} {}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A development run of that script, brought to the runner, and the mark by which its processes are told.
    async fn work(&self, script: &str) -> (Work, String) {
        let run = RunId(Uuid::now_v7());
        let began = Instant::now();
        while let Err(fault) = self.bringer.bring(&box_2(), run, std::slice::from_ref(&self.commit)).await {
            assert!(began.elapsed() < PATIENCE, "{fault} {}", self.said());
        }
        let dev_run = DevRunId(Uuid::now_v7());
        let mark = format!("{:09}", dev_run.0.as_u128() % 1_000_000_000);
        let work = Work::DevRun {
            dev_run,
            run,
            lane: LaneId::new(1).unwrap(),
            argv: vec!["sh".into(), "-c".into(), script.replace("MARK", &mark)],
            env: Vec::new(),
            contract: Box::default(),
            limit: None,
            commit: self.commit.clone(),
            models: Vec::new(),
        };
        (work, mark)
    }

    async fn start(&self, grant: u64, work: Work) -> SlotAnswer {
        let ticket = self.check().await.1.ticket;
        self.asked(SlotAsk::Start { ticket, grant, work: Box::new(work) }).await
    }

    /// Starts work that must be accepted.
    async fn begin(&self, grant: u64, work: Work) -> Standing {
        match self.start(grant, work).await {
            SlotAnswer::Stands(standing) => *standing,
            other => panic!("not accepted: {other:?} {}", self.said()),
        }
    }

    /// How it stands with a grant, once the runner knows.
    async fn until_stands(&self, grant: u64) -> Standing {
        let began = Instant::now();
        loop {
            if let SlotAnswer::Stands(standing) = self.asked(SlotAsk::Tell { grant }).await {
                return *standing;
            }
            assert!(began.elapsed() < PATIENCE, "nothing is known of grant {grant}: {}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_over(&self, grant: u64) -> HoldEnd {
        let began = Instant::now();
        loop {
            // A check keeps the lease: the core goes on asking whatever it waits for.
            self.check().await;
            if let Progress::Over { end } = self.until_stands(grant).await.at {
                return end;
            }
            assert!(began.elapsed() < PATIENCE, "grant {grant} does not end: {}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_some(&self, mark: &str) {
        let began = Instant::now();
        while processes_with(mark).is_empty() {
            assert!(began.elapsed() < PATIENCE, "{mark} does not run: {}", self.said());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// All of a grant's output, pulled by offset.
    async fn output(&self, grant: u64) -> String {
        let mut all = Vec::new();
        loop {
            let from = all.len() as u64;
            match self.asked(SlotAsk::Output { grant, from, most: 4 }).await {
                SlotAnswer::Output { bytes, offset, complete, .. } => {
                    assert_eq!(offset, from);
                    let is_all = bytes.is_empty() && complete;
                    all.extend(bytes);
                    if is_all {
                        return String::from_utf8(all).unwrap();
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
