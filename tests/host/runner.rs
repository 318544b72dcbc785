//! What a runner does with the commits that were brought to it: development runs on fresh copies, and the judge's steps,
//! by the ordinary executor over a data folder of its own.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use thermite_actors::host::cpu::CpuDriver;
use thermite_actors::host::executor::{ExecutorSettings, HostExecutor};
use thermite_actors::host::workspaces::HostWorkspaces;
use thermite_actors::ports::{Executor, FreshCopies, LaneChanges, Outputs, StageRef, StopProof};
use thermite_core::block::Side;
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::{HoldId, MemberId};
use thermite_core::job::StageKind;
use thermite_core::stage::{StageStep, StepReport};

use crate::bulk::{Link, Net};
use crate::driver::unique;
use crate::executor::{Bench, accounts, kit, launcher, local, until};
use crate::repo::{commit, executable, git, write};

#[test]
fn a_development_run_on_a_runner_has_a_fresh_copy_of_the_lanes_tree_and_leaves_nothing() {
    local(async {
        let files = [("src/a", "1\n"), ("src/gone", "1\n"), ("src/mode", "1\n"), (".gitignore", "built\n")];
        let Some(bench) = Bench::open(&kit("measure = [\"true\"]"), &files, &[("src/a", "2\n")]).await else { return };
        let lane = bench.lane(1);
        write(&lane.join("src/a"), "3, unstaged\n");
        write(&lane.join("new/deep/file"), "new\n");
        write(&lane.join("new/two\nlines and \u{e9}"), "odd\n");
        write(&lane.join("staged"), "staged\n");
        git(&lane, &["add", "staged"]);
        write(&lane.join("built"), "what an earlier run built\n");
        std::fs::remove_file(lane.join("src/gone")).unwrap();
        executable(&lane.join("src/mode"));
        symlink("../src/a", lane.join("new/link")).unwrap();
        symlink("/no/such/place", lane.join("dangling")).unwrap();
        let index = |lane: &Path| {
            let git_dir = std::fs::read_to_string(lane.join(".git")).unwrap();
            let index = Path::new(git_dir.trim().strip_prefix("gitdir: ").unwrap()).join("index");
            let about = std::fs::metadata(&index).unwrap();
            (std::fs::read(&index).unwrap(), about.ino(), about.mtime_nsec(), about.ctime_nsec())
        };
        let before = index(&lane);
        let runner = Runner::of(&bench).await;
        let script = "cat src/a; echo left > left; ls -a; git rev-parse 2>/dev/null; echo git $?";
        let asked = bench.dev_run(&["sh", "-c", script]);

        let commit = bench.workspaces.commit_of(asked.clone()).await.unwrap();
        runner.bring(&bench, std::slice::from_ref(&commit)).await;
        let copy = FreshCopies::lay_out(&runner.workspaces, asked.dev_run, asked.lane, commit.clone()).await.unwrap();

        assert_eq!(index(&lane), before, "the lane's index: bytes, inode and times");
        let mut of_lane = tree_of(&lane);
        of_lane.retain(|path, _| path != "built" && path != ".git");
        assert_eq!(tree_of(&copy), of_lane);

        let spec = DevRunSpec { worktree: copy.clone(), ..asked.clone() };
        assert_eq!(
            runner.dev_run(1, spec).await,
            "3, unstaged\n.\n..\n.gitignore\ndangling\nkit.toml\nleft\nnew\nsrc\nstaged\ngit 128\n"
        );
        // Another run starts from the same again.
        let again = FreshCopies::lay_out(&runner.workspaces, asked.dev_run, asked.lane, commit).await.unwrap();
        assert_eq!(tree_of(&again), of_lane);
        runner.workspaces.discard(asked.dev_run).await;
        runner.workspaces.discard(asked.dev_run).await;
        assert!(!again.exists());
    });
}

#[test]
fn copies_that_a_runner_left_when_it_was_killed_go_at_its_next_start() {
    local(async {
        let Some(bench) = Bench::open(&kit("measure = [\"true\"]"), &[("src/a", "1\n")], &[("src/a", "2\n")]).await
        else {
            return;
        };
        let runner = Runner::of(&bench).await;
        let asked = bench.dev_run(&["true"]);
        let commit = bench.workspaces.commit_of(asked.clone()).await.unwrap();
        runner.bring(&bench, std::slice::from_ref(&commit)).await;
        let copy = FreshCopies::lay_out(&runner.workspaces, asked.dev_run, asked.lane, commit).await.unwrap();

        let again = HostWorkspaces::open(&runner.data, accounts(), String::new()).unwrap();
        again.discard_all_copies().unwrap();

        assert!(!copy.exists());
    });
}

#[test]
fn a_nested_repository_is_told_to_the_lane_instead_of_being_left_out_in_silence() {
    local(async {
        let Some(bench) = Bench::open(&kit("measure = [\"true\"]"), &[("src/a", "1\n")], &[("src/a", "2\n")]).await
        else {
            return;
        };
        let inner = bench.lane(1).join("vendor/inner");
        std::fs::create_dir_all(&inner).unwrap();
        git(&inner, &["init", "--quiet"]);
        write(&inner.join("x"), "1\n");
        commit(&inner, "x");
        let asked = bench.dev_run(&["true"]);

        let told = bench.workspaces.commit_of(asked.clone()).await.unwrap_err();
        write(&bench.lane(1).join(".gitignore"), "vendor\n");
        let ignored = bench.workspaces.commit_of(asked).await;

        assert_eq!(
            told,
            "a runner's copy would be without the files of nested repositories, which git does not carry: vendor/inner; \
             have git ignore them, or remove their .git"
        );
        assert!(ignored.is_ok(), "{ignored:?}");
    });
}

#[test]
fn the_repository_of_a_lane_is_known_after_a_restart_and_not_asked_of_the_lane() {
    local(async {
        let Some(bench) = Bench::open(&kit("measure = [\"true\"]"), &[("src/a", "1\n")], &[("src/a", "2\n")]).await
        else {
            return;
        };
        let asked = bench.dev_run(&["true"]);
        let before = bench.workspaces.commit_of(asked.clone()).await.unwrap();
        // What the lane writes there leads nowhere.
        write(&bench.lane(1).join(".git"), "gitdir: /no/such/place\n");

        let again = HostWorkspaces::open(&bench.repo.data(), accounts(), String::new()).unwrap();
        let after = again.commit_of(asked.clone()).await;
        let unknown = again.commit_of(DevRunSpec { worktree: "/no/such/lane".into(), ..asked }).await.unwrap_err();

        assert_eq!(after, Ok(before));
        assert_eq!(unknown, "the repository of /no/such/lane is not known; end the run and start it again");
    });
}

#[test]
fn the_judge_builds_and_checks_on_a_runner_what_was_brought_there() {
    local(async {
        let kit = kit(
            "build = [\"cp\", \"src/a\", \"made\"]\ncheck = [\"grep\", \"-q\", \"[12]\", \"made\"]\nmeasure = [\"cat\", \"made\"]\nartefacts = [\"made\"]",
        );
        let Some(bench) = Bench::open(&kit, &[("src/a", "1\n")], &[("src/a", "2\n")]).await else { return };
        let runner = Runner::of(&bench).await;
        let pinned = &bench.job.pinned;
        let hold = HoldId { member: MemberId(0), number: 1 };
        let stage = || StageRef { job: Arc::clone(&bench.job), stage: StageKind::Screening, attempt: 1 };

        let before = runner.executor.step(hold, stage(), StageStep::Prepare).await;
        runner.bring(&bench, &[pinned.champion.clone(), pinned.candidate.clone()]).await;
        let prepared = runner.executor.step(hold, stage(), StageStep::Prepare).await;
        let mut artefacts = Vec::new();
        for side in [Side::Champion, Side::Change] {
            match runner.executor.step(hold, stage(), StageStep::Build { side }).await {
                StepReport::Built { artefact, .. } => artefacts.push(artefact),
                other => panic!("{other:?}"),
            }
            assert_eq!(
                runner.executor.step(hold, stage(), StageStep::Check { side }).await,
                StepReport::Checked { side }
            );
        }

        assert!(matches!(before, StepReport::NotCarriedOut { .. }), "nobody's fault: {before:?}");
        assert_eq!(prepared, StepReport::Prepared);
        assert_ne!(artefacts[0], artefacts[1]);
        assert_eq!(runner.executor.stop(hold, false).await, StopProof::Empty);
    });
}

/// A runner beside a rig: a data folder of its own, its store and its executor.
pub(crate) struct Runner {
    pub(crate) data: PathBuf,
    net: Rc<Net>,
    workspaces: HostWorkspaces,
    executor: HostExecutor,
    _state: tempfile::TempDir,
}

impl Runner {
    async fn of(bench: &Bench) -> Runner {
        let data = bench.repo.folder.path().canonicalize().unwrap().join("runner");
        std::fs::create_dir(&data).unwrap();
        let net = Rc::new(Net::over(&data));
        let state = tempfile::tempdir().unwrap();
        let rig = unique("r");
        let launcher = launcher(&rig, state.path()).await.unwrap();
        let accounts = accounts();
        let workspaces = HostWorkspaces::open(&data, accounts, std::env::var("PATH").unwrap()).unwrap();
        let settings = ExecutorSettings { rig, data: data.clone(), accounts };
        let driver = CpuDriver::of_this_machine();
        let executor = HostExecutor::open(launcher, workspaces.clone(), driver, settings).unwrap();
        Runner { data, net, workspaces, executor, _state: state }
    }

    async fn bring(&self, bench: &Bench, commits: &[String]) {
        let link = Rc::new(Link(Rc::clone(&self.net)));
        let bringer = thermite_actors::host::bulk::Bringer::open(&bench.repo.data(), link).unwrap();
        bringer.bring(&self.net.process, bench.job.run, commits).await.unwrap();
    }

    /// A development run to its end, and all that it wrote.
    async fn dev_run(&self, number: u64, spec: DevRunSpec) -> String {
        let hold = HoldId { member: MemberId(0), number };
        let dev_run = spec.dev_run;
        self.executor.start(hold, spec).await.unwrap();
        assert_eq!(self.executor.exited(hold).await, Exit::Code(0));
        assert_eq!(self.executor.stop(hold, false).await, StopProof::Empty);
        let read = || self.executor.outputs().read(dev_run, 0, 1 << 20).unwrap();
        until("the output is complete", || read().complete).await;
        String::from_utf8_lossy(&read().bytes).into_owned()
    }
}

/// Every file below a folder with what it is: mode, and content or target.
fn tree_of(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    fn walk(folder: &Path, root: &Path, tree: &mut BTreeMap<String, (String, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let about = path.symlink_metadata().unwrap();
            if about.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                tree.insert(name, ("link".to_owned(), target.into_os_string().into_encoded_bytes()));
            } else if about.is_dir() {
                walk(&path, root, tree);
            } else {
                tree.insert(name, (format!("{:o}", about.mode() & 0o7777), std::fs::read(&path).unwrap()));
            }
        }
    }
    let mut tree = BTreeMap::new();
    walk(folder, folder, &mut tree);
    tree
}
