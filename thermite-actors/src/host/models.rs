//! Model files (rule E4): fetched once from their source, kept once by their content, shown to runs read-only.
//!
//! Folder: `kept/SHA256`, whole and checked; `parts/SHA256`, as far as it came; `parts/SHA256.lock`, whose turn it is. A file in use is locked, by whichever
//! process uses it, and never removed; of the others the longest unused go first when a new one needs the room. Whatever
//! goes wrong is nobody's fault: a cut is gone on with from where it stands, a wrong hash is thrown away, and the
//! change that is being measured is not blamed. What is deliberately absent: networks, behind [`ModelSource`].

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use thermite_core::contract::ModelFile;
use thermite_core::ids::ContentHash;
use thermite_core::limits;

/// Where model files are kept, in the data folder.
pub const MODELS: &str = "models";
/// Where a run with a view of its own finds them.
pub const MODELS_AT: &str = "/run/models";
/// What tells a run where they are.
pub const MODELS_ENV: &str = "THERMITE_MODELS";

/// The bytes of a model file from an offset on.
pub type ModelBytes = LocalBoxStream<'static, Result<Vec<u8>, SourceFault>>;

/// A source did not give what was asked; each with the sentence to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceFault {
    /// It has no such file, or does not let it be read: trying on does not help.
    #[error("{0}")]
    Missing(String),
    /// It gives files from their beginning only.
    #[error("{0}")]
    NoOffset(String),
    /// It stopped, or could not be reached.
    #[error("{0}")]
    Cut(String),
}

/// Where model files come from.
pub trait ModelSource {
    /// The file at that URL from that byte on.
    fn open(&self, url: &str, from: u64) -> LocalBoxFuture<'static, Result<ModelBytes, SourceFault>>;
}

/// The model files of one machine. Clones are one; several processes may share the folder.
#[derive(Clone)]
pub struct Models {
    folder: PathBuf,
    keep: u64,
    source: Rc<dyn ModelSource>,
}

/// Model files that stay for as long as this value does.
pub struct ModelsInUse {
    files: Vec<(PathBuf, String)>,
    /// A folder in which each file has its name, for runs without a view of their own.
    by_name: Option<PathBuf>,
    _locks: Vec<File>,
}

impl ModelsInUse {
    /// Those of a run that has none.
    pub fn none() -> ModelsInUse {
        ModelsInUse { files: Vec::new(), by_name: None, _locks: Vec::new() }
    }

    /// For [`LaunchSpec::read_only`](super::launch::LaunchSpec::read_only) of a run with a view of its own.
    pub fn mounts(&self) -> Vec<(PathBuf, PathBuf)> {
        self.files.iter().map(|(file, name)| (file.clone(), Path::new(MODELS_AT).join(name))).collect()
    }

    /// Where a run finds them; nothing where there are none.
    pub fn folder(&self, has_own_view: bool) -> Option<PathBuf> {
        match (self.files.is_empty(), has_own_view) {
            (true, _) => None,
            (false, true) => Some(PathBuf::from(MODELS_AT)),
            (false, false) => self.by_name.clone(),
        }
    }
}

impl Models {
    /// Keeps model files in `folder`, at most `keep` bytes of them.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(folder: &Path, keep: u64, source: Rc<dyn ModelSource>) -> io::Result<Models> {
        for part in ["kept", "parts", "views"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        // Read by the accounts of runs that have no view of their own; only the rig's user writes.
        for open in [folder.to_owned(), folder.join("kept"), folder.join("views")] {
            std::fs::set_permissions(open, Permissions::from_mode(0o755))?;
        }
        Ok(Models { folder: folder.canonicalize()?, keep, source })
    }

    /// Has these files here, fetching what is missing; none of them goes while the answer lives.
    ///
    /// # Errors
    /// A sentence: infrastructure, whatever it is.
    pub async fn have(&self, models: &[ModelFile]) -> Result<ModelsInUse, String> {
        let mut files = BTreeMap::new();
        let mut in_use = ModelsInUse::none();
        for model in models {
            let failed =
                |why: String| format!("model file {} could not be fetched from {}: {why}", model.name, model.url);
            if !files.contains_key(&model.sha256) {
                let (file, lock) = self.one(model).await.map_err(failed)?;
                files.insert(model.sha256.clone(), file);
                in_use._locks.push(lock);
            }
            in_use.files.push((files[&model.sha256].clone(), model.name.clone()));
        }
        if !models.is_empty() {
            let view = by_name(&self.folder.join("views"), &in_use.files);
            in_use.by_name = Some(view.map_err(|error| format!("model files cannot be shown by name: {error}"))?);
        }
        Ok(in_use)
    }

    /// One file, kept and locked.
    async fn one(&self, model: &ModelFile) -> Result<(PathBuf, File), String> {
        loop {
            let kept = self.folder.join("kept").join(model.sha256.as_str());
            if let Some(lock) = use_kept(&kept, model.bytes).map_err(|error| error.to_string())? {
                return Ok((kept, lock));
            }
            self.fetch(model).await?;
        }
    }

    /// Fetches a file that is not kept; once, whoever else wants it meanwhile.
    async fn fetch(&self, model: &ModelFile) -> Result<(), String> {
        let disk = |error: io::Error| error.to_string();
        let part = self.folder.join("parts").join(model.sha256.as_str());
        let kept = self.folder.join("kept").join(model.sha256.as_str());
        let turn = part.with_extension("lock");
        let _turn = elsewhere(move || lock_alone(&turn)).await.map_err(disk)?;
        if kept.exists() {
            // Somebody else fetched it while this one waited for its turn.
            return Ok(());
        }
        self.make_room(model, &part).map_err(disk)??;
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        let file = Arc::new(opened.map_err(disk)?);
        let mut length = file.metadata().map_err(disk)?.len();
        if length > model.bytes {
            file.set_len(0).map_err(disk)?;
            length = 0;
        }
        let (mut cuts, mut restarts) = (0, 0);
        // Where it came to an end of its own; asked on from there a source says all sorts of things.
        let mut ended_at = None;
        while length < model.bytes {
            let before = length;
            let ended = self.take(model, &file, &mut length).await;
            cuts = if length > before { 1 } else { cuts + 1 };
            let why = match ended {
                Ok(()) if length >= model.bytes => break,
                Ok(()) => {
                    ended_at = Some(length);
                    SourceFault::Cut(format!("it ended after {length} of {} bytes", model.bytes))
                }
                Err(Trouble::Source(SourceFault::NoOffset(why))) => {
                    file.set_len(0).map_err(disk)?;
                    length = 0;
                    restarts += 1;
                    SourceFault::NoOffset(why)
                }
                Err(Trouble::Source(fault)) => fault,
                Err(Trouble::TooLong) => {
                    remove(&part);
                    return Err(format!("it has more than the {} bytes that the kit says", model.bytes));
                }
                Err(Trouble::Disk(error)) => return Err(disk(error)),
            };
            let is_over = matches!(why, SourceFault::Missing(_)) || cuts.max(restarts) >= limits::MODEL_CUTS_MAX;
            if is_over {
                return Err(match ended_at {
                    Some(at) if at == length => format!("it ended after {length} of {} bytes", model.bytes),
                    _ => why.to_string(),
                });
            }
            tracing::info!(model = %model.name, at = length, %why, "a model file was cut; it goes on from there");
        }
        let found = elsewhere({
            let file = Arc::clone(&file);
            move || hash_of(&file)
        });
        let found = found.await.map_err(disk)?;
        if found != model.sha256 {
            remove(&part);
            return Err(format!("it has the SHA-256 {found}, the kit says {}", model.sha256));
        }
        file.sync_all().map_err(disk)?;
        file.set_permissions(Permissions::from_mode(0o444)).map_err(disk)?;
        std::fs::rename(&part, &kept).map_err(disk)
    }

    /// Takes bytes from the source onto the part, until it ends, is cut, or says nothing for too long.
    async fn take(&self, model: &ModelFile, file: &Arc<File>, length: &mut u64) -> Result<(), Trouble> {
        let silent = || SourceFault::Cut(format!("it said nothing for {}", limits::MODEL_SILENT_MAX));
        let patience = limits::MODEL_SILENT_MAX.to_std();
        let opened = tokio::time::timeout(patience, self.source.open(&model.url, *length)).await;
        let mut bytes = opened.map_err(|_| silent())??;
        loop {
            let Some(next) = tokio::time::timeout(patience, bytes.next()).await.map_err(|_| silent())? else {
                return Ok(());
            };
            let next = next?;
            if next.len() as u64 > model.bytes - *length {
                return Err(Trouble::TooLong);
            }
            let (file, at, size) = (Arc::clone(file), *length, next.len() as u64);
            elsewhere(move || file.write_all_at(&next, at)).await.map_err(Trouble::Disk)?;
            *length += size;
        }
    }

    /// Removes old parts, then unused files, the longest unused first, until the model has room within the budget.
    fn make_room(&self, model: &ModelFile, own: &Path) -> io::Result<Result<(), String>> {
        let mut found: Vec<(SystemTime, u64, PathBuf, bool)> = Vec::new();
        for (part, is_kept) in [("parts", false), ("kept", true)] {
            for entry in std::fs::read_dir(self.folder.join(part))? {
                let path = entry?.path();
                let Ok(about) = path.symlink_metadata() else { continue };
                if path.file_stem() != own.file_stem() || is_kept {
                    found.push((about.modified()?, about.blocks() * 512, path, is_kept));
                }
            }
        }
        found.sort();
        let mut all: u64 = found.iter().map(|(_, bytes, _, _)| bytes).sum();
        for (used, bytes, path, is_kept) in found {
            let is_old = !is_kept && used.elapsed().is_ok_and(|age| age > limits::MODEL_PART_KEPT.to_std());
            let is_over = all.saturating_add(model.bytes) > self.keep;
            let lock = if is_kept { path.clone() } else { path.with_extension("lock") };
            if (is_old || is_over) && remove_unused(&path, &lock)? {
                tracing::info!(file = %path.display(), bytes, "a model file that nobody uses goes");
                all -= bytes;
            }
        }
        if all.saturating_add(model.bytes) <= self.keep {
            return Ok(Ok(()));
        }
        Ok(Err(format!(
            "it has {} bytes, and of the {} that model files may have here (THERMITE_MODELS_KEEP) {all} are in use",
            model.bytes, self.keep
        )))
    }
}

/// Why a file was not taken to its end.
enum Trouble {
    Source(SourceFault),
    TooLong,
    Disk(io::Error),
}

impl From<SourceFault> for Trouble {
    fn from(fault: SourceFault) -> Trouble {
        Trouble::Source(fault)
    }
}

async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A kept file, locked against its removal and noted as used; none where it is not there, or not as long as it was.
fn use_kept(kept: &Path, bytes: u64) -> io::Result<Option<File>> {
    let file = match File::open(kept) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    rustix::fs::flock(&file, FlockOperation::LockShared)?;
    let about = file.metadata()?;
    // It was removed between the opening and the lock.
    if about.nlink() == 0 {
        return Ok(None);
    }
    if about.len() != bytes {
        std::fs::remove_file(kept)?;
        return Ok(None);
    }
    rustix::fs::futimens(&file, &now_for_both())?;
    Ok(Some(file))
}

fn now_for_both() -> rustix::fs::Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
}

/// Waits for the turn that a file stands for, which is this process's and this call's alone. The file is never anything
/// else: a lock that moved with a part to where it is kept would be held there by whoever waited for it.
fn lock_alone(turn: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(turn)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // It may have gone with the old parts meanwhile: then this one is nobody's any more.
        let own = file.metadata()?.ino();
        if std::fs::metadata(turn).is_ok_and(|about| about.ino() == own) {
            return Ok(file);
        }
    }
}

/// Removes a file whose lock nobody holds; whether it is gone.
fn remove_unused(path: &Path, lock: &Path) -> io::Result<bool> {
    let held = match File::open(lock) {
        Ok(file) => match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(file),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let removed = std::fs::remove_file(path);
    drop(held);
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

fn remove(part: &Path) {
    if let Err(error) = std::fs::remove_file(part) {
        // It goes with the old parts then.
        tracing::debug!(file = %part.display(), %error, "a part of a model file stays");
    }
}

fn hash_of(file: &File) -> io::Result<ContentHash> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1024 * 1024];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            return Ok(ContentHash::new(hash.finalize().into()));
        }
        hash.update(&buffer[..read]);
        at += read as u64;
    }
}

/// A folder with a link to each file under its name; one for each such list.
fn by_name(views: &Path, files: &[(PathBuf, String)]) -> io::Result<PathBuf> {
    let mut name = Sha256::new();
    for (file, as_name) in files {
        name.update(file.as_os_str().as_encoded_bytes());
        name.update([0]);
        name.update(as_name);
        name.update([0]);
    }
    let view = views.join(ContentHash::new(name.finalize().into()).as_str());
    std::fs::create_dir_all(&view)?;
    for (file, as_name) in files {
        match std::os::unix::fs::symlink(file, view.join(as_name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(view)
}
