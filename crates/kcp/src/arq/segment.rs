//! KCP segments on the wire: 24 bytes of header, then payload; several in a datagram. All numbers little-endian.

use std::fmt;

use crate::InputError;

/// Bytes of a segment header.
pub const HEADER: usize = 24;

/// The number both ends of a session share; segments with another one are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv(pub u32);

impl fmt::Display for Conv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A sequence number. It wraps: only the distance to another one, at most 2^31, has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sn(pub u32);

impl Sn {
    /// How far `self` lies after `base`; negative when before it.
    pub const fn since(self, base: Self) -> i32 {
        self.0.wrapping_sub(base.0) as i32
    }

    /// The number `count` later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Carries payload.
    Push,
    /// Acknowledges one segment, and by `una` all before.
    Ack,
    /// Asks for the receiver's window.
    WindowAsk,
    /// Tells the receiver's window.
    WindowTell,
}

impl Command {
    const fn wire(self) -> u8 {
        match self {
            Self::Push => 81,
            Self::Ack => 82,
            Self::WindowAsk => 83,
            Self::WindowTell => 84,
        }
    }

    const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            81 => Some(Self::Push),
            82 => Some(Self::Ack),
            83 => Some(Self::WindowAsk),
            84 => Some(Self::WindowTell),
            _ => None,
        }
    }
}

/// A segment's header without its length, which is the payload's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The conversation.
    pub conv: Conv,
    /// What the segment is for.
    pub command: Command,
    /// Fragments of the same message still to come; 0 in stream mode.
    pub fragment: u8,
    /// Segments that the sender of this one can still take in.
    pub window: u16,
    /// When it was sent, in the sender's milliseconds; an acknowledgement returns that of the segment it is for.
    pub timestamp: u32,
    /// Its number; for an acknowledgement the number of the segment it is for.
    pub sn: Sn,
    /// All numbers before this one have been received.
    pub una: Sn,
}

impl Header {
    /// Writes the header of a segment with `payload` bytes. `out` must hold [`HEADER`] bytes.
    pub(crate) fn write(&self, payload: usize, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.conv.0.to_le_bytes());
        out[4] = self.command.wire();
        out[5] = self.fragment;
        out[6..8].copy_from_slice(&self.window.to_le_bytes());
        out[8..12].copy_from_slice(&self.timestamp.to_le_bytes());
        out[12..16].copy_from_slice(&self.sn.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.una.0.to_le_bytes());
        out[20..24].copy_from_slice(&(payload as u32).to_le_bytes());
    }
}

/// The segments of a datagram, in order. Fewer than [`HEADER`] bytes at the end are padding, as with kcp-go.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    /// Reads `datagram`, which is neither sealed nor in a FEC packet any more.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<(Header, &'a [u8]), InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        self.rest = &[];
        let Some(command) = Command::from_wire(head[4]) else {
            return Some(Err(InputError::Command(head[4])));
        };
        let length = usize::try_from(word(20)).unwrap_or(usize::MAX);
        if length > rest.len() {
            return Some(Err(InputError::Truncated));
        }
        let (payload, rest) = rest.split_at(length);
        self.rest = rest;
        let header = Header {
            conv: Conv(word(0)),
            command,
            fragment: head[5],
            window: u16::from_le_bytes([head[6], head[7]]),
            timestamp: word(8),
            sn: Sn(word(12)),
            una: Sn(word(16)),
        };
        Some(Ok((header, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_reads_back() {
        let header = Header {
            conv: Conv(0xdead_beef),
            command: Command::Push,
            fragment: 3,
            window: 512,
            timestamp: 1,
            sn: Sn(u32::MAX),
            una: Sn(7),
        };
        let mut out = [0; HEADER + 2];
        header.write(2, &mut out);
        let mut segments = Segments::new(&out);
        assert_eq!(segments.next(), Some(Ok((header, &[0, 0][..]))));
        assert_eq!(segments.next(), None);
    }

    #[test]
    fn a_length_beyond_the_datagram_is_refused_and_ends_it() {
        let header = Header {
            conv: Conv(1),
            command: Command::Push,
            fragment: 0,
            window: 0,
            timestamp: 0,
            sn: Sn(0),
            una: Sn(0),
        };
        let mut out = [0; HEADER];
        header.write(u32::MAX as usize, &mut out);
        let mut segments = Segments::new(&out);
        assert_eq!(segments.next(), Some(Err(InputError::Truncated)));
        assert_eq!(segments.next(), None);
    }

    #[test]
    fn numbers_compare_across_the_wrap() {
        assert_eq!(Sn(2).since(Sn(u32::MAX)), 3);
        assert_eq!(Sn(u32::MAX).since(Sn(2)), -3);
        assert_eq!(Sn(u32::MAX).plus(3), Sn(2));
    }
}
