//! Newtypes for what users name things with: ids, secrets, host prefixes and host names. A value that exists is valid.

use std::fmt;

/// Why a text is not a valid name. The text itself is not part of the message: it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text is longer than the given number of bytes.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    /// A character is not allowed here; the second field says which are.
    #[error("contains {0:?}; allowed are {1}")]
    BadCharacter(char, &'static str),
    /// A label of a host name is empty, or begins or ends with a hyphen.
    #[error("has a part that is empty or begins or ends with a hyphen")]
    BadLabel,
}

/// A client's id: 1 to 64 bytes of `A-Z a-z 0-9 . _ -` (`docs/protocol/tunnel.md`, Hello). Case matters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Box<str>);

impl Id {
    /// Longest id in bytes.
    pub const MAX_LEN: usize = 64;

    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, too long or has another character.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text, Self::MAX_LEN, "letters, digits and . _ -", |c| {
            c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
        })?;
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The shared secret of one id: 1 to 1024 bytes of any text without control characters. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Longest secret in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, too long or holds a control character.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(NameError::TooLong(Self::MAX_LEN));
        }
        match text.chars().find(|c| c.is_control()) {
            // The character is replaced: an error text must not carry any of the secret.
            Some(_) => Err(NameError::BadCharacter(
                '\u{fffd}',
                "all characters but control characters (line ends, tabs)",
            )),
            None => Ok(Self(text.into())),
        }
    }

    /// The secret itself, for the handshake only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The first label of a visitor's host name: 1 to 63 bytes of `a-z 0-9 - _`, kept in lower case.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPrefix(Box<str>);

impl HostPrefix {
    /// Longest prefix in bytes (RFC 1035 §2.3.4).
    pub const MAX_LEN: usize = 63;

    /// Checks a text and puts it into lower case.
    ///
    /// # Errors
    /// [`NameError`] when the text is not one host label.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(
            text,
            Self::MAX_LEN,
            "letters, digits, - and _ (no dot: it is one label)",
            is_label_character,
        )?;
        check_label(text)?;
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The prefix in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A full host name of at least one label: at most 253 bytes, kept in lower case, without a final dot.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Box<str>);

impl HostName {
    /// Longest name in bytes (RFC 1035 §2.3.4, in text form).
    pub const MAX_LEN: usize = 253;

    /// Checks a text and puts it into lower case.
    ///
    /// # Errors
    /// [`NameError`] when the text is not a host name; an IP address is one.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        check(text, Self::MAX_LEN, "letters, digits and - _ .", |c| {
            is_label_character(c) || c == '.'
        })?;
        for label in text.split('.') {
            check_label(label)?;
            if label.len() > HostPrefix::MAX_LEN {
                return Err(NameError::TooLong(HostPrefix::MAX_LEN));
            }
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! prints_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
prints_as_text!(Id, HostPrefix, HostName);

fn check(
    text: &str,
    max: usize,
    allowed: &'static str,
    ok: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some(bad) = text.chars().find(|c| !ok(*c)) {
        return Err(NameError::BadCharacter(bad, allowed));
    }
    if text.len() > max {
        return Err(NameError::TooLong(max));
    }
    Ok(())
}

fn check_label(label: &str) -> Result<(), NameError> {
    if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
        return Err(NameError::BadLabel);
    }
    Ok(())
}

// The underscore is not a host name character in RFC 952, but browsers and DNS carry it and people use it.
fn is_label_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}
