//! Opening runs, pinning changes, checking commands, and the judge's copies of both sides.

use std::path::{Path, PathBuf};

use thermite_actors::host::launch::Identity;
use thermite_actors::host::workspaces::{Accounts, HostWorkspaces};
use thermite_actors::ports::{RunRequest, Workspaces};
use thermite_actors::rig::No;
use thermite_core::block::Side;
use thermite_core::contract::{Contract, Target};
use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{Arrival, DevRunId, JobId, LaneId, RunId};
use thermite_core::job::{JobSpec, PinnedChange, StageKind};
use thermite_core::limits;
use thermite_core::refusal::Refusal;
use thermite_core::run::RunSpec;

use crate::repo::{Repo, commit, executable, git, write};

const KIT: &str = "name = \"k\"\ntarget = \"cpu\"\nmeasure = [\"./run\"]\neditable = [\"src/**\"]\n";

#[tokio::test]
async fn a_run_is_opened_with_everything_found_and_pinned() {
    let bench = Bench::new();
    let champion = bench.repo.git(&["rev-parse", "HEAD"]);
    // The kit in the working tree says otherwise: the champion's commit is what counts.
    write(&bench.repo.path().join("kit.toml"), "broken");

    let spec = bench.open(&["lane-1", "lane-2"]).await.unwrap();

    assert_eq!((spec.repo, spec.champion), (bench.repo.path(), champion));
    assert_eq!((spec.kit.name.as_str(), spec.kit_path), ("k", PathBuf::from("kit.toml")));
    assert_eq!(spec.kit_hash, thermite_actors::host::kit::hash(KIT.as_bytes()));
    assert_eq!(spec.lanes, [bench.lane("lane-1"), bench.lane("lane-2")]);
}

#[tokio::test]
async fn what_a_run_names_and_is_not_there_is_refused_by_name() {
    let bench = Bench::new();
    let (repo, lane) = (bench.repo.path(), bench.lane("lane-1"));
    write(&repo.join("gpu.toml"), &KIT.replace("\"cpu\"", "\"cuda-gpu\""));
    write(&repo.join("bad.toml"), &KIT.replace("measure", "mesure"));
    std::os::unix::fs::symlink("kits/real.toml", repo.join("link.toml")).unwrap();
    let champion = bench.repo.commit("kits");
    let plain =
        RunRequest { repo: repo.clone(), kit: "kit.toml".into(), champion: "main".into(), lanes: vec![lane.clone()] };
    let shown = repo.display();
    let cases: Vec<(RunRequest, String)> = vec![
        (
            RunRequest { repo: "/no/such".into(), ..plain.clone() },
            "repository /no/such cannot be opened: No such file or directory (os error 2)".into(),
        ),
        (
            RunRequest { champion: "no-such".into(), ..plain.clone() },
            format!("revision \"no-such\" names no commit in {shown}"),
        ),
        (
            RunRequest { kit: "kits/kit.toml".into(), ..plain.clone() },
            format!("kits/kit.toml is not a file in champion {champion} of {shown}"),
        ),
        (
            RunRequest { kit: "link.toml".into(), ..plain.clone() },
            format!("link.toml is a link to kits/real.toml in champion {champion}; name that file, or commit it there"),
        ),
        (
            RunRequest { kit: "../kit.toml".into(), ..plain.clone() },
            "the kit's path is ../kit.toml; it must be relative to the repository's root and inside it, such as kit.toml"
                .into(),
        ),
        (
            RunRequest { kit: "bad.toml".into(), ..plain.clone() },
            "bad.toml:3: mesure is not a key of a kit; expected one of name, target, build, check, measure, timer, \
             timer_isolated, editable, artefacts, model, contract"
                .into(),
        ),
        (
            RunRequest { lanes: Vec::new(), ..plain.clone() },
            "the number of lanes is 0; it must be 1 to 16".into(),
        ),
        (
            RunRequest { lanes: vec!["/".into()], ..plain.clone() },
            format!(
                "lane 1: / is no worktree of repository {shown}; make one with `git -C {shown} worktree add /`"
            ),
        ),
        (
            RunRequest { lanes: vec![lane.clone(), lane.join("../lane-1")], ..plain.clone() },
            format!(
                "lane 2's worktree is {lane}; it must be apart from lane 1's, {lane}",
                lane = lane.display()
            ),
        ),
    ];
    for (request, expected) in cases {
        let refusal = bench.workspaces.open(request).await.unwrap_err();

        assert_eq!(refusal.to_string(), expected);
    }
    let inside = HostWorkspaces::open(&lane.join("data"), Accounts::rigs_user(), String::new()).unwrap();
    assert_eq!(
        inside.open(plain.clone()).await.unwrap_err().to_string(),
        format!(
            "lane 1's worktree is {}; it must be apart from the rig's data folder, which no lane may see",
            lane.display()
        )
    );
    let wrong = bench.workspaces.open(RunRequest { kit: "gpu.toml".into(), ..plain }).await.unwrap_err();
    assert_eq!(wrong, No::Refusal(Refusal::WrongTarget { kit: "k".into(), wants: Target::CudaGpu, has: Target::Cpu }));
    assert_eq!(wrong.to_string(), "kit k measures on cuda-gpu; this rig has cpu");
}

#[tokio::test]
async fn the_repositorys_own_tree_is_a_lane_only_where_nothing_is_given_away() {
    let bench = Bench::new();
    let request = RunRequest {
        repo: bench.repo.path(),
        kit: "kit.toml".into(),
        champion: "main".into(),
        lanes: vec![bench.repo.path()],
    };
    let data = bench.repo.folder.path().join("root-data");
    let as_root = HostWorkspaces::open(&data, Accounts::dedicated(70_900), String::new()).unwrap();

    let own = bench.workspaces.open(request.clone()).await;
    let given = as_root.open(request).await.unwrap_err().to_string();

    assert_eq!(own.unwrap().lanes, [bench.repo.path()]);
    assert_eq!(
        given,
        format!(
            "lane 1's worktree is {}; it must be a linked worktree (`git worktree add`): a lane's tree is given to the \
             lane's account, and the repository itself must not be",
            bench.repo.path().display()
        )
    );
}

#[tokio::test]
async fn a_pinned_change_is_the_champion_with_the_changes_editable_paths() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1"]).await.unwrap();
    let lane = bench.lane("lane-1");
    write(&lane.join("src/a.c"), "faster\n");
    write(&lane.join("src/new/b.c"), "new\n");
    std::fs::remove_file(lane.join("src/c.c")).unwrap();
    let change = commit(&lane, "faster");

    let pinned = bench.pin(&run, "lane-1").await.unwrap();

    assert_eq!((&pinned.champion, &pinned.change), (&run.champion, &change));
    assert_eq!(pinned.paths, ["src/a.c", "src/c.c", "src/new/b.c"]);
    assert_eq!(pinned.candidate_tree, git(&lane, &["rev-parse", "HEAD^{tree}"]));
    assert_eq!((pinned.kit, pinned.kit_hash), (run.kit, run.kit_hash));
}

#[tokio::test]
async fn equal_content_is_one_candidate_whoever_committed_it() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1", "lane-2"]).await.unwrap();
    for lane in ["lane-1", "lane-2"] {
        write(&bench.lane(lane).join("src/a.c"), "faster\n");
        commit(&bench.lane(lane), &format!("by {lane}"));
    }

    let one = bench.pin(&run, "lane-1").await.unwrap();
    let two = bench.pin(&run, "lane-2").await.unwrap();

    assert_ne!(one.change, two.change);
    assert_eq!((&one.candidate, &one.candidate_tree), (&two.candidate, &two.candidate_tree));
    let again = HostWorkspaces::open(&bench.repo.data(), Accounts::rigs_user(), String::new()).unwrap();
    let later = again.pin(run.clone(), run.champion.clone(), "lane-1".into()).await.unwrap();
    assert_eq!(later, one, "after a restart as well");
}

#[tokio::test]
async fn a_change_outside_the_editable_paths_is_refused_with_the_first_few() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1"]).await.unwrap();
    let lane = bench.lane("lane-1");
    write(&lane.join("src/a.c"), "faster\n");
    for number in 0..7 {
        write(&lane.join(format!("other-{number}")), "1\n");
    }
    commit(&lane, "too much");

    let refusal = bench.pin(&run, "lane-1").await.unwrap_err();

    assert_eq!(
        refusal.to_string(),
        "the change touches other-0, other-1, other-2, other-3, other-4 and 2 more, outside the kit's editable paths \
         (src/**); leave it as the champion has it"
    );
}

#[tokio::test]
async fn the_kits_own_file_is_never_editable() {
    let bench = Bench::with_kit(&KIT.replace("src/**", "**"));
    let run = bench.open(&["lane-1"]).await.unwrap();
    let lane = bench.lane("lane-1");
    write(&lane.join("kit.toml"), &KIT.replace("./run", "./cheat"));
    commit(&lane, "another kit");

    let refusal = bench.pin(&run, "lane-1").await.unwrap_err();

    assert_eq!(refusal, Refusal::OutsideEditable { outside: "kit.toml".into(), editable: "**".into() });
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_refused() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1"]).await.unwrap();
    commit(&bench.lane("lane-1"), "empty");

    for change in ["lane-1", "lane:1", "main"] {
        let refusal = bench.pin(&run, change).await.unwrap_err();

        assert_eq!(refusal, Refusal::NothingChanged { change: change.into(), champion: run.champion.clone() });
    }
}

#[tokio::test]
async fn a_lanes_tree_as_it_stands_can_be_a_change_without_what_it_built() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1", "lane-2"]).await.unwrap();
    let lane = bench.lane("lane-2");
    write(&lane.join("src/a.c"), "faster, not committed\n");
    write(&lane.join("src/new.c"), "new, not added\n");
    write(&lane.join("a.out"), "built\n");

    let pinned = bench.pin(&run, "lane:2").await.unwrap();
    write(&lane.join("Makefile"), "touched\n");
    let touched = bench.pin(&run, "lane:2").await.unwrap_err();
    let unknown = bench.pin(&run, "lane:3").await.unwrap_err();

    assert_eq!(pinned.paths, ["src/a.c", "src/new.c"]);
    assert_eq!(touched, Refusal::OutsideEditable { outside: "Makefile".into(), editable: "src/**".into() });
    assert_eq!(
        unknown.to_string(),
        "the change is lane:3; it must be a revision, or lane:1 to lane:2 for a lane's tree as it stands"
    );
}

#[tokio::test]
async fn a_nested_repository_in_an_editable_path_is_refused() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1"]).await.unwrap();
    let lane = bench.lane("lane-1");
    git(&lane, &["init", "--quiet", "src/inner"]);
    write(&lane.join("src/inner/x"), "1\n");
    commit(&lane.join("src/inner"), "x");
    let as_it_stands = bench.pin(&run, "lane:1").await.unwrap_err();
    commit(&lane, "a nested repository");

    let refusal = bench.pin(&run, "lane-1").await.unwrap_err();

    assert_eq!(as_it_stands, refusal);
    assert_eq!(
        refusal.to_string(),
        "src/inner in the change is a nested repository; it must be files: git does not carry a nested repository's \
         content"
    );
}

#[tokio::test]
async fn a_candidate_can_be_the_next_champion() {
    let bench = Bench::new();
    let run = bench.open(&["lane-1"]).await.unwrap();
    let lane = bench.lane("lane-1");
    write(&lane.join("src/a.c"), "faster\n");
    commit(&lane, "faster");
    let first = bench.pin(&run, "lane-1").await.unwrap();
    write(&lane.join("src/a.c"), "faster still\n");
    commit(&lane, "faster still");

    // The user's repository does not have that commit; the rig's store does.
    let second = bench.workspaces.pin(run.clone(), first.candidate.clone(), "lane-1".into()).await.unwrap();

    assert_eq!((&second.champion, &second.paths), (&first.candidate, &vec!["src/a.c".to_owned()]));
    assert_ne!(second.candidate, first.candidate);
}

#[tokio::test]
async fn both_sides_are_laid_out_for_each_attempt_and_forgotten_with_the_job() {
    let bench = Bench::new();
    let job = bench.job().await;
    let at = |attempt, side| bench.workspaces.side(job.job, StageKind::Screening, attempt, side).unwrap();

    for attempt in [1, 2] {
        bench.workspaces.lay_out(&job, StageKind::Screening, attempt).unwrap();
    }
    write(&at(1, Side::Change).join("left-over"), "1");
    bench.workspaces.lay_out(&job, StageKind::Screening, 1).unwrap();

    assert_eq!(std::fs::read_to_string(at(1, Side::Champion).join("src/a.c")).unwrap(), "slow\n");
    assert_eq!(std::fs::read_to_string(at(1, Side::Change).join("src/a.c")).unwrap(), "faster\n");
    assert_eq!(std::fs::read_to_string(at(2, Side::Change).join("kit.toml")).unwrap(), KIT);
    assert!(!at(1, Side::Change).join("left-over").exists(), "an attempt starts afresh");
    assert!(!at(1, Side::Change).join(".git").exists());
    let names = [at(1, Side::Champion), at(1, Side::Change)].map(|path| path.file_name().unwrap().to_owned());
    assert!(names.iter().all(|name| name.len() == 16), "a folder's name tells no side: {names:?}");
    let attempts = at(1, Side::Champion).parent().unwrap().parent().unwrap().to_owned();
    bench.workspaces.forget(job.job).await;
    assert!(!attempts.exists());
    assert_eq!(bench.workspaces.side(job.job, StageKind::Screening, 1, Side::Champion), None);
    bench.workspaces.forget(job.job).await;
}

#[tokio::test]
async fn the_judges_copies_belong_to_the_judges_account() {
    use std::os::unix::fs::MetadataExt;

    if !rustix::process::geteuid().is_root() {
        return; // Only root can give files away; without root everything is the rig's own user's.
    }
    let bench = Bench::new();
    let job = bench.job().await;
    let workspaces = HostWorkspaces::open(&bench.repo.data(), Accounts::dedicated(70_900), String::new()).unwrap();

    workspaces.lay_out(&job, StageKind::Confirmation, 1).unwrap();

    let side = workspaces.side(job.job, StageKind::Confirmation, 1, Side::Change).unwrap();
    for path in ["", "src", "src/a.c"] {
        let about = std::fs::symlink_metadata(side.join(path)).unwrap();
        assert_eq!((about.uid(), about.gid()), (70_900, 70_900), "{path}");
    }
    assert_eq!(
        Accounts::dedicated(70_900).lane(LaneId::new(3).unwrap()),
        Identity::Dedicated { uid: 70_903, gid: 70_903 }
    );
}

#[tokio::test]
async fn the_trees_of_other_lanes_are_known_also_after_a_restart() {
    let bench = Bench::new();
    bench.open(&["lane-1", "lane-2"]).await.unwrap();

    let again = HostWorkspaces::open(&bench.repo.data(), Accounts::rigs_user(), String::new()).unwrap();

    assert_eq!(again.others_trees(&bench.lane("lane-1")), [bench.lane("lane-2")]);
    assert_eq!(again.others_trees(Path::new("/elsewhere")), [bench.lane("lane-1"), bench.lane("lane-2")]);
    std::fs::remove_dir_all(bench.lane("lane-2")).unwrap();
    assert_eq!(again.others_trees(&bench.lane("lane-1")), Vec::<PathBuf>::new());
}

#[test]
fn a_command_that_can_never_start_is_refused_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path();
    write(&tree.join("script"), "#!/bin/sh\n");
    executable(&tree.join("script"));
    write(&tree.join("plain"), "no program\n");
    let bins = tree.join("bins");
    write(&bins.join("tool"), "#!/bin/sh\n");
    executable(&bins.join("tool"));
    let data = tempfile::tempdir().unwrap();
    let path = format!("/no/such:{}", bins.display());
    let workspaces = HostWorkspaces::open(data.path(), Accounts::rigs_user(), path.clone()).unwrap();
    let check = |argv: &[&str]| workspaces.check_command(&dev_run(tree, argv, &[]));

    for argv in [&["tool", "x"][..], &["./script"], &["/bin/sh", "-c", "exit 1"]] {
        assert_eq!(check(argv), Ok(()), "{argv:?}");
    }
    assert_eq!(check(&[]), Err(Refusal::EmptyCommand));
    assert_eq!(check(&[""]), Err(Refusal::EmptyCommand));
    let missing = |program: &str, looked_in: &str| {
        Err(Refusal::NoSuchProgram { program: program.into(), looked_in: looked_in.into() })
    };
    assert_eq!(check(&["no-such-tool"]), missing("no-such-tool", &path));
    assert_eq!(check(&["script"]), missing("script", &path));
    assert_eq!(check(&["./tool"]), missing("./tool", &tree.display().to_string()));
    let said = |argv: &[&str]| check(argv).unwrap_err().to_string();
    let plain = tree.join("./plain").display().to_string();
    assert_eq!(
        said(&["./plain"]),
        format!(
            "program ./plain is not executable: {plain} has no execute permission; set it with `chmod +x`, or name its \
             interpreter first"
        )
    );
    let folder_said = format!("program ./bins is not executable: {} is a folder", tree.join("./bins").display());
    assert_eq!(said(&["./bins"]), folder_said);
    write(&bins.join("data"), "no program\n");
    assert!(said(&["data"]).starts_with("program data is not executable: "), "found by name too");
    let many = vec!["tool"; limits::COMMAND_ARGS_MAX + 1];
    assert_eq!(
        check(&many).unwrap_err().to_string(),
        format!("the command is too long: 1025 arguments, at most {}", limits::COMMAND_ARGS_MAX)
    );
    let long = "x".repeat(limits::COMMAND_BYTES_MAX);
    let refusal = check(&["tool", &long]).unwrap_err().to_string();
    assert_eq!(refusal, "the command is too long: 131078 bytes, at most 131072");
    let nul = check(&["tool", "a\0b"]).unwrap_err().to_string();
    assert_eq!(nul, "an argument or variable of the command is \"a\\0b\"; it must be text without NUL");
    let own_path = dev_run(tree, &["tool"], &[("PATH", "/no/where")]);
    assert_eq!(workspaces.check_command(&own_path), missing("tool", "/no/where"));
    let odd = workspaces.check_command(&dev_run(tree, &["tool"], &[("A=B", "1")])).unwrap_err().to_string();
    assert_eq!(odd, "a variable's name is \"A=B\"; it must be not empty and without '='");
}

#[test]
fn a_lane_whose_worktree_was_deleted_is_refused_when_it_asks() {
    let repo = Repo::with(&[("kit.toml", KIT), ("src/a.c", "1\n")]);
    let lane = repo.lane("lane-1");
    let workspaces = HostWorkspaces::open(&repo.data(), Accounts::rigs_user(), "/usr/bin:/bin".into()).unwrap();
    std::fs::remove_dir_all(&lane).unwrap();

    let asked = workspaces.check_command(&dev_run(&lane, &["sh"], &[])).unwrap_err();

    let said = asked.to_string();
    assert!(said.starts_with(&format!("lane 1's worktree {} is gone; make it again there", lane.display())), "{said}");
}

fn dev_run(worktree: &Path, argv: &[&str], env: &[(&str, &str)]) -> DevRunSpec {
    DevRunSpec {
        dev_run: DevRunId(uuid::Uuid::now_v7()),
        run: RunId(uuid::Uuid::now_v7()),
        lane: LaneId::new(1).unwrap(),
        worktree: worktree.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        contract: Contract::default(),
        models: Vec::new(),
    }
}

/// A repository with a kit and two lanes, and the rig's workspaces.
struct Bench {
    repo: Repo,
    workspaces: HostWorkspaces,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_kit(KIT)
    }

    fn with_kit(kit: &str) -> Bench {
        let repo =
            Repo::with(&[("kit.toml", kit), ("Makefile", "all:\n"), ("src/a.c", "slow\n"), ("src/c.c", "more\n")]);
        for lane in ["lane-1", "lane-2"] {
            repo.lane(lane);
        }
        let workspaces = HostWorkspaces::open(&repo.data(), Accounts::rigs_user(), String::new()).unwrap();
        Bench { repo, workspaces }
    }

    fn lane(&self, name: &str) -> PathBuf {
        self.repo.folder.path().canonicalize().unwrap().join(name)
    }

    async fn open(&self, lanes: &[&str]) -> Result<RunSpec, Refusal> {
        let request = RunRequest {
            repo: self.repo.path(),
            kit: "kit.toml".into(),
            champion: "main".into(),
            lanes: lanes.iter().map(|lane| self.lane(lane)).collect(),
        };
        self.workspaces.open(request).await.map_err(refused)
    }

    async fn pin(&self, run: &RunSpec, change: &str) -> Result<PinnedChange, Refusal> {
        self.workspaces.pin(run.clone(), run.champion.clone(), change.to_owned()).await.map_err(refused)
    }

    async fn job(&self) -> JobSpec {
        let run = self.open(&["lane-1"]).await.unwrap();
        let lane = self.lane("lane-1");
        write(&lane.join("src/a.c"), "faster\n");
        commit(&lane, "faster");
        let pinned = self.pin(&run, "lane-1").await.unwrap();
        JobSpec { job: JobId(uuid::Uuid::now_v7()), run: RunId(uuid::Uuid::now_v7()), arrival: Arrival(1), pinned }
    }
}

/// What these tests ask for is refused or done; nothing of the machine stands in the way.
fn refused(no: No) -> Refusal {
    match no {
        No::Refusal(refusal) => refusal,
        No::Infrastructure(failure) => panic!("{failure}"),
    }
}
