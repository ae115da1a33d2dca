//! smux frames: an 8-byte header, then the payload. Knows nothing of streams' states.
//!
//! `version u8 ‖ command u8 ‖ length u16 ‖ stream u32 ‖ payload`, little-endian. Only `PSH` and `UPD` have a payload.

use super::types::{Version, Violation};

/// Bytes of a frame header.
pub(super) const HEADER: usize = 8;
/// Payload bytes of an `UPD`: consumed u32, window u32.
pub(super) const UPDATE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Command {
    /// Opens a stream.
    Syn = 0,
    /// The sender writes no more on the stream.
    Fin = 1,
    /// Bytes of a stream.
    Psh = 2,
    /// Shows that the sender lives.
    Nop = 3,
    /// Version 2: what the sender has consumed of a stream, and its window.
    Upd = 4,
}

impl Command {
    fn from_wire(value: u8, version: Version) -> Option<Self> {
        Some(match value {
            0 => Self::Syn,
            1 => Self::Fin,
            2 => Self::Psh,
            3 => Self::Nop,
            4 if version == Version::V2 => Self::Upd,
            _ => return None,
        })
    }

    /// Go's smux reads no payload after the other commands whatever the length says; a peer that gives one would be understood
    /// differently by different ends.
    fn allows(self, length: u16) -> bool {
        match self {
            Self::Psh => true,
            Self::Upd => usize::from(length) == UPDATE,
            Self::Syn | Self::Fin | Self::Nop => length == 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: Version,
    pub(super) command: Command,
    pub(super) length: u16,
    pub(super) stream: u32,
}

impl Header {
    /// A header of the peer, who must speak `version`.
    pub(super) fn from_wire(wire: [u8; HEADER], version: Version) -> Result<Self, Violation> {
        let [theirs, command, l0, l1, s0, s1, s2, s3] = wire;
        if theirs != version as u8 {
            return Err(Violation::Version {
                ours: version as u8,
                theirs,
            });
        }
        let header = Self {
            version,
            command: Command::from_wire(command, version)
                .ok_or(Violation::UnknownCommand(command))?,
            length: u16::from_le_bytes([l0, l1]),
            stream: u32::from_le_bytes([s0, s1, s2, s3]),
        };
        if !header.command.allows(header.length) {
            return Err(Violation::BadLength {
                command,
                length: header.length,
            });
        }
        Ok(header)
    }
}

impl From<Header> for [u8; HEADER] {
    fn from(header: Header) -> Self {
        let [l0, l1] = header.length.to_le_bytes();
        let [s0, s1, s2, s3] = header.stream.to_le_bytes();
        let (version, command) = (header.version as u8, header.command as u8);
        [version, command, l0, l1, s0, s1, s2, s3]
    }
}
