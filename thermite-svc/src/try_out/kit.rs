//! The small kit inside this program, laid out as a repository with a champion and three lanes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thermite_core::job::JobOutcome;

use super::TryFault;

const KIT_TOML: &str = include_str!("../../../examples/kits/rust-sum/kit.toml");
const CHECK_SH: &str = include_str!("../../../examples/kits/rust-sum/check.sh");
const SUM_RS: &str = include_str!("../../../examples/kits/rust-sum/sum.rs");
const FEWER_DIVISORS: &str = include_str!("../../../examples/kits/rust-sum/changes/fewer-divisors.rs");
const OTHER_NAMES: &str = include_str!("../../../examples/kits/rust-sum/changes/other-names.rs");
const PAST_THE_ROOT: &str = include_str!("../../../examples/kits/rust-sum/changes/past-the-root.rs");

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

/// One lane's change.
#[derive(Clone, Copy, Debug)]
struct Change {
    name: &'static str,
    text: &'static str,
    why: &'static str,
    expected: Expected,
}

const CHANGES: [Change; 3] = [
    Change {
        name: "fewer-divisors",
        text: FEWER_DIVISORS,
        why: "Leave out divisors that end in 5",
        expected: Expected::Win,
    },
    Change { name: "other-names", text: OTHER_NAMES, why: "Rename", expected: Expected::NoGain },
    Change {
        name: "past-the-root",
        text: PAST_THE_ROOT,
        why: "Try divisors some way past the root",
        expected: Expected::Slower,
    },
];

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
}

impl LaneWork {
    /// What an agent would try: build the program and run it.
    pub(super) fn command(&self) -> Vec<String> {
        ["sh", "-c", "rustc -O -o sum sum.rs && ./sum"].map(str::to_owned).to_vec()
    }
}

/// Says which program is missing, before anything is made.
pub(super) fn needs_are_here() -> Result<(), TryFault> {
    for program in ["git", "rustc"] {
        let ran = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let why = match ran {
            Ok(answer) if answer.status.success() => continue,
            Ok(answer) => last_line(&answer.stderr),
            Err(error) => error.to_string(),
        };
        return Err(TryFault::Program { program, why });
    }
    Ok(())
}

impl Campaign {
    /// Makes repository and lanes inside `folder`, with a contract that plans for that speed-up.
    pub(super) fn lay_out(folder: &Path, plan_percent: u8) -> Result<Campaign, TryFault> {
        let repo = folder.join("repo");
        let written = std::fs::create_dir_all(&repo).and_then(|()| {
            std::fs::write(repo.join("kit.toml"), kit_planning(plan_percent))?;
            std::fs::write(repo.join("check.sh"), CHECK_SH)?;
            std::fs::write(repo.join(".gitignore"), "/sum\n")?;
            std::fs::write(repo.join("sum.rs"), SUM_RS)
        });
        written.map_err(|error| cannot_use(&repo, &error))?;
        git(&repo, &["init", "--quiet", "--initial-branch=main"])?;
        git(&repo, &["add", "--all"])?;
        git(&repo, &["commit", "--quiet", "--message=Sum the primes below 1,000,000"])?;
        let champion = git(&repo, &["rev-parse", "HEAD"])?;
        let mut lanes = Vec::new();
        for (number, change) in (1..).zip(CHANGES) {
            let worktree = folder.join(format!("lane-{number}"));
            let path = worktree.display().to_string();
            git(&repo, &["worktree", "add", "--quiet", "-b", change.name, &path, "main"])?;
            std::fs::write(worktree.join("sum.rs"), change.text).map_err(|error| cannot_use(&worktree, &error))?;
            git(&worktree, &["commit", "--quiet", "--all", &format!("--message={}", change.why)])?;
            let commit = git(&worktree, &["rev-parse", "HEAD"])?;
            lanes.push(LaneWork { number, name: change.name, expected: change.expected, commit, worktree });
        }
        Ok(Campaign { repo, champion, lanes })
    }
}

/// The kit, with a contract that plans for that speed-up.
fn kit_planning(percent: u8) -> String {
    KIT_TOML.replace("plan_percent = 5\n", &format!("plan_percent = {percent}\n"))
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

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}

fn cannot_use(folder: &Path, error: &std::io::Error) -> TryFault {
    TryFault::Folder { folder: folder.display().to_string(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kit_inside_is_a_kit_and_its_limits_are_as_said() {
        let kit = thermite_actors::host::kit::parse("kit.toml", KIT_TOML.as_bytes()).unwrap();

        assert_eq!(kit.name, "rust-sum");
        assert_eq!(kit.editable, ["sum.rs"]);
        assert!((kit.contract.plan_effect - 1.05_f64.ln()).abs() < 1e-12, "{}", kit.contract.plan_effect);
        assert!((kit.contract.gate - 1.02_f64.ln()).abs() < 1e-12, "{}", kit.contract.gate);
        let wider = thermite_actors::host::kit::parse("kit.toml", kit_planning(40).as_bytes()).unwrap();
        assert!((wider.contract.plan_effect - 1.40_f64.ln()).abs() < 1e-12, "{}", wider.contract.plan_effect);
    }

    #[test]
    fn every_lane_has_one_commit_that_touches_only_what_the_kit_lets_it() {
        let folder = tempfile::tempdir().unwrap();

        let campaign = Campaign::lay_out(folder.path(), 5).unwrap();

        assert_eq!(campaign.lanes.len(), 3);
        for lane in &campaign.lanes {
            let range = format!("{}..{}", campaign.champion, lane.commit);
            assert_eq!(git(&lane.worktree, &["rev-list", "--count", &range]).unwrap(), "1", "{}", lane.name);
            assert_eq!(git(&lane.worktree, &["diff", "--name-only", &range]).unwrap(), "sum.rs", "{}", lane.name);
            assert_eq!(git(&lane.worktree, &["status", "--porcelain"]).unwrap(), "", "{}", lane.name);
        }
    }

    /// CPU time of many runs, which a busy machine hardly changes; the effects are far apart beside what it does.
    #[test]
    fn the_three_changes_are_correct_and_have_the_effects_they_are_for() {
        let folder = tempfile::tempdir().unwrap();
        let campaign = Campaign::lay_out(folder.path(), 5).unwrap();
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

    #[test]
    fn a_check_finds_a_wrong_answer() {
        let folder = tempfile::tempdir().unwrap();
        let campaign = Campaign::lay_out(folder.path(), 5).unwrap();
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
