//! Model files: fetched once, resumed, checked, kept within a budget, and shown to runs read-only.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use sha2::{Digest, Sha256};
use thermite_actors::host::kit;
use thermite_actors::host::models::{ModelBytes, ModelSource, Models, SourceFault};
use thermite_core::contract::ModelFile;
use thermite_core::ids::ContentHash;
use thermite_core::limits;

use crate::executor::local;

#[test]
fn a_file_is_fetched_once_and_shown_under_each_name_it_has() {
    local(async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &[7; 5_000]);
        let alias = ModelFile { name: "alias".into(), ..weights.clone() };

        let first = house.models.have(&[weights.clone(), alias.clone()]).await.unwrap();
        let second = house.models.have(std::slice::from_ref(&weights)).await.unwrap();

        assert_eq!(house.source.opened.borrow().as_slice(), [("https://x/weights".to_owned(), 0)]);
        let mounts = first.mounts();
        assert_eq!(
            mounts.iter().map(|(_, to)| to.to_str().unwrap()).collect::<Vec<_>>(),
            ["/run/models/weights", "/run/models/alias"]
        );
        assert_eq!(mounts[0].0, mounts[1].0, "kept once");
        let about = std::fs::metadata(&mounts[0].0).unwrap();
        assert_eq!((about.len(), about.permissions().mode() & 0o777), (5_000, 0o444));
        assert_eq!(first.folder(true), Some(PathBuf::from("/run/models")));
        let by_name = first.folder(false).unwrap();
        assert_eq!(std::fs::read(by_name.join("alias")).unwrap(), [7; 5_000]);
        assert!(!second.folder(false).unwrap().join("alias").exists(), "a run sees its own kit's files");
        assert_eq!(house.models.have(&[]).await.unwrap().folder(true), None);
    });
}

#[test]
fn a_cut_is_gone_on_with_from_where_it_stands_also_after_a_restart() {
    local(async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &noise(10_000));
        house.source.cut_after.set(Some(3_000));

        let had = house.models.have(std::slice::from_ref(&weights)).await;
        assert!(had.is_ok());
        let from: Vec<u64> = house.source.opened.take().into_iter().map(|(_, from)| from).collect();
        assert_eq!(from, [0, 3_000, 6_000, 9_000]);

        // Cut for good in the middle of the second.
        let other = house.add("other", &noise(9_000));
        house.source.cut_after.set(Some(4_000));
        house.source.down_from.set(Some(1));
        let failed = house.models.have(std::slice::from_ref(&other)).await.err().unwrap();
        assert_eq!(failed, "model file other could not be fetched from https://x/other: the source is down");
        house.source.opened.take();
        house.source.down_from.set(None);
        house.source.cut_after.set(None);
        let again = Models::open(&house.folder(), 1 << 20, Rc::clone(&house.source) as Rc<dyn ModelSource>).unwrap();
        assert!(again.have(std::slice::from_ref(&other)).await.is_ok());
        assert_eq!(house.source.opened.borrow().as_slice(), [("https://x/other".to_owned(), 4_000)]);
    });
}

#[test]
fn what_is_not_what_the_kit_says_is_told_and_never_kept() {
    local(async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &noise(5_000));
        let why = |model: ModelFile| {
            let models = house.models.clone();
            async move { models.have(&[model]).await.err().unwrap() }
        };

        let missing = why(ModelFile { url: "https://x/none".into(), ..weights.clone() }).await;
        let long = why(ModelFile { bytes: 4_999, sha256: hash(b"other"), ..weights.clone() }).await;
        let short = why(ModelFile { bytes: 5_001, sha256: hash(b"short"), ..weights.clone() }).await;
        let wrong = why(ModelFile { sha256: hash(b"wrong"), ..weights.clone() }).await;

        assert!(missing.ends_with(": https://x/none is not there"), "{missing}");
        assert!(long.ends_with(": it has more than the 4999 bytes that the kit says"), "{long}");
        assert!(short.ends_with(": it ended after 5000 of 5001 bytes"), "{short}");
        let expected = format!(": it has the SHA-256 {}, the kit says {}", weights.sha256, hash(b"wrong"));
        assert!(wrong.ends_with(&expected), "{wrong}");
        assert_eq!(house.kept(), 0);
        assert!(house.models.have(&[weights]).await.is_ok(), "the right one is");
    });
}

#[test]
fn a_source_that_gives_files_from_their_beginning_only_is_asked_from_there_and_not_for_ever() {
    local(async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &noise(5_000));
        house.source.has_offsets.set(false);
        house.source.cut_after.set(Some(2_000));

        let failed = house.models.have(std::slice::from_ref(&weights)).await.err().unwrap();
        house.source.cut_after.set(None);
        let had = house.models.have(std::slice::from_ref(&weights)).await;

        assert!(failed.ends_with(": it gives no offsets"), "{failed}");
        assert!(house.source.opened.borrow().len() <= 4 * limits::MODEL_CUTS_MAX as usize);
        assert!(had.is_ok());
    });
}

#[test]
fn a_source_that_says_nothing_is_cut_and_a_part_is_kept() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &noise(5_000));
        house.source.silent_after.set(Some(0));
        let silent = house.models.have(std::slice::from_ref(&weights)).await.err().unwrap();
        house.source.opened.take();
        house.source.silent_after.set(Some(2_000));
        let had = house.models.have(&[weights]).await;

        assert!(silent.ends_with(&format!(": it said nothing for {}", limits::MODEL_SILENT_MAX)), "{silent}");
        assert!(had.is_ok());
        let from: Vec<u64> = house.source.opened.take().into_iter().map(|(_, from)| from).collect();
        assert_eq!(from, [0, 2_000, 4_000], "each silence is a cut, and it goes on");
    });
}

#[test]
fn two_that_want_the_same_file_at_once_have_it_fetched_once() {
    local(async {
        let house = House::new(1 << 20);
        let weights = house.add("weights", &noise(50_000));
        // As another process does.
        let other = Models::open(&house.folder(), 1 << 20, Rc::clone(&house.source) as Rc<dyn ModelSource>).unwrap();

        let wanted = [weights];
        let (one, two, three) =
            tokio::join!(house.models.have(&wanted), house.models.have(&wanted), other.have(&wanted));

        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(house.source.opened.borrow().len(), 1);
    });
}

#[test]
fn the_longest_unused_go_for_a_new_one_and_one_in_use_never() {
    local(async {
        let house = House::new(30_000);
        let [a, b, c] = ["a", "b", "c"].map(|name| house.add(name, &noise(12_000 + name.as_bytes()[0] as usize)));
        let in_use = house.models.have(std::slice::from_ref(&a)).await.unwrap();
        drop(house.models.have(std::slice::from_ref(&b)).await.unwrap());
        age(&house.folder(), &b);

        let third = house.models.have(std::slice::from_ref(&c)).await.unwrap();
        assert!(house.is_kept(&a) && !house.is_kept(&b) && house.is_kept(&c), "the unused one went");

        let no_room = house.models.have(std::slice::from_ref(&b)).await.err().unwrap();
        assert!(
            no_room.contains(" bytes, and of the 30000 that model files may have here (THERMITE_MODELS_KEEP) "),
            "{no_room}"
        );
        assert!(house.is_kept(&a) && house.is_kept(&c));
        drop((in_use, third));
        age(&house.folder(), &c);
        drop(house.models.have(std::slice::from_ref(&b)).await.unwrap());
        assert!(house.is_kept(&a) && house.is_kept(&b) && !house.is_kept(&c));
    });
}

#[test]
fn a_kit_names_its_model_files_and_a_bad_one_is_refused() {
    let with = |model: &str| {
        let text = format!("name = \"k\"\ntarget = \"cpu\"\nmeasure = [\"true\"]\neditable = [\"src/**\"]\n{model}");
        kit::parse("kit.toml", text.as_bytes()).map(|kit| kit.models).map_err(|fault| fault.to_string())
    };
    let sha = "ab".repeat(32);
    let model = |name: &str, url: &str, sha: &str, bytes: &str| {
        format!("[[model]]\nname = \"{name}\"\nurl = \"{url}\"\nsha256 = \"{sha}\"\nbytes = {bytes}\n")
    };
    let of = |url: &str| with(&model("w", url, &sha, "1"));

    let two = with(&(model("a", "https://h/a", &sha, "1") + &model("b.bin", "s3://bucket/x/b", &sha, "2"))).unwrap();
    assert_eq!(
        two[1],
        ModelFile { name: "b.bin".into(), url: "s3://bucket/x/b".into(), sha256: sha.parse().unwrap(), bytes: 2 }
    );
    for url in [
        "file:///models/w",
        "https://h:8443/a/b%20c",
        "http://127.0.0.1:80/w",
        "http://[::1]:80/w",
        "http://localhost/w",
    ] {
        assert!(of(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "w",
        "/models/w",
        "file://host/w",
        "file:///",
        "file:///a/../b",
        "file:///a/%2e%2E/b",
        "https://h",
        "https://h/",
        "https://h/a/",
        "https://h//a",
        "https:///a",
        "https://user:secret@h/a",
        "https://h/a?token=1",
        "https://h/a#b",
        "http://h/a",
        "http://127.0.0.1.evil.example/a",
        "http://[::2]/a",
        "ftp://h/a",
        "s3://",
        "s3://bucket",
        "s3://b@c/d",
        "ssh://h/a",
        "https://h/a b",
        "data:text/plain,x",
        "https://h/a%00",
    ] {
        let refused = of(url).unwrap_err();
        assert!(refused.starts_with("kit.toml:7: model.url is "), "{url}: {refused}");
    }
    let long = format!("https://h/{}", "x".repeat(limits::MODEL_URL_BYTES_MAX));
    assert!(of(&long).is_err());
    for name in ["", ".", "..", ".hidden", "a/b", "a b"] {
        assert!(with(&model(name, "https://h/a", &sha, "1")).unwrap_err().contains("model.name is "), "{name}");
    }
    for bad in ["AB", "ab", &sha.to_uppercase()] {
        assert!(with(&model("w", "https://h/a", bad, "1")).unwrap_err().contains("model.sha256 is "), "{bad}");
    }
    for bytes in ["0", "-1", "1.5", "99999999999999"] {
        assert!(with(&model("w", "https://h/a", &sha, bytes)).unwrap_err().contains("model.bytes is "), "{bytes}");
    }
    let same = with(&(model("a", "https://h/a", &sha, "1") + &model("a", "https://h/b", &sha, "1"))).unwrap_err();
    assert!(same.contains("model.name \"a\" is another model's too"), "{same}");
    assert!(with("[[model]]\nname = \"a\"\nsize = 1\n").unwrap_err().contains("model.size is not a key of a model"));
    assert!(with("model = 1\n").unwrap_err().contains("model is 1; expected at most 32 tables"));
    let many: String = (0..33).map(|at| model(&format!("m{at}"), "https://h/a", &sha, "1")).collect();
    assert!(with(&many).unwrap_err().contains("expected at most 32 tables"));
}

/// Models over a source that does what it is told.
struct House {
    place: tempfile::TempDir,
    source: Rc<Scripted>,
    models: Models,
}

impl House {
    fn new(keep: u64) -> House {
        let place = tempfile::tempdir().unwrap();
        let source = Rc::new(Scripted { has_offsets: Cell::new(true), ..Scripted::default() });
        let models =
            Models::open(&place.path().join("models"), keep, Rc::clone(&source) as Rc<dyn ModelSource>).unwrap();
        House { place, source, models }
    }

    fn folder(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap().join("models")
    }

    fn add(&self, name: &str, bytes: &[u8]) -> ModelFile {
        let url = format!("https://x/{name}");
        self.source.files.borrow_mut().insert(url.clone(), bytes.to_vec());
        ModelFile { name: name.to_owned(), url, sha256: hash(bytes), bytes: bytes.len() as u64 }
    }

    fn kept(&self) -> usize {
        std::fs::read_dir(self.folder().join("kept")).unwrap().count()
    }

    fn is_kept(&self, model: &ModelFile) -> bool {
        self.folder().join("kept").join(model.sha256.as_str()).exists()
    }
}

/// Makes a kept file one that was last used long ago.
fn age(folder: &Path, model: &ModelFile) {
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    std::fs::File::open(folder.join("kept").join(model.sha256.as_str())).unwrap().set_modified(past).unwrap();
}

#[derive(Default)]
struct Scripted {
    files: RefCell<BTreeMap<String, Vec<u8>>>,
    /// What was asked for, and from which byte.
    opened: RefCell<Vec<(String, u64)>>,
    /// Bytes after which each answer is cut.
    cut_after: Cell<Option<usize>>,
    /// From which asking on it is down, counted from 0 after this is set.
    down_from: Cell<Option<usize>>,
    silent_after: Cell<Option<usize>>,
    has_offsets: Cell<bool>,
}

impl ModelSource for Scripted {
    fn open(&self, url: &str, from: u64) -> LocalBoxFuture<'static, Result<ModelBytes, SourceFault>> {
        Box::pin(std::future::ready(self.answer(url, from)))
    }
}

impl Scripted {
    fn answer(&self, url: &str, from: u64) -> Result<ModelBytes, SourceFault> {
        self.opened.borrow_mut().push((url.to_owned(), from));
        if let Some(left) = self.down_from.get() {
            if left == 0 {
                return Err(SourceFault::Cut("the source is down".to_owned()));
            }
            self.down_from.set(Some(left - 1));
        }
        if from > 0 && !self.has_offsets.get() {
            return Err(SourceFault::NoOffset("it gives no offsets".to_owned()));
        }
        let files = self.files.borrow();
        let bytes = files.get(url).ok_or_else(|| SourceFault::Missing(format!("{url} is not there")))?;
        let rest = bytes[usize::try_from(from).unwrap().min(bytes.len())..].to_vec();
        let most = self.cut_after.get().or(self.silent_after.get()).unwrap_or(usize::MAX);
        let is_cut = self.cut_after.get().is_some_and(|most| rest.len() > most);
        let mut chunks: Vec<Result<Vec<u8>, SourceFault>> =
            rest[..rest.len().min(most)].chunks(700).map(|chunk| Ok(chunk.to_vec())).collect();
        if is_cut {
            chunks.push(Err(SourceFault::Cut("the source cut it".to_owned())));
        }
        let given = futures_util::stream::iter(chunks);
        Ok(match self.silent_after.get() {
            Some(_) => given.chain(futures_util::stream::pending()).boxed_local(),
            None => given.boxed_local(),
        })
    }
}

fn hash(bytes: &[u8]) -> ContentHash {
    ContentHash::new(Sha256::digest(bytes).into())
}

fn noise(bytes: usize) -> Vec<u8> {
    crate::bulk::noise(bytes, bytes as u64).into_bytes()
}
