//! Finding where names, targets and values end. A position goes in, the position of the first byte that does not belong comes out;
//! the caller decides what that byte means, and remembers the position, so that no byte is looked at twice.
//!
//! Bytes are looked at eight at a time with plain arithmetic: heads are short, so that the set-up of wider searches costs more than it
//! saves.

use crate::token::NAME;

/// The first byte from `at` that is none of a token's (RFC 9110 §5.6.2), or the length of `bytes`.
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    // Names are made of these but for a few.
    let stops = |word| !alphanumeric_or_hyphen(word) & HIGH;
    end_of(bytes, at, stops, |byte| NAME[usize::from(byte)] == 0)
}

/// Where the first such byte is.
pub(crate) fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    let at = end_of(bytes, 0, |word| equal(word, wanted), |byte| byte == wanted);
    (at < bytes.len()).then_some(at)
}

/// The first byte from `at` that no field value may hold (RFC 9110 §5.5): a control byte but HTAB; or the length of `bytes`.
pub(crate) fn value_end(bytes: &[u8], at: usize) -> usize {
    end_of(
        bytes,
        at,
        |word| below(word, b' ') | equal(word, 0x7F),
        |byte| (byte < b' ' && byte != b'\t') || byte == 0x7F,
    )
}

/// The first byte from `at` that no request target may hold: control, space, `#`, or above 0x7E; or the length of `bytes`.
pub(crate) fn target_end(bytes: &[u8], at: usize) -> usize {
    let stops = |word| below(word, b'!') | equal(word, b'#') | equal(word, 0x7F) | (word & HIGH);
    end_of(bytes, at, stops, |byte| !is_target_byte(byte))
}

/// Visible ASCII without `#` (a fragment is never sent, RFC 9112 §3.2). RFC 3986 allows less; what browsers send is this.
pub(crate) fn is_target_byte(byte: u8) -> bool {
    byte > b' ' && byte < 0x7F && byte != b'#'
}

const HIGH: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Sets the high bit of each byte below `limit` (at most 0x80). Above the first one that is set there may be wrong ones.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGH
}

/// Sets the high bit of each byte equal to `byte`, with the same reservation.
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * byte as u64), 1)
}

/// Sets the high bit of each byte that is a letter, a digit or `-`, and of no other.
const fn alphanumeric_or_hyphen(word: u64) -> u64 {
    // No sum leaves its byte, because both its parts are below 0x80.
    let low = word & !HIGH;
    let small = low | (ONES * 0x20);
    let letter = from(small, b'a') & !from(small, b'z' + 1);
    let digit = from(low, b'0') & !from(low, b'9' + 1);
    let hyphen = from(low, b'-') & !from(low, b'-' + 1);
    (letter | digit | hyphen) & !word & HIGH
}

/// Sets the high bit of each byte from `least` on; all bytes are below 0x80.
const fn from(low: u64, least: u8) -> u64 {
    low + ONES * (0x80 - least) as u64
}

#[inline]
fn end_of(
    bytes: &[u8],
    mut at: usize,
    candidates: impl Fn(u64) -> u64,
    stops: impl Fn(u8) -> bool,
) -> usize {
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let found = candidates(u64::from_le_bytes(*word));
        if found == 0 {
            at += 8;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if stops(bytes[at]) {
            return at;
        }
        at += 1;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .position(|byte| stops(*byte))
        .unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_at_the_first_byte_that_is_not_of_one() {
        for length in [1, 7, 8, 9, 16, 19] {
            for place in 0..length {
                for byte in 0..=255 {
                    // Bytes beside it do not change what it is.
                    for others in [b"aaa".as_slice(), b"-a-", b"zZ9", b"0-A"] {
                        let others = others.iter().copied().cycle();
                        let mut text: Vec<u8> = others.take(length).collect();
                        text[place] = byte;
                        let passes = NAME[usize::from(byte)] != 0;
                        let expected = if passes { length } else { place };
                        assert_eq!(token_end(&text, 0), expected, "{text:?}");
                    }
                }
            }
        }
    }
}
