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

/// For each byte of a token its lower case, with `_` as `-`; 0 for others. Programs that hand fields on as variables (CGI, WSGI) do not tell `_`
/// from `-`: names are compared as those programs do.
pub(crate) static NAME: [u8; 256] = names();

const fn names() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0u8;
    while byte < 128 {
        let in_token = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
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
            );
        if in_token {
            table[byte as usize] = if byte == b'_' {
                b'-'
            } else {
                byte.to_ascii_lowercase()
            };
        }
        byte += 1;
    }
    table
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| NAME[usize::from(*byte)] != 0)
}

/// Whether `name` is `lower` for those who tell neither case nor `_` from `-`.
pub(crate) fn looks_like(name: &[u8], lower: &[u8]) -> bool {
    name.len() == lower.len()
        && name
            .iter()
            .zip(lower)
            .all(|(byte, lower)| NAME[usize::from(*byte)] == *lower)
}

/// Whether `name` is `lower`, but for the case of letters. `lower` has no upper case letters. Its length is known where this is compiled, so that a
/// few words are compared and nothing is counted: several names of every head pass here.
#[inline(always)]
pub(crate) fn same_but_case<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    // Only the bit that makes a letter small may differ, and only in letters: they have 0x40, `-` and digits have not.
    fn differ(name: u64, lower: u64) -> u64 {
        (name ^ lower) & !((lower & 0x4040_4040_4040_4040) >> 1)
    }
    fn word(bytes: &[u8]) -> u64 {
        match *bytes {
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a] => a.into(),
            _ => 0,
        }
    }
    let Ok(name) = <&[u8; N]>::try_from(name) else {
        return false;
    };
    let step = match N {
        8.. => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    };
    let (mut at, mut differs) = (0, 0);
    while at < N {
        // The last word again with bytes that were looked at before it.
        let from = at.min(N - step);
        let range = from..from + step;
        differs |= differ(word(&name[range.clone()]), word(&lower[range]));
        at += step;
    }
    differs == 0
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
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A Content-Length: decimal without leading zeros, which some read as octal.
pub(crate) fn content_length(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > 1 && bytes[0] == b'0' {
        return None;
    }
    decimal(bytes)
}

/// Appends a number in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        // Below ten.
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_whatever_the_case_of_letters_and_no_other_byte() {
        compared(b"te");
        compared(b"via");
        compared(b"host");
        compared(b"server");
        compared(b"upgrade");
        compared(b"location");
        compared(b"x-real-ip");
        compared(b"keep-alive");
        compared(b"content-type");
        compared(b"http2-settings");
        compared(b"content-encoding");
        compared(b"proxy-authorization");
    }

    fn compared<const N: usize>(lower: &[u8; N]) {
        assert!(same_but_case(&lower.to_ascii_uppercase(), lower));
        assert!(!same_but_case(&lower[1..], lower));
        for at in 0..lower.len() {
            for byte in 0..=255 {
                let mut name = lower.to_vec();
                name[at] = byte;
                let same = name.eq_ignore_ascii_case(lower);
                assert_eq!(same_but_case(&name, lower), same, "{name:?}");
            }
        }
    }
}
