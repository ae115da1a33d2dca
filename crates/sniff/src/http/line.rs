//! The lines of a head, one at a time: request line, field line, target. Slices in, positions or flaws out.

use std::ops::Range;

use super::{
    error::{Flaw, HeadError},
    head::Version,
};
use crate::{
    classify::MAX_METHOD,
    host::{Authority, AuthorityError},
};

/// A `tchar` of RFC 9110 §5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Positions within a request line.
pub(super) struct RequestLine {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    pub(super) version: Version,
}

/// RFC 9112 §3, with single spaces only: others read lines with more of them differently.
pub(super) fn request_line(line: &[u8]) -> Result<RequestLine, HeadError> {
    let bad = HeadError::Malformed(Flaw::RequestLine);
    let first = line.iter().position(|&b| b == b' ').ok_or(bad)?;
    let last = line.iter().rposition(|&b| b == b' ').ok_or(bad)?;
    let method = &line[..first];
    if method.is_empty()
        || method.len() > MAX_METHOD
        || !method.iter().all(|&b| is_token_byte(b))
        || first == last
    {
        return Err(bad);
    }
    let target = &line[first + 1..last];
    if target.is_empty() || target.iter().any(|&b| b == b' ' || b == b'\t') {
        return Err(bad);
    }
    // Bytes above 0x7F are no part of RFC 3986 but do occur; as UTF-8 they read the same everywhere.
    std::str::from_utf8(target).map_err(|_| Flaw::Target)?;
    let version = match &line[last + 1..] {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(HeadError::Version);
        }
        _ => return Err(bad),
    };
    Ok(RequestLine {
        method: 0..first,
        target: first + 1..last,
        version,
    })
}

/// Name and value of a field line (RFC 9112 §5), the value without white space around it.
pub(super) fn field(line: &[u8]) -> Result<(Range<usize>, Range<usize>), Flaw> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Flaw::Fold);
    }
    let colon = line
        .iter()
        .position(|&b| !is_token_byte(b))
        .ok_or(Flaw::FieldName)?;
    if colon == 0 || line[colon] != b':' {
        return Err(Flaw::FieldName);
    }
    let is_space = |&b: &u8| b == b' ' || b == b'\t';
    let value = &line[colon + 1..];
    let Some(start) = value.iter().position(|b| !is_space(b)) else {
        return Ok((0..colon, line.len()..line.len()));
    };
    let end = value
        .iter()
        .rposition(|b| !is_space(b))
        .map_or(start, |last| last + 1);
    Ok((0..colon, colon + 1 + start..colon + 1 + end))
}

/// The authority that a target carries, and the port that its scheme implies.
pub(super) fn target_authority(
    method: &[u8],
    target: &[u8],
) -> Result<Option<(Authority, Option<u16>)>, HeadError> {
    if method == b"CONNECT" {
        // RFC 9112 §3.2.3: always with a port.
        let authority = authority(target)?;
        return if authority.port().is_some() {
            Ok(Some((authority, None)))
        } else {
            Err(Flaw::Target.into())
        };
    }
    if target.first() == Some(&b'/') || target == b"*" {
        return Ok(None);
    }
    // RFC 9112 §3.2.2: scheme "://" authority path-abempty [ "?" query ]
    let colon = target.iter().position(|&b| b == b':').ok_or(Flaw::Target)?;
    let (scheme, rest) = (&target[..colon], &target[colon..]);
    let scheme_is_good = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    let Some(rest) = rest.strip_prefix(b"://").filter(|_| scheme_is_good) else {
        return Err(Flaw::Target.into());
    };
    let end = rest
        .iter()
        .position(|b| b"/?#".contains(b))
        .unwrap_or(rest.len());
    Ok(Some((authority(&rest[..end])?, default_port(scheme))))
}

/// An authority from bytes. Userinfo is refused with every other odd byte (RFC 9110 §4.2.4).
pub(super) fn authority(bytes: &[u8]) -> Result<Authority, HeadError> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| HeadError::BadHost(AuthorityError::BadCharacter))?;
    Authority::parse(text).map_err(HeadError::BadHost)
}

/// Whether two authorities of one request name the same place. A port that is missing and that no scheme implies fits any.
pub(crate) fn agree(a: &Authority, b: &Authority, default_port: Option<u16>) -> bool {
    let ports = (a.port().or(default_port), b.port().or(default_port));
    a.host() == b.host()
        && match ports {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
}

/// Whether a comma-separated list has `token`, whatever its case.
pub(super) fn list_has(list: &[u8], token: &[u8]) -> bool {
    list.split(|&b| b == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

fn default_port(scheme: &[u8]) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_slice() {
        b"http" | b"ws" => Some(80),
        b"https" | b"wss" => Some(443),
        _ => None,
    }
}
