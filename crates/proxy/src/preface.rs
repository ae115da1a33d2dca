//! First bytes that are neither HTTP/1 nor HTTP/2's preface: how they are told, and what they are answered.

/// Whether first bytes that are no request of HTTP/1 do not even try to be one: they begin as HTTP/2's preface does, or their first line
/// has a third word that is no version of HTTP. RFC 9113 §3.4 wants such a connection to end as HTTP/2's do; to a request that is only wrong
/// HTTP/1 has an answer.
pub(crate) fn is_other(first: &[u8]) -> bool {
    let line = first
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    let third = words.nth(2);
    first.starts_with(b"PRI *")
        || third.is_some_and(|word| !word.is_empty() && !word.starts_with(b"HTTP/"))
            && words.next().is_none()
}

/// Empty SETTINGS, and GOAWAY with PROTOCOL_ERROR behind no stream (RFC 9113 §6.5, §6.8).
pub(crate) const MISSING: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, // SETTINGS
    0, 0, 8, 7, 0, 0, 0, 0, 0, // GOAWAY
    0, 0, 0, 0, 0, 0, 0, 1,
];
