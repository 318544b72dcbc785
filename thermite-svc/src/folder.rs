//! The data folder: everything one rig keeps on this machine. One folder, one rig.
//!
//! ```text
//! DATA/             mode 0700
//!   lock            locked (flock) by the rig that has the folder; holds its pid
//!   rig.db          the records (SQLite, with rig.db-wal and rig.db-shm beside it while a rig runs)
//!   owner-token     mode 0600: the token that opens the rig's REST door, made once
//!   endpoint.json   mode 0600: where the rig listens and its pid; there only while it serves
//!   inputs/         mode 0700: what the machines took and decided, in segments (`thermite replay`)
//!   ...             the host's own folders: workspaces, run files, captured output
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The lock's name.
pub const LOCK: &str = "lock";
/// The name of the file that says where the rig listens.
pub const ENDPOINT: &str = "endpoint.json";
/// The owner token's name.
pub const OWNER_TOKEN: &str = "owner-token";

/// A data folder that this process has, until it is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked; the kernel lets go of it when the process ends, whatever way.
    _lock: File,
}

/// Where a rig listens, as `endpoint.json` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// The same as the beginning of a URL.
    pub url: String,
    /// The rig's process.
    pub pid: u32,
}

/// The data folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// Another rig has it.
    #[error("data folder {} is in use by {by} (lock {}); end that rig, or name another folder", folder.display(), folder.join(LOCK).display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who has it, such as `process 123`.
        by: String,
    },
    /// It holds something, and not a rig's data.
    #[error("data folder {} is not empty and holds no rig; name a new or empty folder", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
    },
    /// The file system said no.
    #[error("data folder {}: {what} failed: {source}", folder.display())]
    File {
        /// The folder.
        folder: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl DataFolder {
    /// Takes the folder at `path`, making it where it is not there.
    ///
    /// # Errors
    /// Where another process has it, where it holds something else, or where the file system says no.
    pub fn take(path: &Path) -> Result<DataFolder, FolderFault> {
        let fault = |what| move |source| FolderFault::File { folder: path.to_owned(), what, source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault("making it"))?;
        let path = &path.canonicalize().map_err(fault("finding it"))?;
        let fault = |what| move |source| FolderFault::File { folder: path.to_owned(), what, source };
        // A folder that somebody keeps other things in is neither closed to others nor filled.
        let is_rigs = path.join(LOCK).exists();
        if !is_rigs && fs::read_dir(path).map_err(fault("listing it"))?.next().is_some() {
            return Err(FolderFault::Foreign { folder: path.to_owned() });
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(fault("closing it to others"))?;
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(fault("opening its lock"))?;
        if let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if errno == rustix::io::Errno::WOULDBLOCK {
                return Err(FolderFault::InUse { folder: path.to_owned(), by: holder(&mut lock) });
            }
            return Err(fault("locking it")(errno.into()));
        }
        let pid = std::process::id().to_string();
        lock.set_len(0).and_then(|()| lock.write_all(pid.as_bytes())).map_err(fault("writing its lock"))?;
        let folder = DataFolder { path: path.to_owned(), _lock: lock };
        // A rig that was killed leaves it behind.
        folder.forget_endpoint();
        Ok(folder)
    }

    /// Where it is, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says where the rig listens.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn tell_endpoint(&self, address: SocketAddr) -> Result<Endpoint, FolderFault> {
        let endpoint = Endpoint { address, url: format!("http://{address}"), pid: std::process::id() };
        let json = serde_json::to_vec(&endpoint).expect("an address and a pid have JSON");
        self.write_private(ENDPOINT, &json)?;
        Ok(endpoint)
    }

    /// Takes back what [`DataFolder::tell_endpoint`] said.
    pub fn forget_endpoint(&self) {
        // Where it is not there, it is as it should be; where it cannot be removed, its pid tells that it is old.
        let _ = fs::remove_file(self.path.join(ENDPOINT));
    }

    /// Writes a file that nobody else may read, whole or not at all.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write_private(&self, name: &str, bytes: &[u8]) -> Result<(), FolderFault> {
        let fault = |source| FolderFault::File { folder: self.path.clone(), what: "writing a file in it", source };
        let new = self.path.join(format!("{name}.new"));
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(fault)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(fault)?;
        fs::rename(&new, self.path.join(name)).map_err(fault)
    }
}

impl Endpoint {
    /// Where the rig of the data folder `folder` listens; `None` where none serves there.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn read(folder: &Path) -> io::Result<Option<Endpoint>> {
        match fs::read(folder.join(ENDPOINT)) {
            Ok(json) => Ok(Some(serde_json::from_slice(&json)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    match lock.rewind().and_then(|()| lock.take(20).read_to_string(&mut pid)) {
        Ok(_) if pid.parse::<u32>().is_ok() => format!("process {pid}"),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}
