//! Where a running gt can be found: a socket in a folder that only its user can enter, named after its configuration, so that two
//! installations on one machine never meet.

use std::{
    env, fs,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::getuid,
};

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The folder cannot be trusted or made.
    #[error("the folder for gt's control socket cannot be used: {0}: {1}")]
    Folder(PathBuf, String),
    /// Another one runs.
    #[error("gt is running already for {0}; gt -s reload changes it, gt -s stop ends it")]
    Running(String),
    /// The system's.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// The place of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    folder: PathBuf,
    /// What the name is made of.
    pub(crate) key: String,
}

impl Place {
    /// The place of this user's configuration `key`: the first folder of those below that can be used.
    ///
    /// `$GT_RUNTIME_DIR`; `$RUNTIME_DIRECTORY` (systemd); `$XDG_RUNTIME_DIR/gt`; for root `/run/gt`; else `/tmp/gt-UID`.
    ///
    /// # Errors
    /// [`PlaceError::Folder`] when none can.
    pub(crate) fn make(key: &str) -> Result<Self, PlaceError> {
        let mut failed = None;
        for folder in folders() {
            match make_private(&folder) {
                Ok(()) => {
                    return Ok(Self {
                        folder,
                        key: key.to_owned(),
                    });
                }
                Err(error) => failed = failed.or(Some(PlaceError::Folder(folder, error))),
            }
        }
        Err(failed.unwrap_or_else(|| PlaceError::Folder(PathBuf::new(), "none".into())))
    }

    /// Where a running one may be, likeliest first.
    #[must_use]
    pub(crate) fn candidates(key: &str) -> Vec<Self> {
        let folders = folders()
            .into_iter()
            .filter(|folder| is_private(folder).is_ok());
        folders
            .map(|folder| Self {
                folder,
                key: key.to_owned(),
            })
            .collect()
    }

    /// The control socket.
    #[must_use]
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{:016x}.sock", hash(&self.key)))
    }

    /// Claims the place for as long as the file is held, also over an exec.
    ///
    /// # Errors
    /// [`PlaceError::Running`] when another process has it.
    pub(crate) fn lock(&self) -> Result<File, PlaceError> {
        let path = self.folder.join(format!("{:016x}.lock", hash(&self.key)));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| PlaceError::Io(path.clone(), error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(PlaceError::Running(self.key.clone())),
            Err(error) => Err(PlaceError::Io(path, error.into())),
        }
    }
}

fn folders() -> Vec<PathBuf> {
    let uid = getuid();
    // An empty variable counts as unset; systemd may name several folders.
    let var = |name: &str| {
        let value = env::var(name).ok()?;
        let first = value.split(':').next().unwrap_or_default().to_owned();
        (!first.is_empty()).then(|| PathBuf::from(first))
    };
    let mut folders = Vec::new();
    folders.extend(var("GT_RUNTIME_DIR"));
    folders.extend(var("RUNTIME_DIRECTORY"));
    folders.extend(var("XDG_RUNTIME_DIR").map(|folder| folder.join("gt")));
    if uid.is_root() {
        folders.push("/run/gt".into());
    }
    folders.push(format!("/tmp/gt-{}", uid.as_raw()).into());
    folders
}

fn make_private(folder: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    is_private(folder)
}

/// A folder in /tmp may have been laid there by somebody else.
fn is_private(folder: &Path) -> Result<(), String> {
    let found = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        Err("it is no folder".into())
    } else if found.uid() != getuid().as_raw() {
        Err("it belongs to another user".into())
    } else if found.mode() & 0o077 != 0 {
        Err(format!(
            "others may enter it (mode {:o}); chmod 700 makes it private",
            found.mode() & 0o777
        ))
    } else {
        Ok(())
    }
}

/// FNV-1a: stable between versions, as the hash of the standard library is not. Keys are compared in full when they meet.
pub(crate) fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("gt-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_folder_that_others_may_enter_is_not_used() {
        let path = folder("open");
        make_private(&path).expect("made");
        make_private(&path).expect("used again");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("changed");
        assert!(make_private(&path).expect_err("refused").contains("755"));
        fs::remove_dir_all(&path).expect("removed");
        std::os::unix::fs::symlink(env::temp_dir(), &path).expect("linked");
        assert!(make_private(&path).is_err(), "a link is no folder");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn only_one_process_has_a_place_and_other_keys_have_others() {
        let folder = folder("lock");
        make_private(&folder).expect("made");
        let place = |key: &str| Place {
            folder: folder.clone(),
            key: key.into(),
        };
        let (one, two) = (place("/etc/gt/a.yml"), place("/etc/gt/b.yml"));
        assert_ne!(one.socket(), two.socket());
        let held = one.lock().expect("free");
        assert!(matches!(one.lock(), Err(PlaceError::Running(_))));
        two.lock().expect("another");
        drop(held);
        one.lock().expect("free again");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
