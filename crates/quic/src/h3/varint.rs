//! Integers of variable length (RFC 9000 §16).

/// The largest that can be said.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Reads one from the front: the value and its length, or `None` if it is not complete.
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| {
        (value << 8) | u64::from(*byte)
    });
    Some((value, length))
}

/// Appends one in its shortest form; what is too large is said as [`MAX`], which nobody has.
pub(crate) fn write(into: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX);
    let bytes = value.to_be_bytes();
    let (length, mark) = match value {
        0..=0x3f => (1, 0x00),
        0x40..=0x3fff => (2, 0x40),
        0x4000..=0x3fff_ffff => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = into.len();
    into.extend_from_slice(&bytes[8 - length..]);
    into[start] |= mark;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 §A.1.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let eight = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(read(&eight), Some((151_288_809_941_952_652, 8)));
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
        assert_eq!(read(&[0x7b, 0xbd]), Some((15_293, 2)));
        assert_eq!(read(&[0x25]), Some((37, 1)));
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)));
        assert_eq!(read(&eight[..7]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut bytes = Vec::new();
            write(&mut bytes, value);
            assert_eq!(read(&bytes), Some((value, bytes.len())));
        }
    }
}
