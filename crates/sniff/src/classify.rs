//! Tells the protocol of a connection from as few of its first bytes as possible, and never from too few.
//!
//! Each protocol is a small matcher that answers yes, no or "not yet" about the bytes so far. The first yes in the order below
//! wins, but only when no protocol above it could still turn out to be the one.

use crate::{http::is_token_byte, proxy::V2_SIGNATURE};

/// No connection needs more bytes than this to be told, given a magic that is no longer.
pub const MAX_CLASSIFY: usize = MAX_EMPTY_LINES * 2 + MAX_METHOD + 1;

/// Longest HTTP method accepted, in bytes. The longest registered one (UPDATEREDIRECTREF) has 17.
pub(crate) const MAX_METHOD: usize = 32;
/// Empty lines accepted before a request line (RFC 9112 §2.2).
pub(crate) const MAX_EMPTY_LINES: usize = 2;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Classified {
    /// The bytes so far fit more than one protocol.
    NeedMore,
    /// The magic of a gt link.
    Link,
    /// A TLS handshake record (TLS 1.0 to 1.3).
    Tls,
    /// An HTTP/1 request: a method and a space. Whether the rest is right is for [`crate::http`] to say.
    Http1,
    /// The HTTP/2 client connection preface, sent without TLS (RFC 9113 §3.3).
    Http2Preface,
    /// A PROXY protocol header in text form.
    ProxyV1,
    /// A PROXY protocol header in binary form.
    ProxyV2,
    /// An SSH client's identification string (RFC 4253 §4.2).
    Ssh,
    /// None of these, whatever follows.
    Unknown,
}

/// Tells what `first`, the bytes received so far, begins with. `magic` is what a gt link begins with (empty: there are none); it
/// comes before all others.
///
/// Looks at no more than the first [`MAX_CLASSIFY`] (or `magic.len()`) bytes, and decides by then.
#[must_use]
pub fn classify(first: &[u8], magic: &[u8]) -> Classified {
    if first.is_empty() {
        return Classified::NeedMore;
    }
    let link = if magic.is_empty() {
        Fit::No
    } else {
        literal(first, magic)
    };
    let candidates = [
        (Classified::Link, link),
        (Classified::Tls, literal(first, &[0x16, 0x03])),
        (Classified::ProxyV2, literal(first, &V2_SIGNATURE)),
        (
            Classified::ProxyV1,
            any_literal(first, &[b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN"]),
        ),
        // HTTP/1 has no version 2, so the rest of the preface adds no knowledge.
        (Classified::Http2Preface, literal(first, b"PRI * HTTP/2")),
        (
            Classified::Ssh,
            any_literal(first, &[b"SSH-2.0-", b"SSH-1.99-", b"SSH-1.5-"]),
        ),
        (Classified::Http1, request(first)),
    ];
    for (protocol, fit) in candidates {
        match fit {
            Fit::Yes => return protocol,
            Fit::Maybe => return Classified::NeedMore,
            Fit::No => {}
        }
    }
    Classified::Unknown
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Yes,
    Maybe,
    No,
}

fn literal(first: &[u8], wanted: &[u8]) -> Fit {
    let n = first.len().min(wanted.len());
    match (first[..n] == wanted[..n], n == wanted.len()) {
        (false, _) => Fit::No,
        (true, true) => Fit::Yes,
        (true, false) => Fit::Maybe,
    }
}

fn any_literal(first: &[u8], wanted: &[&[u8]]) -> Fit {
    let mut best = Fit::No;
    for fit in wanted.iter().map(|wanted| literal(first, wanted)) {
        match fit {
            Fit::Yes => return Fit::Yes,
            Fit::Maybe => best = Fit::Maybe,
            Fit::No => {}
        }
    }
    best
}

/// Empty lines, a method, a space.
fn request(first: &[u8]) -> Fit {
    let mut rest = first;
    for _ in 0..MAX_EMPTY_LINES {
        match rest {
            [b'\r', b'\n', after @ ..] => rest = after,
            [b'\r'] => return Fit::Maybe,
            _ => break,
        }
    }
    for (i, &byte) in rest.iter().enumerate() {
        match byte {
            b' ' if i > 0 => return Fit::Yes,
            _ if is_token_byte(byte) && i < MAX_METHOD => {}
            _ => return Fit::No,
        }
    }
    Fit::Maybe
}
