//! Who a client is when nobody says it: an id and a secret, made once and kept in a file that only its user can read.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::checked::{Id, Secret};

/// An id and its secret, and where they are kept.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The id; a made one is 12 characters of `a-z 2-9`, which is fit for a host prefix.
    pub id: Id,
    /// The secret; a made one is 256 random bits as 64 hexadecimal digits.
    pub secret: Secret,
    /// The file.
    pub path: PathBuf,
    /// It was made now.
    pub created: bool,
    /// Other users of the machine can read the file.
    pub exposed: bool,
}

impl Identity {
    /// What the user should be told about it.
    pub(crate) fn notice(&self) -> Option<String> {
        let path = self.path.display();
        if self.created {
            Some(format!(
                "a new identity `{}` was made and is kept in {path}; the server needs its id and secret",
                self.id
            ))
        } else if self.exposed {
            Some(format!(
                "other users of this machine can read the identity in {path} (chmod 600)"
            ))
        } else {
            None
        }
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Neither `XDG_STATE_HOME` nor `HOME` says where to keep it.
    #[error("there is no place to keep an identity: neither XDG_STATE_HOME nor HOME is set")]
    NoPlace,
    /// The file cannot be read.
    #[error("the identity in {0} cannot be read: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// The file cannot be written.
    #[error("the identity cannot be written to {0}: {1}")]
    Write(PathBuf, #[source] io::Error),
    /// The file is not an identity.
    #[error("{0} is not an identity: it needs two lines, `id: ..` and `secret: ..`")]
    Malformed(PathBuf),
    /// The file holds another id than the one that was asked for.
    #[error("{0} holds the secret of `{1}`, not of the id that is given")]
    OtherId(PathBuf, Id),
}

/// Where the identity is kept when nobody says it: `$XDG_STATE_HOME/gt/identity.yml`, or below `~/.local/state`.
///
/// # Errors
/// [`IdentityError::NoPlace`] when the environment has neither.
pub fn default_path(env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, IdentityError> {
    // The XDG base directory specification: a relative path is invalid and is to be ignored.
    let absolute = |name: &str| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state
        .map(|state| state.join("gt/identity.yml"))
        .ok_or(IdentityError::NoPlace)
}

/// Reads the identity at `path`, or makes one, for `id` if it is given. `random` fills a buffer with unpredictable bytes.
/// Two processes that start together end up with the same identity.
///
/// # Errors
/// [`IdentityError`], all but `NoPlace`.
pub fn load_or_create(
    path: &Path,
    id: Option<&Id>,
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Identity, IdentityError> {
    let identity = match load(path) {
        Err(IdentityError::Read(_, error)) if error.kind() == io::ErrorKind::NotFound => {
            create(path, id, random)?
        }
        other => other?,
    };
    match id {
        Some(id) if *id != identity.id => Err(IdentityError::OtherId(identity.path, identity.id)),
        _ => Ok(identity),
    }
}

/// As [`load_or_create`], but nothing is written: where there is no file, a stand-in is returned, fit for a check only.
///
/// # Errors
/// [`IdentityError`], but for `NoPlace` and `Write`.
pub fn load_or_stand_in(path: &Path, id: Option<&Id>) -> Result<Identity, IdentityError> {
    match load(path) {
        Err(IdentityError::Read(_, error)) if error.kind() == io::ErrorKind::NotFound => {
            let malformed = |_| IdentityError::Malformed(path.into());
            let id = match id {
                Some(id) => id.clone(),
                None => Id::new("id-made-at-start").map_err(malformed)?,
            };
            let secret = Secret::new("none").map_err(malformed)?;
            Ok(Identity {
                id,
                secret,
                path: path.into(),
                created: false,
                exposed: false,
            })
        }
        Err(error) => Err(error),
        Ok(identity) => match id {
            Some(id) if *id != identity.id => {
                Err(IdentityError::OtherId(identity.path, identity.id))
            }
            _ => Ok(identity),
        },
    }
}

fn load(path: &Path) -> Result<Identity, IdentityError> {
    let failed = |error| IdentityError::Read(path.into(), error);
    let metadata = fs::metadata(path).map_err(failed)?;
    // Far more than the longest id and secret need.
    if !metadata.is_file() || metadata.len() > 8192 {
        return Err(IdentityError::Malformed(path.into()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let malformed = || IdentityError::Malformed(path.into());
    let (mut id, mut secret) = (None, None);
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (key, value) = line.split_once(':').ok_or_else(malformed)?;
        let value = value.trim();
        match key.trim_end() {
            "id" => id = Some(Id::new(value).map_err(|_| malformed())?),
            "secret" => secret = Some(Secret::new(value).map_err(|_| malformed())?),
            _ => return Err(malformed()),
        }
    }
    let (Some(id), Some(secret)) = (id, secret) else {
        return Err(malformed());
    };
    let exposed = metadata.permissions().mode() & 0o077 != 0;
    Ok(Identity {
        id,
        secret,
        path: path.into(),
        created: false,
        exposed,
    })
}

fn create(
    path: &Path,
    id: Option<&Id>,
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Identity, IdentityError> {
    let failed = |error| IdentityError::Write(path.into(), error);
    let malformed = || IdentityError::Malformed(path.into());
    let id = match id {
        Some(id) => id.clone(),
        None => Id::new(&made_id(random)).map_err(|_| malformed())?,
    };
    let secret = Secret::new(&hexadecimal::<32>(random)).map_err(|_| malformed())?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    // Written aside and linked into place: whoever sees the file sees all of it, and the first of two writers wins.
    let aside = folder.join(format!(".identity-{}", hexadecimal::<8>(random)));
    let written = write_private(&aside, &id, &secret).and_then(|()| fs::hard_link(&aside, path));
    // It exists only when writing got that far.
    let _ = fs::remove_file(&aside);
    match written {
        Ok(()) => Ok(Identity {
            id,
            secret,
            path: path.into(),
            created: true,
            exposed: false,
        }),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => load(path),
        Err(error) => Err(failed(error)),
    }
}

fn write_private(path: &Path, id: &Id, secret: &Secret) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(
        file,
        "# Made by gt. The server needs the same id and secret.\nid: {id}\nsecret: {}",
        secret.expose()
    )?;
    file.sync_all()
}

/// 12 of 32 characters: 60 bits, so that two clients of one server do not meet. Without `0 1 l o`, which people mix up.
fn made_id(random: &mut dyn FnMut(&mut [u8])) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 12];
    random(&mut bytes);
    bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect()
}

fn hexadecimal<const N: usize>(random: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; N];
    random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
