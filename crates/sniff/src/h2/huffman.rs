//! Huffman decoding (RFC 7541 §5.2 and Appendix B).
//!
//! The code is canonical: symbols of one length have consecutive codes, in the order of the symbols, and the codes of the next
//! length go on from there. So the lengths say everything, and decoding compares the bits so far with the first code of each
//! length. One step per bit; strings here are short.

use super::HpackError;

/// Code length in bits of each byte value, and of the end of a string (Appendix B).
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const MAX_LENGTH: usize = 30;
const END_OF_STRING: u16 = 256;

/// Symbols of one code length.
#[derive(Clone, Copy)]
struct Group {
    first_code: u32,
    count: u32,
    /// Where they begin in `SYMBOLS`.
    offset: u32,
}

const GROUPS: [Group; MAX_LENGTH + 1] = groups();
const SYMBOLS: [u16; 257] = symbols();

/// Decodes `bytes` to at most `limit` bytes.
pub(super) fn decode(bytes: &[u8], limit: usize) -> Result<Vec<u8>, HpackError> {
    // The shortest code has 5 bits.
    let mut out = Vec::with_capacity((bytes.len() * 8 / 5).min(limit));
    let (mut code, mut length) = (0u32, 0usize);
    for bit in bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |shift| u32::from(byte >> shift & 1)))
    {
        code = code << 1 | bit;
        length += 1;
        let Some(group) = GROUPS.get(length) else {
            return Err(HpackError::Huffman);
        };
        let nth = code.wrapping_sub(group.first_code);
        if nth >= group.count {
            continue;
        }
        let symbol = SYMBOLS[(group.offset + nth) as usize];
        if symbol == END_OF_STRING {
            return Err(HpackError::Huffman);
        }
        if out.len() == limit {
            return Err(HpackError::TooLong);
        }
        out.push(symbol as u8);
        (code, length) = (0, 0);
    }
    // Padding: fewer than 8 bits, all of them set.
    if length < 8 && code == (1 << length) - 1 {
        Ok(out)
    } else {
        Err(HpackError::Huffman)
    }
}

const fn groups() -> [Group; MAX_LENGTH + 1] {
    let mut groups = [Group {
        first_code: 0,
        count: 0,
        offset: 0,
    }; MAX_LENGTH + 1];
    let (mut code, mut offset, mut length) = (0, 0, 1);
    while length <= MAX_LENGTH {
        code <<= 1;
        let mut count = 0;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            count += (LENGTHS[symbol] as usize == length) as u32;
            symbol += 1;
        }
        groups[length] = Group {
            first_code: code,
            count,
            offset,
        };
        code += count;
        offset += count;
        length += 1;
    }
    // A complete code: no bits are left without a meaning.
    assert!(code == 1 << MAX_LENGTH && offset == 257);
    groups
}

const fn symbols() -> [u16; 257] {
    let mut symbols = [0; 257];
    let (mut at, mut length) = (0, 1);
    while length <= MAX_LENGTH {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
}
