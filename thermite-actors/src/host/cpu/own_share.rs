//! The judge's own share of the load average, kept over a restart of the rig (rule C2).
//!
//! The kernel's average remembers what a killed rig's judge did for a minute and more; a rig that forgot it would take
//! its own work for that of others and wait for it to fade. It holds for one boot: the average begins anew with the
//! machine. Nothing depends on it being durable, so it is not synced: what is torn or missing is a share of none.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use thermite_core::readiness::OwnShare;
use thermite_core::time::Moment;

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The boot that `share` tells its moment of.
    boot: String,
    share: OwnShare,
}

/// Where the share is kept.
#[derive(Debug)]
pub(super) struct OwnShareFile {
    path: PathBuf,
    boot: String,
}

impl OwnShareFile {
    /// A file for this boot; none where the boot has no name, since a share of another one would be taken for ours.
    pub(super) fn new(path: &Path, boot_id: &str) -> Option<OwnShareFile> {
        let boot = boot_id.trim().to_owned();
        (!boot.is_empty()).then(|| OwnShareFile { path: path.to_owned(), boot })
    }

    /// The share that an earlier rig of this boot left; none where there is none to be believed at `now`.
    pub(super) fn read(&self, now: Moment) -> Option<OwnShare> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()?;
        (kept.boot == self.boot && kept.share.is_believable(now)).then_some(kept.share)
    }

    /// Puts the share in place at once: a reader finds the old or the new.
    pub(super) fn write(&self, share: OwnShare) -> io::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&Kept { boot: self.boot.clone(), share })?)?;
        std::fs::rename(new, &self.path)
    }
}
