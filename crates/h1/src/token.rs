//! Bytes and small grammars that heads are made of (RFC 9110 §5.6).

/// HTTP/1's two versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

impl Version {
    /// As in a start line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

const TOKEN: u8 = 1;
/// What a field's value may hold: visible ASCII, obs-text, space and tab (RFC 9110 §5.5).
const VALUE: u8 = 2;
/// What a request target may hold: visible ASCII without `#`.
const TARGET: u8 = 4;
/// What a host name may hold. RFC 3986 allows more (sub-delims, percent-encoding) that no name in use has and that programs disagree on.
const NAME: u8 = 8;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0usize;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let b = byte as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            )
        {
            class |= TOKEN;
        }
        if b == b'\t' || (b >= b' ' && b != 127) {
            class |= VALUE;
        }
        if b > b' ' && b < 127 && b != b'#' {
            class |= TARGET;
        }
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            class |= NAME;
        }
        table[byte] = class;
        byte += 1;
    }
    table
}

fn all(bytes: &[u8], class: u8) -> bool {
    // Without an early exit the loop is vectorised.
    bytes
        .iter()
        .fold(class, |so_far, byte| so_far & CLASS[usize::from(*byte)])
        == class
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

pub(crate) fn is_token_prefix(bytes: &[u8]) -> bool {
    all(bytes, TOKEN)
}

pub(crate) fn is_value(bytes: &[u8]) -> bool {
    all(bytes, VALUE)
}

pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TARGET)
}

pub(crate) fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, NAME)
}

/// Without spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list; empty ones are left out, as RFC 9110 §5.6.1.2 wants.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// Digits only, nothing before, between or behind them; `None` also beyond `u64`.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        if !byte.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}
