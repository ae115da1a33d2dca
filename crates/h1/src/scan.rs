//! Finding where names, targets and values end. A position goes in, the position of the first byte that does not belong comes out;
//! the caller decides what that byte means, and remembers the position, so that no byte is looked at twice.
//!
//! Values and targets are looked at eight bytes at a time with plain arithmetic: heads are short, so that the set-up of wider
//! searches costs more than it saves.

use crate::token::NAME;

/// The first byte from `at` that is none of a token's (RFC 9110 §5.6.2), or the length of `bytes`.
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let stops = |byte: u8| NAME[usize::from(byte)] == 0;
    let mut end = at;
    // Four at a time, which halves what a name costs.
    for [a, b, c, d] in rest.as_chunks::<4>().0 {
        if stops(*a) {
            return end;
        }
        if stops(*b) {
            return end + 1;
        }
        if stops(*c) {
            return end + 2;
        }
        if stops(*d) {
            return end + 3;
        }
        end += 4;
    }
    let rest = bytes.get(end..).unwrap_or_default();
    let found = rest.iter().position(|byte| stops(*byte));
    end + found.unwrap_or(rest.len())
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
