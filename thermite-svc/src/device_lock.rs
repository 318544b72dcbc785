//! The machine's lock on a device: two rigs never have one device, whatever data folders they have (rule A1).
//!
//! A file for each device in a folder that all users of the machine share (`/run/lock`, else `/tmp`), locked (flock)
//! for as long as the rig lives; the kernel lets go of it however the rig ends. What the file says is for people. Rigs
//! that do not see the same file system (two containers of one host) are not kept apart by it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest, Sha256};
use thermite_actors::host::hex;
use thermite_actors::ports::DeviceFacts;

/// A device that this process has, until it is dropped.
#[derive(Debug)]
pub struct DeviceLock {
    _locked: File,
}

/// The device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceLockFault {
    /// Another rig has it.
    #[error("device {model} ({uuid}) is another rig's (lock {}, last taken by {by}); end that rig first", file.display())]
    InUse {
        /// The device's model.
        model: String,
        /// Its name that stays.
        uuid: String,
        /// The lock.
        file: PathBuf,
        /// What the lock's file says of its holder.
        by: String,
    },
    /// The lock cannot be had.
    #[error("lock {} on device {uuid}: {source}; name another folder for locks by THERMITE_DEVICE_LOCKS", file.display())]
    File {
        /// The device's name that stays.
        uuid: String,
        /// The lock.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Where the locks of this machine's devices are, unless a setting says otherwise.
pub fn default_folder() -> PathBuf {
    let shared = Path::new("/run/lock");
    if shared.is_dir() { shared.to_owned() } else { PathBuf::from("/tmp") }
}

/// How a device's lock stands, for who only looks.
#[derive(Debug)]
pub enum LockState {
    /// Nobody has it; the file that would be locked.
    Free(PathBuf),
    /// A rig has it, or it cannot be had.
    Not(DeviceLockFault),
}

impl DeviceLock {
    /// Looks whether the device could be taken, without taking it: a shared lock for an instant, where the file is there.
    pub fn look(locks: &Path, facts: &DeviceFacts) -> LockState {
        let file = lock_file(locks, facts);
        if !file.exists() {
            let writable = rustix::fs::access(locks, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
            return match writable {
                Ok(()) => LockState::Free(file),
                Err(errno) => {
                    LockState::Not(DeviceLockFault::File { uuid: facts.uuid.clone(), file, source: errno.into() })
                }
            };
        }
        let locked = open(locks, &file).map_err(|source| DeviceLockFault::File {
            uuid: facts.uuid.clone(),
            file: file.clone(),
            source,
        });
        match locked.and_then(|locked| lock(locked, FlockOperation::NonBlockingLockShared, facts, &file)) {
            Ok(_) => LockState::Free(file),
            Err(fault) => LockState::Not(fault),
        }
    }

    /// Takes the device for the rig of the data folder `data`.
    ///
    /// # Errors
    /// Where another rig has it, or the lock's file cannot be made.
    pub fn take(locks: &Path, facts: &DeviceFacts, data: &Path) -> Result<DeviceLock, DeviceLockFault> {
        let file = lock_file(locks, facts);
        let fault = |source| DeviceLockFault::File { uuid: facts.uuid.clone(), file: file.clone(), source };
        let locked = open(locks, &file).map_err(fault)?;
        let mut locked = lock(locked, FlockOperation::NonBlockingLockExclusive, facts, &file)?;
        // Another user's file is locked all the same; its words stay the last writer's.
        let said = format!("process {} with data folder {}\n", std::process::id(), data.display());
        let _ = locked.set_len(0).and_then(|()| locked.write_all(said.as_bytes()));
        Ok(DeviceLock { _locked: locked })
    }
}

fn lock_file(locks: &Path, facts: &DeviceFacts) -> PathBuf {
    let digest = Sha256::digest(facts.uuid.as_bytes());
    let name = format!("thermite-device-{}", hex(&digest[..8]));
    locks.join(format!("{name}.lock"))
}

/// Locks an open file, or says who has it.
fn lock(locked: File, how: FlockOperation, facts: &DeviceFacts, file: &Path) -> Result<File, DeviceLockFault> {
    let Err(errno) = flock(&locked, how) else { return Ok(locked) };
    let (model, uuid, file) = (facts.model.clone(), facts.uuid.clone(), file.to_owned());
    if errno != rustix::io::Errno::WOULDBLOCK {
        return Err(DeviceLockFault::File { uuid, file, source: errno.into() });
    }
    let mut by = String::new();
    // Cut and cleaned: on a shared folder anybody may have written it.
    let read = locked.take(500).read_to_string(&mut by);
    let by = by.trim().chars().filter(|letter| !letter.is_control()).collect::<String>();
    let by = if read.is_err() || by.is_empty() { "an unknown process".to_owned() } else { by };
    Err(DeviceLockFault::InUse { model, uuid, file, by })
}

/// Opens what is there before it makes it: in a folder with the sticky bit the kernel refuses to "make" the file of
/// another user (`fs.protected_regular`), and a lock needs no right to write.
fn open(locks: &Path, file: &Path) -> io::Result<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).expect("O_NOFOLLOW is a bit of an int");
    let existing = |write: bool| OpenOptions::new().read(true).write(write).custom_flags(no_follow).open(file);
    match existing(true).or_else(|_| existing(false)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        there => return there,
    }
    std::fs::create_dir_all(locks)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(no_follow)
        .mode(0o644)
        .open(file)
}
