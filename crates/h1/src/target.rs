//! Request targets and hosts (RFC 9112 §3.2, RFC 3986 §3.2.2).

use std::{net::Ipv6Addr, ops::Range};

use crate::{scan::find, token::decimal};

/// The four forms of a request target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Origin,
    Absolute,
    Authority,
    Asterisk,
}

/// Where the parts of a target are, counted from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) form: Form,
    pub(crate) scheme_is_https: bool,
    pub(crate) authority: Range<usize>,
    pub(crate) path: Range<usize>,
    pub(crate) query: Option<Range<usize>>,
}

/// Takes a target apart, whose bytes were checked; `None` if the method may not have it.
pub(crate) fn parse(method: &[u8], target: &[u8]) -> Option<Parts> {
    if method == b"CONNECT" {
        // The port is obligatory there (RFC 9110 §9.3.6).
        let host = Host::parse(target)?;
        host.port?;
        return Some(Parts {
            form: Form::Authority,
            authority: 0..target.len(),
            ..Parts::default()
        });
    }
    if target == b"*" {
        return (method == b"OPTIONS").then(|| Parts {
            form: Form::Asterisk,
            path: 0..1,
            ..Parts::default()
        });
    }
    if target.first() == Some(&b'/') {
        let (path, query) = path_and_query(target, 0);
        return Some(Parts {
            form: Form::Origin,
            path,
            query,
            ..Parts::default()
        });
    }
    absolute(target)
}

fn absolute(target: &[u8]) -> Option<Parts> {
    let scheme_len = target.windows(3).position(|part| part == b"://")?;
    let scheme_is_https = target[..scheme_len].eq_ignore_ascii_case(b"https");
    if !scheme_is_https && !target[..scheme_len].eq_ignore_ascii_case(b"http") {
        return None;
    }
    let start = scheme_len + 3;
    let end = target[start..]
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .map_or(target.len(), |at| start + at);
    // `http://host?query` is valid and rare, and programs differ on where its path begins.
    if end == start || target.get(end) == Some(&b'?') || Host::parse(&target[start..end]).is_none()
    {
        return None;
    }
    let (path, query) = path_and_query(target, end);
    Some(Parts {
        form: Form::Absolute,
        scheme_is_https,
        authority: start..end,
        path,
        query,
    })
}

fn path_and_query(target: &[u8], start: usize) -> (Range<usize>, Option<Range<usize>>) {
    match find(&target[start..], b'?') {
        Some(at) => (start..start + at, Some(start + at + 1..target.len())),
        None => (start..target.len(), None),
    }
}

/// A host with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host<'b> {
    /// With brackets, if it is an IPv6 address.
    pub(crate) name: &'b [u8],
    pub(crate) port: Option<u16>,
}

impl<'b> Host<'b> {
    /// No user information, no percent-encoding, no empty port, no port above 65535.
    pub(crate) fn parse(text: &'b [u8]) -> Option<Self> {
        let name_len = if text.first() == Some(&b'[') {
            let close = find(text, b']')?;
            let inside = std::str::from_utf8(&text[1..close]).ok()?;
            inside.parse::<Ipv6Addr>().ok()?;
            close + 1
        } else {
            name_end(text)?
        };
        let (name, rest) = text.split_at(name_len);
        let port = match rest {
            [] => None,
            [b':', digits @ ..] if digits.len() <= 5 => Some(u16::try_from(decimal(digits)?).ok()?),
            _ => return None,
        };
        Some(Self { name, port })
    }

    /// Whether both mean the same place for a scheme with this default port. Two spellings of an IPv6 address do not.
    pub(crate) fn is_same(&self, other: &Host<'_>, default_port: u16) -> bool {
        let bare = |name: &'_ [u8]| name.strip_suffix(b".").map_or(name.len(), <[u8]>::len);
        self.name[..bare(self.name)].eq_ignore_ascii_case(&other.name[..bare(other.name)])
            && self.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
    }
}

/// Where a name ends: what DNS carries, which is letters, digits, `-` and `_` in labels of 1 to 63 bytes, 253 bytes in all, and perhaps a dot at the
/// end. RFC 3986 allows more (sub-delims, percent-encoding) that no name in use has and that programs disagree on. What follows is not looked at.
fn name_end(text: &[u8]) -> Option<usize> {
    let (mut label, mut end) = (0, text.len());
    for (at, byte) in text.iter().enumerate() {
        // By a table: each request's host passes here.
        match IN_NAME[usize::from(*byte)] {
            LABEL => label += 1,
            DOT if label > 0 && label <= 63 => label = 0,
            DOT => return None,
            _ => {
                end = at;
                break;
            }
        }
    }
    // Behind a dot at the end there is no label.
    let length = if label == 0 { end.checked_sub(1)? } else { end };
    (label <= 63 && length <= 253).then_some(end)
}

const LABEL: u8 = 1;
const DOT: u8 = 2;

static IN_NAME: [u8; 256] = in_name();

const fn in_name() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            table[byte as usize] = LABEL;
        }
        byte += 1;
    }
    table[b'.' as usize] = DOT;
    table
}
