//! Basic authentication (RFC 7617) against bcrypt hashes or plain passwords.
//!
//! A bcrypt hash takes tens of milliseconds to check, far too long for a data thread. So a check that is not in the table of recent good ones is
//! handed out as a value ([`PasswordCheck`]) that the caller runs on a blocking thread and brings back. The table holds keyed digests, never
//! passwords; it is emptied by making a new one, at a reload. Wrong passwords are not remembered: each costs the full check, whose number at
//! one time the caller bounds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};
use zeroize::Zeroizing;

use crate::{Headers, edit::field_name};

/// Most users of one route.
pub const MAX_USERS: usize = 10_000;

/// Why users are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A name that the scheme cannot carry.
    #[error("is not a user name: 1 to 128 bytes without a colon and control characters")]
    User,
    /// A password nobody can send.
    #[error("is not a password: 1 to 1024 bytes without control characters")]
    Password,
    /// Something that begins as a hash and is none.
    #[error("is not a bcrypt hash ($2y$, cost 4 to 14); make one with: htpasswd -nB USER")]
    Hash,
    /// Longer than what bcrypt looks at.
    #[error("has more than 72 bytes, of which bcrypt looks at the first 72 only")]
    Long,
    /// More than [`MAX_USERS`].
    #[error("are more than {MAX_USERS} users")]
    TooMany,
}

/// A password as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// `$2a$`, `$2b$`, `$2x$` or `$2y$`.
    Bcrypt(Arc<str>),
    /// The password itself, from a secret file.
    Plain(Arc<Zeroizing<String>>),
}

impl PasswordHash {
    /// A bcrypt hash (a text that begins with `$2`), or a plain password. The cost of a hash is at most 14, about a second of work, because
    /// whoever can send requests can make the server do it.
    ///
    /// # Errors
    /// [`CredentialError::Hash`], [`CredentialError::Password`].
    pub fn new(text: &str) -> Result<Self, CredentialError> {
        if text.starts_with("$2") {
            let cost = text
                .get(4..6)
                .filter(|_| text.len() == 60)
                .and_then(|cost| cost.parse().ok());
            let fits = cost.is_some_and(|cost: u32| (4..=14).contains(&cost))
                && text.parse::<bcrypt::HashParts>().is_ok();
            return if fits {
                Ok(Self::Bcrypt(text.into()))
            } else {
                Err(CredentialError::Hash)
            };
        }
        if text.is_empty() || text.len() > 1024 || text.chars().any(char::is_control) {
            return Err(CredentialError::Password);
        }
        Ok(Self::Plain(Arc::new(Zeroizing::new(text.to_owned()))))
    }
}

impl PasswordHash {
    /// A bcrypt hash of the password, for those who may not know the password itself. Takes tens of milliseconds. The salt is made of `key`, a
    /// secret, and `name`, another for each user, so that the same password has the same hash again.
    ///
    /// # Errors
    /// [`CredentialError::Long`]: bcrypt does not look further than 72 bytes.
    pub fn hashed(&self, key: &[u8], name: &str) -> Result<Arc<str>, CredentialError> {
        match self {
            Self::Bcrypt(hash) => Ok(Arc::clone(hash)),
            Self::Plain(password) if password.len() > 72 => Err(CredentialError::Long),
            Self::Plain(password) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, key);
                let tag = hmac::sign(&key, name.as_bytes());
                let mut salt = [0; 16];
                salt.copy_from_slice(&tag.as_ref()[..16]);
                let parts = bcrypt::hash_with_salt(password.as_bytes(), OWN_COST, salt);
                let parts = parts.map_err(|_| CredentialError::Password)?;
                Ok(parts.format_for_version(bcrypt::Version::TwoB).into())
            }
        }
    }

    /// The power of two of its rounds; `None` for a password that is no hash.
    pub fn cost(&self) -> Option<u32> {
        match self {
            Self::Bcrypt(hash) => hash.get(4..6)?.parse().ok(),
            Self::Plain(_) => None,
        }
    }
}

/// Of hashes that are made here: about 60 ms of work.
const OWN_COST: u32 = 10;

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// The users of a route.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    challenge: Box<str>,
    users: HashMap<Box<str>, PasswordHash>,
    /// Field in which the upstream is told the user's name, in lower case.
    user_header: Option<Box<str>>,
    /// Checked for names that do not exist, so that they take as long as those that do.
    stand_in: Option<Arc<str>>,
}

impl BasicAuth {
    /// Users and their passwords; `realm` is what browsers show.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn new(
        realm: &str,
        users: impl IntoIterator<Item = (String, PasswordHash)>,
    ) -> Result<Self, CredentialError> {
        let mut table = HashMap::new();
        for (name, hash) in users {
            if name.is_empty()
                || name.len() > 128
                || name.chars().any(|c| c == ':' || c.is_control())
            {
                return Err(CredentialError::User);
            }
            table.insert(name.into_boxed_str(), hash);
            if table.len() > MAX_USERS {
                return Err(CredentialError::TooMany);
            }
        }
        let stand_in = table.values().find_map(|hash| match hash {
            PasswordHash::Bcrypt(hash) => Some(Arc::clone(hash)),
            PasswordHash::Plain(_) => None,
        });
        let realm: String = realm
            .chars()
            .filter(|c| !c.is_control() && c.is_ascii() && !matches!(c, '"' | '\\'))
            .take(64)
            .collect();
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into();
        Ok(Self {
            challenge,
            users: table,
            user_header: None,
            stand_in,
        })
    }

    /// Tells the upstream the user's name in this field.
    ///
    /// # Errors
    /// [`BuildError::HeaderName`](crate::BuildError::HeaderName).
    pub fn with_user_header(mut self, name: &str) -> Result<Self, crate::BuildError> {
        self.user_header = Some(field_name(name)?);
        Ok(self)
    }

    /// The value of `WWW-Authenticate` for a 401.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }

    /// The field in which the upstream is told the user's name; the visitor's own is to be left out.
    pub fn user_header(&self) -> Option<&str> {
        self.user_header.as_deref()
    }

    /// Looks at the request's `Authorization`. `Authorization` itself is for the caller to leave out of what it forwards.
    pub fn check(
        &self,
        table: &AuthTable,
        now: Duration,
        headers: &dyn Headers,
    ) -> AuthDecision<'_> {
        let Some(field) = headers.nth("authorization", 0) else {
            return AuthDecision::Refused;
        };
        // Two fields could mean two users.
        if headers.nth("authorization", 1).is_some() {
            return AuthDecision::Refused;
        }
        let Some(credentials) = credentials(field) else {
            return AuthDecision::Refused;
        };
        let Some((name, password)) = credentials.split_once(':') else {
            return AuthDecision::Refused;
        };
        match (self.users.get_key_value(name), &self.stand_in) {
            (Some((user, PasswordHash::Plain(wanted))), _) => match table.equal(password, wanted) {
                true => AuthDecision::Allowed { user },
                false => AuthDecision::Refused,
            },
            (Some((user, PasswordHash::Bcrypt(hash))), _) => {
                let digest = table.digest(name, password, hash);
                if table.holds(&digest, now) {
                    return AuthDecision::Allowed { user };
                }
                AuthDecision::Check {
                    user,
                    check: PasswordCheck {
                        hash: Arc::clone(hash),
                        password: Zeroizing::new(password.to_owned()),
                        digest: Some(digest),
                    },
                }
            }
            (None, Some(hash)) => AuthDecision::Check {
                user: "",
                check: PasswordCheck {
                    hash: Arc::clone(hash),
                    password: Zeroizing::new(password.to_owned()),
                    digest: None,
                },
            },
            (None, None) => AuthDecision::Refused,
        }
    }
}

/// What an `Authorization` field is worth.
#[derive(Debug)]
pub enum AuthDecision<'a> {
    /// The user may pass.
    Allowed {
        /// The user's name.
        user: &'a str,
    },
    /// 401 with [`BasicAuth::challenge`].
    Refused,
    /// It depends on the check: run [`PasswordCheck::run`] elsewhere and give the result to [`AuthTable::accept`].
    Check {
        /// The user's name, if the check is good.
        user: &'a str,
        /// The work.
        check: PasswordCheck,
    },
}

/// A check that takes long. `Send`, so that it can run on a blocking thread.
pub struct PasswordCheck {
    hash: Arc<str>,
    password: Zeroizing<String>,
    /// `None` for a user that does not exist: it takes as long and is never good.
    digest: Option<Digest>,
}

impl std::fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordCheck(..)")
    }
}

/// A check whose password was right.
#[derive(Debug)]
pub struct GoodPassword(Digest);

impl PasswordCheck {
    /// Does the work: tens of milliseconds. `None` = wrong password.
    pub fn run(self) -> Option<GoodPassword> {
        let good = bcrypt::verify(self.password.as_bytes(), &self.hash).unwrap_or(false);
        self.digest.filter(|_| good).map(GoodPassword)
    }
}

type Digest = [u8; 32];

/// Good passwords of late, of one worker: at most [`Self::CAPACITY`], each for [`Self::KEPT`].
pub struct AuthTable {
    key: hmac::Key,
    good: HashMap<Digest, Duration>,
}

impl std::fmt::Debug for AuthTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthTable({} of {})", self.good.len(), Self::CAPACITY)
    }
}

impl AuthTable {
    /// Passwords that are remembered.
    pub const CAPACITY: usize = 1024;
    /// How long.
    pub const KEPT: Duration = Duration::from_secs(300);

    /// An empty table; `key` is random and secret.
    pub fn new(key: &[u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            good: HashMap::with_capacity(Self::CAPACITY),
        }
    }

    /// Remembers a password that was right.
    pub fn accept(&mut self, good: GoodPassword, now: Duration) {
        if self.good.len() >= Self::CAPACITY {
            self.good.retain(|_, until| *until > now);
        }
        // Still full: someone's next request costs a check, no more.
        if self.good.len() >= Self::CAPACITY
            && let Some(oldest) = self
                .good
                .iter()
                .min_by_key(|(_, until)| **until)
                .map(|(digest, _)| *digest)
        {
            self.good.remove(&oldest);
        }
        self.good.insert(good.0, now.saturating_add(Self::KEPT));
    }

    fn holds(&self, digest: &Digest, now: Duration) -> bool {
        // The key is secret, so where a comparison stops says nothing.
        self.good.get(digest).is_some_and(|until| *until > now)
    }

    fn digest(&self, name: &str, password: &str, hash: &str) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        // The hash has one length and the name no NUL: no two triples give one text.
        for part in [hash, name, "\0", password] {
            context.update(part.as_bytes());
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// Compares digests, so that neither content nor length shows in the time.
    fn equal(&self, a: &str, b: &str) -> bool {
        let digest = |text: &str| hmac::sign(&self.key, text.as_bytes());
        verify_slices_are_equal(digest(a).as_ref(), digest(b).as_ref()).is_ok()
    }
}

/// The credentials of a field `Basic BASE64`: at most 1200 bytes.
fn credentials(field: &[u8]) -> Option<Zeroizing<String>> {
    let (scheme, text) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let text = text.trim_ascii();
    if text.len() > 1600 {
        return None;
    }
    let bytes = Zeroizing::new(base64(text)?);
    String::from_utf8(bytes.to_vec()).ok().map(Zeroizing::new)
}

/// RFC 4648 §4, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}
