//! Where it all lies, and what of it stays.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::TryFault;

/// The folder: repository, lanes, the rig's data, its server's log, and `records`. Removed when this is dropped, but
/// for what was asked to stay.
pub(super) struct Place {
    base: PathBuf,
    records: PathBuf,
    stays: Stays,
    /// Removes the folder; none where the caller named it.
    temporary: Option<TempDir>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Nothing,
    Records,
    Log,
    Everything,
}

impl Place {
    /// Makes the folder: the one to keep, which must be new or empty, or one under the temporary folder.
    pub(super) fn make(keep: Option<&Path>) -> Result<Place, TryFault> {
        let (base, temporary, stays) = match keep {
            Some(folder) => (new_or_empty(folder)?, None, Stays::Everything),
            None => {
                let below = std::env::temp_dir();
                let folder = tempfile::Builder::new()
                    .prefix("thermite-try-")
                    .tempdir_in(&below)
                    .map_err(|error| cannot_use(&below, error.to_string()))?;
                (folder.path().to_owned(), Some(folder), Stays::Nothing)
            }
        };
        let place = Place { records: base.join("records"), base, stays, temporary };
        std::fs::create_dir_all(&place.records).map_err(|error| cannot_use(&place.records, error.to_string()))?;
        Ok(place)
    }

    /// The whole folder.
    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// The rig's data folder.
    pub(super) fn data(&self) -> PathBuf {
        self.base.join("data")
    }

    /// The server's log.
    pub(super) fn log(&self) -> PathBuf {
        self.base.join("serve.log")
    }

    /// Where the records and the report go.
    pub(super) fn records(&self) -> &Path {
        &self.records
    }

    /// Lets the records stay.
    pub(super) fn keep_records(&mut self) {
        self.stays = self.stays.and(Stays::Records);
    }

    /// Lets the server's log stay, since it says what went wrong.
    pub(super) fn keep_log(&mut self) {
        let has_log = self.log().exists();
        self.stays = self.stays.and(if has_log { Stays::Log } else { Stays::Nothing });
    }
}

impl Stays {
    fn and(self, wish: Stays) -> Stays {
        if self == Stays::Everything { self } else { wish }
    }

    fn keeps(self, name: &str) -> bool {
        match self {
            Stays::Nothing => false,
            Stays::Records => name == "records",
            Stays::Log => name == "serve.log",
            Stays::Everything => true,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(folder) = self.temporary.take() else { return };
        if self.stays == Stays::Nothing {
            return; // `folder` removes itself.
        }
        let kept = folder.keep();
        // What cannot be removed is left for the machine's own cleaning of its temporary folder.
        for entry in std::fs::read_dir(&kept).into_iter().flatten().flatten() {
            if self.stays.keeps(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let _left_behind = match entry.file_type() {
                Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(entry.path()),
                Ok(_) | Err(_) => std::fs::remove_file(entry.path()),
            };
        }
    }
}

fn new_or_empty(folder: &Path) -> Result<PathBuf, TryFault> {
    let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::canonicalize(folder));
    let folder = made.map_err(|error| cannot_use(folder, error.to_string()))?;
    let mut entries = std::fs::read_dir(&folder).map_err(|error| cannot_use(&folder, error.to_string()))?;
    if entries.next().is_some() {
        return Err(cannot_use(&folder, "it is not empty".to_owned()));
    }
    Ok(folder)
}

fn cannot_use(folder: &Path, why: String) -> TryFault {
    TryFault::Folder { folder: folder.display().to_string(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_where_nothing_was_asked_to() {
        let place = Place::make(None).unwrap();
        let base = place.base().to_owned();
        std::fs::write(place.log(), "log").unwrap();

        drop(place);

        assert!(!base.exists());
    }

    #[test]
    fn the_records_stay_alone() {
        let mut place = Place::make(None).unwrap();
        let base = place.base().to_owned();
        std::fs::create_dir_all(place.data()).unwrap();
        std::fs::write(place.log(), "log").unwrap();
        std::fs::write(place.records().join("a.json"), "{}").unwrap();
        place.keep_records();

        drop(place);

        let left: Vec<String> =
            std::fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, ["records"]);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_folder_to_keep_must_be_empty_and_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let place = Place::make(Some(&path)).unwrap();
        std::fs::write(place.log(), "log").unwrap();
        drop(place);

        let again = Place::make(Some(&path)).err().unwrap();

        assert!(path.join("serve.log").exists());
        assert_eq!(
            again.to_string(),
            format!("folder {} cannot be used: it is not empty; name another with --keep", path.display())
        );
    }
}
