//! Taking out of the stores what nothing refers to any more.

use std::collections::BTreeSet;

use thermite_core::limits;

use super::Git;
use super::command::GitFault;

impl Git {
    /// Lets all kept commits but `needed` go, and with them the objects that only they had; gives how many went.
    ///
    /// Objects younger than an hour stay in any case. The caller keeps everybody else out of the stores meanwhile.
    ///
    /// # Errors
    /// Where git fails or takes too long.
    pub fn prune(&self, needed: &BTreeSet<String>) -> Result<usize, GitFault> {
        let mut gone = 0;
        for store in self.stores() {
            let kept = self.kept(&store)?;
            let stale: Vec<&String> = kept.iter().filter(|commit| !needed.contains(*commit)).collect();
            let script: String = stale.iter().map(|commit| format!("delete refs/thermite/keep/{commit}\n")).collect();
            self.command("update-ref").git_dir(&store).input(script.into_bytes()).run(["--stdin"])?;
            gone += stale.len();
            self.let_go(&store)?;
        }
        Ok(gone)
    }

    /// Takes out of a store the objects that nothing refers to and that are an hour old.
    pub(super) fn let_go(&self, store: &std::path::Path) -> Result<(), GitFault> {
        let age = format!("{}.seconds.ago", limits::STORE_KEPT_MIN.as_millis() / 1_000);
        let unpack = format!("--unpack-unreachable={age}");
        let expire = format!("--expire={age}");
        let limited = |subcommand| self.command(subcommand).git_dir(store).limit(limits::STORE_PRUNE_MAX);
        limited("repack").run(["-A", "-d", "-q", unpack.as_str()])?;
        limited("prune").run([expire.as_str()])?;
        limited("pack-refs").run(["--all"])?;
        Ok(())
    }

    /// The stores there are.
    pub(super) fn stores(&self) -> Vec<std::path::PathBuf> {
        let stores = ["sha1", "sha256"].map(|format| self.store_of(format));
        stores.into_iter().filter(|store| store.join("info/attributes").exists()).collect()
    }

    /// The commits that a store keeps.
    pub(super) fn kept(&self, store: &std::path::Path) -> Result<Vec<String>, GitFault> {
        let listed =
            self.command("for-each-ref").git_dir(store).run(["--format=%(objectname)", "refs/thermite/keep/"])?;
        Ok(String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect())
    }
}
