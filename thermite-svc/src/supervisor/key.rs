//! A process's key for the bus: made once, its seed never leaves the data folder.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nkeys::KeyPair;

use crate::folder::DataFolder;

/// The seed's file, mode 0600.
pub const SEED: &str = "bus-seed";
const SEED_BYTES_MAX: u64 = 256;

/// The folder's key, made where there is none.
///
/// # Errors
/// Where it cannot be read or written, is open to others, or is none: a sentence with the way out.
pub fn key_in(folder: &DataFolder) -> Result<KeyPair, String> {
    let path = folder.path().join(SEED);
    let shown = path.display();
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).expect("O_NOFOLLOW is a bit of an int");
    match std::fs::OpenOptions::new().read(true).custom_flags(no_follow).open(&path) {
        Ok(file) => {
            let mode = file.metadata().map_err(|error| format!("{shown}: {error}"))?.mode();
            if mode & 0o077 != 0 {
                return Err(format!("{shown} is open to others (mode {:o}); close it with chmod 600", mode & 0o777));
            }
            let mut seed = String::new();
            file.take(SEED_BYTES_MAX).read_to_string(&mut seed).map_err(|error| format!("{shown}: {error}"))?;
            KeyPair::from_seed(seed.trim())
                .map_err(|error| format!("{shown} holds no key ({error}); remove it, and a new one is made"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = KeyPair::new_user();
            let seed = key.seed().map_err(|error| format!("no key can be made: {error}"))?;
            folder.write_private(SEED, seed.as_bytes()).map_err(|fault| fault.to_string())?;
            Ok(key)
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(&place.path().join("data")).unwrap();

        let first = key_in(&folder).unwrap().public_key();
        let again = key_in(&folder).unwrap().public_key();

        let path = folder.path().join(SEED);
        assert_eq!(first, again);
        assert!(first.starts_with('U'), "{first}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(key_in(&folder).unwrap_err().contains("open to others (mode 640)"));
        std::fs::write(&path, "not a seed").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(key_in(&folder).unwrap_err().contains("holds no key"));
    }
}
