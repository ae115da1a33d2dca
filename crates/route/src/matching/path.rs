//! Path patterns, and the readings of a path.
//!
//! Origins do not agree on what a path means. `/a/%2e%2e/b` is `/b` for one and a file of that name for another, Tomcat takes `/a/..;/b`
//! for `/b`, some turn `%2F` and `\` into `/`. A proxy that looks at one form only can be led around its own rules. So a path is read in
//! three forms, and a request takes a route only when all of them take the same:
//!
//! 1. *as sent*;
//! 2. *normal*: unreserved characters decoded (RFC 3986 §6.2.2.2), `//` made `/`, dot segments resolved (§5.2.4);
//! 3. *loose*: everything decoded once, `\` as `/`, parameters (`;…`) of segments taken off, then as 2.
//!
//! What is forwarded stays as it was sent (or is rewritten by the route), so signatures over paths and encoded slashes in names keep
//! working. Most paths have one form only, and that is seen in one pass without copying.

use std::{cmp::Reverse, fmt};

use regex::bytes::{Regex, RegexBuilder};

use crate::BuildError;

/// Which paths fit. The default is every path, and requests without one (`OPTIONS *`).
#[derive(Debug, Clone, Default)]
pub struct PathPattern(Kind);

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    Any,
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
    Regex(Regex),
}

impl PathPattern {
    /// Longest pattern in bytes.
    pub const MAX_LEN: usize = 1024;

    /// This path alone.
    ///
    /// # Errors
    /// [`BuildError::Path`], [`BuildError::PathNotNormal`].
    pub fn exact(path: &str) -> Result<Self, BuildError> {
        check(path).map(|()| Self(Kind::Exact(path.as_bytes().into())))
    }

    /// Paths that begin so. `/api` fits `/api` and `/api/x` but not `/apix`; `/api/` fits what begins with it, which `/api` does not.
    ///
    /// # Errors
    /// [`BuildError::Path`], [`BuildError::PathNotNormal`].
    pub fn prefix(path: &str) -> Result<Self, BuildError> {
        check(path).map(|()| Self(Kind::Prefix(path.as_bytes().into())))
    }

    /// Paths with a match anywhere; anchor with `^` and `$`. Matching takes linear time; the expression has at most
    /// [`Self::MAX_LEN`] bytes and 1 MiB when compiled.
    ///
    /// # Errors
    /// [`BuildError::Regex`].
    pub fn regex(expression: &str) -> Result<Self, BuildError> {
        bounded_regex(expression).map(|regex| Self(Kind::Regex(regex)))
    }

    /// Every path fits.
    pub fn is_any(&self) -> bool {
        matches!(self.0, Kind::Any)
    }

    /// The part that a prefix pattern or an exact one compares.
    pub fn literal(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Exact(path) | Kind::Prefix(path) => Some(path),
            _ => None,
        }
    }

    pub(super) fn rank(&self) -> impl Ord + use<> {
        match &self.0 {
            Kind::Exact(_) => (0, Reverse(0)),
            Kind::Regex(_) => (1, Reverse(0)),
            Kind::Prefix(path) => (2, Reverse(path.len())),
            Kind::Any => (3, Reverse(0)),
        }
    }

    pub(super) fn fits(&self, path: &[u8]) -> bool {
        match &self.0 {
            Kind::Any => true,
            Kind::Exact(exact) => **exact == *path,
            Kind::Prefix(prefix) => path
                .strip_prefix(&**prefix)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.ends_with(b"/")),
            Kind::Regex(regex) => path.first() == Some(&b'/') && regex.is_match(path),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Any => f.write_str("*"),
            Kind::Exact(path) => write!(f, "={}", String::from_utf8_lossy(path)),
            Kind::Prefix(path) => write!(f, "{}", String::from_utf8_lossy(path)),
            Kind::Regex(regex) => write!(f, "~{}", regex.as_str()),
        }
    }
}

fn check(path: &str) -> Result<(), BuildError> {
    let visible = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'));
    if !path.starts_with('/') || path.len() > PathPattern::MAX_LEN || !visible {
        return Err(BuildError::Path);
    }
    let mut scratch = Scratch::default();
    match scratch.read(path.as_bytes()) {
        Ok(readings)
            if readings
                .normal
                .is_none_or(|normal| normal == path.as_bytes()) =>
        {
            Ok(())
        }
        _ => Err(BuildError::PathNotNormal),
    }
}

/// A regex whose size is bounded: a configuration may come from somebody else.
pub(crate) fn bounded_regex(expression: &str) -> Result<Regex, BuildError> {
    if expression.len() > PathPattern::MAX_LEN {
        let reason = format!("it is longer than {} bytes", PathPattern::MAX_LEN);
        return Err(BuildError::Regex { reason, at: None });
    }
    RegexBuilder::new(expression)
        .size_limit(1 << 20)
        .dfa_size_limit(1 << 20)
        .nest_limit(64)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let reason = text
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            // The library draws the expression and, below it, carets under the mistake, both indented by four.
            let caret = text.lines().find_map(|line| {
                line.trim()
                    .bytes()
                    .all(|byte| byte == b'^')
                    .then(|| line.find('^'))
                    .flatten()
            });
            let at = caret.and_then(|column| column.checked_sub(4));
            BuildError::Regex {
                reason,
                at: at.filter(|at| *at <= expression.len()),
            }
        })
}

/// Why a path is refused, with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It begins with neither `/` nor is `*` or empty.
    #[error("the path does not begin with /")]
    NoSlash,
    /// A `%` without two hexadecimal digits.
    #[error("the path has a percent sign without two hexadecimal digits")]
    BadEncoding,
    /// NUL, which ends texts in many origins.
    #[error("the path has an encoded NUL")]
    Nul,
    /// Dot segments lead above `/`.
    #[error("the path leads above its root")]
    AboveRoot,
    /// Its readings take different routes.
    #[error(
        "the path means different things to different origins, which have different rules here"
    )]
    Ambiguous,
}

/// Buffers for the readings of paths, one per worker or connection. They grow to the length of the longest path that has several readings.
#[derive(Debug, Default)]
pub struct Scratch {
    normal: Vec<u8>,
    loose: Vec<u8>,
}

/// The forms of one path.
pub(super) struct Readings<'a> {
    sent: &'a [u8],
    normal: Option<&'a [u8]>,
    loose: Option<&'a [u8]>,
}

impl<'a> Readings<'a> {
    pub(super) fn as_sent(&self) -> &'a [u8] {
        self.sent
    }

    pub(super) fn others(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        [self.normal, self.loose].into_iter().flatten()
    }
}

impl Scratch {
    pub(super) fn read<'a>(&'a mut self, path: &'a [u8]) -> Result<Readings<'a>, BadPath> {
        let one = Readings {
            sent: path,
            normal: None,
            loose: None,
        };
        match path {
            b"" | b"*" => return Ok(one),
            [b'/', ..] => {}
            _ => return Err(BadPath::NoSlash),
        }
        if is_plain(path) {
            return Ok(one);
        }
        decode(path, &mut self.normal, Decode::Unreserved)?;
        resolve(&mut self.normal)?;
        decode(path, &mut self.loose, Decode::All)?;
        resolve(&mut self.loose)?;
        Ok(Readings {
            sent: path,
            normal: Some(&self.normal),
            loose: Some(&self.loose),
        })
    }
}

/// It reads the same in all forms.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    for byte in path {
        let special = match byte {
            b'%' | b'\\' | b';' | 0 => true,
            b'/' | b'.' => before == b'/',
            _ => false,
        };
        if special {
            return false;
        }
        before = *byte;
    }
    true
}

#[derive(Clone, Copy, PartialEq)]
enum Decode {
    Unreserved,
    All,
}

fn decode(path: &[u8], out: &mut Vec<u8>, what: Decode) -> Result<(), BadPath> {
    out.clear();
    let mut rest = path;
    let mut in_parameter = false;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, encoded) = match first {
            b'%' => (percent_byte(after).ok_or(BadPath::BadEncoding)?, true),
            byte => (byte, false),
        };
        let taken = if encoded { 3 } else { 1 };
        if byte == 0 {
            return Err(BadPath::Nul);
        }
        if what == Decode::Unreserved {
            // RFC 3986 §2.3
            let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            if encoded && !unreserved {
                out.extend(rest[..3].iter().map(u8::to_ascii_uppercase));
            } else {
                out.push(byte);
            }
        } else {
            let byte = if byte == b'\\' { b'/' } else { byte };
            in_parameter = byte != b'/' && (in_parameter || byte == b';');
            if !in_parameter {
                out.push(byte);
            }
        }
        rest = &rest[taken..];
    }
    Ok(())
}

/// The byte of two hexadecimal digits.
pub(crate) fn percent_byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// Makes `//` one and resolves dot segments, in place (RFC 3986 §5.2.4). `path` begins with `/`.
fn resolve(path: &mut Vec<u8>) -> Result<(), BadPath> {
    // What is kept ends before `kept`, always behind a `/`.
    let mut kept = 1;
    let mut from = 1;
    while from < path.len() {
        let end = path[from..]
            .iter()
            .position(|byte| *byte == b'/')
            .map_or(path.len(), |n| from + n);
        let last = end == path.len();
        match &path[from..end] {
            b"" | b"." => {}
            b".." => {
                let parent = path[..kept - 1].iter().rposition(|byte| *byte == b'/');
                kept = parent.ok_or(BadPath::AboveRoot)? + 1;
            }
            _ => {
                path.copy_within(from..end, kept);
                kept += end - from;
                if !last {
                    path[kept] = b'/';
                    kept += 1;
                }
            }
        }
        from = end + 1;
    }
    path.truncate(kept);
    Ok(())
}
