//! The kept identity: made once, private, the same for all who ask.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use config::{
    Id,
    identity::{IdentityError, default_path, load_or_create, load_or_stand_in},
};

/// A folder of its own that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("gt-identity-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state/gt/identity.yml")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that count up from a seed.
fn counting(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = seed;
    move |bytes| {
        bytes.iter_mut().for_each(|byte| {
            *byte = next;
            next = next.wrapping_mul(31).wrapping_add(7);
        })
    }
}

#[test]
fn an_identity_is_made_once_and_kept_private() {
    let folder = Folder::new();
    let made = load_or_create(&folder.file(), None, &mut counting(1)).expect("made");
    assert!(made.created && made.id.as_str().len() == 12 && made.secret.expose().len() == 64);
    assert!(!format!("{made:?}").contains(made.secret.expose()));
    let mode = fs::metadata(folder.file())
        .expect("it exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = load_or_create(&folder.file(), None, &mut counting(99)).expect("read");
    assert_eq!((again.created, again.exposed), (false, false));
    assert_eq!((again.id, again.secret), (made.id, made.secret));
    let beside: Vec<_> = fs::read_dir(folder.file().parent().expect("a folder"))
        .expect("readable")
        .collect();
    assert_eq!(beside.len(), 1, "nothing is left beside it");
}

#[test]
fn a_given_id_gets_a_secret_and_no_other_id_may_use_it() {
    let folder = Folder::new();
    let (web, other) = (
        Id::new("web").expect("an id"),
        Id::new("other").expect("an id"),
    );
    let made = load_or_create(&folder.file(), Some(&web), &mut counting(1)).expect("made");
    assert_eq!(made.id, web);
    let refused = load_or_create(&folder.file(), Some(&other), &mut counting(1));
    assert!(matches!(refused, Err(IdentityError::OtherId(_, id)) if id == web));
}

#[test]
fn two_that_start_together_get_the_same_identity() {
    let folder = Folder::new();
    let path = folder.file();
    let identities: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let path = &path;
                scope.spawn(move || {
                    load_or_create(path, None, &mut counting(n * 2 + 1)).expect("an identity")
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(
        identities
            .iter()
            .all(|identity| identity.id == identities[0].id
                && identity.secret == identities[0].secret)
    );
    assert_eq!(
        identities
            .iter()
            .filter(|identity| identity.created)
            .count(),
        1
    );
}

#[test]
fn a_damaged_or_exposed_file_is_told() {
    let folder = Folder::new();
    let path = folder.0.join("identity.yml");
    for text in [
        "",
        "id: a\n",
        "id: a\nsecret:\n",
        "id: a b\nsecret: s\n",
        "what",
        "id: a\nsecret: hunter2\nmore: x\n",
    ] {
        fs::write(&path, text).expect("written");
        let error = load_or_create(&path, None, &mut counting(1)).expect_err(text);
        assert!(
            matches!(error, IdentityError::Malformed(_)) && !error.to_string().contains("hunter2"),
            "{text:?}: {error}"
        );
    }
    fs::write(&path, "# kept\nid: a\nsecret: s\n").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    assert!(
        load_or_create(&path, None, &mut counting(1))
            .expect("read")
            .exposed
    );
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    assert!(load_or_create(&path, None, &mut counting(1)).is_err());
}

#[test]
fn a_check_writes_nothing() {
    let folder = Folder::new();
    load_or_stand_in(&folder.file(), None).expect("a stand-in");
    assert!(!folder.0.join("state").exists());
}

#[test]
fn the_place_follows_the_environment() {
    let env = |pairs: &'static [(&str, &str)]| {
        default_path(&move |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_string())
        })
    };
    let place = |text: &str| Path::new(text).to_path_buf();
    assert_eq!(
        env(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]).expect("a place"),
        place("/s/gt/identity.yml")
    );
    assert_eq!(
        env(&[("XDG_STATE_HOME", "rel"), ("HOME", "/h")]).expect("a place"),
        place("/h/.local/state/gt/identity.yml")
    );
    assert!(matches!(env(&[]), Err(IdentityError::NoPlace)));
}
