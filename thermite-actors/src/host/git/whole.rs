//! The whole of a store, taken along and brought back: for backups.
//!
//! A store is shallow and has no history, so that git's own bundles do not fit: what is taken is one pack of all that is
//! kept, the list of what is kept, and where history was cut.

use std::io;
use std::path::{Path, PathBuf};

use thermite_core::time::Span;

use super::command::GitFault;
use super::{ATTRIBUTES, CONFIG, Git};

/// Packing or unpacking a large store from a slow disk.
const WHOLE_MAX: Span = Span::minutes(30);

/// The whole of one store.
#[derive(Debug)]
pub struct WholeStore {
    /// How it names objects.
    pub object_format: String,
    /// The commits that are kept.
    pub kept: Vec<String>,
    /// Where history was cut, as git writes it down.
    pub shallow: String,
    /// The pack with all objects; none where nothing is kept. It goes with the value.
    pub pack: Option<PathBuf>,
    _scratch: super::Scratch,
}

impl Git {
    /// The git folder of a data folder as it is, without bringing anything in order there: a rig may be using it.
    pub fn beside(data: &Path) -> Git {
        let folder = data.join(super::STORES);
        let config = folder.join("config");
        Git { folder, config }
    }

    /// The whole of each store, packed in a folder below `scratch`.
    ///
    /// # Errors
    /// Where git fails.
    pub fn take_whole(&self, scratch: &Path) -> Result<Vec<WholeStore>, GitFault> {
        let mut whole = Vec::new();
        for store in self.stores() {
            let place = super::Scratch::below(scratch)
                .map_err(|error| GitFault::Unexpected(format!("{} cannot be written: {error}", scratch.display())))?;
            let object_format = if store == self.store_of("sha256") { "sha256" } else { "sha1" }.to_owned();
            let kept = self.kept(&store)?;
            let mut pack = None;
            if !kept.is_empty() {
                let base = place.path().join("whole");
                let names = kept.join("\n") + "\n";
                let packed = self.command("pack-objects").git_dir(&store).input(names.into_bytes()).limit(WHOLE_MAX);
                let hash = packed.run(["--revs".into(), "--quiet".into(), base.clone().into_os_string()])?;
                let hash = String::from_utf8_lossy(&hash).trim().to_owned();
                pack = Some(place.path().join(format!("whole-{hash}.pack")));
            }
            let shallow = std::fs::read_to_string(store.join("shallow")).unwrap_or_default();
            whole.push(WholeStore { object_format, kept, shallow, pack, _scratch: place });
        }
        Ok(whole)
    }

    /// Makes a store of what [`Git::take_whole`] took; `pack` is where its pack is now.
    ///
    /// # Errors
    /// Where the folder cannot be written, or git fails.
    pub fn bring_whole(
        &self,
        object_format: &str,
        kept: &[String],
        shallow: &str,
        pack: Option<&Path>,
    ) -> Result<(), GitFault> {
        let store = self.store_of(object_format);
        let format = format!("--object-format={object_format}");
        self.command("init").run([
            "--bare".into(),
            "--quiet".into(),
            "--template=".into(),
            "--initial-branch=none".into(),
            format.into(),
            store.clone().into_os_string(),
        ])?;
        let wrong = |error: io::Error| GitFault::Unexpected(format!("{} cannot be written: {error}", store.display()));
        if !shallow.is_empty() {
            std::fs::write(store.join("shallow"), shallow).map_err(wrong)?;
        }
        if let Some(pack) = pack {
            let packs = store.join("objects/pack");
            std::fs::create_dir_all(&packs).map_err(wrong)?;
            let there = packs.join("pack-restored.pack");
            std::fs::copy(pack, &there).map_err(wrong)?;
            let index = self.command("index-pack").git_dir(&store).limit(WHOLE_MAX);
            index.run([there.into_os_string()])?;
        }
        let script: String =
            kept.iter().map(|commit| format!("create refs/thermite/keep/{commit} {commit}\n")).collect();
        self.command("update-ref").git_dir(&store).input(script.into_bytes()).run(["--stdin"])?;
        std::fs::create_dir_all(store.join("info"))
            .and_then(|()| std::fs::write(store.join("info/attributes"), ATTRIBUTES))
            .map_err(wrong)
    }

    /// Makes an empty git folder in a data folder that is being made.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn begin(data: &Path) -> io::Result<Git> {
        let git = Git::beside(data);
        std::fs::create_dir_all(git.folder.join("tmp"))?;
        std::fs::write(&git.config, CONFIG)?;
        Ok(git)
    }
}
