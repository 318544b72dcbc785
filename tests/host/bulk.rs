//! Commits on their way to a runner: over a transport that loses, doubles, delays and reorders, through restarts of both
//! ends, into a store of its own.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use thermite_actors::host::bulk::{BUNDLES, Bringer, Brought, BulkServer, TRANSFERS};
use thermite_actors::host::git::Git;
use thermite_actors::ports::{BulkLink, LinkFault};
use thermite_core::ids::RunId;
use thermite_core::limits;
use thermite_core::wire::ProcessName;
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk};

use crate::repo::{Repo, commit, git, write};

#[test]
fn the_first_commit_comes_whole_and_what_follows_on_what_is_there() {
    let both = Both::new(&[("src/a.c", "1\n"), ("large", &noise(300_000, 1))]);
    let champion = both.head();
    // An unrelated root as far as stores know: each is kept without its history.
    write(&both.repo.path().join("src/a.c"), "2\n");
    both.repo.commit("next");
    let next = both.head();
    let candidate = both.candidate(&champion, "3\n");

    let first = both.bring(std::slice::from_ref(&champion)).unwrap();
    let second = both.bring(&[next.clone(), candidate.clone()]).unwrap();
    let again = both.bring(&[champion.clone(), next.clone(), candidate.clone()]).unwrap();

    assert!(first.whole && first.transfers == 1 && first.bytes > 200_000, "{first:?}");
    assert!(!second.whole && second.transfers == 1 && second.bytes < 4_096, "{second:?}");
    assert_eq!(again, Brought::default());
    for (name, text) in [(&champion, "1\n"), (&next, "2\n"), (&candidate, "3\n")] {
        assert_eq!(std::fs::read_to_string(both.laid_out(name).join("src/a.c")).unwrap(), text);
    }
    assert_eq!((both.files(BUNDLES), both.files(TRANSFERS)), (0, 0), "nothing is left on either side");
}

#[test]
fn a_repository_that_names_objects_by_sha256_is_brought_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    git(&root, &["init", "--quiet", "--object-format=sha256", "repo"]);
    write(&root.join("repo/src/a.c"), "1\n");
    commit(&root.join("repo"), "first");
    let both = Both::beside(Repo { folder });
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");

    both.bring(std::slice::from_ref(&champion)).unwrap();
    let second = both.bring(std::slice::from_ref(&candidate)).unwrap();

    assert_eq!((champion.len(), second.whole), (64, false));
    assert_eq!(std::fs::read_to_string(both.laid_out(&candidate).join("src/a.c")).unwrap(), "2\n");
}

#[test]
fn whatever_is_lost_doubled_late_or_out_of_order_and_whoever_starts_anew_the_commits_come_as_they_are() {
    let seeds = 16;
    let both = Both::new(&[("src/a.c", "1\n"), ("large", &noise(3_000_000, 2))]);
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");
    let wanted = [champion.clone(), candidate.clone()];
    for seed in 1..=seeds {
        println!("seed {seed}");
        let runner = tempfile::tempdir().unwrap();
        let net = Rc::new(Net::over(runner.path()));
        net.luck.set(seed);
        net.has_faults.set(true);
        let mut tries = 0;
        block_on(async {
            let mut bringer = both.bringer(&net);
            while let Err(fault) = bringer.bring(&net.process, both.run, &wanted).await {
                tries += 1;
                assert!(tries < 500, "seed {seed}: {fault}");
                match net.draw(3) {
                    0 => net.restart(runner.path()),
                    1 => bringer = both.bringer(&net),
                    _ => {}
                }
            }
            net.deliver_late(usize::MAX).await;
        });

        assert_eq!(text_of(runner.path(), &champion), "1\n", "seed {seed}");
        assert_eq!(text_of(runner.path(), &candidate), "2\n", "seed {seed}");
        let left = std::fs::read_dir(runner.path().join(TRANSFERS)).unwrap().count();
        assert!(left <= limits::BULK_LEFTOVERS_MAX, "seed {seed}: {left} leftovers");
        assert_eq!(both.files(BUNDLES), 0, "seed {seed}");
    }
}

#[test]
fn a_transfer_goes_on_where_it_stood_after_a_cut_and_a_restart_of_both_ends() {
    let both = Both::new(&[("large", &noise(4_000_000, 3))]);
    let champion = both.head();
    let runner = tempfile::tempdir().unwrap();
    let net = Rc::new(Net::over(runner.path()));
    let bring = |net: &Rc<Net>| {
        let bringer = both.bringer(net);
        block_on(bringer.bring(&net.process, both.run, std::slice::from_ref(&champion)))
    };
    let chunk = limits::BULK_CHUNK_BYTES_MAX as u64;

    net.down_after.set(Some(4 * chunk));
    let cut = bring(&net);
    let before = net.put_bytes.take();
    net.restart(runner.path());
    net.down_after.set(None);
    let done = bring(&net).unwrap();

    assert_eq!(cut.unwrap_err().to_string(), "the bus is away");
    assert_eq!(before, 4 * chunk);
    assert_eq!(net.put_bytes.get(), done.bytes, "nothing is sent twice");
    assert!(done.bytes < 4_000_000 - 4 * chunk + 100_000, "{done:?}");
}

#[test]
fn a_base_that_is_not_there_has_all_of_it_sent_once() {
    let both = Both::new(&[("src/a.c", "1\n"), ("large", &noise(300_000, 4))]);
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");
    // The runner says a tip that it has lost.
    both.net.also_tips.borrow_mut().push(champion.clone());

    let brought = both.bring(std::slice::from_ref(&candidate)).unwrap();

    assert_eq!((brought.transfers, brought.whole), (2, true));
    assert_eq!(std::fs::read_to_string(both.laid_out(&candidate).join("src/a.c")).unwrap(), "2\n");
}

#[test]
fn bytes_that_change_on_their_way_are_sent_anew_and_never_used() {
    let both = Both::new(&[("src/a.c", "1\n"), ("large", &noise(900_000, 5))]);
    let champion = both.head();

    both.net.flips.set(u32::MAX);
    let always = both.bring(std::slice::from_ref(&champion)).unwrap_err();
    both.net.flips.set(1);
    let once = both.bring(std::slice::from_ref(&champion)).unwrap();

    assert!(always.to_string().contains(" have the hash "), "{always}");
    assert!(
        always
            .failure(&both.net.process)
            .to_string()
            .starts_with("bringing commits to box-2 could not be carried out: ")
    );
    assert_eq!(once.transfers, 2);
    assert_eq!(std::fs::read_to_string(both.laid_out(&champion).join("src/a.c")).unwrap(), "1\n");
}

#[test]
fn commits_are_kept_for_their_runs_and_go_with_the_last_of_them() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let champion = both.head();
    let candidate = both.candidate(&champion, "2\n");
    let (one, other) = (RunId(uuid::Uuid::from_u128(1)), RunId(uuid::Uuid::from_u128(2)));
    let bring =
        |run: RunId, commits: &[String]| block_on(both.bringer(&both.net).bring(&both.net.process, run, commits));
    let tell = |live: &[RunId]| block_on(both.bringer(&both.net).tell_runs(&both.net.process, live.to_vec())).unwrap();
    let kept = || {
        let git = Git::beside(&both.runner());
        git.tips("sha1", 10).unwrap()
    };
    bring(one, &[champion.clone(), candidate.clone()]).unwrap();
    bring(other, std::slice::from_ref(&champion)).unwrap();

    tell(&[one, other]);
    assert_eq!(kept().len(), 2);
    tell(&[other]);
    assert_eq!(kept(), std::slice::from_ref(&champion));
    // For an hour the objects stay, for what is about to be laid out.
    assert_eq!(std::fs::read_to_string(both.laid_out(&candidate).join("src/a.c")).unwrap(), "2\n");
    tell(&[]);
    assert_eq!(kept(), Vec::<String>::new());

    let again = bring(one, std::slice::from_ref(&candidate)).unwrap();
    assert_eq!((again.transfers, kept()), (1, vec![candidate]));
}

#[test]
fn a_commit_that_the_core_has_not_kept_is_told_and_nothing_is_sent() {
    let both = Both::new(&[("src/a.c", "1\n")]);
    let gone = "d4".repeat(20);

    let fault = both.bring(std::slice::from_ref(&gone)).unwrap_err();

    assert_eq!(fault.to_string(), format!("commit {gone} is not in the rig's store"));
    assert_eq!(both.files(BUNDLES), 0);
}

/// A core and a runner process, each with a data folder, and what is between them.
pub(crate) struct Both {
    pub(crate) repo: Repo,
    core: Git,
    pub(crate) net: Rc<Net>,
    pub(crate) run: RunId,
}

impl Both {
    pub(crate) fn new(files: &[(&str, &str)]) -> Both {
        Both::beside(Repo::with(files))
    }

    pub(crate) fn beside(repo: Repo) -> Both {
        let core = Git::open(&repo.data()).unwrap();
        let runner = repo.folder.path().canonicalize().unwrap().join("runner");
        std::fs::create_dir(&runner).unwrap();
        let net = Rc::new(Net::over(&runner));
        Both { repo, core, net, run: RunId(uuid::Uuid::from_u128(7)) }
    }

    pub(crate) fn runner(&self) -> PathBuf {
        self.repo.folder.path().canonicalize().unwrap().join("runner")
    }

    /// The repository's HEAD, kept.
    pub(crate) fn head(&self) -> String {
        let found = self.core.repository(&self.repo.path()).unwrap();
        let head = self.core.resolve(&found, "HEAD").unwrap();
        self.core.keep(&found, &head).unwrap();
        head
    }

    /// A candidate on a kept champion, as submits make them; HEAD is kept on the way.
    pub(crate) fn candidate(&self, champion: &str, text: &str) -> String {
        write(&self.repo.path().join("src/a.c"), text);
        self.repo.commit("a change");
        let head = self.head();
        let found = self.core.repository(&self.repo.path()).unwrap();
        let tree = self.core.tree(&found, &head).unwrap();
        self.core.commit(&found, &tree, champion).unwrap()
    }

    pub(crate) fn bringer(&self, net: &Rc<Net>) -> Bringer {
        Bringer::open(&self.repo.data(), Rc::new(Link(Rc::clone(net)))).unwrap()
    }

    pub(crate) fn bring(&self, commits: &[String]) -> Result<Brought, thermite_actors::host::bulk::BulkFault> {
        block_on(self.bringer(&self.net).bring(&self.net.process, self.run, commits))
    }

    /// A commit laid out from the runner's store.
    pub(crate) fn laid_out(&self, commit: &str) -> PathBuf {
        let folder = self.runner().join("laid").join(uuid::Uuid::now_v7().to_string());
        std::fs::create_dir_all(self.runner().join("git/tmp")).unwrap();
        Git::beside(&self.runner()).lay_out(commit, &folder).unwrap();
        folder
    }

    pub(crate) fn files(&self, folder: &str) -> usize {
        let data = if folder == BUNDLES { self.repo.data() } else { self.runner() };
        std::fs::read_dir(data.join(folder)).unwrap().count()
    }
}

fn text_of(runner: &Path, commit: &str) -> String {
    let laid = runner.join("laid").join(commit);
    Git::beside(runner).lay_out(commit, &laid).unwrap();
    std::fs::read_to_string(laid.join("src/a.c")).unwrap()
}

/// What is between a core and a runner process: as unreliable as it is asked to be, by a seed.
pub(crate) struct Net {
    pub(crate) process: ProcessName,
    server: RefCell<BulkServer>,
    luck: Cell<u64>,
    has_faults: Cell<bool>,
    /// Asks that come again, long after they were answered.
    late: RefCell<Vec<BulkAsk>>,
    /// Gone once so many bytes were put.
    down_after: Cell<Option<u64>>,
    put_bytes: Cell<u64>,
    /// Chunks whose first byte is another one still.
    flips: Cell<u32>,
    also_tips: RefCell<Vec<String>>,
}

impl Net {
    pub(crate) fn over(runner: &Path) -> Net {
        Net {
            process: "box-2".parse().unwrap(),
            server: RefCell::new(BulkServer::open(runner).unwrap()),
            luck: Cell::new(1),
            has_faults: Cell::new(false),
            late: RefCell::default(),
            down_after: Cell::new(None),
            put_bytes: Cell::new(0),
            flips: Cell::new(0),
            also_tips: RefCell::default(),
        }
    }

    fn restart(&self, runner: &Path) {
        *self.server.borrow_mut() = BulkServer::open(runner).unwrap();
    }

    /// A number below `below` (splitmix64).
    fn draw(&self, below: u64) -> u64 {
        self.luck.set(self.luck.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut mixed = self.luck.get();
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    pub(crate) fn answer(&self, ask: BulkAsk) -> LocalBoxFuture<'static, BulkAnswer> {
        self.server.borrow().answer(ask)
    }

    async fn deliver_late(&self, most: usize) {
        let have = self.late.borrow().len();
        for _ in 0..most.min(have) {
            let at = self.draw(self.late.borrow().len() as u64) as usize;
            let ask = self.late.borrow_mut().remove(at);
            drop(self.answer(ask).await);
        }
    }

    async fn carry(&self, ask: BulkAsk) -> Result<BulkAnswer, LinkFault> {
        if !self.has_faults.get() {
            return Ok(self.answer(ask).await);
        }
        // Overtaken by those asked after it.
        for _ in 0..self.draw(4) {
            tokio::task::yield_now().await;
        }
        if self.draw(4) == 0 {
            self.deliver_late(1).await;
        }
        if self.draw(6) == 0 {
            self.late.borrow_mut().push(ask.clone());
        }
        match self.draw(12) {
            0 => Err(LinkFault::NoAnswer),
            1 => {
                drop(self.answer(ask).await);
                Err(LinkFault::NoAnswer)
            }
            2 => {
                drop(self.answer(ask.clone()).await);
                Ok(self.answer(ask).await)
            }
            3 if self.draw(4) == 0 => Err(LinkFault::Down),
            _ => Ok(self.answer(ask).await),
        }
    }
}

/// The net as a bringer holds it.
pub(crate) struct Link(pub(crate) Rc<Net>);

impl BulkLink for Link {
    fn ask(&self, to: &ProcessName, mut ask: BulkAsk) -> LocalBoxFuture<'static, Result<BulkAnswer, LinkFault>> {
        let net = Rc::clone(&self.0);
        assert_eq!(*to, net.process);
        if let BulkAsk::Put { bytes, .. } = &mut ask {
            let put = net.put_bytes.get() + bytes.0.len() as u64;
            if net.down_after.get().is_some_and(|most| put > most) {
                return Box::pin(std::future::ready(Err(LinkFault::Down)));
            }
            net.put_bytes.set(put);
            if let (Some(first), true) = (bytes.0.first_mut(), net.flips.get() > 0) {
                *first ^= 1;
                net.flips.set(net.flips.get() - 1);
            }
        }
        Box::pin(async move {
            let mut answer = net.carry(ask).await?;
            if let BulkAnswer::Tips { tips, .. } = &mut answer {
                tips.splice(0..0, net.also_tips.borrow_mut().drain(..));
            }
            Ok(answer)
        })
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Text that does not pack, by a seed.
pub(crate) fn noise(bytes: usize, seed: u64) -> String {
    let mut state = seed;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(char::from(b'!' + ((state >> 33) % 90) as u8));
        if text.len() % 80 == 79 {
            text.push('\n');
        }
    }
    text
}
