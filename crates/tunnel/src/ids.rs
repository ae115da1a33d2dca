//! Names of clients, sessions and services.

use std::fmt;

use crate::error::InvalidValue;

/// Who a client says it is: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Box<str>);

impl ClientId {
    /// Checks an id.
    ///
    /// # Errors
    /// When it is empty, longer than 64 bytes, or has another character.
    pub fn new(id: &str) -> Result<Self, InvalidValue> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if (1..=64).contains(&id.len()) && id.bytes().all(allowed) {
            Ok(Self(id.into()))
        } else {
            Err(InvalidValue {
                what: "client id",
                rule: "1 to 64 of A-Z a-z 0-9 . _ -",
            })
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({})", self.0)
    }
}

impl std::str::FromStr for ClientId {
    type Err = InvalidValue;

    fn from_str(id: &str) -> Result<Self, InvalidValue> {
        Self::new(id)
    }
}

/// Names a session, which the links of one client share. 16 bytes that the server draws at random.
///
/// It is no credential: a link that joins a session proves the secret like the first one did, and the server must check that
/// the session belongs to that id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Takes 16 random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for SessionId {
    /// A prefix is enough to follow a session through a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "SessionId({a:02x}{b:02x}{c:02x}{d:02x}..)")
    }
}

/// Names a service within its session; the client chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u16);

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
