//! QPACK (RFC 9204) without a dynamic table: the peer is told that it may have none (our capacity is 0), and none is asked of it. What is left is the
//! static table and literals; no field section ever waits for another stream, and nothing is remembered between requests.
//!
//! Sections are read with Huffman codes, and written without: a body's first packet has room, and encoding is the larger part of the cost.

pub(crate) mod huffman;
mod table;

/// What a field section may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The sum over all fields of name, value and 32 bytes (RFC 9114 §4.2.2).
    pub(crate) size: usize,
    /// Fields, pseudo-fields included.
    pub(crate) count: usize,
}

/// Why a section cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is no field section: the connection has to end (`QPACK_DECOMPRESSION_FAILED`).
    Bad,
    /// It is larger than allowed.
    TooLarge,
}

/// Reads a field section, giving each field to `take` in order.
///
/// # Errors
/// [`Unusable`], or what `take` says.
pub(crate) fn decode<E: From<Unusable>>(
    block: &[u8],
    limits: Limits,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut input = Input { rest: block };
    // §4.5.1: nothing of a dynamic table is required; the base then says nothing, but it must not be negative (§4.5.1.2).
    if input.integer(8)? != 0 || input.rest.first().is_some_and(|byte| byte & 0x80 != 0) {
        return Err(Unusable::Bad.into());
    }
    input.integer(7)?;
    // Only what is in Huffman code is written anew; all else is read where it lies.
    let (mut plain_name, mut plain_value) = (Vec::new(), Vec::new());
    let (mut size, mut count) = (0usize, 0usize);
    while let Some(first) = input.rest.first().copied() {
        let (name, value) = match first {
            // §4.5.2: indexed.
            0x80.. => {
                let (name, value) = input.reference(first & 0x40 != 0, 6)?;
                (name.as_bytes(), value.as_bytes())
            }
            // §4.5.4: a literal with a name of the table.
            0x40..=0x7f => {
                let (name, _) = input.reference(first & 0x10 != 0, 4)?;
                let value = input.string(7, limits.size, &mut plain_value)?;
                (name.as_bytes(), value)
            }
            // §4.5.6: a literal with a literal name.
            0x20..=0x3f => {
                let name = input.string(3, limits.size, &mut plain_name)?;
                (name, input.string(7, limits.size, &mut plain_value)?)
            }
            // §4.5.3 and §4.5.5 are about the dynamic table.
            _ => return Err(Unusable::Bad.into()),
        };
        size += name.len() + value.len() + 32;
        count += 1;
        if size > limits.size || count > limits.count {
            return Err(Unusable::TooLarge.into());
        }
        take(name, value)?;
    }
    Ok(())
}

/// Begins a field section.
pub(crate) fn begin(into: &mut Vec<u8>) {
    into.extend_from_slice(&[0, 0]);
}

/// Appends a field to a section.
pub(crate) fn field(into: &mut Vec<u8>, name: &str, value: &[u8]) {
    let known = table::by_name(name);
    if let Some((index, _)) = known.iter().find(|(_, text)| text.as_bytes() == value) {
        return integer(into, 0xc0, 6, u64::from(*index));
    }
    // Never to be indexed by those who pass it on (§7.1.3): what is secret must not be found out by compression.
    let secret = matches!(
        name,
        "authorization" | "cookie" | "set-cookie" | "proxy-authorization"
    );
    match known.first() {
        Some((index, _)) => {
            let never = if secret { 0x20 } else { 0 };
            integer(into, 0x50 | never, 4, u64::from(*index));
        }
        None => {
            let never = if secret { 0x10 } else { 0 };
            integer(into, 0x20 | never, 3, name.len() as u64);
            into.extend_from_slice(name.as_bytes());
        }
    }
    integer(into, 0, 7, value.len() as u64);
    into.extend_from_slice(value);
}

/// Appends a field by its number in the table.
pub(crate) fn indexed(into: &mut Vec<u8>, index: u8) {
    integer(into, 0xc0, 6, index.into());
}

/// Appends a field whose name has that number in the table, and whose value has not.
pub(crate) fn named(into: &mut Vec<u8>, index: u8, value: &[u8]) {
    integer(into, 0x50, 4, index.into());
    integer(into, 0, 7, value.len() as u64);
    into.extend_from_slice(value);
}

/// `:status` 200.
pub(crate) const STATUS_200: u8 = 25;
/// `content-length`.
pub(crate) const CONTENT_LENGTH: u8 = 4;
/// `date`.
pub(crate) const DATE: u8 = 6;

/// RFC 7541 §5.1: a number that begins in the lowest `bits` of a byte.
fn integer(into: &mut Vec<u8>, mark: u8, bits: u32, value: u64) {
    let most = (1u64 << bits) - 1;
    if value < most {
        into.push(mark | (value & 0xff) as u8);
        return;
    }
    into.push(mark | (most & 0xff) as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        into.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    into.push((rest & 0x7f) as u8);
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Unusable> {
        let (first, rest) = self.rest.split_first().ok_or(Unusable::Bad)?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, bits: u32) -> Result<u64, Unusable> {
        let most = (1u64 << bits) - 1;
        let mut value = u64::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        for shift in (0..MOST_SHIFT).step_by(7) {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unusable::Bad)
    }

    fn reference(
        &mut self,
        is_static: bool,
        bits: u32,
    ) -> Result<(&'static str, &'static str), Unusable> {
        let index = self.integer(bits)?;
        is_static
            .then(|| table::get(index))
            .flatten()
            .ok_or(Unusable::Bad)
    }

    /// A string whose length begins in the lowest `bits`; the bit above says whether it is in Huffman code, and has to be written to `plain`.
    fn string<'b>(
        &mut self,
        bits: u32,
        most: usize,
        plain: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Unusable>
    where
        'a: 'b,
    {
        let coded = self.rest.first().ok_or(Unusable::Bad)? & (1 << bits) != 0;
        let length = usize::try_from(self.integer(bits)?).map_err(|_| Unusable::Bad)?;
        if length > self.rest.len() {
            return Err(Unusable::Bad);
        }
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        // Before it is decoded: the shortest code has 5 bits, so this bounds the text too.
        if length > most {
            return Err(Unusable::TooLarge);
        }
        if !coded {
            return Ok(text);
        }
        plain.clear();
        plain.reserve(length * 8 / 5);
        huffman::decode(text, plain).ok_or(Unusable::Bad)?;
        Ok(plain)
    }
}

/// §4.1.1: 62 bits have to be enough, and are.
const MOST_SHIFT: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        size: 1000,
        count: 10,
    };

    fn read(block: &[u8]) -> Result<Vec<(String, String)>, Unusable> {
        let mut fields = Vec::new();
        decode(block, LIMITS, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push((text(name), text(value)));
            Ok::<(), Unusable>(())
        })?;
        Ok(fields)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let long = "x".repeat(300);
        let fields = [
            (":method", "GET"),
            (":path", "/some/where"),
            ("x-frame-options", "sameorigin"),
            ("cookie", "a=b"),
            ("x-own", "1"),
            ("x-own", long.as_str()),
        ];
        let mut block = Vec::new();
        begin(&mut block);
        for (name, value) in fields {
            field(&mut block, name, value.as_bytes());
        }
        let seen = read(&block).unwrap();
        let seen: Vec<_> = seen.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(seen, fields);
    }

    #[test]
    fn numbers_that_are_written_by_heart_are_the_tables() {
        let mut block = Vec::new();
        begin(&mut block);
        indexed(&mut block, STATUS_200);
        named(&mut block, CONTENT_LENGTH, b"17");
        named(&mut block, DATE, b"now");
        let seen = read(&block).unwrap();
        let seen: Vec<_> = seen.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let fields = [
            (":status", "200"),
            ("content-length", "17"),
            ("date", "now"),
        ];
        assert_eq!(seen, fields);
    }

    /// RFC 9204 §B.1.
    #[test]
    fn the_example_of_the_rfc_is_read() {
        let block = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(
            read(block).unwrap(),
            [(":path".into(), "/index.html".into())]
        );
    }

    #[test]
    fn a_dynamic_table_is_refused() {
        for block in [
            &b"\x01\x00"[..],
            b"\x00\x80",
            b"\x00\x00\x80",
            b"\x00\x00\x10",
            b"\x00\x00\x40\x00",
            b"\x00\x00\x00\x00",
            b"\x00\x00\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            b"\x00\x00\xff\x24",
            b"\x00\x00\x51\x0b/ind",
            b"\x00",
            b"",
        ] {
            assert_eq!(read(block), Err(Unusable::Bad), "{block:?}");
        }
    }

    #[test]
    fn size_and_number_are_bounded() {
        let mut many = vec![0, 0];
        many.extend([0xd1; 11]);
        assert_eq!(read(&many), Err(Unusable::TooLarge));
        let mut large = Vec::new();
        begin(&mut large);
        field(&mut large, "x", &[b'x'; 990]);
        assert_eq!(read(&large), Err(Unusable::TooLarge));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            let mut block = vec![0, 0];
            for _ in 0..(state % 40) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                block.push((state & 0xff) as u8);
            }
            state = state.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
            let _ = read(&block);
        }
    }
}
