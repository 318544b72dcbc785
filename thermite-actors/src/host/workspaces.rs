//! Repositories, lanes' worktrees, changes and the judge's own copies of them, as the port [`Workspaces`].
//!
//! Data folder: `git/` (the rig's stores), `work/JOB/STAGE-ATTEMPT/` (the judge's copies; which is whose stands in the
//! file `sides` there, since a measured program can see its folder's name), `trees` (the lanes' worktrees of every run,
//! one a line, so that a development run can be kept from seeing the others').

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;

use thermite_core::block::Side;
use thermite_core::contract::{Kit, Target};
use thermite_core::dev_run::DevRunSpec;
use thermite_core::ids::{JobId, LANE_MAX, LaneId};
use thermite_core::job::{JobSpec, PinnedChange, StageKind};
use thermite_core::limits;
use thermite_core::refusal::{InfrastructureFailure, Refusal};
use thermite_core::run::RunSpec;

mod copies;

use super::git::command::GitFault;
use super::git::{self, Git, Repository, Worktree};
use super::kit::{self, Editable};
use super::launch::{CardGrant, Grant, Identity, Launcher, hand_over};
use crate::ports::{RunRequest, Workspaces};
use crate::rig::No;

/// The file of the lanes' worktrees, in the data folder.
pub const TREES: &str = "trees";
/// How many paths a refusal lists.
const PATHS_SHOWN: usize = 5;
/// What a revision begins with that means a lane's tree as it stands, uncommitted work included: `lane:2`.
const LANE_PREFIX: &str = "lane:";

/// The first timing user's place after the judge's uid: the lanes and the trial's uid are between.
const FIRST_TIMING: u32 = LANE_MAX as u32 + 2;

/// Which uids contained commands run as, where the rig is root: one for the judge, one for each lane, and one for each
/// card that is timed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts {
    base: Option<u32>,
}

impl Accounts {
    /// `base` is the judge's uid and gid, `base + N` lane N's, `base + 18 + N` the timing user's of the rig's card N. They
    /// must belong to nobody else on the machine.
    pub const fn dedicated(base: u32) -> Accounts {
        Accounts { base: Some(base) }
    }

    /// Everything runs as the rig's own user, which is not root.
    pub const fn rigs_user() -> Accounts {
        Accounts { base: None }
    }

    /// What the user of this process can have: uids from `base` on where it is root.
    pub fn of_this_user(base: u32) -> Accounts {
        if rustix::process::geteuid().is_root() { Accounts::dedicated(base) } else { Accounts::rigs_user() }
    }

    /// Who the judge's builds run as, and its checks and measured runs where the device is the CPUs.
    pub const fn judge(self) -> Identity {
        match self.base {
            Some(base) => Identity::Dedicated { uid: base, gid: base },
            None => Identity::RigsUser,
        }
    }

    /// Who the measured runs and checks on a card run as (rule B4): the card's alone. `seat` counts the rig's cards from 0.
    ///
    /// # Panics
    /// Where there are not as many seats.
    pub const fn timing(self, seat: u8) -> Identity {
        assert!(seat < limits::TIMING_USERS_MAX, "a rig has a timing user for each seat");
        match self.base {
            Some(base) => {
                let own = base + FIRST_TIMING + seat as u32;
                Identity::Dedicated { uid: own, gid: own }
            }
            None => Identity::RigsUser,
        }
    }

    /// The uid of an account, where it has one of its own.
    pub(super) fn uids_of(self, account: Identity) -> Vec<u32> {
        match account {
            Identity::Dedicated { uid, .. } => vec![uid],
            Identity::RigsUser => Vec::new(),
        }
    }

    /// The uids that nothing but this rig's runs has: the judge's, the lanes' and the timing users'.
    pub fn all_uids(self) -> Vec<u32> {
        let Some(base) = self.base else { return Vec::new() };
        let timing = base + FIRST_TIMING..base + FIRST_TIMING + u32::from(limits::TIMING_USERS_MAX);
        (base..=base + u32::from(LANE_MAX)).chain(timing).collect()
    }

    /// A uid that no run has: containment is tried out as it.
    pub const fn trial(self) -> Option<u32> {
        match self.base {
            Some(base) => Some(base + LANE_MAX as u32 + 1),
            None => None,
        }
    }

    /// Who a lane's development runs run as.
    pub const fn lane(self, lane: LaneId) -> Identity {
        match self.base {
            Some(base) => {
                let own = base + lane.number() as u32;
                Identity::Dedicated { uid: own, gid: own }
            }
            None => Identity::RigsUser,
        }
    }
}

/// The rig's workspaces. Clones share the same data folder.
#[derive(Clone, Debug)]
pub struct HostWorkspaces {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    git: Git,
    work: PathBuf,
    accounts: Accounts,
    /// The kind of device that kits must be for.
    target: Target,
    /// The cards that runs are to be kept to (rule B3).
    cards: Mutex<Vec<KeptCard>>,
    /// The `PATH` that commands of lanes get.
    path: String,
    /// The lanes' worktrees of every run there has been, and the file that keeps them.
    trees: Mutex<BTreeSet<PathBuf>>,
    trees_file: PathBuf,
    /// The repository of each lane's worktree, and the file that keeps them: what a lane writes in its tree decides nothing.
    repositories: Mutex<BTreeMap<PathBuf, PathBuf>>,
    repositories_file: PathBuf,
    /// Champions that are kept, with their kits: a commit never changes, and a queue's jobs all start from a few.
    champions: Mutex<BTreeMap<KeptChampion, (Kit, String)>>,
    /// One thread at a time writes into the stores, or prunes them.
    storing: Mutex<()>,
    /// When each commit was last asked for in this life: what is being submitted is not in the log yet.
    recent: Mutex<BTreeMap<String, Instant>>,
    /// One thread at a time lays out or takes away the judge's copies: a layout that nobody waits for any more must not
    /// come after its job was forgotten.
    laying: Mutex<()>,
}

/// A card, who its judge's runs are, and who keeps them to it.
#[derive(Debug)]
struct KeptCard {
    launcher: Launcher,
    timing: Identity,
    grant: Grant,
}

/// A champion's object format and name, and the kit's path in it.
type KeptChampion = (String, String, PathBuf);

/// Champions whose kits are remembered; more are read again.
const CHAMPIONS_REMEMBERED: usize = 64;

impl HostWorkspaces {
    /// Opens the data folder's workspaces; `path` is the `PATH` that lanes' commands are looked for in.
    ///
    /// # Errors
    /// Where the data folder cannot be read or written.
    pub fn open(data: &Path, accounts: Accounts, path: String) -> io::Result<HostWorkspaces> {
        std::fs::create_dir_all(data.join("work"))?;
        let work = data.canonicalize()?.join("work");
        let trees_file = data.join(TREES);
        let trees = match std::fs::read_to_string(&trees_file) {
            Ok(text) => text.lines().map(PathBuf::from).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let (repositories, repositories_file) = copies::known_repositories(data)?;
        Ok(HostWorkspaces {
            shared: Arc::new(Shared {
                git: Git::open(data)?,
                work,
                accounts,
                target: Target::Cpu,
                cards: Mutex::default(),
                path,
                trees: Mutex::new(trees),
                trees_file,
                repositories: Mutex::new(repositories),
                repositories_file,
                champions: Mutex::new(BTreeMap::new()),
                storing: Mutex::new(()),
                recent: Mutex::new(BTreeMap::new()),
                laying: Mutex::new(()),
            }),
        })
    }

    /// Has the judge's copies laid out in `folder` from here on, which every user can enter and only the rig's own can
    /// list or write: for a judge's account that cannot enter the data folder. To be called before anything is.
    ///
    /// # Errors
    /// Where it cannot be made, or is somebody else's.
    pub fn lay_out_in(self, folder: &Path) -> io::Result<HostWorkspaces> {
        let mut shared = Arc::try_unwrap(self.shared).map_err(|_| io::Error::other("the workspaces are in use"))?;
        match std::fs::DirBuilder::new().mode(0o711).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let about = std::fs::symlink_metadata(folder)?;
        if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it is not a folder of the rig's user; remove it"));
        }
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?;
        shared.work = folder.canonicalize()?;
        Ok(HostWorkspaces { shared: Arc::new(shared) })
    }

    /// Has runs started for kits of this kind of device alone, where it is not the CPUs. To be called before anything is.
    ///
    /// # Errors
    /// Where the workspaces are in use.
    pub fn for_target(self, target: Target) -> io::Result<HostWorkspaces> {
        let mut shared = Arc::try_unwrap(self.shared).map_err(|_| io::Error::other("the workspaces are in use"))?;
        shared.target = target;
        Ok(HostWorkspaces { shared: Arc::new(shared) })
    }

    /// Has what is asked for refused where `launcher` cannot keep runs to the cards that are named here (rule B3); its
    /// ways must have been tried.
    pub fn check_isolation(&self, launcher: &Launcher, timing: Identity, card: &CardGrant) {
        let grant = Grant { card: Some(card.clone()), cpus: None };
        in_turn(&self.shared.cards).push(KeptCard { launcher: launcher.clone(), timing, grant });
    }

    /// The worktrees that a development run in `own` must not see: every other lane's that was ever opened.
    pub fn others_trees(&self, own: &Path) -> Vec<PathBuf> {
        let trees = self.shared.trees.lock().expect("no thread panics while it holds this lock: it only reads a set");
        // A tree that is gone cannot be hidden, and needs not be.
        trees.iter().filter(|tree| tree.as_path() != own && tree.is_dir()).cloned().collect()
    }

    /// Lays out champion and candidate for one attempt, each in a folder of its own that the judge's account owns.
    ///
    /// # Errors
    /// A sentence, where git or the disk fails: infrastructure.
    pub fn lay_out(&self, job: &JobSpec, stage: StageKind, attempt: u32) -> Result<(), String> {
        self.shared.lay_out(job, stage, attempt)
    }

    /// Where an attempt's copy of one side is; none where it was not laid out.
    pub fn side(&self, job: JobId, stage: StageKind, attempt: u32, side: Side) -> Option<PathBuf> {
        let attempt = self.shared.attempt(job, stage, attempt);
        let sides = std::fs::read_to_string(attempt.join("sides")).ok()?;
        let mut names = sides.lines();
        let name = match side {
            Side::Champion => names.next(),
            Side::Change => names.nth(1),
        };
        Some(attempt.join(name?))
    }

    /// Takes out of the stores what neither `needed` nor anything asked for within the last hour refers to; gives how
    /// many commits were let go. Works on the calling thread; submits wait for it, at most [`limits::STORE_PRUNE_MAX`]
    /// a command.
    ///
    /// # Errors
    /// A sentence, where git fails or takes too long; what is left is tried another time.
    pub fn prune(&self, needed: &BTreeSet<String>) -> Result<usize, String> {
        let _storing = in_turn(&self.shared.storing);
        // In this order: a champion found in memory after this is looked for in the store again, and waits for it.
        in_turn(&self.shared.champions).clear();
        let mut kept = needed.clone();
        {
            let mut recent = in_turn(&self.shared.recent);
            recent.retain(|_, asked| asked.elapsed() < limits::STORE_KEPT_MIN.to_std());
            kept.extend(recent.keys().cloned());
        }
        self.shared.git.prune(&kept).map_err(|fault| fault.to_string())
    }

    /// Takes what a job's attempts laid out off the disk, on the calling thread.
    pub fn forget_here(&self, job: JobId) {
        let _laying = in_turn(&self.shared.laying);
        let folder = self.shared.work.join(job.to_string());
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "an ended job's files stay"),
        }
    }
}

impl Workspaces for HostWorkspaces {
    fn open(&self, request: RunRequest) -> LocalBoxFuture<'static, Result<RunSpec, No>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(elsewhere(move || shared.open_run(&request)))
    }

    fn pin(&self, run: RunSpec, champion: String, change: String) -> LocalBoxFuture<'static, Result<PinnedChange, No>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(elsewhere(move || shared.pin(&run, &champion, &change)))
    }

    fn check_command(&self, spec: &DevRunSpec) -> Result<(), Refusal> {
        self.shared.isolates(Some(spec.lane))?;
        let path = spec.env.iter().find(|(name, _)| name == "PATH").map_or(self.shared.path.as_str(), |(_, path)| path);
        check_command(spec, path)
    }

    fn forget(&self, job: JobId) -> LocalBoxFuture<'static, ()> {
        let workspaces = self.clone();
        Box::pin(async move {
            if let Err(error) = tokio::task::spawn_blocking(move || workspaces.forget_here(job)).await {
                tracing::warn!(%job, %error, "an ended job's files stay");
            }
        })
    }
}

/// Does heavy work on a thread of its own, so that the policy's goes on.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> Result<T, No> + Send + 'static) -> Result<T, No> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(not_looked_at(error.to_string())),
    }
}

fn not_looked_at(why: String) -> No {
    InfrastructureFailure::Step { step: "looking at the repository".to_owned(), why }.into()
}

/// The asker named a repository, and is refused what is wrong with it; a full or failing disk, a git that is missing or that
/// hangs is nobody's fault.
impl From<GitFault> for No {
    fn from(fault: GitFault) -> No {
        let why = fault.to_string();
        match fault {
            GitFault::Failed { .. } | GitFault::Unexpected(_) if git::is_no_room(&why) => {
                InfrastructureFailure::DiskFull { why }.into()
            }
            GitFault::Failed { .. } | GitFault::Unexpected(_) if git::is_disk_failing(&why) || git::is_locked(&why) => {
                not_looked_at(why)
            }
            GitFault::Failed { .. } | GitFault::Unexpected(_) => Refusal::Repository { why }.into(),
            GitFault::NotStarted(_) | GitFault::TookTooLong { .. } => not_looked_at(why),
        }
    }
}

impl Shared {
    fn open_run(&self, request: &RunRequest) -> Result<RunSpec, No> {
        let repository = self.git.repository(&request.repo)?;
        let kit_path = inside(&request.kit)?;
        let (champion, kit, kit_hash) = self.champion(&repository, &request.champion, &kit_path)?;
        if kit.target != self.target {
            return Err(Refusal::WrongTarget { kit: kit.name, wants: kit.target, has: self.target }.into());
        }
        let lanes = self.lanes(&repository, &request.lanes)?;
        self.remember(&lanes)?;
        self.remember_repository(&repository.path, &lanes)?;
        Ok(RunSpec { repo: repository.path, kit_path, kit, kit_hash, champion, lanes })
    }

    /// Remembers that a commit is asked for, so that it is not pruned before the log refers to it.
    fn note(&self, commit: &str) {
        in_turn(&self.recent).insert(commit.to_owned(), Instant::now());
    }

    fn keep(&self, repository: &Repository, commit: &str) -> Result<(), GitFault> {
        self.note(commit);
        let _storing = in_turn(&self.storing);
        self.git.keep(repository, commit)
    }

    /// The kept commit of a champion, its kit and the kit's hash.
    fn champion(&self, repository: &Repository, revision: &str, kit_path: &Path) -> Result<(String, Kit, String), No> {
        let key = |commit: &str| (repository.object_format.clone(), commit.to_owned(), kit_path.to_owned());
        if let Some((kit, kit_hash)) = in_turn(&self.champions).get(&key(revision)) {
            self.note(revision);
            return Ok((revision.to_owned(), kit.clone(), kit_hash.clone()));
        }
        let commit = self.git.resolve(repository, revision)?;
        self.keep(repository, &commit)?;
        let (kit, kit_hash) = self.kit(repository, &commit, kit_path)?;
        let mut champions = in_turn(&self.champions);
        if champions.len() >= CHAMPIONS_REMEMBERED {
            champions.clear();
        }
        champions.insert(key(&commit), (kit.clone(), kit_hash.clone()));
        Ok((commit, kit, kit_hash))
    }

    fn kit(&self, repository: &Repository, champion: &str, path: &Path) -> Result<(Kit, String), No> {
        let shown = path.display();
        let bytes = self.git.file(repository, champion, path, limits::KIT_BYTES_MAX)?.ok_or_else(|| {
            let why = format!("{shown} is not a file in champion {champion} of {}", repository.path.display());
            Refusal::Kit { why }
        })?;
        match kit::parse(&shown.to_string(), &bytes) {
            Ok(kit) => Ok((kit, kit::hash(&bytes))),
            // Git has a link's target as its text, which is no kit and says little as one.
            Err(_) if self.git.is_link(repository, champion, path)? => {
                let target: String =
                    String::from_utf8_lossy(&bytes).chars().take(80).flat_map(char::escape_default).collect();
                let why =
                    format!("{shown} is a link to {target} in champion {champion}; name that file, or commit it there");
                Err(Refusal::Kit { why }.into())
            }
            Err(fault) => Err(Refusal::Kit { why: fault.to_string() }.into()),
        }
    }

    /// Finds the lanes' worktrees: each one of the repository's, none twice, none inside another.
    fn lanes(&self, repository: &Repository, folders: &[PathBuf]) -> Result<Vec<PathBuf>, No> {
        if folders.is_empty() || folders.len() > usize::from(LANE_MAX) {
            return Err(Refusal::Impossible {
                thing: "the number of lanes".to_owned(),
                value: folders.len().to_string(),
                expected: format!("1 to {LANE_MAX}"),
            }
            .into());
        }
        let mut lanes: Vec<PathBuf> = Vec::new();
        for (index, folder) in folders.iter().enumerate() {
            let number = index + 1;
            let found = self
                .git
                .worktree(repository, folder)
                .map_err(|fault| Refusal::Repository { why: format!("lane {number}: {fault}") })?;
            for (earlier, other) in lanes.iter().enumerate() {
                if other.starts_with(&found.path) || found.path.starts_with(other) {
                    return Err(Refusal::Impossible {
                        thing: format!("lane {number}'s worktree"),
                        value: found.path.display().to_string(),
                        expected: format!("apart from lane {}'s, {}", earlier + 1, other.display()),
                    }
                    .into());
                }
            }
            if found.git_dir == repository.common && self.accounts.judge() != Identity::RigsUser {
                return Err(Refusal::Impossible {
                    thing: format!("lane {number}'s worktree"),
                    value: found.path.display().to_string(),
                    expected:
                        "a linked worktree (`git worktree add`): a lane's tree is given to the lane's account, and \
                               the repository itself must not be"
                            .to_owned(),
                }
                .into());
            }
            if self.work.starts_with(&found.path) {
                return Err(Refusal::Impossible {
                    thing: format!("lane {number}'s worktree"),
                    value: found.path.display().to_string(),
                    expected: "apart from the rig's data folder, which no lane may see".to_owned(),
                }
                .into());
            }
            if found.path.to_str().is_none_or(|path| path.contains('\n')) {
                return Err(Refusal::Impossible {
                    thing: format!("lane {number}'s worktree"),
                    value: found.path.display().to_string(),
                    expected: "a path of UTF-8 text on one line".to_owned(),
                }
                .into());
            }
            lanes.push(found.path);
        }
        Ok(lanes)
    }

    /// Keeps the lanes' worktrees for [`HostWorkspaces::others_trees`], also after a restart.
    fn remember(&self, lanes: &[PathBuf]) -> Result<(), No> {
        let mut trees = self.trees.lock().expect("no thread panics while it holds this lock: it only grows a set");
        if lanes.iter().all(|lane| trees.contains(lane)) {
            return Ok(());
        }
        trees.extend(lanes.iter().cloned());
        let text: String = trees.iter().map(|tree| format!("{}\n", tree.display())).collect();
        let beside = self.trees_file.with_extension("new");
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &self.trees_file)).map_err(|error| {
            GitFault::Unexpected(format!("{} cannot be written: {error}", self.trees_file.display())).into()
        })
    }

    /// Whether a development run of this lane, or a judge's run where none is named, can be kept to some card of the
    /// rig's (rule B3). A rig without cards has nothing to keep runs from.
    fn isolates(&self, lane: Option<LaneId>) -> Result<(), Refusal> {
        let mut missing = None;
        for card in in_turn(&self.cards).iter() {
            let identity = lane.map_or(card.timing, |lane| self.accounts.lane(lane));
            match card.launcher.known_way_to_cards(identity, &card.grant) {
                Ok(_) => return Ok(()),
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        missing.map_or(Ok(()), |missing| Err(Refusal::NoIsolation { missing }))
    }

    fn pin(&self, run: &RunSpec, champion: &str, change: &str) -> Result<PinnedChange, No> {
        self.isolates(None)?;
        let repository = self.git.repository(&run.repo)?;
        let (champion, kit, kit_hash) = self.champion(&repository, champion, &run.kit_path)?;
        if kit.target != self.target {
            return Err(Refusal::WrongTarget { kit: kit.name, wants: kit.target, has: self.target }.into());
        }
        let editable = Editable::new(&kit.editable).map_err(|fault| Refusal::Kit { why: fault.to_string() })?;
        // The kit's own file says what is measured: it is never the change's to touch, whatever its globs say.
        let may_touch = |path: &Path| editable.covers(path) && path != run.kit_path;
        let commit = self.change(&repository, run, change, &may_touch)?;

        let differences = self.git.differences(&repository, &champion, &commit)?;
        if differences.is_empty() {
            return Err(Refusal::NothingChanged { change: change.to_owned(), champion }.into());
        }
        let outside: Vec<&Path> =
            differences.iter().map(|difference| difference.path.as_path()).filter(|path| !may_touch(path)).collect();
        if !outside.is_empty() {
            return Err(
                Refusal::OutsideEditable { outside: first_few(&outside), editable: kit.editable.join(", ") }.into()
            );
        }
        if let Some(nested) = differences.iter().find(|difference| difference.is_nested) {
            return Err(nested_repository(&nested.path).into());
        }
        // Only editable paths differ, so the change's tree is the champion's with the change's editable paths.
        let candidate_tree = self.git.tree(&repository, &commit)?;
        let candidate = {
            let _storing = in_turn(&self.storing);
            let candidate = self.git.commit(&repository, &candidate_tree, &champion)?;
            self.note(&candidate);
            candidate
        };
        let paths = differences.iter().map(|difference| difference.path.display().to_string()).collect();
        Ok(PinnedChange { champion, change: commit, candidate, candidate_tree, paths, kit, kit_hash })
    }

    /// The kept commit of a change: a revision, or a lane's tree as it stands.
    fn change(
        &self,
        repository: &Repository,
        run: &RunSpec,
        change: &str,
        may_touch: &dyn Fn(&Path) -> bool,
    ) -> Result<String, No> {
        let Some(number) = change.strip_prefix(LANE_PREFIX) else {
            let commit = self.git.resolve(repository, change)?;
            self.keep(repository, &commit)?;
            return Ok(commit);
        };
        let lane =
            number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).and_then(|at| run.lanes.get(at));
        let Some(folder) = lane else {
            return Err(Refusal::Impossible {
                thing: "the change".to_owned(),
                value: change.to_owned(),
                expected: format!("a revision, or lane:1 to lane:{} for a lane's tree as it stands", run.lanes.len()),
            }
            .into());
        };
        if !folder.is_dir() {
            let lane = number.parse().ok().and_then(|number| LaneId::new(number).ok());
            let lane = lane.expect("a number of one of the run's lanes is a lane's");
            return Err(Refusal::WorktreeGone { lane, worktree: folder.display().to_string() }.into());
        }
        let worktree: Worktree = self.git.worktree(repository, folder)?;
        let _storing = in_turn(&self.storing);
        // New files outside the editable paths are no part of a submission (rule E5): often they are built ones.
        let captured = self.git.capture(repository, &worktree, may_touch)?;
        self.note(&captured.commit);
        match captured.nested.iter().find(|nested| may_touch(nested)) {
            None => Ok(captured.commit),
            Some(nested) => Err(nested_repository(nested).into()),
        }
    }

    fn attempt(&self, job: JobId, stage: StageKind, attempt: u32) -> PathBuf {
        self.work.join(job.to_string()).join(format!("{stage}-{attempt}"))
    }

    fn lay_out(&self, job: &JobSpec, stage: StageKind, attempt: u32) -> Result<(), String> {
        let _laying = in_turn(&self.laying);
        let folder = self.attempt(job.job, stage, attempt);
        // What an attempt of that number left that never came to its end.
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{} cannot be emptied: {error}", folder.display())),
        }
        let mut sides = String::new();
        for commit in [&job.pinned.champion, &job.pinned.candidate] {
            let name = format!("{:016x}", getrandom::u64().map_err(|error| error.to_string())?);
            let tree = folder.join(&name);
            self.git.lay_out(commit, &tree).map_err(|fault| fault.to_string())?;
            if let Identity::Dedicated { uid, gid } = self.accounts.judge() {
                hand_over(&tree, uid, gid).map_err(|fault| fault.to_string())?;
            }
            sides.push_str(&name);
            sides.push('\n');
        }
        // Written last: sides that are there are whole.
        let file = folder.join("sides");
        let written = std::fs::write(&file, sides).and_then(|()| {
            // A measured program without a view of its own could look.
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))
        });
        written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }
}

/// Waits for one's turn. What is guarded is the order alone: whoever panicked in its turn left files that the next
/// makes afresh, or a store that git itself keeps whole.
fn in_turn<T>(order: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    order.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A kit's path as git names it: relative, inside the repository.
fn inside(path: &Path) -> Result<PathBuf, Refusal> {
    let parts = path.components().map(|part| match part {
        Component::Normal(part) => Some(part),
        Component::CurDir => Some(std::ffi::OsStr::new("")),
        Component::RootDir | Component::ParentDir | Component::Prefix(_) => None,
    });
    let plain: Option<PathBuf> = parts.filter(|part| part.is_none_or(|part| !part.is_empty())).collect();
    match plain {
        Some(plain) if !plain.as_os_str().is_empty() => Ok(plain),
        _ => Err(Refusal::Impossible {
            thing: "the kit's path".to_owned(),
            value: path.display().to_string(),
            expected: "relative to the repository's root and inside it, such as kit.toml".to_owned(),
        }),
    }
}

fn nested_repository(path: &Path) -> Refusal {
    Refusal::Impossible {
        thing: format!("{} in the change", path.display()),
        value: "a nested repository".to_owned(),
        expected: "files: git does not carry a nested repository's content".to_owned(),
    }
}

fn first_few(paths: &[&Path]) -> String {
    let shown: Vec<String> = paths.iter().take(PATHS_SHOWN).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(PATHS_SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// Says whether a command can be started at all (rule A12).
fn check_command(spec: &DevRunSpec, path: &str) -> Result<(), Refusal> {
    let Some(program) = spec.argv.first().filter(|program| !program.is_empty()) else {
        return Err(Refusal::EmptyCommand);
    };
    if spec.argv.len() > limits::COMMAND_ARGS_MAX {
        return Err(Refusal::CommandTooLong {
            size: spec.argv.len(),
            unit: "arguments".to_owned(),
            most: limits::COMMAND_ARGS_MAX,
        });
    }
    let env_bytes = spec.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    let bytes = spec.argv.iter().map(|argument| argument.len() + 1).sum::<usize>() + env_bytes;
    if bytes > limits::COMMAND_BYTES_MAX {
        return Err(Refusal::CommandTooLong { size: bytes, unit: "bytes".to_owned(), most: limits::COMMAND_BYTES_MAX });
    }
    let mut texts = spec.argv.iter().chain(spec.env.iter().flat_map(|(name, value)| [name, value]));
    if let Some(text) = texts.find(|text| text.contains('\0')) {
        return Err(Refusal::Impossible {
            thing: "an argument or variable of the command".to_owned(),
            value: format!("{text:?}"),
            expected: "text without NUL".to_owned(),
        });
    }
    if let Some((name, _)) = spec.env.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
        return Err(Refusal::Impossible {
            thing: "a variable's name".to_owned(),
            value: format!("{name:?}"),
            expected: "not empty and without '='".to_owned(),
        });
    }
    if !spec.worktree.is_dir() {
        return Err(Refusal::WorktreeGone { lane: spec.lane, worktree: spec.worktree.display().to_string() });
    }
    find_program(program, &spec.worktree, path)
}

/// Looks for a program as the run will: by path from its tree, or by name in `PATH`.
fn find_program(program: &str, tree: &Path, path: &str) -> Result<(), Refusal> {
    let (places, looked_in) = if program.contains('/') {
        (vec![tree.join(program)], tree.display().to_string())
    } else {
        (path.split(':').map(|folder| tree.join(folder).join(program)).collect(), path.to_owned())
    };
    // The first that is there and cannot be executed tells more than that none was found.
    let mut not_executable = None;
    for place in places {
        match what_is(&place) {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => {
                not_executable.get_or_insert((place, why));
            }
            None => {}
        }
    }
    let program = program.to_owned();
    match not_executable {
        Some((file, why)) => {
            Err(Refusal::NotExecutable { program, file: file.display().to_string(), why: why.to_owned() })
        }
        None => Err(Refusal::NoSuchProgram { program, looked_in }),
    }
}

/// Whether a file can be executed, and why not; none where there is no file.
fn what_is(file: &Path) -> Option<Result<(), &'static str>> {
    let about = std::fs::metadata(file).ok()?;
    Some(if about.is_dir() {
        Err("is a folder")
    } else if !about.is_file() {
        Err("is no ordinary file")
    } else if about.permissions().mode() & 0o111 == 0 {
        Err("has no execute permission; set it with `chmod +x`, or name its interpreter first")
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_or_fails_is_nobodys_fault() {
        let failed = |said: &str| No::from(GitFault::Failed { command: "fetch".into(), said: said.to_owned() });

        let full = failed("fatal: write error: No space left on device");
        let failing = failed("fatal: fsync error on 'tmp_obj_x': Input/output error");
        let read_only = failed("error: unable to create temporary file: Read-only file system");
        let locked = failed("fatal: Unable to create '/data/git/sha1.git/shallow.lock': File exists.");
        let wrong = failed("fatal: bad object");

        assert!(matches!(full, No::Infrastructure(InfrastructureFailure::DiskFull { .. })), "{full:?}");
        for no in [failing, read_only, locked] {
            assert!(matches!(no, No::Infrastructure(InfrastructureFailure::Step { .. })), "{no:?}");
        }
        assert!(matches!(wrong, No::Refusal(Refusal::Repository { .. })), "{wrong:?}");
    }
}
