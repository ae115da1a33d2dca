//! The Huffman code of HPACK and QPACK (RFC 7541 §5.2 and Appendix B).
//!
//! The code is canonical: sorted by length, then by symbol, each code is the one before plus one. So the lengths are all there is to keep, and
//! decoding compares a window of the input with the last code of each length.

use std::sync::LazyLock;

/// Appends what `bytes` stand for. `None`: they are no such code.
pub(crate) fn decode(bytes: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let code = &*CODE;
    // The window's highest bits come next; `held` of them are input.
    let (mut window, mut held) = (0u64, 0u32);
    let mut rest = bytes.iter();
    loop {
        while held <= 56 {
            let Some(byte) = rest.next() else { break };
            window |= u64::from(*byte) << (56 - held);
            held += 8;
        }
        let first = (window >> 32) as u32;
        let step = code.steps.iter().find(|step| first <= step.last)?;
        if step.length > held {
            break;
        }
        let place = (first - step.first) >> (32 - step.length);
        let symbol = *code.symbols.get(step.before + place as usize)?;
        // The end of all, 30 ones, must not be there.
        into.push(u8::try_from(symbol).ok()?);
        window <<= step.length;
        held -= step.length;
    }
    // §5.2: filled up with ones, less than a byte of them.
    let filling = window.checked_shr(64 - held).unwrap_or(0);
    (held < 8 && filling == (1 << held) - 1).then_some(())
}

/// The same without a window: what [`decode`] is checked against.
#[cfg(feature = "fuzz")]
pub(crate) fn bit_by_bit(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut code, mut length, mut all_ones) = (0u32, 0u32, true);
    for n in 0..bytes.len() * 8 {
        let bit = u32::from(bytes[n / 8] >> (7 - n % 8)) & 1;
        code = (code << 1) | bit;
        length += 1;
        all_ones &= bit == 1;
        let step = CODE.steps.iter().find(|step| step.length == length);
        if let Some(step) = step {
            let aligned = u64::from(code) << (32 - length);
            if aligned >= u64::from(step.first) && aligned <= u64::from(step.last) {
                let place = (code - (step.first >> (32 - length))) as usize;
                let symbol = *CODE.symbols.get(step.before + place)?;
                out.push(u8::try_from(symbol).ok()?);
                (code, length, all_ones) = (0, 0, true);
            }
        }
    }
    (length < 8 && all_ones).then_some(out)
}

/// The codes of one length, moved to the left of 32 bits.
struct Step {
    length: u32,
    first: u32,
    /// The largest window that begins with a code of this length or of a shorter one.
    last: u32,
    /// Symbols with shorter codes.
    before: usize,
}

struct Code {
    steps: Vec<Step>,
    symbols: Vec<u16>,
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut order: Vec<(u8, u16)> = LENGTHS.iter().copied().zip(0..).collect();
    order.push((END_LENGTH, 256));
    order.sort_unstable();
    let mut steps: Vec<Step> = Vec::new();
    let mut next = 0u64;
    for (place, (length, _)) in order.iter().enumerate() {
        let length = u32::from(*length);
        let size = 1u64 << (32 - length);
        if steps.last().is_none_or(|step| step.length != length) {
            steps.push(Step {
                length,
                first: next as u32,
                last: 0,
                before: place,
            });
        }
        next += size;
        if let Some(step) = steps.last_mut() {
            step.last = (next - 1) as u32;
        }
    }
    Code {
        steps,
        symbols: order.into_iter().map(|(_, symbol)| symbol).collect(),
    }
});

const END_LENGTH: u8 = 30;

/// The length of each byte's code.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hex: &str) -> Option<String> {
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
            .collect();
        let mut out = Vec::new();
        decode(&bytes, &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    /// RFC 7541 §C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        for (hex, expected) in [
            ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
            ("a8eb10649cbf", "no-cache"),
            ("25a849e95ba97d7f", "custom-key"),
            ("25a849e95bb8e8b4bf", "custom-value"),
            ("6402", "302"),
            ("aec3771a4b", "private"),
            (
                "d07abe941054d444a8200595040b8166e082a62d1bff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (
                "9d29ad171863c78f0b97c8e9ae82ae43d3",
                "https://www.example.com",
            ),
            (
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ] {
            assert_eq!(text(hex).as_deref(), Some(expected));
        }
    }

    #[test]
    fn bad_filling_and_the_end_symbol_are_refused() {
        assert_eq!(text("64").as_deref(), None);
        assert_eq!(text("ff"), None);
        assert_eq!(text("ffffffff"), None);
        assert_eq!(text("a8eb10649cbfff"), None);
        assert_eq!(text("").as_deref(), Some(""));
    }
}
