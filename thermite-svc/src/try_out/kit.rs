//! A small kit, laid out as a repository with a champion and three lanes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thermite_core::job::JobOutcome;

use super::TryFault;
use super::kits::TrialKit;

/// What a change should turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Faster.
    Win,
    /// The same program under other names.
    NoGain,
    /// Slower.
    Slower,
}

impl Expected {
    /// In words.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Expected::Win => "win",
            Expected::NoGain => "no gain",
            Expected::Slower => "no gain, slower",
        }
    }

    /// Whether an outcome is of that kind. Where the blocks ran out, nothing false was said of a change that is the
    /// same; it would be too little for one that is not.
    pub(super) fn is_met_by(self, outcome: &JobOutcome) -> bool {
        match (self, outcome) {
            (Expected::Win, JobOutcome::Win { .. })
            | (Expected::NoGain, JobOutcome::NoGain { .. } | JobOutcome::Undecided)
            | (Expected::Slower, JobOutcome::NoGain { .. }) => true,
            (Expected::Win, JobOutcome::NoGain { .. } | JobOutcome::Undecided)
            | (Expected::NoGain, JobOutcome::Win { .. })
            | (Expected::Slower, JobOutcome::Win { .. } | JobOutcome::Undecided)
            | (_, JobOutcome::ChangeFailed { .. } | JobOutcome::NoVerdict { .. }) => false,
        }
    }
}

/// The repository, its champion and its lanes.
#[derive(Clone, Debug)]
pub(super) struct Campaign {
    /// The repository.
    pub(super) repo: PathBuf,
    /// The champion's commit.
    pub(super) champion: String,
    /// The lanes, lane 1 first.
    pub(super) lanes: Vec<LaneWork>,
}

/// One lane with its change, committed in its worktree.
#[derive(Clone, Debug)]
pub(super) struct LaneWork {
    /// The lane's number.
    pub(super) number: u32,
    /// The change's name, which is its branch's too.
    pub(super) name: &'static str,
    /// What it should turn out to be.
    pub(super) expected: Expected,
    /// Its commit.
    pub(super) commit: String,
    /// The lane's tree.
    pub(super) worktree: PathBuf,
    /// What an agent would try in it, as a shell's line.
    pub(super) try_it: &'static str,
}

impl LaneWork {
    /// What an agent would try: build the program and run it.
    pub(super) fn command(&self) -> Vec<String> {
        ["sh", "-c", self.try_it].map(str::to_owned).to_vec()
    }
}

impl Campaign {
    /// Makes repository and lanes inside `folder`, with a contract that plans for that speed-up.
    pub(super) fn lay_out(folder: &Path, kit: &TrialKit, plan_percent: u8) -> Result<Campaign, TryFault> {
        let repo = folder.join("repo");
        let written = std::fs::create_dir_all(&repo).and_then(|()| {
            std::fs::write(repo.join("kit.toml"), kit_planning(kit, plan_percent))?;
            std::fs::write(repo.join(".gitignore"), kit.ignored)?;
            kit.files.iter().try_for_each(|(name, text)| std::fs::write(repo.join(name), text))
        });
        written.map_err(|error| cannot_use(&repo, &error))?;
        git(&repo, &["init", "--quiet", "--initial-branch=main"])?;
        git(&repo, &["add", "--all"])?;
        git(&repo, &["commit", "--quiet", &format!("--message={}", kit.subject)])?;
        let champion = git(&repo, &["rev-parse", "HEAD"])?;
        let mut lanes = Vec::new();
        for (number, change) in (1..).zip(kit.changes) {
            let worktree = folder.join(format!("lane-{number}"));
            let path = worktree.display().to_string();
            git(&repo, &["worktree", "add", "--quiet", "-b", change.name, &path, "main"])?;
            std::fs::write(worktree.join(kit.changed), change.text).map_err(|error| cannot_use(&worktree, &error))?;
            git(&worktree, &["commit", "--quiet", "--all", &format!("--message={}", change.why)])?;
            let commit = git(&worktree, &["rev-parse", "HEAD"])?;
            let (name, expected, try_it) = (change.name, change.expected, kit.command);
            lanes.push(LaneWork { number, name, expected, commit, worktree, try_it });
        }
        Ok(Campaign { repo, champion, lanes })
    }
}

/// The kit, with a contract that plans for that speed-up.
fn kit_planning(kit: &TrialKit, percent: u8) -> String {
    let planned = |percent: u8| format!("plan_percent = {percent}\n");
    kit.toml.replace(&planned(kit.plan_percent), &planned(percent))
}

/// The caller's own settings of git must not matter: hooks, signing, templates, names.
fn git(folder: &Path, args: &[&str]) -> Result<String, TryFault> {
    let failed = |why: String| TryFault::Git {
        what: args.first().copied().unwrap_or_default().to_owned(),
        folder: folder.display().to_string(),
        why,
    };
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "thermite try"),
        ("GIT_AUTHOR_EMAIL", "try@thermite.invalid"),
        ("GIT_COMMITTER_NAME", "thermite try"),
        ("GIT_COMMITTER_EMAIL", "try@thermite.invalid"),
    ] {
        command.env(name, value);
    }
    let answer = command
        .arg("-C")
        .arg(folder)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !answer.status.success() {
        return Err(failed(last_line(&answer.stderr)));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

pub(super) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}

fn cannot_use(folder: &Path, error: &std::io::Error) -> TryFault {
    TryFault::Folder { folder: folder.display().to_string(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::try_out::kits::{ON_CPUS, ON_GPU};

    #[test]
    fn the_kits_inside_are_kits_and_their_limits_are_as_said() {
        for (kit, name, gate) in [(&ON_CPUS, "rust-sum", 1.02_f64), (&ON_GPU, "cuda-smooth", 1.10)] {
            let read = thermite_actors::host::kit::parse("kit.toml", kit.toml.as_bytes()).unwrap();

            assert_eq!((read.name.as_str(), read.target), (name, kit.target));
            assert_eq!(read.editable, [kit.changed]);
            let plan = (1.0 + f64::from(kit.plan_percent) / 100.0).ln();
            assert!((read.contract.plan_effect - plan).abs() < 1e-12, "{}", read.contract.plan_effect);
            assert!((read.contract.gate - gate.ln()).abs() < 1e-12, "{}", read.contract.gate);
            let wider = thermite_actors::host::kit::parse("kit.toml", kit_planning(kit, 40).as_bytes()).unwrap();
            assert!((wider.contract.plan_effect - 1.40_f64.ln()).abs() < 1e-12, "{}", wider.contract.plan_effect);
        }
    }

    #[test]
    fn every_lane_has_one_commit_that_touches_only_what_the_kit_lets_it() {
        for kit in [&ON_CPUS, &ON_GPU] {
            let folder = tempfile::tempdir().unwrap();

            let campaign = Campaign::lay_out(folder.path(), kit, 5).unwrap();

            assert_eq!(campaign.lanes.len(), 3);
            for lane in &campaign.lanes {
                let range = format!("{}..{}", campaign.champion, lane.commit);
                assert_eq!(git(&lane.worktree, &["rev-list", "--count", &range]).unwrap(), "1", "{}", lane.name);
                assert_eq!(
                    git(&lane.worktree, &["diff", "--name-only", &range]).unwrap(),
                    kit.changed,
                    "{}",
                    lane.name
                );
                assert_eq!(git(&lane.worktree, &["status", "--porcelain"]).unwrap(), "", "{}", lane.name);
            }
        }
    }

    /// CPU time of many runs, which a busy machine hardly changes; the effects are far apart beside what it does.
    #[test]
    fn the_three_changes_are_correct_and_have_the_effects_they_are_for() {
        let folder = tempfile::tempdir().unwrap();
        let campaign = Campaign::lay_out(folder.path(), &ON_CPUS, 5).unwrap();
        let mut trees = vec![campaign.repo.clone()];
        trees.extend(campaign.lanes.iter().map(|lane| lane.worktree.clone()));
        for tree in &trees {
            ran(tree, "rustc", &["-O", "-o", "sum", "sum.rs"]);
            ran(tree, "sh", &["check.sh"]);
        }

        let mut least = vec![f64::MAX; trees.len()];
        for _ in 0..4 {
            for (tree, least) in trees.iter().zip(&mut least) {
                *least = least.min(cpu_seconds_of_five_runs(tree));
            }
        }

        let faster = |at: usize| least[0] / least[at];
        println!("CPU seconds {least:?}, speed-ups {:.3} {:.3} {:.3}", faster(1), faster(2), faster(3));
        assert!(faster(1) > 1.1, "fewer divisors: {:.3}", faster(1));
        assert!(faster(2) > 0.9 && faster(2) < 1.1, "other names: {:.3}", faster(2));
        assert!(faster(3) < 0.9, "past the root: {:.3}", faster(3));
    }

    /// By a stand-in for nvcc, which makes plain loops of the kernels: what strides through memory is slow there too.
    #[test]
    fn the_changes_of_the_gpu_kit_are_correct_and_have_the_effects_they_are_for() {
        let folder = tempfile::tempdir().unwrap();
        let campaign = Campaign::lay_out(folder.path(), &ON_GPU, 20).unwrap();
        let mut trees = vec![campaign.repo.clone()];
        trees.extend(campaign.lanes.iter().map(|lane| lane.worktree.clone()));
        let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/cuda");
        let path = format!("{stand_in}:{}", std::env::var("PATH").unwrap());
        let in_tree = |tree: &Path, line: &str| {
            let answer = Command::new("sh").args(["-c", line]).current_dir(tree).env("PATH", &path).output().unwrap();
            assert!(answer.status.success(), "{line} in {}: {answer:?}", tree.display());
            String::from_utf8(answer.stdout).unwrap()
        };
        trees.iter().for_each(|tree| drop(in_tree(tree, "sh build.sh && ./check")));

        let mut least = vec![f64::MAX; trees.len()];
        for _ in 0..5 {
            for (tree, least) in trees.iter().zip(&mut least) {
                *least = least.min(in_tree(tree, "./measure 3>&1").trim().parse().unwrap());
            }
        }

        let faster = |at: usize| least[0] / least[at];
        println!("seconds {least:?}, speed-ups {:.3} {:.3} {:.3}", faster(1), faster(2), faster(3));
        assert!(faster(1) > 1.5, "along rows: {:.3}", faster(1));
        assert!(faster(3) < 0.9, "copy first: {:.3}", faster(3));
        std::fs::write(trees[0].join("smooth.cu"), "#include \"grid.h\"\nvoid smooth(const float *, float *) {}\n")
            .unwrap();
        in_tree(&trees[0], "sh build.sh");
        let wrong = Command::new("./check").current_dir(&trees[0]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    }

    #[test]
    fn a_check_finds_a_wrong_answer() {
        let folder = tempfile::tempdir().unwrap();
        let campaign = Campaign::lay_out(folder.path(), &ON_CPUS, 5).unwrap();
        std::fs::write(campaign.repo.join("sum.rs"), "fn main() { println!(\"37550402024\"); }").unwrap();
        ran(&campaign.repo, "rustc", &["-o", "sum", "sum.rs"]);

        let answer = Command::new("sh").arg("check.sh").current_dir(&campaign.repo).output().unwrap();

        assert_eq!(answer.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "printed 37550402024, expected 37550402023\n");
    }

    #[test]
    fn an_outcome_is_as_expected_only_where_it_is_of_that_kind() {
        let win = JobOutcome::Win { adopted: false };
        let slower = JobOutcome::NoGain { slower: true };
        let no_verdict = JobOutcome::NoVerdict { why: "busy".into() };

        assert!(Expected::Win.is_met_by(&win) && !Expected::NoGain.is_met_by(&win));
        assert!(Expected::Slower.is_met_by(&slower) && !Expected::Win.is_met_by(&slower));
        assert!(Expected::NoGain.is_met_by(&JobOutcome::Undecided));
        assert!(!Expected::Slower.is_met_by(&JobOutcome::Undecided));
        for expected in [Expected::Win, Expected::NoGain, Expected::Slower] {
            assert!(!expected.is_met_by(&no_verdict));
        }
    }

    fn ran(tree: &Path, program: &str, args: &[&str]) {
        let answer = Command::new(program).args(args).current_dir(tree).output().unwrap();
        assert!(answer.status.success(), "{program} in {}: {answer:?}", tree.display());
    }
    /// As the shell's `times` tells it of its children: `0m0.350s 0m0.010s`, user and system.
    fn cpu_seconds_of_five_runs(tree: &Path) -> f64 {
        let script = "for run in 1 2 3 4 5; do ./sum > /dev/null || exit 1; done; times";
        let answer = Command::new("sh").args(["-c", script]).current_dir(tree).output().unwrap();
        assert!(answer.status.success(), "{answer:?}");
        let text = String::from_utf8(answer.stdout).unwrap();
        let seconds = |word: &str| {
            let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.replace(',', ".").parse::<f64>().unwrap()
        };
        text.lines().nth(1).unwrap().split_whitespace().map(seconds).sum()
    }
}
