//! What names a measured artefact: a hash over the files a kit lists, or over the program that it measures.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use sha2::{Digest, Sha256};

use thermite_core::contract::Kit;
use thermite_core::limits::ARTEFACT_BYTES_MAX;

/// Hashes a built side's artefacts, in hexadecimal.
///
/// Where the kit lists none and measures with a program from outside the workspace, the content of the commit stands
/// for them: nothing else tells what was measured.
///
/// # Errors
/// A sentence naming the artefact that is missing, no file, or leads out of the workspace.
pub(super) fn hash(kit: &Kit, workspace: &Path, commit: &str) -> Result<String, String> {
    let mut files: Vec<PathBuf> = kit.artefacts.iter().map(PathBuf::from).collect();
    if files.is_empty()
        && let Some(program) = kit.measure.0.first().map(Path::new)
        && program.is_relative()
        && program.components().count() > 1
    {
        files.push(program.to_owned());
    }
    let mut hash = Sha256::new();
    if files.is_empty() {
        hash.update(format!("commit {commit}"));
    }
    let mut left = ARTEFACT_BYTES_MAX;
    for file in files {
        let name = file.as_os_str().as_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        let length = take(&mut hash, workspace, &file, &mut left)
            .map_err(|error| format!("artefact {} cannot be read after the build: {error}", file.display()))?;
        hash.update(length.to_le_bytes());
    }
    Ok(crate::host::hex(&hash.finalize()))
}

/// Reads one file that stays inside the workspace; what was built may have put anything in its place.
fn take(hash: &mut Sha256, workspace: &Path, file: &Path, left: &mut u64) -> io::Result<u64> {
    let root_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(workspace, root_flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut open = File::from(openat2(root, file, flags, Mode::empty(), inside)?);
    if !open.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut buffer = vec![0; 128 * 1024];
    let mut length = 0;
    loop {
        let read = open.read(&mut buffer)?;
        if read == 0 {
            return Ok(length);
        }
        length += read as u64;
        *left = left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!("the artefacts are larger than {ARTEFACT_BYTES_MAX} bytes together"))
        })?;
        hash.update(&buffer[..read]);
    }
}
