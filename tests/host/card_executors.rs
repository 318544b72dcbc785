//! One executor a card (rules B3, B4, B7): who builds and who measures, on which card, on which CPUs; and what is
//! refused where runs cannot be kept to their cards.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use thermite_actors::host::clock;
use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{CardSeat, ExecutorSettings, Executors, HostExecutor};
use thermite_actors::host::launch::{CardGrant, CardWay, Cards, Identity, Launcher, LauncherSettings, Wanted};
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{Executor, Outputs, RunRequest, StageRef, StopProof, Workspaces};
use thermite_actors::rig::No;
use thermite_core::block::{Order, Pair, Side};
use thermite_core::contract::{Contract, Target};
use thermite_core::cpus::CpuList;
use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{Arrival, DevRunId, HoldId, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{JobSpec, StageKind};
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;
use thermite_core::stage::{StageStep, StepReport};

use crate::cards::{FakeCards, grant};
use crate::driver::{is_root, unique};
use crate::executor::{accounts, local, quiet_machine, until};
use crate::repo::{Repo, commit, write};

/// A rig of two cards and a bench over a repository with a champion and a change.
struct CardBench {
    cards: FakeCards,
    repo: Repo,
    accounts: Accounts,
    workspaces: HostWorkspaces,
    run: RunSpec,
    bench: HostExecutor,
    seats: [HostExecutor; 2],
    _folders: [tempfile::TempDir; 2],
}

impl CardBench {
    /// None where this machine has no view to give, or cards cannot be stood in for; both are said.
    async fn open(ways: BTreeSet<CardWay>, cpus: [Option<CpuList>; 2]) -> Option<CardBench> {
        if !is_root() {
            println!("not root: no device node can be made, so nothing is tested with cards");
            return None;
        }
        let cards = FakeCards::make(Path::new("/dev"));
        let [first, second] = cards.nodes().map(|node| node.display().to_string());
        let see = format!(
            "echo \"uid $(id -u) cuda ${{CUDA_VISIBLE_DEVICES:-none}} order ${{CUDA_DEVICE_ORDER:-none}} cpus \
             $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)\"\n\
             (: <{first}) 2>/dev/null && echo opened the first\n\
             (: <{second}) 2>/dev/null && echo opened the second\nexit 3\n"
        );
        let kit = "name = \"k\"\ntarget = \"cuda-gpu\"\neditable = [\"src/**\"]\nbuild = [\"sh\", \"see.sh\"]\n\
                   check = [\"sh\", \"see.sh\"]\nmeasure = [\"sh\", \"see.sh\"]\n";
        let repo = Repo::with(&[("kit.toml", kit), ("see.sh", &see), ("src/a", "1\n")]);
        let lane = repo.lane("lane-1");
        write(&lane.join("src/a"), "2\n");
        commit(&lane, "the change");

        let state = tempfile::tempdir().unwrap();
        let quiet = quiet_machine();
        let rig = unique("c");
        let known = cards.nodes().map(|node| node.to_owned());
        let launcher = Launcher::open(LauncherSettings {
            rig: rig.clone(),
            state: state.path().to_owned(),
            hidden: Vec::new(),
            program: env!("CARGO_BIN_EXE_host-rig").into(),
            wanted: Wanted::BEST,
            trial_uid: None,
            cards: Cards { nodes: known.into(), ways, others: cpus[1].clone() },
        });
        let launcher = launcher.await.unwrap();
        if !launcher.containment().has_own_view() {
            println!("nothing can be launched here: {}", launcher.containment().missing_in_words());
            return None;
        }
        let accounts = accounts();
        let workspaces = HostWorkspaces::open(&repo.data(), accounts, std::env::var("PATH").unwrap()).unwrap();
        let workspaces = workspaces.for_target(Target::CudaGpu).unwrap();
        let request =
            RunRequest { repo: repo.path(), kit: "kit.toml".into(), champion: "main".into(), lanes: vec![lane] };
        let run = workspaces.open(request).await.unwrap();
        let settings = ExecutorSettings { rig, data: repo.data(), accounts };
        let executors = Executors::open(launcher, workspaces.clone(), settings).unwrap();
        let driver = CpuDriver::below(quiet.path().to_owned(), Arc::new(clock::clocks));
        let seat = |seat: u8, node: &Path| CardSeat {
            seat,
            grant: CardGrant { cpus: cpus[0].clone(), ..grant(node) },
            others: cpus[1].clone(),
        };
        let seats = [
            executors.of_card(Rc::new(driver.clone()), seat(0, &cards.full)).await,
            executors.of_card(Rc::new(driver), seat(1, &cards.random)).await,
        ];
        let bench = executors.of_bench(cpus[1].clone());
        Some(CardBench { cards, repo, accounts, workspaces, run, bench, seats, _folders: [state, quiet] })
    }

    async fn stage(&self) -> StageRef {
        let pinned = self.workspaces.pin(self.run.clone(), self.run.champion.clone(), "lane-1".into()).await.unwrap();
        let job =
            JobSpec { job: JobId(uuid::Uuid::now_v7()), run: RunId(uuid::Uuid::now_v7()), arrival: Arrival(1), pinned };
        StageRef { job: Arc::new(job), stage: StageKind::Screening, attempt: 1 }
    }

    fn dev_run(&self) -> DevRunSpec {
        DevRunSpec {
            dev_run: DevRunId(uuid::Uuid::now_v7()),
            run: RunId(uuid::Uuid::now_v7()),
            lane: LaneId::new(1).unwrap(),
            worktree: self.repo.folder.path().canonicalize().unwrap().join("lane-1"),
            argv: ["sh", "see.sh"].map(str::to_owned).into(),
            // By its place in some order: whatever it is, this is not the card it has.
            env: vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())],
            contract: Contract::default(),
            models: Vec::new(),
        }
    }

    fn uid(&self, of: impl Fn(Accounts) -> Identity) -> u32 {
        match of(self.accounts) {
            Identity::Dedicated { uid, .. } => uid,
            Identity::RigsUser => panic!("a root rig has accounts"),
        }
    }
}

fn hold(member: u32) -> HoldId {
    HoldId { member: MemberId(member.try_into().unwrap()), number: 1 }
}

/// What a step wrote before it failed, as all of them do.
async fn said(executor: &HostExecutor, member: u32, stage: &StageRef, step: StageStep) -> String {
    let report = executor.step(hold(member), stage.clone(), step).await;
    let StepReport::Failed { why, .. } = report else { panic!("{report:?}") };
    why.split_once("its output ends: ").unwrap_or_else(|| panic!("{why}")).1.to_owned()
}

/// One CPU for cards, and the others; nothing is narrowed on a machine of one.
fn cpus() -> [Option<CpuList>; 2] {
    let online: CpuList = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap().parse().unwrap();
    if online.count() < 2 {
        println!("one CPU: nothing can be narrowed, so that is not tested");
        return [None, None];
    }
    let first = CpuList([*online.0.first().unwrap()].into());
    let rest = online.without(&first);
    [Some(first), Some(rest)]
}

#[test]
fn each_card_is_measured_on_by_its_own_user_and_cpus_and_builds_and_lanes_have_others() {
    local(async {
        let parts = cpus();
        let Some(rig) = CardBench::open(CardWay::ALL.into(), parts.clone()).await else { return };
        let stage = rig.stage().await;
        let shown = |cpus: &Option<CpuList>| match cpus {
            Some(cpus) => cpus.to_string(),
            None => std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().to_owned(),
        };
        let (near, others) = (shown(&parts[0]), shown(&parts[1]));
        assert_eq!(rig.bench.step(hold(9), stage.clone(), StageStep::Prepare).await, StepReport::Prepared);

        let build = said(&rig.bench, 9, &stage, StageStep::Build { side: Side::Change }).await;
        let check = said(&rig.seats[0], 0, &stage, StageStep::Check { side: Side::Change }).await;
        let block = StageStep::Block { pair: Pair::ChampionAndChange, order: Order::Abba };
        let block = said(&rig.seats[1], 1, &stage, block).await;
        let dev_run = rig.dev_run();
        let id = dev_run.dev_run;
        let launched = rig.seats[0].start(hold(0), dev_run).await.unwrap();
        rig.seats[0].exited(hold(0)).await;
        assert_eq!(rig.seats[0].stop(hold(0), false).await, StopProof::Empty);
        let read = || rig.seats[0].outputs().read(id, 0, 1 << 20).unwrap();
        until("the output is complete", || read().complete).await;
        let lane = String::from_utf8_lossy(&read().bytes).into_owned();

        let uid = rig.uid(Accounts::judge);
        assert_eq!(build, format!("uid {uid} cuda none order none cpus {others}"));
        let (first, second) = (grant(&rig.cards.full).uuid, grant(&rig.cards.random).uuid);
        let uid = rig.uid(|accounts| accounts.timing(0));
        assert_eq!(check, format!("uid {uid} cuda {first} order PCI_BUS_ID cpus {near}\nopened the first"));
        let uid = rig.uid(|accounts| accounts.timing(1));
        assert_eq!(block, format!("uid {uid} cuda {second} order PCI_BUS_ID cpus {near}\nopened the second"));
        let uid = rig.uid(|accounts| accounts.lane(LaneId::new(1).unwrap()));
        assert_eq!(lane, format!("uid {uid} cuda {first} order PCI_BUS_ID cpus {others}\nopened the first\n"));
        assert!(launched.containment.contains("; its card by own view"), "{}", launched.containment);
        let by = if parts[0].is_some() { format!("; CPUs {near} by ") } else { String::new() };
        assert!(rig.seats[1].containment().unwrap().contains(&by), "{:?}", rig.seats[1].containment());
    });
}

#[test]
fn the_bench_builds_and_does_nothing_else() {
    local(async {
        let Some(rig) = CardBench::open(CardWay::ALL.into(), [None, None]).await else { return };
        let stage = rig.stage().await;
        rig.bench.step(hold(9), stage.clone(), StageStep::Prepare).await;

        let block = StageStep::Block { pair: Pair::ChampionTwice, order: Order::Baab };
        let block = rig.bench.step(hold(9), stage, block).await;
        let started = rig.bench.start(hold(9), rig.dev_run()).await;

        assert_eq!(block, StepReport::NotCarriedOut { why: "nothing is measured on the bench".into() });
        assert_eq!(started.unwrap_err(), "the bench builds for the judge; no development run works there");
    });
}

#[test]
fn a_second_sweep_is_of_one_card_and_spares_what_runs_on_another() {
    local(async {
        let Some(rig) = CardBench::open(CardWay::ALL.into(), [None, None]).await else { return };
        for executor in rig.seats.iter().chain([&rig.bench]) {
            assert_eq!(executor.sweep().await, StopProof::Empty);
        }
        let tag = unique("tag");
        let mut spec = rig.dev_run();
        spec.argv = ["sh", "-c", "while :; do sleep 1; done", "x", &tag].map(str::to_owned).into();
        rig.seats[0].start(hold(0), spec).await.unwrap();
        assert!(crate::driver::alive(&tag) > 0);

        let swept = [rig.seats[1].sweep().await, rig.bench.sweep().await];

        assert_eq!(swept, [StopProof::Empty, StopProof::Empty]);
        assert!(crate::driver::alive(&tag) > 0, "a run on another card goes on");
        assert_eq!(rig.seats[0].sweep().await, StopProof::Empty);
        assert_eq!(crate::driver::alive(&tag), 0, "its own card's sweep ends it");
    });
}

#[test]
fn without_a_way_to_isolate_both_kinds_of_run_are_refused_with_what_is_missing() {
    local(async {
        let Some(rig) = CardBench::open(BTreeSet::new(), [None, None]).await else { return };
        let missing = "own view (switched off); landlock (switched off); node modes (switched off)".to_owned();
        let refusal = Refusal::NoIsolation { missing: missing.clone() };

        let dev_run = rig.workspaces.check_command(&rig.dev_run());
        let submit = rig.workspaces.pin(rig.run.clone(), rig.run.champion.clone(), "lane-1".into()).await;
        let started = rig.seats[0].start(hold(0), rig.dev_run()).await;

        assert_eq!(dev_run, Err(refusal.clone()));
        assert!(matches!(submit, Err(No::Refusal(no)) if no == refusal));
        let said = format!("no isolation for a run here: {missing}; `thermite doctor` says how to get it");
        assert_eq!(refusal.to_string(), said);
        // Also where nobody asked before.
        assert!(started.unwrap_err().ends_with(&missing));
        let containment = rig.seats[0].containment().unwrap();
        assert!(containment.ends_with("; no isolation of cards: runs are refused"), "{containment}");
    });
}
